"""Both sides' optimizers, built over copies of the models as the builders ask for it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from tipchain.errors import UsageError, WeightsError
from tipchain.explain.locate.matching import pair_layers
from tipchain.explain.preflight.optimizers import level_epsilons
from tipchain.framework_types import Model, Optimizer, Schedule, Tensor
from tipchain.frameworks import Updates
from tipchain.frameworks.live_models import LiveSide, Sides, name_alike
from tipchain.frameworks.paddle_ import PaddleUpdates, held_parameters, own_schedule
from tipchain.frameworks.torch_ import TorchUpdates
from tipchain.numbers.tolerance import SAME_SINGLE
from tipchain.weights.matching import match_models
from tipchain.weights.sides import TensorSlot, paddle_layers, torch_view

# Calling a user's builder of an optimizer or a schedule, whatever it asks for.


Builder = Callable[..., Optimizer]
NAMES: Mapping[str, tuple[str, ...]] = {
    "parameters": ("parameters", "params", "parameter_list", "parameters_list", "param_list", "ps"),
    "model": ("model", "net", "network", "module", "layer"),
    "rate": ("learning_rate", "lr", "rate", "base_lr", "initial_lr", "init_lr"),
    "optimizer": ("optimizer", "optim", "opt"),
}
"""Names of a builder's parameters, by their roles."""
ROLES = {name: role for role, names in NAMES.items() for name in names}
"""Roles by those names."""


def call_builder(builder: Builder, offers: Mapping[str, object], *, insist: bool = False) -> Optimizer:
    """Call a builder with the arguments that it asks for.

    Args:
        builder: a function, a class or a partial of one.
        offers: what there is, by role (`NAMES`); a parameter without a telling name may stand for any, the first is the likeliest.
        insist: give the learning rate to a builder that has a default for it, too.

    Raises:
        UsageError: a required parameter that nothing is known for.
        Exception: whatever the builder raises.
    """
    asked = _roles(builder)
    chosen = {
        one.name: offers[role]
        for role, one in asked.items()
        if role in offers and (role != "rate" or insist or one.default is one.empty)
    }
    unclear = [name for name, one in _parameters(builder).items() if one.default is one.empty and name not in ROLES]
    if not unclear:
        return builder(**chosen)
    free = [value for role, value in offers.items() if role not in asked]
    if len(unclear) > 1 or not free:
        name = getattr(builder, "__qualname__", type(builder).__name__)
        raise UsageError(f"builder {name} asks for {', '.join(unclear)}: nothing to give it")
    for value in free[:-1]:
        with suppress(AttributeError, TypeError):  # a list of parameters is no model
            return builder(**chosen, **{unclear[0]: value})
    return builder(**chosen, **{unclear[0]: free[-1]})


def _roles(builder: Builder) -> dict[str, inspect.Parameter]:
    return {ROLES[name]: one for name, one in _parameters(builder).items() if name in ROLES}


