"""Two losses, compared by their values and gradients on the reference's outputs; and why they differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from math import isfinite, isnan
from typing import Any

import numpy as np

from tipchain.core.blame import placed
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.code import shown_apart
from tipchain.explain.causes.piece import Piece, PieceSide
from tipchain.explain.causes.search import diagnose_loss
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck, failed_to_run, of_piece
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.matching import Comparer
from tipchain.explain.locate.rerun import rerun
from tipchain.explain.locate.runs import in_double, with_tensors
from tipchain.explain.locate.trace import Call, Store, StoredArray, TracedValue, is_array, put_back, take_out
from tipchain.explain.locate.verdicts import LIMIT
from tipchain.framework_types import Array, Loss, Nested, Tensor
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import CONSTANT, LOGIT_FLOOR, SAME_DOUBLE, SAME_SINGLE, UNIT

LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A loss: its value, and its gradient with respect to each output."""

    value: float
    gradients: tuple[Array, ...]

    @property
    def is_zero(self) -> bool:
        """Whether value and gradients are."""
        return not self.value and not any(one.any() for one in self.gradients)


class NotScalarError(UsageError):
    """A loss that is no scalar."""


class _Losses:
    """Both losses, given the reference's outputs in the structures of both models.

    Attributes:
        links: where the reference's arrays stand among the port's; of the port's own those are given that are in none.
        unlinked: numbers of the reference's that the port's loss is not given.
        unlike: says that outputs of both have other shapes, if some have; a loss that uses them cannot be compared.
    """

    def __init__(
        self,
        sides: Sides,
        losses: tuple[Loss, Loss],
        outputs: tuple[Nested, Nested],
        labels: Nested,
        seed: int,
        detached: Collection[int],
    ) -> None:
        self.sides, self.losses, self.labels, self.seed, self.detached = sides, losses, labels, seed, detached
        ours, theirs = (take_out(one, is_array) for one in outputs)
        self.structures, self.arrays, self.port_arrays = (ours[0], theirs[0]), ours[1], theirs[1]
        values, port_values = (
            [TracedValue(StoredArray(shape=one.shape, dtype=one.dtype, kept=one)) for one in arrays]
            for arrays in (self.arrays, self.port_arrays)
        )
        links = Comparer(Store()).results(values, port_values, ours[2], theirs[2])
        self.links = [link for link in links if link.layout.permutes]
        self.unlinked = set(range(len(self.arrays))) - {link.ours for link in self.links}
        self.unlike = ""
        if len(self.unlinked) > max(len(self.arrays) - len(self.port_arrays), 0):
            expected, actual = ([list(one.shape) for one in side] for side in (self.arrays, self.port_arrays))
            self.unlike = f"the models' outputs have other shapes: expected {expected}, actual {actual}"

    def outputs(self, number: int, arrays: Sequence[Array]) -> list[Array]:
        """Return a side's outputs for the reference's arrays."""
        if number == 0:
            return list(arrays)
        found = list(self.port_arrays)
        for link in self.links:
            found[link.theirs] = link.layout.apply(arrays[link.ours])
        return found

    def run(self, number: int, arrays: Sequence[Array], *, double: bool) -> Evaluated:
        """Return a loss and its gradients with respect to the reference's arrays, zeros for those it does not use.

        Raises:
            UsageError: the loss is no scalar.
            Exception: whatever the loss raises.
        """
        side, loss, outputs = self.sides[number], self.losses[number], self.outputs(number, arrays)
        if double:
            loss = in_double(side, loss)
        elif hasattr(loss, "state_dict") and hasattr(loss, "parameters"):
            loss = side.copied(loss, double=False)

        def called(output: Nested) -> Tensor:
            value = loss(open_fields(output), open_fields(with_tensors(side, self.labels, double=double)))
            if not side.is_tensor(value):
                raise UsageError(f"the {side.name} loss returned a {type(value).__name__}, expected a scalar tensor")
            if int(np.prod(tuple(value.shape))) != 1:
                raise NotScalarError(
                    f"the {side.name} loss has shape {list(value.shape)}, expected a scalar: is reduction 'none'?"
                )
            return value

        made = rerun(
            side,
            called,
            ((self.structures[number],), {}),
            outputs,
            lambda ends: [np.ones(tuple(one.shape)) for one in ends],
            double=double,
            seed=self.seed,
            draws=Draws(self.seed),
            of_inputs=True,
        )
        found = dict(enumerate(made.inputs))
        if number:
            given = ((link, found[link.theirs]) for link in self.links)
            found = {link.ours: None if one is None else link.layout.back(one) for link, one in given}
        gradients = (None if at in self.detached else found.get(at) for at in range(len(arrays)))
        wide = [
            np.zeros(array.shape) if one is None else one.astype(np.float64)
            for one, array in zip(gradients, arrays, strict=True)
        ]
        return Evaluated(value=float(made.outputs[0].reshape(())), gradients=tuple(wide))

    def run_in_either(self, number: int) -> tuple[Evaluated, bool]:
        """Return a loss in float64, or float32 where it does not run so, and whether it is in float64; see `run`."""
        with suppress(Exception):  # what it raises in float32 is told
            return self.run(number, self.arrays, double=True), True
        return self.run(number, self.arrays, double=False), False

    def noise(self, number: int) -> list[float]:
        """Return how far one rounding of the outputs takes a side's loss and its gradients in float32."""
        arrays, generator = self.arrays, np.random.default_rng(0)
        base, found = self.run(number, arrays, double=False), [64 * UNIT] * (1 + len(arrays))
        for _ in range(3):
            moved = [
                one * (1 + 2 * UNIT * generator.standard_normal(one.shape)) if one.dtype.kind == "f" else one
                for one in arrays
            ]
            errors = _errors(base, self.run(number, moved, double=False), arrays)
            found = [max(pair) for pair in zip(found, errors, strict=True)]
        return found

    def clamped(self, actual: Evaluated, *, double: bool) -> bool:
        """Tell whether the port's loss is the reference's but for Paddle's softmax, which takes low logits for 64 below the largest."""
        for axis in (1, -1):
            moved = []
            for one in self.arrays:
                usable = one.ndim > 1 and one.dtype.kind == "f"
                moved.append(np.maximum(one, one.max(axis=axis, keepdims=True) - LOGIT_FLOOR) if usable else one)
            if all(np.array_equal(one, other) for one, other in zip(moved, self.arrays, strict=True)):
                return False
            with suppress(Exception):  # user code
                found = self.run(0, moved, double=double)
                if abs(found.value - actual.value) <= SAME_SINGLE * abs(actual.value):
                    return True
        return False

    def cause(self, *, double: bool) -> Diagnosis | None:
        """Diagnose both losses as models of two inputs, the output and the labels; None where their code tells nothing."""
        for backward in (True, False):
            with suppress(Exception):  # user code that runs only as it is called
                ours, theirs = (self._side(number, double=double) for number in (0, 1))
                piece = Piece(
                    sides=self.sides,
                    ours=ours,
                    theirs=theirs,
                    backward=backward,
                    atomic=frozenset(),
                    seed=self.seed,
                    links=tuple((link.ours, link.theirs) for link in self.links),
                    double=double,
                    loss=True,
                )
                found = diagnose_loss(piece)
                if found is not None:
                    return found
        return None

    def _side(self, number: int, *, double: bool) -> PieceSide:
        """Return a layer of the side's framework that calls a loss; its class is in the loss's module, whose imports count."""
        side, loss = self.sides[number], self.losses[number]
        loss = in_double(side, loss) if double else loss
        framework = import_module(side.name)
        own = loss.func if isinstance(loss, partial) else loss

        def forward(_: object, output: object, labels: object) -> Tensor:
            called, watched = loss, getattr(framework.nn.functional, getattr(own, "__name__", ""), None)
            if watched is not None and getattr(watched, "__wrapped__", None) is own:  # the framework's own function
                called = partial(watched, *loss.args, **loss.keywords) if isinstance(loss, partial) else watched
            value = called(open_fields(output), open_fields(labels))
            return value if not tuple(value.shape) else value.sum()

        base = framework.nn.Module if side.name == "torch" else framework.nn.Layer
        module = getattr(loss, "__module__", None) or type(loss).__module__
        layer = type("Loss", (base,), {"forward": forward, "__module__": module})()
        layer.eval()
        output = put_back(self.structures[number], self.outputs(number, self.arrays))
        arguments, arrays, names = take_out(((output, self.labels), {}), is_array)
        call = Call(
            number=0,
            path=LOSS,
            type=LOSS,
            layer=None,
            turn=0,
            parent=None,
            arguments=arguments,
            inputs=(),
            input_names=tuple(names),
        )
        return PieceSide(path=LOSS, call=call, layer=layer, inputs=tuple(arrays))


