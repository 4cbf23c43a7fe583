"""Step 3 of the guide, the metric: over the whole evaluation set, and its code alone on equal outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tipchain.core.json_text import Json
from tipchain.errors import Outcome
from tipchain.explain.causes.metrics import ClassifierProbe, make_probe
from tipchain.framework_types import Array, Tensor
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, as_arrays, count_classes, measure, run_evaluation
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details


def record(bench: Bench) -> Recording:
    """Record metrics of the case's weights over the evaluation set, in percent; then their possible sources.

    For a classifier (logits ``[n, c]``, one class number for each sample) that is ``code/<metric>``, the same metrics
    of synthetic outputs, and ``counts/right`` and ``counts/samples`` of the evaluation, by class.
    """
    found = run_evaluation(bench, bench.eval_model())
    details: dict[str, Json] = {"samples": found.samples, "nan": found.nan}
    arrays = dict(found.metrics)
    values = found.output, found.label
    tensors = [bench.framework.array(value) for value in values if bench.framework.is_tensor(value)]
    counts = count_classes(*tensors) if len(tensors) == len(values) else None
    if counts is None:
        return Recording(arrays=arrays, details={**details, "classes": None})
    output = tensors[0]
    probe = make_probe(output.shape[1])
    arrays |= {f"code/{key}": value for key, value in as_arrays(_try(bench, probe)).items()}
    arrays |= {"counts/right": counts[0], "counts/samples": counts[1]}
    return Recording(
        arrays=arrays, details={**details, "classes": output.shape[1], "ties": _try(bench, probe, ties=True)}
    )


def _try(bench: Bench, probe: ClassifierProbe, *, ties: bool = False) -> dict[str, float]:
    """Return a new metric's values of the probe."""
    framework = bench.framework

    def tensor(array: Array) -> Tensor:
        return framework.tensor(array.copy())

    batches = [(tensor(logits), tensor(label)) for logits, label in probe.batches(ties=ties)]
    with framework.inference():
        return measure(framework, bench.builder("metric")(), batches)


# Judge the metric, and say whether its code or the evaluation makes the difference.


CODE, RIGHT, SAMPLES = "code/", "counts/right", "counts/samples"
SHOWN = 4
"""As many classes are named at most."""


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the metrics, those of synthetic outputs, and the counts by class."""
    judged = judging.judge(dumps, rules)
    wrong = {
        verdict.subject for verdict in judged.verdicts if verdict.outcome is Outcome.FAIL and verdict.diff is not None
    }
    verdicts = tuple(_explained(verdict, dumps, wrong) for verdict in judged.verdicts)
    return replace(judged, verdicts=verdicts, notes=(*judged.notes, *_notes(dumps)))


def _explained(verdict: Verdict, dumps: Dumps, wrong: set[str]) -> Verdict:
    """Return a failing verdict with words for where its difference comes from."""
    key = verdict.subject
    if key not in wrong:
        return verdict
    if key in (RIGHT, SAMPLES):
        words = _classes(dumps)
    elif key.startswith(CODE):
        words = _code(key, dumps)
    elif (code := f"{CODE}{key}") not in dumps.reference.arrays or code not in dumps.port.arrays:
        words = ""
    elif code in wrong:
        words = f"the metric's code differs: {_code(code, dumps)}"
    else:
        said, counts = "the metric's code gives the same on equal inputs, so the evaluation differs", _classes(dumps)
        words = f"{said}: {counts}" if counts else said
    return replace(verdict, reason=f"{verdict.reason}; {words}") if words else verdict


def _code(key: str, dumps: Dumps) -> str:
    """Explain the differing numbers for equal inputs."""
    values = [np.ravel(side.arrays[key]) for side in (dumps.reference, dumps.port)]
    if any(value.size != 1 for value in values):
        return ""
    return f"on equal inputs {values[0][0]:.6g} expected, {values[1][0]:.6g} actual"


def _classes(dumps: Dumps) -> str:
    """Name the classes whose counts differ."""
    sides = [(side.arrays.get(RIGHT), side.arrays.get(SAMPLES)) for side in (dumps.reference, dumps.port)]
    (right, samples), (found, seen) = sides
    if right is None or samples is None or found is None or seen is None:
        return ""
    if not right.shape == samples.shape == found.shape == seen.shape:
        return ""
    differing = [
        f"class {number}: {right[number]} of {samples[number]} right expected, {found[number]} of {seen[number]} actual"
        for number in range(len(right))
        if right[number] != found[number] or samples[number] != seen[number]
    ]
    more = f", and {len(differing) - SHOWN} more classes" if len(differing) > SHOWN else ""
    return "; ".join(differing[:SHOWN]) + more


def _notes(dumps: Dumps) -> Iterator[str]:
    left, right = details(dumps.reference), details(dumps.port)
    if "classes" in left and left["classes"] is None:
        yield "the outputs are no logits [n, c] with class numbers [n]: the metric's code was not tried alone"
    ties = [facts.get("ties") for facts in (left, right)]
    if ties[0] != ties[1] and all(isinstance(one, Mapping) for one in ties):
        yield f"where logits are equal the sides rank them differently: {ties[0]} expected, {ties[1]} actual"
