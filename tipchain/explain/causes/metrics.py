"""Two metrics, called with equal outputs and labels; and where their code parts."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from tipchain.core.blame import one_line, placed
from tipchain.errors import Outcome, TipchainError, UsageError
from tipchain.explain.causes.code import CodePair, leaves, pair_names, recorded
from tipchain.explain.causes.statements import CodeRun, Edit
from tipchain.explain.findings import SIDE_NAMES, PieceCheck, failed_to_run, of_piece, raised_at
from tipchain.explain.locate.trace import is_array, put_back, take_out
from tipchain.framework_types import Array, Metric, Nested
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.numbers.tolerance import SAME_SINGLE

METRIC = "metric"

# Logits and labels on which every way of counting gives a number of its own: the last batch is smaller and worse than the
# others, classes have different numbers of samples, one has none, and the true class comes at every place of the ranking.


BATCH_SIZES = (8, 8, 3)
"""Samples of the batches."""
RANKS = (0, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 2, 5, 1, 3, 0, 5, 9)
"""How many classes have a larger logit than the true one, for each sample: every way of counting gives another number."""
TRUE_CLASSES = (0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 2, 1, 2, 3, 3, 2, 1, 0, 3)
"""The classes of the probe's samples: not equally many of each, so that means over classes and over samples differ."""


def make_probe(classes: int) -> list[tuple[Array, Array]]:
    """Return synthetic outputs of a classifier, batch by batch: logits, float32 ``[n, c]``, and labels, int64 ``[n]``.

    No two logits of a sample are alike. The last of the ``classes`` >= 2 has no sample, unless there are only two.
    """
    label = np.array(TRUE_CLASSES, dtype=np.int64) % (classes - 1 if classes > 2 else 2)
    ranks = np.minimum(RANKS, classes - 1)
    random = np.random.default_rng(0)
    values = np.linspace(2.0, -2.0, classes, dtype=np.float32)
    logits = np.empty((len(label), classes), dtype=np.float32)
    for row, true, rank in zip(logits, label, ranks, strict=True):
        others = random.permutation([number for number in range(classes) if number != true])
        row[np.insert(others, rank, true)] = values
    ends = np.cumsum(BATCH_SIZES)[:-1]
    return list(zip(np.split(logits, ends), np.split(label, ends), strict=True))


# What a metric says, whatever it is: a callable, or an object with Paddle's or torchmetrics' protocol.


Batch = tuple[Nested, Nested]
"""Outputs and labels: arrays, or arrays in tuples, lists and mappings."""
Values = dict[str, Array]


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
        return cls(side=side, metric=metric, kind=kind, orders=orders).fresh()

    def values(self, batches: Sequence[Batch]) -> Values:
        """Return one metric copy's values of all batches together, as tensors or arrays.

        The same copy is used each time: what it does not reset shows in the next values.

        Raises:
            UsageError: it is no number, or no mapping or sequence of numbers.
            Exception: whatever the metric raises.
        """
        *others, last = self.orders
        for tensors in others:
            with suppress(Exception):  # what it raises last is told
                found = self._feed(batches, tensors=tensors)
                self.orders = (tensors,)
                return found
        found = self._feed(batches, tensors=last)
        self.orders = (last,)
        return found

    def fresh(self) -> MetricMeter:
        """Return a meter with a copy of its own."""
        with suppress(Exception):  # what cannot be copied is used as it is
            return replace(self, metric=copy.deepcopy(self.metric))
        return self

    def _feed(self, batches: Sequence[Batch], *, tensors: bool) -> Values:
        metric = self.metric
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
                if self.kind == "torchmetrics" or not hasattr(metric, "compute"):
                    metric.update(outputs, labels)
                    continue
                made = metric.compute(outputs, labels)
                # Paddle's own loop hands over what compute gives, as arrays.
                parts = made if isinstance(made, tuple | list) else [made]
                metric.update(*(self.side.array(one) if self.side.is_tensor(one) else one for one in parts))
            if self.kind == "torchmetrics":
                return self._named(metric.compute(), None)
            return self._named(metric.accumulate(), metric.name() if callable(getattr(metric, "name", None)) else None)

    def _convert(self, value: object, *, tensors: bool) -> Nested:
        structure, arrays, _ = take_out(value, is_array)
        made = [self.side.tensor(one.copy(), gradient=False) if tensors else one.copy() for one in arrays]
        return put_back(structure, made)

    def _named(self, found: object, names: object) -> Values:
        result: Values = {}
        for name, one in leaves(found, [self.side]):
            try:
                array = np.asarray(one).astype(np.float64, casting="same_kind" if np.iscomplexobj(one) else "unsafe")
            except (TypeError, ValueError):
                result.clear()
                break
            rows = {name: array} if array.size == 1 else {f"{name}.{n}": one for n, one in enumerate(array.flat)}
            result |= {row.lstrip("."): np.asarray(value).reshape(()) for row, value in rows.items()}
        if not result:
            raise UsageError(f"{placed(self.metric)} gave {found!r:.80}\n  expected: a number, or numbers by name")
        given = list(names) if isinstance(names, list | tuple) else [names] if isinstance(names, str) else []
        named = not isinstance(found, Mapping) and len(given) == len(result)
        return dict(zip(map(str, given), result.values(), strict=True)) if named else result


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
MIXED = 0.4
"""Share of the samples that have the outputs of another."""
IGNORED = (255, -100)
"""Labels that losses and metrics usually pass over; of at least `FEW` classes one is a class, or stands for one from the end."""
FEW = 100
"""Classes below which no class is one of `IGNORED`."""


