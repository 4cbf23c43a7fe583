"""The folders of nights: made, found, read; and plans of nights as JSON."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tipchain.errors import OutputError, RecordError, UsageError
from tipchain.json_text import parse_as
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.records import (
    FINISHED,
    LOCK,
    NIGHT,
    ItemRecord,
    item_folder,
    read_document,
    read_record,
    write_document,
)
from tipchain.nightly.shards import NIGHT_ID, Cut, ShardPart, SharePlan, night_id, part_of
from tipchain.outcome import Outcome

# Plans of nights as JSON values, and back.


def plan_json(plan: NightPlan) -> dict[str, Any]:
    """Return ``plan`` as JSON values."""
    cut = {"cut": {"ids": plan.cut.ids, "shares": plan.cut.shares}} if isinstance(plan, SharePlan) else {}
    return {
        **cut,
        "name": plan.name,
        "root": plan.root,
        "manifest": plan.manifest,
        "sha256": plan.sha256,
        "items": [item_json(item) for item in plan.items],
    }


def item_json(item: Item) -> dict[str, Any]:
    """Return ``item`` as JSON values."""
    needs = item.needs
    return {
        "id": item.id,
        "kind": item.kind,
        "subject": item.subject,
        "source": item.source,
        "mode": item.mode,
        "device": item.device,
        "repeat": item.repeat,
        "tags": list(item.tags),
        "argv": list(item.argv),
        "cwd": item.cwd,
        "env": dict(item.env),
        "timeout_s": item.timeout_s,
        "needs": {
            "cpus": needs.cpus,
            "gpus": needs.gpus,
            "memory_mb": needs.memory_mb,
            "resources": dict(needs.resources),
        },
        "settled": item.settled.name,
        "reason": item.reason,
        **({"chain": item.chain} if item.chain else {}),
    }


def parse_plan(data: Mapping[str, Any]) -> NightPlan:
    """Return the plan of JSON values.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    plan = {**data, "items": [{**one, "needs": _needs(one["needs"])} for one in data["items"]]}
    if "cut" not in data:
        return parse_as(NightPlan, plan, "plan")
    cut = parse_as(Cut, data["cut"], "plan.cut")
    if len(cut.ids) != len(cut.shares):
        raise ValueError(f"a cut of {len(cut.ids)} items has {len(cut.shares)} shares")
    return parse_as(SharePlan, plan, "plan")


def _needs(data: object) -> dict[str, Any]:
    resources = data.get("resources", {}) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(resources, dict):
        raise TypeError("what an item needs is no object with names")
    return {**data, "resources": sorted(map(list, resources.items()))}


def parse_item(data: Mapping[str, Any]) -> Item:
    """Return the item of JSON values.

    Raises:
        KeyError, TypeError, ValueError: they are none.
    """
    return parse_as(Item, {**data, "needs": _needs(data["needs"])}, "item")


# The folders of nights: made, found, read.


# Folders of nights: made, found, held by one coordinator at a time, read.

NIGHTS = "tipchain-nights"
"""The folder of all nights, below the root."""
_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{5}")
RUNNING = "running.json"
"""What runs now, written anew about once a second while a coordinator is at it; nothing rests on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A night that began.

    Attributes:
        folder: its folder.
        token: drawn when it began; every record of it has it.
        started: ISO 8601 with offset.
        plan: what it runs.
        options: what the command line said besides, by name.
        environment: where it runs and with what (`tipchain.nightly.machine`).
    """

    folder: Path
    token: str
    started: str
    plan: NightPlan
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its folder; names sort as nights began."""
        return self.folder.name

    def record(self, item_id: str) -> ItemRecord | None:
        """Return how an item ended; None if it has not, a `DamagedRecord` if that cannot be told."""
        return read_record(self.folder, item_id, self.token)

    def records(self) -> Iterator[ItemRecord]:
        """Yield how items ended, in the plan's order; those that have not are left out."""
        for item in self.plan.items:
            record = self.record(item.id)
            if record is not None:
                yield record

    def attempts(self, item_id: str) -> int:
        """Return the number of the latest attempt at an item, 0 for none."""
        numbers = [0]
        with suppress(OSError):
            names = [path.name for path in item_folder(self.folder, item_id).iterdir()]
            numbers += [int(name[8:]) for name in names if name.startswith("attempt-") and name[8:].isdecimal()]
        return max(numbers)

    @property
    def epoch(self) -> float:
        """When it began, in seconds since 1970; 0 where that cannot be told."""
        found = began(self.started, self.name)
        return found.timestamp() if found else 0.0

    @property
    def part(self) -> ShardPart | None:
        """Which share of a whole night this is; None for one that ran all that was chosen."""
        return part_of(self.plan, self.options, str(self.environment.get("commit") or ""))

    @property
    def finished(self) -> bool:
        """Whether every item has ended and the summary is written."""
        return (self.folder / FINISHED).is_file()


