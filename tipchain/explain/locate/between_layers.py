"""Code between the layers: which made a tensor, which changes gradients, and which is at fault."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, isfinite, prod
from typing import NamedTuple

import numpy as np

from tipchain.explain.locate.differences import arrange, distance, relative, rms, same_mask
from tipchain.explain.locate.gradients import Shared, cut_off, input_gradients
from tipchain.explain.locate.matching import CallPair, Comparer, Matching, TensorLink, hands_on
from tipchain.explain.locate.replay import (
    BothModels,
    CallKey,
    Models,
    NotReplayed,
    PairReplays,
    ReplayInputs,
    each_call,
    run_again,
)
from tipchain.explain.locate.runs import TracedRun, TracedRuns, as_float
from tipchain.explain.locate.trace import Call, NotHeld, Store, Trace, TracedValue, Twins, put_back, take_out
from tipchain.explain.locate.verdicts import FINE, Closeness, LayerVerdict, classify, frameworks_own
from tipchain.framework_types import Array, Model, Nested, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.numbers.tolerance import EXPLAINED, ROUGH, SAME_DOUBLE, SAME_SINGLE

Calls = tuple[Call, Call]
Given = Callable[[CallPair], tuple[int, int] | None]
"""Returns the numbers of the tensors that two calls are given and that differ most; None where they are given the same."""
Agrees = Callable[[CallPair], bool]
"""Tells whether two calls return the same."""


class Glue:
    """Finds the code between both models' layers that are known to agree."""

    def __init__(self, reference: Trace, port: Trace, matching: Matching, given: Given, agrees: Agrees) -> None:
        self._traces, self._given, self._agrees = (reference, port), given, agrees
        self._holders = (
            {pair.reference.number: pair for pair in matching.containers},
            {pair.port.number: pair for pair in matching.containers},
        )
        self._paired = (
            {pair.reference.number for pair in matching.pairs},
            {pair.port.number for pair in matching.pairs},
        )
        # Calls that hold the same layers are paired from the outside in: the innermost of several is the last.
        self._container = {pair.reference.number: pair.port for pair in matching.containers}

    def giving(self, pair: CallPair, ours: int, theirs: int) -> Calls:
        """Return the calls of both sides whose code gave a pair its differing tensor.

        Args:
            pair: the first pair that is given something else though all layers before agree.
            ours: the number of the tensor among the reference's inputs.
            theirs: the number among the port's.
        """
        expected, actual = self._giving(pair, ours, theirs)
        seen = {pair.port.number}
        around = self._holder(actual)
        while around is not None and around.port.number not in seen:
            differs = self._given(around)
            if differs is None:
                break
            seen.add(around.port.number)  # it is given something else: that is made before it
            expected, actual = self._giving(around, *differs)
            around = self._holder(actual)
        return expected, actual

    def _holder(self, call: Call) -> CallPair | None:
        """Return the innermost pair of calls with others inside that holds a call of the port's, or is it."""
        _, holders = self._holders
        numbers = (one.number for one in (call, *self._around(1, call)))
        return next((holders[one] for one in numbers if one in holders), None)

    def _giving(self, pair: CallPair, ours: int, theirs: int) -> Calls:
        reference, port = pair.reference, pair.port
        if not reference.inputs or not port.inputs:
            return next(self._around(0, reference), reference), next(self._around(1, port), port)
        expected = reference.inputs[min(ours, len(reference.inputs) - 1)]
        actual = port.inputs[min(theirs, len(port.inputs) - 1)]
        around = self._not_given(0, reference, expected), self._not_given(1, port, actual)
        return self._culprits((expected, actual), around)

    def at_end(self, values: tuple[TracedValue, TracedValue] | None) -> Calls:
        """Return the calls whose code made an output of the models that differs though all layers agree; None: not known which."""
        reference, port = self._traces
        roots = reference.calls[0], port.calls[0]
        return roots if values is None else self._culprits(values, roots)

    def _culprits(self, values: tuple[TracedValue, TracedValue], around: Calls) -> Calls:
        """Return who made two values; ``around`` are the calls whose own code handed them on if a layer that agrees did."""
        ours, theirs = (self._maker(side, values[side], around[side]) for side in (0, 1))
        (paired, port_paired), (_, port), (_, value) = self._paired, self._traces, values
        if not ours.children and ours.number not in paired:
            # Port's last call in no pair that gave back the value that it was given.
            found = [
                call
                for call in port.calls
                if value in call.outputs and hands_on(call) and not call.children and call.number not in port_paired
            ]
            handed = found[-1] if found else None  # by a layer that stands where the reference's does something
            if handed is not None:
                return ours, handed
        calls = (ours, *self._around(0, ours))
        inside = next((self._container[one.number] for one in calls if one.number in self._container), None)
        if inside is not None and (value in inside.inputs or any(one is theirs for one in self._around(1, inside))):
            return ours, inside  # what the reference makes there, the port does not make, but hands on
        return ours, theirs

    def _maker(self, side: int, value: TracedValue, around: Call) -> Call:
        if value.made_by is None or value.made_by in self._paired[side]:
            return around
        holder = self._holders[side].get(value.made_by)
        if holder is not None and self._agrees(holder):
            return around
        return self._traces[side].calls[value.made_by]

    def _not_given(self, side: int, call: Call, value: TracedValue) -> Call:
        """Return the innermost call around ``call`` that was not given the value itself."""
        found = call
        for found in self._around(side, call):
            if value not in found.inputs:
                break
        return found

    def _around(self, side: int, call: Call) -> Iterator[Call]:
        return self._traces[side].around(call)


