"""What makes the labels of two sides differ: shifted, numbered otherwise, one-hot, smoothed, out of step with the images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tipchain.parity.pieces.data_arrays import Array, Cause
from tipchain.parity.rounding import SAME_ENLARGED

SHOWN = 4
"""Labels that a message shows."""
SMOOTH = SAME_ENLARGED
"""Difference of labels up to which they are the same: smoothed and mixed ones are results of divisions."""
FEWEST = 2
"""Labels of at least so many classes show how they are numbered."""


def explain_labels(expected: Sequence[Array], actual: Sequence[Array]) -> Cause | None:
    """Return what makes the port's labels of the reference's, one of each sample; None where nothing known does."""
    es, acts = [one.reshape(-1) for one in expected], [one.reshape(-1) for one in actual]
    if all(np.array_equal(one, other) for one, other in zip(es, acts, strict=True)):
        return None
    for one, other, words in ((es, acts, "the port's labels are"), (acts, es, "the reference's labels are")):
        if all(label.size == 1 for label in one) and all(label.size > 1 for label in other):
            return _one_hot(one, other, words)
    if not all(label.size == 1 and label.dtype.kind in "biuf" for label in (*es, *acts)):
        return None
    ours, theirs = (np.array([label[0] for label in side], dtype=np.float64) for side in (es, acts))
    if not np.isfinite(ours).all() or not np.isfinite(theirs).all():
        return None
    return _renumbered(ours, theirs) or _out_of_step(ours, theirs)


def _one_hot(numbers: Sequence[Array], vectors: Sequence[Array], words: str) -> Cause | None:
    if len({label.size for label in vectors}) != 1 or any(label.dtype.kind not in "biu" for label in numbers):
        return None
    stacked = np.stack(vectors).astype(np.float64)
    classes = np.array([int(label[0]) for label in numbers])
    count = stacked.shape[1]
    offset = int(stacked[0].argmax()) - int(classes[0])
    places = classes + offset
    if (places < 0).any() or (places >= count).any() or (stacked.argmax(axis=1) != places).any():
        return None
    rest = np.sort(stacked, axis=1)[:, :-1]
    low = float(rest.mean())
    if np.abs(rest - low).max() > SMOOTH or np.ptp(stacked[np.arange(len(places)), places]) > SMOOTH:
        return None
    smooth = f", smoothed by {low * count:.3g}" if low > SMOOTH else ""
    shifted = f", with class {-offset} at place 0" if offset else ""
    return Cause(
        code="one-hot", message=f"label: {words} one-hot vectors of {count} classes{smooth}{shifted}, the other side's are class numbers",
        fix="give the port's loss and metric class numbers, as the reference's get"
        if words.startswith("the port") else "make the port's labels one-hot, as the reference's are",
        explained=1.0,
    )  # fmt: skip


def _renumbered(ours: Array, theirs: Array) -> Cause | None:
    """Recognize class numbers that are all shifted alike, or exchanged consistently."""
    pairs = sorted(set(zip(ours.tolist(), theirs.tolist(), strict=True)))
    mapping = dict(pairs)
    steps = {other - one for one, other in pairs}
    if len(steps) == 1:
        step = steps.pop()
        return Cause(code="label-shift", message=f"label: all class numbers are shifted by {step:+g}",
                     fix=f"{'subtract' if step > 0 else 'add'} {abs(step):g} {'from' if step > 0 else 'to'} the port's labels",
                     explained=1.0)  # fmt: skip
    if len(mapping) < max(FEWEST, len(pairs)) or len(set(mapping.values())) < len(mapping):
        return None
    if len(mapping) == len(ours) and len(mapping) > FEWEST:
        return None  # every label comes once: any order would do
    moved = [f"{one:g} is {other:g}" for one, other in pairs if one != other]
    shown = f"{', '.join(moved[:SHOWN])}{', …' if len(moved) > SHOWN else ''}"
    classes = sorted(mapping)
    as_text = [float(one) for one in sorted(f"{one:g}" for one in classes)]
    if all(mapping[name] == place for place, name in enumerate(as_text)):
        how, fix = (
            ": the port sorts class names as text (10 before 2)",
            "sort class names as the reference does, as numbers",
        )
    elif all(name == mapping[place] for place, name in zip(classes, as_text, strict=True)):
        how, fix = (
            ": the reference sorts class names as text (10 before 2)",
            "sort class names as the reference does, as text",
        )
    else:
        how, fix = "", "number the classes as the reference does: from the same sorted list of names"
    return Cause(code="class-order", message=f"label: classes are numbered otherwise throughout ({shown}){how}", fix=fix, explained=1.0)  # fmt: skip


def _out_of_step(ours: Array, theirs: Array) -> Cause | None:
    """Recognize labels that belong to other images: moved along, reversed, or shuffled."""
    if np.ptp(theirs) == 0 and np.ptp(ours) > 0:
        return Cause(code="label-constant", message=f"label: the port's is {theirs[0]:g} for every sample",
                     fix="look where the port's labels come from", explained=None)  # fmt: skip
    size = len(ours)
    for step in (1, -1, 2, -2):
        if size > 2 * abs(step) + 1 and np.array_equal(np.roll(ours, step)[abs(step) : size - abs(step)], theirs[abs(step) : size - abs(step)]):  # fmt: skip
            which = "before" if step > 0 else "after"
            return Cause(code="label-order", message=f"label: each image has the label of the image {abs(step)} {which} it",
                         fix="keep images and labels in step: index both with the same number", explained=1.0)  # fmt: skip
    if size > 1 and np.array_equal(ours[::-1], theirs):
        return Cause(code="label-order", message="label: the labels are in reverse order, the images are not",
                     fix="keep images and labels in step: index both with the same number", explained=1.0)  # fmt: skip
    if size > FEWEST and np.array_equal(np.sort(ours), np.sort(theirs)):
        return Cause(code="label-order", message="label: the same labels, but of other images: shuffled apart from the images",
                     fix="shuffle images and labels together", explained=1.0)  # fmt: skip
    return None
