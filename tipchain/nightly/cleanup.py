"""What old nights hold, which of them go by age, size and number, and their deletion, of which a kill leaves no half."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tipchain.bundle.manifest import KIND, MANIFEST
from tipchain.errors import RecordError, UsageError
from tipchain.nightly.nights import FINISHED, NIGHT, began, hold, holder, read_night

PIN = "pinned"
"""A file in a night's folder that lets no rule delete it; its text says why."""
TRASH = ".trash"
"""Folder beside nights that something is moved to before it is deleted."""
UNWRITTEN_S = 3600.0
"""Age from which a night's folder without a plan is what a killed coordinator left."""
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNight:
    """A night's folder, or what is left of one.

    Attributes:
        folder: absolute.
        began: seconds since 1970.
        size: bytes on the disk.
        finished: whether it came to its end.
        rest: whether a killed process left it, so that it is nobody's.
        kept: why no rule may delete it; "" if one may.
        reason: by which rule it goes, or why it stays though a rule would have let it go; "" before a choice was made.
    """

    folder: Path
    began: float
    size: int
    finished: bool = False
    rest: bool = False
    kept: str = ""
    reason: str = ""


def find_stored(places: Iterable[Path], now: float) -> list[StoredNight]:
    """Return what lies in folders of nights, the oldest first, with the reasons to keep it; ``now`` in seconds since 1970."""
    found = {one.folder: one for place in places for one in _below(place.resolve(), now)}
    ordered = sorted(found.values(), key=lambda one: (one.began, one.folder))
    latest = {one.folder.parent: one for one in ordered if one.finished}
    return [
        one if one.rest else replace(one, kept=_reason_to_keep(one, latest.get(one.folder.parent))) for one in ordered
    ]


def _below(folder: Path, now: float, depth: int = 2) -> Iterator[StoredNight]:
    """Yield a night, or those in a folder: of one manifest, or of all."""
    seconds, deleted = folder.stat().st_mtime, folder.parent.name == TRASH
    if (folder / NIGHT).is_file() and not deleted:
        started, trouble = "", ""
        try:
            started = read_night(folder).started
        except RecordError as error:  # of a later version perhaps
            trouble = f"its plan cannot be read: {error.message}"
        when = began(started, folder.name)
        yield StoredNight(
            folder=folder,
            began=when.timestamp() if when else seconds,
            size=disk_usage(folder),
            finished=(folder / FINISHED).is_file(),
            kept=trouble,
        )
    elif deleted or _NAME.fullmatch(folder.name):
        if deleted or (now - seconds > UNWRITTEN_S and not holder(folder)):
            yield StoredNight(folder=folder, began=seconds, size=disk_usage(folder), rest=True)
    elif depth or folder.name == TRASH:
        with suppress(OSError):
            for one in sorted(folder.iterdir()):
                if one.is_dir() and not one.is_symlink() and (one.name == TRASH or not one.name.startswith(".")):
                    yield from _below(one, now, depth - 1)


def _reason_to_keep(one: StoredNight, latest: StoredNight | None) -> str:
    """Return why no rule may delete a night; "" for no reason."""
    if held := holder(one.folder):
        return f"it is being run, by {held}"
    if kept := one.kept or pin_text(one.folder):
        return kept
    for base, _, files in os.walk(one.folder):
        with suppress(OSError):
            if MANIFEST in files and KIND.encode() in Path(base, MANIFEST).read_bytes():
                return f"it holds a reference: {os.path.relpath(base, one.folder)}"
    if latest and latest.folder == one.folder:
        return "the latest finished night"
    if not one.finished and (latest is None or one.began > latest.began):
        return "none that finished is later, so it may be resumed"
    return ""


def pin_text(folder: Path) -> str:
    """Return why a night is pinned; "" if it is not."""
    with suppress(OSError):
        return f"pinned: {(folder / PIN).read_text(errors='replace').strip() or 'nobody said why'}"
    return ""


