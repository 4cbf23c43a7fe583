"""The history as CSV or JSON lines, row by row."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import sqlalchemy as sa

from tipchain.chain.result_json import number_json
from tipchain.history.entries import Entry
from tipchain.history.rows import CAUSE_TEXTS, STATISTICS
from tipchain.history.schema import (
    OUTCOMES,
    artifacts,
    causes,
    command_runs,
    entries,
    environments,
    figures,
    item_runs,
    machines,
    texts,
    verdicts,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

TABLES = ("entries", "items", "commands", "figures", "verdicts", "artifacts", "causes")
FORMATS = ("csv", "jsonl")
AT_ONCE = 2000
"""Rows that are fetched at once."""


def export(
    connection: Connection, stream: TextIO, *, table: str, form: str, chosen: Sequence[Entry] | None
) -> int:
    """Write a table, with names instead of numbers, and return how many rows it has.

    Args:
        connection: to the history.
        stream: where to.
        table: one of `TABLES`.
        form: ``csv`` (with a head; NaN is ``NaN``) or ``jsonl`` (one object a line; NaN is the string ``NaN``).
        chosen: the entries; None for all.
    """
    query = _query(table)
    if chosen is not None:
        query = query.where(entries.c.id.in_([row for one in chosen for row in one.rows]))
    result = connection.execution_options(yield_per=AT_ONCE).execute(query)
    names = [name for name in result.keys()]  # noqa: C416, SIM118 (a view of the result's columns)
    rows = (_plain(row) for row in result.mappings())
    return _write_csv(stream, names, rows) if form == "csv" else _write_jsonl(stream, rows)


def _write_csv(stream: TextIO, names: Sequence[str], rows: Iterator[dict[str, Any]]) -> int:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    count = 0
    for row in rows:
        writer.writerow(_cell(row[name]) for name in names)
        count += 1
    return count


def _cell(value: Any) -> Any:
    return number_json(value) if isinstance(value, float) else value


def _write_jsonl(stream: TextIO, rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    for row in rows:
        for name in ("environment", "argv", "part"):
            if name in row:
                row[name] = json.loads(row[name]) if row[name] else None
        line = {name: _cell(value) for name, value in row.items()}
        stream.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        count += 1
    return count


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    found = {str(name): value for name, value in row.items()}
    if "outcome" in found:
        found["outcome"] = OUTCOMES[found["outcome"]].value
    for name in ("value", "explained", *STATISTICS):
        if name in found and found[name] is None:
            found[name] = math.nan
    return found


def _query(table: str) -> sa.Select[Any]:  # noqa: PLR0911 (one for each kind of table)
    if table == "entries":
        return _entries()
    items, reasons, names = texts.alias(), texts.alias(), texts.alias()
    own: list[sa.ColumnElement[Any]]
    head: list[sa.ColumnElement[Any]] = [
        entries.c.name.label("entry"),
        entries.c.title,
        items.c.text.label("item"),
    ]
    source = item_runs.join(entries, entries.c.id == item_runs.c.entry_id)
    source = source.join(items, items.c.id == item_runs.c.item_id)
    if table == "items":
        source = source.join(reasons, reasons.c.id == item_runs.c.reason_id)
        source = source.join(machines, machines.c.id == item_runs.c.machine_id)
        source = source.join(environments, environments.c.id == item_runs.c.environment_id)
        own = [item_runs.c[name] for name in ("attempt", "outcome", "exit_code", "signal", "started", "seconds",
               "peak_memory_mb", "executor", "log", "report", "verdict_count")]  # fmt: skip
        machine = [machines.c.name.label("machine"), machines.c.machine_class]
        own += [reasons.c.text.label("reason"), *machine, environments.c.facts.label("environment")]
        return sa.select(*head, *own).select_from(source).order_by(item_runs.c.id)
    if table == "causes":
        return _causes(source, head)
    if table in ("verdicts", "artifacts"):
        part = verdicts if table == "verdicts" else artifacts
        source = source.join(part, part.c.item_run_id == item_runs.c.id)
        key = part.c.subject_id if table == "verdicts" else part.c.path_id
        source = source.join(names, names.c.id == key)
        if table == "artifacts":
            return (
                sa.select(*head, names.c.text.label("path"), part.c.sha256)
                .select_from(source)
                .order_by(item_runs.c.id, names.c.text)
            )
        tensors = texts.alias()
        source = source.join(reasons, reasons.c.id == part.c.reason_id).join(
            tensors, tensors.c.id == part.c.tensors_id
        )
        own = [part.c[name] for name in ("outcome", "finite", "size", *STATISTICS)]
        own += [reasons.c.text.label("reason"), tensors.c.text.label("tensors")]
        subject = names.c.text.label("subject")
        return (
            sa.select(*head, subject, *own)
            .select_from(source)
            .order_by(part.c.item_run_id, part.c.subject_id)
        )
    source = source.join(command_runs, command_runs.c.item_run_id == item_runs.c.id)
    source = source.join(names, names.c.id == command_runs.c.command_id)
    head.append(names.c.text.label("command"))
    if table == "figures":
        figure = texts.alias()
        source = source.join(figures, figures.c.command_run_id == command_runs.c.id)
        source = source.join(figure, figure.c.id == figures.c.name_id)
        return (
            sa.select(*head, figure.c.text.label("figure"), figures.c.value)
            .select_from(source)
            .order_by(command_runs.c.id, figure.c.text)
        )
    source = source.join(reasons, reasons.c.id == command_runs.c.reason_id)
    own = [command_runs.c[name] for name in ("step", "argv", "outcome", "exit_code", "signal", "started", "seconds",
           "peak_memory_mb", "log", "reused")]  # fmt: skip
    return (
        sa.select(*head, *own, reasons.c.text.label("reason")).select_from(source).order_by(command_runs.c.id)
    )


def _causes(source: sa.Join, head: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    source = source.join(causes, causes.c.item_run_id == item_runs.c.id)
    told = {name: texts.alias() for name in CAUSE_TEXTS}
    for name, text in told.items():
        source = source.join(text, text.c.id == causes.c[f"{name}_id"])
    own: list[sa.ColumnElement[Any]] = [
        causes.c.stage,
        *(text.c.text.label(name) for name, text in told.items()),
    ]
    own += [causes.c.line, causes.c.explained, causes.c.checks]
    return sa.select(*head, *own).select_from(source).order_by(item_runs.c.id, causes.c.rank)


def _entries() -> sa.Select[Any]:
    own = [entries.c[name] for name in ("kind", "name", "title", "started", "seconds", "finished")]
    return (
        sa.select(
            *own,
            entries.c.commit_id.label("commit"),
            entries.c.root,
            machines.c.name.label("machine"),
            machines.c.machine_class,
            environments.c.facts.label("environment"),
            entries.c.part,
        )
        .join(machines, machines.c.id == entries.c.machine_id)
        .join(environments, environments.c.id == entries.c.environment_id)
        .order_by(entries.c.began, entries.c.id)
    )
