"""A learning-rate schedule's shape, and what makes two schedules differ."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import log

import numpy as np
import numpy.typing as npt

from tipchain.core.blame import one_line
from tipchain.errors import Outcome, TipchainError
from tipchain.explain.causes.optimizer_builders import Builder, build_both, build_torch_schedule, copied, slots_of
from tipchain.explain.findings import Cause, Diagnosis, PieceCheck, failed_to_run
from tipchain.explain.preflight.optimizers import paddle_argument
from tipchain.explain.preflight.table import Trait
from tipchain.framework_types import Array, Options, Schedule
from tipchain.frameworks import Updates
from tipchain.frameworks.live_models import Sides
from tipchain.frameworks.paddle_ import PaddleUpdates
from tipchain.numbers.tolerance import (
    CONSTANT,
    EXPLAINED,
    NOISE,
    REMAINDER,
    ROUGH,
    SAME_DOUBLE,
    SAME_ENLARGED,
    SAME_SINGLE,
)

MOST_PIECES = 12
"""Jumps that a schedule of single values has at most."""
POINTS = 400
"""Steps that are looked at when a length is fitted."""
POWERS = (1.0, 2.0, 0.9, 0.5, 3.0, 4.0, 1.5)
"""Powers of polynomial decays that are tried, likeliest first: 1 and 2, PaddleSeg's 0.9, and roots and cubes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A curve as a schedule's formula.

    Attributes:
        family: ``constant``, ``steps``, ``pieces``, ``exponential``, ``cosine``, ``cosine with restarts``, ``one cycle``,
            ``polynomial``, ``inverse time``, ``inverse root`` or ``noam``.
        knobs: its settings: ``rate`` (the first after the warm-up), ``warmup_steps``, ``warmup_start``, and the family's:
            ``warmup_rises`` where that is less than ``warmup_steps``, ``gamma``, ``milestones``, ``values``, ``step_size``, ``length``, ``times``, ``end``, ``power``, ``start``,
            ``pct_start``.
    """

    family: str
    knobs: Options


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


def shape_of(curve: Array) -> Shape | None:
    """Return the shape of a curve, or None: it is none of the known ones."""
    noam = _noam(curve)
    if noam is not None:
        return noam
    for warmup, rises in _warmups(curve):
        rest = curve[warmup:]
        for find in FINDERS:
            found = find(rest)
            if found is not None:
                knobs = {"rate": float(rest[0]), **found.knobs, "warmup_steps": warmup}
                if warmup:
                    knobs["warmup_start"] = float(curve[0])
                if rises != warmup:
                    knobs["warmup_rises"] = rises
                shape = Shape(family=found.family, knobs=knobs)
                if same(curve, draw(shape, len(curve))):
                    return shape
    return None


def draw(shape: Shape, count: int) -> Array:
    """Return the first rates of a shape, ``[count]``."""
    knobs = shape.knobs
    if shape.family == "noam":
        at = np.arange(count)
        with np.errstate(divide="ignore"):
            fall = np.maximum(at, 1) ** -0.5
        return np.asarray(knobs["rate"] * np.minimum(fall, at * float(knobs["warmup_steps"]) ** -1.5))
    warmup, rate = int(knobs["warmup_steps"]), float(knobs["rate"])
    start = float(knobs.get("warmup_start", 0.0))
    steps = np.arange(count)
    after = _DRAWN[shape.family](knobs, np.maximum(steps - warmup, 0), rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = start + (rate - start) * steps / max(int(knobs.get("warmup_rises", warmup)), 1)
    return np.asarray(np.where(steps < warmup, rising, after))


def _warmups(curve: Array) -> Iterator[tuple[int, int]]:
    """Yield the steps of a warm-up, and those of the straight rise in it: its last step may have the rate already."""
    rises = np.diff(curve)
    if len(rises) > 1 and rises[0] > 0:
        straight = np.abs(rises - rises[0]) <= SAME_SINGLE * rises[0] + NOISE * np.abs(curve).max()
        length = int(np.argmin(straight)) if not straight.all() else len(rises)
        yield length, length
        if length > 1:
            yield length - 1, length - 1
        if length < len(rises) and rises[length] == 0:  # as (step + 1) / warmup
            yield length + 1, length
    yield 0, 0


def _constant(curve: Array) -> Shape | None:
    return Shape(family="constant", knobs={}) if same(np.full_like(curve, curve[0]), curve) else None


def _steps(curve: Array) -> Shape | None:
    """Recognize a curve that stays, then jumps by one factor."""
    large = curve > SAME_DOUBLE * np.abs(curve).max()  # below that one rate is as good as another
    seen = curve if large.all() else curve[: int(np.argmin(large))]
    jumps = np.flatnonzero(np.abs(np.diff(seen)) > SAME_SINGLE * np.abs(seen).max(initial=0.0) * ROUGH) + 1
    if not len(jumps) or len(jumps) > len(seen) // 2:
        return None
    factors = seen[jumps] / seen[jumps - 1]
    if np.ptp(factors) > SAME_ENLARGED * abs(factors[0]):
        return None
    even = (np.diff(np.concatenate([[0], jumps])) == jumps[0]).all()
    knobs = {"gamma": float(factors[0])}
    if even and len(seen) < (len(jumps) + 1) * jumps[0] + 1 and len(jumps) > 1:
        return Shape(family="steps", knobs={**knobs, "step_size": int(jumps[0])})
    return Shape(family="steps", knobs={**knobs, "milestones": tuple(int(one) for one in jumps)})


def _pieces(curve: Array) -> Shape | None:
    """Recognize a curve that stays, then jumps to another value, a few times."""
    jumps = np.flatnonzero(np.abs(np.diff(curve)) > SAME_SINGLE * np.abs(curve).max() * ROUGH) + 1
    if not 1 < len(jumps) <= min(MOST_PIECES, len(curve) // 3):
        return None
    shares = tuple(float(f"{one:.6g}") for one in curve[jumps] / curve[0]) if curve[0] else ()
    knobs = {"milestones": tuple(int(one) for one in jumps), "values": shares}
    return Shape(family="pieces", knobs=knobs) if shares else None


def _inverse(power: float, family: str) -> Callable[[Array], Shape | None]:
    """Return what recognizes ``rate / (1 + t / length) ** power``."""

    def find(curve: Array) -> Shape | None:
        if len(curve) < 4 or (curve <= 0).any() or not curve[-1] < curve[0]:
            return None
        slope = float(((curve[0] / curve[-1]) ** (1 / power) - 1) / (len(curve) - 1))
        return Shape(family=family, knobs={"gamma": slope})

    return find


def _noam(curve: Array) -> Shape | None:
    """Recognize a rise to a step, then the inverse root of the step (Vaswani et al., arXiv:1706.03762)."""
    top = int(np.argmax(curve))
    if not 1 < top < len(curve) - 3 or curve[top] <= 0:
        return None
    knobs = {"rate": float(curve[top] * top**0.5), "warmup_steps": top}
    shape = Shape(family="noam", knobs=knobs)
    return shape if same(curve, draw(shape, len(curve))) else None


def _restarts(curve: Array) -> Shape | None:
    """Recognize half cosines that begin again (Loshchilov & Hutter, arXiv:1608.03983), each ``times`` as long."""
    jumps = np.flatnonzero(np.diff(curve) > 0.5 * (curve[0] - curve.min())) + 1
    if not len(jumps) or curve[0] <= curve.min():
        return None
    length = int(jumps[0])
    times = max(1, round((jumps[1] - jumps[0]) / length)) if len(jumps) > 1 else 1
    last = (1 + np.cos(np.pi * (length - 1) / length)) / 2
    end = float((curve[length - 1] - curve[0] * last) / (1 - last)) if length > 1 else 0.0
    end = 0.0 if abs(end) < CONSTANT * curve[0] else end
    return Shape(family="cosine with restarts", knobs={"length": length, "times": int(times), "end": end})


def _exponential(curve: Array) -> Shape | None:
    if len(curve) < 3 or (curve <= 0).any():
        return None
    gamma = float(np.exp(np.log(curve[-1] / curve[0]) / (len(curve) - 1)))
    return Shape(family="exponential", knobs={"gamma": gamma}) if gamma != 1 else None


def _cosine(curve: Array) -> Shape | None:
    return _fitted(curve, "cosine", {}, _wave)


def _polynomial(curve: Array) -> Shape | None:
    found = (_fitted(curve, "polynomial", {"power": power}, _fall) for power in POWERS)
    return next((shape for shape in found if shape is not None), None)


def _fitted(curve: Array, family: str, knobs: Options, form: Callable[[Options, Array], Array]) -> Shape | None:
    """Return the shape ``end + (first - end) * form`` that a curve has, its length and end fitted."""
    if len(curve) < 4:
        return None
    chosen = np.unique(np.linspace(0, len(curve) - 1, POINTS).round().astype(int))
    thin = curve[chosen]
    scale = float(np.abs(curve).max())
    lowest = int(np.argmin(curve))
    lengths = dict.fromkeys([lowest, len(curve) - 1, len(curve), *range(2, min(4 * len(curve), 2000))])
    for length in lengths:
        if length < 2:
            continue
        part = form({"length": length, **knobs}, chosen)
        rest = 1 - part
        size = float(rest @ rest)
        end = float(rest @ (thin - curve[0] * part)) / size if size > 0 else 0.0
        if float(np.abs(curve[0] * part + end * rest - thin).max()) <= SAME_SINGLE * scale:
            end = 0.0 if abs(end) < CONSTANT * scale else end
            return Shape(family=family, knobs={"length": length, **knobs, "end": end})
    return None


def _one_cycle(curve: Array) -> Shape | None:
    """Recognize half a cosine up and half a cosine down (Smith & Topin, arXiv:1708.07120)."""
    top = int(np.argmax(curve)) - 1  # surely on the rise
    if top < 3 or len(curve) - top < 5 or curve[0] >= curve[top]:
        return None
    half = top // 2
    ratio = float((curve[top] - curve[0]) / (curve[half] - curve[0]))
    low, high = float(top), top + 3.0
    for _ in range(60):  # the ratio grows with the length of the rise
        middle = (low + high) / 2
        longer = _risen(top, middle) / _risen(half, middle) < ratio
        low, high = (middle, high) if longer else (low, middle)
    turn = (low + high) / 2
    peak = float(curve[0] + (curve[top] - curve[0]) / _risen(top, turn))
    for last in range(len(curve) - 1, max(top + 3, len(curve) - 8), -1):
        fallen = _risen(last - turn, last - turn)
        end = float(peak + (curve[last] - peak) / fallen)
        knobs = {
            "rate": peak,
            "start": float(curve[0]),
            "end": end,
            "length": last + 1,
            "pct_start": round((turn + 1) / (last + 1), 6),
        }
        if same(curve, _draw_one_cycle(knobs, np.arange(len(curve)), peak)):
            return Shape(family="one cycle", knobs=knobs)
    return None


def _risen(at: float | Array, length: float) -> Array:
    return np.asarray((1 - np.cos(np.pi * at / length)) / 2)


def _draw_one_cycle(knobs: Options, at: Array, rate: float) -> Array:
    turn, last = knobs["pct_start"] * knobs["length"] - 1, knobs["length"] - 1
    up = knobs["start"] + (rate - knobs["start"]) * _risen(at, turn)
    down = rate + (knobs["end"] - rate) * _risen(at - turn, last - turn)
    return np.asarray(np.where(at <= turn, up, down))


def _wave(knobs: Options, at: Array) -> Array:
    return np.asarray((1 + np.cos(np.pi * at / knobs["length"])) / 2)


def _fall(knobs: Options, at: Array) -> Array:
    return np.asarray((1 - np.minimum(at, knobs["length"]) / knobs["length"]) ** knobs["power"])


def _between(form: Callable[[Options, Array], Array]) -> Callable[[Options, Array, float], Array]:
    return lambda knobs, at, rate: knobs["end"] + (rate - knobs["end"]) * form(knobs, at)


def _draw_pieces(knobs: Options, at: Array, rate: float) -> Array:
    passed = np.searchsorted(np.array(knobs["milestones"]), at, side="right")
    return np.asarray(rate * np.array([1.0, *knobs["values"]])[np.minimum(passed, len(knobs["values"]))])


def _draw_restarts(knobs: Options, at: Array, rate: float) -> Array:
    length, times = float(knobs["length"]), int(knobs["times"])
    left = at.astype(np.float64)
    lengths = np.full(len(at), length)
    for _ in range(len(at)):
        over = left >= lengths
        if not over.any():
            break
        left, lengths = np.where(over, left - lengths, left), np.where(over, lengths * times, lengths)
    wave = (1 + np.cos(np.pi * left / lengths)) / 2
    return np.asarray(knobs["end"] + (rate - knobs["end"]) * wave)


def _draw_steps(knobs: Mapping[str, object], at: Array, rate: float) -> Array:
    if "step_size" in knobs:
        passed = at // knobs["step_size"]
    else:
        passed = np.searchsorted(np.array(knobs["milestones"]), at, side="right")
    return np.asarray(rate * knobs["gamma"] ** passed)


_DRAWN: Mapping[str, Callable[[Options, Array, float], Array]] = {
    "constant": lambda _, at, rate: np.full(len(at), rate),
    "steps": _draw_steps,
    "exponential": lambda knobs, at, rate: np.asarray(rate * knobs["gamma"] ** at),
    "cosine": _between(_wave),
    "polynomial": _between(_fall),
    "pieces": _draw_pieces,
    "cosine with restarts": _draw_restarts,
    "inverse time": lambda knobs, at, rate: np.asarray(rate / (1 + knobs["gamma"] * at)),
    "inverse root": lambda knobs, at, rate: np.asarray(rate / (1 + knobs["gamma"] * at) ** 0.5),
    "one cycle": _draw_one_cycle,
}
FINDERS: tuple[Callable[[Array], Shape | None], ...] = (
    _constant,
    _steps,
    _exponential,
    _inverse(1.0, "inverse time"),
    _inverse(0.5, "inverse root"),
    _cosine,
    _restarts,
    _one_cycle,
    _polynomial,
    _pieces,
)
"""What recognizes a family in what follows a warm-up, the simplest first."""


def as_pieces(shape: Shape, count: int) -> Shape | None:
    """Return a curve of steps as one of single values, None where it has other jumps than a few."""
    if shape.family != "steps":
        return None
    warmup = int(shape.knobs["warmup_steps"])
    found = _pieces(draw(shape, count)[warmup:])
    if found is None:
        return None
    kept = {name: shape.knobs[name] for name in ("rate", "warmup_steps", "warmup_start") if name in shape.knobs}
    return Shape(family="pieces", knobs={**kept, **found.knobs})


SCHEDULER = "scheduler"


KNOBS: Mapping[str, tuple[str, str]] = {
    "rate": ("learning-rate", "first learning rate"),
    "warmup_steps": ("warmup-steps", "warm-up's number of steps"),
    "warmup_start": ("warmup-start", "warm-up's first rate"),
    "gamma": ("gamma", "gamma"),
    "milestones": ("milestones", "milestones"),
    "values": ("values", "values (as shares of the first)"),
    "times": ("period-factor", "factor of each next period (T_mult)"),
    "step_size": ("step-size", "step size"),
    "length": ("period", "period (T_max, decay_steps)"),
    "end": ("end-rate", "last rate (eta_min, end_lr)"),
    "power": ("power", "power"),
    "start": ("start-rate", "first rate (peak over divide_factor)"),
    "pct_start": ("pct-start", "share of steps that rise (phase_pct)"),
}
"""The slug of a diagnosis, which is the argument's in `SCHEDULES`, and what messages call it, by a curve's setting."""


@dataclass(frozen=True, slots=True)
class _CurveGuess(Cause):
    """A change of the reference's curve that may give the port's."""

    curve: Array
    steps: slice | None = None
    knobs: Options = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tried:
    """What setting knobs of the port's own schedule came to.

    Attributes:
        attributes: that were set, with their values.
        curve: its rates then.
        held: whether it had just these values already.
    """

    attributes: Mapping[str, object]
    curve: Array
    held: bool


def schedule_causes(expected: Array, actual: Array, port: Schedule = None) -> tuple[Diagnosis, ...]:
    """Return what makes one curve of the other, the likeliest first; one of code ``unknown`` where nothing does.

    Args:
        expected: the reference's learning rates, ``[steps]``.
        actual: the port's.
        port: its schedule before any step, on copies of which fixes are tried; what does not give the reference's rates
            there is not told to be passed.
    """
    one, other = shapes = _alike(shape_of(expected), shape_of(actual), len(expected))
    proved = partial(_proved, shape=one, expected=expected, actual=actual, port=port)
    for guess in _guesses(expected, actual, shapes, port):
        explained = _explained(expected, actual, guess)
        if explained >= EXPLAINED:
            return proved((_told(guess, explained, len(expected)),), guess.knobs)
    several = _several(expected, actual, one, other, port)
    if several and one is not None and other is not None and one.family == other.family:
        return proved(several, {name: value for name, value in one.knobs.items() if other.knobs.get(name) != value})
    return several or (_unknown(expected, actual, one, other),)


def _proved(
    told: tuple[Diagnosis, ...], knobs: Options, *, shape: Shape | None, expected: Array, actual: Array, port: Schedule
) -> tuple[Diagnosis, ...]:
    """Return diagnoses whose fixes were tried on the port's own schedule: told as its arguments, or not to be passed."""
    tried = _try(port, actual, knobs) if knobs else None
    if tried is None:
        return told
    if len(tried.curve) == len(expected) and same(expected, tried.curve):
        words = ", ".join(f"{name}={_short(value)}" for name, value in tried.attributes.items())
        proof = f"; with {words} the port's own schedule gives the reference's rates"
        return tuple(replace(one, evidence=one.evidence + proof, fix=f"pass {words}") for one in told)
    if tried.held:  # it passes what the reference passes: it is another schedule
        kind = f": {_named(shape)}" if shape is not None else ""
        return (
            replace(
                told[0],
                code="schedule-type",
                fix=f"use the reference's schedule{kind}; the port's has its arguments already",
            ),
        )
    return tuple(replace(one, fix=_change(knobs)) for one in told)


