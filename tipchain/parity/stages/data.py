"""Step 2 of the guide, evaluation data: the loader's batches, and the result of each transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from tipchain.errors import Outcome, UsageError
from tipchain.framework_types import Array, Nested
from tipchain.frameworks import Framework
from tipchain.numbers.dumps import Record
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, in_order
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details

# What each named transform of a side makes of the first samples.
#
# The optional builder is ``build_transforms(root, split, **data args) -> (load, steps)``: ``load(index)`` reads a
# sample of the data set as it is before any transform, ``steps`` are pairs of a name and a callable, in the order in
# which the data set applies them. Results may be arrays, tensors, PIL images, or lists of these (frames).


RAW = "raw"
"""The name of the value that ``load`` returns."""
Step = tuple[str, Callable[[Nested], Nested]]


def _checked(found: object) -> tuple[Callable[[int], object], list[Step]]:
    expected = "expected: `(load, [(name, transform), ...])`"
    if not isinstance(found, tuple) or len(found) != 2 or not callable(found[0]):
        raise UsageError(f"build_transforms gave {found!r:.80}\n  {expected}")
    steps = list(found[1])
    if not steps or not all(isinstance(one, tuple) and len(one) == 2 and callable(one[1]) for one in steps):
        raise UsageError(f"build_transforms gave the steps {steps!r:.80}\n  {expected}")
    names = [RAW, *(str(name) for name, _ in steps)]
    if len(set(names)) < len(names) or any("/" in name or not name.strip() for name in names):
        raise UsageError(
            f"build_transforms named its steps {', '.join(names[1:])}\n  expected: different names without '/', none of them {RAW!r}"
        )
    return found[0], steps


def _as_array(framework: Framework, value: object, name: str) -> Array:
    """Return a sample as an array of its own: a later transform may change it in place."""
    if framework.is_tensor(value):
        return framework.array(value)
    if isinstance(value, list | tuple):
        parts = [_as_array(framework, one, name) for one in value]
        if len({part.shape for part in parts}) == 1:
            return np.stack(parts)
        raise UsageError(f"after {name!r} a sample is {len(parts)} arrays of different shapes")
    array = np.array(value)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"after {name!r} a sample is a {type(value).__name__}, not an array of numbers")
    return array


def _gap(number: int, image: Array, last: Array) -> str:
    """Say how the last transform's result differs from the data set's sample, or ""."""
    if image.shape != last.shape:
        return f"sample {number} has shape {image.shape}, the last transform gives {last.shape}"
    if np.allclose(image, last, rtol=1e-5, atol=1e-6, equal_nan=True):
        return ""
    largest = float(np.nanmax(np.abs(image.astype(np.float64) - last)))
    return f"sample {number} differs by up to {largest:.3g}"


def record(bench: Bench) -> Recording:
    """Length, images, labels and file names of the evaluation loader; then the first samples after each transform."""
    dataset, settings = bench.dataset("val"), bench.case.data
    indices = in_order(len(dataset), settings.batch_size)
    kept = indices[: settings.max_batches]
    arrays: dict[str, Array] = {"length": np.array([len(dataset)], dtype=np.int64)}
    files: list[str] = []
    first: list[Array] = []
    for number, (image, label, names) in enumerate(bench.framework.batches(dataset, kept)):
        images = bench.framework.array(image)
        arrays[f"dataloader_{number}"] = images
        arrays[f"label_{number}"] = bench.framework.array(label)
        files.extend(names)
        first.extend(images[: settings.transform_samples - len(first)])
    details = {"files": files, "batches_kept": len(kept), "batches_in_all": len(indices)}
    if (builder := bench.optional_builder("transforms")) is None:
        return Recording(arrays=arrays, details=details)
    load, steps = _checked(builder(bench.eval_data, "val", **settings.args))
    gap = ""
    for number, image in enumerate(first):
        value = load(number)
        arrays[f"transform_{number}/{RAW}"] = last = _as_array(bench.framework, value, RAW)
        for name, step in steps:
            value = step(value)
            arrays[f"transform_{number}/{name}"] = last = _as_array(bench.framework, value, name)
        gap = gap or _gap(number, image, last)  # the last transform must give what the data set gives
    facts = {"transforms": [RAW, *(name for name, _ in steps)], "transforms_gap": gap}
    return Recording(arrays=arrays, details={**details, **facts})


# Judge what each named transform makes of the first samples: the first that differs is named, and in what.


def judge_transforms(dumps: Dumps, rules: Rules) -> list[Verdict]:
    """Judge all named transforms together, or nothing where neither side names any."""
    expected, actual = (_texts(record, "transforms") for record in (dumps.reference, dumps.port))
    if expected is None or actual is None:
        side = "port" if expected is None else "reference"
        reason = f"only the {side} names a builder `transforms`: nothing to compare"
        return [] if expected is actual else [Verdict(Outcome.ERROR, "transforms", reason)]
    for side, record in (("reference", dumps.reference), ("port", dumps.port)):
        gap = details(record).get("transforms_gap")
        if gap:
            reason = f"the {side}'s named transforms do not give what its data set gives: {gap}"
            return [Verdict(Outcome.ERROR, "transforms", reason)]
    said = next(_differing(dumps, rules, expected), "")
    if not said and expected != actual:
        said = f"the sides name different transforms: {', '.join(expected)} expected, {', '.join(actual)} actual"
    if said:
        return [Verdict(Outcome.FAIL, "transforms", said)]
    return [Verdict(Outcome.PASS, "transforms", f"equal after each: {', '.join(expected)}")]


def _texts(record: Record, fact: str) -> list[str] | None:
    """Return names that a side left beside its dump, or None where it left none."""
    names = details(record).get(fact)
    return [str(name) for name in names] if isinstance(names, list) else None


def _differing(dumps: Dumps, rules: Rules, names: Sequence[str]) -> Iterator[str]:
    """Yield the differences, sample by sample and transform by transform."""
    files = _texts(dumps.reference, "files") or []
    arrays = [
        {k: v for k, v in record.arrays.items() if k.startswith("transform_")}
        for record in (dumps.reference, dumps.port)
    ]
    tolerances = rules.for_arrays(dumps.stage, arrays[0])
    samples = list(dict.fromkeys(key.partition("/")[0] for key in arrays[0]))
    for sample in samples:
        number = int(sample.removeprefix("transform_"))
        file = f" ({files[number]})" if number < len(files) else ""
        before = ""
        for name in names:
            key = f"{sample}/{name}"
            if key not in arrays[0] or key not in arrays[1]:
                break
            expected, actual = arrays[0][key], arrays[1][key]
            (verdict,) = compare({key: expected}, {key: actual}, tolerances[key])
            if verdict.outcome is not Outcome.PASS or expected.dtype != actual.dtype:
                where = f"first differs after {name!r}" if before else "differs as it is read, before any transform"
                yield f"sample {number}{file} {where}: {_apart(expected, actual, verdict)}"
            before = name


def _apart(expected: Array, actual: Array, verdict: Verdict) -> str:
    if expected.dtype != actual.dtype:
        return f"dtype: {expected.dtype} expected, {actual.dtype} actual"
    return verdict.reason


# Judge evaluation data sample by sample: one verdict that names the first sample that differs, and in what.


SEARCHED = 2000
"""Among as many samples the one is looked for whose pixels stand in another's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedSample:
    """One sample of a dump.

    Attributes:
        image: whatever the data set gives.
        label: its label, or None.
        file: its name, or "".
        key: the array that ``image`` was taken from.
    """

    image: Array
    label: Array | None
    file: str
    key: str


