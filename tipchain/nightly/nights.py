"""The folders of nights: plans and records that no kill leaves half-written, and a night's results."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path, PurePosixPath

from tipchain.core.files import atomic_write, local_time, new_folder, take_lock, writing
from tipchain.core.json_text import Json, JsonObject, as_json, flat_facts, parse_as, read_json, taken
from tipchain.core.language import clean
from tipchain.core.store import digest
from tipchain.errors import BAD, Outcome, OutputError, RecordError, UsageError
from tipchain.nightly.items import NIGHT_ID, Item, NightPlan, ShardPart, night_id
from tipchain.report.model import RunReport, load_report

# What a night leaves on the disk (docs/how-to/nightly.md shows the folder), written so that a kill at any time leaves
# either the old or the new: night.json before anything runs, finished.json last.
#
# ``ended.json`` names the night's token and the attempt: one that does not belong is never taken for this run's.
# The three documents carry a checksum of all that they say. One whose checksum is wrong was damaged, and what it says of an
# item counts as an ERROR, whatever it was before. ``lock`` is held (flock) by the coordinator until its process ends.


FORMAT = 3
"""The version of the written files."""
CHECKSUM = "sha256"
NIGHT, ENDED, FINISHED, LOCK, ITEMS = "night.json", "ended.json", "finished.json", "lock", "items"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """How an attempt at an item went, as the machine knows that ran it.

    Attributes:
        id: the item's id.
        attempt: which attempt this was, from 1; 0 if nothing was run.
        exit_code: None where a signal ended it or nothing ran.
        signal: number of the signal that ended it, 0 for none.
        started: ISO 8601 with offset, by the machine's clock; for people only.
        seconds: by a monotonic clock, without waiting.
        peak_memory_mb: MiB; 0 where it is not known.
        machine: the host's name.
    """

    id: str
    attempt: int
    exit_code: int | None = None
    signal: int = 0
    started: str = ""
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    machine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord(AttemptRecord):
    """How an item ended in a night.

    Attributes:
        outcome: PASS, FAIL, ERROR or SKIP.
        reason: one line that can be shown and stored anywhere; "" for a PASS. What a terminal, XML or a database would
            choke on is taken out, whoever wrote it.
        executor: ``local`` or ``ray``.
        log: the log's path below the night's folder; "" without one.
        report: the JSON report's, likewise.
    """

    outcome: Outcome
    reason: str = ""
    executor: str = ""
    log: str = ""
    report: str = ""

    def __post_init__(self) -> None:
        """Refuse impossible records; take unprintable characters out of the reason: it often is the last line of an output."""
        if min(self.attempt, self.seconds, self.peak_memory_mb) < 0:
            raise ValueError("a number in it is less than 0")
        for name, path in (("log", PurePosixPath(self.log)), ("report", PurePosixPath(self.report))):
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{name} is not below the night's folder")
        if not self.reason.isprintable():
            line = clean(" ".join(self.reason.split()))
            letters = "".join(letter for letter in line if letter.isprintable())
            object.__setattr__(self, "reason", " ".join(letters.split()))


class DamagedRecord(ItemRecord):
    """An ERROR in place of a record that cannot be read; the item runs again on ``resume``."""

    __slots__ = ()


def slug_of(item_id: str) -> str:
    """Return a name for an item's folder: readable, at most 120 characters, never the same for two ids."""
    known = hashlib.sha256(item_id.encode(errors="surrogatepass")).hexdigest()[:8]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", item_id).strip("-.")[:100]
    return f"{readable}-{known}"


def item_folder(night: Path, item_id: str) -> Path:
    """Return the folder of an item in a night's folder."""
    return night / ITEMS / slug_of(item_id)


def write_record(night: Path, record: ItemRecord, token: str) -> None:
    """Write an item's record, whole or not at all. A link or folder that an item made in its place is moved aside.

    Raises:
        OSError: the disk is full or the folder cannot be written to.
    """
    path = item_folder(night, record.id) / ENDED
    if path.is_symlink() or path.is_dir():
        path.rename(path.with_name(f"not-{secrets.token_hex(4)}-{ENDED}"))
    write_document(path, {**as_json(record), "token": token})


