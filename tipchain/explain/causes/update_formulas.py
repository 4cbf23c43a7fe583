"""The formulas of optimizers with every knob, in float64, and which knobs explain an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from types import MappingProxyType

import numpy as np

from tipchain.framework_types import Array, Options
from tipchain.numbers.tolerance import EXPLAINED, REMAINDER, SAME_SINGLE, TINY, WHOLE

# The formulas of optimizers with every knob, in float64.
#
# Sources: ``torch/optim/*.py``; ``paddle/optimizer/*.py`` and the kernels they name. Kingma & Ba, Adam, arXiv:1412.6980;
# Loshchilov & Hutter, Decoupled weight decay, arXiv:1711.05101; Reddi et al., AMSGrad, arXiv:1904.09237; Duchi et al.,
# Adagrad, JMLR 12 (2011); Zeiler, Adadelta, arXiv:1212.5701; Hinton, RMSProp, Coursera lecture 6e.


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """One optimizer's arithmetic for one parameter.

    Attributes:
        algorithm: ``sgd``, ``adam``, ``rmsprop``, ``adagrad``, ``adadelta`` or ``adamax``.
        lr: learning rate.
        decay: weight decay's coefficient.
        form: ``l2`` (added to the gradient), ``l1`` (its sign is), ``decoupled`` (taken off the parameter),
            ``free`` (the same, not multiplied by the learning rate).
        momentum: of sgd and rmsprop.
        dampening: of sgd: the share of the gradient that does not enter the momentum.
        first: whether the momentum starts as the first gradient (``gradient``) or is dampened from zero (``zero``).
        nesterov: Nesterov's look-ahead.
        rate_inside: whether the learning rate is multiplied in before the momentum, which counts once it changes.
        beta1: decay of the first moment.
        beta2: decay of the second moment; rho of rmsprop and adadelta.
        epsilon: added to the denominator.
        place: where epsilon stands: ``outside`` the root, ``inside`` it, or ``unscaled``, beside the root of a second
            moment that is not corrected.
        correction: whether Adam's moments are corrected for their start at zero.
        amsgrad: the largest second moment so far divides.
        centered: rmsprop's variance in place of the second moment.
        initial: adagrad's accumulator at the start.
        rate_decay: adagrad's decay of the rate.
        kept: steps after which gradients are cleared; 0: never.
        scale: factor of the gradients, before anything else is done with them.
        maximize: steps go uphill.
        clip: ``""``, ``value``, ``norm`` of each gradient, ``global`` norm of all, ``group``: that of
            each parameter group.
        limit: what clipping leaves.
        frozen: it does not move.
    """

    algorithm: str = "sgd"
    lr: float = 0.01
    decay: float = 0.0
    form: str = "l2"
    momentum: float = 0.0
    dampening: float = 0.0
    first: str = "gradient"
    nesterov: bool = False
    rate_inside: bool = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    place: str = "outside"
    correction: bool = True
    amsgrad: bool = False
    centered: bool = False
    initial: float = 0.0
    rate_decay: float = 0.0
    kept: int = 1
    scale: float = 1.0
    maximize: bool = False
    clip: str = ""
    limit: float = 0.0
    frozen: bool = False


KNOBS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sgd": ("momentum", "dampening", "first", "nesterov", "rate_inside"),
        "adam": ("beta1", "beta2", "epsilon", "place", "correction", "amsgrad"),
        "rmsprop": ("beta2", "epsilon", "place", "momentum", "centered", "rate_inside"),
        "adagrad": ("epsilon", "place", "initial", "rate_decay"),
        "adadelta": ("beta2", "epsilon"),
        "adamax": ("beta1", "beta2", "epsilon", "place"),
    }
)
"""What each algorithm has of its own."""
COMMON = ("lr", "decay", "form", "maximize", "clip", "limit", "frozen", "kept", "scale")
"""What all have."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """A parameter's way under given gradients; some of its elements.

    Attributes:
        name: torch's name of the parameter.
        start: where it began, ``[elements]``.
        gradients: ``[steps, elements]``.
        norms: the L2 norm of the whole gradient of this parameter, ``[steps]``.
        global_norms: that of all parameters' gradients together, ``[steps]``.
        group_norms: that of the gradients in the port's parameter group, ``[steps]``.
        shares: factors of the learning rate, ``[steps]``.
        reference: the reference's updates, ``[steps, elements]``.
        port: the port's.
    """

    name: str
    start: Array
    gradients: Array
    norms: Array
    global_norms: Array
    group_norms: Array
    shares: Array
    reference: Array
    port: Array


def simulate(formula: Formula, course: Course) -> Array:
    """Return the updates that a formula makes, ``[steps, elements]``; they begin from ``course.start``."""
    if formula.frozen:
        return np.zeros_like(course.gradients)
    value, updates, total = course.start.astype(np.float64), [], np.zeros_like(course.start)
    rule = _Moments(formula, value.shape)
    with np.errstate(all="ignore"):
        for step, raw in enumerate(course.gradients):
            fresh = step % formula.kept == 0 if formula.kept else step == 0
            total = formula.scale * raw if fresh else total + formula.scale * raw
            gradient = _clipped(formula, total, course, step) * (-1.0 if formula.maximize else 1.0)
            rate = formula.lr * float(course.shares[step]) / (1 + step * formula.rate_decay)
            if formula.form == "l1":
                gradient = gradient + formula.decay * np.sign(value)
            elif formula.form == "l2":
                gradient = gradient + formula.decay * value
            update = -rule.move(gradient, rate)
            if formula.form == "decoupled":
                update = update - rate * formula.decay * value
            elif formula.form == "free":
                update = update - formula.decay * value
            updates.append(update)
            value = value + update
    return np.array(updates)


def _clipped(formula: Formula, gradient: Array, course: Course, step: int) -> Array:
    if not formula.clip:
        return gradient
    if formula.clip == "value":
        return np.clip(gradient, -formula.limit, formula.limit)
    norms = {"norm": course.norms, "group": course.group_norms, "global": course.global_norms}
    norm = float(norms[formula.clip][step])
    return gradient * min(1.0, formula.limit / norm) if norm > 0 else gradient


class _Moments:
    def __init__(self, formula: Formula, shape: tuple[int, ...]) -> None:
        self.formula, self.step = formula, 0
        self.first, self.second, self.third = np.zeros(shape), np.zeros(shape), np.zeros(shape)

    def move(self, gradient: Array, rate: float) -> Array:
        """Return the step downhill for a gradient, and remember the moments."""
        knobs = self.formula
        self.step += 1
        match knobs.algorithm:
            case "sgd":
                return self.carried(gradient, rate)
            case "adam":
                return self.adam(gradient, rate)
            case "rmsprop":
                self.second = knobs.beta2 * self.second + (1 - knobs.beta2) * gradient**2
                square = self.second
                if knobs.centered:
                    self.third = knobs.beta2 * self.third + (1 - knobs.beta2) * gradient
                    square = square - self.third**2
                return self.carried(gradient / self.root(square), rate)
            case "adagrad":
                self.second = self.second + gradient**2 + (knobs.initial if self.step == 1 else 0.0)
                return rate * gradient / self.root(self.second)
            case "adadelta":
                self.second = knobs.beta2 * self.second + (1 - knobs.beta2) * gradient**2
                step = np.sqrt(self.first + knobs.epsilon) / np.sqrt(self.second + knobs.epsilon) * gradient
                self.first = knobs.beta2 * self.first + (1 - knobs.beta2) * step**2
                return rate * step
            case _:  # adamax
                self.first = knobs.beta1 * self.first + (1 - knobs.beta1) * gradient
                grown, size = knobs.beta2 * self.second, np.abs(gradient)
                inside = knobs.place == "inside"
                self.second = np.maximum(*((grown + knobs.epsilon, size) if inside else (grown, size + knobs.epsilon)))
                return rate / (1 - knobs.beta1**self.step) * self.first / self.second

    def adam(self, gradient: Array, rate: float) -> Array:
        """Return Adam's movement."""
        knobs = self.formula
        self.first = knobs.beta1 * self.first + (1 - knobs.beta1) * gradient
        self.second = knobs.beta2 * self.second + (1 - knobs.beta2) * gradient**2
        self.third = np.maximum(self.third, self.second)
        square = self.third if knobs.amsgrad else self.second
        one = two = 1.0
        if knobs.correction:
            one, two = 1 - knobs.beta1**self.step, 1 - knobs.beta2**self.step
        if knobs.place == "unscaled":
            return np.asarray(rate * np.sqrt(two) / one * self.first / (np.sqrt(square) + knobs.epsilon))
        return rate / one * self.first / self.root(square / two)

    def root(self, square: Array) -> Array:
        """Return the denominator."""
        epsilon = self.formula.epsilon
        return np.sqrt(square + epsilon) if self.formula.place == "inside" else np.sqrt(square) + epsilon

    def carried(self, step: Array, rate: float) -> Array:
        """Return the movement with momentum, whose buffer is the first moment."""
        knobs = self.formula
        if not knobs.momentum:
            return rate * step
        given = rate * step if knobs.rate_inside else step
        if self.step == 1 and knobs.first == "gradient":
            self.first = given
        else:
            self.first = knobs.momentum * self.first + (1 - knobs.dampening) * given
        moved = given + knobs.momentum * self.first if knobs.nesterov else self.first
        return moved if knobs.rate_inside else rate * moved


