"""Step 11 of the guide, training: losses within the reference's envelope, and the metrics at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

import numpy as np

from tipchain.errors import Outcome, RecordError
from tipchain.framework_types import Array, Dataset, Model, Tensor
from tipchain.frameworks.base import Batch, scalar
from tipchain.frameworks.randomness import Draws
from tipchain.numbers.two_samples import grid_step, judge_runs
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.envelope import BLUNT, compare_curves
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import BatchLog, Bench, Recording, run_evaluation, split
from tipchain.parity.stages.judging import (
    BENCHMARK,
    LEAST_ENVELOPE,
    Dumps,
    Judged,
    Rules,
    details,
    judge_batches,
    one_sided,
)
from tipchain.parity.stages.tensors import TensorFile


def steps_per_epoch(bench: Bench, dataset: Dataset) -> int:
    """Return the number of batches in an epoch; the last may be smaller."""
    return ceil(len(dataset) / bench.case.train.batch_size)


def shuffled_batches(bench: Bench, dataset: Dataset, seed: Sequence[int], count: int) -> Iterator[Batch]:
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


def train(bench: Bench, model: Model, batches: Iterable[tuple[Tensor, Tensor]], per_epoch: int) -> Iterator[float]:
    """Train ``model`` on pairs of images and labels, and yield the loss of each step once it is taken."""
    criterion = bench.builder("loss")()
    trainer = bench.trainer(model, bench.case.train.learning_rate)
    per_iteration = bench.case.train.schedule_per[bench.framework.name] == "iteration"
    for number, (image, label) in enumerate(batches, start=1):
        loss = criterion(model(image), label)
        loss.backward()
        trainer.step()
        if per_iteration or number % per_epoch == 0:
            trainer.step_schedule()
        yield float(scalar(bench.framework.array(loss))[0])


def evaluate_trained(bench: Bench, model: object) -> tuple[dict[str, Array], dict[str, int]]:
    """Switch to eval mode and return the metrics over the evaluation set, with the facts behind them.

    Both sides evaluate with running variances of one definition: torch's own, the unbiased ones, would let a correct port
    look wrong after a short training on small batches.
    """
    bench.framework.set_training(model, training=False)
    with bench.framework.shared_statistics(model):
        return run_evaluation(bench, model)[:2]


def record(bench: Bench) -> Recording:
    """Metrics and losses of a training from equal weights on equal batches; metrics from other seeds if asked for.

    torch also starts some times from parameters a little apart, for the envelope of the losses. The losses go on past the
    last epoch where the envelope has more iterations than the training.
    """
    paired = _Paired(bench)
    metrics, facts = paired.run()
    compared = np.array(paired.losses[: paired.compared])
    tensors: dict[str, Array] = {"loss": compared}
    if bench.framework.name == "torch":
        runs = bench.case.train.envelope.runs if bench.noise else 0
        tensors["envelope"] = np.array([paired.rerun(number) for number in range(runs)]).reshape(runs, len(compared))
    if bench.case.train.seeds > 1:
        # A seed decides on the samples' order, the same on both sides, and on the framework's own numbers: random layers are on.
        dataset = bench.dataset("train")
        found: dict[str, list[Array]] = {}
        per_epoch = steps_per_epoch(bench, dataset)
        for run in range(1, bench.case.train.seeds + 1):
            seed = (bench.case.seed, run)
            bench.restore(paired.model)
            bench.framework.watch_variances(paired.model)
            bench.framework.seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
            paired.model.train()
            batches = shuffled_batches(bench, dataset, seed, bench.epochs * per_epoch)
            for _ in train(bench, paired.model, ((image, label) for image, label, _ in batches), per_epoch):
                pass
            for key, value in evaluate_trained(bench, paired.model)[0].items():
                found.setdefault(key, []).append(value)
        tensors |= {f"seeds/{key}": np.concatenate(values) for key, values in found.items()}
    details = {
        "losses": paired.losses[: paired.steps],
        "epochs": bench.epochs,
        "random": paired.random,
        **paired.log.facts(),
        **facts,
    }
    return Recording(arrays=metrics, tensors=tensors, details=details)


class _Paired:
    """The run that is compared step by step: everything seeded, random layers off or with equal masks.

    Attributes:
        random: whether the training data set gives other values at every read, so that the evaluation set is trained on.
        losses: of every step taken.
        steps: steps of the training, after which the metrics are taken.
        compared: losses that are compared.
        log: the batches of the training.
    """

    def __init__(self, bench: Bench) -> None:
        published = bench.case.train.benchmark is not None
        self.bench = bench
        self.dataset, self.random = (bench.dataset("train"), False) if published else bench.steady_dataset()
        self.per_epoch = steps_per_epoch(bench, self.dataset)
        self.steps = bench.epochs * self.per_epoch
        self.compared = bench.case.train.envelope.iterations
        self.log = BatchLog(kept=self.compared)
        self.losses: list[float] = []
        self.model: Model = None
        self._kept: list[tuple[Tensor, Tensor]] = []

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

    def rerun(self, number: int) -> list[float]:
        """Return the losses that are compared, of the run of a number from 0 that starts a little apart."""
        self.bench.nudge(self.model, number, self.bench.case.train.envelope.ulps)
        self._start()
        return list(self._train(self._kept))

    def _start(self) -> None:
        self.bench.framework.set_training(self.model, training=True)
        if self.bench.case.train.dropout == "equal":
            self.bench.framework.wake_dropout(self.model)

    def _loaded(self) -> Iterator[tuple[object, object]]:
        # Those whose losses are compared are kept where the run is repeated.
        bench, count = self.bench, max(self.steps, self.compared)
        for image, label, files in shuffled_batches(bench, self.dataset, (bench.case.seed,), count):
            self.log.add(files, bench.framework.array(label))
            if bench.framework.name == "torch" and len(self._kept) < self.compared:
                self._kept.append((image, label))
            yield image, label

    def _train(self, batches: Iterable[tuple[object, object]]) -> Iterator[float]:
        case = self.bench.case
        with self.bench.framework.randomness(Draws(case.seed) if case.train.dropout == "equal" else None):
            yield from train(self.bench, self.model, batches, self.per_epoch)


# Judge training: the metrics, the losses against the reference's envelope, and the metrics of several seeds.


CURVE = "loss_curve"
SEEDS = "seeds/"
LEAST = 2
"""Losses that must tell something: the first alone is of no update."""
WHERE = (
    "the first losses differ already: look at forward and loss in train mode (BatchNorm's eps, dropout) and at the batches",
    "equal before the first update: look at the learning rate, the optimizer's arguments and the backward pass",
    "close until step {}: look at the optimizer (momentum, weight decay), whether gradients are cleared, and the schedule",
)
"""Places to look at where the losses part at step 0, 1 or later."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the metrics, then the losses step by step, then the final metrics of several seeds."""
    metrics = judging.judge_arrays(dumps, rules)
    batches = judge_batches(dumps)
    if dumps.reference.side == BENCHMARK:
        note = "published numbers have no losses to compare the port's with"
        return metrics + batches + Judged(notes=(note,))
    samples, notes = details(dumps.reference).get("samples"), []
    allowed = max((one.threshold or 0.0 for one in metrics.tolerances.values()), default=0.0)
    if isinstance(samples, int) and samples > 0 and 100 / samples > allowed:
        notes.append(
            f"an accuracy over {samples} samples moves by {100 / samples:.3g} points, so that within {allowed:g} means equal; "
            "other seeds may well differ by more (train.seeds compares several)"
        )
    random, words = judging.readings(dumps)
    data = Judged()
    if random[0] != random[1]:
        reason = f"the training set gives {words[0]} in torch, {words[1]} in Paddle"
        data = Judged(verdicts=(Verdict(Outcome.FAIL, "random", reason),))
    elif random[0]:
        note = (
            "both sides were trained on the samples of the evaluation set: the training sets give other values at every "
            "read, each its own"
        )
        data = Judged(notes=(note,))
    return metrics + batches + data + _judge_tensors(dumps, rules) + Judged(notes=notes)


