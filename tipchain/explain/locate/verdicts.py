"""Verdicts about layers: their errors, their inputs, and layers that agree though built otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from math import inf, log2, sqrt
from typing import Literal

import numpy as np

from tipchain.explain.locate.differences import distance, equal, finite_rms, relative
from tipchain.explain.locate.matching import CallPair, LayoutStep, Matching
from tipchain.explain.locate.trace import Call, Store, Trace, TracedValue, Traces
from tipchain.facts.layers import INSIDE
from tipchain.framework_types import Array
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.numbers.tolerance import EXPLAINED, SAME_SINGLE, UNIT

Direction = Literal["forward", "backward", "construction"]
LIMIT = 4.0
"""A layer's error above this multiple of the reference's own float32 error is not rounding. In 253 correct layers of three nets the multiple
stays below 2.1. A BatchNorm's epsilon of 1.1e-5 instead of 1e-5 makes at least 8. The limit is the middle of the two in octaves."""
SINGLE_LIMIT = 16.0
"""The same limit for a port without float64: the gradients of correct layers reach 6 (BatchNorm, convolutions on two threads)."""
COARSE = 2.0**-13
"""Relative error that a sum in float32 does not reach, and a product in TF32 or less does."""


class Closeness(Enum):
    """How close a layer of the port is to the reference's, both given the same."""

    BITWISE = "bitwise"
    """Not a bit differs."""
    ROUNDING = "rounding"
    """As close as float32 allows."""
    LOWER_PRECISION = "lower precision"
    """The same in float64, but computed with fewer bits than float32 has."""
    DIFFERS = "differs"
    """Another function."""
    NOT_COMPARABLE = "not comparable"
    """Shapes, numbers of outputs, or runs that failed do not allow to tell."""


ORDER = (Closeness.BITWISE, Closeness.ROUNDING, Closeness.NOT_COMPARABLE, Closeness.LOWER_PRECISION, Closeness.DIFFERS)


