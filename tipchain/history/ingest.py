"""Reads nights and reports into the history, or into an outbox while its database cannot be reached."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import socket
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from tipchain.core.files import atomic_write, replacing
from tipchain.core.json_text import Json, JsonObject, as_json, flat_facts, parse_as, taken
from tipchain.core.language import say
from tipchain.core.machine import core_count
from tipchain.errors import HistoryError, InputError, RecordError, worst
from tipchain.history.schema import STATISTICS, CauseFacts, CommandFacts, Entry, ItemFacts, VerdictFacts
from tipchain.history.store import FILE, History, HistoryPlace, place_of
from tipchain.nightly import nights, origin
from tipchain.nightly.nights import FINISHED, Night, holder, nights_below
from tipchain.nightly.timeline import latest_results
from tipchain.report.model import RunReport, load_report, report_json

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSource:
    """A night or a report that can be added, item by item: a long night's verdicts are never in memory at once.

    Attributes:
        entry: the night, or the report.
        night: the night as its folder has it; None for a report.
        report: the report; None for a night.
    """

    entry: Entry
    night: Night | None = None
    report: RunReport | None = None

    def items(self) -> Iterator[ItemFacts]:
        """Yield how each item ended; those that have not are left out."""
        if self.report is not None:
            yield ItemFacts(
                id=self.entry.title,
                attempt=1,
                outcome=worst(self.report.outcomes),
                reason="" if not self.report.interrupted else "interrupted",
                exit_code=int(self.report.exit_code),
                started=self.report.started,
                seconds=self.report.seconds,
                peak_memory_mb=max((result.peak_memory_mb for result in self.report.results), default=0.0),
                machine=self.entry.machine,
                machine_class=self.entry.machine_class,
                report=self.report.run,
                chain=self.report.chain,
                environment=self.report.versions,
                **_parts(self.report),
            )
        if self.night is not None:
            chains = {item.id: item.chain for item in self.night.plan.items}
            for record in self.night.records():
                yield _item_of_record(self.night.folder, record, self.entry, chains[record.id])


def read_source(path: Path, machine: str = "") -> IngestSource:
    """Return what is in ``path``: a night's folder, a report's file, or the folder of a run.

    Args:
        path: the file or folder.
        machine: name of the host where a report's run took place; if empty what the report says, and this machine if it
            does not.

    Raises:
        RecordError: there is neither a night nor a report, or it cannot be read.
    """
    if path.name == nights.NIGHT:
        path = path.parent
    if (path / nights.NIGHT).is_file():
        return night_source(nights.read_night(path))
    # The report is an entry of its own.
    report = load_report(path)
    text = json.dumps(report_json(report), sort_keys=True)
    key = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
    run = Path(report.run).name
    facts = flat_facts(report.where)
    commit, name = facts.pop("commit", ""), facts.pop("machine", "")
    host, its_class = (machine, "") if machine else (name, _class_of(facts)) if name else this_machine()
    entry = Entry(
        key=key,
        kind="run",
        name=f"{run}-{key[:4]}" if run else key[:12],
        title=f"{report.title}[{report.mode}]" if report.mode else report.title,
        began=_epoch(report.started, path),
        started=report.started,
        seconds=report.seconds,
        finished=not report.interrupted,
        commit=commit,
        machine=host,
        machine_class=its_class,
        environment={**facts, **report.versions},
    )
    return IngestSource(entry=entry, report=report)


def this_machine() -> tuple[str, str]:
    """Return the name of the machine that this process runs on, and the class that its nights are of."""
    gpus, _ = origin.gpu_names()
    facts = {"processor": origin.processor(), "cores": str(core_count()), "gpus": ", ".join(gpus)}
    return socket.gethostname(), _class_of(facts)


def night_source(night: Night) -> IngestSource:
    """Return a night as a source, with the items that have ended so far."""
    summary = nights.read_summary(night.folder)
    ended = summary if summary and summary.token == night.token else None
    facts = flat_facts(night.environment)
    commit, name = facts.pop("commit", ""), facts.pop("machine", "")
    entry = Entry(
        key=night.token,
        kind="night",
        name=night.folder.resolve().name,
        title=night.plan.name,
        began=night.epoch,
        started=night.started,
        seconds=max(ended.seconds, 0.0) if ended else 0.0,
        finished=ended is not None,
        commit=commit,
        root=night.plan.root,
        machine=name,
        machine_class=_class_of(facts),
        environment=facts,
        part=night.part,
    )
    return IngestSource(entry=entry, night=night)


def _class_of(facts: Mapping[str, str]) -> str:
    """Return the class of a machine: processor, cores and GPUs."""
    return ", ".join(f"{name} {facts[name]}" for name in ("processor", "cores", "gpus") if facts.get(name))


def _epoch(started: str, file: Path) -> float:
    """Return a time of ISO 8601 as seconds since 1970."""
    try:
        return datetime.fromisoformat(started.replace("Z", "+00:00")).astimezone().timestamp()
    except ValueError as error:
        raise RecordError(
            "the time of the start cannot be read",
            file=file,
            key="started",
            found=repr(started),
            expected="a time such as 2026-01-31T22:15:00+00:00",
        ) from error


def _item_of_record(night: Path, record: nights.ItemRecord, entry: Entry, chain: str) -> ItemFacts:
    """Return an item from its record and its report; the reason says if the report cannot be read."""
    reason, report = record.reason, None
    if record.report:
        try:
            report = load_report(night / record.report)
        except InputError as error:
            trouble = f"its report cannot be read: {error.message}"
            reason = f"{reason}; {trouble}" if reason else trouble
    host, its_class = record.machine or entry.machine, entry.machine_class
    found = {"environment": report.versions, **_parts(report)} if report else {}
    return taken(ItemFacts, record, reason=reason, machine=host, machine_class=its_class, chain=chain, **found)


def _parts(report: RunReport) -> dict[str, Json]:
    """Return a report's commands, verdicts and causes; causes that explain verdicts come first."""
    commands, subjects = _Unique(), _Unique()
    return {
        "commands": tuple(
            taken(CommandFacts, one, id=commands.of(one.command.id), step=one.command.step, argv=one.command.argv)
            for one in report.results
        ),
        "verdicts": tuple(_verdict(subjects.of(one.subject), one) for one in report.verdicts),
        "causes": tuple(
            taken(
                CauseFacts,
                one,
                layer=one.port_path,
                file=one.place.file if one.place else "",
                line=one.place.line if one.place else 0,
                explained=_real(one.explained),
                checks=len(one.explains),
            )
            for one in report.causes
        ),
    }


