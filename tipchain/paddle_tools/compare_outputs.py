"""Hold a quantized model's outputs against the unquantized model's, on the same inputs.

    python compare_outputs.py UNQUANTIZED.npz QUANTIZED.npz --max-drop D --max-disagreement S --max-error E
        [--labels LIST --root FOLDER [--need-labels]]

The files are `record_outputs`'. With labels the drop of the metric is judged: top-1 accuracy where LIST has a class for
each image, the mean intersection over union where it has an image of classes; names are relative to FOLDER. A drop of
accuracy is held against the limit with its own uncertainty: `SURE` standard errors of what the images change in pairs.
Where that leaves both answers open, where the unquantized model is no better than the most frequent class, or without
labels, the share of decisions on which the two models disagree is judged: no accuracy can differ by more, whatever the
labels are. Decisions are integers, the largest of the last axis of scores
``[N, C]`` or ``[N, T, C]``, that of axis 1 of maps ``[N, C, H, W]``, where it is no tie, and boxes
``[class, score, x1, y1, x2, y2]`` that both models find. Other outputs are judged by ``|quantized - unquantized| / |unquantized|``, both as Euclidean norms.
Exit code 0 where all is within the limits, 1 where not, 2 where nothing can be compared, or where labels are needed and
decide nothing. Needs numpy alone; PIL or OpenCV where labels are images.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

BOX_COLUMNS = 6
OVERLAP = 0.5
"""Boxes of one class are one object from this intersection over union on, as in PASCAL VOC's metric."""
FOUND_FROM = 0.5
"""Boxes count from this score on: what is below is drawn by nobody."""