class CodeRounding:
    """Float32's effect on the reference's code between its layers, given float64 results.

    The reference runs once in float32, each layer that is judged giving what it gave in float64. Some of Paddle's kernels compute
    in float32 whatever they are given, such as the places where a resized image is sampled: that is as far off.
    """

    def __init__(self, models: Models, run: TracedRun, matching: Matching, store: Store, seed: int) -> None:
        self._models, self._side, self._run, self._store, self._seed = models, models.side, run, store, seed
        self._judged = {pair.reference.number for pair in matching.pairs if not pair.whole}
        self._found: dict[int, float] = {}

    def of(self, value: TracedValue) -> float:
        """Return how far a tensor of the reference's is off, relative; 0 where that is not known."""
        return self._errors.get(id(value), 0.0)

    @cached_property
    def _errors(self) -> Mapping[int, float]:
        side, root = self._side, self._run.trace.calls[0]
        judged = {(call.path, call.turn): call for call in self._run.trace.calls if call.number in self._judged}

        def enter(key: CallKey, given: Nested) -> None:
            if key in judged:
                self._note(judged[key].inputs, take_out(given, side.is_tensor)[1])

        def leave(key: CallKey, result: Nested) -> Nested:
            """Return the layer's float64 results in place of its tensors."""
            if key not in judged or not (side.is_tensor(result) or isinstance(result, tuple | list)):
                return None
            structure, made, _ = take_out(result, side.is_tensor)
            if len(made) != len(judged[key].outputs):
                return None
            return put_back(structure, [self._single(value) for value in judged[key].outputs])

        def ended(made: Sequence[Tensor]) -> tuple[()]:
            self._note(root.outputs, made)
            return ()

        try:
            single = replace(self._models, double=None)
            run_again(single, root, self._store, self._seed, leave, ended, enter=enter, gradient=False)
        except NotHeld:
            raise
        except Exception:  # noqa: BLE001  (a model may refuse to run so; then nothing is known of its rounding)
            self._found.clear()
        return self._found

    def _single(self, value: TracedValue) -> Tensor:
        return self._side.tensor(as_float(self._store.get(value.stored), double=False), gradient=False)

    def _note(self, values: Sequence[TracedValue], tensors: Sequence[Tensor]) -> None:
        for value, tensor in zip(values, tensors, strict=False):
            if value.dtype.kind == "f" and value.shape == tuple(tensor.shape):
                apart = relative(self._store.get(value.stored), self._side.view(tensor))
                self._found[id(value)] = max(self._found.get(id(value), 0.0), apart)


# Code between the layers that changes a gradient without changing a tensor: detaching, hooks, scaled gradients.


Apart = Callable[[TracedValue, TracedValue], float]
"""Returns how far the gradients of two values are apart, relative; inf where one alone has a gradient."""


SHIFT = SAME_SINGLE
"""How far values are moved, beside their RMS, so that no two are equal: as far as results may be apart that are the same."""


class Changed(NamedTuple):
    """Where gradients part: the calls whose own code does it, the pair whose output's gradient is off, how far, and the output."""

    calls: tuple[Call, Call]
    pair: CallPair
    apart: float
    value: TracedValue


def first_changed(
    traces: tuple[Trace, Trace],
    outputs: Iterable[tuple[CallPair, TracedValue, TracedValue]],
    begun_alike: Callable[[], bool],
    apart: Apart,
    tolerance: float,
) -> Changed | None:
    """Return where gradients part first on their way back, though every layer hands them on as the reference's does.

    Nothing is returned where they differ from the start: then the loss is another.

    Args:
        traces: torch's and Paddle's, after backward; forward they agree.
        outputs: tensors of pairs that agree, in the opposite order of the port's calls.
        begun_alike: tells whether both start from the same.
        apart: compares the gradients of two values.
        tolerance: up to which they agree.
    """
    agreed = False
    for pair, ours, theirs in outputs:
        found = apart(ours, theirs)
        if found <= tolerance:
            agreed = True
        elif agreed or begun_alike():
            reference, port = traces
            calls = _outside(reference, pair.reference, ours), _outside(port, pair.port, theirs)
            return Changed(calls, pair, found, theirs)
        else:
            return None
    return None


