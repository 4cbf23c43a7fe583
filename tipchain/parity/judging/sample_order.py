"""Judge the order in which loaders give samples. Generators differ, so properties are compared, not numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tipchain.outcome import Outcome
from tipchain.parity.compare import Array
from tipchain.parity.judge import Verdict
from tipchain.parity.judging.base import details
from tipchain.parity.record import Record
from tipchain.parity.two_sample import compare_distribution

IN_ORDER, ANEW, ONCE = (
    "in order",
    "shuffled anew in every epoch",
    "in one and the same shuffled order in every epoch",
)
CHANCE = 1e-3
"""Two shuffled epochs of so few samples that they agree more often than this tell nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Orders:
    """One side's epochs.

    Attributes:
        epochs: sample numbers of each.
        sizes: batch sizes of each.
        repeat: epoch 0 again after the same seed.
        length: samples in the data set.
    """

    epochs: Sequence[Array]
    sizes: Sequence[Array]
    repeat: Array
    length: int

    @classmethod
    def of(cls, record: Record) -> _Orders:
        count = sum(f"order_{key[6:]}" in record.arrays for key in record.arrays if key.startswith("sizes_"))
        epochs = [np.asarray(record.arrays[f"order_{epoch}"]) for epoch in range(count)]
        sizes = [np.asarray(record.arrays[f"sizes_{epoch}"]) for epoch in range(count)]
        length = int(np.asarray(record.arrays["length"])[0])
        repeat = np.asarray(record.arrays.get("repeat", np.array([], dtype=np.int64)))
        return cls(epochs=epochs, sizes=sizes, repeat=repeat, length=length)

    @property
    def manner(self) -> str:
        """How the order comes about."""
        if all(np.array_equal(epoch, np.sort(epoch)) for epoch in self.epochs):
            return IN_ORDER
        return ONCE if len({tuple(epoch.tolist()) for epoch in self.epochs}) < len(self.epochs) else ANEW

    @property
    def repeated(self) -> bool:
        """Whether some epoch has a sample twice."""
        return any(len(np.unique(epoch)) < len(epoch) for epoch in self.epochs)

    def faults(self) -> Iterator[str]:
        """Yield which samples each epoch has twice, and which it misses beyond what its batches leave out."""
        for number, epoch in enumerate(self.epochs):
            counts = np.bincount(epoch, minlength=self.length)
            twice, missing = np.flatnonzero(counts > 1), np.flatnonzero(counts == 0)
            if twice.size:
                yield f"epoch {number} has {_some(twice)} more than once and lacks {_some(missing) if missing.size else 'none'}"


def _some(numbers: Array) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    more = f" and {numbers.size - 5} more" if numbers.size > 5 else ""
    return f"sample{'s' if numbers.size > 1 else ''} {shown}{more}"


def judge_orders(stage: str, reference: Record, port: Record) -> Iterator[Verdict]:
    """Yield verdicts on batches, permutations, shuffling and repetition."""
    sides = _Orders.of(reference), _Orders.of(port)
    facts = details(reference)
    judged = {
        "batches": _judge_batches(*sides, facts.get("drop_last")),
        "permutation": _judge_permutation(*sides),
        "shuffle": _judge_manner(*sides, facts.get("shuffle")),
        "repeat": _judge_repeat(*sides),
    }
    for name, (outcome, reason) in judged.items():
        yield Verdict(outcome=outcome, subject=f"{stage}/{name}", reason=reason)


def _judge_batches(expected: _Orders, actual: _Orders, drop_last: Any) -> tuple[Outcome, str]:
    if not all(sizes.size for one in (expected, actual) for sizes in one.sizes):
        sides = [
            name
            for name, one in (("reference", expected), ("port", actual))
            if not all(s.size for s in one.sizes)
        ]
        return Outcome.FAIL, f"the loader of the {' and the '.join(sides)} gave no batch"
    for number, (left, right) in enumerate(zip(expected.sizes, actual.sizes, strict=False)):
        if not np.array_equal(left, right):
            reason = f"epoch {number}: expected {_batches(left)}, actual {_batches(right)}"
            return Outcome.FAIL, reason + _cause(expected.length, left, right)
    sizes = expected.sizes[0]
    dropped, whole = expected.length > int(sizes.sum()), int(sizes.max())
    uneven = bool(expected.length % whole)
    if drop_last is not None and uneven and dropped is not bool(drop_last):
        which = "leave out" if dropped else "keep"
        return (
            Outcome.FAIL,
            f"both sides {which} the smaller last batch; train_data.drop_last is {str(drop_last).lower()}",
        )
    return Outcome.PASS, f"{_batches(sizes)}, in {len(expected.sizes)} epochs"


