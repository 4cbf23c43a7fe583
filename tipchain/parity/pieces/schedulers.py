"""Two schedules, compared by the learning rates they really give, step by step."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.blame import one_line
from tipchain.errors import TipchainError
from tipchain.outcome import Outcome
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.pieces.builders import Builder
from tipchain.parity.pieces.check import PieceCheck, failed_to_run
from tipchain.parity.pieces.opening import build_both, build_torch_schedule, copied, slots_of
from tipchain.parity.pieces.schedule_causes import Trial, Tried, cycled_momentum, schedule_causes
from tipchain.parity.pieces.schedule_shapes import close, first_apart, same
from tipchain.parity.pieces.trained import PaddleTrained, TorchTrained, Trained

Array = npt.NDArray[Any]
STEPS = 200
"""Steps of a schedule that does not say how long it is."""
MOST_STEPS = 20_000
"""Steps of a schedule that are looked at at most: a limit on the time."""
LENGTHS = ("T_max", "total_steps", "total_iters", "decay_steps", "total_epochs")
"""Attributes of schedules that say when they end."""
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "rate": ("base_lr",), "gamma": ("gamma",), "milestones": ("milestones", "boundaries"), "step_size": ("step_size",),
    "length": ("T_max", "decay_steps", "T_0"), "end": ("eta_min", "end_lr"), "power": ("power",), "times": ("T_mult",),
    "warmup_steps": ("warmup_steps",), "warmup_start": ("start_lr",),
}  # fmt: skip
"""Attributes of Paddle's schedules by the knob of a curve that they set."""
REPEATS = ("step_size", "T_0", "step_size_up")
"""Those of which a few must be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curves:
    """What a schedule did: the rate of each parameter ``[steps]``, and the momentum."""

    rates: Mapping[str, Array]
    momentum: Array
    steps: int
    stopped: str


def check_schedulers(
    sides: tuple[LiveSide, LiveSide], reference: Any, port: Any, builders: tuple[Builder, Builder],
    schedulers: tuple[Builder | None, Builder | None], iterations: int = 5,
    names: Mapping[str, str] | None = None, steps: int | None = None,
) -> PieceCheck:  # fmt: skip
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
        iterations: steps at least.
        names: Paddle's name by torch's where names and structure cannot tell.
        steps: how many to compare; by default to the end of the longer schedule, 200 where none says.

    Returns:
        FAIL with both rates of the first step that differs; ERROR where something raises or no rate ever moves.
        ``curves`` holds ``reference_lr`` and ``port_lr``, of the parameter that differs first, if one does.
    """
    try:
        ours, theirs = _open(sides, reference, port, builders, schedulers, names)
        fresh = copy.deepcopy(theirs[1])
        count = steps or _count((ours[1], theirs[1]), iterations)
        curves = tuple(_walk(*one, count) for one in (ours, theirs))
    except TipchainError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run("the schedule", error)
    short = next((one for one in curves if one.steps < min(count, iterations)), None)
    if short is not None:
        return PieceCheck(
            outcome=Outcome.ERROR, reason=f"a schedule stopped after {short.steps} steps: {short.stopped}"
        )
    return _judge(curves[0], curves[1], fresh, any(one is not None for one in schedulers))


def _open(
    sides: tuple[LiveSide, LiveSide], reference: Any, port: Any, builders: tuple[Builder, Builder],
    schedulers: tuple[Builder | None, Builder | None], names: Mapping[str, str] | None,
) -> tuple[tuple[Trained, Any], tuple[Trained, Any]]:  # fmt: skip
    """Return both sides' parameters under their optimizers, and the schedules."""
    models = [copied(side, model) for side, model in zip(sides, (reference, port), strict=True)]
    slots, _ = slots_of(models[0], models[1], names)
    optimizer, other, paddles = build_both(sides, builders, (models[0], models[1]), schedulers)
    schedule = build_torch_schedule(schedulers[0], optimizer)
    if paddles is not None:
        other.set_lr_scheduler(paddles)
    return (TorchTrained(sides[0], models[0], optimizer), schedule), (
        PaddleTrained(sides[1], other, slots),
        paddles,
    )


def _count(schedules: tuple[Any, Any], iterations: int) -> int:
    found = [_length(one) for one in schedules if one is not None]
    ends = [length for length, repeats in found if length and not repeats]
    if ends and not any(repeats for _, repeats in found):
        return min(max(iterations, max(ends) + 1), MOST_STEPS)
    return (
        min(max(iterations, STEPS, *(length for length, _ in found)), MOST_STEPS)
        if found
        else max(iterations, STEPS)
    )


def _length(schedule: Any) -> tuple[int, bool]:
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
    for names, times, repeats in (
        (LENGTHS, 1, False),
        (REPEATS, 3, True),
        (("milestones", "boundaries"), 1, True),
    ):
        values = [one for name in names if (one := getattr(schedule, name, None)) is not None]
        numbers = [int(max(one)) + 2 if hasattr(one, "__iter__") and len(one) else one for one in values]
        known = [one for one in numbers if isinstance(one, int) and not isinstance(one, bool) and one > 0]
        if known:
            return max(known) * times + (1 if repeats else 0), repeats
    return 0, False


def _walk(trained: Trained, schedule: Any, count: int) -> _Curves:
    """Step a schedule and keep every parameter's rate; what raises later than the first step ends the curve."""
    advance = stepper(schedule)
    rows: list[dict[str, float]] = [trained.rates()]
    momentum, stopped = [_momentum(trained)], ""
    with suppress(TypeError):  # an optimizer that asks for a closure
        trained.step()  # torch warns of schedules that step before their optimizer
    for step in range(1, count):
        try:
            advance(step)
        except Exception as error:  # noqa: BLE001  (user code; OneCycleLR raises at its end)
            stopped = one_line(error)
            break
        rows.append(trained.rates())
        momentum.append(_momentum(trained))
    rates = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return _Curves(rates=rates, momentum=np.array(momentum), steps=len(rows), stopped=stopped)


