"""What makes two samples differ: layout, channel order, size, dtype, scale, mean and std, place, or just values.

Every cause is a hypothesis that is tried on the arrays: what should happen to the reference's sample if it held is
done to it, and the result is compared with the port's. It holds if nearly nothing of the difference is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import numpy as np

Array = Any
LEFT = 0.01
"""A cause holds if at most this share of the difference is left."""
NOISE = 1e-5
"""Differences below this share of the values are rounding."""
FEW = 5
"""Fewer numbers than this follow any rule."""
REACH = 3
"""Shifts of up to this many pixels are tried."""


def explain_sample(expected: Array, actual: Array) -> str:
    """Return in words what differs between two samples, each cause named first; "" where nothing does.

    Args:
        expected: the reference's sample: an image (channels first or last), a clip of them, or any other array.
        actual: the port's.
    """
    said = []
    if expected.dtype != actual.dtype:
        said.append(f"dtype: {expected.dtype} expected, {actual.dtype} actual")
    if any(one.dtype.kind not in "biuf" for one in (expected, actual)):
        return "; ".join(said)
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    said += _explain_shapes(e, a) if e.shape != a.shape else _explain_values(e, a)
    return "; ".join(said)


def _explain_shapes(expected: Array, actual: Array) -> list[str]:
    """Explain samples of different shapes."""
    shapes = f"{expected.shape} expected, {actual.shape} actual"
    if sorted(expected.shape) == sorted(actual.shape) and expected.ndim <= 5:
        turned = [
            axes
            for axes in permutations(range(expected.ndim))
            if expected.transpose(axes).shape == actual.shape
        ]
        found = [(_explain_values(expected.transpose(axes), actual), axes) for axes in turned]
        rest, axes = min(found, key=lambda one: (len(one[0]), one[0] and one[0][0].startswith("values")))
        return [f"layout: {shapes}{_order_of(expected.shape, axes)}", *rest]
    if [n for n in expected.shape if n > 1] == [n for n in actual.shape if n > 1]:
        return [
            f"layout: {shapes}: an axis of size 1",
            *_explain_values(expected.reshape(actual.shape), actual),
        ]
    if expected.ndim != actual.ndim:
        return [f"size: {shapes}: another number of axes"]
    channels = channel_axis(expected.shape), channel_axis(actual.shape)
    if None not in channels and channels[0] != channels[1]:
        return [f"layout and size: {shapes}"]
    if channels[0] is not None and expected.shape[channels[0]] != actual.shape[channels[0]]:
        return [f"size: {shapes}: another number of channels"]
    return [f"size: {shapes}"]


def _order_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """Return ": HWC in place of CHW" where that is what was done to the last three axes."""
    rest = len(shape) - 3
    if rest < 0 or axes[:rest] != tuple(range(rest)):
        return f": axes in the order {axes}"
    last = tuple(axis - rest for axis in axes[rest:])
    names = {(1, 2, 0): "HWC in place of CHW", (2, 0, 1): "CHW in place of HWC"}
    return f": {names[last]}" if last in names else f": axes in the order {axes}"


def _explain_values(expected: Array, actual: Array) -> list[str]:
    """Explain samples of one shape."""
    if np.isnan(expected).any() or np.isnan(actual).any():
        counts = [int(np.isnan(one).sum()) for one in (expected, actual)]
        same = np.array_equal(expected, actual, equal_nan=True)
        return [] if same else [f"values: {counts[0]} NaN expected, {counts[1]} actual"]
    raw = _size(expected - actual)
    noise = NOISE * max(_size(actual), _size(expected))
    if raw <= noise:
        return []
    causes = [] if expected.size < FEW else _find_causes(expected, actual, max(noise, LEFT * raw))
    return causes or [_describe(expected, actual)]


def _find_causes(expected: Array, actual: Array, bound: float) -> list[str]:
    """Return the first hypothesis that leaves at most ``bound`` of the difference, simple ones first."""
    for words, changed in _rearranged(expected):
        if _size(changed - actual) <= bound:
            return [words]
    affine = _explain_affine(expected, actual, bound)
    if affine:
        return [affine]
    for words, changed in _rearranged(expected):
        affine = _explain_affine(changed, actual, bound)
        if affine:
            return [words, affine]
    shift = _explain_shift(expected, actual, bound)
    return [shift] if shift else []


def _rearranged(expected: Array) -> Iterator[tuple[str, Array]]:
    """Yield the reference's sample with channels in another order, axes exchanged, or mirrored."""
    channels = channel_axis(expected.shape)
    if channels is not None and 1 < expected.shape[channels] <= 4:
        count = expected.shape[channels]
        for order in sorted(permutations(range(count)), key=lambda one: one != tuple(reversed(range(count)))):
            if order != tuple(range(count)):
                how = (
                    "reversed (RGB against BGR)"
                    if order == tuple(reversed(range(count)))
                    else f"in the order {order}"
                )
                yield (
                    f"channel order: {how}, axis {channels % expected.ndim}",
                    np.take(expected, order, axis=channels),
                )
    if 2 <= expected.ndim <= 5:
        for axes in permutations(range(expected.ndim)):
            if axes != tuple(range(expected.ndim)) and expected.transpose(axes).shape == expected.shape:
                yield f"layout: axes in the order {axes}{_swapped(axes, channels)}", expected.transpose(axes)
        high, wide = _plane(expected.shape)
        yield "values: mirrored left to right", np.flip(expected, axis=wide)
        yield "values: mirrored upside down", np.flip(expected, axis=high)
        yield "values: turned by half a turn", np.flip(expected, axis=(high, wide))