# Which knobs of an optimizer's formula make it move a parameter as it did.


ELEMENTS = 128
"""Elements of a course on which a setting is fitted: far more than settings, so that none fits by chance."""
FLAGS = ("nesterov", "amsgrad", "centered", "correction", "maximize", "rate_inside", "frozen")
KEPT = (0, 2, 3, 4)
"""Steps after which a loop may clear its gradients; 0: never."""
CLIPS = ("global", "group", "norm", "value")
FORMS = ("l2", "decoupled", "l1", "free")
SPANS: Mapping[str, tuple[float, float]] = {
    "lr": (1e-8, 1e3),
    "decay": (1e-8, 1e1),
    "epsilon": (1e-20, 1e1),
    "initial": (1e-8, 1e2),
    "limit": (1e-6, 1e6),
    "rate_decay": (1e-6, 1e1),
    "scale": (1e-4, 1e4),
}
"""Knobs that are looked for on a logarithmic scale, and where."""
SHARES = ("momentum", "dampening", "beta1", "beta2")
"""Knobs between 0 and 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobCause:
    """Knobs that make the port of the reference, for one parameter."""

    reference: Formula
    port: Formula
    change: Options
    explained: float


def distance(one: Array, other: Array, like: Sequence[Array]) -> float:
    """Return how far updates are apart, each step as a share of its largest size on either side."""
    scale = np.max([np.sqrt(np.mean(side**2, axis=1)) for side in like], axis=0)
    with np.errstate(all="ignore"):
        apart = np.sqrt(np.mean((one - other) ** 2, axis=1)) / np.where(scale > 0, scale, 1.0)
    found = float(np.sqrt(np.mean(np.minimum(apart, 1e6) ** 2)))
    return found if np.isfinite(found) else 1e6


def reproduces(formula: Formula, course: Course, updates: Array) -> bool:
    """Tell whether a formula moves the parameter as ``updates`` do."""
    return distance(simulate(formula, course), updates, (updates,)) <= REMAINDER


def thin(course: Course) -> Course:
    """Return a course with a few of its elements."""
    if course.start.size <= ELEMENTS:
        return course
    step = course.start.size // ELEMENTS
    return replace(
        course,
        start=course.start[::step],
        gradients=course.gradients[:, ::step],
        reference=course.reference[:, ::step],
        port=course.port[:, ::step],
    )


def differing(one: Formula, other: Formula) -> dict[str, object]:
    """Return the knobs that two formulas of one algorithm have set differently, with the second's values."""
    if one.algorithm != other.algorithm:
        return {"algorithm": other.algorithm}
    if one.frozen or other.frozen:
        return {"frozen": other.frozen} if one.frozen != other.frozen else {}
    known = (*KNOBS[one.algorithm], *COMMON)
    idle = set()
    if not one.decay or not other.decay:
        idle.add("form")
    if not one.momentum and not other.momentum:
        idle |= {"dampening", "first", "nesterov", "rate_inside"}
    return {
        item.name: getattr(other, item.name)
        for item in fields(Formula)
        if item.name in known and item.name not in idle and getattr(one, item.name) != getattr(other, item.name)
    }


