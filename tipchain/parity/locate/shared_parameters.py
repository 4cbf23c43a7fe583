"""The gradients of paired layers' parameters, as both models' whole runs left them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy.typing as npt

from tipchain.parity.locate.all_parameters import alike, parameters_of
from tipchain.parity.locate.differences import distance, rms
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.pair_replays import Models
from tipchain.parity.locate.verdicts import NOTHING

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Shared:
    """A parameter of a pair of layers: how far its gradients are apart, RMS, and the reference's RMS."""

    pair: CallPair
    name: str
    apart: float
    size: float


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
        for pair in pairs:
            self._largest[pair.port.number] = self._compare(pair)

    def largest(self, pair: CallPair) -> float | None:
        """Return how far the gradients of a pair's parameters are apart, relative; None where there are none."""
        return self._largest.get(pair.port.number)

    def beyond(self, tolerance: float) -> Sequence[Shared]:
        """Return those that are further apart than that; a gradient that is next to nothing has no scale of its own."""
        least = NOTHING * max((one.size for one in self._found), default=0.0)
        return [one for one in self._found if not one.apart <= tolerance * max(one.size, least)]

    def apart(self) -> float:
        """Return how far the gradients of a parameter are apart at most, relative; inf where none could be compared."""
        least = NOTHING * max((one.size for one in self._found), default=0.0)
        sizes = [(one.apart, max(one.size, least)) for one in self._found]
        return max((apart / size if size else (inf if apart else 0.0) for apart, size in sizes), default=inf)

    def alike(self, tolerance: float) -> bool:
        """Tell whether the gradients of all parameters agree: layer by layer, or else however models arrange them."""
        if self._found and not self.beyond(tolerance):
            return True
        ours, theirs = (
            [] if one.double is None else parameters_of(one.side, one.double[""]) for one in self._models
        )
        return alike(ours, theirs, tolerance, NOTHING)

    def _compare(self, pair: CallPair) -> float | None:
        ours, theirs = (
            one.side.parameter_gradients(call.layer)
            for one, call in zip(self._models, (pair.reference, pair.port), strict=True)
        )
        if not ours or theirs is None:
            return None
        sizes = {name: rms(one) for name, one in ours.items()}
        if not theirs and not self._models[1].side.parameters(
            pair.port.layer
        ):  # frozen: the pre-flight tells
            return None
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
        largest, least = 0.0, NOTHING * max(sizes.values())
        for name, one in ours.items():
            other = theirs.get(name)
            if other is None or one.shape != other.shape:
                largest = largest if other is None else inf
                continue
            apart = distance(one, other)
            self._found.append(Shared(pair, name, apart, sizes[name]))
            if apart:
                size = max(sizes[name], least)
                largest = max(largest, apart / size if size else inf)
        return largest
