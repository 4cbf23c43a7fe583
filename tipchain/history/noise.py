"""Has a number moved beyond its noise? Robust statistics of its last nights.

A step: it is further from the median of the last nights than `STEP` times their spread, which is the median absolute
deviation (MAD) in units of a standard deviation. Where more than half of the values are equal the MAD is 0, and the mean
absolute deviation stands in. Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993.

A drift: no single night stands out, but values rise or fall with time beyond chance (Mann, Econometrica 13, 1945;
Kendall, Rank Correlation Methods, 1975), along a line (Sen, JASA 63, 1968) that leads over more than `DRIFT` times the
spread about it and explains them better than one step would.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, sqrt
from statistics import fmean, median
from typing import Literal

from tipchain.history.kinds import Rule

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


def motion(earlier: Sequence[float], value: float, rule: Rule) -> Motion | None:
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
        return (
            Motion(how="plain", before=last, after=value, spread=0.0, nights=len(earlier)) if moved else None
        )
    if min(finite) == max(finite) == value:
        return None
    return _step(finite, value, rule) or _drift([*finite, value], rule)


def is_news(values: Sequence[float], rule: Rule) -> bool:
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
    """Tell whether a drift is another than the one that was told, or leads as far again beyond where that had led."""
    if told is None:
        return True
    led, more = told.after - told.before, now.after - told.after
    return (now.after - now.before) * led < 0 or more * led >= led * led


def _step(earlier: Sequence[float], value: float, rule: Rule) -> Motion | None:
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


def _drift(values: Sequence[float], rule: Rule) -> Motion | None:
    if _kendall(values) <= SURE:
        return None
    slope = median((values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2))
    start = median(value - slope * at for at, value in enumerate(values))
    residuals = [value - start - slope * at for at, value in enumerate(values)]
    scale, led = spread(residuals), slope * (len(values) - 1)
    if abs(led) <= max(DRIFT * scale, rule.relative * abs(start), rule.absolute):
        return None
    if sum(map(abs, residuals)) >= _best_step(values):
        return None
    return Motion(how="drift", before=start, after=start + led, spread=scale, nights=len(values) - 1)


def _kendall(values: Sequence[float]) -> float:
    """Return the Mann-Kendall test's normal deviate, without its sign; ties count as neither."""
    count = len(values)
    score = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in combinations(range(count), 2))
    ties = [values.count(one) for one in set(values)]
    variance = (count * (count - 1) * (2 * count + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    return max(abs(score) - 1, 0) / sqrt(variance) if variance else 0.0


def _best_step(values: Sequence[float]) -> float:
    """Return the sum of the distances from two levels, one before and one after the night where that fits best."""

    def off(part: Sequence[float]) -> float:
        middle = median(part)
        return sum(abs(value - middle) for value in part)

    return min(off(values[:at]) + off(values[at:]) for at in range(1, len(values)))
