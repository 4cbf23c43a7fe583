"""Ways of counting, each with what sets it apart from the others, and the probe on which a metric's code is tried alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Batches = Sequence[tuple[Array, Array]]
MOST = 10
"""Top-k accuracies are told apart up to this k."""
UNITS = ("", "percent", "error", "percent error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of counting.

    Attributes:
        metric: ``"accuracy"``, ``"precision"``, ``"recall"``, ``"f1"``, ``"iou"``, ``"exact match"``, ``"mse"``, ...
        k: of a top-k accuracy.
        average: over what values of classes are averaged: ``""`` (none are), ``"classes"`` (those there are), ``"all
            classes"``, ``"but the first"`` (that of the background), ``"micro"``, ``"weighted"``.
        over: ``"samples"``, or ``"batches"``: the mean of the values of each batch.
        threshold: above which an output of its own counts as true; None where the largest output counts.
        axis: of the outputs over which the largest is looked for.
        unit: ``""`` (a fraction), ``"percent"``, ``"error"`` (what is missing to 1), ``"percent error"``.
    """

    metric: str
    k: int = 1
    average: str = ""
    over: str = "samples"
    threshold: float | None = None
    axis: int = 1
    unit: str = ""

    @property
    def words(self) -> str:
        """What it is called."""
        name = {"accuracy": f"top-{self.k} accuracy", "f1": "F1", "iou": "IoU"}.get(self.metric, self.metric)
        if self.metric == "accuracy" and (self.threshold is not None or self.average or self.axis != 1):
            name = "accuracy"
        if self.metric == "accuracy" and self.average == "classes":
            said = "mean class accuracies" if self.over == "batches" else "the mean of the classes' accuracies"
        elif self.metric == "accuracy" and self.average:
            said = (
                "mean accuracies over all classes"
                if self.over == "batches"
                else "the mean over all classes' accuracies"
            )
        else:
            average = {
                "": "",
                "classes": "macro ",
                "all classes": "macro (over all classes) ",
                "but the first": "macro (without class 0) ",
            }.get(self.average, f"{self.average} ")
            said = f"{average}{name}" if self.over == "batches" else f"the {average}{name}"
        if self.threshold is not None:
            said += f" of outputs above {self.threshold:g}"
        if self.axis != 1:
            said += f" of the largest along axis {self.axis}"
        if self.over == "batches":
            said = f"the mean of the batches' {said if self.average and self.metric == 'accuracy' else said.replace('accuracy', 'accuracies', 1)}"
        return (
            said
            + {
                "": "",
                "percent": ", in percent",
                "error": ", taken from 1",
                "percent error": ", taken from 1, in percent",
            }[self.unit]
        )

    def value(self, batches: Batches) -> float | None:
        """Return what it gives, None where it cannot be counted so."""
        parts = batches if self.over == "batches" else [_join(batches)]
        found = [self._share(*one) for one in parts]
        if any(one is None for one in found):
            return None
        share = float(np.mean([one for one in found if one is not None]))
        return {"": share, "percent": 100 * share, "error": 1 - share, "percent error": 100 * (1 - share)}[self.unit]

    def _share(self, outputs: Array, labels: Array) -> float | None:
        if self.metric in _REGRESSION:
            return (
                _REGRESSION[self.metric](outputs.astype(np.float64), labels.astype(np.float64))
                if outputs.shape == labels.shape
                else None
            )
        if self.threshold is not None:
            if outputs.size != labels.size:
                return None
            return self._binary(outputs.reshape(labels.shape) > self.threshold, labels.astype(bool))
        if outputs.ndim < 2 or labels.dtype.kind not in "iu":
            return None
        flat = _flat(outputs, self.axis)
        if flat is None or len(flat) != labels.size:
            return None
        return self._classes(flat, labels.reshape(-1))

    def _binary(self, found: Array, true: Array) -> float:
        if self.metric == "exact match":
            return float((found == true).reshape(len(true), -1).all(axis=1).mean())
        if self.metric == "accuracy":
            return float((found == true).mean())
        hits = float((found & true).sum())
        return _rate(self.metric, hits, float(found.sum()), float(true.sum()))

    def _classes(self, outputs: Array, labels: Array) -> float | None:
        count = outputs.shape[1]
        if ((labels < 0) | (labels >= count)).any():
            return None
        if self.metric == "accuracy":
            ranks = (outputs > outputs[np.arange(len(labels)), labels][:, None]).sum(axis=1)
            hits = ranks < self.k
            return _over_classes(hits, labels, self.average, count) if self.average else float(hits.mean())
        return _confusion(self.metric, self.average, outputs.argmax(axis=1), labels, count)


def _join(batches: Batches) -> tuple[Array, Array]:
    return np.concatenate([one for one, _ in batches]), np.concatenate([one for _, one in batches])


def _flat(outputs: Array, axis: int) -> Array | None:
    """Return outputs as ``[n, classes]``, the classes along ``axis``."""
    if axis >= outputs.ndim:
        return None
    moved = np.moveaxis(outputs, axis, -1)
    flat: Array = moved.reshape(-1, moved.shape[-1])
    return flat


def _over_classes(hits: Array, labels: Array, average: str, count: int) -> float:
    each = [hits[labels == number].mean() for number in np.unique(labels)]
    return float(np.mean(each)) if average == "classes" else float(np.sum(each) / count)


def _rate(metric: str, hits: float, found: float, true: float) -> float:
    below = {"precision": found, "recall": true, "f1": (found + true) / 2, "iou": found + true - hits}[metric]
    return hits / below if below else 0.0


