"""Judge each pair of calls by itself: the port's layer is given the reference's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from math import inf, prod, sqrt
from operator import itemgetter
from typing import Literal

import numpy as np

from tipchain.core.progress import LATE, Pace
from tipchain.explain.locate.between_layers import CodeJudge, holds
from tipchain.explain.locate.differences import relative, squeezed_as
from tipchain.explain.locate.gradients import Arrays, Shared, SharedParameters, measure_gradients
from tipchain.explain.locate.matching import CallPair, TensorLink, Values
from tipchain.explain.locate.rerun import NotReplayed, PairReruns
from tipchain.explain.locate.runs import TracedRuns
from tipchain.explain.locate.trace import Call, NotHeld, TracedValue
from tipchain.explain.locate.verdicts import (
    FAULTS,
    FINE,
    Closeness,
    Direction,
    LayerVerdict,
    Measured,
    classify,
    continued,
    frameworks_own,
    measure,
    reason_of,
    settled,
)
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import CONSTANT, ROUGH, SAME_DOUBLE, SAME_SINGLE

Found = tuple[list[Measured], list[Measured]]
"""Measurements of the outputs, and of the gradients."""
STATE = "it gives another result when it is run again on the same inputs: it keeps state between calls"
ROUNDINGS = 2.0
"""Times the reference's own error in float32 that a tensor may be off where a kernel computes in float32, as a layer's may."""
CLOSER = 0.5
"""Largest fraction of a layer's error left where its next step belongs to it."""
SPREAD = 100.0
"""Growth allowed to float64 errors in later layers of one function: a choice.

Beyond it the layer's own error is measured for itself."""


@dataclass(slots=True, kw_only=True)
class _Done:
    """The judgements so far.

    Attributes:
        forward: verdicts, in the order of the port's calls.
        backward: likewise.
        code: those of ``forward`` that are about code between the layers.
        loose: how far a verdict would take the outputs, by its id, of those that rest on which call is taken for which.
        clean: nothing before differs.
    """

    forward: list[LayerVerdict] = field(default_factory=list)
    backward: list[LayerVerdict] = field(default_factory=list)
    code: list[LayerVerdict] = field(default_factory=list)
    loose: dict[int, float] = field(default_factory=dict)
    clean: bool