def explain(course: Course, reference: Formula, port: Formula | None, known: Sequence[Options]) -> KnobCause | None:
    """Return the knobs that explain a parameter's updates, or None."""
    small = thin(course)
    apart = distance(small.reference, small.port, (small.reference, small.port))

    def explained(formula: Formula) -> float:
        left = distance(simulate(formula, small), small.port, (small.reference, small.port))
        return max(0.0, 1 - left / apart) if apart else 0.0

    best: KnobCause | None = None
    for change in chain(known, said_changes(reference, port), flag_changes(reference)):
        best = _better(best, reference, change, explained)
        if best is not None and best.explained >= WHOLE:
            return best
    for change in fitted_changes(reference, small, small.port):
        best = _better(best, reference, change, explained)
    if best is not None and best.explained >= EXPLAINED:
        return best
    return _together(reference, port, best, small, explained)


def _better(
    best: KnobCause | None, reference: Formula, change: Options, explained: Callable[[Formula], float]
) -> KnobCause | None:
    formula = replace(reference, **change)
    share = explained(formula)
    if best is not None and share <= best.explained:
        return best
    return KnobCause(reference=reference, port=formula, change=change, explained=share)


def _together(
    reference: Formula,
    port: Formula | None,
    best: KnobCause | None,
    course: Course,
    explained: Callable[[Formula], float],
) -> KnobCause | None:
    """Return several knobs that explain a difference together, or None."""
    if port is not None and explained(port) >= EXPLAINED:
        return KnobCause(reference=reference, port=port, change=differing(reference, port), explained=explained(port))
    for start in (one for one in (port, None if best is None else best.port) if one is not None):
        for change in chain(flag_changes(start), fitted_changes(start, course, course.port)):
            formula = replace(start, **change)
            if explained(formula) >= EXPLAINED:
                found = differing(reference, formula)
                return KnobCause(reference=reference, port=formula, change=found, explained=explained(formula))
    return None