def _confusion(metric: str, average: str, found: Array, labels: Array, count: int) -> float | None:
    if not average:
        return (
            _rate(
                metric,
                float(((found == 1) & (labels == 1)).sum()),
                float((found == 1).sum()),
                float((labels == 1).sum()),
            )
            if count == 2
            else None
        )
    hits, each, true = (
        np.bincount(one, minlength=count).astype(float) for one in (found[found == labels], found, labels)
    )
    if average == "micro":
        return _rate(metric, hits.sum(), each.sum(), true.sum())
    rates = np.array([_rate(metric, *one) for one in zip(hits, each, true, strict=True)])
    if average == "weighted":
        return float((rates * true).sum() / true.sum())
    seen = (each + true) > 0
    if average == "all classes":
        return float(rates.mean())
    if average == "but the first":
        seen[0] = False
    return float(rates[seen].mean()) if seen.any() else 0.0


def _mean_square(out: Array, label: Array) -> float:
    return float(np.mean((out - label) ** 2))


_REGRESSION: dict[str, Callable[[Array, Array], float]] = {
    "mse": _mean_square,
    "rmse": lambda out, label: float(np.sqrt(_mean_square(out, label))),
    "mae": lambda out, label: float(np.mean(np.abs(out - label))),
    "r2": lambda out, label: 1 - _mean_square(out, label) / float(label.var()) if label.var() else float("nan"),
}


def accuracies(classes: int, most: int = MOST) -> Iterator[Way]:
    """Yield the accuracies of a classifier, as fractions."""
    for k in range(1, min(most, classes) + 1):
        for over in ("samples", "batches"):
            yield Way(metric="accuracy", k=k, over=over)
    yield Way(metric="accuracy", average="classes")
    yield Way(metric="accuracy", average="all classes")
    yield Way(metric="accuracy", average="classes", over="batches")


def ways(classes: int) -> Iterator[Way]:
    """Yield every way of counting, as fractions: of so many classes, of thresholds, of numbers."""
    yield from accuracies(classes)
    yield Way(metric="accuracy", average="all classes", over="batches")
    yield Way(metric="accuracy", axis=0)
    yield from (Way(metric="accuracy", axis=axis) for axis in (2, 3))
    for metric in ("f1", "precision", "recall", "iou"):
        for average in ("classes", "all classes", "but the first", "micro", "weighted", ""):
            for over in ("samples", "batches"):
                yield Way(metric=metric, average=average, over=over)
    for metric in ("accuracy", "f1", "precision", "recall", "iou", "exact match"):
        for threshold in (0.0, 0.5):
            for over in ("samples", "batches"):
                yield Way(metric=metric, threshold=threshold, over=over)
    for metric in _REGRESSION:
        for over in ("samples", "batches"):
            yield Way(metric=metric, over=over)


def differences(one: Way, other: Way) -> list[str]:
    """Return the names of what sets two ways apart, the most telling first."""
    return [field.name for field in fields(Way) if getattr(one, field.name) != getattr(other, field.name)]


# Logits and labels on which a metric's code is tried alone, and what other ways of counting would give for them.
#
# Every way of counting gives a number of its own here: the last batch is smaller and worse than the others, classes
# have different numbers of samples, one has none, and the true class comes at every place of the ranking.


BATCH_SIZES = (8, 8, 3)
"""Samples of the batches."""
RANKS = (0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 2, 5, 1, 3, 0, 5, 9)
"""How many classes have a larger logit than the true one, for each sample: every way of counting gives another number."""
TRUE_CLASSES = (0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 2, 1, 2, 3, 3, 2, 1, 0, 3)
"""The classes of the probe's samples: not equally many of each, so that means over classes and over samples differ."""
MOST_K = 6
"""Top-k accuracies are told apart up to this k."""
SAME_PERCENT = 1e-3
"""Percent between two numbers of one way of counting. Other ways are 100/19 percent of a sample apart; a metric may round to three decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierProbe:
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
        ends = np.cumsum(BATCH_SIZES)[:-1]
        logits = np.split(self.tied if ties else self.logits, ends)
        return list(zip(logits, np.split(self.label, ends), strict=True))


def make_probe(classes: int) -> ClassifierProbe:
    """Return the probe for ``classes`` >= 2 classes; the last has no sample, unless there are only two."""
    label = np.array(TRUE_CLASSES, dtype=np.int64) % (classes - 1 if classes > 2 else 2)
    ranks = np.minimum(RANKS, classes - 1)
    random = np.random.default_rng(0)
    values = np.linspace(2.0, -2.0, classes, dtype=np.float32)
    logits = np.empty((len(label), classes), dtype=np.float32)
    for row, true, rank in zip(logits, label, ranks, strict=True):
        others = random.permutation([number for number in range(classes) if number != true])
        row[np.insert(others, rank, true)] = values
    return ClassifierProbe(logits=logits, label=label, tied=np.round(logits))


def other_ways(classes: int) -> dict[str, float]:
    """Return what each way of counting gives for the probe, in percent, by words for it."""
    batches = make_probe(classes).batches()
    values = {way.words: way.value(batches) for way in accuracies(classes, MOST_K)}
    return {words: 100 * share for words, share in values.items() if share is not None}


def recognize(value: float, classes: int) -> str:
    """Return words for the way of counting that gives ``value`` for the probe, or ""."""
    ways = other_ways(classes)
    for words, percent in ways.items():
        if abs(value - percent) < SAME_PERCENT:
            return words
    for words, percent in ways.items():
        if percent and abs(100 * value - percent) < SAME_PERCENT:
            return f"{words} as a fraction, not in percent"
    return ""
