"""What old nights hold, what of it can go, and what still needs it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

import psutil

from tipchain.bundle.manifest import KIND, MANIFEST
from tipchain.core.files import RUN_LOCK, atomic_write, is_locked, local_time, locked
from tipchain.core.json_text import Json, read_json
from tipchain.errors import RecordError, UsageError
from tipchain.nightly.nights import FINISHED, NIGHT, began, hold, holder, read_night

# What nights and runs leave on the disk: how old and how large each is, and why it must stay.

PIN = "pinned.json"
"""Beside a night's or a run's files: who wants it to stay, since when, and why."""
TRASH = ".trash"
"""Folder beside nights, and beside ``runs``, that something is moved to before it is deleted."""
UNWRITTEN_S = 3600.0
"""Age from which a night's folder without a plan is what a killed coordinator left."""
RUNS = "test_tipc/output/*/*/runs"
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFolder:
    """A night's folder, a run's, or what is left of one.

    Attributes:
        folder: absolute.
        kind: ``rest`` is what a killed process left, which is nobody's.
        group: the folder that holds those it is compared with: a manifest's nights, a mode's runs.
        began: seconds since 1970.
        size: bytes on the disk.
        finished: whether it came to its end.
        kept: why no rule may delete it; "" if one may.
        reason: by which rule it goes, or why it stays though a rule would have let it go; "" before a choice was made.
    """

    folder: Path
    kind: Literal["night", "run", "rest"]
    group: Path
    began: float
    size: int
    finished: bool = False
    kept: str = ""
    reason: str = ""


def find_stored(nights: Iterable[Path], runs: Iterable[Path], now: float) -> list[StoredFolder]:
    """Return what lies in folders, the oldest first, with the reasons to keep it.

    Args:
        nights: folders of nights: of all manifests, of one, or single ones.
        runs: folders called ``runs``.
        now: seconds since 1970.
    """
    found: dict[Path, StoredFolder] = {}
    for folder in nights:
        found.update((one.folder, one) for one in _nights(folder.resolve(), now, depth=2))
    for folder in runs:
        found.update((one.folder, one) for one in _runs(folder.resolve()))
    ordered = sorted(found.values(), key=lambda one: (one.began, one.folder))
    latest = {one.group: one for one in ordered if one.finished}
    return [replace(one, kept=next(filter(None, _reasons(one, latest)), "")) for one in ordered]


def _nights(folder: Path, now: float, depth: int) -> Iterator[StoredFolder]:
    if (folder / NIGHT).is_file():
        started, trouble = "", ""
        try:
            started = read_night(folder).started
        except RecordError as error:  # of a later version perhaps
            trouble = f"its plan cannot be read: {error.message}"
        yield StoredFolder(
            folder=folder,
            kind="night",
            group=folder.parent,
            began=_began(folder, started),
            size=disk_usage(folder),
            finished=(folder / FINISHED).is_file(),
            kept=trouble,
        )
        return
    for one in _folders(folder) if depth else ():
        if one.name == TRASH:
            yield from (_rest(left) for left in _folders(one))
        elif _NAME.fullmatch(one.name) and not (one / NIGHT).exists():
            if now - one.stat().st_mtime > UNWRITTEN_S and not holder(one):
                yield _rest(one)
        elif not one.name.startswith("."):
            yield from _nights(one, now, depth - 1)


