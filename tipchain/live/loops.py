"""Training loops of the user's: both are called step after step in float64; what they leave is compared, and why it differs is looked for."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.optimizer_builders import slots_of
from tipchain.explain.findings import Diagnosis
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.gradients import Laid, as_reference, laid_otherwise
from tipchain.explain.locate.runs import ARGS, LABELS, as_float, bind
from tipchain.explain.locate.trace import is_array, put_back, take_out
from tipchain.framework_types import Array, Function, Model, Nested, Optimizer, Schedule, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.frameworks.randomness import Draws
from tipchain.live.training import CHAOS, FACTOR, MOST_SHAKE, Recipe, allowed_apart, shake, state_of
from tipchain.numbers.tolerance import CONSTANT, EXPLAINED, NOISE, ROUGH, SAME_DOUBLE, SAME_SINGLE, TINY
from tipchain.weights.sides import TensorSlot, assemble

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
        laid: what the port's loop keeps otherwise than the reference's, by its attribute and the tensor's name.
    """

    recipe: Recipe
    steps: tuple[Step, Step]
    names: Mapping[str, str] = field(default_factory=dict)
    drawn: dict[int, Draws] = field(default_factory=dict)
    laid: dict[str, Mapping[str, Laid]] = field(default_factory=dict)

    def open(self, *, rate: float = 1.0) -> tuple[Loop, Loop]:
        """Return both loops over fresh copies of the models; the reference's learning rates times ``rate``."""
        reference, port = models = self.recipe.copies()
        built, port_built = self.recipe.build(models)
        _multiply(built, rate)
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
        self.side.framework.watch_variances(model)
        self.kept: Nested = None
        with self._context(0):
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

    def state(self) -> dict[str, Array]:
        """Return the model's tensors, by the reference's path and torch's name in the layer."""
        return state_of(self.loops.recipe, self.number, self.model)

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
    shake(recipe.sides.reference, moved.model, _share(loops) if same else NOISE, recipe.seed)
    start = {"model": one.state(), **one.extras()}
    kept = other.extras()
    loops.laid.update({name: laid_otherwise(start[what], kept[name]) for what, name in paired(start, kept).items()})
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
        state, _, port_state = states
        missing = _missing(state, port_state)
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
            for what, tensors in state.items()
            for name, value in tensors.items()
            if name in first.get(what, {})
        )
        compared = sum(len(_common(tensors, port_state.get(what, {}))) for what, tensors in state.items())
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
    shake(loops.recipe.sides.reference, moved.model, NOISE, loops.recipe.seed)

    def first(loop: Loop) -> float:
        loop.step(0)
        return sum(float(value.sum()) for value in loop.losses.values())

    expected, actual, drifted = first(one), first(other), first(moved)
    wanted, drift = abs(actual - expected), abs(drifted - expected)
    if not drift or not wanted <= SAME_SINGLE * abs(expected):
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
            allowed = allowed_apart(one, drift, steps[name], scale)
            apart = distance(one, two)
            if not apart <= allowed:
                found.append(Apart(what=what, name=name, times=apart / max(allowed, TINY), expected=one, actual=two))
        yield from sorted(found, key=lambda one: -one.times)
        if found:
            return  # what is averaged over a model that is off is off, too


def _reason(recipe: Recipe, number: int, apart: Sequence[Apart]) -> str:
    paths = {pair.reference: pair.port for pair in recipe.pairs}
    names = [one.words(paths) for one in apart]
    first = apart[0]
    values = ""
    if first.expected.size == first.actual.size == 1:
        values = f": expected {float(first.expected.reshape(())):.9g}, actual {float(first.actual.reshape(())):.9g}"
    else:
        values = f": {first.words(paths)} is {first.times:.3g} times as far off as allowed"
    return f"after step {number} {listed(names, SHOWN)} {'are' if len(names) > 1 else 'is'} apart{values}"


# Why two training loops part: the port's is run again with one thing put right, and what it then leaves is looked at.
#
# What is put right is done to what every loop calls, the optimizer's ``step`` and the clearing of gradients, so that the
# user's code stays as it is. What a loop averages (EMA) is told by arithmetic from what it leaves after each step.