SURE = 1.645
"""Standard errors to the side that 95 of 100 normal deviations stay on."""
IGNORED = 255
"""A pixel of this class counts nowhere, as in the suites' own evaluations."""
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
    """Return what the records of both models have apart.

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
        if boxes and reference[name].ndim == 1 and reference[name].dtype.kind in "iu":
            continue  # the number of boxes, which are counted already
        _add(tally, name, reference[name], quantized[name])
    if tally.ties and not tally.decisions:
        raise IncomparableError("the unquantized model prefers nothing: its largest scores are all but equal")
    return tally


def _add(tally: Tally, name: str, left: np.ndarray, right: np.ndarray) -> None:
    if is_boxes(left) and is_boxes(right):
        tally.boxes(left, right)
        return
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


# With labels


class NoMetricError(Exception):
    """The labels say nothing about these outputs."""


class Metric(NamedTuple):
    """Top-1 accuracy or mean intersection over union of both models, and how sure their difference is."""

    name: str
    reference: float
    quantized: float
    spread: float = 0.0

    @property
    def drop(self) -> float:
        """By how much the metric drops, 0.01 for one point."""
        return self.reference - self.quantized

    def within(self, limit: float) -> bool | None:
        """Return whether the drop is within a limit, None where so few images cannot tell."""
        if self.drop + self.spread <= limit:
            return True
        return False if self.drop - self.spread > limit else None


def accuracy(right: np.ndarray, truth: Sequence[int]) -> Metric:
    """Return the top-1 accuracy of both models, of where each is right, ``[images, models]``.

    Raises:
        NoMetricError: the unquantized model is no better than one that always gives the most frequent class.
    """
    count = len(right)
    reference, quantized = (float(one) for one in right.mean(axis=0))
    if reference <= np.unique(truth, return_counts=True)[1].max() / count:
        raise NoMetricError(
            f"the unquantized model is right on {100 * reference:.3g} % of {count} images, no more than one class is"
        )
    changed = int((right[:, 0] != right[:, 1]).sum())
    spread = SURE * np.sqrt(max(changed - count * (reference - quantized) ** 2, 1)) / count
    return Metric("top1", reference, quantized, float(spread))


def mean_overlap(pixels: np.ndarray) -> Metric:
    """Return both models' mean intersection over union, of pixels ``[models, labels, decisions]``.

    Raises:
        NoMetricError: the unquantized model is no better than one that gives the most frequent class everywhere.
    """
    labels = pixels[0].sum(axis=1)
    always = np.zeros_like(pixels[0])
    always[:, labels.argmax()] = labels
    means = []
    for one in (*pixels, always):
        both = np.diag(one)
        either = one.sum(axis=0) + one.sum(axis=1) - both
        means.append(float((both[either > 0] / either[either > 0]).mean()))
    reference, quantized, chance = means
    if reference <= chance:
        raise NoMetricError(f"the unquantized model's mIoU is {reference:.4g}, no more than one class everywhere has")
    return Metric("miou", reference, quantized)


def read_labels(path: Path, root: Path) -> dict[str, int | Path]:
    """Return the class, or the image of classes, of each image of a list.

    Raises:
        NoMetricError: there is no list, or a line is not an image with one label.
    """
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise NoMetricError(f"{path}: {error}") from error
    found: dict[str, int | Path] = {}
    for number, words in enumerate(lines, 1):
        if len(words) != 2 or not (words[1].isdecimal() or (root / words[1]).is_file()):
            raise NoMetricError(f"{path}:{number}: not an image and its class, or its image of classes")
        label = int(words[1]) if words[1].isdecimal() else root / words[1]
        found[os.path.realpath(root / words[0])] = label
    if not found:
        raise NoMetricError(f"{path}: is empty")
    return found


def measure(
    reference: Mapping[str, np.ndarray], quantized: Mapping[str, np.ndarray], labels: Mapping[str, int | Path]
) -> Metric:
    """Return what labels say of two records.

    Raises:
        NoMetricError: the records' outputs or images are not the labels', or the unquantized model is no good.
    """
    right: dict[str, tuple[bool, bool]] = {}
    pixels = np.zeros((2, IGNORED, IGNORED), np.int64)
    maps = set[str]()
    for image, *pair in labelled(reference, quantized):
        label = labels.get(image)
        if isinstance(label, Path) and pair[0].ndim == 2 and image not in maps:
            maps.add(image)
            truth = _map(label, pair[0].shape)
            counted = truth != IGNORED
            for model, decided in enumerate(pair):
                places = (np.minimum(one[counted], IGNORED - 1).astype(np.int64) for one in (truth, decided))
                where = next(places) * IGNORED + next(places)
                pixels[model] += np.bincount(where, minlength=IGNORED**2).reshape(IGNORED, IGNORED)
        elif isinstance(label, int) and pair[0].ndim == 0:
            right[image] = (int(pair[0]) == label, int(pair[1]) == label)
    if not right and not maps:
        raise NoMetricError("no output is a decision on a labelled image")
    if not right:
        return mean_overlap(pixels)
    return accuracy(np.array(list(right.values())), [int(str(labels[image])) for image in right])


def _map(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Return an image of classes in another size, as the suites read it: the numbers, not the colors of a palette."""
    try:
        from PIL import Image

        found = np.asarray(Image.open(path))
    except ImportError:
        raise NoMetricError("labels are images, which PIL would read; it is not installed") from None
    except OSError as error:
        raise NoMetricError(f"{path}: {error}") from error
    if found.ndim != 2:
        raise NoMetricError(f"{path}: has {found.ndim} axes instead of 2")
    rows, columns = (np.arange(new) * old // new for new, old in zip(shape, found.shape, strict=True))
    return np.asarray(found[rows][:, columns])


def labelled(
    reference: Mapping[str, np.ndarray], quantized: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield an image and what both models decide on it, the row of an output.

    Raises:
        NoMetricError: which image a row is of cannot be told.
    """
    for name in [one for one in reference if one.startswith("output_")]:
        run = int(reference["run_of"][int(name.partition("_")[2])])
        images = list(dict.fromkeys(json.loads(str(reference["images"][run]))))
        left, right = reference[name], quantized[name]
        axis = axis_of(left)
        if axis is not None:
            left, right = left.argmax(axis=axis), right.argmax(axis=axis)
        if left.dtype.kind not in "iu" or left.ndim == 0:
            continue
        if left.ndim > 1 and left.shape[1] == 1:
            left, right = left[:, 0], right[:, 0]
        if len(images) != len(left):
            raise NoMetricError(f"{len(images)} images were read for an output of {len(left)} rows")
        yield from zip(images, left, right, strict=True)


class Limits(NamedTuple):
    """How far a quantized model may be away: a drop of the metric, a share of decisions, a relative error."""

    drop: float
    disagreement: float
    error: float


def judge(
    tally: Tally, limits: Limits, metric: Metric | None = None, unlabelled: str = "there are no labels"
) -> tuple[list[str], bool, bool]:
    """Return what was found, the verdict last; whether it is within the limits; whether the metric decided.

    ``unlabelled`` says why there is no metric.
    """
    error = (tally.error2 / tally.size2) ** 0.5 if tally.size2 else float("nan")
    lines = [f"relative_error: {error:.6g}"] if tally.size2 else []
    if tally.decisions:
        lines += [f"decisions: {tally.decisions}", f"disagreement: {tally.differ / tally.decisions:.6g}"]
    if tally.ties:
        lines.append(f"note: {tally.ties} more are ties of the unquantized model itself")
    within: bool | None = None
    if metric is not None:
        lines += [f"unquantized_{metric.name}: {metric.reference:.6g}", f"{metric.name}: {metric.quantized:.6g}"]
        lines.append(f"metric_drop: {metric.drop:.6g}")
        within = metric.within(limits.drop)
        text = f"{metric.name} is {100 * metric.quantized:.4g} % instead of {100 * metric.reference:.4g} %"
        text += f", {100 * metric.drop:.3g} points less; allowed {100 * limits.drop:.3g}"
        unlabelled = f"so few images cannot tell a drop of {100 * limits.drop:.3g} points"
    decided = within is not None
    if within is None:
        lines.append(f"note: {unlabelled}, so {'agreement' if tally.decisions else 'distance'} is judged")
        if not tally.decisions:
            text, within = (
                f"the outputs are {100 * error:.3g} % apart; allowed {100 * limits.error:.3g} %",
                error <= limits.error,
            )
        else:
            if len(tally.kinds) < 2 and tally.decisions > 1:
                lines.append("note: the unquantized model decides the same everywhere, so agreement proves little")
            share = tally.differ / tally.decisions
            within = share <= limits.disagreement
            text = f"the models disagree on {tally.differ} of {tally.decisions} decisions"
            text += f", {100 * share:.3g} %; allowed {100 * limits.disagreement:.3g} %"
    finite = bool(np.isfinite(error)) or (tally.decisions > 0 and tally.size2 == 0)
    if not finite:
        text, within = "an output is not finite, or all outputs are 0", False
    return [*lines, f"quantized model {'passed' if within else 'failed'}: {text}"], within, decided


def main() -> int:
    """Compare the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("reference", type=Path)
    parser.add_argument("quantized", type=Path)
    parser.add_argument("--max-drop", type=float, required=True)
    parser.add_argument("--max-disagreement", type=float, required=True)
    parser.add_argument("--max-error", type=float, required=True)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--need-labels", action="store_true")
    args = parser.parse_args()
    metric, why = None, "there are no labels"
    try:
        with np.load(args.reference) as one, np.load(args.quantized) as other:
            reference, quantized = dict(one), dict(other)
        tally = compare(reference, quantized)
        if args.labels:
            metric = measure(reference, quantized, read_labels(args.labels, args.root))
    except NoMetricError as error:
        metric, why = None, str(error)
    except (IncomparableError, OSError, KeyError, ValueError) as error:
        print(f"nothing can be compared: {error}")
        return 2
    limits = Limits(args.max_drop, args.max_disagreement, args.max_error)
    lines, good, decided = judge(tally, limits, metric, why)
    if args.need_labels and not decided:
        print("\n".join(lines[:-1]))
        print("nothing can be compared: the labels decide nothing")
        return 2
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