def began(started: str, name: str = "") -> datetime | None:
    """Return when a night began: by what it says, else by its folder's name, in local time; None if neither tells."""
    try:
        return datetime.fromisoformat(started).astimezone()
    except ValueError:
        pass
    try:
        return datetime.strptime(name[:15], "%Y%m%d-%H%M%S").astimezone()
    except ValueError:
        return None


def nights_folder(plan: NightPlan, out: Path | None = None) -> Path:
    """Return the folder that a manifest's nights go into: ``out``, or its own below the root."""
    return out or Path(plan.root) / NIGHTS / plan.name


def begin_night(
    plan: NightPlan, nights: Path, *, options: Mapping[str, Any], environment: Mapping[str, Any]
) -> tuple[Night, NightLock]:
    """Make the folder of a new night, hold it, and write down what it is to be.

    Raises:
        UsageError: the folder cannot be made.
        OutputError: what it is to be cannot be written: the disk is full.
    """
    try:
        nights.mkdir(parents=True, exist_ok=True)
        folder, now = _new_folder(nights)
    except OSError as error:
        raise UsageError(f"cannot make a night's folder below {nights}: {error.strerror}") from error
    lock = hold(folder)
    night = Night(
        folder=folder,
        token=secrets.token_hex(8),
        started=now.isoformat(timespec="milliseconds"),
        plan=plan,
        options={**_whole_night(options), **options},
        environment=dict(environment),
    )
    document = {
        "token": night.token,
        "started": night.started,
        "options": night.options,
        "environment": night.environment,
        "plan": plan_json(plan),
    }
    try:
        write_document(folder / NIGHT, document)
    except OSError as error:
        lock.release()
        raise OutputError(f"{folder / NIGHT}: cannot be written: {error.strerror}") from error
    return night, lock


def _whole_night(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the id that a share has in common with the others of its night, if the environment has one."""
    found = night_id() if options.get("shard") else ""
    return {NIGHT_ID: found} if found else {}


def _new_folder(nights: Path) -> tuple[Path, datetime]:
    """Make a folder whose name sorts as nights began, within a second too; return it and when that was.

    Its name tells when, in local time, unless an earlier night seems to have begun later: a clock was set back, or
    summer time ended. Then it is named as if it had begun just after that one.
    """
    while True:
        now = named = datetime.now().astimezone()
        if latest := max(filter(None, map(_named_at, os.listdir(nights))), default=None):  # noqa: PTH208 - names alone
            named = max(now.replace(tzinfo=timezone.utc), latest + timedelta(microseconds=1))
        folder = nights / f"{named:%Y%m%d-%H%M%S}-{named.microsecond:05x}"
        with suppress(FileExistsError):
            folder.mkdir()
            return folder, now


def _named_at(name: str) -> datetime | None:
    """Return the local time that the name of a night's folder tells, as if it were UTC's; None for other names."""
    if not _NAME.fullmatch(name):
        return None
    try:
        told = datetime.strptime(f"{name[:15]}+0000", "%Y%m%d-%H%M%S%z")
        return told + timedelta(microseconds=int(name[16:], 16))
    except (ValueError, OverflowError):
        return None


def read_night(folder: Path) -> Night:
    """Return the night in ``folder``.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    path = folder / NIGHT
    try:
        data = read_document(path)
        return Night(
            folder=folder,
            token=parse_as(str, data["token"], "token"),
            started=parse_as(str, data["started"], "started"),
            plan=parse_plan(data["plan"]),
            options=dict(data["options"]),
            environment=dict(data["environment"]),
        )
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", file=path, expected="a night") from error
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"is not a night: {type(error).__name__}: {error}", file=path) from error


def nights_below(folder: Path) -> list[Path]:
    """Return the folders of nights, the latest first; one that was killed before it was written down is none."""
    with suppress(OSError):
        return sorted((one.parent for one in folder.glob(f"*/{NIGHT}")), reverse=True)
    return []


