"""What a side's transforms do to raw images, found by trying; and why two sides' transforms differ."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import itemgetter

import numpy as np

from tipchain.explain.causes.data_sources import DataCause, apart, channel_axis, fit, rounding, size_of
from tipchain.framework_types import Array, Dataset, Nested, Options
from tipchain.numbers.tolerance import EXPLAINED, NOISE, ROUGH, SAME_SINGLE

# The constants that images are usually normalized with, and which of them two sides use.
#
# Sources: ImageNet's are those of torchvision's and PaddleClas' models, CLIP's those of OpenAI's release,
# Inception's 0.5; Caffe's subtract the mean of BGR channels from 0..255; CIFAR's and MNIST's are those of common scripts.


OPPOSITE = " in the opposite order of channels"
CLOSE = 2e-3
"""Relative error up to which a factor or shift is that of constants: sets are rounded to three digits here and there."""
KNOWN: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "0.5 (Inception)": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "CLIP": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "CIFAR-10 (true deviations)": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "MNIST": ((0.1307,), (0.3081,)),
    "Fashion-MNIST": ((0.2860,), (0.3530,)),
    "0.5": ((0.5,), (0.5,)),
    "Caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255, 1 / 255, 1 / 255)),
}
"""Means and standard deviations of pixels in 0..1, by name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constants:
    """A normalization ``(pixel - mean) / std`` of pixels in 0..1, by channel.

    Attributes:
        name: what it is called.
        mean: per channel.
        std: likewise.
        rank: how odd it is: 0 is common.
    """

    name: str
    mean: Array
    std: Array
    rank: int = 0

    @property
    def plain(self) -> str:
        """Its name without the order of channels."""
        return self.name.removesuffix(OPPOSITE)

    @property
    def line(self) -> tuple[Array, Array]:
        """What it does to pixels in 0..1: ``a * pixel + b``."""
        return 1 / self.std, -self.mean / self.std


def constants(channels: int) -> Iterator[Constants]:
    """Yield the well-known normalizations of images with so many channels, and usual mistakes with each."""
    ones, zeros = np.ones(channels), np.zeros(channels)
    yield Constants(name="none, pixels in 0..1", mean=zeros, std=ones)
    yield Constants(name="none, pixels in 0..255", mean=zeros, std=ones / 255)
    for name, (means, stds) in KNOWN.items():
        if len(means) == channels:
            mean, std = np.array(means), np.array(stds)
        elif len(means) == 1:
            mean, std = means[0] * ones, stds[0] * ones
        else:
            continue
        yield Constants(name=name, mean=mean, std=std)
        if np.ptp(mean) or np.ptp(std):
            yield Constants(name=f"{name}{OPPOSITE}", mean=mean[::-1], std=std[::-1], rank=1)
        yield Constants(name=f"{name} without its mean", mean=zeros, std=std, rank=1)
        yield Constants(name=f"{name} without its std", mean=mean, std=ones, rank=1)
        yield Constants(name=f"{name}, multiplied by std", mean=mean, std=1 / std, rank=2)
        yield Constants(name=f"{name} with mean and std exchanged", mean=std, std=mean, rank=2)
        yield Constants(name=f"{name} of pixels in 0..255", mean=mean / 255, std=std / 255, rank=1)
        yield Constants(name=f"{name} of pixels divided by 255 twice", mean=mean * 255, std=std * 255, rank=1)


