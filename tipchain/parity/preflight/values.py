"""How the values of a parameter differ from those it should have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.differences import equal
from tipchain.parity.locate.layer_pairs import Print, print_of
from tipchain.parity.rounding import REMAINDER, ROUGH, SAME_SINGLE

Array = npt.NDArray[Any]
GATES = {"LSTM": "ifgo", "LSTMCell": "ifgo", "GRU": "rzn", "GRUCell": "rzn"}
"""The gates of recurrent layers, in the order in which both frameworks stack their weights."""
ROUNDED = {"float64": SAME_SINGLE, "float32": SAME_SINGLE, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Relative difference up to which values are the same, by the coarser dtype: of 16-bit ones, their spacing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference of values.

    Attributes:
        code: its slug.
        text: what the port's values are, as the end of a sentence.
        fix: what to do.
    """

    code: str
    text: str
    fix: str


def difference(
    expected: Array, actual: Array, *, kind: str, leaf: str, dtypes: tuple[str, str],
    others: Mapping[Print, Sequence[str]], own: str,
) -> Difference | None:  # fmt: skip
    """Say how values differ; None where they are the same up to their precision.

    Args:
        expected: torch's.
        actual: the port's, in torch's layout; of one shape.
        kind: the layer's.
        leaf: torch's name of the tensor in the layer.
        dtypes: of both.
        others: names of torch's tensors by `print_of` their values.
        own: torch's name of this one.
    """
    if _equal(expected, actual, max(ROUNDED.get(dtype, 0.0) for dtype in dtypes)):
        return None
    if leaf.startswith("running_"):
        return Difference(
            code="running-statistics", text=f"other statistics: {_measure(expected, actual)}",
            fix="copy torch's running_mean and running_var with the weights",
        )  # fmt: skip
    found = _arranged(expected, actual, kind)
    return found or _elsewhere(expected, actual, others, own) or _rescaled(expected, actual) or Difference(
        code="values", text=f"other values: {_measure(expected, actual)}", fix="copy it: `tipchain.copy_weights(reference, port)`"
    )  # fmt: skip


def _equal(expected: Array, actual: Array, tolerance: float) -> bool:
    if equal(expected, actual):
        return True
    if expected.dtype.kind not in "fc" or actual.dtype.kind not in "fc":
        return False
    return bool(
        np.allclose(
            actual, expected, rtol=tolerance, atol=tolerance * ROUGH * _size(expected), equal_nan=True
        )
    )


def _size(array: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(np.sqrt(np.mean(np.square(array, dtype=np.float64)))) if array.size else 0.0
    return found if np.isfinite(found) else 0.0


def _measure(expected: Array, actual: Array) -> str:
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    odd = int(np.count_nonzero(apart)) + int(np.isnan(apart).sum() if not np.count_nonzero(apart) else 0)
    return f"{odd} of {apart.size} differ, by up to {np.nanmax(apart) if not np.isnan(apart).all() else np.nan:.3g}"


def _arranged(expected: Array, actual: Array, kind: str) -> Difference | None:
    """Say that the same numbers stand in another order."""
    if print_of(np.asarray(expected, np.float64)) != print_of(np.asarray(actual, np.float64)):
        return None
    for axes in permutations(range(expected.ndim)):
        if tuple(expected.shape[axis] for axis in axes) == actual.shape and np.array_equal(
            expected.transpose(axes), actual
        ):
            how = "transposed" if expected.ndim == 2 else f"with its axes in the order {list(axes)}"
            return Difference(
                code="transposed-weight", text=f"torch's {how}", fix="transpose it back when it is copied"
            )
    blocks = _blocks(expected, actual, kind)
    if blocks is not None:
        return blocks
    for axis in range(expected.ndim):
        if np.array_equal(_sorted(expected, axis), _sorted(actual, axis)):
            return Difference(
                code="permuted-weight", text=f"torch's with axis {axis} in another order",
                fix="keep the order of torch's elements when it is copied",
            )  # fmt: skip
    flipped = tuple(range(2, expected.ndim))
    if flipped and np.array_equal(np.flip(expected, flipped), actual):
        return Difference(
            code="flipped-weight", text="torch's with its kernel mirrored", fix="do not mirror the kernel"
        )
    return Difference(
        code="permuted-weight",
        text="torch's numbers in another order",
        fix="keep torch's order when it is copied",
    )


def _sorted(array: Array, axis: int) -> Array:
    """Return the slices along an axis in an order of their own."""
    rows = np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    return rows[np.lexsort(rows.T[::-1][: min(8, rows.shape[1])])]


def _blocks(expected: Array, actual: Array, kind: str) -> Difference | None:
    """Say that the blocks stacked along the first axis (gates, projections) stand in another order."""
    gates = GATES.get(kind)
    for count in (len(gates),) if gates else (3, 2, 4):
        if not expected.ndim or expected.shape[0] % count:
            continue
        ours, theirs = (np.split(array, count) for array in (expected, actual))
        order = [
            next((i for i, one in enumerate(ours) if np.array_equal(one, other)), None) for other in theirs
        ]
        if None in order or sorted(filter(lambda one: one is not None, order)) != list(range(count)):  # type: ignore[type-var]
            continue
        names = gates or ("qkv" if count == 3 else "0123"[:count])
        there = "".join(names[one] for one in order if one is not None)
        code = "gate-order" if gates else "swapped-projections"
        return Difference(
            code=code, text=f"torch's with its blocks in the order {', '.join(there)} instead of {', '.join(names)}",
            fix=f"stack them in the order {', '.join(names)}",
        )  # fmt: skip
    return None


def _elsewhere(
    expected: Array, actual: Array, others: Mapping[Print, Sequence[str]], own: str
) -> Difference | None:
    """Say that the values are those of another tensor."""
    print_ = print_of(actual.astype(expected.dtype, copy=False))
    names = [name for name in others.get(print_, ()) if name != own] if any(print_[1:]) else []
    if len(names) != 1:
        return None
    return Difference(
        code="other-layer-weight",
        text=f"those of torch's {names[0]}",
        fix=f"copy torch's {own} to it, not {names[0]}",
    )


def _rescaled(expected: Array, actual: Array) -> Difference | None:
    """Say that the values are torch's times one number."""
    if expected.size < 4 or not np.isfinite(actual).all() or not np.isfinite(expected).all():
        return None
    ours, theirs = (np.asarray(one, np.float64).reshape(-1) for one in (expected, actual))
    squares = float(np.dot(ours, ours))
    factor = float(np.dot(ours, theirs)) / squares if squares else 0.0
    if (
        not factor
        or abs(factor - 1) < ROUGH
        or not np.allclose(theirs, factor * ours, rtol=REMAINDER, atol=SAME_SINGLE * _size(theirs))
    ):
        return None
    return Difference(
        code="scaled-weight", text=f"torch's times {factor:.6g}", fix=f"do not multiply it by {factor:.6g}"
    )
