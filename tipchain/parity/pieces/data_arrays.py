"""What hypotheses about samples are made of: axes, sizes of differences, straight lines through them, shifts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.findings import Diagnosis
from tipchain.parity.rounding import NOISE, SAME_ENLARGED

Array = npt.NDArray[Any]
Arrays = Sequence[Array]
DATA = "data"
REACH = 3
"""Shifts of up to this many pixels are tried one by one, larger ones where the spectra say so."""
PEAKS = 4
"""Shifts that the spectra of two images propose."""
LEAST_SHOWN = 0.2
"""Share of an image that two crops of it must have in common: torchvision's random crops keep 0.08 and more, centre crops 0.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A hypothesis about samples that holds, or ``unknown``.

    Attributes:
        code: a slug: ``"channel-order"``, ``"scale"``, ``"label-shift"``, ``"unknown"``.
        message: what differs, without where.
        fix: what to change in the port.
        explained: the share of the difference that is gone under it, from 0 to 1; None where none can be told.
    """

    code: str
    message: str
    fix: str
    explained: float | None

    def diagnosis(self, where: str, evidence: str, path: str = DATA) -> Diagnosis:
        """Return it as a diagnosis of the data.

        Args:
            where: put before the message: which sample, which field.
            evidence: what was tried.
            path: the piece.
        """
        message = f"{where}: {self.message}" if where else self.message
        return Diagnosis(code=self.code, port_path=path, message=message, evidence=evidence,
                         explained=self.explained, fix=self.fix)  # fmt: skip


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return -3 or -1, the axis that has 1, 3 or 4 channels; None where there is none."""
    return next((axis for axis in (-3, -1) if len(shape) >= 3 and shape[axis] in (1, 3, 4)), None)


def plane(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the axes of height and width."""
    return (-3, -2) if channel_axis(shape) == -1 else (-2, -1)


def size(array: Array) -> float:
    """Return the root of the mean square, 0 of nothing."""
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0


def size_of(arrays: Arrays) -> float:
    """Return the root of the mean square of several arrays together."""
    count = sum(one.size for one in arrays)
    return float(np.sqrt(sum(float(np.square(one).sum()) for one in arrays) / count)) if count else 0.0


def apart(expected: Arrays, actual: Arrays) -> float:
    """Return the root of the mean squared difference; inf where shapes differ."""
    if any(one.shape != other.shape for one, other in zip(expected, actual, strict=True)):
        return float("inf")
    return size_of([one - other for one, other in zip(expected, actual, strict=True)])


def rounding(expected: Arrays, actual: Arrays) -> float:
    """Return the difference that is rounding."""
    return SAME_ENLARGED * max(size_of(expected), size_of(actual))


def rows_of(arrays: Arrays, axis: int | None) -> Array:
    """Return all values of several arrays as ``[channels, n]``, or ``[1, n]`` without an axis of channels."""
    if axis is None:
        return np.concatenate([one.reshape(1, -1) for one in arrays], axis=1)
    return np.concatenate([np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1) for one in arrays], axis=1)


def fit(expected: Array, actual: Array) -> tuple[Array, Array]:
    """Return a and b of each row with the least squares of ``a * expected + b - actual``; a is 1 where nothing tells."""
    centred = expected - expected.mean(axis=1, keepdims=True)
    spread = (centred**2).sum(axis=1)
    products = (centred * actual).sum(axis=1)
    factor = np.divide(products, spread, out=np.ones_like(spread), where=spread > NOISE**2)
    return factor, actual.mean(axis=1) - factor * expected.mean(axis=1)


def apply(array: Array, axis: int | None, factor: Array, shift: Array) -> Array:
    """Return ``factor * array + shift``, by channel where there is an axis of them."""
    if axis is None or len(factor) == 1:
        moved: Array = factor[0] * array + shift[0]
        return moved
    shape = [1] * array.ndim
    shape[axis] = -1
    result: Array = array * factor.reshape(shape) + shift.reshape(shape)
    return result


def overlap(expected: Array, actual: Array, down: int, right: int) -> tuple[Array, Array]:
    """Return the parts of two images that show the same if the second is the first moved by so many pixels."""
    for axis, shift in zip(plane(expected.shape), (down, right), strict=True):
        length = expected.shape[axis]
        places = np.arange(max(0, shift), length + min(0, shift))
        expected, actual = (
            np.take(expected, places - shift, axis=axis),
            np.take(actual, places, axis=axis),
        )
    return expected, actual


def shifts(expected: Array, actual: Array, *, near: bool = True) -> Iterator[tuple[int, int]]:
    """Yield the shifts, down and to the right, that one image may have been moved by, likely ones first.

    Args:
        expected: the image.
        actual: the image that may be a moved one.
        near: whether to yield all small shifts first.
    """
    high, wide = plane(expected.shape)
    height, width = expected.shape[high], expected.shape[wide]
    if min(height, width) <= 2 * REACH:
        return
    steps = range(-REACH, REACH + 1)
    seen: set[tuple[int, int]] = {(0, 0)}
    if near:
        for pair in sorted(product(steps, steps), key=lambda one: abs(one[0]) + abs(one[1])):
            if pair not in seen:
                seen.add(pair)
                yield pair
    for down, right in _peaks(_grey(expected), _grey(actual)):
        shown = (height - abs(down)) * (width - abs(right))
        if (down, right) not in seen and shown >= LEAST_SHOWN * height * width:
            seen.add((down, right))
            yield down, right


def _grey(image: Array) -> Array:
    """Return one image ``[h, w]``: the mean over all other axes."""
    high, wide = (axis % image.ndim for axis in plane(image.shape))
    others = tuple(axis for axis in range(image.ndim) if axis not in (high, wide))
    flat: Array = image.mean(axis=others) if others else image
    centred: Array = flat - flat.mean()
    return centred


def _peaks(expected: Array, actual: Array) -> Iterator[tuple[int, int]]:
    """Yield the largest peaks of the phase correlation (C. Kuglin, D. Hines, 1975) of two images."""
    spectrum = np.fft.rfft2(actual) * np.conj(np.fft.rfft2(expected))
    length = np.abs(spectrum)
    if not length.any():
        return
    found = np.fft.irfft2(spectrum / np.maximum(length, NOISE * length.max()), s=expected.shape)
    for place in np.argsort(-found, axis=None)[:PEAKS]:
        down, right = (int(one) for one in np.unravel_index(int(place), found.shape))
        height, width = found.shape
        yield (
            (down - height if down > height // 2 else down),
            (right - width if right > width // 2 else right),
        )
