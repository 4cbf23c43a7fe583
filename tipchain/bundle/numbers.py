"""Arrays of two references held against each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
TRUTH_RTOL = 1e-10
"""Share of a tensor's largest value by which two correct float64 runs may differ; ResNet-50's gradients need 2e-11."""
NOISE_FACTOR = 10.0
"""How many times its own movement from weights a few units apart a float64 result may differ."""
MOST_NOISE = 1e-7
"""Share of the largest value above which float64's own movement allows no more."""
LAST_PLACES = 16
"""Units in the last place of the largest value that count as equal, where there is no float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truths:
    """A stage's float64 arrays of two references.

    Attributes:
        noise: by how much rounding moves each of them, of both references.
    """

    old: Arrays
    new: Arrays
    noise: tuple[Mapping[str, float], Mapping[str, float]]


def group_of(name: str) -> str:
    """Return what a tensor is measured with: ``gradient`` of ``gradient/head.bias``, itself where it stands alone.

    A second mode's names keep it: ``train/gradient`` of ``train/gradient/head.bias``.
    """
    parts = name.split("/")
    depth = 2 if parts[0] in ("train", "eval") and len(parts) > 2 else 1
    return "/".join(parts[:depth]) if len(parts) > depth else name


def same(left: Arrays, right: Arrays) -> bool:
    """Tell whether both have the same arrays, bit by bit."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def mismatch(left: Arrays, right: Arrays) -> str:
    """Say which array only one side has or has another shape or dtype, or ""."""
    for first, second, words in ((left, right, "gone"), (right, left, "new")):
        names = [name for name in first if name not in second]
        if names:
            return f"{len(names)} arrays are {words}: {', '.join(names[:3])}"
    for name, array in left.items():
        other = right[name]
        if (array.shape, array.dtype) != (other.shape, other.dtype):
            return f"{name} was {array.dtype} {array.shape}, is {other.dtype} {other.shape}"
    return ""


def difference(left: Array, right: Array) -> float:
    """Return the largest ``|difference|``; infinite where only one side is not finite, or whole numbers differ."""
    if left.dtype.kind not in "fc":
        return 0.0 if np.array_equal(left, right) else float("inf")
    finite = np.isfinite(left)
    if not np.array_equal(finite, np.isfinite(right)) or not np.array_equal(
        left[~finite], right[~finite], equal_nan=True
    ):
        return float("inf")
    kind = np.complex128 if left.dtype.kind == "c" else np.float64
    return float(np.abs(right[finite].astype(kind) - left[finite].astype(kind)).max(initial=0.0))


def largest(array: Array) -> float:
    """Return the largest finite ``|value|``, 0 of none."""
    if array.dtype.kind not in "fc":
        return 0.0
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def compare_truths(truths: Truths) -> tuple[float, str, str]:
    """Return the largest difference as a multiple of what is allowed, of which tensor, and what else is wrong.

    Allowed is `TRUTH_RTOL` of the tensor's own largest value (and a trace of its group's, for what is zero by
    structure), and `NOISE_FACTOR` times its noise.
    """
    wrong = mismatch(truths.old, truths.new)
    if wrong:
        return float("inf"), "", f"float64: {wrong}"
    groups: dict[str, float] = {}
    for name, array in truths.old.items():
        groups[group_of(name)] = max(groups.get(group_of(name), 0.0), largest(array))
    worst, where = 0.0, ""
    for name, array in truths.old.items():
        scale = groups[group_of(name)]
        noise = max((one.get(name, 0.0) for one in truths.noise if isfinite(one.get(name, 0.0))), default=0.0)
        allowed = (
            TRUTH_RTOL * (largest(array) + 1e-4 * scale) + min(NOISE_FACTOR * noise, MOST_NOISE * scale)
        )  # fmt: skip
        ratio = _ratio(difference(array, truths.new[name]), allowed)
        if not ratio <= worst:
            worst, where = ratio, name
    return worst, where, ""


def own_error(dump: Arrays, truth: Arrays, names: Iterable[str]) -> float:
    """Return the root mean square over tensors of their root mean square error, as a share of their group's largest."""
    names = [name for name in names if name in truth and dump[name].dtype.kind == "f"]
    groups: dict[str, float] = {}
    for name in names:
        groups[group_of(name)] = max(groups.get(group_of(name), 0.0), largest(truth[name]))
    squares = []
    for name in names:
        scale = groups[group_of(name)]
        if not dump[name].size or not scale > 0:
            continue
        if difference(dump[name], truth[name]) == float("inf"):
            return float("inf")
        finite = np.isfinite(truth[name])
        away = dump[name][finite].astype(np.float64) - truth[name][finite]
        squares.append(float(np.mean(np.square(away))) / scale**2 if away.size else 0.0)
    return float(np.sqrt(np.mean(squares))) if squares else 0.0


def within_last_places(left: Arrays, right: Arrays) -> tuple[float, str]:
    """Return the largest difference as a share of `LAST_PLACES` of each array's largest value, and of which array."""
    worst, where = 0.0, ""
    for name, array in left.items():
        eps = float(np.finfo(array.dtype).eps) if array.dtype.kind in "fc" else 0.0
        ratio = _ratio(difference(array, right[name]), LAST_PLACES * eps * largest(array))
        if not ratio <= worst:
            worst, where = ratio, name
    return worst, where


def _ratio(away: float, allowed: float) -> float:
    if away == 0:
        return 0.0
    return away / allowed if allowed > 0 else float("inf")
