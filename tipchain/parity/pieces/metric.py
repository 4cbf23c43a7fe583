"""Two metrics, called with equal outputs and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import UsageError
from tipchain.outcome import Outcome
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.pieces.check import PieceCheck, failed_to_run
from tipchain.parity.pieces.metric_causes import METRIC, Case, why
from tipchain.parity.pieces.metric_habits import ignored, mistaken_axis, not_reset
from tipchain.parity.pieces.metric_probes import Probe, given_probe, kinds_of, make_probes
from tipchain.parity.pieces.metric_values import Meter, Values
from tipchain.parity.rounding import SAME_ENLARGED, SAME_SINGLE

Array = npt.NDArray[Any]
SIDES = ("reference", "port")
RELATIVE, ABSOLUTE = SAME_ENLARGED, SAME_SINGLE
"""Differences of two values that are rounding: a metric in float32 has as much."""


def check_metrics(
    sides: tuple[LiveSide, LiveSide], metrics: tuple[Any, Any], outputs: Any = None, labels: Any = None
) -> PieceCheck:
    """Give both metrics equal outputs and labels: the models' own, and such as tell ways of counting apart.

    Args:
        sides: torch's and Paddle's.
        metrics: of each side a callable ``(outputs, labels) -> number`` (or numbers by name, or a sequence), which is given
            numpy arrays, and its framework's tensors if it does not take them; or an object with the protocol of
            `paddle.metric.Metric` (compute, update, accumulate, reset) or of torchmetrics (update, compute, reset), which is
            given tensors batch by batch; or a class of these. They are copied, not changed.
        outputs: the reference's: an array, or arrays in tuples, lists and mappings; None if there are none.
        labels: likewise.

    Returns:
        FAIL with both values and the causes; ERROR where a metric does not run.
    """
    try:
        meters = Meter.of(sides[0], metrics[0]), Meter.of(sides[1], metrics[1])
    except UsageError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a class of the user's)
        return failed_to_run("a metric", error)
    case = _measure(meters, outputs, labels)
    if isinstance(case, PieceCheck):
        return case
    return _judge(case)


def _measure(meters: tuple[Meter, Meter], outputs: Any, labels: Any) -> Case | PieceCheck:
    """Return what both metrics say about every probe that both take, or the ERROR of those that take none."""
    probes: list[Probe] = []
    found: list[tuple[Values, Values]] = []
    errors: dict[str, Exception] = {}
    if outputs is not None and labels is not None:
        probe = given_probe(outputs, labels)
        pair, raised = _both(meters, probe)
        if pair is None:
            side, error = next(iter(raised.items()))
            if side == SIDES[1] and SIDES[0] not in raised:
                cause = mistaken_axis(meters, outputs, labels)
                if cause is not None:
                    return PieceCheck(outcome=Outcome.FAIL, reason=f"the port's metric raised {type(error).__name__}: {cause.message}",
                                      diagnoses=(cause,))  # fmt: skip
            return failed_to_run(f"the {side}'s metric", error)
        probes.append(probe)
        found.append(pair)
    for kind in kinds_of(outputs, labels):
        for probe in make_probes(kind, outputs, labels):
            pair, raised = _both(meters, probe)
            errors |= raised
            if pair is not None:
                probes.append(probe)
                found.append(pair)
        if probes:
            break
    if not probes:
        side, error = next(iter(errors.items()), ("reference", ValueError("nothing to call it with")))
        return failed_to_run(f"the {side}'s metric", error)
    return Case(meters=meters, probes=probes, values=found)


def _both(
    meters: tuple[Meter, Meter], probe: Probe
) -> tuple[tuple[Values, Values] | None, dict[str, Exception]]:
    found: list[Values] = []
    raised: dict[str, Exception] = {}
    for side, meter in zip(SIDES, meters, strict=True):
        try:
            found.append(meter.values(probe.batches))
        except Exception as error:  # noqa: BLE001, PERF203  (user code)
            raised[side] = error
    return ((found[0], found[1]) if not raised else None), raised


def _judge(case: Case) -> PieceCheck:
    ours, theirs = case.values[0]
    try:
        names = pair_names(ours, theirs)
    except ValueError as error:
        return PieceCheck(outcome=Outcome.FAIL, reason=str(error))
    numbers = _numbers(case, names)
    lasting = not_reset(case, same)
    off = [
        (name, other) for name, other in names.items()
        if any(not same(one.get(name), two.get(other)) for one, two in case.values)
    ]  # fmt: skip
    if lasting is not None and not off:
        return PieceCheck(outcome=Outcome.FAIL, reason=lasting.message, numbers=numbers, diagnoses=(lasting,))
    if not off:
        hidden = ignored(case)
        if hidden is not None:
            return PieceCheck(
                outcome=Outcome.FAIL, reason=hidden.message, numbers=numbers, diagnoses=(hidden,)
            )
        shown = ", ".join(f"{name or 'value'} {value:.6g}" for name, value in list(ours.items())[:3])
        return PieceCheck(outcome=Outcome.PASS, numbers=numbers,
                          reason=f"equal on {len(case.probes)} sets of outputs and labels; of the first: {shown}")  # fmt: skip
    name, other = off[0]
    at = next(n for n, (one, two) in enumerate(case.values) if not same(one.get(name), two.get(other)))
    one, two = case.values[at][0].get(name), case.values[at][1].get(other)
    which = f" {name}" if name else ""
    reason = (
        f"the metrics differ{which}: expected {_shown(one)}, actual {_shown(two)} for {case.probes[at].name}"
    )
    causes = [] if lasting is None else [lasting]
    for pair in off if lasting is None else ():
        causes += [one for one in why(case, *pair) if one not in causes]
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=tuple(causes))


def pair_names(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, str]:
    """Return the port's value by the reference's: by name, or by place where no name is alike.

    Raises:
        ValueError: one side has values that the other has not.
    """
    if len(ours) == len(theirs) and (set(ours) == set(theirs) or not set(ours) & set(theirs)):
        return (
            {name: name for name in ours}
            if set(ours) == set(theirs)
            else dict(zip(ours, theirs, strict=True))
        )
    left, right = ([name or "one number" for name in side] for side in (ours, theirs))
    raise ValueError(f"the metrics have other values: {', '.join(left)} expected, {', '.join(right)} actual")


def same(one: float | None, other: float | None) -> bool:
    """Tell whether two values are equal but for rounding; NaN equals NaN."""
    if one is None or other is None:
        return one is other
    if np.isnan(one) or np.isnan(other) or np.isinf(one) or np.isinf(other):
        return bool(one == other or (np.isnan(one) and np.isnan(other)))
    return bool(abs(one - other) <= RELATIVE * max(abs(one), abs(other)) + ABSOLUTE)


def _numbers(case: Case, names: Mapping[str, str]) -> dict[str, float]:
    ours, theirs = case.values[0]
    return dict(_pairs(ours, theirs, names))


def _pairs(ours: Values, theirs: Values, names: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    for name, other in names.items():
        label = f"{METRIC}/{name}" if name else METRIC
        yield f"{label}/reference", ours[name]
        yield f"{label}/port", theirs[other]


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.9g}"
