"""What changed between entries, and whether a number moved beyond its noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import isfinite, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

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
    entries,
    figures,
    item_runs,
    machines,
    text_number,
    texts,
    verdicts,
)
from tipchain.nightly.items import merge_facts
from tipchain.nightly.origin import Commits, Fact, changed_facts, commits_between, suspects

# Has a number moved beyond its noise? Robust statistics of its last nights.

ENOUGH = 10
"""Earlier nights that are needed; with fewer the plain rules hold."""
WINDOW = 30
"""Earlier nights that count."""
BLOCK = 100
"""Values after which the memory of told drifts moves on."""
STEP, DRIFT = 4.0, 3.0
SURE = 3.29
"""Of the Mann-Kendall test's normal deviate: chance alone exceeds it once in 1000 times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Motion:
    """A number that moved.

    Attributes:
        how: at once, slowly over nights, or told by the plain rules.
        before: what it was: the median, the start of the line, or the last value.
        after: what it is.
        spread: of the noise, as a standard deviation; 0 where the plain rules hold.
        nights: earlier nights that this rests on.
    """

    how: Literal["step", "drift", "plain"]
    before: float
    after: float
    spread: float
    nights: int


def motion(earlier: Sequence[float], value: float, rule: NoiseRule) -> Motion | None:
    """Return how a number moved with its latest value; None if it did not.

    Args:
        earlier: its earlier values, the oldest first.
        value: the latest.
        rule: how far a number of its kind may move.
    """
    if not earlier:
        return None
    last = earlier[-1]
    finite = [one for one in earlier[-WINDOW:] if isfinite(one)]
    if len(finite) < ENOUGH or not isfinite(value) or not isfinite(last):
        moved = rule.moved_plainly(last, value)
        return Motion(how="plain", before=last, after=value, spread=0.0, nights=len(earlier)) if moved else None
    if min(finite) == max(finite) == value:
        return None
    if step := _step(finite, value, rule):
        return step
    values = [*finite, value]
    # Mann-Kendall test's normal deviate, without its sign; ties count as neither.
    count = len(values)
    score = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in combinations(range(count), 2))
    ties = [values.count(one) for one in set(values)]
    variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if (max(abs(score) - 1, 0) / sqrt(variance) if variance else 0.0) <= SURE:
        return None
    slope = median((values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2))
    start = median(value - slope * at for at, value in enumerate(values))
    residuals = [value - start - slope * at for at, value in enumerate(values)]
    scale, led = spread(residuals), slope * (len(values) - 1)
    if abs(led) <= max(DRIFT * scale, rule.relative * abs(start), rule.absolute):
        return None
    # One step, where it fits best, may fit as well.

    def off(part: Sequence[float]) -> float:
        middle = median(part)
        return sum(abs(value - middle) for value in part)

    if sum(map(abs, residuals)) >= min(off(values[:at]) + off(values[at:]) for at in range(1, len(values))):
        return None
    return Motion(how="drift", before=start, after=start + led, spread=scale, nights=len(values) - 1)


def is_news(values: Sequence[float], rule: NoiseRule) -> bool:
    """Tell whether a drift that ``motion`` finds in the latest value was not told before: it began, or grew by as much again.

    A line that leads up for a month is found anew every night of it. What has been told is not kept anywhere: it follows
    from the values before, from the first of a stretch of at least `BLOCK` that is the same whichever night is asked for.

    Args:
        values: all of the number's values, the oldest first, up to the latest.
        rule: how far a number of its kind may move.
    """
    told: Motion | None = None
    news = False
    first = max((len(values) - 1) // BLOCK - 1, 0) * BLOCK
    for at in range(first + 1, len(values)):
        now = motion(values[max(first, at - WINDOW) : at], values[at], rule)
        news = now is not None and (now.how != "drift" or _grew(told, now))
        if now is not None and news:
            told = now if now.how == "drift" else None
    return news


def _grew(told: Motion | None, now: Motion) -> bool:
    """Tell whether a drift turned round, or went on as far again, since it was last reported."""
    if told is None:
        return True
    led, more = told.after - told.before, now.after - told.after
    return (now.after - now.before) * led < 0 or more * led >= led * led


def _step(earlier: Sequence[float], value: float, rule: NoiseRule) -> Motion | None:
    middle, scale, last = median(earlier), spread(earlier), earlier[-1]
    limit = max(STEP * scale, rule.relative * abs(middle), rule.absolute)
    off, last_off = value - middle, last - middle
    told_before = abs(last_off) > limit and last_off * off > 0
    if abs(off) <= limit or (told_before and abs(value - last) <= limit):
        return None
    return Motion(how="step", before=middle, after=value, spread=scale, nights=len(earlier))


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
            median and in its own unit. The noise comes on top (`tipchain.history.compare`).
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


# What changed since the last comparable run.

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

    @property
    def moved(self) -> MovedFigure:
        """What it was and what it is."""
        before, after = self.motion.before, self.motion.after
        return MovedFigure(item=self.item, part=self.part, name=self.name, before=before, after=after)


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
            found.environment
            or found.flips
            or found.new
            or found.gone
            or found.command_flips
            or found.verdict_flips
            or found.new_verdicts
            or found.gone_verdicts
            or self.shifts
        )


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
    series = _Series(connection, [one for one in earlier[:WINDOW] if one.began <= before.began or not against], entry)
    shifts, plainly = [], False
    for (item, part, name), past, value in series.each():
        plainly |= bool(past) and len(past) < ENOUGH
        moved = motion(past, value, rule_of(name))
        if moved is None or (moved.how == "drift" and against is None and not series.drift_is_news((item, part, name))):
            continue
        shifts.append(Shift(item=item, part=part, name=name, motion=moved))
    # Metrics first, then times, speeds, memory; the largest first.
    order = list(FigureKind)
    shifts.sort(key=lambda one: (order.index(figure_kind(one.name)), -_size(one.motion)))
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
    fresh = [one.item for one in found.flips if newly_bad(one.before, one.after)]
    for item in (*fresh, *found.new):
        cause = next(iter(causes.get(item, ())), None)
        if cause is not None:
            found_in = suspects(root, before if item in fresh else "", after, cause.file)
            yield Explanation(item=item, cause=cause, suspects=found_in)