def _judge_tensors(dumps: Dumps, rules: Rules) -> Judged:
    paths = dumps.tensors
    missing = [path.name for path in paths if not path.is_file()]
    if missing and not any("tipchain" in record.meta for record in (dumps.reference, dumps.port)):
        note = f"no such file: {', '.join(missing)}; the metrics alone were compared"
        return Judged(notes=(note,))
    try:
        with TensorFile(paths[0]) as left, TensorFile(paths[1]) as right:
            seeds = [[name for name in side if name.startswith(SEEDS)] for side in (left, right)]
            verdicts = [_judge_curve(left, right, rules.factor), *one_sided(*seeds)]
            samples = details(dumps.reference).get("samples")
            for key in filter(seeds[1].__contains__, seeds[0]):
                runs = left[key].tolist(), right[key].tolist()
                verdicts.append(_judge_runs(key, runs, samples if isinstance(samples, int) else 0, rules.margin))
    except (RecordError, KeyError) as error:
        verdicts = [Verdict(Outcome.ERROR, CURVE, f"the losses were not compared: {error}")]
    return Judged(verdicts=verdicts)


def _judge_curve(left: Mapping[str, Array], right: Mapping[str, Array], factor: float) -> Verdict:
    reference, port, runs = left["loss"], right["loss"], left["envelope"]
    if reference.ndim != 1 or runs.shape[1:] != reference.shape or not reference.size:
        shapes = f"losses of shape {reference.shape}, runs of shape {runs.shape}"
        return Verdict(Outcome.ERROR, CURVE, f"the reference's file holds no envelope: {shapes}")
    if reference.shape != port.shape:
        return Verdict(Outcome.FAIL, CURVE, f"losses expected: {reference.shape}, actual: {port.shape}")
    if not np.isfinite(reference).all():
        step = int(np.argmin(np.isfinite(reference)))
        reason = f"the reference's loss is {reference[step]} at step {step}: nothing to hold to"
        return Verdict(Outcome.ERROR, CURVE, reason)
    if not reference.any():
        return Verdict(Outcome.ERROR, CURVE, "proves nothing: the reference's losses are all zero")
    curve = compare_curves(reference, port, runs, factor)
    envelope = f"the envelope of {len(runs)} runs" if len(runs) else LEAST_ENVELOPE
    if curve.outside is not None:
        step, worst = curve.outside, curve.worst
        text = (
            f"leaves {envelope} at step {step}: expected {reference[step]:.9g}, actual "
            f"{port[step]:.9g}, |difference| {curve.differences[step]:.3g} is {curve.ratios[step]:,.3g} times the envelope "
            f"{curve.bounds[step]:.3g}, allowed {factor:g}; worst at step {worst}: {curve.ratios[worst]:,.3g} times; "
            f"{WHERE[min(step, 2)].format(step - 1)}"
        )
        return Verdict(Outcome.FAIL, CURVE, text, finite=bool(np.isfinite(port).all()))
    if curve.told < LEAST:
        reason = f"{factor:g} times the envelope is more than {BLUNT:.0%} of the loss from step {curve.told} on"
        return Verdict(Outcome.ERROR, CURVE, f"proves nothing: {reason}")
    worst = curve.worst
    text = (
        f"{curve.told} losses within {curve.ratios[worst]:.2g} times {envelope}, allowed "
        f"{factor:g}; furthest at step {worst}: |difference| {curve.differences[worst]:.3g}, envelope {curve.bounds[worst]:.3g}"
    )
    rest = len(curve.differences) - curve.told
    if rest:
        text += f"; from step {curve.told} on rounding alone is too large to tell anything ({rest} losses not compared)"
    return Verdict(Outcome.PASS, CURVE, text)