def name_both(factor: Array, shift: Array, spread: float) -> tuple[Constants, Constants] | None:
    """Return the normalizations of which the port's makes ``factor * x + shift`` of the reference's, None if unknown.

    Args:
        factor: per channel.
        shift: per channel.
        spread: size of the port's values, which shifts are held against.
    """
    known = list(constants(len(factor)))
    if not factor.all():
        return None
    slopes, offsets = (np.array([one.line[number] for one in known]) for number in (0, 1))
    a = slopes[None] / slopes[:, None]  # the port's along the second axis
    b = offsets[None] - a * offsets[:, None]
    error = np.maximum(np.abs(a / factor - 1).max(axis=2), np.abs(b - shift).max(axis=2) / max(spread, NOISE))
    # A common pair goes before an odd one that fits as well.
    ranks = np.array([one.rank for one in known])
    score = np.maximum(error, SAME_SINGLE) * 10.0 ** (ranks[:, None] + ranks[None])
    score[(error > CLOSE) | np.eye(len(known), dtype=bool)] = np.inf
    ours, theirs = np.unravel_index(int(score.argmin()), score.shape)
    return (known[ours], known[theirs]) if np.isfinite(score[ours, theirs]) else None


def _shown(values: Array) -> str:
    return "[" + ", ".join(f"{one:.4g}" for one in values) + "]"


# How libraries resize an image: every method as a matrix for each axis, or as Pillow itself does it.
#
# Sources: Pillow's ``Resample.c`` (filters widened when shrinking: antialiasing), OpenCV's ``INTER_*`` and torch's and
# Paddle's ``interpolate`` (filters of a fixed width, R. Keys' cubic with a = -0.75).


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
        grid = {"half pixel": "", "corners": ", align_corners", "origin": ", pixels aligned at the origin"}[self.grid]
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


def resize(
    image: Array, shape: tuple[int, int], method: Method, rows: Array | None = None, columns: Array | None = None
) -> Array:
    """Return an image of another size, float64.

    Args:
        image: ``[h, w, c]``.
        shape: the new height and width, in pixels.
        method: how.
        rows: which rows of the result are wanted; all by default.
        columns: which columns.
    """
    high, wide = (matrix(image.shape[0], shape[0], method, rows), matrix(image.shape[1], shape[1], method, columns))
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
    return _widened(old, new, places, method.kernel) if method.antialias else _sampled(old, new, places, method)


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


_KERNELS: dict[str, Callable[[Array], Array]] = {
    "bilinear": lambda x: (1 - np.abs(x)).clip(0),
    "bicubic": lambda x: _cubic(x, -0.5),
    "cubic": lambda x: _cubic(x, -0.75),
    "box": lambda x: ((x > -0.5) & (x <= 0.5)).astype(np.float64),
    "hamming": lambda x: np.where(np.abs(x) < 1, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0),
    "lanczos": lambda x: _lanczos(x, 3),
    "lanczos4": lambda x: _lanczos(x, 4),
}


# What a side's transforms do to raw images: found out by trying, where both the raw and the finished image are at hand.
#
# A pipeline is resize, crop, order of channels and a straight line for each channel (mean, std and scale). Sizes are
# looked for on a coarse grid of pixels first; of the likeliest every method, rounding and offset is tried on whole images.


