"""Both sides' optimizers, built over copies of the models as the builders ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.conversion.layouts import Slot
from tipchain.conversion.matching import match_models
from tipchain.conversion.paddle_side import paddle_layers, torch_view
from tipchain.errors import UsageError, WeightsError
from tipchain.parity.locate.layer_pairs import pair_layers
from tipchain.parity.locate.sides import LiveSide, name_alike
from tipchain.parity.pieces.builders import Builder, call_builder, roles
from tipchain.parity.pieces.shrinking import shrink
from tipchain.parity.pieces.trained import PaddleTrained, TorchTrained, Trained, held_parameters

Array = npt.NDArray[Any]
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
        rate_given: why both have one learning rate whatever the builders say, or "".
        elements: of all parameters that both have.
        whole: no parameter was cut down.
    """

    sides: tuple[Trained, Trained]
    names: tuple[str, ...]
    left_out: tuple[str, ...]
    rate_given: str = ""
    elements: int = 0
    whole: bool = True


def copied(side: LiveSide, model: Any, *, double: bool = True) -> Any:
    """Return a copy whose parameters have the names that the model's have: rules of optimizers read them."""
    made = side.copied(model, double=double)
    if side.name == "paddle":
        name_alike(model, made)
    return made


def slots_of(reference: Any, port: Any, names: Mapping[str, str] | None) -> tuple[dict[str, Slot], list[str]]:
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
    fits = {
        name: found[name]
        for name, shape in ours.items()
        if name in found and tuple(found[name].shape) == shape
    }
    return fits, [name for name in ours if name not in fits]


def open_both(
    sides: tuple[LiveSide, LiveSide], models: tuple[Any, Any], builders: tuple[Builder, Builder],
    schedulers: tuple[Builder | None, Builder | None] | None, names: Mapping[str, str] | None,
    *, double: bool = True, whole: bool = True, clips: Clips = (None, None),
) -> Opened:  # fmt: skip
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
    _check_held(ours, theirs, reference, slots)
    bound = [
        clipping(clip, *pair) for clip, pair in zip(clips, ((reference, ours), (port, theirs)), strict=True)
    ]
    one = TorchTrained(sides[0], reference, ours, bound[0])
    given = ""
    if schedule is not None:
        theirs.set_lr_scheduler(schedule)
        # What the schedules start from is theirs to be compared; here both sides have one rate.
        given = "the schedules are compared by themselves"
    kept = slots if whole else shrink(one.parameters, ours, slots, sides[1].framework.paddle)  # type: ignore[attr-defined]
    other = PaddleTrained(sides[1], theirs, kept, bound[1])
    if given:
        _same_rate(one, other)
    for name in slots:
        other.assign(name, one.values(name))
    return Opened(
        sides=(one, other), names=tuple(slots), left_out=tuple(left), rate_given=given,
        elements=sum(int(np.prod(slot.shape)) for slot in kept.values()),
        whole=all(kept[name] is slot for name, slot in slots.items()),
    )  # fmt: skip


