"""Verdicts against exact arithmetic: rational numbers, over pairs of arrays made to mislead.

Rounding of the subtraction is allowed for (the closeness rule names the types); beyond it nothing may pass that is outside,
and nothing may fail that is inside.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from tipchain.errors import Outcome
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import compare
from tipchain.reprod_log.compare import compute_diff

PAIRS = 1600
KINDS = {
    "f": ("float16", "float32", "float64", "longdouble"),
    "c": ("complex64", "complex128", "clongdouble"),
    "i": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    "b": ("bool",),
}
FLOATS = (0.0, -0.0, 1.0, 1.0000001, 1e-45, 5e-324, 1e-300, 6e4, 3e38, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan)
BOUNDS = (0.0, 5e-324, 1e-45, 1e-12, 1e-6, 1e-5, 1e-3, 1.0, 1e30, 1e39, 1e300)


def draw(generator, kind, size):
    """Return an array of a kind, mostly of ordinary numbers, with some at the edges of what the dtype holds."""
    dtype = np.dtype(str(generator.choice(KINDS[kind])))
    with np.errstate(all="ignore"):
        if kind == "b":
            return generator.random(size) < 0.5
        if kind == "i":
            info = np.iinfo(dtype)
            edges = [info.min, info.max, 0, 1, info.max - 1, info.max // 2 + 1]
            return np.array([edges[n] for n in generator.integers(0, 6, size)], dtype)
        parts = [_floats(generator, size) for _ in range(2 if kind == "c" else 1)]
        if dtype.char == "g" and generator.random() < 0.3:
            return np.asarray(parts[0], dtype) * np.longdouble("1e-4900")
        return (parts[0] + 1j * parts[1]).astype(dtype) if kind == "c" else parts[0].astype(dtype)


def _floats(generator, size):
    values = generator.standard_normal(size) * 10.0 ** generator.integers(-8, 8)
    odd = generator.random(size) < generator.choice([0, 0, 0.3])
    return np.where(odd, generator.choice(FLOATS[: -3 if generator.random() < 0.5 else None], size), values)


def near(generator, array):
    """Return an array equal to ``array``, a little off it, or quite another."""
    other = array.copy()
    if generator.random() < 0.6 and array.size and array.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            other = (array * (1 + 10.0 ** generator.integers(-9, 1))).astype(array.dtype)
    if generator.random() < 0.4 and array.size:
        at = generator.integers(0, array.size)
        other[at] = array.dtype.type(generator.choice([0, 1]))
    return other


def cast(array, dtype):
    """Return the numbers of ``array`` in another dtype, as far as it has them."""
    array = array.real if array.dtype.kind == "c" and dtype.kind != "c" else array
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def exact(value):
    """Return a number's parts as fractions; None where one is NaN or infinite."""
    value = value.item() if value.dtype.kind != "g" and value.dtype.char != "G" else value
    parts = (value.real, value.imag) if np.iscomplexobj(value) else (value,)
    if not all(np.isfinite(part) for part in parts):
        return None
    return [
        Fraction(*part.as_integer_ratio()) if hasattr(part, "as_integer_ratio") else Fraction(int(part))
        for part in parts
    ]


def squared(parts):
    return sum((part * part for part in parts), Fraction(0))


def outside(left, right, *, rtol, atol, slack):
    """Tell whether ``|left - right| > (atol + rtol * |left|) * slack``, exactly but for the last 1e-30 of square roots."""
    a, b = exact(left), exact(right)
    if a is None or b is None:
        return bool(left != right)
    size, gap = squared(a), squared([x - y for x, y in zip(a, b, strict=True)])
    allowed = (Fraction(atol) + Fraction(rtol) * _root(size)) * slack
    return gap > allowed * allowed