def disk_usage(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk; a file with several names in it counts once."""
    total, seen = 0, set()
    for base, _, names in os.walk(folder):
        for name in (".", *names):
            with suppress(OSError):
                stat = os.lstat(os.path.join(base, name))  # noqa: PTH118 - many thousands of files
                if name == "." or (stat.st_dev, stat.st_ino) not in seen:
                    total += stat.st_blocks * 512
                if stat.st_nlink > 1:
                    seen.add((stat.st_dev, stat.st_ino))
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """What may stay; what is protected stays whatever they say.

    Attributes:
        older_than_s: seconds since they began, from which nights go; None: age does not count.
        max_bytes: of all together: the oldest go until no more is there; None: size does not count.
        keep: the latest so many of each manifest stay; without the other two rules all others go.
    """

    older_than_s: float | None = None
    max_bytes: int | None = None
    keep: int | None = None

    @property
    def alone(self) -> bool:
        """Whether the number is the only rule."""
        return self.keep is not None and self.older_than_s is None and self.max_bytes is None

    def reason(self, one: StoredNight, now: float, left: int) -> str:
        """Return by which rule a night goes while so many bytes are left; "" for none."""
        if one.rest:
            return "left by a process that was killed"
        if self.older_than_s is not None and now - one.began > self.older_than_s:
            return f"older than {days(self.older_than_s)}"
        if self.max_bytes is not None and left > self.max_bytes:
            return f"the oldest, of more than {size_text(self.max_bytes)}"
        return f"not one of the latest {self.keep}" if self.alone else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupChoice:
    """What the rules come to.

    Attributes:
        doomed: what goes: what killed processes left, then the oldest first.
        spared: what a rule would have let go.
        total: bytes of all.
        left: bytes of what stays.
    """

    doomed: tuple[StoredNight, ...]
    spared: tuple[StoredNight, ...]
    total: int
    left: int


def choose(stored: Sequence[StoredNight], rules: RetentionRules, now: float) -> CleanupChoice:
    """Return what goes of ``stored``, which is in the order in which it began; ``now`` in seconds since 1970."""
    groups: dict[Path, list[Path]] = defaultdict(list)
    for one in stored:
        if not one.rest:
            groups[one.folder.parent].append(one.folder)
    late = {folder for folders in groups.values() for folder in folders[max(len(folders) - (rules.keep or 0), 0) :]}
    doomed: list[StoredNight] = []
    spared: list[StoredNight] = []
    left = total = sum(one.size for one in stored)
    for one in sorted(stored, key=lambda one: not one.rest):
        if not (reason := rules.reason(one, now, left)):
            continue
        kept = one.kept or (f"one of the latest {rules.keep}" if one.folder in late else "")
        if not kept:
            doomed.append(replace(one, reason=reason))
            left -= one.size
        elif not (rules.alone and one.folder in late):
            spared.append(replace(one, reason=kept))
    return CleanupChoice(doomed=tuple(doomed), spared=tuple(spared), total=total, left=left)


def delete(one: StoredNight) -> str:
    """Delete a night; return "" or why it is still there, in whole or as what the next call removes.

    It is held while it is moved out of sight, so no process goes on with it; a kill after that leaves nothing that
    looks like a night.
    """
    try:
        moved = one.folder
        if not one.rest:
            if not (one.folder / NIGHT).exists():
                return ""  # another process deleted it
            lock = hold(one.folder)
            try:
                _refuse_mounts(one.folder)
                if kept := pin_text(one.folder):
                    return kept
                moved = one.folder.parent / TRASH / f"{one.folder.name}-{secrets.token_hex(3)}"
                moved.parent.mkdir(exist_ok=True)
                os.rename(one.folder, moved)  # noqa: PTH104
            finally:
                os.close(lock)
        _refuse_mounts(moved)
        shutil.rmtree(moved)
        if moved.parent.name == TRASH:
            with suppress(OSError):  # something else is in it
                moved.parent.rmdir()
    except FileNotFoundError:
        return ""
    except UsageError as error:
        return str(error).splitlines()[0]
    except OSError as error:
        return f"{error.filename or one.folder}: {error.strerror}"
    return ""


def _refuse_mounts(folder: Path) -> None:
    """Raise an error if something is mounted in a folder: what is in there is somebody's, on another disk or this one."""
    whole = folder.resolve()
    points = (Path(one.mountpoint) for one in psutil.disk_partitions(all=True))
    shown = ", ".join(sorted(os.path.relpath(one, whole) for one in points if one.is_relative_to(whole)))
    if shown:
        raise UsageError(f"{folder}: is left whole, for other file systems are mounted in it: {shown}")


def size_text(size: float) -> str:
    """Return bytes for people: ``512 B``, ``3.4 MiB``, ``20 GiB``."""
    power = 0
    while size >= 1024 and power < len(UNITS) - 1:
        size, power = size / 1024, power + 1
    whole = size == int(size) or size >= 100
    return f"{size:.0f} {UNITS[power]}" if whole else f"{size:.1f} {UNITS[power]}"


def days(seconds: float) -> str:
    """Return an age for people: ``41 days``, ``0.5 days``."""
    count = f"{max(seconds, 0) / 86400:.1f}".removesuffix(".0")
    return f"{count} day" if count == "1" else f"{count} days"
