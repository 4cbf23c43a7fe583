"""Training loops of the user's: both are called step after step in float64; the first quantity that parts is shown."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.optimizer_builders import slots_of
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.gradients import Laid, as_reference, laid_otherwise
from tipchain.explain.locate.runs import ARGS, LABELS, as_float, bind
from tipchain.explain.locate.trace import is_array, put_back, take_out
from tipchain.framework_types import Array, Function, Model, Nested, Optimizer, Schedule, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.frameworks.randomness import Draws, attributes
from tipchain.frameworks.torch_ import RunningVariances
from tipchain.live.training import CHAOS, FACTOR, MOST_SHAKE, Recipe, allowed_apart, multiply_rates, shake, state_of
from tipchain.numbers.tolerance import CONSTANT, NOISE, SAME_DOUBLE, SAME_SINGLE, TINY
from tipchain.weights.sides import TensorSlot, assemble

Step = Function
STEP = "step"
SCHEDULES = ("scheduler", "schedule", "lr_scheduler")
"""What the parameter of a loop is called that is given the schedule."""
DEPTH = 3
"""How deep objects of the user's are looked into for tensors that a loop keeps."""
SHOWN = 3
"""Tensors that a reason names."""
State = Mapping[str, Mapping[str, Array]]
"""The model's tensors and those that a loop keeps beside it, by what holds them."""


@dataclass(slots=True, kw_only=True)
class Loops:
    """Both sides' loops.

    Attributes:
        recipe: models, optimizers, inputs; its losses are not used.
        steps: each a function ``(model, optimizer, batch) -> loss``, or what makes a callable of a batch, given
            ``(model, optimizer)``, where something is kept from one step to the next.
        names: Paddle's path by torch's.
        drawn: the random numbers of the reference's last run of each step.
        laid: what the port's loop keeps otherwise than the reference's, by its attribute and the tensor's name.
        share: how far the parameters of the moved reference are off, relative to each.
    """

    recipe: Recipe
    steps: tuple[Step, Step]
    names: Mapping[str, str] = field(default_factory=dict)
    drawn: dict[int, Draws] = field(default_factory=dict)
    laid: dict[str, Mapping[str, Laid]] = field(default_factory=dict)
    share: float = NOISE

    def open(self, *, rate: float = 1.0) -> tuple[Loop, Loop]:
        """Return both loops over fresh copies of the models; the reference's learning rates times ``rate``."""
        reference, port = models = self.recipe.copies()
        built, port_built = self.recipe.build(models)
        if rate != 1:
            multiply_rates(built[0], rate)
        slots, _ = slots_of(reference, port, self.names)
        return Loop(self, 0, reference, *built, slots), Loop(self, 1, port, *port_built, slots)


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
        # Of each of the reference's models that run in turns the variances are followed as Paddle defines them.
        framework: Any = self.side.framework
        self._followed = {} if number else {"_variances": RunningVariances(framework.torch, model)}
        self.kept: Nested = None
        with self._context(0):
            self.call = self._open(loops.steps[number], schedule)
        self.losses: dict[str, Array] = {}
        self.schedule = schedule

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
        with self._context(number):
            # Inputs as they were given, with tensors in place of arrays.
            inputs = bind(self.model, self.loops.recipe.inputs)
            args: Nested = inputs.args[0] if len(inputs.args) == 1 else inputs.args
            given: dict[str, Nested] = {**({ARGS: args} if inputs.args else {}), **inputs.kwargs}
            if inputs.labels is not None:
                given[LABELS] = inputs.labels
            structure, arrays, _ = take_out(given, is_array)
            made = [self.side.tensor(as_float(one, double=True), gradient=False) for one in arrays]
            batch: dict[str, Nested] = put_back(structure, made)
            found = self.call(batch)
        self.losses = dict(_numbers(self.side, found, ""))

    def state(self) -> dict[str, dict[str, Array]]:
        """Return the model's tensors, by the reference's path and torch's name in the layer, and what is kept beside it."""
        with attributes(self.side.framework, **self._followed):
            return {"model": state_of(self.loops.recipe, self.number, self.model), **self.extras()}

    def extras(self) -> dict[str, dict[str, Array]]:
        """Return what the loop keeps beside the model, by the attribute that holds it and torch's names of tensors."""
        found: dict[str, dict[str, Array]] = {}
        self._gather(self.kept, "", found, {id(self.model), id(self.optimizer)}, DEPTH)
        laid = self.loops.laid if self.number else {}
        return {what: as_reference(held, laid.get(what, {})) for what, held in found.items()}

    def _context(self, number: int) -> ExitStack:
        """Return the context of a step: float64, its own seed and random numbers, gradients recorded."""
        recipe, stack = self.loops.recipe, ExitStack()
        stack.enter_context(self.side.precision(double=True, casts=True))
        self.side.seed(recipe.seed + number)
        drawn = self.loops.drawn
        draws = recipe.draws.of_step(number, drawn.get(number) if self.number else None)
        if not self.number:
            drawn[number] = draws
        stack.enter_context(self.side.randomness(draws))
        stack.enter_context(self.side.recording(gradient=True))
        stack.enter_context(self.side.framework.any_precision())
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
        for key, one in held_by(value):
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
            return dict(self._canonical(str(key), one) for key, one in value.items())
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


