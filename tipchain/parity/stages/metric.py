"""Step 3 of the guide, the metric: over the whole evaluation set, and its code alone on equal outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tipchain.core.json_text import Json
from tipchain.errors import Outcome
from tipchain.explain.causes.metrics import make_probe
from tipchain.parity.stages import judging
from tipchain.parity.stages.bench import Bench, Recording, as_arrays, measure, run_evaluation
from tipchain.parity.stages.judging import Dumps, Judged, Rules, details


def record(bench: Bench) -> Recording:
    """Record metrics of the case's weights over the evaluation set, in percent.

    For a classifier (logits ``[n, c]``, one class number for each sample) also ``code/<metric>``, the same metrics of
    synthetic outputs.
    """
    framework = bench.framework
    arrays, facts, *outputs = run_evaluation(bench, bench.eval_model())
    details: dict[str, Json] = {**facts, "classes": None}
    tensors = [framework.array(value) for value in outputs if framework.is_tensor(value)]
    output, labels = tensors if len(tensors) == 2 else (np.zeros(0), np.zeros(0))
    logits_of_classes = output.ndim == 2 and output.dtype.kind == "f" and output.shape[1] >= 2
    numbers = labels.dtype.kind in "iu" and labels.shape == output.shape[:1]
    if logits_of_classes and numbers and bool(((labels >= 0) & (labels < output.shape[1])).all()):
        details["classes"] = output.shape[1]
        probe = make_probe(output.shape[1])
        batches = [(framework.tensor(logits), framework.tensor(label)) for logits, label in probe]
        with framework.inference():
            code = measure(framework, bench.builder("metric")(), batches)
        arrays |= {f"code/{key}": value for key, value in as_arrays(code).items()}
    return Recording(arrays=arrays, details=details)


# Judge the metric, and say whether its code or the evaluation makes the difference.


CODE = "code/"


def judge(dumps: Dumps, rules: Rules) -> Judged:
    """Compare the metrics, and those of synthetic outputs."""
    judged, notes = judging.judge(dumps, rules), []
    wrong = {
        verdict.subject for verdict in judged.verdicts if verdict.outcome is Outcome.FAIL and verdict.diff is not None
    }
    if details(dumps.reference).get("classes", 0) is None:
        notes.append("the outputs are no logits [n, c] with class numbers [n]: the metric's code was not tried alone")

    def code_of(key: str) -> str:
        """Explain the differing numbers for equal inputs."""
        values = [np.ravel(side.arrays[key]) for side in (dumps.reference, dumps.port)]
        if any(value.size != 1 for value in values):
            return ""
        return f"on equal inputs {values[0][0]:.6g} expected, {values[1][0]:.6g} actual"

    verdicts = list(judged.verdicts)
    for number, verdict in enumerate(verdicts):
        key, code, words = verdict.subject, f"{CODE}{verdict.subject}", ""
        if key not in wrong:
            continue
        if key.startswith(CODE):
            words = code_of(key)
        elif code in wrong:
            words = f"the metric's code differs: {code_of(code)}"
        elif code in dumps.reference.arrays and code in dumps.port.arrays:
            words = "the metric's code gives the same on equal inputs, so the evaluation differs"
        verdicts[number] = replace(verdict, reason=f"{verdict.reason}; {words}") if words else verdict
    return replace(judged, verdicts=verdicts, notes=(*judged.notes, *notes))
