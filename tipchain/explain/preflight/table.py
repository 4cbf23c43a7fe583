"""What a layer, an optimizer or a schedule is made with, and how both frameworks write it; layers over axes of space."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from math import floor, isclose
from typing import Literal, NamedTuple

import numpy as np

from tipchain.explain.findings import Effect, Finding
from tipchain.framework_types import Model, Setting, Tensor
from tipchain.frameworks.live_models import takes_gradient
from tipchain.numbers.tolerance import SAME_SINGLE
from tipchain.weights.sides import RULES

Shape = tuple[int, ...]


class Untold:
    """A setting that does not matter in this layer, or cannot be told."""


UNTOLD = Untold()


class PairedLayers(NamedTuple):
    """Two layers that belong together."""

    reference_path: str
    reference: Model
    port_path: str
    port: Model
    shapes: tuple[Shape, Shape] | None = None

    def finding(
        self,
        code: str,
        values: tuple[str, str],
        message: str,
        fix: str,
        *,
        kind: Literal["argument", "flag"] = "argument",
        effect: Effect = "here",
    ) -> Finding:
        """Return a difference between them, given both ``values`` as the frameworks write them."""
        reference, port = values
        return Finding(
            code=code,
            kind=kind,
            reference_path=self.reference_path,
            port_path=self.port_path,
            reference=reference,
            port=port,
            message=message,
            fix=fix,
            effect=effect,
        )


Reader = Callable[[Model, Shape | None], Setting]
"""Gives a layer's setting as torch means it, for an input of a shape (None: not known), or `UNTOLD`."""


def _as_is(value: object) -> object:
    return value


@dataclass(frozen=True)
class Trait:
    """One setting of a layer, an optimizer or a schedule.

    It is kept as it is given, under its own name or one with an underscore, unless told otherwise.

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
    write: Callable[[Setting], Setting] = _as_is
    visible: bool = True
    sized: bool = False
    axis: bool = False
    slack: float = 0.0
    hint: str = ""
    lacking: str = ""
    measured: bool = False

    @property
    def argument(self) -> str:
        """What it is called in Paddle."""
        return self.paddle or self.torch

    @cached_property
    def arguments(self) -> tuple[str, str]:
        """What it is called in torch, and in Paddle."""
        return self.torch, self.argument

    @cached_property
    def attributes(self) -> tuple[tuple[str, ...], ...]:
        """What the layers keep it as; the first that a layer has."""
        pairs = zip(self.kept, self.arguments, strict=True)
        return tuple((*filter(None, (kept,)), name, f"_{name}") for kept, name in pairs)

    @cached_property
    def readers(self) -> tuple[Reader, Reader]:
        """Of both."""
        reference, port = (_attribute(names) for names in self.attributes)
        return self.read or reference, self.read_paddle or self.read or port


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


_STORED = {rule.kind: (rule.torch, rule.paddle) for rule in RULES}


def kind(name: str, *properties: Trait, torch: Sequence[str] = (), paddle: Sequence[str] = ()) -> LayerKind:
    """Return a kind; where no classes are given, those whose weights are stored as its name says, or called as it is."""
    ours, theirs = _STORED.get(name, ((name,), (re.sub(r"(\d)d$", r"\1D", name),)))
    return LayerKind(name=name, classes=(tuple(torch) or ours, tuple(paddle) or theirs), properties=properties)


def held(layer: object, *names: str) -> Setting:
    """Return the first of these attributes that a layer has."""
    for name in names:
        if hasattr(layer, name):
            return getattr(layer, name)
    raise AttributeError(f"{type(layer).__name__} has none of {', '.join(names)}")


def _attribute(names: Sequence[str]) -> Reader:
    return lambda layer, _shape: plain(held(layer, *names))


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


def kinds_by_class(kinds: Sequence[LayerKind], side: Literal[0, 1]) -> Mapping[str, LayerKind]:
    """Return the kinds by the names of one framework's classes."""
    return {name: one for one in kinds for name in one.classes[side]}


