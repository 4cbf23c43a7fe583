"""What makes two results of deployment code differ, though both were made of the same model's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.findings import Diagnosis
from tipchain.parity.pieces.data_images import explain_images
from tipchain.parity.pieces.data_order import explain_labels
from tipchain.parity.pieces.data_sources import DataCause, apart, rounding, same_array
from tipchain.parity.pieces.loss_formulas import log_softmax
from tipchain.parity.rounding import EXPLAINED, SAME_ENLARGED

Array = npt.NDArray[Any]
Change = Callable[[Array], Array]
SHOWN = 4
"""Values that a message shows."""


def explain_results(
    expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]], path: str
) -> Iterator[Diagnosis]:
    """Yield the cause of each entry of results that differs.

    Args:
        expected: the reference's results, by sample: arrays and strings by entry.
        actual: the port's.
        path: what diagnoses call the piece.
    """
    for name in expected[0]:
        if any(name not in one for one in (*expected, *actual)):
            continue
        es, acts = [one[name] for one in expected], [one[name] for one in actual]
        cause = _explain(es, acts)
        if cause is not None:
            share = "" if cause.explained is None else f": {cause.explained:.2%} of the difference is gone"
            yield cause.diagnosis(name, f"tried on {len(es)} results{share}", path)


def _explain(expected: Sequence[Any], actual: Sequence[Any]) -> DataCause | None:
    if any(isinstance(one, str) for one in (*expected, *actual)):
        return _of_strings([str(one) for one in expected], [str(one) for one in actual])
    es, acts = [np.asarray(one) for one in expected], [np.asarray(one) for one in actual]
    if all(same_array(one, other) for one, other in zip(es, acts, strict=True)):
        return None
    found = _rows(es, acts)
    if found is None and all(one.shape == other.shape for one, other in zip(es, acts, strict=True)):
        found = _of_labels(es, acts) or _of_values(es, acts)
    return found or next(iter(explain_images(es, acts)), None)


def _of_labels(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
    if any(one.dtype.kind not in "iub" for one in (*expected, *actual)):
        return None
    return explain_labels(
        *([row for one in side for row in one.reshape(-1, 1)] for side in (expected, actual))
    )


def _of_values(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
    es, acts = ([one.astype(np.float64) for one in side] for side in (expected, actual))
    off = apart(es, acts)
    for cause, change, back in _functions(es[0]):
        given, wanted = (acts, es) if back else (es, acts)
        with np.errstate(all="ignore"):
            made = [change(one) for one in given]
        left = apart(made, wanted)
        if left <= max(rounding(made, wanted), (1 - EXPLAINED) * off):  # NaN is not
            return replace(cause, explained=min(1.0, 1 - left / off))
    return None


def _functions(first: Array) -> Iterator[tuple[DataCause, Change, bool]]:
    """Yield what one side may have done to the other's values, and whether the reference alone does it."""
    steps: list[tuple[str, Change]] = [("sigmoid", lambda x: 1 / (1 + np.exp(-x))), ("exp", np.exp)]
    for axis in sorted({first.ndim - 1, 0} if first.ndim else ()):
        steps.insert(0, ("softmax", partial(_softmax, axis=axis)))
    for name, change in steps:
        twice = f"values: the port takes the {name} once more than the reference"
        yield (
            DataCause(
                code=f"{name}-twice", message=twice, fix=f"leave out the port's {name}", explained=None
            ),
            change,
            False,
        )
        lacks = f"values: the port does not take the {name}, the reference does"
        yield (
            DataCause(
                code=f"missing-{name}",
                message=lacks,
                fix=f"take the {name} as the reference does",
                explained=None,
            ),
            change,
            True,
        )
    if first.ndim and first.shape[-1] == 4:
        yield from ((cause, change, False) for cause, change in _boxes())


def _softmax(values: Array, axis: int) -> Array:
    made: Array = np.exp(log_softmax(values, axis))
    return made


