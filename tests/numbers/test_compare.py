from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tipchain.numbers import compare
from tipchain.numbers.compare import count_outside, diff_arrays, largest


def diff(expected, actual, **options):
    return diff_arrays("x", np.asarray(expected), np.asarray(actual), **options)


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        (np.array([0], np.uint8), np.array([255], np.uint8), 255),
        (np.array([-128], np.int8), np.array([127], np.int8), 255),
        (np.array([True]), np.array([False]), 1),
        (np.array([-(2**63)]), np.array([2**63 - 1]), 2**64 - 1),
        (np.array([2**64 - 1], np.uint64), np.array([-1]), 2**64),
        (np.array([-(2**63)]), np.array([2**64 - 1], np.uint64), 2**64 + 2**63 - 1),
        (np.array([2**63 + 7], np.uint64), np.array([5], np.int8), 2**63 + 2),
        (np.array([2**53 + 1]), np.array([2**53]), 1),
    ],
)
def test_integers_differ_by_exact_integers(expected, actual, difference):
    facts = diff(expected, actual)
    assert facts.max_abs == float(difference)
    assert facts.mean_abs == float(difference)
    assert facts.worst_expected == int(expected[0])
    assert facts.worst_actual == int(actual[0])


def test_a_sum_that_overflows_float32_leaves_the_mean_right():
    facts = diff(np.full(1000, 1e38, np.float32), np.zeros(1000, np.float32))
    assert facts.mean_abs == pytest.approx(1e38)


@pytest.mark.parametrize(
    ("array", "expected"),
    [([np.inf, -2.0], 2.0), ([np.nan, -np.inf], 0.0), (np.array([-128, 1], np.int8), 128.0), ([3 + 4j], 5.0)],
)
def test_the_largest_finite_size(array, expected):
    assert largest(array) == expected


def test_nan_and_inf_are_counted_by_position():
    expected = np.array([nan, nan, 1, inf, inf, -inf, 2, 3])
    actual = np.array([nan, 1, nan, inf, -inf, -inf, inf, 3])
    facts = diff(expected, actual)
    assert (facts.expected_nan, facts.actual_nan, facts.mismatched_nan) == (2, 2, 2)
    assert facts.mismatched_inf == 2
    assert isnan(facts.mean_abs)
    assert isnan(facts.max_abs)
    assert facts.worst_index == (0,)
    assert facts.needed_atol == inf
    assert facts.expected_max_abs == 3.0


@pytest.mark.parametrize("size", [5, compare.PIECE, compare.PIECE * 3 + 17])
def test_one_wrong_element_is_found_wherever_it_stands(size):
    expected = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    for at in {0, size // 2, size - 1, min(compare.PIECE, size - 1)}:
        actual = expected.copy()
        actual[at] += 9
        facts = diff(expected, actual)
        assert facts.worst_index == (at,)
        assert facts.max_abs == pytest.approx(9, rel=1e-5)
        assert facts.mean_abs == pytest.approx(9 / size, rel=1e-5)
        actual[at] = nan
        facts = diff(expected, actual)
        assert (facts.worst_index, facts.actual_nan) == ((at,), 1)
        assert isnan(facts.mean_abs)
        assert isnan(facts.min_abs)


def layouts(array):
    turned = np.asfortranarray(array)
    strided = np.zeros((array.shape[0] * 2, array.shape[1]), array.dtype)[::2]
    strided[...] = array
    raw = np.zeros(array.nbytes + 1, np.uint8)
    unaligned = np.frombuffer(raw.data, array.dtype, array.size, 1).reshape(array.shape)
    unaligned[...] = array
    swapped = array.astype(array.dtype.newbyteorder())
    return [array, turned, strided, unaligned, swapped]


def test_layout_alignment_and_byte_order_change_nothing():
    expected = np.random.default_rng(0).standard_normal((300, 301), dtype=np.float32)
    actual = expected.copy()
    actual[17, 250] += 2
    first = diff(expected, actual)
    assert first.worst_index == (17, 250)
    for left in layouts(expected):
        for right in layouts(actual):
            facts = diff(left, right)
            assert facts.worst_index == first.worst_index
            assert facts.max_abs == first.max_abs
            assert facts.mean_abs == pytest.approx(first.mean_abs)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_facts_agree_with_a_plain_computation(data):
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    values = st.floats(-100, 100, width=16)
    expected, actual = (data.draw(hnp.arrays(dtype, shape, elements=values)) for _ in range(2))
    rtol = data.draw(st.sampled_from([0.0, 0.5]))
    e, a = expected.astype(np.float64), actual.astype(np.float64)
    gap = np.abs(e - a)
    facts = diff(expected, actual, rtol=rtol)
    assert facts.mean_abs == pytest.approx(gap.mean(), rel=1e-6)
    assert facts.max_abs == pytest.approx(gap.max(), rel=1e-6)
    assert facts.min_abs == pytest.approx(gap.min(), rel=1e-6)
    assert gap[facts.worst_index] == pytest.approx(gap.max(), rel=1e-6)
    assert facts.expected_max_abs == np.abs(e).max()
    assert facts.needed_atol == pytest.approx(max(0, (gap - rtol * np.abs(e)).max()), rel=1e-5, abs=1e-5)


def test_elements_outside_are_counted():
    expected = np.array([1, 2, inf, nan, 10])
    actual = np.array([1.05, 2.5, inf, nan, 10.5])
    assert count_outside(expected, actual, rtol=0.0, atol=0.1) == 3
    assert count_outside(expected, actual, rtol=0.1, atol=0.0) == 2


@pytest.mark.parametrize("dtype", ["f4", "f8", ">f4"])
def test_tiny_arrays_get_together_what_each_gets_alone(dtype):
    generator = np.random.default_rng(0)
    lengths = [0, *range(1, 130), *generator.integers(1, 12, 300)]
    expected = {f"{n}": generator.normal(size=length).astype(dtype) for n, length in enumerate(lengths)}
    actual = {
        name: (array + 1e-6 * generator.normal(size=array.size)).astype(dtype) for name, array in expected.items()
    }
    expected |= {"number": np.array(2, dtype), "equal": np.ones(3, dtype), "turned": np.ones((2, 3), dtype).T}
    actual |= {"number": np.array(3, dtype), "equal": np.ones(3, dtype), "turned": np.zeros((2, 3), dtype).T}
    odd = {
        "over 0": ([0, 1], [1, 1]),
        "tiny": ([5e-324, 1], [0, 1]),
        "NaN": ([np.nan], [np.nan]),
        "Inf": ([np.inf], [1]),
    }
    expected |= {name: np.array(one, dtype) for name, (one, _) in odd.items()}
    actual |= {name: np.array(other, dtype) for name, (_, other) in odd.items()}
    expected |= {
        "zeros": np.array([[0, 1], [2, 3]], dtype),
        "other shape": np.ones(4, dtype),
        "alone": np.ones(4, dtype),
    }
    actual |= {"zeros": np.array([[0, 1], [2, 4]], dtype), "other shape": np.ones(5, dtype), "whole": np.ones(4, "i8")}
    together = compare.diff_tiny(expected, actual)
    assert {"number", "equal", "zeros", "1", "127", "300"} <= set(together)
    assert not {"NaN", "Inf", "turned", "other shape", "alone", "whole", "0", "128"} & set(together)
    for name, facts in together.items():
        assert facts == diff_arrays(name, expected[name], actual[name])
        assert repr(facts) == repr(diff_arrays(name, expected[name], actual[name]))
