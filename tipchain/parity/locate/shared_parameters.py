"""The gradients of paired layers' parameters, as both models' whole runs left them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import WeightsError
from tipchain.parity.locate.all_parameters import alike, parameters_of
from tipchain.parity.locate.differences import Layout, distance, equal, layouts, plain, rms, squeezed_as
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.pair_replays import Models
from tipchain.parity.locate.trace import Call
from tipchain.parity.rounding import ROUGH, SAME_SINGLE

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Shared:
    """A parameter of a pair of layers: how far its gradients are apart, RMS, and the reference's RMS."""

    pair: CallPair
    name: str
    apart: float
    size: float


@dataclass(frozen=True, slots=True)
class Laid:
    """Where a layer of the port keeps a parameter of the reference's, and how."""

    name: str
    layout: Layout

    def arranged(self, gradients: Mapping[str, Array]) -> Array | None:
        """Return its gradient as the reference's layer has it."""
        found = gradients.get(self.name)
        return None if found is None else self.layout.back(found)


def _values_of(models: Models, call: Call) -> Mapping[str, Array]:
    try:
        return dict(models.side.framework.parameters(call.layer, {}, shared=True))
    except WeightsError:
        return {}


def _find(name: str, values: Array, others: Mapping[str, Array]) -> Laid | None:
    """Return which array holds the same values in another layout: the one of that name, or the only one."""
    told = [
        Laid(other, layout)
        for other, array in others.items()
        for layout in _other_layouts(values.shape, array.shape)
        if _holds(layout, values, array)
    ]
    named = [one for one in told if one.name == name]
    return next(iter(named or (told if len({one.name for one in told}) == 1 else [])), None)


def _other_layouts(expected: tuple[int, ...], actual: tuple[int, ...]) -> Sequence[Layout]:
    if expected != actual:
        return layouts(expected, actual)
    orders = permutations(range(len(expected)))
    return [
        Layout(expected, expected, axes, actual)
        for axes in orders
        if tuple(expected[axis] for axis in axes) == actual
    ]


def _holds(layout: Layout, expected: Array, actual: Array) -> bool:
    return expected.size == actual.size and equal(layout.apply(expected), actual)


