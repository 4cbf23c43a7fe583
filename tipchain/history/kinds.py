"""Numbers of the history by kind, and how far each may move before it is told."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import isfinite


class Kind(Enum):
    """What a number is."""

    METRIC = "metric"
    TIME = "time"
    SPEED = "speed"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How far a number may move.

    Attributes:
        kind: what it is.
        relative, absolute: with enough nights to know its noise: what it must move by at least, as a part of its
            median and in its own unit. The noise comes on top (`tipchain.history.noise`).
        plain_relative, plain_absolute: with too few nights, or none: both must be exceeded.
    """

    kind: Kind
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


_METRIC = Rule(kind=Kind.METRIC, relative=1e-4, absolute=1e-9, plain_relative=0.01, plain_absolute=1e-6)
_SECONDS = Rule(kind=Kind.TIME, relative=0.1, absolute=1.0, plain_relative=0.25, plain_absolute=2.0)
_COST_S = Rule(kind=Kind.TIME, relative=0.1, absolute=0.01, plain_relative=0.25, plain_absolute=0.02)
_MILLISECONDS = Rule(kind=Kind.TIME, relative=0.1, absolute=0.5, plain_relative=0.25, plain_absolute=1.0)
_SPEED = Rule(kind=Kind.SPEED, relative=0.1, absolute=0.0, plain_relative=0.25, plain_absolute=0.0)
_MEMORY = Rule(kind=Kind.MEMORY, relative=0.1, absolute=32.0, plain_relative=0.25, plain_absolute=64.0)
_PERCENT = Rule(kind=Kind.SPEED, relative=0.1, absolute=10.0, plain_relative=0.25, plain_absolute=20.0)


def kind_of(name: str) -> Rule:
    """Return the rule for a number: ``seconds`` of an item or command, or a figure's name (`tipchain.chain.figures`)."""
    if name in ("seconds", "total_s"):
        return _SECONDS
    if name in ("ips", "avg_ips", "qps"):
        return _SPEED
    if name == "gpu_util":
        return _PERCENT
    for end, rule in (("_s", _COST_S), ("_ms", _MILLISECONDS), ("_mb", _MEMORY)):
        if name.endswith(end):
            return rule
    return _METRIC
