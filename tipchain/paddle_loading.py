"""Paddle's DataLoader, made to end where a sample cannot be read.

Without worker processes Paddle reads in a thread of this one. An exception in the data set ends that thread, and
whoever waits for the next batch waits for ever (Paddle 3.3). So here an exception ends the epoch instead, as a
data set's StopIteration does, and is raised again where the batches are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def load_batches(dataset: Any, sampler: Any, *, num_workers: int = 0) -> Iterator[Any]:
    """Yield the batches of ``dataset`` that the batch sampler ``sampler`` names.

    Raises:
        Exception: whatever the data set raised, or putting its samples together did.
    """
    from paddle.io import DataLoader

    if num_workers:  # Paddle prints what a worker process raised, and raises an error of its own here
        yield from DataLoader(dataset, batch_sampler=sampler, return_list=True, num_workers=num_workers)
        return
    watched = _Watched(dataset)
    yield from DataLoader(watched, batch_sampler=sampler, return_list=True, collate_fn=watched.collate)
    if watched.error is not None:
        raise watched.error


class _Watched:
    """A data set that keeps its first exception."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.error: Exception | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:
            self.error = error
            raise StopIteration from error

    def collate(self, samples: Sequence[Any]) -> Any:
        """Put samples together as Paddle does by default."""
        from paddle.io.dataloader.collate import default_collate_fn

        try:
            return default_collate_fn(samples)
        except Exception as error:
            self.error = error
            raise StopIteration from error