def write_document(path: Path, document: Mapping[str, object]) -> None:
    """Write one of a night's documents, with its format and checksum, whole or not at all.

    Raises:
        OSError: the disk is full or the folder cannot be written to.
    """
    whole = {"format": FORMAT, **document}
    atomic_write(path, json.dumps({**whole, CHECKSUM: digest(whole)}, sort_keys=True) + "\n")


def read_document(path: Path) -> dict[str, Json]:
    """Return one of a night's documents, as it was written.

    Raises:
        OSError: it cannot be read.
        ValueError: it was damaged, or is none.
    """
    document = read_json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"is not of format {FORMAT}")
    if document.pop(CHECKSUM, None) != digest(document):
        raise ValueError("its checksum is wrong")
    del document["format"]
    return document


# Folders of nights: made, found, held by one coordinator at a time, read.

NIGHTS = "tipchain-nights"
"""The folder of all nights, below the root."""
RUNNING = "running.json"
"""The running items, written anew about once a second while a coordinator is at it; nothing rests on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightHead:
    """The facts of a night that are written down before anything runs.

    Attributes:
        token: drawn when it began; every record of it has it.
        started: ISO 8601 with offset.
        plan: what it runs.
        options: what the command line said besides, by name.
        environment: where it runs and with what (`tipchain.nightly.origin`).
    """

    token: str
    started: str
    plan: NightPlan
    options: JsonObject = field(default_factory=dict)
    environment: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Night(NightHead):
    """A night that began, in its folder."""

    folder: Path

    @property
    def name(self) -> str:
        """The name of its folder; names sort as nights began."""
        return self.folder.name

    def record(self, item_id: str) -> ItemRecord | None:
        """Return how an item ended; None if it has not in this night, a `DamagedRecord` if that cannot be told."""
        path = item_folder(self.folder, item_id) / ENDED
        try:
            document = read_document(path)
            owner, record = document.pop("token", None), parse_as(ItemRecord, document)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            reason = f"how it ended cannot be told: its record {path.relative_to(self.folder)} is damaged: {why}"
            return DamagedRecord(id=item_id, attempt=0, outcome=Outcome.ERROR, reason=reason)
        return record if (record.id, owner) == (item_id, self.token) else None

    def records(self) -> Iterator[ItemRecord]:
        """Yield how items ended, in the plan's order; those that have not are left out."""
        for item in self.plan.items:
            record = self.record(item.id)
            if record is not None:
                yield record

    @property
    def began(self) -> datetime | None:
        """When it began: by its own word, else by its folder's name, in local time; None if neither tells."""
        with suppress(ValueError):
            return datetime.fromisoformat(self.started).astimezone()
        with suppress(ValueError):
            return datetime.strptime(self.name[:15], "%Y%m%d-%H%M%S").astimezone()
        return None

    @property
    def epoch(self) -> float:
        """When it began, in seconds since 1970; 0 where that cannot be told."""
        return self.began.timestamp() if self.began else 0.0

    @property
    def part(self) -> ShardPart | None:
        """Which share of a whole night this is; None for one that ran all that was chosen."""
        share, _, of = str(self.options.get("shard") or "").partition("/")
        night, cut = self.options.get(NIGHT_ID), self.plan.cut
        if not (share.isdecimal() and of.isdecimal() and night):
            return None
        return ShardPart(
            share=int(share),
            of=int(of),
            title=self.plan.name,
            manifest=self.plan.sha256,
            commit=str(self.environment.get("commit") or ""),
            night=str(night),
            cut=cut.digest if cut else "",
            total=len(cut.ids) if cut else 0,
        )

    @property
    def finished(self) -> bool:
        """Whether every item has ended and the summary is written."""
        return (self.folder / FINISHED).is_file()


def begin_night(
    plan: NightPlan, nights: Path, *, options: Mapping[str, object], environment: Mapping[str, object]
) -> tuple[Night, int]:
    """Make the folder of a new night, hold it, and write down its plan.

    Raises:
        UsageError: the folder cannot be made, or a share has no id of its night.
        OutputError: what it is to be cannot be written: the disk is full.
    """
    shared = {NIGHT_ID: night_id()} if options.get("shard") else {}
    try:
        folder = new_folder(nights)
    except OSError as error:
        raise UsageError(f"cannot make a night's folder below {nights}: {error.strerror}") from error
    lock = hold(folder)
    night = Night(
        folder=folder,
        token=secrets.token_hex(8),
        started=local_time("milliseconds"),
        plan=plan,
        options={**shared, **options},
        environment=dict(environment),
    )
    try:
        with writing(folder / NIGHT):
            write_document(folder / NIGHT, as_json(taken(NightHead, night)))
    except OutputError:
        os.close(lock)
        raise
    return night, lock


