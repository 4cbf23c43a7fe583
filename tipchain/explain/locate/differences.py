"""How far two tensors of two frameworks are apart, whatever the order of their axes and however they are flattened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf, isfinite, prod, sqrt
from typing import cast

import numpy as np

from tipchain.framework_types import Array
from tipchain.numbers.tolerance import TINY
from tipchain.weights.structure import joins, squeezed

Axes = tuple[int, ...]
MOST_AXES = 6
"""Axes of a tensor whose orders are tried: 6! = 720 of them, a limit on the search."""
BLOCK = 2**13
"""Elements that are read at a time; BLAS starts threads for a product of 10,000, which costs more than the product."""
FAINT = 1e-30
"""Mean of squares from which on float32 has each square that counts: its least is a hundred millionth of that."""
PROJECTIONS = 4
"""Random vectors by which large matrices are projected; see `projections`."""
TILE = 128
"""Rows and columns of a matrix that are read at a time where another one's elements lie the other way round: both are in a cache."""


def rms(array: Array) -> float:
    """Return the root of the mean squared magnitude, in float64; 0 for an empty array, inf where it is not finite."""
    array = np.asarray(array)
    with np.errstate(over="ignore", invalid="ignore"):
        flat = _flat(array)
        total = inf if flat is None else _squares(*flat)
        if not _told(total, array):
            total = sum(float(values.dot(values)) for (values,) in _blocks(array))
    return root(total, array.size)


def distance(expected: Array, actual: Array) -> float:
    """Return the RMS of the difference of two arrays; inf of other shapes, and where NaN or Inf do not stand alike."""
    if expected.shape != actual.shape:
        return inf
    if expected.dtype.kind in "biu" and actual.dtype.kind in "biu":
        return rms(expected != actual)
    if (expected.dtype.kind == "c") != (actual.dtype.kind == "c"):
        expected, actual = expected.astype(np.complex128), actual.astype(np.complex128)
    with np.errstate(invalid="ignore", over="ignore"):
        flat = _flat(expected, actual)
        total = inf if flat is None else sum(map(_squares, _apart(*flat)))
        if _told(total, expected, actual):
            return root(total, expected.size)
        if not total and equal(expected, actual):
            return 0.0
        total, room = 0.0, np.empty(max(BLOCK, TILE**2))
        across = _lie_across(expected, actual) and "c" not in (expected.dtype.kind, actual.dtype.kind)
        for ours, theirs in _tiles(expected, actual) if across else _blocks(expected, actual):
            apart = room[: ours.size]
            np.subtract(theirs, ours, out=apart.reshape(ours.shape), dtype=np.float64, casting="unsafe")
            square = _squares(apart)
            if not isfinite(square):
                odd = ~np.isfinite(apart)
                if not np.array_equal(ours.reshape(-1)[odd], theirs.reshape(-1)[odd], equal_nan=True):
                    return inf
                square = _squares(apart[~odd])
            total += square
    return root(total, expected.size)


