"""Queries of the history: its nights and runs, and the items, commands, verdicts and causes of one."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from tipchain.errors import Outcome, UsageError, suggestion
from tipchain.history import schema
from tipchain.history.schema import (
    OUTCOMES,
    STATISTICS,
    CauseFacts,
    CommandFacts,
    Entry,
    ItemFacts,
    VerdictFacts,
    command_runs,
    entries,
    item_runs,
)
from tipchain.nightly.items import TOGETHER_S, ShardPart, gather, merge_facts

# Which nights and runs are in the history; the shares of a night are one entry.

_BACK = re.compile(r"(?P<name>.+)~(?P<steps>\d+)")
LATEST = "latest"
IN_ONE_QUERY = 500
"""Numbers of rows that a query lists; databases have limits."""
NEAR_S = 4 * TOGETHER_S
"""Seconds around a share within which the other shares of its night are looked for."""
ABOVE = ("item", "command")
"""What of an item and a command stands in the rows of what is below them."""
UNREAD = ("id", "key", "began", "rank")
LATE = ("reason", "tensors", "machine", "machine_class", "environment")
AT_MOST = 20
"""Entries that a part of a name may be in, of which the user is told."""
_T = TypeVar("_T")


def list_entries(
    connection: Connection, *, kind: str | None = None, title: str | None = None, limit: int | None = None
) -> list[Entry]:
    """Return entries, the latest first."""
    query = _entries()
    query = query.where(entries.c.kind == kind) if kind else query
    query = query.where(entries.c.title == title) if title else query
    return _latest(connection, query, limit)


def find_entry(connection: Connection, name: str, *, title: str | None = None) -> Entry:
    """Return the entry that a user names.

    Args:
        connection: to the history.
        name: a night's or a run's name, a part of one, or ``latest``; ``~2`` behind it goes two back among those
            of the same kind and title.
        title: only entries of this title count.

    Raises:
        UsageError: there is none, or there are several.
    """
    if back := _BACK.fullmatch(name):
        entry = _named(connection, back["name"], title)
        steps = int(back["steps"])
        if not steps:
            return entry
        earlier = entries_before(connection, entry, steps)
        if len(earlier) < steps:
            raise UsageError(f"{name}: the history has {len(earlier)} of {entry.title} before {entry.name}")
        return earlier[-1]
    return _named(connection, name, title)


def entries_before(connection: Connection, entry: Entry, limit: int) -> list[Entry]:
    """Return the entries of the same kind and title that began before ``entry``, the latest first."""
    earlier = sa.or_(entries.c.began < entry.began, sa.and_(entries.c.began == entry.began, entries.c.id < entry.id))
    query = _entries().where(entries.c.kind == entry.kind, entries.c.title == entry.title, earlier)
    return _latest(connection, query, limit)


def _latest(connection: Connection, query: sa.Select[object], limit: int | None) -> list[Entry]:
    """Return the latest entries of a query; as many as are asked for, each with all its shares."""
    ordered = query.order_by(entries.c.began.desc(), entries.c.id.desc())
    count = limit
    while True:
        rows = _read_entries(connection, ordered.limit(count))
        found = together(rows)
        if limit is None or count is None or len(rows) < count:
            return found[:limit]
        # The earliest of them may have lost shares at the limit.
        if len(found) > limit or not any(one.part for one in rows):
            return found[:limit]
        count *= 2


def _entries() -> sa.Select[Any]:
    return rows_of(entries).add_columns(entries.c.id, entries.c.key, entries.c.began)


def rows_of(table: sa.Table) -> sa.Select[Any]:
    """Return a query for a table's rows as people read them.

    The columns are entry, title, item and command, as far as the table is below them, then its own; reasons and places last.
    """
    ladder = {entries: (), item_runs: (entries,), schema.figures: (entries, item_runs, command_runs)}
    above: tuple[sa.Table, ...] = ladder.get(table, (entries, item_runs))
    source: sa.FromClause = (*above, table)[0]
    for part in (*above, table)[1:]:
        source = source.join(part)
    columns: list[sa.ColumnElement[Any]] = [entries.c.name.label("entry"), entries.c.title] if above else []
    columns += [one for part in above for one in part.columns if one.name in ABOVE]
    late = LATE if above else ()
    own = [one for one in table.columns if one.name not in UNREAD and not one.foreign_keys]
    columns += [
        one.label("figure") if table is schema.figures and one.name == "name" else one
        for one in own
        if one.name not in late
    ]
    return sa.select(*columns, *(one for one in own if one.name in late)).select_from(source)


def _read_entries(connection: Connection, query: sa.Select[object]) -> list[Entry]:
    found = list(connection.execute(query))
    counts: dict[int, dict[Outcome, int]] = {row.id: {} for row in found}
    ids = list(counts)
    for at in range(0, len(ids), IN_ONE_QUERY):
        count = (
            sa.select(item_runs.c.entry_id, item_runs.c.outcome, sa.func.count())
            .where(item_runs.c.entry_id.in_(ids[at : at + IN_ONE_QUERY]))
            .group_by(item_runs.c.entry_id, item_runs.c.outcome)
            .order_by(item_runs.c.outcome)
        )
        for entry, outcome, number in connection.execute(count):
            counts[entry][OUTCOMES[outcome]] = number
    return [_made(Entry, row, counts=counts[row.id]) for row in found]


def together(found: Iterable[Entry]) -> list[Entry]:
    """Return entries with the shares of each night put together, the latest first."""
    groups = gather(found, lambda one: one.part, lambda one: one.began)
    ones = [_whole(group.ones) if group.ones[0].part else group.ones[0] for group in groups]
    return sorted(ones, key=lambda one: (one.began, one.id), reverse=True)


def _whole(shares: list[Entry]) -> Entry:
    first = min(shares, key=lambda one: (one.began, one.id))
    counts = sum((Counter(one.counts) for one in shares), Counter[Outcome]())
    whole = replace(
        first,
        seconds=max(max(one.began + one.seconds for one in shares) - first.began, 0.0),
        machine=_all(one.machine for one in shares),
        machine_class=_all(one.machine_class for one in shares),
        environment=merge_facts(one.environment for one in shares),
        counts=dict(sorted(counts.items(), key=lambda pair: OUTCOMES.index(pair[0]))),
        part=None,
        shares=tuple(shares),
    )
    return replace(whole, finished=not whole.missing and all(one.finished for one in shares))


def _all(values: Iterable[str]) -> str:
    """Join the values of shares, each once."""
    return ", ".join(sorted({one for one in values if one}))


def of_entry(column: sa.ColumnElement[int], entry: Entry) -> sa.ColumnElement[bool]:
    """Return the condition that a row belongs to an entry."""
    rows = entry.rows
    return column == rows[0] if len(rows) == 1 else column.in_(rows)


def _named(connection: Connection, name: str, title: str | None) -> Entry:
    if name == LATEST:
        found = list_entries(connection, title=title, limit=1)
        if not found:
            of = f" of {title}" if title else ""
            raise UsageError(f"the history has nothing{of} yet\n  hint: tipchain history add NIGHT_OR_REPORT")
        return found[0]
    query = _entries().where(entries.c.title == title) if title else _entries()
    exact = _read_entries(connection, query.where(entries.c.name == name).limit(AT_MOST))
    parts = entries.c.name.contains(name, autoescape=True)
    rows = exact or _read_entries(connection, query.where(parts).order_by(entries.c.began).limit(AT_MOST))
    found = list({one.id: one for one in (_with_shares(connection, row) for row in rows)}.values())
    if len(found) == 1:
        return found[0]
    if found:
        several = "\n".join(f"  {one.name}  {one.kind} of {one.title}" for one in found[:5])
        raise UsageError(f"{name}: names several in the history\n{several}")
    known = connection.execute(sa.select(entries.c.name).order_by(entries.c.began.desc()).limit(1000)).scalars()
    raise UsageError(
        f"{name}: is not in the history{suggestion(name, [LATEST, *known])}\n"
        "  expected: a name that tipchain history list shows, a part of one, latest or latest~1"
    )


def _with_shares(connection: Connection, entry: Entry) -> Entry:
    """Return the night that an entry is a share of; the entry itself if it is none."""
    if entry.part is None:
        return entry
    near = entries.c.began.between(entry.began - NEAR_S, entry.began + NEAR_S)
    query = _entries().where(entries.c.kind == entry.kind, entries.c.title == entry.title, near)
    found = together(_read_entries(connection, query))
    return next((one for one in found if entry.id in one.rows), replace(entry, part=None, shares=(entry,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRun(CauseFacts):
    """A cause that is in the history, with where it was found.

    Attributes:
        entry: the entry's name.
        commit: its commit.
        item: the item.
    """

    entry: str
    commit: str
    item: str


def items_of(connection: Connection, entry: Entry) -> dict[str, ItemFacts]:
    """Return how the items of an entry ended, by id, without their commands, verdicts, artifacts and causes."""
    query = rows_of(item_runs).add_columns(item_runs.c.id.label("row"))
    query = query.where(of_entry(item_runs.c.entry_id, entry)).order_by(item_runs.c.id)
    return {row.item: _made(ItemFacts, row, id=row.item) for row in connection.execute(query)}


def commands_of(
    connection: Connection, entry: Entry, items: Sequence[str] | None = None
) -> dict[str, list[CommandFacts]]:
    """Return how the commands of an entry's items ended, by item, of all items or of those named."""
    query = rows_of(command_runs).add_columns(command_runs.c.id.label("row"))
    query = query.where(of_entry(item_runs.c.entry_id, entry)).order_by(command_runs.c.item_run_id, command_runs.c.id)
    if items is not None:
        query = query.where(item_runs.c.item.in_(items))
    told = rows_of(schema.figures).add_columns(command_runs.c.id.label("row"))
    figures: dict[int, dict[str, float]] = {}
    for row in connection.execute(told.where(of_entry(item_runs.c.entry_id, entry))):
        figures.setdefault(row.row, {})[row.figure] = real(row.value)
    found: dict[str, list[CommandFacts]] = {}
    for row in connection.execute(query):
        command = _made(CommandFacts, row, id=row.command, figures=figures.get(row.row, {}))
        found.setdefault(row.item, []).append(command)
    return found


