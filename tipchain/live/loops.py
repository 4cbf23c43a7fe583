"""Training loops of the user's: both are called step after step in float64, and what they leave is held against each other."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field

import numpy as np

from tipchain.errors import UsageError
from tipchain.explain.causes.optimizer_builders import any_precision, slots_of
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.runs import ARGS, LABELS, as_float, bind
from tipchain.explain.locate.sides import LiveSide
from tipchain.explain.locate.trace import put_back, take_out
from tipchain.framework_types import Array, Function, Model, Nested, Optimizer, Schedule, Tensor
from tipchain.frameworks.randomness import Draws
from tipchain.live.training import CHAOS, FACTOR, MOST_SHAKE, Recipe, shake, state_of
from tipchain.numbers.rounding import CONSTANT, NOISE, SAME_DOUBLE, SAME_SINGLE, TINY
from tipchain.outcome import Outcome
from tipchain.weights.layouts import TensorSlot, assemble

Step = Function
STEP = "step"
SCHEDULES = ("scheduler", "schedule", "lr_scheduler")
"""What the parameter of a loop is called that is given the schedule."""
DEPTH = 3
"""How deep objects of the user's are looked into for tensors that a loop keeps."""
SHOWN = 3
"""Tensors that a reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loops:
    """Both sides' loops.

    Attributes:
        recipe: models, optimizers, inputs; its losses are not used.
        steps: each a function ``(model, optimizer, batch) -> loss``, or what makes a callable of a batch, given
            ``(model, optimizer)``, where something is kept from one step to the next.
        names: Paddle's path by torch's.
        drawn: the random numbers of the reference's last run of each step.
    """

    recipe: Recipe
    steps: tuple[Step, Step]
    names: Mapping[str, str] = field(default_factory=dict)
    drawn: dict[int, Draws] = field(default_factory=dict)

    def open(self, *, rate: float = 1.0) -> tuple[Loop, Loop]:
        """Return both loops over fresh copies of the models; the reference's learning rates times ``rate``."""
        models = self.recipe.copies()
        built = self.recipe.build(models)
        _multiply(built[0], rate)
        slots, _ = slots_of(models[0], models[1], self.names)
        made = [Loop(self, number, models[number], *built[number], slots) for number in (0, 1)]
        return made[0], made[1]


