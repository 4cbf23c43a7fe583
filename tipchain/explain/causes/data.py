"""Two sources of data, held sample by sample, and what makes them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.data_images import explain_images
from tipchain.explain.causes.data_order import (
    explain_boxes,
    explain_counts,
    explain_labels,
    explain_order,
    explain_tokens,
)
from tipchain.explain.causes.data_pipeline import Method, explain_pipelines, explain_reruns, resize, spy
from tipchain.explain.causes.data_sources import (
    DATA,
    DataCause,
    DataSource,
    ReadSamples,
    Sample,
    channel_axis,
    differing,
    pair_fields,
    places_of,
    same_array,
    same_sample,
    transformed,
)
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck, failed_to_run
from tipchain.framework_types import Array, Dataset, Nested
from tipchain.frameworks.live_models import LiveSide

# From samples that differ to causes: labels over all samples, images over some, raw images where they are at hand.


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
class SamplePair:
    """Samples of both sides.

    Attributes:
        opened: both sources.
        read: what was read of each.
        raws: raw samples, where transforms are compared.
        transforms: both sides', likewise.
        path: what diagnoses call the piece.
        off: numbers of those that differ.
        fields: the port's field by the reference's.
    """

    opened: Sequence[DataSource]
    read: Sequence[ReadSamples]
    raws: Sequence[Nested] | None
    transforms: tuple[Nested, Nested] | None
    path: str
    off: Sequence[int] = ()
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> Sequence[Sample]:
        """The reference's."""
        reference, _ = self.read
        return reference.samples

    @property
    def theirs(self) -> Sequence[Sample]:
        """The port's."""
        _, port = self.read
        return port.samples

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Samples of each side, None where it is not known."""
        reference, port = self.read
        return reference.total, port.total

    @property
    def tensors(self) -> Sequence[LiveSide]:
        """The frameworks whose tensors may come."""
        return self.opened[0].tensors

    @property
    def datasets(self) -> tuple[Dataset | None, Dataset | None]:
        """Both sides' data sets, None where there are none."""
        reference, port = self.opened
        return reference.dataset, port.dataset

    def random(self, seed: int) -> list[bool]:
        """Tell of each side whether it gives something else when it is read once more, after another seed."""
        _seed(self.tensors, seed + 1)
        if self.transforms is not None and self.raws is not None:
            again = [
                transformed(one, list(self.raws)[:AGAIN], source.tensors, source.side).read().samples
                for one, source in zip(self.transforms, self.opened, strict=True)
            ]
        else:
            again = [source.again(AGAIN) or [] for source in self.opened]
        return [
            any(not same_sample(one, other) for one, other in zip(before.samples, after, strict=False))
            for before, after in zip(self.read, again, strict=True)
        ]

    def values(self, name: str, numbers: Sequence[int]) -> tuple[list[Array], list[Array]]:
        """Return a field of samples, of both sides."""
        other = self.fields[name]
        return [self.ours[one].fields[name] for one in numbers], [self.theirs[one].fields[other] for one in numbers]

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


def explain(pair: SamplePair) -> Iterator[Diagnosis]:
    """Yield the causes of every field that differs, images before labels."""
    names = sorted(pair.fields, key=lambda name: -pair.ours[0].fields[name].size)
    for name in names:
        off = [
            one
            for one in pair.off
            if not same_array(pair.ours[one].fields[name], pair.theirs[one].fields[pair.fields[name]])
        ]
        found = list(_explain_field(pair, name, off)) if off else []
        yield from found
        if any(one.code == ORDER for one in found):
            return  # other samples have other labels


