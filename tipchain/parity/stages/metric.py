"""Step 3 of the guide, the metric: over the whole evaluation set, and its code alone on equal inputs."""

from __future__ import annotations

from typing import Any

from tipchain.parity.frameworks.base import Array
from tipchain.parity.metric_probe import Probe, make_probe
from tipchain.parity.metrics import as_arrays, count_classes, is_classification, measure
from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.evaluation import Evaluation, run_evaluation


def record(bench: Bench) -> Recording:
    """Metrics of the case's weights over the evaluation set, in percent; then what shows where they come from.

    For a classifier (logits ``[n, c]``, one class number for each sample) that is ``code/<metric>``, the same metrics
    of synthetic outputs, and ``counts/right`` and ``counts/samples`` of the evaluation, by class.
    """
    found = run_evaluation(bench, bench.eval_model())
    details: dict[str, Any] = {"samples": found.samples, "nan": found.nan}
    arrays = dict(found.metrics)
    if not _is_classifier(bench, found):
        return Recording(arrays=arrays, details={**details, "classes": None})
    output, label = (bench.framework.array(value) for value in (found.output, found.label))
    probe = make_probe(output.shape[1])
    arrays |= {f"code/{key}": value for key, value in as_arrays(_try(bench, probe)).items()}
    counts = count_classes(output, label)
    assert counts is not None
    arrays |= {"counts/right": counts[0], "counts/samples": counts[1]}
    return Recording(
        arrays=arrays, details={**details, "classes": output.shape[1], "ties": _try(bench, probe, ties=True)}
    )


def _is_classifier(bench: Bench, found: Evaluation) -> bool:
    if not all(bench.framework.is_tensor(value) for value in (found.output, found.label)):
        return False
    return is_classification(bench.framework.array(found.output), bench.framework.array(found.label))


def _try(bench: Bench, probe: Probe, *, ties: bool = False) -> dict[str, float]:
    """Return what a new metric says about the probe."""
    framework = bench.framework

    def tensor(array: Array) -> Any:
        return framework.tensor(array.copy())

    batches = [(tensor(logits), tensor(label)) for logits, label in probe.batches(ties=ties)]
    with framework.inference():
        return measure(framework, bench.builder("metric")(), batches)
