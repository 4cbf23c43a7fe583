"""Two losses, compared by their values and gradients on the reference's outputs; and why they differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from math import isfinite, isnan
from typing import Any, NamedTuple

import numpy as np

from tipchain.core.blame import placed
from tipchain.errors import Outcome, TipchainError, UsageError
from tipchain.explain.causes.piece import Piece, PieceSide
from tipchain.explain.causes.search import diagnose_loss
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck, failed_to_run
from tipchain.explain.locate.differences import arrange, distance, rms
from tipchain.explain.locate.rerun import from_one, rerun
from tipchain.explain.locate.runs import in_double, with_tensors
from tipchain.explain.locate.trace import Call, Hole, is_array, put_back, take_out
from tipchain.explain.locate.verdicts import Closeness, Measured, classify
from tipchain.framework_types import Array, Loss, Nested, Tensor
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import CONSTANT, LOGIT_FLOOR, SAME_DOUBLE, SAME_SINGLE, UNIT

LOSS = "loss"
SHOWN = 4
"""Elements of a gradient that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluated:
    """A loss: its value, and its gradient with respect to each output."""

    value: float
    gradients: tuple[Array, ...]

    @property
    def flat(self) -> Array:
        """All gradients as one vector."""
        return np.concatenate([one.reshape(-1) for one in self.gradients] or [np.zeros(0)])


Run = Callable[..., Evaluated]


def _cause_in_code(
    sides: Sides,
    losses: tuple[Loss, Loss],
    outputs: tuple[object, object],
    labels: object,
    links: Sequence[tuple[int, int]],
    opened: Callable[[object], object],
    seed: int,
    *,
    double: bool = True,
) -> Diagnosis | None:
    """Diagnose both losses as models of two inputs, the output and the labels; None where their code tells nothing."""
    called = [_called(output, labels) for output in outputs]

    def build(*, backward: bool) -> Piece:
        ours, theirs = (
            PieceSide(
                path=LOSS,
                call=call,
                layer=_as_layer(side, in_double(side, loss) if double else loss, opened),
                inputs=inputs,
            )
            for side, loss, (call, inputs) in zip(sides, losses, called, strict=True)
        )
        return Piece(
            sides=sides,
            ours=ours,
            theirs=theirs,
            backward=backward,
            atomic=frozenset(),
            seed=seed,
            links=tuple(links),
            double=double,
            loss=True,
        )

    for backward in (True, False):
        with suppress(Exception):  # user code that runs only as it is called
            found = diagnose_loss(build(backward=backward))
            if found is not None:
                return found
    return None


def _called(output: object, labels: object) -> tuple[Call, tuple[Array, ...]]:
    arguments, arrays, names = take_out(((output, labels), {}), is_array)
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
    return call, tuple(arrays)


def _as_layer(side: LiveSide, loss: Loss, opened: Callable[[object], object]) -> object:
    """Return a layer of the side's framework that calls a loss; its class is in the loss's module, whose imports count."""
    framework = import_module(side.name)
    own = loss.func if isinstance(loss, partial) else loss

    def forward(_: object, output: object, labels: object) -> Tensor:
        called, watched = loss, getattr(framework.nn.functional, getattr(own, "__name__", ""), None)
        if watched is not None and getattr(watched, "__wrapped__", None) is own:  # the framework's own function
            called = partial(watched, *loss.args, **loss.keywords) if isinstance(loss, partial) else watched
        value = called(opened(output), opened(labels))
        return value if not tuple(value.shape) else value.sum()

    base = framework.nn.Module if side.name == "torch" else framework.nn.Layer
    module = getattr(loss, "__module__", None) or type(loss).__module__
    made = type("Loss", (base,), {"forward": forward, "__module__": module})()
    made.eval()
    return made


def clamped(actual: Evaluated, outputs: Sequence[Array], run: Callable[[Sequence[Array]], Evaluated | None]) -> bool:
    """Tell whether the port's loss is the reference's but for Paddle's softmax, which takes low logits for 64 below the largest."""
    for axis in (1, -1):
        moved = []
        for one in outputs:
            usable = one.ndim > 1 and one.dtype.kind == "f"
            moved.append(np.maximum(one, one.max(axis=axis, keepdims=True) - LOGIT_FLOOR) if usable else one)
        if all(np.array_equal(one, other) for one, other in zip(moved, outputs, strict=True)):
            return False
        found = run(moved)
        if found is not None and abs(found.value - actual.value) <= SAME_SINGLE * abs(actual.value):
            return True
    return False


