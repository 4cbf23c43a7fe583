"""Reads nights and reports into the history."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tipchain.core.json_text import Json, flat_facts, taken
from tipchain.errors import HistoryError, InputError, RecordError, worst
from tipchain.history.schema import CauseFacts, CommandFacts, Entry, ItemFacts
from tipchain.history.store import History, HistoryPlace, place_of
from tipchain.nightly import nights
from tipchain.nightly.nights import Night, holder, nights_below
from tipchain.report.model import RunReport, load_report, report_json


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
                environment=dict(self.report.versions),
                **_parts(self.report),
            )
        if self.night is not None:
            chains = {item.id: item.chain for item in self.night.plan.items}
            for record in self.night.records():
                reason, found = record.reason, {}
                try:
                    report = load_report(self.night.folder / record.report) if record.report else None
                    found = {"environment": dict(report.versions), **_parts(report)} if report else {}
                except InputError as error:
                    trouble = f"its report cannot be read: {error.message}"
                    reason = f"{reason}; {trouble}" if reason else trouble
                host, its_class = record.machine or self.entry.machine, self.entry.machine_class
                yield taken(
                    ItemFacts,
                    record,
                    reason=reason,
                    machine=host,
                    machine_class=its_class,
                    chain=chains[record.id],
                    **found,
                )


def read_source(path: Path) -> IngestSource:
    """Return what is in ``path``: a night's folder, a report's file, or the folder of a run.

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
        machine=name,
        machine_class=_class_of(facts),
        environment={**facts, **report.versions},
    )
    return IngestSource(entry=entry, report=report)


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


def _parts(report: RunReport) -> dict[str, Json]:
    """Return a report's commands, verdicts and causes; causes that explain verdicts come first."""
    commands = zip(_unique(one.command.id for one in report.results), report.results, strict=True)
    subjects = zip(_unique(one.subject for one in report.verdicts), report.verdicts, strict=True)
    return {
        "commands": [
            taken(CommandFacts, one, id=name, step=one.command.step, argv=list(one.command.argv))
            for name, one in commands
        ],
        "judged": [{"subject": name, "outcome": one.outcome, "reason": one.reason} for name, one in subjects],
        "causes": [
            taken(
                CauseFacts,
                one,
                layer=one.port_path,
                file=one.place.file if one.place else "",
                line=one.place.line if one.place else 0,
                explained=math.nan if one.explained is None else one.explained,
                checks=len(one.explains),
            )
            for one in report.causes
        ],
    }


def _unique(names: Iterable[str]) -> Iterator[str]:
    """Add ``#2`` to a name that comes twice: the history has one row for each."""
    seen: Counter[str] = Counter()
    for name in names:
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}#{seen[name]}"


# A night whose database was down, or whose coordinator was killed after it wrote ``finished.json``, is in no history. The
# next call that looks at the manifest's nights finds it, and adds it.

LOOKED_AT = 10
"""How many of the latest nights are looked at; those before one that the history has are not."""


def keep_night(folder: Path, database: str | None = None) -> list[str]:
    """Add a night to the history, and before it those that the history missed; return what there is to be said.

    Trouble with the history is never raised: the night's folder has all that the next call adds.

    Args:
        folder: the night's.
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else for the night's project's own.
    """
    source = read_source(folder)
    try:
        place = place_of(Path(source.entry.root), database)
        told = add_missed(folder.parent, place, but=folder)
        add_source(source, History(place))
    except (HistoryError, OSError) as error:
        return [f"history: {error}\n  the night is in {folder}; the next night of its manifest hands it on"]
    return told


def add_source(source: IngestSource, history: History) -> int:
    """Add a night or a report to the history; return how many of its items are new.

    Raises:
        HistoryError: the database does not take it.
    """
    return 0 if history.has(source.entry.key) else history.add(source.entry, source.items())


def add_missed(folder: Path, place: HistoryPlace, *, but: Path | None = None) -> list[str]:
    """Add the latest finished nights of a manifest, back to one that the history has; return a message for each.

    Args:
        folder: of the manifest's nights.
        place: where the history is.
        but: a night that is added otherwise.

    Raises:
        HistoryError: the database does not take one.
    """
    history, missed, told = History(place), [], []
    for one in nights_below(folder)[:LOOKED_AT]:
        summary = nights.read_summary(one)
        if summary and history.has(summary.token):
            break
        # Held by a coordinator: it is about to do so itself.
        if summary and not holder(one) and not (but and one.resolve() == but.resolve()):
            missed.append(one)
    for one in missed[::-1]:
        told.append(f"history: {one.name}, which had finished before, is in {place} now")
        try:
            add_source(read_source(one), history)
        except RecordError as error:
            told[-1] = f"history: a finished night cannot be handed on: {error}"
    return told