def _explain_field(pair: SamplePair, name: str, off: Sequence[int]) -> Iterator[Diagnosis]:
    one, count = pair.ours[off[0]], min(len(pair.ours), len(pair.theirs))
    named = f" ({one.names[0]})" if one.names else ""
    where = f"all {count} samples" if len(off) == count else f"{len(off)} of {count} samples, first {one.number}{named}"
    where += f", {name}" if name else ""
    es, acts = pair.values(name, off[:TRIED])
    kinds = f"{es[0].dtype} expected, {acts[0].dtype} actual"
    if all(one.size == 1 or (one.ndim == 1 and one.dtype.kind in "biu") for one in es):
        all_es, all_acts = pair.values(name, range(count))
        cause = explain_labels(all_es, all_acts)
        first = f"{_shown(es[0])} expected, {_shown(acts[0])} actual"
        if cause is None and all(one.size == 1 and one.dtype.kind in "biu" for one in es):
            cause = DataCause(
                "unknown", "label: others, in no known way", "compare how the two sides find a sample's label"
            )
        if cause is not None:
            yield cause.diagnosis(where, f"{first}; held against all {count} labels", pair.path)
            return
    sequence = explain_tokens(*pair.values(name, range(count))) or explain_boxes(*pair.values(name, off))
    if sequence is not None:
        yield sequence.diagnosis(where, f"held against all {count} samples, {kinds}", pair.path)
        return
    if any(one.dtype.kind == "c" for one in (*es, *acts)):
        es, acts = [one.view(np.float64) for one in es], [one.view(np.float64) for one in acts]
    causes, evidence = explain_images(es, acts), f"tried on {len(es)} samples, {kinds}"
    if not causes:
        causes = [DataCause("dtype", f"dtype: {kinds}", f"convert the port's to {es[0].dtype}", explained=1.0)]
    if len(causes) > 1 or causes[0].explained is None:
        causes, evidence = _explain_further(pair, name, off, causes, evidence)
    for cause in causes:
        share = "" if cause.explained is None else f": {cause.explained:.2%} of the difference is gone"
        together = f" with the {len(causes)} causes together" if len(causes) > 1 else ""
        yield cause.diagnosis(where, f"{evidence}{share}{together if share else ''}", pair.path)


def _explain_further(
    pair: SamplePair, name: str, off: Sequence[int], causes: list[DataCause], evidence: str
) -> tuple[list[DataCause], str]:
    """Return better causes than those of finished images, where raw images, another order or one sample give any."""
    raw, words = _explain_raw(pair, name, off)
    evidence = f"{evidence}; {words}" if words else evidence
    tried = bool(raw) and raw[0].explained is not None  # else raw images of another size may be others
    if tried and (causes[0].explained is None or len(raw) < len(causes)):
        return raw, evidence
    if causes[0].explained is not None:
        return causes, evidence
    ordered = _explain_in_order(pair, name)
    if ordered:
        return ordered, f"{evidence}; samples were recognized by small grey images"
    if raw:
        return raw, evidence
    es, acts = pair.values(name, off[:1])
    alone = explain_images(es, acts) if len(off) > 1 else []
    if alone and alone[0].code != "unknown" and alone[0].explained is not None:
        words = f"of the first of {len(off)} samples that differ, not of all: {evidence}"
        return [replace(one, message=f"{one.message} (not in all samples)") for one in alone], words
    return causes, evidence


def _explain_raw(pair: SamplePair, name: str, off: Sequence[int]) -> tuple[list[DataCause], str]:
    """Return causes found by trying both sides' transforms on raw images, and what the pipelines are."""
    chosen = _uneven(pair, off)
    es, acts = pair.values(name, chosen)
    if pair.raws is not None and pair.transforms is not None:
        raws = pair.raw_arrays(chosen)
        if raws is None:
            return [], ""

        # Side's transform of one raw sample, and of what it makes one field.
        def run(raw: Array) -> Array:
            assert pair.transforms is not None
            transform, _ = pair.transforms
            source = transformed(transform, [raw], pair.tensors, "reference")
            return source.read().samples[0].fields[name]

        found = explain_reruns(run, raws, es, acts)
        if found:
            return found, "the reference's transforms were run on changed raw images"
        return explain_pipelines((raws, raws), es, acts)
    seen = [None if one is None else spy(one, [pair.ours[n].number for n in chosen]) for one in pair.datasets]
    known = [[raw for raw, _ in one] for one in seen if one is not None]
    if not known:
        return [], ""
    # Where one side alone shows what it reads, the other is taken to read the same, which trying then proves.
    ours, theirs = known[0], known[-1]
    read = explain_images(ours, theirs)
    if read:
        return [replace(one, message=f"{one.message}, as it is read, before the transform") for one in read], ""
    return explain_pipelines((ours, theirs), es, acts)


def _uneven(pair: SamplePair, off: Sequence[int]) -> list[int]:
    """Return a few samples that differ, of different shapes where raw images have such."""
    raws = pair.raw_arrays(off)
    if raws is None:
        return list(off[:RAW])
    shapes: dict[tuple[int, ...], int] = {}
    for one, raw in zip(off, raws, strict=True):
        shapes.setdefault(raw.shape, one)
    rest = [one for one in off if one not in shapes.values()]
    return [*shapes.values(), *rest][:RAW]


def _explain_in_order(pair: SamplePair, name: str) -> list[DataCause]:
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


def _shown(label: Array) -> str:
    flat = label.reshape(-1)
    return (
        f"{flat[0]:g}"
        if flat.size == 1
        else "[" + ", ".join(f"{one:g}" for one in flat[:6]) + (", …]" if flat.size > 6 else "]")
    )


