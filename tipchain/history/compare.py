"""Two entries side by side: what flipped, what is new, what is gone, which numbers moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tipchain.history.entries import Entry, of_entry
from tipchain.history.kinds import Kind, kind_of
from tipchain.history.queries import CommandRun, ItemRun, commands_of, items_of
from tipchain.history.schema import OUTCOMES, item_runs, texts, verdicts
from tipchain.outcome import Outcome

if TYPE_CHECKING:
    from sqlalchemy import Connection

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
class Moved:
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
class Fact:
    """Something of the environment that is another now; "" where one side does not say."""

    name: str
    before: str
    after: str


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
        moved: figures and seconds that differ by more than the plain rules allow (`tipchain.history.kinds`), of what
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
    moved: tuple[Moved, ...]
    grew: tuple[Moved, ...]


def compare(connection: Connection, before: Entry, after: Entry) -> Comparison:
    """Compare two entries of a history."""
    was, now = items_of(connection, before), items_of(connection, after)
    both = [item for item in now if item in was]
    judged = _Verdicts(connection, [(was[item], now[item]) for item in both], (before, after))
    commands = _paired(commands_of(connection, before), commands_of(connection, after))
    return Comparison(
        before=before,
        after=after,
        common=len(both),
        environment=environment_changes(before, after, was, now),
        flips=tuple(
            Flip(
                item=item, part="", before=was[item].outcome, after=now[item].outcome, reason=now[item].reason
            )
            for item in both
            if was[item].outcome is not now[item].outcome
        ),
        new=() if before.missing else tuple(item for item in now if item not in was),
        gone=() if after.missing else tuple(item for item in was if item not in now),
        command_flips=tuple(
            Flip(item=new.item, part=new.id, before=old.outcome, after=new.outcome, reason=new.reason)
            for old, new in commands
            if old.outcome is not new.outcome
        ),
        verdict_flips=tuple(judged.flips),
        new_verdicts=judged.new,
        gone_verdicts=judged.gone,
        moved=tuple(_moved(was, now, commands)),
        grew=tuple(judged.grew),
    )


def environment_changes(
    before: Entry, after: Entry, was: Mapping[str, ItemRun], now: Mapping[str, ItemRun]
) -> tuple[Fact, ...]:
    """Return the facts that differ: what entries say of themselves, and what the reports of items in both say."""
    both = [item for item in now if item in was]
    old, new = dict(before.environment), dict(after.environment)
    for name, values in _said(was, both).items():
        old.setdefault(name, values)
    for name, values in _said(now, both).items():
        new.setdefault(name, values)
    if before.where != after.where:
        old["machine"], new["machine"] = before.where, after.where
    names = [*new, *(name for name in old if name not in new)]
    return tuple(
        Fact(name=name, before=old.get(name, ""), after=new.get(name, ""))
        for name in names
        if old.get(name, "") != new.get(name, "")
    )


def _said(items: Mapping[str, ItemRun], names: list[str]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for item in names:
        for name, value in items[item].environment.items():
            found.setdefault(name, {})[value] = None
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def _paired(before: list[CommandRun], after: list[CommandRun]) -> list[tuple[CommandRun, CommandRun]]:
    was = {(one.item, one.id): one for one in before}
    return [(was[one.item, one.id], one) for one in after if (one.item, one.id) in was]


def _moved(
    was: Mapping[str, ItemRun], now: Mapping[str, ItemRun], commands: list[tuple[CommandRun, CommandRun]]
) -> list[Moved]:
    found = [
        Moved(item=item, part="", name=SECONDS, before=was[item].seconds, after=now[item].seconds)
        for item in now
        if item in was and was[item].outcome is now[item].outcome is Outcome.PASS
    ]
    for old, new in commands:
        if old.outcome is new.outcome is Outcome.PASS:
            numbers = [(SECONDS, old.seconds, new.seconds)]
            numbers += [
                (name, old.figures[name], new.figures[name]) for name in new.figures if name in old.figures
            ]
            found += [
                Moved(item=new.item, part=new.id, name=name, before=a, after=b) for name, a, b in numbers
            ]
    return [one for one in found if kind_of(one.name).moved_plainly(one.before, one.after)]


def is_time(moved: Moved) -> bool:
    """Tell whether a number is a time, a speed or memory, rather than a metric."""
    return kind_of(moved.name).kind is not Kind.METRIC


class _Verdicts:
    """The verdicts of items in both entries: counted in one walk over both sides, then read where they differ."""

    def __init__(
        self, connection: Connection, pairs: list[tuple[ItemRun, ItemRun]], entries: tuple[Entry, Entry]
    ) -> None:
        self.connection = connection
        self.flips: list[Flip] = []
        self.grew: list[Moved] = []
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

    def _read(self, old: ItemRun, new: ItemRun) -> None:
        was, now, reasons = self.was, self.now, texts.alias()
        query = (
            sa.select(
                texts.c.text, reasons.c.text, was.c.outcome, now.c.outcome, was.c.max_abs, now.c.max_abs
            )
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
                self.grew.append(Moved(item=new.id, part=subject, name="max_abs", before=small, after=large))
