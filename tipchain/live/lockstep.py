"""Both sides' trainings, step after step, until something is further apart than rounding takes the reference from itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tipchain.core.language import listed
from tipchain.core.machine import collect, keep_memory
from tipchain.errors import Outcome
from tipchain.explain.causes.code import pair_names
from tipchain.explain.findings import PieceCheck
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.gradients import laid_otherwise
from tipchain.framework_types import Array
from tipchain.live.request import STEP
from tipchain.live.training import Loop, Recipe, State
from tipchain.numbers.tolerance import CONSTANT, NOISE, SAME_DOUBLE, SAME_SINGLE, TINY, UNIT

FACTOR = 30.0
"""How many times as far as the reference from itself, moved a little, the port may be: two equal noises of a single number are further
apart once in 47 times (2/pi arctan 1/30), those of whole tensors never."""
MOST_SHAKE = 1e-5
"""How much they are moved at most: where a share this small moves the outputs visibly, nothing can be told of rounding."""
CHAOS = 0.05
"""Where the moved reference is this far from itself, relative, a comparison says nothing any more: `FACTOR` times it is more than all."""
CLOSE = 4.0
"""How many times as far as at first losses may be apart before it is measured how far rounding takes them."""
SHOWN = 3
"""Tensors that a reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Something that two loops leave apart after a step.

    Attributes:
        what: ``"loss"``, ``"model"``, or the attribute that holds it.
        name: of the number or tensor; of a model's ``path:leaf``.
        times: how many times as far apart as allowed.
        expected: the reference's.
        actual: the port's.
    """

    what: str
    name: str
    times: float
    expected: Array
    actual: Array

    def words(self, paths: Mapping[str, str]) -> str:
        """Return its name: the port's layer, where it is known."""
        if self.what == "loss":
            return f"the loss {self.name}".rstrip()
        path, _, leaf = self.name.replace(":", ".").rpartition(".")
        if self.what in ("model", "gradient"):
            tensor = f"{leaf} of {paths.get(path, path) or 'the model'}"
            return tensor if self.what == "model" else f"the gradient of {tensor}"
        return f"{self.name.replace(':', '.')} in {self.what}"

    def told(self, paths: Mapping[str, str]) -> str:
        """Return the element that is furthest apart, with both values."""
        name = self.words(paths)
        if self.expected.shape != self.actual.shape:
            return (
                f"{name} has shape {list(self.actual.shape)} in the port, {list(self.expected.shape)} in the reference"
            )
        index = np.unravel_index(int(np.argmax(np.abs(self.expected * 1.0 - self.actual))), self.expected.shape)
        at = f"[{', '.join(map(str, index))}]" if self.expected.size > 1 else ""
        values = [f"{one[index] * 1.0:.9g}" for one in (self.actual, self.expected)]
        return f"{name}{at} is {values[0]} in the port, {values[1]} in the reference"