# Sizes and paddings in one form, whichever way a layer was given them.


Pads = tuple[tuple[int, int], ...]
"""What is added before and after, by axis of space."""
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


def axes_comparable(pair: PairedLayers, one: object, other: object) -> bool:
    """Tell whether two axes may be compared: the layouts are the same, and both count from the same end."""
    if pair.shapes is not None:
        ours, theirs = pair.shapes
        return ours == theirs
    return len({value < 0 for value in (one, other) if isinstance(value, int)}) < 2


# Whether a layer has a bias, or scales what it normalizes: what is fixed at 0 or 1 is as good as absent.


def is_fixed(tensor: Tensor, value: float) -> bool:
    """Tell whether a parameter takes no gradients and is ``value`` everywhere."""
    if takes_gradient(tensor):
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


def _has_own_bias(layer: object, shape: Shape | None) -> object:
    """Tell whether a normalization that scales also shifts."""
    return has_bias(layer, shape) if has_weight(layer, shape) else UNTOLD


def has_bias(layer: object, _shape: Shape | None) -> bool:
    """Tell whether a layer adds a bias that is not fixed at 0."""
    bias = getattr(layer, "bias", None)
    return bias is not None and not is_fixed(bias, 0.0)


def has_weight(layer: object, _shape: Shape | None) -> bool:
    """Tell whether a layer scales by a weight that is not fixed at 1."""
    weight = getattr(layer, "scale" if hasattr(layer, "scale") else "weight", None)
    return weight is not None and not is_fixed(weight, 1.0)


def write_presence(present: object) -> object:
    """Return what Paddle's ``*_attr`` must be: None makes a parameter, False makes none."""
    return None if (all(present) if isinstance(present, tuple) else present) else False


# Layers over axes of space: convolutions, pools, padding, resizing.
#
# Sources: ``torch/nn/modules/{conv,pooling,padding,upsampling}.py``; ``paddle/nn/layer/{conv,pooling,common}.py`` and
# ``paddle/nn/functional/{conv,pooling,common}.py`` of Paddle 3.3.


LINEAR_MODES = ("linear", "bilinear", "trilinear")
MODES = ("nearest", "bilinear", "bicubic", "linear", "trilinear", "area")


def _sizes(axes: int, *names: str) -> Reader:
    return lambda layer, _shape: ntuple(held(layer, *names), axes)


def _convolution(axes: int, *, transposed: bool) -> LayerKind:
    name = f"Conv{'Transpose' if transposed else ''}{axes}d"
    properties = [
        Trait("kernel-size", "kernel_size", read=_sizes(axes, "_kernel_size", "kernel_size"), write=write_sizes),
        Trait("stride", "stride", read=_sizes(axes, "_stride", "stride"), write=write_sizes),
        Trait("padding", "padding", read=_torch_pads, read_paddle=_paddle_conv_pads, write=write_pads, sized=True),
        Trait(
            "dilation",
            "dilation",
            read=lambda layer, _: _reaching(ntuple(layer.dilation, len(layer.kernel_size)), layer.kernel_size),
            read_paddle=_paddle_dilation,
            write=write_sizes,
            hint="and numbers as `padding`: with 'SAME' Paddle does not dilate",
        ),
        Trait("groups", "groups"),
        bias_property(),
    ]
    if transposed:
        properties.append(
            Trait("output-padding", "output_padding", read=_sizes(axes, "output_padding"), write=write_sizes)
        )
    else:
        properties.append(Trait("padding-mode", "padding_mode", read=_torch_mode, read_paddle=_paddle_mode))
    return kind(name, *properties, paddle=(f"Conv{axes}D{'Transpose' if transposed else ''}",))