GRID = 16
"""Rows and columns of the coarse grid."""
BEYOND = 64
"""Sizes up to so many pixels above the result's are tried, and ``RATIOS`` of it."""
RATIOS = (1.1428571, 1.15, 1.25, 1.333334, 1.5, 2.0)
"""Ratios of resizing to cropping that are tried: 256 of 224, 255 and 292 of 224 or so, those of timm's and torchvision's weights
(1 / 0.875, 1 / 0.87, 1 / 0.8, 1 / 0.75, 3 / 2) and twice."""
FINE, FINEST = 10, 3
"""Sizes that are tried with every method, and those that are tried on whole images."""
IMAGES = 3
"""Images on which a pipeline is looked for: what fits one by chance does not fit three."""
HALVES = ("down", "even", "up")
CUTS: tuple[Options, ...] = (*({"halves": one, "corner": False} for one in HALVES), {"corner": True})
"""Where a crop may begin. A pixel to the side is as far off as several pixels of size, so that each size has its best."""
GOOD = 0.9
"""Share of the result's spread up to which a coarse guess is followed: nearest neighbours of small images are rough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Where the pixels of a result come from.

    Attributes:
        rule: ``"none"`` (no resizing), ``"short"`` (the short side to ``side``, the shape kept), ``"exact"``.
        height: of the resized image, in pixels; of ``"short"`` the short side.
        width: likewise.
        rounds: whether the long side is rounded, else cut, of ``"short"``.
        down: of the crop, in pixels from its place in the middle, or from the top if ``corner``.
        right: likewise.
        corner: whether the crop is measured from the top left.
        halves: where the middle lies between two pixels: ``"down"``, ``"even"`` (Python's ``round``) or ``"up"``.
    """

    rule: str
    height: int = 0
    width: int = 0
    rounds: bool = False
    down: int = 0
    right: int = 0
    corner: bool = False
    halves: str = "down"

    def shape(self, raw: tuple[int, ...]) -> tuple[int, int]:
        """Return the resized image's height and width."""
        if self.rule == "none":
            return raw[0], raw[1]
        if self.rule == "exact":
            return self.height, self.width
        high, wide = raw[:2]
        long = self.height * max(high, wide) / min(high, wide)
        whole = int(long + 0.5) if self.rounds else int(long)
        return (self.height, whole) if high <= wide else (whole, self.height)

    def place(self, shape: tuple[int, int], crop: tuple[int, int]) -> tuple[int, int] | None:
        """Return where the crop begins, None where it does not fit."""
        gaps = [one - other for one, other in zip(shape, crop, strict=True)]
        middle = {"down": lambda gap: gap // 2, "even": lambda gap: round(gap / 2), "up": lambda gap: -(-gap // 2)}
        begin = [
            (0 if self.corner else middle[self.halves](gap)) + by
            for gap, by in zip(gaps, (self.down, self.right), strict=True)
        ]
        if any(not 0 <= at <= gap for at, gap in zip(begin, gaps, strict=True)):
            return None
        return begin[0], begin[1]

    def size_words(self) -> str:
        """Return the size in words."""
        if self.rule == "none":
            return "does not resize"
        if self.rule == "exact":
            return f"resizes to exactly {self.height}x{self.width}"
        return f"resizes the short side to {self.height}" + (" (the long side rounded)" if self.rounds else "")

    def crop_words(self) -> str:
        """Return the place of the crop in words."""
        moved = f", {self.down:+d} px down and {self.right:+d} px to the right" if self.down or self.right else ""
        return (
            "the top left" if self.corner else f"the middle (halves rounded {self.halves.replace('even', 'to even')})"
        ) + moved


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipeline:
    """What a side does to raw images.

    Attributes:
        geometry: size and place.
        method: of resizing; None where nothing is resized.
        whole: whether the resized image is rounded to whole grey levels.
        order: the raw image's channel that each of the result's is made of.
        factor: per channel: ``factor * pixel + shift``.
        shift: likewise.
        largest: what white is in the raw image.
        left: root mean square of what it does not explain.
    """

    geometry: Geometry
    method: Method | None
    whole: bool
    order: tuple[int, ...]
    factor: Array
    shift: Array
    largest: float
    left: float

    def alike(self, raws: Sequence[Array], crop: tuple[int, int]) -> set[str]:
        """Return the ways of rounding halves that cut these images where this one does."""
        shapes = [self.geometry.shape(one.shape) for one in raws]
        places = [[replace(self.geometry, halves=one).place(shape, crop) for shape in shapes] for one in HALVES]
        mine = places[HALVES.index(self.geometry.halves)]
        return {one for one, cut in zip(HALVES, places, strict=True) if cut == mine}

    @property
    def constants(self) -> str:
        """The normalization in words."""
        scale = self.factor * self.largest
        for one in constants(len(self.factor)):
            a, b = one.line
            if np.allclose(a, scale, rtol=CLOSE, atol=0) and np.allclose(
                b, self.shift, rtol=CLOSE, atol=CLOSE * max(1.0, float(np.abs(a).max()) * 0.5)
            ):
                return one.name
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, std = -self.shift / scale, 1 / scale
        return f"mean {_shown(mean)}, std {_shown(std)} of pixels in 0..1"

    def __str__(self) -> str:
        rounded = ", rounded to whole grey levels" if self.whole else ""
        resized = "" if self.method is None else f" ({self.method}: {self.method.known_as}{rounded})"
        order = "" if self.order == tuple(sorted(self.order)) else f", channels in the order {self.order}"
        return f"{self.geometry.size_words()}{resized}, takes {self.geometry.crop_words()}{order}, normalizes with {self.constants}"


def identify(raws: Sequence[Array], results: Sequence[Array], bound: float) -> Pipeline | None:
    """Return the pipeline that makes ``results`` of ``raws``; None where none leaves at most ``bound``.

    Args:
        raws: images ``[h, w, c]``, of bytes or of floats; sizes are looked for on the first few.
        results: finished images of one shape, channels first or last.
        bound: root mean square of what may be left.
    """
    work = _Images.of(raws, results)
    if work is None:
        return None
    likely = sorted(_coarse(work), key=lambda one: one[0])[:FINE]
    if not likely or likely[0][0] > GOOD:
        return None
    finer = sorted(
        (
            (work.grid_left(geometry, method), geometry, method)
            for _, geometry in likely
            for method in (METHODS[:1] if geometry.rule == "none" else METHODS)
        ),
        key=lambda one: one[0],
    )
    best: Pipeline | None = None
    for _, geometry, method in finer[: FINEST * 3]:
        for found in _finest(work, geometry, method):
            if best is None or found.left < best.left * EXPLAINED:
                best = found
        if best is not None and best.left <= bound / 10:
            break
    if best is None or best.left > bound:
        return None
    # The rounding of the crop's halves is the one that leaves least of all images.
    whole = _Images.of(raws, results, len(raws)) or work
    ways = [replace(best.geometry, halves=one) for one in HALVES if not best.geometry.corner]
    made = [one for way in ways for one in _finest(whole, way, best.method or METHODS[0], (best.whole,), near=False)]
    return min([one for one in made if one.order == best.order] or [best], key=lambda one: one.left)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Images:
    """Raw images and results, ``[h, w, c]`` each."""

    raws: list[Array]
    results: list[Array]
    largest: float
    floats: list[Array]

    @classmethod
    def of(cls, raws: Sequence[Array], results: Sequence[Array], most: int = IMAGES) -> _Images | None:
        axis = channel_axis(results[0].shape)
        if axis is None or any(one.ndim != 3 or one.shape != results[0].shape for one in results):
            return None
        whole = [one if one.ndim == 3 else one[..., None] for one in raws[:most] if one.ndim in (2, 3)]
        finished = [np.moveaxis(one, axis, -1).astype(np.float64) for one in results[:most]]
        if len(whole) != len(finished) or any(one.shape[-1] != finished[0].shape[-1] for one in whole):
            return None
        high = max(float(one.max()) for one in whole)
        floats = [one.astype(np.float64) for one in whole]
        return cls(
            floats=floats,
            raws=whole,
            results=finished,
            largest=255.0 if whole[0].dtype == np.uint8 or high > 2 else 1.0,
        )

    @property
    def crop(self) -> tuple[int, int]:
        return self.results[0].shape[0], self.results[0].shape[1]

    def grid_left(self, geometry: Geometry, method: Method) -> float:
        """Return what is left on a grid of pixels, as a share of the spread."""
        rows, columns = (np.unique(np.linspace(0, length - 1, GRID).astype(int)) for length in self.crop)
        given, wanted = [], []
        for raw, result in zip(self.floats[:IMAGES], self.results[:IMAGES], strict=True):
            shape = geometry.shape(raw.shape)
            begin = geometry.place(shape, self.crop)
            if begin is None:
                return float("inf")
            at = rows + begin[0], columns + begin[1]
            made = raw[np.ix_(*at)] if geometry.rule == "none" else resize(raw, shape, method, *at)
            given.append(made.reshape(-1, made.shape[-1]))
            wanted.append(result[np.ix_(rows, columns)].reshape(-1, result.shape[-1]))
        found = _fit_lines(np.concatenate(given), np.concatenate(wanted))
        spread = float(np.concatenate(wanted).std())
        return found[3] / spread if spread else float("inf")


def _coarse(work: _Images) -> Iterator[tuple[float, Geometry]]:
    """Yield each size, cut where it leaves least, with what that is on the grid, resized in the commonest way."""
    high, wide = work.crop
    sizes = {*range(min(high, wide), min(high, wide) + BEYOND + 1), *(round(min(high, wide) * one) for one in RATIOS)}
    found = [Geometry(rule="exact", height=high, width=wide), Geometry(rule="none")]
    found += [Geometry(rule="short", height=one, rounds=rounds) for one in sorted(sizes) for rounds in (False, True)]
    if high == wide:
        found += [Geometry(rule="exact", height=one, width=one) for one in sorted(sizes) if one != high]
    seen = set()
    for size in found:
        cuts: list[tuple[float, Geometry]] = []
        for cut in CUTS:
            geometry = replace(size, **cut)
            shapes = [geometry.shape(one.shape) for one in work.raws]
            places = [geometry.place(shape, work.crop) for shape in shapes]
            key = (geometry.rule == "none", *zip(shapes, places, strict=True))
            if None not in places and key not in seen:
                seen.add(key)
                cuts.append((work.grid_left(geometry, METHODS[0]), geometry))
        if cuts:
            yield min(cuts, key=itemgetter(0))


def _finest(
    work: _Images, geometry: Geometry, method: Method, wholes: Sequence[bool] = (True, False), *, near: bool = True
) -> Iterator[Pipeline]:
    """Yield pipelines of one size and method: rounded or not, the crop a pixel to either side if ``near``."""
    resizes = geometry.rule != "none"
    for whole in wholes if resizes else (False,):
        images = []
        for raw in work.raws:
            shape = geometry.shape(raw.shape)
            if not resizes:
                images.append(raw.astype(np.float64))
                continue
            made = resize_bytes(raw, shape, method) if whole else None
            if made is None:
                made = resize(raw, shape, method)
                made = np.rint(made).clip(0, work.largest) if whole else made
            images.append(made)
        for moved in _near(geometry) if near else (geometry,):
            places = [moved.place((one.shape[0], one.shape[1]), work.crop) for one in images]
            if None in places:
                continue
            parts = [
                one[at[0] : at[0] + work.crop[0], at[1] : at[1] + work.crop[1]]
                for one, at in zip(images, places, strict=True)
                if at is not None
            ]
            given, wanted = (
                np.concatenate([one.reshape(-1, one.shape[-1]) for one in side]) for side in (parts, work.results)
            )
            order, factor, shift, left = _fit_lines(given, wanted)
            yield Pipeline(
                geometry=moved,
                method=method if resizes else None,
                whole=whole and resizes,
                order=order,
                factor=factor,
                shift=shift,
                largest=work.largest,
                left=left,
            )


def _near(geometry: Geometry) -> Iterator[Geometry]:
    """Yield geometries whose crop is a pixel to either side at most, the likeliest first."""
    yield geometry
    if not geometry.corner:
        yield from (replace(geometry, halves=one) for one in HALVES if one != geometry.halves)
        yield from (
            replace(geometry, down=down, right=right)
            for down, right in product((0, 1, -1), repeat=2)
            if (down, right) != (0, 0)
        )


def _fit_lines(given: Array, wanted: Array) -> tuple[tuple[int, ...], Array, Array, float]:
    """Return the order of channels, straight lines that make ``wanted`` of ``given``, and what they leave, RMS."""
    channels = given.shape[1]
    orders = [tuple(range(channels))] + ([tuple(reversed(range(channels)))] if channels > 1 else [])
    found = []
    for order in orders:
        x, y = given[:, list(order)].T, wanted.T
        factor, shift = fit(x, y)
        left = float(np.sqrt(np.mean(np.square(factor[:, None] * x + shift[:, None] - y))))
        found.append((order, factor, shift, left))
    return min(found, key=itemgetter(3))


# Why two sides' transforms differ, where the raw images are at hand: both pipelines are found out and held together.


Change = Callable[[Array], Array]


def explain_pipelines(
    raws: tuple[Sequence[Array], Sequence[Array]], expected: Sequence[Array], actual: Sequence[Array]
) -> tuple[list[DataCause], str]:
    """Return what the sides do otherwise to raw images, and what each was found to do, in words.

    Returns:
        No cause where the pipelines do not explain 99 % of the difference; of what was found out the words tell all the same.
    """
    es, acts = [one.astype(np.float64) for one in expected], [one.astype(np.float64) for one in actual]
    off = apart(es, acts)
    scale = min(off, size_of(es) + size_of(acts))
    ours, theirs = (identify(raw, made, scale * (1 - EXPLAINED)) for raw, made in zip(raws, (es, acts), strict=True))
    words = "; ".join(
        f"the {side} {found}" for side, found in (("reference", ours), ("port", theirs)) if found is not None
    )
    if ours is None or theirs is None:
        return [], words
    explained = 1 - (ours.left + theirs.left) / scale
    if explained < EXPLAINED:
        return [], words
    crop = es[0].shape[-2:] if channel_axis(es[0].shape) == -3 else es[0].shape[-3:-1]
    ways = (one.alike(raw, (crop[0], crop[1])) for one, raw in zip((ours, theirs), raws, strict=True))
    return list(_differences(ours, theirs, explained, halves=not set.intersection(*ways))), words


def _differences(ours: Pipeline, theirs: Pipeline, explained: float, *, halves: bool) -> Iterator[DataCause]:
    """Yield what differs between two pipelines, in the order in which it is done; ``halves``: crops are rounded otherwise."""

    def cause(code: str, message: str, fix: str) -> DataCause:
        return DataCause(code, message, fix, explained=explained)

    one, other = ours.geometry, theirs.geometry
    if (one.rule, one.height, one.width, one.rounds) != (other.rule, other.height, other.width, other.rounds):
        yield cause(
            "resize-size",
            f"resize: the reference {one.size_words()}, the port {other.size_words()}",
            "resize as the reference does: it " + one.size_words(),
        )
    if ours.method != theirs.method and ours.method is not None and theirs.method is not None:
        same = ours.method.kernel == theirs.method.kernel and ours.method.grid == theirs.method.grid
        yield cause(
            "antialias" if same else "interpolation",
            f"resize: the reference's interpolation is {ours.method} ({ours.method.known_as}), the port's {theirs.method} ({theirs.method.known_as})",
            f"resize with {ours.method}: {ours.method.known_as}",
        )
    elif ours.whole != theirs.whole:
        which = "port" if theirs.whole else "reference"
        yield cause(
            "rounding",
            f"resize: only the {which} rounds to whole grey levels after resizing",
            f"resize {'bytes' if ours.whole else 'floats'}, as the reference does",
        )
    places = [(at.corner, at.down, at.right) for at in (one, other)]
    if places[0] != places[1] or (halves and not one.corner):
        yield cause(
            "crop-offset",
            f"crop: the reference takes {one.crop_words()}, the port {other.crop_words()}",
            f"cut {one.crop_words()}",
        )
    if ours.order != theirs.order:
        yield cause(
            "channel-order",
            f"channel order: the reference takes the raw channels {ours.order}, the port {theirs.order}",
            "give the port's transforms channels in the reference's order: convert BGR to RGB",
        )
    factors = np.abs(ours.factor - theirs.factor).max() / np.abs(ours.factor).max()
    if max(factors, np.abs(ours.shift - theirs.shift).max()) > ROUGH:
        yield cause(
            "normalization",
            f"normalization: the reference's is {ours.constants}, the port's {theirs.constants}",
            f"normalize with the reference's constants: {ours.constants}",
        )


ROUNDED = "round the crop's offset as the reference does: torch's CenterCrop takes int(round((size - crop) / 2))"
"""What to do about a crop that is a pixel off."""


def moves_of(down: int, right: int) -> str:
    """Return how a picture is moved, in words."""
    return ", ".join(filter(None, (_pixels(down, "down", "up"), _pixels(right, "to the right", "to the left"))))


def _pixels(count: int, plus: str, minus: str) -> str:
    return f"{abs(count)} px {plus if count > 0 else minus}" if count else ""


RERUNS: tuple[tuple[str, str, str, Change], ...] = (
    (
        "channel-order",
        "channel order: reversed (RGB against BGR) before the transforms",
        "convert the raw image's channels to the reference's order",
        lambda raw: raw[..., ::-1],
    ),
    ("flip", "values: mirrored left to right before the transforms", "remove the flip", lambda raw: raw[:, ::-1]),
    ("flip", "values: mirrored upside down before the transforms", "remove the flip", lambda raw: raw[::-1]),
    (
        "height-width",
        "layout: height and width are exchanged before the transforms",
        "exchange height and width back: (h, w), not (w, h)",
        lambda raw: np.swapaxes(raw, 0, 1),
    ),
    *(
        (
            "crop-offset",
            f"size: the same picture, {moves_of(*by)}: is it another crop?",
            ROUNDED,
            partial(np.roll, shift=by, axis=(0, 1)),
        )
        for by in product((0, 1, -1), repeat=2)
        if any(by)
    ),
)
"""What may have been done to a raw image before the transforms."""


def explain_reruns(
    run: Callable[[Array], Array], raws: Sequence[Array], expected: Sequence[Array], actual: Sequence[Array]
) -> list[DataCause]:
    """Return what has to be done to raw images so that the reference makes of them what the port makes."""
    acts = [one.astype(np.float64) for one in actual]
    off = min(apart([one.astype(np.float64) for one in expected], acts), size_of(acts) + 1)
    for code, message, fix, change in RERUNS:
        if any(raw.ndim != 3 for raw in raws):
            continue
        try:
            found = [np.asarray(run(np.ascontiguousarray(change(raw))), dtype=np.float64) for raw in raws]
        except Exception:  # noqa: BLE001, S112  (a transform that cannot take it: the hypothesis does not apply)
            continue
        left = apart(found, acts)
        if left <= max(rounding(found, acts), (1 - EXPLAINED) * off):
            return [DataCause(code, message, fix, explained=min(1.0, 1 - left / off))]
    return []


def spy(dataset: Dataset, numbers: Sequence[int]) -> list[tuple[Array, Nested]] | None:
    """Return what goes into a data set's ``transform`` and what comes out of it, sample by sample; None without one.

    The data set is not changed: a shallow copy of it is given a transform that remembers.
    """
    inner = getattr(dataset, "transform", None)
    if not callable(inner):
        return None
    seen: list[tuple[Nested, Nested]] = []

    def remember(raw: object) -> Nested:
        before = np.array(raw)
        made = inner(raw)
        seen.append((before, made))
        return made

    try:
        copied: Nested = copy.copy(dataset)
        copied.transform = remember
        found = []
        for number in numbers:
            seen.clear()
            copied[number]
            if len(seen) != 1 or seen[0][0].dtype.kind not in "biuf":
                return None
            found.append(seen[0])
    except Exception:  # noqa: BLE001  (a data set that cannot be copied or called so tells nothing)
        return None
    return found