def _change(knobs: Options) -> str:
    wanted = [f"its {KNOBS[name][1]} becomes {_short(value)}" for name, value in knobs.items() if name in KNOBS]
    return f"change the port's schedule so that {' and '.join(wanted)}"


def _alike(one: Shape | None, other: Shape | None, count: int) -> tuple[Shape | None, Shape | None]:
    """Return both shapes, one of even steps as one of single values where the other is such; a single step is even."""
    if one is not None and other is not None and one.family == other.family == "steps":
        return _even(one, other, count), _even(other, one, count)
    families = tuple(None if shape is None else shape.family for shape in (one, other))
    if one is not None and families == ("steps", "pieces"):
        return as_pieces(one, count) or one, other
    if other is not None and families == ("pieces", "steps"):
        return one, as_pieces(other, count) or other
    return one, other


def _even(shape: Shape, other: Shape, count: int) -> Shape:
    """Return a shape with one jump as one of even steps, where the other is such and the second step is not seen."""
    jumps = shape.knobs.get("milestones", ())
    warmup = int(shape.knobs["warmup_steps"])
    if "step_size" not in other.knobs or len(jumps) != 1 or warmup + 2 * jumps[0] < count:
        return shape
    knobs = {name: value for name, value in shape.knobs.items() if name != "milestones"}
    return replace(shape, knobs={**knobs, "step_size": int(jumps[0])})


