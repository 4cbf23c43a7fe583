"""Two sources of data, held sample by sample, and where the code that makes them parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.code import CodePair, pair_names
from tipchain.explain.causes.data_sources import (
    DATA,
    DataSource,
    ReadSamples,
    Sample,
    Transformed,
    places_of,
    same_sample,
)
from tipchain.explain.causes.statements import CodeRun, Edit
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck, failed_to_run, of_piece
from tipchain.framework_types import Array
from tipchain.frameworks.live_models import LiveSide

T = TypeVar("T")
EXTRA = 64
"""Samples that the port is read further than the reference, to see whether it goes on."""
AGAIN = 8
"""Samples that are read once more, to see whether they are random."""
SHOWN_PLACES = 5
"""Places that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplePair:
    """Samples of both sides.

    Attributes:
        opened: both sources.
        read: what was read of each.
        path: what diagnoses call the piece.
        seed: of random numbers.
    """

    opened: Sequence[DataSource]
    read: Sequence[ReadSamples]
    path: str
    seed: int

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

    def again(self, side: int, seed: int, read: Callable[[DataSource], T]) -> T:
        """Return the reading of a side once more, after a seed."""
        _seed(self.opened[side].tensors, seed)
        return read(self.opened[side])

    @property
    def random(self) -> list[bool]:
        """Of each side whether it gives something else when it is read once more, after another seed."""
        again = [self.again(side, self.seed + 1, lambda one: one.again(AGAIN) or []) for side in (0, 1)]
        return [
            any(not same_sample(one, other) for one, other in zip(before.samples, after, strict=False))
            for before, after in zip(self.read, again, strict=True)
        ]

    def traced(self, side: int, at: int, edit: Edit | None) -> tuple[CodeRun, Mapping[str, Array]] | None:
        """Return the record of the code that makes a sample of a side, and its fields; None where that cannot be."""
        sample = self.read[side].samples[at]
        wanted = sample if edit is None else None
        found = self.again(side, self.seed, lambda one: one.trace(sample.number, wanted, edit))
        return None if found is None else (found[0], found[1].fields)

    def shown(self, number: int) -> str:
        """Return the name of one of the reference's samples in messages."""
        sample = self.ours[number]
        return f"{sample.number}{f' ({sample.names[0]})' if sample.names else ''}"


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
        FAIL with what differs and where the code parts; SKIP where both sides are random; ERROR where a source raises or is empty.
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
    return _judge(SamplePair(opened=opened, read=read, path=path, seed=seed), sides)


def _open(given: object, samples: Sequence[Any] | None, sides: Sequence[LiveSide], side: str) -> DataSource:
    if samples is None:
        return DataSource(given, sides, side)
    if not callable(given):
        raise UsageError(
            f"data: the {side}'s is a {type(given).__name__}\n  expected: with samples, a transform: a callable of one raw sample"
        )
    return DataSource(Transformed(given, samples), sides, side)


def _seed(sides: Sequence[Any], seed: int) -> None:
    for side in sides:
        side.seed(seed)


def _judge(pair: SamplePair, sides: Sequence[LiveSide]) -> PieceCheck:
    ours, theirs, path = pair.ours, pair.theirs, pair.path
    numbers = {f"{path}/reference_samples": float(len(ours)), f"{path}/port_samples": float(len(theirs))}
    both = ours[0].fields, theirs[0].fields
    # The largest field, which is the image, comes first.
    fields = dict(sorted(pair_names(*both).items(), key=lambda names: -both[0][names[0]].size))
    if not len(fields) == len(both[0]) == len(both[1]):
        names = [", ".join(one) or "one array" for one in both]
        reason = f"samples have other fields: {len(both[0])} ({names[0]}) expected, {len(both[1])} ({names[1]}) actual"
        fix = "return the fields that the reference returns"
        cause = of_piece(path, "structure", reason, "the first sample of each side", fix)
        return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=(cause,))
    code = CodePair(
        path=path,
        what="samples",
        inputs=[pair.shown(at) for at in range(len(ours))],
        names=fields,
        values=[(one.fields, other.fields) for one, other in zip(ours, theirs, strict=False)],
        again=pair.traced,
        fix="compare what both do to this sample",
    )
    off = {at for each in code.apart.values() for at in each}
    reference, port = pair.read
    more = reference.whole if len(theirs) > len(ours) else port.whole if len(theirs) < len(ours) else False
    if not off and (None in pair.counts or len(set(pair.counts)) == 1) and not more:
        return PieceCheck(outcome=Outcome.PASS, reason=_equal(pair, code), numbers=numbers)
    places = places_of(ours, theirs, fields)
    random = pair.random
    if any(random):
        found = _judge_random(pair, code, random, places, sides)
        if found is not None:
            return found
    numbers[f"{path}/differing_samples"] = float(len(off))
    order = _explain_order(pair, places) if reference.whole or len(ours) == len(theirs) else None
    if order is None and not off:
        order = _explain_counts(pair)
    if order is not None:
        reason = f"{order.message}; {_reason(pair, code)}"
        return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=(order,))
    causes = tuple(code.causes())
    if None not in pair.counts and len(set(pair.counts)) > 1 and not any(one.explained for one in causes):
        causes = (_explain_counts(pair), *causes)
    return PieceCheck(outcome=Outcome.FAIL, reason=_reason(pair, code), numbers=numbers, diagnoses=causes)