def _parameters(builder: Builder) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that can still be given: not those that a partial has bound by name."""
    bound = getattr(builder, "keywords", {}) if hasattr(builder, "func") else {}
    found = inspect.signature(builder).parameters
    return {
        name: one
        for name, one in found.items()
        if name not in bound and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


# Parameters cut down after their optimizers were built: what updates element by element needs but some elements.
#
# Gradients come from outside, so that both optimizers can as well be given smaller tensors: rules that go element by
# element do the same to each, and norms (of a tensor, of all, of a group) are those of what is left, on both sides alike.
# Builders have seen the whole tensors, so that what they decide by shape or size is decided as ever.


MOST = 4096
"""Elements of a parameter that are kept at most, roughly."""


def shrink(
    parameters: Mapping[str, Tensor], optimizer: Optimizer, slots: Mapping[str, TensorSlot], paddle: ModuleType
) -> dict[str, TensorSlot]:
    """Cut large parameters and torch's optimizer state to the same elements, in place.

    Args:
        parameters: torch's, by name.
        optimizer: torch's, built over them; it may keep tensors of their sizes from the start, as Adagrad does.
        slots: where Paddle's model keeps each; its optimizer keeps nothing before the first step.
        paddle: the module.

    Returns:
        The slots with their new shapes.
    """
    held = Counter(id(part.tensor) for slot in slots.values() for part in slot.parts)
    found = dict(slots)
    for name, slot in slots.items():
        heights = [part.shape[0] for part in slot.parts if part.shape]
        whole = bool(heights) and (sum(heights), *slot.parts[0].shape[1:]) == tuple(slot.shape)
        if not whole or any(held[id(part.tensor)] > 1 for part in slot.parts):
            continue
        steps = _steps(slot.shape, heights)
        if steps is None:
            continue
        parameter, every = parameters[name], tuple(slice(None, None, step) for step in steps)
        state = optimizer.state.get(parameter, {})
        sized = {key: one for key, one in state.items() if getattr(one, "shape", None) == parameter.shape}
        state.update((key, one[every].contiguous()) for key, one in sized.items())
        parameter.data = parameter.data[every].contiguous()
        for part in slot.parts:
            with paddle.no_grad():
                array = part.tensor[every[::-1] if part.transpose else every].numpy()
            # A tensor of dygraph has no other way to take another shape.
            place = part.tensor.place
            held_by = paddle.CUDAPlace(place.gpu_device_id()) if place.is_gpu_place() else paddle.CPUPlace()
            part.tensor.get_tensor().set(np.ascontiguousarray(array), held_by)
        found[name] = replace(slot, shape=tuple(parameter.shape))
    return found


def _steps(shape: Sequence[int], heights: Sequence[int]) -> tuple[int, ...] | None:
    """Return of which elements along each axis one is kept, the longest thinned first; None where few are there, or all stay.

    Of several parts, of some heights each, the first axis is thinned only as far as all keep as many.
    """
    steps, left = [1] * len(shape), list(shape)
    while int(np.prod(left)) > MOST:
        even = len(heights) == 1 or all(height % (2 * steps[0]) == 0 for height in heights)
        axis = max(range(not even, len(shape)), key=left.__getitem__, default=0)
        if left[axis] == 1 or not (axis or even):
            break
        steps[axis] *= 2
        left[axis] = -(-shape[axis] // steps[axis])
    return tuple(steps) if max(steps, default=1) > 1 else None


RATE = 0.01
"""The learning rate that builders are given which ask for one."""
Both = tuple[Builder | None, Builder | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPair:
    """What both sides train with, torch's first. Builders are called with what their parameters' names ask for (`NAMES`).

    Attributes:
        sides: of both frameworks.
        models: they are copied, never changed.
        optimizers: the builders of the optimizers.
        schedulers: those of the schedules; None: the rate stays.
        clips: what each side's loop does to gradients before an update, called as builders are.
        names: Paddle's name by torch's where names and structure cannot tell.
        iterations: updates, or steps of a schedule, at least.
        seed: of the gradients.
    """

    sides: Sides
    models: tuple[Model, Model]
    optimizers: tuple[Builder, Builder] | None
    schedulers: Both | None = None
    clips: Both = (None, None)
    names: Mapping[str, str] = field(default_factory=dict)
    iterations: int = 5
    seed: int = 0

    def copied(self, number: int, *, training: bool | None = None, double: bool = True) -> Model:
        """Return a fresh copy of a model; the rules of optimizers may read the names of parameters."""
        made = self.sides[number].copied(self.models[number], double=double, training=training)
        if number:
            name_alike(self.models[1], made)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Both sides, ready to step.

    Attributes:
        reference: torch's optimizer over its parameters.
        port: Paddle's.
        schedule: that which Paddle's optimizer follows, None without one.
        left_out: torch's names of the parameters that could not be matched.
        note: what both were given whatever the builders say, or "".
        whole: no parameter was cut down.
    """

    reference: TorchUpdates
    port: PaddleUpdates
    schedule: Schedule
    left_out: tuple[str, ...]
    note: str
    whole: bool

    @property
    def sides(self) -> tuple[Updates, Updates]:
        """Both, the reference first."""
        return self.reference, self.port

    @property
    def names(self) -> tuple[str, ...]:
        """Torch's names of the parameters that both have."""
        return tuple(self.port.slots)

    @property
    def elements(self) -> int:
        """The number of elements of all parameters that both have."""
        return sum(int(np.prod(slot.shape)) for slot in self.port.slots.values())

    def level(self) -> None:
        """Give the port the reference's parameters and, where it follows a schedule, rates; factors of parameters stay its own.

        Its own rate stands where it is right for some of the parameters: the factors of the others are wrong.
        """
        if self.schedule is not None:
            ours, own = self.reference.rates(), float(self.port.optimizer.get_lr())
            factors = {name: self.port.factor(name) for name in self.port.rates() if name in ours}
            ratios = [ours[name] / factor for name, factor in factors.items() if factor]
            right = any(abs(ratio - own) <= SAME_SINGLE * own for ratio in ratios)
            rate = own if right else float(np.median(ratios)) if ratios else 0.0
            self.port.hold_rate(rate if rate > 0 else RATE)
        for name in self.names:
            self.port.assign(name, self.reference.value(name))


