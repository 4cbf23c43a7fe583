"""The tensors of a program, found by their values: whole, in another layout, or as parts of one another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from tipchain.explain.locate.differences import (
    HIDING,
    MOST_AXES,
    Sketch,
    Sketches,
    hidden_by,
    orders,
    relative,
    same_mask,
)
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import SAME_DOUBLE

MOST_PARTS = 16
"""Places along axes at which a tensor is looked at by itself: gates, corners of a box, heads, steps of a short loop."""
MOST_ELEMENTS = 1 << 18
"""Elements of a tensor whose parts are looked at, at most."""
MOST_IN_ALL = 1 << 22
"""Elements of all those tensors."""


class ArrayIndex:
    """Arrays by their numbers, found by what they hold.

    Args:
        arrays: the arrays.
        tolerance: how far equal ones may be apart, relative to their RMS.
    """

    def __init__(self, arrays: Mapping[int, Array], tolerance: float) -> None:
        self.arrays, self.tolerance = arrays, tolerance
        self.sizes: dict[int, list[int]] = {}
        for number, one in arrays.items():
            self.sizes.setdefault(one.size, []).append(number)
        self._sketches = {
            size: Sketches([Sketch(arrays[one]) for one in some], max(tolerance, SAME_DOUBLE))
            for size, some in self.sizes.items()
        }
        self.masks = [number for number, one in arrays.items() if hidden_by(one) is not None]
        self._hiding = {number for number, one in arrays.items() if one.dtype.kind == "f" and (one <= HIDING).any()}

    def find(self, array: Array) -> tuple[int, ...]:
        """Return the arrays that hold the same, in whatever layout; of masks those that hide the same."""
        if not array.size:
            return ()
        hides, every = array.dtype.kind == "f" and bool((array <= HIDING).any()), self.sizes.get(array.size, [])
        if hides:
            close = [number for number in every if number in self._hiding]
        else:
            close = [every[one] for one in self._sketches[array.size].close(Sketch(array))] if every else []
        found = [one for one in close if self.same(self.arrays[one], array) or self._turned(self.arrays[one], array)]
        masked = self.masks if hides or array.dtype.kind == "b" else ()
        return tuple(dict.fromkeys([*found, *(one for one in masked if same_mask(self.arrays[one], array))]))

    def same(self, ours: Array, theirs: Array) -> bool:
        """Tell whether two arrays hold the same, in whatever layout."""
        ours, theirs = ours.squeeze(), theirs.squeeze()
        if ours.shape == theirs.shape:
            if ours.dtype.kind == theirs.dtype.kind == "f" and (ours <= HIDING).any():
                hidden = ours <= HIDING  # how far what is hidden is pushed down says nothing
                if not np.array_equal(hidden, theirs <= HIDING):
                    return False
                return relative(ours[~hidden], theirs[~hidden]) <= self.tolerance
            return relative(ours, theirs) <= self.tolerance
        if relative(ours.reshape(-1), theirs.reshape(-1)) <= self.tolerance:
            return True
        return any(relative(one, theirs) <= self.tolerance for one in arranged(ours, theirs.shape))

    def _turned(self, ours: Array, theirs: Array) -> bool:
        return any(
            relative(one, theirs.squeeze()) <= self.tolerance for one in turned(ours.squeeze(), theirs.squeeze())
        )

    def akin(self, array: Array, picked: Callable[[], bool] = lambda: False) -> set[int]:
        """Return the arrays that one is a part of, or that its parts are all among, and those of the other sign.

        What is ``picked`` out of another array is always a part: then it is compared with parts of complex numbers alone.
        """
        found = self._wholes(array)
        found.update(self.find(-array) if array.dtype.kind in "fc" and varies(array) else ())
        for group in parts(array):
            every = [{*self.find(one), *self._wholes(one)} for one in group]
            if all(every):
                found.update(*every)
        return {one for one in found if self.arrays[one].dtype.kind == "c"} if found and picked() else found

    def _wholes(self, array: Array) -> set[int]:
        pool, owners = self._parts
        return {owners[one] for one in pool.find(array)} if varies(array) else set()

    @cached_property
    def _parts(self) -> tuple[ArrayIndex, Sequence[int]]:
        """The parts of the arrays, and which array each is of."""
        found, owners, left = list[Array](), list[int](), MOST_IN_ALL
        for number, array in self.arrays.items():
            left -= array.size if array.size <= MOST_ELEMENTS else 0
            some = [one for group in parts(array) for one in group if varies(one)] if left > 0 else ()
            found += some
            owners += [number] * len(some)
        return ArrayIndex(dict(enumerate(found)), self.tolerance), owners


def turned(array: Array, like: Array) -> Iterator[Array]:
    """Yield an array of the shape of another with two axes, which are equally long, exchanged."""
    for one, other in combinations(range(array.ndim if array.shape == like.shape else 0), 2):
        if 1 < array.shape[one] == array.shape[other]:
            yield array.swapaxes(one, other)


def parts(array: Array) -> Iterator[list[Array]]:
    """Yield the real and the imaginary part, and what stands at each place along one or two short axes."""
    if not 0 < array.size <= MOST_ELEMENTS:
        return
    if array.dtype.kind == "c":
        yield [array.real, array.imag]
    short = [axis for axis, count in enumerate(array.shape) if 1 < count <= MOST_PARTS]
    for axes in (*((one,) for one in short), *combinations(short, 2)):
        places = [range(array.shape[axis]) for axis in axes]
        if array.ndim > len(axes) and np.prod([len(one) for one in places]) <= MOST_PARTS:
            moved = np.moveaxis(array, axes, range(len(axes)))
            yield [*moved.reshape(-1, *moved.shape[len(axes) :])]


def varies(array: Array) -> bool:
    """Tell whether an array is more than one number, or the same over and over, which says nothing of where it is from."""
    return array.size > 1 and bool((array != array.reshape(-1)[0]).any())


def arranged(array: Array, shape: Sequence[int], *, flat: bool = False) -> Iterator[Array]:
    """Yield an array in a shape: as it is, with its axes in another order, or, if ``flat``, by its order in memory."""
    if array.shape == tuple(shape):
        yield array
    elif sorted(array.shape) == sorted(shape) and array.ndim <= MOST_AXES:
        yield from map(array.transpose, orders(array.shape, tuple(shape)))
    elif flat and array.size == int(np.prod(shape)):
        yield array.reshape(shape)
