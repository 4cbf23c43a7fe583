"""A few numbers that tell how an image was augmented, whatever did it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def describe_image(image: npt.NDArray[Any]) -> dict[str, float]:
    """Return statistics of one image by name.

    ``mean`` and ``std``, ``mean[c]`` for each channel; ``left_minus_right`` and ``top_minus_bottom``, the difference
    of the halves' means, whose sign a flip changes; ``roughness``, the mean absolute difference of neighbours in a
    row, which shrinks as an image is magnified. Not every array has all of them.

    Args:
        image: channels first (``[c, h, w]``, ``[..., c, h, w]``) or last, or any other array of numbers.
    """
    values = np.asarray(image, dtype=np.float32)
    found = {"mean": float(values.mean()), "std": float(values.std())}
    channels = _channel_axis(values.shape)
    if channels is not None:
        others = tuple(axis for axis in range(values.ndim) if axis != channels % values.ndim)
        if values.shape[channels] > 1:
            found |= {f"mean[{number}]": float(one) for number, one in enumerate(values.mean(axis=others))}
        high, wide = (-2, -1) if channels == -3 else (-3, -2)
        found["left_minus_right"] = _halves(values, wide)
        found["top_minus_bottom"] = _halves(values, high)
        found["roughness"] = (
            float(np.abs(np.diff(values, axis=wide)).mean()) if values.shape[wide] > 1 else 0.0
        )
    return found


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return -3 or -1, the axis that has 1, 3 or 4 channels; None where there is none."""
    return next((axis for axis in (-3, -1) if len(shape) >= 3 and shape[axis] in (1, 3, 4)), None)


def _halves(values: npt.NDArray[np.float32], axis: int) -> float:
    first, second = np.array_split(values, 2, axis=axis)
    return float(first.mean() - second.mean()) if second.size else 0.0
