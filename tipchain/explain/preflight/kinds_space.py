"""Layers over axes of space: convolutions, pools, padding, resizing.

Sources: ``torch/nn/modules/{conv,pooling,padding,upsampling}.py``; ``paddle/nn/layer/{conv,pooling,common}.py`` and
``paddle/nn/functional/{conv,pooling,common}.py`` of Paddle 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor
from typing import Any

from tipchain.explain.preflight.table import (
    UNTOLD,
    LayerKind,
    Reader,
    Shape,
    Trait,
    bias_property,
    channels_last,
    given,
    held,
    kind,
    ntuple,
    paddle_pads,
    plain,
    space,
    write_pads,
    write_sizes,
)

LINEAR_MODES = ("linear", "bilinear", "trilinear")


def _sizes(axes: int, *names: str) -> Reader:
    return lambda layer, _shape: ntuple(held(layer, *names), axes)


def _convolution(axes: int, *, transposed: bool) -> LayerKind:
    name = f"Conv{'Transpose' if transposed else ''}{axes}d"
    padding = _torch_transposed_pads if transposed else _torch_pads
    properties = [
        Trait("kernel-size", "kernel_size", read=_sizes(axes, "_kernel_size", "kernel_size"), write=write_sizes),
        Trait("stride", "stride", read=_sizes(axes, "_stride", "stride"), write=write_sizes),
        Trait(
            "padding",
            "padding",
            kept=("padding", "_padding"),
            read=padding,
            read_paddle=_paddle_conv_pads,
            write=write_pads,
            sized=True,
        ),
        Trait(
            "dilation",
            "dilation",
            read=_torch_dilation,
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
    paddle = f"Conv{axes}D{'Transpose' if transposed else ''}"
    return kind(name, paddle, *properties)


def _torch_pads(layer: Any, _shape: Shape | None) -> Any:
    kernel, dilation = layer.kernel_size, layer.dilation
    if layer.padding == "valid":
        return ((0, 0),) * len(kernel)
    if layer.padding == "same":
        totals = [step * (length - 1) for length, step in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((one, one) for one in ntuple(layer.padding, len(kernel)))


def _torch_transposed_pads(layer: Any, _shape: Shape | None) -> Any:
    return tuple((one, one) for one in ntuple(layer.padding, len(layer.kernel_size)))


def _paddle_conv_pads(layer: Any, shape: Shape | None) -> Any:
    layout = layer._data_format  # noqa: SLF001
    kernel, stride = (tuple(plain(held(layer, name))) for name in ("_kernel_size", "_stride"))
    padding = layer._padding  # noqa: SLF001
    return paddle_pads(padding, kernel, stride, space(shape, layout), last=channels_last(layout))


def _torch_dilation(layer: Any, _shape: Shape | None) -> Any:
    return _reaching(ntuple(layer.dilation, len(layer.kernel_size)), layer.kernel_size)


def _paddle_dilation(layer: Any, _shape: Shape | None) -> Any:
    kernel = tuple(layer._kernel_size)  # noqa: SLF001
    padding = layer._padding  # noqa: SLF001
    same = isinstance(padding, str) and padding.upper() == "SAME"
    return (1,) * len(kernel) if same else _reaching(ntuple(layer._dilation, len(kernel)), kernel)  # noqa: SLF001


def _reaching(dilation: Any, kernel: Any) -> Any:
    """Return a dilation, 1 where the kernel has one element only."""
    return tuple(1 if length == 1 else step for step, length in zip(dilation, kernel, strict=True))


def _torch_mode(layer: Any, shape: Shape | None) -> Any:
    padded = any(one for pair in _torch_pads(layer, shape) for one in pair)
    return layer.padding_mode if padded else UNTOLD


def _paddle_mode(layer: Any, shape: Shape | None) -> Any:
    pads = _paddle_conv_pads(layer, shape)
    padded = isinstance(pads, str) or any(one for pair in pads for one in pair)
    return layer._padding_mode if padded else UNTOLD  # noqa: SLF001


def _pools(axes: int) -> Iterator[LayerKind]:
    """Yield the kinds of pools over so many axes."""
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
    ceil = Trait("ceil-mode", "ceil_mode", read=lambda layer, _: bool(layer.ceil_mode))
    yield kind(
        f"MaxPool{axes}d",
        f"MaxPool{axes}D",
        *padded,
        ceil,
        Trait(
            "dilation",
            "dilation",
            read=_sizes(axes, "dilation"),
            read_paddle=lambda _layer, _shape: (1,) * axes,
            lacking="take the largest of shifted slices: Paddle's pool has no dilation",
        ),
    )
    count: tuple[Trait, ...] = (
        Trait(
            "count-include-pad",
            "count_include_pad",
            "exclusive",
            read=_torch_counts,
            read_paddle=_paddle_counts,
            write=lambda value: not value,
        ),
    )
    if axes > 1:
        count += (Trait("divisor", "divisor_override", kept=("", "divisor"), read=lambda layer, _: _divisor(layer)),)
    yield kind(f"AvgPool{axes}d", f"AvgPool{axes}D", *padded, ceil, *count)
    if axes < 3:
        yield kind(f"LPPool{axes}d", f"LPPool{axes}D", *size, ceil, Trait("norm-type", "norm_type"))
    yield kind(f"MaxUnpool{axes}d", f"MaxUnPool{axes}D", *padded)
    for name in ("Avg", "Max"):
        output = Trait("output-size", "output_size", read=_adaptive_size(axes), write=_write_output)
        yield kind(f"Adaptive{name}Pool{axes}d", f"Adaptive{name}Pool{axes}D", output)


def _pool_stride(layer: Any, _shape: Shape | None) -> Any:
    kernel = plain(held(layer, "ksize", "kernel_size"))
    axes = len(kernel) if isinstance(kernel, tuple) else _axes_of_pool(layer)
    return ntuple(kernel if layer.stride is None else layer.stride, axes)


def _axes_of_pool(layer: Any) -> int:
    """Return over how many axes a pool runs: the number in the name of the framework's class."""
    for one in type(layer).__mro__:
        name = one.__name__.rstrip("dD")
        if "ool" in name and name[-1:].isdigit():
            return int(name[-1])
    raise AttributeError(f"{type(layer).__name__} is no pool")


