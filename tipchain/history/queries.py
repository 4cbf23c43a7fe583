"""Reading the history: what is in an entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tipchain.history import schema
from tipchain.history.entries import Entry, of_entry
from tipchain.history.facts import CauseFacts
from tipchain.history.rows import CAUSE_TEXTS
from tipchain.history.schema import OUTCOMES, command_runs, environments, item_runs, machines, texts
from tipchain.outcome import Outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRun:
    """How an item ended in an entry; see `tipchain.history.facts.ItemFacts`.

    Attributes:
        row: its row.
        verdict_count: how many verdicts it has.
    """

    row: int
    id: str
    outcome: Outcome
    reason: str
    exit_code: int | None
    signal: int
    started: str
    seconds: float
    peak_memory_mb: float
    attempt: int
    machine: str
    machine_class: str
    executor: str
    log: str
    report: str
    verdict_count: int
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun:
    """How a command of an item ended; see `tipchain.history.facts.CommandFacts`."""

    item: str
    id: str
    step: str
    argv: tuple[str, ...]
    outcome: Outcome
    reason: str
    exit_code: int | None
    signal: str
    seconds: float
    peak_memory_mb: float
    log: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRun(CauseFacts):
    """A cause that an item had in an entry.

    Attributes:
        entry: the entry's name.
        commit: its commit.
        item: the item.
    """

    entry: str
    commit: str
    item: str


def items_of(connection: Connection, entry: Entry) -> dict[str, ItemRun]:
    """Return how the items of an entry ended, by id."""
    reasons = texts.alias()
    query = (
        sa.select(
            item_runs,
            texts.c.text.label("item"),
            reasons.c.text.label("reason"),
            machines.c.name.label("machine"),
            machines.c.machine_class,
            environments.c.facts,
        )
        .join(texts, texts.c.id == item_runs.c.item_id)
        .join(reasons, reasons.c.id == item_runs.c.reason_id)
        .join(machines, machines.c.id == item_runs.c.machine_id)
        .join(environments, environments.c.id == item_runs.c.environment_id)
        .where(of_entry(item_runs.c.entry_id, entry))
        .order_by(item_runs.c.id)
    )
    return {row.item: _item(row) for row in connection.execute(query)}


def commands_of(connection: Connection, entry: Entry, items: Sequence[str] | None = None) -> list[CommandRun]:
    """Return how the commands of an entry's items ended, of all items or of those named."""
    names, reasons = texts.alias(), texts.alias()
    query = (
        sa.select(
            command_runs,
            texts.c.text.label("item"),
            names.c.text.label("command"),
            reasons.c.text.label("reason"),
        )
        .join(item_runs, item_runs.c.id == command_runs.c.item_run_id)
        .join(texts, texts.c.id == item_runs.c.item_id)
        .join(names, names.c.id == command_runs.c.command_id)
        .join(reasons, reasons.c.id == command_runs.c.reason_id)
        .where(of_entry(item_runs.c.entry_id, entry))
        .order_by(command_runs.c.item_run_id, command_runs.c.id)
    )
    if items is not None:
        query = query.where(item_runs.c.item_id.in_([schema.number_of(item) for item in items]))
    figures = _figures_of(connection, entry)
    return [_command(row, figures.get(row.id, {})) for row in connection.execute(query)]


def verdicts_of(
    connection: Connection, item: ItemRun, *, passed: bool = False
) -> list[tuple[Outcome, str, str]]:
    """Return outcome, subject and reason of an item's verdicts other than PASS, or of all."""
    reasons, table = texts.alias(), schema.verdicts
    query = (
        sa.select(table.c.outcome, texts.c.text, reasons.c.text)
        .join(texts, texts.c.id == table.c.subject_id)
        .join(reasons, reasons.c.id == table.c.reason_id)
        .where(table.c.item_run_id == item.row)
        .order_by(texts.c.text)
    )
    query = query if passed else query.where(table.c.outcome != schema.code_of(Outcome.PASS))
    return [(OUTCOMES[code], subject, reason) for code, subject, reason in connection.execute(query)]