NAN = Diagnosis(
    code="nan",
    port_path="loss",
    message="the loss or its gradient is NaN on both sides, at equal positions",
    evidence="equal outputs of both models, and their gradients",
    fix="look at what the loss is given: a logarithm, root or division of what is 0 or negative, a mean of nothing",
)


class NotScalarError(UsageError):
    """A loss that is no scalar."""


class Fields(dict[str, Any]):
    """A mapping whose items are attributes too, as outputs of some models are."""

    def __getattr__(self, name: str) -> object:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


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
    structure, arrays, names = take_out(outputs, is_array)
    theirs = _arranged(arrays, names, outputs if port_outputs is None else port_outputs)
    structures = structure, theirs.structure

    def run(number: int, given: Sequence[Array], target: object, *, double: bool = True) -> Evaluated:
        moved = given if number == 0 else theirs.given(given)
        found = evaluate(sides[number], losses[number], structures[number], moved, target, seed=seed, double=double)
        gradients = found.gradients if number == 0 else theirs.back(found.gradients)
        kept = [np.zeros_like(one) if at in detached else one for at, one in enumerate(gradients)]
        return Evaluated(value=found.value, gradients=tuple(kept))

    doubles = [_attempt(run, number, arrays, labels, double=True) for number in (0, 1)]
    singles = [_attempt(run, number, arrays, labels, double=False) for number in (0, 1)]
    failed = _never_ran(doubles, singles, theirs.unlike)
    if failed is not None:
        return failed
    precise = all(isinstance(one, Evaluated) for one in doubles)
    expected, actual = (
        one if isinstance(one, Evaluated) else other for one, other in zip(doubles, singles, strict=True)
    )
    assert isinstance(expected, Evaluated)
    assert isinstance(actual, Evaluated)
    both = zip(theirs.places, expected.gradients, strict=True)
    if theirs.unlike and any(place is None and gradient.any() for place, gradient in both):
        return PieceCheck(outcome=Outcome.ERROR, reason=theirs.unlike)
    single, _ = singles
    if not precise:
        floor = _noise(run, arrays, labels, doubles)
    else:
        floor = _errors(expected, single, ()) if isinstance(single, Evaluated) else [0.0] * (1 + len(arrays))

    def again(given: Sequence[Array]) -> Evaluated | None:
        found = _attempt(run, 0, given, labels, double=precise)
        return found if isinstance(found, Evaluated) else None

    found = _judge(expected, actual, arrays, floor, again, precise=precise)
    nan = isnan(expected.value) or any(bool(np.isnan(one).any()) for one in expected.gradients)
    if found.outcome is Outcome.PASS and not equal_nan and nan:
        reason = f"{found.reason}; NaN on both sides fails unless equal_nan=True"
        return replace(found, outcome=Outcome.FAIL, reason=reason, diagnoses=(NAN,))
    if found.outcome is not Outcome.FAIL:
        return found
    given = put_back(structure, list(arrays)), put_back(theirs.structure, theirs.given(arrays))
    links = [(number, place.number) for number, place in enumerate(theirs.places) if place is not None]
    cause = _cause_in_code(sides, losses, given, labels, links, open_fields, seed, double=precise)
    if cause is None or not cause.is_known:
        one, other = expected.flat[:SHOWN], actual.flat[:SHOWN]
        gradients = [", ".join(f"{value:.6g}" for value in side) for side in (other, one)]
        shown = f"the port's gradient begins with {gradients[0]}, the reference's with {gradients[1]}"
        places = [f"the {who}'s is {placed(loss)}" for who, loss in zip(SIDE_NAMES, losses, strict=True)]
        parting = Diagnosis(
            code="parting",
            port_path=LOSS,
            message=f"of equal outputs the port's loss is {actual.value:.9g}, the reference's {expected.value:.9g}; {shown}",
            evidence="; ".join(places),
            fix="compare the two losses' code and arguments",
        )
        cause = parting if cause is None else replace(cause, code="parting", evidence=f"{cause.evidence}; {shown}")
    return replace(found, diagnoses=(cause,))