def _outside(trace: Trace, call: Call, value: TracedValue) -> Call:
    """Return the innermost call around ``call`` that does not itself give the value back."""
    while call.parent is not None:
        call = trace.calls[call.parent]
        if value not in call.outputs:
            break
    return call


class GivenLayers(ABC):
    """A run of a model, in float64, whose layers give tensors of the reference's, and whose backward starts as the reference's.

    Args:
        models: the copies of the reference (0) or of the port (1).
        root: its call of the whole model.
        number: which of them it is.
        given: pairs whose outputs agree, with the link of each.
        ends: what backward starts from at the reference's outputs, each with its link.
        store: where tensors are.
        seed: of random numbers.
    """

    def __init__(
        self,
        models: Models,
        root: Call,
        number: int,
        given: Iterable[tuple[CallPair, TensorLink]],
        ends: Sequence[tuple[Array | None, TensorLink]],
        store: Store,
        seed: int,
    ) -> None:
        self._models, self._side, self._root, self._number = models, models.side, root, number
        self._store, self._seed, self._ends = store, seed, ends
        self._given: dict[CallKey, list[tuple[CallPair, TensorLink]]] = {}
        self._numbers: dict[int, int] = {}  # of the reference's tensors, by their ids
        for pair, link in given:
            call = (pair.reference, pair.port)[number]
            self._given.setdefault((call.path, call.turn), []).append((pair, link))
            self._numbers.setdefault(id(pair.reference.outputs[link.ours]), len(self._numbers))

    @abstractmethod
    def _wanted(self, value: TracedValue) -> Array:
        """Return the replacement of a reference's tensor, in the reference's layout."""

    @abstractmethod
    def _hook(self, pair: CallPair, link: TensorLink) -> Callable[[Tensor], object] | None:
        """Return the receiver of the gradient of a layer's output, if there is one."""

    def _run(self) -> bool:
        """Run the model forward and backward so; return whether it takes the replacements."""

        def leave(key: CallKey, result: object) -> Nested:
            return self._replaced(self._given.get(key, ()), result)

        def starts(made: Sequence[object]) -> list[tuple[Tensor, Tensor]]:
            links = [(given, link, made[(link.ours, link.theirs)[self._number]]) for given, link in self._ends]
            return [
                (end, self._tensor(link.layout.apply_gradient(given) if self._number else given))
                for given, link, end in links
                if given is not None and self._side.takes_gradient(end)
            ]

        try:
            run_again(self._models, self._root, self._store, self._seed, leave, starts)
        except NotHeld:
            raise
        except Exception:  # noqa: BLE001  (a model may refuse what hooks hand it; then the models' runs must do)
            return False
        return True

    def _replaced(self, given: Iterable[tuple[CallPair, TensorLink]], result: object) -> object:
        structure, made, _ = take_out(result, self._side.is_tensor)
        plain = self._side.is_tensor(result) or isinstance(result, tuple | list)
        if not given or not plain:
            return None
        for pair, link in given:
            place = (link.ours, link.theirs)[self._number]
            wanted = self._wanted(pair.reference.outputs[link.ours])
            one = made[place]
            one = one + self._tensor((link.layout.apply(wanted) if self._number else wanted) - self._side.view(one))
            hook = self._hook(pair, link)
            if hook is not None and self._side.takes_gradient(one):
                one.register_hook(hook)
            made[place] = one
        return put_back(structure, made)

    def _tensor(self, array: Array) -> Tensor:
        return self._side.tensor(as_float(array, double=self._models.double is not None), gradient=False)


class Steered(GivenLayers):
    """The port's gradients where its layers and code are given the reference's tensors.

    In the models' runs a layer's little error in float64 (a constant that a kernel keeps in float32) reaches all that comes later:
    where it takes an element across a kink, or to a norm of few samples, gradients part that no code changes. Here the port
    runs once more. What its layers give, and the gradients of that, are replaced by the reference's.
    """

    def apart(self, value: TracedValue) -> float | None:
        """Return the error of an output's gradient by its receivers alone; None if unknown."""
        return self._errors.get(id(value))

    @property
    def ran(self) -> bool:
        """Whether the port ran so; then its parameters have the gradients of that run."""
        return bool(self._errors)

    @cached_property
    def _errors(self) -> Mapping[int, float]:
        self._found: dict[int, float] = {}
        return self._found if self._run() else {}

    def _wanted(self, value: TracedValue) -> Array:
        return self._store.get(value.stored)

    def _hook(self, pair: CallPair, link: TensorLink) -> Callable[[Tensor], object] | None:
        ours, theirs = pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]
        return None if ours.gradient is None else partial(self._take, ours, theirs, link)

    def _take(self, ours: TracedValue, theirs: TracedValue, link: TensorLink, gradient: Tensor) -> Tensor:
        """Note how far a gradient is off, and hand on the reference's in its place."""
        assert ours.gradient is not None
        expected = self._store.get(ours.gradient)
        actual = link.layout.back_shared(self._side.view(gradient))
        apart = relative(link.layout.shared(expected), actual)  # of a tensor that several calls give, once for each
        self._found[id(theirs)] = max(apart, self._found.get(id(theirs), 0.0))
        return self._tensor(link.layout.apply_gradient(expected))


