"""Code between the layers that is at fault: in forward, or in what it does to gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.comparing import Comparer, Link
from tipchain.parity.locate.differences import distance, rms, same_mask
from tipchain.parity.locate.feeding import Fed
from tipchain.parity.locate.glue import Calls, Glue
from tipchain.parity.locate.gradient_glue import Moved, Steered, first_changed
from tipchain.parity.locate.gradient_measures import cut_off, input_gradients
from tipchain.parity.locate.matching import CallPair, Matching
from tipchain.parity.locate.pair_replays import Models, PairReplays
from tipchain.parity.locate.replay import NotReplayed
from tipchain.parity.locate.runs import Run
from tipchain.parity.locate.shared_parameters import Shared
from tipchain.parity.locate.store import Store
from tipchain.parity.locate.trace import Call, Trace, Value
from tipchain.parity.locate.verdicts import FINE, Closeness, LayerVerdict, classify
from tipchain.parity.rounding import SAME_DOUBLE, SAME_SINGLE

Array = npt.NDArray[Any]
GROWTH = 1000.0
"""How many times as far as their outputs two models' gradients may be apart. A choice: a backward run enlarges what outputs
differ by as far as the weights do, layer by layer; three orders are more than was seen."""
TIED = "equal values: each framework gives the gradient of their maximum to another of them; without equal values the gradients agree"
"""What is said where gradients differ at ties alone."""


@dataclass(slots=True)
class Noise:
    """How far tensors of two runs may be apart that are the same: it grows with what clean layers were seen to make."""

    limit: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAtFault:
    """Names the calls whose own code does something else though every layer does what its counterpart does.

    Attributes:
        models: copies of both.
        runs: what they did.
        matching: which call is which.
        store: where tensors are.
        seed: of random numbers.
        exact: both ran in float64.
        compare: what compares their tensors.
        noise: how far tensors may be apart that are the same.
        outputs: the models' outputs that belong together.
    """

    models: tuple[Models, Models]
    runs: tuple[Run, Run]
    outputs: Sequence[Link]
    matching: Matching
    store: Store
    seed: int
    exact: bool
    compare: Comparer
    noise: Noise

    def before(self, pair: CallPair, links: Sequence[Link], apart: float) -> LayerVerdict:
        """Return the verdict about the code that gave the pair other tensors though all layers before agree."""
        worst = max(links, default=None, key=partial(self._apart, pair))
        calls = self._block_at_fault(pair) or self._glue().giving(
            pair, *((0, 0) if worst is None else (worst.ours, worst.theirs))
        )
        return self._code(calls, apart, f"gives {pair.port.path or 'the model'} something else")

    def at_end(self, apart: Sequence[float], outputs: Sequence[Link]) -> LayerVerdict:
        """Return the verdict about the code that made the output that is furthest apart, by ``apart`` of ``outputs``."""
        worst = max(apart)
        link = next(iter(outputs[apart.index(worst) :]), None)
        ours, theirs = (run.values for run in self.runs)
        values = None if link is None else (ours[link.ours], theirs[link.theirs])
        calls = self._block_at_fault(None) or self._glue().at_end(values)
        return self._code(calls, worst, "makes another output")

    def made_up_for(self, pair: CallPair) -> bool:
        """Tell whether a container around the pair is given and returns the same in both models, whatever it does inside."""
        return any(
            holds(self.runs[1].trace, around.port, pair.port) and self._alike(around) == (True, True)
            for around in self.matching.containers
        )

    def _block_at_fault(self, before: CallPair | None) -> tuple[Call, Call] | None:
        """Return the innermost container that is given the same in both models and returns something else, before a pair."""
        trace = self.runs[1].trace
        found = [
            one for one in (*self.matching.containers, *self._wrappers())
            if (before is None or one.port.number < before.port.number)
            and (before is None or not holds(trace, one.port, before.port))
            and self._alike(one) == (True, False)
        ]  # fmt: skip
        inner = [one for one in found if not any(holds(trace, one.port, other.port) for other in found)]
        first = min(inner, key=lambda one: one.port.number, default=None)
        return None if first is None or first.port.parent is None else (first.reference, first.port)

    def _alike(self, pair: CallPair) -> tuple[bool, bool]:
        """Tell whether what a pair is given, and what it returns, agree; without results that belong together they do not."""
        inputs = self.compare.inputs(pair)
        outputs = self.compare.outputs(pair)
        given = self.compare.apart(pair.reference.inputs, pair.port.inputs, inputs) <= self.noise.limit
        given = given and self._masked_otherwise(pair, inputs) is None
        return given, bool(outputs) and self.compare.apart(
            pair.reference.outputs, pair.port.outputs, outputs
        ) <= self.noise.limit

    def _apart(self, pair: CallPair, link: Link) -> float:
        return self.compare.between(
            pair.reference.inputs[link.ours], pair.port.inputs[link.theirs], link.layout
        )

    def _differing(self, pair: CallPair) -> tuple[int, int] | None:
        """Return which tensors differ most of those that two calls are given, if some do."""
        links, sizes = (
            self.compare.inputs(pair),
            [[prod(one.shape) for one in call.inputs] for call in (pair.reference, pair.port)],
        )
        if not links and all(sizes) and not set(sizes[0]) & set(sizes[1]):
            return 0, 0
        worst = max(links, default=None, key=partial(self._apart, pair))
        if worst is None or self._apart(pair, worst) <= self.noise.limit:
            return self._masked_otherwise(pair, links)
        return worst.ours, worst.theirs

    def _masked_otherwise(self, pair: CallPair, links: Sequence[Link]) -> tuple[int, int] | None:
        """Return the masks of another form that two calls are given, if these do not hide the same."""
        ours, theirs = pair.reference.inputs, pair.port.inputs
        free = (
            [number for number in range(len(ours)) if number not in {link.ours for link in links}],
            [number for number in range(len(theirs)) if number not in {link.theirs for link in links}],
        )
        for one in free[0]:
            alike = {n: same_mask(*map(self._array, (ours[one], theirs[n]))) for n in free[1]}
            if False in alike.values() and True not in alike.values():
                return one, next(n for n, same in alike.items() if same is False)
        return None

    def _array(self, value: Value) -> Array:
        return self.store.get(value.stored)

    def _glue(self) -> Glue:
        agrees = lambda pair: self._alike(pair)[1]  # noqa: E731
        return Glue(self.runs[0].trace, self.runs[1].trace, self.matching, self._differing, agrees)

    def steered(self) -> Steered:
        """Return the port's run in which its layers are given, and give, the reference's tensors and gradients."""
        ends = [(self.runs[0].values[link.ours], link) for link in self.outputs]
        root = self.runs[1].trace.calls[0]
        return Steered(self.models[1], root, self._agreeing(), ends, self.store, self.seed)

    def changed_gradient(self, forward: float, steered: Steered) -> list[LayerVerdict]:
        """Return the verdict about code that changes gradients alone, if some does; ``forward``: outputs are apart so."""
        values = [value for pair in self.matching.pairs for value in pair.reference.outputs]
        scale = max((self.compare.gradient_size(one) for one in values), default=0.0)

        def apart(one: Value, other: Value) -> float:
            layout = self.compare.layout(one, other)
            if layout is None or not scale:
                return 0.0
            size = self.compare.gradient_size(one)
            if one.gradient is None or other.gradient is None or not size:  # without one is as good as zeros
                return max(size, self.compare.gradient_size(other)) / max(size, SAME_DOUBLE * scale)
            return self.compare.gradients_apart(one, other, layout) * size / max(size, SAME_DOUBLE * scale)

        def by_itself(one: Value, other: Value) -> float:
            size, own = self.compare.gradient_size(one), steered.apart(other)
            return apart(one, other) if own is None else own * size / max(size, SAME_DOUBLE * scale)

        tolerance = max(SAME_SINGLE, GROWTH * forward)
        ends = [(self.runs[0].values[link.ours], self.runs[1].values[link.theirs]) for link in self.outputs]
        traces = self.runs[0].trace, self.runs[1].trace
        agreeing = [
            (pair, pair.reference.outputs[link.ours], pair.port.outputs[link.theirs])
            for pair, link in self._agreeing()
        ]
        found = first_changed(traces, agreeing, ends, apart, tolerance)
        if found is not None and self.exact:
            found = first_changed(traces, agreeing, ends, by_itself, tolerance)
        if found is None:
            return []
        ours, theirs = self._linked(found.value)
        receiver = found.pair.port.path or "the model"
        odd = self._odd_gradients(ours, theirs)
        given = [self.compare.gradient_size(one) > SAME_DOUBLE * scale for one in (ours, theirs)]
        if odd:
            what = f"hands {receiver} {odd}"
        elif given[0] != given[1]:
            what = f"hands {receiver} {'no gradient' if given[0] else 'a gradient'}, the reference {'one' if given[0] else 'none'}"
        else:
            what = f"hands another gradient to {receiver}"
        calls = self._taking(found.value) or found.calls
        verdict = replace(self._code(calls, found.apart, what), direction="backward")
        if odd or not self._tied():
            return [verdict]
        reason = f"{TIED}: {receiver} gets another gradient (relative {found.apart:.3g})"
        return [replace(verdict, closeness=Closeness.NOT_COMPARABLE, reason=reason, tied=True)]

    def _linked(self, value: Value) -> tuple[Value, Value]:
        """Return the reference's tensor that belongs to an output of the port's, and that."""
        pairs = (
            (pair.reference.outputs[link.ours], pair.port.outputs[link.theirs])
            for pair, link in self._agreeing()
        )
        return next(both for both in pairs if both[1] is value)

    def _odd_gradients(self, *values: Value) -> str:
        """Return what is not finite in the gradient of one of two tensors alone; empty if nothing is."""
        odd = [
            0 if one.gradient is None else int(np.count_nonzero(~np.isfinite(self.store.get(one.gradient))))
            for one in values
        ]
        if not any(odd) or all(odd):
            return ""
        whose = "the reference's is finite" if odd[1] else "the reference's is not finite, the port's is"
        slope = "a slope is infinite there, as that of a root, a norm or a logarithm at 0"
        return f"a gradient with NaN or infinity at {max(odd)} elements where {whose}: {slope}"

    def _tied(self) -> bool:
        """Tell whether all gradients agree as soon as no two values are equal: each layer gives the reference's, moved a little."""
        links = list(self._agreeing())
        ends = [(self.runs[0].values[link.ours], link) for link in self.outputs]
        ours, theirs = (
            Moved(one, run.trace.calls[0], number, links, ends, self.store, self.seed).gradients
            for number, (one, run) in enumerate(zip(self.models, self.runs, strict=True))
        )
        least = SAME_SINGLE * max((rms(one) for one in ours.values()), default=0.0)
        nothing = np.zeros(())
        return bool(ours and theirs) and all(
            _agree(ours.get(one, nothing), theirs.get(one, nothing), least)
            for one in ours.keys() | theirs.keys()
        )

    def _taking(self, value: Value) -> Calls | None:
        """Return the innermost calls around layers that take the port's value, or code that was made of it, and cut it off."""
        taking = [
            one
            for one in self.matching.containers
            if value in one.port.inputs and one.port.parent is not None
        ]
        for pair in sorted((*taking, *self._wrappers()), key=lambda one: -one.port.number):
            inputs = self.compare.inputs(pair)
            outputs = self.compare.outputs(pair)
            fed = Fed(pair=replace(pair, whole=False), inputs=inputs, outputs=outputs, take=self.store.get)
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
                around = self.runs[1].trace.calls[pair.port.parent]
                if around.children == [pair.port.number]:
                    yield CallPair(reference=pair.reference, port=around)

    def _agreeing(self) -> Iterator[tuple[CallPair, Link]]:
        """Yield the outputs of pairs that are the same tensor in both models, the last first."""
        for pair in reversed(self.matching.pairs):
            for link in self.compare.outputs(pair):
                ours, theirs = pair.reference.outputs[link.ours], pair.port.outputs[link.theirs]
                if (
                    ours.dtype.kind == "f"
                    and self.compare.between(ours, theirs, link.layout) <= self.noise.limit
                ):
                    yield pair, link

    def _code(self, calls: Calls, apart: float, what: str) -> LayerVerdict:
        ours, theirs = calls
        return LayerVerdict(
            reference_path=ours.path, port_path=theirs.path, reference_type=ours.type, port_type=theirs.type,
            turn=theirs.turn, direction="forward", inherited=0.0, own=apart, ratio=None, closeness=Closeness.DIFFERS,
            method="float64" if self.exact else "float32", reason=f"every layer before it agrees, but its own code {what} (relative {apart:.3g})",
        )  # fmt: skip

    def used_elsewhere(self, forward: Sequence[LayerVerdict], shared: Sequence[Shared]) -> list[LayerVerdict]:
        """Return the verdict about code that uses a layer's parameter itself, and hands it another gradient."""
        fine = {(one.reference_path, one.port_path) for one in forward if one.closeness in FINE}
        for one in shared:
            ours, theirs = one.pair.reference, one.pair.port
            if (ours.path, theirs.path) in fine and ours.parent is not None and theirs.parent is not None:
                calls = self.runs[0].trace.calls[ours.parent], self.runs[1].trace.calls[theirs.parent]
                what = f"gives {theirs.path}.{one.name} another gradient"
                found = self._code(calls, one.apart / one.size if one.size else inf, what)
                return [replace(found, direction="backward")]
        return []

    def gives_own(self, unlike: Sequence[Shared]) -> list[LayerVerdict]:
        """Return the verdicts about code that hands another gradient, or none, to a parameter of its layer's own."""
        return [
            replace(
                self._code((one.pair.reference, one.pair.port), one.apart / one.size if one.size else inf,
                           f"gives its parameter {one.name} another gradient, or none"),
                direction="backward",
            )
            for one in unlike
        ]  # fmt: skip


def holds(trace: Trace, around: Call, call: Call) -> bool:
    """Tell whether a call is made inside another."""
    parent = call.parent
    while parent is not None and parent != around.number:
        parent = trace.calls[parent].parent
    return parent is not None


def _agree(expected: Array, actual: Array, least: float) -> bool:
    """Tell whether two gradients agree, beside their RMS or ``least``; none at all is a single zero."""
    if expected.shape != actual.shape:
        return max(rms(expected), rms(actual)) <= least
    return distance(expected, actual) <= SAME_SINGLE * GROWTH * max(rms(expected), least)