def projections(array: Array) -> Array:
    """Return random projections of a large matrix's columns, shape ``[PROJECTIONS, columns]``: their RMS is about the matrix's.

    BLAS reads a matrix by rows or by columns in less than half the time that comparing elements takes. One projection misses
    a difference of one rank that is ``k`` times a limit with a probability of ``1/k``; float32's rounding, 2**8 times as
    large as `SAME_DOUBLE`, is missed by all once in 2**32.

    Args:
        array: float64; all axes but the first count as one.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(_vectors(len(array)) @ array.reshape(len(array), -1))


def projections_of_product(gradient: Array, given: Array) -> Array:
    """Return the `projections` of a linear weight's gradient, of its input and output's gradient.

    Args:
        gradient: float64, its last axis that of the matrix's rows.
        given: float64, its last axis that of the matrix's columns.
    """
    rows = projections(gradient.reshape(-1, gradient.shape[-1]).T)
    return np.asarray(rows @ given.reshape(-1, given.shape[-1]))


def projections_of_convolution(gradient: Array, given: Array, kernel: Axes, strides: Axes, pads: Axes) -> Array:
    """Return the `projections` of a convolution's weight's gradient likewise: of one group, without dilation.

    Args:
        gradient: float64; its axes are those of samples, of channels and of space.
        given: float64, likewise.
        kernel: the weight's sizes along the axes of space.
        strides: along these.
        pads: how many zeros stand before and behind the elements along these.
    """
    count, channels, *sizes = gradient.shape
    with np.errstate(invalid="ignore", over="ignore"):
        rows = _vectors(channels) @ gradient.reshape(count, channels, -1)
        given = np.pad(given, ((0, 0), (0, 0), *((one, one) for one in pads))) if any(pads) else given
        made = np.empty((*kernel, PROJECTIONS, given.shape[1]))
        for place in np.ndindex(*kernel):
            ends = zip(place, sizes, strides, strict=True)
            cut = tuple(slice(at, at + step * (size - 1) + 1, step) for at, size, step in ends)
            seen = given[(slice(None), slice(None), *cut)]
            made[place] = (rows @ seen.reshape(*seen.shape[:2], -1).swapaxes(1, 2)).sum(0)
    return np.moveaxis(made, (-2, -1), (0, 1)).reshape(PROJECTIONS, -1)


def _vectors(length: int) -> Array:
    vectors: Array = np.random.default_rng(0).standard_normal((PROJECTIONS, length)) / sqrt(length)
    return vectors


def equal(expected: Array, actual: Array, *, equal_nan: bool = False) -> bool:
    """Tell whether two arrays have one shape and equal elements, however they lie in memory."""
    if expected.shape != actual.shape:
        return False
    pairs = _tiles(expected, actual) if _lie_across(expected, actual) else ((expected, actual),)
    return all(np.array_equal(one, other, equal_nan=equal_nan) for one, other in pairs)


def side_by_side(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the elements of two arrays of one shape in float64, in some order, few enough at a time for a cache."""
    if not _lie_across(one, other):
        yield from _blocks(one, other)  # type: ignore[misc]
        return
    for tile, tile_of_other in _tiles(one, other):
        yield np.asarray(tile, np.float64).reshape(-1), np.asarray(tile_of_other, np.float64).reshape(-1)


def _blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the elements of arrays of one shape in float64, side by side, few enough at a time for a cache."""
    if not arrays[0].size:
        return
    arrays = tuple(  # of complex numbers the real and imaginary parts side by side
        np.ascontiguousarray(one).reshape(-1).view(one.real.dtype) if one.dtype.kind == "c" else one for one in arrays
    )
    if all(one.size <= BLOCK and one.dtype == np.float64 and one.flags.c_contiguous for one in arrays):
        yield tuple(one.reshape(-1) for one in arrays)
        return
    buffered = np.nditer(
        arrays,
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"]] * len(arrays),
        op_dtypes=[np.dtype(np.float64)] * len(arrays),
        casting="unsafe",
        order="K",
        buffersize=BLOCK,
    )
    for found in buffered:
        yield found if len(arrays) > 1 else (cast(Array, found),)


def _flat(*arrays: Array) -> tuple[Array, ...] | None:
    """Return arrays of one shape flat, not copied, if all are float32 or float64 and lie in memory in one order; else None."""
    if any(one.dtype.char not in "fd" for one in arrays):
        return None
    if all(one.flags.c_contiguous for one in arrays):
        return tuple(one.reshape(-1) for one in arrays)
    return tuple(one.T.reshape(-1) for one in arrays) if all(one.flags.f_contiguous for one in arrays) else None


def _apart(expected: Array, actual: Array) -> Iterator[Array]:
    """Yield the differences of flat arrays, few at a time; of float32 in float32, which is off by a unit in its last place."""
    room = np.empty(min(expected.size, BLOCK), np.result_type(expected, actual))
    for start in range(0, expected.size, BLOCK):
        ours = expected[start : start + BLOCK]
        yield np.subtract(actual[start : start + BLOCK], ours, out=room[: ours.size])


def _told(total: float, *arrays: Array) -> bool:
    """Tell whether a sum of squares is exact: no overflow of float32, no underflow."""
    return isfinite(total) and (total > FAINT * arrays[0].size or any(one.dtype.char == "d" for one in arrays))


def _lie_across(one: Array, other: Array) -> bool:
    flags = one.flags, other.flags
    return one.ndim == 2 and (
        (flags[0].c_contiguous and flags[1].f_contiguous and not flags[1].c_contiguous)
        or (flags[0].f_contiguous and flags[1].c_contiguous and not flags[0].c_contiguous)
    )


def _tiles(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Yield two matrices of one shape tile by tile.

    The second's is copied as it lies: its own rows are often a power of two apart, which fall on the same lines of a cache.
    """
    rows, columns = one.shape
    for row in range(0, rows, TILE):
        for column in range(0, columns, TILE):
            place = slice(row, row + TILE), slice(column, column + TILE)
            yield one[place], other[place].copy(order="K")