class NudgedLayers(GivenLayers):
    """The replacements of a model's layers: the reference's values, all moved a little.

    Where two values are equal, which of them is the largest is up to the framework, and so is which gets the gradient.
    """

    @cached_property
    def gradients(self) -> Mapping[int, Array]:
        """The gradients of the reference's tensors, by their ids, in its layout; empty where the model does not run so."""
        self._found: dict[int, Array] = {}
        return self._found if self._run() else {}

    def _wanted(self, value: TracedValue) -> Array:
        """Return a tensor of the reference's, each element moved by a random part of `SHIFT`: the same in both models."""
        array = self._store.get(value.stored)
        generator = np.random.default_rng([self._seed, *array.shape, self._numbers[id(value)]])
        return np.asarray(array + SHIFT * (rms(array) or 1.0) * generator.uniform(-1, 1, array.shape))

    def _hook(self, pair: CallPair, link: TensorLink) -> Callable[[Tensor], object] | None:
        return partial(self._note, pair.reference.outputs[link.ours], link)

    def _note(self, value: TracedValue, link: TensorLink, gradient: Tensor) -> None:
        array = self._side.view(gradient)
        self._found[id(value)] = np.array(link.layout.back_shared(array) if self._number else link.layout.shared(array))


# Code between the layers that does something else to large values alone, or cuts the inputs' gradients off.


ENLARGED = 6.0
"""RMS of enlarged results of linear layers, convolutions and norms: code meets large values.

A sixth of normal numbers is then above 6, where ReLU6, hardswish and hardsigmoid turn; -10000 still hides, and numbers
are seldom 64 apart, where Paddle's `log_softmax` stops (3.3.1)."""
ENLARGING = frozenset(
    "linear conv1d conv2d conv3d batchnorm batchnorm1d batchnorm2d batchnorm3d layernorm groupnorm".split()
)
"""Layers whose weight and bias, some times larger, make the result as many times larger."""


def enlarge(side: LiveSide, layer: Model, factor: float) -> None:
    """Multiply a layer's weight, and its bias, if it has one."""
    for one in filter(side.is_tensor, (layer.weight, layer.bias)):
        side.assign(one, factor * side.array(one))


def _enlarges(layer: Model, users: Mapping[int, int]) -> bool:
    """Tell whether a layer is one of these, with a weight of its own that no other layer has."""
    own = frameworks_own(layer) and type(layer).__name__.lower() in ENLARGING
    return own and users.get(id(layer._parameters.get("weight")), 2) == 1  # noqa: SLF001


