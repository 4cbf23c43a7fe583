"""Matrices that lie in memory by columns, held against others that lie by rows."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.explain.locate.differences import LARGE, distance, equal, slight_distance
from tipchain.explain.locate.matching import BLOCK, print_of


@pytest.fixture(scope="module")
def matrix():
    return np.random.default_rng(0).standard_normal((130, 201))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_matrices_that_lie_across_are_compared_element_by_element(matrix, dtype):
    expected = (10 * matrix).astype(dtype)
    actual = np.asfortranarray(expected)
    assert equal(expected, actual)
    assert distance(expected, actual) == 0
    actual = actual.copy(order="F")
    actual[129, 200] += 1
    assert not equal(expected, actual)
    assert distance(expected, actual) == pytest.approx(1 / np.sqrt(expected.size))


def test_float32_across_from_float64_is_subtracted_in_float64(matrix):
    rounded = np.asfortranarray(matrix.astype(np.float32))
    assert distance(matrix, rounded) == pytest.approx(np.sqrt(np.mean((matrix - rounded) ** 2)))


def test_not_a_number_counts_where_both_do_not_have_it(matrix):
    one = matrix.copy()
    one[3, 5] = np.nan
    assert distance(one, np.asfortranarray(one)) == 0
    assert distance(one, np.asfortranarray(matrix)) == np.inf
    assert not equal(one, np.asfortranarray(one))
    assert not equal(matrix, matrix[:-1])


@pytest.mark.parametrize("size", [7, BLOCK + 3])
def test_a_print_is_that_of_the_values_in_whatever_order(size):
    values = np.random.default_rng(1).standard_normal(2 * size).astype(np.float32).reshape(2, size)
    assert print_of(values) == print_of(np.ascontiguousarray(values.T)) == print_of(values.T)
    assert print_of(values) == print_of(np.sort(values, axis=None))
    other = values.copy()
    other[1, -1] += 1
    assert print_of(other) != print_of(values)
    assert print_of(np.ones(size, np.float32)) == (size, 0, 0)


@pytest.fixture(scope="module")
def large():
    return np.random.default_rng(1).standard_normal((1024, LARGE // 1024))


def test_large_matrices_that_agree_are_compared_by_projections(large):
    actual = np.asfortranarray(large * (1 + 1e-12 * np.random.default_rng(2).standard_normal(large.shape)))
    assert slight_distance(large, actual) == pytest.approx(distance(large, actual), rel=0.1)


def test_projections_leave_what_differs_to_the_elements(large):
    other = np.random.default_rng(3)
    one_rank = np.outer(other.standard_normal(large.shape[0]), other.standard_normal(large.shape[1]))
    assert slight_distance(large, np.asfortranarray(large + 2.0**-24 * one_rank)) is None
    missing = np.asfortranarray(large)
    missing[5, 7] = np.nan
    assert slight_distance(large, missing) is None
    assert slight_distance(large, large) is None, "these lie alike"
    assert slight_distance(large[:9], np.asfortranarray(large[:9])) is None, "these are small"
    single = large.astype(np.float32)
    assert slight_distance(single, np.asfortranarray(single)) is None
