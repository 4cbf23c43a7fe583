"""The history as JSON values, CSV and JSON lines; NaN and infinities are strings, as in reports."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TextIO

import sqlalchemy as sa

from tipchain.chain.plan import number_json
from tipchain.history.compare import Changes, Comparison
from tipchain.history.entries import CauseRun, CommandRun, Entry, ItemRun
from tipchain.history.schema import (
    CAUSE_TEXTS,
    OUTCOMES,
    STATISTICS,
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
from tipchain.outcome import Outcome
from tipchain.scalars import Scalar

if TYPE_CHECKING:
    from sqlalchemy import Connection


# The history as JSON values; NaN and infinities are strings, as in reports.


def entry_json(entry: Entry) -> dict[str, Any]:
    """Return an entry; of a night that was run in shares, with these."""
    counts = {outcome.value: count for outcome, count in entry.counts.items()}
    document: dict[str, Any] = _json_value(asdict(replace(entry, shares=()))) | {"counts": counts}
    del document["id"], document["part"]
    document["shares"] = [
        {"share": str(one.part), "name": one.name, "machine": one.machine, "finished": one.finished}
        for one in entry.shares
    ]
    return document | {"missing": entry.missing, "wrong": entry.wrong}


def item_json(item: ItemRun) -> dict[str, Any]:
    """Return an item."""
    document: dict[str, Any] = _json_value(asdict(item))
    del document["row"]
    return document


def commands_json(commands: Iterable[CommandRun]) -> list[dict[str, Any]]:
    """Return commands."""
    return [_json_value(asdict(one)) for one in commands]


def causes_json(causes: Iterable[CauseRun]) -> list[dict[str, Any]]:
    """Return causes."""
    return [_json_value(asdict(one)) for one in causes]


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison."""
    rest = {
        name: _json_value([asdict(one) for one in getattr(found, name)])
        for name in ("environment", "flips", "command_flips", "verdict_flips", "moved", "grew")
    }
    return {
        "before": entry_json(found.before),
        "after": entry_json(found.after),
        "common": found.common,
        "new": list(found.new),
        "gone": list(found.gone),
        "new_verdicts": dict(found.new_verdicts),
        "gone_verdicts": dict(found.gone_verdicts),
        **rest,
    }


def changes_json(found: Changes) -> dict[str, Any]:
    """Return what changed."""
    return {
        "entry": entry_json(found.entry),
        "comparison": None if found.comparison is None else comparison_json(found.comparison),
        "nothing": found.nothing,
        "shifts": _json_value([asdict(one) for one in found.shifts]),
        "commits": _json_value(asdict(found.commits)),
        "explanations": _json_value([asdict(one) for one in found.explanations]),
        "nights": found.nights,
        "plainly": found.plainly,
    }


def _json_value(value: Any) -> Any:
    """Return a value with all in it that JSON has no form for replaced."""
    if isinstance(value, dict):
        return {name.value if isinstance(name, Outcome) else name: _json_value(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(one) for one in value]
    if isinstance(value, Outcome):
        return value.value
    return number_json(value) if isinstance(value, float) else value


# The history as CSV or JSON lines, row by row.

TABLES = ("entries", "items", "commands", "figures", "verdicts", "artifacts", "causes")
FORMATS = ("csv", "jsonl")
AT_ONCE = 2000
"""Rows that are fetched at once."""


def export(connection: Connection, stream: TextIO, *, table: str, form: str, chosen: Sequence[Entry] | None) -> int:
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


def scalars(connection: Connection, chosen: Sequence[Entry] | None) -> Iterator[Scalar]:
    """Yield the seconds of items and the figures of their commands, by entry: the oldest of each title is step 0.

    Args:
        connection: to the history.
        chosen: the entries; None for all.
    """
    steps: dict[str, dict[str, int]] = {}
    for table, value in (("items", "seconds"), ("figures", "value")):
        query = _query(table).add_columns(entries.c.began).order_by(None).order_by(entries.c.began, entries.c.id)
        if chosen is not None:
            query = query.where(entries.c.id.in_([row for one in chosen for row in one.rows]))
        for row in connection.execution_options(yield_per=AT_ONCE).execute(query).mappings():
            if row[value] is None:
                continue
            own = steps.setdefault(row["title"], {})
            step = own.setdefault(row["entry"], len(own))
            what = "seconds" if table == "items" else f"{row['command']}/{row['figure']}"
            yield Scalar(
                run=row["title"].replace("/", "_"),
                tag=f"{row['item']}/{what}",
                step=step,
                value=float(row[value]),
                time=float(row["began"]),
            )


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
    head: list[sa.ColumnElement[Any]] = [entries.c.name.label("entry"), entries.c.title, items.c.text.label("item")]
    source = item_runs.join(entries, entries.c.id == item_runs.c.entry_id)
    source = source.join(items, items.c.id == item_runs.c.item_id)
    if table == "items":
        source = source.join(reasons, reasons.c.id == item_runs.c.reason_id)
        source = source.join(machines, machines.c.id == item_runs.c.machine_id)
        source = source.join(environments, environments.c.id == item_runs.c.environment_id)
        own = [
            item_runs.c[name]
            for name in (
                "attempt",
                "outcome",
                "exit_code",
                "signal",
                "started",
                "seconds",
                "peak_memory_mb",
                "executor",
                "log",
                "report",
                "chain",
                "verdict_count",
            )
        ]
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
        source = source.join(reasons, reasons.c.id == part.c.reason_id).join(tensors, tensors.c.id == part.c.tensors_id)
        own = [part.c[name] for name in ("outcome", "finite", "size", *STATISTICS)]
        own += [reasons.c.text.label("reason"), tensors.c.text.label("tensors")]
        subject = names.c.text.label("subject")
        return sa.select(*head, subject, *own).select_from(source).order_by(part.c.item_run_id, part.c.subject_id)
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
    own = [
        command_runs.c[name]
        for name in (
            "step",
            "argv",
            "outcome",
            "exit_code",
            "signal",
            "started",
            "seconds",
            "peak_memory_mb",
            "log",
            "reused",
        )
    ]
    return sa.select(*head, *own, reasons.c.text.label("reason")).select_from(source).order_by(command_runs.c.id)


def _causes(source: sa.Join, head: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    source = source.join(causes, causes.c.item_run_id == item_runs.c.id)
    told = {name: texts.alias() for name in CAUSE_TEXTS}
    for name, text in told.items():
        source = source.join(text, text.c.id == causes.c[f"{name}_id"])
    own: list[sa.ColumnElement[Any]] = [causes.c.stage, *(text.c.text.label(name) for name, text in told.items())]
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
