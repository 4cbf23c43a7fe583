"""Each pair of calls judged by itself: the port's layer is given what the reference's was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy.typing as npt

from tipchain.parity.locate.agreeing import Agreeing, Found
from tipchain.parity.locate.agreement import joined, of_one_size, settled
from tipchain.parity.locate.comparing import Comparer, Link, back
from tipchain.parity.locate.feeding import Fed
from tipchain.parity.locate.glue import Calls, Glue
from tipchain.parity.locate.gradient_glue import first_changed
from tipchain.parity.locate.gradient_measures import cut_off, input_gradients, parameter_gradients
from tipchain.parity.locate.matching import CallPair, Matching
from tipchain.parity.locate.pair_replays import Models, PairReplays
from tipchain.parity.locate.runs import Run
from tipchain.parity.locate.shared_parameters import SharedParameters
from tipchain.parity.locate.store import NotHeld, Store
from tipchain.parity.locate.trace import Call, Trace, Value
from tipchain.parity.locate.verdicts import (
    EXACT,
    FAULTS,
    Closeness,
    Direction,
    LayerVerdict,
    Measured,
    classify,
    measure,
    only,
    ratio,
    reason_of,
)

Array = npt.NDArray[Any]
AGREE = 2.0**-23
"""Relative difference of tensors of two float64 runs that code between the layers may make: where it computes in
float32, as code with a cast does, that is what it makes."""
COARSELY = 1e-3
"""The same for two runs of which one is in float32."""
SAME = 1e-9
"""Relative difference up to which the results of two models in float64 are the same."""
SPREAD = 100.0
"""How much a later layer may enlarge what an earlier one of the same function was off in float64."""


GRADIENTS_AGREE = 1e-6
"""Relative difference of gradients in two float64 runs whose layers and outputs agree."""
GROWTH = 1000.0
"""How many times as far as their outputs two models' gradients may be apart."""
FAINT = 1e-9
"""A gradient this small beside the largest is nothing but rounding."""


