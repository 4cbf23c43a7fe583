"""Step 11 of the guide, training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from tipchain.parity.envelope_cache import EnvelopeCache
from tipchain.parity.frameworks.base import Array
from tipchain.parity.frameworks.randomness import Draws
from tipchain.parity.stages.batch_log import BatchLog
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.training import evaluate_trained, shuffled_batches, steps_per_epoch, train


def record(bench: Bench) -> Recording:
    """Metrics and losses of a training from equal weights on equal batches; metrics from other seeds if asked for.

    torch also starts some times from parameters a little apart, for the envelope of the losses. The losses go on past the
    last epoch where the envelope has more iterations than the training. In float64 they are all that is recorded.
    """
    paired = _Paired(bench)
    if bench.truth:
        return Recording(arrays={"loss": np.array(paired.first_losses())})
    metrics, facts = paired.run()
    compared = np.array(paired.losses[: paired.compared])
    tensors: dict[str, Array] = {"loss": compared}
    if bench.framework.name == "torch":
        runs = bench.case.train.envelope.runs
        tensors["envelope"] = EnvelopeCache.of(bench).runs(compared, runs, paired.rerun)
    tensors |= _metrics_by_seed(bench, paired.model, paired.dataset)
    details = {"losses": paired.losses[: paired.steps], "epochs": bench.epochs, **paired.log.facts(), **facts}
    return Recording(arrays=metrics, tensors=tensors, details=details)


class _Paired:
    """The run that is compared step by step: everything seeded, random layers off or with equal masks.

    Attributes:
        losses: of every step taken.
        steps: steps of the training, after which the metrics are taken.
        compared: losses that are compared.
        log: the batches of the training.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench, self.dataset = bench, bench.dataset("train")
        self.per_epoch = steps_per_epoch(bench, self.dataset)
        self.steps = bench.epochs * self.per_epoch
        self.compared = bench.case.train.envelope.iterations
        self.log = BatchLog(kept=self.compared)
        self.losses: list[float] = []
        self.model: Any = None
        self._kept: list[tuple[Any, Any]] = []

    def run(self) -> tuple[dict[str, Array], dict[str, int]]:
        """Train, and return the metrics after the last epoch with the facts behind them."""
        self.model = self.bench.model()
        self.bench.framework.watch_variances(self.model)
        self._start()
        metrics: tuple[dict[str, Array], dict[str, int]] = {}, {}
        for loss in self._train(self._loaded()):
            self.losses.append(loss)
            if len(self.losses) == self.steps:
                metrics = evaluate_trained(self.bench, self.model)
                self._start()
        return metrics

    def first_losses(self) -> list[float]:
        """Return the losses that are compared; nothing else is run."""
        self.model = self.bench.model()
        self.bench.framework.watch_variances(self.model)
        self._start()
        return list(islice(self._train(self._loaded()), self.compared))

    def rerun(self, number: int) -> list[float]:
        """Return the losses that are compared, of the run of a number from 0 that starts a little apart."""
        from tipchain.parity.frameworks.torch_perturbation import perturb

        self.bench.restore(self.model)
        perturb(self.model, self.bench.case.train.envelope.ulps, number)
        self._start()
        return list(self._train(self._kept))

    def _start(self) -> None:
        self.bench.framework.set_training(self.model, training=True)
        if self.bench.case.train.dropout == "equal":
            self.bench.framework.wake_dropout(self.model)

    def _loaded(self) -> Iterator[tuple[Any, Any]]:
        """Yield the batches; those whose losses are compared are kept where the run is repeated."""
        bench, count = self.bench, max(self.steps, self.compared)
        for image, label, files in shuffled_batches(bench, self.dataset, (bench.case.seed,), count):
            self.log.add(files, bench.framework.array(label))
            if bench.framework.name == "torch" and len(self._kept) < self.compared:
                self._kept.append((image, label))
            yield image, label

    def _train(self, batches: Iterable[tuple[Any, Any]]) -> Iterator[float]:
        case = self.bench.case
        with self.bench.framework.randomness(Draws(case.seed) if case.train.dropout == "equal" else None):
            yield from train(self.bench, self.model, batches, self.per_epoch)


def _metrics_by_seed(bench: Bench, model: Any, dataset: Any) -> dict[str, Array]:
    """Return each metric of whole trainings from several seeds, ``[seeds]``, where the case asks for them.

    A seed decides on the order of the samples, the same on both sides, and on the framework's own random numbers:
    random layers are on. All start from the case's weights.
    """
    found: dict[str, list[Array]] = {}
    per_epoch = steps_per_epoch(bench, dataset)
    for run in range(1, bench.case.train.seeds + 1) if bench.case.train.seeds > 1 else ():
        seed = (bench.case.seed, run)
        bench.restore(model)
        bench.framework.watch_variances(model)
        bench.framework.seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
        model.train()
        batches = shuffled_batches(bench, dataset, seed, bench.epochs * per_epoch)
        for _ in train(bench, model, ((image, label) for image, label, _ in batches), per_epoch):
            pass
        for key, value in evaluate_trained(bench, model)[0].items():
            found.setdefault(key, []).append(value)
    return {f"seeds/{key}": np.concatenate(values) for key, values in found.items()}
