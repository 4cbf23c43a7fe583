"""How libraries resize an image: every method as a matrix for each axis, or as Pillow itself does it.

Sources: Pillow's ``Resample.c`` (filters widened when shrinking: antialiasing), OpenCV's ``INTER_*`` and torch's and
Paddle's ``interpolate`` (filters of a fixed width, R. Keys' cubic with a = -0.75).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kernel = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way to resize.

    Attributes:
        kernel: the interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"area"``, ``"box"``, ...
        antialias: whether the filter is widened when shrinking.
        grid: where pixels lie: ``"half pixel"``, ``"corners"`` (align_corners), ``"origin"`` (pixel i at i * scale).
        pillow: the name of Pillow's filter that does this to bytes, or "".
    """

    kernel: str
    antialias: bool = False
    grid: str = "half pixel"
    pillow: str = ""

    def __str__(self) -> str:
        grid = {"half pixel": "", "corners": ", align_corners", "origin": ", pixels aligned at the origin"}[
            self.grid
        ]
        widened = {True: ", antialiased", False: ", not antialiased"}[self.antialias]
        return f"{self.kernel}{'' if self.kernel in ('nearest', 'area', 'adaptive') else widened}{grid}"

    @property
    def known_as(self) -> str:
        """How libraries call it."""
        names = {
            ("nearest", "half pixel"): "Pillow's NEAREST, torch's nearest-exact",
            ("nearest", "origin"): "OpenCV's INTER_NEAREST, torch's and Paddle's nearest",
            ("area", "half pixel"): "OpenCV's INTER_AREA",
            ("adaptive", "half pixel"): "torch's and Paddle's area, adaptive average pooling",
        }
        if (self.kernel, self.grid) in names:
            return names[self.kernel, self.grid]
        if self.pillow:
            return f"Pillow's {self.pillow}" + (
                ", torch with antialias=True" if self.kernel in ("bilinear", "bicubic") else ""
            )
        opencv = {"bilinear": "LINEAR", "bicubic": "CUBIC", "lanczos4": "LANCZOS4"}
        if self.kernel in opencv and self.grid == "half pixel":
            return f"OpenCV's INTER_{opencv[self.kernel]}" + (
                "" if self.kernel == "lanczos4" else ", torch's and Paddle's interpolate"
            )
        return "align_corners=True" if self.grid == "corners" else "Paddle's align_mode=1"


METHODS = (
    Method(kernel="bilinear", antialias=True, pillow="BILINEAR"),
    Method(kernel="bilinear"),
    Method(kernel="nearest", pillow="NEAREST"),
    Method(kernel="nearest", grid="origin"),
    Method(kernel="bicubic", antialias=True, pillow="BICUBIC"),
    Method(kernel="bicubic"),
    Method(kernel="area"),
    Method(kernel="adaptive"),
    Method(kernel="box", antialias=True, pillow="BOX"),
    Method(kernel="hamming", antialias=True, pillow="HAMMING"),
    Method(kernel="lanczos", antialias=True, pillow="LANCZOS"),
    Method(kernel="lanczos4"),
    Method(kernel="bilinear", grid="corners"),
    Method(kernel="bilinear", grid="origin"),
    Method(kernel="bicubic", grid="corners"),
)


def resize(image: Array, shape: tuple[int, int], method: Method, rows: Array | None = None, columns: Array | None = None) -> Array:  # fmt: skip
    """Return an image of another size, float64.

    Args:
        image: ``[h, w, c]``.
        shape: the new height and width, in pixels.
        method: how.
        rows: which rows of the result are wanted; all by default.
        columns: which columns.
    """
    high, wide = (
        matrix(image.shape[0], shape[0], method, rows),
        matrix(image.shape[1], shape[1], method, columns),
    )
    values = image.astype(np.float64, copy=False)
    down = (high @ values.reshape(values.shape[0], -1)).reshape(len(high), *values.shape[1:])
    result: Array = wide @ down  # the columns of each row
    return result


