"""Batches for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from tipchain.blame import serving
from tipchain.errors import DataError
from tipchain.paddle_loading import load_batches
from tipchain.paddle_tools.program import ProgramError
from tipchain.parity.builders import check_batch


def train_batches(
    dataset: Any, *, batch_size: int, seed: int, epoch: int, skip: int, num_workers: int
) -> Any:
    """Return the batches of this rank's share of one epoch, and their number.

    The order depends on ``seed`` and ``epoch`` alone, so a resumed run sees what the first would have seen. A data set
    that takes other samples in every epoch has a ``set_epoch``, as torch's samplers do.

    Args:
        dataset: of (image, label, file name).
        batch_size: samples per step and device.
        seed: the run's seed.
        epoch: number of the epoch, from 0.
        skip: batches at the epoch's beginning that were trained on before.
        num_workers: loader processes; 0 loads in this one.
    """
    from paddle.io import DistributedBatchSampler

    class Rest(DistributedBatchSampler):  # type: ignore[misc]
        """The epoch's batches after the first ``skip``."""

        def __iter__(self) -> Iterator[list[int]]:
            return islice(super().__iter__(), skip, None)

    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(epoch)
    sampler = Rest(dataset, batch_size=batch_size, shuffle=True)
    sampler.set_epoch(mix_seed(seed, epoch))
    return load_batches(dataset, sampler, num_workers=num_workers), len(sampler)


def eval_batches(dataset: Any, *, batch_size: int, num_workers: int) -> Any:
    """Return the batches of the whole of ``dataset``, in its order."""
    from paddle.io import BatchSampler

    sampler = BatchSampler(dataset, batch_size=batch_size)
    return load_batches(dataset, sampler, num_workers=num_workers)


def mix_seed(*parts: int) -> int:
    """Return a 32-bit seed that differs with every one of ``parts``."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def reading(batches: Any, dataset: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the ``batches`` of ``dataset``; a sample that cannot be read stops the program.

    Raises:
        ProgramError: says what the data set said.
        UsersError: the samples have other parts than image, label and file name.
    """
    with serving(stage="reading the data"):
        numbers = iter(batches)
        while True:
            try:
                batch = next(numbers)
            except StopIteration:
                return
            except DataError as error:
                raise ProgramError(str(error)) from error
            yield check_batch(batch, dataset)
