"""Hypotheses about the values of images of one shape: scale, mean and std, whole numbers, a narrower type."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tipchain.parity.pieces.data_arrays import (
    Array,
    Arrays,
    Cause,
    apart,
    apply,
    channel_axis,
    fit,
    rows_of,
    size_of,
)
from tipchain.parity.pieces.data_constants import OPPOSITE, constants, name_both
from tipchain.parity.rounding import NOISE, ROUGH

BYTE = 255.0
"""The largest value of a byte."""
REVERSED = "normalization-order"
"""The code of mean and std that stand in the opposite order of channels."""


def value_steps(
    expected: Arrays, actual: Arrays, bound: float, *, affine_only: bool = False
) -> Iterator[tuple[Cause, float]]:
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


CURVES: tuple[tuple[str, Callable[[Array], Array], Callable[[Array], Array]], ...] = (
    ("logarithm", np.log, np.exp),
    ("square root", np.sqrt, np.square),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), lambda x: np.log(x / (1 - x))),
    ("tanh", np.tanh, np.arctanh),
)
"""Functions of single values that one side may take, with their inverses."""


def curve_steps(expected: Arrays, actual: Arrays, bound: float) -> Iterator[tuple[Cause, float]]:
    """Yield a function that one side takes of each value and the other does not, up to a factor and a shift."""
    a = rows_of(actual, None)
    for name, forward, back in CURVES:
        for function, extra in ((forward, True), (back, False)):
            with np.errstate(all="ignore"):
                e = np.asarray(function(rows_of(expected, None)))
            if not np.abs(e).max(initial=0.0) < 1e100:  # NaN, or squares that are not finite
                continue
            factor, shift = fit(e, a)
            left = apart([factor[0] * e + shift[0]], [a])
            if left <= bound:
                what = (
                    "takes the {} of each value, the reference does not"
                    if extra
                    else "does not take the {} of each value, the reference does"
                )
                yield Cause(code="value-function", message=f"values: the port {what.format(name)}",
                            fix=f"{'leave out' if extra else 'take'} the {name}, as the reference does", explained=None), left  # fmt: skip


def _rounded(expected: Arrays, actual: Arrays) -> Iterator[tuple[Cause, float]]:
    """Yield conversions that lose something."""
    whole = all((one == np.rint(one)).all() for one in actual)
    yield from _levels(expected, actual)
    levels = "divide by 255 and normalize in floating point; convert to uint8 only what is in 0..255"
    if whole:
        for name, change in (("rounds", np.rint), ("cuts", np.trunc), ("rounds down", np.floor)):
            cause = Cause(
                code="dtype", message=f"dtype: the port {name} to whole numbers", fix=levels, explained=None
            )
            yield cause, apart([change(one) for one in expected], actual)
        if all((one >= 0).all() and (one <= BYTE).all() for one in actual):
            for change in (np.trunc, np.floor, np.rint):
                cause = Cause(
                    code="uint8-overflow", message="dtype: the port's values wrap around in uint8 (modulo 256)",
                    fix="convert to float32 before arithmetic: uint8 wraps around at 256", explained=None,
                )  # fmt: skip
                yield cause, apart([change(one) % 256 for one in expected], actual)
    (low, high), beyond = _ends(actual), _ends(expected)
    if low < high and (beyond[0] < low or beyond[1] > high):
        cause = Cause(code="clipped", message=f"values: the port clips them to {low:.4g}..{high:.4g}",
                      fix="do not clip what the reference does not", explained=None)  # fmt: skip
        yield cause, apart([one.clip(low, high) for one in expected], actual)
    half = (
        [one.astype(np.float16).astype(np.float64) for one in expected]
        if max(map(abs, beyond)) < 6e4
        else None
    )
    if half is not None:
        cause = Cause(code="dtype", message="dtype: the port's values went through float16",
                      fix="keep the image in float32", explained=None)  # fmt: skip
        yield cause, apart(half, actual)


def _levels(expected: Arrays, actual: Arrays) -> Iterator[tuple[Cause, float]]:
    """Yield that pixels became whole grey levels before they were divided by 255 and normalized, where constants are known."""
    axes = {channel_axis(one.shape) for one in expected}
    axis = axes.pop() if len(axes) == 1 else None
    count = expected[0].shape[axis] if axis is not None else 1
    for known in constants(count):
        factor, shift = (one / BYTE if at == 0 else one for at, one in enumerate(known.line))
        if known.rank or not factor.all():
            continue
        grey = [
            [apply(one, axis, 1 / factor, -shift / factor) for one in side] for side in (expected, actual)
        ]
        whole_levels = [all(np.abs(one - np.rint(one)).max() <= ROUGH for one in side) for side in grey]
        if whole_levels != [False, True]:
            continue
        whole = [np.rint(one) for one in grey[1]]
        for name, change in (("cuts", np.floor), ("rounds", np.rint)):
            # What lies between two levels but for float32's error may have become either.
            each = [
                (change(one - ROUGH), change(one + ROUGH), own)
                for one, own in zip(grey[0], whole, strict=True)
            ]
            made = [apply(np.where(own == high, high, low), axis, factor, shift) for low, high, own in each]
            cause = Cause(
                code="rounding", message=f"values: the port {name} pixels to whole grey levels before they are normalized, the reference does not",
                fix="keep pixels in floating point until they are normalized", explained=None,
            )  # fmt: skip
            yield cause, apart(made, actual)


def _ends(arrays: Arrays) -> tuple[float, float]:
    return min(float(one.min()) for one in arrays), max(float(one.max()) for one in arrays)


def _affine(factor: Array, shift: Array, actual: Array, channels: int) -> Cause:
    """Return the cause of ``actual = factor * expected + shift``."""
    spread = size_of([actual])
    if (np.abs(factor) < NOISE).all():
        return Cause(code="constant", message="values: the same everywhere", fix="the port's image is empty: look where it is read", explained=None)  # fmt: skip
    alike = bool(np.ptp(factor) <= ROUGH * np.abs(factor).max())
    if alike and np.abs(shift).max() <= ROUGH * spread:
        return _scale(float(factor.mean()))
    if alike and channels <= 1 and abs(factor[0] + 1) < ROUGH:
        return Cause(code="inverted", message=f"values: inverted: actual = {shift[0]:.4g} - expected",
                     fix="remove the inversion (white is the largest value)", explained=None)  # fmt: skip
    each = 3 if channels == 0 else channels
    both = name_both(np.resize(factor, each), np.resize(shift, each), spread)
    named = f": the reference's normalization is {both[0].name}, the port's {both[1].name}" if both else ""
    kept = _kept(factor)
    odd = both is None or max(both[0].rank, both[1].rank) > 0
    fix = (
        "normalize with the reference's mean and std"
        if both is None
        else _fix(both[0].mean, both[0].std, both[0].name)
    )
    if kept and odd:
        if both is None or not _only_bytes(both[1].name):
            how = "a division by 255 missing" if kept > 1 else "it divided by 255 twice"
            named, fix = (
                f": is {how} before the normalization?",
                "divide by 255 once, before the normalization",
            )
        return Cause(code="scale", message=_line(factor, shift) + named, fix=fix, explained=None)
    if both and {both[0].name, both[1].name} == {both[0].plain, f"{both[0].plain}{OPPOSITE}"}:
        fix = "give mean and std in the order of the image's channels"
        return Cause(code=REVERSED, message=_line(factor, shift) + named, fix=fix, explained=None)
    return Cause(code="normalization", message=_line(factor, shift) + named, fix=fix, explained=None)


def _only_bytes(name: str) -> bool:
    return name.endswith(("of pixels in 0..255", "divided by 255 twice"))


def _kept(factor: Array) -> float:
    """Return 255 or 1/255 where that is the factor of every channel, else 0."""
    return next((one for one in (BYTE, 1 / BYTE) if np.abs(factor / one - 1).max() < ROUGH), 0.0)


def _scale(scale: float) -> Cause:
    fix = "scale the image as the reference does"
    words = f"scale: {scale:.6g} times the reference's"
    if abs(scale / BYTE - 1) < ROUGH:
        words, fix = (
            "scale: 255 times the reference's: is a division by 255 missing?",
            "divide the image by 255",
        )
    elif abs(scale * BYTE - 1) < ROUGH:
        words = "scale: a 255th of the reference's: is it divided by 255 once too often?"
        fix = "divide the image by 255 once only: ToTensor does it too"
    return Cause(code="scale", message=words, fix=fix, explained=None)


def _line(factor: Array, shift: Array) -> str:
    if len(factor) == 1:
        pairs = f"{factor[0]:.4g} * expected {shift[0]:+.4g}"
    else:
        pairs = ", ".join(
            f"channel {n}: {a:.4g} * expected {b:+.4g}"
            for n, (a, b) in enumerate(zip(factor, shift, strict=True))
        )
    return f"{'mean' if np.abs(factor - 1).max() <= ROUGH else 'mean/std'}: actual = {pairs}"


def _fix(mean: Array, std: Array, name: str) -> str:
    if name.startswith("none"):
        return "remove the port's normalization: the reference has none"
    shown = ["[" + ", ".join(f"{one:.4g}" for one in values) + "]" for values in (mean, std)]
    return f"pass mean={shown[0]}, std={shown[1]} (of pixels in 0..1) to the port's Normalize"
