"""Two learning-rate schedules, compared step by step; and what makes them differ."""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tipchain.core.blame import one_line
from tipchain.errors import Outcome, TipchainError
from tipchain.explain.causes.optimizer_builders import Builder, build_both, build_torch_schedule, copied, slots_of
from tipchain.explain.findings import Diagnosis, Finding, PieceCheck, at_source, failed_to_run
from tipchain.explain.preflight.optimizers import check_schedulers as settings_apart
from tipchain.explain.preflight.optimizers import schedule_settings
from tipchain.framework_types import Array, Schedule
from tipchain.frameworks import Updates
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.paddle_ import PaddleUpdates
from tipchain.numbers.tolerance import SAME_DOUBLE, SAME_SINGLE

SCHEDULER = "scheduler"


def close(expected: Array, actual: Array) -> npt.NDArray[np.bool_]:
    """Tell at which steps two curves are one; rates of 1e-9 of the largest are zero."""
    limit = SAME_SINGLE * np.abs(expected) + SAME_DOUBLE * float(np.abs(expected).max(initial=0.0))
    return np.asarray(np.abs(actual - expected) <= limit)


def same(expected: Array, actual: Array) -> bool:
    """Tell whether two curves are one at every step."""
    return bool(close(expected, actual).all())


def first_apart(expected: Array, actual: Array) -> int:
    """Return the first step at which two curves differ."""
    return int(np.argmax(~close(expected, actual)))


# What both schedules are made with, and the port's run again with the reference's settings.


ANY_CURVE = frozenset(("LambdaLR", "MultiplicativeLR", "LambdaDecay", "MultiplicativeDecay"))
"""Schedules whose names say nothing about their curve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What two schedules are made with, before any step.

    Attributes:
        findings: the arguments that differ.
        classes: both, with their arguments.
        other_type: both are the frameworks' own, of types that are not each other's.
        mended: a copy of the port's that has the reference's arguments; None where it does not keep them.
    """

    findings: list[Finding]
    classes: tuple[str, str]
    other_type: bool
    mended: Schedule = None

    @classmethod
    def of(cls, ours: Schedule, theirs: Schedule) -> Made:
        """Read two schedules that no step was made of."""
        findings = settings_apart(ours, theirs)
        kinds = [type(one).__name__ for one in (ours, theirs)]
        libraries = [type(one).__module__.startswith(("torch.optim.", "paddle.optimizer.")) for one in (ours, theirs)]
        twins = bool(findings) or _are_twins(ours, theirs)
        return cls(
            findings=findings,
            classes=(_described(ours), _described(theirs)),
            other_type=not twins and all(libraries) and not ANY_CURVE.intersection(kinds),
            mended=_mended(ours, theirs) if findings else None,
        )


def _are_twins(ours: Schedule, theirs: Schedule) -> bool:
    from tipchain.explain.preflight.optimizers import SCHEDULES

    return SCHEDULES.get(type(ours).__name__, ("",))[0] == type(theirs).__name__


def _mended(ours: Schedule, theirs: Schedule) -> Schedule:
    """Return a copy of the port's schedule with the reference's arguments put in; None where it does not keep them."""
    port = copy.deepcopy(theirs)
    for one in schedule_settings(ours, port):
        name = next((each for each in one.trait.attributes[1] if hasattr(one.holder, each)), None)
        if name is None:
            return None
        setattr(one.holder, name, one.wanted)
    try:
        for one in reversed(list(_nested(port))):
            one.last_epoch = -1
            one.step()
    except TypeError:  # a schedule that asks for a metric
        return None
    return port


def _nested(schedule: object) -> Iterator[Schedule]:
    """Yield a schedule of Paddle's and those that it wraps."""
    yield schedule
    for name in ("lr_after_warmup", "learning_rate"):
        inner = getattr(schedule, name, None)
        if hasattr(inner, "last_epoch") and hasattr(inner, "step"):
            yield from _nested(inner)
            return


STATE = frozenset(("last_epoch", "last_lr", "verbose", "by_epoch", "best", "num_bad_epochs", "cooldown_counter"))
"""Attributes of schedules that are no arguments."""


def _described(schedule: Schedule) -> str:
    """Return a schedule's class with its arguments and those of the schedules in it; a function with its line."""
    if schedule is None:
        return "no schedule"
    told = []
    parts = {f"part {number}": one for number, one in enumerate(getattr(schedule, "_schedulers", ()))}
    for name, kept in {**vars(schedule), **parts}.items():
        value = sorted(kept.elements()) if isinstance(kept, Counter) else kept
        if hasattr(value, "step") and hasattr(value, "last_epoch"):
            told.append(f"{name}={_described(value)}")
        elif name in {"lr_lambdas", "lr_lambda"}:
            told += [f"{name}{at_source(one)}" for one in (value if isinstance(value, list) else [value])]
        elif not name.startswith("_") and name not in STATE and isinstance(value, int | float | str | list | tuple):
            told.append(f"{name}={value}")
    own = "" if type(schedule).__module__.startswith(("torch.", "paddle.")) else at_source(type(schedule))
    return f"{type(schedule).__name__}({', '.join(told)}){own}"