def _squares(values: Array) -> float:
    parts = (values[start : start + BLOCK] for start in range(0, values.size, BLOCK))
    return sum(float(one.dot(one)) for one in parts)


def root(total: float, size: int) -> float:
    """Return the root of a sum of squares over the number of elements; inf where it is not finite."""
    if not isfinite(total):
        return inf
    return sqrt(total / size) if size else 0.0


def relative(expected: Array, actual: Array) -> float:
    """Return `distance` over the expected array's RMS; of zeros any other array is inf away."""
    apart = distance(expected, actual)
    if not apart:
        return 0.0
    scale = finite_rms(expected)
    return apart / scale if scale else inf


def finite_rms(array: Array) -> float:
    """Return the RMS of an array, of one with NaN or Inf that of its other elements."""
    scale = rms(array)
    return rms(array[np.isfinite(array)]) if scale == inf and array.dtype.kind in "fc" else scale


def arrange(expected: Array, actual: Array) -> Axes | None:
    """Return the order of ``expected``'s axes in which it has the shape of ``actual`` and is closest to it.

    Returns:
        None where no order gives the shape.
    """
    if expected.shape == actual.shape:
        return tuple(range(expected.ndim))
    found = list(orders(expected.shape, actual.shape))
    if len(found) <= 1:
        return found[0] if found else None
    return min(found, key=lambda axes: distance(expected.transpose(axes), actual))


def relative_arranged(expected: Array, actual: Array) -> float:
    """Return `relative` with the expected array's axes in the closest order; inf where none fits."""
    axes = arrange(expected, actual)
    return inf if axes is None else relative(expected.transpose(axes), actual)


