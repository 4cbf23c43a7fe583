"""What a parameter's weight decay looks like, told from its updates alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
EPSILON = float(np.finfo(np.float32).eps)
FREE_NOISE = 5e-5
"""Share of an update in which correct optimizers may differ without any decay; the optimizer stage's tolerance."""
FITS = 1e-2
"""Share of the largest element by which a movement may miss a form and still be of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movements:
    """How one side moved one parameter.

    Attributes:
        start: where it began, ``[elements]``.
        gradients: the gradients of size 1, ``[updates, elements]``.
        sizes: what they were multiplied by; the first is 0.
        moved: how far it moved, ``[sizes, updates, elements]``.
        free: how far it moved from zero, where nothing decays.
        rate: the learning rate.
    """

    start: Array
    gradients: Array
    sizes: tuple[float, ...]
    moved: Array
    free: Array
    rate: float

    @property
    def usable(self) -> bool:
        """Whether there are movements, and all are finite."""
        return bool(self.start.size and np.isfinite(self.moved).all() and np.isfinite(self.free).all())

    @property
    def decay(self) -> Array:
        """What the decay adds, ``[sizes, updates, elements]``."""
        difference: Array = self.moved - self.free
        return difference

    @property
    def rounding(self) -> Array:
        """The part of `decay` that may be rounding, per row, ``[sizes, updates]``."""
        weights = np.abs(self.start).max() + np.abs(self.moved).max(axis=2)
        noise: Array = 8 * EPSILON * weights + FREE_NOISE * np.abs(self.free).max(axis=2)
        return noise

    @property
    def visibility(self) -> float:
        """How many times larger than its rounding the decay is, in the row where it shows best."""
        shown: Array = np.abs(self.decay).max(axis=2) / self.rounding
        return float(shown.max())

    @property
    def decays(self) -> bool:
        """Whether there is any decay beyond rounding."""
        return not self.visibility <= 1.0


def form_of(side: Movements) -> str:
    """Say in a few words how a side decays a parameter, from its updates without gradients.

    Movements in proportion to the parameter are L2's or decoupled decay's; equal ones L1's, or those of an optimizer
    that divides by the gradient's size, of which the gradients that decay just overcomes tell L1 from L2.
    """
    if not side.decays:
        return "not decayed"
    first = side.decay[0, 0]
    if not np.abs(first).max() > side.rounding[0, 0]:
        return "moved only together with gradients"
    share = float(first @ side.start / (side.start @ side.start))
    sign = float(np.mean(first * np.sign(side.start)))
    if _fits(first, share * side.start):
        return _in_proportion(side, share)
    if not _fits(first, sign * np.sign(side.start)):
        return "decayed in no known form"
    if abs(sign) < 0.5 * side.rate:
        return f"L1, by {abs(sign):.4g} towards zero"
    return f"{_behind_division(side)}, divided by the gradient's size"


def _in_proportion(side: Movements, share: float) -> str:
    """Tell L2 from decoupled decay, where anything tells them."""
    first, second = side.decay[0]
    carried = float(np.abs(second).max() / np.abs(first).max())
    if abs(carried - 1) > FITS:
        return f"L2 through the momentum, by {-share:.4g} of the parameter, then {carried:.3g} times that"
    # Gradients a hundred times as large hardly move a parameter further where their size is divided by.
    divides = np.abs(side.free[-1, 0]).max() < 10 * np.abs(side.free[-2, 0]).max()
    return f"{'decoupled' if divides else 'L2 or decoupled'}, by {-share:.4g} of the parameter"


def _fits(movement: Array, form: Array) -> bool:
    return bool(np.abs(movement - form).max() <= FITS * np.abs(movement).max())


def _behind_division(side: Movements) -> str:
    """Tell L1 from L2 by which gradients of the other sign the decay overcomes: all below c, or all below c |p|."""
    gradient = np.concatenate([size * side.gradients[0] for size in side.sizes[1:]])
    start = np.tile(side.start, len(side.sizes) - 1)
    flipped = np.concatenate([np.sign(row[0]) != np.sign(base[0]) for row, base in
                              zip(side.moved[1:], side.free[1:], strict=True)])  # fmt: skip
    against = np.sign(gradient) != np.sign(start)
    by_value = _separated(np.abs(gradient)[against], flipped[against])
    by_share = _separated((np.abs(gradient) / np.abs(start))[against], flipped[against])
    if by_value is None and by_share is not None:
        return f"L2, coefficient {by_share}"
    if by_share is None and by_value is not None:
        return f"L1, coefficient {by_value}"
    return "L1 or L2"


def _separated(values: Array, flipped: npt.NDArray[np.bool_]) -> str | None:
    """Return the threshold, as a range, below which all elements flipped and above which none did; None without one."""
    if not flipped.any() or flipped.all():
        return None
    low, high = float(values[flipped].max()), float(values[~flipped].min())
    return f"between {low:.3g} and {high:.3g}" if low <= high else None
