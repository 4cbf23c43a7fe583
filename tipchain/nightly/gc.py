"""Which nights and runs go, by age, size and number; and their deletion, of which a kill leaves no half."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tipchain.errors import UsageError
from tipchain.nightly import remains
from tipchain.nightly.nights import hold
from tipchain.nightly.records import NIGHT
from tipchain.nightly.stored import TRASH, Stored, pin_text
from tipchain.runs import RUN_LOCK

DAY_S = 86400.0
MOUNTS = Path("/proc/self/mountinfo")
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may stay; what is protected stays whatever they say.

    Attributes:
        older_than_s: seconds since they began, from which nights and runs go; None: age does not count.
        max_bytes: of all together: the oldest go until no more is there; None: size does not count.
        keep: the latest so many of each manifest, or of each mode's runs, stay; without the other two rules all
            others go.
    """

    older_than_s: float | None = None
    max_bytes: int | None = None
    keep: int | None = None

    @property
    def alone(self) -> bool:
        """Whether the number is the only rule."""
        return self.keep is not None and self.older_than_s is None and self.max_bytes is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doomed:
    """What goes, and by which rule."""

    stored: Stored
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the rules come to.

    Attributes:
        doomed: what goes, the oldest first.
        spared: what a rule would have let go, with the reason why it stays.
        total: bytes of all.
        left: bytes of what stays.
    """

    doomed: tuple[Doomed, ...]
    spared: tuple[Doomed, ...]
    total: int
    left: int


def choose(stored: Sequence[Stored], rules: Rules, now: float) -> Choice:
    """Return what goes of ``stored``, which is in the order in which it began; ``now`` in seconds since 1970."""
    doomed = {one.folder: Doomed(stored=one, reason="left by a process that was killed") for one in stored if one.kind == "rest" and not one.kept}  # fmt: skip
    spared: dict[Path, Doomed] = {}
    spared.update(
        (one.folder, Doomed(stored=one, reason=one.kept)) for one in stored if one.kind == "rest" and one.kept
    )
    late = _late(stored, rules.keep)
    total = sum(one.size for one in stored)
    left = total - sum(one.stored.size for one in doomed.values())
    for one in stored:
        reason = _reason(one, rules, now, left)
        if one.kind == "rest" or not reason:
            continue
        kept = one.kept or (f"one of the latest {rules.keep}" if one.folder in late else "")
        if not kept:
            doomed[one.folder] = Doomed(stored=one, reason=reason)
            left -= one.size
        elif not (rules.alone and one.folder in late):
            spared[one.folder] = Doomed(stored=one, reason=kept)
    return Choice(doomed=tuple(doomed.values()), spared=tuple(spared.values()), total=total, left=left)


def _reason(one: Stored, rules: Rules, now: float, left: int) -> str:
    if rules.older_than_s is not None and now - one.began > rules.older_than_s:
        return f"older than {days(rules.older_than_s)}"
    if rules.max_bytes is not None and left > rules.max_bytes:
        return f"the oldest, of more than {size_text(rules.max_bytes)}"
    return f"not one of the latest {rules.keep}" if rules.alone else ""


def _late(stored: Sequence[Stored], keep: int | None) -> set[Path]:
    groups: dict[Path, list[Path]] = defaultdict(list)
    for one in stored:
        if one.kind != "rest":
            groups[one.group].append(one.folder)
    return {folder for folders in groups.values() for folder in folders[max(len(folders) - (keep or 0), 0) :]}


def delete(one: Stored) -> str:
    """Delete a night or a run; return "" or why it is still there, in whole or as what the next call removes.

    It is held while it is moved out of sight, so no process goes on with it; a kill after that leaves nothing that
    looks like a night.
    """
    try:
        if one.kind == "rest":
            _remove(one.folder)
            return ""
        with _held(one):
            _refuse_mounts(one.folder)
            if kept := pin_text(one.folder):
                return kept
            moved = _trash_of(one) / f"{one.folder.name}-{secrets.token_hex(3)}"
            moved.parent.mkdir(exist_ok=True)
            os.rename(one.folder, moved)  # noqa: PTH104
        _remove(moved)
    except FileNotFoundError:
        return ""  # another process deleted it
    except UsageError as error:
        return str(error).splitlines()[0]
    except OSError as error:
        return f"{error.filename or one.folder}: {error.strerror}"
    return ""


def _trash_of(one: Stored) -> Path:
    return one.group / TRASH if one.kind == "night" else one.group.parent / TRASH


@contextmanager
def _held(one: Stored) -> Iterator[None]:
    """Hold a night or run while the block runs.

    Raises:
        UsageError: another process holds it, or it cannot be written to.
        FileNotFoundError: it is gone.
    """
    if one.kind == "night":
        if not (one.folder / NIGHT).exists():
            raise FileNotFoundError(2, "is gone", str(one.folder))
        lock = hold(one.folder)
        try:
            yield
        finally:
            lock.release()
        return
    with (one.folder / RUN_LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{one.folder}: this run still goes on, in another process") from None
        yield


def _refuse_mounts(folder: Path) -> None:
    """Raise an error if something is mounted in a folder: what is in there is somebody's, on another disk or this one.

    Raises:
        UsageError: it names what is mounted.
        OSError: the folder is gone.
    """
    whole = folder.resolve()
    mounted = [one for one in _mount_points() if one.is_relative_to(whole)]
    device = whole.lstat().st_dev
    for base, folders, _ in os.walk(whole):
        others = [name for name in folders if os.lstat(os.path.join(base, name)).st_dev != device]  # noqa: PTH118
        mounted += [Path(base, name) for name in others]
        folders[:] = [name for name in folders if name not in others]
    if mounted:
        shown = ", ".join(sorted({os.path.relpath(one, whole) for one in mounted}))
        raise UsageError(f"{folder}: is left whole, for other file systems are mounted in it: {shown}")


def _mount_points() -> list[Path]:
    """Return where something is mounted: of this disk too, which no number of a device tells."""
    try:
        lines = MOUNTS.read_bytes().splitlines()
    except OSError:
        return []
    names = (line.split()[4] for line in lines)  # proc(5); blanks and such are written as octal numbers
    return [
        Path(os.fsdecode(re.sub(rb"\\([0-3][0-7]{2})", lambda found: bytes([int(found[1], 8)]), name)))
        for name in names
    ]


def _remove(folder: Path) -> None:
    if not folder.is_symlink():
        _refuse_mounts(folder)
    if folder.is_symlink():
        if remains.is_dead(folder):  # it may be in use again
            folder.unlink()
        return
    if remains.UNFINISHED.fullmatch(folder.name):
        with remains.holding(folder):
            shutil.rmtree(folder)
        return
    shutil.rmtree(folder)
    if folder.parent.name == TRASH:
        with suppress(OSError):  # something else is in it
            folder.parent.rmdir()


def size_text(size: float) -> str:
    """Return bytes for people: ``512 B``, ``3.4 MiB``, ``20 GiB``."""
    power = 0
    while size >= 1024 and power < len(UNITS) - 1:
        size, power = size / 1024, power + 1
    whole = size == int(size) or size >= 100
    return f"{size:.0f} {UNITS[power]}" if whole else f"{size:.1f} {UNITS[power]}"


def days(seconds: float) -> str:
    """Return an age for people: ``41 days``, ``5 hours``."""
    for unit, name in ((DAY_S, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= unit:
            count = (
                f"{seconds / unit:.1f}".removesuffix(".0") if seconds < 2 * unit else f"{seconds / unit:.0f}"
            )
            return f"{count} {name}" + ("" if count == "1" else "s")
    return f"{max(seconds, 0):.0f} seconds"