def _torch_pads(layer: Model, _shape: Shape | None) -> Setting:
    kernel, dilation = layer.kernel_size, layer.dilation
    if layer.padding == "valid":
        return ((0, 0),) * len(kernel)
    if layer.padding == "same":
        totals = [step * (length - 1) for length, step in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((one, one) for one in ntuple(layer.padding, len(kernel)))


def _paddle_conv_pads(layer: Model, shape: Shape | None) -> Setting:
    layout = layer._data_format  # noqa: SLF001
    kernel, stride = (tuple(plain(held(layer, name))) for name in ("_kernel_size", "_stride"))
    padding = layer._padding  # noqa: SLF001
    return paddle_pads(padding, kernel, stride, space(shape, layout), last=channels_last(layout))


def _paddle_dilation(layer: Model, _shape: Shape | None) -> object:
    kernel = tuple(layer._kernel_size)  # noqa: SLF001
    padding = layer._padding  # noqa: SLF001
    same = isinstance(padding, str) and padding.upper() == "SAME"
    return (1,) * len(kernel) if same else _reaching(ntuple(layer._dilation, len(kernel)), kernel)  # noqa: SLF001


def _reaching(dilation: Setting, kernel: Setting) -> Setting:
    """Return a dilation, 1 where the kernel has one element only."""
    return tuple(1 if length == 1 else step for step, length in zip(dilation, kernel, strict=True))


def _torch_mode(layer: Model, shape: Shape | None) -> object:
    padded = any(one for pair in _torch_pads(layer, shape) for one in pair)
    return layer.padding_mode if padded else UNTOLD


def _paddle_mode(layer: Model, shape: Shape | None) -> Setting:
    pads = _paddle_conv_pads(layer, shape)
    padded = isinstance(pads, str) or any(one for pair in pads for one in pair)
    return layer._padding_mode if padded else UNTOLD  # noqa: SLF001


def _pools(axes: int) -> Iterator[LayerKind]:
    size = (
        Trait(
            "kernel-size",
            "kernel_size",
            kept=("", "ksize"),
            read=_sizes(axes, "ksize", "kernel_size"),
            write=write_sizes,
        ),
        Trait("stride", "stride", read=_pool_stride, write=write_sizes),
    )
    padded = (
        *size,
        Trait("padding", "padding", read=_torch_pool_pads, read_paddle=_paddle_pool_pads, write=write_pads, sized=True),
    )
    yield kind(
        f"MaxPool{axes}d",
        *padded,
        CEIL_MODE,
        Trait(
            "dilation",
            "dilation",
            read=_sizes(axes, "dilation"),
            read_paddle=lambda _layer, _shape: (1,) * axes,
            lacking="take the largest of shifted slices: Paddle's pool has no dilation",
        ),
    )
    yield kind(f"AvgPool{axes}d", *padded, CEIL_MODE, EXCLUSIVE, *([DIVISOR] if axes > 1 else []))
    if axes < 3:
        norm = Trait("norm-type", "norm_type")
        yield kind(f"LPPool{axes}d", *size, CEIL_MODE, norm)
    yield kind(f"MaxUnpool{axes}d", *padded, paddle=(f"MaxUnPool{axes}D",))
    for name in ("Avg", "Max"):
        output = Trait(
            "output-size",
            "output_size",
            read=_adaptive_size(axes),
            write=lambda sizes: sizes if None in sizes else write_sizes(sizes),
        )
        yield kind(f"Adaptive{name}Pool{axes}d", output)


def _pool_stride(layer: Model, _shape: Shape | None) -> object:
    kernel = plain(held(layer, "ksize", "kernel_size"))
    axes = len(kernel) if isinstance(kernel, tuple) else _axes_of_pool(layer)
    return ntuple(kernel if layer.stride is None else layer.stride, axes)


def _axes_of_pool(layer: object) -> int:
    """Return over how many axes a pool runs: the number in the name of the framework's class."""
    for one in type(layer).__mro__:
        name = one.__name__.rstrip("dD")
        if "ool" in name and name[-1:].isdigit():
            return int(name[-1])
    raise AttributeError(f"{type(layer).__name__} is no pool")


def _torch_pool_pads(layer: Model, _shape: Shape | None) -> Setting:
    return tuple((one, one) for one in ntuple(layer.padding, _axes_of_pool(layer)))


def _paddle_pool_pads(layer: Model, shape: Shape | None) -> Setting:
    axes, layout = _axes_of_pool(layer), getattr(layer, "data_format", None)
    kernel = ntuple(held(layer, "ksize", "kernel_size"), axes)
    stride = kernel if layer.stride is None else ntuple(layer.stride, axes)
    return paddle_pads(layer.padding, kernel, stride, space(shape, layout), last=channels_last(layout))


def _torch_counts(layer: Model, shape: Shape | None) -> object:
    """Tell whether padding counts in the average; with a divisor of its own torch does not count at all."""
    if not any(one for pair in _torch_pool_pads(layer, shape) for one in pair):
        return UNTOLD
    return bool(layer.count_include_pad) or bool(getattr(layer, "divisor_override", None))


def _paddle_counts(layer: Model, shape: Shape | None) -> Setting:
    pads = _paddle_pool_pads(layer, shape)
    padded = isinstance(pads, str) or any(one for pair in pads for one in pair)
    return not layer.exclusive if padded else UNTOLD


CEIL_MODE = Trait("ceil-mode", "ceil_mode", read=lambda layer, _: bool(layer.ceil_mode))
EXCLUSIVE = Trait(
    "exclusive",
    "count_include_pad",
    "exclusive",
    read=_torch_counts,
    read_paddle=_paddle_counts,
    write=lambda value: not value,
)
DIVISOR = Trait(
    "divisor",
    "divisor_override",
    kept=("", "divisor"),
    read=lambda layer, _: held(layer, "divisor_override", "divisor") or None,
)


def _adaptive_size(axes: int) -> Reader:
    def read(layer: object, shape: Shape | None) -> Setting:
        sizes = ntuple(held(layer, "_output_size", "output_size"), axes)
        inputs = space(shape, getattr(layer, "_data_format", None))
        if inputs is None or len(inputs) != len(sizes):
            return sizes
        return tuple(size if one is None else one for one, size in zip(sizes, inputs, strict=True))

    return read


def _paddings(axes: int) -> LayerKind:
    names = ("Constant", "Reflection", "Replication", "Zero", "Circular")
    return kind(
        f"Pad{axes}d",
        Trait(
            "padding",
            "padding",
            read=lambda layer, _: plain(layer.padding),
            read_paddle=lambda layer, _: ntuple(layer.padding, 2 * axes),
            write=list,
        ),
        Trait("padding-mode", "mode", read=_pad_mode, read_paddle=lambda layer, _: layer._mode),  # noqa: SLF001
        Trait("padding-value", "value", read=_pad_value),
        torch=tuple(f"{name}Pad{axes}d" for name in names),
        paddle=(f"Pad{axes}D", *(f"{name}Pad{axes}D" for name in names)),
    )


def _pad_mode(layer: object, _shape: Shape | None) -> str:
    modes = {"Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
    names = [one.__name__ for one in type(layer).__mro__]
    return next((mode for name, mode in modes.items() if any(one.startswith(name) for one in names)), "constant")


def _pad_value(layer: object, shape: Shape | None) -> object:
    mode = layer._mode if hasattr(layer, "_mode") else _pad_mode(layer, shape)  # noqa: SLF001
    return plain(getattr(layer, "value", 0.0)) if mode == "constant" else UNTOLD


def _upsample() -> LayerKind:
    return kind(
        "Upsample",
        Trait("align-corners", "align_corners", read=lambda layer, _: _corners(layer)),
        Trait("interpolation-mode", "mode", read=lambda layer, _: _mode(layer)),
        Trait(
            "align-mode", "align_mode", read=lambda _layer, _shape: 0, read_paddle=lambda layer, _: _align_mode(layer)
        ),
        Trait("output-size", "size", read=_target, write=lambda size: list(size) if isinstance(size, tuple) else size),
        Trait("scale-factor", "scale_factor", read=_scale, write=write_sizes),
        torch=("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"),
        paddle=("Upsample", "UpsamplingNearest2D", "UpsamplingBilinear2D"),
    )


def _mode(layer: Model) -> str:
    by_name = {"Nearest": "nearest", "Bilinear": "bilinear"}
    names = [one.__name__ for one in type(layer).__mro__]
    found = (mode for word, mode in by_name.items() if any(one.startswith(f"Upsampling{word}") for one in names))
    return next(found, None) or str(layer.mode).lower()


def _corners(layer: object) -> object:
    mode = _mode(layer)
    if mode not in (*LINEAR_MODES, "bicubic"):
        return UNTOLD
    known = getattr(layer, "align_corners", None)
    bilinear = any(one.__name__.startswith("UpsamplingBilinear") for one in type(layer).__mro__)
    return True if bilinear else bool(known)


def _align_mode(layer: object) -> object:
    """Return Paddle's align_mode, which counts only in linear interpolation without aligned corners; torch's is 0."""
    return getattr(layer, "align_mode", 0) if _mode(layer) in LINEAR_MODES and not _corners(layer) else 0


def _target(layer: Model, shape: Shape | None) -> object:
    """Return the sizes that come out, where they are known."""
    inputs = space(shape, getattr(layer, "data_format", None))
    if layer.size is not None:
        size = plain(layer.size)
        return ntuple(size, len(inputs)) if inputs is not None else size
    if inputs is None:
        return UNTOLD
    factors = ntuple(layer.scale_factor, len(inputs))
    return tuple(floor(size * factor) for size, factor in zip(inputs, factors, strict=True))


def _scale(layer: Model, shape: Shape | None) -> object:
    """Return the factors by axis, where the sizes are not known and the layer has factors."""
    value = plain(layer.scale_factor)
    single = isinstance(value, tuple) and len(set(value)) == 1
    return UNTOLD if shape is not None or value is None else value[0] if single else value


def _folds() -> Iterator[LayerKind]:
    names = (("kernel-size", "kernel_size"), ("dilation", "dilation"), ("padding", "padding"), ("stride", "stride"))
    shared: tuple[Trait, ...] = tuple(
        Trait(code, name, f"{name}s", read=_sizes(2, name), read_paddle=_fold_sizes(f"{name}s"), write=write_sizes)
        for code, name in names
    )
    output = Trait(
        "output-size",
        "output_size",
        "output_sizes",
        read=_sizes(2, "output_size"),
        read_paddle=_sizes(2, "output_sizes"),
        write=write_sizes,
    )
    yield kind("Unfold", *shared)
    yield kind("Fold", output, *shared)


def _fold_sizes(name: str) -> Reader:
    def read(layer: object, _shape: Shape | None) -> Setting:
        sizes = ntuple(getattr(layer, name), 2)  # paddings may be top, left, bottom, right
        return sizes[:2] if len(sizes) == 4 and sizes[:2] == sizes[2:] else sizes

    return read


SPACE_KINDS = (
    *(_convolution(axes, transposed=transposed) for axes in (1, 2, 3) for transposed in (False, True)),
    *(one for axes in (1, 2, 3) for one in _pools(axes)),
    *(_paddings(axes) for axes in (1, 2, 3)),
    _upsample(),
    *_folds(),
    kind("PixelShuffle", Trait("upscale-factor", "upscale_factor")),
    kind("PixelUnshuffle", Trait("downscale-factor", "downscale_factor")),
    kind("ChannelShuffle", Trait("groups", "groups")),
)
"""Their kinds."""
