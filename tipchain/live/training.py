"""Both sides' trainings in float64, step by step: with a loss and an optimizer, or by a loop of the user's."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, reduce, wraps
from itertools import pairwise
from typing import Any

import numpy as np

from tipchain.core.language import listed
from tipchain.core.machine import collect, keep_memory
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.code import pair_names
from tipchain.explain.causes.optimizer_builders import clipping, slots_of
from tipchain.explain.causes.schedules import stepper
from tipchain.explain.findings import PieceCheck
from tipchain.explain.locate.differences import distance, rms
from tipchain.explain.locate.gradients import Arrays, Laid, as_reference, laid_otherwise
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.locate.rerun import conditions
from tipchain.explain.locate.runs import ARGS, LABELS, Precise, bind, call_model, with_tensors
from tipchain.explain.locate.trace import take_out
from tipchain.framework_types import Array, Model, Nested, Optimizer, Schedule, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.frameworks.randomness import Draws, attributes
from tipchain.frameworks.torch_ import RunningVariances
from tipchain.live.request import STEP, LiveRequest, Step, as_callable, required
from tipchain.numbers.tolerance import CONSTANT, NOISE, SAME_DOUBLE, SAME_SINGLE, TINY, UNIT
from tipchain.weights.sides import TensorSlot, assemble

Slots = Mapping[str, TensorSlot]
SlotsOf = Callable[[], Slots]
State = Mapping[str, Arrays]
"""The tensors of the model, and those beside it in a loop, by their holders."""
SCHEDULES = ("scheduler", "schedule", "lr_scheduler")
"""Names of a loop's parameter that is given the schedule."""
DEPTH = 3
"""How deep objects of the user's are looked into for tensors that a loop keeps."""


@dataclass(slots=True, kw_only=True)
class Recipe:
    """The training of both models in float64: by their losses, or by the user's own steps.

    Attributes:
        asked: the models, their inputs, losses, optimizers and steps.
        pairs: the layers with parameters.
        draws: the random numbers of the port's run before, which tell what belongs together.
        training: whether the models are in train mode.
        steps: those that train, in place of the losses.
        laid: what the port's layers keep otherwise than the reference's, by the reference's path and the tensor's name.
        beside: the same of what the port's loop keeps beside the model, by its attribute.
        drawn: the random numbers of the reference's last run of each step.
        share: how far the parameters of the moved reference are off, relative to each.
    """

    asked: LiveRequest
    pairs: Sequence[LayerPair]
    draws: Draws
    training: bool
    steps: tuple[Step, Step] | None = None
    laid: dict[str, Mapping[str, Laid]] = field(default_factory=dict)
    beside: dict[str, Mapping[str, Laid]] = field(default_factory=dict)
    drawn: dict[int, Draws] = field(default_factory=dict)
    share: float = NOISE

    def __post_init__(self) -> None:
        """Read the port's layers' other arrangements of tensors from both models' equal values."""
        ours, theirs = (self._own_tensors(number, one, shared=True) for number, one in enumerate(self.asked.models))
        self.laid = {path: laid for path, held in ours.items() if (laid := laid_otherwise(held, theirs.get(path, {})))}

    @property
    def paths(self) -> dict[str, str]:
        """The port's layers by the reference's."""
        return {pair.reference: pair.port for pair in self.pairs}

    def open(self) -> tuple[Loop, Loop]:
        """Return both loops over fresh copies of the models."""
        reference, port = models = self.copied(0), self.copied(1)
        built, port_built = self.asked.build(models)
        slots = cache(lambda: slots_of(reference, port, self.asked.names)[0])
        return Loop(self, 0, reference, *built, slots), Loop(self, 1, port, *port_built, slots)

    def open_moved(self, port: Loop) -> Loop:
        """Return the reference's loop, its parameters and learning rates a little off."""
        model = self.copied(0)
        built, _ = self.asked.build((model, port.model))
        multiply_rates(built[0], 1 + CONSTANT)
        loop = Loop(self, 0, model, *built, port.slots)
        shake(self.asked.sides.reference, model, self.share, self.asked.seed)
        return loop

    def copied(self, number: int) -> Model:
        """Return a fresh copy of the reference (0) or of the port (1)."""
        return self.asked.copied(number, training=self.training)

    def state_of(self, number: int, model: object, *, shared: bool = False) -> dict[str, Array]:
        """Return the tensors that the paired layers hold themselves, by the reference's path and torch's name.

        ``shared``: parameters may be the model's own memory.
        """
        found: dict[str, Array] = {}
        for path, held in self._own_tensors(number, model, shared=shared).items():
            put = as_reference(held, self.laid.get(path, {})) if number else held
            found.update((f"{path}:{name}", array) for name, array in put.items())
        return found

    def _own_tensors(self, number: int, model: object, *, shared: bool) -> dict[str, dict[str, Array]]:
        """Return the tensors that each paired layer holds itself, by the reference's path."""
        side = self.asked.sides[number]
        found: dict[str, dict[str, Array]] = {}
        buffers = dict(side.framework.buffers(model, {})) if number == 0 else {}
        seen: set[int] = set()
        layers = dict(side.layers(model))  # a name of Paddle's may have dots
        for pair in self.pairs:
            path = pair.port if number else pair.reference
            # One that stands at several paths comes once.
            layer: Model = layers[path] if path in layers else reduce(getattr, path.split("."), model)
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            start = f"{path}." if path else ""
            own = {name.removeprefix(start): array for name, array in buffers.items() if name.startswith(start)}
            held = dict(side.framework.parameters(layer, {}, shared=shared))
            held |= side.framework.buffers(layer, {}) if number else own
            inner = {f"{name}." for name, _ in layer.named_children()}
            own = {name: array for name, array in held.items() if name[: name.find(".") + 1] not in inner}
            found[pair.reference] = own
        return found