CLEARING = ("zero_grad", "clear_grad", "clear_gradients")
"""How optimizers and models are told to forget their gradients."""
UNSCALE = "call scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) after it"


@dataclass(slots=True, kw_only=True)
class _Update:
    """One update: the step in which it was, the backward passes until then, the gradients' norms, the learning rate."""

    step: int
    backwards: int
    norms: dict[str, float]
    rate: float

    @property
    def norm(self) -> float:
        return float(np.sqrt(sum(value**2 for value in self.norms.values())))


@dataclass(slots=True)
class _WatchedLoop:
    """A loop whose updates are watched, and changed by what is tried.

    Attributes:
        loop: the loop.
        before: called before each update with its number, as ``before(watched, number)``; False: the update is left out.
        clears: the loop's own clearing of gradients counts; else they are cleared after each update, and only there.
    """

    loop: Loop
    before: Callable[[_WatchedLoop, int], bool] | None = None
    clears: bool = True
    updates: list[_Update] = field(default_factory=list)
    cleared: int = 0
    backwards: int = 0
    now: int = 0
    states: list[dict[str, dict[str, Array]]] = field(default_factory=list)
    losses: list[dict[str, Array]] = field(default_factory=list)

    @property
    def updated(self) -> list[int]:
        """The steps in which it updated."""
        return [one.step for one in self.updates]

    def run(self, count: int) -> _WatchedLoop:
        """Run so many steps, and keep what each leaves."""
        optimizer, model = self.loop.optimizer, self.loop.model
        own = optimizer.step

        def step(*args: Nested, **kwargs: Nested) -> Nested:
            side = self.loop.side
            norms = {name: float(np.linalg.norm(side.array(one.grad))) for name, one in self.gradients()}
            self.updates.append(
                _Update(step=self.now, backwards=self.backwards, norms=norms, rate=side.learning_rate(optimizer))
            )
            if self.before is not None and not self.before(self, len(self.updates) - 1):
                return None
            found = own(*args, **kwargs)
            for _, one in self.gradients() if not self.clears else ():
                one.grad = None
            return found

        def clearing(usual: Function) -> Function:
            def cleared(*args: Nested, **kwargs: Nested) -> Nested:
                self.cleared += 1
                return usual(*args, **kwargs) if self.clears else None

            return cleared

        optimizer.step = step
        for holder in (optimizer, model):
            for name in CLEARING:
                if hasattr(holder, name):
                    object.__setattr__(holder, name, clearing(getattr(holder, name)))
        first = next(iter(self.loop.side.parameters(model)), None)
        if first is not None:
            first[1].register_hook(self._count)
        self.states.append(self._state())
        for number in range(count):
            self.now = number
            self.loop.step(number)
            self.states.append(self._state())
            self.losses.append(self.loop.losses)
        return self

    def _state(self) -> dict[str, dict[str, Array]]:
        return {"model": self.loop.state(), **self.loop.extras()}

    def gradients(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters that have gradients."""
        for name, one in self.loop.side.parameters(self.loop.model):
            if one.grad is not None:
                yield name, one

    def multiply(self, factor: float) -> None:
        """Multiply all gradients."""
        with self.loop.side.recording(gradient=False):
            for _, one in self.gradients():
                one.grad = one.grad * factor

    def norm(self) -> float:
        """Return the norm of all gradients together."""
        return float(
            np.sqrt(sum(float(np.square(self.loop.side.array(one.grad)).sum()) for _, one in self.gradients()))
        )

    def _count(self, _: object) -> None:
        self.backwards += 1


def loop_causes(loops: Loops, step: int) -> tuple[Diagnosis, ...]:
    """Return what makes two loops part after ``step``; one of code ``unknown`` where nothing that is tried does."""
    count = max(step + 1, min(loops.recipe.iterations, step + 3))
    one, other = loops.open()
    ours, theirs = _WatchedLoop(one).run(count), _WatchedLoop(other).run(count)
    if not (ours.updates and theirs.updates) and count < loops.recipe.iterations:  # accumulation goes on for longer
        count = loops.recipe.iterations
        one, other = loops.open()
        ours, theirs = _WatchedLoop(one).run(count), _WatchedLoop(other).run(count)
    found = [*_averages(ours, theirs), *_tried(loops, ours, theirs, count)]
    if not found:
        found = [*_seen(ours, theirs)]
    return tuple(found[:1]) or (_unknown(ours, theirs),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Treatment:
    """Something put right in the port's loop."""

    code: str
    message: str
    fix: str
    before: Callable[[_WatchedLoop, int], bool] | None = None
    clears: bool = True


def _tried(loops: Loops, ours: _WatchedLoop, theirs: _WatchedLoop, count: int) -> Iterator[Diagnosis]:
    """Yield the treatment with which the port's loop comes closest to what the reference's leaves, if it comes close."""
    # What is put right are updates: where they differ, a loss that is returned otherwise beside them says nothing of it.
    only = "model" if _left(ours, theirs, only="model") > SAME_SINGLE else ""
    off = _left(ours, theirs, only)
    best: tuple[float, _Treatment | None] = (0.0, None)
    for one in _treatments(ours, theirs):
        _, loop = loops.open()
        try:
            made = _WatchedLoop(loop, before=one.before, clears=one.clears).run(count)
        except Exception:  # noqa: BLE001, S112  (the user's loop does not stand it: the hypothesis does not apply)
            continue
        share = 1 - _left(ours, made, only) / off if off else 0.0
        best = max(best, (share, one), key=lambda pair: round(pair[0], 6))
    share, found = best
    if found is not None and share >= EXPLAINED:
        evidence = (
            f"the port's loop was run with this corrected: {share:.2%} of the difference is gone after {count} steps"
        )
        yield Diagnosis(
            code=found.code, port_path=STEP, message=found.message, evidence=evidence, explained=share, fix=found.fix
        )


def _treatments(ours: _WatchedLoop, theirs: _WatchedLoop) -> Iterator[_Treatment]:
    backwards = max((one.updates[0].backwards for one in (ours, theirs) if one.updates), default=0)
    yield _Treatment(
        code="zero-grad",
        clears=False,
        message=_clearing(ours, theirs),
        fix="call optimizer.clear_grad() after each optimizer.step(), and only there",
    )
    expected, actual = ours.updated, theirs.updated
    if expected and expected != actual:
        yield _Treatment(
            code="accumulation-steps",
            message=_often(ours, theirs),
            clears=False,
            fix="update after as many batches as the reference does",
            before=lambda watched, _: watched.now in expected,
        )
    ratio = _ratio(ours, theirs)
    if ratio is not None and abs(ratio - 1) > SAME_SINGLE:
        code, message, fix = _scaled(ratio, backwards, theirs)
        yield _Treatment(before=_multiplying(lambda _: 1 / ratio), code=code, message=message, fix=fix)
    limit = _limit(ours)
    if limit is not None and ratio is not None:

        def before(watched: _WatchedLoop, _: int) -> bool:
            norm = watched.norm()
            if norm > limit:
                watched.multiply(limit / (norm + 1e-6))  # as torch.nn.utils.clip_grad_norm_ does
            return True

        yield _Treatment(
            code="gradient-clipping",
            before=before,
            message=f"the reference clips gradients to a norm of {limit:.6g}; the port's updates get other gradients",
            fix=f"clip as the reference does: paddle.nn.utils.clip_grad_norm_(parameters, {limit:.6g}), or grad_clip=",
        )
    if [one.rate for one in ours.updates] != [one.rate for one in theirs.updates] and ours.updates and theirs.updates:
        at = next(
            (n for n, (a, b) in enumerate(zip(ours.updates, theirs.updates, strict=False)) if a.rate != b.rate), 0
        )
        yield _Treatment(
            code="learning-rate",
            before=_at_rate([one.rate for one in ours.updates]),
            message=f"at update {at} the port's learning rate is {theirs.updates[at].rate:.6g}, the reference's {ours.updates[at].rate:.6g}",
            fix="step the schedule where the reference steps it",
        )


def _scaled(ratio: float, backwards: int, theirs: _WatchedLoop) -> tuple[str, str, str]:
    """Return the slug of a constant ratio of gradients, what to say of it, and what to do about it."""
    scale = _scale_of(theirs.loop)
    for times in (ratio, 1 / ratio):
        if backwards > 1 and abs(times / backwards - 1) < SAME_SINGLE:
            more = times == ratio
            words = "are not divided by" if more else "are divided once more by"
            return (
                "accumulation-scale",
                f"the port's gradients {words} the {backwards} batches of an update: {ratio:.6g} times the reference's",
                f"{'divide' if more else 'do not divide'} the port's loss by {backwards} before backward()",
            )
    if scale is not None and abs(ratio / scale - 1) < SAME_SINGLE:
        words = (
            f"the port's gradients are {ratio:.6g} times the reference's, the scaler's factor: they are not unscaled"
        )
        return "loss-scaling", words, UNSCALE
    if scale is not None and abs(ratio * scale - 1) < SAME_SINGLE:
        words = f"the port's gradients are one over {scale:.6g} of the reference's, the scaler's factor"
        return "clip-order", f"{words}: they are clipped before they are unscaled", UNSCALE
    words = f"the port's gradients are {ratio:.6g} times the reference's at each update"
    return "gradient-scale", words, f"multiply the port's loss by {1 / ratio:.6g} before backward()"


def _clearing(ours: _WatchedLoop, theirs: _WatchedLoop) -> str:
    def told(who: str, one: _WatchedLoop) -> str:
        much = "never clears" if not one.cleared else f"clears {one.cleared} times in {len(one.losses)} steps"
        return f"{who} {much}"

    return f"gradients are cleared at other steps, so that they add up: {told('the port', theirs)}, {told('the reference', ours)}, {len(ours.updates)} updates expected"


def _often(ours: _WatchedLoop, theirs: _WatchedLoop) -> str:
    count = len(ours.losses)
    expected, actual = (
        f"{len(one)} times in {count} steps (after step {', '.join(map(str, one[:3]))}{', …' if len(one) > 3 else ''})"
        for one in (ours.updated, theirs.updated)
    )
    return f"the port updates {actual}, the reference {expected}"


def _ratio(ours: _WatchedLoop, theirs: _WatchedLoop) -> float | None:
    """Return by which factor the norms of the first update's gradients differ, None where there is none."""
    if not ours.updates or not theirs.updates:
        return None
    expected, actual = ours.updates[0].norm, theirs.updates[0].norm
    return actual / expected if expected and actual else None


def _limit(watched: _WatchedLoop) -> float | None:
    """Return the norm that an update's gradients never exceed, where two at least have just that one."""
    norms = [one.norm for one in watched.updates]
    top = max(norms, default=0.0)
    reached = [one for one in norms if abs(one - top) <= ROUGH * top]  # a clip adds 1e-6 to the norm that it divides by
    return float(f"{top:.5g}") if top and len(reached) > 1 else None


def _multiplying(factor: Callable[[int], float]) -> Callable[[_WatchedLoop, int], bool]:
    def before(watched: _WatchedLoop, number: int) -> bool:
        watched.multiply(factor(number))
        return True

    return before


def _at_rate(rates: Sequence[float]) -> Callable[[_WatchedLoop, int], bool]:
    def before(watched: _WatchedLoop, number: int) -> bool:
        optimizer = watched.loop.optimizer
        if number < len(rates):
            optimizer._learning_rate = rates[number]  # noqa: SLF001  (set_lr refuses where there is a schedule)
        return True

    return before


def _scale_of(loop: Loop) -> float | None:
    """Return the scale of a gradient scaler that a loop keeps, None without one."""
    for value in vars(loop.kept).values() if hasattr(loop.kept, "__dict__") else ():
        if type(value).__name__.endswith(("GradScaler", "AmpScaler")):
            getter = getattr(value, "get_scale", None) or getattr(value, "get_init_loss_scaling", None)
            return None if getter is None else float(getter())
    return None


def _left(ours: _WatchedLoop, theirs: _WatchedLoop, only: str = "") -> float:
    """Return how far two runs are apart, relative: tensors against how far they moved, losses against their size."""
    worst = [0.0]
    for one, other in zip(ours.states, theirs.states, strict=False):
        for what, match in paired(one, other).items():
            if only and what != only:
                continue
            moved = max(
                (
                    distance(ours.states[0][what][name], value)
                    for name, value in one[what].items()
                    if name in ours.states[0].get(what, {})
                ),
                default=0.0,
            )
            for name, value in one[what].items():
                two = other[match].get(name)
                if two is not None and two.shape == value.shape:
                    worst.append(distance(value, two) / (moved + NOISE * rms(value) + TINY))
    for one_loss, other_loss in zip(ours.losses, theirs.losses, strict=False) if not only else ():
        for name, value in one_loss.items():
            if name in other_loss and other_loss[name].shape == value.shape and rms(value):
                worst.append(distance(value, other_loss[name]) / rms(value))
    return float(np.sqrt(np.sum(np.square(np.minimum(worst, 1e6)))))


def _averages(ours: _WatchedLoop, theirs: _WatchedLoop) -> Iterator[Diagnosis]:
    """Yield how the averages that two loops keep differ, where the models themselves agree."""
    if _left(ours, theirs, only="model") > SAME_SINGLE:
        return
    for what, other in paired(ours.states[-1], theirs.states[-1]).items():
        if what == "model":
            continue
        track, port_track = _track(ours, what), _track(theirs, other)
        if track is None or port_track is None:
            continue
        (expected, _), (actual, _) = track, port_track
        one, two = _recognize(*track), _recognize(*port_track)
        apart = max((distance(a, b) for a, b in zip(expected, actual, strict=True)), default=0.0)
        if one is None or two is None or not apart:
            continue
        left = max(distance(a, b) for a, b in zip(_average(*track, two), actual, strict=True))
        share = max(0.0, 1 - left / apart)
        if share < EXPLAINED:
            continue
        evidence = f"the reference's average with the port's rule is the port's: {share:.2%} of the difference is gone"
        words = _average_words(what, one, two)
        yield Diagnosis(
            code=words["code"],
            port_path=STEP,
            message=words["message"],
            evidence=evidence,
            explained=share,
            fix=words["fix"],
        )


def _track(watched: _WatchedLoop, what: str) -> tuple[list[Array], list[Array]] | None:
    """Return an average after each step, and what it is an average of, as vectors; None of what is none."""
    names = [name for name in watched.states[0].get(what, {}) if _of_model(watched, name) is not None]
    names = [name for name in names if watched.states[0][what][name].dtype.kind == "f"]
    if not names:
        return None
    kept, given = [], []
    for state in watched.states:
        if what not in state or any(name not in state[what] for name in names):
            return None
        kept.append(np.concatenate([state[what][name].reshape(-1) for name in names]).astype(np.float64))
        given.append(
            np.concatenate([state["model"][str(_of_model(watched, name))].reshape(-1) for name in names]).astype(
                np.float64
            )
        )
    return (kept, given) if all(one.shape == two.shape for one, two in zip(kept, given, strict=True)) else None


def _of_model(watched: _WatchedLoop, name: str) -> str | None:
    """Return the name of the model's tensor that an average's is of."""
    model = watched.states[0]["model"]
    if name in model:
        return name
    path, _, leaf = name.rpartition(".")
    return f"{path}:{leaf}" if f"{path}:{leaf}" in model else None


@dataclass(frozen=True, slots=True)
class _Rule:
    """How an average moves: its decay at each step (NaN: not to be told), whether it takes the parameters before the update."""

    decays: tuple[float, ...]
    early: bool


def _recognize(kept: Sequence[Array], given: Sequence[Array]) -> _Rule | None:
    """Return the rule by which an average follows what it is of, None where it follows no such rule."""
    for early in (False, True):
        decays = []
        for step in range(1, len(kept)):
            target = given[step - 1] if early else given[step]
            gap, move = target - kept[step - 1], kept[step] - kept[step - 1]
            size = float(gap @ gap)
            told = size > NOISE**2 * float(target @ target)  # else it is where it would move to
            share = float(move @ gap) / size if told else 0.0
            if float(np.linalg.norm(move - share * gap)) > SAME_SINGLE * max(
                float(np.linalg.norm(move)), SAME_DOUBLE * float(np.linalg.norm(target))
            ):
                break
            decays.append(1 - share if told else float("nan"))
        else:
            if any(np.any(one != two) for one, two in zip(given, kept, strict=True)):
                return _Rule(tuple(decays), early)
    return None


def _average(kept: Sequence[Array], given: Sequence[Array], rule: _Rule) -> list[Array]:
    found = [kept[0]]
    for step, decay in enumerate(rule.decays, 1):
        target = given[step - 1] if rule.early else given[step]
        found.append(found[-1] if np.isnan(decay) else decay * found[-1] + (1 - decay) * target)
    return found


def _average_words(what: str, ours: _Rule, theirs: _Rule) -> dict[str, str]:
    expected, actual = _shown(ours.decays), _shown(theirs.decays)
    pairs = [pair for pair in zip(ours.decays, theirs.decays, strict=True) if not np.isnan(pair).any()]
    if ours.early != theirs.early and all(abs(a - b) < SAME_SINGLE for a, b in pairs):
        when, port_when = ("after", "before") if theirs.early else ("before", "after")
        return {
            "code": "ema-order",
            "message": f"the port's average ({what}) takes the parameters {port_when} the update, the reference's {when} it",
            "fix": f"update the average {when} optimizer.step()",
        }
    if all(abs(one - 1) < SAME_SINGLE for one in theirs.decays if not np.isnan(one)):
        return {
            "code": "ema-missing",
            "message": f"the port's average ({what}) never moves, the reference's has a decay of {expected}",
            "fix": "update the average at each step",
        }
    words = f"the port's average ({what}) has a decay of {actual}, the reference's of {expected}"
    if all(abs(one) < SAME_SINGLE for one in theirs.decays if not np.isnan(one)):
        words += ": it is the parameters themselves, no copy of them or a decay of 0"
    return {"code": "ema-decay", "message": words, "fix": f"give the port's average a decay of {expected}"}


def _shown(decays: Sequence[float]) -> str:
    values = [f"{one:.6g}" for one in decays if abs(one - 1) > SAME_SINGLE]  # of the steps in which it moves
    return (
        "1"
        if not values
        else values[0]
        if len(set(values)) == 1
        else ", ".join(values[:3]) + (", …" if len(values) > 3 else "")
    )


def _seen(ours: _WatchedLoop, theirs: _WatchedLoop) -> Iterator[Diagnosis]:
    """Yield what is seen to differ in how often both loops update, where no treatment has put it right."""
    if ours.updated != theirs.updated:
        yield Diagnosis(
            code="accumulation-steps",
            port_path=STEP,
            message=_often(ours, theirs),
            evidence="updates were counted",
            fix="update after as many batches as the reference does",
        )
        return
    for name, value in ours.losses[0].items():
        other = theirs.losses[0].get(name)
        if other is None or other.size != 1 or not float(value.sum()):
            continue
        factor = float(other.sum()) / float(value.sum())
        same = not any(
            one.shape == two.shape and distance(one, two) > SAME_SINGLE * rms(one)
            for one, two in zip(ours.states[-1]["model"].values(), theirs.states[-1]["model"].values(), strict=False)
        )
        if same and abs(factor - 1) > SAME_SINGLE:
            yield Diagnosis(
                code="returned-loss",
                port_path=STEP,
                evidence="the models agree after the step",
                message=f"the loss that the port's step returns is {factor:.6g} times the reference's, its updates are the reference's",
                fix="return the loss that the reference returns: before, or after, it is divided",
            )
            return


def _unknown(ours: _WatchedLoop, theirs: _WatchedLoop) -> Diagnosis:
    expected, actual = (
        f"{len(one.updates)} updates, {one.backwards} backward passes, gradients cleared {one.cleared} times"
        for one in (ours, theirs)
    )
    return Diagnosis(
        code="unknown",
        port_path=STEP,
        message="the training steps differ, the cause is unknown",
        evidence=f"in {len(ours.losses)} steps: reference {expected}; port {actual}",
        fix="compare the two steps line by line: what is cleared, divided, clipped, updated and averaged, in which order",
    )