def comparable(connection: Connection, entry: Entry) -> list[Entry]:
    """Return the earlier entries that ``entry`` can be compared with, the latest first."""
    candidates = [one for one in entries_before(connection, entry, LOOKED_AT) if one.where == entry.where]
    mine = sa.select(item_runs.c.item_id).where(of_entry(item_runs.c.entry_id, entry))
    shared = (
        sa.select(item_runs.c.entry_id)
        .distinct()
        .where(item_runs.c.entry_id.in_([row for one in candidates for row in one.rows]), item_runs.c.item_id.in_(mine))
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
        seconds, told = (self._passed(one).where(item_runs.c.entry_id.in_(list(of))) for one in (False, True))
        self.classes = classes = dict[str, str]()
        for row in connection.execute(seconds):
            if of[row.entry_id] == entry.id:
                classes[row.item] = row.machine_class or row.machine
        for query in (seconds, told):
            for row in connection.execute(query):
                if classes.get(row.item) == (row.machine_class or row.machine):
                    self.found.setdefault((row.item, row.part, row.name), {})[of[row.entry_id]] = real(row.value)

    def each(self) -> Sequence[tuple[tuple[str, str, str], list[float], float]]:
        """Return, for each number of the entry, what it is called, its earlier values and the latest."""
        order = [one.id for one in self.nights]
        return [
            (name, [values[night] for night in order if night in values], values[self.entry.id])
            for name, values in self.found.items()
            if self.entry.id in values
        ]

    def drift_is_news(self, name: tuple[str, str, str]) -> bool:
        """Tell whether no earlier night reported a number's drift; this reads all its values."""
        item, part, figure = name
        of_commands = bool(part) or figure != SECONDS
        query = (
            self._passed(of_commands)
            .join(entries, entries.c.id == item_runs.c.entry_id)
            .where(item_runs.c.item_id == text_number(item))
            .where(entries.c.kind == self.entry.kind, entries.c.title == self.entry.title)
            .where(sa.or_(entries.c.began < self.entry.began, of_entry(item_runs.c.entry_id, self.entry)))
            .order_by(entries.c.began, entries.c.id)
        )
        if of_commands:
            query = query.where(
                command_runs.c.command_id == text_number(part), figures.c.name_id == text_number(figure)
            )
        rows = self.connection.execute(query)
        values = [real(row.value) for row in rows if (row.machine_class or row.machine) == self.classes[item]]
        return is_news(values, rule_of(figure))

    @staticmethod
    def _passed(of_commands: bool) -> sa.Select[Any]:
        """Return a query for the seconds of items that passed, or for the figures of their commands that did."""
        parts, names = texts.alias(), texts.alias()
        query = (
            sa.select(
                item_runs.c.entry_id,
                texts.c.text.label("item"),
                machines.c.machine_class,
                machines.c.name.label("machine"),
            )
            .select_from(item_runs)
            .join(texts, texts.c.id == item_runs.c.item_id)
            .join(machines, machines.c.id == item_runs.c.machine_id)
            .where(item_runs.c.outcome == code_of(Outcome.PASS))
        )
        if not of_commands:
            own = (sa.literal("").label("part"), sa.literal(SECONDS).label("name"), item_runs.c.seconds.label("value"))
            return query.add_columns(*own)
        return (
            query.add_columns(parts.c.text.label("part"), names.c.text.label("name"), figures.c.value)
            .join(command_runs, command_runs.c.item_run_id == item_runs.c.id)
            .join(figures, figures.c.command_run_id == command_runs.c.id)
            .join(parts, parts.c.id == command_runs.c.command_id)
            .join(names, names.c.id == figures.c.name_id)
            .where(command_runs.c.outcome == code_of(Outcome.PASS))
        )


def _size(moved: Motion) -> float:
    """Return how large a motion is, by what it was."""
    size = abs(moved.after - moved.before) / (abs(moved.before) or 1.0)
    return size if size == size else float("inf")  # noqa: PLR0124  (NaN)


# Two entries side by side: what flipped, what is new, what is gone, which numbers moved.

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
class Comparison:
    """Two entries side by side.

    Attributes:
        before, after: the entries.
        common: how many items are in both.
        environment: facts that differ.
        flips: items whose outcome differs, in the order of the later entry.
        new, gone: items that only the later, the earlier entry has; () where shares of the other are missing, which may
            have them.
        command_flips: commands whose outcome differs, of items in both.
        verdict_flips: verdicts likewise.
        new_verdicts, gone_verdicts: subjects that only one side judged, of items in both: how many by item.
        moved: figures and seconds that differ by more than the plain rules allow (`tipchain.history.compare`), of what
            passed on both sides.
        grew: tensors whose largest difference became more than `GREW` times as large under the same verdict.
    """

    before: Entry
    after: Entry
    common: int
    environment: tuple[Fact, ...]
    flips: tuple[Flip, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    command_flips: tuple[Flip, ...]
    verdict_flips: tuple[Flip, ...]
    new_verdicts: Mapping[str, int]
    gone_verdicts: Mapping[str, int]
    moved: tuple[MovedFigure, ...]
    grew: tuple[MovedFigure, ...]


def compare(connection: Connection, before: Entry, after: Entry) -> Comparison:
    """Compare two entries of a history."""
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
    commands = list(_paired(commands_of(connection, before), commands_of(connection, after)))
    return Comparison(
        before=before,
        after=after,
        common=len(both),
        environment=changed_facts(old, new),
        flips=tuple(
            Flip(item=item, part="", before=was[item].outcome, after=now[item].outcome, reason=now[item].reason)
            for item in both
            if was[item].outcome is not now[item].outcome
        ),
        new=() if before.missing else tuple(item for item in now if item not in was),
        gone=() if after.missing else tuple(item for item in was if item not in now),
        command_flips=tuple(
            Flip(item=item, part=ran.id, before=earlier.outcome, after=ran.outcome, reason=ran.reason)
            for item, earlier, ran in commands
            if earlier.outcome is not ran.outcome
        ),
        verdict_flips=tuple(judged.flips),
        new_verdicts=judged.new,
        gone_verdicts=judged.gone,
        moved=tuple(_moved(was, now, commands)),
        grew=tuple(judged.grew),
    )


_Commands = Mapping[str, Sequence[CommandFacts]]
_Pair = tuple[str, CommandFacts, CommandFacts]


def _paired(before: _Commands, after: _Commands) -> Iterator[_Pair]:
    """Yield the commands that both sides have, each with its item."""
    for item, ran in after.items():
        was = {one.id: one for one in before.get(item, ())}
        yield from ((item, was[one.id], one) for one in ran if one.id in was)


def _moved(was: Mapping[str, ItemFacts], now: Mapping[str, ItemFacts], commands: Sequence[_Pair]) -> list[MovedFigure]:
    found = [
        MovedFigure(item=item, part="", name=SECONDS, before=was[item].seconds, after=now[item].seconds)
        for item in now
        if item in was and was[item].outcome is now[item].outcome is Outcome.PASS
    ]
    for item, old, new in commands:
        if old.outcome is new.outcome is Outcome.PASS:
            numbers = [(SECONDS, old.seconds, new.seconds)]
            numbers += [(name, old.figures[name], new.figures[name]) for name in new.figures if name in old.figures]
            found += [MovedFigure(item=item, part=new.id, name=name, before=a, after=b) for name, a, b in numbers]
    return [one for one in found if rule_of(one.name).moved_plainly(one.before, one.after)]


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
            .join(new, sa.and_(new.c.item_id == old.c.item_id, of_entry(new.c.entry_id, entries[1])))
            .join(was, was.c.item_run_id == old.c.id)
            .join(now, sa.and_(now.c.item_run_id == new.c.id, now.c.subject_id == was.c.subject_id))
            .where(of_entry(old.c.entry_id, entries[0]))
            .group_by(old.c.id, new.c.id)
        )
        return {(was, now): (matched, told) for was, now, matched, told in self.connection.execute(query)}

    def _read(self, old: ItemFacts, new: ItemFacts) -> None:
        was, now, reasons = self.was, self.now, texts.alias()
        query = (
            sa.select(texts.c.text, reasons.c.text, was.c.outcome, now.c.outcome, was.c.max_abs, now.c.max_abs)
            .select_from(was.join(now, was.c.subject_id == now.c.subject_id))
            .join(texts, texts.c.id == now.c.subject_id)
            .join(reasons, reasons.c.id == now.c.reason_id)
            .where(was.c.item_run_id == old.row, now.c.item_run_id == new.row, self.told)
            .order_by(texts.c.text)
        )
        for subject, reason, first, second, small, large in self.connection.execute(query):
            if first != second:
                a, b = OUTCOMES[first], OUTCOMES[second]
                self.flips.append(Flip(item=new.id, part=subject, before=a, after=b, reason=reason))
            else:
                self.grew.append(MovedFigure(item=new.id, part=subject, name="max_abs", before=small, after=large))
