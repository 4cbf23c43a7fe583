"""Hold a quantized model's outputs against the unquantized model's, on the same inputs.

    python compare_outputs.py UNQUANTIZED.npz QUANTIZED.npz --max-disagreement S --max-error E

The files are `record_outputs`'. The share of decisions on which the two models disagree is judged: no accuracy can differ by
more, whatever the labels are. Decisions are integers, the largest of the last axis of scores ``[N, C]`` or ``[N, T, C]``,
that of axis 1 of maps ``[N, C, H, W]``, where it is no tie, and boxes ``[class, score, x1, y1, x2, y2]`` that both models
find. Other outputs are judged by ``|quantized - unquantized| / |unquantized|``, both as Euclidean norms.
Exit code 0 where all is within the limits, 1 where not, 2 where nothing can be compared. Needs numpy alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

BOX_COLUMNS = 6
OVERLAP = 0.5
"""Boxes of one class are one object from this intersection over union on, as in PASCAL VOC's metric."""
FOUND_FROM = 0.5
"""Boxes count from this score on: nobody draws those below."""
TIE = 1e-3
"""A score that is above the next by no larger share of itself decides nothing: a model that was never trained has such."""


class IncomparableError(Exception):
    """The two records say nothing about each other."""


@dataclass(slots=True)
class Tally:
    """Decisions and distances so far."""

    decisions: int = 0
    differ: int = 0
    ties: int = 0
    error2: float = 0.0
    size2: float = 0.0
    kinds: set[int] = field(default_factory=set)

    def decide(self, left: np.ndarray, right: np.ndarray) -> None:
        """Count decisions of both models, arrays of one shape."""
        self.decisions += left.size
        self.differ += int((left != right).sum())
        self.kinds.update(np.unique(left)[:2].tolist())

    def measure(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add the distance of two arrays of one shape."""
        left, right = left.astype(np.float64), right.astype(np.float64)
        self.error2 += float(np.square(right - left).sum())
        self.size2 += float(np.square(left).sum())

    def boxes(self, left: np.ndarray, right: np.ndarray) -> None:
        """Count the boxes that one model finds and the other does not."""
        left, right = left[left[:, 1] >= FOUND_FROM], right[right[:, 1] >= FOUND_FROM]
        free = list(range(len(right)))
        for box in left:
            near = [(overlap(box, right[index]), index) for index in free if right[index, 0] == box[0]]
            best = max(near, default=(0.0, -1))
            if best[0] >= OVERLAP:
                free.remove(best[1])
            else:
                self.differ += 1
        self.differ += len(free)
        self.decisions += len(left) + len(free)
        self.kinds |= {0, 1} if self.decisions else set()


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Return the intersection over union of two boxes ``[class, score, x1, y1, x2, y2]``."""
    low, high = np.maximum(one[2:4], other[2:4]), np.minimum(one[4:6], other[4:6])
    inside = float(np.prod(np.maximum(high - low, 0)))
    areas = float(np.prod(one[4:6] - one[2:4]) + np.prod(other[4:6] - other[2:4]))
    return inside / (areas - inside) if areas > inside else 0.0


def is_boxes(array: np.ndarray) -> bool:
    """Tell a list of boxes with classes and scores."""
    return bool(array.ndim == 2 and array.shape[1] == BOX_COLUMNS and array.dtype.kind == "f")


def axis_of(array: np.ndarray) -> int | None:
    """Return the axis of an output along which one is chosen, None where nothing is."""
    axis = {2: 1, 3: 2, 4: 1}.get(array.ndim) if array.dtype.kind == "f" else None
    return axis if axis is not None and array.shape[axis] > 1 else None


def compare(reference: Mapping[str, np.ndarray], quantized: Mapping[str, np.ndarray]) -> Tally:
    """Return the differences between the records of both models.

    Raises:
        IncomparableError: other inputs, other outputs, or none.
    """
    names = [name for name in reference if name.startswith("output_")]
    if not names or not len(reference["inputs"]):
        raise IncomparableError("the inference program gave Paddle Inference nothing, or asked nothing of it")
    if list(reference["inputs"]) != list(quantized["inputs"]):
        raise IncomparableError("the two models were given other inputs")
    if names != [name for name in quantized if name.startswith("output_")]:
        raise IncomparableError("the two models gave another number of outputs")
    tally = Tally()
    boxes = any(is_boxes(reference[name]) for name in names)
    for name in names:
        left, right = reference[name], quantized[name]
        if boxes and left.ndim == 1 and left.dtype.kind in "iu":
            continue  # the number of boxes, which are counted already
        if is_boxes(left) and is_boxes(right):
            tally.boxes(left, right)
            continue
        if left.shape != right.shape:
            raise IncomparableError(f"{name}: shape {right.shape} instead of {left.shape}")
        axis = axis_of(left)
        if axis is not None:
            largest = np.moveaxis(np.partition(left.astype(np.float64), -2, axis=axis), axis, -1)
            first, second = largest[..., -1], largest[..., -2]
            sure = first - second > TIE * np.maximum(np.abs(first), np.finfo(np.float32).tiny)
            tally.ties += int((~sure).sum())
            tally.decide(left.argmax(axis=axis)[sure], right.argmax(axis=axis)[sure])
        if left.dtype.kind in "iub":
            tally.decide(left, right)
        else:
            tally.measure(left, right)
    if tally.ties and not tally.decisions:
        raise IncomparableError("the unquantized model prefers nothing: its largest scores are all but equal")
    return tally


def judge(tally: Tally, max_disagreement: float, max_error: float) -> tuple[list[str], bool]:
    """Return the findings, the verdict last, and whether it is within the limits."""
    error = (tally.error2 / tally.size2) ** 0.5 if tally.size2 else float("nan")
    lines = [f"relative_error: {error:.6g}"] if tally.size2 else []
    if tally.ties:
        lines.append(f"note: {tally.ties} decisions are ties of the unquantized model itself, and left out")
    if tally.decisions:
        share = tally.differ / tally.decisions
        lines += [f"decisions: {tally.decisions}", f"disagreement: {share:.6g}"]
        if len(tally.kinds) < 2 and tally.decisions > 1:
            lines.append("note: the unquantized model decides the same everywhere, so agreement proves little")
        text = f"the models disagree on {tally.differ} of {tally.decisions} decisions"
        text += f", {100 * share:.3g} %; allowed {100 * max_disagreement:.3g} %"
        within = share <= max_disagreement
    else:
        text = f"the outputs are {100 * error:.3g} % apart; allowed {100 * max_error:.3g} %"
        within = error <= max_error
    if not np.isfinite(error) and (tally.size2 or not tally.decisions):
        text, within = "an output is not finite, or all outputs are 0", False
    return [*lines, f"quantized model {'passed' if within else 'failed'}: {text}"], within


def main() -> int:
    """Compare the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reference", type=Path)
    parser.add_argument("quantized", type=Path)
    parser.add_argument("--max-disagreement", type=float, required=True)
    parser.add_argument("--max-error", type=float, required=True)
    args = parser.parse_args()
    try:
        with np.load(args.reference) as one, np.load(args.quantized) as other:
            tally = compare(dict(one), dict(other))
    except (IncomparableError, OSError, KeyError, ValueError) as error:
        print(f"nothing can be compared: {error}")
        return 2
    lines, good = judge(tally, args.max_disagreement, args.max_error)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