def samples_of(record: Record) -> list[DumpedSample]:
    """Return the samples of a dump of batches, in order."""
    files = _texts(record, "files") or []
    samples: list[DumpedSample] = []
    for number in range(len(record.arrays)):
        key = f"dataloader_{number}"
        if key not in record.arrays or record.arrays[key].ndim == 0:
            break
        images, labels = record.arrays[key], record.arrays.get(f"label_{number}")
        for row, image in enumerate(images):
            label = labels[row] if labels is not None and labels.ndim and row < len(labels) else None
            file = files[len(samples)] if len(samples) < len(files) else ""
            samples.append(DumpedSample(image=image, label=label, file=file, key=key))
    return samples


def judge_samples(dumps: Dumps, rules: Rules) -> list[Verdict]:
    """Judge all samples together, or nothing where a dump holds no batches.

    A sample's image is allowed what its batch is, alone; dtypes must be equal, labels exactly so.
    """
    left, right = samples_of(dumps.reference), samples_of(dumps.port)
    if not left or not right:
        return []
    tolerances = rules.for_arrays(dumps.stage, dumps.reference.arrays)
    for number, (expected, actual) in enumerate(zip(left, right, strict=False)):
        (verdict,) = compare({"sample": expected.image}, {"sample": actual.image}, tolerances[expected.key])
        alike = expected.image.dtype == actual.image.dtype and verdict.outcome is Outcome.PASS
        image = "" if alike else _apart(expected.image, actual.image, verdict)
        # Another sample has another label and other pixels, too.
        said = "; ".join(_explain(expected, actual, image)) and (
            _order(number, left, right) or "; ".join(_explain(expected, actual, image))
        )
        if said:
            return [Verdict(Outcome.FAIL, "samples", f"first at {_place(number, expected)}: {said}")]
    if len(left) != len(right):
        counts = f"{len(left)} expected, {len(right)} actual"
        reason = f"the first {min(len(left), len(right))} are equal, but there are {counts}"
        return [Verdict(Outcome.FAIL, "samples", reason)]
    return [Verdict(Outcome.PASS, "samples", f"{len(left)} samples equal in file, label, dtype, shape and values")]