def build_both(
    sides: tuple[LiveSide, LiveSide], builders: tuple[Builder, Builder], models: tuple[Any, Any],
    schedulers: tuple[Builder | None, Builder | None] | None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return torch's optimizer, Paddle's, and the schedule that Paddle's follows, None without one.

    A builder that must have a learning rate is given the other side's, or `RATE` where both must. Paddle's may have made
    its schedule itself.
    """
    scheduler = schedulers[1] if schedulers else None
    if _must_have_rate(builders[0]) and not _must_have_rate(builders[1]):
        theirs, schedule = _build_paddle(sides[1], builders[1], models[1], scheduler, RATE)
        return _build_torch(builders[0], models[0], float(theirs.get_lr())), theirs, schedule
    ours = _build_torch(builders[0], models[0], RATE)
    if not hasattr(ours, "param_groups"):
        raise UsageError(
            f"optimizers: the reference's builder returned {_a(ours)}\n  expected: a torch.optim.Optimizer; the pair is (torch's builder, Paddle's)"
        )
    rate = float(ours.param_groups[0]["lr"])
    return ours, *_build_paddle(sides[1], builders[1], models[1], scheduler, rate)


def _a(made: Any) -> str:
    return f"a {type(made).__module__.partition('.')[0]} {type(made).__name__}"


def clipping(clip: Builder | None, model: Any, optimizer: Any) -> Callable[[], Any] | None:
    """Return what clips the gradients of a model's parameters, None without any.

    ``clip`` is called as builders are: with the parameters, or ``model`` or ``optimizer`` where it asks for them.
    """
    if clip is None:
        return None
    offers = {"parameters": list(model.parameters()), "model": model, "optimizer": optimizer}
    return partial(call_builder, clip, offers, ("parameters", "model"))


def _must_have_rate(builder: Builder) -> bool:
    asked = roles(builder).get("rate")
    return asked is not None and asked.default is asked.empty


def _build_torch(builder: Builder, model: Any, rate: float) -> Any:
    offers = {"parameters": list(model.parameters()), "model": model}
    return call_builder(
        builder, {**offers, **_rate(builder, rate, always=False)}, ("parameters", "model", "rate")
    )


def _build_paddle(
    side: LiveSide, builder: Builder, model: Any, scheduler: Builder | None, rate: float
) -> tuple[Any, Any]:
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
    return optimizer, schedule or (optimizer._learning_rate if _scheduled(optimizer) else None)  # noqa: SLF001


def build_torch_schedule(builder: Builder | None, optimizer: Any) -> Any:
    """Return torch's schedule over an optimizer, None without a builder."""
    if builder is None:
        return None
    rate = float(optimizer.param_groups[0]["lr"])
    return call_builder(
        builder, {"optimizer": optimizer, **_rate(builder, rate, always=False)}, ("optimizer", "rate")
    )


def _schedule(side: LiveSide, builder: Builder, optimizer: Any, rate: float) -> Any:
    lr: Any = side.framework.paddle.optimizer.lr  # type: ignore[attr-defined]
    made = call_builder(
        builder, {"optimizer": optimizer, **_rate(builder, rate, always=False)}, ("optimizer", "rate")
    )
    if made is None and optimizer is not None and _scheduled(optimizer):
        return optimizer._learning_rate  # noqa: SLF001
    if not isinstance(made, lr.LRScheduler):
        raise UsageError(
            f"the port's scheduler builder returned a {type(made).__name__}, expected an LRScheduler"
        )
    return made


def _rate(builder: Builder, rate: Any, *, always: bool) -> dict[str, Any]:
    """Return the learning rate if the builder must have one; a default of its own is left alone."""
    asked = roles(builder).get("rate")
    if asked is None:
        return {"rate": rate}
    return {"rate": rate} if always or asked.default is asked.empty else {}


def _scheduled(optimizer: Any) -> bool:
    return not isinstance(getattr(optimizer, "_learning_rate", 0.0), float)


def _check_held(ours: Any, theirs: Any, reference: Any, slots: Mapping[str, Slot]) -> None:
    parameters = {id(one) for one in reference.parameters()}
    ids = {id(part.tensor) for slot in slots.values() for part in slot.parts}
    held: Sequence[tuple[str, list[Any], set[int]]] = (
        ("reference", [one for group in ours.param_groups for one in group["params"]], parameters),
        ("port", held_parameters(theirs), ids),
    )
    for where, tensors, known in held:
        if not any(id(one) in known for one in tensors):
            raise UsageError(
                f"the {where}'s optimizer holds none of the parameters that its builder was given: builders are called "
                "with those of a copy, so  lambda parameters: Adam(parameters)  and not  lambda _: Adam(model.parameters())"
            )


def _same_rate(one: TorchTrained, other: PaddleTrained) -> None:
    """Let the port start from the reference's learning rates; factors of parameters stay its own."""
    ours = one.rates()
    factors = {name: other.factor(name) for name in other.rates() if name in ours}
    ratios = [ours[name] / factor for name, factor in factors.items() if factor]
    rate = float(np.median(ratios)) if ratios else 0.0
    other.hold_rate(rate if rate > 0 else RATE)
