"""Logits and labels on which a metric's code is tried alone, and what other ways of counting would give for them.

Every way of counting gives a number of its own here: the last batch is smaller and worse than the others, classes
have different numbers of samples, one has none, and the true class comes at every place of the ranking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tipchain.parity.pieces.metric_ways import accuracies

Array = Any
SIZES = (8, 8, 3)
"""Samples of the batches."""
RANKS = (0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 2, 5, 1, 3, 0, 5, 9)
"""How many classes have a larger logit than the true one, for each sample: every way of counting gives another number."""
CLASSES = (0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 2, 1, 2, 3, 3, 2, 1, 0, 3)
"""The classes of the probe's samples: not equally many of each, so that means over classes and over samples differ."""
MOST = 6
"""Top-k accuracies are told apart up to this k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Synthetic outputs of a classifier.

    Attributes:
        logits: float32 ``[n, c]``, no two of a sample alike.
        label: int64 ``[n]``.
        tied: float32 ``[n, c]``, every sample's logits rounded to a few values.
    """

    logits: Array
    label: Array
    tied: Array

    def batches(self, *, ties: bool = False) -> list[tuple[Array, Array]]:
        """Return logits and labels batch by batch."""
        ends = np.cumsum(SIZES)[:-1]
        logits = np.split(self.tied if ties else self.logits, ends)
        return list(zip(logits, np.split(self.label, ends), strict=True))


def make_probe(classes: int) -> Probe:
    """Return the probe for ``classes`` >= 2 classes; the last has no sample, unless there are only two."""
    label = np.array(CLASSES, dtype=np.int64) % (classes - 1 if classes > 2 else 2)
    ranks = np.minimum(RANKS, classes - 1)
    random = np.random.default_rng(0)
    values = np.linspace(2.0, -2.0, classes, dtype=np.float32)
    logits = np.empty((len(label), classes), dtype=np.float32)
    for row, true, rank in zip(logits, label, ranks, strict=True):
        others = random.permutation([number for number in range(classes) if number != true])
        row[np.insert(others, rank, true)] = values
    return Probe(logits=logits, label=label, tied=np.round(logits))


def other_ways(classes: int) -> dict[str, float]:
    """Return what each way of counting gives for the probe, in percent, by words for it."""
    batches = make_probe(classes).batches()
    values = {way.words: way.value(batches) for way in accuracies(classes, MOST)}
    return {words: 100 * share for words, share in values.items() if share is not None}


def recognize(value: float, classes: int) -> str:
    """Return words for the way of counting that gives ``value`` for the probe, or ""."""
    ways = other_ways(classes)
    for words, percent in ways.items():
        if abs(value - percent) < 1e-3:
            return words
    for words, percent in ways.items():
        if percent and abs(100 * value - percent) < 1e-3:
            return f"{words} as a fraction, not in percent"
    return ""
