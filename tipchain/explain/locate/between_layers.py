"""Code between the layers: which made a tensor, which changes gradients, and which is at fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf, isfinite, prod
from typing import Literal

import numpy as np

from tipchain.explain.locate.differences import arrange, distance, plain, relative, rms, same_mask
from tipchain.explain.locate.gradients import Shared, has_own_weight, users_of
from tipchain.explain.locate.matching import CallPair, Comparer, Matching, TensorLink
from tipchain.explain.locate.rerun import BothModels, Corrections, as_float
from tipchain.explain.locate.runs import TracedRuns
from tipchain.explain.locate.trace import (
    Call,
    CallKey,
    Store,
    Trace,
    TracedValue,
    Twins,
    each_call,
    take_out,
    with_results,
)
from tipchain.explain.locate.verdicts import FINE, Closeness, Direction, LayerVerdict, Measured, frameworks_own
from tipchain.framework_types import Array, Model, Nested, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.numbers.tolerance import EXPLAINED, ROUGH, SAME_DOUBLE, SAME_SINGLE
from tipchain.weights.structure import group_by

Calls = tuple[Call, Call]
Values = tuple[TracedValue, TracedValue]


SHIFT = SAME_SINGLE
"""How far values are moved, beside their RMS, so that no two are equal: as far as results may be apart that are the same."""
MOST_RERUN = 4
"""Layers of one class for which the port is run again, to see whether they end at another call."""
Take = Callable[[CallPair, TensorLink, Tensor], "Tensor | None"]
"""Is given the gradient of a layer's output, by the pair and the link of that; may return another in its place."""


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
        self._keys = [{pair.calls[side].key: pair.reference.key for pair in pairs} for side in (0, 1)]
        self.factors: tuple[dict[str, float], dict[str, float]] = ({}, {})
        self._made: dict[CallKey, Array] = {}
        self._takes: dict[tuple[int, CallKey], bool] = {}
        self._gives: dict[tuple[int, CallKey], bool] = {}
        doubles = [(one.side, one.double.whole) for one in models if one.double is not None]
        users = users_of(layer for side, model in doubles for _, layer in side.layers(model))
        own = (one for one in pairs if all(has_own_weight(each.layer, ENLARGING, users) for each in one.calls))
        self._partners = {one.reference.path: one.port.path for one in own}

    @contextmanager
    def applied(self, number: int, model: Model, known: Twins | None) -> Iterator[None]:
        """Enlarge the weights of called layers, a copy's or the port's, and record the tensors.

        The copy keeps the larger weights. ``known`` are the tensors of the reference's run, which the port's is given.
        """
        side, keys = self._models[number].side, self._keys[number]
        layers, (factors, port_factors) = dict(side.layers(model)), self.factors

        def flows(value: Nested) -> bool:
            given = take_out(value, side.is_tensor)[1]
            return any(side.takes_gradient(one) and one.is_floating_point() for one in given)

        def enter(call: CallKey, given: Nested) -> None:
            self._takes[number, call] = flows(given)

        def leave(call: CallKey, result: Nested) -> Nested:
            self._gives[number, call] = flows(result)
            key, (path, _) = keys.get(call), call
            if not side.is_tensor(result) or not result.is_floating_point():
                return None
            if not number:
                # From its first call on, be it in a pair or not: the port's has the larger weights in all of them.
                if path in self._partners and path not in factors and 0 < (size := rms(side.view(result))) < inf:
                    factors[path] = ENLARGED / size
                    enlarge(side, layers[path], factors[path])
                    result = result * factors[path]
                if key is not None:
                    self._made[key] = np.array(side.view(result))
                return result
            if key is None:
                return None
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
            for path, other in self._partners.items() if number else ():
                if path in factors and other not in port_factors:
                    port_factors[other] = factors[path]
                    enlarge(side, layers[other], factors[path])
            yield

    def cut_off(self, trace: Trace) -> tuple[Call, CallPair] | None:
        """Return the port's call whose own code cuts off the gradient of the model's inputs, and the pair behind it.

        Nothing is returned where a layer does it by itself, or nothing does. ``trace`` is that of the port's run.
        """
        calls = {one.key: one for one in trace.calls}
        for pair in self._pairs:
            keys = [(side, call.key) for side, call in enumerate(pair.calls)]
            if [self._takes[key] for key in keys] == [True, False]:
                around = [*trace.around(calls[pair.port.key])]
                return next((one for one in around if self._takes[1, one.key]), around[-1]), pair
            if [self._gives[key] for key in keys] == [True, False]:
                break
        return None


