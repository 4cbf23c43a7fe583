"""Layers that agree in both float64 runs: what is left to say is how close float32 comes, and that takes one sample."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from tipchain.parity.locate.comparing import Comparer, Link
from tipchain.parity.locate.feeding import Fed
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.pair_replays import Models, PairReplays
from tipchain.parity.locate.replay import NotReplayed
from tipchain.parity.locate.store import Store
from tipchain.parity.locate.trace import Call
from tipchain.parity.locate.verdicts import FINE, Measured, classify, measure_spread, only
from tipchain.parity.rounding import ROUGH

Found = tuple[list[Measured], list[Measured]]
"""What was measured of the outputs, and of the gradients."""
OWN = ("torch.nn.", "paddle.nn.")
"""Where the frameworks' own layers are: those of one type, setting and shape compute alike."""


class Agreeing:
    """Measures layers that agree in float64, the same kernel on equal shapes once: on one sample, forward.

    Args:
        models: copies of both.
        store: where tensors are.
        compare: what compares them.
        seed: of random numbers.
    """

    def __init__(self, models: tuple[Models, Models], store: Store, compare: Comparer, seed: int) -> None:
        self._models, self._store, self._compare, self._seed = models, store, compare, seed
        self._seen: set[Hashable] = set()

    def measure(self, fed: Fed, gradients: float, parameters: float | None) -> Found | None:
        """Measure a pair; None where one sample does not tell enough.

        Args:
            fed: what the layers are given.
            gradients: how far the gradients around it are apart in float64.
            parameters: how far those of its parameters are; None without any.
        """
        pair = fed.pair
        kind = self._kinds(pair)
        if kind in self._seen:
            return self.in_double(fed, gradients, parameters)
        permuted = all(link.layout.permutes for link in (*fed.inputs, *fed.outputs))
        if pair.whole or any(pair.then) or not permuted:  # one sample is laid out otherwise
            return None
        replays = PairReplays(self._models, replace(fed, take=self._store.first, forward=True), self._seed)
        try:
            slow, fast = replays.reference32, replays.port32
        except NotReplayed:
            return None  # what was taken for the first sample is none
        if slow is None or fast is None:
            return None
        forward = [
            measure_spread(
                _output(fed, link), self._store.spread(pair.reference.outputs[link.ours].stored),
                slow.outputs[link.ours], link.layout.back(fast.outputs[link.theirs]), self._apart(fed, link),
            )
            for link in fed.outputs
        ]  # fmt: skip
        alone = all(one.reference is not None and one.reference <= ROUGH for one in forward)
        if not alone or classify(forward)[0] not in FINE:
            return None
        self.note(pair)
        return forward, self._backward(fed, gradients, parameters)

    def note(self, pair: CallPair) -> None:
        """Remember that the kernels of a pair come as close in float32 as rounding allows."""
        kinds = self._kinds(pair)
        if kinds is not None:
            self._seen.add(kinds)

    def _kinds(self, pair: CallPair) -> Hashable | None:
        kinds = self._kind(pair.reference), self._kind(pair.port)
        return None if pair.whole or any(pair.then) or None in kinds else kinds

    def in_double(self, fed: Fed, gradients: float, parameters: float | None) -> Found:
        """Return what the float64 runs tell about a pair; see `measure`."""
        forward = [only(_output(fed, link), self._apart(fed, link)) for link in fed.outputs]
        return forward, self._backward(fed, gradients, parameters)

    def _backward(self, fed: Fed, gradients: float, parameters: float | None) -> list[Measured]:
        inputs = fed.pair.reference.inputs
        found = [
            only(f"gradient of input {fed.pair.port.input_names[link.theirs]}", gradients)
            for link in fed.inputs
            if fed.backward and inputs[link.ours].gradient is not None
        ]
        return found if parameters is None else [*found, only("gradients of parameters", parameters)]

    def _apart(self, fed: Fed, link: Link) -> float:
        ours, theirs = fed.pair.reference.outputs[link.ours], fed.pair.port.outputs[link.theirs]
        return self._compare.between(ours, theirs, link.layout)

    def _kind(self, call: Call) -> Hashable | None:
        """Return what makes a framework's own layer compute as it does; None of any other layer."""
        layer: Any = call.layer
        if not frameworks_own(layer) or call.children:
            return None
        shapes = tuple(value.shape for value in call.inputs)
        return type(layer), repr(layer), layer.training, shapes, repr(call.arguments)


def frameworks_own(layer: Any) -> bool:
    """Tell whether a layer is of a class of the framework's."""
    return type(layer).__module__.startswith(OWN)


def _output(fed: Fed, link: Link) -> str:
    return f"output {fed.pair.port.output_names[link.theirs]}"
