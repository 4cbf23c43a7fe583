"""What a run has done so far, and what each result depends on, so that ``--resume`` does not do it again."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tipchain import __version__
from tipchain.chain.artifacts import Stamp, UnsettledError, settle, snapshot, stamp
from tipchain.chain.execute import Place
from tipchain.chain.plan import Command, Plan, Result, parse_result, result_json
from tipchain.core.files import DATA_VARIABLE, sha256_of
from tipchain.core.json_text import Json
from tipchain.outcome import Outcome

# What a command's result depends on, as far as its words and its environment tell.
#
# These are its words, its environment, its folder, and the files and folders that they name: as a word, as the part of
# a word after ``=``, or as the stem of a weight file. Files count by their bytes, large ones by size and time of
# change, folders by a listing. What a program imports or reads besides is not known here: resume in an unchanged
# checkout.


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
            path: (later or {}).get(path, entries) if _grown(entries, (later or {}).get(path, {})) else entries
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
                self.hashes[found] = sha256_of(path)
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


# What a run has done so far, so that ``--resume`` does not do it again.
#
# ``journal.jsonl`` in the run's folder has one JSON object a line:
#
# - ``{"journal": 1, "params", "sha256", "mode", "suite", "tipchain", "time"}`` for each attempt at the run;
# - ``{"started": id}`` before a command starts, so that an earlier pass of it, and of what needs it, no longer counts;
# - ``{"ended": id, "result": {...}, "inputs": {...}, "artifacts": {...}}`` after it ended, safely on the disk.
#
# A last line that a killed process left half-written is ignored, and so is any other line that is none of these: the
# worst that comes of it is that a command runs again.


FILE_NAME = "journal.jsonl"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """A passed command: its result, and what it rested on and left."""

    result: Result
    call: str
    inputs: Mapping[str, str]
    artifacts: Mapping[str, str]


class Journal:
    """The journal of one run. Its methods may be called from several threads at once.

    For each command that is run: `before`, then the command, then `record`.

    Attributes:
        path: the file.
        problem: why it could not be written; "" if it could. The run goes on without.
    """

    def __init__(self, run: Path) -> None:
        """Read what earlier attempts at the run in the folder ``run`` have left, if there were any."""
        self.path = run / FILE_NAME
        self.problem = ""
        self._lock = threading.Lock()
        self._reader = InputReader()
        self._before: dict[str, Inputs] = {}
        # Commands whose latest attempt passed, by id.
        passes: dict[str, _Pass] = {}
        for line in _lines(self.path):
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                if "started" in line:
                    _forget(passes, line["started"])
                elif "inputs" not in line:
                    passes.pop(line["ended"], None)
                else:
                    result, inputs = parse_result(line["result"]), line["inputs"]
                    passes[line["ended"]] = _Pass(
                        result=result,
                        call=inputs["call"],
                        inputs=dict(inputs["files"]),
                        artifacts=dict(line["artifacts"]),
                    )
        self._passed = passes

    def start(self, plan: Plan) -> None:
        """Begin an attempt at ``plan``."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        head = _identity(plan) | {"sha256": _content_hash(Path(plan.params)), "tipchain": __version__, "time": now}
        self._append({"journal": FORMAT, **head}, whole=True)

    def before(self, command: Command, place: Place) -> None:
        """Take note of the inputs of ``command``, as planned, which is about to start."""
        inputs = self._reader.read(command, place)
        with self._lock:
            self._before[command.id] = inputs
            _forget(self._passed, command.id)
        self._append({"started": command.id})

    def record(self, result: Result, place: Place) -> None:
        """Write down how a command ended; what was reused stands there already."""
        if result.reused:
            return
        line: dict[str, Json] = {"ended": result.command.id, "result": result_json(result)}
        with self._lock:
            before = self._before.pop(result.command.id, None)
        if result.outcome is Outcome.PASS and before is not None:
            # The words as they were planned are in ``before``; those in the result may be settled.
            later = self._reader.folders_again(before, result.command, place)
            line["inputs"] = {"call": before.call, "files": before.states(later)}
            line["artifacts"] = _artifacts(result, place)
        self._append(line, whole=True)

    def finished(self, command: Command, place: Place) -> Result | None:
        """Return the PASS of an earlier attempt, marked as reused, if it still holds.

        It does if the command's words, environment and folder and the files that they name are what they were
        before it started then, and what it left is there, unchanged. The answer stays the same for one attempt.
        """
        with self._lock:
            earlier = self._passed.get(command.id)
        if earlier is None:
            return None
        if not self._holds(earlier, command, place):
            with self._lock:
                self._passed.pop(command.id, None)
            return None
        return earlier.result._replace(reused=True)

    def _holds(self, earlier: _Pass, command: Command, place: Place) -> bool:
        now = self._reader.read(command, place)
        return (
            now.call == earlier.call
            and earlier.inputs.items() <= now.states().items()  # what is new may be its own output
            and earlier.artifacts.items() <= _artifacts(earlier.result, place).items()
            # What the plan asks for now may be more than what was asked for then.
            and earlier.result.command.leaves == command.leaves
        )

    def _append(self, line: Mapping[str, object], *, whole: bool = False) -> None:
        """Append one line in one write; ``whole`` waits until it is on the disk."""
        data = json.dumps(line, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        try:
            with self._lock, self.path.open("ab+", buffering=0) as file:
                handle = file.fileno()
                size = os.fstat(handle).st_size
                if not (size == 0 or os.pread(handle, 1, size - 1) == b"\n"):
                    data = b"\n" + data
                file.write(data)
                if whole:
                    os.fsync(file.fileno())
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"


def _artifacts(result: Result, place: Place) -> dict[str, str]:
    """Return size and time of change of what a command left, by path."""
    leaves = result.command.leaves
    found = {path: f"{state.size} {state.mtime_ns}" for path, state in snapshot(leaves, place.root).items()}
    if any(one.in_log for one in leaves):
        log = stamp(place.run / result.log)
        found[result.log] = f"{log.size} {log.mtime_ns}" if log else ""
    return found


def resumable(out: Path, plan: Plan) -> Path | None:
    """Return the latest run below ``out`` that was an attempt at the same file, mode and suite; None if none was.

    The file's text may have changed since: commands that differ are not the same commands. Whether that run
    still goes on is not looked at.
    """
    wanted = _identity(plan)
    for run in sorted((out / "runs").glob("*/"), reverse=True):
        first = next((line for line in _lines(run / FILE_NAME) if "journal" in line), {})
        if first.get("journal") == FORMAT and all(first.get(key) == value for key, value in wanted.items()):
            return run
    return None


def _identity(plan: Plan) -> dict[str, str]:
    return {"params": os.path.relpath(plan.params), "mode": plan.mode.value, "suite": plan.suite}


def _forget(passes: dict[str, _Pass], name: str) -> None:
    """Remove the pass of a command, and those that rest on it: what it leaves anew they have not seen.

    An attempt may be killed when the command has passed again and before what needs it was repeated. A folder of
    the run is no input (`tipchain.chain.journal`), so nothing else would tell the next attempt.
    """
    passes.pop(name, None)
    for other in [key for key, one in passes.items() if name in one.result.command.needs]:
        _forget(passes, other)


def _lines(path: Path) -> Iterator[dict[str, Json]]:
    """Yield the objects of a journal; what is none, as a line half-written, is left out."""
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    with suppress(ValueError, RecursionError):
                        data = json.loads(line)
                        if isinstance(data, dict):
                            yield data
    except OSError:
        return


def _content_hash(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError:
        return ""