class Loop:
    """One side's loop over its own copy of the model.

    Attributes:
        losses: what the last step returned, by name.
        rates: the learning rates of the steps, of a training with losses.
        kept: what a loop of the user's keeps from one step to the next.
        loss: that of a training with losses.
        slots: returns where the port keeps each of the reference's parameters.
    """

    def __init__(
        self, recipe: Recipe, number: int, model: Model, optimizer: Optimizer, schedule: Schedule, slots: SlotsOf
    ) -> None:
        self.recipe, self.number, self.model, self.optimizer, self.schedule = recipe, number, model, optimizer, schedule
        self.side: LiveSide = recipe.asked.sides[number]
        self.slots = slots
        # Of each of the reference's models that run in turns the variances are followed as Paddle defines them.
        framework: Any = self.side.framework
        self._followed = {} if number else {"_variances": RunningVariances(framework.torch, model)}
        self.kept: Nested = None
        self.losses: dict[str, Array] = {}
        self.rates: list[float] = []
        self.loss: Precise | None = None
        self._inputs = bind(model, recipe.asked.inputs)
        with self._context(0):
            self.call = self._open(recipe.steps[number]) if recipe.steps else self._plain()

    def _plain(self) -> Callable[[int], object]:
        asked, side, model, inputs = self.recipe.asked, self.side, self.model, self._inputs
        self.loss = loss = Precise(side, asked.pieces["loss"][self.number])
        clip, advance = clipping(asked.clips[self.number], model, self.optimizer), stepper(self.schedule)

        def step(number: int) -> object:
            value = loss(call_model(side, model, inputs, double=True), with_tensors(side, inputs.labels, double=True))
            self.rates.append(side.learning_rate(self.optimizer))
            value.backward()
            if clip is not None:
                clip()
            self.optimizer.step()
            side.clear_gradients(model)
            advance(number + 1)
            return value

        return step

    def _open(self, step: Step) -> Callable[[int], object]:
        """Return the function of a batch: the user's step, or that made for the model."""
        given = {name: self.schedule for name in SCHEDULES if name in inspect.signature(step).parameters}
        wanted = [name for name in required(step) if name not in given]
        if len(wanted) == 3:
            body = step if inspect.isroutine(step) else copy.deepcopy(step)
            self.kept = None if inspect.isroutine(step) else body
            return lambda _: body(self.model, self.optimizer, self._batch(), **given)
        if len(wanted) > 3:
            raise UsageError(
                f"step asks for {', '.join(wanted)}, expected `(model, optimizer, batch)`, "
                "or `(model, optimizer)` to return a callable of a batch"
            )
        made = step(*(self.model, self.optimizer)[: len(wanted)], **given)
        self.kept = made = as_callable(made, "step(model, optimizer)", "batch")
        return lambda _: made(self._batch())

    def _batch(self) -> object:
        """Return the inputs as they were given, with tensors in place of arrays."""
        inputs = self._inputs
        args: Nested = inputs.args[0] if len(inputs.args) == 1 else inputs.args
        given = {**({ARGS: args} if inputs.args else {}), **inputs.kwargs}
        given |= {} if inputs.labels is None else {LABELS: inputs.labels}
        return with_tensors(self.side, given, double=True)

    def step(self, number: int) -> None:
        """Run one step."""
        with self._context(number):
            found = self.call(number)

        def is_number(value: object) -> bool:
            plain = isinstance(value, np.ndarray | np.generic | int | float) and not isinstance(value, bool)
            return plain or self.side.is_tensor(value)

        _, values, names = take_out(found, is_number)
        names = [""] if is_number(found) else names
        arrays = [self.side.array(one) if self.side.is_tensor(one) else one for one in values]
        self.losses = {name: np.asarray(one, np.float64) for name, one in zip(names, arrays, strict=True)}

    def state(self, *, shared: bool = False) -> State:
        """Return the tensors by the reference's path and torch's name, and the loop's beside them.

        ``shared``: the parameters may be the model's own memory.
        """
        with attributes(self.side.framework, **self._followed):
            return {"model": self.recipe.state_of(self.number, self.model, shared=shared), **self.extras()}

    def extras(self) -> State:
        """Return the loop's tensors beside the model, by attribute and torch's names."""
        found: dict[str, dict[str, Array]] = {}
        self._gather(self.kept, "", found, {id(self.model), id(self.optimizer)}, DEPTH)
        laid = self.recipe.beside if self.number else {}
        return {what: as_reference(held, laid.get(what, {})) for what, held in found.items()}

    @contextmanager
    def _context(self, number: int) -> Iterator[None]:
        recipe, side = self.recipe, self.side
        draws = recipe.draws.of_step(number, recipe.drawn.get(number) if self.number else None)
        if not self.number:
            recipe.drawn[number] = draws
        seed, casts = recipe.asked.seed + number, recipe.steps is not None
        context = conditions(side, double=True, seed=seed, draws=draws, gradient=True, casts=casts)
        with context, side.framework.any_precision():
            yield

    def _gather(self, value: object, name: str, found: dict[str, dict[str, Array]], seen: set[int], depth: int) -> None:
        """Collect models, tensors and mappings of tensors that an object of the user's holds, or a function's closure."""
        if id(value) in seen or depth < 0:
            return
        seen.add(id(value))
        if tensors := self._tensors(value):
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
            return self.recipe.state_of(self.number, inner)
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
        for name, slot in self.slots().items():
            if len(slot.parts) == 1 and key in (*slot.parts[0].names, slot.parts[0].tensor.name):
                fits = tuple(array.shape) == tuple(slot.parts[0].tensor.shape)
                return name, assemble([array], slot) if fits else array
        return key, array


