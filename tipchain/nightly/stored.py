"""What nights and runs leave on the disk: how old and how large each is, and why it must stay."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from tipchain.bundle.manifest import KIND, MANIFEST
from tipchain.bundle.moves import FILE_NAME
from tipchain.errors import InputError, RecordError
from tipchain.json_text import read_json
from tipchain.nightly import remains
from tipchain.nightly.nights import began, holder, read_night
from tipchain.nightly.records import FINISHED, NIGHT
from tipchain.runs import RUN_LOCK, atomic_write

PIN = "pinned.json"
"""Beside a night's or a run's files: who wants it to stay, since when, and why."""
TRASH = ".trash"
"""Folder beside nights, and beside ``runs``, that something is moved to before it is deleted."""
UNWRITTEN_S = 3600.0
"""Age from which a night's folder without a plan is what a killed coordinator left."""
RUNS = "test_tipc/output/*/*/runs"
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A night's folder, a run's, or what is left of one.

    Attributes:
        folder: absolute.
        kind: ``rest`` is what a killed process left, which is nobody's: a folder, or a link that leads nowhere.
        group: the folder that holds those it is compared with: a manifest's nights, a mode's runs.
        began: seconds since 1970.
        size: bytes on the disk.
        finished: whether it came to its end.
        token: a night's; "" otherwise.
        project: the folder of the project that a night is of, if it is there.
        kept: why no rule may delete it; "" if one may.
    """

    folder: Path
    kind: Literal["night", "run", "rest"]
    group: Path
    began: float
    size: int
    finished: bool = False
    token: str = ""
    project: Path | None = None
    kept: str = ""


def find_stored(
    nights: Iterable[Path], runs: Iterable[Path], projects: Iterable[Path], now: float
) -> list[Stored]:
    """Return what lies in folders, the oldest first, with the reasons to keep it.

    Args:
        nights: folders of nights: of all manifests, of one, or single ones.
        runs: folders called ``runs``.
        projects: folders below which baselines are looked for, besides those that the nights are of.
        now: seconds since 1970.

    Raises:
        InputError: a file of baselines cannot be read, so that what they need is not known.
    """
    found: dict[Path, Stored] = {}
    for folder in nights:
        found.update((one.folder, one) for one in _nights(folder.resolve(), now, depth=2))
    for folder in runs:
        found.update((one.folder, one) for one in _runs(folder.resolve()))
    ordered = sorted(found.values(), key=lambda one: (one.began, one.folder))
    roots = [*projects, *(one.project for one in ordered if one.project)]
    needed = Baselines(roots, {one.folder for one in ordered})
    latest = _latest(ordered)
    rest = [_link(one) for one in remains.dead_links()]
    rest += [_unfinished(one) for one in needed.unfinished if now - one.stat().st_mtime > UNWRITTEN_S]
    ordered = sorted([*ordered, *rest], key=lambda one: (one.began, one.folder))
    return [replace(one, kept=next(filter(None, _reasons(one, latest, needed)), "")) for one in ordered]


def _nights(folder: Path, now: float, depth: int) -> Iterator[Stored]:
    if (folder / NIGHT).is_file():
        yield _night(folder)
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


def _night(folder: Path) -> Stored:
    token, started, trouble, project = "", "", "", None
    try:
        night = read_night(folder)
    except RecordError as error:  # of a later version perhaps
        trouble = f"its plan cannot be read: {error.message}"
    else:
        token, started, root = night.token, night.started, Path(night.plan.root)
        project = root if root.is_dir() else None
    return Stored(
        folder=folder, kind="night", group=folder.parent, began=_began(folder, started), size=disk_usage(folder),
        finished=(folder / FINISHED).is_file(), token=token, project=project,
        kept=trouble,
    )  # fmt: skip


def _runs(runs: Path) -> Iterator[Stored]:
    links = _links(runs)
    for one in _folders(runs):
        if _NAME.fullmatch(one.name):
            finished = (one / "report.json").is_file() or any(one.glob("alignment*.json"))
            yield Stored(
                folder=one, kind="run", group=runs, began=_began(one), size=disk_usage(one), finished=finished,
                kept=_held_run(one) or links.get(one, ""),
            )  # fmt: skip
    for left in _folders(runs.parent / TRASH):
        yield _rest(left)


def _rest(folder: Path) -> Stored:
    return Stored(
        folder=folder, kind="rest", group=folder.parent, began=_began(folder), size=disk_usage(folder)
    )


def _link(link: Path) -> Stored:
    return Stored(folder=link, kind="rest", group=link.parent, began=link.lstat().st_mtime, size=0)


def _unfinished(folder: Path) -> Stored:
    return replace(_rest(folder), began=folder.stat().st_mtime, kept=remains.needed(folder))


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


def _held_run(run: Path) -> str:
    try:
        with (run / RUN_LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "it still goes on"
    except OSError:
        return ""
    return ""


def _links(runs: Path) -> Mapping[Path, str]:
    """Return by run which link among the mode's own files leads into it."""
    out, found = runs.parent, {}
    for base, folders, files in os.walk(out):
        folders[:] = [one for one in folders if Path(base, one) != runs and one != TRASH]
        for path in (Path(base, name) for name in (*folders, *files)):
            goal = path.resolve() if path.is_symlink() else path
            if goal.is_relative_to(runs) and goal != runs:
                run = runs / goal.relative_to(runs).parts[0]
                found[run] = f"{os.path.relpath(path, out)} is a link into it"
    return found


