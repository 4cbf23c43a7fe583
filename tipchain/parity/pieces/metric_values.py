"""What a metric says, whatever it is: a callable, or an object with Paddle's or torchmetrics' protocol."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tipchain.blame import placed
from tipchain.errors import UsageError
from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.structures import put_back, take_out

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
class Meter:
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
    def of(cls, side: LiveSide, metric: Any) -> Meter:
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
                "  expected: a callable (outputs, labels), or an object with update and compute or accumulate"
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
                (self._convert(one, tensors=tensors), self._convert(other, tensors=tensors))
                for one, other in batches
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
            return self._named(
                metric.accumulate(), metric.name() if callable(getattr(metric, "name", None)) else None
            )

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
            given = (
                list(names) if isinstance(names, list | tuple) else [names] if isinstance(names, str) else []
            )
            if len(given) == len(result):
                result = dict(zip(map(str, given), result.values(), strict=True))
        if not result:
            raise UsageError(
                f"{placed(self.metric)} gave {found!r:.80}\n  expected: a number, or numbers by name"
            )
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
            array = np.asarray(
                self.side.array(found) if self.side.is_tensor(found) else found, dtype=np.float64
            )
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
