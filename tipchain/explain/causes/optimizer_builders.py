"""Both sides' optimizers, built over copies of the models as the builders ask for it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType

import numpy as np
import numpy.typing as npt

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


def roles(builder: Builder) -> dict[str, inspect.Parameter]:
    """Return a builder's parameters by role; those bound by ``functools.partial`` are left out."""
    return {role: one for one in _parameters(builder).values() if (role := _role(one)) is not None}


def call_builder(builder: Builder, offers: Mapping[str, object], first: tuple[str, ...]) -> Optimizer:
    """Call a builder with the arguments that it asks for.

    Args:
        builder: a function, a class or a partial of one.
        offers: what there is, by role (`NAMES`); callables are called for the value.
        first: roles that a parameter without a telling name may stand for, the likeliest first.

    Raises:
        UsageError: a required parameter that nothing is known for.
        Exception: whatever the builder raises.
    """
    unclear = [one for one in _parameters(builder).values() if one.default is one.empty and _role(one) is None]
    named = {role: one for role, one in roles(builder).items() if role in offers}
    if not unclear:
        if not named and not _parameters(builder):
            return builder()
        return _call(builder, {one.name: role for role, one in named.items()}, offers)
    free = [role for role in first if role not in named and role in offers]
    if len(unclear) > 1 or not free:
        names = ", ".join(one.name for one in unclear)
        name = getattr(builder, "__qualname__", type(builder).__name__)
        raise UsageError(f"builder {name} asks for {names}: nothing to give it")
    chosen = {one.name: role for role, one in named.items()}
    for role in free[:-1]:
        with suppress(AttributeError, TypeError):  # a list of parameters is no model
            return _call(builder, {**chosen, unclear[0].name: role}, offers)
    return _call(builder, {**chosen, unclear[0].name: free[-1]}, offers)


def _call(builder: Builder, chosen: Mapping[str, str], offers: Mapping[str, object]) -> object:
    return builder(**{name: offers[role] for name, role in chosen.items()})