def held_by(value: object) -> Iterator[tuple[str, object]]:
    """Yield what an object of the user's, or a function's closure, holds; nothing of a framework's own objects."""
    closure = getattr(value, "__closure__", None)
    if closure and hasattr(value, "__code__"):
        for key, cell in zip(value.__code__.co_freevars, closure, strict=True):
            if cell != type(cell)():
                yield key, cell.cell_contents
        return
    if hasattr(value, "__self__"):  # a bound method
        yield from held_by(value.__self__)
        return
    if type(value).__module__.partition(".")[0] in ("torch", "paddle", "numpy", "builtins"):
        return
    yield from list(getattr(value, "__dict__", {}).items())


def _numbers(side: LiveSide, value: Nested, name: str) -> Iterator[tuple[str, Array]]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing loops came to.

    Attributes:
        outcome: PASS, FAIL, ERROR, or SKIP where rounding alone takes the loops apart.
        step: the first step after which something is apart, None without.
    """

    outcome: Outcome
    reason: str
    step: int | None = None
    curves: Mapping[str, list[float]] = field(default_factory=dict)


class Lockstep:
    """Both loops and the moved reference, taken step after step.

    Attributes:
        reference: the reference's loop.
        moved: the same from parameters a little off, the yardstick.
        port: the port's loop.
        start: what the reference holds before the first step.
        states: what all three hold after the last step.
    """

    def __init__(self, loops: Loops) -> None:
        (self.reference, self.port), (self.moved, _) = loops.open(), loops.open(rate=1 + CONSTANT)
        shake(loops.recipe.sides.reference, self.moved.model, loops.share, loops.recipe.seed)
        self.start, kept = self.reference.state(), self.port.state()
        for name, other in paired(self.start, kept).items():
            if name != "model":
                loops.laid.setdefault(other, laid_otherwise(self.start[name], kept[other]))
        self.states: tuple[State, State, State] = (self.start, self.start, kept)
        self._allowed: dict[str, float] = {}

    def step(self, number: int) -> bool:
        """Take one step on all; return whether rounding alone has taken the losses apart."""
        loops = self.reference, self.moved, self.port
        for loop in loops:
            loop.step(number)
        reference, moved, port = (loop.state() for loop in loops)
        self.states = reference, moved, port
        chaotic = False
        for name, value in self.reference.losses.items():
            other = self.moved.losses.get(name, value)
            off = distance(value, other) if other.shape == value.shape else 0.0
            limit = max(self._allowed.get(name, 0.0), FACTOR * off + SAME_DOUBLE * rms(value))
            self._allowed[name] = limit
            chaotic = chaotic or limit > CHAOS * rms(value) > 0
        return chaotic

    def losses_apart(self) -> Iterator[Apart]:
        """Yield the losses that are apart after the last step."""
        expected, actual = self.reference.losses, self.port.losses
        names = {name: name for name in expected if name in actual}
        if not names and len(expected) == len(actual):
            names = dict(zip(expected, actual, strict=True))
        for name, other in names.items():
            value, port_value = expected[name], actual[other]
            if port_value.size == value.size:
                port_value = port_value.reshape(value.shape)
            apart = distance(value, port_value) if value.shape == port_value.shape else np.inf
            if not apart <= self._allowed[name]:
                times = apart / max(self._allowed[name], TINY)
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
        """Return what one loop keeps beside the model and the other does not, "" where each has its counterpart."""
        reference, _, port = ({what: held for what, held in state.items() if len(held) > 1} for state in self.states)
        match = paired(reference, port)
        alone = [
            f"the reference's step keeps {what} beside the model, the port's keeps nothing like it"
            for what in reference
            if what not in match
        ]
        alone += [
            f"the port's step keeps {what} beside the model, the reference's keeps nothing like it"
            for what in port
            if what not in match.values()
        ]
        return alone[0] if alone else ""


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
    loops.share = _share(loops) if same else NOISE
    taken = Lockstep(loops)
    curves: dict[str, list[float]] = {"step/reference": [], "step/port": []}
    for number in range(recipe.iterations):
        chaotic = taken.step(number)
        for side, loop in (("reference", taken.reference), ("port", taken.port)):
            curves[f"step/{side}"] += [float(value.mean()) for value in list(loop.losses.values())[:1]]
        reason, apart = taken.missing(), [*taken.losses_apart(), *taken.tensors_apart()]
        if reason or apart:
            reason = reason or _reason(recipe, number, apart)
            return Compared(outcome=Outcome.FAIL, reason=reason, step=number, curves=curves)
        if chaotic:
            reason = f"proves nothing: rounding alone moves the loss by more than {CHAOS:.0%} from step {number} on"
            return Compared(outcome=Outcome.SKIP, reason=reason, curves=curves)
    state, _, port_state = taken.states
    if not any(
        distance(before, state[what][name]) > 0
        for what, tensors in taken.start.items()
        for name, before in tensors.items()
        if name in state.get(what, {})
    ):
        reason = f"proves nothing: no tensor moved in {recipe.iterations} steps; pass more iterations"
        return Compared(outcome=Outcome.ERROR, reason=reason, curves=curves)
    compared = sum(len(_common(tensors, port_state.get(what, {}))) for what, tensors in state.items())
    held = [what for what in taken.start if what != "model"]
    beside = f", {', '.join(held)} among them," if held else ""
    reason = f"{recipe.iterations} steps and {compared} tensors after each{beside} are as close as rounding allows"
    return Compared(outcome=Outcome.PASS, reason=reason, curves=curves)


def _share(loops: Loops) -> float:
    """Return how far off the moved reference starts for its first loss to be as far off as the port's."""
    taken = Lockstep(loops)
    taken.step(0)
    held = (taken.reference, taken.moved, taken.port)
    expected, drifted, actual = (sum(float(value.sum()) for value in loop.losses.values()) for loop in held)
    wanted, drift = abs(actual - expected), abs(drifted - expected)
    if not drift or not wanted <= SAME_SINGLE * abs(expected):
        return NOISE
    return min(NOISE * max(wanted / drift, 1.0), MOST_SHAKE)