def _judge_random(
    pair: SamplePair, code: CodePair, random: Sequence[bool], places: Sequence[int | None], sides: Sequence[LiveSide]
) -> PieceCheck | None:
    shuffled = None not in places and sorted(one for one in places if one is not None) == list(range(len(pair.ours)))
    if all(random):
        if shuffled:
            reason = f"the same {len(places)} samples, shuffled anew at every read on both sides"
            return PieceCheck(outcome=Outcome.PASS, reason=reason)
        datasets = [one.dataset for one in pair.opened]
        if all(one is not None and one is not source.opened for one, source in zip(datasets, pair.opened, strict=True)):
            found = check_data(sides, (datasets[0], datasets[1]), seed=pair.seed, path=pair.path)
            return replace(found, reason=f"both loaders shuffle, so their data sets were compared: {found.reason}")
        reason = "both sides give something else at every read (shuffling, augmentation): compare them without"
        return PieceCheck(outcome=Outcome.SKIP, reason=reason)
    which, other = SIDE_NAMES if random[0] else SIDE_NAMES[::-1]
    what = "shuffles" if shuffled else "gives something else at every read (augmentation, shuffling)"
    message = f"{'order' if shuffled else 'values'}: only the {which} {what}, the {other} does not"
    fix = f"give the port {'shuffle=' if shuffled else 'random transforms: '}{random[0]}, as the reference has"
    cause = of_piece(pair.path, "setting" if shuffled else "parting", message, "read twice", fix)
    causes = () if shuffled else tuple(code.causes())
    return PieceCheck(outcome=Outcome.FAIL, reason=message, diagnoses=(cause, *causes))


def _equal(pair: SamplePair, code: CodePair) -> str:
    whole = all(one.whole for one in pair.read)
    total, _ = pair.counts
    of = "" if whole else f" of {total}" if total else ", the first"
    return f"{len(code.values)}{of} samples are equal{'; '.join(['', *_notes(pair, code)])}"


def _notes(pair: SamplePair, code: CodePair) -> Iterator[str]:
    """Yield the differences that do not matter."""
    for name, other in code.names.items():
        one, two = pair.ours[0].fields[name], pair.theirs[0].fields[other]
        if one.dtype != two.dtype:
            yield f"{name or 'their dtype'}: {one.dtype} expected, {two.dtype} actual"
    expected, actual = (one.batch for one in pair.read)
    if expected is not None and actual is not None and expected != actual:
        yield f"batches of {expected} expected, of {actual} actual"


def _reason(pair: SamplePair, code: CodePair) -> str:
    count, off = len(code.values), {at for each in code.apart.values() for at in each}
    if not off:
        return f"the first {count} samples are equal, but one side has more"
    which = ", ".join(filter(None, sorted(name for name, each in code.apart.items() if min(off) in each)))
    return f"{len(off)} of {count} samples differ, first sample {pair.shown(min(off))}{f' in {which}' if which else ''}"


# What makes the order or the number of samples differ: the first place where another stands, and what is missing or there twice.


def _explain_order(pair: SamplePair, places: Sequence[int | None]) -> Diagnosis | None:
    """Return the first place where the port has another of the reference's samples; None where some are none of them.

    Args:
        pair: both sides.
        places: of each of the port's samples the number of the reference's sample that it is.
    """
    count = len(pair.ours)
    known = [place for place in places if place is not None]
    if len(known) < len(places) or known == list(range(count)):
        return None
    seen = Counter(known)
    twice = sorted(place for place, times in seen.items() if times > 1)
    missing = [place for place in range(count) if place not in seen]
    first = next((at for at, place in enumerate(known) if place != at), len(known))
    is_, wanted = (pair.shown(known[first]) if first < len(known) else "", pair.shown(first) if first < count else "")
    told = [f"sample {first} of the port is the reference's {is_}, expected {wanted or 'none'}"] if is_ else []
    told += [f"{some(missing)} of the reference's {count} missing in the port"] if missing else []
    told += [f"the port has {some(twice)} more than once"] if twice else []
    evidence = f"all of the port's {len(places)} samples are among the reference's {count}"
    return _of_order(pair, "; ".join(told), evidence)


def _explain_counts(pair: SamplePair) -> Diagnosis:
    """Return the cause of sources of which one goes on where the other ends."""
    told = ", ".join(
        f"{known or f'more than {len(read.samples)}'} {word}"
        for known, read, word in zip(pair.counts, pair.read, ("expected", "actual"), strict=True)
    )
    return _of_order(pair, f"samples: {told}", "the number of samples")


def _of_order(pair: SamplePair, told: str, evidence: str) -> Diagnosis:
    samplers = [getattr(one.opened, "batch_sampler", None) for one in pair.opened]
    drops = [getattr(one, "drop_last", None) for one in samplers]
    fix = "read every sample once, in the reference's order"
    if None not in drops and drops[0] != drops[1]:
        told, fix = f"`drop_last` is {drops[1]}, the reference's {drops[0]}: {told}", f"pass drop_last={drops[0]}"
    code = "setting" if fix.startswith("pass") else "parting"
    return of_piece(pair.path, code, f"order: {told}", evidence, fix)


def some(numbers: Sequence[int]) -> str:
    """Return sample numbers in words, the first few of many."""
    return f"sample{'s' if len(numbers) > 1 else ''} {listed(list(map(str, numbers)), SHOWN_PLACES)}"