def _verdict(subject: str, verdict: Verdict) -> VerdictFacts:
    diff = verdict.diff
    if diff is None:
        return taken(VerdictFacts, verdict, subject=subject)
    expected = f"{diff.expected_dtype}{list(diff.expected_shape)}"
    actual = f"{diff.actual_dtype}{list(diff.actual_shape)}"
    return taken(
        VerdictFacts,
        verdict,
        subject=subject,
        finite=verdict.finite and not (diff.mismatched_nan or diff.mismatched_inf),
        tensors=(expected if expected == actual else f"{expected} / {actual}"),
        size=diff.size,
        **{name: _real(getattr(diff, name)) for name in STATISTICS},
    )


def _real(value: float | None) -> float:
    return math.nan if value is None else float(value)


class _Unique:
    """Adds ``#2`` to a name that a report has twice: the history has one row for each."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def of(self, name: str) -> str:
        self.seen[name] = count = self.seen.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"


# Which finished nights were handed on to a history: a file in a night's folder says so.
#
# A coordinator that is killed after it wrote ``finished.json`` and before the history had the night leaves one without that
# file. The next call that looks at the manifest's nights finds it, and hands it on.

HANDED = "history.json"
"""In a night's folder: a history has the night, or it waits in an outbox. Nothing else rests on it."""
LOOKED_AT = 10
"""How many of the latest nights are looked at; those before one that was handed on are not."""
BESIDE = 5
"""Nights among which the last comparable one is looked for where no history has it."""


def note_handed(night: Path, database: str) -> None:
    """Note that a finished night was handed on; where that cannot be written, it is looked at again.

    Args:
        night: its folder.
        database: the database, without its password.
    """
    with suppress(OSError):
        atomic_write(night / HANDED, json.dumps({"database": database}) + "\n")