class Lockstep:
    """Both trainings taken step after step, and, where asked for, the reference's from parameters a little off.

    ``same``: the models are known to agree: what their first losses are apart, if it is no more than constants that Paddle
    keeps in float32 make of them, is rounding.

    Attributes:
        reference: the reference's loop.
        port: the port's loop.
        moved: the moved reference's, the yardstick; None while nothing needs one.
        start: what the reference holds before the first step.
        states: what the reference, the moved reference and the port hold after the last step.
        losses: those of the reference and of the port by step.
        allowed: how far the reference's may be off, by step.
        chaotic: the first step from which on rounding alone has taken the losses apart.
    """

    def __init__(self, recipe: Recipe, *, same: bool = False, measured: bool = False) -> None:
        self.recipe, self._same, self._shared = recipe, same, not measured
        self.reference, self.port = recipe.open()
        self.start = self.reference.state()
        kept, port_kept = {what: held for what, held in self.start.items() if what != "model"}, self.port.extras()
        for name, other in paired(kept, port_kept).items():
            recipe.beside.setdefault(other, laid_otherwise(kept[name], port_kept[other]))
        self.moved = recipe.open_moved(self.port) if measured else None
        self.states: tuple[State, State, State] = (self.start, self.start, self.port.state() if measured else {})
        self.losses: list[tuple[Mapping[str, Array], Mapping[str, Array]]] = []
        self.allowed: list[dict[str, float]] = []
        self.chaotic: int | None = None

    def step(self, number: int) -> None:
        """Take one step on all."""
        self.reference.step(number)
        if self.moved is not None:
            self.moved.step(number)
        self.port.step(number)
        self.losses.append((self.reference.losses, self.port.losses))
        self._allow(number)
        self._read()

    def measure(self) -> None:
        """Train the reference once more from parameters a little off, as far as the others have come.

        Its first losses are as far off as the port's, as far as that is rounding.
        """
        self.moved = self._open_moved()
        drift = self._first_apart(self.moved.losses)
        share = min(NOISE * max(self._rounding / drift, 1.0), MOST_SHAKE) if drift else NOISE
        if share != self.recipe.share:
            self.recipe.share, self.moved = share, None
            self.moved = self._open_moved()
        self.allowed.clear()
        for number in range(len(self.losses)):
            if number:
                self.moved.step(number)
            self._allow(number)
        self._read()

    def _open_moved(self) -> Loop:
        moved = self.recipe.open_moved(self.port)
        moved.step(0)
        return moved

    def _first_apart(self, losses: Mapping[str, Array]) -> float:
        """Return how far first losses are apart from the reference's, in all."""
        ours, theirs = (sum(float(one.sum()) for one in each.values()) for each in (self.losses[0][0], losses))
        return abs(theirs - ours)

    @property
    def _rounding(self) -> float:
        """How far the port's first losses are apart by rounding alone."""
        apart, size = self._first_apart(self.losses[0][1]), self._first_apart({})
        return apart if self._same and apart <= SAME_SINGLE * size else 0.0

    def _allow(self, number: int) -> None:
        """Note how far the losses of a step may be apart: no less than those before.

        Without a moved reference it is what constants in float32 make of first losses and of all changes since then.
        """
        moved, losses = self.moved, (self.reference.loss, self.port.loss)
        least = FACTOR * UNIT if any(one is not None and one.single for one in losses) else SAME_DOUBLE
        before = self.allowed[-1] if self.allowed else {}
        limits = {}
        for name, value in self.losses[number][0].items():
            if moved is None:
                values = [held[name] for held, _ in self.losses[: number + 1] if name in held]
                way = sum(distance(*two) for two in pairwise(values) if two[0].shape == two[1].shape)
                off = CLOSE * self._rounding + CONSTANT * way
            else:
                other = moved.losses.get(name, value)
                off = FACTOR * distance(value, other) if other.shape == value.shape else 0.0
            limits[name] = max(before.get(name, 0.0), off + least * rms(value))
            if moved is not None and limits[name] > CHAOS * rms(value) > 0 and self.chaotic is None:
                self.chaotic = number
        self.allowed.append(limits)

    def _read(self) -> None:
        reference, port = (one.state(shared=self._shared) for one in (self.reference, self.port))
        moved = reference if self.moved is None else self.moved.state(shared=self._shared)
        self.states = reference, moved, port

    def losses_apart(self) -> Iterator[Apart]:
        """Yield the losses that are apart after the last step."""
        (expected, actual), allowed = self.losses[-1], self.allowed[-1]
        names = {name: name for name in expected if name in actual}
        if not names and len(expected) == len(actual):
            names = dict(zip(expected, actual, strict=True))
        for name, other in names.items():
            value, port_value = expected[name], actual[other]
            if port_value.size == value.size:
                port_value = port_value.reshape(value.shape)
            apart = distance(value, port_value) if value.shape == port_value.shape else np.inf
            if not apart <= allowed[name]:
                times = apart / max(allowed[name], TINY)
                yield Apart(what="loss", name=name, times=times, expected=value, actual=port_value)

    def tensors_apart(self) -> Iterator[Apart]:
        """Yield the tensors that are apart after the last step, the model's first, the worst first."""
        reference, moved, port = self.states
        for what, other in paired(reference, port).items():
            found = list(tensors_apart(what, self.start.get(what, {}), reference[what], moved[what], port[other]))
            yield from found
            if found:
                return  # what is averaged over a model that is off is off, too

    def missing(self) -> str:
        """Return one loop's tensors beside the model that the other lacks, "" where none are."""
        reference, _, port = ({what: held for what, held in state.items() if len(held) > 1} for state in self.states)
        match = paired(reference, port)
        alone = [(what, "reference", "port") for what in reference if what not in match]
        alone += [(what, "port", "reference") for what in port if what not in match.values()]
        told = "the {1}'s step keeps {0} beside the model, the {2}'s keeps nothing like it"
        return told.format(*alone[0]) if alone else ""


def compare(recipe: Recipe, *, same: bool, excused: bool = False) -> tuple[PieceCheck, int | None]:
    """Train both models, and, where they are apart, the reference once more from parameters a little off.

    Args:
        recipe: models, data, optimizers, losses or steps.
        same: see `Lockstep`.
        excused: the losses' values are known to differ for a reason, their gradients to agree: only tensors are judged.

    Returns:
        The check, SKIP where rounding alone takes the trainings apart, and the first step after which something is apart.

    Raises:
        UsageError: a step that takes other arguments.
        Exception: whatever the user's steps raise.
    """
    taken = Lockstep(recipe, same=same)
    size = sum(one.nbytes for one in taken.start["model"].values())
    collect(size)
    with keep_memory():
        for number in range(recipe.asked.iterations):
            taken.step(number)
            if told := _judge(taken, number, excused=excused):
                break
        else:
            number, told = recipe.asked.iterations, _judge_end(taken, recipe.asked.iterations)
    # The first loss of both sides by step, how far it may be off, and learning rates.
    stage, curves = STEP if recipe.steps else "train", dict[str, list[float]]()
    for (expected, actual), allowed in zip(taken.losses, taken.allowed, strict=True):
        for name, held in (("reference", expected), ("port", actual), ("allowed", allowed)):
            values = [float(np.mean(np.asarray(value))) for value in list(held.values())[:1]]
            curves.setdefault(f"{stage}/{name}", []).extend(values)
    if not recipe.steps:
        curves |= {"lr/reference": taken.reference.rates, "lr/port": taken.port.rates}
    check = PieceCheck(outcome=told[0], reason=told[1], curves=curves)
    del taken
    collect(size)
    return check, number if check.outcome is Outcome.FAIL else None