def evaluate(
    side: LiveSide, loss: Loss, structure: object, outputs: Sequence[Array], labels: object, *, seed: int, double: bool
) -> Evaluated:
    """Return a loss and its gradients with respect to each output, zeros for those it does not use.

    Raises:
        UsageError: the loss is no scalar.
        Exception: whatever the loss raises.
    """
    if double:
        loss = in_double(side, loss)
    elif hasattr(loss, "state_dict") and hasattr(loss, "parameters"):
        loss = side.copied(loss, double=False)

    def called(output: Nested) -> Tensor:
        value = loss(open_fields(output), open_fields(with_tensors(side, labels, double=double)))
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
        ((structure,), {}),
        [np.asarray(one) for one in outputs],
        from_one,
        double=double,
        seed=seed,
        draws=Draws(seed),
        of_inputs=True,
    )
    gradients = tuple(
        np.zeros(np.shape(array)) if one is None else one.astype(np.float64)
        for one, array in zip(made.inputs, outputs, strict=True)
    )
    return Evaluated(value=float(made.outputs[0].reshape(())), gradients=gradients)


def open_fields(structure: object) -> object:
    """Return a structure whose mappings have attributes."""
    if isinstance(structure, Mapping):
        return Fields({key: open_fields(one) for key, one in structure.items()})
    if is_dataclass(structure) and not isinstance(structure, type):
        return Fields({one.name: open_fields(getattr(structure, one.name)) for one in fields(structure)})
    if isinstance(structure, list) or type(structure) is tuple:
        return type(structure)(open_fields(one) for one in structure)
    return structure