def missed_nights(nights: Path, but: Path | None = None) -> list[Path]:
    """Return finished nights that were not handed on, the oldest first.

    Args:
        nights: the folder of a manifest's nights.
        but: one that is being handed on now.
    """
    found: list[Path] = []
    for folder in nights_below(nights)[:LOOKED_AT]:
        if but is not None and folder.resolve() == but.resolve():
            continue
        if (folder / HANDED).exists():
            break
        # Held by a coordinator: it is about to do so itself.
        if (folder / FINISHED).is_file() and not holder(folder):
            found.append(folder)
    return found[::-1]


# What could not be written to the database waits in files, and is sent at the next call.
#
# ::
#
#     .tipchain/outbox/<database>/<began>-<key>.jsonl.gz      one night or report each, whole
#
# A file stands for itself: the night's folder or the report may be gone by the time it is sent. It is removed once all
# of it is in the database; being killed before that only means that it is sent again, which adds nothing twice.

FORMAT = 2
"""What is written. Files of format 1 are read too: a machine was an object there."""
SUFFIX = ".jsonl.gz"


def keep(place: HistoryPlace, source: IngestSource) -> Path:
    """Write a night or a report into the outbox, whole or not at all, and return the file.

    Raises:
        OSError: it cannot be written.
    """
    place.make_folder()
    entry = source.entry
    digest = hashlib.sha256(entry.key.encode()).hexdigest()[:12]
    path = place.outbox / f"{max(int(entry.began), 0):012d}-{digest}{SUFFIX}"
    with replacing(path) as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(json.dumps({"format": FORMAT, "entry": as_json(entry)}).encode() + b"\n")
        for item in source.items():
            packed.write(json.dumps(as_json(item)).encode() + b"\n")
        packed.write(b"end\n")
    return path