def _judge(taken: Lockstep, number: int, *, excused: bool) -> tuple[Outcome, str] | None:
    recipe = taken.recipe
    losses, port_losses = (
        np.concatenate([np.zeros(0), *(one.reshape(-1) for one in held.values())]) for held in taken.losses[-1]
    )
    if not np.isfinite(losses).all() and number > 1:
        why = f"the reference itself diverges at this learning rate, at step {number}"
        return Outcome.PASS, f"{why}; before that {_equal(taken, number)}"
    if np.isnan(losses).any() and np.isnan(port_losses).any():
        reason = f"proves nothing: the losses are NaN on both sides from step {number} on"
        return Outcome.SKIP if recipe.asked.equal_nan else Outcome.FAIL, reason
    if missing := taken.missing():
        return Outcome.FAIL, missing

    def read() -> list[Apart]:
        found = [*([] if excused else taken.losses_apart()), *taken.tensors_apart()]
        # The update before a loss that is none may leave none.
        return [one for one in found if number == recipe.asked.iterations - 1 or np.isfinite(one.expected).all()]

    apart = read()
    if apart and taken.moved is None:
        taken.measure()
        apart = read()
    if taken.chaotic is not None:
        why = f"rounding alone moves the loss by more than {CHAOS:.0%} from step {taken.chaotic} on"
        return Outcome.SKIP, f"proves nothing: {why}"
    if not apart:
        return None
    more = listed([one.words(recipe.paths) for one in apart[1:]], SHOWN - 1)
    reason = f"after step {number} {apart[0].told(recipe.paths)}" + (f"; apart too: {more}" if more else "")
    return Outcome.FAIL, reason


def _judge_end(taken: Lockstep, steps: int) -> tuple[Outcome, str]:
    reference, _, port = taken.states
    if not any(_common(tensors, port.get(what, {})) for what, tensors in reference.items()):
        return Outcome.ERROR, "no parameter could be compared"
    moved = (
        distance(before, reference[what][name])
        for what, tensors in taken.start.items()
        for name, before in tensors.items()
        if name in reference.get(what, {})
    )
    if not any(moved):
        return Outcome.ERROR, f"proves nothing: no tensor moved in {steps} steps; pass more iterations"
    return Outcome.PASS, _equal(taken, steps)


def _equal(taken: Lockstep, steps: int) -> str:
    reference, _, port = taken.states
    compared = sum(len(_common(tensors, port.get(what, {}))) for what, tensors in reference.items())
    held = [what for what in taken.start if what != "model"]
    beside = f", {', '.join(held)} among them," if held else ""
    return f"{steps} steps and {compared} tensors after each{beside} are as close as rounding allows"


def _common(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> list[str]:
    return [name for name, one in ours.items() if name in theirs and theirs[name].shape == one.shape]


def paired(ours: Mapping[str, Mapping[str, Array]], theirs: Mapping[str, Mapping[str, Array]]) -> dict[str, str]:
    """Return the port's attribute by the reference's: of the same name, else the only one with the same tensors."""
    return pair_names(ours, theirs, lambda one, other: set(one) == set(other))


def tensors_apart(
    what: str,
    start: Mapping[str, Array],
    reference: Mapping[str, Array],
    moved: Mapping[str, Array],
    port: Mapping[str, Array],
) -> list[Apart]:
    """Return the tensors that are further apart than the moved reference's allow, the worst first."""
    both = {name: (reference[name], port[name]) for name in _common(reference, port)}
    off = {
        name: apart
        for name, (one, other) in both.items()
        if not (apart := distance(one, other)) <= SAME_DOUBLE * rms(one)
    }
    steps = {name: distance(start[name], one) if name in start else 0.0 for name, one in reference.items() if off}
    scale = max(steps.values(), default=0.0)
    found = []
    for name, apart in off.items():
        expected, actual = both[name]
        drift = distance(expected, moved[name]) if name in moved else 0.0
        # What a constant in float32 makes of an update is rounding, too.
        allowed = FACTOR * (drift + CONSTANT * steps[name]) + SAME_DOUBLE * (rms(expected) + scale)
        if not apart <= allowed:
            times = apart / max(allowed, TINY)
            found.append(Apart(what=what, name=name, times=times, expected=expected, actual=actual))
    return sorted(found, key=lambda one: -one.times)
