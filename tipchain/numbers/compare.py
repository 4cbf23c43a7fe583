"""Facts about the difference of two arrays; no pass or fail.

The closeness rule's arithmetic, once: shapes are never broadcast; integers and booleans differ by exact
integers; float16 is subtracted in float32, float32 in float32, everything else in float64, or wider where float64
does not hold every value (long doubles, 64-bit integers against floats); complex numbers differ by the modulus; means are
accumulated in float64. No difference is rounded to nothing, and what cannot be computed counts as infinite. Arrays are walked in pieces that fit
into the processor's cache, so that a comparison costs little more than reading both arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress, repeat
from math import inf, isfinite, isnan, nan, nextafter
from typing import Any

import msgspec
import numpy as np

from tipchain.core.json_text import Number
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import ROUGH

PIECE = 1 << 16
"""Elements per piece: the buffers of one piece fit into a core's cache."""
TINY = 128
"""Elements from which on an array is compared by itself."""
SMALLEST = nextafter(0.0, inf)


class TensorDiff(msgspec.Struct, frozen=True):
    """How ``actual`` (the port) differs from ``expected`` (the reference).

    Statistics are those of ``|expected - actual|``, computed in a type wide enough for the
    inputs. They are NaN where any element's difference is NaN; equal infinities differ by 0.

    Attributes:
        path: name of the tensor, ``/``-joined where dumps are nested.
        expected_shape: shape of the reference.
        actual_shape: shape of the port.
        expected_dtype: dtype name of the reference.
        actual_dtype: dtype name of the port.
        size: number of elements compared; 0 where the shapes differ or the tensors are empty.
        mean_abs: mean absolute difference.
        max_abs: largest absolute difference.
        min_abs: smallest absolute difference.
        worst_index: index of the largest difference (of the first NaN difference, if any).
        worst_expected: the reference's value there, an int where the tensor holds integers.
        worst_actual: the port's value there.
        expected_nan: number of NaN in the reference.
        actual_nan: number of NaN in the port.
        mismatched_nan: number of positions where exactly one side is NaN.
        mismatched_inf: positions where one side is infinite and the other is not the same infinity.
        expected_max_abs: largest finite ``|expected|``, for the vacuous-check rule.
        needed_atol: smallest atol with which every element would pass at the given rtol; infinite
            where none would do.
        rtol: the rtol that ``needed_atol`` goes with.
    """

    path: str
    expected_shape: tuple[int, ...]
    actual_shape: tuple[int, ...]
    expected_dtype: str
    actual_dtype: str
    size: int
    mean_abs: float
    max_abs: float
    min_abs: float
    worst_index: tuple[int, ...]
    worst_expected: Number
    worst_actual: Number
    expected_nan: int
    actual_nan: int
    mismatched_nan: int
    mismatched_inf: int
    expected_max_abs: float
    needed_atol: float
    rtol: float = 0.0


def diff_arrays(path: str, expected: Array, actual: Array, *, rtol: float = 0.0, equal_nan: bool = False) -> TensorDiff:
    """Return how two arrays differ, element by element.

    Args:
        path: name of the tensor.
        expected: the reference, of any shape and layout.
        actual: the port.
        rtol: relative tolerance that ``needed_atol`` goes with.
        equal_nan: NaN at the same position differs by 0, not by NaN.

    Returns:
        The facts. Arrays of different shapes, empty ones and those that hold no numbers have size 0 and
        NaN statistics.
    """
    expected, actual = np.asarray(expected), np.asarray(actual)
    scan, shape, size = _Scan(rtol, equal_nan), expected.shape, 0
    # Both are walked in the order of their bytes; the index is turned back.
    turned = expected.flags.f_contiguous and actual.flags.f_contiguous and not expected.flags.c_contiguous
    if shape == actual.shape and expected.dtype.kind in "biufc" and actual.dtype.kind in "biufc":
        size = expected.size
    if size:
        scan.run(expected.T, actual.T) if turned else scan.run(expected, actual)
    nan_seen = scan.nan_at is not None
    at = scan.worst_at if scan.nan_at is None else scan.nan_at
    index = () if not size else _index(at, shape[::-1])[::-1] if turned else _index(at, shape)
    unknown = nan_seen or not size
    return TensorDiff(
        path=path,
        expected_shape=shape,
        actual_shape=actual.shape,
        expected_dtype=_name(expected.dtype),
        actual_dtype=_name(actual.dtype),
        size=size,
        # Over many elements a mean can be too small for a float64; it is 0 where all differences are.
        mean_abs=nan if unknown else max(scan.total / size, min(scan.largest, SMALLEST)),
        max_abs=nan if unknown else scan.largest,
        min_abs=nan if unknown else scan.least,
        worst_index=index,
        worst_expected=expected[index].item() if size else nan,
        worst_actual=actual[index].item() if size else nan,
        expected_nan=scan.nans[0],
        actual_nan=scan.nans[1],
        mismatched_nan=scan.nans[2],
        mismatched_inf=scan.odd_infs,
        expected_max_abs=scan.size,
        needed_atol=nan if not size else inf if nan_seen else scan.needed,
        rtol=rtol,
    )