def _counted(expected: Array, actual: Array, one: Shape | None, other: Shape | None) -> Iterator[_CurveGuess]:
    """Yield that one side's schedule counts the steps of its warm-up too, where the other's begins after it."""
    count = len(expected)
    for shape, curve, who, whom in ((one, actual, "port", "reference"), (other, expected, "reference", "port")):
        steps = 0 if shape is None or shape.family == "noam" else int(shape.knobs["warmup_steps"])
        if shape is None or not 0 < steps < count:
            continue
        length = shape.knobs.get("length", count)
        for whole in dict.fromkeys((length, length + steps if "length" in shape.knobs else length)):
            knobs = {**shape.knobs, "warmup_steps": 0} | ({"length": whole} if "length" in shape.knobs else {})
            main, end = draw(replace(shape, knobs=knobs), count), min(count, int(whole) + 1)
            if end - steps > 2 and np.ptp(main[steps:end]) > 0 and same(main[steps:end], curve[steps:end]):
                words = f"the {who}'s schedule counts the {steps} steps of its warm-up, the {whom}'s begins after them"
                words += (
                    ""
                    if whole == length
                    else f": it takes {whole:g} steps from the first on, not {length:g} after them"
                )
                moved = np.concatenate([actual[:steps], main[steps:end], actual[end:]]) if who == "port" else actual
                fix = "let the schedule behind the warm-up begin where the reference's does"
                yield _CurveGuess("schedule-shift", words, fix, moved)


