"""Results that serve again: an entry beside the kept files names all that they rest on, and holds while that is as it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG

from tipchain.core.files import atomic_write, sha256_of
from tipchain.core.json_text import JsonObject, as_json, parse_as, read_json

# What a result rests on is known in two halves. Before it is made: its settings, inputs and surroundings, which make the key.
# After it: the files that were read on the way, each with its mark.


LISTED = 10_000
"""Files of a folder that a command's words name that are looked at."""
HASHED_BYTES = 64 << 20
"""Files and data sets up to this size are known by their content, larger ones by size and time, or by names and sizes."""
CODE = (".py", ".so", ".pyd")
Listing = Mapping[str, tuple[int, int]]


def digest(facts: object) -> str:
    """Return a SHA-256 of facts as JSON; values that JSON has not count by their `repr`."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=repr).encode()).hexdigest()


def listing(folder: str | Path, most: int | None = None) -> Listing:
    """Return size and time of the files below a folder, by path as seen from there; of ``most`` files at most."""
    found: dict[str, tuple[int, int]] = {}
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git"))
        for name in sorted(files):
            path = os.path.join(root, name)  # noqa: PTH118 - ten thousand times
            with suppress(OSError):
                state = os.stat(path)  # noqa: PTH116
                found[os.path.relpath(path, folder)] = (state.st_size, state.st_mtime_ns)
            if len(found) == most:
                return found
    return found


def mark(path: str, kind: str) -> str:
    """Return a path's mark, beginning with the kind of mark.

    Args:
        path: a file or a folder.
        kind: of a file ``content``: its SHA-256, unless it is large; ``time``: size and time of change; ``size``: that alone.
            Of a folder ``modules``: the names of the modules and packages in it, one of which might hide another;
            ``listing``: the `listing` of its first `LISTED` files.
    """
    try:
        if kind == "listing":
            return f"listing {digest(listing(path, LISTED))}"
        if kind == "modules":
            with os.scandir(path) as entries:
                names = [
                    one.name for one in entries if (one.name.endswith(CODE) or Path(one.path, "__init__.py").is_file())
                ]
            return f"modules {digest(sorted(names))}"
        status = Path(path).stat()
        if not S_ISREG(status.st_mode):
            return f"{kind} -"
        if kind == "content" and status.st_size <= HASHED_BYTES:
            return f"content {sha256_of(Path(path))}"
    except OSError as error:
        return f"{kind} {type(error).__name__}"
    return f"{kind} {status.st_size}" + (f" {status.st_mtime_ns}" if kind != "size" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """Kept files.

    Attributes:
        key: the `digest` of all that was known before they were made.
        files: their marks, by path as seen from the entry's folder.
        rests_on: marks of what was read while they were made, by path as seen from the project's root.
        facts: what else is known of them.
    """

    key: str
    files: Mapping[str, str]
    rests_on: Mapping[str, str]
    facts: JsonObject = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the entry, whole or not at all; the files must be there.

        Raises:
            OSError: it cannot be written.
        """
        atomic_write(path, json.dumps(as_json(self)) + "\n")

    def holds(self, folder: Path, root: Path, look: Callable[[str, str], str] = mark) -> bool:
        """Tell whether the files and all that they rest on are as they were.

        Args:
            folder: where the files are.
            root: the project's root.
            look: a `mark` that may remember what it saw.
        """
        return all(
            look(os.path.join(above, name), one.partition(" ")[0]) == one  # noqa: PTH118
            for above, marks in ((folder, self.files), (root, self.rests_on))
            for name, one in marks.items()
        )


def find_entry(path: Path, key: str, root: Path, look: Callable[[str, str], str] = mark) -> StoreEntry | None:
    """Return the entry in a file if it is the key's and holds (`StoreEntry.holds`)."""
    try:
        entry = parse_as(StoreEntry, read_json(path))
    except (OSError, ValueError):
        return None
    return entry if entry.key == key and entry.holds(path.parent, root, look) else None
