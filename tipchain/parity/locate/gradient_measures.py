"""The errors of the gradients that a layer gives its inputs and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.agreeing import frameworks_own
from tipchain.parity.locate.differences import relative, rms, squeezed_as
from tipchain.parity.locate.pair_replays import PairReplays
from tipchain.parity.locate.replay import Replayed
from tipchain.parity.locate.shared_parameters import Laid
from tipchain.parity.locate.verdicts import Closeness, Measured, classify, measure, only
from tipchain.parity.rounding import EXPLAINED, SAME_DOUBLE, SAME_SINGLE

Array = npt.NDArray[Any]
ALONE = 1 - EXPLAINED
"""Relative difference up to which a tensor's gradient in the whole run is that which one layer gives it: what a cause may leave."""


def input_gradients(replays: PairReplays, *, known: float | None, double: bool) -> Iterator[Measured]:
    """Measure the gradients of a layer's inputs.

    ``known`` is how far they are apart in float64 at most, None where the layers must be run again to tell; ``double`` says that the port runs in float64.
    """
    fed, slow, fast = replays.fed, replays.reference32, replays.port32
    slow64 = None if known is not None else replays.port64
    moved = None if double or slow64 is not None else replays.moved
    for link in fed.inputs:
        truth = fed.gradient(link.ours)
        own = None if slow is None else slow.inputs[link.ours]
        alone = replays.reference64 if known is None and (truth is None or slow is None) else None
        made = own if alone is None else alone.inputs[link.ours]
        if truth is None or (made is not None and not relative(truth, made) <= ALONE):
            truth = None  # other code takes the tensor too, and adds to its gradient
        if truth is None and known is None:
            again = replays.reference64
            truth = None if again is None else again.inputs[link.ours]
        port = None if fast is None else fast.inputs[link.theirs]
        port64 = None if slow64 is None else slow64.inputs[link.theirs]
        if truth is None or (port is None and port64 is None):
            continue
        ours, theirs = link.layout.shared, link.layout.back_shared
        shaken = None if moved is None else moved.inputs[link.ours]
        yield measure(
            f"gradient of input {fed.pair.port.input_names[link.theirs]}", ours(truth),
            None if own is None else ours(own), None if port is None else theirs(port),
            known if port64 is None else theirs(port64), None if shaken is None else ours(shaken),
        )  # fmt: skip


def cut_off(replays: PairReplays) -> bool:
    """Tell whether the port's layer gives an input no gradient to which the reference's gives one."""
    ours, theirs = replays.reference64, replays.port64
    if ours is None or theirs is None:
        return False
    given = ((ours.inputs[link.ours], theirs.inputs[link.theirs]) for link in replays.fed.inputs)
    return any(one is not None and bool(one.any()) and other is None for one, other in given)


def parameter_gradients(
    replays: PairReplays,
    truths: Mapping[str, Array] | None,
    kept: Mapping[str, Laid],
    *,
    known: float | None,
    double: bool,
) -> Iterator[Measured]:
    """Measure the gradients of a layer's parameters; ``known`` and ``double`` as for its inputs.

    ``truths`` are the reference's in its float64 run, None where several calls added to them; ``kept`` says which parameters the
    port's layer keeps in another layout.
    """
    slow, fast = replays.reference32, replays.port32
    slow64 = None if known is not None else replays.port64
    moved = None if double or slow64 is not None else replays.moved
    if truths is None and known is None:
        again = replays.reference64
        truths = None if again is None else again.parameters
    least = SAME_SINGLE * max((rms(truth) for truth in (truths or {}).values()), default=0.0)
    for name, truth in (truths or {}).items():
        port, port64 = (_gradient(name, one, kept, truth.shape) for one in (fast, slow64))
        if port is None and port64 is None:
            continue
        if port64 is not None and not frameworks_own(replays.fed.pair.port.layer):
            arranged = _in_order_of_size(truth, port64)
            if arranged <= SAME_DOUBLE < relative_or_inf(truth, port64):
                yield only(f"gradient of {name}", arranged)
                continue

        found = measure(
            f"gradient of {name}", truth, _of(slow, name), port, known if port64 is None else port64, _of(moved, name),
            least, replays.terms(truth),
        )  # fmt: skip
        if moved is None and classify([found])[0] is Closeness.LOWER_PRECISION:
            # A sum that is zero but for rounding is as coarse as its terms are many.
            found = measure(found.what, truth, _of(slow, name), port, found.exact, _of(replays.moved, name), least, replays.terms(truth))  # fmt: skip
        yield found


def _of(replayed: Replayed | None, name: str) -> Array | None:
    return None if replayed is None else (replayed.parameters or {}).get(name)


def _gradient(
    name: str, replayed: Replayed | None, kept: Mapping[str, Laid], shape: tuple[int, ...]
) -> Array | None:
    """Return the gradient that the port's layer gave a parameter of the reference's, as that keeps it."""
    found = None if replayed is None else replayed.parameters
    if found is None:
        return None
    made = kept[name].arranged(found) if name in kept else found.get(name)
    return None if made is None else squeezed_as(made, shape)


def relative_or_inf(expected: Array, actual: Array) -> float:
    """Return how far two arrays are apart; arrays of different shapes are infinitely far."""
    return relative(expected, actual) if expected.shape == actual.shape else inf


def _in_order_of_size(expected: Array, actual: Array) -> float:
    """Return how far the elements of two arrays are apart whatever their order: a layer may keep its own."""
    return relative_or_inf(np.sort(expected, axis=None), np.sort(actual, axis=None))