@dataclass(kw_only=True)
class PairJudge(CodeJudge):
    """Judges the pairs of a matching, forward and backward, and the code between them.

    Attributes:
        equal_nan: whether NaN at the same positions of both models' outputs, or gradients, is no fault.
        pace: how long this may take.
        single: layers that agree in float64 are run in float32, too.
        late: pairs for which there was no time.
        alike_inside: the gradients of all parameters agree in float64, however both models arrange them.
        gradients_apart: how far the gradients of all parameters are apart in float64, the largest, relative RMS.
        wrong: the pairs whose layers give something else by themselves.
        joint: the pairs that are judged with what one side does next.
    """

    equal_nan: bool = False
    pace: Pace = field(default_factory=Pace)
    single: bool = False
    late: int = 0
    wrong: list[CallPair] = field(default_factory=list)
    joint: list[CallPair] = field(default_factory=list)
    alike_inside: bool = False
    gradients_apart: float = inf
    _shared: SharedParameters = field(init=False)
    _own: list[Shared] = field(default_factory=list)
    _left: dict[int, Array] = field(default_factory=dict)
    _made: dict[int, float] = field(default_factory=dict)

    def judge(self, *, hasty: bool = False) -> tuple[LayerVerdict, ...]:
        """Return the verdicts: forward in the order of the port's calls, then backward in the opposite order.

        Args:
            hasty: whether to give up as soon as it is clear that the models differ, or that whole tensors are needed.

        Raises:
            NotHeld: of a tensor that is needed an outline is held, or ``hasty`` and the models differ.
        """
        self.noise = CONSTANT if self.exact else ROUGH
        furthest = max(self.outputs_apart(), default=inf)
        near = furthest <= ROUGH
        if hasty and furthest > self.noise:
            raise NotHeld
        # The gradients of all parameters are compared before layers are run again and overwrite them.
        side, model = self.models.reference.side, self.runs.reference.trace.calls[0].layer
        gradients = ((one, side.framework.gradient(one)) for _, one in side.parameters(model))
        self._left = {id(one): side.view(found) for one, found in gradients if found is not None}
        keepers = self.matching.keepers
        pairs = (*self.matching.pairs, *keepers) if self.exact else ()
        self._shared = SharedParameters(self.models, pairs, (self.runs.reference.projected, self.runs.port.projected))
        if self.exact and near:
            self._own = list(self._shared.unlike((*self.matching.containers, *keepers), ROUGH))
        comparable = self.exact and near and not self._own
        self.alike_inside = comparable and self._shared.alike(SAME_DOUBLE)
        self.gradients_apart = 0.0 if self.alike_inside else self._shared.apart()
        if self.gradients_apart == inf and comparable and self._shared.alike(SAME_SINGLE):  # arranged otherwise
            self.gradients_apart = SAME_SINGLE
        port = self.models.port
        if port.double is not None:  # the reference's gradients are what layers are held against, the port's have been
            port.side.clear_gradients(port.double.whole)
        verdicts = self._concluded(self._in_turn(self._judge_layers(self.matching.pairs, hasty=hasty)))
        return verdicts if self.equal_nan else self._less_nan(verdicts)

    def _judge_layers(self, pairs: Iterable[CallPair], *, hasty: bool) -> dict[int, list[LayerVerdict]]:
        found: dict[int, list[LayerVerdict]] = {}
        for number, pair in enumerate(pairs):
            if self.pace.over:
                self.late = len(self.matching.pairs) - len(found)
                break
            self.pace.tell("comparing layers", number, len(self.matching.pairs))
            judged = [self._weighed(pair, one) for one in self._judge_jointly(pair, self.compare.inputs_apart(pair))]
            first, *_ = judged
            if first.at_fault and first.direction == "forward":
                self.wrong.append(pair)
            if hasty and not self.alike_outside and any(one.at_fault for one in judged):
                raise NotHeld
            found[pair.port.number] = judged
        return found

    def _in_turn(self, judged: Mapping[int, list[LayerVerdict]]) -> _Done:
        """Return the verdicts in the order of the port's calls, with those about the code between the layers."""
        done = _Done(clean=same_numbers(self.runs))
        for pair in self.matching.pairs:
            verdicts, made = judged.get(pair.port.number), self._made.get(pair.port.number)
            if verdicts is None:
                done.forward.append(self._verdict(pair, "forward", 0.0, Closeness.NOT_COMPARABLE, None, LATE))
                continue
            inherited = self.compare.inputs_apart(pair)
            # Tensors of other shapes show no difference where what is made of them is the same.
            if done.clean and (self.compare.inputs(pair) or not self._agree(pair)):
                self._judge_given(done, pair, inherited)
            if made is not None:  # later tensors may differ as far as a layer that agrees may take them
                passed = inherited if inherited <= self.noise else 0.0
                self.noise = max(self.noise, SPREAD * made, SPREAD * passed)
            verdicts = self._of_own_code(pair.port, judged, done) if pair.whole else verdicts
            forward, *backward = verdicts
            # The models' outputs depend on it.
            alive = all(any(map(self.compare.gradient_size, call.outputs)) for call in pair.calls)
            outputs = self.compare.outputs(pair)
            if pair.whole or not outputs or alive:
                far = self._influence(pair.reference.outputs, outputs, forward.own)
                done.loose |= {id(each): far for each in verdicts}
            done.forward.append(forward)
            done.backward += backward
            if not self._agree(pair) and forward.at_fault:
                done.clean = False
        return done

    def _of_own_code(self, call: Call, judged: Mapping[int, list[LayerVerdict]], done: _Done) -> list[LayerVerdict]:
        """Return the verdicts about a container, in the light of the faults inside it."""
        trace, around = self.runs.port.trace, f"{call.path}." if call.path else ""
        held = [several for number, several in judged.items() if holds(trace, call, trace.calls[number])]
        inside = [*chain(*held), *(each for each in done.code if f"{each.port_path}.".startswith(around))]
        found, verdicts = next((one.port_path for one in inside if one.at_fault), None), []
        for one in judged[call.number]:
            off = inf if one.own is None else one.own
            # In float32 it may be as far off as its layers' rounding grows.
            if one.method != "float64" and one.at_fault and off <= rounded(inside, one.direction):
                reason = "as far off as its layers' rounding takes it"
                verdicts.append(replace(one, closeness=Closeness.ROUNDING, reason=reason))
            elif found is not None and one.at_fault:
                reason = f"differs, as {found or 'the model'} does; its own code cannot be judged apart from that"
                verdicts.append(one.not_comparable(reason))
            else:
                verdicts.append(one)
        return verdicts

    def _judge_given(self, done: _Done, pair: CallPair, inherited: float) -> None:
        inputs = self.compare.inputs(pair)
        if inherited <= self.noise or self.made_up_for(pair):
            return
        if self._rounded(inherited, (pair.reference.inputs, pair.port.inputs), inputs):
            self.noise = SPREAD * inherited
            return
        done.clean = False
        done.code.append(self.code_before(pair, inherited))
        done.forward.append(done.code[-1])
        done.loose[id(done.code[-1])] = self._influence(pair.reference.inputs, inputs, inherited)

    def _concluded(self, done: _Done) -> tuple[LayerVerdict, ...]:
        """Return the verdicts with the models' ends, less those that the whole models refute."""
        values, outputs = self.runs.reference.values, self.outputs_apart()
        far = max(outputs, default=inf)
        alike = far <= (CONSTANT if self.exact else SAME_SINGLE)
        alike = alike or self._rounded(far, (values, self.runs.port.values), self.outputs)
        actual = self._influence(values, self.outputs, far) if alike else 0.0
        refuting = partial(settled, loose=done.loose, actual=actual, gradients=self.alike_inside)
        if (done.clean or (alike and not any(one.at_fault for one in refuting(done.forward)))) and not self.late:
            # Code may make another output though all layers agree, or else other gradients alone.
            at_end = self.judge_outputs()
            done.forward += at_end
            if not at_end and self.exact and not any(one.at_fault for one in done.backward):
                changed = self.changed_gradient(max(outputs, default=0.0))
                unlike = [] if self.alike_inside else self._shared.beyond(ROUGH)
                changed = changed or self.used_elsewhere(done.forward, self._by_themselves(unlike))
                changed = changed or [
                    self._parameter(one, one.pair.calls, f"gives its parameter {one.name} another gradient, or none")
                    for one in self._by_themselves(self._own)
                ]
                apart = [] if self.gradients_apart <= ROUGH else self._shared.beyond(ROUGH, share=1.0)
                unsure = any(one.closeness is Closeness.NOT_COMPARABLE for one in (*done.forward, *done.backward))
                if not changed and unsure and apart:
                    changed = [self._parameter(apart[0], self.roots.calls, "gives parameters other gradients")]
                done.backward += changed
                done.loose |= {} if apart else {id(one): inf for one in changed}
        verdicts = (*done.forward, *reversed(done.backward))
        return refuting(verdicts) if alike else verdicts

    def _less_nan(self, verdicts: tuple[LayerVerdict, ...]) -> tuple[LayerVerdict, ...]:
        """Return the verdicts, failing both sides' first NaN if it reaches outputs or parameters."""
        ends = [self.runs.reference.values[link.ours].stored for link in self.outputs]
        forward = any(map(self.store.has_nan, ends))
        if any(one.at_fault for one in verdicts) or not (forward or _any_nan(self._left.values())):
            return verdicts
        born = self._first_nan(forward=forward)
        direction: Direction = "forward" if forward else "backward"
        what, where = ("NaN", "outputs") if forward else ("a gradient with NaN", "gradients of parameters")
        reason = f"it gives {what} first, on both sides, which reaches the {where}: NaN at the same positions fails unless equal_nan=True"
        failed = replace(self._verdict(born, direction, 0.0, Closeness.DIFFERS, None, reason), own=0.0, nan=True)
        told = [(one.port_path, one.turn, one.direction) for one in verdicts]
        key, rest = (*born.port.key, direction), [one for one in verdicts if one.direction == "forward"]
        place = told.index(key) if key in told else len(rest)
        return (*verdicts[:place], failed, *verdicts[place:])

    def _first_nan(self, *, forward: bool) -> CallPair:
        """Return the calls that first give NaN, or gradients with NaN, and are given none; the code around a layer that is."""

        def have_nan(values: Iterable[TracedValue]) -> bool:
            stored = (value.stored if forward else value.gradient for value in values)
            return any(one is not None and self.store.has_nan(one) for one in stored)

        def is_given_nan(call: Call) -> bool:
            return have_nan(call.inputs if forward else call.outputs)

        reference, port = self.runs.traces
        for pair in self.matching.pairs if forward else reversed(self.matching.pairs):
            ours, theirs = pair.reference, pair.port
            gives = have_nan(theirs.outputs if forward else theirs.inputs)
            own = {} if forward else self._truths(pair)
            if pair.whole or not (gives or is_given_nan(theirs) or _any_nan(own.values())):
                continue
            while is_given_nan(theirs) and ours.parent is not None and theirs.parent is not None:
                ours, theirs = reference.calls[ours.parent], port.calls[theirs.parent]
            return CallPair(reference=ours, port=theirs)
        return self.roots

    def _influence(self, values: Values, links: Sequence[TensorLink], apart: float | None) -> float:
        """Return the change of backward's start by the reference's tensors that are ``apart``, relative."""
        if not links or apart is None:
            return inf
        ends, size, gradient = [values[link.ours] for link in links], self.compare.size, self.compare.gradient_size
        return apart * sqrt(sum(gradient(one) ** 2 * size(one.stored) ** 2 * prod(one.shape) for one in ends))

    def judge_outputs(self) -> list[LayerVerdict]:
        """Return the verdict about the code that makes another output, if some does."""
        apart = self.outputs_apart()
        far = max(apart, default=0.0)
        reference, port = self.runs
        if far > self.noise and self._rounded(far, (reference.values, port.values), self.outputs):
            self.noise = far
        return [self.code_at_end(apart, self.outputs)] if far > self.noise else []

    def first_code(self) -> tuple[LayerVerdict, CallPair | None] | None:
        """Return the verdict about the first code between the layers that is at fault, and the pair that it gives other tensors.

        The pair is None where the code makes another output of the model. Nothing is returned where no code is at fault, or
        where something else takes the models apart before.
        """
        done = _Done(clean=True)
        for pair in self.matching.pairs:
            if self.compare.inputs(pair) or not self._agree(pair):
                self._judge_given(done, pair, self.compare.inputs_apart(pair))
            if done.code:
                return done.code[0], pair
            if not self._agree(pair) and not self.made_up_for(pair):
                return None
        return next(((one, None) for one in self.judge_outputs()), None)

    def given_alike(self) -> frozenset[int]:
        """Return the numbers of the port's calls whose inputs are their counterparts'."""
        linked = [pair for pair in self.matching.pairs if self.compare.inputs(pair)]
        return frozenset(pair.port.number for pair in linked if self.compare.inputs_apart(pair) <= self.noise)

    def _by_themselves(self, unlike: Sequence[Shared]) -> list[Shared]:
        """Return those parameters whose gradients differ also where layers are given the reference's tensors and gradients."""

        def agrees(one: Shared) -> bool:
            expected = self._truths(one.pair).get(one.name)
            actual = self.models.port.side.parameter_gradients(one.pair.port.layer) or {}
            laid = self._shared.layouts(one.pair).get(one.name)
            found = actual.get(one.name) if laid is None else laid.arranged(actual)
            if expected is None or found is None:
                return False
            return relative(expected, squeezed_as(found, expected.shape)) <= ROUGH

        return [one for one in unlike if not (self.steered and agrees(one))]

    def has_code(self) -> bool:
        """Tell whether a model's code makes tensors between the frameworks' layers; reshapes do not count."""

        def is_reshaped(value: TracedValue, made: TracedValue) -> bool:
            alike = prod(value.shape) == prod(made.shape) and value.dtype == made.dtype
            return alike and self.store.projected(made.stored).relative(self.store.projected(value.stored)) == 0

        for run in self.runs:
            layers = [one for one in run.trace.calls if not one.children]
            made = [value for one in layers for value in one.outputs]
            known = {id(value) for value in (*run.trace.calls[0].inputs, *made)}
            taken = [*(value for one in layers for value in one.inputs), *run.values]
            own = all(frameworks_own(one.layer) for one in layers)
            if not (own and all(id(one) in known or any(is_reshaped(one, other) for other in made) for one in taken)):
                return True
        return False

    def agreeing(self) -> list[CallPair]:
        """Return the pairs of layers that are given, and give, the same by themselves."""
        alike = self.given_alike() - {one.port.number for one in self.joint}
        alone = (one for one in self.matching.pairs if not (one.whole or any(one.then)))
        return [one for one in alone if one.port.number in alike and self._agree(one)]

    def cuts_off(self, code: Call, behind: CallPair) -> LayerVerdict:
        """Return the verdict about code of the port's that hands the model's inputs no gradient from a pair."""
        containers = (one for one in self.matching.containers if one.port.key == code.key)
        reason = f"its own code hands the model's inputs no gradient from {behind.port.path or 'the model'}, the reference one"
        return self._verdict(next(containers, self.roots), "backward", 0.0, Closeness.DIFFERS, None, reason)

    def parting(self) -> int | None:
        """Return the number of the port's first call whose outputs are not its counterpart's; None where all agree."""
        limit = CONSTANT if self.exact else ROUGH
        return next((one.port.number for one in self.matching.pairs if self.compare.outputs_apart(one) > limit), None)

    @property
    def alike_outside(self) -> bool:
        """Whether the models' outputs agree in float64."""
        return self.exact and max(self.outputs_apart(), default=inf) <= SAME_DOUBLE

    @property
    def alike(self) -> bool:
        """Whether outputs and the gradients of all parameters agree in float64, but for constants in float32."""
        outside = max(self.outputs_apart(), default=inf) <= CONSTANT
        return self.exact and outside and not self._own and self.gradients_apart <= CONSTANT

    def _rounded(self, apart: float, values: tuple[Values, Values], links: Sequence[TensorLink]) -> bool:
        """Tell whether tensors that code between the layers made are no further apart than float32 takes the reference's."""
        if not self.exact or not apart <= ROUGH:
            return False
        ours, theirs = values
        return all(
            off <= max(self.noise, ROUNDINGS * self.roundings.get(id(ours[link.ours]), 0.0))
            for off, link in zip(self.compare.each(ours, theirs, links), links, strict=True)
        )

    def _judge_jointly(self, pair: CallPair, inherited: float) -> list[LayerVerdict]:
        """Return a pair's verdicts; if it differs, those with the other's next step if closer."""
        followed = partial(continued, self.matching, pair, self.runs.traces, self.models.sides, self.store)
        if self.exact and inherited <= self.noise and not pair.whole and not self._agree(pair):
            for one in followed():  # in the models' runs only what comes next makes both alike
                same = self.compare.outputs(one) and self._agree(one)
                again = self._judge_pair(one, inherited) if same else []
                if again and not any(each.at_fault for each in again):
                    return self._joined(one, again)
        judged = self._judge_pair(pair, inherited)
        differs = any(one.at_fault for one in judged) or not self.compare.outputs(pair)
        for one in followed() if differs and not pair.whole else ():
            again = self._judge_pair(one, inherited)
            forward, own = again[0], judged[0].own
            told = forward.closeness is not Closeness.NOT_COMPARABLE and bool(self.compare.outputs(one))
            if told and (forward.own or 0.0) < CLOSER * (inf if own is None else own):
                return self._joined(one, again)
        return judged

    def _joined(self, pair: CallPair, verdicts: Sequence[LayerVerdict]) -> list[LayerVerdict]:
        (step,) = chain(*pair.then)
        self.joint.append(pair)
        after, _ = pair.then
        whose = "the reference's" if after else "its"
        return [replace(one, reason=f"with {whose} {step.name} after it: {one.reason}") for one in verdicts]

    def _weighed(self, pair: CallPair, verdict: LayerVerdict) -> LayerVerdict:
        """Return a verdict in the light of the random numbers that both calls drew, and of what the whole model makes of them."""
        if not verdict.at_fault:
            return verdict
        if (pair.whole or not frameworks_own(pair.port.layer)) and self.ends_elsewhere(pair):
            told = "it begins or ends at another call than its counterpart: with that one's results the model is further off"
            return verdict.not_comparable(told)
        told = "random, not comparable: its random numbers cannot be made those of the reference"
        draws = self.runs.port.draws
        alike = draws.comparable(pair.reference.drawn, pair.port.drawn) and not draws.mixed(pair.port.drawn)
        return verdict if alike else verdict.not_comparable(told)

    def _judge_pair(self, pair: CallPair, inherited: float) -> list[LayerVerdict]:
        inputs, outputs = self.compare.inputs(pair), self.compare.outputs(pair)
        if not outputs:
            expected, actual = ([list(value.shape) for value in call.outputs] for call in pair.calls)
            reason = f"its results have other shapes: expected {expected}, actual {actual}"
            sides = zip(self.models.sides, pair.calls, strict=True)
            # A fused layer has more parameters than one of its parts.
            sizes = {sum(prod(one.shape) for _, one in side.parameters(call.layer)) for side, call in sides}
            told = inherited <= self.noise and len(sizes) == 1
            closeness = Closeness.DIFFERS if told else Closeness.NOT_COMPARABLE
            return [self._verdict(pair, "forward", inherited, closeness, None, reason)]
        reruns = PairReruns(self.models, pair, inputs, outputs, self.store, self.seed)
        if not inputs and pair.reference.inputs and pair.port.inputs:
            reason = "its arguments are other tensors than the reference's"
            return [self._verdict(pair, "forward", inherited, Closeness.NOT_COMPARABLE, None, reason)]
        apart = max(self._gradients_of(pair, "outputs"))
        try:
            found = self._measured(reruns, inherited)
        except NotReplayed as error:  # then the models' runs must tell
            reason, unknown = f"it cannot be run by itself: {error}", Closeness.NOT_COMPARABLE
            backward = [self._verdict(pair, "backward", apart, unknown, None, reason)] if reruns.backward else []
            if reruns.backward:
                with suppress(NotReplayed):
                    measured, _ = self._measured(replace(reruns, forward=True), inherited)
                    return [self._decide(pair, "forward", inherited, measured), *backward]
            if inherited <= self.noise and not self._agree(pair):
                far = {reruns.output_name(link): self.compare.output_apart(pair, link) for link in outputs}
                worst = Measured(*max(far.items(), key=itemgetter(1)))
                return [self._decide(pair, "forward", inherited, [worst]), *backward]
            return [self._verdict(pair, "forward", inherited, unknown, None, reason), *backward]
        directions: tuple[tuple[Direction, float], ...] = ("forward", inherited), ("backward", apart)
        both = zip(directions, found, strict=True)
        decided = [self._decide(pair, way, before, told) for (way, before), told in both if told or way == "forward"]
        shown = inherited <= self.noise and not self._agree(pair)  # by the models' runs
        if shown or not any(one.at_fault for one in decided):
            return decided
        if self._repeats_itself(reruns, 0) and self._repeats_itself(reruns, 1):
            return decided
        return [one.not_comparable(STATE) for one in decided]

    def _repeats_itself(self, reruns: PairReruns, number: Literal[0, 1]) -> bool:
        """Tell whether a layer repeats its results of the model's run, given the same inputs.

        One that keeps something from call to call does not, and a rerun says nothing of it.
        """
        call, double = reruns.pair.calls[number], self.models[number].double is not None
        given = [self.store.get(value.stored) for value in call.inputs]
        try:
            again = reruns.run(number, given, double=double, cotangents=())
        except NotReplayed:
            return False
        return again is not None and all(
            one.shape == value.shape and relative(self.store.get(value.stored), one) <= ROUGH
            for one, value in zip(again.outputs, call.outputs, strict=False)
        )

    def _measured(self, reruns: PairReruns, inherited: float) -> Found:
        """Measure a pair's outputs and gradients: where both runs agree in float64 on all of them, by these."""
        pair, outputs = reruns.pair, reruns.outputs
        known = self._gradients_known(pair)
        apart = [self.compare.output_apart(pair, link) for link in outputs]
        if self.single or known is None or max([inherited, *apart]) > SAME_DOUBLE:
            return self._in_full(reruns, inherited)
        forward = [Measured(reruns.output_name(link), one) for link, one in zip(outputs, apart, strict=True)]
        ends = [one for one in reruns.inputs if pair.reference.inputs[one.ours].gradient is not None]
        names = [pair.port.input_names[link.theirs] for link in ends if reruns.backward]
        backward = [Measured(f"gradient of input {name}", known) for name in names]
        parameters = self._shared.largest(pair)
        return forward, backward if parameters is None else [*backward, Measured("gradients of parameters", parameters)]

    def _in_full(self, reruns: PairReruns, inherited: float) -> Found:
        """Measure the outputs, and the gradients that the layers give for the reference's cotangents."""
        pair = reruns.pair
        # An output that another one is made of has the other's share in its gradient: backward from both counts that twice.
        several = sum(pair.reference.outputs[link.ours].gradient is not None for link in reruns.outputs) > 1
        again = any(call.path in repeated for repeated, call in zip(self._repeated, pair.calls, strict=True))
        truths = None if several or again else self._truths(pair)
        measured = self._outputs(reruns, whole=inherited <= self.noise)
        closer = replace(reruns, pair=replace(pair, whole=False))
        if pair.whole and _slightly(measured):
            reruns = closer
            measured = self._outputs(reruns, whole=inherited <= self.noise)
        if classify(measured)[0] is Closeness.DIFFERS and 0 < inherited <= self.noise:
            measured = self._outputs(reruns, whole=False)  # it may have been given most of that
        if classify(measured)[0] not in FAULTS:
            number = pair.port.number
            self._made[number] = max([self._made.get(number, 0.0), *(one.exact or 0.0 for one in measured)])
        if not reruns.backward:
            return measured, []
        known = self._gradients_known(pair)
        path = pair.reference.path
        inside = [not path or f"{name}.".startswith(f"{path}.") for name in self.runs.reference.projected]
        if truths is not None and any(inside) and (known is None or not pair.whole):
            truths = None if reruns.reference64 is None else reruns.reference64.parameters
        found = self._measure_gradients((reruns, closer), truths, known)
        if known is not None and classify(found)[0] is Closeness.DIFFERS:
            found = self._measure_gradients((reruns, closer), truths, None)
        return measured, found

    @cached_property
    def _repeated(self) -> list[set[str]]:
        """The paths of both models' layers that are called more than once."""
        return [{call.path for call in trace.calls if call.turn} for trace in self.runs.traces]

    def _agree(self, pair: CallPair) -> bool:
        return self.compare.outputs_apart(pair) <= self.noise

    def _outputs(self, reruns: PairReruns, *, whole: bool) -> list[Measured]:
        """Measure the outputs; ``whole``: in float64 by the models' runs, else by a rerun."""
        found = []
        for link in reruns.outputs:
            what = reruns.output_name(link)
            exact: Array | float | None = None
            if whole and self.exact:
                exact = self.compare.output_apart(reruns.pair, link)
            elif reruns.port64 is not None:
                exact = link.layout.back(reruns.port64.outputs[link.theirs])
            slow, fast = reruns.singles
            if slow is None and fast is None and isinstance(exact, float):
                found.append(Measured(what, exact))
                continue
            moved = None if self.exact or exact is not None else reruns.moved
            truth = self.store.get(reruns.pair.reference.outputs[link.ours].stored)
            ours, shaken = (None if one is None else one.outputs[link.ours] for one in (slow, moved))
            theirs = None if fast is None else link.layout.back(fast.outputs[link.theirs])
            found.append(measure(what, truth, ours, theirs, exact, shaken))
        return found

    def _decide(self, pair: CallPair, direction: Direction, inherited: float, measured: list[Measured]) -> LayerVerdict:
        closeness, worst = classify(measured)
        verdict = self._verdict(pair, direction, inherited, closeness, worst, reason_of(closeness, worst))
        if direction == "backward" or verdict.own != inf:
            return verdict
        ours, theirs = pair.reference.outputs, pair.port.outputs
        found = (self.compare.nan_in_one(ours[one.ours], theirs[one.theirs]) for one in self.compare.outputs(pair))
        odd = next(filter(None, found), "")
        return replace(verdict, nan=True, reason=f"it gives {odd}") if odd else verdict

    def _measure_gradients(
        self, reruns: tuple[PairReruns, PairReruns], truths: Arrays | None, known: float | None
    ) -> list[Measured]:
        measured = partial(measure_gradients, truths=truths, known=known, double=self.exact)
        plain, closer = reruns
        found = [*measured(plain, self._shared.known_layouts(plain.pair))]
        again = plain.pair.whole and _slightly(found)
        return [*measured(closer, self._shared.known_layouts(closer.pair))] if again else found

    def _gradients_known(self, pair: CallPair) -> float | None:
        """Return how far the whole runs' gradients around a layer, and of its parameters, are apart.

        None where that is more than code between the layers may make: then the layer must be run by itself to tell.
        """
        around = [*self._gradients_of(pair, "inputs"), *self._gradients_of(pair, "outputs")]
        largest = max([*around, self._shared.largest(pair) or 0.0])
        return largest if self.exact and largest <= CONSTANT else None

    def _gradients_of(self, pair: CallPair, ends: Literal["inputs", "outputs"]) -> list[float]:
        ours, theirs = getattr(pair.reference, ends), getattr(pair.port, ends)
        links = self.compare.inputs(pair) if ends == "inputs" else self.compare.outputs(pair)
        return [self.compare.gradients_apart(ours[link.ours], theirs[link.theirs], link.layout) for link in links]

    def _truths(self, pair: CallPair) -> Arrays:
        found = self.models.reference.side.parameters(pair.reference.layer)
        return {name: self._left[id(one)] for name, one in found if id(one) in self._left}


def _any_nan(arrays: Iterable[Array]) -> bool:
    return any(one.size and bool(np.isnan(one.min())) for one in arrays)


def same_numbers(runs: TracedRuns) -> bool:
    """Tell whether two runs drew the same random numbers."""
    ours, theirs = (run.draws for run in runs)
    return theirs.comparable(range(len(ours.made)), range(len(theirs.made)))


def rounded(verdicts: Iterable[LayerVerdict], direction: Direction) -> float:
    """Return how far results in float32 may be off of layers that do the same: as far as their own rounding may grow."""
    fine = (one.own or 0.0 for one in verdicts if one.direction == direction and one.closeness in FINE)
    return SPREAD * max(fine, default=0.0)


def _slightly(measured: Sequence[Measured]) -> bool:
    """Tell whether a difference is so small that the reference's float32 error must decide."""
    closeness, worst = classify(measured)
    return closeness is Closeness.DIFFERS and worst is not None and (worst.exact or 0.0) < ROUGH