class Enlarged:
    """Runs of both models whose layers give larger values, as after a training: the reference's in both.

    No parameter takes a gradient in them, so that what takes one hands it on to the models' inputs.

    Args:
        models: the copies of both, which ran in float64.
        pairs: calls of layers that do the same.

    Attributes:
        factors: by what weights and biases are multiplied in effect, by the path of the reference's layer, and of the port's.
    """

    def __init__(self, models: BothModels, pairs: Sequence[CallPair]) -> None:
        self._models, self._pairs = models, pairs
        calls = [((one.reference.path, one.reference.turn), (one.port.path, one.port.turn)) for one in pairs]
        self._keys = {one: one for one, _ in calls}, {other: one for one, other in calls}
        self.factors: tuple[dict[str, float], dict[str, float]] = ({}, {})
        self._made: dict[CallKey, Array] = {}
        self._takes: tuple[dict[CallKey, bool], dict[CallKey, bool]] = ({}, {})
        self._gives: tuple[dict[CallKey, bool], dict[CallKey, bool]] = ({}, {})
        users = Counter(
            id(tensor)
            for one in models
            if one.double is not None
            for _, layer in one.side.layers(one.double.whole)
            for tensor in layer._parameters.values()  # noqa: SLF001  (both frameworks keep a layer's own ones so)
        )
        self._partners = {
            one.reference.path: one.port.path
            for one in pairs
            if all(_enlarges(each.layer, users) for each in (one.reference, one.port))
        }

    @contextmanager
    def applied(self, number: int, model: Model, known: Twins | None) -> Iterator[None]:
        """Enlarge the weights of called layers, a copy's or the port's, and record the tensors.

        The copy keeps the larger weights. ``known`` are the tensors of the reference's run, which the port's is given.
        """
        side, keys = self._models[number].side, self._keys[number]
        layers = dict(side.layers(model))

        def flows(value: Nested) -> bool:
            given = take_out(value, side.is_tensor)[1]
            return any(side.takes_gradient(one) and one.is_floating_point() for one in given)

        def enter(call: CallKey, given: Nested) -> None:
            self._takes[number][call] = flows(given)

        def leave(call: CallKey, result: Nested) -> Nested:
            self._gives[number][call] = flows(result)
            key = keys.get(call)
            if key is None or not side.is_tensor(result) or not result.is_floating_point():
                return None
            if not number:
                path, _ = call
                made = self._enlarged(path, layers[path], result)
                self._made[key] = np.array(side.view(made))
                return made
            expected, array = self._made.pop(key, None), side.view(result)
            axes = None if expected is None else arrange(expected, array)
            if expected is None or axes is None or not relative(expected.transpose(axes), array) <= ROUGH:
                return None
            if not result.is_contiguous():  # others may look at its memory in another order
                return result + side.tensor(expected.transpose(axes) - array, gradient=False)
            side.assign(result, expected.transpose(axes))
            if known is not None and expected.shape == array.shape:
                known.note_copied(result, *key)
            return None

        with ExitStack() as stack:
            for _, one in side.parameters(model):
                side.let_take(one, gradient=False)
                stack.callback(side.let_take, one, gradient=True)
            stack.enter_context(each_call(side, model, enter, leave))
            factors, port_factors = self.factors
            for path, other in self._partners.items() if number else ():
                if path in factors and other not in port_factors:
                    port_factors[other] = factors[path]
                    enlarge(side, layers[other], factors[path])
            yield

    def _enlarged(self, path: str, layer: Model, made: Tensor) -> Tensor:
        """Return a reference's layer's result, larger the first time; from then its weights are."""
        side, (factors, _) = self._models[0].side, self.factors
        if path not in self._partners or path in factors:
            return made
        size = rms(side.view(made))
        if not 0 < size < inf:
            return made
        factor = factors[path] = ENLARGED / size
        enlarge(side, layer, factor)
        return made * factor

    def cut_off(self, trace: Trace) -> tuple[Call, CallPair] | None:
        """Return the port's call whose own code cuts off the gradient of the model's inputs, and the pair behind it.

        Nothing is returned where a layer does it by itself, or nothing does. ``trace`` is that of the port's run.
        """
        calls = {(one.path, one.turn): one for one in trace.calls}
        for pair in self._pairs:
            keys = (pair.reference.path, pair.reference.turn), (pair.port.path, pair.port.turn)
            takes, gives = (
                [found[key] for found, key in zip(both, keys, strict=True)] for both in (self._takes, self._gives)
            )
            if takes == [True, False]:
                around = [*trace.around(calls[pair.port.path, pair.port.turn])]
                _, port_takes = self._takes
                return next((one for one in around if port_takes[one.path, one.turn]), around[-1]), pair
            if gives == [True, False]:
                break
        return None


# Code between the layers that is at fault: in forward, or in what it does to gradients.


GROWTH = 1000.0
"""Allowed ratio of gradients' differences to outputs': three orders, a choice.

A backward run enlarges the outputs' differences by as far as the weights do, layer by layer."""
TIED = "equal values: each framework gives the gradient of their maximum to another of them; without equal values the gradients agree"
"""Message where gradients differ at ties alone."""


