"""Judge training: the metrics, the losses against the reference's envelope, and the metrics of several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tipchain.errors import RecordError
from tipchain.outcome import Outcome
from tipchain.parity.envelope import BLUNT, Curve, compare_curves
from tipchain.parity.equivalence import Answer, Equivalence, grid_step, judge_runs
from tipchain.parity.judge import Verdict
from tipchain.parity.judging import plain
from tipchain.parity.judging.base import BENCHMARK, Dumps, Judged, Rules, details
from tipchain.parity.judging.batches import judge_batches
from tipchain.parity.judging.tensor_file import TensorFile, tensor_paths

CURVE = "train/loss_curve"
SEEDS = "seeds/"
LEAST = 2
"""Losses that must tell something: the first alone is of no update."""
WHERE = (
    "the first losses differ already: look at forward and loss in train mode (BatchNorm's eps, dropout) and at the batches",
    "equal before the first update: look at the learning rate, the optimizer's arguments and the backward pass",
    "close until step {}: look at the optimizer (momentum, weight decay), whether gradients are cleared, and the schedule",
)
"""What to look at where the losses part at step 0, 1 or later."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the metrics, then the losses step by step, then what several seeds ended with."""
    metrics = plain.judge_arrays(dumps, rules)
    batches = judge_batches(dumps)
    if dumps.reference.side == BENCHMARK:
        note = "published numbers have no losses to compare the port's with"
        return metrics + batches + Judged(verdicts=(), notes=(note,))
    return metrics + batches + _judge_tensors(dumps, rules) + _coarse(dumps, metrics)


def _judge_tensors(dumps: Dumps, rules: Rules) -> Judged:
    """Judge what stands in the safetensors files."""
    paths = tensor_paths(dumps)
    missing = [path.name for path in paths if not path.is_file()]
    if missing and not any("tipchain" in record.meta for record in (dumps.reference, dumps.port)):
        note = f"no such file: {', '.join(missing)}; the metrics alone were compared"
        return Judged(verdicts=(), notes=(note,))
    try:
        with TensorFile(paths[0]) as left, TensorFile(paths[1]) as right:
            verdicts = [
                _judge_curve(left, right, rules.factor),
                *_judge_seeds(left, right, dumps, rules.margin),
            ]
    except (RecordError, KeyError) as error:
        reason = f"the losses were not compared: {error}"
        verdicts = [Verdict(outcome=Outcome.ERROR, subject=CURVE, reason=reason)]
    return Judged(verdicts=tuple(verdicts))


def _judge_curve(left: Mapping[str, Any], right: Mapping[str, Any], factor: float) -> Verdict:
    def verdict(outcome: Outcome, reason: str, *, finite: bool = True) -> Verdict:
        return Verdict(outcome=outcome, subject=CURVE, reason=reason, finite=finite)

    reference, port, runs = left["loss"], right["loss"], left["envelope"]
    if reference.ndim != 1 or runs.shape[1:] != reference.shape or not runs.size:
        shapes = f"losses of shape {reference.shape}, runs of shape {runs.shape}"
        return verdict(Outcome.ERROR, f"the reference's file holds no envelope: {shapes}")
    if reference.shape != port.shape:
        return verdict(Outcome.FAIL, f"losses expected: {reference.shape}, actual: {port.shape}")
    useless = _useless(reference)
    if useless:
        return verdict(Outcome.ERROR, useless)
    curve = compare_curves(reference, port, runs, factor)
    if curve.outside is not None:
        finite = bool(np.isfinite(port).all())
        return verdict(Outcome.FAIL, _left(curve, reference, port, len(runs), factor), finite=finite)
    if curve.told < LEAST:
        reason = (
            f"{factor:g} times the envelope is more than {BLUNT:.0%} of the loss from step {curve.told} on"
        )
        return verdict(Outcome.ERROR, f"proves nothing: {reason}")
    return verdict(Outcome.PASS, _stayed(curve, len(runs), factor))


def _useless(reference: Any) -> str:
    """Return why nothing can be held against the reference's losses, or ""."""
    if not np.isfinite(reference).all():
        step = int(np.argmin(np.isfinite(reference)))
        return f"the reference's loss is {reference[step]} at step {step}: nothing to hold to"
    return "" if reference.any() else "proves nothing: the reference's losses are all zero"


