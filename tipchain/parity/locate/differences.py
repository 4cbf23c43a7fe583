"""How far two tensors of two frameworks are apart, whatever the order of their axes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import inf, isfinite, sqrt
from typing import Any, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Axes = tuple[int, ...]
MOST_AXES = 6
BLOCK = 2**13
"""Elements that are read at a time."""


def rms(array: Array) -> float:
    """Return the root of the mean squared magnitude, in float64; 0 for an empty array, inf where it is not finite."""
    array = np.asarray(array)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for (values,) in _blocks(array):
            total += float(values.dot(values))
    return _root(total, array.size)


def distance(expected: Array, actual: Array) -> float:
    """Return the RMS of the difference of two arrays of one shape; inf where NaN or Inf do not stand alike."""
    if expected.dtype.kind in "biu" and actual.dtype.kind in "biu":
        return rms(expected != actual)
    total, room = 0.0, np.empty(BLOCK)
    with np.errstate(invalid="ignore", over="ignore"):
        for ours, theirs in _blocks(expected, actual):
            apart = np.subtract(theirs, ours, out=room[: ours.size])
            square = float(apart.dot(apart))
            if not isfinite(square):
                odd = ~np.isfinite(apart)
                if not np.array_equal(ours[odd], theirs[odd], equal_nan=True):
                    return inf
                square = float(apart[~odd].dot(apart[~odd]))
            total += square
    return _root(total, expected.size)


def _blocks(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield the elements of arrays of one shape in float64, side by side, few enough at a time for a cache."""
    if not arrays[0].size:
        return
    arrays = tuple(_parts(one) for one in arrays)
    buffered = np.nditer(
        arrays, flags=["external_loop", "buffered"], op_flags=[["readonly"]] * len(arrays),
        op_dtypes=[np.dtype(np.float64)] * len(arrays), casting="unsafe", order="K", buffersize=BLOCK,
    )  # fmt: skip
    for found in buffered:
        yield found if len(arrays) > 1 else (cast(Array, found),)


def _parts(array: Array) -> Array:
    """Return the real and imaginary parts of complex numbers side by side; anything else as it is."""
    if array.dtype.kind != "c":
        return array
    return np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)


def _root(total: float, size: int) -> float:
    if not isfinite(total):
        return inf
    return sqrt(total / size) if size else 0.0


def relative(expected: Array, actual: Array) -> float:
    """Return `distance` over the RMS of what is expected; of zeros anything else is inf away."""
    apart = distance(expected, actual)
    if not apart:
        return 0.0
    scale = rms(expected)
    if scale == inf and expected.dtype.kind == "f":
        scale = rms(expected[np.isfinite(expected)])
    return apart / scale if scale else inf


def arrange(expected: Array, actual: Array) -> Axes | None:
    """Return the order of ``expected``'s axes in which it has the shape of ``actual`` and is closest to it.

    Returns:
        None where no order gives the shape.
    """
    if expected.shape == actual.shape:
        return tuple(range(expected.ndim))
    found = list(_orders(expected.shape, actual.shape))
    if len(found) <= 1:
        return found[0] if found else None
    return min(found, key=lambda axes: distance(expected.transpose(axes), actual))


def _orders(shape: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[Axes]:
    if sorted(shape) != sorted(wanted) or len(shape) > MOST_AXES:
        return
    for axes in permutations(range(len(shape))):
        if tuple(shape[axis] for axis in axes) == wanted:
            yield axes


class Sketch:
    """A few numbers about an array that do not depend on the order of its elements."""

    def __init__(self, array: Array) -> None:
        values = np.asarray(array, np.float64).reshape(-1)
        self.size = values.size
        with np.errstate(over="ignore", invalid="ignore"):
            self.numbers = (
                np.array(
                    [
                        values.min(),
                        values.max(),
                        values.sum() / values.size,
                        np.dot(values, values) / values.size,
                    ]
                )
                if values.size
                else np.zeros(4)
            )

    def close(self, other: Sketch, tolerance: float) -> bool:
        """Tell whether both may be of the same values; NaN is close to nothing."""
        if self.size != other.size:
            return False
        scale = np.sqrt(max(self.numbers[3], other.numbers[3]))
        apart = np.abs(self.numbers - other.numbers) / np.array([1, 1, 1, max(scale, 1e-300)])
        return bool((apart <= tolerance * scale).all())