def diff_tiny(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> dict[str, TensorDiff]:
    """Return exactly `diff_arrays` of tiny arrays, those of one size and dtype together.

    Left out are arrays for which more than the usual is to be found: layouts and dtypes that are turned or converted,
    NaN and Inf.
    """
    alike: dict[tuple[np.dtype[np.generic], int], list[str]] = {}
    for name, e in expected.items():
        a = actual.get(name)
        tiny = 0 < e.size < TINY and e.dtype.char in "fd" and e.flags.c_contiguous
        if tiny and a is not None and e.dtype == a.dtype and e.shape == a.shape:
            alike.setdefault((e.dtype, e.size), []).append(name)
    diffs: dict[str, TensorDiff] = {}
    with np.errstate(all="ignore"):
        for (dtype, length), names in alike.items():
            for start in range(0, len(names), PIECE):
                some = names[start : start + PIECE]
                sides = ([side[name] for name in some] for side in (expected, actual))
                rows = _tiny_facts(some, _name(dtype), length, *sides)
                diffs.update((row[0], TensorDiff(*row)) for row in rows)
    return diffs


def _tiny_facts(
    names: Sequence[str], dtype: str, length: int, expected: Sequence[Array], actual: Sequence[Array]
) -> Iterator[tuple[Any, ...]]:
    """Yield `TensorDiff`'s fields of arrays of one dtype and length, as rows."""
    e, a = (np.concatenate(arrays, axis=None).reshape(-1, length) for arrays in (expected, actual))
    gap, size = np.absolute(e - a), np.absolute(e)
    totals, largest, worst = np.add.reduce(gap, axis=1).astype(np.float64), gap.max(axis=1), gap.argmax(axis=1)
    means = np.maximum(totals / length, np.minimum(largest, SMALLEST, dtype=np.float64))
    shapes = [array.shape for array in expected]
    columns: list[Iterable[Any]] = [names, shapes, shapes, repeat(dtype), repeat(dtype), repeat(length)]
    columns += (facts.tolist() for facts in (means, largest, gap.min(axis=1)))
    columns.append(map(_index, worst.tolist(), shapes))
    columns += (side[np.arange(len(names)), worst].tolist() for side in (e, a))
    columns += [repeat(0)] * 4
    columns += (facts.tolist() for facts in (size.max(axis=1), largest))
    return compress(zip(*columns, repeat(0.0), strict=False), np.isfinite(totals).tolist())


def count_outside(expected: Array, actual: Array, *, rtol: float, atol: float) -> int:
    """Count the elements that differ by more than ``atol + rtol * |expected|``.

    NaN on either side counts as outside; equal infinities do not.
    """
    left, right = np.asarray(expected).reshape(-1), np.asarray(actual).reshape(-1)
    outside = 0
    with np.errstate(all="ignore"):
        for start in range(0, left.size, PIECE):
            e, a = left[start : start + PIECE], right[start : start + PIECE]
            gap, size = _gaps(e, a)
            inside = (gap - rtol * size <= atol) | (np.isinf(e) & (e == a))
            outside += inside.size - int(np.count_nonzero(inside))
    return outside


@lru_cache(maxsize=1024)
def _index(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an element's index, faster than `numpy.unravel_index`."""
    index: list[int] = []
    for length in reversed(shape):
        at, place = divmod(at, length)
        index.append(place)
    return tuple(reversed(index))


@lru_cache(maxsize=64)  # NumPy builds the name anew each time, which tiny tensors feel
def _name(dtype: np.dtype[np.generic]) -> str:
    return dtype.name


def _needs_long(dtype: np.dtype[np.generic]) -> bool:
    return dtype.char in "gG" or (dtype.kind in "iu" and dtype.itemsize > 4)


def _is_wide(expected: np.dtype[np.generic], actual: np.dtype[np.generic]) -> bool:
    """Tell whether both are integers of which float64 cannot hold every value."""
    return expected.kind in "iub" and actual.kind in "iub" and max(expected.itemsize, actual.itemsize) > 4


class _Scan:
    def __init__(self, rtol: float, equal_nan: bool) -> None:
        self.rtol, self.equal_nan = rtol, equal_nan
        self.worst_at = 0
        self.total, self.largest, self.least = 0.0, -1.0, inf
        self.size = self.needed = 0.0
        self.nan_at: int | None = None
        self.nans, self.odd_infs = [0, 0, 0], 0

    def run(self, expected: Array, actual: Array) -> None:
        left, right = expected.reshape(-1), actual.reshape(-1)
        with np.errstate(all="ignore"):
            complex_ = "c" in (left.dtype.kind, right.dtype.kind)
            if not complex_ and not _is_wide(left.dtype, right.dtype):
                self._run_floats(left, right)
                return
            for start in range(0, left.size, PIECE):
                e, a = left[start : start + PIECE], right[start : start + PIECE]
                if complex_:
                    self._careful_piece(e, a, start)
                else:
                    gap, size = _gaps(e, a)
                    self._add(gap, size, start, float(np.add.reduce(gap)))

    def _run_floats(self, expected: Array, actual: Array) -> None:
        left, right = expected.dtype, actual.dtype
        narrow = left.kind == right.kind == "f" and max(left.itemsize, right.itemsize) <= 4
        long = _needs_long(left) or _needs_long(right)
        work = np.dtype(np.float32 if narrow else np.longdouble if long else np.float64)
        length = min(PIECE, expected.size)
        # Two buffers do: each side's copy, where one is needed, is overwritten by what is computed from it.
        gap, size = np.empty(length, work), np.empty(length, work)
        copied = [array.dtype != work or not array.flags.aligned for array in (expected, actual)]
        for start in range(0, expected.size, length):
            stop = min(start + length, expected.size)
            d, m = gap[: stop - start], size[: stop - start]
            e, a = expected[start:stop], actual[start:stop]
            if copied[0]:
                np.copyto(m, e, casting="unsafe")
                e = m
            if copied[1]:
                np.copyto(d, a, casting="unsafe")
                a = d
            np.subtract(e, a, out=d)
            np.absolute(d, out=d)
            # Rows are added up first, in eight lanes of 16 sums of four: as exact as pairwise addition, and faster.
            if d.size % 512:
                total = float(np.add.reduce(d))
            else:
                total = float(np.add.reduce(np.einsum("ij->i", d.reshape(-1, 512)), dtype=np.float64))
            if isfinite(total):
                np.absolute(e, out=m)
                self._add(d, m, start, total)
            else:  # NaN or Inf on some side, or float32 was too narrow
                self._careful_piece(expected[start:stop], actual[start:stop], start)

    def _add(self, gap: Array, size: Array, start: int, total: float) -> None:
        """Gather a piece of differences without NaN; ``size`` is |expected|."""
        largest = _float_above(np.maximum.reduce(gap))
        if largest > self.largest:
            self.largest, self.worst_at = largest, start + int(gap.argmax())
        self.total += total
        self.size = max(self.size, float(np.maximum.reduce(size)))
        if self.least:  # nothing is smaller than 0
            self.least = min(self.least, _float_above(np.minimum.reduce(gap)))
        needed = largest  # the smallest atol with which every element passes
        if largest and self.rtol:
            needed = _float_above(np.maximum.reduce(gap - self.rtol * size))
            if isnan(needed):  # infinite less infinite, or 0 times an rtol that is infinite in float32
                wide = gap.astype(np.longdouble) - np.longdouble(self.rtol) * size
                # Where the reference is 0, rtol allows nothing, however large it is.
                needed = _float_above(np.where(np.isinf(gap), inf, np.where(np.isnan(wide), gap, wide)).max())
        self.needed = max(self.needed, needed)

    def _careful_piece(self, e: Array, a: Array, start: int) -> None:
        """Gather a piece that may hold NaN or Inf, or that is complex."""
        gap, size = _gaps(e, a)
        nan_e, nan_a = np.isnan(e), np.isnan(a)
        inf_e, inf_a = np.isinf(e) & ~nan_e, np.isinf(a) & ~nan_a
        same_inf = inf_e & inf_a & (e == a)
        odd_inf = (inf_e | inf_a) & ~same_inf
        gap[same_inf] = 0.0
        gap[odd_inf] = inf
        gap[nan_e | nan_a] = nan  # the modulus of a complex number with Inf beside NaN is Inf
        if self.equal_nan:
            gap[nan_e & nan_a] = 0.0
        for n, mask in enumerate((nan_e, nan_a, nan_e ^ nan_a)):
            self.nans[n] += int(np.count_nonzero(mask))
        self.odd_infs += int(np.count_nonzero(odd_inf))
        size = np.where(nan_e | inf_e, 0.0, size)
        unknown = np.isnan(gap)
        if not unknown.any():
            self._add(gap, size, start, float(gap.sum()))
            return
        self.size = max(self.size, float(size.max()))
        if self.nan_at is None:  # the statistics are NaN from here on
            self.nan_at = start + int(unknown.argmax())


def _float_above(value: float) -> float:
    """Return a number as float64, never smaller than it is."""
    result = float(value)
    return nextafter(result, inf) if result < value else result


def _gaps(e: Array, a: Array) -> tuple[Array, Array]:
    """Return ``|e - a|`` and ``|e|`` in a wide type, for any dtypes."""
    if not _is_wide(e.dtype, a.dtype):
        complex_ = "c" in (e.dtype.kind, a.dtype.kind)
        long = _needs_long(e.dtype) or _needs_long(a.dtype)
        wide: Any = (np.clongdouble if long else np.complex128) if complex_ else np.longdouble if long else np.float64
        left, right = e.astype(wide), a.astype(wide)
        return np.abs(left - right), np.abs(left)
    # Of integers the difference is exact, and rounded once to float64.
    if (e.dtype.kind == "i") != (a.dtype.kind == "i"):
        gaps = np.abs(e.astype(np.longdouble) - a.astype(np.longdouble))
    else:
        left, right = (array.astype(np.int64 if e.dtype.kind == "i" else np.uint64) for array in (e, a))
        # Modulo 2**64 the difference of two int64 is right as an unsigned number.
        gaps = np.maximum(left, right).view(np.uint64) - np.minimum(left, right).view(np.uint64)
    return gaps.astype(np.float64), np.abs(e.astype(np.float64))


def largest(array: object) -> float:
    """Return the largest finite ``|value|``, 0 of none: an infinite mask is no bound."""
    values = np.asarray(array)
    values = np.abs(values) if values.dtype.kind == "c" else values
    if not values.size:
        return 0.0
    # Both ends, since the absolute value of the least integer is no such integer.
    ends = float(values.max()), float(values.min())
    if not all(map(isfinite, ends)):
        finite = values[np.isfinite(values)]
        return largest(finite) if finite.size else 0.0
    return max(map(abs, ends))


def common_factor(expected: Array, actual: Array) -> float | None:
    """Return k where ``actual`` is k times ``expected`` at every element that counts, else None."""
    counts = np.abs(expected) > 1e-3 * largest(expected)
    if not counts.any() or not np.isfinite(actual).all():
        return None
    factors = np.asarray(actual, dtype=np.float64)[counts] / np.asarray(expected, dtype=np.float64)[counts]
    middle = float(np.median(factors))
    alike = np.abs(factors - middle) <= ROUGH * abs(middle)
    return middle if isfinite(middle) and bool(alike.all()) else None