def _boxes() -> Iterator[tuple[DataCause, Change]]:
    """Yield boxes in another form: corners, corner and size, centre and size, x and y exchanged."""
    forms: dict[str, tuple[Change, Change]] = {
        "x1 y1 x2 y2": (lambda b: b, lambda b: b),
        "x y w h": (_corners_of_size, lambda b: np.concatenate([b[..., :2], b[..., 2:] - b[..., :2]], -1)),
        "cx cy w h": (
            lambda b: np.concatenate([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1),
            lambda b: np.concatenate([(b[..., :2] + b[..., 2:]) / 2, b[..., 2:] - b[..., :2]], -1),
        ),
    }
    for (ours, (to_corners, _)), (theirs, (_, from_corners)) in permutations(forms.items(), 2):

        def change(boxes: Array, to: Change = to_corners, back: Change = from_corners) -> Array:
            return back(to(boxes))

        yield DataCause(code="box-form", message=f"values: the port's boxes are {theirs}, the reference's {ours}",
                    fix=f"convert boxes to {ours}", explained=1.0), change  # fmt: skip
    yield DataCause(code="box-form", message="values: x and y of the boxes are exchanged", fix="exchange x and y back",
                explained=1.0), lambda b: b[..., [1, 0, 3, 2]]  # fmt: skip


def _corners_of_size(boxes: Array) -> Array:
    return np.concatenate([boxes[..., :2], boxes[..., :2] + boxes[..., 2:]], -1)


def _rows(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
    """Recognize results of which the port's hold the same rows in another order, some of them, or more."""
    if any(
        one.ndim < 1 or one.shape[1:] != other.shape[1:] for one, other in zip(expected, actual, strict=True)
    ):
        return None
    places = [_places(one, other) for one, other in zip(expected, actual, strict=True)]
    reached = [_places(other, one) for one, other in zip(expected, actual, strict=True)]
    counts = sum(map(len, expected)), sum(map(len, actual))
    if all(None not in one for one in places):
        found = [[n for n in one if n is not None] for one in places]
        if all(
            sorted(set(one)) == list(range(len(e))) and len(one) == len(e)
            for one, e in zip(found, expected, strict=True)
        ):
            return DataCause(code="result-order", message="order: the same rows in another order", fix="sort the results as the reference does", explained=1.0)  # fmt: skip
        if counts[1] < counts[0]:
            return DataCause(code="result-count", message=f"size: the port keeps {counts[1]} of the reference's {counts[0]} rows: another threshold, or another number of best ones?",
                         fix="keep as many results as the reference: the same threshold, the same top-k", explained=1.0)  # fmt: skip
    if counts[1] > counts[0] and all(None not in one for one in reached):
        return DataCause(code="result-count", message=f"size: the port keeps {counts[1]} rows, the reference {counts[0]} of them: another threshold, or another number of best ones?",
                     fix="keep as many results as the reference: the same threshold, the same top-k", explained=1.0)  # fmt: skip
    return None


def _places(rows: Array, others: Array) -> list[int | None]:
    """Return of each row of ``others`` which of ``rows`` it is, None of one that is none."""
    flat, given = (
        rows.reshape(len(rows), -1).astype(np.float64),
        others.reshape(len(others), -1).astype(np.float64),
    )
    scale = float(np.abs(flat).max(initial=0.0))
    found: list[int | None] = []
    for row in given:
        near = (
            np.flatnonzero((np.abs(flat - row) <= SAME_ENLARGED * scale).all(axis=1))
            if len(flat)
            else np.zeros(0, int)
        )
        left = [int(one) for one in near if int(one) not in found]
        found.append(left[0] if left else None)
    return found


def _of_strings(expected: Sequence[str], actual: Sequence[str]) -> DataCause | None:
    pairs = sorted({(one, other) for one, other in zip(expected, actual, strict=True)})
    moved = [(one, other) for one, other in pairs if one != other]
    if not moved:
        return None
    shown = ", ".join(f"{one!r:.30} is {other!r:.30}" for one, other in moved[:SHOWN])
    names = {one for one, _ in pairs}, {other for _, other in pairs}
    consistent = len(pairs) == len(names[0]) == len(names[1])
    if consistent and len(pairs) > 1:
        return DataCause(code="class-order", message=f"label: names stand for other classes throughout ({shown})",
                     fix="take the names in the reference's order", explained=None)  # fmt: skip
    return DataCause(
        code="unknown",
        message=f"text: {shown}",
        fix="compare what both codes do after the model",
        explained=None,
    )
