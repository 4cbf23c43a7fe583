"""A framework's part in tracing and replaying, in one process with the other."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import reduce
from math import prod
from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np

from tipchain.errors import WeightsError
from tipchain.facts.layers import kind_of
from tipchain.facts.settings import SAME, UNTOLD, channels_last, takes_gradient
from tipchain.framework_types import After, Array, Before, Function, Hook, Model, Nested, Optimizer, Tensor
from tipchain.frameworks import Framework
from tipchain.frameworks.base import map_nested
from tipchain.frameworks.paddle_ import PaddleFramework
from tipchain.frameworks.randomness import attributes
from tipchain.frameworks.torch_ import TorchFramework

LARGE = 2**18
"""Elements of a parameter from which on numpy gives its copy large pages (4 MiB of float64, half of that of float32 is near)."""

PLAIN = frozenset((str, int, float, bool, type(None)))
"""Types of most values that layers keep, none of which holds a tensor."""

Widening = Literal["casts", "claims", "plain"]
"""How a model is run in float64: ``"casts"``: float32 that it asks for by name is float64 too; ``"claims"``: so it is, and
its tensors say that they are in float32, which some models insist on; ``"plain"``: its casts stay."""

Steps = tuple[tuple[int, ...], tuple[int, ...]]
"""How far a convolution goes at a time along each axis of space, and how many zeros it puts at both ends."""


class FrameworkSide:
    """A framework whose models are copied, run, traced and replayed layer by layer, in the same words for both.

    What both do alike for stages (``is_tensor``, ``array``, ``view``, ``tensor``, ``assign``, ``layers``, ``seed``,
    ``randomness``) is the framework's own.

    Attributes:
        framework: as stages use it.
        ways: how a model may be run in float64, tried one after the other.
        way: the one that is taken.
        base: the class of all layers.
        functional: ``torch.nn.functional`` or Paddle's.
    """

    framework: Framework
    base: type[Model]
    functional: ModuleType
    ways: Sequence[Widening] = ("casts", "plain")
    way: Widening = "casts"

    def __init__(self, framework: Framework) -> None:
        self.is_tensor, self.array, self.view = framework.is_tensor, framework.array, framework.view
        self.tensor, self.assign, self.layers = framework.tensor, framework.assign, framework.layers
        self.seed, self.randomness = framework.seed, framework.randomness

    @contextmanager
    def precision(self, *, double: bool, casts: bool = False) -> Iterator[None]:
        """Let new floating-point tensors be float64 for a while, if ``double``.

        As the `way` says, those of which float32 is asked for too, unless ``casts`` are to be left alone: a cast to float32
        does nothing to a model in float32, so that in float64 it is no part of what the model computes.
        """
        if not double:
            yield
            return
        plain = casts or self.way == "plain"
        wide = nullcontext() if plain else self.framework.widening(claims=self.way == "claims")
        with self.framework.double_precision(), wide:
            yield

    takes_gradient = staticmethod(takes_gradient)

    def on_gradient(self, tensor: Tensor, take: Callable[[Tensor], object]) -> None:
        """Hand the tensor's gradient to ``take`` once it is known, if it will have one: torch's hooks also get None."""
        if self.takes_gradient(tensor):
            tensor.register_hook(lambda gradient: None if gradient is None else take(gradient))

    def clear_gradients(self, layer: Model) -> None:
        """Set the parameters' ``grad`` to None."""
        for one in layer.parameters():
            one.grad = None

    def parameter_gradients(self, layer: Model) -> dict[str, Array] | None:
        """Return the gradients that there are, under torch's names and in its layout, not copied; None where that is not known."""
        if all(one.grad is None for one in layer.parameters()):
            return {}
        try:
            return dict(self.framework.gradients(layer, {}, shared=True))
        except WeightsError:
            return None

    def learning_rate(self, optimizer: Optimizer) -> float:
        """Return the present rate, of several groups the first one's; NaN of an optimizer that does not tell it."""
        if hasattr(optimizer, "param_groups"):  # torch's
            return float(optimizer.param_groups[0]["lr"])
        return float(optimizer.get_lr()) if hasattr(optimizer, "get_lr") else float("nan")

    def parameters(self, layer: Model) -> list[tuple[str, Tensor]]:
        """Return a layer's own and inner parameters that take gradients, each once, with their names in it."""
        return [(name, one) for name, one in layer.named_parameters() if self.takes_gradient(one)]

    def watch(self, layer: Model, before: Before, after: After) -> Callable[[], None]:
        """Call the two around each forward, the second's result in place of the layer's; return a function that ends this."""
        paddles = hasattr(layer, "register_forward_post_hook")
        register_after = layer.register_forward_post_hook if paddles else layer.register_forward_hook
        first: Hook = layer.register_forward_pre_hook(before, with_kwargs=True)
        second: Hook = register_after(lambda one, _, output: after(one, output))

        def end() -> None:
            first.remove()
            second.remove()

        return end

    def copied(self, model: Model, *, double: bool, training: bool | None = None) -> Model:
        """Return a copy with the same weights that can be run backward: in float64 if ``double``, in a mode if one is given."""
        ahead: dict[int, object] = {}
        if isinstance(model, self.base):
            kept = [one for _, layer in self.layers(model) for one in vars(layer).values()]
            # Layers have a dozen empty containers each, mostly for hooks; `copy.deepcopy` takes longer over them than over
            # a small layer's parameters.
            ahead = {id(one): type(one)() for one in kept if type(one) in (dict, set, OrderedDict) and not one}
            tensors: list[Tensor] = []  # perhaps of an earlier forward: `copy.deepcopy` refuses a graph's
            for value in kept:
                if type(value) not in PLAIN:
                    map_nested(tensors.append, value)
            ahead |= {id(one): one.detach().clone() for one in tensors if self.is_tensor(one) and not one.is_leaf}
            self._copy_ahead(model, ahead, double=double)
        made = copy.deepcopy(model, ahead)
        if training is not None:
            self.switch(made, training=training)
        self.framework.let_backward(made)
        return self.framework.widened(made) if double else made

    def switch(self, model: Model, *, training: bool) -> None:
        """Switch what is not in the mode, and what switches in its own way; every other layer keeps its mode."""
        raise NotImplementedError

    def _copy_ahead(self, model: Model, copies: dict[int, object], *, double: bool) -> None:
        """Add copies of a model's large parameters by their originals; see `_copied`."""
        raise NotImplementedError

    def let_take(self, parameter: Tensor, *, gradient: bool) -> None:
        """Let a parameter take a gradient, or not."""
        if hasattr(parameter, "stop_gradient"):  # Paddle's
            parameter.stop_gradient = not gradient
        else:
            parameter.requires_grad = gradient

    def steps(self, layer: Model) -> Steps | None:
        """Return those of a convolution of one group and without dilation that pads with zeros, alike at both ends; else None."""
        number: Literal[0, 1] = 0 if isinstance(self, TorchSide) else 1
        kind = kind_of(layer, number)
        read = {one.torch: one.readers[number](layer, None) for one in (kind.properties if kind else ())}
        channels_first = not channels_last(getattr(layer, "_data_format", ""))
        plain = read["groups"] == 1 and read["padding_mode"] in (UNTOLD, "zeros") and set(read["dilation"]) == {1}
        pads = read["padding"]
        if not (plain and channels_first) or pads == SAME or any(before != after for before, after in pads):
            return None
        return read["stride"], tuple(before for before, _ in pads)

    def in_turn(self, layers: Mapping[str, Model], first: Model, after: Sequence[Function]) -> Model:
        """Return a layer that holds some by name, calls the first of them, and then functions of one tensor."""

        def forward(_: Model, *args: Nested, **kwargs: Nested) -> Nested:
            return reduce(lambda made, one: one(made), after, first(*args, **kwargs))

        made = type("InTurn", (self.base,), {"forward": forward, "__module__": self.base.__module__})()
        made.training = first.training
        for name, layer in layers.items():
            setattr(made, name, layer)
        return made


