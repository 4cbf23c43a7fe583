"""What a metric says, and the outputs and labels on which two metrics are called."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tipchain.blame import placed
from tipchain.errors import UsageError
from tipchain.explain.causes.metric_ways import make_probe
from tipchain.explain.locate.sides import LiveSide
from tipchain.explain.locate.trace import put_back, take_out

# What a metric says, whatever it is: a callable, or an object with Paddle's or torchmetrics' protocol.


Array = npt.NDArray[Any]
Batch = tuple[Any, Any]
"""Outputs and labels: arrays, or arrays in tuples, lists and mappings."""
Values = dict[str, float]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OfTensors:
    """A metric that takes its framework's tensors, never arrays: an alignment case's."""

    metric: Any


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
    metric: Any
    kind: str = ""
    orders: tuple[bool, ...] = ()

    @classmethod
    def of(cls, side: LiveSide, metric: Any) -> MetricMeter:
        """Return the meter of a metric.

        Raises:
            UsageError: it is none.
        """
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
        for number, tensors in enumerate(self.orders):
            last = number == len(self.orders) - 1
            try:
                found = run(tensors)
            except Exception:
                if last:
                    raise
                continue
            self.orders = (tensors,)
            return found
        raise AssertionError("nothing was tried")

    def _fresh(self) -> Any:
        try:
            return copy.deepcopy(self.metric)
        except Exception:  # noqa: BLE001  (what cannot be copied is used as it is)
            return self.metric

    def _feed(self, metric: Any, batches: Sequence[Batch], *, tensors: bool) -> Values:
        with self.side.recording(gradient=False):
            given = [
                (self._convert(one, tensors=tensors), self._convert(other, tensors=tensors)) for one, other in batches
            ]
            if self.kind == "callable":
                if len(batches) > 1:
                    given = [
                        (self._convert(one, tensors=tensors), self._convert(other, tensors=tensors))
                        for one, other in [join(batches)]
                    ]
                return self._named(metric(*given[0]), None)
            if hasattr(metric, "reset"):
                metric.reset()
            for outputs, labels in given:
                self._update(metric, outputs, labels)
            if self.kind == "torchmetrics":
                return self._named(metric.compute(), None)
            return self._named(metric.accumulate(), metric.name() if callable(getattr(metric, "name", None)) else None)

    def _update(self, metric: Any, outputs: Any, labels: Any) -> None:
        if self.kind == "torchmetrics" or not hasattr(metric, "compute"):
            metric.update(outputs, labels)
            return
        found = metric.compute(outputs, labels)
        # Paddle's own loop hands over what compute gives, as arrays.
        values = found if isinstance(found, tuple | list) else [found]
        metric.update(*(self.side.array(one) if self.side.is_tensor(one) else one for one in values))

    def _convert(self, value: Any, *, tensors: bool) -> Any:
        structure, arrays, _ = take_out(value, lambda one: isinstance(one, np.ndarray))
        made = [self.side.tensor(one.copy(), gradient=False) if tensors else one.copy() for one in arrays]
        return put_back(structure, made)

    def _named(self, found: Any, names: Any) -> Values:
        """Return numbers by name."""
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

    def _numbers(self, found: Any) -> Values:
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
        taken = [take_out(one[number], lambda value: isinstance(value, np.ndarray)) for one in batches]
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


def given_probe(outputs: Any, labels: Any) -> Probe:
    """Return the models' own outputs; a single array is cut into two uneven batches."""
    whole = Probe(name="the models' outputs", batches=[(outputs, labels)], given=True)
    if not isinstance(outputs, np.ndarray) or not isinstance(labels, np.ndarray):
        return whole
    size = len(outputs) if outputs.ndim else 0
    if size < 3 or not labels.ndim or len(labels) != size:
        return whole
    cut = size - max(1, size // 3)
    return Probe(name=whole.name, batches=[(outputs[:cut], labels[:cut]), (outputs[cut:], labels[cut:])], given=True)


def kinds_of(outputs: Any, labels: Any) -> tuple[str, ...]:
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


def make_probes(kind: str, outputs: Any, labels: Any) -> Iterator[Probe]:
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
            trail = kept if labels is None or labels.ndim == outputs.ndim else ()
            batches = [_numbers(random, size, kept, trail, labels, binary=kind == BINARY) for size in sizes]
        yield Probe(name=f"random outputs {number}", batches=batches)


def square(outputs: Any, labels: Any) -> Probe | None:
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
    random: np.random.Generator, size: int, shape: tuple[int, ...], trail: tuple[int, ...], labels: Any, *, binary: bool
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