def _judge_runs(subject: str, runs: tuple[list[float], list[float]], samples: int, margin: float) -> Verdict:
    if not np.isfinite([*runs[0], *runs[1]]).all():
        reason = f"a metric is not finite: expected {runs[0]}, actual {runs[1]}"
        return Verdict(Outcome.FAIL, subject, reason, finite=False)
    step = grid_step([*runs[0], *runs[1]], samples)
    try:
        found = judge_runs(*runs, margin, step=step)
    except ImportError as error:
        return Verdict(Outcome.ERROR, subject, f"the runs were not compared: {error}; pip install 'tipchain[stats]'")
    means = [float(np.mean(side)) for side in runs]
    facts = (
        f"mean of {len(runs[0])} runs {means[0]:.4g}, of the port's {len(runs[1])} {means[1]:.4g}; difference "
        f"{found.difference:+.3g}, 90 % interval {found.low:+.3g} to {found.high:+.3g}, margin {margin:g}"
    )
    if found.answer != "not enough runs":
        outcome = Outcome.PASS if found.answer == "equivalent" else Outcome.FAIL
        return Verdict(outcome, subject, f"{found.answer}: {facts}")
    more = f"{found.more:,} more" if found.more is not None else "too many more"
    coarse = f"; one sample of the evaluation set is {step:.3g}" if step > margin else ""
    return Verdict(Outcome.SKIP, subject, f"not enough runs: {more} a side needed; {facts}{coarse}")