def _common(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> list[str]:
    return [name for name, one in ours.items() if name in theirs and theirs[name].shape == one.shape]


def paired(ours: Mapping[str, Mapping[str, Array]], theirs: Mapping[str, Mapping[str, Array]]) -> dict[str, str]:
    """Return the port's attribute by the reference's: of the same name, else the only one with the same tensors."""
    found = {what: what for what in ours if what in theirs}
    rest = [what for what in theirs if what not in found]
    for what in ours:
        alike = [one for one in rest if set(theirs[one]) == set(ours[what]) and one not in found.values()]
        if what not in found and alike:
            found[what] = alike[0]
    return found


def tensors_apart(
    what: str,
    start: Mapping[str, Array],
    reference: Mapping[str, Array],
    moved: Mapping[str, Array],
    port: Mapping[str, Array],
) -> list[Apart]:
    """Return the tensors that are further apart than the moved reference's allow, the worst first."""
    steps = {name: distance(start[name], one) if name in start else 0.0 for name, one in reference.items()}
    scale = max(steps.values(), default=0.0)
    found = []
    for name in _common(reference, port):
        expected, actual = reference[name], port[name]
        drift = distance(expected, moved[name]) if name in moved else 0.0
        allowed = allowed_apart(expected, drift, steps[name], scale)
        apart = distance(expected, actual)
        if not apart <= allowed:
            times = apart / max(allowed, TINY)
            found.append(Apart(what=what, name=name, times=times, expected=expected, actual=actual))
    return sorted(found, key=lambda one: -one.times)


def _reason(recipe: Recipe, number: int, apart: Sequence[Apart]) -> str:
    paths = {pair.reference: pair.port for pair in recipe.pairs}
    more = listed([one.words(paths) for one in apart[1:]], SHOWN - 1)
    return f"after step {number} {apart[0].told(paths)}" + (f"; apart too: {more}" if more else "")