EXTRA = 64
"""Samples that the port is read further than the reference, to see whether it goes on."""
AGAIN = 8
"""Samples that are read once more, to see whether they are random."""


def check_data(
    sides: Sequence[LiveSide],
    data: tuple[object, object],
    *,
    samples: Sequence[object] | None = None,
    seed: int = 0,
    path: str = DATA,
) -> PieceCheck:
    """Hold two sources of data against each other, sample by sample.

    Floats may differ by rounding (a hundred-thousandth of the image's size), whole numbers not at all. Labels ``[n, 1]`` and
    ``[n]``, integer types and float64 against float32 are no difference. Strings (file names) are not compared. Of large
    sources some hundred samples are compared, spread over data sets that can be indexed.

    Args:
        sides: the frameworks whose tensors the data may hold.
        data: the reference's and the port's: iterables of samples or batches, data sets, loaders, or callables without
            arguments that return one. A sample or batch is an array or tensor, or a tuple or mapping of such. With
            ``samples``: two callables instead, the transforms of one raw sample.
        samples: raw samples, such as uint8 images ``[h, w, c]``, that both transforms are given.
        seed: of all random numbers, set before each source is read.
        path: what diagnoses call the piece.

    Returns:
        FAIL with what differs and its causes; SKIP where both sides are random; ERROR where a source raises or is empty.
    """
    opened: list[DataSource] = []
    read: list[ReadSamples] = []
    for number, side in enumerate(SIDE_NAMES):
        _seed(sides, seed)
        try:
            opened.append(_open(data[number], samples, sides, side))
            # The port's as far as the reference's, and a little on where that ended.
            most = len(read[0].samples) + (EXTRA if read[0].whole else 0) if read else None
            read.append(opened[number].read(most))
        except UsageError as error:
            return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
            return failed_to_run(f"the {side}'s data", error)
    if not (read[0].whole or not all(one.is_dataset and one.dataset is one.opened for one in opened)):
        _seed(sides, seed)
        count = len(read[0].samples)
        length = min(len(one.opened) for one in opened)
        half = min(count, length) // 2
        rest = np.unique(np.linspace(half, length - 1, max(1, min(count, length) - half)).astype(int))
        numbers = [*range(half), *map(int, rest)]
        read = [one.read(len(numbers), numbers) for one in opened]
    for side, one in zip(SIDE_NAMES, read, strict=True):
        if not one.samples:
            return PieceCheck(outcome=Outcome.ERROR, reason=f"nothing was compared: the {side}'s data has no samples")
    transforms = data if samples is not None else None
    pair = SamplePair(opened=opened, read=read, raws=samples, transforms=transforms, path=path)
    return _judge(pair, seed, lambda: check_data(sides, pair.datasets, seed=seed, path=path))


def _open(given: object, samples: Sequence[Any] | None, sides: Sequence[LiveSide], side: str) -> DataSource:
    if samples is None:
        return DataSource(given, sides, side)
    if not callable(given):
        raise UsageError(
            f"data: the {side}'s is a {type(given).__name__}\n  expected: with samples, a transform: a callable of one raw sample"
        )
    return transformed(given, samples, sides, side)


def _seed(sides: Sequence[Any], seed: int) -> None:
    for side in sides:
        side.seed(seed)


def _judge(pairing: SamplePair, seed: int, inside: Callable[[], PieceCheck]) -> PieceCheck:
    ours, theirs, path = pairing.ours, pairing.theirs, pairing.path
    numbers = {f"{path}/reference_samples": float(len(ours)), f"{path}/port_samples": float(len(theirs))}
    try:
        fields = pair_fields(ours[0], theirs[0])
    except ValueError as error:
        cause = Diagnosis(
            code="fields",
            port_path=path,
            message=str(error),
            evidence="the first sample of each side",
            fix="return the fields that the reference returns",
        )
        return PieceCheck(outcome=Outcome.FAIL, reason=str(error), numbers=numbers, diagnoses=(cause,))
    off = [number for number, pair in enumerate(zip(ours, theirs, strict=False)) if differing(*pair, fields)]
    counts, (read, port_read) = pairing.counts, pairing.read
    if not off and (None in counts or len(set(counts)) == 1) and _as_many(pairing):
        return PieceCheck(outcome=Outcome.PASS, reason=_equal(pairing), numbers=numbers)
    random = pairing.random(seed)
    places = places_of(ours, theirs, fields)
    if any(random):
        found = _judge_random(pairing, random, places, inside)
        if found is not None:
            return found
    numbers[f"{path}/differing_samples"] = float(len(off))
    reason = _reason(pairing, off, fields)
    complete = read.whole or len(ours) == len(theirs)
    order = explain_order(places, len(ours), batch=port_read.batch) if complete else None
    if order is None and not off:
        order = explain_counts(counts, (len(ours), len(theirs)), (read.batch, port_read.batch))
    if order is not None:
        evidence = f"{sum(one is not None for one in places)} of the port's {len(theirs)} samples are among the reference's {len(ours)}"
        return PieceCheck(
            outcome=Outcome.FAIL,
            reason=f"{order.message}; {reason}",
            numbers=numbers,
            diagnoses=(order.diagnosis("", evidence, path),),
        )
    causes = tuple(explain(replace(pairing, off=off, fields=fields)))
    if None not in counts and len(set(counts)) > 1 and all(one.explained is None for one in causes):
        other = explain_counts(counts, (len(ours), len(theirs)), (read.batch, port_read.batch))
        causes = (other.diagnosis("", "the number of samples; nothing explains those that differ", path), *causes)
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=causes)


