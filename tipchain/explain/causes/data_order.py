"""What makes the order, the labels, the boxes or the items of samples differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tipchain.core.language import listed
from tipchain.explain.causes.data_sources import DataCause, apart, certain, rounding
from tipchain.framework_types import Array
from tipchain.numbers.tolerance import SAME_ENLARGED

# What makes the order or the number of samples differ: reversed, shifted, sorted, shuffled, missing, repeated.


SHOWN_PLACES = 5
"""Places that a message shows."""


def explain_order(places: Sequence[int | None], count: int, *, batch: int | None = None) -> DataCause | None:
    """Return what makes the port's order of the reference's; None where the order is the same, or nothing known.

    Args:
        places: of each of the port's samples the number of the reference's sample that it is, None of one it has not.
        count: the reference's samples.
        batch: samples of the port's batches, where known.
    """
    known = [place for place in places if place is not None]
    foreign = len(places) - len(known)
    if not foreign and known == list(range(count)):
        return None
    seen = Counter(known)
    twice = sorted(place for place, times in seen.items() if times > 1)
    missing = [place for place in range(count) if place not in seen]
    if foreign:
        return None
    if twice:
        return _repeated(known, count, twice, missing)
    if missing:
        return _missing(known, count, missing, batch)
    fix = "read samples in the reference's order"
    if list(known) == list(range(count))[::-1]:
        how = "the whole set is in reverse order"
    elif all(number == (known[0] + place) % count for place, number in enumerate(known)):
        how = f"the port begins {known[0]} later and ends with what it left out"
    else:
        how = "the same samples in another order"
        fix = "read samples in the reference's order: shuffle=False, or the same sorted list of files"
    return certain("sample-order", f"order: {how}", fix)


def _missing(known: Sequence[int], count: int, missing: Sequence[int], batch: int | None) -> DataCause | None:
    said = f"{some(missing)} of the reference's {count} missing in the port"
    if list(known) != sorted(known):
        return certain(
            "missing-samples",
            f"order: {said}, and the order is another",
            "read every sample once, in the reference's order",
        )
    tail = list(missing) == list(range(count - len(missing), count))
    if tail and batch and len(known) % batch == 0 and len(missing) < batch:
        return certain(
            "drop-last",
            f"order: the port leaves out the smaller last batch: {said}",
            "pass drop_last=False to the port's DataLoader",
        )
    if tail:
        said = f"the last {len(missing)} of the reference's {count} samples are missing in the port: is the last batch dropped?"
        return certain("missing-samples", f"order: {said}", "read to the end: drop_last=False")
    if list(missing) == list(range(len(missing))):
        said = f"the port begins {len(missing)} later: {said}"
    return certain("missing-samples", f"order: {said}", "read every sample of the reference's list")


def _repeated(known: Sequence[int], count: int, twice: Sequence[int], missing: Sequence[int]) -> DataCause:
    extra = len(known) - count
    if (
        not missing
        and extra > 0
        and list(known[:count]) == list(range(count))
        and list(known[count:]) == [n % count for n in range(extra)]
    ):
        return certain(
            "repeated-samples",
            f"order: after the reference's {count} samples the port has the first {extra} again: does a sampler fill up the last batch?",
            "do not fill up the last batch (DistributedBatchSampler does) when evaluating",
        )
    lacks = f", and lacks {some(missing)}" if missing else ""
    return certain(
        "repeated-samples", f"order: the port has {some(twice)} more than once{lacks}", "read every sample once"
    )


def explain_counts(
    counts: tuple[int | None, int | None], read: tuple[int, int], batches: tuple[int | None, int | None]
) -> DataCause:
    """Return the cause of sources of which one goes on where the other ends, all before that being equal."""
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
            return certain(
                "drop-last",
                f"order: the {which} leaves out the smaller last batch: samples: {said}",
                f"pass drop_last={not port} to the port's DataLoader",
            )
    more_there = ours is not None and (theirs is None or theirs > ours)
    return certain(
        ("extra-samples" if more_there else "missing-samples"),
        f"order: samples: {said}",
        "read the reference's list of samples",
    )


def some(numbers: Sequence[int]) -> str:
    """Return sample numbers in words, the first few of many."""
    return f"sample{'s' if len(numbers) > 1 else ''} {listed(list(map(str, numbers)), SHOWN_PLACES)}"


# What makes the labels of two sides differ: shifted, numbered otherwise, one-hot, smoothed, out of step with the images.


SHOWN_LABELS = 4
"""Labels that a message shows."""
SMOOTH = SAME_ENLARGED
"""Difference of labels up to which they are the same: smoothed and mixed ones are results of divisions."""
FEWEST = 2
"""Labels of at least so many classes show how they are numbered."""


def explain_labels(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
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
    return _renumbered_classes(ours, theirs) or _out_of_step(ours, theirs)


def _one_hot(numbers: Sequence[Array], vectors: Sequence[Array], words: str) -> DataCause | None:
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
    return certain(
        "one-hot",
        f"label: {words} one-hot vectors of {count} classes{smooth}{shifted}, the other side's are class numbers",
        (
            "give the port's loss and metric class numbers, as the reference's get"
            if words.startswith("the port")
            else "make the port's labels one-hot, as the reference's are"
        ),
    )


def _renumbered_classes(ours: Array, theirs: Array) -> DataCause | None:
    """Recognize class numbers that are all shifted alike, or exchanged consistently."""
    pairs = sorted(set(zip(ours.tolist(), theirs.tolist(), strict=True)))
    mapping = dict(pairs)
    steps = {other - one for one, other in pairs}
    if len(steps) == 1:
        step = steps.pop()
        return certain(
            "label-shift",
            f"label: all class numbers are shifted by {step:+g}",
            f"{'subtract' if step > 0 else 'add'} {abs(step):g} {'from' if step > 0 else 'to'} the port's labels",
        )
    if len(mapping) < max(FEWEST, len(pairs)) or len(set(mapping.values())) < len(mapping):
        return None
    if len(mapping) == len(ours) and len(mapping) > FEWEST:
        return None  # every label comes once: any order would do
    moved = [f"{one:g} → {other:g}" for one, other in pairs if one != other]
    shown = f"{', '.join(moved[:SHOWN_LABELS])}{', …' if len(moved) > SHOWN_LABELS else ''}"
    fix = "number the classes as the reference does: from the same sorted list of names"
    return certain("class-order", f"label: classes are numbered otherwise throughout ({shown})", fix)


def _out_of_step(ours: Array, theirs: Array) -> DataCause | None:
    """Recognize labels that belong to other images: moved along, reversed, or shuffled."""
    if np.ptp(theirs) == 0 and np.ptp(ours) > 0:
        return DataCause(
            "label-constant",
            f"label: the port's is {theirs[0]:g} for every sample",
            "look where the port's labels come from",
        )
    size = len(ours)
    for step in (1, -1, 2, -2):
        if size > 2 * abs(step) + 1 and np.array_equal(
            np.roll(ours, step)[abs(step) : size - abs(step)], theirs[abs(step) : size - abs(step)]
        ):
            which = "before" if step > 0 else "after"
            return certain(
                "label-order",
                f"label: each image has the label of the image {abs(step)} {which} it",
                "keep images and labels in step: index both with the same number",
            )
    if size > FEWEST and np.array_equal(np.sort(ours), np.sort(theirs)):
        return certain(
            "label-order",
            "label: the same labels, but of other images: shuffled apart from the images",
            "shuffle images and labels together",
        )
    return None


# What makes two sides take other tokens of a text.
#
# Source: ``truncation_side``, ``padding_side``, ``max_length`` and ``add_special_tokens`` of the usual tokenizers.


ENDS = 2
"""Special tokens at an end that one side may lack."""


@dataclass(frozen=True, slots=True)
class _Padded:
    """Sequences without their padding: what it was filled with, on which side, None without any."""

    cores: list[Array]
    value: int | None
    side: str

    @property
    def longest(self) -> int:
        return max(map(len, self.cores))


def explain_tokens(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
    """Return what makes one side's sequences of whole numbers of the other's: tokens, masks; None where nothing known does."""
    if any(one.ndim != 1 or one.dtype.kind not in "iub" or len(one) < 2 for one in (*expected, *actual)):
        return None
    whole = [[np.asarray(one).astype(np.int64) for one in side] for side in (expected, actual)]
    ours, theirs = (_strip(side) for side in whole)
    if all(map(np.array_equal, ours.cores, theirs.cores)):
        lengths = [max(map(len, side)) for side in whole]
        if ours.value is not None and theirs.value is not None and ours.side != theirs.side:
            return certain(
                "padding-side",
                f"tokens: the port pads on the {theirs.side}, the reference on the {ours.side}",
                f"pass padding_side={ours.side!r}",
            )
        if ours.value is not None and theirs.value is not None and ours.value != theirs.value:
            return certain(
                "padding-value",
                f"tokens: the port pads with {theirs.value}, the reference with {ours.value}",
                f"pad with {ours.value}",
            )
        return certain(
            "max-length",
            f"tokens: the port's sequences are {lengths[1]} long with their padding, the reference's {lengths[0]}",
            "pad as the reference does: to the same length",
        )
    return (
        _ends(ours, theirs)
        or _truncated(ours, theirs)
        or _renumbered_tokens(*whole)
        or _renumbered_tokens(ours.cores, theirs.cores)
    )


def _strip(sequences: Sequence[Array]) -> _Padded:
    """Take the padding off: a number that is repeated at the same end of some sequences of equal lengths."""
    for side in ("right", "left"):
        for sequence in sequences:
            turned = sequence[::-1] if side == "right" else sequence
            value = int(turned[0])
            if len(turned) > 1 and turned[1] == value and (sequence != value).any():
                cores = []
                for one in sequences:
                    kept = np.flatnonzero(one != value)
                    end = (
                        (0, int(kept[-1]) + 1)
                        if side == "right" and len(kept)
                        else (int(kept[0]) if len(kept) else 0, len(one))
                    )
                    cores.append(one[end[0] : end[1]])
                return _Padded(cores, value, side)
    return _Padded(list(sequences), None, "")


def _ends(ours: _Padded, theirs: _Padded) -> DataCause | None:
    """Recognize special tokens at the ends that one side has and the other lacks."""
    for long, short, who, whom in (
        (ours, theirs, "port lacks", "reference has"),
        (theirs, ours, "port has", "reference lacks"),
    ):
        for first in range(ENDS + 1):
            for last in range(ENDS + 1):
                cut = [one[first : len(one) - last] for one in long.cores]
                # Where a text is cut, words stand in the place of tokens that are lacking.
                if not first + last or not all(
                    np.array_equal(one, other)
                    or (len(other) == short.longest and np.array_equal(one, other[: len(one)]))
                    for one, other in zip(cut, short.cores, strict=True)
                ):
                    continue
                heads = {tuple(one[:first].tolist()) for one in long.cores}
                tails = {tuple(one[len(one) - last :].tolist()) for one in long.cores}
                if len(heads) > 1 or len(tails) > 1:
                    continue  # words that are cut off, no special tokens
                where = [f"at the beginning {', '.join(map(str, next(iter(heads))))}"] if first else []
                where += [f"at the end {', '.join(map(str, next(iter(tails))))}"] if last else []
                fix = "add the special tokens as the reference does: add_special_tokens=" + str(long is ours)
                return certain(
                    "special-tokens", f"tokens: the {who} special tokens that the {whom}: {' and '.join(where)}", fix
                )
    return None


def _truncated(ours: _Padded, theirs: _Padded) -> DataCause | None:
    """Recognize long sequences of which one side keeps the beginning, the other the end."""
    most = ours.longest
    if most != theirs.longest:
        return None
    pairs = list(zip(ours.cores, theirs.cores, strict=True))
    off = [pair for pair in pairs if not np.array_equal(*pair)]
    if len(off) == len(pairs) or any(len(one) != most or len(other) != most for one, other in off):
        return None  # what is cut differs in long texts alone
    ways = {_overlaps(*pair) for pair in off} - {0}
    if len(ways) != 1:
        words, fix = ("the port keeps another part", "truncation_side='right' keeps the beginning, 'left' the end")
    else:
        kept, side = (("beginning", "end"), "right") if ways == {1} else (("end", "beginning"), "left")
        words, fix = (f"the port keeps the {kept[1]}, the reference the {kept[0]}", f"pass truncation_side={side!r}")
    return DataCause("truncation-side", f"tokens: of long texts {words}", fix)


def _overlaps(one: Array, other: Array) -> int:
    """Return 1 where the second goes on with what the first has in its later part, -1 the other way round, else 0."""
    for ends in range(ENDS + 1):
        a, b = one[ends : len(one) - ends], other[ends : len(other) - ends]
        for step in range(1, len(a) - 2):
            if np.array_equal(a[step:], b[: len(b) - step]):
                return 1
            if np.array_equal(b[step:], a[: len(a) - step]):
                return -1
    return 0


def _renumbered_tokens(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
    """Recognize tokens that have other numbers throughout, or of which a few have."""
    if any(len(one) != len(other) for one, other in zip(expected, actual, strict=True)):
        return None
    if all(np.array_equal(one, other[::-1]) for one, other in zip(expected, actual, strict=True)):
        return certain("token-order", "tokens: the port's are in reverse order", "do not reverse the tokens")
    pairs = sorted(
        {(int(a), int(b)) for one, other in zip(expected, actual, strict=True) for a, b in zip(one, other, strict=True)}
    )
    if len(pairs) != len({a for a, _ in pairs}) or len(pairs) != len({b for _, b in pairs}) or len(pairs) < 3:
        return None
    moved = [(a, b) for a, b in pairs if a != b]
    steps = {b - a for a, b in moved}
    shown = ", ".join(f"{a} → {b}" for a, b in moved[:4]) + (", …" if len(moved) > 4 else "")
    if len(steps) == 1 and len(moved) > len(pairs) // 2:
        return certain(
            "token-shift",
            f"tokens: the port's numbers are {next(iter(steps)):+d} ({shown})",
            "take the reference's vocabulary, with the same offset",
        )
    return certain(
        "vocabulary",
        f"tokens: the port numbers tokens otherwise ({shown})",
        "take the reference's vocabulary and special tokens",
    )


# What makes two sides have other boxes: another format, another order of coordinates, mirrored, in pixels or in shares.


CORNERS = "x1, y1, x2, y2"
FORMATS: Mapping[str, Callable[[Array], Array]] = {
    CORNERS: lambda box: box,
    "y1, x1, y2, x2": lambda box: box[..., [1, 0, 3, 2]],
    "x1, y1, width, height": lambda box: np.concatenate([box[..., :2], box[..., 2:] - box[..., :2]], -1),
    "centre x, centre y, width, height": lambda box: np.concatenate(
        [(box[..., :2] + box[..., 2:]) / 2, box[..., 2:] - box[..., :2]], -1
    ),
}
"""What is made of corners."""
CORNERS_OF: Mapping[str, Callable[[Array], Array]] = {
    CORNERS: lambda box: box,
    "y1, x1, y2, x2": lambda box: box[..., [1, 0, 3, 2]],
    "x1, y1, width, height": lambda box: np.concatenate([box[..., :2], box[..., :2] + box[..., 2:]], -1),
    "centre x, centre y, width, height": lambda box: np.concatenate(
        [box[..., :2] - box[..., 2:] / 2, box[..., :2] + box[..., 2:] / 2], -1
    ),
}
"""The corners of boxes of a format."""


def explain_boxes(expected: Sequence[Array], actual: Sequence[Array]) -> DataCause | None:
    """Return what makes the port's boxes of the reference's, ``[boxes, 4]`` of each sample; None where nothing known does."""
    both = list(zip(expected, actual, strict=True))
    if any(
        one.ndim != 2 or one.shape[1] != 4 or one.shape != other.shape or one.dtype.kind != "f" for one, other in both
    ):
        return None

    def are(make: Callable[[Array, Array], Array]) -> bool:
        found = [make(one, other) for one, other in both]
        return apart(found, actual) <= rounding(found, actual)

    for ours in FORMATS:
        for theirs in FORMATS:
            if ours != theirs and are(lambda one, _: FORMATS[theirs](CORNERS_OF[ours](one))):  # noqa: B023
                return certain(
                    "layout", f"boxes: the port's are {theirs}, the reference's {ours}", f"give boxes as {ours}"
                )
    for which, axis in (("left to right", 0), ("upside down", 1)):
        if are(lambda one, other: _mirrored(one, other, axis)):  # noqa: B023
            told = f"boxes: mirrored {which}: one side mirrors images without their boxes"
            return certain(
                "flip", told, "mirror an image's boxes with it: of corners x1, x2 become width - x2, width - x1"
            )
    if are(_in_another_unit):
        told = "boxes: each coordinate is a multiple of the reference's: in pixels of one size, in shares of it, or of another"
        return certain("scale", told, "divide and multiply boxes by the sizes that the reference takes")
    return None


def _mirrored(box: Array, other: Array, axis: int) -> Array:
    """Return corners mirrored along an axis, in as wide a picture as the first of the other ones tells."""
    made, low, high = box.copy(), axis, axis + 2
    width = other[:1, low] + box[:1, high]
    made[:, low], made[:, high] = width - box[:, high], width - box[:, low]
    return made


def _in_another_unit(box: Array, other: Array) -> Array:
    """Return boxes times a factor for each axis, which the largest of both tell."""
    size, other_size = (np.abs(one).reshape(-1, 2, 2).max(axis=(0, 1)) for one in (box, other))
    return np.asarray(box * np.tile(other_size / np.where(size > 0, size, 1.0), 2))
