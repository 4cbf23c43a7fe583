"""Whether two groups of numbers come from one distribution, or two groups of runs end equal."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance
from typing import Literal

import numpy as np
import numpy.typing as npt

from tipchain.errors import UsageError

# Tests that need nothing but numpy and repeat bit for bit. Each is exact, or errs on the side of "no difference", for any
# distribution: none assumes a normal one. Samples are finite values ``[n]`` of the reference and ``[m]`` of the port.


Array = npt.NDArray[np.floating]


def compare_distribution(expected: Array, actual: Array) -> tuple[float, float]:
    """Return the Kolmogorov-Smirnov distance of two samples and its two-sided p-value.

    For equally many values without ties the p-value is exact; ties make it too large, and so does the
    limiting law that stands in where the numbers differ. Source: Gnedenko and Korolyuk 1951, "On the maximum
    discrepancy between two empirical distributions"; Kolmogorov 1933.
    """
    left, right = np.sort(expected), np.sort(actual)
    values = np.concatenate([left, right])
    below = np.searchsorted(left, values, side="right") / left.size
    distance = float(np.max(np.abs(below - np.searchsorted(right, values, side="right") / right.size)))
    if left.size == right.size:
        return distance, exact_tail(left.size, round(distance * left.size))
    scaled = distance * math.sqrt(left.size * right.size / (left.size + right.size))
    if scaled < 0.2:  # 1 to twelve digits, and the series is slow here
        return distance, 1.0
    # Kolmogorov's 2 sum (-1)^(j+1) exp(-2 j^2 x^2).
    terms = ((1 if number % 2 else -1) * math.exp(-2 * (number * scaled) ** 2) for number in range(1, 101))
    return distance, min(1.0, max(0.0, 2 * sum(terms)))


def exact_tail(size: int, steps: int) -> float:
    """Return P(distance >= steps / size) of two samples of one size: 2 sum (-1)^(j+1) C(2n, n-jk) / C(2n, n)."""
    if steps <= 0:
        return 1.0
    total = 0.0
    for number in range(1, size // steps + 1):
        shift = number * steps
        ratio = 2 * math.lgamma(size + 1) - math.lgamma(size - shift + 1) - math.lgamma(size + shift + 1)
        total += (1 if number % 2 else -1) * math.exp(ratio)
    return min(1.0, max(0.0, 2 * total))


def compare_mean(expected: Array, actual: Array) -> float:
    """Return the two-sided p-value of equal means.

    The sum over one sample is held against its mean and variance over all ways to divide the values between
    the samples (a permutation test with the normal law in place of the enumeration). For equally many values
    that law is symmetric, and one outlier alone can never make a difference. Source: Pitman 1937,
    "Significance tests which may be applied to samples from any populations".
    """
    left, right = expected.astype(np.float64), actual.astype(np.float64)
    both = np.concatenate([left, right])
    variance = float(both.var(ddof=1))
    # What differs by rounding alone is one constant.
    if not variance > (1e-12 * float(np.max(np.abs(both)))) ** 2:
        return 1.0
    spread = math.sqrt(variance * left.size * right.size / both.size)
    return math.erfc(abs(float(left.sum()) - left.size * float(both.mean())) / spread / math.sqrt(2))


def compare_spread(expected: Array, actual: Array) -> float:
    """Return the two-sided p-value of equal standard deviations: `compare_mean` of the squared deviations."""
    left, right = (values.astype(np.float64) for values in (expected, actual))
    return compare_mean((left - left.mean()) ** 2, (right - right.mean()) ** 2)


def compare_tails(expected: Array, actual: Array) -> float:
    """Return the two-sided p-value of equal kurtosis: `compare_mean` of the fourth standardized powers."""
    left, right = (values.astype(np.float64) for values in (expected, actual))
    powers = [((one - one.mean()) / (float(one.std()) or 1.0)) ** 4 for one in (left, right)]
    return compare_mean(*powers)


def compare_share(expected_hits: int, expected_size: int, actual_hits: int, actual_size: int) -> float:
    """Return the two-sided p-value of equal probabilities, hits out of a size each, by Fisher's exact test."""
    hits = expected_hits + actual_hits
    first, last = max(0, hits - actual_size), min(hits, expected_size)
    # In how many ways each number of hits can fall to the first sample: whole numbers, each made of the one before.
    ways = [math.comb(expected_size, first) * math.comb(actual_size, hits - first)]
    for count in range(first, last):
        ways.append(
            ways[-1] * (expected_size - count) * (hits - count) // (count + 1) // (actual_size - hits + count + 1)
        )
    rare = sum(way for way in ways if way <= ways[expected_hits - first])
    return rare / math.comb(expected_size + actual_size, hits)