class Loop:
    """One side's loop over its own copy of the model.

    Attributes:
        losses: what the last step returned, by name.
    """

    def __init__(
        self,
        loops: Loops,
        number: int,
        model: Model,
        optimizer: Optimizer,
        schedule: Schedule,
        slots: Mapping[str, TensorSlot],
    ) -> None:
        self.loops, self.number, self.model, self.optimizer, self.slots = (loops, number, model, optimizer, slots)
        self.side: LiveSide = loops.recipe.sides[number]
        self.side.framework.watch_variances(model)
        self.kept: Nested = None
        with self._context(0, gradient=True):
            self.call = self._open(loops.steps[number], schedule)
        self.losses: dict[str, Array] = {}

    def _open(self, step: Step, schedule: object) -> Callable[[object], object]:
        """Return what is called with a batch: the step itself, or what it makes of model and optimizer."""
        asked = inspect.signature(step).parameters
        given = {name: schedule for name in SCHEDULES if name in asked}
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        wanted = [
            one for one in asked.values() if one.kind in plain and one.default is one.empty and one.name not in given
        ]
        if len(wanted) == 3:
            body = step if inspect.isroutine(step) else copy.deepcopy(step)
            self.kept = None if inspect.isroutine(step) else body
            return lambda batch: body(self.model, self.optimizer, batch, **given)
        if len(wanted) > 3:
            raise UsageError(
                f"step asks for {', '.join(one.name for one in wanted)}, expected `(model, optimizer, batch)`, "
                "or `(model, optimizer)` to return a callable of a batch"
            )
        made = step(*(self.model, self.optimizer)[: len(wanted)], **given)
        if not callable(made):
            raise UsageError(
                f"`step(model, optimizer)` returned a {type(made).__name__}, expected a callable of a batch"
            )
        self.kept = made
        return made  # type: ignore[no-any-return]

    def step(self, number: int) -> None:
        """Run one step."""
        with self._context(number, gradient=True):
            found = self.call(self._batch())
        self.losses = dict(_numbers(self.side, found, ""))

    def state(self) -> dict[str, Array]:
        """Return the model's tensors, by the reference's path and torch's name in the layer."""
        return state_of(self.loops.recipe, self.number, self.model)

    def extras(self) -> dict[str, dict[str, Array]]:
        """Return what the loop keeps beside the model, by the attribute that holds it and torch's names of tensors."""
        found: dict[str, dict[str, Array]] = {}
        self._gather(self.kept, "", found, {id(self.model), id(self.optimizer)}, DEPTH)
        return found

    def _batch(self) -> dict[str, object]:
        """Return the inputs as they were given, with tensors in place of arrays."""
        inputs = bind(self.model, self.loops.recipe.inputs)
        args: Nested = inputs.args[0] if len(inputs.args) == 1 else inputs.args
        given: dict[str, Nested] = {**({ARGS: args} if inputs.args else {}), **inputs.kwargs}
        if inputs.labels is not None:
            given[LABELS] = inputs.labels
        structure, arrays, _ = take_out(given, lambda one: isinstance(one, np.ndarray))
        made = [self.side.tensor(as_float(one, double=True), gradient=False) for one in arrays]
        batch: dict[str, Nested] = put_back(structure, made)
        return batch

    def _context(self, number: int, *, gradient: bool) -> ExitStack:
        """Return the context of a step: float64, its own seed and random numbers, gradients recorded."""
        recipe, stack = self.loops.recipe, ExitStack()
        stack.enter_context(self.side.precision(double=True, casts=True))
        self.side.seed(recipe.seed + number)
        drawn = self.loops.drawn
        follows = drawn.get(number) if self.number else None
        draws = recipe.draws.of_step(number, follows)
        if not self.number:
            drawn[number] = draws
        stack.enter_context(self.side.randomness(draws))
        stack.enter_context(self.side.recording(gradient=gradient))
        stack.enter_context(any_precision(self.side.framework.paddle) if self.number else nullcontext())  # type: ignore[attr-defined]
        return stack

    def _gather(self, value: object, name: str, found: dict[str, dict[str, Array]], seen: set[int], depth: int) -> None:
        """Collect models, tensors and mappings of tensors that an object of the user's holds, or a function's closure."""
        if id(value) in seen or depth < 0:
            return
        seen.add(id(value))
        tensors = self._tensors(value)
        if tensors:
            found[name or "it"] = tensors
            return
        for key, one in _held(value):
            self._gather(one, f"{name}.{key}".lstrip("."), found, seen, depth - 1)

    def _tensors(self, value: object) -> dict[str, Array]:
        """Return the tensors of a model, a tensor, or a mapping or sequence of tensors, under torch's names."""
        side = self.side
        if side.is_tensor(value):
            return {"": side.array(value)}
        if hasattr(value, "state_dict") and hasattr(value, "parameters") and not hasattr(value, "step"):
            inner = getattr(value, "module", value)  # an averaged model holds its copy so
            return state_of(self.loops.recipe, self.number, inner)
        if isinstance(value, Mapping) and value and all(side.is_tensor(one) for one in value.values()):
            return {self._canonical(str(key), one)[0]: self._canonical(str(key), one)[1] for key, one in value.items()}
        if isinstance(value, list | tuple) and value and all(side.is_tensor(one) for one in value):
            names = [name for name, _ in side.parameters(self.model)]
            keys = names if len(names) == len(value) else [str(number) for number in range(len(value))]
            return dict(self._canonical(key, one) for key, one in zip(keys, value, strict=True))
        return {}

    def _canonical(self, key: str, tensor: Tensor) -> tuple[str, Array]:
        """Return torch's name and layout of a tensor that is kept under a parameter's name."""
        array = self.side.array(tensor)
        if self.number == 0:
            return key, array
        for name, slot in self.slots.items():
            if len(slot.parts) == 1 and key in (*slot.parts[0].names, slot.parts[0].tensor.name):
                fits = tuple(array.shape) == tuple(slot.parts[0].tensor.shape)
                return name, assemble([array], slot) if fits else array
        return key, array


def _held(value: object) -> Iterator[tuple[str, object]]:
    """Yield what an object of the user's, or a function's closure, holds; nothing of a framework's own objects."""
    closure = getattr(value, "__closure__", None)
    if closure and hasattr(value, "__code__"):
        for key, cell in zip(value.__code__.co_freevars, closure, strict=True):
            if cell != type(cell)():
                yield key, cell.cell_contents
        return
    if hasattr(value, "__self__"):  # a bound method
        yield from _held(value.__self__)
        return
    if type(value).__module__.partition(".")[0] in ("torch", "paddle", "numpy", "builtins"):
        return
    yield from list(getattr(value, "__dict__", {}).items())


