"""Whether two samples are the same, and which sample of one side is which of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.pieces.data_arrays import size
from tipchain.parity.pieces.data_sources import Sample
from tipchain.parity.rounding import SAME_ENLARGED

Array = npt.NDArray[Any]
LARGEST = 1e-4
"""Difference of a single value that is rounding, as a share of the largest."""


def pair_fields(ours: Sample, theirs: Sample) -> dict[str, str]:
    """Return the port's field by the reference's: by name, or by place where names differ.

    Raises:
        ValueError: there are more on one side.
    """
    if len(ours.fields) != len(theirs.fields):
        counts = [", ".join(one.fields) or "one array" for one in (ours, theirs)]
        raise ValueError(f"samples have other fields: {len(ours.fields)} ({counts[0]}) expected, {len(theirs.fields)} ({counts[1]}) actual")  # fmt: skip
    if set(ours.fields) == set(theirs.fields):
        return {name: name for name in ours.fields}
    return dict(zip(ours.fields, theirs.fields, strict=True))


def differing(ours: Sample, theirs: Sample, fields: Mapping[str, str]) -> set[str]:
    """Return the reference's names of the fields that differ."""
    return {
        name
        for name, other in fields.items()
        if name not in ours.fields
        or other not in theirs.fields
        or not same_array(ours.fields[name], theirs.fields[other])
    }


def same_sample(ours: Sample, theirs: Sample) -> bool:
    """Tell whether two samples of one source are the same."""
    return set(ours.fields) == set(theirs.fields) and not differing(
        ours, theirs, {name: name for name in ours.fields}
    )


def same_array(expected: Array, actual: Array) -> bool:
    """Tell whether two arrays are the same but for rounding, axes of size 1 of labels, and the width of their type."""
    if expected.shape != actual.shape:
        if expected.size == actual.size == 1:
            actual = actual.reshape(expected.shape)
        else:
            return False
    kinds = [_kind(one) for one in (expected, actual)]
    if kinds[0] != kinds[1] and expected.size > 1:
        return False
    if kinds == ["whole", "whole"]:
        return bool(np.array_equal(expected.astype(np.int64), actual.astype(np.int64)))
    e, a = (one.astype(np.complex128 if "complex" in kinds else np.float64) for one in (expected, actual))
    usual = np.isfinite(e)
    if not np.array_equal(usual, np.isfinite(a)) or not np.array_equal(e[~usual], a[~usual], equal_nan=True):
        return False
    e, a = e[usual], a[usual]
    off = np.abs(e - a)
    if not off.any():
        return True
    largest = max(float(np.abs(e).max()), float(np.abs(a).max()))
    return (
        size(off) <= SAME_ENLARGED * max(size(np.abs(e)), size(np.abs(a)))
        and float(off.max()) <= LARGEST * largest
    )


def _kind(array: Array) -> str:
    return {"f": "float", "c": "complex"}.get(array.dtype.kind, "whole")


def places_of(
    ours: Sequence[Sample], theirs: Sequence[Sample], fields: Mapping[str, str]
) -> list[int | None]:
    """Return of each of the port's samples which of the reference's it is, None of one that it has not.

    Where samples repeat, the one in the same place is taken, else the first not yet taken.
    """
    keys = np.array([_key(one, fields) for one in ours])
    taken: set[int] = set()
    found: list[int | None] = []
    for number, sample in enumerate(theirs):
        key = _key(sample, {other: other for other in fields.values()})
        near = np.flatnonzero((np.abs(keys - key) <= LARGEST * (1 + np.abs(key))).all(axis=1))
        order = sorted(map(int, near), key=lambda one: (one != number, one in taken, one))
        place = next((one for one in order if not differing(ours[one], sample, fields)), None)
        if place is not None:
            taken.add(place)
        found.append(place)
    return found


def _key(sample: Sample, fields: Mapping[str, str]) -> list[float]:
    """Return a few numbers that equal samples have in common."""
    key: list[float] = []
    for name in fields:
        values = sample.fields.get(name, np.zeros(1)).reshape(-1)
        values = values.real.astype(np.float64) if values.size else np.zeros(1)
        values = np.nan_to_num(values, nan=0.5, posinf=1.5, neginf=-1.5)
        key += [float(values.mean()), float(values.std())]
    return key
