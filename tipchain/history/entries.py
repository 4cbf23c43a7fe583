"""Which nights and runs are in the history; the shares of a night are one entry."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tipchain.errors import UsageError, did_you_mean
from tipchain.history.rows import parse_part
from tipchain.history.schema import OUTCOMES, entries, environments, item_runs, machines
from tipchain.nightly.shares import TOGETHER_S, Part, disagreement, gather, missing
from tipchain.outcome import Outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

_BACK = re.compile(r"(?P<name>.+)~(?P<steps>\d+)")
LATEST = "latest"
IN_ONE_QUERY = 500
"""Numbers of rows that a query lists; databases have limits."""
NEAR_S = 4 * TOGETHER_S
"""Seconds around a share within which the other shares of its night are looked for."""
AT_MOST = 20
"""Entries that a name may begin, of which the user is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A night or a run that is in the history; see `tipchain.history.facts.EntryFacts`.

    Attributes:
        id: its row; of a night that was run in shares, that of the first.
        counts: how many items ended how.
        part: which share of a night it is; None for all else, and for the shares of a night put together.
        shares: of a night that was run in shares, what it is put together from, in their order.
    """

    id: int
    kind: str
    name: str
    title: str
    began: float
    started: str
    seconds: float
    finished: bool
    commit: str
    root: str
    machine: str
    machine_class: str
    environment: Mapping[str, str]
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    part: Part | None = None
    shares: tuple[Entry, ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of its shares, or its own."""
        return tuple(one.id for one in self.shares) or (self.id,)

    @property
    def missing(self) -> str:
        """Which shares of a night are not in the history, as ``2/3, 3/3``; "" for none."""
        return missing(self._parts)

    @property
    def wrong(self) -> str:
        """Why a night's shares are not those of one plan, so that items may have run in none or twice; "" if they are."""
        return disagreement(self._parts)

    @property
    def _parts(self) -> list[Part]:
        return [one.part for one in self.shares if one.part]

    @property
    def where(self) -> str:
        """What makes times comparable: the machine's class, or its name where the class is not known."""
        return self.machine_class or self.machine


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
        name: a night's or a run's name, the beginning of one, or ``latest``; ``~2`` behind it goes two back among those
            of the same kind and title.
        title: only entries of this title count.

    Raises:
        UsageError: there is none, or there are several.
    """
    if back := _BACK.fullmatch(name):
        return _before(connection, _named(connection, back["name"], title), int(back["steps"]), name)
    return _named(connection, name, title)


def entries_before(connection: Connection, entry: Entry, limit: int) -> list[Entry]:
    """Return the entries of the same kind and title that began before ``entry``, the latest first."""
    earlier = sa.or_(
        entries.c.began < entry.began, sa.and_(entries.c.began == entry.began, entries.c.id < entry.id)
    )
    query = _entries().where(entries.c.kind == entry.kind, entries.c.title == entry.title, earlier)
    return _latest(connection, query, limit)


def _latest(connection: Connection, query: sa.Select[Any], limit: int | None) -> list[Entry]:
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
    return (
        sa.select(entries, machines.c.name.label("machine"), machines.c.machine_class, environments.c.facts)
        .join(machines, machines.c.id == entries.c.machine_id)
        .join(environments, environments.c.id == entries.c.environment_id)
    )


def _read_entries(connection: Connection, query: sa.Select[Any]) -> list[Entry]:
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
    return [_entry(row, counts[row.id]) for row in found]


def _entry(row: Row[Any], counts: Mapping[Outcome, int]) -> Entry:
    return Entry(
        id=row.id,
        kind=row.kind,
        name=row.name,
        title=row.title,
        began=row.began,
        started=row.started,
        seconds=row.seconds,
        finished=row.finished,
        commit=row.commit_id,
        root=row.root,
        machine=row.machine,
        machine_class=row.machine_class,
        environment=json.loads(row.facts),
        counts=counts,
        part=parse_part(row.part),
    )


def together(found: Iterable[Entry]) -> list[Entry]:
    """Return entries with the shares of each night put together, the latest first."""
    groups = gather(found, lambda one: one.part, lambda one: one.began)
    ones = [_whole(group.ones) if group.ones[0].part else group.ones[0] for group in groups]
    return sorted(ones, key=lambda one: (one.began, one.id), reverse=True)


def _whole(shares: list[Entry]) -> Entry:
    first = min(shares, key=lambda one: (one.began, one.id))
    counts: dict[Outcome, int] = {}
    facts: dict[str, dict[str, None]] = {}
    for one in shares:
        for outcome, count in one.counts.items():
            counts[outcome] = counts.get(outcome, 0) + count
        for name, value in one.environment.items():
            facts.setdefault(name, {})[value] = None
    whole = replace(
        first,
        seconds=max(max(one.began + one.seconds for one in shares) - first.began, 0.0),
        machine=_all(one.machine for one in shares),
        machine_class=_all(one.machine_class for one in shares),
        environment={name: _all(values) for name, values in facts.items()},
        counts=dict(sorted(counts.items(), key=lambda pair: OUTCOMES.index(pair[0]))),
        part=None,
        shares=tuple(shares),
    )
    return replace(whole, finished=not whole.missing and all(one.finished for one in shares))


def _all(values: Iterable[str]) -> str:
    """Return what shares say, each value once."""
    return ", ".join(sorted({one for one in values if one}))


def of_entry(column: sa.ColumnElement[int], entry: Entry) -> sa.ColumnElement[bool]:
    """Return the condition that a row belongs to an entry."""
    rows = entry.rows
    return column == rows[0] if len(rows) == 1 else column.in_(rows)


def _before(connection: Connection, entry: Entry, steps: int, name: str) -> Entry:
    if not steps:
        return entry
    earlier = entries_before(connection, entry, steps)
    if len(earlier) < steps:
        raise UsageError(f"{name}: the history has {len(earlier)} of {entry.title} before {entry.name}")
    return earlier[-1]


def _named(connection: Connection, name: str, title: str | None) -> Entry:
    if name == LATEST:
        found = list_entries(connection, title=title, limit=1)
        if not found:
            of = f" of {title}" if title else ""
            raise UsageError(f"the history has nothing{of} yet\n  hint: tipchain history add NIGHT_OR_REPORT")
        return found[0]
    query = _entries().where(entries.c.title == title) if title else _entries()
    exact = _read_entries(connection, query.where(entries.c.name == name).limit(AT_MOST))
    begins = entries.c.name.startswith(name, autoescape=True)
    rows = exact or _read_entries(connection, query.where(begins).order_by(entries.c.began).limit(AT_MOST))
    found = list({one.id: one for one in (_with_shares(connection, row) for row in rows)}.values())
    if len(found) == 1:
        return found[0]
    if found:
        several = "\n".join(f"  {one.name}  {one.kind} of {one.title}" for one in found[:5])
        raise UsageError(f"{name}: names several in the history\n{several}")
    known = connection.execute(
        sa.select(entries.c.name).order_by(entries.c.began.desc()).limit(1000)
    ).scalars()
    hint = did_you_mean(name, [LATEST, *known])
    raise UsageError(
        f"{name}: is not in the history"
        + (f", {hint}" if hint else "")
        + "\n  expected: a name that tipchain history list shows, the beginning of one, latest or latest~1"
    )


def _with_shares(connection: Connection, entry: Entry) -> Entry:
    """Return the night that an entry is a share of; the entry itself if it is none."""
    if entry.part is None:
        return entry
    near = entries.c.began.between(entry.began - NEAR_S, entry.began + NEAR_S)
    query = _entries().where(entries.c.kind == entry.kind, entries.c.title == entry.title, near)
    found = together(_read_entries(connection, query))
    return next((one for one in found if entry.id in one.rows), replace(entry, part=None, shares=(entry,)))
