"""Reads nights and reports into the history."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tipchain.core.json_text import Json, JsonObject, flat_facts, taken
from tipchain.errors import HistoryError, InputError, RecordError, worst
from tipchain.history.schema import CauseFacts, CommandFacts, Entry, ItemFacts
from tipchain.history.store import History, place_of
from tipchain.nightly import nights
from tipchain.nightly.nights import Night, holder, nights_below
from tipchain.report.model import RunReport, load_report, report_json


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSource:
    """A night or a report that can be added, item by item: a long night's verdicts are never in memory at once.

    Attributes:
        entry: the night, or the report.
        items: yields how each item ended; those that have not are left out.
    """

    entry: Entry
    items: Callable[[], Iterator[ItemFacts]]


def read_source(path: Path) -> IngestSource:
    """Return the contents of ``path``: a night's folder, a report's file, or the folder of a run.

    Raises:
        RecordError: there is neither a night nor a report, or it cannot be read.
    """
    if path.name == nights.NIGHT:
        path = path.parent
    if (path / nights.NIGHT).is_file():
        return _night_source(nights.read_night(path))
    # The report is an entry of its own.
    report = load_report(path)
    text = json.dumps(report_json(report), sort_keys=True)
    key = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
    run = Path(report.run).name
    try:
        began = datetime.fromisoformat(report.started.replace("Z", "+00:00")).astimezone().timestamp()
    except ValueError as error:
        raise RecordError(
            "the time of the start cannot be read",
            file=path,
            key="started",
            found=repr(report.started),
            expected="a time such as 2026-01-31T22:15:00+00:00",
        ) from error
    where = _where(report.where)
    entry = Entry(
        key=key,
        kind="run",
        name=f"{run}-{key[:4]}" if run else key[:12],
        title=f"{report.title}[{report.mode}]" if report.mode else report.title,
        began=began,
        started=report.started,
        seconds=report.seconds,
        finished=not report.interrupted,
        **{**where, "environment": {**where["environment"], **report.versions}},
    )

    def items() -> Iterator[ItemFacts]:
        yield ItemFacts(
            id=entry.title,
            attempt=1,
            outcome=worst(report.outcomes),
            reason="" if not report.interrupted else "interrupted",
            exit_code=int(report.exit_code),
            started=report.started,
            seconds=report.seconds,
            peak_memory_mb=max((result.peak_memory_mb for result in report.results), default=0.0),
            machine=entry.machine,
            machine_class=entry.machine_class,
            report=report.run,
            chain=report.chain,
            **_parts(report),
        )

    return IngestSource(entry=entry, items=items)


def _night_source(night: Night) -> IngestSource:
    summary = nights.read_summary(night.folder)
    ended = summary if summary and summary.token == night.token else None
    entry = Entry(
        key=night.token,
        kind="night",
        name=night.folder.resolve().name,
        title=night.plan.name,
        began=night.epoch,
        started=night.started,
        seconds=max(ended.seconds, 0.0) if ended else 0.0,
        finished=ended is not None,
        root=night.plan.root,
        part=night.part,
        **_where(night.environment),
    )

    def items() -> Iterator[ItemFacts]:
        chains = {item.id: item.chain for item in night.plan.items}
        for record in night.records():
            parts, troubles = {}, [record.reason]
            try:
                parts = _parts(load_report(night.folder / record.report)) if record.report else {}
            except InputError as error:
                troubles.append(f"its report cannot be read: {error.message}")
            yield taken(
                ItemFacts,
                record,
                reason="; ".join(filter(None, troubles)),
                machine=record.machine or entry.machine,
                machine_class=entry.machine_class,
                chain=chains[record.id],
                **parts,
            )

    return IngestSource(entry=entry, items=items)


def _where(facts: JsonObject) -> dict[str, Json]:
    texts = flat_facts(facts)
    commit, machine = texts.pop("commit", ""), texts.pop("machine", "")
    known = [f"{name} {texts[name]}" for name in ("processor", "cores", "gpus") if texts.get(name)]
    return {"commit": commit, "machine": machine, "machine_class": ", ".join(known), "environment": texts}


def _parts(report: RunReport) -> dict[str, Json]:
    """Return a report's versions, commands, verdicts and causes; causes that explain verdicts come first."""
    commands = zip(_unique(one.command.id for one in report.results), report.results, strict=True)
    subjects = zip(_unique(one.subject for one in report.verdicts), report.verdicts, strict=True)
    return {
        "environment": dict(report.versions),
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
    """Add a night to the history, and before it those that the history missed; return lines to be shown.

    Trouble with the history is never raised: the night's folder has all that the next call adds.

    Args:
        folder: the night's.
        database: a URL or a file; None for what TIPCHAIN_DATABASE says, or else for the night's project's own.
    """
    source, told, missed = read_source(folder), list[str](), list[Path]()
    try:
        place = place_of(Path(source.entry.root), database)
        history = History(place)
        for one in nights_below(folder.parent)[:LOOKED_AT]:
            summary = nights.read_summary(one)
            if summary and history.has(summary.token):
                break
            # Held by a coordinator: it is about to do so itself.
            if summary and not holder(one) and one.resolve() != folder.resolve():
                missed.append(one)
        for one in missed[::-1]:
            told.append(f"history: {one.name}, which had finished before, is in {place} now")
            try:
                earlier = read_source(one)
                history.add(earlier.entry, earlier.items())
            except RecordError as error:
                told[-1] = f"history: a finished night cannot be handed on: {error}"
        history.add(source.entry, source.items())
    except (HistoryError, OSError) as error:
        return [f"history: {error}\n  the night is in {folder}; the next night of its manifest hands it on"]
    return told
