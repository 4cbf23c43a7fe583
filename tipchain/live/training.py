"""One side's training in float64, step by step: with a loss and an optimizer, or by a loop of the user's."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, reduce, wraps
from typing import Any

import numpy as np

from tipchain.errors import UsageError
from tipchain.explain.causes.optimizer_builders import clipping, slots_of
from tipchain.explain.causes.schedules import stepper
from tipchain.explain.locate.gradients import Laid, as_reference, laid_otherwise
from tipchain.explain.locate.matching import LayerPair
from tipchain.explain.locate.rerun import conditions
from tipchain.explain.locate.runs import ARGS, LABELS, Precise, bind, call_model, with_tensors
from tipchain.explain.locate.trace import take_out
from tipchain.framework_types import Array, Model, Nested, Optimizer, Schedule, Tensor
from tipchain.frameworks.live_models import LiveSide
from tipchain.frameworks.randomness import Draws, attributes
from tipchain.frameworks.torch_ import RunningVariances
from tipchain.live.arguments import as_callable, required
from tipchain.live.request import LiveRequest, Step
from tipchain.numbers.tolerance import CONSTANT, NOISE
from tipchain.weights.sides import TensorSlot, assemble

Slots = Mapping[str, TensorSlot]
State = Mapping[str, Mapping[str, Array]]
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
            found[pair.reference] = {
                name: array for name, array in held.items() if name[: name.find(".") + 1] not in inner
            }
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
        self,
        recipe: Recipe,
        number: int,
        model: Model,
        optimizer: Optimizer,
        schedule: Schedule,
        slots: Callable[[], Slots],
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
        with (
            conditions(side, double=True, seed=seed, draws=draws, gradient=True, casts=casts),
            side.framework.any_precision(),
        ):
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
