"""The parts of a row of the table of layers, and readers of settings from layers of both frameworks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from math import isclose

import numpy as np

from tipchain.framework_types import Model, Setting, Tensor
from tipchain.numbers.tolerance import SAME_SINGLE

Shape = tuple[int, ...]


class Untold:
    """A setting that does not matter in this layer, or cannot be told."""


UNTOLD = Untold()


Reader = Callable[[Model, Shape | None], Setting]
"""Gives a layer's setting as torch means it, for an input of a shape (None: not known), or `UNTOLD`."""


def _as_is(value: object) -> object:
    return value


@dataclass(frozen=True)
class Trait:
    """One setting of a layer, an optimizer or a schedule.

    It is kept as it is given, under its own name or one with an underscore, unless told otherwise.

    Attributes:
        torch: what it is called in torch.
        paddle: in Paddle; as in torch if empty.
        named: the slug of a finding, where it is not torch's name.
        kept: what the layers keep it as, where that is called otherwise.
        form: puts what either layer keeps into one form.
        read: reads torch's layer, and Paddle's if ``read_paddle`` is None, where a form does not do.
        read_paddle: reads Paddle's.
        write: gives Paddle's spelling of a value as torch means it.
        formula: the same for an expression, ``{}``, whose value is not known.
        visible: it shows in the outputs; else only in training, or in what is kept for later.
        sized: it can be compared only where both were given tensors of the same sizes.
        axis: it is an axis, which can be compared only where both were given the same layout.
        slack: absolute difference of numbers that does not count.
        hint: what else there is to do where the arguments look alike.
        lacking: what to do where Paddle has no such argument.
        measured: whether it matters depends on the inputs, so that it is told and fails nothing by itself.
    """

    torch: str
    paddle: str = ""
    _: KW_ONLY
    named: str = ""
    kept: tuple[str, str] = ("", "")
    form: Callable[[Setting], Setting] = _as_is
    read: Reader | None = None
    read_paddle: Reader | None = None
    write: Callable[[Setting], Setting] = _as_is
    formula: str = ""
    visible: bool = True
    sized: bool = False
    axis: bool = False
    slack: float = 0.0
    hint: str = ""
    lacking: str = ""
    measured: bool = False

    @property
    def respelled(self) -> bool:
        """Whether Paddle spells a value otherwise."""
        return self.write is not _as_is

    @cached_property
    def code(self) -> str:
        """The slug of a finding."""
        return self.named or self.torch.replace("_", "-")

    @property
    def argument(self) -> str:
        """Its name in Paddle."""
        return self.paddle or self.torch

    @cached_property
    def arguments(self) -> tuple[str, str]:
        """Its names in torch and in Paddle."""
        return self.torch, self.argument

    @cached_property
    def attributes(self) -> tuple[tuple[str, ...], ...]:
        """The names of its attributes; the first that a layer has counts."""
        pairs = zip(self.kept, self.arguments, strict=True)
        return tuple((*filter(None, (kept,)), name, f"_{name}") for kept, name in pairs)

    @cached_property
    def readers(self) -> tuple[Reader, Reader]:
        """Of both."""
        reference, port = (partial(self._kept, names) for names in self.attributes)
        return self.read or reference, self.read_paddle or self.read or port

    def _kept(self, names: tuple[str, ...], layer: Model, shape: Shape | None) -> Setting:
        value = self.form(plain(held(layer, *names)))
        return axis_of(value, shape) if self.axis else value


OWN_KIND = "own"
"""Kind of tensors that a user's own class holds directly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How the tensors of a layer are kept in both frameworks.

    Attributes:
        kind: the name of layers that are stored alike, the same for both frameworks.
        transposed: torch's names of the matrices that Paddle stores transposed.
        renamed: Paddle's name by torch's, where they differ.
        dropped: torch's names of tensors that Paddle does not have.
        buffers: torch's names of buffers that Paddle keeps as parameters.
        children: Paddle's name of a layer inside by torch's, where they differ.
    """

    kind: str
    transposed: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    children: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one function: a row of the table.

    Attributes:
        name: torch's name of it.
        classes: names of the classes in ``torch.nn`` and in ``paddle.nn``; those that an installed version lacks are passed over.
        properties: what they are made with.
        storage: how their tensors are kept; None of layers without any.
        functions: names of the functions that compute the same, as ``paddle.nn.functional`` has them.
        family: layers of one family may stand for each other in a port that is wrong.
        by_mode: whether they do other things in train mode than in eval mode.
        inner: torch's names of the layers inside.
        compared: whether settings are compared one by one; else attributes of one name are.
        differs: what Paddle computes otherwise for equal settings, for the page of correspondences.
        attributes: Paddle's expression for torch's attribute of a layer, ``{}``, where it is no attribute of that meaning.
    """

    name: str
    classes: tuple[tuple[str, ...], tuple[str, ...]]
    properties: tuple[Trait, ...] = ()
    storage: Storage | None = None
    functions: tuple[str, ...] = ()
    family: str = ""
    by_mode: bool = False
    inner: tuple[str, ...] = ()
    compared: bool = True
    differs: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def drops(self) -> bool:
        """Whether they drop elements in train mode."""
        return self.family == "dropout" and self.by_mode


def row(
    name: str, *properties: Trait, torch: tuple[str, ...] = (), paddle: tuple[str, ...] = (), **facts: Setting
) -> LayerKind:
    """Return a row; where no classes are given, they are called as it is, Paddle's with a capital D."""
    classes = torch or (name,), paddle or (re.sub(r"(\d)d$", r"\1D", name),)
    return LayerKind(name=name, classes=classes, properties=properties, **facts)