def stepper(schedule: Any) -> Callable[[int], Any]:
    """Return what moves a schedule on, called with the number of the step; one that asks for a metric is given one."""
    if schedule is None:
        return lambda _: None
    asked = inspect.signature(schedule.step).parameters
    if "metrics" in asked and asked["metrics"].default is inspect.Parameter.empty:
        return lambda step: schedule.step(max(1.0 - 0.05 * step, 0.5))
    return lambda _: schedule.step()


def _momentum(trained: Trained) -> float:
    """Return the first momentum or beta1 of a torch optimizer; no schedule of Paddle's moves it."""
    groups = getattr(trained.optimizer, "param_groups", None)
    group = groups[0] if isinstance(groups, list) and groups else {}
    return float(group.get("momentum", group.get("betas", (0.0,))[0]))


def _pairs(one: _Curves, other: _Curves, count: int) -> Iterator[tuple[str, Array, Array]]:
    for name, rates in one.rates.items():
        if name in other.rates:
            yield name, rates[:count], other.rates[name][:count]


def _trial(fresh: Any, actual: Array) -> Trial:
    """Return what tries other knobs on a copy of the port's schedule; its rates are scaled as the parameter's are."""

    def attempt(schedule: Any, knobs: Mapping[str, Any]) -> Tried | None:
        found: dict[str, Any] = {}
        held = True
        for knob, value in knobs.items():
            pairs = [
                (one, name)
                for one in _nested(schedule)
                for name in ATTRIBUTES.get(knob, ())
                if hasattr(one, name)
            ]
            if not pairs:
                return None
            holder, name = pairs[0]
            found[name] = list(value) if isinstance(value, tuple) else value
            held = held and bool(np.all(np.asarray(getattr(holder, name)) == np.asarray(found[name])))
            setattr(holder, name, found[name])
        for one in reversed(list(_nested(schedule))):
            one.last_epoch = -1
            one.step()
        advance, rates = stepper(schedule), [float(schedule())]
        for step in range(1, len(actual)):
            advance(step)
            rates.append(float(schedule()))
        return Tried(attributes=found, curve=np.array(rates), held=held)

    def trial(knobs: Mapping[str, Any]) -> Tried | None:
        if fresh is None:
            return None
        try:
            usual, changed = attempt(copy.deepcopy(fresh), {}), attempt(copy.deepcopy(fresh), knobs)
        except Exception:  # noqa: BLE001  (a schedule that does not take the value, or steps otherwise: nothing is proved)
            return None
        if usual is None or changed is None:
            return None
        scale = actual[0] / usual.curve[0] if usual.curve[0] else 1.0
        return replace(changed, curve=changed.curve * scale) if same(usual.curve * scale, actual) else None

    return trial


def _nested(schedule: Any) -> Iterator[Any]:
    """Yield a schedule of Paddle's and those that it wraps."""
    yield schedule
    for name in ("lr_after_warmup", "learning_rate"):
        inner = getattr(schedule, name, None)
        if hasattr(inner, "last_epoch") and hasattr(inner, "step"):
            yield from _nested(inner)
            return


def _judge(ours: _Curves, theirs: _Curves, fresh: Any, scheduled: bool) -> PieceCheck:
    count = min(ours.steps, theirs.steps)
    pairs = list(_pairs(ours, theirs, count))
    if not pairs:
        return PieceCheck(
            outcome=Outcome.ERROR, reason="no parameter that both optimizers train could be matched"
        )
    apart = [(name, one, other) for name, one, other in pairs if not same(one, other)]
    name, one, other = min(apart, key=lambda pair: first_apart(pair[1], pair[2])) if apart else pairs[0]
    largest = max(float(np.abs(one).max()) for _, one, _ in pairs)
    numbers = {
        "steps": float(count),
        "largest_lr_difference": max(float(np.abs(one - other).max()) for _, one, other in pairs) / (largest or 1.0),
    }  # fmt: skip
    curves = {"reference_lr": one.tolist(), "port_lr": other.tolist()}
    momentum = ours.momentum[:count]
    if apart:
        step = first_apart(one, other)
        rest = (
            ""
            if len(apart) == len(pairs)
            else f", for {len(apart)} of {len(pairs)} parameters (first {name})"
        )
        reason = (
            f"learning rates differ at {np.count_nonzero(~close(one, other))} of {count} steps{rest}; first at step "
            f"{step}: expected {one[step]:.9g}, actual {other[step]:.9g}"
        )
        causes = schedule_causes(one, other, _trial(fresh, other))
        return PieceCheck(
            outcome=Outcome.FAIL, reason=reason, numbers=numbers, curves=curves, diagnoses=causes
        )
    if np.ptp(momentum) > 0:
        found = cycled_momentum(momentum)
        return PieceCheck(
            outcome=Outcome.FAIL, reason=found.message, numbers=numbers, curves=curves, diagnoses=(found,)
        )
    if scheduled and largest == 0:
        return PieceCheck(
            outcome=Outcome.ERROR, reason="proves nothing: every learning rate is 0", numbers=numbers
        )
    still = " (none of them moves)" if all(np.ptp(one) == 0 for _, one, _ in pairs) else ""
    reason = f"{count} learning rates{still} of {len(pairs)} parameters agree"
    return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers, curves=curves)
