"""Training as a stage does it: seeded batches, one step after another, and the metrics at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Any

import numpy as np

from tipchain.parity.frameworks.base import Array, Batch, scalar
from tipchain.parity.stages.bench import Bench, split
from tipchain.parity.stages.evaluation import evaluate


def steps_per_epoch(bench: Bench, dataset: Any) -> int:
    """Return the number of batches in an epoch; the last may be smaller."""
    return ceil(len(dataset) / bench.case.train.batch_size)


def shuffled_batches(bench: Bench, dataset: Any, seed: Sequence[int], count: int) -> Iterator[Batch]:
    """Yield ``count`` batches through the side's own loader, every epoch in an order of its own.

    Args:
        bench: the bench.
        dataset: the training data.
        seed: with the number of the epoch it decides on the order; NumPy draws it, so that both sides have the same.
        count: batches in all.
    """
    epoch = 0
    while count > 0:
        order = np.random.default_rng([*seed, epoch]).permutation(len(dataset))
        if hasattr(dataset, "set_epoch"):  # it takes other samples in every epoch
            dataset.set_epoch(epoch)
        wanted = split(order.tolist(), bench.case.train.batch_size)[:count]
        yield from bench.framework.batches(dataset, wanted)
        count -= len(wanted)
        epoch += 1


def train(bench: Bench, model: Any, batches: Iterable[tuple[Any, Any]], per_epoch: int) -> Iterator[float]:
    """Train ``model`` on pairs of images and labels, and yield the loss of each step once it is taken."""
    criterion = bench.builder("loss")()
    trainer = bench.trainer(model, bench.case.train.learning_rate)
    per_iteration = bench.case.train.schedule_per == "iteration"
    for number, (image, label) in enumerate(batches, start=1):
        loss = criterion(model(image), label)
        loss.backward()
        trainer.step()
        if per_iteration or number % per_epoch == 0:
            trainer.step_schedule()
        yield float(scalar(bench.framework.array(loss))[0])


def evaluate_trained(bench: Bench, model: Any) -> tuple[dict[str, Array], dict[str, int]]:
    """Switch to eval mode and return the metrics over the evaluation set, with the facts behind them.

    Both sides evaluate with running variances of one definition: torch's own, the unbiased ones, would let a correct port
    look wrong after a short training on small batches.
    """
    bench.framework.set_training(model, training=False)
    with bench.framework.shared_statistics(model):
        return evaluate(bench, model)
