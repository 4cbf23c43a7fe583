"""What makes two finished images differ: layout, channel order, scale, mean and std, crop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np

from tipchain.explain.causes.data_pipeline import OPPOSITE, ROUNDED, moves_of, name_both
from tipchain.explain.causes.data_sources import (
    Arrays,
    DataCause,
    apart,
    apply,
    channel_axis,
    fit,
    overlap,
    plane,
    rounding,
    rows_of,
    shifts,
    size_of,
)
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import EXPLAINED, FEW, NOISE, REMAINDER, ROUGH, SAME_ENLARGED, TINY

# What makes images of different shapes differ: layout, an axis of size 1, another crop, another size.


def _turned(expected: Arrays, actual: Arrays) -> tuple[tuple[int, ...], list[DataCause]] | None:
    """Return the order of axes that makes all shapes alike and leaves least to explain, with what it leaves."""
    e = expected[0]
    if e.ndim > 5 or any(one.ndim != e.ndim for one in (*expected, *actual)):
        return None
    fitting = [
        axes
        for axes in permutations(range(e.ndim))
        if all(one.transpose(axes).shape == other.shape for one, other in zip(expected, actual, strict=True))
    ]
    if not fitting:
        return None
    found = [(_explain_values([one.transpose(axes) for one in expected], actual), axes) for axes in fitting]
    rest, axes = min(found, key=lambda one: (len(one[0]), bool(one[0]) and one[0][0].code == "unknown"))
    return axes, rest


def _order_of(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """Return ": HWC in place of CHW" where that is what was done to the last three axes."""
    rest = len(shape) - 3
    if rest < 0 or axes[:rest] != tuple(range(rest)):
        return f": axes in the order {axes}"
    last = tuple(axis - rest for axis in axes[rest:])
    names = {(1, 2, 0): "HWC in place of CHW", (2, 0, 1): "CHW in place of HWC"}
    return f": {names[last]}" if last in names else f": axes in the order {axes}"


def _size(e: Array, a: Array, shapes: str, expected: Arrays, actual: Arrays) -> DataCause:
    fix = "resize and crop to the reference's size"
    if e.ndim != a.ndim:
        return DataCause("size", f"size: {shapes}: another number of axes", fix)
    if e.ndim == 1:
        fix = f"cut or pad the port's samples to the reference's {len(e)} values"
        return DataCause("size", f"size: {shapes}", fix)
    axis, other = channel_axis(e.shape), channel_axis(a.shape)
    if axis is not None and other is not None and axis != other:
        return DataCause("size", f"layout and size: {shapes}", fix)
    if axis is not None and e.shape[axis] != a.shape[axis]:
        return DataCause(
            "channels",
            f"size: {shapes}: another number of channels",
            "convert images to the reference's mode (RGB or grey) as they are read",
        )
    if cropped := _cropped(shapes, expected, actual):
        return cropped
    # One of the sizes keeps the shape of the image, and the other does not.
    high, wide = plane(e.shape)
    wanted, found = ((one.shape[high], one.shape[wide]) for one in (e, a))
    short, square = min(wanted), len(set(found)) == 1
    if (len(set(wanted)) == 1) is not square and short == min(found):
        kept, exact = ("reference", "port") if square else ("port", "reference")
        words = f"size: {shapes}: the {kept} resizes the short side to {short}, the {exact} both sides"
        ours = f"Resize({short})" if square else f"Resize({wanted})"
        return DataCause("resize-size", words, f"resize as the reference does: {ours}")
    return DataCause("size", f"size: {shapes}", fix)


def _cropped(shapes: str, expected: Arrays, actual: Arrays) -> DataCause | None:
    """Recognize images of which one is the middle of the other."""
    high, wide = plane(expected[0].shape)
    cut = []
    for one, other in zip(expected, actual, strict=True):
        gaps = [one.shape[axis] - other.shape[axis] for axis in (high, wide)]
        if min(gaps) < 0 < max(gaps):
            return None
        large, small = (one, other) if max(gaps) > 0 else (other, one)
        for axis, gap in zip((high, wide), map(abs, gaps), strict=True):
            begin = gap // 2
            place = [slice(None)] * large.ndim
            place[axis % large.ndim] = slice(begin, large.shape[axis] - gap + begin)
            large = large[tuple(place)]
        cut.append((large, small))
    larges, smalls = [one for one, _ in cut], [one for _, one in cut]
    if apart(larges, smalls) > rounding(larges, smalls):
        return None
    return DataCause(
        "crop-size", f"size: {shapes}: one is the middle of the other", "crop to the reference's size", explained=1.0
    )


# Hypotheses about the values of images of one shape: scale, mean and std, whole numbers, a narrower type.


BYTE = 255.0
"""The largest value of a byte."""
REVERSED = "normalization-order"
"""The code of mean and std that stand in the opposite order of channels."""


def value_steps(
    expected: Arrays, actual: Arrays, bound: float, *, affine_only: bool = False
) -> Iterator[tuple[DataCause, float]]:
    """Yield what may have been done to the values, with the root mean square that it leaves.

    Args:
        expected: the reference's arrays.
        actual: the port's, of equal shapes.
        bound: what leaves more is none.
        affine_only: leave out what only the values themselves show.
    """
    if any(one.shape != other.shape for one, other in zip(expected, actual, strict=True)):
        return
    if not affine_only:
        yield from (one for one in _rounded(expected, actual) if one[1] <= bound)
    e, a = rows_of(expected, None), rows_of(actual, None)
    factor, shift = fit(e, a)
    left = apart([factor[0] * e + shift[0]], [a])
    if left <= bound:
        yield _affine(factor, shift, a, channels=0), left
    axes = {channel_axis(one.shape) for one in expected}
    axis = axes.pop() if len(axes) == 1 else None
    if axis is None or len({one.shape[axis] for one in expected}) != 1 or expected[0].shape[axis] < 2:
        return
    e, a = rows_of(expected, axis), rows_of(actual, axis)
    factor, shift = fit(e, a)
    moved = [apply(one, axis, factor, shift) for one in expected]
    left = apart(moved, actual)
    if left <= bound:
        yield _affine(factor, shift, a, channels=len(factor)), left


def _rounded(expected: Arrays, actual: Arrays) -> Iterator[tuple[DataCause, float]]:
    whole = all((one == np.rint(one)).all() for one in actual)
    levels = "divide by 255 and normalize in floating point; convert to uint8 only what is in 0..255"
    if whole:
        for name, change in (("rounds", np.rint), ("cuts", np.trunc), ("rounds down", np.floor)):
            cause = DataCause("dtype", f"dtype: the port {name} to whole numbers", levels)
            yield cause, apart([change(one) for one in expected], actual)
        if all((one >= 0).all() and (one <= BYTE).all() for one in actual):
            for change in (np.trunc, np.floor, np.rint):
                cause = DataCause(
                    "uint8-overflow",
                    "dtype: the port's values wrap around in uint8 (modulo 256)",
                    "convert to float32 before arithmetic: uint8 wraps around at 256",
                )
                yield cause, apart([change(one) % 256 for one in expected], actual)
    (least, most), (low, high) = _ends(expected), _ends(actual)
    if low < high and (least < low or most > high):
        cause = DataCause(
            "clipped",
            f"values: the port clips them to {low:.4g}..{high:.4g}",
            "do not clip what the reference does not",
        )
        yield cause, apart([one.clip(low, high) for one in expected], actual)
    half = [one.astype(np.float16).astype(np.float64) for one in expected] if max(-least, most) < 6e4 else None
    if half is not None:
        cause = DataCause("dtype", "dtype: the port's values went through float16", "keep the image in float32")
        yield cause, apart(half, actual)


def _ends(arrays: Arrays) -> tuple[float, float]:
    return min(float(one.min()) for one in arrays), max(float(one.max()) for one in arrays)


def _affine(factor: Array, shift: Array, actual: Array, channels: int) -> DataCause:
    """Return the cause of ``actual = factor * expected + shift``."""
    spread = size_of([actual])
    if (np.abs(factor) < NOISE).all():
        return DataCause("constant", "values: the same everywhere", "the port's image is empty: look where it is read")
    alike = bool(np.ptp(factor) <= ROUGH * np.abs(factor).max())
    if alike and np.abs(shift).max() <= ROUGH * spread:
        return _scale(float(factor.mean()))
    if alike and channels <= 1 and abs(factor[0] + 1) < ROUGH:
        return DataCause(
            "inverted",
            f"values: inverted: actual = {shift[0]:.4g} - expected",
            "remove the inversion (white is the largest value)",
        )
    each = 3 if channels == 0 else channels
    both = name_both(np.resize(factor, each), np.resize(shift, each), spread)
    named, fix, odd, told, turned = "", "normalize with the reference's mean and std", True, False, False
    if both is not None:
        reference, port = both
        named = f": the reference's normalization is {reference.name}, the port's {port.name}"
        fix = _fix(reference.mean, reference.std, reference.name)
        odd = max(reference.rank, port.rank) > 0
        told = port.name.endswith(("of pixels in 0..255", "divided by 255 twice"))
        turned = {reference.name, port.name} == {reference.plain, f"{reference.plain}{OPPOSITE}"}
    kept = next((one for one in (BYTE, 1 / BYTE) if np.abs(factor / one - 1).max() < ROUGH), 0.0)
    if kept and odd:
        if not told:
            how = "a division by 255 missing" if kept > 1 else "it divided by 255 twice"
            named = f": is {how} before the normalization?"
        return DataCause("scale", _line(factor, shift) + named, "divide by 255 once, before the normalization")
    if turned:
        fix = "give mean and std in the order of the image's channels"
        return DataCause(REVERSED, _line(factor, shift) + named, fix)
    return DataCause("normalization", _line(factor, shift) + named, fix)


def _scale(scale: float) -> DataCause:
    fix = "scale the image as the reference does"
    words = f"scale: {scale:.6g} times the reference's"
    if abs(scale / BYTE - 1) < ROUGH:
        words, fix = ("scale: 255 times the reference's: is a division by 255 missing?", "divide the image by 255")
    elif abs(scale * BYTE - 1) < ROUGH:
        words = "scale: a 255th of the reference's: is it divided by 255 once too often?"
        fix = "divide the image by 255 once only: ToTensor does it too"
    return DataCause("scale", words, fix)


def _line(factor: Array, shift: Array) -> str:
    if len(factor) == 1:
        pairs = f"{factor[0]:.4g} * expected {shift[0]:+.4g}"
    else:
        pairs = ", ".join(
            f"channel {n}: {a:.4g} * expected {b:+.4g}" for n, (a, b) in enumerate(zip(factor, shift, strict=True))
        )
    return f"{'mean' if np.abs(factor - 1).max() <= ROUGH else 'mean/std'}: actual = {pairs}"


def _fix(mean: Array, std: Array, name: str) -> str:
    if name.startswith("none"):
        return "remove the port's normalization: the reference has none"
    means, stds = (", ".join(f"{one:.4g}" for one in values) for values in (mean, std))
    return f"pass mean=[{means}], std=[{stds}] (of pixels in 0..1) to the port's Normalize"


# What makes two finished images differ: layout, channel order, scale, mean and std, dtype, place, padding.
#
# Every cause is a hypothesis: what should happen to the reference's images if it held is done to them, and the result is
# compared with the port's. One that leaves rounding alone is taken before one that leaves up to a hundredth.


LEFT = 1 - EXPLAINED
"""A cause holds if at most this share of the difference is left."""
MOST_COMPARED = 1 << 24
"""Differences that are made at most to find an order."""
MOST_SLICES = 64
"""Places along an axis up to which their order is looked at: channels, coordinates and features, not pixels."""
ALIKE = 0.9
"""Correlation from which on two images show the same: it leaves a fifth of the variance, which interpolation and decoding may make."""
Change = Callable[[Array], Array]


def explain_images(expected: Arrays, actual: Arrays) -> list[DataCause]:
    """Return what makes the port's images of the reference's, in the order in which it is done; nothing if nothing does.

    Args:
        expected: the reference's images (channels first or last, or clips of them), or any other arrays of numbers.
        actual: the port's, as many.

    Returns:
        One cause, or several that only together explain at least 99 % of the difference; one of code ``unknown`` where
        none do.
    """
    es, acts = [one.astype(np.float64) for one in expected], [one.astype(np.float64) for one in actual]
    if any(one.shape != other.shape for one, other in zip(es, acts, strict=True)):
        e, a = next(pair for pair in zip(es, acts, strict=True) if pair[0].shape != pair[1].shape)
        shapes = f"{e.shape} expected, {a.shape} actual"
        turned = _turned(es, acts)
        if turned is not None:
            axes, rest = turned
            if rest and rest[0].code == "unknown" and axes == tuple(range(e.ndim)):
                return rest
            told = _order_of(e.shape, axes)
            fix = f"transpose the port's image by {tuple(axes.index(axis) for axis in range(len(axes)))}: {a.shape} becomes {e.shape}"
        elif all(
            [n for n in one.shape if n > 1] == [n for n in other.shape if n > 1]
            for one, other in zip(es, acts, strict=True)
        ):
            rest = _explain_values([one.reshape(other.shape) for one, other in zip(es, acts, strict=True)], acts)
            told, fix = ": an axis of size 1", f"reshape the port's to {e.shape}"
        else:
            return [_size(e, a, shapes, es, acts)]
        explained = 1.0 if not rest else rest[-1].explained
        return [DataCause("layout", f"layout: {shapes}{told}", fix, explained=explained), *rest]
    return _explain_values(es, acts)


def _explain_values(expected: Arrays, actual: Arrays) -> list[DataCause]:
    if any(np.isnan(one).any() for one in (*expected, *actual)):
        if all(np.array_equal(one, other, equal_nan=True) for one, other in zip(expected, actual, strict=True)):
            return []
        ours, theirs = (sum(int(np.isnan(one).sum()) for one in side) for side in (expected, actual))
        return [
            DataCause(
                "nan",
                f"values: {ours} NaN expected, {theirs} actual",
                "look for a division by zero: a standard deviation of 0, an empty crop",
            )
        ]
    raw, noise = apart(expected, actual), rounding(expected, actual)
    if raw <= noise:
        return []
    found = _search(expected, actual, raw, noise) if sum(one.size for one in expected) >= FEW else []
    return found or [_unknown(expected, actual)]


def _search(expected: Arrays, actual: Arrays, raw: float, noise: float) -> list[DataCause]:
    """Return the first hypothesis that leaves rounding alone, else the first that leaves at most a hundredth."""
    good: list[DataCause] = []
    for causes, left in _hypotheses(expected, actual, max(noise, LEFT * raw)):
        exact = left <= max(noise, REMAINDER * raw)
        if exact or (not good and left <= LEFT * raw):
            good = [replace(one, explained=min(1.0, 1 - left / raw)) for one in causes]
        if exact:
            break
    return good


def _hypotheses(expected: Arrays, actual: Arrays, bound: float) -> Iterator[tuple[tuple[DataCause, ...], float]]:
    """Yield causes with the difference that they leave, simple ones first."""
    turned = list(_rearranged(expected, actual))
    for turn, images in turned:
        yield (turn,), apart(images, actual)
    for cause, left in value_steps(expected, actual, bound):
        yield (cause,), left
    for turn, images in turned:
        for cause, left in value_steps(images, actual, bound):
            if turn.code != "channel-order":
                yield (turn, cause), left
            elif cause.code == REVERSED:
                # Constants that stay where they were while the channels change places are no fault of their own.
                yield (replace(turn, message=f"{turn.message}, before the normalization"),), left
            else:
                # Of images with exchanged channels the constants are named as they stand, not as they were exchanged.
                yield (turn, replace(cause, message=cause.message.replace(OPPOSITE, ""))), left
    yield from _moved(expected, actual, bound, (), near=True)
    yield from _padded(expected, actual)
    for turn, images in turned:
        yield from _moved(images, actual, bound, (turn,), near=False)


def _rearranged(expected: Arrays, actual: Arrays) -> Iterator[tuple[DataCause, Arrays]]:
    """Yield images with channels in another order, axes exchanged, or mirrored."""
    first = expected[0]
    if any(one.ndim != first.ndim for one in expected):
        return
    channels = channel_axis(first.shape)
    if channels is not None and 1 < first.shape[channels] <= 4:
        count = first.shape[channels]
        backwards = tuple(reversed(range(count)))
        for order in sorted(permutations(range(count)), key=lambda one: one != backwards):
            if order == tuple(range(count)):
                continue
            how = "reversed (RGB against BGR)" if order == backwards else f"in the order {order}"
            yield _step(
                "channel-order",
                f"channel order: {how}, axis {channels % first.ndim}",
                "read images in the reference's order of channels: `image[..., ::-1]`, or convert BGR to RGB"
                if order == backwards
                else f"put the channels in the reference's order: undo {order}",
                expected,
                partial(np.take, indices=order, axis=channels),
            )
    if not 2 <= first.ndim <= 5:
        return
    high, wide = plane(first.shape)
    for axes in permutations(range(first.ndim)):
        if axes != tuple(range(first.ndim)) and all(one.transpose(axes).shape == one.shape for one in expected):
            plain = list(range(first.ndim))
            plain[high], plain[wide] = plain[wide], plain[high]
            swapped = " (height and width exchanged)" if axes == tuple(plain) else ""
            yield _step(
                "height-width" if swapped else "layout",
                f"layout: axes in the order {axes}{swapped}",
                "exchange height and width back: (h, w), not (w, h)" if swapped else "transpose the image back",
                expected,
                partial(np.transpose, axes=axes),
            )
    for words, sides in (
        ("mirrored left to right", (wide,)),
        ("mirrored upside down", (high,)),
        ("turned by half a turn", (high, wide)),
    ):
        yield _step(
            "flip",
            f"values: {words}",
            "remove the flip (or its probability of 1) from the port's transforms",
            expected,
            partial(np.flip, axis=sides),
        )
    yield from _permuted(expected, actual)


def _permuted(expected: Arrays, actual: Arrays) -> Iterator[tuple[DataCause, Arrays]]:
    """Yield arrays with what stands along one axis in the order in which the port has it, as the first sample tells."""
    first, other = expected[0], actual[0]
    for axis, count in enumerate(first.shape if first.shape == other.shape else ()):
        if (
            not 1 < count <= MOST_SLICES
            or first.size * count > MOST_COMPARED
            or any(one.shape[axis] != count for one in expected)
        ):
            continue
        ours, theirs = (np.moveaxis(one, axis, 0).reshape(count, -1) for one in (first, other))
        apart = np.abs(theirs[:, None] - ours[None]).max(axis=2)
        order = tuple(int(one) for one in apart.argmin(axis=1))
        near = apart.min(axis=1) <= SAME_ENLARGED * max(float(np.abs(ours).max()), TINY)
        if near.all() and sorted(order) == list(range(count)) != list(order):
            yield _step(
                "axis-permutation",
                f"the values along axis {axis} stand in another order: {list(order)} of the reference's",
                f"put axis {axis} in the reference's order: undo {list(order)}",
                expected,
                partial(np.take, indices=order, axis=axis),
            )


def _step(code: str, message: str, fix: str, expected: Arrays, change: Change) -> tuple[DataCause, Arrays]:
    return DataCause(code, message, fix), [change(one) for one in expected]


def _moved(
    expected: Arrays, actual: Arrays, bound: float, before: tuple[DataCause, ...], *, near: bool
) -> Iterator[tuple[tuple[DataCause, ...], float]]:
    """Yield the same pictures some pixels to the side, as another crop gives them, also normalized otherwise."""
    if expected[0].ndim < 2 or any(one.shape != other.shape for one, other in zip(expected, actual, strict=True)):
        return
    for down, right in shifts(expected[0], actual[0], near=near):
        if any(min(one.shape[axis] for axis in plane(one.shape)) <= 2 * max(abs(down), abs(right)) for one in expected):
            continue
        parts = [overlap(one, other, down, right) for one, other in zip(expected, actual, strict=True)]
        es, acts = [one for one, _ in parts], [other for _, other in parts]
        small = max(abs(down), abs(right)) == 1
        crop = DataCause(
            "crop-offset",
            f"size: the same picture, {moves_of(down, right)}: is it another crop?",
            ROUNDED
            if small
            else "cut the same part as the reference: centre crop or top left, from an image resized alike",
        )
        # What the crops do not share cannot be predicted; the rest stands for the whole.
        yield (*before, crop), apart(es, acts)
        for cause, left in value_steps(es, acts, bound, affine_only=True):
            yield (*before, crop, cause), left


MODES = ("edge", "reflect", "symmetric")


def _padded(expected: Arrays, actual: Arrays) -> Iterator[tuple[tuple[DataCause, ...], float]]:
    """Yield images that differ in a frame only, which the port fills otherwise."""
    frames = {_frame(one, other) for one, other in zip(expected, actual, strict=True)}
    frame = frames.pop() if len(frames) == 1 else None
    if frame is None:
        return
    filling, port_filling = _filling(expected, frame), _filling(actual, frame)
    if filling is None or port_filling is None:
        return
    (what, _), (port_what, predicted) = filling, port_filling
    message = f"padding: the reference fills {'/'.join(map(str, frame))} px (top/bottom/left/right) with {what}, the port with {port_what}"
    yield ((DataCause("padding-value", message, f"pad with {what}"),), apart(predicted, actual))


def _frame(expected: Array, actual: Array) -> tuple[int, int, int, int] | None:
    """Return how many rows and columns at top, bottom, left and right differ if all within is equal, else None."""
    if expected.ndim < 2:
        return None
    high, wide = (axis % expected.ndim for axis in plane(expected.shape))
    others = tuple(axis for axis in range(expected.ndim) if axis not in (high, wide))
    apart_by = np.abs(expected - actual)
    off = (apart_by.max(axis=others) if others else apart_by) > rounding([expected], [actual])
    same = np.argwhere(~off)
    if not len(same) or not off.any():
        return None
    # Rows that are equal in most places are within; a filling may equal the picture here and there.
    rows, columns = (np.flatnonzero((~off).mean(axis=axis) > 0.3) for axis in (1, 0))
    if not len(rows) or not len(columns):
        return None
    top, bottom, left, right = rows[0], rows[-1], columns[0], columns[-1]
    if off[top : bottom + 1, left : right + 1].any():
        return None
    height, width = off.shape
    return int(top), int(height - 1 - bottom), int(left), int(width - 1 - right)


def _filling(images: Arrays, frame: tuple[int, int, int, int]) -> tuple[str, list[Array]] | None:
    """Return what the frame of images is filled with, and the images so filled, None where it is something else."""
    top, bottom, left, right = frame
    high, wide = (axis % images[0].ndim for axis in plane(images[0].shape))
    pads = [(0, 0)] * images[0].ndim
    pads[high], pads[wide] = (top, bottom), (left, right)
    inside = [
        tuple(slice(before, size - after) for size, (before, after) in zip(one.shape, pads, strict=True))
        for one in images
    ]
    inner = [one[within] for one, within in zip(images, inside, strict=True)]
    for mode in MODES:
        if mode == "reflect" and any(max(pads[axis]) >= one.shape[axis] for one in inner for axis in (high, wide)):
            continue
        filled = [np.pad(one, pads, mode=mode) for one in inner]  # type: ignore[call-overload]
        if apart(filled, images) <= SAME_ENLARGED * size_of(images):
            return f"mode {mode!r}", filled
    channels = channel_axis(images[0].shape)
    corner = [slice(-1, None) if after and not before else slice(0, 1) for before, after in pads]
    if channels is not None:
        corner[channels] = slice(None)
    constant = images[0][tuple(corner)]
    filled = [np.broadcast_to(constant, one.shape).copy() for one in images]
    for whole, within, values in zip(filled, inside, inner, strict=True):
        whole[within] = values
    if apart(filled, images) > SAME_ENLARGED * size_of(images):
        return None
    return "value " + ", ".join(f"{value:.4g}" for value in np.unique(constant.round(6))), filled


def _unknown(expected: Arrays, actual: Arrays) -> DataCause:
    e, a = expected[0], actual[0]
    for one, other in zip(expected, actual, strict=True):
        if apart([one], [other]) > rounding([one], [other]):
            e, a = one, other
            break
    difference = np.abs(e - a)
    worst = tuple(int(n) for n in np.unravel_index(int(difference.argmax()), difference.shape))
    said = f"{int((difference > rounding([a], [e])).sum())} of {difference.size} differ, "
    said += f"by {difference.mean():.3g} on average, most at {worst}: expected {e[worst]:.6g}, actual {a[worst]:.6g}"
    spread = e.std() * a.std()
    fix = "compare the two sides' transforms one after another"
    if spread > 0 and e.ndim > 1:  # of a row of numbers nothing is a picture
        alike = float(((e - e.mean()) * (a - a.mean())).mean() / spread)
        said += (
            f"; alike (correlation {alike:.4f}): is it the interpolation or the decoding?"
            if alike > ALIKE
            else (f"; another picture (correlation {alike:.2f})")
        )
        if alike > ALIKE:
            fix = "compare the interpolation, antialiasing and size of both sides' resizing, and what decodes the files"
    return DataCause("unknown", f"values: {said}", fix)


def words_of(causes: Sequence[DataCause]) -> str:
    """Return causes as one line."""
    return "; ".join(one.message for one in causes)
