"""What makes the order or the number of samples differ: reversed, shifted, sorted, shuffled, missing, repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tipchain.parity.pieces.data_arrays import Cause

SHOWN = 5
"""Places that a message shows."""


def explain_order(places: Sequence[int | None], count: int, *, batches: tuple[int | None, int | None] = (None, None)) -> Cause | None:  # fmt: skip
    """Return what makes the port's order of the reference's; None where the order is the same, or nothing known.

    Args:
        places: of each of the port's samples the number of the reference's sample that it is, None of one it has not.
        count: the reference's samples.
        batches: samples of the reference's and of the port's batches, where known.
    """
    known = [place for place in places if place is not None]
    foreign = len(places) - len(known)
    if not foreign and known == list(range(count)):
        return None
    seen = Counter(known)
    twice = sorted(place for place, times in seen.items() if times > 1)
    missing = [place for place in range(count) if place not in seen]
    if foreign:
        return _longer(places, known, count, foreign, batches[0]) if not twice and not missing else None
    if twice:
        return _repeated(known, count, twice, missing)
    if missing:
        return _missing(known, count, missing, batches[1])
    return _permuted(known, count)


def _permuted(known: Sequence[int], count: int) -> Cause:
    as_text = sorted(range(count), key=str)
    inverse = [0] * count
    for place, number in enumerate(known):
        inverse[number] = place
    fix = "read samples in the reference's order"
    if list(known) == list(range(count))[::-1]:
        how = "the whole set is in reverse order"
    elif count > 10 and list(known) == as_text:
        how, fix = (
            "the port has them sorted as text (10 before 2)",
            "sort file names by their numbers, as the reference does",
        )
    elif count > 10 and inverse == as_text:
        how, fix = (
            "the reference has them sorted as text (10 before 2)",
            "sort file names as the reference does, as text",
        )
    elif all(number == (known[0] + place) % count for place, number in enumerate(known)):
        how = f"the port begins {known[0]} later and ends with what it left out"
    else:
        how = "the same samples in another order"
        fix = "read samples in the reference's order: shuffle=False, or the same sorted list of files"
    return Cause(code="sample-order", message=f"order: {how}", fix=fix, explained=1.0)


def _missing(known: Sequence[int], count: int, missing: Sequence[int], batch: int | None) -> Cause | None:
    said = f"{some(missing)} of the reference's {count} missing in the port"
    if list(known) != sorted(known):
        return Cause(code="missing-samples", message=f"order: {said}, and the order is another",
                     fix="read every sample once, in the reference's order", explained=1.0)  # fmt: skip
    tail = list(missing) == list(range(count - len(missing), count))
    if tail and batch and len(known) % batch == 0 and len(missing) < batch:
        return Cause(code="drop-last", message=f"order: the port leaves out the smaller last batch: {said}",
                     fix="pass drop_last=False to the port's DataLoader", explained=1.0)  # fmt: skip
    if tail:
        said = f"the last {len(missing)} of the reference's {count} samples are missing in the port: is the last batch dropped?"
        return Cause(
            code="missing-samples",
            message=f"order: {said}",
            fix="read to the end: drop_last=False",
            explained=1.0,
        )
    if list(missing) == list(range(len(missing))):
        said = f"the port begins {len(missing)} later: {said}"
    return Cause(code="missing-samples", message=f"order: {said}", fix="read every sample of the reference's list", explained=1.0)  # fmt: skip


def _repeated(known: Sequence[int], count: int, twice: Sequence[int], missing: Sequence[int]) -> Cause:
    extra = len(known) - count
    if not missing and extra > 0 and list(known[:count]) == list(range(count)) and list(known[count:]) == [n % count for n in range(extra)]:  # fmt: skip
        return Cause(
            code="repeated-samples", message=f"order: after the reference's {count} samples the port has the first {extra} again: does a sampler fill up the last batch?",
            fix="do not fill up the last batch (DistributedBatchSampler does) when evaluating", explained=1.0,
        )  # fmt: skip
    lacks = f", and lacks {some(missing)}" if missing else ""
    return Cause(code="repeated-samples", message=f"order: the port has {some(twice)} more than once{lacks}",
                 fix="read every sample once", explained=1.0)  # fmt: skip


def _longer(
    places: Sequence[int | None], known: Sequence[int], count: int, foreign: int, batch: int | None
) -> Cause | None:
    """Recognize a port that goes on where the reference ends."""
    if list(known) != list(range(count)):
        return None
    if all(place is None for place in places[count:]):
        if batch and count % batch == 0 and foreign < batch:
            return Cause(code="drop-last", message=f"order: the port keeps a smaller last batch of {foreign} that the reference leaves out",
                         fix="pass drop_last=True to the port's DataLoader", explained=1.0)  # fmt: skip
        said = f"after the reference's {count} samples the port has {foreign} more"
    elif all(place is None for place in places[:foreign]):
        said = f"the port begins {foreign} earlier"
    else:
        said = f"the port has {foreign} samples that the reference has not"
    return Cause(code="extra-samples", message=f"order: {said}", fix="read the reference's list of samples", explained=1.0)  # fmt: skip


def explain_counts(
    counts: tuple[int | None, int | None], read: tuple[int, int], batches: tuple[int | None, int | None]
) -> Cause:
    """Return the cause of sources of which one goes on where the other ends, all before that being equal.

    Args:
        counts: samples of the reference and of the port, None where it is not known.
        read: samples that were read.
        batches: samples of a batch, where known.
    """
    ours, theirs = counts
    said = ", ".join(
        f"{known or f'more than {seen}'} {word}"
        for known, seen, word in zip(counts, read, ("expected", "actual"), strict=True)
    )
    if ours is not None and theirs is not None:
        port = theirs < ours
        less, more, batch = (theirs, ours, batches[1]) if port else (ours, theirs, batches[0])
        if batch and less == more // batch * batch:
            which = "port" if port else "reference"
            return Cause(code="drop-last", message=f"order: the {which} leaves out the smaller last batch: samples: {said}",
                         fix=f"pass drop_last={not port} to the port's DataLoader", explained=1.0)  # fmt: skip
    more_there = ours is not None and (theirs is None or theirs > ours)
    return Cause(code="extra-samples" if more_there else "missing-samples", message=f"order: samples: {said}",
                 fix="read the reference's list of samples", explained=1.0)  # fmt: skip


def some(numbers: Sequence[int]) -> str:
    """Return sample numbers in words, the first few of many."""
    shown = ", ".join(str(number) for number in numbers[:SHOWN])
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"sample{'s' if len(numbers) > 1 else ''} {shown}{more}"