def read_night(folder: Path) -> Night:
    """Return the night in ``folder``.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    path = folder / NIGHT
    try:
        return taken(Night, parse_as(NightHead, read_document(path)), folder=folder)
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", file=path, expected="a night") from error
    except ValueError as error:
        raise RecordError(f"is not a night: {error}", file=path) from error


def nights_below(folder: Path) -> list[Path]:
    """Return the folders of nights, the latest first; one that was killed before it was written down is none."""
    return sorted((one.parent for one in folder.glob(f"[!.]*/{NIGHT}")), reverse=True)


def find_nights(folder: Path) -> list[Path]:
    """Return the folders of nights: ``folder`` itself, those in it, and those in its folders; by name.

    Raises:
        UsageError: ``folder`` is no folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder of nights\n  expected: a folder such as {NIGHTS}")
    if (folder / NIGHT).is_file():
        return [folder]
    seen = [one for one in folder.iterdir() if not one.name.startswith(".") and not one.is_symlink()]
    found = (one for below in seen for one in ([below] if (below / NIGHT).is_file() else nights_below(below)))
    return sorted((one for one in found if not one.is_symlink()), key=lambda path: (path.name, str(path)))


def named_night(nights: Path, name: str | None = None) -> Night:
    """Return the night that a user names: by its path, its name, or an unmistakable part of it; the latest without one.

    Raises:
        UsageError: there is none, or several are called so.
    """
    if name and (Path(name) / NIGHT).is_file():
        return read_night(Path(name).absolute())
    known = nights_below(nights)
    if not name and not known:
        raise UsageError(f"{nights}: no night is there yet\n  tipchain nightly run begins one")
    called = [one for one in known if one.name == name] or [one for one in known if (name or "") in one.name]
    if len(called) == 1 or not name:
        return read_night(called[0])
    shown = ", ".join(one.name for one in (called or known)[:5]) or "none"
    told = f"several are called so\n  found: {shown}" if called else f"no night is called so\n  the latest: {shown}"
    raise UsageError(f"{name}: {told}")


def hold(folder: Path) -> int:
    """Hold a night for this process, until the handle that is returned is closed or the process ends, however it ends.

    Raises:
        UsageError: another process holds it, or nothing can be written there.
    """
    path = folder / LOCK
    try:
        return take_lock(path, f"process {os.getpid()} on {socket.gethostname()}")
    except BlockingIOError:
        by = holder(folder) or "another process"
        raise UsageError(f"{folder}: this night is still being run, by {by}") from None
    except OSError as error:
        raise UsageError(f"{folder}: this night cannot be held: {error.strerror}") from error


def holder(folder: Path) -> str:
    """Return who runs the night in ``folder`` now; "" for nobody."""
    try:
        with (folder / LOCK).open(errors="replace") as file:
            told = file.read()
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return told or "another process"
    except OSError:
        return ""
    return ""


# What earlier nights of a manifest tell: how long items take, and which failed last.

LOOKED_AT = 7
"""How many finished nights tell the seconds of an item."""
FAILED_LOOKED_AT = 30
"""How many nights tell how an item last ended; of one that was run in shares, each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSummary:
    """The summary of a night that came to its end, in ``finished.json``.

    Attributes:
        token: the night's.
        counts: how many items ended how.
        exit_code: the program's.
        seconds: what it took, with all attempts at it.
        items: how each ended, and its seconds, by id.
    """

    token: str = ""
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    exit_code: int = 0
    seconds: float = 0.0
    items: Mapping[str, tuple[Outcome, float]] = field(default_factory=dict)


def read_summary(night: Path) -> NightSummary | None:
    """Return a finished night's summary of itself; None if it has not finished, or that cannot be read."""
    with suppress(OSError, ValueError):
        return parse_as(NightSummary, read_document(night / FINISHED))  # a time that is no number is refused
    return None