FAULTS = (Closeness.DIFFERS, Closeness.LOWER_PRECISION)
"""Verdicts of a layer that is wrong."""
FINE = (Closeness.BITWISE, Closeness.ROUNDING)
"""Verdicts of a layer that was shown to be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerVerdict:
    """One call of a layer, or of the code of a container, held against the reference's.

    Attributes:
        reference_path: the layer in torch's model.
        port_path: the layer in Paddle's.
        reference_type: its class.
        port_type: its class.
        turn: which call of the layer it is, from 0.
        direction: ``"forward"``, ``"backward"`` (vector-Jacobian product with the reference's cotangent), or
            ``"construction"`` for what differs before anything runs.
        inherited: relative RMS difference between what the two layers were given in the models' float64 runs.
        own: relative RMS difference of the port's float32 result from the reference's in float64, both given the same;
            of the float64 result where there is none in float32.
        ratio: ``own`` as a multiple of the reference's own float32 error; None where that was not run.
        closeness: the class.
        method: ``"float64"``, or ``"float32"`` where the port cannot run in float64.
        reason: one sentence.
        refuted: the layers differ, but the models as a whole do the same: they are no counterparts.
        tied: gradients differ at equal values alone, of which each framework takes another one for the largest.
        nan: it gives NaN: where the reference does not, or, ``own`` being 0, where the reference does too.
    """

    reference_path: str
    port_path: str
    reference_type: str
    port_type: str
    turn: int = 0
    direction: Direction
    inherited: float = 0.0
    own: float | None = None
    ratio: float | None = None
    closeness: Closeness
    method: Literal["float64", "float32"] = "float64"
    reason: str
    refuted: bool = False
    tied: bool = False
    nan: bool = False

    @property
    def at_fault(self) -> bool:
        """Whether the layer itself is wrong."""
        return self.closeness in FAULTS

    def not_comparable(self, reason: str) -> LayerVerdict:
        """Return the verdict as that on a layer that cannot be judged so."""
        return replace(self, closeness=Closeness.NOT_COMPARABLE, reason=reason)


@dataclass(frozen=True, slots=True)
class Measured:
    """Errors of one tensor, as RMS relative to the truth's.

    Attributes:
        what: which tensor it is.
        exact: of the port in float64, against the reference in float64; None where the port does not run so.
        port: of the port in float32; None where it was not run.
        reference: of the reference in float32; None where it was not run.
        bitwise: both float32 results are the same.
        usual: where the port's float32 result is far off, the median of its elements' relative errors; 0 elsewhere.
    """

    what: str
    exact: float | None
    port: float | None = None
    reference: float | None = None
    bitwise: bool = False
    usual: float = 0.0

    @property
    def ratio(self) -> float | None:
        """The port's float32 error as a multiple of the reference's."""
        if self.port is None or self.reference is None:
            return None
        return self.port / max(self.reference, UNIT / 4)


def measure(
    what: str,
    truth: Array,
    reference: Array | None,
    port: Array | None,
    exact: Array | float | None,
    moved: Array | None = None,
    least: float = 0.0,
    terms: int = 1,
) -> Measured:
    """Measure a tensor that the reference gives in float64 (``truth``) and float32, the port in float32 and float64.

    Args:
        what: what to call it.
        truth: float64.
        reference: float32.
        port: float32, its axes in the reference's order.
        exact: float64, likewise; or its error, where that is known.
        moved: what the reference gives in float64 for inputs a unit in float32's last place off: where the port has no
            float64, its error may be as large as that too.
        terms: how many terms each element is the sum of. Each addition rounds the sum so far, so that a kernel that adds one
            after the other is off by the root of their number, times the unit and what moving the terms makes.
        least: what the RMS is taken for where it is less: a gradient that is zero but for rounding has no other scale.
    """
    same = False
    if reference is not None and port is not None:
        same = equal(reference, port, equal_nan=reference.dtype.kind in "fc")
    size = max(finite_rms(truth), least)

    def error(array: Array | None) -> float | None:
        if array is None:
            return None
        apart = distance(truth, array)
        return apart / size if size else (inf if apart else 0.0)

    shaken, rounded = error(moved), error(reference)
    if shaken is not None:
        rounded = max(rounded or 0.0, shaken if terms == 1 else sqrt(terms) * (UNIT + shaken))
    known = exact if isinstance(exact, float) or exact is None else error(exact)
    off, usual = error(port), 0.0
    if port is not None and off is not None and off > COARSE:
        # A coarse arithmetic is off everywhere; single elements are where float32 crosses a kink (the zero of a ReLU).
        some = truth != 0
        elements = some.any() and port.shape == truth.shape
        usual = float(np.median(np.abs(port[some] - truth[some]) / np.abs(truth[some]))) if elements else inf
    return Measured(exact=known, port=off, reference=rounded, bitwise=same, what=what, usual=usual)


def classify(measured: Iterable[Measured]) -> tuple[Closeness, Measured | None]:
    """Return the worst class of a layer's tensors, and the tensor that decides it."""

    def badness(told: tuple[Closeness, Measured]) -> tuple[int, float]:
        closeness, one = told
        return ORDER.index(closeness), one.port if one.port is not None else one.exact or 0.0

    return max(((_class_of(one), one) for one in measured), key=badness, default=(Closeness.NOT_COMPARABLE, None))


def _class_of(one: Measured) -> Closeness:
    if one.exact is None and one.port is None:
        return Closeness.NOT_COMPARABLE
    floor = max(one.reference or 0.0, UNIT / 2)
    # A layer that computes in float32 whatever it is given is off by some roundings in float64 too.
    if one.exact is not None and not one.exact <= LIMIT * max(floor, UNIT):
        return Closeness.DIFFERS
    if one.port is None:
        return Closeness.ROUNDING
    if one.bitwise:
        return Closeness.BITWISE
    if one.exact is None:
        return Closeness.ROUNDING if one.port <= SINGLE_LIMIT * floor else Closeness.DIFFERS
    # The same function. What makes its float32 result worse than LIMIT allows is the arithmetic it uses, if it does everywhere.
    coarse = one.port > max(LIMIT * floor, COARSE) and not one.usual <= COARSE
    return Closeness.LOWER_PRECISION if coarse else Closeness.ROUNDING


def effective_bits(error: float) -> float:
    """Return how many significant bits a relative RMS error leaves, the implicit one counted.

    Rounding to b bits leaves a relative RMS error of about 2**-b / sqrt(3).
    """
    return -log2(error * 3**0.5) if error > 0 else inf


def reason_of(closeness: Closeness, worst: Measured | None) -> str:
    """Return the sentence that a layer's verdict gives."""
    if worst is None:
        return "nothing was compared"
    if closeness is Closeness.DIFFERS:
        told = f"relative {worst.exact:.3g} in float64" if worst.exact is not None else f"relative {worst.port:.3g}"
        return f"{worst.what} differs: {told}"
    if closeness is Closeness.LOWER_PRECISION and worst.port is not None:
        return f"{worst.what} has about {effective_bits(worst.port):.0f} significant bits, float32 has 24"
    if closeness is Closeness.BITWISE:
        return "the same bits"
    if worst.port is None:
        return f"{worst.what} is the same in float64"
    return f"{worst.what} is as close as rounding allows"


# Where two models are built otherwise, but do the same: what that says about single layers.


REFUTES = 1 / (1 - EXPLAINED)
"""How many times as far as they are the outputs would have to be apart by a layer's error, for that to be refuted: it leaves less
than a cause may leave unexplained."""
NEXT = 3
"""Calls after a layer whose inputs are looked at for a function of its result."""


def continued(matching: Matching, pair: CallPair, traces: Traces, sides: Sides, store: Store) -> Iterator[CallPair]:
    """Yield a pair with one side's next step: the other's layer may do both.

    Paddle's ``BatchNorm(act="relu")`` is a norm and an activation of torch's, which may be a layer or a function.
    """
    for number, alone in enumerate((matching.reference_only, matching.port_only)):
        call = pair.calls[number]
        if len(call.outputs) != 1:
            continue
        for after in alone:
            if list(after.inputs) == list(call.outputs) and len(after.outputs) == 1:
                yield pair.followed(number, LayoutStep(after.path), after.outputs[0])
        for name, value in _functions_of(call, traces[number], sides[number], store):
            yield pair.followed(number, LayoutStep(name, function=True), value)


def _functions_of(call: Call, trace: Trace, side: LiveSide, store: Store) -> Iterator[tuple[str, TracedValue]]:
    """Yield the functions of a call's result that later calls are given, or that calls around it return."""
    (made,) = call.outputs
    taken = [value for one in trace.calls[call.number + 1 :][:NEXT] for value in one.inputs]
    returned = [value for one in trace.around(call) for value in one.outputs]
    others = (one for one in (*taken, *returned) if one is not made)
    given = {id(one): one for one in others if one.shape == made.shape and one.dtype == made.dtype}
    if not given or made.dtype.kind != "f":
        return
    tensor = side.tensor(store.get(made.stored), gradient=False)
    for name in INSIDE:
        result = side.view(getattr(side.functional, name)(tensor))
        for value in given.values():
            if relative(result, store.get(value.stored)) <= SAME_SINGLE:
                yield name, value
                return


def settled(
    verdicts: Iterable[LayerVerdict], loose: Mapping[int, float], actual: float, *, gradients: bool
) -> tuple[LayerVerdict, ...]:
    """Return the verdicts on models whose outputs agree, less the refuted ones.

    Args:
        verdicts: of layers.
        loose: by id those that rest on which call is taken for which, each with how far it would take the outputs if it were
            right, by the gradients there.
        actual: how far the outputs are apart, likewise.
        gradients: the gradients of all parameters agree too.
    """
    found = list(verdicts)
    wrong = [one for one in found if one.direction == "forward" and one.closeness is Closeness.DIFFERS]
    refuted = {(one.port_path, one.turn) for one in wrong if loose.get(id(one), 0.0) >= REFUTES * actual}
    paths = {path for path, _ in refuted}
    # A turn that the outputs do not rest on, such as one behind a mask, says nothing beside those that are refuted.
    refuted |= {(one.port_path, one.turn) for one in wrong if one.port_path in paths and loose.get(id(one)) == 0.0}

    def settle(one: LayerVerdict) -> LayerVerdict:
        of_gradients = gradients and (one.direction, one.closeness) == ("backward", Closeness.DIFFERS)
        if id(one) not in loose or not one.at_fault or not (of_gradients or (one.port_path, one.turn) in refuted):
            return one
        return replace(one.not_comparable(f"built differently, but the models do the same: {one.reason}"), refuted=True)

    return tuple(map(settle, found))


OWN = ("torch.nn.", "paddle.nn.")
"""Where the frameworks' own layers are."""


def frameworks_own(layer: object) -> bool:
    """Tell whether a layer is of a class of the framework's."""
    return type(layer).__module__.startswith(OWN)
