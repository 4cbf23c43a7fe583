"""A thousandth of an array that tells how far it is from another one.

Random projections keep distances (Johnson and Lindenstrauss 1984): the array's elements are cut into rows, and each row is
multiplied by one vector of random numbers of unit variance. The mean square of what comes out is, in expectation, that
of the array; so is that of the difference of two arrays.
"""

from __future__ import annotations

from functools import cache
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
ROW = 1021
"""Elements of a row: a prime, so that patterns of channels and pixels fall differently in every row."""


class Projected:
    """The projections of an array of floats.

    Args:
        array: of any shape; it is read once.
    """

    __slots__ = ("size", "values")

    def __init__(self, array: Array) -> None:
        flat = np.ascontiguousarray(array, np.float64).reshape(-1)
        vector, rows = _vector(), flat.size // ROW
        rest = flat[rows * ROW :]
        self.size = flat.size
        with np.errstate(over="ignore", invalid="ignore"):
            self.values = np.append(
                flat[: rows * ROW].reshape(rows, ROW) @ vector, rest @ vector[: rest.size]
            )

    @property
    def rms(self) -> float:
        """An estimate of the array's root mean square; inf where it is not finite."""
        return _root(self.values, self.size)

    def relative(self, actual: Projected) -> float:
        """Return an estimate of the RMS of the difference over that of this array; inf where a value is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            apart = _root(actual.values - self.values, self.size)
        if not apart:
            return 0.0
        scale = self.rms
        return apart / scale if scale and isfinite(scale) else inf


def _root(values: Array, size: int) -> float:
    total = float(values.dot(values))
    return sqrt(total / size) if isfinite(total) else inf


@cache
def _vector() -> Array:
    """Return the numbers that rows are multiplied by; what is the same in a whole row must not cancel out in them."""
    vector: Array = np.random.default_rng(ROW).standard_normal(ROW)
    vector += (sqrt(ROW) - vector.sum()) / ROW
    return vector