def _latest(ordered: Iterable[Stored]) -> Mapping[Path, Stored]:
    """Return the latest finished of each group."""
    return {one.group: one for one in ordered if one.finished}


def _reasons(one: Stored, latest: Mapping[Path, Stored], needed: Baselines) -> Iterator[str]:
    """Yield why no rule may delete something; "" is no reason."""
    if one.kind == "rest":
        yield one.kept
        return
    held = holder(one.folder) if one.kind == "night" else ""
    yield f"it is being run, by {held}" if held else one.kept
    yield pin_text(one.folder)
    yield needed.by(one)
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
        pin: dict[str, Any] = read_json(path)
        return f"pinned by {pin['who']}: {pin['why']}"
    except (OSError, ValueError, KeyError, TypeError):
        return f"pinned, but {PIN} cannot be read"


def pin(folder: Path, *, who: str, why: str) -> None:
    """Let no rule delete a night or run.

    Raises:
        OSError: that cannot be written.
    """
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    atomic_write(folder / PIN, json.dumps({"who": who, "when": when, "why": why}, indent=1) + "\n")


class Baselines:
    """What stored references and the logs of their moves need.

    Args:
        projects: folders below which ``baselines.jsonl`` are looked for; hidden folders are left out.
        stored: folders that are not looked into for that, but may hold references themselves.

    Attributes:
        unfinished: folders in which bundles were made or moved that lie there.

    Raises:
        InputError: such a file cannot be read.
    """

    def __init__(self, projects: Iterable[Path], stored: Collection[Path]) -> None:
        self._names: dict[str, str] = {}
        self._texts: dict[Path, str] = {}
        self.unfinished: list[Path] = []
        for project in dict.fromkeys(path.resolve() for path in projects):
            for base, folders, files in os.walk(project):
                hidden = (Path(base, one) for one in folders if one.startswith("."))
                self.unfinished += [one for one in hidden if remains.is_unfinished(one)]
                folders[:] = [
                    one for one in folders if not one.startswith(".") and Path(base, one) not in stored
                ]
                if FILE_NAME in files:
                    self._read(Path(base, FILE_NAME))

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError(
                f"cannot be read: {error.strerror}", file=file, expected="the moves of stored references",
                hint="what they need is not known, so nothing is deleted",
            ) from error  # fmt: skip
        self._texts[file] = text
        for number, line in enumerate(text.splitlines(), 1):
            for name in _NAME.findall(line):
                self._names.setdefault(name, f"{os.path.relpath(file)}:{number}")

    def by(self, one: Stored) -> str:
        """Return which baseline needs a night or run; "" for none."""
        if one.folder.name in self._names:
            return f"a baseline needs it: {self._names[one.folder.name]}"
        for file, text in self._texts.items():
            if one.token and one.token in text:
                return f"a baseline needs it: {os.path.relpath(file)}"
        return f"it holds a reference: {held}" if (held := _reference_in(one.folder)) else ""


def _reference_in(folder: Path) -> str:
    for base, _, files in os.walk(folder):
        path = Path(base, MANIFEST)
        if FILE_NAME in files:
            return os.path.relpath(Path(base, FILE_NAME), folder)
        if MANIFEST in files:
            with suppress(OSError):
                if KIND.encode() in path.read_bytes():
                    return os.path.relpath(base, folder)
    return ""