def latest_night(folder: Path) -> Night:
    """Return the latest night below ``folder``.

    Raises:
        UsageError: there is none.
    """
    found = nights_below(folder)
    if not found:
        raise UsageError(f"{folder}: no night is there yet\n  tipchain nightly run begins one")
    return read_night(found[0])


class NightLock:
    """The lock of a night's folder, held until it is released or the process ends, however it ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        """Let another coordinator have the night."""
        os.close(self._handle)


def hold(folder: Path) -> NightLock:
    """Hold a night for this process.

    Raises:
        UsageError: another process holds it, or nothing can be written there.
    """
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"{folder}: this night cannot be held: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"{folder}: this night is still being run, by {_holder(path)}") from None
    with suppress(OSError):  # a full disk: the lock holds, only its holder has no name
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    return NightLock(handle)


def holder(folder: Path) -> str:
    """Return who runs the night in ``folder`` now; "" for nobody."""
    path = folder / LOCK
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(path)
    except OSError:
        return ""
    return ""


def _holder(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace") or "another process"
    return "another process"


# What earlier nights of a manifest tell: how long items take, and which failed last.

LOOKED_AT = 7
"""How many finished nights tell the seconds of an item."""
FAILED_LOOKED_AT = 30
"""How many nights tell how an item last ended."""
_BAD = frozenset((Outcome.FAIL.name, Outcome.ERROR.name))
_TELLING = frozenset((Outcome.PASS.name, Outcome.FAIL.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """How an item ended in an earlier night: its outcome's name and its seconds."""

    outcome: str
    seconds: float


def finished_items(folder: Path) -> Mapping[str, PastRun] | None:
    """Return how the items of a finished night ended; None if it has not, or it cannot be read."""
    return _read_finished(folder / FINISHED)


def _read_finished(file: Path) -> Mapping[str, PastRun] | None:
    try:
        data = read_document(file)
        return {
            name: PastRun(outcome=parse_as(str, outcome), seconds=parse_as(float, seconds))
            for name, (outcome, seconds) in data["items"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def usual_seconds(nights: Path, limit: int = LOOKED_AT) -> dict[str, float]:
    """Return the median seconds of each item in the latest finished nights below ``nights``, by id.

    What was ended for its time, or could not run, tells nothing.
    """
    found: dict[str, list[float]] = defaultdict(list)
    told = 0
    for folder in nights_below(nights):
        items = finished_items(folder) if told < limit else None
        if items is not None:
            told += 1
            for name, ran in items.items():
                if ran.outcome in _TELLING and ran.seconds > 0:
                    found[name].append(ran.seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def balance_seconds(path: Path) -> dict[str, float]:
    """Return what items took in one finished night, by id: what shares are balanced by on all machines alike.

    Args:
        path: the night's folder, or a copy of its ``finished.json``.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    items = _read_finished(path / FINISHED if path.is_dir() else path)
    if items is None:
        raise UsageError(
            f"--balance-by {path}: cannot be read\n  expected: a finished night's folder, or its {FINISHED}"
        )
    return {name: ran.seconds for name, ran in items.items() if ran.outcome in _TELLING and ran.seconds > 0}


def last_failed(nights: Path, limit: int = FAILED_LOOKED_AT) -> frozenset[str]:
    """Return the items that failed or errored when they last ran, in the latest nights below ``nights``.

    A night that goes on counts with what has ended, and one that could not run an item tells nothing of it.

    Args:
        nights: the folder of a manifest's nights.
        limit: how many nights count; for a night that was run in shares, each of them.

    Raises:
        UsageError: there is no night yet, or one cannot be read.
    """
    folders = nights_below(nights)
    if not folders:
        raise UsageError(f"--last-failed: no night of this manifest is below {nights}")
    latest: dict[str, str] = {}
    for folder in folders[:limit]:
        for name, outcome in _outcomes(folder):
            if outcome != Outcome.SKIP.name:
                latest.setdefault(name, outcome)
    return frozenset(name for name, outcome in latest.items() if outcome in _BAD)


def _outcomes(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the items of a night that have ended, with their outcomes' names."""
    items = finished_items(folder)
    if items is not None:
        yield from ((name, ran.outcome) for name, ran in items.items())
        return
    try:
        night = read_night(folder)
    except RecordError as error:
        raise UsageError(f"--last-failed: {error}") from error
    yield from ((record.id, record.outcome.name) for record in night.records())
