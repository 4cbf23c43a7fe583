"""Judge evaluation data sample by sample: one verdict that names the first sample that differs, and in what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare
from tipchain.parity.judging.base import Dumps, Rules, details
from tipchain.parity.judging.sample_causes import explain_sample
from tipchain.parity.pieces.data_labels import explain_labels
from tipchain.parity.pieces.data_order import explain_order
from tipchain.parity.record import Record
from tipchain.parity.tolerance import Tolerance

Array = Any
SEARCHED = 2000
"""Among as many samples the one is looked for whose pixels stand in another's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a dump.

    Attributes:
        image: whatever the data set gives.
        label: its label, or None.
        file: its name, or "".
        key: the array that ``image`` was taken from.
    """

    image: Array
    label: Array
    file: str
    key: str


def samples_of(record: Record) -> list[Sample]:
    """Return the samples of a dump of batches, in order."""
    found = details(record).get("files")
    files = [str(name) for name in found] if isinstance(found, list) else []
    samples: list[Sample] = []
    for number in range(len(record.arrays)):
        key = f"dataloader_{number}"
        if key not in record.arrays or record.arrays[key].ndim == 0:
            break
        images, labels = record.arrays[key], record.arrays.get(f"label_{number}")
        for row, image in enumerate(images):
            label = labels[row] if labels is not None and labels.ndim and row < len(labels) else None
            file = files[len(samples)] if len(samples) < len(files) else ""
            samples.append(Sample(image=image, label=label, file=file, key=key))
    return samples


def judge_samples(dumps: Dumps, rules: Rules) -> list[Verdict]:
    """Return one verdict about all samples, or none where a dump holds no batches.

    A sample's image is allowed what its batch is, alone; dtypes must be equal, labels exactly so.
    """
    subject = f"{dumps.stage}/samples"
    left, right = samples_of(dumps.reference), samples_of(dumps.port)
    if not left or not right:
        return []
    tolerances = rules.for_arrays(dumps.stage, dumps.reference.arrays)
    for number, (expected, actual) in enumerate(zip(left, right, strict=False)):
        differing = _differences(expected, actual, tolerances[expected.key])
        if differing:
            said = "; ".join(_explain(number, left, right, differing))
            reason = f"first at {_place(number, expected)}: {said}"
            return [Verdict(outcome=Outcome.FAIL, subject=subject, reason=reason)]
    if len(left) != len(right):
        counts = f"{len(left)} expected, {len(right)} actual"
        reason = f"the first {min(len(left), len(right))} are equal, but there are {counts}"
        return [Verdict(outcome=Outcome.FAIL, subject=subject, reason=reason)]
    reason = f"{len(left)} samples equal in file, label, dtype, shape and values"
    return [Verdict(outcome=Outcome.PASS, subject=subject, reason=reason)]


def label_notes(dumps: Dumps) -> Iterator[str]:
    """Remark labels of different integer types, which are equal all the same."""
    pair = [record.arrays.get("label_0") for record in (dumps.reference, dumps.port)]
    kinds = [array.dtype for array in pair if array is not None]
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        yield f"labels are {kinds[0]} expected, {kinds[1]} actual"


def _explain(
    number: int, left: Sequence[Sample], right: Sequence[Sample], differing: set[str]
) -> Iterator[str]:
    """Yield what differs between the samples of one place."""
    expected, actual = left[number], right[number]
    order = _order(number, left, right)
    if order:
        yield order  # another sample has another label and other pixels
        return
    if "file" in differing:
        yield f"file: expected {expected.file}, actual {actual.file}"
    if "label" in differing:
        yield _label(number, left, right)
    if "image" in differing:
        yield explain_sample(expected.image, actual.image) or "values: by little more than rounding"


def _place(number: int, sample: Sample) -> str:
    return f"sample {number} ({sample.file})" if sample.file else f"sample {number}"


def _differences(expected: Sample, actual: Sample, tolerance: Tolerance) -> set[str]:
    """Return in which of file, label and image two samples differ."""
    found = set()
    if expected.file != actual.file:
        found.add("file")
    if not _same_label(expected.label, actual.label):
        found.add("label")
    if expected.image.dtype != actual.image.dtype or not _close(expected.image, actual.image, tolerance):
        found.add("image")
    return found


def _same_label(expected: Array, actual: Array) -> bool:
    if expected is None or actual is None:
        return expected is actual
    return np.array_equal(expected, actual)


def _close(expected: Array, actual: Array, tolerance: Tolerance) -> bool:
    (verdict,) = compare({"sample": expected}, {"sample": actual}, tolerance)
    return verdict.outcome is Outcome.PASS


def _order(number: int, left: Sequence[Sample], right: Sequence[Sample]) -> str:
    """Say of which sample of the reference the port has the file or the pixels in this place, or ""."""
    expected, actual = left[number], right[number]
    if expected.file != actual.file:
        found = next((n for n, one in enumerate(left) if one.file == actual.file), None)
        if found is None:
            return ""
        return f"order: the port has the reference's sample {found} ({actual.file}) here{_shift(left, right)}"
    if expected.image.shape != actual.image.shape or _same(expected.image, actual.image):
        return ""
    for found, one in enumerate(left[:SEARCHED]):
        if found != number and one.image.shape == actual.image.shape and _same(one.image, actual.image):
            return f"order: the port has the pixels of the reference's {_place(found, one)} here"
    return ""


def _same(expected: Array, actual: Array) -> bool:
    """Tell whether two images of one shape are the same but for rounding."""
    if expected.dtype.kind not in "biuf" or actual.dtype.kind not in "biuf":
        return False
    first = (0,) * expected.ndim
    e, a = expected.astype(np.float64, copy=False), actual.astype(np.float64, copy=False)
    bound = 1e-4 * max(1.0, abs(float(e[first])))
    if e.size and abs(float(e[first]) - float(a[first])) > bound:  # a cheap look before the whole
        return False
    return bool(np.abs(e - a).max(initial=0.0) <= 1e-4 * max(1e-6, float(np.abs(e).max(initial=0.0))))


def _shift(left: Sequence[Sample], right: Sequence[Sample]) -> str:
    """Say whether the whole order is that of the reference, reversed, shifted, or with samples missing."""
    numbers: dict[str, int] = {}
    for number, one in enumerate(left):
        numbers.setdefault(one.file, number)
    if len(numbers) < len(left):
        return ""
    cause = explain_order([numbers.get(one.file) for one in right], len(left))
    return "" if cause is None else cause.message.removeprefix("order")


def _label(number: int, left: Sequence[Sample], right: Sequence[Sample]) -> str:
    """Say how a label differs, and whether all labels do so in one way."""
    expected, actual = left[number].label, right[number].label
    if expected is None or actual is None:
        return "label: one side has none"
    said = f"label: expected {expected.tolist()}, actual {actual.tolist()}"
    if expected.shape != actual.shape:
        said = f"{said}: shapes {expected.shape} and {actual.shape}"
    pairs = [
        (e.label, a.label)
        for e, a in zip(left, right, strict=False)
        if e.label is not None and a.label is not None
    ]
    cause = explain_labels([e for e, _ in pairs], [a for _, a in pairs])
    return said if cause is None else f"{said}{cause.message.removeprefix('label')}"