def _guesses(
    expected: Array, actual: Array, shapes: tuple[Shape | None, Shape | None], port: Schedule
) -> Iterator[_CurveGuess]:
    one, other = shapes
    if np.ptp(actual) == 0 and np.ptp(expected) > 0:
        words = f"the port's learning rate stays at {actual[0]:.6g}: its schedule is missing or never stepped"
        yield _CurveGuess(
            "missing-schedule", words, "attach the schedule and step it", np.full_like(expected, actual[0])
        )
    yield from _warmup_shifts(expected, actual, one)
    if one is not None and other is not None and one.family == other.family:
        yield from _missing_warmup(one, other, len(expected))
        if one.family != "exponential":
            yield from _one_knob(one, other, len(expected), port)
    yield from _counted(expected, actual, one, other)
    yield from _factors(expected, actual, one)
    yield from _shifts(expected, actual, scaled=False)
    yield from _stretches(expected, actual)
    yield from _stairs(expected, actual)
    if one is None or one.family != "exponential":
        yield from _shifts(expected, actual, scaled=True)
    if one is not None and other is not None and one.family == other.family == "exponential":
        yield from _one_knob(one, other, len(expected), port)


def _warmup_shifts(expected: Array, actual: Array, shape: Shape | None) -> Iterator[_CurveGuess]:
    """Yield that the port's warm-up alone is a step away from the reference's: one divides step, the other step + 1."""
    steps = 0 if shape is None or shape.family == "noam" else int(shape.knobs["warmup_steps"])
    if not 2 < steps < len(expected) or not same(expected[steps:], actual[steps:]):
        return
    first = f"{actual[0]:.6g}"
    late = f"the port's warm-up is one step behind the reference's, from {first}; what follows is equal"
    early = f"the port's warm-up is one step ahead of the reference's, from {first}; what follows is equal"
    shifts = (late, slice(1, steps), expected[: steps - 1]), (early, slice(0, steps - 1), expected[1:steps])
    for words, places, moved in shifts:
        if same(moved, actual[places]):
            fix = f"let the warm-up begin with {expected[0]:.6g}, as the reference's does"
            yield _CurveGuess("schedule-shift", words, fix, actual)


