"""What a metric says, whatever it is, and the outputs on which two metrics are called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tipchain.core.blame import placed
from tipchain.errors import UsageError
from tipchain.explain.locate.trace import is_array, put_back, take_out
from tipchain.framework_types import Array, Metric, Nested
from tipchain.frameworks.live_models import LiveSide

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


# What a metric says, whatever it is: a callable, or an object with Paddle's or torchmetrics' protocol.


Batch = tuple[Nested, Nested]
"""Outputs and labels: arrays, or arrays in tuples, lists and mappings."""
Values = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfTensors:
    """A metric that takes its framework's tensors, never arrays: an alignment case's."""

    metric: Metric


@dataclass(slots=True, kw_only=True)
class MetricMeter:
    """One side's metric.

    A callable is given arrays, and its framework's tensors if it does not take them; an object tensors first.

    Attributes:
        side: the framework.
        metric: a callable ``(outputs, labels)``; an object with ``compute``, ``update``, ``accumulate`` and ``reset``
            (`paddle.metric.Metric`), or with ``update``, ``compute`` and ``reset`` (torchmetrics); or a class of these.
        kind: what it was found to be: ``"callable"``, ``"paddle"``, ``"torchmetrics"``.
        orders: whether arrays or tensors are tried first.
    """

    side: LiveSide
    metric: Metric
    kind: str = ""
    orders: tuple[bool, ...] = ()

    @classmethod
    def of(cls, side: LiveSide, metric: Metric) -> MetricMeter:
        """Return the meter of a metric."""
        tensors = isinstance(metric, OfTensors)
        metric = metric.metric if isinstance(metric, OfTensors) else metric
        metric = metric() if isinstance(metric, type) else metric
        if all(hasattr(metric, name) for name in ("update", "accumulate")):
            kind = "paddle"
        elif all(hasattr(metric, name) for name in ("update", "compute")):
            kind = "torchmetrics"
        elif callable(metric):
            kind = "callable"
        else:
            raise UsageError(
                f"the {side.name} metric is a {type(metric).__name__}\n"
                "  expected: a callable `(outputs, labels)`, or an object with `update` and `compute` or `accumulate`"
            )
        orders = (True,) if tensors else (False, True) if kind == "callable" else (True, False)
        return cls(side=side, metric=metric, kind=kind, orders=orders)

    def values(self, batches: Sequence[Batch]) -> Values:
        """Return what a fresh copy of the metric says about all batches together.

        Raises:
            UsageError: it is no number, or no mapping or sequence of numbers.
            Exception: whatever the metric raises.
        """
        return self._attempt(lambda tensors: self._feed(self._fresh(), batches, tensors=tensors))

    def repeated(self, first: Sequence[Batch], between: Sequence[Batch]) -> tuple[Values, Values]:
        """Return what one copy says about ``first``, and about the same again after it has seen ``between``."""

        def run(tensors: bool) -> tuple[Values, Values]:
            metric = self._fresh()
            before = self._feed(metric, first, tensors=tensors)
            self._feed(metric, between, tensors=tensors)
            return before, self._feed(metric, first, tensors=tensors)

        return self._attempt(run)

    def _attempt(self, run: Callable[[bool], T]) -> T:
        """Run with tensors or arrays, whichever the metric takes; what it took once it is given ever after."""
        *others, last = self.orders
        for tensors in others:
            with suppress(Exception):  # what it raises last is told
                found = run(tensors)
                self.orders = (tensors,)
                return found
        found = run(last)
        self.orders = (last,)
        return found

    def _fresh(self) -> Metric:
        try:
            return copy.deepcopy(self.metric)
        except Exception:  # noqa: BLE001  (what cannot be copied is used as it is)
            return self.metric

    def _feed(self, metric: Metric, batches: Sequence[Batch], *, tensors: bool) -> Values:
        with self.side.recording(gradient=False):
            parts = [join(batches)] if self.kind == "callable" else batches
            given = [
                (self._convert(one, tensors=tensors), self._convert(other, tensors=tensors)) for one, other in parts
            ]
            if self.kind == "callable":
                return self._named(metric(*given[0]), None)
            if hasattr(metric, "reset"):
                metric.reset()
            for outputs, labels in given:
                self._update(metric, outputs, labels)
            if self.kind == "torchmetrics":
                return self._named(metric.compute(), None)
            return self._named(metric.accumulate(), metric.name() if callable(getattr(metric, "name", None)) else None)

    def _update(self, metric: Metric, outputs: Nested, labels: Nested) -> None:
        if self.kind == "torchmetrics" or not hasattr(metric, "compute"):
            metric.update(outputs, labels)
            return
        found = metric.compute(outputs, labels)
        # Paddle's own loop hands over what compute gives, as arrays.
        values = found if isinstance(found, tuple | list) else [found]
        metric.update(*(self.side.array(one) if self.side.is_tensor(one) else one for one in values))

    def _convert(self, value: object, *, tensors: bool) -> Nested:
        structure, arrays, _ = take_out(value, is_array)
        made = [self.side.tensor(one.copy(), gradient=False) if tensors else one.copy() for one in arrays]
        return put_back(structure, made)

    def _named(self, found: object, names: object) -> Values:
        if isinstance(found, Mapping):
            result: Values = {}
            for name, one in found.items():
                result |= {f"{name}{key}": value for key, value in self._numbers(one).items()}
        else:
            result = self._numbers(found)
            given = list(names) if isinstance(names, list | tuple) else [names] if isinstance(names, str) else []
            if len(given) == len(result):
                result = dict(zip(map(str, given), result.values(), strict=True))
        if not result:
            raise UsageError(f"{placed(self.metric)} gave {found!r:.80}\n  expected: a number, or numbers by name")
        return result

    def _numbers(self, found: object) -> Values:
        if isinstance(found, tuple | list):
            return {
                f"[{number}]{key}": value
                for number, one in enumerate(found)
                for key, value in self._numbers(one).items()
            }
        if found is None:
            return {}
        try:
            array = np.asarray(self.side.array(found) if self.side.is_tensor(found) else found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"{placed(self.metric)} gave {found!r:.80}\n  expected: a number, or numbers by name"
            ) from error
        if array.size == 1:
            return {"": float(array.reshape(()))}
        return {f"[{number}]": float(one) for number, one in enumerate(array.reshape(-1))}


def join(batches: Sequence[Batch]) -> Batch:
    """Return batches as one, joined along axis 0."""
    if len(batches) == 1:
        return batches[0]
    sides = []
    for number in (0, 1):
        taken = [take_out(one[number], is_array) for one in batches]
        joined = [np.concatenate(arrays) for arrays in zip(*(arrays for _, arrays, _ in taken), strict=True)]
        sides.append(put_back(taken[0][0], joined))
    return sides[0], sides[1]


# Outputs and labels on which two metrics are called: the models' own, and such as tell ways of counting apart.


CLASSES = 10
"""Of a classifier of which nothing is known."""
SIZES = ((7, 7, 4), (16, 5), (9, 2, 2))
"""Samples of the batches of random probes: the last is smaller."""
SQUARE = 64
"""Up to so many classes a batch of as many samples is tried too."""
CLASSIFIER, DENSE, BINARY, NUMBERS = "classes", "dense classes", "yes or no", "numbers"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Probe:
    """Outputs and labels, batch by batch.

    Attributes:
        name: what messages call it.
        batches: at least one.
        given: these are the models' own.
    """

    name: str
    batches: Sequence[Batch]
    given: bool = False


def given_probe(outputs: object, labels: object) -> Probe:
    """Return the models' own outputs; a single array is cut into two uneven batches."""
    whole = Probe(name="the models' outputs", batches=[(outputs, labels)], given=True)
    if not isinstance(outputs, np.ndarray) or not isinstance(labels, np.ndarray):
        return whole
    size = len(outputs) if outputs.ndim else 0
    if size < 3 or not labels.ndim or len(labels) != size:
        return whole
    cut = size - max(1, size // 3)
    return Probe(name=whole.name, batches=[(outputs[:cut], labels[:cut]), (outputs[cut:], labels[cut:])], given=True)


def kinds_of(outputs: object, labels: object) -> tuple[str, ...]:
    """Return what such outputs may be, the likeliest first; nothing where they are none of what is known."""
    if outputs is None or labels is None:
        return (CLASSIFIER, BINARY, NUMBERS)
    if not isinstance(outputs, np.ndarray) or not isinstance(labels, np.ndarray) or outputs.dtype.kind != "f":
        return ()
    if (
        outputs.ndim == 2
        and outputs.shape[1] > 1
        and labels.shape in ((len(outputs),), (len(outputs), 1))
        and labels.dtype.kind in "iu"
    ):
        return (CLASSIFIER,)
    if outputs.ndim > 2 and labels.dtype.kind in "iu" and labels.shape == (len(outputs), *outputs.shape[2:]):
        return (DENSE,)
    if outputs.size == labels.size:
        return (BINARY,) if labels.dtype.kind in "iub" or np.isin(labels, (0, 1)).all() else (NUMBERS,)
    return ()


def make_probes(kind: str, outputs: Array | None, labels: Array | None) -> Iterator[Probe]:
    """Yield synthetic outputs of a kind, alike in shapes and types to those given, if there are any."""
    random = np.random.default_rng(0)
    classes = outputs.shape[1] if outputs is not None and outputs.ndim > 1 else CLASSES
    column = labels is not None and labels.ndim > 1
    if kind == CLASSIFIER:
        made = make_probe(classes)
        yield Probe(name="outputs made to tell", batches=[_labelled(*one, column=column) for one in made.batches()])
        for number, sizes in enumerate(SIZES):
            yield Probe(
                name=f"random outputs {number}",
                batches=[_scores(random, size, classes, (), column=column) for size in sizes],
            )
        return
    shape = () if outputs is None else outputs.shape[1:]
    for number, sizes in enumerate(SIZES):
        if kind == DENSE:
            inner = tuple(min(one, 8) for one in shape[1:])
            batches = [_scores(random, size, classes, inner, column=False) for size in sizes]
        else:
            kept = tuple(min(one, 16) for one in shape)
            trail = kept if labels is None or (outputs is not None and labels.ndim == outputs.ndim) else ()
            batches = [_numbers(random, size, kept, trail, labels, binary=kind == BINARY) for size in sizes]
        yield Probe(name=f"random outputs {number}", batches=batches)


def square(outputs: Array | None, labels: Array | None) -> Probe | None:
    """Return a batch of as many samples as there are classes, in which axes can be mistaken; None where that is large."""
    classes = outputs.shape[1] if outputs is not None and outputs.ndim > 1 else CLASSES
    if classes > SQUARE or (outputs is not None and outputs.ndim != 2):
        return None
    column = labels is not None and labels.ndim > 1
    return Probe(
        name="as many samples as classes",
        batches=[_scores(np.random.default_rng(1), classes, classes, (), column=column)],
    )


def with_ignored(probe: Probe, label: int) -> Probe | None:
    """Return a probe of which some labels are ``label``, None where a batch would have no other."""
    batches = []
    for outputs, labels in probe.batches:
        changed = labels.copy()
        changed.reshape(-1)[:: max(3, changed.size // 2)] = label
        if (changed == label).all():
            return None
        batches.append((outputs, changed))
    return Probe(name=f"labels of {label}", batches=batches)


def _scores(random: np.random.Generator, size: int, classes: int, inner: tuple[int, ...], *, column: bool) -> Batch:
    """Return logits of which about half are right, and labels of which the first classes are more frequent."""
    share = 1 / (1 + np.arange(classes))
    labels = random.choice(classes, (size, *inner), p=share / share.sum())
    logits = random.standard_normal((size, classes, *inner)).astype(np.float32)
    right = np.moveaxis(np.eye(classes, dtype=np.float32)[labels], -1, 1)
    return _labelled(logits + 1.5 * right, labels, column=column)


def _numbers(
    random: np.random.Generator,
    size: int,
    shape: tuple[int, ...],
    trail: tuple[int, ...],
    labels: Array | None,
    *,
    binary: bool,
) -> Batch:
    values = random.standard_normal((size, *shape)).astype(np.float32)
    values += 0.25 * np.sign(values)  # none lies so near a threshold that rounding moves it
    if not binary:
        made = values.reshape(size, *trail) + random.standard_normal((size, *trail)).astype(np.float32)
        return values, made.astype(np.float32)
    noise = random.standard_normal((size, *trail))
    true = values.reshape(size, *trail) + noise > 0.4
    return values, true.astype(labels.dtype if labels is not None else np.int64)


def _labelled(outputs: Array, labels: Array, *, column: bool) -> Batch:
    return outputs, (labels[:, None] if column and labels.ndim == 1 else labels)
