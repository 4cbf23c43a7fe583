"""Fake inputs: what both sides are fed where no data are wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tipchain.parity.case_types import Case


def make_inputs(case: Case) -> dict[str, Any]:
    """Return the case's fake inputs: standard normal floats, uniform integers, from NumPy's seeded generator."""
    arrays: dict[str, Any] = {}
    for name, spec in case.inputs.items():
        generator = np.random.default_rng(spec.seed)
        if np.dtype(spec.dtype).kind == "f":
            arrays[name] = generator.standard_normal(spec.shape).astype(spec.dtype)
        else:
            arrays[name] = generator.integers(spec.low, spec.high, spec.shape).astype(spec.dtype)
    return arrays


def arrays_digest(arrays: Mapping[str, Any]) -> str:
    """Return a SHA-256 of names, dtypes, shapes and values."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
