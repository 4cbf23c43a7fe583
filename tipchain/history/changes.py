"""What changed since the last comparable run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tipchain.commits import DIRTY, Commits, commits_between, commits_of_file
from tipchain.history.compare import SECONDS, Comparison, compare
from tipchain.history.entries import Entry, entries_before, of_entry
from tipchain.history.kinds import kind_of
from tipchain.history.noise import ENOUGH, WINDOW, Motion, is_news, motion
from tipchain.history.queries import CauseRun, causes_of, real
from tipchain.history.rows import text_number
from tipchain.history.schema import code_of, command_runs, entries, figures, item_runs, machines, texts
from tipchain.outcome import BAD, Outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection

LOOKED_AT = 200
"""Earlier entries among which a comparable one is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A metric, time, speed or amount of memory that moved beyond its noise.

    Attributes:
        item: the item.
        part: the command; "" for the item itself.
        name: ``seconds``, or a figure's name.
        motion: how.
    """

    item: str
    part: str
    name: str
    motion: Motion


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an item fails that did not fail before.

    Attributes:
        item: the item.
        cause: what its report says.
        suspects: the commits since then that changed the file of the line to change, the latest first.
        uncommitted: whether the run had local changes, any of which may be it.
    """

    item: str
    cause: CauseRun
    suspects: tuple[str, ...] = ()
    uncommitted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed between an entry and the last comparable one.

    Attributes:
        entry: the entry.
        comparison: with the comparable one; None where there is none.
        shifts: numbers that moved beyond their noise, metrics first.
        commits: between the two.
        explanations: causes of what newly fails, as far as reports tell them.
        nights: comparable entries before this one that its numbers were held against, at most `WINDOW`.
        plainly: whether some numbers had too few of them, so that the plain rules were used.
    """

    entry: Entry
    comparison: Comparison | None
    shifts: tuple[Shift, ...] = ()
    commits: Commits = field(default_factory=Commits)
    explanations: tuple[Explanation, ...] = ()
    nights: int = 0
    plainly: bool = False

    @property
    def nothing(self) -> bool:
        """Whether nothing changed but, possibly, the commit."""
        found = self.comparison
        return found is not None and not (
            found.environment or found.flips or found.new or found.gone or found.command_flips
            or found.verdict_flips or found.new_verdicts or found.gone_verdicts or self.shifts
        )  # fmt: skip


def changes(connection: Connection, entry: Entry, *, root: Path, against: Entry | None = None) -> Changes:
    """Return what changed since the last comparable run.

    Comparable is an earlier entry of the same kind and title, on a machine of the same class, that has an item in common.

    Args:
        connection: to the history.
        entry: the night or run.
        root: a folder of the repository, for the commits.
        against: an entry to compare with instead.
    """
    earlier = comparable(connection, entry)
    before = against or (earlier[0] if earlier else None)
    if before is None:
        return Changes(entry=entry, comparison=None)
    found = compare(connection, before, entry)
    # Held against this run's own past; what is between it and an older run that the user names belongs to that past.
    series = _Series(
        connection, [one for one in earlier[:WINDOW] if one.began <= before.began or not against], entry
    )
    shifts, plainly = _shifts(series, drifts_again=against is not None)
    return Changes(
        entry=entry,
        comparison=found,
        shifts=tuple(shifts),
        commits=commits_between(root, before.commit, entry.commit),
        explanations=tuple(_explanations(connection, found, root)),
        nights=len(series.nights),
        plainly=plainly,
    )


def _explanations(connection: Connection, found: Comparison, root: Path) -> Iterator[Explanation]:
    """Yield the first cause of each item that fails now and did not before."""
    causes = causes_of(connection, found.after)
    before, after = found.before.commit, found.after.commit
    fresh = [one.item for one in found.flips if one.after in BAD and one.before not in BAD]
    for item in (*fresh, *found.new):
        cause = next(iter(causes.get(item, ())), None)
        if cause is not None:
            suspects = commits_of_file(root, before, after, cause.file) if item in fresh else ()
            yield Explanation(item=item, cause=cause, suspects=suspects, uncommitted=after.endswith(DIRTY))


def comparable(connection: Connection, entry: Entry) -> list[Entry]:
    """Return the earlier entries that ``entry`` can be compared with, the latest first."""
    candidates = [one for one in entries_before(connection, entry, LOOKED_AT) if one.where == entry.where]
    mine = sa.select(item_runs.c.item_id).where(of_entry(item_runs.c.entry_id, entry))
    shared = (
        sa.select(item_runs.c.entry_id)
        .distinct()
        .where(
            item_runs.c.entry_id.in_([row for one in candidates for row in one.rows]),
            item_runs.c.item_id.in_(mine),
        )
    )
    sharing = set(connection.execute(shared).scalars())
    return [one for one in candidates if not sharing.isdisjoint(one.rows)]


class _Series:
    """The numbers of an entry's items that passed, each with its values in earlier nights on machines of the class."""

    def __init__(self, connection: Connection, nights: Sequence[Entry], entry: Entry) -> None:
        self.nights = list(reversed(nights))  # the oldest first
        self.found: dict[tuple[str, str, str], dict[int, float]] = {}
        self.entry, self.connection = entry, connection
        of = {row: one.id for one in (*self.nights, entry) for row in one.rows}
        ids = list(of)
        self.classes = classes = dict[str, str]()
        for row in connection.execute(self._items(ids)):
            if of[row.entry_id] == entry.id:
                classes[row.item] = row.machine_class or row.machine
        for query in (self._items(ids), self._figures(ids)):
            for row in connection.execute(query):
                if classes.get(row.item) == (row.machine_class or row.machine):
                    self.found.setdefault((row.item, row.part, row.name), {})[of[row.entry_id]] = real(
                        row.value
                    )

    def each(self) -> Sequence[tuple[tuple[str, str, str], list[float], float]]:
        """Return, for each number of the entry, what it is called, its earlier values and the latest."""
        order = [one.id for one in self.nights]
        return [
            (name, [values[night] for night in order if night in values], values[self.entry.id])
            for name, values in self.found.items()
            if self.entry.id in values
        ]

    def drift_is_news(self, name: tuple[str, str, str]) -> bool:
        """Tell whether a drift of a number of the entry was not told in an earlier night; this reads all its values."""
        item, part, figure = name
        rows = of_entry(item_runs.c.entry_id, self.entry)
        query: sa.Select[Any] = (
            sa.select(machines.c.name, machines.c.machine_class)
            .select_from(item_runs)
            .join(entries, entries.c.id == item_runs.c.entry_id)
            .join(machines, machines.c.id == item_runs.c.machine_id)
            .where(item_runs.c.item_id == text_number(item), item_runs.c.outcome == code_of(Outcome.PASS))
            .where(entries.c.kind == self.entry.kind, entries.c.title == self.entry.title)
            .where(sa.or_(entries.c.began < self.entry.began, rows))
            .order_by(entries.c.began, entries.c.id)
        )
        if part or figure != SECONDS:
            query = (
                query.add_columns(figures.c.value)
                .join(command_runs, command_runs.c.item_run_id == item_runs.c.id)
                .join(figures, figures.c.command_run_id == command_runs.c.id)
                .where(
                    command_runs.c.command_id == text_number(part), figures.c.name_id == text_number(figure)
                )
                .where(command_runs.c.outcome == code_of(Outcome.PASS))
            )
        else:
            query = query.add_columns(item_runs.c.seconds)
        found = self.connection.execute(query)
        values = [real(value) for host, known, value in found if (known or host) == self.classes[item]]
        return is_news(values, kind_of(figure))

    def _items(self, ids: Sequence[int]) -> sa.Select[tuple[object, ...]]:
        return self._of_passes(
            sa.select(
                item_runs.c.entry_id,
                texts.c.text.label("item"),
                sa.literal("").label("part"),
                sa.literal(SECONDS).label("name"),
                item_runs.c.seconds.label("value"),
                machines.c.machine_class,
                machines.c.name.label("machine"),
            ).select_from(item_runs),
            ids,
        )

    def _figures(self, ids: Sequence[int]) -> sa.Select[tuple[object, ...]]:
        parts, names = texts.alias(), texts.alias()
        query = (
            sa.select(
                item_runs.c.entry_id,
                texts.c.text.label("item"),
                parts.c.text.label("part"),
                names.c.text.label("name"),
                figures.c.value,
                machines.c.machine_class,
                machines.c.name.label("machine"),
            )
            .select_from(item_runs)
            .join(command_runs, command_runs.c.item_run_id == item_runs.c.id)
            .join(figures, figures.c.command_run_id == command_runs.c.id)
            .join(parts, parts.c.id == command_runs.c.command_id)
            .join(names, names.c.id == figures.c.name_id)
            .where(command_runs.c.outcome == code_of(Outcome.PASS))
        )
        return self._of_passes(query, ids)

    @staticmethod
    def _of_passes(query: sa.Select[tuple[object, ...]], ids: Sequence[int]) -> sa.Select[tuple[object, ...]]:
        return (
            query.join(texts, texts.c.id == item_runs.c.item_id)
            .join(machines, machines.c.id == item_runs.c.machine_id)
            .where(item_runs.c.entry_id.in_(ids), item_runs.c.outcome == code_of(Outcome.PASS))
        )


def _shifts(series: _Series, *, drifts_again: bool) -> tuple[list[Shift], bool]:
    """Return what moved, and whether plain rules judged some of it; drifts that were told before only if asked for."""
    found, plainly = [], False
    for (item, part, name), earlier, value in series.each():
        plainly |= bool(earlier) and len(earlier) < ENOUGH
        moved = motion(earlier, value, kind_of(name))
        if moved is None or (
            moved.how == "drift" and not drifts_again and not series.drift_is_news((item, part, name))
        ):
            continue
        found.append(Shift(item=item, part=part, name=name, motion=moved))
    # Metrics first, then times, speeds, memory; the largest first.
    order = ["metric", "time", "speed", "memory"]
    found.sort(key=lambda one: (order.index(kind_of(one.name).kind.value), -_size(one.motion)))
    return found, plainly


def _size(moved: Motion) -> float:
    """Return how large a motion is, by what it was."""
    size = abs(moved.after - moved.before) / (abs(moved.before) or 1.0)
    return size if size == size else float("inf")  # noqa: PLR0124  (NaN)
