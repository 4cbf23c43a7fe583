"""Programs and configuration files that a file names and its checkout does not have."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tipchain.chain.fixes import Finding
from tipchain.chain.roles import PROGRAMS
from tipchain.chain.slots import Slots
from tipchain.chain.suites import Suite
from tipchain.chain.words import Slot, Words, split_words
from tipchain.errors import ParamsError

CODE = "paths"
_CONFIG = re.compile(r"(-c|--config|--config[_-]file|--config[_-]path|--cfg|--slim_config)(=(?P<value>.*))?")
_SCRIPT = re.compile(r"[^\s=]+\.(py|sh)")


@dataclass(frozen=True, slots=True)
class Disk:
    """What is on the disk, each path looked at once."""

    seen: dict[str, bool] = field(default_factory=dict)

    def has(self, path: str) -> bool:
        """Return whether ``path`` is there."""
        if path not in self.seen:
            self.seen[path] = os.path.exists(path)  # noqa: PTH110 - False for names that no disk takes
        return self.seen[path]

    def finds(self, program: str) -> bool:
        """Return whether ``program`` can be started."""
        name = f"\0{program}"
        if name not in self.seen:
            self.seen[name] = shutil.which(program) is not None
        return self.seen[name]


def missing_paths(slots: Slots, suite: Suite, root: Path | None, disk: Disk) -> Iterator[Finding]:
    """Yield what the programs of ``slots`` name and the checkout ``root`` lacks.

    Without sign that ``root`` is the suite's checkout, by its folders or by one of the programs, nothing is said.
    """
    yield from _interpreter(slots["python"], disk)
    if root is None:
        return
    found = [
        (slot, path, disk.has(posixpath.join(str(root), path)))
        for slot in slots.values()
        for path in _named(slot, suite)
    ]
    ours = any(disk.has(str(root / folder)) for folder in suite.marks.folders)
    if not ours and (suite.marks.folders or not any(there for _, _, there in found)):
        return
    if suite.infer.cwd != "." and not disk.has(str(root / suite.infer.cwd)):
        yield _finding(
            "cwd", slots["inference"], f"the folder {suite.infer.cwd}, to infer in, is not in {root}"
        )
        found = [one for one in found if one[0].role != "inference"]
    for slot, path, there in found:
        if not there:
            yield _finding(CODE, slot, f"{path} is not in {root}")


def _finding(code: str, slot: Slot, message: str, severity: str = "warning") -> Finding:
    return Finding(
        code=code, severity=severity, file=slot.file, line=slot.line, key=slot.key, message=message
    )


def _interpreter(slot: Slot, disk: Disk) -> Iterator[Finding]:
    words = _words(slot, slot.value)
    if words and words != ("null",) and not disk.finds(words[0]):
        yield _finding(
            CODE, slot, f"{words[0]} cannot be started here; --python PATH names another interpreter", "info"
        )


def _named(slot: Slot, suite: Suite) -> Iterator[str]:
    """Yield the paths that a slot names, relative to the checkout."""
    if slot.role == "config" and not slot.absent:
        yield from dict.fromkeys(part.partition("=")[2] for part in slot.values if "=" in part)
    if slot.absent or not (PROGRAMS.fullmatch(slot.role) or slot.role == "infer_export"):
        return
    folder = suite.infer.cwd if slot.role == "inference" else "."
    texts = slot.values if slot.role == "infer_export" else (slot.value,)
    for text in dict.fromkeys(texts):
        for path in _paths(_words(slot, text)):
            yield posixpath.normpath(posixpath.join(folder, path))


def _words(slot: Slot, text: str) -> Words:
    try:
        return split_words(text, slot, pipes=True)
    except ParamsError:
        return ()  # said where the value is read


def _paths(words: Words) -> Iterator[str]:
    """Yield the script and the configuration files among a program's words."""
    if words and _SCRIPT.fullmatch(words[0]):
        yield words[0]
    for index, word in enumerate(words):
        match = _CONFIG.fullmatch(word)
        if match is None:
            continue
        value = match["value"] if match["value"] is not None else "".join(words[index + 1 : index + 2])
        if value and not value.startswith("-") and not re.search(r"[*?{}=]|://", value):
            yield value