def _batches(sizes: Array) -> str:
    return f"{sizes.size} batches of {int(sizes.max())}, the last of {int(sizes[-1])}"


def _cause(length: int, left: Array, right: Array) -> str:
    """Return a likely cause of other batches, to be put behind the fact."""
    whole = int(left.max())
    rest = length % whole
    for shorter, longer, words in (
        (left, right, "the port keeps a smaller last batch that the reference leaves out"),
        (right, left, "the port leaves out a smaller last batch that the reference keeps"),
    ):
        if rest and int(longer[-1]) == rest and np.array_equal(shorter, longer[:-1]):
            return f": {words} (drop_last)"
    return ""


def _judge_permutation(expected: _Orders, actual: _Orders) -> tuple[Outcome, str]:
    if expected.repeated and actual.repeated:
        left, right = (np.concatenate(one.epochs).astype(np.float64) for one in (expected, actual))
        p = compare_distribution(left, right)[1]
        if p <= CHANCE:
            return Outcome.FAIL, f"both sides draw samples with replacement, but not equally often: p {p:.1g}"
        return Outcome.PASS, "both sides draw samples with replacement, equally often as far as can be seen"
    wrong = list(actual.faults())
    if wrong:
        return Outcome.FAIL, f"expected every sample at most once in an epoch, actual: {'; '.join(wrong)}"
    if expected.repeated:
        return (
            Outcome.FAIL,
            f"expected samples drawn with replacement ({next(expected.faults())}), actual each at most once",
        )
    seen = [sorted({len(epoch) for epoch in one.epochs}) for one in (expected, actual)]
    if seen[0] != seen[1]:
        shown = [" or ".join(map(str, one)) for one in seen]
        return (
            Outcome.FAIL,
            f"samples in an epoch: expected {shown[0]} of {expected.length}, actual {shown[1]}",
        )
    return Outcome.PASS, f"each epoch has {seen[0][0]} of {expected.length} samples, none twice"


def _judge_manner(expected: _Orders, actual: _Orders, shuffle: Any) -> tuple[Outcome, str]:
    manners = expected.manner, actual.manner
    shuffled = [manner != IN_ORDER for manner in manners]
    few = math.lgamma(min(map(len, expected.epochs)) + 1) < -math.log(CHANCE)
    if few and manners != (IN_ORDER, IN_ORDER):
        return (
            Outcome.SKIP,
            f"{len(expected.epochs[0])} samples are too few to tell whether they are shuffled; 7 would do",
        )
    if manners[0] != manners[1]:
        return Outcome.FAIL, f"expected {manners[0]}, actual {manners[1]}"
    if shuffle is not None and shuffled[0] is not bool(shuffle):
        return (
            Outcome.FAIL,
            f"both sides give samples {manners[0]}; train_data.shuffle is {str(shuffle).lower()}",
        )
    if not shuffled[0]:
        for number, (left, right) in enumerate(zip(expected.epochs, actual.epochs, strict=False)):
            if not np.array_equal(left, right):
                size = min(left.size, right.size)
                first = int(np.argmax(np.append(left[:size] != right[:size], [True])))
                shown = [str(one[first]) if first < one.size else "nothing" for one in (left, right)]
                return (
                    Outcome.FAIL,
                    f"epoch {number}, place {first}: expected sample {shown[0]}, actual {shown[1]}",
                )
    return Outcome.PASS, f"both sides give samples {manners[0]}"


def _judge_repeat(expected: _Orders, actual: _Orders) -> tuple[Outcome, str]:
    repeats = [np.array_equal(one.epochs[0], one.repeat) for one in (expected, actual)]
    words = ["the same order" if one else "another order" for one in repeats]
    if repeats[0] != repeats[1]:
        return Outcome.FAIL, f"epoch 0 again after the same seed: expected {words[0]}, actual {words[1]}"
    return Outcome.PASS, f"epoch 0 again after the same seed: {words[0]} on both sides"
