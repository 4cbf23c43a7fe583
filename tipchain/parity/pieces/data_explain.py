"""From samples that differ to causes: labels over all samples, images over some, raw images where they are at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.findings import Diagnosis
from tipchain.parity.pieces.data_arrays import Cause, channel_axis
from tipchain.parity.pieces.data_compare import same_array
from tipchain.parity.pieces.data_images import explain_images
from tipchain.parity.pieces.data_labels import explain_labels
from tipchain.parity.pieces.data_order import explain_order
from tipchain.parity.pieces.data_resize import Method, resize
from tipchain.parity.pieces.data_sequences import explain_clips, explain_frames, explain_tokens
from tipchain.parity.pieces.data_sources import Sample, Tensors, transformed
from tipchain.parity.pieces.data_transforms import explain_pipelines, explain_reruns, spy

Array = npt.NDArray[Any]
TRIED = 6
"""Samples on which hypotheses are tried."""
RAW = 8
"""Raw images on which pipelines are held; what they are is found out on the first few of them."""
BLOCKS = 6
"""Rows and columns of the small grey image by which samples are recognized."""
ALIKE, CLEAR = 0.9, 0.02
"""Correlation of small images that are the same sample, and how far the next must be behind: 36 independent cells correlate by 0.9 once
in 10^13."""
ORDER = "sample-order"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Samples of both sides that differ.

    Attributes:
        ours: the reference's.
        theirs: the port's.
        off: numbers of those that differ.
        fields: the port's field by the reference's.
        raws: raw samples, where transforms are compared.
        transforms: both sides', likewise.
        datasets: both sides' data sets, None where there are none.
        tensors: the frameworks whose tensors may come.
        path: what diagnoses call the piece.
    """

    ours: Sequence[Sample]
    theirs: Sequence[Sample]
    off: Sequence[int]
    fields: Mapping[str, str]
    raws: Sequence[Any] | None
    transforms: tuple[Any, Any] | None
    datasets: tuple[Any, Any]
    tensors: Sequence[Tensors]
    path: str

    def values(self, name: str, numbers: Sequence[int]) -> tuple[list[Array], list[Array]]:
        """Return a field of samples, of both sides."""
        other = self.fields[name]
        return [self.ours[one].fields[name] for one in numbers], [
            self.theirs[one].fields[other] for one in numbers
        ]

    def raw_arrays(self, numbers: Sequence[int]) -> list[Array] | None:
        """Return raw samples that are one array of numbers each; None where one is several, such as an image and its mask."""
        if self.raws is None:
            return None
        try:
            arrays = [np.asarray(self.raws[one]) for one in numbers]
        except ValueError:  # arrays of different shapes
            return None
        several = any(
            isinstance(self.raws[one], (tuple, list))
            and any(np.ndim(part) for part in self.raws[one] if isinstance(part, np.ndarray))
            for one in numbers
        )
        return None if several or any(one.dtype.kind not in "biuf" for one in arrays) else arrays


def explain(pair: Pair) -> Iterator[Diagnosis]:
    """Yield the causes of every field that differs, images before labels."""
    names = sorted(pair.fields, key=lambda name: -pair.ours[0].fields[name].size)
    for name in names:
        off = [
            one for one in pair.off
            if not same_array(pair.ours[one].fields[name], pair.theirs[one].fields[pair.fields[name]])
        ]  # fmt: skip
        found = list(_explain_field(pair, name, off)) if off else []
        yield from found
        if any(one.code == ORDER for one in found):
            return  # other samples have other labels


def _explain_field(pair: Pair, name: str, off: Sequence[int]) -> Iterator[Diagnosis]:
    where, count = _where(pair, name, off), min(len(pair.ours), len(pair.theirs))
    es, acts = pair.values(name, off[:TRIED])
    kinds = f"{es[0].dtype} expected, {acts[0].dtype} actual"
    if all(one.size == 1 or (one.ndim == 1 and one.dtype.kind in "biu") for one in es):
        all_es, all_acts = pair.values(name, range(count))
        cause = explain_labels(all_es, all_acts)
        if cause is not None:
            first = f"{_shown(es[0])} expected, {_shown(acts[0])} actual"
            yield cause.diagnosis(where, f"{first}; held against all {count} labels", pair.path)
            return
    sequence = _explain_sequence(pair, name, off)
    if sequence is not None:
        yield sequence.diagnosis(where, f"held against all {count} samples, {kinds}", pair.path)
        return
    if any(one.dtype.kind == "c" for one in (*es, *acts)):
        es, acts = [one.view(np.float64) for one in es], [one.view(np.float64) for one in acts]
    causes, evidence = explain_images(es, acts), f"tried on {len(es)} samples, {kinds}"
    if not causes:
        causes = [
            Cause(
                code="dtype",
                message=f"dtype: {kinds}",
                fix=f"convert the port's to {es[0].dtype}",
                explained=1.0,
            )
        ]
    if len(causes) > 1 or causes[0].explained is None:
        causes, evidence = _explain_further(pair, name, off, causes, evidence)
    for cause in causes:
        share = "" if cause.explained is None else f": {cause.explained:.2%} of the difference is gone"
        together = f" with the {len(causes)} causes together" if len(causes) > 1 else ""
        yield cause.diagnosis(where, f"{evidence}{share}{together if share else ''}", pair.path)


def _explain_sequence(pair: Pair, name: str, off: Sequence[int]) -> Cause | None:
    """Return what makes sequences differ: tokens over all samples, frames of some videos."""
    tokens = explain_tokens(*pair.values(name, range(min(len(pair.ours), len(pair.theirs)))))
    if tokens is not None:
        return tokens
    es, acts = pair.values(name, off[:RAW])
    raws = pair.raw_arrays(off[:RAW])
    if raws is not None and pair.transforms is not None:
        found = explain_frames((_runs(pair, 0, name), _runs(pair, 1, pair.fields[name])), raws, es, acts)
        if found is not None:
            return found
    return explain_clips(es, acts)


