"""Nights put together from their shares: results of all machines as those of one night, and what is wrong with the cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tipchain.nightly.items import Item
from tipchain.nightly.records import ItemRecord
from tipchain.nightly.results import Results
from tipchain.nightly.shares import (
    Group,
    Part,
    SharePlan,
    disagreement,
    gather,
    lost_items,
    missing,
    named,
)
from tipchain.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A night: one that ran all, or the shares of one.

    Attributes:
        parts: its shares in their order, or the night itself.
        results: of all of them; finished once no share is missing and each has.
        notes: what is to be known of the shares, a line each.
        wrong: what must not be: shares that were cut differently, items that are in none, a line each.
    """

    parts: tuple[Results, ...]
    results: Results
    notes: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def part_with(self, item: Item) -> Results:
        """Return the share that ran an item; the first if none did."""
        found = [one for one in self.parts if item.id in one.records]
        planned = [one for one in self.parts if any(other.id == item.id for other in one.plan.items)]
        return (found or planned or list(self.parts))[-1]

    @property
    def outcomes(self) -> list[Outcome]:
        """How the items ended; what has not ended in a share that goes on is left out."""
        return [
            outcome
            for one in self.parts
            for outcome in (
                one.outcomes if one.finished else [record.outcome for record in one.records.values()]
            )
        ]


def wholes_of(nights: Iterable[Results]) -> list[Whole]:
    """Return nights, shares put together, in the order in which they began."""
    groups = gather(nights, lambda one: one.night.part, lambda one: one.night.epoch)
    return [_whole(group) for group in groups]


def _whole(group: Group[Results]) -> Whole:
    ones = group.ones
    parts = [part for one in ones if (part := one.night.part)]
    if not parts:
        return Whole(parts=tuple(ones), results=ones[0])
    absent = missing(parts)
    notes = [f"shares that are not here: {absent}"] if absent else []
    notes += [f"{one.night.part}: ran again, so {one.night.name} does not count" for one in group.replaced]
    commits = dict.fromkeys(part.commit for part in parts)
    notes += [f"shares ran different commits: {', '.join(one or 'none' for one in commits)}"] * (
        len(commits) > 1
    )
    return Whole(
        parts=tuple(ones),
        results=_merged(ones, whole=not absent),
        notes=tuple(notes),
        wrong=tuple(_wrong(ones, parts, whole=not absent)),
    )


def _wrong(ones: Sequence[Results], parts: Sequence[Part], *, whole: bool) -> list[str]:
    differ = disagreement(parts)
    lost, twice = lost_items([one.plan for one in ones])
    found = [differ] if differ else []
    if lost and whole:
        found.append(f"{len(lost)} items of the plan are in no share: {named(lost)}")
    if twice:
        found.append(f"{len(twice)} items are in several shares: {named(twice)}")
    return found


def _merged(ones: Sequence[Results], *, whole: bool) -> Results:
    """Return shares as one night's results, in the plan's order; where they are, only `Whole.parts` know."""
    first = ones[0]
    items: dict[str, Item] = {item.id: item for one in ones for item in one.plan.items}
    order = [name for one in ones if isinstance(one.plan, SharePlan) for name in one.plan.cut.ids]
    ids = [name for name in dict.fromkeys([*order, *items]) if name in items]
    records: dict[str, ItemRecord] = {name: record for one in ones for name, record in one.records.items()}
    night = replace(
        first.night,
        started=min(ones, key=lambda one: one.night.epoch).night.started,
        plan=replace(first.plan, items=tuple(items[name] for name in ids)),
        environment=_facts(ones),
    )
    return Results(
        night=night,
        records={name: records[name] for name in ids if name in records},
        finished=whole and all(one.finished for one in ones),
    )


def _facts(ones: Sequence[Results]) -> dict[str, str]:
    """Return the environments of shares as one: where they differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for one in ones:
        for name, value in one.facts.items():
            found.setdefault(name, {})[value] = None
    return {name: ", ".join(sorted(values)) for name, values in found.items()}
