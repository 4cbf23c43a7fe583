"""The gradients of all parameters of two models, whatever the models call them and in which order they keep elements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.differences import distance, rms
from tipchain.parity.locate.layer_pairs import print_of
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.rounding import NOISE

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Parameter:
    """A parameter's values and its gradient, zero-copy; ``gradient`` is None where there is none."""

    values: Array
    gradient: Array | None


def parameters_of(side: LiveSide, model: Any) -> list[Parameter]:
    """Return the parameters of a model that take gradients, each once."""
    found = ((one, side.framework.gradient(one)) for _, one in side.parameters(model))
    return [
        Parameter(side.view(one), None if gradient is None else side.view(gradient))
        for one, gradient in found
    ]


def alike(ours: Sequence[Parameter], theirs: Sequence[Parameter], tolerance: float, least: float) -> bool:
    """Tell whether every parameter of one model is one of the other's, with the same gradients.

    Those that hold the same values, in whatever order, belong together, and their gradients are compared in the order of
    their size: a layout of its own changes neither.

    Args:
        ours: the reference's.
        theirs: the port's.
        tolerance: relative RMS difference up to which gradients are the same.
        least: how small a gradient is, beside the largest, that may be zero but for rounding.
    """
    groups = _groups(ours), _groups(theirs)
    if groups[0].keys() != groups[1].keys():
        return False
    largest = max((rms(one) for found in groups[0].values() for one in found), default=0.0)
    for key, arrays in groups[0].items():
        if len(arrays) != len(groups[1][key]):
            return False
        sizes = [sqrt(sum(rms(one) ** 2 for one in found) / len(found)) for found in (arrays, groups[1][key])]
        # Sizes are no further apart than the arrays are, in whatever order: most that differ need no sorting.
        if not abs(sizes[0] - sizes[1]) <= (tolerance + NOISE) * max(sizes[0], least * largest):
            return False
    return all(
        distance(*(np.sort(np.concatenate(found)) for found in (arrays, groups[1][key])))
        <= tolerance * max(sqrt(sum(rms(one) ** 2 for one in arrays) / len(arrays)), least * largest)
        for key, arrays in groups[0].items()
    )


def _groups(parameters: Sequence[Parameter]) -> Mapping[Hashable, list[Array]]:
    """Return the gradients by what their parameters hold; none is as good as zeros."""
    found: dict[Hashable, list[Array]] = defaultdict(list)
    for one in parameters:
        flat = np.ascontiguousarray(one.values, np.float32).reshape(-1)  # float64 copies hold no more
        told = print_of(flat)
        constant = float(flat[0]) if flat.size and not told[1] else None
        gradient = np.zeros(flat.size) if one.gradient is None else one.gradient.reshape(-1)
        found[told, constant].append(gradient)
    return found
