"""Two sources of data, held sample by sample, and what makes them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import UsageError
from tipchain.outcome import Outcome
from tipchain.parity.findings import Diagnosis
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.pieces.check import PieceCheck, failed_to_run
from tipchain.parity.pieces.data_arrays import DATA
from tipchain.parity.pieces.data_compare import differing, pair_fields, places_of, same_sample
from tipchain.parity.pieces.data_explain import Pair, explain
from tipchain.parity.pieces.data_order import explain_counts, explain_order
from tipchain.parity.pieces.data_sources import Samples, Source, transformed

Array = npt.NDArray[Any]
SIDES = ("reference", "port")
EXTRA = 64
"""Samples that the port is read further than the reference, to see whether it goes on."""
AGAIN = 8
"""Samples that are read once more, to see whether they are random."""


def check_data(
    sides: Sequence[LiveSide], data: tuple[Any, Any], *, samples: Sequence[Any] | None = None, seed: int = 0, path: str = DATA,
) -> PieceCheck:  # fmt: skip
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
    opened: list[Source] = []
    read: list[Samples] = []
    for number, side in enumerate(SIDES):
        found = _take(opened, read, data[number], samples, sides, side, seed)
        if found is not None:
            return found
    if not _same_numbers(opened, read):
        _seed(sides, seed)
        read = _spread(opened, len(read[0].samples))
    for side, one in zip(SIDES, read, strict=True):
        if not one.samples:
            return PieceCheck(
                outcome=Outcome.ERROR, reason=f"nothing was compared: the {side}'s data has no samples"
            )
    transforms = data if samples is not None else None
    return _judge(
        _Pairing(opened, read, samples, transforms),
        path,
        seed,
        lambda: check_data(sides, _inner(opened), seed=seed, path=path),
    )


def _take(
    opened: list[Source], read: list[Samples], given: Any, samples: Sequence[Any] | None,
    sides: Sequence[LiveSide], side: str, seed: int,
) -> PieceCheck | None:  # fmt: skip
    """Open and read one side's data; return the ERROR of what cannot be read."""
    _seed(sides, seed)
    try:
        opened.append(_open(given, samples, sides, side))
        read.append(_read(opened, read))
    except UsageError as error:
        return PieceCheck(outcome=Outcome.ERROR, reason=str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (user code)
        return failed_to_run(f"the {side}'s data", error)
    return None


def _open(given: Any, samples: Sequence[Any] | None, sides: Sequence[LiveSide], side: str) -> Source:
    if samples is None:
        return Source(given, sides, side)
    if not callable(given):
        raise UsageError(
            f"data: the {side}'s is a {type(given).__name__}\n  expected: with samples, a transform: a callable of one raw sample"
        )
    return transformed(given, samples, sides, side)


def _seed(sides: Sequence[Any], seed: int) -> None:
    for side in sides:
        side.seed(seed)


def _read(opened: Sequence[Source], read: Sequence[Samples]) -> Samples:
    """Read the source opened last: as far as the one before it, and a little on where that one ended."""
    if not read:
        return opened[0].read()
    return opened[1].read(len(read[0].samples) + (EXTRA if read[0].whole else 0))


def _same_numbers(opened: Sequence[Source], read: Sequence[Samples]) -> bool:
    """Tell whether the first samples will do: the whole was read, or it cannot be read elsewhere."""
    return read[0].whole or not all(one.is_dataset and one.dataset is one.opened for one in opened)


def _spread(opened: Sequence[Source], count: int) -> list[Samples]:
    """Read the first samples of large data sets, and others spread over them."""
    length = min(len(one.opened) for one in opened)
    half = min(count, length) // 2
    rest = np.unique(np.linspace(half, length - 1, max(1, min(count, length) - half)).astype(int))
    numbers = [*range(half), *map(int, rest)]
    return [one.read(len(numbers), numbers) for one in opened]


def _inner(opened: Sequence[Source]) -> tuple[Any, Any]:
    return opened[0].dataset, opened[1].dataset


class _Pairing:
    """What was read of both sides."""

    def __init__(
        self, opened: Sequence[Source], read: Sequence[Samples], raws: Sequence[Any] | None, transforms: Any
    ) -> None:
        self.opened, self.read, self.raws, self.transforms = opened, read, raws, transforms
        self.ours, self.theirs = read[0].samples, read[1].samples

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Samples of each side, None where it is not known."""
        return self.read[0].total, self.read[1].total

    def random(self, seed: int) -> list[bool]:
        """Tell of each side whether it gives something else when it is read once more, after another seed."""
        _seed(self.opened[0].tensors, seed + 1)
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


def _judge(pairing: _Pairing, path: str, seed: int, inside: Callable[[], PieceCheck]) -> PieceCheck:
    ours, theirs = pairing.ours, pairing.theirs
    numbers = {f"{path}/reference_samples": float(len(ours)), f"{path}/port_samples": float(len(theirs))}
    try:
        fields = pair_fields(ours[0], theirs[0])
    except ValueError as error:
        cause = Diagnosis(code="fields", port_path=path, message=str(error), evidence="the first sample of each side",
                          explained=None, fix="return the fields that the reference returns")  # fmt: skip
        return PieceCheck(outcome=Outcome.FAIL, reason=str(error), numbers=numbers, diagnoses=(cause,))
    off = [number for number, pair in enumerate(zip(ours, theirs, strict=False)) if differing(*pair, fields)]
    counts = pairing.counts
    if not off and (counts[0] == counts[1] or None in counts) and _as_many(pairing):
        return PieceCheck(outcome=Outcome.PASS, reason=_equal(pairing), numbers=numbers)
    random = pairing.random(seed)
    places = places_of(ours, theirs, fields)
    if any(random):
        found = _judge_random(pairing, random, places, path, inside)
        if found is not None:
            return found
    numbers[f"{path}/differing_samples"] = float(len(off))
    reason = _reason(pairing, off, fields)
    order = (
        explain_order(places, len(ours), batches=(pairing.read[0].batch, pairing.read[1].batch))
        if _complete(pairing)
        else None
    )
    if order is None and not off:
        counts = pairing.counts
        order = explain_counts(
            counts, (len(ours), len(theirs)), (pairing.read[0].batch, pairing.read[1].batch)
        )
    if order is not None:
        evidence = f"{sum(one is not None for one in places)} of the port's {len(theirs)} samples are among the reference's {len(ours)}"
        return PieceCheck(outcome=Outcome.FAIL, reason=f"{order.message}; {reason}", numbers=numbers,
                          diagnoses=(order.diagnosis("", evidence, path),))  # fmt: skip
    pair = Pair(ours=ours, theirs=theirs, off=off, fields=fields, raws=pairing.raws, transforms=pairing.transforms,
                datasets=_inner(pairing.opened), tensors=pairing.opened[0].tensors, path=path)  # fmt: skip
    causes = tuple(explain(pair))
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=causes)


def _as_many(pairing: _Pairing) -> bool:
    """Tell whether neither side goes on where the other ends."""
    ours, theirs = pairing.read
    if len(ours.samples) == len(theirs.samples):
        return True
    return not (ours.whole if len(theirs.samples) > len(ours.samples) else theirs.whole)


def _complete(pairing: _Pairing) -> bool:
    """Tell whether an order can be told: of all samples, or at least as many of both sides."""
    return (
        all(one.whole for one in pairing.read)
        or len(pairing.ours) == len(pairing.theirs)
        or pairing.read[0].whole
    )


def _judge_random(
    pairing: _Pairing,
    random: Sequence[bool],
    places: Sequence[int | None],
    path: str,
    inside: Callable[[], PieceCheck],
) -> PieceCheck | None:
    """Judge sources of which at least one gives something else at every read."""
    shuffled = None not in places and sorted(one for one in places if one is not None) == list(
        range(len(pairing.ours))
    )
    if all(random):
        if shuffled:
            return PieceCheck(
                outcome=Outcome.PASS,
                reason=f"the same {len(places)} samples, shuffled anew at every read on both sides",
            )
        loaders = all(one.dataset is not None and one.dataset is not one.opened for one in pairing.opened)
        if loaders:
            found = inside()
            return PieceCheck(outcome=found.outcome, reason=f"both loaders shuffle, so their data sets were compared: {found.reason}",
                              numbers=found.numbers, diagnoses=found.diagnoses)  # fmt: skip
        reason = (
            "both sides give something else at every read (shuffling, augmentation): compare them without"
        )
        return PieceCheck(outcome=Outcome.SKIP, reason=reason)
    which, other = ("port", "reference") if random[1] else ("reference", "port")
    what = "shuffles" if shuffled else "gives something else at every read (augmentation, shuffling)"
    fix = f"{'remove' if which == 'port' else 'add'} {'shuffle=True' if shuffled else 'the random transforms'} {'from' if which == 'port' else 'to'} the port"
    message = (
        f"order: only the {which} {what}, the {other} does not"
        if shuffled
        else f"values: only the {which} {what}, the {other} does not"
    )
    cause = Diagnosis(code="shuffle" if shuffled else "random", port_path=path, message=message, evidence="read twice",
                      explained=1.0 if shuffled else None, fix=fix)  # fmt: skip
    return PieceCheck(outcome=Outcome.FAIL, reason=message, diagnoses=(cause,))


def _equal(pairing: _Pairing) -> str:
    compared = min(len(pairing.ours), len(pairing.theirs))
    whole = all(one.whole for one in pairing.read)
    total = pairing.counts[0]
    of = "" if whole else f" of {total}" if total else ", the first"
    return f"{compared}{of} samples are equal{'; '.join(['', *_notes(pairing)])}"


def _notes(pairing: _Pairing) -> Iterator[str]:
    """Yield what differs and does not matter."""
    ours, theirs = pairing.ours[0], pairing.theirs[0]
    for name, other in pair_fields(ours, theirs).items():
        one, two = ours.fields[name], theirs.fields[other]
        if one.dtype != two.dtype:
            yield f"{name or 'their dtype'}: {one.dtype} expected, {two.dtype} actual"
    sizes = [one.batch for one in pairing.read]
    if None not in sizes and sizes[0] != sizes[1]:
        yield f"batches of {sizes[0]} expected, of {sizes[1]} actual"


def _reason(pairing: _Pairing, off: Sequence[int], fields: Any) -> str:
    ours, theirs = pairing.ours, pairing.theirs
    if not off:
        return f"the first {min(len(ours), len(theirs))} samples are equal, but one side has more"
    first = off[0]
    which = ", ".join(
        filter(None, (str(one) for one in sorted(differing(ours[first], theirs[first], fields))))
    )
    named = f" ({ours[first].names[0]})" if ours[first].names else ""
    return f"{len(off)} of {min(len(ours), len(theirs))} samples differ, first sample {ours[first].number}{named}{f' in {which}' if which else ''}"