def _parameters(builder: Builder) -> Mapping[str, inspect.Parameter]:
    """Return the parameters that can still be given: not those that a partial has bound by name."""
    bound = getattr(builder, "keywords", {}) if hasattr(builder, "func") else {}
    found = inspect.signature(builder).parameters
    return {
        name: one
        for name, one in found.items()
        if name not in bound and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


def _role(one: inspect.Parameter) -> str | None:
    return next((role for role, names in NAMES.items() if one.name in names), None)


# Parameters cut down after their optimizers were built: what updates element by element needs but some elements.
#
# Gradients come from outside, so that both optimizers can as well be given smaller tensors: rules that go element by
# element do the same to each, and norms (of a tensor, of all, of a group) are those of what is left, on both sides alike.
# Builders have seen the whole tensors, so that what they decide by shape or size is decided as ever.


MOST = 4096
"""Elements of a parameter that are kept at most, roughly."""
Picks = list[npt.NDArray[np.int64]]


def shrink(
    parameters: Mapping[str, object], optimizer: object, slots: Mapping[str, TensorSlot], paddle: ModuleType
) -> dict[str, TensorSlot]:
    """Cut large parameters and torch's optimizer state to the same elements, in place.

    Args:
        parameters: torch's, by name.
        optimizer: torch's, built over them.
        slots: where Paddle's model keeps each; its optimizer keeps nothing before the first step.
        paddle: the module.

    Returns:
        The slots with their new shapes.
    """
    held = Counter(id(part.tensor) for slot in slots.values() for part in slot.parts)
    found = dict(slots)
    for name, slot in slots.items():
        shapes = [part.shape for part in slot.parts]
        whole = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()
        shared = any(held[id(part.tensor)] > 1 for part in slot.parts)
        if int(np.prod(slot.shape)) <= MOST or whole != tuple(slot.shape) or shared:
            continue
        steps = _steps(whole)
        starts = np.cumsum([0, *(shape[0] for shape in shapes[:-1])])
        first = [start + _picks(shape, steps)[0] for start, shape in zip(starts, shapes, strict=True)]
        _shrink_torch(parameters[name], optimizer, [np.concatenate(first), *_picks(shapes[0], steps)[1:]])
        for part in slot.parts:
            every = tuple(slice(None, None, step) for step in (steps[::-1] if part.transpose else steps))
            with paddle.no_grad():
                array = part.tensor[every].numpy()
            # A tensor of dygraph has no other way to take another shape.
            part.tensor.get_tensor().set(np.ascontiguousarray(array), _place(part.tensor, paddle))
        kept = (sum(part.shape[0] for part in slot.parts), *slot.parts[0].shape[1:])
        found[name] = replace(slot, shape=kept)
    return found


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return of which elements along each axis one is kept: the longest axes are thinned first."""
    steps, left = [1] * len(shape), list(shape)
    while int(np.prod(left)) > MOST:
        axis = int(np.argmax(left))
        steps[axis] *= 2
        left[axis] = -(-shape[axis] // steps[axis])
    return tuple(steps)


def _picks(shape: tuple[int, ...], steps: tuple[int, ...]) -> Picks:
    return [np.arange(0, size, step) for size, step in zip(shape, steps, strict=True)]


def _shrink_torch(parameter: Tensor, optimizer: Optimizer, picks: Picks) -> None:
    """Cut a parameter and the tensors of its size that an optimizer holds from the start, as Adagrad does."""
    import torch

    whole = parameter.shape
    state = optimizer.state.get(parameter, {})
    states = {key: value for key, value in state.items() if torch.is_tensor(value) and value.shape == whole}

    def cut(tensor: Tensor) -> Tensor:
        for axis, pick in enumerate(picks):
            tensor = tensor.index_select(axis, torch.as_tensor(pick, device=tensor.device))
        return tensor.contiguous()

    parameter.data = cut(parameter.data)
    state.update((key, cut(value)) for key, value in states.items())


def _place(tensor: Tensor, paddle: ModuleType) -> object:
    place = tensor.place
    return paddle.CUDAPlace(place.gpu_device_id()) if place.is_gpu_place() else paddle.CPUPlace()


RATE = 0.01
"""The learning rate that builders are given which ask for one."""
Clips = tuple[Builder | None, Builder | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Both sides, ready to step.

    Attributes:
        sides: the reference's and the port's.
        names: torch's names of the parameters that both have.
        left_out: those that could not be matched.
        note: what both were given whatever the builders say, or "".
        elements: of all parameters that both have.
        whole: no parameter was cut down.
    """

    sides: tuple[Updates, Updates]
    names: tuple[str, ...]
    left_out: tuple[str, ...]
    note: str = ""
    elements: int = 0
    whole: bool = True


def copied(side: LiveSide, model: object, *, double: bool = True) -> Model:
    """Return a copy whose parameters have the names that the model's have: rules of optimizers read them."""
    made = side.copied(model, double=double)
    if side.name == "paddle":
        name_alike(model, made)
    return made


def slots_of(
    reference: Model, port: object, names: Mapping[str, str] | None
) -> tuple[dict[str, TensorSlot], list[str]]:
    """Return where the port keeps each of the reference's parameters, by torch's name; and those it is not known of.

    Where the models as a whole cannot be matched, the layers that can be are.
    """
    ours = {name: tuple(one.shape) for name, one in reference.named_parameters()}
    try:
        match = match_models(reference, port, names)
        found = {slot.name: slot for slot in torch_view(port, match.names) if slot.kind == "parameter"}
    except WeightsError:
        pairs = {pair.reference: pair.port for pair in pair_layers(reference, port, names)}
        layers = paddle_layers(port, {**pairs, **(names or {})})
        found = {slot.name: slot for layer in layers for slot in layer.slots if slot.kind == "parameter"}
    fits = {name: found[name] for name, shape in ours.items() if name in found and tuple(found[name].shape) == shape}
    return fits, [name for name in ours if name not in fits]


def open_both(
    sides: Sides,
    models: tuple[object, object],
    builders: tuple[Builder, Builder],
    schedulers: tuple[Builder | None, Builder | None] | None,
    names: Mapping[str, str] | None,
    *,
    double: bool = True,
    whole: bool = True,
    clips: Clips = (None, None),
) -> Opened:
    """Copy both models, in float64 if ``double``, build the optimizers over the copies, and give both the reference's parameters.

    Unless ``whole``, large parameters are cut down to some of their elements once the optimizers are built. ``clips`` are
    what each side's training loop does to gradients before an update.

    Raises:
        UsageError: no parameter of both could be matched, or a builder whose optimizer holds none of those that it
            was given.
    """
    reference, port = (copied(side, model, double=double) for side, model in zip(sides, models, strict=True))
    slots, left = slots_of(reference, port, names)
    if not slots:
        raise UsageError("none of the reference's parameters could be matched with one of the port's")
    ours, theirs, schedule = build_both(sides, builders, (reference, port), schedulers)
    for method in ("step", "clear_grad"):
        if not hasattr(theirs, method):
            raise UsageError(f"the port's builder returned a {type(theirs).__name__}, which has no `{method}`")
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
    clip, port_clip = clips
    bound, port_bound = clipping(clip, reference, ours), clipping(port_clip, port, theirs)
    one = TorchUpdates(sides.reference.framework, dict(reference.named_parameters()), ours, bound)  # type: ignore[arg-type]
    notes = [level_epsilons(ours, theirs)]
    if schedule is not None:
        theirs.set_lr_scheduler(schedule)
        # What the schedules start from is theirs to be compared; here both sides have one rate.
        notes.append("the schedules are compared by themselves")
    kept = slots if whole else shrink(one.parameters, ours, slots, sides.port.framework.paddle)  # type: ignore[union-attr]
    other = PaddleUpdates(sides.port.framework, kept, theirs, port_bound)  # type: ignore[arg-type]
    if schedule is not None:
        _same_rate(one, other)
    for name in slots:
        other.assign(name, one.value(name))
    return Opened(
        sides=(one, other),
        names=tuple(slots),
        left_out=tuple(left),
        note="; ".join(filter(None, notes)),
        elements=sum(int(np.prod(slot.shape)) for slot in kept.values()),
        whole=all(kept[name] is slot for name, slot in slots.items()),
    )


def build_both(
    sides: Sides,
    builders: tuple[Builder, Builder],
    models: tuple[Model, Model],
    schedulers: tuple[Builder | None, Builder | None] | None,
) -> tuple[Optimizer, Optimizer, Schedule]:
    """Return torch's optimizer, Paddle's, and the schedule that Paddle's follows, None without one.

    A builder that must have a learning rate is given the other side's, or `RATE` where both must. Paddle's may have made
    its schedule itself.
    """
    (builder, port_builder), (model, port_model), (_, scheduler) = builders, models, schedulers or (None, None)
    if _must_have_rate(builder) and not _must_have_rate(port_builder):
        theirs, schedule = _build_paddle(sides.port, port_builder, port_model, scheduler, RATE)
        return _build_torch(builder, model, float(theirs.get_lr())), theirs, schedule
    ours = _build_torch(builder, model, RATE)
    if not hasattr(ours, "param_groups"):
        raise UsageError(
            f"optimizers: the reference's builder returned a {type(ours).__module__.partition('.')[0]} {type(ours).__name__}\n  expected: a torch.optim.Optimizer; the pair is (torch's builder, Paddle's)"
        )
    rate = float(ours.param_groups[0]["lr"])
    return ours, *_build_paddle(sides.port, port_builder, port_model, scheduler, rate)


def clipping(clip: Builder | None, model: Model, optimizer: Optimizer) -> Callable[[], object] | None:
    """Return the function that clips the gradients of a model's parameters, None without any.

    ``clip`` is called as builders are: with the parameters, or ``model`` or ``optimizer`` where it asks for them.
    """
    if clip is None:
        return None
    offers = {"parameters": list(model.parameters()), "model": model, "optimizer": optimizer}
    return partial(call_builder, clip, offers, ("parameters", "model"))


def _must_have_rate(builder: Builder) -> bool:
    asked = roles(builder).get("rate")
    return asked is not None and asked.default is asked.empty


def _build_torch(builder: Builder, model: Model, rate: float) -> Optimizer:
    offers = {"parameters": list(model.parameters()), "model": model}
    return call_builder(builder, {**offers, **_rate(builder, rate, always=False)}, ("parameters", "model", "rate"))


def _build_paddle(
    side: LiveSide, builder: Builder, model: Model, scheduler: Builder | None, rate: float
) -> tuple[Optimizer, Schedule]:
    """Return Paddle's optimizer over a layer, and the schedule that it follows, None without one.

    A builder that asks for a learning rate is given the schedule.
    """
    offers = {"parameters": list(model.parameters()), "model": model}
    first = ("parameters", "model", "rate")
    asked = roles(builder).get("rate")
    schedule = None
    if scheduler is not None and asked is not None:
        rate = asked.default if isinstance(asked.default, float) else rate
        # A builder of schedules may need the optimizer first.
        with suppress(AttributeError, TypeError):
            schedule = _schedule(side, scheduler, None, rate)
    given = rate if schedule is None else schedule
    optimizer = call_builder(builder, {**offers, **_rate(builder, given, always=schedule is not None)}, first)
    if scheduler is not None and schedule is None:
        schedule = _schedule(side, scheduler, optimizer, float(optimizer.get_lr()))
    return optimizer, schedule or own_schedule(optimizer)


def build_torch_schedule(builder: Builder | None, optimizer: Optimizer) -> object:
    """Return torch's schedule over an optimizer, None without a builder."""
    if builder is None:
        return None
    rate = float(optimizer.param_groups[0]["lr"])
    return call_builder(builder, {"optimizer": optimizer, **_rate(builder, rate, always=False)}, ("optimizer", "rate"))


def _schedule(side: LiveSide, builder: Builder, optimizer: Optimizer, rate: float) -> Schedule:
    lr: ModuleType = side.framework.paddle.optimizer.lr  # type: ignore[union-attr]
    made = call_builder(builder, {"optimizer": optimizer, **_rate(builder, rate, always=False)}, ("optimizer", "rate"))
    made = own_schedule(optimizer) if made is None else made
    if not isinstance(made, lr.LRScheduler):
        raise UsageError(f"the port's scheduler builder returned a {type(made).__name__}, expected an LRScheduler")
    return made


def _rate(builder: Builder, rate: float, *, always: bool) -> dict[str, float]:
    """Return the learning rate if the builder must have one; a default of its own is left alone."""
    asked = roles(builder).get("rate")
    if asked is None:
        return {"rate": rate}
    return {"rate": rate} if always or asked.default is asked.empty else {}


def _same_rate(one: TorchUpdates, other: PaddleUpdates) -> None:
    """Let the port start from the reference's learning rates; factors of parameters stay its own.

    Its own rate stands where it is right for some of the parameters: the factors of the others are wrong.
    """
    ours, own = one.rates(), float(other.optimizer.get_lr())
    factors = {name: other.factor(name) for name in other.rates() if name in ours}
    ratios = [ours[name] / factor for name, factor in factors.items() if factor]
    right = any(abs(ratio - own) <= SAME_SINGLE * own for ratio in ratios)
    rate = own if right else float(np.median(ratios)) if ratios else 0.0
    other.hold_rate(rate if rate > 0 else RATE)