# Code between the layers that is at fault: in forward, or in what it does to gradients.


GROWTH = 1000.0
"""Allowed ratio of gradients' differences to outputs': three orders, a choice.

A backward run enlarges the outputs' differences by as far as the weights do, layer by layer."""
TIED = "equal values: each framework gives the gradient of their maximum to another of them; without equal values the gradients agree"
"""Message where gradients differ at ties alone."""


@dataclass(kw_only=True)
class CodeJudge:
    """Names the calls whose own code differs though all their layers agree.

    Attributes:
        models: copies of both.
        runs: what they did.
        matching: which call is which.
        store: where tensors are.
        seed: of random numbers.
        exact: both ran in float64; else the port, or both, in float32.
        noise: how far tensors of the two runs may be apart that are the same; it grows with clean layers' own.
        outputs: which of the models' outputs belong together.
    """

    models: BothModels
    runs: TracedRuns
    matching: Matching
    store: Store
    seed: int
    exact: bool = True
    noise: float = 0.0
    outputs: tuple[TensorLink, ...] = field(init=False)
    compare: Comparer = field(init=False)
    _elsewhere: dict[tuple[str, str], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ours, theirs = self.runs
        self.compare = Comparer(self.store, (*ours.values, *theirs.values))
        self.outputs = tuple(self.compare.results(ours.values, theirs.values, ours.output_names, theirs.output_names))

    @property
    def roots(self) -> CallPair:
        """The calls of the models themselves."""
        reference, port = self.runs.traces
        return CallPair(reference=reference.calls[0], port=port.calls[0])

    def code_before(self, pair: CallPair, apart: float) -> LayerVerdict:
        """Return the verdict about the code that gave the pair other tensors though all layers before agree."""
        worst = max(self.compare.inputs(pair), default=None, key=partial(self._apart, pair))
        numbers = (0, 0) if worst is None else (worst.ours, worst.theirs)
        calls = self._block_at_fault(pair) or self._giving(pair, numbers)
        values = None if worst is None else (pair.reference.inputs[worst.ours], pair.port.inputs[worst.theirs])
        return self._code(calls, apart, f"gives {pair.port.path or 'the model'} something else", values)

    def code_at_end(self, apart: Sequence[float], outputs: Sequence[TensorLink]) -> LayerVerdict:
        """Return the verdict about the code that made the output that is furthest apart, by ``apart`` of ``outputs``."""
        worst = max(apart)
        link = next(iter(outputs[apart.index(worst) :]), None)
        ours, theirs = (run.values for run in self.runs)
        values = None if link is None else (ours[link.ours], theirs[link.theirs])
        roots = self.roots.calls
        calls = self._block_at_fault(None) or (roots if values is None else self._culprits(values, roots))
        what = "makes another output"
        if link is None and len(ours) == len(theirs):  # of another shape
            other = min({*range(len(ours))} - {one.ours for one in outputs}, default=0)
            what = f"makes output {self.runs.port.output_names[other]} {list(theirs[other].shape)}, expected {list(ours[other].shape)}"
        return self._code(calls, worst, what, values)

    def made_up_for(self, pair: CallPair) -> bool:
        """Tell whether a container around the pair is given and returns the same in both models, whatever it does inside.

        Or the pair is of a class of the user's that takes other tensors, and makes the same of them.
        """
        if self._makes_the_same(pair):
            return True
        around = (one for one in self.matching.containers if holds(self.runs.port.trace, one.port, pair.port))
        return any(self._alike(one) == (True, True) for one in around)

    def _makes_the_same(self, pair: CallPair) -> bool:
        """Tell whether a layer of a class of the user's gives the reference's results, and rests on tensors that are not the reference's."""
        links = [one for one in self.compare.inputs(pair) if self._apart(pair, one) > self.noise]
        return (
            not frameworks_own(pair.port.layer)
            and bool(links and self.compare.outputs(pair))
            and self.compare.outputs_apart(pair) <= self.noise
            and all(self.compare.gradient_size(pair.reference.inputs[one.ours]) > 0 for one in links)
        )

    def _block_at_fault(self, before: CallPair | None) -> Calls | None:
        """Return the innermost container that is given the same in both models and returns something else, before a pair."""
        trace, paired = self.runs.port.trace, {one.port.number for one in self.matching.containers}
        # The port's calls around one layer where the reference has no such call stand for that layer.
        alone = [one for one in self.matching.pairs if one.port.parent is not None and one.port.parent not in paired]
        around = (replace(one, port=trace.calls[one.port.parent]) for one in alone if one.port.parent is not None)
        wrappers = (one for one in around if len(one.port.children) == 1 and self.compare.stands_for(one))
        every = (*self.matching.containers, *wrappers)
        earlier = (one for one in every if before is None or one.port.number < before.port.number)
        beside = (one for one in earlier if before is None or not holds(trace, one.port, before.port))
        found = [one for one in beside if self._alike(one) == (True, False)]
        inner = [one for one in found if not any(holds(trace, one.port, other.port) for other in found)]
        first = min(inner, key=lambda one: one.port.number, default=None)
        return None if first is None or first.port.parent is None else first.calls

    def outputs_apart(self) -> tuple[float, ...]:
        """Return the relative RMS differences in float64 of the outputs that both models have.

        Inf where another shape stands where the reference has one, be it under another name, and where both have some but none fits.
        """
        ours, theirs = self.runs
        found = tuple(self.compare.each(ours.values, theirs.values, self.outputs))
        depths, port_depths = ([name.count(".") for name in run.output_names] for run in self.runs)
        in_place = depths == port_depths and all(link.ours == link.theirs for link in self.outputs)
        if ours.output_names == theirs.output_names or (found and in_place):
            return found + (inf,) * (len(ours.values) - len(found))
        return found or (inf,) * bool(ours.values or theirs.values)

    def ends_elsewhere(self, pair: CallPair) -> bool:
        """Tell whether the port's outputs, or what layers that agree are given, are further off where a call gives what the reference's gives.

        Then it ends at another call than its counterpart, such as an activation that the reference applies behind it.
        """
        paths = pair.reference.path, pair.port.path
        if not pair.port.path or paths in self._elsewhere:
            return self._elsewhere.get(paths, False)
        every, kinds = (*self.matching.pairs, *self.matching.containers), (pair.reference.type, pair.port.type)
        turns = [one for one in every if (one.reference.path, one.port.path) == paths]
        own = not frameworks_own(pair.port.layer)
        alike = [one for one in every if (one.reference.type, one.port.type) == kinds] if own else turns
        known = [self._elsewhere.get(one) for one in {(each.reference.path, each.port.path) for each in alike}]
        if any(known) or any(map(self._makes_the_same, alike)):
            self._elsewhere[paths] = True
            return True
        if known.count(False) >= MOST_RERUN:
            return False
        # Perhaps all that it returns is given to layers, with what their counterparts are given.
        later = [one for one in self.matching.pairs if one.port.number > pair.port.number and not one.whole]
        fine = {one.port.key: one.port.inputs for one in later if self.compare.inputs_apart(one) <= self.noise}
        if pair.port.outputs and all(any(value in given for given in fine.values()) for value in pair.port.outputs):
            return True
        ours, theirs = self.runs.reference.values, self.runs.port.trace.calls[0]
        corrections = Corrections(self.models.port.side, self.store)
        for one in turns:
            corrections.at_exit(one, self.compare.outputs(one))
        side, moved = self.models.port.side, list[bool]()

        def enter(key: CallKey, given: Nested) -> None:  # what agreed, and rests on the results
            if key in fine:
                arrays = zip(fine[key], map(side.view, take_out(given, side.is_tensor)[1]), strict=False)
                moved.append(any(relative(self._array(one), array) > self.noise for one, array in arrays))

        made = self.models.port.rerun(theirs, self.store, self.seed, corrections.leave, enter=enter)
        ends = () if made is None else made.outputs
        links = [one for one in self.outputs if one.theirs < len(ends)]
        after = [relative(self._array(ours[one.ours]), one.layout.back(ends[one.theirs])) for one in links]
        before = self.outputs_apart()
        taken = any(moved) or any(one > self.noise >= other for one, other in zip(after, before, strict=False))
        further = pair.whole and min(before, default=inf) > self.noise and max(after, default=0.0) > max(before)
        self._elsewhere[paths] = taken or further
        return self._elsewhere[paths]

    def _alike(self, pair: CallPair) -> tuple[bool, bool | None]:
        """Tell whether a pair's inputs and results agree; None of results that differ where the two take, give or end at other tensors."""
        given = self.compare.inputs_apart(pair) <= self.noise
        given = given and self._masked_otherwise(pair, self.compare.inputs(pair)) is None
        both = pair.reference.outputs, pair.port.outputs
        # One side may return the same numbers in several tensors, the other in one.
        counts = [sum(prod(one.shape) for one in values) for values in both]
        if self.compare.outputs(pair):
            alike = self.compare.outputs_apart(pair) <= self.noise
        elif counts[0] and counts[0] == counts[1]:
            ours, theirs = (np.sort(np.concatenate([self._array(one).ravel() for one in values])) for values in both)
            alike = relative(ours, theirs) <= self.noise
        else:
            alike = False
        one_kind = len(pair.reference.inputs) == len(pair.port.inputs) and len(both[0]) == len(both[1])
        return given, alike if alike or (one_kind and not self.ends_elsewhere(pair)) else None

    def _apart(self, pair: CallPair, link: TensorLink) -> float:
        return self.compare.between(pair.reference.inputs[link.ours], pair.port.inputs[link.theirs], link.layout)

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

    def _giving(self, pair: CallPair, numbers: tuple[int, int]) -> Calls:
        """Return the calls of both sides whose code gave a pair its differing tensors, the first though all layers before agree.

        ``numbers`` are those of the tensors among the reference's inputs and the port's.
        """
        holders, seen = self._holders(1), set[int]()
        while True:
            ends = zip(self.runs.traces, pair.calls, strict=True)
            ours, port = (next(trace.around(call), call) for trace, call in ends)
            calls = ours, port
            if all(call.inputs for call in pair.calls):
                given = zip(pair.calls, numbers, strict=True)
                expected, actual = (call.inputs[min(number, len(call.inputs) - 1)] for call, number in given)
                values = expected, actual
                calls = _, port = self._culprits(values, self._around(pair.calls, values, "inputs"))
            seen.add(pair.port.number)
            around = (port, *self.runs.port.trace.around(port))
            holder = next((holders[one.number] for one in around if one.number in holders), None)
            if holder is None or holder.port.number in seen:
                return calls
            links = self.compare.inputs(holder)
            sizes, port_sizes = ({prod(one.shape) for one in call.inputs} for call in holder.calls)
            worst = max(links, default=None, key=partial(self._apart, holder))
            differs: tuple[int, int] | None = (0, 0)
            if worst is not None and self._apart(holder, worst) > self.noise:
                differs = worst.ours, worst.theirs
            elif links or not sizes or not port_sizes or sizes & port_sizes:
                differs = self._masked_otherwise(holder, links)
            if differs is None:
                return calls
            pair, numbers = holder, differs  # it is given something else: that is made before it

    def _culprits(self, values: Values, around: Calls) -> Calls:
        """Return who made two values; ``around`` are the calls whose own code handed them on if a layer that agrees did."""

        def maker(side: int) -> Call:
            """Return the call that made a value, or that whose code handed it on, where that call agrees."""
            made = values[side].made_by
            if made is None or made in {one.calls[side].number for one in self.matching.pairs}:
                return around[side]
            holder = self._holders(side).get(made)
            agrees = holder is not None and self._alike(holder)[1] is not False
            return around[side] if agrees else self.runs.traces[side].calls[made]

        ours, theirs = maker(0), maker(1)
        (reference, port), (_, value) = self.runs.traces, values
        holders = self._holders(0)
        calls = (ours, *reference.around(ours))
        inside = next((holders[one.number].port for one in calls if one.number in holders), None)
        if inside is not None and (value in inside.inputs or any(one is theirs for one in port.around(inside))):
            return ours, inside  # what the reference makes there, the port does not make, but hands on
        return ours, theirs

    def _holders(self, side: int) -> Mapping[int, CallPair]:
        """Return the pairs of containers by the numbers of a side's calls.

        Calls that hold the same layers are paired from the outside in: the innermost of several is the last.
        """
        return {one.calls[side].number: one for one in self.matching.containers}

    @cached_property
    def roundings(self) -> Mapping[int, float]:
        """How far float32 takes the reference's tensors, relative, by their ids; empty where that is not known.

        The reference runs once in float32, each layer that is judged giving what it gave in float64. Some of Paddle's kernels
        compute in float32 whatever they are given, such as the places where a resized image is sampled: that is as far off.
        """
        found: dict[int, float] = {}
        models, (root, *_) = replace(self.models.reference, double=None), self.runs.reference.trace.calls
        judged = {pair.reference.key: pair.reference for pair in self.matching.pairs if not pair.whole}

        def note(values: Sequence[TracedValue], arrays: Iterable[Array]) -> None:
            for value, array in zip(values, arrays, strict=False):
                if value.dtype.kind == "f" and value.shape == array.shape:
                    found[id(value)] = max(found.get(id(value), 0.0), relative(self._array(value), array))

        def enter(key: CallKey, given: Nested) -> None:
            if key in judged:
                note(judged[key].inputs, map(models.side.view, take_out(given, models.side.is_tensor)[1]))

        own = Corrections(models.side, self.store)
        for call in judged.values():
            links = [TensorLink(number, number, plain(one.shape)) for number, one in enumerate(call.outputs)]
            own.at_exit(CallPair(reference=call, port=call), links)
        made = models.rerun(root, self.store, self.seed, own.leave, enter=enter)
        if made is None:
            return {}
        note(root.outputs, made.outputs)
        return found

    def _given(self, number: Literal[0, 1], wanted: Callable[[TracedValue], Array], take: Take) -> bool:
        """Run a model with ``wanted`` for the reference's tensors that its layers give; tell whether it takes that.

        It runs backward from the reference's start, and ``take`` is handed the gradients of these tensors.
        """
        models, root = self.models[number], self.runs[number].trace.calls[0]
        side = models.side
        given = group_by(self._agreeing, lambda one: one[0].calls[number].key)

        def put(pair: CallPair, link: TensorLink, made: Tensor) -> Tensor:
            array = wanted(pair.reference.outputs[link.ours])
            apart = (link.layout.apply(array) if number else array) - side.view(made)
            made = made + side.tensor(as_float(apart, double=models.double is not None), gradient=False)
            if side.takes_gradient(made):
                made.register_hook(partial(take, pair, link))
            return made

        def leave(key: CallKey, result: Nested) -> Nested:
            changes = {(link.ours, link.theirs)[number]: partial(put, pair, link) for pair, link in given.get(key, ())}
            return with_results(side, result, changes)

        def start(ends: Sequence[Tensor]) -> Sequence[Array | None]:
            found: list[Array | None] = [None] * len(ends)
            starts = self.runs.reference.starts()
            for link in self.outputs:
                array = starts[link.ours]
                if array is not None:
                    found[(link.ours, link.theirs)[number]] = link.layout.apply_gradient(array) if number else array
            return found

        return models.rerun(root, self.store, self.seed, leave, start) is not None

    @cached_property
    def steered(self) -> Mapping[int, float]:
        """How far gradients of the port's outputs are off by their receivers alone, by their ids; empty where it does not run so.

        In the models' runs a layer's little error in float64 (a constant that a kernel keeps in float32) reaches all that comes
        later: where it takes an element across a kink, or to a norm of few samples, gradients part that no code changes. Here the
        port runs once more. What its layers give, and the gradients of that, are replaced by the reference's; its parameters have
        the gradients of that run.
        """
        found: dict[int, float] = {}
        side = self.models.port.side

        def take(pair: CallPair, link: TensorLink, gradient: Tensor) -> Tensor | None:
            ours, theirs = pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]
            if ours.gradient is None:
                return None
            expected = self.store.get(ours.gradient)
            actual = link.layout.back_shared(side.view(gradient))
            apart = relative(link.layout.shared(expected), actual)  # of a tensor that several calls give, once for each
            found[id(theirs)] = max(apart, found.get(id(theirs), 0.0))
            given = link.layout.apply_gradient(expected)
            return side.tensor(as_float(given, double=self.models.port.double is not None), gradient=False)

        return found if self._given(1, self._array, take) else {}

    def _nudged(self, number: Literal[0, 1], shift: float) -> Mapping[int, Array]:
        """Return the gradients of the reference's tensors, by their ids, in its layout, where all layers' results are moved by ``shift``.

        Where two values are equal, which of them is the largest is up to the framework, and so is which gets the gradient.
        Nothing is returned where the model does not run so.
        """
        found: dict[int, Array] = {}
        given = dict.fromkeys(id(pair.reference.outputs[link.ours]) for pair, link in self._agreeing)
        numbers = {one: at for at, one in enumerate(given)}

        def moved(value: TracedValue) -> Array:
            """Return a tensor, each element moved by a random part of ``shift``: the same in both models."""
            array = self._array(value)
            generator = np.random.default_rng([self.seed, *array.shape, numbers[id(value)]])
            return np.asarray(array + shift * (rms(array) or 1.0) * generator.uniform(-1, 1, array.shape))

        def note(pair: CallPair, link: TensorLink, gradient: Tensor) -> None:
            array, layout = self.models[number].side.view(gradient), link.layout
            shared = layout.back_shared(array) if number else layout.shared(array)
            found[id(pair.reference.outputs[link.ours])] = np.array(shared)

        return found if self._given(number, moved, note) else {}

    def changed_gradient(self, forward: float) -> list[LayerVerdict]:
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
            size, own = self.compare.gradient_size(one), self.steered.get(id(other))
            return apart(one, other) if own is None else own * size / max(size, SAME_DOUBLE * scale)

        tolerance = max(SAME_SINGLE, GROWTH * forward)
        found = self._first_changed(apart, tolerance)
        if found is not None and self.exact:
            found = self._first_changed(by_itself, tolerance)
        if found is None:
            return []
        far, pair, ours, theirs = found
        receiver = pair.port.path or "the model"
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
        calls = self._around(pair.calls, (ours, theirs), "outputs")
        verdict = replace(self._code(calls, far if expected else inf, what), direction="backward")
        if odd or not self._agree_moved(ours, far, SHIFT):
            return [verdict]
        if self._agree_moved(ours, far, 0.0):  # the reference's block takes its own result further, the port's a copy
            return []
        reason = f"{TIED}: {receiver} gets another gradient (relative {far:.3g})"
        return [replace(verdict, closeness=Closeness.NOT_COMPARABLE, reason=reason, tied=True)]

    def _handed(self, receiver: str, ours: TracedValue, theirs: TracedValue) -> str:
        layout = self.compare.layout(ours, theirs)
        if layout is not None and ours.gradient is not None and theirs.gradient is not None:
            expected = layout.shared(self.store.get(ours.gradient))
            actual = layout.back_shared(self.store.get(theirs.gradient))
            factor = float(np.vdot(expected, actual).real / np.vdot(expected, expected).real)
            if relative(expected * factor, actual) <= SAME_SINGLE * abs(factor):
                return f"hands {receiver} {factor:.6g} times the reference's gradient"
        return f"hands another gradient to {receiver}"

    def _first_changed(
        self, apart: Callable[[TracedValue, TracedValue], float], tolerance: float
    ) -> tuple[float, CallPair, TracedValue, TracedValue] | None:
        """Return where gradients part first on their way back, though every layer hands them on as the reference's does."""
        for pair, link in self._agreeing:
            ours, theirs = pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]
            if (off := apart(ours, theirs)) > tolerance:
                return off, pair, ours, theirs
        return None

    def _around(self, calls: Calls, values: Values, ends: Literal["inputs", "outputs"]) -> Calls:
        """Return the innermost calls around two that do not themselves have the values among their inputs, or outputs."""
        found = []
        for trace, call, value in zip(self.runs.traces, calls, values, strict=True):
            outer = (one for one in trace.around(call) if value not in getattr(one, ends))
            found.append(next(outer, trace.calls[0]))
        return found[0], found[1]

    def _odd_gradients(self, ours: TracedValue, theirs: TracedValue) -> str:
        held = [np.zeros(0) if one.gradient is None else self.store.get(one.gradient) for one in (ours, theirs)]
        expected, actual = (int(np.count_nonzero(~np.isfinite(one))) for one in held)
        if bool(expected) == bool(actual):
            return ""
        whose = "the reference's is finite" if actual else "the reference's is not finite, the port's is"
        slope = "a slope is infinite there, as that of a root, a norm or a logarithm at 0"
        return f"a gradient with NaN or infinity at {expected or actual} elements where {whose}: {slope}"

    def _agree_moved(self, value: TracedValue, apart: float, shift: float) -> bool:
        """Tell whether all gradients agree where each layer gives the reference's values, moved by ``shift``: then no two are equal.

        That of ``value``, which is ``apart``, must lose what a cause takes away: a small difference agrees as it is.
        """
        ours, theirs = self._nudged(0, shift), self._nudged(1, shift)
        least = SAME_SINGLE * max((rms(one) for one in ours.values()), default=0.0)
        nothing = np.zeros(())
        enough = min(SAME_SINGLE * GROWTH, (1 - EXPLAINED) * apart)
        for one in ours.keys() | theirs.keys():
            expected, actual = ours.get(one, nothing), theirs.get(one, nothing)
            tolerance = enough if one == id(value) else SAME_SINGLE * GROWTH
            if expected.shape != actual.shape:  # one is none at all
                agree = max(rms(expected), rms(actual)) <= least
            else:
                agree = distance(expected, actual) <= tolerance * max(rms(expected), least)
            if not agree:
                return False
        return bool(ours and theirs)

    @cached_property
    def _agreeing(self) -> list[tuple[CallPair, TensorLink]]:
        """The outputs of layers, and of code around some, that are the same tensor in both models, the last first."""
        around = (one for one in self.matching.containers if one.port.parent is not None)
        known = {(one.reference.number, one.port.number): one for one in (*around, *self.matching.pairs)}
        pairs = sorted(known.values(), key=lambda one: one.port.ended, reverse=True)
        every = ((pair, link) for pair in pairs for link in self.compare.outputs(pair))
        floats = (two for two in every if two[0].reference.outputs[two[1].ours].dtype.kind == "f")
        return [two for two in floats if self.compare.output_apart(*two) <= self.noise]

    def _code(self, calls: Calls, apart: float, what: str, values: Values | None = None) -> LayerVerdict:
        ours, theirs = calls
        odd = "" if values is None else self.compare.nan_in_one(*values)
        size = odd or (f"relative {apart:.3g}" if isfinite(apart) else "")
        reason = f"every layer before it agrees, but its own code {what}{f' ({size})' if size else ''}"
        pair = CallPair(reference=ours, port=theirs)
        verdict = self._verdict(pair, "forward", 0.0, Closeness.DIFFERS, None, reason)
        return replace(verdict, own=apart, nan=bool(odd))

    def _verdict(
        self,
        pair: CallPair,
        direction: Direction,
        inherited: float,
        closeness: Closeness,
        worst: Measured | None,
        reason: str,
    ) -> LayerVerdict:
        own = None if worst is None else worst.exact if worst.port is None else worst.port
        return LayerVerdict(
            reference_path=pair.reference.path,
            port_path=pair.port.path,
            reference_type=pair.reference.type,
            port_type=pair.port.type,
            turn=pair.port.turn,
            direction=direction,
            inherited=inherited,
            own=own,
            ratio=None if worst is None else worst.ratio,
            closeness=closeness,
            method="float64" if self.exact or (worst is not None and worst.exact is not None) else "float32",
            reason=reason,
        )

    def used_elsewhere(self, forward: Sequence[LayerVerdict], shared: Sequence[Shared]) -> list[LayerVerdict]:
        """Return the verdict about code that uses a layer's parameter itself, and hands it another gradient."""
        fine = {(one.reference_path, one.port_path) for one in forward if one.closeness in FINE}
        reference, port = self.runs.traces
        for one in shared:
            ours, theirs = one.pair.reference, one.pair.port
            if (ours.path, theirs.path) in fine and ours.parent is not None and theirs.parent is not None:
                calls = reference.calls[ours.parent], port.calls[theirs.parent]
                return [self._parameter(one, calls, f"gives {theirs.path}.{one.name} another gradient")]
        return []

    def _parameter(self, one: Shared, calls: Calls, what: str) -> LayerVerdict:
        return replace(self._code(calls, one.apart / one.size if one.size else inf, what), direction="backward")


def holds(trace: Trace, around: Call, call: Call) -> bool:
    """Tell whether a call is made inside another."""
    return any(one.number == around.number for one in trace.around(call))