def waiting(place: HistoryPlace) -> list[Path]:
    """Return the files that wait for a database, the oldest night first."""
    return sorted(place.outbox.glob(f"[!.]*{SUFFIX}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What came of sending results to a database.

    Attributes:
        sent: whether the database has them.
        new: items that it did not have before.
        message: one or more lines for the user; "" if there is nothing to be said.
    """

    sent: bool
    new: int = 0
    message: str = ""


def send(history: History) -> SendResult:
    """Add all that waits for this database; stop at the first that it does not take.

    What another process is sending is left to that. A file that cannot be read stays, and is named.
    """
    from filelock import FileLock, Timeout

    place, new, problem = history.place, 0, ""
    lines: list[str] = []
    files = waiting(place)
    if not files:
        return SendResult(sent=True)
    try:
        with FileLock(place.outbox / ".lock", timeout=0):
            for path in files:
                try:
                    entry = read_entry(path)
                    new += history.add(entry, read_items(path))
                except RecordError:
                    problem = problem or f"{path}: cannot be read"
                    continue
                except HistoryError as error:
                    problem = str(error)
                    break
                lines.append(f"history: {entry.name}, which waited, is in {place} now")
                with suppress(FileNotFoundError):
                    path.unlink()
    except (Timeout, OSError):
        problem = "another process is sending them"
    left = len(waiting(place))
    lines += [f"history: {left} in {place.outbox} still wait: {problem}"] if left and problem else []
    return SendResult(sent=not left, new=new, message="\n".join(lines))


def read_entry(path: Path) -> Entry:
    """Return the entry of a file that waits.

    Raises:
        RecordError: it cannot be read, or not to its end.
    """
    lines = list(_lines(path, last=1))
    try:
        head = json.loads(lines[0])
        entry = _parse(Entry, head["entry"], "entry")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RecordError(f"is not from an outbox: {type(error).__name__} {error}", file=path) from error
    if head["format"] not in (1, FORMAT):
        raise RecordError("has another format", file=path, found=repr(head["format"]), expected=FORMAT)
    return entry


def read_items(path: Path) -> Iterator[ItemFacts]:
    """Yield the items of a file that waits.

    Raises:
        RecordError: it cannot be read, or not to its end.
    """
    for number, line in enumerate(_lines(path)):
        if number == 0:
            continue
        try:
            yield _parse(ItemFacts, json.loads(line), "item")
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                f"is not from an outbox: {type(error).__name__} {error}", file=path, line=number + 1
            ) from error


def _parse(kind: type[_T], found: JsonObject, where: str) -> _T:
    if isinstance(machine := found["machine"], dict):  # of format 1
        found = {**found, "machine": machine["name"], "machine_class": machine["machine_class"]}
    return parse_as(kind, found, where, lenient=True)


def _lines(path: Path, last: int | None = None) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if line == "end\n" or number == last:
                    return
                yield line
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise RecordError(f"cannot be read: {error}", file=path, expected="a file of the outbox") from error
    raise RecordError("does not go to its end", file=path, expected="a file of the outbox")


def keep_night(folder: Path, database: str | None = None) -> SendResult:
    """Add a night to the history, before it those that a kill kept from being added; print what there is to be said.

    Args:
        folder: the night's.
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else the night's project's own.
    """
    source = read_source(folder)
    place = place_of(Path(source.entry.root), database)
    told = hand_on_missed(folder.parent, place, but=folder)
    kept = keep_source(source, place)
    for message in (*told, *filter(None, [kept.message])):
        print(say(message), file=sys.stderr)
    return kept


def keep_source(source: IngestSource, place: HistoryPlace) -> SendResult:
    """Add a night or a report to the history, and what waited from before.

    Trouble with the history is never raised: results that the database does not take go to the outbox, and are sent
    at the next call. May be called several times for a night, as with one that goes on.
    """
    try:
        history = History(place)
        new = history.add(source.entry, source.items())
    except (HistoryError, OSError) as error:
        # Put a night or a report into the outbox, or say why that fails, too.
        reason = str(error) if isinstance(error, HistoryError) else f"{place}: {error}"
        try:
            end = f"  kept in {keep(place, source)}, sent at the next call"
            _note(source, place)
        except OSError as trouble:
            where = source.night.folder if source.night else source.entry.name
            end = (
                f"  nor could the results be kept in {place.outbox}: {trouble.strerror or trouble}\n"
                f"  hint: they are in {where}; tipchain history add sends them later"
            )
        return SendResult(sent=False, message=f"history: {reason}\n{end}")
    _note(source, place)
    return replace(send(history), sent=True, new=new)


def hand_on_missed(nights: Path, place: HistoryPlace, *, but: Path | None = None) -> list[str]:
    """Add the finished nights of a manifest that no history was given; return a message for each.

    That costs next to nothing where there is none: it looks at the latest nights, back to the last that was handed on.

    Args:
        nights: the folder of the manifest's nights.
        place: where the history is.
        but: a night that is handed on otherwise.
    """
    told = []
    for folder in missed_nights(nights, but):
        try:
            source = read_source(folder)
        except RecordError as error:
            told.append(f"history: a finished night cannot be handed on: {error}")
            continue
        if _having(place, source.entry.key):
            note_handed(folder, str(place))
            continue
        kept = keep_source(source, place)
        told.append(kept.message or f"history: {folder.name}, which had finished before, is in {place} now")
    return told


def _having(place: HistoryPlace, key: str) -> History | None:
    """Return the history if it has a night to its end; None if not, or where it cannot be asked."""
    try:
        history = History(place)
        return history if history.has(key) else None
    except (HistoryError, OSError):
        return None


@contextmanager
def history_with(results: nights.Results, database: str | None = None) -> Iterator[History]:
    """Yield a history that has a night: the project's own, else a temporary one of this night and those beside it.

    Args:
        results: of the night.
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else the project's own.

    Raises:
        UsageError: the database's URL cannot be understood.
    """
    place = place_of(Path(results.plan.root), database)
    there = place.file is None or place.file.is_file()
    if history := _having(place, results.night.token) if there else None:
        yield history
        return
    with TemporaryDirectory(prefix="tipchain-") as scratch:
        history = History(place_of(place.root, f"{scratch}/{FILE}"))
        folders = [one for one in nights_below(results.folder.parent)[::-1] if one.name <= results.night.name]
        for one in latest_results(folders, BESIDE, []):
            if one.finished or one.folder == results.folder:
                source = night_source(one.night)
                history.add(source.entry, source.items())
        yield history


def send_waiting(place: HistoryPlace) -> SendResult:
    """Send what waits for the database; trouble with it is told, not raised."""
    count = len(waiting(place))
    if not count:
        return SendResult(sent=True)
    try:
        return send(History(place))
    except (HistoryError, OSError) as error:
        return SendResult(sent=False, message=f"history: {error}\n  {count} wait in {place.outbox}")


def _note(source: IngestSource, place: HistoryPlace) -> None:
    if source.night is not None and source.entry.finished:
        note_handed(source.night.folder, str(place))