def resize_bytes(image: Array, shape: tuple[int, int], method: Method) -> Array | None:
    """Return what Pillow makes of an image of bytes, float64; None where it is not installed or cannot do it."""
    if not method.pillow or image.dtype != np.uint8 or importlib.util.find_spec("PIL") is None:
        return None
    from PIL import Image

    squeezed = image[..., 0] if image.shape[-1] == 1 else image
    made = Image.fromarray(squeezed).resize(shape[::-1], Image.Resampling[method.pillow])
    return np.asarray(made, dtype=np.float64).reshape(*shape, image.shape[-1])


def matrix(old: int, new: int, method: Method, wanted: Array | None = None) -> Array:
    """Return what makes ``new`` values of ``old`` ones, ``[new, old]``, or those of its rows that are wanted."""
    places = np.arange(new) if wanted is None else wanted
    if method.kernel in ("area", "adaptive"):
        return _area(old, new, places, whole=method.kernel == "adaptive")
    if method.kernel == "nearest":
        made = np.zeros((len(places), old))
        offset = 0.5 if method.grid == "half pixel" else 0.0
        at = np.floor((places + offset) * old / new).astype(int).clip(0, old - 1)
        made[np.arange(len(places)), at] = 1
        return made
    return (
        _widened(old, new, places, method.kernel) if method.antialias else _sampled(old, new, places, method)
    )


def _area(old: int, new: int, places: Array, *, whole: bool) -> Array:
    """Return the means over what each new pixel covers: exact parts of the axis, or all pixels touched."""
    low, high = places[:, None] * old / new, (places[:, None] + 1) * old / new
    if whole:
        low, high = np.floor(low), np.ceil(high)
    cells = np.arange(old)[None]
    covered = (np.minimum(high, cells + 1) - np.maximum(low, cells)).clip(0)
    made: Array = covered / covered.sum(axis=1, keepdims=True)
    return made


def _widened(old: int, new: int, places: Array, kernel: str) -> Array:
    """Return a filter as wide as the pixels that become one; what lies outside the image is left out."""
    scale = old / new
    wide = max(scale, 1.0)
    support = {"bilinear": 1.0, "bicubic": 2.0, "box": 0.5, "hamming": 1.0, "lanczos": 3.0}[kernel] * wide
    centre = (places + 0.5) * scale
    first = (centre - support + 0.5).astype(int).clip(0)
    last = (centre + support + 0.5).astype(int).clip(None, old)
    cells = np.arange(old)[None]
    weights = _KERNELS[kernel]((cells + 0.5 - centre[:, None]) / wide)
    weights = np.where((cells >= first[:, None]) & (cells < last[:, None]), weights, 0.0)
    made: Array = weights / weights.sum(axis=1, keepdims=True)
    return made


def _sampled(old: int, new: int, places: Array, method: Method) -> Array:
    """Return a filter of a few neighbouring pixels; beyond the edge the last pixel goes on."""
    if method.grid == "corners":
        at = places * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        offset = 0.5 if method.grid == "half pixel" else 0.0
        at = (places + offset) * (old / new) - offset
    taps = {"bilinear": 1, "bicubic": 2, "lanczos4": 4}[method.kernel]
    base = np.floor(at).astype(int)
    made = np.zeros((len(places), old))
    steps = range(1 - taps, taps + 1)
    weights = np.stack([_KERNELS[_FIXED[method.kernel]](at - base - step) for step in steps])
    weights /= weights.sum(axis=0)
    for step, weight in zip(steps, weights, strict=True):
        np.add.at(made, (np.arange(len(places)), (base + step).clip(0, old - 1)), weight)
    return made


_FIXED = {"bilinear": "bilinear", "bicubic": "cubic", "lanczos4": "lanczos4"}


def _cubic(x: Array, a: float) -> Array:
    x = np.abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x: Array, lobes: int) -> Array:
    return np.where(np.abs(x) < lobes, np.sinc(x) * np.sinc(x / lobes), 0.0)


_KERNELS: dict[str, Kernel] = {
    "bilinear": lambda x: (1 - np.abs(x)).clip(0),
    "bicubic": lambda x: _cubic(x, -0.5),
    "cubic": lambda x: _cubic(x, -0.75),
    "box": lambda x: ((x > -0.5) & (x <= 0.5)).astype(np.float64),
    "hamming": lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0),
    "lanczos": lambda x: _lanczos(x, 3),
    "lanczos4": lambda x: _lanczos(x, 4),
}
