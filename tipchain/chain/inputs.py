"""What a command's result depends on, as far as its words and its environment tell.

These are its words, its environment, its folder, and the files and folders that they name: as a word, as the part of
a word after ``=``, or as the stem of a weight file. Files count by their bytes, large ones by size and time of
change, folders by a listing. What a program imports or reads besides is not known here: resume in an unchanged
checkout.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.chain.artifacts import Stamp, stamp
from tipchain.chain.execute import Place
from tipchain.chain.finds import UnsettledError, settle
from tipchain.chain.plan import Command
from tipchain.runs import DATA_VARIABLE

HASHED_BYTES = 64 << 20
"""Larger files are taken to be unchanged where their size and time of change are."""
LISTED = 10_000
"""Entries of a folder that are looked at."""
_IGNORED = ("__pycache__", ".git")
_STEM_OF = ".pdparams"
Listing = Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of one command at one time.

    Attributes:
        call: a digest of its words, as planned and as they would be settled, its environment and its folder.
        files: a digest of each file, by path.
        folders: the entries of each folder, by path.
    """

    call: str
    files: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, Listing] = field(default_factory=dict)

    def states(self, later: Mapping[str, Listing] | None = None) -> dict[str, str]:
        """Return one text for each file and folder.

        A folder that has only got more entries, as ``later`` shows, counts as it is then: the command has put
        them there (a cache, a log), and what it read is unchanged.
        """
        listings = {
            path: (later or {}).get(path, entries)
            if _grown(entries, (later or {}).get(path, {}))
            else entries
            for path, entries in self.folders.items()
        }
        return {**self.files, **{path: _digest(entries) for path, entries in listings.items()}}


def _grown(before: Listing, after: Listing) -> bool:
    return all(after.get(name) == state for name, state in before.items())


class InputReader:
    """Reads inputs; a file whose state is unchanged is hashed once."""

    def __init__(self) -> None:
        self.hashes: dict[Stamp, str] = {}

    def read(self, command: Command, place: Place) -> Inputs:
        """Return the inputs of ``command``, planned and not yet settled, as they are now."""
        env = place.environment(command)
        words = command.argv
        with suppress(UnsettledError):
            words = settle(command, place.root, place.run).argv
        call = _digest([command.argv, words, sorted(env.items()), command.cwd])
        files: dict[str, str] = {}
        folders: dict[str, Listing] = {}
        for text in sorted({*_texts(words), env[DATA_VARIABLE]}):
            path = _path(text, command, place)
            if os.path.isdir(path):  # noqa: PTH112 - a word may be too long for a path
                if not _holds(path, place.run) and not _holds(place.run, path):
                    folders[text] = _list(path)
            elif state := self._state(path):
                files[text] = state
        return Inputs(call=call, files=files, folders=folders)

    def folders_again(self, before: Inputs, command: Command, place: Place) -> dict[str, Listing]:
        """Return the folders of ``before`` as they are now."""
        return {text: _list(_path(text, command, place)) for text in before.folders}

    def _state(self, path: Path) -> str:
        """Return the state of a file, or of the weights whose stem it is; "" for neither."""
        found = stamp(path)
        if found is None:
            path = path.with_name(path.name + _STEM_OF) if path.name else path
            found = stamp(path)
        if found is None:
            return ""
        if found.size > HASHED_BYTES:
            return f"size {found.size} changed {found.mtime_ns}"
        if found not in self.hashes:
            with suppress(OSError):
                self.hashes[found] = _sha256(path)
        return self.hashes.get(found, "")


def _path(text: str, command: Command, place: Place) -> Path:
    return place.root / command.cwd / text


def _texts(words: Iterable[str]) -> Iterator[str]:
    """Yield what may name a file: each word but the program's bare name, and each part after a ``=``."""
    for number, word in enumerate(words):
        if number or "/" in word:
            yield from filter(None, (word, *(word.split("=", n)[n] for n in range(1, word.count("=") + 1))))


def _holds(folder: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _list(folder: Path) -> Listing:
    """Return size and time of change of a folder's files, by path; of the first ones if there are very many."""
    found: dict[str, tuple[int, int]] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _IGNORED)
        for name in sorted(files):
            path = os.path.join(root, name)  # noqa: PTH118 - ten thousand times
            with suppress(OSError):
                state = os.stat(path)  # noqa: PTH116
                found[os.path.relpath(path, folder)] = (state.st_size, state.st_mtime_ns)
            if len(found) >= LISTED:
                return found
    return found


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
