"""Two sources of data, held sample by sample, and where the code that makes them parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tipchain.core.language import listed
from tipchain.errors import Outcome, UsageError
from tipchain.explain.causes.code import CodePair, pair_names
from tipchain.explain.causes.data_sources import DATA, DataSource, Transformed, places_of
from tipchain.explain.findings import SIDE_NAMES, Diagnosis, PieceCheck, failed_to_run, of_piece
from tipchain.frameworks.live_models import LiveSide

Sources = tuple[DataSource, DataSource]
EXTRA = 64
"""Samples that the port is read further than the reference, to see whether it goes on."""
SHOWN_PLACES = 5
"""Places that a message shows."""


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
    sources: list[DataSource] = []
    for given, side in zip(data, SIDE_NAMES, strict=True):
        for framework in sides:
            framework.seed(seed)
        try:
            sources.append(DataSource(_readable(given, samples, side), sides, side, seed))
            # The port's as far as the reference's, and a little on where that ended.
            first = sources[0]
            sources[-1].read(len(first.samples) + (EXTRA if first.whole else 0) if len(sources) > 1 else None)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
            return failed_to_run(f"the {side}'s data", error)
    ours, theirs = sources
    if not ours.whole and all(one.is_dataset and one.dataset is one.opened for one in sources):
        ours.set_seed()
        count, length = len(ours.samples), min(len(one.opened) for one in sources)
        half = min(count, length) // 2
        rest = np.unique(np.linspace(half, length - 1, max(1, min(count, length) - half)).astype(int))
        numbers = [*range(half), *map(int, rest)]
        for one in sources:
            one.read(len(numbers), numbers)
    for one in sources:
        if not one.samples:
            reason = f"nothing was compared: the {one.side}'s data has no samples"
            return PieceCheck(outcome=Outcome.ERROR, reason=reason)
    return _judge((ours, theirs), path)


def _readable(given: object, samples: Sequence[object] | None, side: str) -> object:
    """Return a source of data; of a transform the data set of its results."""
    if samples is None:
        return given
    if not callable(given):
        raise UsageError(
            f"data: the {side}'s is a {type(given).__name__}\n  expected: with samples, a transform: a callable of one raw sample"
        )
    return Transformed(given, samples)


def _judge(sources: Sources, path: str) -> PieceCheck:
    ours, theirs = (one.samples for one in sources)
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
        inputs=[sources[0].shown(at) for at in range(len(ours))],
        names=fields,
        values=[(one.fields, other.fields) for one, other in zip(ours, theirs, strict=False)],
        again=lambda side, at, edit: sources[side].trace(at, edit),
        fix="compare what both do to this sample",
    )
    off = {at for each in code.apart.values() for at in each}
    reference, port = sources
    more = reference.whole if len(theirs) > len(ours) else port.whole if len(theirs) < len(ours) else False
    counted = None not in (reference.total, port.total) and reference.total != port.total
    if not off and not counted and not more:
        return PieceCheck(outcome=Outcome.PASS, reason=_equal(sources, code), numbers=numbers)
    places = places_of(ours, theirs, fields)
    random = [one.is_random() for one in sources]
    if any(random):
        return _judge_random(sources, code, random, places)
    numbers[f"{path}/differing_samples"] = float(len(off))
    order = _explain_order(sources, path, places) if reference.whole or len(ours) == len(theirs) else None
    if order is None and not off:
        order = _explain_counts(sources, path)
    if order is not None:
        reason = f"{order.message}; {_reason(reference, code)}"
        return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=(order,))
    causes = tuple(code.causes())
    if counted and not any(one.explained for one in causes):
        causes = (_explain_counts(sources, path), *causes)
    return PieceCheck(outcome=Outcome.FAIL, reason=_reason(reference, code), numbers=numbers, diagnoses=causes)


def _judge_random(sources: Sources, code: CodePair, random: Sequence[bool], places: Sequence[int | None]) -> PieceCheck:
    count = len(sources[0].samples)
    shuffled = None not in places and sorted(one for one in places if one is not None) == list(range(count))
    if all(random):
        if shuffled:
            reason = f"the same {len(places)} samples, shuffled anew at every read on both sides"
            return PieceCheck(outcome=Outcome.PASS, reason=reason)
        if all(one.dataset is not None and one.dataset is not one.opened for one in sources):
            ours, theirs = sources
            found = check_data(ours.tensors, (ours.dataset, theirs.dataset), seed=ours.seed, path=code.path)
            return replace(found, reason=f"both loaders shuffle, so their data sets were compared: {found.reason}")
        reason = "both sides give something else at every read (shuffling, augmentation): compare them without"
        return PieceCheck(outcome=Outcome.SKIP, reason=reason)
    which, other = SIDE_NAMES if random[0] else SIDE_NAMES[::-1]
    what = "shuffles" if shuffled else "gives something else at every read (augmentation, shuffling)"
    message = f"{'order' if shuffled else 'values'}: only the {which} {what}, the {other} does not"
    fix = f"give the port {'shuffle=' if shuffled else 'random transforms: '}{random[0]}, as the reference has"
    cause = of_piece(code.path, "setting" if shuffled else "parting", message, "read twice", fix)
    causes = () if shuffled else tuple(code.causes())
    return PieceCheck(outcome=Outcome.FAIL, reason=message, diagnoses=(cause, *causes))


def _equal(sources: Sources, code: CodePair) -> str:
    """Say that all samples are equal, with the differences that do not matter."""
    ours, theirs = sources
    of = "" if ours.whole and theirs.whole else f" of {ours.total}" if ours.total else ", the first"
    notes = [f"{len(code.values)}{of} samples are equal"]
    for name in code.names:
        expected, actual = (one.dtype for one in code.ends(0, name) if isinstance(one, np.ndarray))
        if expected != actual:
            notes.append(f"{name or 'their dtype'}: {expected} expected, {actual} actual")
    if None not in (ours.batch, theirs.batch) and ours.batch != theirs.batch:
        notes.append(f"batches of {ours.batch} expected, of {theirs.batch} actual")
    return "; ".join(notes)


def _reason(reference: DataSource, code: CodePair) -> str:
    count, off = len(code.values), {at for each in code.apart.values() for at in each}
    if not off:
        return f"the first {count} samples are equal, but one side has more"
    first = min(off)
    which = ", ".join(filter(None, sorted(name for name, each in code.apart.items() if first in each)))
    return (
        f"{len(off)} of {count} samples differ, first sample {reference.shown(first)}{f' in {which}' if which else ''}"
    )


# What makes the order or the number of samples differ: the first place where another stands, and what is missing or there twice.


def _explain_order(sources: Sources, path: str, places: Sequence[int | None]) -> Diagnosis | None:
    """Return the first place where the port has another of the reference's samples; None where some are none of them.

    Args:
        sources: both sides.
        path: what diagnoses call them.
        places: of each of the port's samples the number of the reference's sample that it is.
    """
    reference, _ = sources
    count = len(reference.samples)
    known = [place for place in places if place is not None]
    if len(known) < len(places) or known == list(range(count)):
        return None
    seen = Counter(known)
    twice = sorted(place for place, times in seen.items() if times > 1)
    missing = [place for place in range(count) if place not in seen]
    first = next((at for at, place in enumerate(known) if place != at), len(known))
    wanted = reference.shown(first) if first < count else "none"
    told = []
    if first < len(known):
        told.append(f"sample {first} of the port is the reference's {reference.shown(known[first])}, expected {wanted}")
    told += [f"{some(missing)} of the reference's {count} missing in the port"] if missing else []
    told += [f"the port has {some(twice)} more than once"] if twice else []
    evidence = f"all of the port's {len(places)} samples are among the reference's {count}"
    return _of_order(sources, path, "; ".join(told), evidence)


def _explain_counts(sources: Sources, path: str) -> Diagnosis:
    """Return the cause of sources of which one goes on where the other ends."""
    expected, actual = (one.total or f"more than {len(one.samples)}" for one in sources)
    return _of_order(sources, path, f"samples: {expected} expected, {actual} actual", "the number of samples")


def _of_order(sources: Sources, path: str, told: str, evidence: str) -> Diagnosis:
    drops = [getattr(getattr(one.opened, "batch_sampler", None), "drop_last", None) for one in sources]
    code, fix = "parting", "read every sample once, in the reference's order"
    if None not in drops and drops[0] != drops[1]:
        code, fix = "setting", f"pass drop_last={drops[0]}"
        told = f"`drop_last` is {drops[1]}, the reference's {drops[0]}: {told}"
    return of_piece(path, code, f"order: {told}", evidence, fix)


def some(numbers: Sequence[int]) -> str:
    """Return sample numbers in words, the first few of many."""
    return f"sample{'s' if len(numbers) > 1 else ''} {listed(list(map(str, numbers)), SHOWN_PLACES)}"
