"""From a night's folder, or a report, to facts."""

from __future__ import annotations

import hashlib
import json
import math
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tipchain.cores import core_count
from tipchain.errors import InputError, RecordError
from tipchain.history.facts import CauseFacts, CommandFacts, EntryFacts, ItemFacts, Machine, VerdictFacts
from tipchain.json_text import parse_as
from tipchain.nightly import machine, nights, records
from tipchain.outcome import worst
from tipchain.report.model import load_report, report_json

if TYPE_CHECKING:
    from tipchain.numbers.compare import TensorDiff
    from tipchain.numbers.verdicts import Verdict
    from tipchain.report.model import RunReport


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSource:
    """A night or a report that can be added, item by item: a long night's verdicts are never in memory at once.

    Attributes:
        entry: the night, or the report.
        night: the night's folder; None for a report.
        chains: the kind of chain of each item, by its id; "" for what is none.
        report: the report; None for a night.
        machine: where the items of a report ran.
    """

    entry: EntryFacts
    night: Path | None = None
    chains: Mapping[str, str] = field(default_factory=dict)
    report: RunReport | None = None

    def items(self) -> Iterator[ItemFacts]:
        """Yield how each item ended; those that have not are left out."""
        if self.report is not None:
            yield _item_of_report(self.report, self.entry)
        if self.night is not None:
            for item_id, chain in self.chains.items():
                record = records.read_record(self.night, item_id, self.entry.key)
                if record is not None:
                    yield replace(_item_of_record(self.night, record, self.entry.machine), chain=chain)


def read_source(path: Path, machine: Machine | None = None) -> IngestSource:
    """Return what is in ``path``: a night's folder, a report's file, or the folder of a run.

    Args:
        path: the file or folder.
        machine: where a report's run took place; if None what the report says, and this machine if it does not.

    Raises:
        RecordError: there is neither a night nor a report, or it cannot be read.
    """
    if path.name == records.NIGHT:
        path = path.parent
    if (path / records.NIGHT).is_file():
        return read_night(path)
    return read_run(path, machine)


def this_machine() -> Machine:
    """Return the machine that this process runs on, of the class that its nights are of."""
    gpus, _ = machine.gpu_names()
    facts = {"processor": machine.processor(), "cores": str(core_count()), "gpus": ", ".join(gpus)}
    return Machine(name=socket.gethostname(), machine_class=_class_of(facts))


def read_run(path: Path, machine: Machine | None = None) -> IngestSource:
    """Return the report in ``path`` as an entry of its own; ``machine`` as for `read_source`.

    Raises:
        RecordError: it cannot be read.
    """
    report = load_report(path)
    text = json.dumps(report_json(report), sort_keys=True)
    key = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()
    run = Path(report.run).name
    facts = dict(_flat(report.where))
    commit, name = facts.pop("commit", ""), facts.pop("machine", "")
    said = Machine(name=name, machine_class=_class_of(facts)) if name else None
    entry = EntryFacts(
        key=key,
        kind="run",
        name=f"{run}-{key[:4]}" if run else key[:12],
        title=f"{report.title}[{report.mode}]" if report.mode else report.title,
        began=_epoch(report.started, path),
        started=report.started,
        seconds=report.seconds,
        finished=not report.interrupted,
        commit=commit,
        machine=machine or said or this_machine(),
        environment={**facts, **report.versions},
    )
    return IngestSource(entry=entry, report=report)


def read_night(folder: Path) -> IngestSource:
    """Return the night in ``folder``, with the items that have ended so far.

    Raises:
        RecordError: its ``night.json`` cannot be read, or is none.
    """
    night = nights.read_night(folder)
    finished = _finished(folder, night.token)
    facts = dict(_flat(night.environment))
    commit, name = facts.pop("commit", ""), facts.pop("machine", "")
    entry = EntryFacts(
        key=night.token,
        kind="night",
        name=folder.resolve().name,
        title=night.plan.name,
        began=_epoch(night.started, folder / records.NIGHT),
        started=night.started,
        seconds=max(float(finished.get("seconds") or 0.0), 0.0),
        finished=bool(finished),
        commit=commit,
        root=night.plan.root,
        machine=Machine(name=name, machine_class=_class_of(facts)),
        environment=facts,
        part=night.part,
    )
    return IngestSource(entry=entry, night=folder, chains={item.id: item.chain for item in night.plan.items})


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values of nested facts, as ``("versions.torch", "2.9")``; lists are one value."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            listed = isinstance(value, list)
            yield (above + str(name), ", ".join(map(str, value)) if listed else "" if value is None else str(value))


def _class_of(facts: Mapping[str, str]) -> str:
    """Return what of a machine makes times comparable, of what a night says about it."""
    return ", ".join(f"{name} {facts[name]}" for name in ("processor", "cores", "gpus") if facts.get(name))