def _numbers(side: LiveSide, value: Nested, name: str) -> Iterator[tuple[str, Array]]:
    """Yield the numbers and tensors that a step returned, by name."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _numbers(side, one, f"{name}.{key}".lstrip("."))
    elif isinstance(value, tuple | list):
        for key, one in enumerate(value):
            yield from _numbers(side, one, f"{name}.{key}".lstrip("."))
    elif side.is_tensor(value):
        yield name, side.array(value).astype(np.float64)
    elif isinstance(value, np.ndarray | np.generic | int | float) and not isinstance(value, bool):
        yield name, np.asarray(value, np.float64)


def _multiply(built: tuple[Optimizer, Schedule], factor: float) -> None:
    """Multiply the learning rates of torch's optimizer, and those that its schedule starts from."""
    optimizer, schedule = built
    for group in optimizer.param_groups if factor != 1 else ():
        for key in ("lr", "initial_lr"):
            if key in group:
                group[key] = group[key] * factor
    if factor != 1 and schedule is not None and hasattr(schedule, "base_lrs"):
        schedule.base_lrs = [one * factor for one in schedule.base_lrs]


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
        """Return what it is called: the port's layer, where it is known."""
        if self.what == "loss":
            return f"the loss {self.name}".rstrip()
        path, colon, leaf = self.name.rpartition(":")
        tensor = f"{leaf} of {paths.get(path, path) or 'the model'}" if colon else self.name
        return tensor if self.what == "model" else f"{tensor} in {self.what}".removeprefix(" in ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing loops came to.

    Attributes:
        outcome: PASS, FAIL, ERROR, or SKIP where rounding alone takes the loops apart.
        reason: one sentence.
        step: the first step after which something is apart, None without.
        apart: what was, losses first.
        curves: losses of both sides.
    """

    outcome: Outcome
    reason: str
    step: int | None = None
    apart: tuple[Apart, ...] = ()
    curves: Mapping[str, list[float]] = field(default_factory=dict)


def compare_loops(loops: Loops, *, same: bool) -> Compared:
    """Run both loops, and the reference's once more from parameters a little off, until something is apart.

    Args:
        loops: both sides'.
        same: the models are known to agree: what their first losses are apart is of constants that Paddle keeps in
            float32, if it is no more than such, and the moved reference starts as far off.

    Raises:
        UsageError: a step that takes other arguments.
        Exception: whatever the user's steps raise.
    """
    recipe = loops.recipe
    (one, other), (moved, _) = loops.open(), loops.open(rate=1 + CONSTANT)
    shake(recipe.sides[0], moved.model, _share(loops) if same else NOISE, recipe.seed)
    start = {"model": one.state(), **one.extras()}
    first = dict(start)
    curves: dict[str, list[float]] = {"step/reference": [], "step/port": []}
    allowed_loss: dict[str, float] = {}
    moving, compared = False, 0
    for number in range(recipe.iterations):
        for loop in (one, moved, other):
            loop.step(number)
        for side, loop in (("reference", one), ("port", other)):
            curves[f"step/{side}"] += [float(value.mean()) for value in list(loop.losses.values())[:1]]
        states = [{"model": loop.state(), **loop.extras()} for loop in (one, moved, other)]
        missing = _missing(states[0], states[2])
        if missing:
            return Compared(outcome=Outcome.FAIL, reason=missing, step=number, curves=curves)
        chaotic = _allow(allowed_loss, one.losses, moved.losses)
        apart = [*_losses_apart(one.losses, other.losses, allowed_loss), *_tensors_apart(states, first)]
        if apart:
            return Compared(
                outcome=Outcome.FAIL,
                reason=_reason(recipe, number, apart),
                step=number,
                apart=tuple(apart),
                curves=curves,
            )
        if chaotic:
            reason = f"proves nothing: rounding alone moves the loss by more than {CHAOS:.0%} from step {number} on"
            return Compared(outcome=Outcome.SKIP, reason=reason, curves=curves)
        moving = moving or any(
            distance(first[what][name], value) > 0
            for what, tensors in states[0].items()
            for name, value in tensors.items()
            if name in first.get(what, {})
        )
        compared = sum(len(_common(states[0][what], states[2].get(what, {}))) for what in states[0])
    if not moving:
        reason = f"proves nothing: no tensor moved in {recipe.iterations} steps; pass more iterations"
        return Compared(outcome=Outcome.ERROR, reason=reason, curves=curves)
    held = [what for what in start if what != "model"]
    beside = f", {', '.join(held)} among them," if held else ""
    reason = f"{recipe.iterations} steps and {compared} tensors after each{beside} are as close as rounding allows"
    return Compared(outcome=Outcome.PASS, reason=reason, curves=curves)


def _share(loops: Loops) -> float:
    """Return how far the moved reference's parameters are off, relative to each."""
    (one, other), (moved, _) = loops.open(), loops.open()
    shake(loops.recipe.sides[0], moved.model, NOISE, loops.recipe.seed)
    firsts = []
    for loop in (one, other, moved):
        loop.step(0)
        firsts.append(sum(float(value.sum()) for value in loop.losses.values()))
    wanted, drift = abs(firsts[1] - firsts[0]), abs(firsts[2] - firsts[0])
    if not drift or not wanted <= SAME_SINGLE * abs(firsts[0]):
        return NOISE
    return min(NOISE * max(wanted / drift, 1.0), MOST_SHAKE)


def _common(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> list[str]:
    return [name for name, one in ours.items() if name in theirs and theirs[name].shape == one.shape]


def _missing(ours: Mapping[str, Mapping[str, Array]], theirs: Mapping[str, Mapping[str, Array]]) -> str:
    """Return what one loop keeps beside the model and the other does not, "" where each has its counterpart."""
    left = paired(ours, theirs)
    alone = ([what for what in ours if what not in left], [what for what in theirs if what not in left.values()])
    for (who, whom), names in zip((("reference", "port"), ("port", "reference")), alone, strict=True):
        copies = [what for what in names if len((ours if who == "reference" else theirs)[what]) > 1]
        if copies:
            return f"the {who}'s step keeps {copies[0]} beside the model, the {whom}'s keeps nothing like it"
    return ""


def paired(ours: Mapping[str, Mapping[str, Array]], theirs: Mapping[str, Mapping[str, Array]]) -> dict[str, str]:
    """Return the port's attribute by the reference's: of the same name, else the only one with the same tensors."""
    found = {what: what for what in ours if what in theirs}
    rest = [what for what in theirs if what not in found]
    for what in ours:
        alike = [one for one in rest if set(theirs[one]) == set(ours[what]) and one not in found.values()]
        if what not in found and alike:
            found[what] = alike[0]
    return found


def _allow(allowed: dict[str, float], losses: Mapping[str, Array], moved: Mapping[str, Array]) -> bool:
    """Widen how far each loss may be off; return whether that says nothing any more."""
    chaotic = False
    for name, value in losses.items():
        off = distance(value, moved[name]) if moved.get(name, value).shape == value.shape else 0.0
        limit = FACTOR * off + SAME_DOUBLE * rms(value)
        allowed[name] = max(allowed.get(name, 0.0), limit)
        chaotic = chaotic or allowed[name] > CHAOS * rms(value) > 0
    return chaotic


def _losses_apart(
    ours: Mapping[str, Array], theirs: Mapping[str, Array], allowed: Mapping[str, float]
) -> Iterator[Apart]:
    names = {name: name for name in ours if name in theirs}
    if not names and len(ours) == len(theirs):
        names = dict(zip(ours, theirs, strict=True))
    for name, other in names.items():
        one, two = (
            ours[name],
            theirs[other].reshape(ours[name].shape) if theirs[other].size == ours[name].size else theirs[other],
        )
        apart = distance(one, two) if one.shape == two.shape else np.inf
        if not apart <= allowed[name]:
            yield Apart(what="loss", name=name, times=apart / max(allowed[name], TINY), expected=one, actual=two)


def _tensors_apart(
    states: Sequence[Mapping[str, Mapping[str, Array]]], first: Mapping[str, Mapping[str, Array]]
) -> Iterator[Apart]:
    """Yield the tensors that are apart, of the model first, the worst first."""
    ours, moved, theirs = states
    for what, other in paired(ours, theirs).items():
        before = first.get(what, {})
        steps = {name: distance(before[name], one) if name in before else 0.0 for name, one in ours[what].items()}
        scale = max(steps.values(), default=0.0)
        found = []
        for name in _common(ours[what], theirs[other]):
            one, two = ours[what][name], theirs[other][name]
            drift = distance(one, moved[what][name]) if name in moved.get(what, {}) else 0.0
            allowed = FACTOR * (drift + CONSTANT * steps[name]) + SAME_DOUBLE * (rms(one) + scale)
            apart = distance(one, two)
            if not apart <= allowed:
                found.append(Apart(what=what, name=name, times=apart / max(allowed, TINY), expected=one, actual=two))
        yield from sorted(found, key=lambda one: -one.times)
        if found:
            return  # what is averaged over a model that is off is off, too


def _reason(recipe: Recipe, number: int, apart: Sequence[Apart]) -> str:
    paths = {pair.reference: pair.port for pair in recipe.pairs}
    names = [one.words(paths) for one in apart]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    first = apart[0]
    values = ""
    if first.expected.size == first.actual.size == 1:
        values = f": expected {float(first.expected.reshape(())):.9g}, actual {float(first.actual.reshape(())):.9g}"
    else:
        values = f": {first.words(paths)} is {first.times:.3g} times as far off as allowed"
    return f"after step {number} {', '.join(names[:SHOWN])}{more} {'are' if len(names) > 1 else 'is'} apart{values}"
