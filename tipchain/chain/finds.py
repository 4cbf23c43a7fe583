"""Texts in a command's words that are settled only when it starts: the checkpoint that training left.

Suites name such files by a pattern, by the last epoch's number, or by what is there; nobody knows before the
training has run. Only the run's own folder is searched: a file of another run, or a link out of the folder, must
not be taken for what this run trained. A model that the suite keeps elsewhere is looked for where the file says.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from tipchain.chain.artifacts import matches, names, plain
from tipchain.chain.plan import SUFFIXES, Command, Find


class UnsettledError(LookupError):
    """What a command needs to know before it starts is not there; the message says what was looked for."""


def settle(command: Command, root: Path, run: Path) -> Command:
    """Return ``command`` with its finds settled in its words.

    Args:
        command: the command.
        root: the folder that the plan was made in; patterns are relative to it.
        run: the run's folder; absolute.

    Raises:
        UnsettledError: nothing matches, or what matches lies outside the run's folder, and may not.
    """
    if not command.finds:
        return command
    texts = {find.text: _settled_text(find, root, run, command.cwd) for find in command.finds}
    # Longest first, so that a text that begins another one does not cut it; never in the middle of a name.
    longest = sorted(texts, key=len, reverse=True)
    pattern = re.compile(rf"({'|'.join(map(re.escape, longest))})(?![\w-])")
    words = (pattern.sub(lambda match: texts[match[1]], word) for word in command.argv)
    return replace(command, argv=tuple(words))


def _settled_text(find: Find, root: Path, run: Path, cwd: str) -> str:
    if find.anywhere:
        there = [path for one in find.files for path in matches(one, root) if (root / path).exists()]
        if not there:
            return find.text
        path = max(there, key=lambda one: (root / one).stat().st_mtime_ns)
        return _like(find.text, path, root, cwd) if "/" in find.text else Path(path).name
    for pattern in find.files:
        found = [path for path in matches(pattern, root) if (root / path).exists()]
        if not found:
            continue
        path = max(found, key=lambda one: ((root / one).stat().st_mtime_ns, one))
        if not (root / path).resolve().is_relative_to(run.resolve()):
            raise UnsettledError(f"{path}, found for {plain(find.text)}, lies outside the run's folder")
        return _like(find.text, _without_suffix(path, pattern, find), root, cwd)
    raise UnsettledError(f"nothing is there for {plain(find.text)}: looked for {names(find.files)}")


def _without_suffix(path: str, pattern: str, find: Find) -> str:
    """Return ``path`` without its ending where the text is a prefix, and the pattern one of a prefix too."""
    suffix = Path(path).suffix
    is_prefix = not find.text.endswith(SUFFIXES) and pattern.removesuffix(suffix) in find.files
    return path.removesuffix(suffix) if is_prefix and suffix in SUFFIXES else path


def _like(text: str, path: str, root: Path, cwd: str) -> str:
    """Return ``path`` written as ``text`` is: absolute, or relative to the command's folder, with its ``./``."""
    absolute = os.path.normpath(root / path)
    if Path(text).is_absolute():
        return absolute
    relative = os.path.relpath(absolute, os.path.normpath(root / cwd))
    return f"./{relative}" if text.startswith("./") else relative
