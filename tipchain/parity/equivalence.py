"""Whether two groups of training runs end with equal metrics: equivalent, different, or not enough runs to say.

Two one-sided tests (D. J. Schuirmann 1987, doi 10.1007/BF01068419) with Welch's standard error and degrees of freedom
(B. L. Welch 1947, doi 10.1093/biomet/34.1-2.28), written as one confidence interval of the difference of the means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import sqrt
from statistics import fmean, variance
from typing import Any

from tipchain.errors import UsageError

ALPHA = 0.05
"""Probability of calling groups equivalent whose means are just the margin apart."""
POWER = 0.8
"""Probability of an answer that the number of runs still needed is meant for."""
MOST_RUNS = 100_000
"""More runs than these are not planned for."""
GRID_SHARE = 1e-3
"""How far from a multiple of one sample's share a metric may lie, in such shares, for float32's rounding."""


class Answer(Enum):
    """What two groups of runs say."""

    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    NOT_ENOUGH_RUNS = "not enough runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The answer and what it rests on, in the metric's units.

    Attributes:
        difference: the port's mean minus the reference's.
        low, high: ends of the interval that holds the true difference with confidence ``1 - 2 * ALPHA``.
        deviations: standard deviations of the reference's runs and of the port's.
        more: runs a side still needed; None where it cannot be told or would be more than `MOST_RUNS`.
    """

    answer: Answer
    difference: float
    low: float
    high: float
    deviations: tuple[float, float]
    more: int | None = None


def judge_runs(
    reference: Sequence[float], port: Sequence[float], margin: float, *, step: float = 0.0
) -> Equivalence:
    """Say whether the mean metric of the port's runs is within ``margin`` of the reference's.

    Equivalent: the whole interval lies within the margin. Different: all of it lies beyond. Else more runs are
    needed: as many as give an answer with probability `POWER`, if the standard deviations stay as they are and the
    true difference is zero (or the observed one, where that many runs are there already).

    Args:
        reference: final metric of each of the reference's runs, at least 2.
        port: the same of the port, at least 2.
        margin: difference of the means that does not matter.
        step: what the metric can change by at least, such as 100 / samples for an accuracy in percent; the rounding
            to it counts as a deviation of ``step / sqrt(12)``, so that equal counts over a small set prove little.

    Raises:
        UsageError: fewer than 2 runs on a side, or a margin that is not above 0.
        ImportError: scipy is absent.
    """
    if min(len(reference), len(port)) < 2:
        raise UsageError(f"{len(reference)} and {len(port)} runs: at least 2 a side are needed")
    if not margin > 0:
        raise UsageError(f"the margin must be above 0, found {margin}")
    variances = tuple(max(variance(runs), step**2 / 12) for runs in (reference, port))
    counts = len(reference), len(port)
    error, freedom = _welch((variances[0], variances[1]), counts)
    difference = fmean(port) - fmean(reference)
    reach = _quantile(freedom, 1 - ALPHA) * error if error else 0.0
    low, high = difference - reach, difference + reach
    if -margin <= low and high <= margin:
        answer, more = Answer.EQUIVALENT, None
    elif low > margin or high < -margin:
        answer, more = Answer.DIFFERENT, None
    else:
        answer = Answer.NOT_ENOUGH_RUNS
        more = _more_runs((variances[0], variances[1]), counts, difference, margin)
    return Equivalence(
        answer=answer, difference=difference, low=low, high=high, more=more,
        deviations=(sqrt(variances[0]), sqrt(variances[1])),
    )  # fmt: skip


def grid_step(values: Sequence[float], samples: int) -> float:
    """Return 100 / samples if every value, in percent, is a multiple of it, as an accuracy is; else 0."""
    if samples <= 0:
        return 0.0
    counts = [value * samples / 100 for value in values]
    return 100 / samples if all(abs(one - round(one)) <= GRID_SHARE for one in counts) else 0.0


def _welch(variances: tuple[float, float], counts: tuple[int, int]) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom."""
    shares = [value / count for value, count in zip(variances, counts, strict=True)]
    total = sum(shares)
    if not total > 0:
        return 0.0, float(sum(counts) - 2)
    scatter = sum((share / total) ** 2 / (count - 1) for share, count in zip(shares, counts, strict=True))
    return sqrt(total), 1 / scatter


def _more_runs(
    variances: tuple[float, float], counts: tuple[int, int], difference: float, margin: float
) -> int | None:
    have = min(counts)
    for assumed in (0.0, difference):
        needed = runs_needed(variances, assumed, margin)
        if needed is None or needed > have:
            return None if needed is None else needed - have
    return 1


def runs_needed(variances: tuple[float, float], difference: float, margin: float) -> int | None:
    """Return the smallest number of runs a side that gives an answer with probability `POWER`, or None.

    Args:
        variances: of the reference's runs and of the port's.
        difference: the true difference of the means that is assumed.
        margin: difference that does not matter.
    """
    low, high = 1, 2
    while _chance(variances, high, difference, margin) < POWER:
        if high >= MOST_RUNS:
            return None
        low, high = high, min(2 * high, MOST_RUNS)
    while high - low > 1:
        middle = (low + high) // 2
        enough = _chance(variances, middle, difference, margin) >= POWER
        low, high = (low, middle) if enough else (middle, high)
    return high


def _chance(variances: tuple[float, float], count: int, difference: float, margin: float) -> float:
    """Return the probability of an answer from ``count`` runs a side, by the noncentral t distribution.

    Source: K. F. Phillips 1990, doi 10.1007/BF01063556.
    """
    error, freedom = _welch(variances, (count, count))
    away = abs(difference)
    if not error > 0:
        return float(away != margin)
    special = _special()
    quantile = _quantile(freedom, 1 - ALPHA)
    if away >= margin:
        return float(1 - special.nctdtr(freedom, (away - margin) / error, quantile))
    below = special.nctdtr(freedom, (away - margin) / error, -quantile)
    above = special.nctdtr(freedom, (away + margin) / error, quantile)
    return float(max(0.0, below - above))


def _quantile(freedom: float, probability: float) -> float:
    return float(_special().stdtrit(freedom, probability))


def _special() -> Any:
    import scipy.special

    return scipy.special