def held(layer: object, *names: str) -> Setting:
    """Return the first of these attributes that a layer has."""
    for name in names:
        if hasattr(layer, name):
            return getattr(layer, name)
    raise AttributeError(f"{type(layer).__name__} has none of {', '.join(names)}")


def plain(value: Setting) -> Setting:
    """Return a setting as Python's own numbers, strings and tuples of them."""
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(type(value), "numpy"):  # a tensor, of either framework
        return plain(np.asarray(value.detach().cpu().numpy()).tolist())
    return value


def same(one: object, other: object, slack: float = 0.0) -> bool:
    """Tell whether two settings are the same, numbers up to float32's precision."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same(a, b, slack) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=SAME_SINGLE, abs_tol=slack)
    return bool(one == other)


def tidy(value: object) -> object:
    """Return a number without the noise of a subtraction: 0.9 for ``1 - 0.1``."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, tuple):
        return tuple(tidy(one) for one in value)
    return value


# Sizes and paddings in one form, whichever way a layer was given them.


Pads = tuple[tuple[int, int], ...]
"""Padding before and after, by axis of space."""
SAME = "same"


def ntuple(value: object, axes: int) -> Setting:
    """Return a number for each axis of space, given one for all or one for each."""
    value = plain(value)
    if isinstance(value, tuple):
        return value * axes if len(value) == 1 else value
    return (value,) * axes


def space(shape: Shape | None, layout: object) -> Shape | None:
    """Return the sizes of an input without batch and channels, given Paddle's data_format."""
    if shape is None or len(shape) < 3:
        return None
    return shape[1:-1] if channels_last(layout) else shape[2:]


def channels_last(layout: object) -> bool:
    """Tell whether a data_format of Paddle has the channels last."""
    return isinstance(layout, str) and len(layout) > 2 and layout.endswith("C")


def paddle_pads(padding: Setting, kernel: Shape, stride: Shape, sizes: Shape | None, *, last: bool) -> Pads | str:
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


def write_pads(pads: object) -> object:
    """Return a padding as Paddle is best given it."""
    if not isinstance(pads, tuple) or not all(isinstance(one, tuple) for one in pads):
        return pads
    if all(before == after for before, after in pads):
        return write_sizes(tuple(before for before, _ in pads))
    return [one for pair in pads for one in pair]


def write_sizes(sizes: object) -> Setting:
    """Return a tuple of sizes as one number where all are equal, else as a list."""
    if not isinstance(sizes, tuple):
        return sizes
    return sizes[0] if len(set(sizes)) == 1 else list(sizes)


def axis_of(axis: object, shape: Shape | None) -> object:
    """Return an axis counted from the front, where the rank is known."""
    if shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return axis
    return axis % len(shape)


# Whether a layer has a bias, or scales what it normalizes: what is fixed at 0 or 1 is as good as absent.


def takes_gradient(tensor: Tensor) -> bool:
    """Tell whether a tensor of either framework takes a gradient."""
    stops = getattr(tensor, "stop_gradient", None)  # Paddle's
    return bool(tensor.requires_grad) if stops is None else not stops


def is_fixed(tensor: Tensor, value: float) -> bool:
    """Tell whether a parameter takes no gradients and is ``value`` everywhere."""
    if takes_gradient(tensor):
        return False
    return bool((np.asarray(tensor.detach().cpu().numpy()) == value).all())


def bias_property() -> Trait:
    """Return the property of having a bias."""
    return Trait("bias", "bias_attr", read=has_bias, write=write_presence, formula=PRESENCE)


PRESENCE = "None if {} else False"
"""Paddle's ``*_attr`` of an expression that tells whether there is a parameter."""


def affine_properties(torch: str = "affine") -> tuple[Trait, ...]:
    """Return the properties of a normalization that may scale and shift; ``torch`` is torch's argument."""
    return (
        Trait(torch, "weight_attr, bias_attr", named="affine", read=has_weight, write=write_presence, formula=PRESENCE),
        Trait(
            "bias",
            "bias_attr",
            read=lambda layer, shape: has_bias(layer, shape) if has_weight(layer, shape) else UNTOLD,
            write=write_presence,
            formula=PRESENCE,
        ),
    )


def has_bias(layer: object, _shape: Shape | None) -> bool:
    """Tell whether a layer adds a bias that is not fixed at 0."""
    bias = getattr(layer, "bias", None)
    return bias is not None and not is_fixed(bias, 0.0)


def has_weight(layer: object, _shape: Shape | None) -> bool:
    """Tell whether a layer scales by a weight that is not fixed at 1."""
    weight = getattr(layer, "scale" if hasattr(layer, "scale") else "weight", None)
    return weight is not None and not is_fixed(weight, 1.0)


def write_presence(present: object) -> object:
    """Return the value of Paddle's ``*_attr``: None makes a parameter, False makes none."""
    return None if (all(present) if isinstance(present, tuple) else present) else False
