"""How the differences of a tensor's elements are distributed, in a few numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.differences import arrange, rms
from tipchain.parity.locate.store import Store, StoredArray
from tipchain.parity.locate.trace import Call
from tipchain.parity.locate.verdicts import LayerVerdict

if TYPE_CHECKING:  # a report is read where there is no framework
    from tipchain.parity.locate.locate import Located

Array = npt.NDArray[Any]
PER_DECADE = 4
"""Bins from one power of ten to the next."""
SMALLEST = -24
"""Differences below 10 to this power are counted in the first bin."""
MOST = 2**20
"""Elements that are counted of one tensor; of a larger one every k-th."""
TENSORS = 4
"""Tensors of one layer, or outputs of the model, that have a histogram."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """The absolute differences of a tensor's elements, counted in bins of equal width on a logarithmic scale.

    Attributes:
        what: which tensor it is.
        size: elements that were counted.
        every: 1, or k where only every k-th element was.
        same: elements that do not differ at all.
        odd: elements of which one side's, or the difference, is NaN or infinite.
        scale: the RMS of what is expected, in the tensor's own unit.
        first: where the first bin begins: 10 to the power of ``first / PER_DECADE``.
        counts: elements by bin, each a factor of 10 to the power of ``1 / PER_DECADE`` wide.
    """

    what: str
    size: int
    every: int
    same: int
    odd: int
    scale: float
    first: int
    counts: list[int]


def count(what: str, expected: Array, actual: Array) -> Histogram:
    """Return the histogram of the differences of two arrays of one shape; elements that both are NaN are the same."""
    every = max(1, -(-expected.size // MOST))
    ours, theirs = (one.reshape(-1)[::every] for one in (expected, actual))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(np.subtract(theirs, ours, dtype=np.float64))
    same = (ours == theirs) | (np.isnan(apart) & np.isnan(ours) & np.isnan(theirs))
    different = apart[~same & np.isfinite(apart)]
    places = np.floor(np.log10(np.maximum(different, 10.0**SMALLEST)) * PER_DECADE).astype(np.int64)
    first = int(places.min()) if places.size else 0
    scale = rms(ours)
    return Histogram(
        what=what, size=int(ours.size), every=every, same=int(same.sum()),
        odd=int(ours.size - same.sum() - different.size), scale=scale if isfinite(scale) else float("nan"), first=first,
        counts=np.bincount(places - first).tolist() if places.size else [],
    )  # fmt: skip


def count_all(located: Located, store: Store, first: LayerVerdict | None) -> list[Histogram]:
    """Return the histograms of the first divergence's tensors and of the models' outputs, as the runs gave them.

    Args:
        located: what was found about both models.
        store: where its tensors are; still open.
        first: the first divergence.
    """
    found = [] if first is None else list(_of_layer(located, store, first))
    names = located.port.output_names
    for name, expected, actual in zip(names, located.reference.outputs, located.port.outputs, strict=False):
        found += _pair(f"output {name} of the model", expected, actual)
        if len(found) >= 2 * TENSORS:
            break
    return found


def _of_layer(located: Located, store: Store, first: LayerVerdict) -> Iterator[Histogram]:
    """Yield the histograms of a layer's outputs, or, of a fault in backward, of its inputs' gradients."""
    calls = _calls(located, first)
    if calls is None or not calls[1].path:
        return  # the model's own outputs come anyway
    theirs = calls[1]
    if first.direction == "backward":
        what, names = "gradient of input", theirs.input_names
        tensors = [[one.gradient for one in call.inputs] for call in calls]
    else:
        what, names = "output", theirs.output_names
        tensors = [[one.stored for one in call.outputs] for call in calls]
    place = f"of {theirs.path}" + (f", call {theirs.turn}" if theirs.turn else "")
    for name, one, other in list(zip(names, *tensors, strict=False))[:TENSORS]:
        if isinstance(one, StoredArray) and isinstance(other, StoredArray):
            yield from _pair(f"{what} {name} {place}", store.get(one), store.get(other))


def _pair(what: str, expected: Array, actual: Array) -> list[Histogram]:
    axes = arrange(expected, actual)
    if axes is None or not expected.size:
        return []
    return [count(what, expected.transpose(axes), actual)]


def _calls(located: Located, verdict: LayerVerdict) -> tuple[Call, Call] | None:
    """Return the calls that a verdict is about."""
    for pair in (*located.matching.pairs, *located.matching.containers):
        if (pair.reference.path, pair.port.path, pair.port.turn) == (
            verdict.reference_path, verdict.port_path, verdict.turn,
        ):  # fmt: skip
            return pair.reference, pair.port
    ours = _call(located.reference.trace.calls, verdict.reference_path, verdict.turn)
    theirs = _call(located.port.trace.calls, verdict.port_path, verdict.turn)
    return None if ours is None or theirs is None else (ours, theirs)


def _call(calls: Sequence[Call], path: str, turn: int) -> Call | None:
    found = [one for one in calls if one.path == path]
    return found[min(turn, len(found) - 1)] if found else None
