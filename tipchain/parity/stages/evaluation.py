"""A model over the whole evaluation set; several stages need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tipchain.parity.frameworks.base import Array, concat_outputs
from tipchain.parity.metrics import as_arrays, count_nan, measure
from tipchain.parity.stages.bench import Bench, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A model's outputs over the evaluation set, in order, and what the case's metric says about them.

    Attributes:
        output: the outputs of all batches joined along axis 0, in the model's own structure.
        label: the labels, likewise.
        metrics: percent, float32 of shape (1,).
        samples: number of samples in the set.
        nan: number of NaN among the outputs: a ranking of NaN looks like any other.
    """

    output: Any
    label: Any
    metrics: dict[str, Array]
    samples: int
    nan: int


def run_evaluation(bench: Bench, model: Any) -> Evaluation:
    """Run ``model``, which is in eval mode, over the whole evaluation set."""
    framework, dataset = bench.framework, bench.dataset("val")
    batches: list[tuple[Any, Any]] = []
    with framework.inference():
        for image, label, _ in framework.batches(dataset, in_order(len(dataset), bench.case.data.batch_size)):
            batches.append((model(image), label))
        metrics = as_arrays(measure(framework, bench.builder("metric")(), batches))
        outputs, labels = ([batch[n] for batch in batches] for n in (0, 1))
        return Evaluation(
            output=concat_outputs(framework, outputs),
            label=concat_outputs(framework, labels),
            metrics=metrics,
            samples=len(dataset),
            nan=count_nan(framework, outputs),
        )


def evaluate(bench: Bench, model: Any) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the metrics over the whole evaluation set, with the numbers of samples and of NaN among the outputs."""
    found = run_evaluation(bench, model)
    return found.metrics, {"samples": found.samples, "nan": found.nan}
