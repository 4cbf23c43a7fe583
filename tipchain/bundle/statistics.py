"""Statistics of what a bundle's dumps hold, for people and for what changed between two bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.judging.tensor_file import TensorFile
from tipchain.parity.record import load_record

Array = npt.NDArray[Any]


def describe(array: Array) -> dict[str, Any]:
    """Return shape, dtype and, of numbers, least, largest, mean and root mean square (float64) of the finite ones."""
    facts: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if array.dtype.kind not in "biuf" or not array.size:
        return facts
    finite = np.isfinite(array)
    values = np.asarray(array if finite.all() else array[finite], dtype=np.float64)
    facts["finite"] = int(finite.sum())
    if values.size:
        facts |= {
            "min": float(values.min()), "max": float(values.max()), "mean": float(values.mean()),
            "rms": float(np.sqrt(np.mean(np.square(values)))),
        }  # fmt: skip
    return facts


def describe_folder(folder: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return statistics of every array, by file and name, of the dumps and safetensors files in ``folder``."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".npy":
            found[path.name] = {name: describe(array) for name, array in load_record(path).arrays.items()}
        elif path.suffix == ".safetensors":
            with TensorFile(path) as tensors:
                found[path.name] = {name: describe(tensors[name]) for name in sorted(tensors)}
    return found
