"""Two references' trainings held against each other: losses by float64 and the envelope, metrics by the equivalence test."""

from __future__ import annotations

import numpy as np

from tipchain.bundle.numbers import Arrays, Truths, compare_truths, same, within_last_places
from tipchain.parity.envelope import compare_curves
from tipchain.parity.equivalence import Answer, grid_step, judge_runs
from tipchain.parity.judging.base import Rules

SEEDS = "seeds/"
Found = tuple[bool, str, str, dict[str, float]]
"""Whether it is accepted, how, why, and the numbers behind it."""


def judge_training(
    left: Arrays, right: Arrays, truths: Truths | None, rules: Rules, *, samples: object = 0
) -> Found:
    """Judge the stage ``train``.

    Accepted: the metrics of several seeds are equivalent; or the first losses agree in float64, in float32 they stay in
    the old reference's envelope, and no metric of the one run moved beyond the margin.

    Args:
        left: the old reference's arrays: metrics, ``loss`` ``[steps]``, ``envelope`` ``[runs, steps]``, and
            ``seeds/<metric>`` ``[seeds]`` where there are some.
        right: the new one's.
        truths: the first losses in float64; None where one side has none.
        rules: the case's factor of the envelope, and the margin.
        samples: of the evaluation set, where it is known.
    """
    figures: dict[str, float] = {}
    count = samples if isinstance(samples, int) else 0
    seeds = {name for name in (*left, *right) if name.startswith(SEEDS)}
    equivalent, said = _judge_seeds(left, right, seeds, (rules.margin, count), figures)
    if equivalent is Answer.EQUIVALENT:
        return True, "equivalence", said, figures
    if equivalent is Answer.DIFFERENT:
        return False, "differs", said, figures
    problem = _judge_losses(left, right, truths, rules, figures) or _judge_metrics(
        left, right, rules, figures
    )
    if problem:
        return False, "differs", f"{problem}; {said}" if said else problem, figures
    if same(
        {name: left[name] for name in left if name == "loss"},
        {name: right[name] for name in right if name == "loss"},
    ):
        return True, "last places", "the losses are equal, and the metrics within the margin", figures
    reason = (
        "rounding: the first losses agree in float64 and stay in the envelope, the metrics within the margin"
    )
    return True, "float64", reason, figures


def _judge_seeds(
    left: Arrays, right: Arrays, names: set[str], limits: tuple[float, int], figures: dict[str, float]
) -> tuple[Answer, str]:
    """Return what the equivalence test says of all metrics together, and why."""
    if not names:
        return Answer.NOT_ENOUGH_RUNS, "train.seeds of 8 to 31 would let the equivalence test tell"
    (margin, samples), unsure = limits, ""
    for name in sorted(names):
        metric = name.removeprefix(SEEDS)
        if name not in left or name not in right or min(left[name].size, right[name].size) < 2:
            unsure = unsure or f"{metric} has several seeds in one reference only"
            continue
        runs = [one[name].astype(np.float64).tolist() for one in (left, right)]
        if not all(np.isfinite(runs_of).all() for runs_of in runs):
            return Answer.DIFFERENT, f"{metric}: runs that ended in NaN or Inf"
        try:
            found = judge_runs(runs[0], runs[1], margin, step=grid_step([*runs[0], *runs[1]], samples))
        except ImportError as error:
            return (
                Answer.NOT_ENOUGH_RUNS,
                f"the seeds were not compared: {error}; pip install 'tipchain[stats]'",
            )
        figures[f"{metric} difference"] = found.difference
        interval = f"{found.low:+.3g} to {found.high:+.3g}, margin {margin:g}"
        if found.answer is Answer.DIFFERENT:
            return found.answer, f"{metric} is different: 90 % interval of the means' difference {interval}"
        if found.answer is Answer.NOT_ENOUGH_RUNS:
            more = f"{found.more:,} more" if found.more is not None else "too many more"
            unsure = unsure or f"{metric}: {more} seeds a side needed, 90 % interval {interval}"
    if unsure:
        return Answer.NOT_ENOUGH_RUNS, unsure
    return (
        Answer.EQUIVALENT,
        f"equivalent: {', '.join(n.removeprefix(SEEDS) for n in sorted(names))} over the seeds",
    )


def _judge_losses(
    left: Arrays, right: Arrays, truths: Truths | None, rules: Rules, figures: dict[str, float]
) -> str:
    """Return what is wrong with the losses, or ""."""
    if "loss" not in left or "loss" not in right:
        return ""  # a published benchmark has none
    if left["loss"].shape != right["loss"].shape or "envelope" not in left:
        return f"{left['loss'].size} losses were compared, now {right['loss'].size}"
    if left["loss"].tobytes() != right["loss"].tobytes():
        if truths is None:
            return "the losses moved, and there is no float64 of both references to tell whether that is rounding"
        worst, _, wrong = compare_truths(truths)
        figures["float64 difference, of what is allowed"] = worst
        if wrong or not worst <= 1:
            return wrong or f"the losses differ in float64, by {worst:.3g} times what rounding there allows"
    curve = compare_curves(left["loss"], right["loss"], left["envelope"], rules.factor)
    figures["loss, times the envelope"] = float(curve.ratios[curve.worst])
    if curve.outside is not None:
        return (
            f"the loss of step {curve.outside} left the envelope: {curve.ratios[curve.outside]:.3g} times it, "
            f"allowed {rules.factor:g}"
        )
    return ""


def _judge_metrics(left: Arrays, right: Arrays, rules: Rules, figures: dict[str, float]) -> str:
    """Return which metric of the one run moved beyond the margin, or ""."""
    rest = ("loss", "envelope")
    names = [name for name in left if name not in rest and not name.startswith(SEEDS)]
    gone = sorted(set(names) ^ {name for name in right if name not in rest and not name.startswith(SEEDS)})
    if gone:
        return f"metrics of one reference only: {', '.join(gone)}"
    if within_last_places({name: left[name] for name in names}, right)[0] <= 1:
        return ""
    if "loss" not in left:
        return "the published numbers are others"
    for name in names:
        moved = float(np.max(np.abs(right[name].astype(np.float64) - left[name]), initial=0.0))
        figures[f"{name} moved"] = moved
        if not moved <= rules.margin:
            before, after = float(left[name].ravel()[0]), float(right[name].ravel()[0])
            return f"{name} moved from {before:.6g} to {after:.6g}, by more than the margin {rules.margin:g}"
    return ""
