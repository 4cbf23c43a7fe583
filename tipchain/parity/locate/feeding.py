"""What both layers of a pair are given when they are run again, and what their results are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from tipchain.parity.locate.comparing import Link
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.store import Store
from tipchain.parity.locate.trace import Value

Array = npt.NDArray[Any]
Both = tuple[tuple[Array | None, ...], tuple[Array | None, ...]]
LARGE = 2**15
"""Elements of a layer's inputs, or of its parameters, from which on it is run on the first sample alone where that
tells as much."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fed:
    """The reference's tensors around one call, as its float64 run left them.

    Attributes:
        pair: the calls.
        inputs: which input of the reference's is which of the port's.
        outputs: likewise.
        given: what the layers are given, the port's with its order of axes.
        cotangents: what backward starts from, for the outputs of each.
        results: the reference's outputs.
        gradients: the gradients of its inputs.
        frozen: the layers' parameters take no gradients.
    """

    pair: CallPair
    inputs: Sequence[Link]
    outputs: Sequence[Link]
    given: tuple[Sequence[Array], Sequence[Array]]
    cotangents: Both
    results: tuple[Array, ...]
    gradients: tuple[Array | None, ...]
    frozen: bool = False

    @property
    def backward(self) -> bool:
        """Whether there is anything for backward to start from."""
        return any(one is not None for one in self.cotangents[0])


def feed(store: Store, pair: CallPair, inputs: Sequence[Link], outputs: Sequence[Link]) -> Fed | None:
    """Return what the layers of a pair are given; None where their arguments are other tensors.

    What the reference's call has nothing for, the port's layer is given as it was.
    """
    if pair.reference.inputs and pair.port.inputs and not inputs:
        return None
    given = [store.get(value.stored) for value in pair.reference.inputs]
    by_number = {link.theirs: given[link.ours].transpose(link.axes) for link in inputs}
    theirs = [
        by_number[number] if number in by_number else store.get(value.stored)
        for number, value in enumerate(pair.port.inputs)
    ]
    results, gradients = pair.reference.outputs, pair.reference.inputs
    return Fed(
        pair=pair, inputs=inputs, outputs=outputs, given=(given, theirs), cotangents=_cotangents(store, pair, outputs),
        results=tuple(store.get(one.stored) for one in results),
        gradients=tuple(_gradient(store, one) for one in gradients),
    )  # fmt: skip


def first_sample(fed: Fed, parameters: int) -> Fed | None:
    """Return the same for the first sample alone, without gradients of parameters; None for a small layer.

    Whether the layer treats every sample by itself is left to whoever holds its results against the reference's. Where
    tensors have no axis of samples in common, all of them are given.

    Args:
        fed: what the layers are given.
        parameters: how many elements their parameters have.
    """
    given, theirs = fed.given
    if max(sum(one.size for one in given), parameters) < LARGE:
        return None
    arrays = [*given, *theirs, *fed.results]
    samples = {one.shape[0] if one.ndim else 0 for one in arrays}
    turned = any(link.axes and link.axes[0] != 0 for link in (*fed.inputs, *fed.outputs))
    if len(samples) != 1 or samples == {0} or turned:
        return replace(fed, frozen=True)
    return replace(
        fed, given=([one[:1] for one in given], [one[:1] for one in theirs]),
        cotangents=(_first(fed.cotangents[0]), _first(fed.cotangents[1])),
        results=tuple(one[:1] for one in fed.results), gradients=_first(fed.gradients), frozen=True,
    )  # fmt: skip


def _cotangents(store: Store, pair: CallPair, outputs: Sequence[Link]) -> Both:
    ours: list[Array | None] = [None] * len(pair.reference.outputs)
    theirs: list[Array | None] = [None] * len(pair.port.outputs)
    for link in outputs:
        gradient = _gradient(store, pair.reference.outputs[link.ours])
        if gradient is not None:
            ours[link.ours], theirs[link.theirs] = gradient, gradient.transpose(link.axes)
    return tuple(ours), tuple(theirs)


def _gradient(store: Store, value: Value) -> Array | None:
    return None if value.gradient is None else store.get(value.gradient)


def _first(arrays: Sequence[Array | None]) -> tuple[Array | None, ...]:
    return tuple(None if one is None else one[:1] for one in arrays)
