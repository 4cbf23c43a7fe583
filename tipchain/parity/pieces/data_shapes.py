"""What makes images of different shapes differ: layout, an axis of size 1, another crop, another size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

from tipchain.parity.pieces.data_arrays import Array, Arrays, Cause, apart, channel_axis, plane, rounding

Explain = Callable[[Arrays, Arrays], list[Cause]]


def explain_shapes(expected: Arrays, actual: Arrays, explain: Explain) -> list[Cause]:
    """Return the causes of different shapes, then what ``explain`` says of the values under them."""
    e, a = next(pair for pair in zip(expected, actual, strict=True) if pair[0].shape != pair[1].shape)
    shapes = f"{e.shape} expected, {a.shape} actual"
    turned = _turned(expected, actual, explain)
    if turned is not None:
        axes, rest = turned
        if rest and rest[0].code == "unknown" and axes == tuple(range(e.ndim)):
            return rest
        layout = Cause(code="layout", message=f"layout: {shapes}{_order_of(e.shape, axes)}", fix=_transpose(e, a, axes),
                       explained=1.0 if not rest else rest[-1].explained)  # fmt: skip
        return [layout, *rest]
    if all([n for n in one.shape if n > 1] == [n for n in other.shape if n > 1] for one, other in zip(expected, actual, strict=True)):  # fmt: skip
        rest = explain(
            [one.reshape(other.shape) for one, other in zip(expected, actual, strict=True)], actual
        )
        axis = Cause(code="layout", message=f"layout: {shapes}: an axis of size 1",
                     fix=f"reshape the port's to {e.shape}", explained=1.0 if not rest else rest[-1].explained)  # fmt: skip
        return [axis, *rest]
    return [_size(e, a, shapes, expected, actual)]


def _turned(expected: Arrays, actual: Arrays, explain: Explain) -> tuple[tuple[int, ...], list[Cause]] | None:
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
    found = [(explain([one.transpose(axes) for one in expected], actual), axes) for axes in fitting]
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


def _transpose(expected: Array, actual: Array, axes: tuple[int, ...]) -> str:
    back = tuple(axes.index(axis) for axis in range(len(axes)))
    return f"transpose the port's image by {back}: {actual.shape} becomes {expected.shape}"


def _size(e: Array, a: Array, shapes: str, expected: Arrays, actual: Arrays) -> Cause:
    fix = "resize and crop to the reference's size"
    if e.ndim != a.ndim:
        return Cause(code="size", message=f"size: {shapes}: another number of axes", fix=fix, explained=None)
    axes = channel_axis(e.shape), channel_axis(a.shape)
    if None not in axes and axes[0] != axes[1]:
        return Cause(code="size", message=f"layout and size: {shapes}", fix=fix, explained=None)
    if axes[0] is not None and e.shape[axes[0]] != a.shape[axes[0]]:
        return Cause(
            code="channels", message=f"size: {shapes}: another number of channels",
            fix="convert images to the reference's mode (RGB or grey) as they are read", explained=None,
        )  # fmt: skip
    return _cropped(shapes, expected, actual) or _resized(e, a, shapes)


def _cropped(shapes: str, expected: Arrays, actual: Arrays) -> Cause | None:
    """Recognize images of which one is the middle of the other."""
    high, wide = plane(expected[0].shape)
    cut = []
    for pair in zip(expected, actual, strict=True):
        gaps = [pair[0].shape[axis] - pair[1].shape[axis] for axis in (high, wide)]
        if min(gaps) < 0 < max(gaps):
            return None
        large, small = pair if max(gaps) > 0 else pair[::-1]
        for axis, gap in zip((high, wide), map(abs, gaps), strict=True):
            begin = gap // 2
            place = [slice(None)] * large.ndim
            place[axis % large.ndim] = slice(begin, large.shape[axis] - gap + begin)
            large = large[tuple(place)]
        cut.append((large, small))
    larges, smalls = [one for one, _ in cut], [one for _, one in cut]
    if apart(larges, smalls) > rounding(larges, smalls):
        return None
    return Cause(code="crop-size", message=f"size: {shapes}: one is the middle of the other",
                 fix="crop to the reference's size", explained=1.0)  # fmt: skip


def _resized(e: Array, a: Array, shapes: str) -> Cause:
    """Name sizes of which one keeps the shape of the image, and the other does not."""
    high, wide = plane(e.shape)
    sides = [(one.shape[high], one.shape[wide]) for one in (e, a)]
    square = [one[0] == one[1] for one in sides]
    same = min(sides[0]) == min(sides[1])
    cause = Cause(
        code="size", message=f"size: {shapes}", fix="resize and crop to the reference's size", explained=None
    )
    if square[0] != square[1] and same:
        kept, exact = ("reference", "port") if square[1] else ("port", "reference")
        words = (
            f"size: {shapes}: the {kept} resizes the short side to {min(sides[0])}, the {exact} both sides"
        )
        ours = f"Resize({min(sides[0])})" if square[1] else f"Resize(({sides[0][0]}, {sides[0][1]}))"
        return replace(cause, code="resize-size", message=words, fix=f"resize as the reference does: {ours}")
    return cause