def _torch_pool_pads(layer: Any, _shape: Shape | None) -> Any:
    return tuple((one, one) for one in ntuple(layer.padding, _axes_of_pool(layer)))


def _paddle_pool_pads(layer: Any, shape: Shape | None) -> Any:
    axes, layout = _axes_of_pool(layer), getattr(layer, "data_format", None)
    kernel = ntuple(held(layer, "ksize", "kernel_size"), axes)
    stride = kernel if layer.stride is None else ntuple(layer.stride, axes)
    return paddle_pads(layer.padding, kernel, stride, space(shape, layout), last=channels_last(layout))


def _torch_counts(layer: Any, shape: Shape | None) -> Any:
    """Tell whether padding counts in the average; with a divisor of its own torch does not count at all."""
    if not any(one for pair in _torch_pool_pads(layer, shape) for one in pair):
        return UNTOLD
    return bool(layer.count_include_pad) or bool(getattr(layer, "divisor_override", None))


def _paddle_counts(layer: Any, shape: Shape | None) -> Any:
    pads = _paddle_pool_pads(layer, shape)
    padded = isinstance(pads, str) or any(one for pair in pads for one in pair)
    return not layer.exclusive if padded else UNTOLD


def _divisor(layer: Any) -> Any:
    found = held(layer, "divisor_override", "divisor")
    return found or None


def _adaptive_size(axes: int) -> Reader:
    def read(layer: Any, shape: Shape | None) -> Any:
        sizes = ntuple(held(layer, "_output_size", "output_size"), axes)
        inputs = space(shape, getattr(layer, "_data_format", None))
        if inputs is None or len(inputs) != len(sizes):
            return sizes
        return tuple(given_ if one is None else one for one, given_ in zip(sizes, inputs, strict=True))

    return read


def _write_output(sizes: Any) -> Any:
    return sizes if None in sizes else write_sizes(sizes)


def _paddings(axes: int) -> LayerKind:
    names = ("Constant", "Reflection", "Replication", "Zero", "Circular")
    torch = tuple(f"{name}Pad{axes}d" for name in names)
    paddle = (f"Pad{axes}D", *(f"{name}Pad{axes}D" for name in names))
    return kind(
        f"Pad{axes}d",
        paddle,
        Trait("padding", "padding", read=_torch_edges, read_paddle=_paddle_edges(axes), write=list),
        Trait("padding-mode", "mode", read=_pad_mode, read_paddle=lambda layer, _: layer._mode),  # noqa: SLF001
        Trait("padding-value", "value", read=_pad_value),
        torch=torch,
    )


