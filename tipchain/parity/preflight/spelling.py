"""Sizes and paddings in one form, whichever way a layer was given them."""

from __future__ import annotations

from typing import Any

from tipchain.parity.preflight.table import UNTOLD, Pair, Shape, plain

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


def axes_comparable(pair: Pair, one: Any, other: Any) -> bool:
    """Tell whether two axes may be compared: the layouts are the same, and both count from the same end."""
    if pair.shapes is not None:
        return pair.shapes[0] == pair.shapes[1]
    signs = [value < 0 for value in (one, other) if isinstance(value, int)]
    return len(signs) < 2 or signs[0] == signs[1]


def given(value: Any) -> Any:
    """Return ``value``, or `UNTOLD` for None."""
    return UNTOLD if value is None else value