class Fields(dict[str, Any]):
    """A mapping whose items are attributes too, as outputs of some models are."""

    def __getattr__(self, name: str) -> object:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def open_fields(structure: object) -> object:
    """Return a structure whose mappings have attributes."""
    if isinstance(structure, Mapping):
        return Fields({key: open_fields(one) for key, one in structure.items()})
    if is_dataclass(structure) and not isinstance(structure, type):
        return Fields({one.name: open_fields(getattr(structure, one.name)) for one in fields(structure)})
    if isinstance(structure, list) or type(structure) is tuple:
        return type(structure)(open_fields(one) for one in structure)
    return structure


def check_loss(
    sides: Sides,
    losses: tuple[Loss, Loss],
    outputs: Nested,
    labels: Nested = None,
    seed: int = 0,
    port_outputs: Nested = None,
    *,
    equal_nan: bool = False,
    detached: Collection[int] = (),
) -> PieceCheck:
    """Give both losses the reference's outputs, and compare their values and gradients in float64.

    Where a loss does not run in float64, float32 results are compared, against what one rounding of the outputs changes.

    Args:
        sides: torch's and Paddle's.
        losses: ``(output, labels) -> scalar`` of each; modules and layers are copied, not changed.
        outputs: the reference's output: an array, or arrays in the tuples, lists and mappings that its model returns.
        labels: an array or arrays nested likewise, or None; floats are given in the precision of the outputs.
        seed: of random numbers and dropout in a loss.
        port_outputs: the port's output, where its structure or order of axes is another; only those are used.
        equal_nan: whether a loss or gradients that are NaN on both sides count as equal.
        detached: numbers of outputs whose gradient reaches no parameter of the reference's: it is not compared.

    Returns:
        FAIL with both values; ERROR where a loss raises, is no scalar, or both loss and gradient are zero.
    """
    both = _Losses(sides, losses, (outputs, outputs if port_outputs is None else port_outputs), labels, seed, detached)
    runs: list[tuple[Evaluated, bool]] = []
    for who in SIDE_NAMES:
        try:
            runs.append(both.run_in_either(len(runs)))
        except Exception as error:  # noqa: BLE001, PERF203  (user code)
            if runs and both.unlike:
                return PieceCheck(outcome=Outcome.ERROR, reason=both.unlike)
            if runs and runs[0][1] and isinstance(error, NotScalarError):  # the reference's is one, in float64
                fix = "pass the reference's reduction: 'mean' or 'sum'"
                cause = of_piece(LOSS, "parting", str(error), "the reference's loss is a scalar", fix)
                return PieceCheck(outcome=Outcome.FAIL, reason=str(error), diagnoses=(cause,))
            return failed_to_run(f"the {who}'s loss", error)
    (expected, wide), (actual, port_wide) = runs
    if both.unlike and any(expected.gradients[at].any() for at in both.unlinked):
        return PieceCheck(outcome=Outcome.ERROR, reason=both.unlike)
    precise = wide and port_wide
    floor = [0.0] * (1 + len(both.arrays)) if precise else both.noise(1 if wide else 0)
    if precise:
        with suppress(Exception):  # the reference's does not run in float32
            floor = _errors(expected, both.run(0, both.arrays, double=False), ())
    found = _judge(both, expected, actual, floor, precise=precise)
    nan = isnan(expected.value) or any(bool(np.isnan(one).any()) for one in expected.gradients)
    if found.outcome is Outcome.PASS and not equal_nan and nan:
        cause = of_piece(
            LOSS,
            "nan",
            "the loss or its gradient is NaN on both sides, at equal positions",
            "equal outputs of both models, and their gradients",
            "look at what the loss is given: a logarithm, root or division of what is 0 or negative, a mean of nothing",
        )
        reason = f"{found.reason}; NaN on both sides fails unless equal_nan=True"
        return replace(found, outcome=Outcome.FAIL, reason=reason, diagnoses=(cause,))
    if found.outcome is not Outcome.FAIL:
        return found
    known = both.cause(double=precise)
    if known is None or not known.is_known:
        pairs = zip(expected.gradients, actual.gradients, strict=True)
        shown = "; ".join(f"the gradient of output {number}: {shown_apart(*pair)}" for number, pair in enumerate(pairs))
        places = [f"the {who}'s is {placed(loss)}" for who, loss in zip(SIDE_NAMES, losses, strict=True)]
        message = (
            f"of equal outputs the port's loss is {actual.value:.9g}, the reference's {expected.value:.9g}; {shown}"
        )
        known = (
            of_piece(LOSS, "parting", message, "; ".join(places), "compare the two losses' code and arguments")
            if known is None
            else replace(known, code="parting", evidence=f"{known.evidence}; {shown}")
        )
    return replace(found, diagnoses=(known,))


