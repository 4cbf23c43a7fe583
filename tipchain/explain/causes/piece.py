"""The layer at fault and its reference, apart from their models, with inputs and results."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from types import ModuleType
from typing import Any, Literal

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.causes.program import Act, Op, Program, Recorder, ReferenceProgram, Tap
from tipchain.explain.findings import shown_path
from tipchain.explain.locate.differences import arrange, distance, relative_arranged, rms
from tipchain.explain.locate.gradients import Laid, as_reference, laid_otherwise, values_of
from tipchain.explain.locate.rerun import Rerun, conditions, drawn_again, kept_buffers, rerun
from tipchain.explain.locate.trace import Call, take_out
from tipchain.framework_types import Array, Function, Model, Nested, Tensor
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import NOISE, SAME_DOUBLE
from tipchain.weights.sides import torch_view


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceOutcome:
    """The results of a run of a piece, the port's or the reference's.

    Attributes:
        outputs: its float and integer tensors.
        gradients: by the port's name, of inputs and parameters; empty without backward.
        ops: what the port's called, if that was asked for.
    """

    outputs: tuple[Array, ...]
    gradients: Mapping[str, Array]
    ops: Program


Edit = Callable[[list[Tensor]], list[Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PieceSide:
    """One side's layer.

    Attributes:
        path: its path in the model.
        call: its call, whose arguments are used.
        layer: a copy of it.
        inputs: what it is given, in float64.
    """

    path: str
    call: Call
    layer: Model
    inputs: tuple[Array, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class Piece:
    """One layer of the port and the reference's, both copied.

    Attributes:
        sides: torch's and Paddle's.
        ours: the reference's layer.
        theirs: the port's.
        backward: whether gradients are what is compared.
        atomic: paths of the port's layers inside (and of itself, ``""``) that are taken as a whole.
        seed: of random numbers.
        links: numbers of inputs that belong together.
        ends: which output of the reference's is which of the port's; None: they come in one order.
        partners: the reference's path within its piece by the port's, of layers inside that belong together.
        idle: likewise, of the port's layers inside that are never called though the reference calls theirs.
        cleared: paths of the port's containers inside that return what the reference's do, or are given something else.
        judged: paths of the port's layers inside that were found to do what the reference's do.
        reference_judged: the paths of these in the reference's.
        receiver: the path of the port's first layer inside that is given something else, where the piece itself is not; else empty.
        double: whether both run in float64; in float32 where code between layers does not run so.
        loss: whether it is a loss, whose value counts beside its gradients.
        truth: what the reference's gives.
        record: the calls that the reference's code makes.
    """

    sides: Sides
    ours: PieceSide
    theirs: PieceSide
    backward: bool
    atomic: frozenset[str]
    seed: int
    links: tuple[tuple[int, int], ...] = ()
    ends: tuple[tuple[int, int], ...] | None = None
    partners: Mapping[str, str] = field(default_factory=dict)
    idle: Mapping[str, str] = field(default_factory=dict)
    cleared: frozenset[str] = frozenset()
    judged: frozenset[str] = frozenset()
    reference_judged: frozenset[str] = frozenset()
    receiver: str = ""
    double: bool = True
    loss: bool = False
    runs: int = 0
    truth: PieceOutcome = field(init=False)
    record: ReferenceProgram = field(init=False)
    _tap: Tap | None = None
    _draws: Draws | None = None
    _cotangents: tuple[Array, ...] = ()
    _known: tuple[Tensor, ...] = ()
    _forward: float = inf
    _laid: Mapping[str, Laid] = field(default_factory=dict)

    @property
    def port(self) -> Model:
        """The port's layer."""
        return self.theirs.layer

    @property
    def reference(self) -> Model:
        """The reference's."""
        return self.ours.layer

    @property
    def shown(self) -> str:
        """The port's path as messages have it."""
        return shown_path(self.theirs.path)

    @property
    def paddle(self) -> ModuleType:
        """The port's framework."""
        return self.sides.port.framework.paddle  # type: ignore[no-any-return, union-attr]

    def argument_of(self, array: Array) -> str:
        """Return the name of forward's argument that holds an array; empty where none does."""
        given = zip(self.theirs.call.input_names, self.theirs.inputs, strict=False)
        name = next((name for name, one in given if one.shape == array.shape and np.array_equal(one, array)), "")
        which, _, rest = name.partition(".")
        parameters = list(inspect.signature(self.port.forward).parameters)
        if which == "0" and rest.isdigit() and int(rest) < len(parameters):
            return parameters[int(rest)]
        return rest or name

    def is_tensor(self, value: object) -> bool:
        """Tell whether a value is a tensor of the port's."""
        return self.sides.port.is_tensor(value)

    def tensors(self, value: object) -> list[Tensor]:
        """Return the port's tensors in a nested value."""
        return take_out(value, self.is_tensor)[1]

    def floats(self, value: object) -> list[Tensor]:
        """Return the floating-point tensors in a nested value."""
        return [one for one in self.tensors(value) if "float" in str(one.dtype)]

    def floats_given(self, op: Op) -> list[Tensor]:
        """Return the floating-point tensors that a call was given."""
        return self.floats((op.args, dict(op.kwargs)))

    @contextmanager
    def open(self) -> Iterator[Piece]:
        """Run the reference's piece, then stand between the port's and Paddle's functions until the context ends."""
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what odd variants warn about is no news
            self.truth = self._run_reference()
            # Forget the gradients of parameters that the port does not have.
            names = set(self._laid)
            with suppress(WeightsError):
                names |= {slot.name for slot in torch_view(self.port)}
            kept = {
                name: one for name, one in self.truth.gradients.items() if name.startswith("input ") or name in names
            }
            idle = {
                name: np.zeros(tuple(one.shape))
                for name, one in (self.reference.named_parameters() if self.backward else ())
                if one.requires_grad and name in names and name not in kept
            }
            self.truth = replace(self.truth, gradients={**kept, **idle})
            self._draws = drawn_again(self.theirs.call, self.seed)
            side: Any = self.sides.port
            set_ = conditions(side, double=self.double, seed=self.seed, draws=self._draws, gradient=self.backward)
            stack.enter_context(set_)
            layers = dict(side.layers(self.port))
            self._tap = stack.enter_context(Tap(side.paddle).open(layers, self.atomic.__contains__))
            yield self
            self._tap = None

    def run(
        self,
        acts: Mapping[int, Act] | None = None,
        edit: Edit | None = None,
        *,
        keep: bool = False,
        within: bool = False,
    ) -> PieceOutcome:
        """Run the port's piece with some calls replaced; the piece must be open.

        Args:
            acts: what stands in place of a call, by the call's number.
            edit: what is done to the outputs.
            keep: whether to return the calls.
            within: layers were changed, so that no call gives what it gave before.
        """
        assert self._tap is not None
        assert self._draws is not None
        self.runs += 1
        side, tap = self.sides.port, self._tap
        side.seed(self.seed)
        self._draws.rewind()
        known = () if within or not acts else self._known[: min(acts)]
        recorder = Recorder(acts=acts or {}, ops=Program(side.is_tensor), keep=keep, known=known)

        def called(*args: Nested, **kwargs: Nested) -> Nested:
            tap.recorder = recorder
            try:
                result = self.port(*args, **kwargs)
            finally:
                tap.recorder = None
            outputs = self._ends(1, result)
            recorder.ops.end_with(outputs)
            return outputs if edit is None else edit(outputs)

        recorder.ops.watching = self.backward
        with ExitStack() as stack:
            stack.enter_context(kept_buffers(side, self.port))
            stack.callback(recorder.ops.unwatch)
            made = self.again(1, called, None)
            drawn = bool(self._draws.made)
            if keep and not (self.backward or recorder.writes or drawn):  # else calls must all be run each time
                self._known = tuple(op.result for op in recorder.ops)
            gradients = as_reference(self._gradients(1, made), self._laid) if self.backward else {}
            return PieceOutcome(outputs=_wide(made.outputs), gradients=gradients, ops=recorder.ops)

    def again(self, number: int, called: Function, draws: Draws | None) -> Rerun:
        """Run one side's piece, backward from the cotangents where gradients are compared."""
        side, one = self.sides[number], (self.ours, self.theirs)[number]

        def start(outputs: Sequence[Tensor]) -> list[Array | None]:
            side.clear_gradients(one.layer)
            pairs = zip(outputs, self._cotangents, strict=False)
            axes = [(drawn, arrange(drawn, np.empty(tuple(output.shape)))) for output, drawn in pairs]
            return [None if order is None else drawn.transpose(order) for drawn, order in axes]

        return rerun(
            side,
            called,
            one.call.arguments,
            one.inputs,
            start if self.backward else None,
            double=self.double,
            seed=self.seed,
            draws=draws,
            of_inputs=self.backward,
        )

    def error(self, outcome: PieceOutcome) -> float:
        """Return how far a run is from the truth, relative RMS; infinitely where right gradients come with wrong results."""
        gradients = _gradients_apart(self.truth.gradients, outcome.gradients) if self.backward else 0.0
        ours, theirs = self.truth.outputs, outcome.outputs
        end = sqrt(sum(relative_arranged(one, other) ** 2 for one, other in zip(ours, theirs, strict=False)))
        if len(ours) > len(theirs) or not ours:
            end = inf
        if self.backward and not self.loss:
            if outcome.ops:  # the piece as it is
                self._forward = max(end, NOISE) * (1 + SAME_DOUBLE)
            return gradients if end <= self._forward else inf
        return sqrt(end**2 + gradients**2)

    def _gradients(self, number: Literal[0, 1], made: Rerun) -> dict[str, Array]:
        """Return the gradients of one side's inputs, called as the port's are, and of its parameters."""
        inputs = {f"input {link[1]}": made.inputs[link[number]] for link in self.links}
        found = {name: one for name, one in inputs.items() if one is not None}
        return found | (self.sides[number].parameter_gradients((self.reference, self.port)[number]) or {})

    def _run_reference(self) -> PieceOutcome:
        side = self.sides.reference
        inner = {path: one for path, one in side.layers(self.reference) if path and path in self.reference_judged}
        self.record = ReferenceProgram()
        self.record.watching = self.backward

        def called(*args: Nested, **kwargs: Nested) -> Nested:
            with self.record.over(inner):
                outputs = self._ends(0, self.reference(*args, **kwargs))
                self.record.end_with(outputs)
            if self.backward:
                generator = np.random.default_rng([self.seed, 5])
                self._cotangents = tuple(generator.standard_normal(tuple(one.shape)) for one in outputs)
            return outputs

        made = self.again(0, called, drawn_again(self.ours.call, self.seed))
        self.record.unwatch()
        gradients = self._gradients(0, made) if self.backward else {}
        if self.backward:
            both = zip(self.sides, (self.reference, self.port), strict=True)
            self._laid = laid_otherwise(*(values_of(*each) for each in both))
        return PieceOutcome(outputs=_wide(made.outputs), gradients=gradients, ops=self.record)

    def _ends(self, number: Literal[0, 1], result: Nested) -> list[Tensor]:
        """Return the outputs that both sides have, in one order."""
        outputs, chosen = take_out(result, self.sides[number].is_tensor)[1], self.ends or ()
        fit = chosen and len(outputs) > max(each[number] for each in chosen)
        return [outputs[each[number]] for each in chosen] if fit else outputs


def _wide(arrays: Sequence[Array]) -> tuple[Array, ...]:
    """Return copies of arrays, floats in float64."""
    return tuple(np.array(one, np.float64 if one.dtype.kind == "f" else one.dtype) for one in arrays)


def _gradients_apart(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> float:
    """Return how far gradients are apart, relative to the largest of their RMS; a missing one is zero."""
    scale = max((rms(one) for one in expected.values()), default=0.0)
    total = 0.0
    for name, one in expected.items():
        other = actual.get(name, np.zeros(one.shape))
        axes = arrange(one, other)
        if axes is None:
            return inf
        total += distance(one.transpose(axes), other) ** 2
    return sqrt(total) / scale if scale else 0.0