def verdicts_of(connection: Connection, item: ItemFacts, *, passed: bool = False) -> list[VerdictFacts]:
    """Return an item's verdicts other than PASS, or all."""
    query = rows_of(schema.verdicts).where(schema.verdicts.c.item_run_id == item.row).order_by("subject")
    query = query if passed else query.where(schema.verdicts.c.outcome != schema.code_of(Outcome.PASS))
    return [_made(VerdictFacts, row) for row in connection.execute(query)]


def causes_of(connection: Connection, entry: Entry) -> dict[str, list[CauseFacts]]:
    """Return the causes of an entry's failures by item, the one that comes first first."""
    found: dict[str, list[CauseFacts]] = {}
    query = (
        rows_of(schema.causes)
        .where(of_entry(item_runs.c.entry_id, entry))
        .order_by(item_runs.c.id, schema.causes.c.rank)
    )
    for row in connection.execute(query):
        found.setdefault(row.item, []).append(_made(CauseFacts, row))
    return found


def find_causes(
    connection: Connection,
    *,
    code: str = "",
    layer: str = "",
    file: str = "",
    item: str = "",
    title: str = "",
    limit: int = 20,
) -> list[CauseRun]:
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
    query = rows_of(schema.causes).add_columns(entries.c.commit)
    query = query.order_by(entries.c.began.desc(), item_runs.c.id, schema.causes.c.rank).limit(limit)
    named = {column.name: column for column in query.selected_columns}
    if code:
        query = query.where(named["code"] == code)
    if title:
        query = query.where(entries.c.title == title)
    for name, part in (("layer", layer), ("file", file), ("item", item)):
        if part:
            query = query.where(named[name].contains(part, autoescape=True))
    return [_made(CauseRun, row) for row in connection.execute(query)]


def real(value: float | None) -> float:
    """Return a number of a column: NaN for NULL."""
    return float("nan") if value is None else float(value)


_FROM_COLUMNS: Mapping[str, Callable[[Any], Any]] = {
    "outcome": OUTCOMES.__getitem__,
    "environment": json.loads,
    "argv": lambda text: tuple(json.loads(text)),
    "part": lambda text: ShardPart(**json.loads(text)) if text else None,
    **dict.fromkeys(("explained", *STATISTICS), real),
}


def _made(kind: type[_T], row: Row[Any], **own: object) -> _T:
    """Return a dataclass from a row, by names; ``own`` are fields without a column."""
    read = {name: _FROM_COLUMNS.get(name, lambda value: value)(value) for name, value in row._mapping.items()}  # noqa: SLF001 (SQLAlchemy's public name)
    return kind(**{one.name: read[one.name] for one in fields(kind) if one.name in read}, **own)  # type: ignore[arg-type]  # a dataclass