def slots_of(reference: Model, port: object, names: Mapping[str, str]) -> tuple[dict[str, TensorSlot], list[str]]:
    """Return where the port keeps each of the reference's parameters, by torch's name; and those it is not known of.

    Where the models as a whole cannot be matched, the layers that can be are.
    """
    ours = {name: tuple(one.shape) for name, one in reference.named_parameters()}
    try:
        match = match_models(reference, port, names)
        found = {slot.name: slot for slot in torch_view(port, match.names) if slot.kind == "parameter"}
    except WeightsError:
        pairs = {pair.reference: pair.port for pair in pair_layers(reference, port, names)}
        layers = paddle_layers(port, {**pairs, **names})
        found = {slot.name: slot for layer in layers for slot in layer.slots if slot.kind == "parameter"}
    fits = {name: found[name] for name, shape in ours.items() if name in found and tuple(found[name].shape) == shape}
    return fits, [name for name in ours if name not in fits]


def open_both(pair: TrainingPair, *, double: bool = True, whole: bool = True) -> Opened:
    """Copy both models, in float64 if ``double``, and build the optimizers over the copies.

    Unless ``whole``, large parameters are cut down to some of their elements once the optimizers are built.

    Raises:
        UsageError: no parameter of both could be matched, or a builder whose optimizer holds none of those that it
            was given.
    """
    sides = pair.sides
    reference, port = (pair.copied(number, double=double) for number in (0, 1))
    slots, left = slots_of(reference, port, pair.names)
    if not slots:
        raise UsageError("none of the reference's parameters could be matched with one of the port's")
    ours, theirs, schedule, note = build_both(pair, (reference, port))
    parameters = {id(one) for one in reference.parameters()}
    ids = {id(part.tensor) for slot in slots.values() for part in slot.parts}
    held: Sequence[tuple[str, list[Tensor], set[int]]] = (
        ("reference", [one for group in ours.param_groups for one in group["params"]], parameters),
        ("port", held_parameters(theirs), ids),
    )
    for where, tensors, known in held if hasattr(theirs, "_parameter_list") else held[:1]:  # a user's own may have none
        if not any(id(one) in known for one in tensors):
            raise UsageError(
                f"the {where}'s optimizer holds none of the parameters that its builder was given: builders are called "
                "with those of a copy, so `lambda parameters: Adam(parameters)` and not `lambda _: Adam(model.parameters())`"
            )
    clip, port_clip = (clipping(*each) for each in zip(pair.clips, (reference, port), (ours, theirs), strict=True))
    framework: Any = sides.reference.framework
    port_framework: Any = sides.port.framework
    one = TorchUpdates(framework, dict(reference.named_parameters()), ours, clip)
    kept = slots if whole else shrink(one.parameters, ours, slots, port_framework.paddle)
    # What the schedules start from is theirs to be compared; the updates of both have one rate.
    notes = [note, "the schedules are compared by themselves" if schedule is not None else ""]
    return Opened(
        reference=one,
        port=PaddleUpdates(port_framework, kept, theirs, port_clip),
        schedule=schedule,
        left_out=tuple(left),
        note="; ".join(filter(None, notes)),
        whole=all(kept[name] is slot for name, slot in slots.items()),
    )


