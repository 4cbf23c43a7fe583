"""Facts about the difference of two arrays; no pass or fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDiff:
    """How ``actual`` (the port) differs from ``expected`` (the reference).

    Statistics are those of ``|expected - actual|``, computed in a type wide enough for the
    inputs. They are NaN where any element's difference is NaN.

    Attributes:
        path: name of the tensor, ``/``-joined where dumps are nested.
        expected_shape: shape of the reference.
        actual_shape: shape of the port.
        expected_dtype: dtype name of the reference.
        actual_dtype: dtype name of the port.
        size: number of elements compared; 0 where the shapes differ or the tensors are empty.
        mean_abs: mean absolute difference.
        max_abs: largest absolute difference.
        min_abs: smallest absolute difference.
        max_rel: largest ``|expected - actual| / |expected|`` over elements with expected != 0.
        worst_index: index of the largest difference (of the first NaN difference, if any).
        worst_expected: the reference's value there.
        worst_actual: the port's value there.
        expected_nan: number of NaN in the reference.
        actual_nan: number of NaN in the port.
        mismatched_nan: number of positions where exactly one side is NaN.
        expected_inf: number of infinities in the reference.
        actual_inf: number of infinities in the port.
        mismatched_inf: positions where one side is infinite and the other is not the same infinity.
        expected_max_abs: largest finite ``|expected|``, for the vacuous-check rule.
        needed_atol: smallest atol with which every element would pass at the given rtol.
    """

    path: str
    expected_shape: tuple[int, ...]
    actual_shape: tuple[int, ...]
    expected_dtype: str
    actual_dtype: str
    size: int
    mean_abs: float
    max_abs: float
    min_abs: float
    max_rel: float
    worst_index: tuple[int, ...]
    worst_expected: float
    worst_actual: float
    expected_nan: int
    actual_nan: int
    mismatched_nan: int
    expected_inf: int
    actual_inf: int
    mismatched_inf: int
    expected_max_abs: float
    needed_atol: float
