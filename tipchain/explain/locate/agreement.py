"""Layers and models that agree, though built otherwise or only in float64: what that says."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy.typing as npt

from tipchain.errors import WeightsError
from tipchain.explain.locate.comparing import Comparer, TensorLink
from tipchain.explain.locate.differences import distance, relative
from tipchain.explain.locate.matching import CallPair, LayoutStep, Matching
from tipchain.explain.locate.replay import Models, NotReplayed, PairReplays, ReplayInputs
from tipchain.explain.locate.sides import LiveSide
from tipchain.explain.locate.store import Store
from tipchain.explain.locate.trace import Call, Trace, TracedValue
from tipchain.explain.locate.verdicts import FINE, Closeness, LayerVerdict, Measured, classify, measure_spread, only
from tipchain.numbers.rounding import EXPLAINED, ROUGH, SAME_SINGLE

# Where two models are built otherwise, but do the same: what that says about single layers.


Array = npt.NDArray[Any]
ACTIVATIONS = tuple(
    """
        relu relu6 silu hardswish gelu tanh sigmoid hardsigmoid leaky_relu elu mish softplus
    """.split()
)
"""Functions of one tensor, under the name that both frameworks have them by, that a layer may have inside or after it."""
REFUTES = 1 / (1 - EXPLAINED)
"""How many times as far as they are the outputs would have to be apart by a layer's error, for that to be refuted: it leaves less
than a cause may leave unexplained."""
NEXT = 3
"""Calls after a layer whose inputs are looked at for a function of its result."""


def continued(
    matching: Matching, pair: CallPair, traces: tuple[Trace, Trace], sides: tuple[LiveSide, LiveSide], store: Store
) -> Iterator[CallPair]:
    """Yield a pair with what one side does next to its layer's result: there the other side's layer may do both.

    Paddle's ``BatchNorm(act="relu")`` is a norm and an activation of torch's, which may be a layer or a function; a convolution
    whose weights hold a norm is a convolution and a norm.

    Args:
        matching: which call is which.
        pair: two calls whose results differ.
        traces: torch's and Paddle's.
        sides: likewise.
        store: where their tensors are.
    """
    for number, alone in enumerate((matching.reference_only, matching.port_only)):
        call = (pair.reference, pair.port)[number]
        if len(call.outputs) != 1:
            continue
        for after in alone:
            if list(after.inputs) == list(call.outputs) and len(after.outputs) == 1:
                yield pair.followed(number, LayoutStep(after.path), after.outputs[0])
        for name, value in _functions_of(call, traces[number], sides[number], store):
            yield pair.followed(number, LayoutStep(name, function=True), value)


def made_next(call: Call, trace: Trace) -> Iterator[TracedValue]:
    """Yield the tensors that later calls are given, or that calls around it return, but for the call's own results."""
    for one in trace.calls[call.number + 1 :][:NEXT]:
        yield from (value for value in one.inputs if value not in call.outputs)
    for one in trace.around(call):
        yield from (value for value in one.outputs if value not in call.outputs)


def _functions_of(call: Call, trace: Trace, side: LiveSide, store: Store) -> Iterator[tuple[str, TracedValue]]:
    """Yield the functions of a call's result that later calls are given, or that calls around it return."""
    (made,) = call.outputs
    given = {
        id(value): value for value in made_next(call, trace) if value.shape == made.shape and value.dtype == made.dtype
    }
    if not given or made.dtype.kind != "f":
        return
    tensor = side.tensor(store.get(made.stored), gradient=False)
    for name in ACTIVATIONS:
        result = side.view(side.function(name)(tensor))
        for value in given.values():
            if relative(result, store.get(value.stored)) <= SAME_SINGLE:
                yield name, value
                return


def holds_norm(pair: CallPair, number: int, after: Call, sides: tuple[LiveSide, LiveSide]) -> bool:
    """Tell whether the norm after one side's layer is folded into the other side's weights: those are closer to its product."""
    scale = sides[number].norm_scale(after.layer)
    if scale is None:
        return False
    calls = pair.reference, pair.port
    own, other = (_weight(sides[n], calls[n]) for n in (number, 1 - number))
    if own is None or other is None or own.shape != other.shape or own.shape[0] != scale.size:
        return False
    folded = own * scale.reshape(-1, *(1,) * (own.ndim - 1))
    return distance(folded, other) < distance(own, other)


def _weight(side: LiveSide, call: Call) -> Array | None:
    try:
        return dict(side.framework.parameters(call.layer, {}, shared=True)).get("weight")
    except WeightsError:
        return None


def of_one_size(sides: tuple[LiveSide, LiveSide], pair: CallPair) -> bool:
    """Tell whether the layers of a pair have equally many parameters; a fused layer has more than one of its parts."""
    sizes = [
        sum(int(prod(one.shape)) for _, one in side.parameters(call.layer))
        for side, call in zip(sides, (pair.reference, pair.port), strict=True)
    ]
    return bool(sizes[0] == sizes[1])


def settled(
    verdicts: Iterable[LayerVerdict], loose: Mapping[int, float], actual: float, *, gradients: bool
) -> tuple[LayerVerdict, ...]:
    """Return the verdicts on models whose outputs agree, less what that refutes.

    Args:
        verdicts: of layers.
        loose: by id those that rest on which call is taken for which, each with how far it would take the outputs if it were
            right, by the gradients there.
        actual: how far the outputs are apart, likewise.
        gradients: the gradients of all parameters agree too.
    """
    found = list(verdicts)
    refuted = {
        (one.port_path, one.turn)
        for one in found
        if one.direction == "forward"
        and one.closeness is Closeness.DIFFERS
        and loose.get(id(one), 0.0) >= REFUTES * actual
    }
    return tuple(
        _refuted(one)
        if id(one) in loose
        and one.closeness is Closeness.DIFFERS
        and ((one.port_path, one.turn) in refuted if one.direction == "forward" or not gradients else True)
        else one
        for one in found
    )


def _refuted(verdict: LayerVerdict) -> LayerVerdict:
    reason = f"built differently, but the models do the same: {verdict.reason}"
    return replace(verdict, closeness=Closeness.NOT_COMPARABLE, reason=reason, refuted=True)


# Layers that agree in both float64 runs: what is left to say is how close float32 comes, and that takes one sample.


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

    def measure(self, fed: ReplayInputs, gradients: float, parameters: float | None) -> Found | None:
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
                _output(fed, link),
                self._store.spread(pair.reference.outputs[link.ours].stored),
                slow.outputs[link.ours],
                link.layout.back(fast.outputs[link.theirs]),
                self._apart(fed, link),
            )
            for link in fed.outputs
        ]
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

    def in_double(self, fed: ReplayInputs, gradients: float, parameters: float | None) -> Found:
        """Return what the float64 runs tell about a pair; see `measure`."""
        forward = [only(_output(fed, link), self._apart(fed, link)) for link in fed.outputs]
        return forward, self._backward(fed, gradients, parameters)

    def _backward(self, fed: ReplayInputs, gradients: float, parameters: float | None) -> list[Measured]:
        inputs = fed.pair.reference.inputs
        found = [
            only(f"gradient of input {fed.pair.port.input_names[link.theirs]}", gradients)
            for link in fed.inputs
            if fed.backward and inputs[link.ours].gradient is not None
        ]
        return found if parameters is None else [*found, only("gradients of parameters", parameters)]

    def _apart(self, fed: ReplayInputs, link: TensorLink) -> float:
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


def _output(fed: ReplayInputs, link: TensorLink) -> str:
    return f"output {fed.pair.port.output_names[link.theirs]}"