def build_both(pair: TrainingPair, models: tuple[Model, Model]) -> tuple[Optimizer, Optimizer, Schedule, str]:
    """Return torch's optimizer, Paddle's, the schedule that Paddle's follows or None, and what both were given, or "".

    A builder that must have a learning rate is given the other side's, or `RATE` where both must. Paddle's may have made
    its schedule itself.
    """
    if pair.optimizers is None:
        raise ValueError("no optimizers were given")
    (builder, port_builder), (model, port_model), side = pair.optimizers, models, pair.sides.port
    _, scheduler = pair.schedulers or (None, None)
    if _must_have_rate(builder) and not _must_have_rate(port_builder):
        theirs, schedule = _build_paddle(side, port_builder, port_model, scheduler, RATE)
        ours = _build(builder, model, float(theirs.get_lr()))
    else:
        ours = _build(builder, model, RATE)
        if not hasattr(ours, "param_groups"):
            raise UsageError(
                f"optimizers: the reference's builder returned a {type(ours).__module__.partition('.')[0]} {type(ours).__name__}\n  expected: a torch.optim.Optimizer; the pair is (torch's builder, Paddle's)"
            )
        rate = float(ours.param_groups[0]["lr"])
        theirs, schedule = _build_paddle(side, port_builder, port_model, scheduler, rate)
    for method in ("step", "clear_grad"):
        if not hasattr(theirs, method):
            raise UsageError(f"the port's builder returned a {type(theirs).__name__}, which has no `{method}`")
    if schedule is not None:
        theirs.set_lr_scheduler(schedule)
    return ours, theirs, schedule, level_epsilons(ours, theirs)


def clipping(clip: Builder | None, model: Model, optimizer: Optimizer) -> Callable[[], object] | None:
    """Return the function that clips the gradients of a model's parameters, None without any.

    ``clip`` is called as builders are: with the parameters, or ``model`` or ``optimizer`` where it asks for them.
    """
    if clip is None:
        return None
    offers = {"parameters": list(model.parameters()), "model": model, "optimizer": optimizer}
    return partial(call_builder, clip, offers)


def _must_have_rate(builder: Builder) -> bool:
    asked = _roles(builder).get("rate")
    return asked is not None and asked.default is asked.empty


def _build(builder: Builder, model: Model, rate: Schedule, *, insist: bool = False) -> Optimizer:
    offers = {"parameters": list(model.parameters()), "model": model, "rate": rate}
    return call_builder(builder, offers, insist=insist)


def _build_paddle(
    side: LiveSide, builder: Builder, model: Model, scheduler: Builder | None, rate: float
) -> tuple[Optimizer, Schedule]:
    """Return Paddle's optimizer over a layer, and the schedule that it follows, None without one.

    A builder that asks for a learning rate is given the schedule.
    """
    schedule = None
    if scheduler is not None and (asked := _roles(builder).get("rate")) is not None:
        rate = asked.default if isinstance(asked.default, float) else rate
        # A builder of schedules may need the optimizer first.
        with suppress(AttributeError, TypeError):
            schedule = _schedule(side, scheduler, None, rate)
    optimizer = _build(builder, model, rate if schedule is None else schedule, insist=schedule is not None)
    if scheduler is not None and schedule is None:
        schedule = _schedule(side, scheduler, optimizer, float(optimizer.get_lr()))
    return optimizer, schedule or own_schedule(optimizer)


def build_torch_schedule(builder: Builder | None, optimizer: Optimizer) -> object:
    """Return torch's schedule over an optimizer, None without a builder."""
    rate = float(optimizer.param_groups[0]["lr"])
    return None if builder is None else call_builder(builder, {"optimizer": optimizer, "rate": rate})


def _schedule(side: LiveSide, builder: Builder, optimizer: Optimizer, rate: float) -> Schedule:
    lr: ModuleType = side.framework.paddle.optimizer.lr  # type: ignore[union-attr]
    made = call_builder(builder, {"optimizer": optimizer, "rate": rate})
    made = own_schedule(optimizer) if made is None else made
    if not isinstance(made, lr.LRScheduler):
        raise UsageError(f"the port's scheduler builder returned a {type(made).__name__}, expected an LRScheduler")
    return made
