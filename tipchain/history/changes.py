"""What changed between two nights or runs: outcomes, numbers, commits, environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.errors import Outcome, newly_bad
from tipchain.history.entries import causes_of, commands_of, entries_before, items_of, of_entry, real
from tipchain.history.schema import (
    OUTCOMES,
    CauseFacts,
    CommandFacts,
    Entry,
    ItemFacts,
    code_of,
    command_runs,
    figures,
    item_runs,
    verdicts,
)
from tipchain.nightly.items import merge_facts
from tipchain.nightly.origin import Commits, Fact, changed_facts, commits_between, suspects

LOOKED_AT = 200
"""Earlier entries among which a comparable one is looked for."""
GREW = 10.0
"""How many times as large a tensor's largest difference must be to be told, where the verdict is the same."""
SECONDS = "seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """An outcome that is another one now.

    Attributes:
        item: the item.
        part: the command or the verdict's subject; "" for the item itself.
        before, after: the outcomes.
        reason: why it is what it is now.
    """

    item: str
    part: str
    before: Outcome
    after: Outcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedFigure:
    """A number that is another one now.

    Attributes:
        item: the item.
        part: the command or the verdict's subject; "" for the item itself.
        name: ``seconds``, a figure's name, or ``max_abs``.
        before, after: the values; NaN is a value, too.
    """

    item: str
    part: str
    name: str
    before: float
    after: float

    @property
    def relative(self) -> float:
        """How much it moved, by what it was; infinite where it was 0 or is no number."""
        if not self.before or not isfinite(self.before) or not isfinite(self.after):
            return float("inf")
        return (self.after - self.before) / abs(self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why an item fails that did not fail before.

    Attributes:
        item: the item.
        cause: what its report says.
        suspects: the commits since then that changed the file of the line to change, the latest first, and local changes.
    """

    item: str
    cause: CauseFacts
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed between two entries.

    Attributes:
        before, after: the entries.
        common: how many items are in both.
        commits: between the two.
        environment: facts that differ.
        flips: items whose outcome differs, in the order of the later entry.
        inside: commands and verdicts whose outcome differs, of items in both.
        new, gone: items that only the later, the earlier entry has; () where shares of the other are missing, which may
            have them.
        new_verdicts, gone_verdicts: subjects that only one side judged, of items in both: how many by item.
        moved: figures and seconds that moved beyond their noise, of what passed; metrics first.
        grew: tensors whose largest difference became more than `GREW` times as large under the same verdict.
        explanations: causes of what newly fails, as far as reports tell them.
        nights: how many nights up to the earlier entry tell the noise, at most `WINDOW`.
        plainly: whether some numbers had too few of them, so that the plain rules were used.
    """

    before: Entry
    after: Entry
    common: int
    commits: Commits
    environment: tuple[Fact, ...]
    flips: tuple[Flip, ...]
    inside: tuple[Flip, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    new_verdicts: Mapping[str, int]
    gone_verdicts: Mapping[str, int]
    moved: tuple[MovedFigure, ...]
    grew: tuple[MovedFigure, ...]
    explanations: tuple[Explanation, ...]
    nights: int
    plainly: bool

    @property
    def nothing(self) -> bool:
        """Whether nothing changed but, possibly, the commit."""
        items = (self.flips, self.inside, self.new, self.gone, self.new_verdicts, self.gone_verdicts)
        return not any((self.environment, *items, self.moved, self.grew))


def changes(connection: Connection, before: Entry, after: Entry, *, root: Path) -> Changes:
    """Return what changed between two entries of a history.

    Args:
        connection: to the history.
        before: the earlier night or run.
        after: the later one.
        root: a folder of the repository, for the commits.
    """
    was, now = items_of(connection, before), items_of(connection, after)
    both = [item for item in now if item in was]
    judged = _Verdicts(connection, [(was[item], now[item]) for item in both], (before, after))
    # What entries say of themselves, and what the reports of items in both say.
    old, new = (
        merge_facts(items[item].environment for item in both) | dict(entry.environment)
        for entry, items in ((before, was), (after, now))
    )
    if before.where != after.where:
        old["machine"], new["machine"] = before.where, after.where
    flips = tuple(
        Flip(item=item, part="", before=was[item].outcome, after=now[item].outcome, reason=now[item].reason)
        for item in both
        if was[item].outcome is not now[item].outcome
    )
    commands = tuple(
        Flip(item=item, part=ran.id, before=earlier.outcome, after=ran.outcome, reason=ran.reason)
        for item, earlier, ran in _paired(commands_of(connection, before), commands_of(connection, after))
        if earlier.outcome is not ran.outcome
    )
    fresh = () if before.missing else tuple(item for item in now if item not in was)
    nights = [before, *comparable(connection, before)][:WINDOW]
    series = list(_series(connection, nights, after))
    moved = [
        MovedFigure(item=item, part=part, name=name, before=start, after=value)
        for (item, part, name), earlier, value in series
        if (start := moved_from(earlier, value, rule_of(name))) is not None
    ]
    order = list(FigureKind)
    return Changes(
        before=before,
        after=after,
        common=len(both),
        commits=commits_between(root, before.commit, after.commit),
        environment=changed_facts(old, new),
        flips=flips,
        inside=(*commands, *judged.flips),
        new=fresh,
        gone=() if after.missing else tuple(item for item in was if item not in now),
        new_verdicts=judged.new,
        gone_verdicts=judged.gone,
        moved=tuple(sorted(moved, key=lambda one: (order.index(figure_kind(one.name)), -abs(one.relative)))),
        grew=tuple(judged.grew),
        explanations=tuple(_explanations(connection, (before, after), flips, fresh, root)),
        nights=len(nights),
        plainly=any(0 < len(earlier) < ENOUGH for _, earlier, _ in series),
    )


def _explanations(
    connection: Connection, between: tuple[Entry, Entry], flips: Sequence[Flip], new: Sequence[str], root: Path
) -> Iterator[Explanation]:
    """Yield the first cause of each item that fails now and did not before."""
    causes = causes_of(connection, between[1])
    before, after = (entry.commit for entry in between)
    worse = [one.item for one in flips if newly_bad(one.before, one.after)]
    for item in (*worse, *new):
        cause = next(iter(causes.get(item, ())), None)
        if cause is not None:
            commits = suspects(root, before if item in worse else "", after, cause.file)
            yield Explanation(item=item, cause=cause, suspects=commits)


def last_comparable(connection: Connection, entry: Entry) -> Entry | None:
    """Return the latest earlier entry that ``entry`` can be compared with; None if there is none."""
    return next(iter(comparable(connection, entry)), None)


def comparable(connection: Connection, entry: Entry) -> list[Entry]:
    """Return the earlier entries that ``entry`` can be compared with, the latest first.

    These are of the same kind and title, on a machine of the same class, and have an item in common.
    """
    candidates = [one for one in entries_before(connection, entry, LOOKED_AT) if one.where == entry.where]
    mine = sa.select(item_runs.c.item).where(of_entry(item_runs.c.entry_id, entry))
    shared = (
        sa.select(item_runs.c.entry_id)
        .distinct()
        .where(item_runs.c.entry_id.in_([row for one in candidates for row in one.rows]), item_runs.c.item.in_(mine))
    )
    sharing = set(connection.execute(shared).scalars())
    return [one for one in candidates if not sharing.isdisjoint(one.rows)]


_Name = tuple[str, str, str]
"""An item, its command or "", and ``seconds`` or a figure."""


def _series(
    connection: Connection, nights: Sequence[Entry], after: Entry
) -> Iterator[tuple[_Name, list[float], float]]:
    """Yield each number of an entry's items that passed, with its values in earlier nights, the oldest first.

    Values of another class of machines are left out, but for those of the first of the nights, the latest.
    """
    of = {row: one.id for one in (*nights, after) for row in one.rows}
    values: dict[_Name, dict[int, float]] = {}
    classes: dict[str, str] = {}
    for query in (_passed(of_commands=False), _passed(of_commands=True)):
        rows = list(connection.execute(query.where(item_runs.c.entry_id.in_(list(of)))))
        classes |= {row.item: row.machine_class or row.machine for row in rows if of[row.entry_id] == after.id}
        for row in rows:
            entry = of[row.entry_id]
            if entry == nights[0].id or classes.get(row.item) == (row.machine_class or row.machine):
                values.setdefault((row.item, row.part, row.name), {})[entry] = real(row.value)
    for name, by_entry in values.items():
        if after.id in by_entry:
            earlier = [by_entry[one.id] for one in reversed(nights) if one.id in by_entry]
            yield name, earlier, by_entry[after.id]


def _passed(*, of_commands: bool) -> sa.Select[Any]:
    """Return a query for the seconds of items that passed, or for the figures of their commands that did."""
    query = sa.select(item_runs.c.entry_id, item_runs.c.item, item_runs.c.machine, item_runs.c.machine_class)
    query = query.where(item_runs.c.outcome == code_of(Outcome.PASS))
    if not of_commands:
        own = (sa.literal("").label("part"), sa.literal(SECONDS).label("name"), item_runs.c.seconds.label("value"))
        return query.add_columns(*own)
    return (
        query.add_columns(command_runs.c.command.label("part"), figures.c.name, figures.c.value)
        .join(command_runs, command_runs.c.item_run_id == item_runs.c.id)
        .join(figures, figures.c.command_run_id == command_runs.c.id)
        .where(command_runs.c.outcome == code_of(Outcome.PASS))
    )


_Commands = Mapping[str, Sequence[CommandFacts]]


def _paired(before: _Commands, after: _Commands) -> Iterator[tuple[str, CommandFacts, CommandFacts]]:
    """Yield the commands that both sides have, each with its item."""
    for item, ran in after.items():
        was = {one.id: one for one in before.get(item, ())}
        yield from ((item, was[one.id], one) for one in ran if one.id in was)


class _Verdicts:
    """The verdicts of items in both entries: counted in one walk over both sides, then read where they differ."""

    def __init__(
        self, connection: Connection, pairs: list[tuple[ItemFacts, ItemFacts]], entries: tuple[Entry, Entry]
    ) -> None:
        self.connection = connection
        self.flips: list[Flip] = []
        self.grew: list[MovedFigure] = []
        self.new: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        self.was, self.now = verdicts.alias(), verdicts.alias()
        grew = sa.and_(self.was.c.max_abs > 0, self.now.c.max_abs > GREW * self.was.c.max_abs)
        self.told = sa.or_(self.was.c.outcome != self.now.c.outcome, grew)
        counts = self._counts(entries)
        for old, new in pairs:
            matched, told = counts.get((old.row, new.row), (0, 0))
            if new.verdict_count > matched:
                self.new[new.id] = new.verdict_count - matched
            if old.verdict_count > matched:
                self.gone[new.id] = old.verdict_count - matched
            if told:
                self._read(old, new)

    def _counts(self, entries: tuple[Entry, Entry]) -> dict[tuple[int, int], tuple[int, int]]:
        """Return, by both item runs, how many subjects both sides have and how many of them are to be told."""
        was, now, old, new = self.was, self.now, item_runs.alias(), item_runs.alias()
        query = (
            sa.select(old.c.id, new.c.id, sa.func.count(), sa.func.count(sa.case((self.told, 1))))
            .select_from(old)
            .join(new, sa.and_(new.c.item == old.c.item, of_entry(new.c.entry_id, entries[1])))
            .join(was, was.c.item_run_id == old.c.id)
            .join(now, sa.and_(now.c.item_run_id == new.c.id, now.c.subject == was.c.subject))
            .where(of_entry(old.c.entry_id, entries[0]))
            .group_by(old.c.id, new.c.id)
        )
        return {(was, now): (matched, told) for was, now, matched, told in self.connection.execute(query)}

    def _read(self, old: ItemFacts, new: ItemFacts) -> None:
        was, now = self.was, self.now
        query = (
            sa.select(now.c.subject, now.c.reason, was.c.outcome, now.c.outcome, was.c.max_abs, now.c.max_abs)
            .select_from(was.join(now, was.c.subject == now.c.subject))
            .where(was.c.item_run_id == old.row, now.c.item_run_id == new.row, self.told)
            .order_by(now.c.subject)
        )
        for subject, reason, first, second, small, large in self.connection.execute(query):
            if first != second:
                a, b = OUTCOMES[first], OUTCOMES[second]
                self.flips.append(Flip(item=new.id, part=subject, before=a, after=b, reason=reason))
            else:
                self.grew.append(MovedFigure(item=new.id, part=subject, name="max_abs", before=small, after=large))


# Has a number moved beyond its noise? Robust statistics of its last nights.

ENOUGH = 10
"""Earlier nights that are needed; with fewer the plain rules hold."""
WINDOW = 30
"""Earlier nights that count."""
STEP = 4.0
"""Standard deviations that a number must move by."""


def moved_from(earlier: Sequence[float], value: float, rule: NoiseRule) -> float | None:
    """Return what a number was before it moved to its latest value; None if it did not move.

    Args:
        earlier: its earlier values, the oldest first.
        value: the latest.
        rule: how far a number of its kind may move.
    """
    if not earlier:
        return None
    last = earlier[-1]
    finite = [one for one in earlier if isfinite(one)]
    if len(finite) < ENOUGH or not isfinite(value) or not isfinite(last):
        return last if rule.moved_plainly(last, value) else None
    middle = median(finite)
    limit = max(STEP * spread(finite), rule.relative * abs(middle), rule.absolute)
    off, last_off = value - middle, last - middle
    told_before = abs(last_off) > limit and last_off * off > 0
    if abs(off) <= limit or (told_before and abs(value - last) <= limit):
        return None
    return middle


def spread(values: Sequence[float]) -> float:
    """Return a robust estimate of the standard deviation of ``values``."""
    middle = median(values)
    deviations = [abs(value - middle) for value in values]
    return 1.4826 * median(deviations) or 1.2533 * fmean(deviations)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRule:
    """How far a number may move.

    Attributes:
        relative, absolute: with enough nights to know its noise: what it must move by at least, as a part of its
            median and in its own unit. The noise comes on top.
        plain_relative, plain_absolute: with too few nights, or none: both must be exceeded.
    """

    relative: float
    absolute: float
    plain_relative: float
    plain_absolute: float

    def moved_plainly(self, before: float, after: float) -> bool:
        """Tell whether a number moved, by the plain rules; from or to NaN or infinity is a move."""
        if not isfinite(before) or not isfinite(after):
            return not (before == after or (before != before and after != after))  # noqa: PLR0124
        moved = abs(after - before)
        return moved > self.plain_relative * abs(before) and moved > self.plain_absolute


_METRIC = NoiseRule(relative=1e-4, absolute=1e-9, plain_relative=0.01, plain_absolute=1e-6)
_SECONDS = NoiseRule(relative=0.1, absolute=1.0, plain_relative=0.25, plain_absolute=2.0)
_COST_S = NoiseRule(relative=0.1, absolute=0.01, plain_relative=0.25, plain_absolute=0.02)
_MILLISECONDS = NoiseRule(relative=0.1, absolute=0.5, plain_relative=0.25, plain_absolute=1.0)
_SPEED = NoiseRule(relative=0.1, absolute=0.0, plain_relative=0.25, plain_absolute=0.0)
_MEMORY = NoiseRule(relative=0.1, absolute=32.0, plain_relative=0.25, plain_absolute=64.0)
_PERCENT = NoiseRule(relative=0.1, absolute=10.0, plain_relative=0.25, plain_absolute=20.0)


def rule_of(name: str) -> NoiseRule:
    """Return the rule for a number: ``seconds`` of an item or command, or a figure's name (`tipchain.chain.execute`)."""
    kind, name = figure_kind(name), name.partition("[")[0]
    if kind is FigureKind.TIME:
        return _SECONDS if name in (SECONDS, "total_s") else _MILLISECONDS if name.endswith("_ms") else _COST_S
    if kind is FigureKind.SPEED:
        return _PERCENT if name == "gpu_util" else _SPEED
    return _MEMORY if kind is FigureKind.MEMORY else _METRIC