def orders(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[Axes]:
    """Yield the orders of the axes of one shape that give another."""
    if sorted(shape) != sorted(wanted) or len(shape) > MOST_AXES:
        return
    for axes in permutations(range(len(shape))):
        if tuple(shape[axis] for axis in axes) == wanted:
            yield axes


@dataclass(frozen=True, slots=True)
class PortLayout:
    """How the port lays out a tensor of the reference's: cut into axes, permuted, and merged; or repeated.

    Attributes:
        expected: the reference's shape.
        split: what that is reshaped to.
        axes: the order in which the axes of that come.
        actual: the port's shape. Where it has several along an axis that is 1 before, the port repeats the tensor; where
            it has 1 and the reference several, the reference does.
    """

    expected: tuple[int, ...]
    split: tuple[int, ...]
    axes: Axes
    actual: tuple[int, ...]

    @property
    def plain(self) -> bool:
        """Whether it changes nothing."""
        return self.expected == self.actual == self.split and self.axes == tuple(range(len(self.axes)))

    @property
    def permutes(self) -> bool:
        """Whether it is nothing but another order of axes."""
        return self.split == self.expected and self.turned == self.actual

    @property
    def turned(self) -> Axes:
        """The shape of the cut tensor with its axes in their order."""
        return tuple(self.split[axis] for axis in self.axes)

    def apply(self, array: Array) -> Array:
        """Return an array of the reference's as the port lays it out; of another order of axes, one sample may do."""
        if self.permutes:
            return array.transpose(self.axes)
        made = self._reduced(self._moved(array), first=True)
        return np.broadcast_to(made, self.actual) if made.shape != self.actual else made

    def apply_gradient(self, gradient: Array) -> Array:
        """Return the gradients at the port's backward's start: repeated tensors share theirs, summed."""
        made = self._reduced(self._moved(gradient))
        if made.shape == self.actual:
            return made
        return np.broadcast_to(made / (prod(self.actual) / made.size), self.actual)

    def back(self, array: Array) -> Array:
        """Return an array of the port's as the reference lays it out; of one that does not fit, the array itself."""
        if self.permutes and array.ndim == len(self.axes):
            return array.transpose(np.argsort(self.axes))
        if array.shape != self.actual:
            return array
        made = self._unmoved(array[self._first(self._axes(), self.actual)])
        return np.broadcast_to(made, self.expected) if made.shape != self.expected else made

    def shared(self, gradient: Array) -> Array:
        """Return a reference's gradient with its shares of a tensor's copies added up."""
        return self._unmoved(self._reduced(self._moved(gradient)))

    def back_shared(self, gradient: Array) -> Array:
        """Return a gradient of the port's likewise, laid out as the reference's; see `shared`."""
        if gradient.shape != self.actual:
            return gradient
        axes = self._axes()
        repeated = tuple(n for n, size in enumerate(axes) if size == 1 != self.actual[n])
        return self._unmoved(gradient.sum(repeated, keepdims=True) if repeated else gradient)

    def _axes(self) -> tuple[int, ...]:
        """Return the shape of the reference's tensor in the port's order; that of the port where it only merges axes."""
        return self.turned if prod(self.turned) != prod(self.actual) else self.actual

    def _moved(self, array: Array) -> Array:
        return array.reshape(self.split).transpose(self.axes).reshape(self._axes())

    def _unmoved(self, array: Array) -> Array:
        if array.size == prod(self.turned):
            return array.reshape(self.turned).transpose(np.argsort(self.axes)).reshape(self.expected)
        return array.reshape(array.shape[array.ndim - len(self.expected) :])

    def _reduced(self, array: Array, *, first: bool = False) -> Array:
        """Return an array with the axes cut to 1 along which only the reference has several: the ``first``, or their sum."""
        several = tuple(n for n, size in enumerate(self.actual) if size == 1 != array.shape[n])
        if not several:
            return array
        if first:
            return array[self._first(self.actual, array.shape)]
        return np.asarray(array.sum(several, keepdims=True))

    def _first(self, wanted: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
        return tuple(slice(0, 1) if one == 1 != size else slice(None) for one, size in zip(wanted, shape, strict=True))


def squeezed_as(array: Array, shape: tuple[int, ...]) -> Array:
    """Return an array in a shape that differs by axes of 1 alone; any other array as it is."""
    return array.reshape(shape) if squeezed(array.shape) == squeezed(shape) else array


ALIKE = 0.5
"""Relative distance of centred arrays below which they are laid out alike: of unrelated ones it is the root of 2."""


def plain(shape: tuple[int, ...]) -> PortLayout:
    """Return the layout that changes nothing."""
    return PortLayout(shape, shape, tuple(range(len(shape))), shape)


def layouts(expected: tuple[int, ...], actual: tuple[int, ...]) -> list[PortLayout]:
    """Return the layouts between two shapes: axis orders, or else merged, cut or repeated axes."""
    if expected == actual:
        return [plain(expected)]
    found = [PortLayout(expected, expected, axes, actual) for axes in orders(expected, actual)]
    if found or not expected or not actual:
        return found
    if prod(expected) == prod(actual):
        if max(len(expected), len(actual)) > MOST_AXES:
            return []
        merged = (PortLayout(expected, expected, axes, actual) for axes in permutations(range(len(expected))))
        cuts = ((axes, np.argsort(axes).tolist()) for axes in permutations(range(len(actual))))
        cut = (PortLayout(expected, tuple(actual[n] for n in back), axes, actual) for axes, back in cuts)
        found = [one for one in merged if _merges(one.turned, actual)]
        return [*found, *(one for one in cut if _merges(one.split, expected))]
    rank = len(actual)
    padded = (1,) * (rank - len(expected)) + expected  # as arithmetic would
    if len(padded) == rank and all(1 in pair or pair[0] == pair[1] for pair in zip(padded, actual, strict=True)):
        return [PortLayout(expected, padded, tuple(range(rank)), actual)]
    return []


def _merges(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Tell whether axes next to each other, taken together, give the other shape; axes of 1 count for nothing."""
    sizes, others = squeezed(shape), squeezed(wanted)
    return len(sizes) >= len(others) and joins(sizes, others)


def laid_out(expected: Array, actual: Array) -> PortLayout | None:
    """Return how ``actual`` lays out the tensor that is ``expected``: the closest of the layouts that fit.

    Other orders of axes are told by the shape; what merges or cuts axes, by the values.

    Returns:
        None where none fits.
    """
    found = layouts(expected.shape, actual.shape)
    if not found or (len(found) == 1 and (found[0].permutes or prod(found[0].expected) != prod(actual.shape))):
        return found[0] if found else None
    if found[0].permutes:
        return min(found, key=lambda one: distance(one.apply(expected), actual))
    if actual.dtype.kind not in "fc":
        return next((one for one in found if np.array_equal(one.apply(expected), actual)), None)
    ours, theirs = expected - expected.mean(), actual - actual.mean()
    scale = rms(ours)
    if not isfinite(scale) or not scale:
        return next((one for one in found if not distance(one.apply(expected), actual)), None)
    apart, best = min(((distance(one.apply(ours), theirs), one) for one in found), key=lambda each: each[0])
    return best if apart <= ALIKE * scale else None


HIDING = -1e4
"""Largest addend that hides scores: half precision, down to -65504, must hold it."""


def hidden_by(array: Array) -> Array | None:
    """Return a mask's hidden places, by flags or low scores; None of other arrays."""
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind != "f" or not array.size:
        return None
    hidden = array <= HIDING
    return hidden if hidden.any() and not array[~hidden].any() else None


def same_mask(one: Array, other: Array) -> bool | None:
    """Tell whether two masks hide the same, in any form and shape; None: no masks."""
    hidden, others = hidden_by(one), hidden_by(other)
    if hidden is None or others is None:
        return None
    try:
        ours, theirs = np.broadcast_arrays(hidden, others)
    except ValueError:
        return None
    flags = "b" in (one.dtype.kind, other.dtype.kind)
    return bool((ours == theirs).all() or (flags and (ours != theirs).all()))


class Sketch:
    """A few numbers about an array that do not depend on the order of its elements."""

    def __init__(self, array: Array) -> None:
        self.size = array.size
        kind = np.complex128 if array.dtype.kind == "c" else np.float64
        values = np.ascontiguousarray(array.reshape(-1), kind).view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            self.numbers = np.zeros(4)
            if values.size:
                mean, square = values.sum() / values.size, np.dot(values, values) / values.size
                self.numbers = np.array([values.min(), values.max(), mean, square])

    def close(self, other: Sketch, tolerance: float) -> bool:
        """Tell whether both may be of the same values; NaN is close to nothing."""
        return self.size == other.size and bool(_near(other.numbers[None], self.numbers, tolerance)[0])


class Sketches:
    """Sketches of arrays of equal size, sorted by their smallest value."""

    def __init__(self, sketches: Sequence[Sketch], tolerance: float) -> None:
        numbers = np.stack([one.numbers for one in sketches])
        self.tolerance, self.order = tolerance, np.argsort(numbers[:, 0], kind="stable")
        self.numbers = numbers[self.order]

    def close(self, one: Sketch) -> list[int]:
        """Return the places of those that may be of the same values as another; NaN is close to nothing."""
        within = 2 * self.tolerance * np.sqrt(one.numbers[3])
        least, column = one.numbers[0], self.numbers[:, 0]
        near = slice(np.searchsorted(column, least - within), np.searchsorted(column, least + within, "right"))
        return sorted(self.order[near][_near(self.numbers[near], one.numbers, self.tolerance)].tolist())


def _near(rows: Array, numbers: Array, tolerance: float) -> Array:
    scales = np.sqrt(np.maximum(numbers[3], rows[:, 3]))[:, None]
    apart = np.abs(rows - numbers)
    apart[:, 3:] /= np.maximum(scales, TINY)
    return np.asarray((apart <= tolerance * scales).all(1))
