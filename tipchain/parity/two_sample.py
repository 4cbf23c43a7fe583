"""Do two samples come from one distribution? Tests that need nothing but numpy and repeat bit for bit.

Each is exact, or errs on the side of "no difference", for any distribution: none assumes a normal one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]


def compare_distribution(expected: Array, actual: Array) -> tuple[float, float]:
    """Return the Kolmogorov-Smirnov distance of two samples and its two-sided p-value.

    For equally many values without ties the p-value is exact; ties make it too large, and so does the
    limiting law that stands in where the numbers differ. Source: Gnedenko and Korolyuk 1951, "On the maximum
    discrepancy between two empirical distributions"; Kolmogorov 1933.

    Args:
        expected: finite values ``[n]``.
        actual: finite values ``[m]``.
    """
    left, right = np.sort(expected), np.sort(actual)
    values = np.concatenate([left, right])
    below = np.searchsorted(left, values, side="right") / left.size
    distance = float(np.max(np.abs(below - np.searchsorted(right, values, side="right") / right.size)))
    if left.size == right.size:
        return distance, _exact_tail(left.size, round(distance * left.size))
    return distance, _limiting_tail(distance * math.sqrt(left.size * right.size / (left.size + right.size)))


def least_p_value(size: int) -> float:
    """Return the smallest p-value that `compare_distribution` can give for two samples of ``size`` values each."""
    return _exact_tail(size, size)


def _exact_tail(size: int, steps: int) -> float:
    """Return P(distance >= steps / size) for two samples of ``size``: 2 sum (-1)^(j+1) C(2n, n-jk) / C(2n, n)."""
    if steps <= 0:
        return 1.0
    total = 0.0
    for number in range(1, size // steps + 1):
        shift = number * steps
        ratio = 2 * math.lgamma(size + 1) - math.lgamma(size - shift + 1) - math.lgamma(size + shift + 1)
        total += (1 if number % 2 else -1) * math.exp(ratio)
    return min(1.0, max(0.0, 2 * total))


def _limiting_tail(scaled: float) -> float:
    """Return Kolmogorov's 2 sum (-1)^(j+1) exp(-2 j^2 x^2)."""
    if scaled < 0.2:  # 1 to twelve digits, and the series is slow here
        return 1.0
    terms = ((1 if number % 2 else -1) * math.exp(-2 * (number * scaled) ** 2) for number in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms)))


def compare_mean(expected: Array, actual: Array) -> float:
    """Return the two-sided p-value of equal means.

    The sum over one sample is held against its mean and variance over all ways to divide the values between
    the samples (a permutation test with the normal law in place of the enumeration). For equally many values
    that law is symmetric, and one outlier alone can never make a difference. Source: Pitman 1937,
    "Significance tests which may be applied to samples from any populations".

    Args:
        expected: finite values ``[n]``.
        actual: finite values ``[m]``.
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
    """Return the two-sided p-value of equal standard deviations: `compare_mean` of the squared deviations.

    Args:
        expected: finite values ``[n]``.
        actual: finite values ``[m]``.
    """
    left, right = (values.astype(np.float64) for values in (expected, actual))
    return compare_mean((left - left.mean()) ** 2, (right - right.mean()) ** 2)


def compare_tails(expected: Array, actual: Array) -> float:
    """Return the two-sided p-value of equal kurtosis: `compare_mean` of the fourth standardized powers.

    Args:
        expected: finite values ``[n]``, not all equal.
        actual: finite values ``[m]``, not all equal.
    """
    powers = []
    for values in (expected.astype(np.float64), actual.astype(np.float64)):
        spread = float(values.std())
        powers.append(((values - values.mean()) / (spread or 1.0)) ** 4)
    return compare_mean(powers[0], powers[1])


def compare_share(expected_hits: int, expected_size: int, actual_hits: int, actual_size: int) -> float:
    """Return the two-sided p-value of equal probabilities by Fisher's exact test.

    Args:
        expected_hits: how often it happened on one side.
        expected_size: out of how many.
        actual_hits: how often on the other side.
        actual_size: out of how many.
    """
    hits, total = expected_hits + actual_hits, expected_size + actual_size
    first, last = max(0, hits - actual_size), min(hits, expected_size)

    def log_weight(count: int) -> float:
        return _log_choose(expected_size, count) + _log_choose(actual_size, hits - count)

    everything = _log_choose(total, hits)
    observed = log_weight(expected_hits)
    # As rare as what was seen, or rarer; the margin covers rounding.
    rare = (weight for count in range(first, last + 1) if (weight := log_weight(count)) <= observed + 1e-7)
    return min(1.0, math.fsum(math.exp(weight - everything) for weight in rare))


def _log_choose(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)


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
    """Return the fourth standardized moment: 3 for a normal law, 1.8 for a uniform one.

    Args:
        values: finite values ``[n]`` that are not all equal.
    """
    deviations = values.astype(np.float64) - float(values.mean(dtype=np.float64))
    return float(np.mean(deviations**4) / np.mean(deviations**2) ** 2)