def _folders(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(one for one in folder.iterdir() if one.is_dir() and not one.is_symlink())
    return []


def _runs(runs: Path) -> Iterator[StoredFolder]:
    # By run which link among the mode's own files leads into it.
    out, links = runs.parent, {}
    for base, folders, files in os.walk(out):
        folders[:] = [one for one in folders if Path(base, one) != runs and one != TRASH]
        for path in (Path(base, name) for name in (*folders, *files)):
            goal = path.resolve() if path.is_symlink() else path
            if goal.is_relative_to(runs) and goal != runs:
                run = runs / goal.relative_to(runs).parts[0]
                links[run] = f"{os.path.relpath(path, out)} is a link into it"
    for one in _folders(runs):
        if _NAME.fullmatch(one.name):
            finished = (one / "report.json").is_file() or any(one.glob("alignment*.json"))
            yield StoredFolder(
                folder=one,
                kind="run",
                group=runs,
                began=_began(one),
                size=disk_usage(one),
                finished=finished,
                kept="it still goes on" if is_locked(one / RUN_LOCK) else links.get(one, ""),
            )
    for left in _folders(runs.parent / TRASH):
        yield _rest(left)


def _rest(folder: Path) -> StoredFolder:
    return StoredFolder(folder=folder, kind="rest", group=folder.parent, began=_began(folder), size=disk_usage(folder))


def _began(folder: Path, started: str = "") -> float:
    found: datetime | None = began(started, folder.name)
    return found.timestamp() if found else folder.stat().st_mtime


def disk_usage(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk; a file with several names in it counts once."""
    total, seen = 0, set()
    for base, _, names in os.walk(folder):
        for name in (".", *names):
            with suppress(OSError):
                stat = os.lstat(os.path.join(base, name))  # noqa: PTH118 - many thousands of files
                if stat.st_nlink > 1 and name != ".":
                    if (stat.st_dev, stat.st_ino) in seen:
                        continue
                    seen.add((stat.st_dev, stat.st_ino))
                total += stat.st_blocks * 512
    return total


def _reasons(one: StoredFolder, latest: Mapping[Path, StoredFolder]) -> Iterator[str]:
    """Yield why no rule may delete something; "" is no reason."""
    if one.kind == "rest":
        yield one.kept
        return
    held = holder(one.folder) if one.kind == "night" else ""
    yield f"it is being run, by {held}" if held else one.kept
    yield pin_text(one.folder)
    yield f"it holds a reference: {held}" if (held := _reference_in(one.folder)) else ""
    best = latest.get(one.group)
    if best and best.folder == one.folder:
        yield f"the latest finished {one.kind}"
    elif not one.finished and (best is None or one.began > best.began):
        yield "none that finished is later, so it may be resumed"


def pin_text(folder: Path) -> str:
    """Return who pinned a night or run and why; "" if nobody did. A pin that cannot be read is one all the same."""
    path = folder / PIN
    if not path.exists():
        return ""
    try:
        pin: dict[str, Json] = read_json(path)
        return f"pinned by {pin['who']}: {pin['why']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"pinned, but {PIN} cannot be read"


def pin(folder: Path, *, who: str, why: str) -> None:
    """Let no rule delete a night or run.

    Raises:
        OSError: that cannot be written.
    """
    when = local_time()
    atomic_write(folder / PIN, json.dumps({"who": who, "when": when, "why": why}, indent=1) + "\n")


def _reference_in(folder: Path) -> str:
    for base, _, files in os.walk(folder):
        if MANIFEST in files:
            with suppress(OSError):
                if KIND.encode() in Path(base, MANIFEST).read_bytes():
                    return os.path.relpath(base, folder)
    return ""


# Which nights and runs go, by age, size and number; and their deletion, of which a kill leaves no half.

DAY_S = 86400.0
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
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
class CleanupChoice:
    """What the rules come to.

    Attributes:
        doomed: what goes, the oldest first.
        spared: what a rule would have let go.
        total: bytes of all.
        left: bytes of what stays.
    """

    doomed: tuple[StoredFolder, ...]
    spared: tuple[StoredFolder, ...]
    total: int
    left: int


def choose(stored: Sequence[StoredFolder], rules: RetentionRules, now: float) -> CleanupChoice:
    """Return what goes of ``stored``, which is in the order in which it began; ``now`` in seconds since 1970."""
    rest = [one for one in stored if one.kind == "rest"]
    doomed = [replace(one, reason="left by a process that was killed") for one in rest if not one.kept]
    spared = [replace(one, reason=one.kept) for one in rest if one.kept]
    groups: dict[Path, list[Path]] = defaultdict(list)
    for one in stored:
        if one.kind != "rest":
            groups[one.group].append(one.folder)
    late = {folder for folders in groups.values() for folder in folders[max(len(folders) - (rules.keep or 0), 0) :]}
    total = sum(one.size for one in stored)
    left = total - sum(one.size for one in doomed)
    for one in stored:
        reason = _reason(one, rules, now, left)
        if one.kind == "rest" or not reason:
            continue
        kept = one.kept or (f"one of the latest {rules.keep}" if one.folder in late else "")
        if not kept:
            doomed.append(replace(one, reason=reason))
            left -= one.size
        elif not (rules.alone and one.folder in late):
            spared.append(replace(one, reason=kept))
    return CleanupChoice(doomed=tuple(doomed), spared=tuple(spared), total=total, left=left)


def _reason(one: StoredFolder, rules: RetentionRules, now: float, left: int) -> str:
    if rules.older_than_s is not None and now - one.began > rules.older_than_s:
        return f"older than {days(rules.older_than_s)}"
    if rules.max_bytes is not None and left > rules.max_bytes:
        return f"the oldest, of more than {size_text(rules.max_bytes)}"
    return f"not one of the latest {rules.keep}" if rules.alone else ""


def delete(one: StoredFolder) -> str:
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
            moved = (
                one.group / TRASH if one.kind == "night" else one.group.parent / TRASH
            ) / f"{one.folder.name}-{secrets.token_hex(3)}"
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


@contextmanager
def _held(one: StoredFolder) -> Iterator[None]:
    """Hold a night or run while the block runs."""
    if one.kind == "night":
        if not (one.folder / NIGHT).exists():
            raise FileNotFoundError(2, "is gone", str(one.folder))
        lock = hold(one.folder)
        try:
            yield
        finally:
            lock.release()
        return
    try:
        with locked(one.folder / RUN_LOCK):
            yield
    except BlockingIOError:
        raise UsageError(f"{one.folder}: this run still goes on, in another process") from None


def _refuse_mounts(folder: Path) -> None:
    """Raise an error if something is mounted in a folder: what is in there is somebody's, on another disk or this one."""
    whole = folder.resolve()
    points = (Path(one.mountpoint) for one in psutil.disk_partitions(all=True))
    shown = ", ".join(sorted(os.path.relpath(one, whole) for one in points if one.is_relative_to(whole)))
    if shown:
        raise UsageError(f"{folder}: is left whole, for other file systems are mounted in it: {shown}")


def _remove(folder: Path) -> None:
    _refuse_mounts(folder)
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
            count = f"{seconds / unit:.1f}".removesuffix(".0") if seconds < 2 * unit else f"{seconds / unit:.0f}"
            return f"{count} {name}" + ("" if count == "1" else "s")
    return f"{max(seconds, 0):.0f} seconds"
