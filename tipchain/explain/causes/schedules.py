"""Two learning-rate schedules, compared step by step; and the setting that makes them differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from tipchain.core.blame import one_line
from tipchain.errors import Outcome
from tipchain.explain.causes.optimizer_builders import Opened, TrainingPair, build_torch_schedule, open_both
from tipchain.explain.findings import Diagnosis, PieceCheck, failed_to_run, of_piece
from tipchain.explain.preflight.schedules import (
    SCHEDULER,
    SettingDifference,
    Settings,
    as_call,
    build,
    differences,
    explaining,
    has_functions,
    read,
)
from tipchain.framework_types import Array, Schedule
from tipchain.frameworks import Updates
from tipchain.numbers.tolerance import SAME_DOUBLE, SAME_SINGLE


def _close(expected: Array, actual: Array) -> npt.NDArray[np.bool_]:
    """Tell at which steps two curves are one; rates of 1e-9 of the largest are zero."""
    limit = SAME_SINGLE * np.abs(expected) + SAME_DOUBLE * float(np.abs(expected).max(initial=0.0))
    return np.asarray(np.abs(actual - expected) <= limit)


def _causes(
    opened: Opened, settings: tuple[Settings, Settings], name: str, curves: tuple[Array, Array]
) -> tuple[Diagnosis, ...]:
    """Return the settings with which the port's schedule has the reference's rates of a parameter; else where the rates part."""
    (reference, port), (expected, actual) = settings, curves
    lr, factor = opened.port.framework.paddle.optimizer.lr, opened.port.factor(name)
    step = int(np.argmax(~_close(expected, actual)))
    near = slice(max(step - 1, 0), step + 2)
    rates = [", ".join(f"{one:.6g}" for one in curve[near]) for curve in curves]
    shown = f"from step {near.start} on the rates of {name} are {rates[1]} in the port, {rates[0]} in the reference"
    proof = f"{shown}; with the reference's value the port's own schedule gives the reference's rates"
    classes = f"the port's schedule is {port.words}, the reference's {reference.words}"

    def explained(tried: Settings) -> float:
        try:
            schedule = build(lr, tried)
            advance, curve = stepper(schedule), [float(schedule())]
            for at in range(1, len(expected)):
                advance(at)
                curve.append(float(schedule()))
        except Exception:  # noqa: BLE001  (a schedule that does not take the value proves nothing)
            return 0.0
        return float(_close(expected, factor * np.array(curve)).all())

    apart = list(differences(reference, port))
    found, count, share = explaining(apart, lambda paths: explained(port.following(reference, paths)))
    if count:
        return tuple(one.diagnosed(proof, share) for one in found[:count])
    if not found and reference.kind and not has_functions(reference) and explained(reference):
        cause = of_piece(SCHEDULER, "setting", classes, proof, f"use `paddle.optimizer.lr.{as_call(reference)}`")
        return (replace(cause, explained=1.0, place=port.source, reference_place=reference.source),)
    own = "" if factor == 1 else f", and {name} has {factor:.6g} times its rate"
    message = (
        f"at step {step} the learning rate is {actual[step]:.6g}, the reference's {expected[step]:.6g}: {classes}{own}"
    )
    cause = of_piece(SCHEDULER, "parting", message, shown, "let the port's schedule give the reference's rates")
    return (replace(cause, place=port.source, reference_place=reference.source),)


# Both schedules, stepped.


STEPS = 200
"""Steps of a schedule that does not say how long it is."""
MOST_STEPS = 20_000
"""Steps of a schedule that are looked at at most: a limit on the time."""
LENGTHS = ("T_max", "total_steps", "total_iters", "decay_steps", "total_epochs")
"""Attributes of schedules that say when they end."""
REPEATS = ("step_size", "T_0", "step_size_up")
"""Those of which a few must be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curves:
    """The course of a schedule: the rate of each parameter ``[steps]``, and the momentum."""

    rates: Mapping[str, Array]
    momentum: Array
    steps: int
    stopped: str


def check_schedulers(pair: TrainingPair) -> PieceCheck:
    """Step both schedules and compare the learning rate of every parameter at every step.

    They are stepped to the end of the longer schedule, 200 times where none says. A schedule that steps by a metric is given
    one that falls and then stays.

    Returns:
        FAIL with both rates of the first step that differs; ERROR where something raises or no rate ever moves.
        ``curves`` holds ``reference_lr`` and ``port_lr``, of the parameter that differs first, if one does.
    """
    iterations, (torchs, port_builder) = pair.iterations, pair.schedulers or (None, None)
    try:
        opened = open_both(pair)
        schedule, paddles = build_torch_schedule(torchs, opened.reference.optimizer), opened.schedule
        settings = read(schedule, 0), read(paddles, 1)
        count = _count((schedule, paddles), iterations)
        expected, actual = _walk(opened.reference, schedule, count), _walk(opened.port, paddles, count)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run("the schedule", error)
    short = next((one for one in (expected, actual) if one.steps < min(count, iterations)), None)
    if short is not None:
        return PieceCheck(
            outcome=Outcome.ERROR, reason=f"a schedule stopped after {short.steps} steps: {short.stopped}"
        )
    return _judge(
        expected,
        actual,
        partial(_causes, opened, settings),
        [one for one in differences(*settings) if not isinstance(one.expected, Settings)],
        torchs is not None or port_builder is not None,
    )


def _count(schedules: tuple[object, object], iterations: int) -> int:
    found = [_length(one) for one in schedules if one is not None]
    ends = [length for length, repeats in found if length and not repeats]
    least = max(STEPS, *(length for length, _ in found)) if found else STEPS
    if ends and not any(repeats for _, repeats in found):
        least = max(ends) + 1
    return min(max(iterations, least), MOST_STEPS)