@dataclass(slots=True, kw_only=True)
class PairJudge:
    """Judges the pairs of a matching, forward and backward.

    Attributes:
        models: copies of both.
        runs: what they did.
        matching: which call is which.
        store: where tensors are.
        seed: of random numbers.
        exact: both ran in float64; else the port, or both, in float32.
        alike_inside: the gradients of all parameters agree in float64, however both models arrange them.
    """

    models: tuple[Models, Models]
    runs: tuple[Run, Run]
    matching: Matching
    store: Store
    seed: int
    exact: bool = True
    _noise: float = AGREE
    _shared: SharedParameters = field(init=False)
    _calls: tuple[Counter[int], ...] = ()
    alike_inside: bool = False
    compare: Comparer = field(init=False)
    _agreeing_pairs: Agreeing = field(init=False)

    def __post_init__(self) -> None:
        self.compare = Comparer(self.store)
        self._agreeing_pairs = Agreeing(self.models, self.store, self.compare, self.seed)
        self._calls = tuple(Counter(id(call.layer) for call in run.trace.calls) for run in self.runs)

    def judge(self) -> tuple[LayerVerdict, ...]:
        """Return the verdicts: forward in the order of the port's calls, then backward in the opposite order."""
        self._noise = AGREE if self.exact else COARSELY
        pairs = self.matching.pairs if self.exact else ()
        self._shared = SharedParameters(self.models, pairs)
        self.alike_inside = self.exact and self._shared.alike(SAME)
        forward: list[LayerVerdict] = []
        backward: list[LayerVerdict] = []
        loose: list[LayerVerdict] = []
        clean = True
        for pair in self.matching.pairs:
            inputs, outputs = (
                self.compare.links(pair.reference.inputs, pair.port.inputs),
                self.compare.links(pair.reference.outputs, pair.port.outputs),
            )
            inherited = self.compare.apart(pair.reference.inputs, pair.port.inputs, inputs)
            if clean and inherited > self._noise and not self._made_up_for(pair):
                forward.append(self._code_before(pair, inputs, inherited))
                loose.append(forward[-1])
                clean = False
            judged = self._judge_pair(pair, inputs, outputs, inherited)
            if pair.whole:
                judged = [_less_inside(one, (*forward, *backward)) for one in judged]
            if pair.whole or not outputs or self._alive(pair):
                loose += judged
            forward.append(judged[0])
            backward += judged[1:]
            clean = clean and (self._agree(pair, outputs) or not judged[0].at_fault)
        apart = self.outputs_apart()
        if clean and max(apart, default=0.0) > self._noise:
            forward.append(self._code_at_end(apart))
        elif clean and self.exact and not any(one.at_fault for one in backward):
            changed = self._changed_gradient(max(apart, default=0.0))
            changed = changed or self._used_elsewhere(forward)
            backward += changed
            loose += changed
        verdicts = (*forward, *reversed(backward))
        if not self.alike_outside or not any(one.at_fault for one in loose):
            return verdicts
        return settled(verdicts, loose, gradients=self.alike_inside)

    @property
    def alike_outside(self) -> bool:
        """Whether the models' outputs agree in float64."""
        return self.exact and max(self.outputs_apart(), default=inf) <= SAME

    def outputs_apart(self) -> tuple[float, ...]:
        """Return how far the models' outputs are apart in float64, relative RMS."""
        one, other = (run.trace.calls[0].outputs for run in self.runs)
        return tuple(self.compare.between(a, b, None) for a, b in zip(one, other, strict=False)) + (
            inf,
        ) * abs(len(one) - len(other))

    def _judge_pair(
        self, pair: CallPair, inputs: Sequence[Link], outputs: Sequence[Link], inherited: float
    ) -> list[LayerVerdict]:
        """Return the verdict about forward and, where there are gradients, that about backward."""
        if not outputs:
            shapes = [[list(value.shape) for value in call.outputs] for call in (pair.reference, pair.port)]
            reason = f"its results have other shapes: expected {shapes[0]}, actual {shapes[1]}"
            told = inherited <= self._noise and of_one_size((self.models[0].side, self.models[1].side), pair)
            closeness = Closeness.DIFFERS if told else Closeness.NOT_COMPARABLE
            return [self._verdict(pair, "forward", inherited, closeness, None, reason)]
        if not pair.whole and inherited <= self._noise and not self._agree(pair, outputs):
            call = joined(self.matching, pair, self._outputs_apart, self._noise)
            if call is not None:
                reason = f"does by itself what {call.path} does after its counterpart"
                return [self._verdict(pair, "forward", inherited, Closeness.NOT_COMPARABLE, None, reason)]
        fed = Fed(pair=pair, inputs=inputs, outputs=outputs, take=self.store.get)
        if not fed.comparable:
            reason = "its arguments are other tensors than the reference's"
            return [self._verdict(pair, "forward", inherited, Closeness.NOT_COMPARABLE, None, reason)]
        apart = max(
            (
                self.compare.gradients_apart(
                    pair.reference.outputs[link.ours], pair.port.outputs[link.theirs], link.axes
                )
                for link in outputs
            ),
            default=0.0,
        )
        found = self._measured(fed, inherited)
        directions: tuple[tuple[Direction, float], ...] = ("forward", inherited), ("backward", apart)
        return [
            self._decide(pair, direction, before, measured)
            for (direction, before), measured in zip(directions, found, strict=True)
            if measured or direction == "forward"
        ]

    def _measured(self, fed: Fed, inherited: float) -> Found:
        """Measure a pair's outputs and gradients: in float32 on one sample if both runs agree in float64 on all of them."""
        known = self._gradients_known(fed.pair, fed.inputs, fed.outputs)
        apart = self.compare.apart(fed.pair.reference.outputs, fed.pair.port.outputs, fed.outputs)
        if known is None or max(inherited, apart) > EXACT:
            return self._in_full(fed, inherited)
        gradients = known, self._shared.largest(fed.pair)
        try:
            return self._agreeing_pairs.measure(fed, *gradients) or self._in_full(fed, inherited)
        except NotHeld:
            return self._agreeing_pairs.in_double(fed, *gradients)

    def _in_full(self, fed: Fed, inherited: float) -> Found:
        """Measure the outputs, and the gradients that the layers give for the reference's cotangents."""
        pair = fed.pair
        truths = self._truths(pair) if self._turns(pair) == 1 else None
        replays = PairReplays(self.models, fed, self.seed)
        measured = self._outputs(replays, whole=inherited <= self._noise)
        closer = PairReplays(self.models, replace(fed, pair=replace(pair, whole=False)), self.seed)
        if pair.whole and _slightly(measured):
            replays = closer
            measured = self._outputs(replays, whole=inherited <= self._noise)
        if classify(measured)[0] is Closeness.DIFFERS and 0 < inherited <= self._noise:
            measured = self._outputs(replays, whole=False)  # it may have been given most of that
        forward = classify(measured)[0]
        if forward not in FAULTS:
            exact = max((one.exact or 0.0 for one in measured), default=0.0)
            self._noise = max(self._noise, SPREAD * exact, SPREAD * inherited * (inherited <= self._noise))
        if not fed.backward:
            return measured, []
        known = self._gradients_known(pair, fed.inputs, fed.outputs)
        found = self._measure_gradients((replays, closer), truths, known)
        if known is not None and classify(found)[0] is Closeness.DIFFERS:
            found = self._measure_gradients((replays, closer), truths, None)
        return measured, found

    def _agree(self, pair: CallPair, links: Sequence[Link]) -> bool:
        return self.compare.apart(pair.reference.outputs, pair.port.outputs, links) <= self._noise

    def _alive(self, pair: CallPair) -> bool:
        """Tell whether the model's output depends on what a pair gives, on both sides."""
        return all(
            any(self._gradient_size(one) for one in call.outputs) for call in (pair.reference, pair.port)
        )

    def _used_elsewhere(self, forward: Sequence[LayerVerdict]) -> list[LayerVerdict]:
        """Return the verdict about code that uses a layer's parameter itself, and hands it another gradient."""
        fine = {
            (one.reference_path, one.port_path)
            for one in forward
            if one.closeness in (Closeness.BITWISE, Closeness.ROUNDING)
        }
        for one in [] if self.alike_inside else self._shared.beyond(COARSELY):
            ours, theirs = one.pair.reference, one.pair.port
            if (ours.path, theirs.path) in fine and ours.parent is not None and theirs.parent is not None:
                calls = self.runs[0].trace.calls[ours.parent], self.runs[1].trace.calls[theirs.parent]
                what = f"gives {theirs.path}.{one.name} another gradient"
                found = self._code(calls, one.apart / one.size if one.size else inf, what)
                return [replace(found, direction="backward")]
        return []

    def _outputs_apart(self, ours: Sequence[Value], theirs: Sequence[Value]) -> float:
        return self.compare.apart(ours, theirs, self.compare.links(ours, theirs))

    def _outputs(self, replays: PairReplays, *, whole: bool) -> list[Measured]:
        """Measure the outputs; ``whole``: in float64 by what the models' runs gave, else by a replay."""
        found, fed = [], replays.fed
        ours, theirs = fed.pair.reference.outputs, fed.pair.port.outputs
        for link in fed.outputs:
            what = f"output {fed.pair.port.output_names[link.theirs]}"
            exact: Array | float | None
            if whole or replays.port64 is None:
                exact = self.compare.between(ours[link.ours], theirs[link.theirs], link.axes)
                exact = exact if whole and self.exact else None
            else:
                exact = back(replays.port64.outputs[link.theirs], link.axes)
            slow, fast = replays.reference32, replays.port32
            if slow is None and fast is None and isinstance(exact, float):
                found.append(only(what, exact))
                continue
            moved = None if self.exact else replays.moved
            found.append(
                measure(
                    what, fed.result(link.ours), None if slow is None else slow.outputs[link.ours],
                    None if fast is None else back(fast.outputs[link.theirs], link.axes), exact,
                    None if moved is None else moved.outputs[link.ours],
                )
            )  # fmt: skip
        return found

    def _decide(
        self, pair: CallPair, direction: Direction, inherited: float, measured: Sequence[Measured]
    ) -> LayerVerdict:
        closeness, worst = classify(measured)
        return self._verdict(pair, direction, inherited, closeness, worst, reason_of(closeness, worst))

    def _verdict(
        self, pair: CallPair, direction: Direction, inherited: float, closeness: Closeness, worst: Measured | None,
        reason: str,
    ) -> LayerVerdict:  # fmt: skip
        own = None if worst is None else worst.exact if worst.port is None else worst.port
        return LayerVerdict(
            reference_path=pair.reference.path, port_path=pair.port.path, reference_type=pair.reference.type,
            port_type=pair.port.type, turn=pair.port.turn, direction=direction, inherited=inherited, own=own,
            ratio=None if worst is None else ratio(worst), closeness=closeness,
            method="float64" if self.exact else "float32", reason=reason,
        )  # fmt: skip

    def _code_before(self, pair: CallPair, links: Sequence[Link], apart: float) -> LayerVerdict:
        """Return the verdict about the code that gave the pair other tensors though all layers before agree."""
        worst = max(
            links, default=None, key=lambda link: self.compare.between(
                pair.reference.inputs[link.ours], pair.port.inputs[link.theirs], link.axes
            ),
        )  # fmt: skip
        calls = self._block_at_fault(pair) or self._glue().giving(
            pair, *((0, 0) if worst is None else (worst.ours, worst.theirs))
        )
        return self._code(calls, apart, f"gives {pair.port.path or 'the model'} something else")

    def _code_at_end(self, apart: Sequence[float]) -> LayerVerdict:
        worst = max(apart)
        calls = self._block_at_fault(None) or self._glue().at_end(apart.index(worst))
        return self._code(calls, worst, "makes another output")

    def _made_up_for(self, pair: CallPair) -> bool:
        """Tell whether a container around the pair is given and returns the same in both models, whatever it does inside."""
        return any(
            _holds(self.runs[1].trace, around.port, pair.port) and self._alike(around) == (True, True)
            for around in self.matching.containers
        )

    def _block_at_fault(self, before: CallPair | None) -> tuple[Call, Call] | None:
        """Return the innermost container that is given the same in both models and returns something else, before a pair."""
        trace = self.runs[1].trace
        found = [
            one for one in (*self.matching.containers, *self._wrappers())
            if (before is None or one.port.number < before.port.number)
            and (before is None or not _holds(trace, one.port, before.port))
            and self._alike(one) == (True, False)
        ]  # fmt: skip
        inner = [one for one in found if not any(_holds(trace, one.port, other.port) for other in found)]
        first = min(inner, key=lambda one: one.port.number, default=None)
        return None if first is None or first.port.parent is None else (first.reference, first.port)

    def _alike(self, pair: CallPair) -> tuple[bool, bool]:
        """Tell whether what a pair is given, and what it returns, agree; without results that belong together they do not."""
        inputs = self.compare.links(pair.reference.inputs, pair.port.inputs)
        outputs = self.compare.links(pair.reference.outputs, pair.port.outputs)
        given = self.compare.apart(pair.reference.inputs, pair.port.inputs, inputs) <= self._noise
        return given, bool(outputs) and self._agree(pair, outputs)

    def _glue(self) -> Glue:
        return Glue(self.runs[0].trace, self.runs[1].trace, self.matching)

    def _changed_gradient(self, forward: float) -> list[LayerVerdict]:
        """Return the verdict about code that changes gradients alone, if some does; ``forward``: outputs are apart so."""
        values = [value for pair in self.matching.pairs for value in pair.reference.outputs]
        scale = max((self._gradient_size(one) for one in values), default=0.0)

        def apart(one: Value, other: Value) -> float:
            axes = self.compare.axes(one, other)
            if axes is None or not scale:
                return 0.0
            size = self._gradient_size(one)
            if one.gradient is None or other.gradient is None or not size:  # without one is as good as zeros
                return max(size, self._gradient_size(other)) / max(size, FAINT * scale)
            return self.compare.gradients_apart(one, other, axes) * size / max(size, FAINT * scale)

        tolerance = max(GRADIENTS_AGREE, GROWTH * forward)
        found = first_changed((self.runs[0].trace, self.runs[1].trace), self._agreeing(), apart, tolerance)
        if found is None:
            return []
        what = f"hands another gradient to {found.pair.port.path or 'the model'}"
        calls = self._taking(found.value) or found.calls
        return [replace(self._code(calls, found.apart, what), direction="backward")]

    def _taking(self, value: Value) -> Calls | None:
        """Return the innermost calls around layers that take the port's value, or code that was made of it, and cut it off."""
        taking = [
            one
            for one in self.matching.containers
            if value in one.port.inputs and one.port.parent is not None
        ]
        for pair in sorted(taking, key=lambda one: -one.port.number):
            inputs = self.compare.links(pair.reference.inputs, pair.port.inputs)
            outputs = self.compare.links(pair.reference.outputs, pair.port.outputs)
            fed = Fed(pair=replace(pair, whole=False), inputs=inputs, outputs=outputs, take=self.store.get)
            if not outputs or not fed.comparable or not fed.backward:
                continue
            replays = PairReplays(self.models, fed, self.seed)
            differs = classify(input_gradients(replays, known=None, double=True))[0] is Closeness.DIFFERS
            if differs or cut_off(replays):
                return pair.reference, pair.port
        return None

    def _wrappers(self) -> Iterator[CallPair]:
        """Yield the port's calls that do nothing but call one layer, with that layer's counterpart."""
        for pair in self.matching.pairs:
            if pair.port.parent is not None:
                around = self.runs[1].trace.calls[pair.port.parent]
                if around.children == [pair.port.number]:
                    yield CallPair(reference=pair.reference, port=around)

    def _gradient_size(self, value: Value) -> float:
        return 0.0 if value.gradient is None else self.compare.size(value.gradient)

    def _agreeing(self) -> Iterator[tuple[CallPair, Value, Value]]:
        """Yield the outputs of pairs that are the same tensor in both models, the last first."""
        for pair in reversed(self.matching.pairs):
            for link in self.compare.links(pair.reference.outputs, pair.port.outputs):
                ours, theirs = pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]
                if ours.dtype.kind == "f" and self.compare.between(ours, theirs, link.axes) <= self._noise:
                    yield pair, ours, theirs

    def _code(self, calls: Calls, apart: float, what: str) -> LayerVerdict:
        ours, theirs = calls
        return LayerVerdict(
            reference_path=ours.path, port_path=theirs.path, reference_type=ours.type, port_type=theirs.type,
            turn=theirs.turn, direction="forward", inherited=0.0, own=apart, ratio=None, closeness=Closeness.DIFFERS,
            method="float64" if self.exact else "float32", reason=f"every layer before it agrees, but its own code {what} (relative {apart:.3g})",
        )  # fmt: skip

    def _measure_gradients(
        self,
        replays: tuple[PairReplays, PairReplays],
        truths: Mapping[str, Array] | None,
        known: float | None,
    ) -> list[Measured]:
        """Measure the gradients that a layer gives, of a container closer where it is a little off."""

        def measured(one: PairReplays) -> list[Measured]:
            found = list(input_gradients(one, known=known, double=self.exact))
            return [*found, *parameter_gradients(one, truths, known=known, double=self.exact)]

        found = measured(replays[0])
        return measured(replays[1]) if replays[0].fed.pair.whole and _slightly(found) else found

    def _gradients_known(
        self, pair: CallPair, inputs: Sequence[Link], outputs: Sequence[Link]
    ) -> float | None:
        """Return how far the whole runs' gradients around a layer, and of its parameters, are apart.

        None where that is more than code between the layers may make: then the layer must be run by itself to tell.
        """
        around = [
            self.compare.gradients_apart(ours[link.ours], theirs[link.theirs], link.axes)
            for links, ours, theirs in (
                (inputs, pair.reference.inputs, pair.port.inputs),
                (outputs, pair.reference.outputs, pair.port.outputs),
            )
            for link in links
        ]
        largest = max([*around, self._shared.largest(pair) or 0.0])
        return largest if self.exact and largest <= AGREE else None

    def _turns(self, pair: CallPair) -> int:
        """Return how many calls the layers of a pair have, the larger number."""
        calls = zip(self._calls, (pair.reference, pair.port), strict=True)
        return max(counted[id(call.layer)] for counted, call in calls)

    def _truths(self, pair: CallPair) -> Mapping[str, Array] | None:
        """Return the gradients of the reference's parameters as its float64 run left them."""
        return self.models[0].side.parameter_gradients(pair.reference.layer)


def _less_inside(verdict: LayerVerdict, others: Iterable[LayerVerdict]) -> LayerVerdict:
    """Return the verdict about a container; what is at fault inside it says nothing about its own code."""
    path = verdict.port_path
    inside = (
        one.port_path
        for one in others
        if one.at_fault and (not path or f"{one.port_path}.".startswith(f"{path}."))
    )
    found = next(inside, None)
    if found is None or not verdict.at_fault:
        return verdict
    reason = f"differs, as {found or 'the model'} does; its own code cannot be told from that"
    return replace(verdict, closeness=Closeness.NOT_COMPARABLE, reason=reason)


def _slightly(measured: Sequence[Measured]) -> bool:
    """Tell whether something differs so little that the reference's own error in float32 must tell what it is."""
    closeness, worst = classify(measured)
    return closeness is Closeness.DIFFERS and worst is not None and (worst.exact or 0.0) < COARSELY


def _holds(trace: Trace, around: Call, call: Call) -> bool:
    """Tell whether a call is made inside another."""
    parent = call.parent
    while parent is not None and parent != around.number:
        parent = trace.calls[parent].parent
    return parent is not None
