"""Arrays of a trace: in memory up to a limit, beyond it memory-mapped; and sketches of them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

# A thousandth of an array that tells how far it is from another one.
#
# Random projections keep distances (Johnson and Lindenstrauss 1984): the array's elements are cut into rows, and each row is
# multiplied by one vector of random numbers of unit variance. The mean square of what comes out is, in expectation, that
# of the array; so is that of the difference of two arrays.


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
            self.values = np.append(flat[: rows * ROW].reshape(rows, ROW) @ vector, rest @ vector[: rest.size])

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


# Arrays of a trace: in memory up to a limit, beyond it memory-mapped, in a file without a name.
#
# Beyond a smaller limit an outline of large arrays can do: a sketch, and the first sample in float32. Then the whole ones
# are nowhere.


LIMIT = 2**30
"""Bytes that a store keeps in memory."""
ROOM = 2**26
"""Bytes of arrays that are held whole before outlines do: no more than a framework takes by being imported, and enough for a
small model, which is then never run again."""
LARGE = 2**16
"""Elements from which on an array is large."""


SPREAD = 2**16
"""Elements that errors of float32 are estimated from where float64 has compared them all."""


class NotHeld(Exception):  # noqa: N818  (it is no error: whoever asks runs the models again)
    """A whole array was asked for of which a store has an outline."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outline:
    """What is held of a large array instead of the whole.

    Attributes:
        projected: tells it from others.
        first: the first sample in float32, the axis of samples kept; None of a gradient.
        spread: some elements of the first sample in float64 (see `spread`); None of a gradient.
    """

    projected: Projected
    first: Array | None = None
    spread: Array | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StoredArray:
    """An array that a `Store` holds.

    Attributes:
        shape: its shape.
        dtype: its dtype.
        kept: the array, or None if it is in the file or not held.
        offset: where it begins there, in bytes.
        axis: the axis of samples; None where there is none.
        outline: what is held of it instead of the whole; None where the whole is.
        twin: what this is held as, since it is so close to it; None if it is held by itself.
        apart: how far it is from its twin, relative RMS.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    kept: Array | None = None
    offset: int = 0
    axis: int | None = None
    outline: Outline | None = None
    twin: StoredArray | None = None
    apart: float = 0.0


class Store:
    """Arrays in the order they come, those beyond ``limit`` bytes in an unnamed temporary file.

    The file is gone with the process, however that ends.

    Args:
        limit: bytes that are kept in memory.
        room: bytes that are held before outlines do.

    Attributes:
        samples: how many samples a batch has. Of large arrays with so many along an axis an outline is held where there is no
            room; None: all arrays are held.
        cut: whether there is an array of which only an outline is held.
    """

    def __init__(self, limit: int = LIMIT, room: int = ROOM) -> None:
        self.limit, self.room, self.held, self.written = limit, room, 0, 0
        self.samples: int | None = None
        self.cut = False
        self._file: Any = None

    def close(self) -> None:
        """Give up the arrays."""
        if self._file is not None:
            self._file.close()

    def forget(self) -> None:
        """Give up the arrays to hold others."""
        self.close()
        self._file, self.held, self.written, self.cut = None, 0, 0, False

    def put_as(self, twin: StoredArray, apart: float) -> StoredArray:
        """Take an array that is ``apart`` from one that is held already, without holding it a second time."""
        return replace(twin, twin=twin.twin or twin, apart=apart + twin.apart)

    def put(self, array: Array, *, gradient: bool = False) -> StoredArray:
        """Take the values of an array as they are now; ``gradient``: nobody will ask for its first sample.

        Raises:
            OSError: the disk that holds temporary files is full.
        """
        axis = self._axis(array.shape)
        large = array.size >= LARGE and array.dtype.kind == "f"
        if axis is not None and large and self.held + array.nbytes > self.room:
            self.cut = True
            outline = _gradient_of(array) if gradient else _outline_of(self._part(array, axis), array)
            return StoredArray(shape=array.shape, dtype=array.dtype, axis=axis, outline=outline)
        if not array.nbytes or self.held + array.nbytes <= self.limit:
            self.held += array.nbytes
            return StoredArray(shape=array.shape, dtype=array.dtype, kept=np.array(array), axis=axis)
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="tipchain-trace-")  # noqa: SIM115  (closed by close)
        offset = self.written
        self._file.seek(offset)
        np.ascontiguousarray(array).tofile(self._file)
        self.written += array.nbytes
        return StoredArray(shape=array.shape, dtype=array.dtype, offset=offset, axis=axis)

    def _axis(self, shape: tuple[int, ...]) -> int | None:
        """Return the axis of samples; of a shape that has none the first, if heads or windows may be folded into it."""
        if self.samples is None or not shape:
            return None
        if self.samples in shape:
            return shape.index(self.samples)
        return 0 if self.samples and shape[0] and shape[0] % self.samples == 0 else None

    def _part(self, array: Array, axis: int) -> Array:
        """Return the first sample, with all that is folded into its axis."""
        size = array.shape[axis] // (self.samples or array.shape[axis])
        return array[(slice(None),) * axis + (slice(0, size),)]

    def get(self, stored: StoredArray) -> Array:
        """Return an array; it must not be written to.

        Raises:
            NotHeld: the store has an outline of it.
        """
        if stored.outline is not None:
            raise NotHeld
        if stored.kept is not None:
            return stored.kept
        self._file.flush()
        return np.memmap(self._file, stored.dtype, "r", stored.offset, stored.shape)

    def projected(self, stored: StoredArray) -> Projected:
        """Return the projections of an array, held whole or not."""
        return Projected(self.get(stored)) if stored.outline is None else stored.outline.projected

    def has_nan(self, stored: StoredArray) -> bool:
        """Tell whether an array has NaN; of one that is not held, whether its projections do."""
        values = self.get(stored) if stored.outline is None else stored.outline.projected.values
        return values.dtype.kind in "fc" and bool(np.isnan(values).any())

    def first(self, stored: StoredArray) -> Array:
        """Return the first sample, the axis of samples kept, or the whole array where there is none.

        Raises:
            NotHeld: it is a gradient.
        """
        if stored.outline is None:
            array = self.get(stored)
            return array if stored.axis is None else self._part(array, stored.axis)
        if stored.outline.first is None:
            raise NotHeld
        return stored.outline.first

    def spread(self, stored: StoredArray) -> Array:
        """Return some elements of the first sample.

        Raises:
            NotHeld: it is a gradient.
        """
        if stored.outline is None:
            return spread(self.first(stored))
        if stored.outline.spread is None:
            raise NotHeld
        return stored.outline.spread


def spread(array: Array) -> Array:
    """Return at most some `SPREAD` elements, evenly spread; all of a smaller array."""
    if array.size <= SPREAD:
        return array.reshape(-1)
    step = array.size // SPREAD | 1
    return array.reshape(-1)[::step] if array.flags.c_contiguous else array.flat[::step]  # the whole is not copied


def _outline_of(part: Array, array: Array) -> Outline:
    return Outline(projected=Projected(array), first=part.astype(np.float32), spread=spread(part).astype(np.float64))


def _gradient_of(array: Array) -> Outline:
    return Outline(projected=Projected(array))
