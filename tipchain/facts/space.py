"""Layers over axes of space: convolutions, pools, padding, resizing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import floor

from tipchain.facts.settings import (
    UNTOLD,
    LayerKind,
    Reader,
    Shape,
    Storage,
    Trait,
    bias_property,
    channels_last,
    held,
    ntuple,
    paddle_pads,
    plain,
    row,
    space,
    write_pads,
    write_sizes,
)
from tipchain.framework_types import Model, Setting

# Sources: ``torch/nn/modules/{conv,pooling,padding,upsampling}.py``; ``paddle/nn/layer/{conv,pooling,common}.py`` and
# ``paddle/nn/functional/{conv,pooling,common}.py`` of Paddle 3.3.


LINEAR_MODES = ("linear", "bilinear", "trilinear")
UPSAMPLING = {"UpsamplingNearest": "nearest", "UpsamplingBilinear": "bilinear"}
PADDING = {"Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
CONV, CONV_TRANSPOSE = Storage(kind="Conv"), Storage(kind="ConvTranspose")


def _sizes(axes: int) -> Callable[[Setting], Setting]:
    return lambda value: UNTOLD if value is None else ntuple(value, axes)


def _convolution(axes: int, *, transposed: bool) -> LayerKind:
    name = f"Conv{'Transpose' if transposed else ''}{axes}d"
    properties = [
        Trait("kernel_size", form=_sizes(axes), write=write_sizes),
        Trait("stride", form=_sizes(axes), write=write_sizes),
        Trait("padding", read=_torch_pads, read_paddle=_paddle_conv_pads, write=write_pads, sized=True),
        Trait(
            "dilation",
            read=lambda layer, _: _reaching(ntuple(layer.dilation, len(layer.kernel_size)), layer.kernel_size),
            read_paddle=_paddle_dilation,
            write=write_sizes,
            hint="and numbers as `padding`: with 'SAME' Paddle does not dilate",
        ),
        Trait("groups"),
        bias_property(),
    ]
    if transposed:
        properties.append(Trait("output_padding", form=_sizes(axes), write=write_sizes))
    else:
        properties.append(Trait("padding_mode", read=_torch_mode, read_paddle=_paddle_mode))
    paddle, storage = f"Conv{axes}D{'Transpose' if transposed else ''}", CONV_TRANSPOSE if transposed else CONV
    return row(name, *properties, paddle=(paddle,), storage=storage)


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
    return layer.padding_mode if _padded(_torch_pads(layer, shape)) else UNTOLD


def _paddle_mode(layer: Model, shape: Shape | None) -> Setting:
    return layer._padding_mode if _padded(_paddle_conv_pads(layer, shape)) else UNTOLD  # noqa: SLF001


def _padded(pads: Setting) -> bool:
    """Tell whether anything is added, or may be."""
    return isinstance(pads, str) or any(map(any, pads))


def _pools(axes: int) -> Iterator[LayerKind]:
    size = (
        Trait("kernel_size", kept=("", "ksize"), form=_sizes(axes), write=write_sizes),
        Trait("stride", read=_pool_stride, write=write_sizes),
    )
    padded = (
        *size,
        Trait("padding", read=_torch_pool_pads, read_paddle=_paddle_pool_pads, write=write_pads, sized=True),
    )
    yield row(
        f"MaxPool{axes}d",
        *padded,
        CEIL_MODE,
        Trait(
            "dilation",
            form=_sizes(axes),
            read_paddle=lambda _layer, _shape: (1,) * axes,
            lacking="take the largest of shifted slices: Paddle's pool has no dilation",
        ),
        family="pool",
    )
    yield row(f"AvgPool{axes}d", *padded, CEIL_MODE, EXCLUSIVE, *([DIVISOR] if axes > 1 else []), family="pool")
    if axes < 3:
        norm = Trait("norm_type")
        yield row(f"LPPool{axes}d", *size, CEIL_MODE, norm, family="pool")
    if axes > 1:
        yield row(
            f"FractionalMaxPool{axes}d",
            Trait("output_size", form=_sizes(axes)),
            Trait("kernel_size", form=_sizes(axes)),
            family="pool",
        )
    yield row(f"MaxUnpool{axes}d", *padded, paddle=(f"MaxUnPool{axes}D",))
    for name in ("Avg", "Max"):
        output = Trait(
            "output_size", read=_adaptive_size(axes), write=lambda sizes: sizes if None in sizes else write_sizes(sizes)
        )
        yield row(f"Adaptive{name}Pool{axes}d", output, family="pool")


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
    if not _padded(_torch_pool_pads(layer, shape)):
        return UNTOLD
    return bool(layer.count_include_pad) or bool(getattr(layer, "divisor_override", None))


CEIL_MODE = Trait("ceil_mode", form=bool)
EXCLUSIVE = Trait(
    "count_include_pad",
    "exclusive",
    named="exclusive",
    read=_torch_counts,
    read_paddle=lambda layer, shape: not layer.exclusive if _padded(_paddle_pool_pads(layer, shape)) else UNTOLD,
    write=lambda value: not value,
)
DIVISOR = Trait("divisor_override", named="divisor", kept=("", "divisor"), form=lambda value: value or None)


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
    return row(
        f"Pad{axes}d",
        Trait("padding", form=_sizes(2 * axes), write=list),
        Trait("mode", named="padding-mode", read=_pad_mode, read_paddle=lambda layer, _: layer._mode),  # noqa: SLF001
        Trait("value", named="padding-value", read=_pad_value),
        torch=tuple(f"{name}Pad{axes}d" for name in names),
        paddle=tuple(f"{name}Pad{axes}D" for name in ("", *names)),
        family="pad",
    )


def _pad_mode(layer: object, _shape: Shape | None) -> str:
    return _by_class(layer, PADDING) or "constant"


def _by_class(layer: object, words: Mapping[str, str]) -> str:
    """Return the first word of those by the beginnings of classes' names that fits a layer's class or a base, else ""."""
    names = [one.__name__ for one in type(layer).__mro__]
    return next((word for start, word in words.items() if any(name.startswith(start) for name in names)), "")


def _pad_value(layer: object, shape: Shape | None) -> object:
    mode = layer._mode if hasattr(layer, "_mode") else _pad_mode(layer, shape)  # noqa: SLF001
    return plain(getattr(layer, "value", 0.0)) if mode == "constant" else UNTOLD


def _upsample() -> LayerKind:
    return row(
        "Upsample",
        Trait("align_corners", read=lambda layer, _: _corners(layer)),
        Trait("mode", named="interpolation-mode", read=lambda layer, _: _mode(layer)),
        Trait(
            "align_mode",  # counts only in linear interpolation without aligned corners; torch's is 0
            read=lambda _layer, _shape: 0,
            read_paddle=lambda layer, _: (
                layer.align_mode if _mode(layer) in LINEAR_MODES and not _corners(layer) else 0
            ),
        ),
        Trait(
            "size",
            named="output-size",
            read=_target,  # of what comes out, where that is known
            write=lambda size: list(size) if isinstance(size, tuple) else size,
        ),
        Trait("scale_factor", read=_scale, write=write_sizes),
        torch=("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"),
        paddle=("Upsample", "UpsamplingNearest2D", "UpsamplingBilinear2D"),
        family="resize",
    )


def _mode(layer: Model) -> str:
    return _by_class(layer, UPSAMPLING) or str(layer.mode).lower()


def _corners(layer: object) -> object:
    mode = _mode(layer)
    if mode not in (*LINEAR_MODES, "bicubic"):
        return UNTOLD
    return _by_class(layer, UPSAMPLING) == "bilinear" or bool(getattr(layer, "align_corners", None))


def _target(layer: Model, shape: Shape | None) -> object:
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


def _fold_sizes(value: Setting) -> Setting:
    sizes = ntuple(value, 2)  # paddings may be top, left, bottom, right
    return sizes[:2] if len(sizes) == 4 and sizes[:2] == sizes[2:] else sizes


FOLDED = [
    Trait(name, f"{name}s", form=_fold_sizes, write=write_sizes)
    for name in ("kernel_size", "dilation", "padding", "stride", "output_size")
]
"""Of Fold; Unfold has no sizes of an output."""
SPACE = (
    *(_convolution(axes, transposed=transposed) for axes in (1, 2, 3) for transposed in (False, True)),
    *(one for axes in (1, 2, 3) for one in _pools(axes)),
    *(_paddings(axes) for axes in (1, 2, 3)),
    _upsample(),
    row("Unfold", *FOLDED[:-1]),
    row("Fold", *FOLDED),
    row("PixelShuffle", Trait("upscale_factor"), family="resize"),
    row("PixelUnshuffle", Trait("downscale_factor"), family="resize"),
    row("ChannelShuffle", Trait("groups")),
)
