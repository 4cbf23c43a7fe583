"""Which items of a plan run: by pattern, by how they ended last, by share."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tipchain.errors import UsageError, did_you_mean
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.shares import Cut, SharePlan

FIELDS = ("id", "tag", "mode", "device", "kind", "subject")
NOT = "!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of several shares of a plan.

    Attributes:
        index: from 1.
        count: how many there are.
    """

    index: int
    count: int


def parse_shard(text: str) -> Shard:
    """Return the share that ``2/3`` names.

    Raises:
        UsageError: it names none.
    """
    index, slash, count = text.partition("/")
    if slash and index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count):
        return Shard(index=int(index), count=int(count))
    raise UsageError(f"--shard {text}: is no share\n  expected: i/n with 1 <= i <= n, as 2/3")


def select(plan: NightPlan, patterns: Sequence[str]) -> NightPlan:
    """Return the items that match one of ``patterns``, and none of those that begin with ``!``.

    A pattern is a glob of ids, with ``*`` and ``?``, or of something else of an item: ``tag:lite``, ``mode:whole_*``,
    ``device:gpu``, ``kind:align``, ``subject:alexnet``. Brackets stand for themselves: ids have them.

    Raises:
        UsageError: a pattern matches nothing in the plan.
    """
    chosen = [pattern for pattern in patterns if not pattern.startswith(NOT)]
    refused = [pattern.removeprefix(NOT) for pattern in patterns if pattern.startswith(NOT)]
    for pattern in (*chosen, *refused):
        if not any(matches(item, pattern) for item in plan.items):
            raise UsageError(_matches_nothing(plan, pattern))
    items = [
        item
        for item in plan.items
        if (not chosen or any(matches(item, pattern) for pattern in chosen))
        and not any(matches(item, pattern) for pattern in refused)
    ]
    return replace(plan, items=tuple(items))


def matches(item: Item, pattern: str) -> bool:
    """Return whether an item matches one pattern."""
    name, colon, rest = pattern.partition(":")
    if not colon or name not in FIELDS:
        name, rest = "id", pattern
    values = item.tags if name == "tag" else (getattr(item, name),)
    glob = rest.replace("[", "[[]")
    return any(fnmatchcase(value, glob) for value in values)


def _matches_nothing(plan: NightPlan, pattern: str) -> str:
    ids = [item.id for item in plan.items]
    hint = did_you_mean(pattern, ids[:2000])
    return f"--only {pattern}: matches none of the {len(ids)} items" + (f", {hint}" if hint else "")


def only(plan: NightPlan, ids: Collection[str]) -> NightPlan:
    """Return the items of these ids."""
    return replace(plan, items=tuple(item for item in plan.items if item.id in ids))


def share(plan: NightPlan, shard: Shard, seconds: Mapping[str, float] | None = None) -> SharePlan:
    """Return one share: all shares together are the plan, and take about as long as each other.

    The longest item goes to the share that has least to do so far, and so on (Graham's longest processing time
    rule). The same ids, timeouts and seconds give the same shares on every machine, whatever its nights were and whatever
    can run there.

    Args:
        plan: the whole.
        shard: which share.
        seconds: what items take, by id, the same on all machines; the median stands for those not known. None: an item
            counts by its timeout.
    """
    if seconds:
        usual = statistics.median(seconds.values())
        cost = {item.id: seconds.get(item.id, usual) for item in plan.items}
    else:
        cost = {item.id: item.timeout_s for item in plan.items}
    loads, counts = [0.0] * shard.count, [0] * shard.count
    places: dict[str, int] = {}
    for name in sorted(cost, key=lambda name: (-cost[name], name)):
        best = min(range(shard.count), key=lambda one: (loads[one], counts[one], one))
        loads[best] += cost[name]
        counts[best] += 1
        places[name] = best + 1
    ids = tuple(item.id for item in plan.items)
    return SharePlan(
        name=plan.name,
        root=plan.root,
        manifest=plan.manifest,
        sha256=plan.sha256,
        items=tuple(item for item in plan.items if places[item.id] == shard.index),
        cut=Cut(ids=ids, shares=tuple(places[name] for name in ids)),
    )