def _missing_warmup(one: Shape, other: Shape, count: int) -> Iterator[_CurveGuess]:
    ours, theirs = (int(shape.knobs["warmup_steps"]) for shape in (one, other))
    if bool(ours) == bool(theirs):
        return
    if ours:
        changed = replace(one, knobs={**one.knobs, "warmup_steps": 0})
        words = f"the port has no warm-up; the reference's rises for {ours} steps from {one.knobs['warmup_start']:.6g}"
        fix = f"wrap the schedule in LinearWarmup(..., warmup_steps={ours})"
        yield _CurveGuess("missing-warmup", words, fix, draw(changed, count))
    else:
        start = other.knobs["warmup_start"]
        changed = replace(one, knobs={**one.knobs, "warmup_steps": theirs, "warmup_start": start})
        words = f"the port warms up for {theirs} steps from {start:.6g}, the reference does not"
        yield _CurveGuess("extra-warmup", words, "leave LinearWarmup out", draw(changed, count))


def _one_knob(one: Shape, other: Shape, count: int, port: Schedule) -> Iterator[_CurveGuess]:
    for name, value in other.knobs.items():
        if name in one.knobs and one.knobs[name] != value:
            changed = replace(one, knobs={**one.knobs, name: value})
            code, _ = KNOBS[name]
            yield _CurveGuess(
                code,
                _words(name, one.knobs[name], value),
                _fix(port, name, one.knobs[name]),
                draw(changed, count),
                knobs={name: one.knobs[name]},
            )