def said_changes(reference: Formula, port: Formula | None) -> Iterator[Options]:
    """Yield the knobs that the port's optimizer says it has set otherwise, one at a time."""
    if port is None:
        return
    found = differing(reference, port)
    if "algorithm" in found:
        yield {item.name: getattr(port, item.name) for item in fields(Formula)}
        return
    if "clip" in found or "limit" in found:
        yield {"clip": port.clip, "limit": port.limit}
    if "decay" in found and "form" not in found and port.decay:
        yield {"decay": port.decay, "form": port.form}
    yield from ({name: value} for name, value in found.items() if name not in ("clip", "limit"))


def flag_changes(formula: Formula) -> Iterator[Options]:
    """Yield what may be switched."""
    known = {*KNOBS[formula.algorithm], *COMMON}
    yield from ({name: not getattr(formula, name)} for name in FLAGS if name in known)
    yield from ({"kept": steps} for steps in KEPT if steps != formula.kept)
    if formula.decay:
        yield {"decay": 0.0}
        yield from ({"form": form} for form in FORMS if form != formula.form)
    if formula.clip:
        yield {"clip": "", "limit": 0.0}
        yield from ({"clip": clip} for clip in CLIPS if clip != formula.clip)
    if "place" in known:
        yield from ({"place": place} for place in ("outside", "inside", "unscaled") if place != formula.place)
    if "first" in known and formula.momentum and formula.dampening:
        yield {"first": "zero" if formula.first == "gradient" else "gradient"}
    if formula.momentum:
        yield {"momentum": 0.0}


def fitted_changes(formula: Formula, course: Course, updates: Array) -> Iterator[Options]:
    """Yield the value of each knob with which a formula is closest to ``updates``."""
    known = {*KNOBS[formula.algorithm], *COMMON}
    wanted = [name for name in (*SPANS, *SHARES) if name in known and name != "limit"]
    for name in wanted:
        if name == "dampening" and not formula.momentum:
            continue
        if name == "decay":
            for form in FORMS if not formula.decay else (formula.form,):
                yield {**fit("decay", replace(formula, form=form), course, updates), "form": form}
        else:
            yield fit(name, formula, course, updates)
    for clip in CLIPS:
        yield {**fit("limit", replace(formula, clip=clip), course, updates), "clip": clip}


