"""A case's metric: called once on everything, or fed batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tipchain.blame import UsersError, placed
from tipchain.parity.frameworks.base import Array, Framework, concat_outputs

Batch = tuple[Any, Any]
"""A model's output for one batch, and the labels."""


def measure(framework: Framework, metric: Any, batches: Sequence[Batch]) -> dict[str, float]:
    """Return what a metric says about all batches together.

    Args:
        framework: whose tensors the batches hold.
        metric: what ``build_metric()`` gave: a callable ``metric(output, label)``, which is called once, on all
            batches joined along axis 0; or an object with ``update(output, label)``, called with one batch after
            another, and ``compute()``. Either gives numbers in percent by name.
        batches: outputs and labels, at least one.

    Raises:
        UsersError: the metric is neither, or what it gives is no mapping of names to single numbers.
    """
    if hasattr(metric, "accumulate"):
        raise UsersError(
            f"{placed(metric)}: a metric with accumulate(), whose values have no names\n"
            "  expected: a callable `(output, label) -> {name: percent}`, or an object with `update` and `compute`"
        )
    if hasattr(metric, "update") and hasattr(metric, "compute"):
        for output, label in batches:
            metric.update(output, label)
        return _numbers(metric.compute(), metric)
    if not callable(metric):
        raise UsersError(f"the metric is a {type(metric).__name__}, which cannot be called")
    outputs, labels = ([batch[n] for batch in batches] for n in (0, 1))
    return _numbers(metric(concat_outputs(framework, outputs), concat_outputs(framework, labels)), metric)


def as_arrays(values: Mapping[str, float]) -> dict[str, Array]:
    """Return metric values as a dump holds them: float32 of shape (1,)."""
    return {key: np.array([value], dtype=np.float32) for key, value in values.items()}


def count_classes(output: Array, label: Array) -> tuple[Array, Array] | None:
    """Return how many samples of each class were classified right, and how many there are, int64 ``[c]`` each.

    Args:
        output: logits ``[n, c]``.
        label: class numbers ``[n]``.

    Returns:
        None where these are no such arrays, or a class number is none of the ``c``.
    """
    if not is_classification(output, label):
        return None
    classes = output.shape[1]
    right = label[output.argmax(axis=1) == label]
    return np.bincount(right, minlength=classes), np.bincount(label, minlength=classes)


def is_classification(output: Array, label: Array) -> bool:
    """Tell whether these are logits ``[n, c]`` of at least two classes with one class number for each sample."""
    return (
        output.ndim == 2
        and output.dtype.kind == "f"
        and output.shape[1] > 1
        and label.shape == output.shape[:1]
        and label.dtype.kind in "iu"
        and bool(((label >= 0) & (label < output.shape[1])).all())
    )


def _numbers(found: object, metric: Any) -> dict[str, float]:
    if not isinstance(found, Mapping) or not found:
        raise UsersError(
            f"{placed(metric)}: the metric gave {found!r:.80}\n  expected: percentages by name, such as {{'acc_top1': 75.0}}"
        )
    return {str(key): _number(str(key), value, metric) for key, value in found.items()}


def _number(key: str, value: Any, metric: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsersError(
            f"{placed(metric)}: the metric's {key!r} is no single number: {value!r:.80}"
        ) from error


def count_nan(framework: Framework, outputs: Iterable[Any]) -> int:
    """Return the number of NaN in outputs of any structure."""
    total = 0
    for output in outputs:
        if isinstance(output, Mapping | tuple | list):
            total += count_nan(framework, output.values() if isinstance(output, Mapping) else output)
        elif framework.is_tensor(output):
            total += int(np.count_nonzero(np.isnan(framework.array(output))))
    return total