class _Place(NamedTuple):
    """Which of the port's arrays one of the reference's is, and the order of its axes there."""

    number: int
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Arranged:
    """The reference's outputs as the port's loss takes them.

    Attributes:
        structure: of the port's output.
        places: where each of the reference's arrays stands among the port's; None of one that the port does not return.
        arrays: the port's own; those that the reference does not have are given as they are.
        shapes: of the reference's arrays.
        unlike: says that outputs of both have other shapes, if some have; a loss that uses them cannot be compared.
    """

    structure: Nested
    places: tuple[_Place | None, ...]
    arrays: tuple[Array, ...]
    shapes: tuple[tuple[int, ...], ...]
    unlike: str = ""

    def given(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the port's arguments of the loss for arrays of the reference's."""
        found = list(self.arrays)
        for place, array in zip(self.places, arrays, strict=True):
            if place is not None:
                found[place.number] = array.transpose(place.axes)
        return found

    def back(self, gradients: Sequence[Array]) -> tuple[Array, ...]:
        """Return the gradients of the reference's arrays; zeros of those that the port does not return."""
        return tuple(
            np.zeros(shape) if place is None else gradients[place.number].transpose(np.argsort(place.axes))
            for place, shape in zip(self.places, self.shapes, strict=True)
        )


def _arranged(arrays: Sequence[Array], names: Sequence[str], port: Nested) -> _Arranged:
    """Return where the reference's outputs stand in the port's: by name, else in the order of both; either may have more."""
    shapes = tuple(one.shape for one in arrays)
    theirs, others, port_names = take_out(port, is_array)
    if sorted(names) == sorted(port_names):
        theirs = put_back(theirs, [Hole(names.index(one)) for one in port_names])
        others = [others[port_names.index(one)] for one in names]
    found: list[_Place | None] = []
    start, more = 0, len(arrays) - len(others)
    for one in arrays:
        fitting = ((at, arrange(one, others[at])) for at in range(start, len(others)))
        if len(arrays) == len(others):
            fitting = ((at, axes) for at, axes in fitting if at == start)
        place = next((_Place(at, axes) for at, axes in fitting if axes is not None), None)
        found.append(place)
        start = start + (len(arrays) == len(others)) if place is None else place.number + 1
    expected, actual = ([list(each.shape) for each in side] for side in (arrays, others))
    told = f"the models' outputs have other shapes: expected {expected}, actual {actual}"
    return _Arranged(theirs, tuple(found), tuple(others), shapes, told if found.count(None) > max(more, 0) else "")


def _attempt(run: Run, number: int, arrays: Sequence[Array], labels: Nested, *, double: bool) -> Evaluated | Exception:
    try:
        found: Evaluated = run(number, arrays, labels, double=double)
    except Exception as error:  # noqa: BLE001  (user code)
        return error
    return found


def _noise(run: Run, arrays: Sequence[Array], labels: Nested, doubles: Sequence[object]) -> list[float]:
    """Return the change of a float32-only loss by one rounding of the outputs."""
    number = next((at for at, one in enumerate(doubles) if not isinstance(one, Evaluated)), 0)
    base = run(number, arrays, labels, double=False)
    generator = np.random.default_rng(0)
    found = [64 * UNIT] * (1 + len(arrays))
    for _ in range(3):
        moved = [
            one * (1 + 2 * UNIT * generator.standard_normal(one.shape)) if one.dtype.kind == "f" else one
            for one in arrays
        ]
        other = run(number, moved, labels, double=False)
        found = [max(pair) for pair in zip(found, _errors(base, other, arrays), strict=True)]
    return found


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
    expected: Evaluated,
    actual: Evaluated,
    outputs: Sequence[Array],
    floor: Sequence[float],
    again: Callable[[Sequence[Array]], Evaluated | None],
    *,
    precise: bool,
) -> PieceCheck:
    errors = [apart, *gradients] = _errors(expected, actual, outputs)
    names = ["the loss", *(f"the gradient of output {number}" for number in range(len(expected.gradients)))]
    limits = [max(one, CONSTANT) if precise else 2 * one for one in floor]
    measured = [
        Measured(exact=error, port=None, reference=limit, bitwise=not error, what=name)
        for error, limit, name in zip(errors, limits, names, strict=True)
    ]
    closeness, worst = classify(measured)
    numbers = {
        "reference_loss": expected.value,
        "port_loss": actual.value,
        "loss_difference": apart,
        "gradient_difference": max(gradients, default=0.0),
    }
    values = f"expected {expected.value:.9g}, actual {actual.value:.9g}"
    if (
        not expected.value
        and not actual.value
        and not any(one.any() for one in (*expected.gradients, *actual.gradients))
    ):
        reason = "proves nothing: the loss and its gradient are zero on both sides"
        return PieceCheck(outcome=Outcome.ERROR, reason=reason, numbers=numbers)
    method = "" if precise else "; in float32, for a loss does not run in float64"
    if closeness is not Closeness.DIFFERS:
        flat = "" if any(one.any() for one in expected.gradients) else "; neither depends on the outputs"
        reason = f"{values}, gradients apart by {numbers['gradient_difference']:.1e}{flat}{method}"
        return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers)
    if all(error <= 2 * limit for error, limit in zip(gradients, limits[1:], strict=True)) and clamped(
        actual, outputs, again
    ):
        reason = (
            f"gradients agree; the losses ({values}) do not, only because Paddle's softmax clips outputs at "
            "64 below the largest"
        )
        return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers, excused=True)
    what = "" if worst is None or worst is measured[0] else f"; {worst.what} is apart by {worst.exact:.1e} of its size"
    return PieceCheck(
        outcome=Outcome.FAIL, reason=f"the losses of equal outputs differ: {values}{what}{method}", numbers=numbers
    )


def _never_ran(
    doubles: Sequence[Evaluated | Exception], singles: Sequence[Evaluated | Exception], unlike: str
) -> PieceCheck | None:
    """Return the outcome of the first loss that runs in neither precision; None where both run in one."""
    reference, _ = doubles
    for number, (where, double, single) in enumerate(zip(SIDE_NAMES, doubles, singles, strict=True)):
        if isinstance(double, Evaluated) or isinstance(single, Evaluated):
            continue
        if number and unlike:
            return PieceCheck(outcome=Outcome.ERROR, reason=unlike)
        failed = failed_to_run(f"the {where}'s loss", single)
        if isinstance(single, TipchainError):
            failed = PieceCheck(outcome=Outcome.ERROR, reason=str(single))
        if number == 0 or not isinstance(reference, Evaluated):
            return failed
        if isinstance(single, NotScalarError):
            unreduced = Diagnosis(
                code="argument",
                port_path="loss",
                message="`reduction` is 'none' in the port's loss, which is no scalar; the reference's is reduced",
                evidence=str(single),
                fix="pass the reference's reduction: 'mean' or 'sum'",
            )
            return PieceCheck(outcome=Outcome.FAIL, reason=str(single), diagnoses=(unreduced,))
        return failed
    return None