def _explain(expected: DumpedSample, actual: DumpedSample, image: str) -> Iterator[str]:
    """Yield the differences between the samples of one place; ``image`` is that of their images."""
    if expected.file != actual.file:
        yield f"file: expected {expected.file}, actual {actual.file}"
    one, other = expected.label, actual.label
    if not np.array_equal(one, other):  # type: ignore[arg-type]
        if one is None or other is None:
            yield "label: one side has none"
        else:
            shapes = f": shapes {one.shape} and {other.shape}" if one.shape != other.shape else ""
            yield f"label: expected {one.tolist()}, actual {other.tolist()}{shapes}"
    if image:
        yield image


def _place(number: int, sample: DumpedSample) -> str:
    return f"sample {number} ({sample.file})" if sample.file else f"sample {number}"


def _order(number: int, left: Sequence[DumpedSample], right: Sequence[DumpedSample]) -> str:
    """Say of which sample of the reference the port has the file or the pixels in this place, or ""."""
    expected, actual = left[number], right[number]
    if expected.file != actual.file:
        found = next((n for n, one in enumerate(left) if one.file == actual.file), None)
        if found is None:
            return ""
        return f"order: the port has the reference's sample {found} ({actual.file}) here"
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


# Judge evaluation data: the arrays, the samples one by one, the transforms, and the names of the files.


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the arrays, then samples and transforms, of which the first that differs is explained, then file names."""
    verdicts = (*judge_samples(dumps, rules), *judge_transforms(dumps, rules), *judge_files(dumps))
    facts = details(dumps.reference)
    kept, total = facts.get("batches_kept"), facts.get("batches_in_all")
    notes = [f"the first {kept} of {total} batches were compared"] if kept != total else []
    kinds = [record.arrays["label_0"].dtype for record in (dumps.reference, dumps.port) if "label_0" in record.arrays]
    if len(set(kinds)) > 1:  # integers of different widths, which are equal all the same
        notes.append(f"labels are {kinds[0]} expected, {kinds[1]} actual")
    return judging.judge(dumps, rules) + Judged(verdicts=verdicts, notes=notes)


def judge_files(dumps: Dumps) -> list[Verdict]:
    """Compare the file names that both loaders gave, in order."""
    left, right = (_texts(record, "files") for record in (dumps.reference, dumps.port))
    if left is None or right is None:
        return []
    if left == right:
        return [Verdict(Outcome.PASS, "files", f"{len(left)} file names equal, in order")]
    if sorted(left) == sorted(right):
        kind = "the same files in another order"
    else:
        kind = f"{len(set(left) ^ set(right))} files on one side only"
    pairs = zip_longest(left, right, fillvalue="nothing")
    first, (expected, actual) = next((number, pair) for number, pair in enumerate(pairs) if pair[0] != pair[1])
    reason = f"{kind}; first at sample {first}: expected {expected}, actual {actual}"
    return [Verdict(Outcome.FAIL, "files", reason)]