def _finished(folder: Path, token: str) -> Mapping[str, Any]:
    """Return what a night that came to its end says about itself; nothing for others."""
    try:
        found = records.read_document(folder / records.FINISHED)
        parse_as(float, found.get("seconds") or 0.0)
    except (OSError, ValueError):
        return {}
    return found if found.get("token") == token else {}


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


def _item_of_record(night: Path, record: records.ItemRecord, coordinator: Machine) -> ItemFacts:
    """Return an item's record with what its report says; one that cannot be read is told in the reason."""
    reason, report = record.reason, None
    if record.report:
        try:
            report = load_report(night / record.report)
        except InputError as error:
            trouble = f"its report cannot be read: {error.message}"
            reason = f"{reason}; {trouble}" if reason else trouble
    own = not record.machine or record.machine == coordinator.name
    machine = coordinator if own else Machine(name=record.machine, machine_class=coordinator.machine_class)
    return ItemFacts(
        id=record.id,
        outcome=record.outcome,
        attempt=record.attempt,
        reason=reason,
        exit_code=record.exit_code,
        signal=record.signal,
        started=record.started,
        seconds=record.seconds,
        peak_memory_mb=record.peak_memory_mb,
        machine=machine,
        executor=record.executor,
        log=record.log,
        report=record.report,
        environment=report.versions if report else {},
        commands=_commands(report) if report else (),
        verdicts=_verdicts(report) if report else (),
        artifacts=record.artifacts,
        causes=_causes(report) if report else (),
    )


def _item_of_report(report: RunReport, entry: EntryFacts) -> ItemFacts:
    return ItemFacts(
        id=entry.title,
        outcome=worst(report.outcomes),
        reason="" if not report.interrupted else "interrupted",
        exit_code=int(report.exit_code),
        started=report.started,
        seconds=report.seconds,
        peak_memory_mb=max((result.peak_memory_mb for result in report.results), default=0.0),
        machine=entry.machine,
        report=report.run,
        chain=report.chain,
        environment=report.versions,
        commands=_commands(report),
        verdicts=_verdicts(report),
        causes=_causes(report),
    )


def _causes(report: RunReport) -> tuple[CauseFacts, ...]:
    """Return the causes that a report tells: those that verdicts fail because of come first."""
    return tuple(
        CauseFacts(
            stage=one.stage,
            code=one.code,
            layer=one.port_path,
            message=one.message,
            fix=one.fix,
            file=one.place.file if one.place else "",
            line=one.place.line if one.place else 0,
            explained=_real(one.explained),
            checks=len(one.explains),
        )
        for one in sorted(report.diagnoses, key=lambda one: not one.explains)
    )


def _commands(report: RunReport) -> tuple[CommandFacts, ...]:
    names = _Unique()
    return tuple(
        CommandFacts(
            id=names.of(one.command.id),
            step=one.command.step,
            argv=one.command.argv,
            outcome=one.outcome,
            reason=one.reason,
            exit_code=one.exit_code,
            signal=one.signal,
            started=one.started,
            seconds=one.seconds,
            peak_memory_mb=one.peak_memory_mb,
            log=one.log,
            reused=one.reused,
            figures=one.figures,
        )
        for one in report.results
    )


def _verdicts(report: RunReport) -> tuple[VerdictFacts, ...]:
    names = _Unique()
    return tuple(_verdict(names.of(one.subject), one) for one in report.verdicts)


def _verdict(subject: str, verdict: Verdict) -> VerdictFacts:
    diff = verdict.diff
    facts = VerdictFacts(subject=subject, outcome=verdict.outcome, reason=verdict.reason, finite=verdict.finite)
    if diff is None:
        return facts
    return VerdictFacts(
        subject=subject,
        outcome=verdict.outcome,
        reason=verdict.reason,
        finite=verdict.finite and not (diff.mismatched_nan or diff.mismatched_inf),
        tensors=_tensors(diff),
        size=diff.size,
        mean_abs=_real(diff.mean_abs),
        max_abs=_real(diff.max_abs),
        min_abs=_real(diff.min_abs),
        max_rel=_real(diff.max_rel),
        needed_atol=_real(diff.needed_atol),
        rtol=_real(diff.rtol),
        expected_max_abs=_real(diff.expected_max_abs),
    )


def _real(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _tensors(diff: TensorDiff) -> str:
    expected = f"{diff.expected_dtype}{list(diff.expected_shape)}"
    actual = f"{diff.actual_dtype}{list(diff.actual_shape)}"
    return expected if expected == actual else f"{expected} / {actual}"


class _Unique:
    """Names that stand twice in a report get ``#2`` behind them: the history has one row for each."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def of(self, name: str) -> str:
        self.seen[name] = count = self.seen.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"
