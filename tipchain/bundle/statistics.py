"""Statistics of what a bundle's dumps hold, for people and for what changed between two bundles.

They follow from the dumps, so nothing rests on what a bundle says they are: they are computed again and compared.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.bundle.manifest import DUMPS, STATISTICS
from tipchain.json_text import read_json
from tipchain.parity.judging.tensor_file import TensorFile
from tipchain.parity.record import load_record

Array = npt.NDArray[Any]
SUMMED = 1e-9
"""How far a mean may be off, of the largest value, for machines add in other orders: 2**-53 for each of 10 million numbers."""


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


def false_statistics(folder: Path) -> str:
    """Return where a bundle's statistics are not those of its dumps; "" if they are.

    Raises:
        RecordError: a dump cannot be read.
    """
    try:
        told = read_json(folder / STATISTICS)
    except (OSError, ValueError) as error:
        return f"{STATISTICS} cannot be read: {error}"
    found = describe_folder(folder / DUMPS)
    if not isinstance(told, dict) or told.keys() != found.keys():
        return f"{STATISTICS} is of other dumps"
    for file, arrays in found.items():
        if not isinstance(told[file], dict) or told[file].keys() != arrays.keys():
            return f"{STATISTICS} is of other arrays than {file} has"
        for name, facts in arrays.items():
            if not _is_same(told[file][name], facts):
                return f"{STATISTICS} is not what follows from {name} in {file}"
    return ""


def _is_same(told: object, facts: dict[str, Any]) -> bool:
    if not isinstance(told, dict) or told.keys() != facts.keys():
        return False
    room = SUMMED * max(abs(facts.get("min", 0.0)), abs(facts.get("max", 0.0)))
    return all(
        isinstance(told[name], float) and math.isclose(told[name], one, rel_tol=0.0, abs_tol=room)
        if name in ("mean", "rms")
        else told[name] == one
        for name, one in facts.items()
    )