GIVEN = "the models' outputs"


class Probe(NamedTuple):
    """Outputs and labels, batch by batch, and what messages call them."""

    name: str
    batches: Sequence[Batch]


def probes_of(outputs: Nested, labels: Nested) -> Iterator[Probe]:
    """Yield the models' own outputs, in two uneven batches where they can be cut, and others that are like them."""
    batches = [(outputs, labels)]
    if not (is_array(outputs) and is_array(labels) and outputs.ndim and labels.shape[:1] == outputs.shape[:1]):
        yield Probe(GIVEN, batches)
    else:
        cut = len(outputs) - max(1, len(outputs) // 3)
        halves = [(outputs[:cut], labels[:cut]), (outputs[cut:], labels[cut:])]
        yield Probe(GIVEN, halves if len(outputs) > 2 else batches)
        classifies = outputs.ndim == 2 and outputs.shape[1] > 1 and labels.size == len(outputs)
        if classifies and outputs.dtype.kind == "f" and labels.dtype.kind in "iu":
            column = [-1, *labels.shape[1:]]
            made = [(logits, label.reshape(column)) for logits, label in make_probe(outputs.shape[1])]
            yield Probe("outputs made to tell", made)
    yield from _alike((outputs, labels))
    yield from _ignoring(batches)


def _alike(batch: Batch) -> Iterator[Probe]:
    """Yield random choices of samples, some with others' outputs, and noise in the models' outputs."""
    (structure, outputs, _), (label_structure, labels, _) = (take_out(one, is_array) for one in batch)
    count = next((len(one) for one in outputs if one.ndim), 0)
    random = np.random.default_rng(0)
    for number, sizes in enumerate(SIZES if count else ()):
        batches: list[Batch] = []
        for size in sizes:
            rows = random.integers(0, count, size)
            others = np.where(random.random(size) < MIXED, random.integers(0, count, size), rows)
            made, told = (
                [one[chosen] if one.shape[:1] == (count,) else one for one in arrays]
                for arrays, chosen in ((outputs, others), (labels, rows))
            )
            for at, one in enumerate(made):
                if one.dtype.kind == "f":
                    made[at] = (one + (one.std() or 1.0) * random.standard_normal(one.shape)).astype(one.dtype)
            batches.append((put_back(structure, made), put_back(label_structure, told)))
        yield Probe(f"random outputs {number}", batches)


def _ignoring(batches: Sequence[Batch]) -> Iterator[Probe]:
    """Yield the batches with some of the labels replaced by one that is usually passed over."""
    for outputs, labels in batches:
        if not (is_array(outputs) and is_array(labels) and labels.dtype.kind in "iu" and labels.size > 1):
            return
        if outputs.ndim > 1 and outputs.shape[1] >= FEW:
            return
    for ignored in IGNORED:
        changed: list[Batch] = []
        for outputs, labels in batches:
            some = np.where(np.arange(labels.size).reshape(labels.shape) % 3, labels, ignored).astype(labels.dtype)
            changed.append((outputs, some))
        yield Probe(f"labels of {ignored}", changed)


def _unknown() -> Iterator[Sequence[Probe]]:
    """Yield outputs of a classifier, then of a yes or no, then numbers, where the models' own are not known."""
    made = make_probe(CLASSES)
    yield [Probe("outputs made to tell", made), *_alike(join(made)), *_ignoring(made)]
    numbers = np.random.default_rng(0).standard_normal((2, 19)).astype(np.float32)
    yield list(_alike((numbers[0], (numbers.sum(0) > 0).astype(np.int64))))
    yield list(_alike((numbers[0], numbers.sum(0))))


def check_metrics(
    sides: Sides, metrics: tuple[object, object], outputs: object = None, labels: object = None
) -> PieceCheck:
    """Give both metrics equal outputs and labels: the models' own, and such as tell ways of counting apart.

    Args:
        sides: torch's and Paddle's.
        metrics: of each side a callable ``(outputs, labels) -> number`` (or numbers by name, or a sequence), which is given
            numpy arrays, and its framework's tensors if it does not take them; or an object with the protocol of
            `paddle.metric.Metric` (compute, update, accumulate, reset) or of torchmetrics (update, compute, reset), which is
            given tensors batch by batch; or a class of these. They are copied, not changed.
        outputs: the reference's: an array, or arrays in tuples, lists and mappings; None if there are none.
        labels: likewise.

    Returns:
        FAIL with both values and the causes; ERROR where a metric does not run.
    """
    try:
        reference, port = metrics
        meters = MetricMeter.of(sides.reference, reference), MetricMeter.of(sides.port, port)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a class of the user's)
        return failed_to_run("a metric", error)
    errors: dict[str, Exception] = {}
    for probes in [probes_of(outputs, labels)] if outputs is not None and labels is not None else _unknown():
        known: list[tuple[Probe, tuple[Values, Values]]] = []
        refused = ""
        for probe in probes:
            found: dict[str, Values] = {}
            raised: dict[str, Exception] = {}
            for side, meter in zip(SIDE_NAMES, meters, strict=True):
                try:
                    found[side] = meter.values(probe.batches)
                except Exception as error:  # noqa: BLE001, PERF203  (user code)
                    raised[side] = error
            errors |= raised
            if not raised:
                known.append((probe, (found["reference"], found["port"])))
            elif probe.name == GIVEN:
                return _raised(found, raised)
            elif "reference" in found and not refused:
                told = one_line(raised["port"])
                refused = f"; the port's metric raises for {probe.name}, the reference's does not: {told}"
        if known:
            return _judge(meters, known, refused)
    side, last = next(iter(errors.items()), ("reference", ValueError("nothing to call it with")))
    return _failed(side, last)


def _failed(side: str, error: BaseException) -> PieceCheck:
    """Return the ERROR of a side's metric."""
    failed = failed_to_run(f"the {side}'s metric", error)
    return replace(failed, reason=f"the {side}'s metric: {error}") if isinstance(error, TipchainError) else failed


def _raised(found: Mapping[str, Values], raised: Mapping[str, Exception]) -> PieceCheck:
    """Return the check of metrics that raise: it fails where the port's alone does."""
    side, error = next(iter(raised.items()))
    failed = _failed(side, error)
    if side == "reference":
        return failed
    values = ", ".join(f"{name} {value:.6g}".strip() for name, value in found["reference"].items())
    message = f"{failed.reason}, where the reference's gives {values}"
    fix = "let the port's metric take what the reference's takes"
    cause = of_piece(METRIC, "parting", message, "both were called for the models' outputs", fix)
    return replace(failed, outcome=Outcome.FAIL, diagnoses=(replace(cause, place=raised_at(error)),))


def _judge(
    meters: tuple[MetricMeter, MetricMeter], known: Sequence[tuple[Probe, tuple[Values, Values]]], refused: str
) -> PieceCheck:
    (ours, theirs), names = known[0][1], pair_names(*known[0][1])
    common = ours.keys() & theirs.keys()
    if not len(names) == len(ours) == len(theirs) or 0 < len(common) < len(ours):
        left, right = (", ".join(name or "one number" for name in side) for side in (ours, theirs))
        reason = f"the metrics have other values: {left} expected, {right} actual"
        return PieceCheck(outcome=Outcome.FAIL, reason=reason)

    def again(side: int, at: int, edit: Edit | None) -> tuple[CodeRun, Values]:
        meter = meters[side].fresh()
        return recorded((meter.side,), edit, partial(meter.values, known[at][0].batches))

    places = [placed(one.metric).rpartition("/")[2] for one in meters]
    pair = CodePair(
        path=METRIC,
        what="sets of outputs",
        inputs=[probe.name for probe, _ in known],
        names=names,
        values=[values for _, values in known],
        again=again,
        allowed=SAME_SINGLE,
        evidence=f"the reference is {places[0]}, the port {places[1]}",
        fix=f"let {places[1]} count as {places[0]} does",
    )
    # What the models' own outputs show comes first.
    order = sorted(names, key=lambda name: pair.apart.get(name, [len(known)])[0])
    pair = replace(pair, names={name: names[name] for name in order})
    numbers = {
        f"{METRIC}/{name}".removesuffix("/") + f"/{side}": float(value)
        for name, other in names.items()
        for side, value in (("reference", ours[name]), ("port", theirs[other]))
    }
    if not pair.apart:
        first = ", ".join(f"{name or 'value'} {value:.6g}" for name, value in list(ours.items())[:3])
        reason = f"equal on {len(known)} sets of outputs and labels; of the first: {first}{refused}"
        return PieceCheck(outcome=Outcome.PASS, numbers=numbers, reason=reason)
    reason = f"the metrics differ for {pair.told(next(iter(pair.apart)))}"
    return PieceCheck(outcome=Outcome.FAIL, reason=reason, numbers=numbers, diagnoses=tuple(pair.causes()))
