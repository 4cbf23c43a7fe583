"""Step 3 of the guide, the metric."""

from __future__ import annotations

from tipchain.parity.stages.bench import Bench, Recording
from tipchain.parity.stages.evaluation import evaluate


def record(bench: Bench) -> Recording:
    """Metrics of the initial weights over the whole evaluation set, in percent."""
    metrics, facts = evaluate(bench, bench.eval_model())
    return Recording(arrays=metrics, details=facts)
