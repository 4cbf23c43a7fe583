"""Paddle's DataLoader, made to end where a sample cannot be read.

Without worker processes Paddle reads in a thread of this one. An exception in the data set ends that thread, and
whoever waits for the next batch waits for ever (Paddle 3.3). So here an exception ends the epoch instead, as a
data set's StopIteration does, and is raised again where the batches are used.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tipchain.framework_types import Dataset, Nested

LATE_S = 5.0
"""Seconds that the loader's thread may take to say why it ended."""


def load_batches(dataset: Dataset, sampler: object, *, num_workers: int = 0) -> Iterator[Nested]:
    """Yield the batches of ``dataset`` that the batch sampler ``sampler`` names.

    Raises:
        Exception: whatever the data set raised, or putting its samples together did.
    """
    from paddle.io import DataLoader

    if num_workers:
        with _raised_in_threads() as raised:
            yield from DataLoader(dataset, batch_sampler=sampler, return_list=True, num_workers=num_workers)
        if raised:
            raise raised[0]
        return
    watched = _Watched(dataset)
    yield from DataLoader(watched, batch_sampler=sampler, return_list=True, collate_fn=watched.collate)
    if watched.error is not None:
        raise watched.error


@contextmanager
def _raised_in_threads() -> Iterator[list[BaseException]]:
    """Keep what threads of Paddle's loader raise; of a worker's exception they alone have the traceback.

    The loader itself raises a SystemError then, which does not say why.
    """
    raised: list[BaseException] = []
    ended = threading.Event()
    usual = threading.excepthook

    def keep(args: threading.ExceptHookArgs) -> None:
        frames = traceback.walk_tb(args.exc_traceback)
        if any(frame.f_globals.get("__name__", "").startswith("paddle.io") for frame, _ in frames):
            raised.extend(filter(None, [args.exc_value]))
            ended.set()
        else:
            usual(args)

    threading.excepthook = keep
    try:
        yield raised
    except SystemError:
        if not ended.wait(LATE_S):
            raise
    finally:
        threading.excepthook = usual


class _Watched:
    """A data set that keeps its first exception."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.error: Exception | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Nested:
        try:
            return self.dataset[index]
        except Exception as error:
            self.error = error
            raise StopIteration from error

    def collate(self, samples: Sequence[Nested]) -> Nested:
        """Put samples together as Paddle does by default."""
        from paddle.io.dataloader.collate import default_collate_fn

        try:
            return default_collate_fn(samples)
        except Exception as error:
            self.error = error
            raise StopIteration from error
