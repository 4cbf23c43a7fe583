"""Tensors of two runs held against each other, each pair once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.differences import Axes, arrange, relative, rms
from tipchain.parity.locate.store import Store, Stored
from tipchain.parity.locate.trace import Value

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Link:
    """A tensor of the reference's call and the port's: their numbers, and the order of axes that the port has."""

    ours: int
    theirs: int
    axes: Axes


class Comparer:
    """Compares the tensors of two traces that one store holds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[int, int, Axes | None, bool], float] = {}
        self._sizes: dict[int, float] = {}

    def links(self, ours: Sequence[Value], theirs: Sequence[Value]) -> list[Link]:
        """Link the tensors of two calls in their order, those that have one shape up to the order of axes."""
        found, free = [], _once(theirs)
        for number in _once(ours):
            value = ours[number]
            for other in free:
                axes = self.axes(value, theirs[other])
                if axes is not None:
                    found.append(Link(number, other, axes))
                    free.remove(other)
                    break
        return found

    def axes(self, one: Value, other: Value) -> Axes | None:
        """Return the order of ``one``'s axes that ``other`` has; None where it has another shape or kind."""
        if one.dtype.kind != other.dtype.kind and "f" in (one.dtype.kind, other.dtype.kind):
            return None
        return self._order(one, other)

    def apart(self, ours: Sequence[Value], theirs: Sequence[Value], links: Sequence[Link]) -> float:
        """Return how far linked tensors are apart, the largest; inf where none could be linked."""
        if ours and theirs and not links:
            return inf
        return max(
            (self.between(ours[link.ours], theirs[link.theirs], link.axes) for link in links), default=0.0
        )

    def between(self, one: Value, other: Value, axes: Axes | None) -> float:
        """Return how far two tensors are apart; each pair is compared once."""
        key = id(one), id(other), axes, False
        if key not in self._known:
            order = axes if axes is not None else self._order(one, other)
            self._known[key] = inf if order is None else self._relative(one.stored, other.stored, order)
        return self._known[key]

    def _order(self, one: Value, other: Value) -> Axes | None:
        if one.shape == other.shape:
            return tuple(range(len(one.shape)))
        return arrange(self._store.get(one.stored), self._store.get(other.stored))

    def _relative(self, one: Stored, other: Stored, axes: Axes) -> float:
        """Return how far two arrays are apart, of those that are not held about how far."""
        if axes == tuple(range(len(one.shape))):
            if other.twin is one:
                return other.apart
            if one.outline is not None and other.outline is not None:
                return one.outline.projected.relative(other.outline.projected) + other.apart
        return relative(self._store.get(one).transpose(axes), self._store.get(other)) + other.apart

    def size(self, stored: Stored) -> float:
        """Return an array's RMS, of one that is not held about that."""
        held = stored.twin or stored
        if id(held) not in self._sizes:
            self._sizes[id(held)] = (
                rms(self._store.get(held)) if held.outline is None else held.outline.projected.rms
            )
        return self._sizes[id(held)]

    def gradient_size(self, value: Value) -> float:
        """Return the RMS of a tensor's gradient; 0 without one."""
        return 0.0 if value.gradient is None else self.size(value.gradient)

    def gradients_apart(self, one: Value, other: Value, axes: Axes) -> float:
        """Return how far the gradients of two tensors are apart; each pair is compared once."""
        if one.gradient is None or other.gradient is None:
            return 0.0 if one.gradient is other.gradient else inf
        key = id(one), id(other), axes, True
        if key not in self._known:
            self._known[key] = self._relative(one.gradient, other.gradient, axes)
        return self._known[key]


def _once(values: Sequence[Value]) -> list[int]:
    """Return the numbers of the values, a tensor that is given several times once."""
    return [number for number, value in enumerate(values) if value not in values[:number]]


def back(array: Array, axes: Axes) -> Array:
    """Return the port's array with its axes in the reference's order."""
    return array.transpose(np.argsort(axes)) if len(axes) == array.ndim else array
