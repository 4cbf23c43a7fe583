"""Averages over the steps between two log lines of training."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Meter:
    """Collects losses, samples and times until `take` renders and forgets them."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.start = time.perf_counter()
        self.reader_s = 0.0
        self.losses: list[float] = []
        self.samples = 0

    def reading(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield ``batches``, timing how long each takes to come."""
        iterator = iter(batches)
        while True:
            start = time.perf_counter()
            batch = next(iterator, None)
            if batch is None:
                return
            self.reader_s += time.perf_counter() - start
            yield batch

    def add(self, loss: float, samples: int) -> None:
        """Count one step."""
        self.losses.append(loss)
        self.samples += samples

    def take(self) -> str:
        """Return the averages since the last call, in the words that TIPC's tools look for, and start anew."""
        steps, seconds = len(self.losses), time.perf_counter() - self.start
        text = (
            f"loss: {sum(self.losses) / steps:.5f}, avg_reader_cost: {self.reader_s / steps:.5f} sec, "
            f"avg_batch_cost: {seconds / steps:.5f} sec, avg_samples: {self.samples / steps:g}, "
            f"avg_ips: {self.samples / seconds:.5f} images/sec"
        )
        self._reset()
        return text
