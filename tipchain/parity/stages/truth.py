"""Stages of the reference in float64: what they would give without rounding, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from tipchain.errors import UsageError
from tipchain.parity.frameworks.base import Array
from tipchain.parity.settings import DOUBLE
from tipchain.parity.stages import Recording, record
from tipchain.parity.stages.bench import Bench

if TYPE_CHECKING:
    from tipchain.parity.frameworks.torch_float64 import TorchFloat64

TRUTH_STAGES = ("forward", "loss", "backward", "train")
"""Stages whose float32 numbers are those of a network, so that only float64 can tell what they should be."""
NOISE = "noise/"
"""What the names of tensors begin with that say how much rounding moves others in float64."""
RUNS = 2
"""Runs from shifted weights: a perturbation and its mirror image."""


def record_truth(stage: str, bench: Bench) -> Recording:
    """Record a stage in float64, arrays and tensors under their usual names.

    ``noise/<name>``, float64 ``[]``, is by how much at most an array moves where the weights start some of float64's
    units in the last place apart: two correct runs in float64 may differ by some times that.

    Raises:
        UsageError: a result is not in float64, for the case's own code asks for another precision.
    """
    framework = cast("TorchFloat64", bench.framework)
    case = replace(bench.case, backward=replace(bench.case.backward, dtype=DOUBLE))
    runs: list[dict[str, Array]] = []
    for shift in (None, *range(RUNS)):
        framework.shift = shift
        framework.seed(case.seed)
        with framework.double_precision():
            recording = record(stage, replace(bench, case=case, _built=[]))
        runs.append({**recording.arrays, **recording.tensors})
    framework.shift = None
    _check_precision(runs[0])
    noise = {
        f"{NOISE}{name}": np.array(max(_moved(one[name], array) for one in runs[1:]))
        for name, array in runs[0].items()
        if array.dtype.kind == "f"
    }
    return Recording(arrays=runs[0], tensors=noise)


def _check_precision(arrays: Mapping[str, Array]) -> None:
    short = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.dtype.itemsize < 8]
    if short:
        raise UsageError(
            f"no float64: {', '.join(short[:3])} came out as {arrays[short[0]].dtype}, "
            "for the case's own code asks for that precision"
        )


def _moved(shifted: Array, array: Array) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.max(np.abs(np.subtract(shifted, array)), initial=0.0))