def _errors(expected: Evaluated, actual: Evaluated, outputs: Sequence[Array]) -> list[float]:
    """Return the relative error of the value, then of each gradient."""
    terms = sum(float(np.abs(one * gradient).sum()) for one, gradient in zip(outputs, expected.gradients, strict=False))
    scale = max(abs(expected.value), SAME_SINGLE * terms if isfinite(terms) else 0.0)
    apart = distance(np.array([expected.value]), np.array([actual.value]))
    found = [0.0 if not apart else apart / scale if scale else np.inf]
    largest = max((rms(one) for one in expected.gradients), default=0.0)
    for one, other in zip(expected.gradients, actual.gradients, strict=True):
        size, off = max(rms(one), SAME_DOUBLE * largest), distance(one, other)
        found.append(0.0 if not off else off / size if size else np.inf)
    return found


def _judge(
    both: _Losses, expected: Evaluated, actual: Evaluated, floor: Sequence[float], *, precise: bool
) -> PieceCheck:
    errors = [apart, *gradients] = _errors(expected, actual, both.arrays)
    numbers = {
        "reference_loss": expected.value,
        "port_loss": actual.value,
        "loss_difference": apart,
        "gradient_difference": max(gradients, default=0.0),
    }
    values = f"expected {expected.value:.9g}, actual {actual.value:.9g}"
    if expected.is_zero and actual.is_zero:
        reason = "proves nothing: the loss and its gradient are zero on both sides"
        return PieceCheck(outcome=Outcome.ERROR, reason=reason, numbers=numbers)
    limits = [2 * max(one, CONSTANT) if precise else 4 * one for one in floor]
    off = {at: error for at, error in enumerate(errors) if not error <= max(limits[at], LIMIT * UNIT)}
    method = "" if precise else "; in float32, for a loss does not run in float64"
    if not off:
        flat = "" if any(one.any() for one in expected.gradients) else "; neither depends on the outputs"
        reason = f"{values}, gradients apart by {numbers['gradient_difference']:.1e}{flat}{method}"
        return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers)
    agree = all(error <= limit for error, limit in zip(gradients, limits[1:], strict=True))
    if agree and both.clamped(actual, double=precise):
        reason = (
            f"gradients agree; the losses ({values}) do not, only because Paddle's softmax clips outputs at "
            "64 below the largest"
        )
        return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers, excused=True)
    worst = max(off, key=lambda at: off[at])
    what = f"; the gradient of output {worst - 1} is apart by {off[worst]:.1e} of its size" if worst else ""
    reason = f"the losses of equal outputs differ: {values}{what}{method}"
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers)
