"""What a kind of layer is made with, and how both frameworks write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import isclose
from typing import Any, Literal, NamedTuple

import numpy as np

from tipchain.numbers.rounding import SAME_SINGLE

Framework = Literal["torch", "paddle"]
Shape = tuple[int, ...]


class Untold:
    """A setting that does not matter in this layer, or cannot be told."""


UNTOLD = Untold()


class PairedLayers(NamedTuple):
    """Two layers that belong together.

    Attributes:
        reference_path: where torch's stands in its model.
        reference: the ``torch.nn.Module``.
        port_path: where Paddle's stands.
        port: the ``paddle.nn.Layer``.
        shapes: of the first tensor that each was called with, where that is known.
    """

    reference_path: str
    reference: Any
    port_path: str
    port: Any
    shapes: tuple[Shape, Shape] | None = None


Reader = Callable[[Any, Shape | None], Any]
"""Gives a layer's setting as torch means it, for an input of a shape (None: not known), or `UNTOLD`."""


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Trait:
    """One setting of a kind of layer: kept as it is given, under its own name or one with an underscore, unless told otherwise.

    Attributes:
        code: the slug of a finding.
        torch: what it is called in torch.
        paddle: in Paddle; as in torch if empty.
        kept: what the layers keep it as, where that is called otherwise.
        read: reads torch's layer, and Paddle's if ``read_paddle`` is None.
        read_paddle: reads Paddle's.
        write: gives Paddle's spelling of a value as torch means it.
        visible: it shows in the outputs; else only in training, or in what is kept for later.
        sized: it can be compared only where both were given tensors of the same sizes.
        axis: it is an axis, which can be compared only where both were given the same layout.
        slack: absolute difference of numbers that does not count.
        hint: what else there is to do where the arguments look alike.
        lacking: what to do where Paddle has no such argument.
        measured: whether it matters depends on the inputs, so that it is told and fails nothing by itself.
    """

    code: str
    torch: str
    paddle: str = ""
    _: KW_ONLY
    kept: tuple[str, str] = ("", "")
    read: Reader | None = None
    read_paddle: Reader | None = None
    write: Callable[[Any], Any] = _as_is
    visible: bool = True
    sized: bool = False
    axis: bool = False
    slack: float = 0.0
    hint: str = ""
    lacking: str = ""
    measured: bool = False

    @cached_property
    def arguments(self) -> tuple[str, str]:
        """What it is called in torch, and in Paddle."""
        return self.torch, self.paddle or self.torch

    @cached_property
    def attributes(self) -> tuple[tuple[str, ...], ...]:
        """What the layers keep it as; the first that a layer has."""
        pairs = zip(self.kept, self.arguments, strict=True)
        return tuple((*filter(None, (kept,)), name, f"_{name}") for kept, name in pairs)

    @cached_property
    def readers(self) -> tuple[Reader, Reader]:
        """Of both."""
        plain_readers = [_attribute(names) for names in self.attributes]
        return self.read or plain_readers[0], self.read_paddle or self.read or plain_readers[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one function.

    Attributes:
        name: torch's name of it.
        classes: names of the classes in ``torch.nn`` and in ``paddle.nn``.
        properties: what they are made with.
    """

    name: str
    classes: tuple[tuple[str, ...], tuple[str, ...]]
    properties: tuple[Trait, ...] = ()


def kind(name: str, paddle: str | Sequence[str] = "", *properties: Trait, torch: Sequence[str] = ()) -> LayerKind:
    """Return a kind; the classes are called as it is where no others are given."""
    theirs = (paddle,) if isinstance(paddle, str) else tuple(paddle)
    return LayerKind(
        name=name, classes=(tuple(torch) or (name,), tuple(one or name for one in theirs)), properties=properties
    )


def held(layer: Any, *names: str) -> Any:
    """Return the first of these attributes that a layer has.

    Raises:
        AttributeError: it has none of them.
    """
    for name in names:
        if hasattr(layer, name):
            return getattr(layer, name)
    raise AttributeError(f"{type(layer).__name__} has none of {', '.join(names)}")


def _attribute(names: Sequence[str]) -> Reader:
    return lambda layer, _shape: plain(held(layer, *names))


def plain(value: Any) -> Any:
    """Return a setting as Python's own numbers, strings and tuples of them."""
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(type(value), "numpy"):  # a tensor, of either framework
        return plain(np.asarray(value.detach().cpu().numpy()).tolist())
    return value


def same(one: Any, other: Any, slack: float = 0.0) -> bool:
    """Tell whether two settings are the same, numbers up to float32's precision."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same(a, b, slack) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=SAME_SINGLE, abs_tol=slack)
    return bool(one == other)


def tidy(value: Any) -> Any:
    """Return a number without the noise of a subtraction: 0.9 for ``1 - 0.1``."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, tuple):
        return tuple(tidy(one) for one in value)
    return value


def kinds_by_class(kinds: Sequence[LayerKind], side: Literal[0, 1]) -> Mapping[str, LayerKind]:
    """Return the kinds by the names of one framework's classes."""
    return {name: one for one in kinds for name in one.classes[side]}


# Sizes and paddings in one form, whichever way a layer was given them.


Pads = tuple[tuple[int, int], ...]
"""What is added before and after, by axis of space."""
SAME = "same"


def ntuple(value: Any, axes: int) -> Any:
    """Return a number for each axis of space, given one for all or one for each."""
    value = plain(value)
    if isinstance(value, tuple):
        return value * axes if len(value) == 1 else value
    return (value,) * axes


def space(shape: Shape | None, layout: Any) -> Shape | None:
    """Return the sizes of an input without batch and channels, given Paddle's data_format."""
    if shape is None or len(shape) < 3:
        return None
    return shape[1:-1] if channels_last(layout) else shape[2:]


def channels_last(layout: Any) -> bool:
    """Tell whether a data_format of Paddle has the channels last."""
    return isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")


def paddle_pads(padding: Any, kernel: Shape, stride: Shape, sizes: Shape | None, *, last: bool) -> Pads | str:
    """Return the padding of a convolution or pool of Paddle; ``"same"`` where it depends on unknown sizes.

    ``padding="SAME"`` is TensorFlow's: as little as makes the output ``ceil(size / stride)``, the odd one after. A
    convolution's dilation then is 1, whatever was given. Source: ``UpdatePaddingAndDilation`` in
    ``paddle/phi/kernels/cpu/conv_util.h``, https://www.paddlepaddle.org.cn/documentation/docs/en/api/paddle/nn/Conv2D_en.html
    """
    axes = len(kernel)
    padding = plain(padding)
    if isinstance(padding, str):
        if padding.upper() == "VALID":
            return ((0, 0),) * axes
        if sizes is None and any(one != 1 for one in stride):
            return SAME
        given = sizes or kernel
        totals = [
            max((-(-size // step) - 1) * step + length - size, 0)
            for size, length, step in zip(given, kernel, stride, strict=True)
        ]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, tuple) and padding and isinstance(padding[0], tuple):
        return tuple(padding[1:-1] if last else padding[2:])
    if isinstance(padding, tuple) and len(padding) == 2 * axes:
        return tuple((padding[2 * axis], padding[2 * axis + 1]) for axis in range(axes))
    return tuple((one, one) for one in ntuple(padding, axes))


def write_pads(pads: Any) -> Any:
    """Return a padding as Paddle is best given it."""
    if not isinstance(pads, tuple) or not all(isinstance(one, tuple) for one in pads):
        return pads
    if all(before == after for before, after in pads):
        return write_sizes(tuple(before for before, _ in pads))
    return [one for pair in pads for one in pair]


def write_sizes(sizes: Any) -> Any:
    """Return a tuple of sizes as one number where all are equal, else as a list."""
    if not isinstance(sizes, tuple):
        return sizes
    return sizes[0] if len(set(sizes)) == 1 else list(sizes)


def axis_of(axis: Any, shape: Shape | None) -> Any:
    """Return an axis counted from the front, where the rank is known."""
    if shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return axis
    return axis % len(shape)


def axes_comparable(pair: PairedLayers, one: Any, other: Any) -> bool:
    """Tell whether two axes may be compared: the layouts are the same, and both count from the same end."""
    if pair.shapes is not None:
        return pair.shapes[0] == pair.shapes[1]
    signs = [value < 0 for value in (one, other) if isinstance(value, int)]
    return len(signs) < 2 or signs[0] == signs[1]


def given(value: Any) -> Any:
    """Return ``value``, or `UNTOLD` for None."""
    return UNTOLD if value is None else value


# Whether a layer has a bias, or scales what it normalizes: what is fixed at 0 or 1 is as good as absent.


def is_trained(tensor: Any) -> bool:
    """Tell whether a parameter of either framework takes gradients."""
    if hasattr(tensor, "stop_gradient"):
        return not tensor.stop_gradient
    return bool(tensor.requires_grad)


def is_fixed(tensor: Any, value: float) -> bool:
    """Tell whether a parameter takes no gradients and is ``value`` everywhere."""
    if is_trained(tensor):
        return False
    return bool((np.asarray(tensor.detach().cpu().numpy()) == value).all())


def bias_property() -> Trait:
    """Return the property of having a bias."""
    return Trait("bias", "bias", "bias_attr", read=has_bias, write=write_presence)


def affine_properties(torch: str = "affine") -> tuple[Trait, ...]:
    """Return the properties of a normalization that may scale and shift; ``torch`` is torch's argument."""
    return (
        Trait("affine", torch, "weight_attr, bias_attr", read=has_weight, write=write_presence),
        Trait("bias", "bias", "bias_attr", read=_has_own_bias, write=write_presence),
    )


def _has_own_bias(layer: Any, shape: Shape | None) -> Any:
    """Tell whether a normalization that scales also shifts."""
    return has_bias(layer, shape) if has_weight(layer, shape) else UNTOLD


def has_bias(layer: Any, _shape: Shape | None) -> bool:
    """Tell whether a layer adds a bias that is not fixed at 0."""
    bias = getattr(layer, "bias", None)
    return bias is not None and not is_fixed(bias, 0.0)


def has_weight(layer: Any, _shape: Shape | None) -> bool:
    """Tell whether a layer scales by a weight that is not fixed at 1."""
    weight = getattr(layer, "scale" if hasattr(layer, "scale") else "weight", None)
    return weight is not None and not is_fixed(weight, 1.0)


def write_presence(present: Any) -> Any:
    """Return what Paddle's ``*_attr`` must be: None makes a parameter, False makes none."""
    return None if (all(present) if isinstance(present, tuple) else present) else False