class TorchSide(FrameworkSide):
    """torch."""

    name = "torch"
    ways = ("casts", "claims", "plain")

    def __init__(self, framework: TorchFramework | None = None) -> None:
        self.framework: TorchFramework = framework or TorchFramework()
        super().__init__(self.framework)
        self.torch = self.framework.torch
        self.base, self.functional = self.torch.nn.Module, self.torch.nn.functional

    def version(self, tensor: Tensor) -> int:
        """Return the tensor's version counter, which changes whenever it is written to."""
        return 0 if tensor.is_inference() else int(tensor._version)  # noqa: SLF001

    def switch(self, model: Model, *, training: bool) -> None:
        """Switch a module that is not in the mode, and modules that switch in their own way; every other layer keeps its mode."""
        own = [one for one in model.modules() if type(one).train is not self.torch.nn.Module.train]
        for one in ([model] if model.training != training else []) + own:
            one.train(training)

    def _copy_ahead(self, model: Model, copies: dict[int, object], *, double: bool) -> None:
        torch = self.torch
        for one in model.parameters():
            plain = type(one) is torch.nn.Parameter and one.dtype == torch.float32 and one.layout == torch.strided
            if plain and one.device.type == "cpu" and one.numel() >= LARGE:
                values = torch.from_numpy(_copied(one.detach().numpy(), double=double))
                copies[id(one)] = torch.nn.Parameter(values, requires_grad=one.requires_grad)

    def lay_aside(self, made: Model, model: Model) -> Callable[[object], None]:
        """Let a float64 copy's parameters be the model's own for a while; return a function that undoes it for a layer."""
        lent: dict[int, object] = {}
        for one, own in zip(made.parameters(), model.parameters(), strict=True):
            if one.shape == own.shape:
                lent[id(one)] = one.dtype
                one.data = own.data

        def take_up(layer: Model) -> None:
            for one in layer.parameters():
                if id(one) in lent:
                    one.data = one.data.to(lent.pop(id(one)), copy=True)

        return take_up

    def recording(self, *, gradient: bool) -> AbstractContextManager[object]:
        """Return ``torch.set_grad_enabled``: a context that records operations for backward, or not."""
        context: AbstractContextManager[object] = self.torch.set_grad_enabled(gradient)
        return context

    def hand_over(self, parameter: Tensor, take: Callable[[Array], None]) -> Callable[[], None]:
        """Let ``take`` have the gradient as soon as backward has it, and set ``grad`` to None; return a function that ends this."""

        def hand(one: Tensor) -> None:
            take(self.view(one.grad))
            one.grad = None

        end: Callable[[], None] = parameter.register_post_accumulate_grad_hook(hand).remove
        return end

    def products(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> None:
        """Run backward from the sum of the products: given cotangents, torch would import sympy, which takes a second."""
        real, dots = self.torch.view_as_real, []
        for one, given in zip(outputs, cotangents, strict=True):
            both = (one, given.to(one.dtype).expand_as(one))
            dots.append(self.torch.dot(*((real(each) if each.is_complex() else each).reshape(-1) for each in both)))
        sum(dots[1:], dots[0]).backward()


class PaddleSide(FrameworkSide):
    """paddle."""

    name = "paddle"

    def __init__(self, framework: PaddleFramework | None = None) -> None:
        self.framework: PaddleFramework = framework or PaddleFramework()
        super().__init__(self.framework)
        self.paddle = self.framework.paddle
        self.base, self.functional = self.paddle.nn.Layer, self.paddle.nn.functional

    def version(self, tensor: Tensor) -> int:
        """Return the tensor's version counter."""
        return int(tensor.inplace_version)

    def switch(self, model: Model, *, training: bool) -> None:
        """Switch a layer that is not in the mode, or that switches in its own way."""
        own = any(getattr(type(model), name) is not getattr(self.paddle.nn.Layer, name) for name in ("train", "eval"))
        if own or model.training != training:
            model.train() if training else model.eval()

    def _copy_ahead(self, model: Model, copies: dict[int, object], *, double: bool) -> None:
        paddle, kind = self.paddle, self.paddle.base.framework.EagerParamBase
        for layer in model.sublayers(include_self=True):  # what static graphs need: a name, and a record that is empty
            helper, recorder = layer._helper, layer._op_recorder  # noqa: SLF001
            if type(helper) is paddle.nn.layer.layers.LayerObjectHelper:
                copies[id(helper)] = helper
            if not recorder.ops and not recorder.hooks:
                copies[id(recorder)] = type(recorder)(ops=[], hooks=[])
        for one in model.parameters():
            plain = type(one) is kind and one.dtype == paddle.float32 and one.place.is_cpu_place()
            if plain and prod(one.shape) >= LARGE and one._is_initialized():  # noqa: SLF001
                state = copy.deepcopy(one.__dict__, copies)
                made = kind(
                    one.shape, one.dtype, **{**state, "name": one.name + paddle.utils.unique_name.generate("_deepcopy")}
                )
                values = paddle.from_dlpack(_copied(self.view(one), double=double))
                made.value().get_tensor()._share_data_nocheck_with(values.value().get_tensor())  # noqa: SLF001  (as `Layer.to` does)
                made.stop_gradient, made.persistable = one.stop_gradient, one.persistable
                copies[id(one)] = made

    def lay_aside(self, made: object, model: object) -> Callable[[object], None]:  # noqa: ARG002
        """Keep the values: Paddle's model runs last, so that nothing needs their memory."""
        return lambda _: None

    @contextmanager
    def recording(self, *, gradient: bool) -> Iterator[None]:
        """Record for backward or not, with a gradient of every image that is sampled where a grid takes one.

        Without one Paddle's kernel writes to no tensor, and the process dies (3.3.1).
        """
        operators = self.paddle._C_ops  # noqa: SLF001
        original = operators.grid_sample

        def grid_sample(x: Tensor, grid: Tensor, *args: object, **kwargs: object) -> object:
            if x.stop_gradient and not grid.stop_gradient:
                x = x.detach()
                x.stop_gradient = False
            return original(x, grid, *args, **kwargs)

        sampled = grid_sample if gradient else original
        with self.paddle.set_grad_enabled(gradient), attributes(operators, grid_sample=sampled):
            yield

    def hand_over(self, parameter: Tensor, take: Callable[[Array], None]) -> Callable[[], None]:
        """Register a hook that takes the gradient and sets ``grad`` to None; Paddle removes none: an ended one does nothing."""
        held: list[Callable[[], Tensor]] = [
            weakref.ref(parameter)
        ]  # Paddle's side of the hook would keep the parameter for good

        def hand() -> None:
            for one in held:
                tensor = one()
                take(self.view(tensor.grad))
                tensor.grad = None

        parameter._register_backward_hook(hand)  # noqa: SLF001
        return held.clear

    def products(self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> None:
        """Run ``paddle.autograd.backward``."""
        given = [one.astype(end.dtype) for end, one in zip(outputs, cotangents, strict=True)]
        self.paddle.autograd.backward(list(outputs), given)


LiveSide = TorchSide | PaddleSide


def side_of(framework: Framework) -> LiveSide:
    """Return the side of a framework that is loaded, alone in its process or not."""
    return TorchSide(framework) if isinstance(framework, TorchFramework) else PaddleSide(framework)


class Sides(NamedTuple):
    """The sides of torch's model and of Paddle's."""

    reference: LiveSide
    port: LiveSide


def _copied(array: Array, *, double: bool) -> Array:
    """Return a copy of a large array, in float64 if ``double``.

    numpy asks the system for large pages. Frameworks do not, and one that copies a model and then widens the copy touches
    three times as much memory: with many parameters that costs more than running the model.
    """
    return array.astype(np.float64 if double else array.dtype, copy=True)


def has_hooks(layer: Model) -> bool:
    """Tell whether a forward of the layer calls hooks."""
    names = ("_forward_pre_hooks", "_forward_hooks", "_forward_post_hooks")
    return any(getattr(layer, name, None) for name in names)


def name_alike(layer: Model, made: Model) -> None:
    """Give the parameters of a Paddle layer's copy the names that the layer's have: rules of optimizers read them."""
    for one, other in zip(layer.parameters(), made.parameters(), strict=True):
        other.name = one.name