def _swapped(axes: tuple[int, ...], channels: int | None) -> str:
    """Return words where only height and width have changed places."""
    high, wide = _plane((3,) * len(axes)) if channels is None else ((-2, -1) if channels == -3 else (-3, -2))
    plain = list(range(len(axes)))
    plain[high], plain[wide] = plain[wide], plain[high]
    return " (height and width exchanged)" if axes == tuple(plain) else ""


def _explain_affine(expected: Array, actual: Array, bound: float) -> str:
    """Recognize ``actual = a * expected + b`` with one a and b, or with those of each channel."""
    factor, shift = _fit(expected.reshape(1, -1), actual.reshape(1, -1))
    if _size(factor[0] * expected + shift[0] - actual) <= bound:
        return _affine_words(factor, shift, _size(actual))
    axis = channel_axis(expected.shape)
    if axis is None or expected.shape[axis] < 2:
        return ""
    e, a = (np.moveaxis(one, axis, 0).reshape(expected.shape[axis], -1) for one in (expected, actual))
    factor, shift = _fit(e, a)
    if _size(factor[:, None] * e + shift[:, None] - a) > bound:
        return ""
    return _affine_words(factor, shift, _size(actual))


def _fit(expected: Array, actual: Array) -> tuple[Array, Array]:
    """Return a and b of each row with the least squares of ``a * expected + b - actual``; a is 1 where nothing tells."""
    centred = expected - expected.mean(axis=1, keepdims=True)
    spread = (centred**2).sum(axis=1)
    products = (centred * actual).sum(axis=1)
    factor = np.divide(products, spread, out=np.ones_like(spread), where=spread > 1e-20)
    return factor, actual.mean(axis=1) - factor * expected.mean(axis=1)


def _affine_words(factor: Array, shift: Array, size: float) -> str:
    if (np.abs(factor) < 1e-12).all():
        return "values: the same everywhere"
    alike = np.ptp(factor) <= 1e-3 * np.abs(factor).max()
    if alike and np.abs(shift).max() <= 1e-3 * size:
        scale = float(factor.mean())
        if abs(scale / 255 - 1) < 1e-3:
            return "scale: 255 times the reference's: is a division by 255 missing?"
        if abs(scale * 255 - 1) < 1e-3:
            return "scale: a 255th of the reference's: is it divided by 255 once too often?"
        return f"scale: {scale:.6g} times the reference's"
    if len(factor) == 1:
        pairs = f"{factor[0]:.4g} * expected {shift[0]:+.4g}"
    else:
        pairs = ", ".join(
            f"channel {n}: {a:.4g} * expected {b:+.4g}"
            for n, (a, b) in enumerate(zip(factor, shift, strict=True))
        )
    what = "mean" if np.abs(factor - 1).max() <= 1e-3 else "mean/std"
    return f"{what}: actual = {pairs}"


def _explain_shift(expected: Array, actual: Array, bound: float) -> str:
    """Recognize the same picture some pixels to the side, as another crop gives it."""
    if expected.ndim < 2:
        return ""
    high, wide = _plane(expected.shape)
    if min(expected.shape[high], expected.shape[wide]) <= 2 * REACH:
        return ""
    steps = range(-REACH, REACH + 1)
    for down, right in sorted(product(steps, repeat=2), key=lambda one: abs(one[0]) + abs(one[1])):
        e, a = _overlap(*_overlap(expected, actual, high, down), wide, right)
        if (down, right) != (0, 0) and _size(e - a) <= bound:
            moves = [_pixels(down, "down", "up"), _pixels(right, "to the right", "to the left")]
            return f"size: the same picture, {', '.join(filter(None, moves))}: is it another crop?"
    return ""


def _overlap(expected: Array, actual: Array, axis: int, shift: int) -> tuple[Array, Array]:
    """Return the parts of two arrays that show the same if the second is the first moved by ``shift``."""
    length = expected.shape[axis]
    places = np.arange(max(0, shift), length + min(0, shift))
    return np.take(expected, places - shift, axis=axis), np.take(actual, places, axis=axis)


def _pixels(count: int, plus: str, minus: str) -> str:
    return f"{abs(count)} px {plus if count > 0 else minus}" if count else ""


def _describe(expected: Array, actual: Array) -> str:
    """Say how much two arrays without a simple cause have in common."""
    difference = np.abs(expected - actual)
    worst = tuple(int(n) for n in np.unravel_index(int(difference.argmax()), difference.shape))
    said = f"{int((difference > NOISE * max(_size(actual), _size(expected))).sum())} of {difference.size} differ, "
    said += f"by {difference.mean():.3g} on average, most at {worst}: expected {expected[worst]:.6g}, actual {actual[worst]:.6g}"
    spread = expected.std() * actual.std()
    if spread > 0:
        alike = float(((expected - expected.mean()) * (actual - actual.mean())).mean() / spread)
        if alike > 0.9:
            return (
                f"values: {said}; alike (correlation {alike:.4f}): is it the interpolation or the decoding?"
            )
        return f"values: {said}; another picture (correlation {alike:.2f})"
    return f"values: {said}"


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return -3 or -1, the axis that has 1, 3 or 4 channels; None where there is none."""
    return next((axis for axis in (-3, -1) if len(shape) >= 3 and shape[axis] in (1, 3, 4)), None)


def _plane(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the axes of height and width."""
    return (-3, -2) if channel_axis(shape) == -1 else (-2, -1)


def _size(array: Array) -> float:
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0