def fit(name: str, formula: Formula, course: Course, updates: Array, *, rate: bool = False) -> Options:
    """Return the value of one knob with which a formula is closest to ``updates``, rounded where that costs nothing.

    Args:
        name: the knob.
        formula: where the other knobs are taken from.
        course: what the formula is given.
        updates: what it should make of it.
        rate: whether the learning rate is fitted along with the knob.
    """
    like = (updates,)

    def miss(value: float) -> float:
        change: Options = {name: value}
        changed = replace(formula, **change)
        if rate:
            return _at_best_rate(changed, course, updates)[1]
        return distance(simulate(changed, course), updates, like)

    if name in SPANS:
        low, high = (float(np.log10(end)) for end in SPANS[name])
        position, _ = descend(lambda at: miss(10.0**at), np.linspace(low, high, round(high - low) * 2 + 1))
        value = 10.0**position
    else:  # a share: what is left to 1 spans decades
        position, _ = descend(lambda at: miss(1 - 10.0**at), np.linspace(-5, 0, 21))
        value = 1 - 10.0**position
    share = name in SHARES
    limit = max(miss(value) * 2, SAME_SINGLE)
    candidates = [0.0] if miss(0.0) <= limit else []
    for digits in range(1, 6):
        shorter = 1 - float(f"{1 - value:.{digits - 1}e}") if share else float(f"{value:.{digits - 1}e}")
        candidates.append(round(shorter, 12) if share else shorter)
    return {name: next((one for one in candidates if miss(one) <= limit), value)}


def descend(miss: Callable[[float], float], grid: Array) -> tuple[float, float]:
    """Return where a function of one number is least: on a grid, then by golden section around its best."""
    found = [miss(float(at)) for at in grid]
    best = int(np.argmin(found))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    golden = (5**0.5 - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = miss(left), miss(right)
    for _ in range(40):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = miss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = miss(right)
    return (left, at_left) if at_left < at_right else (right, at_right)


def identify(course: Course, updates: Array, starts: Sequence[Formula]) -> Formula | None:
    """Return a formula that moves the parameter as ``updates`` do: one of ``starts``, or one with a few knobs changed.

    The learning rate is fitted along with each other knob.
    """
    for formula in starts:
        if reproduces(formula, course, updates):
            return formula
    small = thin(course)
    mine = updates if small is course else updates[:, :: course.start.size // ELEMENTS]
    for formula in starts[:1]:
        for clip in CLIPS:
            clipped = replace(formula, clip=clip)
            clipped = replace(clipped, **fit("limit", clipped, small, mine))
            if reproduces(clipped, small, mine):
                return clipped
    tried = [_at_best_rate(formula, small, mine) for formula in starts]
    for base, _ in sorted(tried, key=lambda one: one[1])[:2]:
        found = _descended(base, small, mine)
        if found is not None:
            return found
    return None


def _descended(base: Formula, course: Course, updates: Array) -> Formula | None:
    """Return the formula that changing one knob after the other leads to, None if it does not reproduce the updates."""
    for _ in range(3):
        options = [replace(base, **change) for change in flag_changes(base)]
        known = {*KNOBS[base.algorithm], *COMMON}
        options += [
            replace(base, **fit(name, base, course, updates, rate=True))
            for name in ("epsilon", "initial", *SHARES)
            if name in known and (name != "dampening" or base.momentum)
        ]
        for form in FORMS:
            decayed = replace(base, form=form)
            options.append(replace(decayed, **fit("decay", decayed, course, updates, rate=True)))
        scaled = [_at_best_rate(one, course, updates) for one in options]
        base, miss = min(scaled, key=lambda one: one[1])
        if miss <= REMAINDER:
            return base
    return None


def _at_best_rate(formula: Formula, course: Course, updates: Array) -> tuple[Formula, float]:
    """Return a formula with the learning rate that fits best, and how far its updates are from the given ones."""
    made = simulate(formula, course)
    scale = np.sqrt(np.mean(updates**2, axis=1, keepdims=True))
    with np.errstate(all="ignore"):
        one, other = (np.nan_to_num(array / np.where(scale > 0, scale, 1.0)) for array in (made, updates))
        factor = float((one * other).sum() / max(float((one * one).sum()), TINY))
    if not np.isfinite(factor) or factor <= 0:
        return formula, distance(made, updates, (updates,))
    better = replace(formula, lr=formula.lr * factor)
    return better, distance(simulate(better, course), updates, (updates,))