def schedule_causes(expected: Array, actual: Array, made: Made | None = None) -> tuple[Diagnosis, ...]:
    """Return the settings that differ, or how one curve is the other's; else both where they part.

    Args:
        expected: the reference's learning rates, ``[steps]``.
        actual: the port's.
        made: what both are made with, where both schedules are there.
    """
    settings = () if made is None else tuple(map(_of_setting, made.findings))
    if made is not None and made.mended is not None:
        curve = _curve(made.mended, len(actual))
        if curve is not None and same(expected, curve * (expected[0] / curve[0] if curve[0] else 1.0)):
            proof = "; with the reference's arguments the port's own schedule gives the reference's rates"
            return tuple(_of_setting(one, proof, 1.0) for one in made.findings)
    other_type = made is not None and made.other_type
    related = _shift(expected, actual, range(1, 2)) if other_type else _related(expected, actual)
    if related is not None:
        return (related,)
    return settings or (_shown(expected, actual, made),)


def _of_setting(finding: Finding, proof: str = "", explained: float | None = None) -> Diagnosis:
    return Diagnosis(
        code=finding.code,
        port_path=SCHEDULER,
        message=finding.message,
        evidence=f"reference {finding.reference}, port {finding.port}{proof}",
        explained=explained,
        fix=finding.fix,
    )


def _curve(schedule: Schedule, count: int) -> Array | None:
    advance, rates = stepper(schedule), [float(schedule())]
    try:
        for step in range(1, count):
            advance(step)
            rates.append(float(schedule()))
    except Exception:  # noqa: BLE001  (a schedule that does not take the value proves nothing)
        return None
    return np.array(rates)