def _stayed(curve: Curve, runs: int, factor: float) -> str:
    worst = curve.worst
    text = (
        f"{curve.told} losses within {curve.ratios[worst]:.2g} times the envelope of {runs} runs, allowed "
        f"{factor:g}; furthest at step {worst}: |difference| {curve.differences[worst]:.3g}, envelope {curve.bounds[worst]:.3g}"
    )
    rest = len(curve.differences) - curve.told
    if rest:
        text += f"; from step {curve.told} on rounding alone is too large to tell anything ({rest} losses not compared)"
    return text


def _left(curve: Curve, reference: Any, port: Any, runs: int, factor: float) -> str:
    step = curve.outside
    assert step is not None
    where = WHERE[min(step, 2)].format(step - 1)
    worst = curve.worst
    return (
        f"leaves the envelope of {runs} runs at step {step}: expected {reference[step]:.9g}, actual "
        f"{port[step]:.9g}, |difference| {curve.differences[step]:.3g} is {curve.ratios[step]:,.3g} times the envelope "
        f"{curve.bounds[step]:.3g}, allowed {factor:g}; worst at step {worst}: {curve.ratios[worst]:,.3g} times; {where}"
    )


def _judge_seeds(
    left: Mapping[str, Any], right: Mapping[str, Any], dumps: Dumps, margin: float
) -> Iterator[Verdict]:
    """Yield a verdict about each metric that several seeds ended with."""
    samples = details(dumps.reference).get("samples")
    for key in dict.fromkeys(name for name in (*left, *right) if name.startswith(SEEDS)):
        if key in left and key in right:
            runs = left[key].tolist(), right[key].tolist()
            yield _judge_runs(f"train/{key}", runs, samples if isinstance(samples, int) else 0, margin)
        else:
            words = "missing in the port" if key in left else "not in the reference"
            yield Verdict(outcome=Outcome.FAIL, subject=f"train/{key}", reason=words)


def _judge_runs(subject: str, runs: tuple[list[float], list[float]], samples: int, margin: float) -> Verdict:
    if not np.isfinite([*runs[0], *runs[1]]).all():
        reason = f"a metric is not finite: expected {runs[0]}, actual {runs[1]}"
        return Verdict(outcome=Outcome.FAIL, subject=subject, reason=reason, finite=False)
    step = grid_step([*runs[0], *runs[1]], samples)
    try:
        found = judge_runs(*runs, margin, step=step)
    except ImportError as error:
        reason = f"the runs were not compared: {error}; pip install 'tipchain[stats]'"
        return Verdict(outcome=Outcome.ERROR, subject=subject, reason=reason)
    return _verdict_of_runs(subject, found, runs, margin, step)


def _verdict_of_runs(
    subject: str, found: Equivalence, runs: tuple[list[float], list[float]], margin: float, step: float
) -> Verdict:
    means = [float(np.mean(side)) for side in runs]
    facts = (
        f"mean of {len(runs[0])} runs {means[0]:.4g}, of the port's {len(runs[1])} {means[1]:.4g}; difference "
        f"{found.difference:+.3g}, 90 % interval {found.low:+.3g} to {found.high:+.3g}, margin {margin:g}"
    )
    match found.answer:
        case Answer.EQUIVALENT:
            return Verdict(outcome=Outcome.PASS, subject=subject, reason=f"equivalent: {facts}")
        case Answer.DIFFERENT:
            return Verdict(outcome=Outcome.FAIL, subject=subject, reason=f"different: {facts}")
        case Answer.NOT_ENOUGH_RUNS:
            more = f"{found.more:,} more" if found.more is not None else "too many more"
            coarse = f"; one sample of the evaluation set is {step:.3g}" if step > margin else ""
            reason = f"not enough runs: {more} a side needed; {facts}{coarse}"
            return Verdict(outcome=Outcome.SKIP, subject=subject, reason=reason)


def _coarse(dumps: Dumps, metrics: Judged) -> Judged:
    """Remark where one sample of the evaluation set is more than the metrics' tolerance."""
    samples = details(dumps.reference).get("samples")
    allowed = max((one.threshold or 0.0 for one in metrics.tolerances.values()), default=0.0)
    if not isinstance(samples, int) or samples <= 0 or not 100 / samples > allowed:
        return Judged(verdicts=())
    note = (
        f"an accuracy over {samples} samples moves by {100 / samples:.3g} points, so that within {allowed:g} means equal; "
        "other seeds may well differ by more (train.seeds compares several)"
    )
    return Judged(verdicts=(), notes=(note,))