def _runs(pair: Pair, number: int, field: str) -> Callable[[Array], Array]:
    """Return a side's transform of one raw sample, and of what it makes one field."""

    def run(raw: Array) -> Array:
        assert pair.transforms is not None
        source = transformed(pair.transforms[number], [raw], pair.tensors, "reference")
        return source.read().samples[0].fields[field]

    return run


def _explain_further(
    pair: Pair, name: str, off: Sequence[int], causes: list[Cause], evidence: str
) -> tuple[list[Cause], str]:
    """Return better causes than those of finished images, where raw images, another order or one sample give any."""
    raw, words = _explain_raw(pair, name, off)
    evidence = f"{evidence}; {words}" if words else evidence
    if raw and (causes[0].explained is None or len(raw) < len(causes)):
        return raw, evidence
    if causes[0].explained is not None:
        return causes, evidence
    ordered = _explain_in_order(pair, name)
    if ordered:
        return ordered, f"{evidence}; samples were recognized by small grey images"
    es, acts = pair.values(name, off[:1])
    alone = explain_images(es, acts) if len(off) > 1 else []
    if alone and alone[0].code != "unknown" and alone[0].explained is not None:
        words = f"of the first of {len(off)} samples that differ, not of all: {evidence}"
        return [replace(one, message=f"{one.message} (not in all samples)") for one in alone], words
    return causes, evidence


def _explain_raw(pair: Pair, name: str, off: Sequence[int]) -> tuple[list[Cause], str]:
    """Return causes found by trying both sides' transforms on raw images, and what the pipelines are."""
    chosen = _uneven(pair, off)
    es, acts = pair.values(name, chosen)
    if pair.raws is not None and pair.transforms is not None:
        raws = pair.raw_arrays(chosen)
        if raws is None:
            return [], ""
        run = _runs(pair, 0, name)
        found = explain_reruns(run, raws, es, acts)
        if found:
            return found, "the reference's transforms were run on changed raw images"
        return explain_pipelines((raws, raws), es, acts)
    seen = [None if one is None else spy(one, [pair.ours[n].number for n in chosen]) for one in pair.datasets]
    known = [[raw for raw, _ in one] for one in seen if one is not None]
    if not known:
        return [], ""
    # Where one side alone shows what it reads, the other is taken to read the same, which trying then proves.
    raws_of = [known[0], known[-1]]
    read = explain_images(*raws_of)
    if read:
        return [
            replace(one, message=f"{one.message}, as it is read, before the transform") for one in read
        ], ""
    return explain_pipelines((raws_of[0], raws_of[1]), es, acts)


def _uneven(pair: Pair, off: Sequence[int]) -> list[int]:
    """Return a few samples that differ, of different shapes where raw images have such."""
    raws = pair.raw_arrays(off)
    if raws is None:
        return list(off[:RAW])
    shapes: dict[tuple[int, ...], int] = {}
    for one, raw in zip(off, raws, strict=True):
        shapes.setdefault(raw.shape, one)
    rest = [one for one in off if one not in shapes.values()]
    return [*shapes.values(), *rest][:RAW]


def _explain_in_order(pair: Pair, name: str) -> list[Cause]:
    """Return causes of images that are also in another order: the same ones are found by what they show, roughly."""
    count = min(len(pair.ours), len(pair.theirs))
    es, acts = pair.values(name, range(count))
    small = [[_small(one) for one in side] for side in (es, acts)]
    if count < TRIED or any(one is None for side in small for one in side):
        return []
    ours, theirs = (np.stack([one for one in side if one is not None]) for side in small)
    alike = theirs @ ours.T
    places = alike.argmax(axis=1)
    ranked = np.sort(alike, axis=1)
    if (ranked[:, -1] < ALIKE).any() or (ranked[:, -1] - ranked[:, -2] < CLEAR).any():
        return []
    order = explain_order([int(one) for one in places], count)
    if order is None:
        return []
    chosen = range(min(TRIED, count))
    causes = explain_images([es[int(places[one])] for one in chosen], [acts[one] for one in chosen])
    if causes and causes[0].explained is None:
        return []
    share = min([one.explained for one in causes if one.explained is not None], default=1.0)
    return [replace(order, explained=share), *causes]


def _small(image: Array) -> Array | None:
    """Return a small grey image of mean 0 and length 1, None of what is no image."""
    if image.ndim not in (2, 3) or image.dtype.kind not in "biuf":
        return None
    axis = channel_axis(image.shape)
    grey = image.astype(np.float64) if axis is None else image.astype(np.float64).mean(axis=axis)
    if grey.ndim != 2:
        return None
    little = resize(grey[..., None], (BLOCKS, BLOCKS), Method(kernel="adaptive")).reshape(-1)
    little -= little.mean()
    length = float(np.linalg.norm(little))
    return little / length if length else None


def _where(pair: Pair, name: str, off: Sequence[int]) -> str:
    first, count = pair.ours[off[0]], min(len(pair.ours), len(pair.theirs))
    named = f" ({first.names[0]})" if first.names else ""
    field = f", {name}" if name else ""
    every = (
        f"all {count} samples"
        if len(off) == count
        else f"{len(off)} of {count} samples, first {first.number}{named}"
    )
    return f"{every}{field}"


def _shown(label: Array) -> str:
    flat = label.reshape(-1)
    return (
        f"{flat[0]:g}"
        if flat.size == 1
        else "[" + ", ".join(f"{one:g}" for one in flat[:6]) + (", …]" if flat.size > 6 else "]")
    )