def _related(expected: Array, actual: Array) -> Diagnosis | None:
    """Say how one curve is the other's: still, a factor of it, some steps away, or moving once an epoch."""
    count = len(expected)
    if np.ptp(actual) == 0 and np.ptp(expected) > 0:
        words = f"the port's learning rate stays at {actual[0]:.6g}: its schedule is missing or never stepped"
        return _of_curve("missing-schedule", words, "attach the schedule and step it")
    near = _shift(expected, actual, range(1, 2))
    if near is not None:  # of an exponential that is a factor, too
        return near
    moving = np.abs(expected) > SAME_SINGLE * np.abs(expected).max()
    factor = float(np.median(actual[moving] / expected[moving])) if moving.any() else 0.0
    if factor and same(expected * factor, actual):
        words = f"the port's learning rate is {factor:.6g} times the reference's at every step"
        return _of_curve("learning-rate", words, f"multiply the port's learning rate by {1 / factor:.6g}")
    late = _shift(expected, actual, range(2, count // 2 + 1))
    if late is not None:
        return late
    for times in range(2, count):
        slow = np.arange(count) // times
        if np.ptp(expected[slow]) > 0 and same(expected[slow], actual):
            words = (
                f"the port's schedule moves once in {times} steps: per epoch, where the reference's moves per iteration"
            )
            return _of_curve("schedule-per-epoch", words, "step the schedule at every iteration")
        if np.ptp(actual[slow]) > 0 and same(expected, actual[slow]):
            words = f"the port's schedule moves {times} times as often: per iteration, where the reference's moves per epoch"
            return _of_curve("schedule-per-iteration", words, "step the schedule once an epoch")
    return None


def _shift(expected: Array, actual: Array, distances: range) -> Diagnosis | None:
    """Say by how many steps one curve is behind the other."""
    for steps in distances:
        late, early = (expected[:-steps], actual[steps:]), (expected[steps:], actual[:-steps])
        for where, (one, other) in (("behind", late), ("ahead of", early)):
            if np.ptp(one) > 0 and same(one, other):
                words = f"the port's schedule is {steps} {'step' if steps == 1 else 'steps'} behind the reference's"
                if where == "ahead of":
                    words = (
                        f"the port's schedule is {steps} {'step' if steps == 1 else 'steps'} ahead of the reference's"
                    )
                fix = "step the schedule after each optimizer step, and start both at the same epoch (last_epoch)"
                return _of_curve("schedule-shift", words, fix)
    return None


def _of_curve(code: str, words: str, fix: str) -> Diagnosis:
    evidence = "every rate of the port's follows so from the reference's"
    return Diagnosis(code=code, port_path=SCHEDULER, message=words, evidence=evidence, explained=1.0, fix=fix)


def _shown(expected: Array, actual: Array, made: Made | None) -> Diagnosis:
    """Show the first rates that part with their neighbours, and both schedules with their arguments."""
    step = first_apart(expected, actual)
    near = slice(max(step - 1, 0), step + 2)
    rates = [", ".join(f"{one:.6g}" for one in curve[near]) for curve in (expected, actual)]
    again = close(expected, actual)[step:]
    words = (
        f"; they are equal again from step {step + int(np.argmax(again))} on"
        if again.any() and again[int(np.argmax(again)) :].all()
        else ""
    )
    parts = f"the rates part at step {step}: from step {near.start} on expected {rates[0]}, actual {rates[1]}{words}"
    if made is None:
        return Diagnosis(
            code="unknown",
            port_path=SCHEDULER,
            message=parts,
            evidence="no shift and no factor makes one curve of the other",
            fix="compare the arguments of the two schedules",
        )
    return Diagnosis(
        code="schedule-type" if made.other_type else "unknown",
        port_path=SCHEDULER,
        message=f"the port's schedule is {made.classes[1]}, the reference's {made.classes[0]}",
        evidence=parts,
        fix="let the port's schedule give the reference's rates",
    )


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
    """What a schedule did: the rate of each parameter ``[steps]``, and the momentum."""

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
    steps: int | None = None,
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
        iterations: steps at least.
        names: Paddle's name by torch's where names and structure cannot tell.
        steps: how many to compare; by default to the end of the longer schedule, 200 where none says.

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
        made = Made.of(schedule, paddles)
        count = steps or _count((schedule, paddles), iterations)
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
    return _judge(expected, actual, made, any(one is not None for one in schedulers))


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
    """Step a schedule and keep every parameter's rate; what raises later than the first step ends the curve."""
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
    """Return what moves a schedule on, called with the number of the step; one that asks for a metric is given one."""
    if schedule is None:
        return lambda _: None
    asked = inspect.signature(schedule.step).parameters
    if "metrics" in asked and asked["metrics"].default is inspect.Parameter.empty:
        return lambda step: schedule.step(max(1.0 - 0.05 * step, 0.5))
    return lambda _: schedule.step()


def _judge(ours: _Curves, theirs: _Curves, made: Made, scheduled: bool) -> PieceCheck:
    count = min(ours.steps, theirs.steps)
    both = [name for name in ours.rates if name in theirs.rates]
    pairs = [(name, ours.rates[name][:count], theirs.rates[name][:count]) for name in both]
    if not pairs:
        return PieceCheck(outcome=Outcome.ERROR, reason="no parameter that both optimizers train could be matched")
    apart = [(name, one, other) for name, one, other in pairs if not same(one, other)]
    name, one, other = min(apart, key=lambda pair: first_apart(pair[1], pair[2])) if apart else pairs[0]
    largest = max(float(np.abs(one).max()) for _, one, _ in pairs)
    numbers = {
        "steps": float(count),
        "largest_lr_difference": max(float(np.abs(one - other).max()) for _, one, other in pairs) / (largest or 1.0),
    }
    curves = {"reference_lr": one.tolist(), "port_lr": other.tolist()}
    momentum = ours.momentum[:count]
    if apart:
        step = first_apart(one, other)
        rest = "" if len(apart) == len(pairs) else f", for {len(apart)} of {len(pairs)} parameters (first {name})"
        reason = (
            f"learning rates differ at {np.count_nonzero(~close(one, other))} of {count} steps{rest}; first at step "
            f"{step}: expected {one[step]:.9g}, actual {other[step]:.9g}"
        )
        causes = schedule_causes(one, other, made)
        return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, curves=curves, diagnoses=causes)
    if np.ptp(momentum) > 0:
        low, high = float(momentum.min()), float(momentum.max())
        found = Diagnosis(
            code="cycle-momentum",
            port_path=SCHEDULER,
            message=f"the reference's schedule moves the momentum between {low:.6g} and {high:.6g}, the port's does not",
            evidence="OneCycleLR and CyclicLR of torch have cycle_momentum=True by default; Paddle's leave the momentum alone",
            fix="pass cycle_momentum=False to the reference, or set the momentum in the port's loop",
        )
        return PieceCheck(
            outcome=Outcome.FAIL, reason=found.message, numbers=numbers, curves=curves, diagnoses=(found,)
        )
    if scheduled and largest == 0:
        return PieceCheck(outcome=Outcome.ERROR, reason="proves nothing: every learning rate is 0", numbers=numbers)
    still = " (none of them moves)" if all(np.ptp(one) == 0 for _, one, _ in pairs) else ""
    reason = f"{count} learning rates{still} of {len(pairs)} parameters agree"
    if theirs.steps < ours.steps:
        reason += f"; then the port's schedule raises, the reference's does not: {theirs.stopped}"
    return PieceCheck(outcome=Outcome.PASS, reason=reason, numbers=numbers, curves=curves)
