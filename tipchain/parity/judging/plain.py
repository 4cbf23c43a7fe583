"""Judge a stage by comparing its dumps key by key; most stages need no more."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from tipchain.outcome import Outcome
from tipchain.parity.judge import Verdict, compare, vacuous
from tipchain.parity.judging.base import BENCHMARK, Dumps, Judged, Rules, details
from tipchain.parity.tolerance import Tolerance

VACUOUS_STAGES = {
    "forward": "*",
    "loss": "*loss",
    "backward": "loss_*",
    "inference": "*",
    "distributed": "loss_*",
}
"""Stages whose float outputs must be of a size that the threshold can tell apart from zero."""
DETAILS = {"samples": "samples evaluated", "batches": "the sides trained on different files or labels"}
"""Facts beside a dump that must be equal, with the words for it when they are not."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the dumps, and what both sides say about the samples behind their numbers."""
    return judge_arrays(dumps, rules) + judge_details(dumps)


def judge_arrays(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the arrays of the two dumps by name, each with its own tolerance."""
    stage, reference, port = dumps.stage, dumps.reference, dumps.port
    tolerances = rules.for_arrays(stage, {**port.arrays, **reference.arrays})
    verdicts = []
    for verdict in compare(reference.arrays, port.arrays, tolerances):
        tolerance = tolerances.get(verdict.subject)
        proof = _vacuous(stage, verdict, tolerance) if tolerance is not None else None
        named = replace(verdict, subject=f"{stage}/{verdict.subject}")
        if verdict.subject not in reference.arrays and reference.side == BENCHMARK:
            named = replace(named, outcome=Outcome.SKIP, reason="no published number in the case's benchmark")
        verdicts.append(replace(named, outcome=Outcome.ERROR, reason=proof) if proof else named)
    named_tolerances = {f"{stage}/{key}": tolerance for key, tolerance in tolerances.items()}
    return Judged(verdicts=tuple(verdicts), tolerances=named_tolerances)


def _vacuous(stage: str, verdict: Verdict, tolerance: Tolerance) -> str | None:
    pattern = VACUOUS_STAGES.get(stage)
    if pattern is None or verdict.diff is None or verdict.outcome is not Outcome.PASS:
        return None
    return vacuous(verdict.diff, tolerance) if fnmatchcase(verdict.subject, pattern) else None


def judge_details(dumps: Dumps) -> Judged:
    """Hold against each other what both sides say about the samples and batches behind their numbers."""
    stage, left, right = dumps.stage, details(dumps.reference), details(dumps.port)
    nan = {side: facts["nan"] for side, facts in (("torch", left), ("paddle", right)) if facts.get("nan")}
    verdicts = [
        Verdict(outcome=Outcome.FAIL, subject=f"{stage}/outputs",
                reason=f"the {side} model put out {count} NaN; metrics of NaN tell nothing", finite=False)
        for side, count in nan.items()
    ]  # fmt: skip
    verdicts += [
        Verdict(outcome=Outcome.FAIL, subject=f"{stage}/{key}",
                reason=f"{words}: expected {str(left[key])[:12]}, actual {str(right[key])[:12]}")
        for key, words in DETAILS.items()
        if key in left and key in right and left[key] != right[key]
    ]  # fmt: skip
    return Judged(verdicts=tuple(verdicts))