def adjust(p_values: Sequence[float]) -> list[float]:
    """Return the p-values, in their order, corrected for their number.

    Rejecting those that are at most alpha rejects any true hypothesis at all with a probability of at most
    alpha. Source: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    adjusted = [1.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = largest
    return adjusted


def kurtosis(values: Array) -> float:
    """Return the fourth standardized moment: 3 for a normal law, 1.8 for a uniform one."""
    deviations = values.astype(np.float64) - float(values.mean(dtype=np.float64))
    return float(np.mean(deviations**4) / np.mean(deviations**2) ** 2)


# Two one-sided tests (D. J. Schuirmann 1987, doi 10.1007/BF01068419) with Welch's standard error and degrees of freedom
# (B. L. Welch 1947, doi 10.1093/biomet/34.1-2.28), written as one confidence interval of the difference of the means.


ALPHA = 0.05
"""Probability of calling groups equivalent whose means are just the margin apart."""
POWER = 0.8
"""Probability of an answer that the number of runs still needed is meant for."""
MOST_RUNS = 100_000
"""More runs than these are not planned for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalence:
    """The answer and its figures, in the metric's units.

    Attributes:
        difference: the port's mean minus the reference's.
        low, high: ends of the interval that holds the true difference with confidence ``1 - 2 * ALPHA``.
        more: runs a side still needed; None where it cannot be told or would be more than `MOST_RUNS`.
    """

    answer: Literal["equivalent", "different", "not enough runs"]
    difference: float
    low: float
    high: float
    more: int | None = None


def judge_runs(reference: Sequence[float], port: Sequence[float], margin: float, *, step: float = 0.0) -> Equivalence:
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
    variances = [max(variance(runs), step**2 / 12) for runs in (reference, port)]
    counts = [len(reference), len(port)]
    difference, reach = fmean(port) - fmean(reference), _reach(variances, counts, 1 - ALPHA)
    low, high = difference - reach, difference + reach
    if -margin <= low and high <= margin:
        return Equivalence(answer="equivalent", difference=difference, low=low, high=high)
    if low > margin or high < -margin:
        return Equivalence(answer="different", difference=difference, low=low, high=high)
    more: int | None = 1
    for assumed in (0.0, difference):
        needed = runs_needed(variances, assumed, margin)
        if needed is None or needed > min(counts):
            more = None if needed is None else needed - min(counts)
            break
    return Equivalence(answer="not enough runs", difference=difference, low=low, high=high, more=more)


def grid_step(values: Sequence[float], samples: int) -> float:
    """Return 100 / samples if every percentage is a multiple of it, else 0."""
    if samples <= 0:
        return 0.0
    counts = [value * samples / 100 for value in values]
    return 100 / samples if all(abs(one - round(one)) <= 1e-3 for one in counts) else 0.0  # float32 rounds


def _reach(variances: Sequence[float], counts: Sequence[int], *probabilities: float) -> float:
    """Return quantiles of the difference of two means, added up, in its units."""
    from scipy import special

    shares = [value / count for value, count in zip(variances, counts, strict=True)]
    total = sum(shares)
    if not total > 0:
        return 0.0
    scatter = sum((share / total) ** 2 / (count - 1) for share, count in zip(shares, counts, strict=True))
    return sqrt(total) * sum(float(special.stdtrit(1 / scatter, one)) for one in probabilities)


def runs_needed(variances: Sequence[float], difference: float, margin: float) -> int | None:
    """Return the fewest runs a side that answer with probability `POWER` at an assumed true difference, or None.

    Source: S. A. Julious 2004, doi 10.1002/sim.1783.
    """

    def answers(count: int) -> bool:
        # Without a difference the interval may reach over the margin at either end.
        chance = POWER if difference else (1 + POWER) / 2
        return _reach(variances, (count, count), 1 - ALPHA, chance) < abs(margin - abs(difference))

    counts = range(2, MOST_RUNS + 1)
    place = bisect_left(counts, True, key=answers)
    return counts[place] if place < len(counts) else None
