"""Tensors of two runs held against each other, each pair once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tipchain.explain.locate.differences import PortLayout, finite_rms, laid_out, layouts, relative
from tipchain.explain.locate.matching import CallPair
from tipchain.explain.locate.trace import NotHeld, Store, StoredArray, TracedValue
from tipchain.numbers.tolerance import SAME_SINGLE


@dataclass(frozen=True, slots=True)
class TensorLink:
    """A tensor of the reference's call and the port's: their numbers, and how the port lays it out."""

    ours: int
    theirs: int
    layout: PortLayout


class Comparer:
    """Compares the tensors of two traces that one store holds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[int, int, PortLayout, bool], float] = {}
        self._layouts: dict[tuple[int, int], PortLayout | None] = {}
        self._sizes: dict[int, float] = {}

    def inputs(self, pair: CallPair) -> list[TensorLink]:
        """Link what two calls are given; see `links`."""
        ours, theirs = pair.reference, pair.port
        return self.links(ours.inputs, theirs.inputs, ours.input_names, theirs.input_names)

    def outputs(self, pair: CallPair) -> list[TensorLink]:
        """Link what two calls return; see `links`."""
        ours, theirs = pair.reference, pair.port
        return self.links(ours.outputs, theirs.outputs, ours.output_names, theirs.output_names)

    def results(
        self,
        ours: Sequence[TracedValue],
        theirs: Sequence[TracedValue],
        our_names: Sequence[str],
        their_names: Sequence[str],
    ) -> list[TensorLink]:
        """Link what two models return: place by place where they return the same structure, else as `links` does."""
        if list(our_names) != list(their_names):
            return self.links(ours, theirs, our_names, their_names)
        fitting = ((n, self.layout(*both)) for n, both in enumerate(zip(ours, theirs, strict=True)))
        return [TensorLink(n, n, layout) for n, layout in fitting if layout is not None]

    def links(
        self,
        ours: Sequence[TracedValue],
        theirs: Sequence[TracedValue],
        our_names: Sequence[str] = (),
        their_names: Sequence[str] = (),
    ) -> list[TensorLink]:
        """Link the tensors of two calls: by name, by position where all fit, else by values and shapes in their order.

        What only one side has is in no link.
        """
        left, free = self._told_apart(ours, theirs)
        found: list[TensorLink] = []

        def link(one: int, other: int) -> None:
            layout = self.layout(ours[one], theirs[other])
            if layout is not None:
                found.append(TensorLink(one, other, layout))
                left.remove(one)
                free.remove(other)

        words = [{_word(name): n for n, name in enumerate(names)} for names in (our_names, their_names)]
        for word, number in words[0].items():
            if word and number in left and words[1].get(word) in free:
                link(number, words[1][word])
        in_turn = len(left) == len(free) and all(
            self.layout(ours[one], theirs[other]) for one, other in zip(left, free, strict=True)
        )
        pairs = list(zip(left, free, strict=True)) if in_turn else self._aligned(ours, theirs, left, free)
        for one, other in pairs:
            link(one, other)
        for one in list(left):
            for other in (n for n in free if self.layout(ours[one], theirs[n]) is not None):
                link(one, other)
                break
        return sorted(found, key=lambda each: each.ours)

    def _told_apart(self, ours: Sequence[TracedValue], theirs: Sequence[TracedValue]) -> tuple[list[int], list[int]]:
        """Return the numbers of the tensors to be linked: all where they fit one by one, else one that is given twice once."""
        if len(ours) == len(theirs) and all(map(self.layout, ours, theirs)):
            return list(range(len(ours))), list(range(len(theirs)))
        return _once(ours), _once(theirs)

    def _aligned(
        self, ours: Sequence[TracedValue], theirs: Sequence[TracedValue], left: Sequence[int], free: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return the pairs of two sequences, both in order, of which most hold the same values, and then most fit."""
        scores = {
            (one, other): 0.0
            if self.layout(ours[one], theirs[other]) is None
            else 1.0 + (len(left) + len(free)) * self._same(ours[one], theirs[other])
            for one in left
            for other in free
        }
        best: dict[tuple[int, int], tuple[float, list[tuple[int, int]]]] = {}
        for i in range(len(left), -1, -1):
            for j in range(len(free), -1, -1):
                if i == len(left) or j == len(free):
                    best[i, j] = 0.0, []
                    continue
                pair = left[i], free[j]
                ways = [best[i + 1, j], best[i, j + 1]]
                if scores[pair]:
                    total, rest = best[i + 1, j + 1]
                    ways.insert(0, (total + scores[pair], [pair, *rest]))
                best[i, j] = max(ways, key=lambda way: way[0])
        return best[0, 0][1]

    def _same(self, one: TracedValue, other: TracedValue) -> bool:
        layout = self.layout(one, other)
        try:
            return layout is not None and self.between(one, other, layout) <= SAME_SINGLE
        except NotHeld:
            return False

    def layout(self, one: TracedValue, other: TracedValue) -> PortLayout | None:
        """Return how ``other`` lays out ``one``; None where it has another shape or kind."""
        if one.dtype.kind != other.dtype.kind and "f" in (one.dtype.kind, other.dtype.kind):
            return None
        key = id(one), id(other)
        if key not in self._layouts:
            fitting = layouts(one.shape, other.shape)
            told = not fitting or (len(fitting) == 1 and fitting[0].permutes)
            self._layouts[key] = (
                next(iter(fitting), None)
                if told
                else laid_out(self._store.get(one.stored), self._store.get(other.stored))
            )
        return self._layouts[key]

    def apart(self, ours: Sequence[TracedValue], theirs: Sequence[TracedValue], links: Sequence[TensorLink]) -> float:
        """Return how far linked tensors are apart, the largest; inf where none could be linked."""
        if ours and theirs and not links:
            return inf
        return max((self.between(ours[link.ours], theirs[link.theirs], link.layout) for link in links), default=0.0)

    def between(self, one: TracedValue, other: TracedValue, layout: PortLayout) -> float:
        """Return how far two tensors are apart; each pair is compared once."""
        key = id(one), id(other), layout, False
        if key not in self._known:
            self._known[key] = self._relative(one.stored, other.stored, layout)
        return self._known[key]

    def _relative(self, one: StoredArray, other: StoredArray, layout: PortLayout, *, gradient: bool = False) -> float:
        """Return how far two arrays are apart, of those that are not held about how far."""
        if layout.plain:
            if other.twin is one:
                return other.apart
            if one.outline is not None or other.outline is not None:
                return self._store.projected(one).relative(self._store.projected(other)) + other.apart
        ours, theirs = self._store.get(one), self._store.get(other)
        if gradient:
            return relative(layout.shared(ours), layout.back_shared(theirs)) + other.apart
        return relative(layout.apply(ours), theirs) + other.apart

    def nan_in_one(self, one: TracedValue, other: TracedValue) -> str:
        """Return what the port's tensor has where one of two alone has NaN; empty where both have some, or neither."""
        ours, theirs = (self._store.has_nan(each.stored) for each in (one, other))
        if ours == theirs:
            return ""
        return "NaN where the reference has none" if theirs else "no NaN where the reference has some"

    def size(self, stored: StoredArray) -> float:
        """Return the RMS of an array, of one with NaN or Inf that of its other elements, of one that is not held about that."""
        held = stored.twin or stored
        if id(held) not in self._sizes:
            self._sizes[id(held)] = (
                finite_rms(self._store.get(held)) if held.outline is None else self._store.projected(held).rms
            )
        return self._sizes[id(held)]

    def gradient_size(self, value: TracedValue) -> float:
        """Return the RMS of a tensor's gradient; 0 without one."""
        return 0.0 if value.gradient is None else self.size(value.gradient)

    def gradients_apart(self, one: TracedValue, other: TracedValue, layout: PortLayout) -> float:
        """Return how far the gradients of two tensors are apart; each pair is compared once."""
        if one.gradient is None or other.gradient is None:
            return 0.0 if one.gradient is other.gradient else inf
        key = id(one), id(other), layout, True
        if key not in self._known:
            self._known[key] = self._relative(one.gradient, other.gradient, layout, gradient=True)
        return self._known[key]


def _once(values: Sequence[TracedValue]) -> list[int]:
    """Return the numbers of the values, a tensor that is given several times once."""
    return [number for number, value in enumerate(values) if value not in values[:number]]


def _word(name: str) -> str:
    """Return the name of a tensor without the positions before it; empty where it has none but those."""
    parts = name.split(".")
    while parts and parts[0].isdigit():
        parts.pop(0)
    return ".".join(parts)