def held_by(value: object) -> Iterator[tuple[str, object]]:
    """Yield the contents of a user's object or a function's closure; none of a framework's."""
    closure = getattr(value, "__closure__", None)
    if closure and hasattr(value, "__code__"):
        for key, cell in zip(value.__code__.co_freevars, closure, strict=True):
            if cell != type(cell)():
                yield key, cell.cell_contents
    elif hasattr(value, "__self__"):  # a bound method
        yield from held_by(value.__self__)
    elif type(value).__module__.partition(".")[0] not in ("torch", "paddle", "numpy", "builtins"):
        yield from list(getattr(value, "__dict__", {}).items())


def multiply_rates(optimizer: Optimizer, factor: float) -> None:
    """Multiply the learning rates of a torch optimizer in each of its steps, whatever a schedule makes of them."""
    step = optimizer.step

    @wraps(step)
    def stepped(*args: object, **kwargs: object) -> object:
        with ExitStack() as stack:
            for group in optimizer.param_groups:
                stack.callback(group.update, lr=group["lr"])
                group["lr"] = group["lr"] * factor
            return step(*args, **kwargs)

    optimizer.step = stepped


def shake(side: LiveSide, model: object, share: float, seed: int) -> None:
    """Move each value of the parameters up or down by a share of itself."""
    generator = np.random.default_rng([seed, 2])
    for _, parameter in side.parameters(model):
        values = side.array(parameter)
        values *= np.where(generator.integers(0, 2, values.shape, dtype=np.int8), 1 + share, 1 - share)
        side.assign(parameter, values)


# Both sides' trainings, step after step, until something is further apart than rounding takes the reference from itself.


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
            shapes = list(self.actual.shape), list(self.expected.shape)
            return f"{name} has shape {shapes[0]} in the port, {shapes[1]} in the reference"
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
        self.losses: list[tuple[Arrays, Arrays]] = []
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

    def _first_apart(self, losses: Arrays) -> float:
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
    last = ([one.reshape(-1) for one in held.values()] for held in taken.losses[-1])
    losses, port_losses = (np.concatenate([np.zeros(0), *held]) for held in last)
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
    common = ((held, reference[what]) for what, held in taken.start.items() if what in reference)
    if not any(distance(held[name], after[name]) for held, after in common for name in held if name in after):
        return Outcome.ERROR, f"proves nothing: no tensor moved in {steps} steps; pass more iterations"
    return Outcome.PASS, _equal(taken, steps)


def _equal(taken: Lockstep, steps: int) -> str:
    reference, _, port = taken.states
    compared = sum(len(_common(tensors, port.get(what, {}))) for what, tensors in reference.items())
    held = [what for what in taken.start if what != "model"]
    beside = f", {', '.join(held)} among them," if held else ""
    return f"{steps} steps and {compared} tensors after each{beside} are as close as rounding allows"


def _common(ours: Arrays, theirs: Arrays) -> list[str]:
    return [name for name, one in ours.items() if name in theirs and theirs[name].shape == one.shape]


def paired(ours: Mapping[str, Arrays], theirs: Mapping[str, Arrays]) -> dict[str, str]:
    """Return the port's attribute by the reference's: of the same name, else the only one with the same tensors."""
    return pair_names(ours, theirs, lambda one, other: set(one) == set(other))


def tensors_apart(what: str, start: Arrays, reference: Arrays, moved: Arrays, port: Arrays) -> list[Apart]:
    """Return the tensors that are further apart than the moved reference's allow, the worst first."""
    both = {name: (reference[name], port[name]) for name in _common(reference, port)}
    apart_all = {name: distance(*two) for name, two in both.items()}
    off = {name: apart for name, apart in apart_all.items() if not apart <= SAME_DOUBLE * rms(both[name][0])}
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