def _as_many(pairing: SamplePair) -> bool:
    """Tell whether neither side goes on where the other ends."""
    ours, theirs = pairing.read
    if len(ours.samples) == len(theirs.samples):
        return True
    return not (ours.whole if len(theirs.samples) > len(ours.samples) else theirs.whole)


def _judge_random(
    pairing: SamplePair, random: Sequence[bool], places: Sequence[int | None], inside: Callable[[], PieceCheck]
) -> PieceCheck | None:
    shuffled = None not in places and sorted(one for one in places if one is not None) == list(range(len(pairing.ours)))
    if all(random):
        if shuffled:
            return PieceCheck(
                outcome=Outcome.PASS,
                reason=f"the same {len(places)} samples, shuffled anew at every read on both sides",
            )
        loaders = all(one.dataset is not None and one.dataset is not one.opened for one in pairing.opened)
        if loaders:
            found = inside()
            return PieceCheck(
                outcome=found.outcome,
                reason=f"both loaders shuffle, so their data sets were compared: {found.reason}",
                numbers=found.numbers,
                diagnoses=found.diagnoses,
            )
        reason = "both sides give something else at every read (shuffling, augmentation): compare them without"
        return PieceCheck(outcome=Outcome.SKIP, reason=reason)
    reference_alone, _ = random
    which, other = ("reference", "port") if reference_alone else ("port", "reference")
    what = "shuffles" if shuffled else "gives something else at every read (augmentation, shuffling)"
    fix = f"{'remove' if which == 'port' else 'add'} {'shuffle=True' if shuffled else 'the random transforms'} {'from' if which == 'port' else 'to'} the port"
    message = (
        f"order: only the {which} {what}, the {other} does not"
        if shuffled
        else f"values: only the {which} {what}, the {other} does not"
    )
    cause = Diagnosis(
        code="shuffle" if shuffled else "random",
        port_path=pairing.path,
        message=message,
        evidence="read twice",
        explained=1.0 if shuffled else None,
        fix=fix,
    )
    return PieceCheck(outcome=Outcome.FAIL, reason=message, diagnoses=(cause,))


def _equal(pairing: SamplePair) -> str:
    compared = min(len(pairing.ours), len(pairing.theirs))
    whole = all(one.whole for one in pairing.read)
    total, _ = pairing.counts
    of = "" if whole else f" of {total}" if total else ", the first"
    return f"{compared}{of} samples are equal{'; '.join(['', *_notes(pairing)])}"


def _notes(pairing: SamplePair) -> Iterator[str]:
    """Yield what differs and does not matter."""
    ours, theirs = pairing.ours[0], pairing.theirs[0]
    for name, other in pair_fields(ours, theirs).items():
        one, two = ours.fields[name], theirs.fields[other]
        if one.dtype != two.dtype:
            yield f"{name or 'their dtype'}: {one.dtype} expected, {two.dtype} actual"
    expected, actual = (one.batch for one in pairing.read)
    if expected is not None and actual is not None and expected != actual:
        yield f"batches of {expected} expected, of {actual} actual"


def _reason(pairing: SamplePair, off: Sequence[int], fields: Mapping[str, str]) -> str:
    ours, theirs = pairing.ours, pairing.theirs
    if not off:
        return f"the first {min(len(ours), len(theirs))} samples are equal, but one side has more"
    first = off[0]
    which = ", ".join(filter(None, (str(one) for one in sorted(differing(ours[first], theirs[first], fields)))))
    named = f" ({ours[first].names[0]})" if ours[first].names else ""
    return f"{len(off)} of {min(len(ours), len(theirs))} samples differ, first sample {ours[first].number}{named}{f' in {which}' if which else ''}"
