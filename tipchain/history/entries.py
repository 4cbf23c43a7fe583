"""Queries of the history: its nights and runs, and the items, commands, verdicts and causes of one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.orm import Session, selectinload

from tipchain.errors import Outcome, UsageError, suggestion
from tipchain.history.schema import Entry, ItemFacts
from tipchain.nightly.items import gather, merge_facts

_BACK = re.compile(r"(?P<name>.+)~(?P<steps>\d+)")
LATEST = "latest"
NEAR_S = 2 * 86400.0
"""Seconds around a share within which the other shares of its night are looked for."""
AT_MOST = 20
"""Entries that a part of a name may be in, of which the user is told."""


def list_entries(session: Session, *, title: str | None = None, limit: int | None = None) -> list[Entry]:
    """Return entries, the latest first."""
    query = sa.select(Entry)
    return _latest(session, query.where(Entry.title == title) if title else query, limit)


def find_entry(session: Session, name: str, *, title: str | None = None) -> Entry:
    """Return the entry that a user names.

    Args:
        session: of the history.
        name: a night's or a run's name, a part of one, or ``latest``; ``~2`` behind it goes two back among those
            of the same kind and title.
        title: only entries of this title count.

    Raises:
        UsageError: there is none, or there are several.
    """
    back = _BACK.fullmatch(name)
    entry = _named(session, back["name"] if back else name, title)
    steps = int(back["steps"]) if back else 0
    if not steps:
        return entry
    earlier = entries_before(session, entry, steps)
    if len(earlier) < steps:
        raise UsageError(f"{name}: the history has {len(earlier)} of {entry.title} before {entry.name}")
    return earlier[-1]


def entries_before(session: Session, entry: Entry, limit: int) -> list[Entry]:
    """Return the entries of the same kind and title that began before ``entry``, the latest first."""
    earlier = sa.tuple_(Entry.began, Entry.row) < sa.tuple_(sa.literal(entry.began), sa.literal(entry.row))
    return _latest(
        session, sa.select(Entry).where(Entry.kind == entry.kind, Entry.title == entry.title, earlier), limit
    )


def _latest(session: Session, query: sa.Select[Entry], limit: int | None) -> list[Entry]:
    """Return the latest entries of a query; as many as are asked for, each with all its shares."""
    ordered = query.order_by(Entry.began.desc(), Entry.row.desc())
    count = limit
    while True:
        rows = _read(session, ordered.limit(count))
        found = together(rows)
        # The earliest of them may have lost shares at the limit.
        whole = limit is None or len(found) > limit or not any(one.part for one in rows)
        if whole or count is None or len(rows) < count:
            return found[:limit]
        count *= 2


def _read(session: Session, query: sa.Select[Entry]) -> list[Entry]:
    entries = {one.row: one for one in session.scalars(query)}
    for one in entries.values():
        one.counts, one.shares = {}, ()
    count = sa.select(ItemFacts.entry_id, ItemFacts.outcome, sa.func.count())
    count = count.where(ItemFacts.entry_id.in_(entries)).group_by(ItemFacts.entry_id, ItemFacts.outcome)
    for row, outcome, number in session.execute(count):
        entries[row].counts = {**(entries[row].counts or {}), outcome: number}
    return list(entries.values())


def together(found: Iterable[Entry]) -> list[Entry]:
    """Return entries with the shares of each night put together, the latest first."""
    groups = gather(sorted(found, key=lambda one: (one.began, one.row)), lambda one: one.part)
    ones = [_whole(shares) if shares[0].part else shares[0] for shares in groups]
    return sorted(ones, key=lambda one: (one.began, one.row), reverse=True)


def _whole(shares: list[Entry]) -> Entry:
    first = min(shares, key=lambda one: (one.began, one.row))
    whole = replace(
        first,
        seconds=max(max(one.began + one.seconds for one in shares) - first.began, 0.0),
        machine=", ".join(sorted({one.machine for one in shares} - {""})),
        machine_class=", ".join(sorted({one.machine_class for one in shares} - {""})),
        environment=merge_facts(one.environment for one in shares),
        counts=dict(sum((Counter(one.counts) for one in shares), Counter[Outcome]())),
        part=None,
        shares=tuple(shares),
    )
    whole.row = first.row
    whole.finished = not whole.missing and all(one.finished for one in shares)
    return whole


def _named(session: Session, name: str, title: str | None) -> Entry:
    if name == LATEST:
        found = list_entries(session, title=title, limit=1)
        if not found:
            of = f" of {title}" if title else ""
            raise UsageError(f"the history has nothing{of} yet\n  hint: tipchain history add NIGHT_OR_REPORT")
        return found[0]
    query = sa.select(Entry).where(Entry.title == title) if title else sa.select(Entry)
    exact = _read(session, query.where(Entry.name == name).limit(AT_MOST))
    parts = Entry.name.contains(name, autoescape=True)
    rows = exact or _read(session, query.where(parts).order_by(Entry.began).limit(AT_MOST))
    found = list({one.row: one for one in (_with_shares(session, row) for row in rows)}.values())
    if len(found) == 1:
        return found[0]
    if found:
        several = "\n".join(f"  {one.name}  {one.kind} of {one.title}" for one in found[:5])
        raise UsageError(f"{name}: names several in the history\n{several}")
    known = session.scalars(sa.select(Entry.name).order_by(Entry.began.desc()).limit(1000))
    raise UsageError(
        f"{name}: is not in the history{suggestion(name, [LATEST, *known])}\n"
        "  expected: a name that tipchain history list shows, a part of one, latest or latest~1"
    )


def _with_shares(session: Session, entry: Entry) -> Entry:
    """Return the night that an entry is a share of; the entry itself if it is none."""
    if entry.part is None:
        return entry
    near = Entry.began.between(entry.began - NEAR_S, entry.began + NEAR_S)
    query = sa.select(Entry).where(Entry.kind == entry.kind, Entry.title == entry.title, near)
    return next(one for one in together(_read(session, query)) if entry.row in one.rows)


def items_of(session: Session, entry: Entry) -> dict[str, ItemFacts]:
    """Return how the items of an entry ended, by id, with their commands and causes."""
    query = sa.select(ItemFacts).where(ItemFacts.entry_id.in_(entry.rows)).order_by(ItemFacts.row)
    query = query.options(selectinload(ItemFacts.commands), selectinload(ItemFacts.causes))
    return {one.id: one for one in session.scalars(query)}
