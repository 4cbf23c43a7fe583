"""The constants that images are usually normalized with, and which of them two sides use.

Sources: ImageNet's are those of torchvision's and PaddleClas' models, CLIP's those of OpenAI's release,
Inception's 0.5; Caffe's subtract the mean of BGR channels from 0..255; CIFAR's and MNIST's are those of common scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.rounding import NOISE, SAME_SINGLE

Array = npt.NDArray[Any]
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


def name_one(factor: Array, shift: Array, largest: float) -> str:
    """Return what a normalization ``factor * pixel + shift`` of raw pixels is, with its mean and std.

    Args:
        factor: per channel.
        shift: per channel.
        largest: what white is in the raw image: 255 of bytes, else 1.
    """
    scale = factor * largest
    for one in constants(len(factor)):
        a, b = one.line
        if np.allclose(a, scale, rtol=CLOSE, atol=0) and np.allclose(
            b, shift, rtol=CLOSE, atol=CLOSE * max(1.0, float(np.abs(a).max()) * 0.5)
        ):
            return one.name
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, std = -shift / scale, 1 / scale
    return f"mean {_shown(mean)}, std {_shown(std)} of pixels in 0..1"


def _shown(values: Array) -> str:
    return "[" + ", ".join(f"{one:.4g}" for one in values) + "]"
