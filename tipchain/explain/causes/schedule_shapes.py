"""The shapes that schedules of learning rates have, and what a curve's shape is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tipchain.framework_types import Array, Options
from tipchain.numbers.tolerance import CONSTANT, NOISE, ROUGH, SAME_DOUBLE, SAME_ENLARGED, SAME_SINGLE

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
            ``gamma``, ``milestones``, ``values``, ``step_size``, ``length``, ``times``, ``end``, ``power``, ``start``,
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
    for warmup in _warmups(curve):
        rest = curve[warmup:]
        for find in FINDERS:
            found = find(rest)
            if found is not None:
                knobs = {"rate": float(rest[0]), **found.knobs, "warmup_steps": warmup}
                if warmup:
                    knobs["warmup_start"] = float(curve[0])
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
        rising = start + (rate - start) * steps / max(warmup, 1)
    return np.asarray(np.where(steps < warmup, rising, after))


def _warmups(curve: Array) -> Iterator[int]:
    """Yield the lengths of a straight rise at the start, then none."""
    rises = np.diff(curve)
    if len(rises) > 1 and rises[0] > 0:
        straight = np.abs(rises - rises[0]) <= SAME_SINGLE * rises[0] + NOISE * np.abs(curve).max()
        length = int(np.argmin(straight)) if not straight.all() else len(rises)
        yield length
        if length > 1:
            yield length - 1
    yield 0


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
    return _fitted(curve, "cosine", lambda length: {"length": length}, _wave)


def _polynomial(curve: Array) -> Shape | None:
    for power in POWERS:
        found = _fitted(
            curve,
            "polynomial",
            lambda length, power=power: {"length": length, "power": power},  # type: ignore[misc]
            _fall,
        )
        if found is not None:
            return found
    return None


def _fitted(
    curve: Array,
    family: str,
    knobs: Callable[[int], dict[str, object]],
    form: Callable[[Mapping[str, object], Array], Array],
) -> Shape | None:
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
        part = form(knobs(length), chosen)
        rest = 1 - part
        size = float(rest @ rest)
        end = float(rest @ (thin - curve[0] * part)) / size if size > 0 else 0.0
        if float(np.abs(curve[0] * part + end * rest - thin).max()) <= SAME_SINGLE * scale:
            end = 0.0 if abs(end) < CONSTANT * scale else end
            return Shape(family=family, knobs={**knobs(length), "end": end})
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
