"""Which items of a plan run: by pattern, by how they ended last, by share."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tipchain.errors import UsageError, did_you_mean
from tipchain.nightly.items import Item, NightPlan

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
    return f"--select {pattern}: matches none of the {len(ids)} items" + (f", {hint}" if hint else "")


def only(plan: NightPlan, ids: Collection[str]) -> NightPlan:
    """Return the items of these ids."""
    return replace(plan, items=tuple(item for item in plan.items if item.id in ids))


def share(plan: NightPlan, shard: Shard, seconds: Mapping[str, float]) -> NightPlan:
    """Return one share: all shares together are the plan, and take about as long as each other.

    The longest item goes to the share that has least to do so far, and so on (Graham's longest processing time
    rule). The same plan and seconds give the same shares on every machine.

    Args:
        plan: the whole.
        shard: which share.
        seconds: what items took lately, by id; the median stands for those not known.
    """
    usual = statistics.median(seconds.values()) if seconds else 1.0
    cost = {item.id: seconds.get(item.id, usual) for item in plan.items if not item.reason}
    loads, counts = [0.0] * shard.count, [0] * shard.count
    mine: set[str] = set()
    for name in sorted((item.id for item in plan.items), key=lambda name: (-cost.get(name, 0.0), name)):
        best = min(range(shard.count), key=lambda one: (loads[one], counts[one], one))
        loads[best] += cost.get(name, 0.0)
        counts[best] += 1
        if best == shard.index - 1:
            mine.add(name)
    return only(plan, mine)