def _length(schedule: object) -> tuple[int, bool]:
    """Return how long a schedule says it is, 0 if it does not, and whether it goes on after that."""
    parts = getattr(schedule, "_schedulers", None)
    if parts:
        lengths = [_length(one) for one in parts]
        milestones = getattr(schedule, "_milestones", None)
        if milestones is None:
            return max(length for length, _ in lengths), any(repeats for _, repeats in lengths)
        return (milestones[-1] + lengths[-1][0] if lengths[-1][0] else 0), lengths[-1][1]
    inner = getattr(schedule, "lr_after_warmup", getattr(schedule, "learning_rate", None))
    if hasattr(schedule, "warmup_steps") and hasattr(inner, "step"):
        length, repeats = _length(inner)
        return (int(schedule.warmup_steps) + length if length else 0), repeats
    for names, times, repeats in ((LENGTHS, 1, False), (REPEATS, 3, True), (("milestones", "boundaries"), 1, True)):
        values = [one for name in names if (one := getattr(schedule, name, None)) is not None]
        numbers = [int(max(one)) + 2 if hasattr(one, "__iter__") and len(one) else one for one in values]
        known = [one for one in numbers if isinstance(one, int) and not isinstance(one, bool) and one > 0]
        if known:
            return max(known) * times + (1 if repeats else 0), repeats
    return 0, False


def _walk(trained: Updates, schedule: object, count: int) -> _Curves:
    """Step a schedule and keep every parameter's rate; errors after the first step end it."""
    advance = stepper(schedule)
    rows: list[dict[str, float]] = [trained.rates()]
    momentum, stopped = [trained.momentum()], ""
    with suppress(TypeError):  # an optimizer that asks for a closure
        trained.step()  # torch warns of schedules that step before their optimizer
    for step in range(1, count):
        try:
            advance(step)
        except Exception as error:  # noqa: BLE001  (user code; OneCycleLR raises at its end)
            stopped = one_line(error)
            break
        rows.append(trained.rates())
        momentum.append(trained.momentum())
    rates = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return _Curves(rates=rates, momentum=np.array(momentum), steps=len(rows), stopped=stopped)


def stepper(schedule: Schedule) -> Callable[[int], object]:
    """Return the function that steps a schedule by number, with a metric if asked."""
    if schedule is None:
        return lambda _: None
    asked = inspect.signature(schedule.step).parameters
    if "metrics" in asked and asked["metrics"].default is inspect.Parameter.empty:
        return lambda step: schedule.step(max(1.0 - 0.05 * step, 0.5))
    return lambda _: schedule.step()


def _judge(
    ours: _Curves,
    theirs: _Curves,
    causes: Callable[[str, tuple[Array, Array]], tuple[Diagnosis, ...]],
    differences: Sequence[SettingDifference],
    scheduled: bool,
) -> PieceCheck:
    count = min(ours.steps, theirs.steps)
    both = [name for name in ours.rates if name in theirs.rates]
    pairs = [(name, ours.rates[name][:count], theirs.rates[name][:count]) for name in both]
    if not pairs:
        return PieceCheck(outcome=Outcome.ERROR, reason="no parameter that both optimizers train could be matched")
    apart = [(name, one, other) for name, one, other in pairs if not _close(one, other).all()]
    name, one, other = min(apart, key=lambda pair: np.argmax(~_close(*pair[1:]))) if apart else pairs[0]
    largest = max(float(np.abs(one).max()) for _, one, _ in pairs)
    numbers = {
        "steps": float(count),
        "largest_lr_difference": max(float(np.abs(one - other).max()) for _, one, other in pairs) / (largest or 1.0),
    }
    check = PieceCheck(
        outcome=Outcome.FAIL,
        reason="",
        numbers=numbers,
        curves={"reference_lr": one.tolist(), "port_lr": other.tolist()},
    )
    momentum = ours.momentum[:count]
    if apart:
        step = int(np.argmax(~_close(one, other)))
        rest = "" if len(apart) == len(pairs) else f", for {len(apart)} of {len(pairs)} parameters (first {name})"
        reason = (
            f"learning rates differ at {np.count_nonzero(~_close(one, other))} of {count} steps{rest}; first at step "
            f"{step}: expected {one[step]:.9g}, actual {other[step]:.9g}"
        )
        return replace(check, reason=reason, diagnoses=causes(name, (one, other)))
    if np.ptp(momentum) > 0:
        low, high = float(momentum.min()), float(momentum.max())
        cause = of_piece(
            SCHEDULER,
            "setting",
            f"the reference's schedule moves the momentum between {low:.6g} and {high:.6g}, the port's does not",
            "OneCycleLR and CyclicLR of torch have cycle_momentum=True by default; Paddle's leave the momentum alone",
            "pass cycle_momentum=False to the reference, or set the momentum in the port's loop",
        )
        return replace(check, reason=cause.message, diagnoses=(cause,))
    if differences:
        agreed = f"{count} learning rates of {len(pairs)} parameters agree all the same"
        found = tuple(one.diagnosed(agreed) for one in differences)
        return replace(check, reason=found[0].message, diagnoses=found)
    if scheduled and largest == 0:
        return replace(check, outcome=Outcome.ERROR, reason="proves nothing: every learning rate is 0", curves={})
    still = " (none of them moves)" if all(np.ptp(one) == 0 for _, one, _ in pairs) else ""
    reason = f"{count} learning rates{still} of {len(pairs)} parameters agree"
    if theirs.steps < ours.steps:
        reason += f"; then the port's schedule raises, the reference's does not: {theirs.stopped}"
    return replace(check, outcome=Outcome.PASS, reason=reason)