@dataclass(slots=True)
class Noise:
    """Distances allowed between equal tensors of two runs: they grow with clean layers' own."""

    limit: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAtFault:
    """Names the calls whose own code differs though all their layers agree."""

    models: BothModels
    runs: TracedRuns
    outputs: Sequence[TensorLink]
    matching: Matching
    store: Store
    seed: int
    exact: bool
    compare: Comparer
    noise: Noise

    def before(self, pair: CallPair, links: Sequence[TensorLink], apart: float) -> LayerVerdict:
        """Return the verdict about the code that gave the pair other tensors though all layers before agree."""
        worst = max(links, default=None, key=partial(self._apart, pair))
        calls = self._block_at_fault(pair) or self._glue().giving(
            pair, *((0, 0) if worst is None else (worst.ours, worst.theirs))
        )
        values = None if worst is None else (pair.reference.inputs[worst.ours], pair.port.inputs[worst.theirs])
        return self._code(calls, apart, f"gives {pair.port.path or 'the model'} something else", values)

    def at_end(self, apart: Sequence[float], outputs: Sequence[TensorLink]) -> LayerVerdict:
        """Return the verdict about the code that made the output that is furthest apart, by ``apart`` of ``outputs``."""
        worst = max(apart)
        link = next(iter(outputs[apart.index(worst) :]), None)
        ours, theirs = (run.values for run in self.runs)
        values = None if link is None else (ours[link.ours], theirs[link.theirs])
        calls = self._block_at_fault(None) or self._glue().at_end(values)
        what = "makes another output"
        if link is None and len(ours) == len(theirs):  # of another shape
            other = min({*range(len(ours))} - {one.ours for one in outputs}, default=0)
            what = f"makes output {self.runs.port.output_names[other]} {list(theirs[other].shape)}, expected {list(ours[other].shape)}"
        return self._code(calls, worst, what, values)

    def made_up_for(self, pair: CallPair) -> bool:
        """Tell whether a container around the pair is given and returns the same in both models, whatever it does inside."""
        return any(
            holds(self.runs.port.trace, around.port, pair.port) and self._alike(around) == (True, True)
            for around in self.matching.containers
        )

    def _block_at_fault(self, before: CallPair | None) -> tuple[Call, Call] | None:
        """Return the innermost container that is given the same in both models and returns something else, before a pair."""
        trace = self.runs.port.trace
        found = [
            one
            for one in (*self.matching.containers, *self._wrappers())
            if (before is None or one.port.number < before.port.number)
            and (before is None or not holds(trace, one.port, before.port))
            and self._alike(one) == (True, False)
        ]
        inner = [one for one in found if not any(holds(trace, one.port, other.port) for other in found)]
        first = min(inner, key=lambda one: one.port.number, default=None)
        return None if first is None or first.port.parent is None else (first.reference, first.port)

    def _alike(self, pair: CallPair) -> tuple[bool, bool]:
        """Tell whether a pair's inputs and results agree; without linked results they do not."""
        inputs = self.compare.inputs(pair)
        outputs = self.compare.outputs(pair)
        given = self.compare.apart(pair.reference.inputs, pair.port.inputs, inputs) <= self.noise.limit
        given = given and self._masked_otherwise(pair, inputs) is None
        if not outputs:
            return given, self._same_numbers(pair)
        return given, self.compare.apart(pair.reference.outputs, pair.port.outputs, outputs) <= self.noise.limit

    def _same_numbers(self, pair: CallPair) -> bool:
        """Tell whether a pair returns the same numbers, which one side returns in several tensors, the other in one."""
        both = pair.reference.outputs, pair.port.outputs
        counts = [sum(prod(one.shape) for one in values) for values in both]
        if not counts[0] or counts[0] != counts[1]:
            return False
        ours, theirs = (
            np.sort(np.concatenate([self.store.get(one.stored).ravel() for one in values])) for values in both
        )
        return relative(ours, theirs) <= self.noise.limit

    def _apart(self, pair: CallPair, link: TensorLink) -> float:
        return self.compare.between(pair.reference.inputs[link.ours], pair.port.inputs[link.theirs], link.layout)

    def _differing(self, pair: CallPair) -> tuple[int, int] | None:
        """Return which tensors differ most of those that two calls are given, if some do."""
        links = self.compare.inputs(pair)
        expected, actual = ({prod(one.shape) for one in call.inputs} for call in (pair.reference, pair.port))
        if not links and expected and actual and not expected & actual:
            return 0, 0
        worst = max(links, default=None, key=partial(self._apart, pair))
        if worst is None or self._apart(pair, worst) <= self.noise.limit:
            return self._masked_otherwise(pair, links)
        return worst.ours, worst.theirs

    def _masked_otherwise(self, pair: CallPair, links: Sequence[TensorLink]) -> tuple[int, int] | None:
        """Return the masks of another form that two calls are given, if these do not hide the same."""
        ours, theirs = pair.reference.inputs, pair.port.inputs
        others = {*range(len(theirs))} - {link.theirs for link in links}
        for one in sorted({*range(len(ours))} - {link.ours for link in links}):
            alike = {n: same_mask(self._array(ours[one]), self._array(theirs[n])) for n in sorted(others)}
            if False in alike.values() and True not in alike.values():
                return one, next(n for n, same in alike.items() if same is False)
        return None

    def _array(self, value: TracedValue) -> Array:
        return self.store.get(value.stored)

    def _glue(self) -> Glue:
        agrees = lambda pair: self._alike(pair)[1]  # noqa: E731
        return Glue(*self.runs.traces, self.matching, self._differing, agrees)

    def steered(self) -> Steered:
        """Return the port's run in which its layers are given, and give, the reference's tensors and gradients."""
        root = self.runs.port.trace.calls[0]
        return Steered(self.models.port, root, 1, self._agreeing(), self._ends(), self.store, self.seed)

    def _begun_alike(self, tolerance: float) -> bool:
        """Tell whether backward starts from the same in both models."""
        ours, theirs = (run.starts() for run in self.runs)
        pairs = [(ours[link.ours], theirs[link.theirs], link.layout) for link in self.outputs]
        return any(one is not None for one, _, _ in pairs) and all(
            one is other
            or (
                (one is not None and other is not None)
                and relative(layout.shared(one), layout.back_shared(other)) <= tolerance
            )
            for one, other, layout in pairs
        )

    def _ends(self) -> list[tuple[Array | None, TensorLink]]:
        """Return the starts of backward at the reference's outputs."""
        given = self.runs.reference.starts()
        return [(given[link.ours], link) for link in self.outputs]

    def changed_gradient(self, forward: float, steered: Steered) -> list[LayerVerdict]:
        """Return the verdict about code that changes gradients alone, if some does; ``forward``: outputs are apart so."""
        values = [value for pair in self.matching.pairs for value in pair.reference.outputs]
        scale = max((self.compare.gradient_size(one) for one in values), default=0.0)

        def apart(one: TracedValue, other: TracedValue) -> float:
            layout = self.compare.layout(one, other)
            if layout is None or not scale:
                return 0.0
            size = self.compare.gradient_size(one)
            if one.gradient is None or other.gradient is None or not size:  # without one is as good as zeros
                return max(size, self.compare.gradient_size(other)) / max(size, SAME_DOUBLE * scale)
            return self.compare.gradients_apart(one, other, layout) * size / max(size, SAME_DOUBLE * scale)

        def by_itself(one: TracedValue, other: TracedValue) -> float:
            size, own = self.compare.gradient_size(one), steered.apart(other)
            return apart(one, other) if own is None else own * size / max(size, SAME_DOUBLE * scale)

        tolerance = max(SAME_SINGLE, GROWTH * forward)
        traces = self.runs.traces
        agreeing = [
            (pair, pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]) for pair, link in self._agreeing()
        ]
        begun_alike = partial(self._begun_alike, tolerance)
        found = first_changed(traces, agreeing, begun_alike, apart, tolerance)
        if found is not None and self.exact:
            found = first_changed(traces, agreeing, begun_alike, by_itself, tolerance)
        if found is None:
            return []
        ours, theirs = self._linked(found.value)
        receiver = found.pair.port.path or "the model"
        odd = self._odd_gradients(ours, theirs)
        expected, actual = (self.compare.gradient_size(one) > SAME_DOUBLE * scale for one in (ours, theirs))
        if odd:
            what = f"hands {receiver} {odd}"
        elif expected and not actual:
            what = f"hands {receiver} no gradient, the reference one"
        elif actual and not expected:
            what = f"hands {receiver} a gradient, the reference none"
        else:
            what = self._handed(receiver, ours, theirs)
        calls = self._taking(found.value) or found.calls
        verdict = replace(self._code(calls, found.apart if expected else inf, what), direction="backward")
        if odd or not self._tied(ours, found.apart):
            return [verdict]
        reason = f"{TIED}: {receiver} gets another gradient (relative {found.apart:.3g})"
        return [replace(verdict, closeness=Closeness.NOT_COMPARABLE, reason=reason, tied=True)]

    def _handed(self, receiver: str, ours: TracedValue, theirs: TracedValue) -> str:
        """Describe a gradient that code hands to a layer: the reference's multiple, or another."""
        layout = self.compare.layout(ours, theirs)
        if layout is not None and ours.gradient is not None and theirs.gradient is not None:
            expected, actual = (
                layout.shared(self.store.get(ours.gradient)),
                layout.back_shared(self.store.get(theirs.gradient)),
            )
            factor = float(np.vdot(expected, actual).real / np.vdot(expected, expected).real)
            if relative(expected * factor, actual) <= SAME_SINGLE * abs(factor):
                return f"hands {receiver} {factor:.6g} times the reference's gradient"
        return f"hands another gradient to {receiver}"

    def _linked(self, value: TracedValue) -> tuple[TracedValue, TracedValue]:
        """Return the reference's tensor that belongs to an output of the port's, and that."""
        pairs = ((pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]) for pair, link in self._agreeing())
        return next((ours, theirs) for ours, theirs in pairs if theirs is value)

    def _odd_gradients(self, ours: TracedValue, theirs: TracedValue) -> str:
        """Return the non-finite kind in one gradient of the two alone, else an empty text."""
        expected, actual = (
            0 if one.gradient is None else int(np.count_nonzero(~np.isfinite(self.store.get(one.gradient))))
            for one in (ours, theirs)
        )
        if bool(expected) == bool(actual):
            return ""
        whose = "the reference's is finite" if actual else "the reference's is not finite, the port's is"
        slope = "a slope is infinite there, as that of a root, a norm or a logarithm at 0"
        return f"a gradient with NaN or infinity at {expected or actual} elements where {whose}: {slope}"

    def _tied(self, value: TracedValue, apart: float) -> bool:
        """Tell whether all gradients agree as soon as no two values are equal: each layer gives the reference's, moved a little.

        That of ``value``, which is ``apart``, must lose what a cause takes away: a small difference agrees as it is.
        """
        links = list(self._agreeing())
        ends = self._ends()
        ours, theirs = (
            NudgedLayers(one, run.trace.calls[0], number, links, ends, self.store, self.seed).gradients
            for number, (one, run) in enumerate(zip(self.models, self.runs, strict=True))
        )
        least = SAME_SINGLE * max((rms(one) for one in ours.values()), default=0.0)
        nothing = np.zeros(())
        enough = min(SAME_SINGLE * GROWTH, (1 - EXPLAINED) * apart)
        return bool(ours and theirs) and all(
            _agree(
                ours.get(one, nothing),
                theirs.get(one, nothing),
                least,
                enough if one == id(value) else SAME_SINGLE * GROWTH,
            )
            for one in ours.keys() | theirs.keys()
        )

    def _taking(self, value: TracedValue) -> Calls | None:
        """Return the innermost calls around layers that take the port's value, or code that was made of it, and cut it off."""
        taking = [one for one in self.matching.containers if value in one.port.inputs and one.port.parent is not None]
        for pair in sorted((*taking, *self._wrappers()), key=lambda one: -one.port.number):
            inputs = self.compare.inputs(pair)
            outputs = self.compare.outputs(pair)
            fed = ReplayInputs(pair=replace(pair, whole=False), inputs=inputs, outputs=outputs, take=self.store.get)
            if not outputs or not fed.comparable or not fed.backward:
                continue
            replays = PairReplays(self.models, fed, self.seed)
            with suppress(NotReplayed):
                gradients = input_gradients(replays, known=None, double=True)
                if classify(gradients)[0] is Closeness.DIFFERS or cut_off(replays):
                    return pair.reference, pair.port
        return None

    def _wrappers(self) -> Iterator[CallPair]:
        """Yield the port's calls that stand around one layer where the reference has no such call, with that layer's counterpart."""
        paired = {one.port.number for one in self.matching.containers}
        for pair in self.matching.pairs:
            if pair.port.parent is not None and pair.port.parent not in paired:
                around = self.runs.port.trace.calls[pair.port.parent]
                if around.children == [pair.port.number]:
                    yield CallPair(reference=pair.reference, port=around)

    def _agreeing(self) -> Iterator[tuple[CallPair, TensorLink]]:
        """Yield the outputs of layers, and of code around some, that are the same tensor in both models, the last first."""
        around = (one for one in self.matching.containers if one.port.parent is not None)
        known = {(one.reference.number, one.port.number): one for one in (*around, *self.matching.pairs)}
        for pair in sorted(known.values(), key=lambda one: one.port.ended, reverse=True):
            for link in self.compare.outputs(pair):
                ours, theirs = pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]
                if ours.dtype.kind == "f" and self.compare.between(ours, theirs, link.layout) <= self.noise.limit:
                    yield pair, link

    def _code(
        self, calls: Calls, apart: float, what: str, values: tuple[TracedValue, TracedValue] | None = None
    ) -> LayerVerdict:
        """Return the verdict about the code of two calls, which takes ``values`` apart."""
        ours, theirs = calls
        odd = "" if values is None else self.compare.nan_in_one(*values)
        size = odd or (f"relative {apart:.3g}" if isfinite(apart) else "")
        return LayerVerdict(
            reference_path=ours.path,
            port_path=theirs.path,
            reference_type=ours.type,
            port_type=theirs.type,
            turn=theirs.turn,
            direction="forward",
            own=apart,
            closeness=Closeness.DIFFERS,
            method="float64" if self.exact else "float32",
            reason=f"every layer before it agrees, but its own code {what}{f' ({size})' if size else ''}",
            nan=bool(odd),
        )

    def used_elsewhere(self, forward: Sequence[LayerVerdict], shared: Sequence[Shared]) -> list[LayerVerdict]:
        """Return the verdict about code that uses a layer's parameter itself, and hands it another gradient."""
        fine = {(one.reference_path, one.port_path) for one in forward if one.closeness in FINE}
        for one in shared:
            ours, theirs = one.pair.reference, one.pair.port
            if (ours.path, theirs.path) in fine and ours.parent is not None and theirs.parent is not None:
                reference, port = self.runs.traces
                calls = reference.calls[ours.parent], port.calls[theirs.parent]
                what = f"gives {theirs.path}.{one.name} another gradient"
                found = self._code(calls, one.apart / one.size if one.size else inf, what)
                return [replace(found, direction="backward")]
        return []

    def gives_own(self, unlike: Sequence[Shared]) -> list[LayerVerdict]:
        """Return the verdicts about code that hands another gradient, or none, to a parameter of its layer's own."""
        return [
            replace(
                self._code(
                    (one.pair.reference, one.pair.port),
                    one.apart / one.size if one.size else inf,
                    f"gives its parameter {one.name} another gradient, or none",
                ),
                direction="backward",
            )
            for one in unlike
        ]


def holds(trace: Trace, around: Call, call: Call) -> bool:
    """Tell whether a call is made inside another."""
    return any(one.number == around.number for one in trace.around(call))


def _agree(expected: Array, actual: Array, least: float, tolerance: float) -> bool:
    """Tell whether two gradients agree, beside their RMS or ``least``; none at all is a single zero."""
    if expected.shape != actual.shape:
        return max(rms(expected), rms(actual)) <= least
    return distance(expected, actual) <= tolerance * max(rms(expected), least)
