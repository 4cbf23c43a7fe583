"""What makes two finished images differ: layout, channel order, scale, mean and std, dtype, place, padding.

Every cause is a hypothesis: what should happen to the reference's images if it held is done to them, and the result is
compared with the port's. One that leaves rounding alone is taken before one that leaves up to a hundredth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations

import numpy as np

from tipchain.parity.pieces.data_arrays import (
    Array,
    Arrays,
    Cause,
    apart,
    apply,
    channel_axis,
    overlap,
    plane,
    rounding,
    rows_of,
    shifts,
    size,
    size_of,
)
from tipchain.parity.pieces.data_constants import OPPOSITE, constants
from tipchain.parity.pieces.data_shapes import explain_shapes
from tipchain.parity.pieces.data_values import REVERSED, curve_steps, value_steps
from tipchain.parity.rounding import EXPLAINED, FEW, REMAINDER, ROUGH, SAME_ENLARGED, TINY

LEFT = 1 - EXPLAINED
"""A cause holds if at most this share of the difference is left."""
MOST_COMPARED = 1 << 24
"""Differences that are made at most to find an order."""
MOST_SLICES = 64
"""Places along an axis up to which their order is looked at: channels, coordinates and features, not pixels."""
ALIKE = 0.9
"""Correlation from which on two images show the same: it leaves a fifth of the variance, which interpolation and decoding may make."""
Change = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a hypothesis does to images, with its name."""

    cause: Cause
    images: Arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Steps that together leave ``left``, a share of the difference."""

    causes: tuple[Cause, ...]
    left: float


def explain_images(expected: Arrays, actual: Arrays) -> list[Cause]:
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
        return explain_shapes(es, acts, _explain_values)
    return _explain_values(es, acts)


def _explain_values(expected: Arrays, actual: Arrays) -> list[Cause]:
    """Explain arrays of equal shapes."""
    if any(np.isnan(one).any() for one in (*expected, *actual)):
        return _explain_nan(expected, actual)
    raw, noise = apart(expected, actual), rounding(expected, actual)
    if raw <= noise:
        return []
    if sum(one.size for one in expected) >= FEW:
        found = _search(expected, actual, raw, noise)
        if found is not None:
            share = 1 - found.left
            return [replace(one, explained=min(1.0, share)) for one in found.causes]
        level = _one_level(expected, actual)
        if level is not None:
            return [level]
    return [_unknown(expected, actual)]


def _explain_nan(expected: Arrays, actual: Arrays) -> list[Cause]:
    if all(np.array_equal(one, other, equal_nan=True) for one, other in zip(expected, actual, strict=True)):
        return []
    counts = [sum(int(np.isnan(one).sum()) for one in side) for side in (expected, actual)]
    return [Cause(code="nan", message=f"values: {counts[0]} NaN expected, {counts[1]} actual",
                  fix="look for a division by zero: a standard deviation of 0, an empty crop", explained=None)]  # fmt: skip


def _search(expected: Arrays, actual: Arrays, raw: float, noise: float) -> _Found | None:
    """Return the first hypothesis that leaves rounding alone, else the first that leaves at most a hundredth."""
    good: _Found | None = None
    for causes, left in _hypotheses(expected, actual, max(noise, LEFT * raw)):
        if left <= max(noise, REMAINDER * raw):
            return _Found(causes=causes, left=left / raw)
        if good is None and left <= LEFT * raw:
            good = _Found(causes=causes, left=left / raw)
    return good


def _hypotheses(expected: Arrays, actual: Arrays, bound: float) -> Iterator[tuple[tuple[Cause, ...], float]]:
    """Yield causes with the difference that they leave, simple ones first."""
    turned = list(_rearranged(expected, actual))
    for step in turned:
        yield (step.cause,), apart(step.images, actual)
    for cause, left in value_steps(expected, actual, bound):
        yield (cause,), left
    for step in turned:
        for cause, left in value_steps(step.images, actual, bound):
            if step.cause.code == "channel-order" and cause.code == REVERSED:
                # Constants that stay where they were while the channels change places are no fault of their own.
                before = f"{step.cause.message}, before the normalization"
                yield (replace(step.cause, message=before),), left
            else:
                # Of images with exchanged channels the constants are named as they stand, not as they were exchanged.
                named = replace(cause, message=cause.message.replace(OPPOSITE, ""))
                yield (step.cause, named if step.cause.code == "channel-order" else cause), left
    for cause, left in curve_steps(expected, actual, bound):
        yield (cause,), left
    yield from _moved(expected, actual, bound, (), near=True)
    yield from _padded(expected, actual)
    for step in turned:
        yield from _moved(step.images, actual, bound, (step.cause,), near=False)


def _rearranged(expected: Arrays, actual: Arrays) -> Iterator[Step]:
    """Yield images with channels in another order, axes exchanged, or mirrored."""
    first = expected[0]
    if any(one.ndim != first.ndim for one in expected):
        return
    channels = channel_axis(first.shape)
    if channels is not None and 1 < first.shape[channels] <= 4:
        yield from _reordered(expected, channels)
    if not 2 <= first.ndim <= 5:
        return
    for axes in permutations(range(first.ndim)):
        if axes != tuple(range(first.ndim)) and all(
            one.transpose(axes).shape == one.shape for one in expected
        ):
            swapped = _swapped(axes, channels)
            yield _step(
                "height-width" if swapped else "layout", f"layout: axes in the order {axes}{swapped}",
                "exchange height and width back: (h, w), not (w, h)" if swapped else "transpose the image back",
                expected, partial(np.transpose, axes=axes),
            )  # fmt: skip
    yield from _reshaped(expected)
    high, wide = plane(first.shape)
    for code, words, axes in (
        ("flip", "values: mirrored left to right", (wide,)),
        ("flip", "values: mirrored upside down", (high,)),
        ("flip", "values: turned by half a turn", (high, wide)),
    ):
        yield _step(code, words, "remove the flip (or its probability of 1) from the port's transforms",
                    expected, partial(np.flip, axis=axes))  # fmt: skip
    yield from _permuted(expected, actual)


def _permuted(expected: Arrays, actual: Arrays) -> Iterator[Step]:
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
                "axis-permutation", f"the values along axis {axis} stand in another order: {list(order)} of the reference's",
                f"put axis {axis} in the reference's order: undo {list(order)}", expected, partial(np.take, indices=order, axis=axis),
            )  # fmt: skip


def _reshaped(expected: Arrays) -> Iterator[Step]:
    """Yield images whose axes were reshaped where they are to be transposed, also before they were normalized by channel."""
    shape = expected[0].shape
    if len(shape) < 3 or len({one.shape for one in expected}) > 1:
        return
    rest = len(shape) - 3
    lead = tuple(range(rest))
    before = (
        {"(h, w, c)": (1, 2, 0), "(w, h, c)": (2, 1, 0)}
        if channel_axis(shape) == -3
        else {"(c, h, w)": (2, 0, 1)}
    )
    for form, axes in before.items() if channel_axis(shape) is not None else ():
        turned = (*lead, *(axis + rest for axis in axes))
        message = f"layout: {form} was reshaped to {shape}, not transposed: pixels are mixed up"
        fix = "transpose the axes, image.transpose(2, 0, 1), in place of reshape"

        def change(image: Array, turned: tuple[int, ...] = turned) -> Array:
            return np.ascontiguousarray(image.transpose(turned)).reshape(image.shape)

        yield _step("layout", message, fix, expected, change)
        axis = channel_axis(shape) or 0
        for known in constants(shape[axis]):
            if not known.rank and (np.ptp(known.mean) or np.ptp(known.std)):
                again = partial(_between, change=change, axis=axis, line=known.line)
                yield _step("layout", f"{message}, before the normalization", fix, expected, again)


def _between(image: Array, change: Change, axis: int, line: tuple[Array, Array]) -> Array:
    """Return an image that was changed before it was normalized by ``line``."""
    factor, shift = line
    return apply(change(apply(image, axis, 1 / factor, -shift / factor)), axis, factor, shift)


def _reordered(expected: Arrays, channels: int) -> Iterator[Step]:
    count = expected[0].shape[channels]
    backwards = tuple(reversed(range(count)))
    for order in sorted(permutations(range(count)), key=lambda one: one != backwards):
        if order == tuple(range(count)):
            continue
        how = "reversed (RGB against BGR)" if order == backwards else f"in the order {order}"
        yield _step(
            "channel-order", f"channel order: {how}, axis {channels % expected[0].ndim}",
            "read images in the reference's order of channels: `image[..., ::-1]`, or convert BGR to RGB"
            if order == backwards else f"put the channels in the reference's order: undo {order}",
            expected, partial(np.take, indices=order, axis=channels),
        )  # fmt: skip


def _step(code: str, message: str, fix: str, expected: Arrays, change: Change) -> Step:
    cause = Cause(code=code, message=message, fix=fix, explained=None)
    return Step(cause=cause, images=[change(one) for one in expected])


def _swapped(axes: tuple[int, ...], channels: int | None) -> str:
    """Return words where only height and width have changed places."""
    high, wide = (-2, -1) if channels in (None, -3) else (-3, -2)
    plain = list(range(len(axes)))
    plain[high], plain[wide] = plain[wide], plain[high]
    return " (height and width exchanged)" if axes == tuple(plain) else ""


def _moved(
    expected: Arrays, actual: Arrays, bound: float, before: tuple[Cause, ...], *, near: bool
) -> Iterator[tuple[tuple[Cause, ...], float]]:
    """Yield the same pictures some pixels to the side, as another crop gives them, also normalized otherwise."""
    if expected[0].ndim < 2 or any(
        one.shape != other.shape for one, other in zip(expected, actual, strict=True)
    ):
        return
    for down, right in shifts(expected[0], actual[0], near=near):
        if any(
            min(one.shape[axis] for axis in plane(one.shape)) <= 2 * max(abs(down), abs(right))
            for one in expected
        ):
            continue
        parts = [overlap(one, other, down, right) for one, other in zip(expected, actual, strict=True)]
        es, acts = [one for one, _ in parts], [other for _, other in parts]
        crop = _crop(down, right)
        # What the crops do not share cannot be predicted; the rest stands for the whole.
        yield (*before, crop), apart(es, acts)
        for cause, left in value_steps(es, acts, bound, affine_only=True):
            yield (*before, crop, cause), left


def _crop(down: int, right: int) -> Cause:
    moves = ", ".join(
        filter(None, (_pixels(down, "down", "up"), _pixels(right, "to the right", "to the left")))
    )
    small = max(abs(down), abs(right)) == 1
    return Cause(
        code="crop-offset", message=f"size: the same picture, {moves}: is it another crop?",
        fix="round the crop's offset as the reference does: torch's CenterCrop takes int(round((size - crop) / 2))"
        if small else "cut the same part as the reference: centre crop or top left, from an image resized alike",
        explained=None,
    )  # fmt: skip


def _pixels(count: int, plus: str, minus: str) -> str:
    return f"{abs(count)} px {plus if count > 0 else minus}" if count else ""


MODES = ("edge", "reflect", "symmetric")


def _padded(expected: Arrays, actual: Arrays) -> Iterator[tuple[tuple[Cause, ...], float]]:
    """Yield images that differ in a frame only, which the port fills otherwise."""
    frames = {_frame(one, other) for one, other in zip(expected, actual, strict=True)}
    if len(frames) != 1 or None in frames or expected[0].ndim < 2:
        return
    (frame,) = frames
    assert frame is not None
    predicted, words = [], []
    for images in (expected, actual):
        found = _filling(images, frame)
        if found is None:
            return
        words.append(found[0])
        predicted.append(found[1])
    message = f"padding: the reference fills {'/'.join(map(str, frame))} px (top/bottom/left/right) with {words[0]}, the port with {words[1]}"
    yield (
        (Cause(code="padding-value", message=message, fix=f"pad with {words[0]}", explained=None),),
        apart(predicted[1], actual),
    )


def _frame(expected: Array, actual: Array) -> tuple[int, int, int, int] | None:
    """Return how many rows and columns at top, bottom, left and right differ if all within is equal, else None."""
    if expected.ndim < 2:
        return None
    high, wide = (axis % expected.ndim for axis in plane(expected.shape))
    others = tuple(axis for axis in range(expected.ndim) if axis not in (high, wide))
    apart_by = np.abs(expected - actual)
    off = (apart_by.max(axis=others) if others else apart_by) > SAME_ENLARGED * max(
        size(expected), size(actual)
    )
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
    inner = [one[_inside(one, frame)] for one in images]
    for mode in MODES:
        if mode == "reflect" and any(
            max(pads[axis]) >= one.shape[axis] for one in inner for axis in (high, wide)
        ):
            continue
        filled = [np.pad(one, pads, mode=mode) for one in inner]  # type: ignore[call-overload]
        if apart(filled, images) <= SAME_ENLARGED * size_of(images):
            return f"mode {mode!r}", filled
    channels = channel_axis(images[0].shape)
    corner = [0] * images[0].ndim
    if bottom and not top:
        corner[high] = -1
    if right and not left:
        corner[wide] = -1
    place = tuple(slice(None) if channels is not None and axis == channels % images[0].ndim else (slice(at, at + 1) if at == 0 else slice(-1, None)) for axis, at in enumerate(corner))  # fmt: skip
    constant = images[0][place]
    filled = []
    for one, within in zip(images, inner, strict=True):
        whole = np.broadcast_to(constant, one.shape).copy()
        whole[_inside(one, frame)] = within
        filled.append(whole)
    if apart(filled, images) > SAME_ENLARGED * size_of(images):
        return None
    return "value " + ", ".join(f"{value:.4g}" for value in np.unique(constant.round(6))), filled


def _inside(image: Array, frame: tuple[int, int, int, int]) -> tuple[slice, ...]:
    top, bottom, left, right = frame
    high, wide = (axis % image.ndim for axis in plane(image.shape))
    found = [slice(None)] * image.ndim
    found[high] = slice(top, image.shape[high] - bottom)
    found[wide] = slice(left, image.shape[wide] - right)
    return tuple(found)


def _one_level(expected: Arrays, actual: Arrays) -> Cause | None:
    """Recognize images of which one is lower by one grey level here and there, never higher: it was cut, not rounded."""
    axes = {channel_axis(one.shape) for one in expected}
    axis = axes.pop() if len(axes) == 1 else None
    signs = set()
    for e, a in zip(rows_of(expected, axis), rows_of(actual, axis), strict=True):
        gap = a - e
        off = np.abs(gap) > SAME_ENLARGED * max(size(e), size(a))
        steps = gap[off]
        if not len(steps) or np.ptp(steps) > ROUGH * np.abs(steps).max():
            return None
        levels = (e - e.min()) / np.abs(steps[0])
        if np.abs(levels - np.rint(levels)).max() > ROUGH:
            return None  # the reference's own values are no whole levels of that size
        signs.add(float(np.sign(steps[0])))
    if len(signs) != 1:
        return None
    cuts, rounds = ("port", "reference") if signs == {-1.0} else ("reference", "port")
    return Cause(
        code="rounding", message=f"values: one grey level apart here and there, always to the same side: the {cuts} cuts to whole levels, the {rounds} rounds",
        fix="round before converting to uint8: np.rint(image).astype(np.uint8)" if cuts == "port" else "convert to uint8 without rounding, as the reference does",
        explained=None,
    )  # fmt: skip


def _unknown(expected: Arrays, actual: Arrays) -> Cause:
    """Say how much arrays without a simple cause have in common."""
    e, a = expected[0], actual[0]
    for one, other in zip(expected, actual, strict=True):
        if apart([one], [other]) > rounding([one], [other]):
            e, a = one, other
            break
    difference = np.abs(e - a)
    worst = tuple(int(n) for n in np.unravel_index(int(difference.argmax()), difference.shape))
    said = f"{int((difference > SAME_ENLARGED * max(size(a), size(e))).sum())} of {difference.size} differ, "
    said += f"by {difference.mean():.3g} on average, most at {worst}: expected {e[worst]:.6g}, actual {a[worst]:.6g}"
    spread = e.std() * a.std()
    fix = "compare the two sides' transforms one after another"
    if spread > 0 and e.ndim > 1:  # of a row of numbers nothing is a picture
        alike = float(((e - e.mean()) * (a - a.mean())).mean() / spread)
        said += f"; alike (correlation {alike:.4f}): is it the interpolation or the decoding?" if alike > ALIKE else (
            f"; another picture (correlation {alike:.2f})"
        )  # fmt: skip
        if alike > ALIKE:
            fix = "compare the interpolation, antialiasing and size of both sides' resizing, and what decodes the files"
    return Cause(code="unknown", message=f"values: {said}", fix=fix, explained=None)


def words_of(causes: Sequence[Cause]) -> str:
    """Return causes as one line."""
    return "; ".join(one.message for one in causes)