def usual_seconds(nights: Path) -> dict[str, float]:
    """Return the median seconds of each item in the latest finished nights below ``nights``, by id.

    What was ended for its time, or could not run, tells nothing.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for summary in islice(filter(None, map(read_summary, nights_below(nights))), LOOKED_AT):
        for name, (outcome, seconds) in summary.items.items():
            if outcome in (Outcome.PASS, Outcome.FAIL) and seconds > 0:
                found[name].append(seconds)
    return {name: statistics.median(several) for name, several in found.items()}


def last_failed(nights: Path) -> frozenset[str]:
    """Return the items that failed or errored when they last ran, in the latest nights below a manifest's folder.

    A night that goes on counts with what has ended, and one that could not run an item tells nothing of it.

    Raises:
        UsageError: there is no night yet, or one cannot be read.
    """
    folders = nights_below(nights)
    if not folders:
        raise UsageError(f"--last-failed: no night of this manifest is below {nights}")
    latest: dict[str, Outcome] = {}
    for folder in folders[:FAILED_LOOKED_AT]:
        summary = read_summary(folder)
        try:
            ended = (summary and summary.items) or {one.id: (one.outcome, 0.0) for one in read_night(folder).records()}
        except RecordError as error:
            raise UsageError(f"--last-failed: {error}") from error
        for name, (outcome, _) in ended.items():
            if outcome is not Outcome.SKIP:
                latest.setdefault(name, outcome)
    return frozenset(name for name, outcome in latest.items() if outcome in BAD)


# What came of a night: its plan with the records of all that ended, read once for reports of any kind.

MISSING = "has no record: the night ended before it did"
LARGEST = 32 * 2**20
"""Bytes of a report that is read; a larger one would take longer than it is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A night's results.

    Attributes:
        night: the night.
        records: of the items that ended, by id, in the plan's order.
        finished: whether the night ran to its end; one in shares, once none is missing and each has.
        shares: of a night that was run in shares, those that are there, in their order.
        notes: what is to be known of the shares, a line each.
        wrong: what must not be: shares that were cut differently, items that are in none, a line each.
    """

    night: Night
    records: Mapping[str, ItemRecord]
    finished: bool
    shares: tuple[Results, ...] = ()
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Results, ...]:
        """Its shares, or the night itself: each lies in a folder of its own."""
        return self.shares or (self,)

    def part_with(self, item: Item) -> Results:
        """Return the share that ran an item; the first if none did."""
        found = [one for one in self.parts if item.id in one.records]
        planned = [one for one in self.parts if any(other.id == item.id for other in one.plan.items)]
        return (found or planned or self.parts)[-1]

    @property
    def ended(self) -> list[tuple[Item, ItemRecord]]:
        """How items ended; unfinished ones of a share that goes on are left out."""
        return [
            (item, one.of(item))
            for one in self.parts
            for item in one.plan.items
            if one.finished or item.id in one.records
        ]

    @property
    def counts(self) -> Counter[Outcome]:
        """How many of them ended how."""
        return Counter(record.outcome for _, record in self.ended)

    @property
    def bad(self) -> list[tuple[Item, ItemRecord]]:
        """Those that failed or errored."""
        return [(item, record) for item, record in self.ended if record.outcome in BAD]

    @property
    def plan(self) -> NightPlan:
        """The plan of the night."""
        return self.night.plan

    def of(self, item: Item) -> ItemRecord:
        """Return how an item ended; an ERROR that says so if it has no record."""
        return self.records.get(item.id) or ItemRecord(id=item.id, attempt=0, outcome=Outcome.ERROR, reason=MISSING)

    @property
    def seconds(self) -> float:
        """Seconds that the items took, added up."""
        return sum(record.seconds for record in self.records.values())

    @property
    def facts(self) -> dict[str, str]:
        """The environment, its parts named with dots: ``versions.torch``."""
        return flat_facts(self.night.environment)


def read_results(folder: Path) -> Results:
    """Return the results in the folder of a night, of one that goes on or was killed too.

    Raises:
        RecordError: no night is there, or it cannot be read.
    """
    night = read_night(folder)
    finished = night.finished  # asked first: what is written in between belongs to a night that goes on
    return Results(night=night, records={one.id: one for one in night.records()}, finished=finished)


def report_of(results: Results, record: ItemRecord) -> RunReport | None:
    """Return the report of an item; None where it has none that can be read, or a larger one than `LARGEST`."""
    path = results.night.folder / record.report
    try:
        return load_report(path) if record.report and path.stat().st_size <= LARGEST else None
    except (OSError, RecordError):
        return None
