"""Results of code around the models: named, matched and held against each other."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.explain.causes.code import differs, leaves, pair_names, shown_apart

ONE, MORE = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2)


class Endless:
    """A sequence that numpy would read for ever."""

    def __len__(self):
        return 1 << 40

    def __getitem__(self, number):
        raise AssertionError("it was read")


def test_nested_results_have_names():
    found = dict(leaves({"boxes": [{"at": [1, 2], "name": "cat"}, None], "scores": ONE, "size": (3, 4)}, []))
    assert list(found) == ["boxes.0.at", "boxes.0.name", "scores", "size"]
    assert found["boxes.0.name"] == "cat"
    assert found["size"].tolist() == [3, 4]
    assert [name for name, _ in leaves((3, 4), [], rows=(list,))] == ["0", "1"]
    assert [name for name, _ in leaves(5, [])] == [""]


def test_an_object_that_is_no_array_is_not_read():
    thing = Endless()
    ((_, found),) = leaves(thing, [])
    assert found.dtype == object
    assert found[()] is thing


@pytest.mark.parametrize(
    ("ours", "theirs", "pairs"),
    [
        ("ab", "ba", {"a": "a", "b": "b"}),
        ("ab", "xy", {"a": "x", "b": "y"}),
        ("ab", "xa", {"a": "a", "b": "x"}),
        ("ab", "a", {"a": "a"}),
    ],
)
def test_names_are_paired_before_the_order_is(ours, theirs, pairs):
    assert pair_names(dict.fromkeys(ours), dict.fromkeys(theirs)) == pairs


def test_what_is_not_alike_is_not_paired():
    assert pair_names({"a": 1, "b": 2}, {"x": 2}, lambda one, other: one == other) == {"b": "x"}


@pytest.mark.parametrize(
    ("expected", "actual", "allowed", "apart"),
    [
        (ONE, ONE.astype(np.float32), None, False),
        (ONE, ONE * (1 + 1e-8), None, False),
        (ONE, ONE * (1 + 1e-3), None, True),
        (ONE, MORE, None, True),
        (ONE, ONE.astype(int), None, True),
        (ONE, ONE.astype(int), 0.0, False),
        (np.array(3), np.array([3]), None, False),
        (np.array([0.0]), np.array([1e-7]), None, True),
        (np.array([0.0]), np.array([1e-7]), 1e-6, False),
        (np.array([np.nan, 1]), np.array([np.nan, 1]), None, False),
        (np.array([np.nan, 1]), np.array([1, np.nan]), 1.0, True),
        (np.array([1, 2]), np.array([1, 3]), None, True),
        ("cat", "dog", None, True),
        ("cat", "dog", np.inf, False),
        ("cat", np.array(1.0), 0.0, True),
        (None, np.array(1.0), 0.0, True),
        (None, None, None, False),
    ],
)
def test_two_results_differ(expected, actual, allowed, apart):
    assert differs(expected, actual, allowed) is apart


def test_one_large_element_of_many_counts():
    other = np.ones(10**6)
    other[5] += 1e-3
    assert differs(np.ones(10**6), other)


def test_values_that_differ_are_shown_with_their_place():
    other = ONE.copy()
    other[1, 2] = 9
    assert shown_apart(ONE, other) == "1 of 6 values, most at [1, 2]: expected 5, actual 9"
    assert shown_apart(np.array(0.123456789), np.array(0.1)) == "expected 0.123456789, actual 0.1"
    assert shown_apart("cat", None) == "expected 'cat', actual nothing"