class SharedParameters:
    """Compares them once, before layers are run again and overwrite them.

    Args:
        models: both, in float64.
        pairs: the layers that belong together.
    """

    def __init__(self, models: tuple[Models, Models], pairs: Iterable[CallPair]) -> None:
        self._models = models
        self._found: list[Shared] = []
        self._largest: dict[int, float | None] = {}
        self._layouts: dict[int, Mapping[str, Laid]] = {}
        for pair in pairs:
            self._largest[pair.port.number] = self._compare(pair)

    def largest(self, pair: CallPair) -> float | None:
        """Return how far the gradients of a pair's parameters are apart, relative; None where there are none."""
        return self._largest.get(pair.port.number)

    def beyond(self, tolerance: float) -> Sequence[Shared]:
        """Return those that are further apart than that; a gradient that is next to nothing has no scale of its own."""
        least = SAME_SINGLE * max((one.size for one in self._found), default=0.0)
        return [one for one in self._found if not one.apart <= tolerance * max(one.size, least)]

    def apart(self) -> float:
        """Return how far the gradients of a parameter are apart at most, relative; inf where none could be compared."""
        least = SAME_SINGLE * max((one.size for one in self._found), default=0.0)
        sizes = [(one.apart, max(one.size, least)) for one in self._found]
        return max((apart / size if size else (inf if apart else 0.0) for apart, size in sizes), default=inf)

    def unlike(self, pairs: Iterable[CallPair], tolerance: float) -> Iterator[Shared]:
        """Yield the parameters of layers' own, of one name on both sides, whose gradients differ or only one side has.

        Args:
            pairs: calls in whose layers they are; not what is in the layers inside.
            tolerance: relative difference that does not count.
        """
        least = SAME_SINGLE * max((one.size for one in self._found), default=0.0)
        for pair in pairs:
            calls = tuple(zip(self._models, (pair.reference, pair.port), strict=True))
            trained = [{name for name, _ in model.side.parameters(call.layer)} for model, call in calls]
            own = sorted(name for name in trained[0] & trained[1] if "." not in name)
            if not own:
                continue
            ours, theirs = (model.side.parameter_gradients(call.layer) for model, call in calls)
            for name in own:
                one, other = (ours or {}).get(name), (theirs or {}).get(name)
                one = np.zeros_like(other) if one is None and other is not None else one
                other = np.zeros_like(one) if other is None and one is not None else other
                if one is None or other is None or one.shape != other.shape:
                    continue
                apart, size = distance(one, other), rms(one)
                if apart > tolerance * max(size, least, rms(other)):
                    yield Shared(pair, name, apart, size)

    def alike(self, tolerance: float) -> bool:
        """Tell whether the gradients of all parameters agree: layer by layer, or else however models arrange them."""
        if self._found and not self.beyond(tolerance):
            return True
        ours, theirs = (
            [] if one.double is None else parameters_of(one.side, one.double.whole) for one in self._models
        )
        return alike(ours, theirs, tolerance, SAME_SINGLE)

    def _compare(self, pair: CallPair) -> float | None:
        ours, theirs = (
            one.side.parameter_gradients(call.layer)
            for one, call in zip(self._models, (pair.reference, pair.port), strict=True)
        )
        if ours is None or theirs is None or not (ours or theirs):
            return None
        calls = pair.reference, pair.port
        trained = [bool(one.side.parameters(call.layer)) for one, call in zip(self._models, calls, strict=True)]  # fmt: skip
        if not all(trained):  # frozen: the pre-flight tells
            return None
        if not ours:  # the reference cuts it off
            extra = {name: rms(one) for name, one in theirs.items()}
            self._found += [Shared(pair, name, size, 0.0) for name, size in extra.items()]
            return inf if any(extra.values()) else 0.0
        sizes = {name: rms(one) for name, one in ours.items()}
        if not theirs:  # cut off: as good as zeros
            self._found += [Shared(pair, name, size, size) for name, size in sizes.items()]
            return inf if any(sizes.values()) else 0.0
        return self._apart(pair, ours, theirs, sizes)

    def _apart(
        self,
        pair: CallPair,
        ours: Mapping[str, Array],
        theirs: Mapping[str, Array],
        sizes: Mapping[str, float],
    ) -> float:
        least, found = SAME_SINGLE * max(sizes.values()), []
        for name, one in ours.items():
            apart = self._between(one, theirs.get(name))
            size = max(sizes[name], least)
            if apart is None or apart > ROUGH * size:
                told = self.layouts(pair).get(name)
                again = None if told is None else self._between(one, told.arranged(theirs))
                apart = apart if again is None else again
            if apart is not None:
                self._found.append(Shared(pair, name, apart, sizes[name]))
                found.append(0.0 if not apart else apart / size if size else inf)
        return max(found, default=0.0)

    def _between(self, one: Array, other: Array | None) -> float | None:
        if other is None:
            return None
        other = squeezed_as(other, one.shape)
        return distance(one, other) if one.shape == other.shape else inf

    def known_layouts(self, pair: CallPair) -> Mapping[str, Laid]:
        """Return the same as `layouts`, or nothing where the gradients gave no reason to ask."""
        return self._layouts.get(pair.port.number, {}) if self._largest else self.layouts(pair)

    def layouts(self, pair: CallPair) -> Mapping[str, Laid]:
        """Return how the port's layer keeps each parameter of the reference's that it keeps otherwise: their values tell.

        Nothing of a container, whose layers are in pairs of their own.
        """
        number = pair.port.number
        if pair.whole:
            return {}
        if number not in self._layouts:
            ours, theirs = (
                _values_of(one, call)
                for one, call in zip(self._models, (pair.reference, pair.port), strict=True)
            )
            same = {
                name
                for name, one in ours.items()
                if name in theirs and _holds(plain(one.shape), one, theirs[name])
            }
            rest = {name: other for name, other in theirs.items() if name not in same}
            self._layouts[number] = {
                name: found
                for name, one in ours.items()
                if name not in same and (found := _find(name, one, rest)) is not None
            }
        return self._layouts[number]
