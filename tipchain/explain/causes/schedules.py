"""Two learning-rate schedules, compared step by step; and the setting that makes them differ."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from types import ModuleType

import numpy as np
import numpy.typing as npt

from tipchain.core.blame import one_line
from tipchain.errors import Outcome, TipchainError
from tipchain.explain.causes.optimizer_builders import Builder, build_both, build_torch_schedule, copied, slots_of
from tipchain.explain.findings import Diagnosis, PieceCheck, failed_to_run
from tipchain.explain.preflight.optimizers import SettingDifference
from tipchain.explain.preflight.schedules import ScheduleSettings, read
from tipchain.framework_types import Array, Schedule
from tipchain.frameworks import Updates
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.paddle_ import PaddleUpdates
from tipchain.numbers.tolerance import SAME_DOUBLE, SAME_SINGLE

SCHEDULER = "scheduler"


def _close(expected: Array, actual: Array) -> npt.NDArray[np.bool_]:
    """Tell at which steps two curves are one; rates of 1e-9 of the largest are zero."""
    limit = SAME_SINGLE * np.abs(expected) + SAME_DOUBLE * float(np.abs(expected).max(initial=0.0))
    return np.asarray(np.abs(actual - expected) <= limit)


def _causes(
    lr: ModuleType,
    settings: tuple[ScheduleSettings, ScheduleSettings],
    curves: tuple[Array, Array],
    name: str,
    factor: float,
) -> tuple[Diagnosis, ...]:
    """Return the settings with which the port's schedule has the reference's rates; else both where the rates part.

    Args:
        lr: Paddle's schedules.
        settings: of both.
        curves: both rates of a parameter, ``[steps]``.
        name: of the parameter.
        factor: of the port's schedule that the parameter's rate is.
    """
    (reference, port), (expected, actual) = settings, curves
    step = int(np.argmax(~_close(expected, actual)))
    near = slice(max(step - 1, 0), step + 2)
    rates = [", ".join(f"{one:.6g}" for one in curve[near]) for curve in curves]
    shown = f"from step {near.start} on the rates of {name} are {rates[1]} in the port, {rates[0]} in the reference"
    classes = f"the port's schedule is {port.words}, the reference's {reference.words}"
    for mended, differences in _mended(reference, port):
        curve = _curve(lr, mended, len(expected))
        if curve is not None and _close(expected, factor * curve).all():
            proof = f"{shown}; with the reference's value the port's own schedule gives the reference's rates"
            if differences:
                told = [(one, _diagnosis("setting", one.message, proof, one.fix, 1.0)) for one in differences]
                return tuple(replace(made, name=one.name, edit=one.edit) for one, made in told)
            fix = f"use `paddle.optimizer.lr.{mended.call}`"
            cause = _diagnosis("setting", classes, proof, fix, 1.0)
            return (replace(cause, place=port.source, reference_place=reference.source),)
    own = "" if factor == 1 else f", and {name} has {factor:.6g} times its rate"
    message = (
        f"at step {step} the learning rate is {actual[step]:.6g}, the reference's {expected[step]:.6g}: {classes}{own}"
    )
    cause = _diagnosis("parting", message, shown, "let the port's schedule give the reference's rates")
    return (replace(cause, place=port.source, reference_place=reference.source),)


def _mended(
    reference: ScheduleSettings, port: ScheduleSettings
) -> Iterator[tuple[ScheduleSettings, list[SettingDifference]]]:
    """Yield the port's settings with one of the reference's, then with all, and which they are."""
    found = list(reference.differences(port))
    for one in found:
        yield port.given(one.path, one.expected), [one]
    if len(found) > 1:
        yield reduce(lambda made, one: made.given(one.path, one.expected), found, port), found
    if not found and reference.kind and not reference.has_functions:
        yield reference, []


def _curve(lr: ModuleType, settings: ScheduleSettings, count: int) -> Array | None:
    try:
        schedule = settings.build(lr)
        advance, rates = stepper(schedule), [float(schedule())]
        for step in range(1, count):
            advance(step)
            rates.append(float(schedule()))
    except Exception:  # noqa: BLE001  (a schedule that does not take the value proves nothing)
        return None
    return np.array(rates)


def _diagnosis(code: str, message: str, evidence: str, fix: str, explained: float | None = None) -> Diagnosis:
    return Diagnosis(code=code, port_path=SCHEDULER, message=message, evidence=evidence, explained=explained, fix=fix)


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


def check_schedulers(
    sides: Sides,
    reference: object,
    port: object,
    builders: tuple[Builder, Builder],
    schedulers: tuple[Builder | None, Builder | None],
    iterations: int = 5,
    names: Mapping[str, str] | None = None,
) -> PieceCheck:
    """Step both schedules and compare the learning rate of every parameter at every step.

    Builders are called with what their parameters' names ask for: torch's with the optimizer; Paddle's with the
    learning rate, the optimizer (None where its builder takes the schedule as its learning rate), or nothing. A schedule
    that steps by a metric is given one that falls and then stays.

    Args:
        sides: torch's and Paddle's.
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        builders: of the optimizers.
        schedulers: of the schedules; None: the rate stays.
        iterations: steps at least; else to the end of the longer schedule, 200 where none says.
        names: Paddle's name by torch's where names and structure cannot tell.

    Returns:
        FAIL with both rates of the first step that differs; ERROR where something raises or no rate ever moves.
        ``curves`` holds ``reference_lr`` and ``port_lr``, of the parameter that differs first, if one does.
    """
    try:
        model, port_model = copied(sides.reference, reference), copied(sides.port, port)
        slots, _ = slots_of(model, port_model, names)
        optimizer, other, paddles = build_both(sides, builders, (model, port_model), schedulers)
        torchs, _ = schedulers
        schedule = build_torch_schedule(torchs, optimizer)
        if paddles is not None:
            other.set_lr_scheduler(paddles)
        ours = sides.reference.framework.updates(model, optimizer, {})
        theirs = PaddleUpdates(sides.port.framework, slots, other)  # type: ignore[arg-type]
        settings = read(schedule, 0), read(paddles, 1)
        count = _count((schedule, paddles), iterations)
        expected, actual = _walk(ours, schedule, count), _walk(theirs, paddles, count)
    except TipchainError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run("the schedule", error)
    short = next((one for one in (expected, actual) if one.steps < min(count, iterations)), None)
    if short is not None:
        return PieceCheck(
            outcome=Outcome.ERROR, reason=f"a schedule stopped after {short.steps} steps: {short.stopped}"
        )
    lr = sides.port.framework.paddle.optimizer.lr  # type: ignore[union-attr]
    settings_apart = settings[0].differences(settings[1])
    return _judge(
        expected,
        actual,
        lambda name, curves: _causes(lr, settings, curves, name, theirs.factor(name)),
        [one for one in settings_apart if not isinstance(one.expected, ScheduleSettings)],
        any(one is not None for one in schedulers),
    )


def _count(schedules: tuple[object, object], iterations: int) -> int:
    found = [_length(one) for one in schedules if one is not None]
    ends = [length for length, repeats in found if length and not repeats]
    if ends and not any(repeats for _, repeats in found):
        return min(max(iterations, max(ends) + 1), MOST_STEPS)
    return (
        min(max(iterations, STEPS, *(length for length, _ in found)), MOST_STEPS) if found else max(iterations, STEPS)
    )


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
    curves = {"reference_lr": one.tolist(), "port_lr": other.tolist()}
    momentum = ours.momentum[:count]
    if apart:
        step = int(np.argmax(~_close(one, other)))
        rest = "" if len(apart) == len(pairs) else f", for {len(apart)} of {len(pairs)} parameters (first {name})"
        reason = (
            f"learning rates differ at {np.count_nonzero(~_close(one, other))} of {count} steps{rest}; first at step "
            f"{step}: expected {one[step]:.9g}, actual {other[step]:.9g}"
        )
        found = causes(name, (one, other))
        return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, curves=curves, diagnoses=found)
    if np.ptp(momentum) > 0:
        low, high = float(momentum.min()), float(momentum.max())
        cause = _diagnosis(
            "setting",
            f"the reference's schedule moves the momentum between {low:.6g} and {high:.6g}, the port's does not",
            "OneCycleLR and CyclicLR of torch have cycle_momentum=True by default; Paddle's leave the momentum alone",
            "pass cycle_momentum=False to the reference, or set the momentum in the port's loop",
        )
        return PieceCheck(
            outcome=Outcome.FAIL, reason=cause.message, numbers=numbers, curves=curves, diagnoses=(cause,)
        )
    if differences:
        agreed = f"{count} learning rates of {len(pairs)} parameters agree all the same"
        found = tuple(_diagnosis("setting", one.message, agreed, one.fix) for one in differences)
        return PieceCheck(
            outcome=Outcome.FAIL, reason=found[0].message, numbers=numbers, curves=curves, diagnoses=found
        )
    if scheduled and largest == 0:
        return PieceCheck(outcome=Outcome.ERROR, reason="proves nothing: every learning rate is 0", numbers=numbers)
    still = " (none of them moves)" if all(np.ptp(one) == 0 for _, one, _ in pairs) else ""
    reason = f"{count} learning rates{still} of {len(pairs)} parameters agree"
    if theirs.steps < ours.steps:
        reason += f"; then the port's schedule raises, the reference's does not: {theirs.stopped}"
    return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers, curves=curves)
