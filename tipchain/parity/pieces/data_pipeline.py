"""What a side's transforms do to raw images: found out by trying, where both the raw and the finished image are at hand.

A pipeline is resize, crop, order of channels and a straight line for each channel (mean, std and scale). Sizes are
looked for on a coarse grid of pixels first; of the likeliest every method, rounding and offset is tried on whole images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.pieces.data_arrays import channel_axis, fit
from tipchain.parity.pieces.data_constants import name_one
from tipchain.parity.pieces.data_resize import METHODS, Method, resize, resize_bytes
from tipchain.parity.rounding import EXPLAINED

Array = npt.NDArray[Any]
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
CUTS: tuple[dict[str, Any], ...] = (
    *({"halves": one, "corner": False} for one in HALVES),
    {"corner": True},
)
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
        middle = {
            "down": lambda gap: gap // 2,
            "even": lambda gap: round(gap / 2),
            "up": lambda gap: -(-gap // 2),
        }
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
        return f"resizes the short side to {self.height}" + (
            " (the long side rounded)" if self.rounds else ""
        )

    def crop_words(self) -> str:
        """Return the place of the crop in words."""
        moved = (
            f", {self.down:+d} px down and {self.right:+d} px to the right" if self.down or self.right else ""
        )
        return (
            "the top left"
            if self.corner
            else f"the middle (halves rounded {self.halves.replace('even', 'to even')})"
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
        places = [
            [replace(self.geometry, halves=one).place(shape, crop) for shape in shapes] for one in HALVES
        ]
        mine = places[HALVES.index(self.geometry.halves)]
        return {one for one, cut in zip(HALVES, places, strict=True) if cut == mine}

    @property
    def constants(self) -> str:
        """The normalization in words."""
        return name_one(self.factor, self.shift, self.largest)

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
    work = _Work.of(raws, results)
    if work is None:
        return None
    likely = sorted(_coarse(work), key=lambda one: one[0])[:FINE]
    if not likely or likely[0][0] > GOOD:
        return None
    finer = sorted(
        ((work.grid_left(geometry, method), geometry, method) for _, geometry in likely for method in work.methods(geometry)),
        key=lambda one: one[0],
    )  # fmt: skip
    best: Pipeline | None = None
    for _, geometry, method in finer[: FINEST * 3]:
        for found in _finest(work, geometry, method):
            if best is None or found.left < best.left * EXPLAINED:
                best = found
        if best is not None and best.left <= bound / 10:
            break
    if best is None or best.left > bound:
        return None
    return _settled(best, _Work.of(raws, results, len(raws)) or work)


def _settled(found: Pipeline, work: _Work) -> Pipeline:
    """Return a pipeline with the rounding of the crop's halves that leaves least of all images."""
    ways = [replace(found.geometry, halves=one) for one in HALVES if not found.geometry.corner]
    method = found.method or METHODS[0]
    made = [one for way in ways for one in _finest(work, way, method, (found.whole,), near=False)]
    return min([one for one in made if one.order == found.order] or [found], key=lambda one: one.left)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """Raw images and results, ``[h, w, c]`` each."""

    raws: list[Array]
    results: list[Array]
    largest: float
    floats: list[Array]

    @classmethod
    def of(cls, raws: Sequence[Array], results: Sequence[Array], most: int = IMAGES) -> _Work | None:
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

    def methods(self, geometry: Geometry) -> tuple[Method, ...]:
        return METHODS[:1] if geometry.rule == "none" else METHODS

    def grid_left(self, geometry: Geometry, method: Method, images: int = IMAGES) -> float:
        """Return what is left on a grid of pixels, as a share of the spread."""
        rows, columns = (np.unique(np.linspace(0, length - 1, GRID).astype(int)) for length in self.crop)
        given, wanted = [], []
        for raw, result in zip(self.floats[:images], self.results[:images], strict=True):
            shape = geometry.shape(raw.shape)
            begin = geometry.place(shape, self.crop)
            if begin is None:
                return float("inf")
            at = rows + begin[0], columns + begin[1]
            made = raw[np.ix_(*at)] if geometry.rule == "none" else resize(raw, shape, method, *at)
            given.append(made.reshape(-1, made.shape[-1]))
            wanted.append(result[np.ix_(rows, columns)].reshape(-1, result.shape[-1]))
        found = _lines(np.concatenate(given), np.concatenate(wanted))
        spread = float(np.concatenate(wanted).std())
        return found[3] / spread if spread else float("inf")


def _coarse(work: _Work) -> Iterator[tuple[float, Geometry]]:
    """Yield each size, cut where it leaves least, with what that is on the grid, resized in the commonest way."""
    high, wide = work.crop
    sizes = {
        *range(min(high, wide), min(high, wide) + BEYOND + 1),
        *(round(min(high, wide) * one) for one in RATIOS),
    }
    found = [Geometry(rule="exact", height=high, width=wide), Geometry(rule="none")]
    found += [
        Geometry(rule="short", height=one, rounds=rounds) for one in sorted(sizes) for rounds in (False, True)
    ]
    if high == wide:
        found += [Geometry(rule="exact", height=one, width=one) for one in sorted(sizes) if one != high]
    seen = set()
    for size in found:
        best: tuple[float, Geometry] | None = None
        for cut in CUTS:
            geometry = replace(size, **cut)
            shapes = [geometry.shape(one.shape) for one in work.raws]
            places = [geometry.place(shape, work.crop) for shape in shapes]
            key = (geometry.rule == "none", *zip(shapes, places, strict=True))
            if None in places or key in seen:
                continue
            seen.add(key)
            left = work.grid_left(geometry, METHODS[0])
            if best is None or left < best[0]:
                best = left, geometry
        if best is not None:
            yield best


def _finest(
    work: _Work,
    geometry: Geometry,
    method: Method,
    wholes: Sequence[bool] = (True, False),
    *,
    near: bool = True,
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
                for one, at in zip(images, places, strict=True) if at is not None
            ]  # fmt: skip
            given, wanted = (
                np.concatenate([one.reshape(-1, one.shape[-1]) for one in side])
                for side in (parts, work.results)
            )
            order, factor, shift, left = _lines(given, wanted)
            yield Pipeline(geometry=moved, method=method if resizes else None, whole=whole and resizes, order=order,
                           factor=factor, shift=shift, largest=work.largest, left=left)  # fmt: skip


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


def _lines(given: Array, wanted: Array) -> tuple[tuple[int, ...], Array, Array, float]:
    """Return the order of channels, straight lines that make ``wanted`` of ``given``, and what they leave, RMS."""
    channels = given.shape[1]
    orders = [tuple(range(channels))] + ([tuple(reversed(range(channels)))] if channels > 1 else [])
    best = None
    for order in orders:
        x, y = given[:, list(order)].T, wanted.T
        factor, shift = fit(x, y)
        left = float(np.sqrt(np.mean(np.square(factor[:, None] * x + shift[:, None] - y))))
        if best is None or left < best[3]:
            best = order, factor, shift, left
    assert best is not None
    return best
