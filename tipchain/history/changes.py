"""Changes between two nights or runs: outcomes, numbers, commits, environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.errors import Outcome, newly_bad
from tipchain.history.entries import entries_before, items_of
from tipchain.history.schema import CauseFacts, CommandFacts, Entry, ItemFacts, VerdictFacts
from tipchain.nightly.items import merge_facts
from tipchain.nightly.origin import Commits, Fact, changed_facts, commits_between, suspects

LOOKED_AT = 200
"""Earlier entries among which a comparable one is looked for."""


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
        part: the command; "" for the item itself.
        name: ``seconds``, or a figure's name.
        before, after: the values; NaN is a value, too.
    """

    item: str
    part: str
    name: str
    before: float
    after: float

    @property
    def relative(self) -> float:
        """Its move as a share of its old value; infinite where that was 0 or is no number."""
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
    """Changes between two entries.

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
        moved: figures and seconds that moved by more than `may_move_by`, of what passed twice; metrics first.
        explanations: causes of what newly fails, as far as reports tell them.
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
    explanations: tuple[Explanation, ...]

    @property
    def nothing(self) -> bool:
        """Whether nothing changed but, possibly, the commit."""
        items = (self.flips, self.inside, self.new, self.gone, self.new_verdicts, self.gone_verdicts)
        return not any((self.environment, *items, self.moved))


def changes(session: Session, before: Entry, after: Entry, *, root: Path) -> Changes:
    """Return the changes between two entries of a history.

    Args:
        session: of the history.
        before: the earlier night or run.
        after: the later one.
        root: a folder of the repository, for the commits.
    """
    was, now = items_of(session, before), items_of(session, after)
    both = [(was[item], now[item]) for item in now if item in was]
    # What entries say of themselves, and what the reports of items in both say.
    old, new = (
        merge_facts(pair[side].environment for pair in both) | dict(entry.environment)
        for side, entry in enumerate((before, after))
    )
    if before.where != after.where:
        old["machine"], new["machine"] = before.where, after.where
    commands = [
        (item.id, earlier, ran)
        for first, item in both
        for ran in item.commands
        for earlier in first.commands
        if earlier.id == ran.id
    ]
    flips, inside = _flips([("", *pair) for pair in both]), _flips(commands)
    fresh = () if before.missing else tuple(item for item in now if item not in was)
    verdicts, new_verdicts, gone_verdicts = _verdicts(session, both)
    order = list(FigureKind)
    # What newly fails, with the commit that it did not fail on.
    worse = {one.item: before.commit for one in flips if newly_bad(one.before, one.after)}
    return Changes(
        before=before,
        after=after,
        common=len(both),
        commits=commits_between(root, before.commit, after.commit),
        environment=changed_facts(old, new),
        flips=flips,
        inside=(*inside, *verdicts),
        new=fresh,
        gone=() if after.missing else tuple(item for item in was if item not in now),
        new_verdicts=new_verdicts,
        gone_verdicts=gone_verdicts,
        moved=tuple(
            sorted(_moved(both, commands), key=lambda one: (order.index(figure_kind(one.name)), -abs(one.relative)))
        ),
        explanations=tuple(
            Explanation(item=item, cause=cause, suspects=suspects(root, since, after.commit, cause.file))
            for item, since in {**worse, **dict.fromkeys(fresh, "")}.items()
            for cause in now[item].causes[:1]
        ),
    )


def last_comparable(session: Session, entry: Entry) -> Entry | None:
    """Return the latest earlier entry that ``entry`` can be compared with; None if there is none.

    It is of the same kind and title, on a machine of the same class, and has an item in common.
    """
    candidates = [one for one in entries_before(session, entry, LOOKED_AT) if one.where == entry.where]
    mine = sa.select(ItemFacts.id).where(ItemFacts.entry_id.in_(entry.rows))
    rows = [row for one in candidates for row in one.rows]
    shared = sa.select(ItemFacts.entry_id).distinct().where(ItemFacts.entry_id.in_(rows), ItemFacts.id.in_(mine))
    sharing = set(session.scalars(shared))
    return next((one for one in candidates if not sharing.isdisjoint(one.rows)), None)


_Pair = tuple[ItemFacts, ItemFacts]
_CommandPair = tuple[str, CommandFacts, CommandFacts]


def _flips(pairs: Sequence[tuple[str, ItemFacts, ItemFacts]] | Sequence[_CommandPair]) -> tuple[Flip, ...]:
    """Return items that ended otherwise, or commands with their item."""
    return tuple(
        Flip(item=item or ran.id, part=item and ran.id, before=was.outcome, after=ran.outcome, reason=ran.reason)
        for item, was, ran in pairs
        if was.outcome is not ran.outcome
    )


def _verdicts(session: Session, both: Sequence[_Pair]) -> tuple[list[Flip], dict[str, int], dict[str, int]]:
    """Return verdicts that flipped, and how many are new and gone, by item."""
    was, now, old, new = aliased(VerdictFacts), aliased(VerdictFacts), aliased(ItemFacts), aliased(ItemFacts)
    rows = {(first.row, item.row): (first, item) for first, item in both}
    entries = [{pair[side].entry_id for pair in both} for side in (0, 1)]
    query = (
        sa.select(old.row, new.row)
        .select_from(old)
        .join(new, sa.and_(new.id == old.id, new.entry_id.in_(entries[1])))
        .join(was, was.item_run_id == old.row)
        .join(now, sa.and_(now.item_run_id == new.row, now.subject == was.subject))
        .where(old.entry_id.in_(entries[0]))
    )
    differs = was.outcome != now.outcome
    matched = query.add_columns(sa.func.count(), sa.func.count(sa.case((differs, 1)))).group_by(old.row, new.row)
    counts = {(first, item): numbers for first, item, *numbers in session.execute(matched)}
    differing = query.add_columns(now.subject, was.outcome, now.outcome, now.reason).where(
        differs, new.row.in_([item for (_, item), (_, count) in counts.items() if count])
    )
    flips = [
        Flip(item=rows[first, item][1].id, part=subject, before=before, after=after, reason=reason)
        for first, item, subject, before, after, reason in session.execute(differing.order_by(new.row, now.subject))
        if (first, item) in rows
    ]
    found: list[dict[str, int]] = []
    for side in (1, 0):
        more = {pair[1].id: pair[side].verdict_count - counts.get(key, (0,))[0] for key, pair in rows.items()}
        found.append({item: count for item, count in more.items() if count})
    return flips, found[0], found[1]


SECONDS = "seconds"


def _moved(both: Iterable[_Pair], commands: Iterable[_CommandPair]) -> Iterator[MovedFigure]:
    """Yield the seconds of items and the figures of commands that passed on both sides and moved."""
    good = {item.id for pair in both if {one.outcome for one in pair} == {Outcome.PASS} for item in pair}
    values = [(item.id, "", SECONDS, was.seconds, item.seconds) for was, item in both if item.id in good]
    values += [
        (item, ran.id, name, was.figures[name], value)
        for item, was, ran in commands
        if item in good and was.outcome is ran.outcome is Outcome.PASS
        for name, value in ran.figures.items()
        if name in was.figures
    ]
    for item, part, name, before, after in values:
        if has_moved(name, before, after):
            yield MovedFigure(item=item, part=part, name=name, before=before, after=after)


def has_moved(name: str, before: float, after: float) -> bool:
    """Tell whether a number moved by more than it may; from or to NaN or infinity is a move."""
    if not isfinite(before) or not isfinite(after):
        return not (before == after or (before != before and after != after))  # noqa: PLR0124
    relative, absolute = may_move_by(name)
    moved = abs(after - before)
    return moved > relative * abs(before) and moved > absolute


def may_move_by(name: str) -> tuple[float, float]:
    """Return by how much a number may move: a part of it, and an amount in its own unit; both must be exceeded."""
    kind, name = figure_kind(name), name.partition("[")[0]
    match kind:
        case FigureKind.METRIC:
            return 0.01, 1e-6
        case FigureKind.TIME:
            return 0.25, 2.0 if name in (SECONDS, "total_s") else 1.0 if name.endswith("_ms") else 0.02
        case FigureKind.SPEED:
            return 0.25, 20.0 if name == "gpu_util" else 0.0
        case FigureKind.MEMORY:
            return 0.25, 64.0
