"""Matrices that lie in memory by columns, held against others that lie by rows."""

import numpy as np
import pytest

from tipchain.explain.locate.differences import distance, equal, projections, relative, rms
from tipchain.explain.locate.matching import BLOCK, print_of
from tipchain.numbers.tolerance import SAME_DOUBLE


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


@pytest.mark.parametrize("scale", [1e-44, 1.0, 3e37])
def test_sizes_and_distances_of_float32_are_those_of_float64_at_every_magnitude(matrix, scale):
    expected = (matrix * scale).astype(np.float32)
    actual = (expected * np.float32(1.01)).astype(np.float32)
    wide = expected.astype(np.float64)
    assert rms(expected) == pytest.approx(np.sqrt(np.mean(wide**2)), rel=1e-5, abs=0)
    assert distance(expected, actual) == pytest.approx(np.sqrt(np.mean((actual - wide) ** 2)), rel=1e-5, abs=0)
    assert distance(expected, expected.copy()) == 0
    actual = expected.copy()
    actual[129, 200] = np.nextafter(actual[129, 200], np.float32(np.inf))
    assert distance(expected, actual) == pytest.approx(
        abs(actual - wide).max() / np.sqrt(expected.size), rel=1e-5, abs=0
    )


def test_real_numbers_are_complex_ones_without_imaginary_part():
    waves = np.array([3 + 4j, 1, 1], np.complex64)
    assert distance(waves, waves.real) == distance(waves.real, waves) == pytest.approx(4 / np.sqrt(3))
    assert distance(waves.real, waves.real + 0j) == 0


def test_not_a_number_counts_where_both_do_not_have_it(matrix):
    one = matrix.copy()
    one[3, 5] = np.nan
    assert distance(one, np.asfortranarray(one)) == distance(one, one.copy()) == 0
    assert distance(one.astype(np.float32), one.astype(np.float32)) == 0
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
    return np.random.default_rng(1).standard_normal((1024, 1025))


def test_projections_keep_sizes_and_distances_however_a_matrix_lies(large):
    apart = 1e-9 * np.random.default_rng(2).standard_normal(large.shape)
    actual = np.asfortranarray(large + apart)
    assert rms(projections(large)) == pytest.approx(rms(large), rel=0.1)
    assert relative(projections(large), projections(actual)) == pytest.approx(relative(large, actual), rel=0.1)
    assert projections(large.reshape(1024, 5, 205)).shape == projections(large).shape


def test_projections_tell_of_a_difference_of_one_rank_and_of_nan(large):
    other = np.random.default_rng(3)
    one_rank = np.outer(other.standard_normal(large.shape[0]), other.standard_normal(large.shape[1]))
    assert relative(projections(large), projections(large + 2.0**-24 * one_rank)) > SAME_DOUBLE
    missing = large.copy()
    missing[5, 7] = np.nan
    assert not np.isfinite(rms(projections(missing)))