def _root(value):
    if not value:
        return Fraction(0)
    shift = max(0, 200 - (value.numerator.bit_length() - value.denominator.bit_length())) // 2 * 2
    return Fraction(math.isqrt(int(value * (1 << shift))), 1 << shift // 2)


@pytest.mark.parametrize("seed", range(4))
def test_no_verdict_is_wrong_by_more_than_rounding(seed):
    generator = np.random.default_rng(seed)
    told = {Outcome.PASS: 0, Outcome.FAIL: 0}
    for _ in range(PAIRS // 4):
        kind = str(generator.choice(list(KINDS), p=[0.6, 0.2, 0.15, 0.05]))
        expected = draw(generator, kind, int(generator.integers(1, 6)))
        actual = near(generator, expected)
        rtol, atol = (float(generator.choice(BOUNDS)) for _ in range(2))
        (verdict,) = compare({"a": expected}, {"a": actual}, Tolerance(rtol=rtol, atol=atol))
        told[verdict.outcome] += 1
        # One rounding each of the subtraction, the modulus and the bound, in the type that the rule names.
        narrow = all(array.dtype.kind == "f" and array.dtype.itemsize <= 4 for array in (expected, actual))
        slack = Fraction(1, 2**20) if narrow else Fraction(1, 2**48)
        wrong = [outside(e, a, rtol=rtol, atol=atol, slack=1 + slack) for e, a in zip(expected, actual, strict=True)]
        if verdict.outcome is Outcome.PASS:
            assert not any(wrong), (expected, actual, rtol, atol, verdict)
        elif not np.isnan(expected).any() and not np.isinf(verdict.diff.max_abs):
            # A difference that float64 does not hold counts as infinite: that fails on the safe side.
            right = [
                outside(e, a, rtol=rtol, atol=atol, slack=1 - slack) for e, a in zip(expected, actual, strict=True)
            ]
            assert any(right), (expected, actual, rtol, atol, verdict)
    assert min(told.values()) > PAIRS // 40


@pytest.mark.parametrize("seed", range(2))
def test_equal_means_equal(seed):
    """At a threshold of 0 the maximum and the mean pass exactly where every element is equal."""
    generator = np.random.default_rng(100 + seed)
    for _ in range(PAIRS // 4):
        kinds = generator.choice(list(KINDS), 2) if generator.random() < 0.5 else [generator.choice(list(KINDS))] * 2
        expected = draw(generator, str(kinds[0]), 3)
        actual = (
            near(generator, expected)
            if kinds[0] == kinds[1]
            else cast(expected, draw(generator, str(kinds[1]), 1).dtype)
        )
        found = compute_diff({"a": expected}, {"a": actual})["a"]
        same = [
            (exact(e) is not None and _same(exact(e), exact(a))) or bool(e == a and np.isinf(e))
            for e, a in zip(expected, actual, strict=True)
        ]
        for name in ("max", "mean"):
            assert (found[name] <= 0) is all(same), (expected, actual, found)


def _same(left, right):
    if left is None or right is None:
        return False
    zero = [Fraction(0)]
    return (left + zero)[:2] == (right + zero)[:2]


@pytest.mark.parametrize(
    ("expected", "actual", "tolerance"),
    [
        (np.array([1.7e308 + 1e308j, 1 + 1j]), np.zeros(2, complex), {"rtol": 1e-5, "atol": 1e-5}),
        (np.zeros(1, np.float32), np.ones(1, np.float32), {"rtol": 1e39, "atol": 0.0}),
        (np.array([np.longdouble("1e-4000")]), np.zeros(1, np.longdouble), {"threshold": 0.0}),
        (np.array([np.longdouble("1e-4000")], np.clongdouble), np.zeros(1, np.clongdouble), {"threshold": 0.0}),
        (np.array([5e-324] + [0.0] * 10), np.zeros(11), {"threshold": 0.0}),
    ],
    ids=["modulus overflows", "bound overflows", "long double", "complex long double", "mean underflows"],
)
def test_what_cannot_be_computed_does_not_pass(expected, actual, tolerance):
    assert compare({"a": expected}, {"a": actual}, Tolerance(**tolerance))[0].outcome is Outcome.FAIL


def test_statistics_of_reprod_log_do_not_hide_what_cannot_be_computed():
    found = compute_diff({"a": np.array([2**62 + 1])}, {"a": np.array([2.0**62])})["a"]
    assert found == {"mean": 1.0, "max": 1.0, "min": 1.0}
    found = compute_diff({"a": np.array([complex(np.inf, np.nan), 1])}, {"a": np.array([0j, 1])})["a"]
    assert all(math.isnan(value) for value in found.values())