def causes_of(connection: Connection, entry: Entry) -> dict[str, list[CauseRun]]:
    """Return the causes of an entry's failures by item, the one that comes first first."""
    found: dict[str, list[CauseRun]] = {}
    query = (
        _causes().where(of_entry(item_runs.c.entry_id, entry)).order_by(item_runs.c.id, schema.causes.c.rank)
    )
    for row in connection.execute(query):
        found.setdefault(row.item, []).append(_cause(row))
    return found


def find_causes(
    connection: Connection, *, code: str = "", layer: str = "", file: str = "", item: str = "", title: str = "", limit: int = 20
) -> list[CauseRun]:  # fmt: skip
    """Return causes of all entries, the latest first.

    Args:
        connection: to the history.
        code: only those of this code.
        layer: only those of layers whose path has this in it.
        file: only those whose line to change is in a file whose path has this in it.
        item: only those of items whose id has this in it.
        title: only those of this manifest, or report's title.
        limit: how many at most.
    """
    query = (
        _causes().order_by(schema.entries.c.began.desc(), item_runs.c.id, schema.causes.c.rank).limit(limit)
    )
    named = {column.name: column for column in query.selected_columns}
    if code:
        query = query.where(named["code"] == code)
    if title:
        query = query.where(schema.entries.c.title == title)
    for name, part in (("layer", layer), ("file", file), ("item", item)):
        if part:
            query = query.where(named[name].contains(part, autoescape=True))
    return [_cause(row) for row in connection.execute(query)]


def _causes() -> sa.Select[Any]:
    told, items, table = {name: texts.alias() for name in CAUSE_TEXTS}, texts.alias(), schema.causes
    own = [table.c[name] for name in ("stage", "line", "explained", "checks")]
    named = [
        schema.entries.c.name.label("entry"),
        schema.entries.c.commit_id.label("commit"),
        items.c.text.label("item"),
    ]
    query = (
        sa.select(*named, *own, *(text.c.text.label(name) for name, text in told.items()))
        .select_from(table)
        .join(item_runs, item_runs.c.id == table.c.item_run_id)
        .join(schema.entries, schema.entries.c.id == item_runs.c.entry_id)
        .join(items, items.c.id == item_runs.c.item_id)
    )
    for name, text in told.items():
        query = query.join(text, text.c.id == table.c[f"{name}_id"])
    return query


def _cause(row: Row[Any]) -> CauseRun:
    return CauseRun(**{**row._mapping, "explained": real(row.explained)})  # noqa: SLF001 (SQLAlchemy's public name)


def _figures_of(connection: Connection, entry: Entry) -> dict[int, dict[str, float]]:
    """Return the figures of an entry's commands, by the command's row."""
    query = (
        sa.select(schema.figures.c.command_run_id, texts.c.text, schema.figures.c.value)
        .join(command_runs, command_runs.c.id == schema.figures.c.command_run_id)
        .join(item_runs, item_runs.c.id == command_runs.c.item_run_id)
        .join(texts, texts.c.id == schema.figures.c.name_id)
        .where(of_entry(item_runs.c.entry_id, entry))
    )
    found: dict[int, dict[str, float]] = {}
    for run, name, value in connection.execute(query):
        found.setdefault(run, {})[name] = real(value)
    return found


def real(value: float | None) -> float:
    """Return a number of a column: NaN for NULL."""
    return float("nan") if value is None else float(value)


def _item(row: Row[Any]) -> ItemRun:
    return ItemRun(
        row=row.id,
        id=row.item,
        outcome=OUTCOMES[row.outcome],
        reason=row.reason,
        exit_code=row.exit_code,
        signal=row.signal,
        started=row.started,
        seconds=row.seconds,
        peak_memory_mb=row.peak_memory_mb,
        attempt=row.attempt,
        machine=row.machine,
        machine_class=row.machine_class,
        executor=row.executor,
        log=row.log,
        report=row.report,
        verdict_count=row.verdict_count,
        environment=json.loads(row.facts),
    )


def _command(row: Row[Any], figures: Mapping[str, float]) -> CommandRun:
    return CommandRun(
        item=row.item,
        id=row.command,
        step=row.step,
        argv=tuple(json.loads(row.argv)),
        outcome=OUTCOMES[row.outcome],
        reason=row.reason,
        exit_code=row.exit_code,
        signal=row.signal,
        seconds=row.seconds,
        peak_memory_mb=row.peak_memory_mb,
        log=row.log,
        figures=figures,
    )
