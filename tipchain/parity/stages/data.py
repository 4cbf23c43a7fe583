"""Step 2 of the guide, evaluation data: the loader's batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from tipchain.errors import Outcome
from tipchain.framework_types import Array, Dataset
from tipchain.numbers.dumps import Record
from tipchain.numbers.verdicts import Verdict, compare
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, split
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details


def record(bench: Bench) -> Recording:
    """Length, images, labels and file names of the evaluation loader."""
    dataset, settings = bench.dataset("val"), bench.case.data
    indices = split(range(len(dataset)), settings.batch_size)
    kept = indices[: settings.max_batches]
    arrays, files = read_batches(bench, dataset, kept)
    details = {"files": files, "batches_kept": len(kept), "batches_in_all": len(indices)}
    return Recording(arrays={"length": np.array([len(dataset)], dtype=np.int64), **arrays}, details=details)


def read_batches(
    bench: Bench, dataset: Dataset, batches: Sequence[Sequence[int]], begin: str = ""
) -> tuple[dict[str, Array], list[str]]:
    """Return batches of samples by number, as ``dataloader_i`` and ``label_i`` behind ``begin``, and their files."""
    arrays: dict[str, Array] = {}
    files: list[str] = []
    for number, (image, label, names) in enumerate(bench.framework.batches(dataset, batches)):
        arrays[f"{begin}dataloader_{number}"] = bench.framework.array(image)
        arrays[f"{begin}label_{number}"] = bench.framework.array(label)
        files.extend(names)
    return arrays, files


def _files(record: Record) -> list[str] | None:
    names = details(record).get("files")
    return [str(name) for name in names] if isinstance(names, list) else None


# Judge evaluation data sample by sample: one verdict that names the first sample that differs, and in what.


def samples_of(record: Record) -> list[tuple[Array, Array | None, str, str]]:
    """Return the samples of a dump of batches in order, each an image (or what it has), label, file or "", and image's array."""
    files = _files(record) or []
    samples: list[tuple[Array, Array | None, str, str]] = []
    for number in range(len(record.arrays)):
        key = f"dataloader_{number}"
        if key not in record.arrays or record.arrays[key].ndim == 0:
            break
        images, labels = record.arrays[key], record.arrays.get(f"label_{number}")
        for row, image in enumerate(images):
            label = labels[row] if labels is not None and labels.ndim and row < len(labels) else None
            file = files[len(samples)] if len(samples) < len(files) else ""
            samples.append((image, label, file, key))
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
        (image, one, file, key), (port_image, other, port_file, _) = expected, actual
        (verdict,) = compare({"sample": image}, {"sample": port_image}, tolerances[key])
        differences = []
        if file != port_file:
            differences.append(f"file: expected {file}, actual {port_file}")
        if one is None or other is None:
            differences += ["label: one side has none"] if one is not other else []
        elif not np.array_equal(one, other):
            shapes = f": shapes {one.shape} and {other.shape}" if one.shape != other.shape else ""
            differences.append(f"label: expected {one.tolist()}, actual {other.tolist()}{shapes}")
        if image.dtype != port_image.dtype:
            differences.append(f"dtype: {image.dtype} expected, {port_image.dtype} actual")
        elif verdict.outcome is not Outcome.PASS:
            differences.append(verdict.reason)
        if file != port_file:  # another sample has another label and other pixels, too
            place = next((place for place, (_, _, name, _) in enumerate(left) if name == port_file), None)
            if place is not None:
                differences = [f"order: the port has the reference's sample {place} ({port_file}) here"]
        if differences:
            named = f"sample {number} ({file})" if file else f"sample {number}"
            return [Verdict(Outcome.FAIL, "samples", f"first at {named}: {'; '.join(differences)}")]
    if len(left) != len(right):
        counts = f"{len(left)} expected, {len(right)} actual"
        reason = f"the first {min(len(left), len(right))} are equal, but there are {counts}"
        return [Verdict(Outcome.FAIL, "samples", reason)]
    return [Verdict(Outcome.PASS, "samples", f"{len(left)} samples equal in file, label, dtype, shape and values")]


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the arrays, then the samples, of which the first that differs is explained, then file names."""
    verdicts = (*judge_samples(dumps, rules), *judge_files(dumps))
    facts = details(dumps.reference)
    kept, total = facts.get("batches_kept"), facts.get("batches_in_all")
    notes = [f"the first {kept} of {total} batches were compared"] if kept != total else []
    kinds = [record.arrays["label_0"].dtype for record in (dumps.reference, dumps.port) if "label_0" in record.arrays]
    if len(set(kinds)) > 1:  # integers of different widths, which are equal all the same
        notes.append(f"labels are {kinds[0]} expected, {kinds[1]} actual")
    return judging.judge(dumps, rules) + Judged(verdicts=verdicts, notes=notes)


def judge_files(dumps: Dumps) -> list[Verdict]:
    """Compare the file names that both loaders gave, in order."""
    left, right = (_files(record) for record in (dumps.reference, dumps.port))
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
