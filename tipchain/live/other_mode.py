"""Whether models that agree in one mode, train or eval, agree in the other: one forward of each, where that may be something else."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tipchain.core.blame import one_line
from tipchain.explain.locate.differences import relative
from tipchain.explain.locate.runs import (
    LIBRARIES,
    ModelInputs,
    bind,
    buffers_of,
    call_model,
    changed_buffers,
    is_filled,
    names_in,
    of_library,
)
from tipchain.explain.locate.trace import take_out
from tipchain.explain.preflight.construction import MINDED, drops
from tipchain.explain.preflight.kinds import kind_of
from tipchain.framework_types import Array, Model
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.tolerance import ROUGH

DRAWING = MINDED - {"BatchNorm"}
"""Kinds of the frameworks' layers that draw random numbers in train mode."""
SAID = ("training", "drop", "rand", "bernoulli", "gumbel", "noise", "multinomial", "stochastic")
"""Parts of the names that code uses which draws random numbers, or asks for the mode."""
Shapes = tuple[tuple[int, ...], ...]
MODELS = ("paddle.vision.models.",)
"""Modules of the frameworks that hold models, written as users write theirs."""
DEPTH = 4
"""How many functions that call each other are read one inside the other."""
CONSTRUCTING = frozenset(("__init__", "__setattr__", "init_weights", "_init_weights", "reset_parameters", "extra_repr"))
"""Methods that no forward calls."""


def minds_mode(side: LiveSide, model: Model) -> bool:
    """Tell whether a model may do something else in train mode, but for what norms do to their statistics."""
    layers = [layer for _, layer in side.layers(model)]
    own = f"{side.name}.nn."
    classes = dict.fromkeys(
        one
        for layer in layers
        for one in type(layer).__mro__
        if not one.__module__.startswith(own) and one is not object
    )
    if any(_says(held) for one in classes for name, held in vars(one).items() if name not in CONSTRUCTING):
        return True
    if any("train" in vars(one) for one in classes):
        return True
    if any(_says(held) for layer in layers for held in vars(layer).values()):
        return True
    kinds = ((kind_of(layer, 0 if side.name == "torch" else 1), layer) for layer in layers)
    return any(kind is not None and kind.name in DRAWING and drops(layer) for kind, layer in kinds)


def _says(value: object, depth: int = DEPTH) -> bool:
    """Tell whether a function's code, or that of functions it calls, uses a name that speaks of random numbers or the mode."""
    while isinstance(value, functools.partial):
        if _named(getattr(value.func, "__name__", "")):
            return True
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    if not isinstance(value, types.FunctionType) or depth < 0:
        return False
    if of_library(value) and not value.__module__.startswith(MODELS):
        return _named(value.__name__)
    names = set(names_in(value.__code__))
    if any(map(_named, names)):
        return True
    used = [value.__globals__[name] for name in names if name in value.__globals__]
    modules = [
        one for one in used if isinstance(one, types.ModuleType) and one.__name__.partition(".")[0] not in LIBRARIES
    ]
    inside = [getattr(one, name) for one in modules for name in names if hasattr(one, name)]
    cells = [one.cell_contents for one in value.__closure__ or () if is_filled(one)]
    return any(_says(one, depth - 1) for one in (*used, *inside, *cells) if one is not value)


def _named(name: str) -> bool:
    return any(one in name.lower() for one in SAID)


@contextmanager
def in_mode(sides: Sides, models: Sequence[Model], *, training: bool) -> Iterator[None]:
    """Have two models in train mode or in eval mode for a while; one that is in it keeps the modes of its layers."""
    kept = [
        (layer, layer.training) for side, model in zip(sides, models, strict=True) for _, layer in side.layers(model)
    ]
    try:
        for model in models:
            if bool(model.training) != training:
                model.train() if training else model.eval()
        yield
    finally:
        for layer, was in kept:
            layer.training = was


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What one forward of both models told.

    Attributes:
        draws: the random numbers of both.
        shapes: of the outputs of both.
        apart: how far their outputs are apart, relative RMS; None where they cannot be compared one by one, or were given other
            random numbers: few of those may agree by chance.
        changed: whether it changed buffers of a model, but for those of the frameworks' norms.
    """

    draws: tuple[Draws, Draws]
    shapes: tuple[Shapes, Shapes]
    apart: float | None
    changed: bool

    @property
    def differs(self) -> bool:
        """Whether the outputs are not known to be the same, up to what rounding to float32 makes of them."""
        return self.apart is None or not self.apart <= ROUGH


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What one model raised: the reference, or the port where the reference ran."""

    by_port: bool
    told: str


def call_both(
    sides: Sides,
    models: tuple[Model, Model],
    inputs: ModelInputs,
    seed: int,
    *,
    training: bool,
    double: bool,
    before: ModelInputs | None = None,
) -> Called | Refusal:
    """Call copies of both models in a mode, with equal random numbers, without gradients; with other inputs ``before`` that."""
    outputs: list[list[Array]] = []
    drawn: list[Draws] = []
    moved = False
    for number, (side, model) in enumerate(zip(sides, models, strict=True)):
        draws = Draws(seed, follows=drawn[0] if drawn else None)
        drawn.append(draws)
        try:
            made = side.copied(model, double=double, training=training)
            held = buffers_of(side, made)
            side.seed(seed)
            with side.precision(double=double), side.randomness(draws), side.recording(gradient=False):
                for given in filter(None, (before, inputs)):
                    output = call_model(side, made, bind(made, given), double=double)
            _, tensors, _ = take_out(output, side.is_tensor)
        except Exception as error:  # noqa: BLE001  (a model may refuse the mode or the inputs: labels it lacks, a batch of one)
            return Refusal(by_port=bool(number), told=one_line(error))
        outputs.append([side.array(one) for one in tensors])
        moved = moved or bool(changed_buffers(held, buffers_of(side, made)))
    ours, theirs = outputs
    apart, shapes = None, (_shapes(ours), _shapes(theirs))
    if drawn[1].in_order() and ours and shapes[0] == shapes[1]:
        apart = max(relative(one, other) for one, other in zip(ours, theirs, strict=True))
    return Called(draws=(drawn[0], drawn[1]), shapes=shapes, apart=apart, changed=moved)


def _shapes(arrays: Sequence[Array]) -> Shapes:
    return tuple(one.shape for one in arrays)
