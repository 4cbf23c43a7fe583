"""A model over the whole evaluation set; several stages need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tipchain.parity.frameworks.base import Array, Framework, concat_outputs
from tipchain.parity.stages.bench import Bench, in_order


def evaluate(bench: Bench, model: Any) -> tuple[dict[str, Array], dict[str, int]]:
    """Return the metrics over the whole evaluation set (percent, float32, shape (1,)).

    With them come the number of samples and of NaN among the outputs: a ranking of NaN looks like any other.
    """
    framework, dataset = bench.framework, bench.dataset("val")
    outputs, labels = [], []
    with framework.inference():
        for image, label, _ in framework.batches(dataset, in_order(len(dataset), bench.case.data.batch_size)):
            outputs.append(model(image))
            labels.append(label)
        output = concat_outputs(framework, outputs)
        metrics = bench.builder("metric")()(output, framework.concat(labels))
    arrays = {key: np.array([float(value)], dtype=np.float32) for key, value in metrics.items()}
    return arrays, {"samples": len(dataset), "nan": _count_nan(framework, output)}


def _count_nan(framework: Framework, output: Any) -> int:
    if isinstance(output, Mapping | tuple | list):
        parts = output.values() if isinstance(output, Mapping) else output
        return sum(_count_nan(framework, part) for part in parts)
    return int(np.count_nonzero(np.isnan(framework.array(output)))) if framework.is_tensor(output) else 0