def _factors(expected: Array, actual: Array, shape: Shape | None) -> Iterator[_CurveGuess]:
    counts = np.abs(expected) > SAME_SINGLE * np.abs(expected).max()
    factor = float(np.median(actual[counts] / expected[counts])) if counts.any() else 0.0
    if not factor or abs(factor - 1) < SAME_DOUBLE:
        return
    if shape is not None and shape.family == "exponential":
        steps = log(factor) / log(shape.knobs["gamma"]) if factor > 0 else 0.5
        if abs(steps - round(steps)) < REMAINDER and 0 < abs(round(steps)) <= 5:
            return  # a shift, which of an exponential is a factor
    words = f"the port's learning rate is {factor:.6g} times the reference's at every step"
    yield _CurveGuess(
        "learning-rate", words, f"multiply the port's learning rate by {1 / factor:.6g}", expected * factor
    )


def _shifts(expected: Array, actual: Array, *, scaled: bool) -> Iterator[_CurveGuess]:
    """Yield shifts; ``scaled``: with a factor besides, which a formula by recursion makes of an odd start."""
    count = len(expected)
    for steps in range(1, count // 2 + 1):
        plural = "step" if steps == 1 else "steps"
        behind, ahead = slice(steps, None), slice(None, count - steps)
        pairs = (("behind", behind, expected[:-steps]), ("ahead of", ahead, expected[steps:]))
        for where, places, moved in pairs:
            factor = (
                float(np.median(actual[places][moved > 0] / moved[moved > 0])) if scaled and (moved > 0).any() else 1.0
            )
            moved = moved * factor  # noqa: PLW2901
            if np.ptp(moved) > 0 and same(moved, actual[places]):
                curve = actual.copy()
                curve[places] = moved
                words = f"the port's schedule is {steps} {plural} {where} the reference's"
                words += f", and {factor:.6g} times it" if scaled else ""
                fix = "step the schedule after each optimizer step, and start both at the same epoch (last_epoch)"
                yield _CurveGuess("schedule-shift", words, fix, curve, places)


def _stretches(expected: Array, actual: Array) -> Iterator[_CurveGuess]:
    for times in range(2, len(expected)):
        slow = np.arange(len(expected)) // times
        if np.ptp(expected[slow]) > 0 and same(expected[slow], actual):
            words = (
                f"the port's schedule moves once in {times} steps: per epoch, where the reference's moves per iteration"
            )
            yield _CurveGuess("schedule-per-epoch", words, "step the schedule at every iteration", expected[slow])
        elif np.ptp(actual[slow]) > 0 and same(expected, actual[slow]):
            words = f"the port's schedule moves {times} times as often: per iteration, where the reference's moves per epoch"
            yield _CurveGuess("schedule-per-iteration", words, "step the schedule once an epoch", actual)


def _stairs(expected: Array, actual: Array) -> Iterator[_CurveGuess]:
    """Yield curves that stand still for some steps, and then are where the other one is."""
    for times in range(2, len(expected) // 2 + 1):
        held = np.arange(len(expected)) // times * times
        if np.ptp(expected[held]) > 0 and same(expected[held], actual):
            words = f"the port's schedule is a staircase: it is constant for {times} steps at a time, the reference's moves at every step"
            fix = f"divide the step by {times} as a float, not as an integer (staircase=False)"
            yield _CurveGuess("staircase", words, fix, expected[held])
        elif np.ptp(actual[held]) > 0 and same(expected, actual[held]):
            words = f"the port's schedule moves at every step, the reference's is a staircase: it is constant for {times} steps at a time"
            yield _CurveGuess("staircase", words, f"divide the step by {times} as an integer", actual)


def _several(
    expected: Array, actual: Array, one: Shape | None, other: Shape | None, port: Schedule
) -> tuple[Diagnosis, ...]:
    """Return every knob that differs, where one is not enough."""
    if one is None or other is None:
        return ()
    if one.family != other.family:
        words = f"the port's schedule is {_named(other)}, the reference's {_named(one)}"
        fix = f"use the schedule of the reference: {_named(one)}"
        guess = _CurveGuess("schedule-type", words, fix, draw(other, len(expected)))
        return (_told(guess, _explained(expected, actual, guess), len(expected)),)
    curve, found = draw(other, len(expected)), []
    for name, (code, _) in KNOBS.items():
        ours, theirs = (shape.knobs.get(name) for shape in (one, other))
        if ours != theirs and not (
            isinstance(ours, float) and isinstance(theirs, float) and np.isclose(ours, theirs, SAME_SINGLE, 0)
        ):
            guess = _CurveGuess(code, _words(name, ours, theirs), _fix(port, name, ours), curve)
            found.append(_told(guess, _explained(expected, actual, guess), len(expected), together=True))
    return tuple(found)


def _fix(port: Schedule, name: str, value: object) -> str:
    if name == "start":
        return f"pass a divide_factor with which the first rate is {_short(value)}"
    _, argument = _argument(port, name) or (None, None)
    return _change({name: value}) if argument is None else f"pass {argument.argument}={_short(value)}"


def _argument(port: Schedule, name: str) -> tuple[Schedule, Trait] | None:
    """Return the schedule of the port's, or the one in it, that takes a curve's setting, and its argument."""
    code = KNOBS.get(name, ("", ""))[0]
    both = ((one, paddle_argument(one, code)) for one in _nested(port))
    return next(((one, argument) for one, argument in both if argument is not None), None)


def _explained(expected: Array, actual: Array, guess: _CurveGuess) -> float:
    apart = float(np.linalg.norm(actual - expected))
    left = float(np.linalg.norm((actual - guess.curve)[guess.steps or slice(None)]))
    return max(0.0, 1 - left / apart) if apart else 0.0


def _told(guess: _CurveGuess, explained: float, count: int, *, together: bool = False) -> Diagnosis:
    how = "with all the settings that differ" if together else "with this one change"
    evidence = (
        f"{how} the reference's curve gives the port's: {explained:.2%} of the difference over {count} steps is gone"
    )
    return guess.told(SCHEDULER, evidence, explained)


def _unknown(expected: Array, actual: Array, one: Shape | None, other: Shape | None) -> Diagnosis:
    known = [f"{side} {_named(shape)}" for side, shape in (("the reference's is", one), ("the port's", other)) if shape]
    peaks = ", ".join(
        f"{side} {curve[0]:.6g} to {curve.max():.6g} at step {int(curve.argmax())}, {curve[-1]:.6g} at the end"
        for side, curve in (("reference", expected), ("port", actual))
    )
    return Diagnosis(
        code="unknown",
        port_path=SCHEDULER,
        message=f"the schedules differ, the cause is unknown: {peaks}",
        evidence=f"no shift, stretch, factor or single setting gives the port's curve; {'; '.join(known) or 'both of unknown shape'}",
        fix="compare the arguments of the two schedules",
    )


def _named(shape: Shape) -> str:
    settings = ", ".join(f"{name} {_short(value)}" for name, value in shape.knobs.items() if value != 0)
    return f"{shape.family} ({settings})"


def _words(name: str, expected: object, actual: object) -> str:
    return f"the port's {KNOBS[name][1]} is {_short(actual)}, the reference's {_short(expected)}"


def _short(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(str(one) for one in value)}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
        fresh = copy.deepcopy(paddles)
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
    return _judge(expected, actual, fresh, any(one is not None for one in schedulers))


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


def _try(fresh: Schedule, actual: Array, knobs: Options) -> _Tried | None:
    """Return what other knobs come to on a copy of the port's schedule; its rates are scaled as the parameter's are.

    None where nothing is proved: it keeps no such attributes, or reads them no more, or does not take the value, or makes
    other rates than the port had.
    """

    def rates(knobs: Options) -> _Tried | None:
        schedule, found, held = copy.deepcopy(fresh), {}, True
        for knob, value in knobs.items():
            holder, argument = _argument(schedule, knob) or (None, None)
            _, names = argument.attributes if argument else ((), ())
            name = next((one for one in names if hasattr(holder, one)), "")
            if not name:
                return None
            found[name] = list(value) if isinstance(value, tuple) else value
            held = held and bool(np.all(np.asarray(getattr(holder, name)) == np.asarray(found[name])))
            setattr(holder, name, found[name])
        for one in reversed(list(_nested(schedule))):
            one.last_epoch = -1
            one.step()
        advance, curve = stepper(schedule), [float(schedule())]
        for step in range(1, len(actual)):
            advance(step)
            curve.append(float(schedule()))
        return _Tried(attributes=found, curve=np.array(curve), held=held)

    if fresh is None:
        return None
    try:
        usual, changed = rates({}), rates(knobs)
    except Exception:  # noqa: BLE001  (a schedule that does not take the value, or steps otherwise: nothing is proved)
        return None
    if usual is None or changed is None or (same(usual.curve, changed.curve) and not changed.held):
        return None
    scale = actual[0] / usual.curve[0] if usual.curve[0] else 1.0
    return replace(changed, curve=changed.curve * scale) if same(usual.curve * scale, actual) else None


def _nested(schedule: object) -> Iterator[Schedule]:
    """Yield a schedule of Paddle's and those that it wraps."""
    yield schedule
    for name in ("lr_after_warmup", "learning_rate"):
        inner = getattr(schedule, name, None)
        if hasattr(inner, "last_epoch") and hasattr(inner, "step"):
            yield from _nested(inner)
            return


def _judge(ours: _Curves, theirs: _Curves, fresh: object, scheduled: bool) -> PieceCheck:
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
        causes = schedule_causes(one, other, fresh)
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