def _torch_edges(layer: Any, _shape: Shape | None) -> Any:
    return plain(layer.padding)


def _paddle_edges(axes: int) -> Reader:
    return lambda layer, _shape: ntuple(layer.padding, 2 * axes)


def _pad_mode(layer: Any, _shape: Shape | None) -> str:
    modes = {"Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
    names = [one.__name__ for one in type(layer).__mro__]
    return next((mode for name, mode in modes.items() if any(one.startswith(name) for one in names)), "constant")


def _pad_value(layer: Any, shape: Shape | None) -> Any:
    mode = layer._mode if hasattr(layer, "_mode") else _pad_mode(layer, shape)  # noqa: SLF001
    return plain(getattr(layer, "value", 0.0)) if mode == "constant" else UNTOLD


def _upsample() -> LayerKind:
    names = ("Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d")
    return kind(
        "Upsample",
        ("Upsample", "UpsamplingNearest2D", "UpsamplingBilinear2D"),
        Trait("output-size", "size", read=_target, write=lambda size: list(size) if isinstance(size, tuple) else size),
        Trait("scale-factor", "scale_factor", read=_scale, write=write_sizes),
        Trait("mode", "mode", read=lambda layer, _: _mode(layer)),
        Trait("align-corners", "align_corners", read=lambda layer, _: _corners(layer)),
        Trait(
            "align-mode", "align_mode", read=lambda _layer, _shape: 0, read_paddle=lambda layer, _: _align_mode(layer)
        ),
        torch=names,
    )


def _mode(layer: Any) -> str:
    by_name = {"Nearest": "nearest", "Bilinear": "bilinear"}
    names = [one.__name__ for one in type(layer).__mro__]
    found = (mode for word, mode in by_name.items() if any(one.startswith(f"Upsampling{word}") for one in names))
    return next(found, None) or str(layer.mode).lower()


def _corners(layer: Any) -> Any:
    mode = _mode(layer)
    if mode not in (*LINEAR_MODES, "bicubic"):
        return UNTOLD
    known = getattr(layer, "align_corners", None)
    bilinear = any(one.__name__.startswith("UpsamplingBilinear") for one in type(layer).__mro__)
    return True if bilinear else bool(known)


def _align_mode(layer: Any) -> Any:
    """Return Paddle's align_mode, which counts only in linear interpolation without aligned corners; torch's is 0."""
    return getattr(layer, "align_mode", 0) if _mode(layer) in LINEAR_MODES and not _corners(layer) else 0


def _target(layer: Any, shape: Shape | None) -> Any:
    """Return the sizes that come out, where they are known."""
    inputs = space(shape, getattr(layer, "data_format", None))
    if layer.size is not None:
        size = plain(layer.size)
        return ntuple(size, len(inputs)) if inputs is not None else size
    if inputs is None:
        return UNTOLD
    factors = ntuple(layer.scale_factor, len(inputs))
    return tuple(floor(size * factor) for size, factor in zip(inputs, factors, strict=True))


def _scale(layer: Any, shape: Shape | None) -> Any:
    """Return the factors by axis, where the sizes are not known and the layer has factors."""
    return UNTOLD if shape is not None else given(_one_for_all(plain(layer.scale_factor)))


def _one_for_all(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


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
    yield kind("Unfold", "", *shared)
    yield kind("Fold", "", output, *shared)


def _fold_sizes(name: str) -> Reader:
    def read(layer: Any, _shape: Shape | None) -> Any:
        sizes = ntuple(getattr(layer, name), 2)  # paddings may be top, left, bottom, right
        return sizes[:2] if len(sizes) == 4 and sizes[:2] == sizes[2:] else sizes

    return read


SPACE_KINDS = (
    *(_convolution(axes, transposed=transposed) for axes in (1, 2, 3) for transposed in (False, True)),
    *(one for axes in (1, 2, 3) for one in _pools(axes)),
    *(_paddings(axes) for axes in (1, 2, 3)),
    _upsample(),
    *_folds(),
    kind("PixelShuffle", "", Trait("factor", "upscale_factor")),
    kind("PixelUnshuffle", "", Trait("factor", "downscale_factor")),
    kind("ChannelShuffle", "", Trait("groups", "groups")),
)
"""Their kinds."""
