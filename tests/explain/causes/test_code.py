"""Results of code around the models: named, matched and held against each other."""

from array import array
from collections import deque

import numpy as np
import pytest

from tipchain.explain.causes.code import differs, leaves, pair_names, shown_apart

ONE, ZERO, NAN = np.arange(6.0).reshape(2, 3), np.zeros(1), np.array([np.nan, 1])


class Endless:
    """A sequence that numpy would read for ever."""

    def __len__(self):
        return 1 << 40

    def __getitem__(self, number):
        raise AssertionError("it was read")


def test_nested_results_have_names_and_what_is_no_array_is_not_read():
    thing = Endless()
    found = dict(leaves({"boxes": [{"at": [1, 2], "name": "cat"}, None], "scores": ONE, "size": (3, thing)}, []))
    assert list(found) == ["boxes.0.at", "boxes.0.name", "scores", "size.0", "size.1"]
    assert (found["boxes.0.at"].tolist(), found["boxes.0.name"]) == ([1, 2], "cat")
    assert found["size.1"][()] is thing
    assert [name for name, _ in leaves((3, 4), [])] == [""]
    assert [one.tolist() for _, one in leaves([deque([1, 2]), array("d", [3.0])], [])] == [[1, 2], [3.0]]
    assert [name for name, _ in leaves((3, 4), [], rows=(list,))] == ["0", "1"]


@pytest.mark.parametrize(("theirs", "pairs"), [("ba", "ab"), ("xy", "xy"), ("xa", "ax"), ("a", "a")])
def test_names_are_paired_before_the_order_is(theirs, pairs):
    assert pair_names(dict.fromkeys("ab"), dict.fromkeys(theirs)) == dict(zip("ab", pairs, strict=False))
    assert pair_names({"a": 1, "b": 2}, {"x": 2}, lambda one, other: one == other) == {"b": "x"}


@pytest.mark.parametrize(
    ("expected", "actual", "allowed", "apart"),
    [
        (ONE, (ONE * (1 + 1e-8)).astype(np.float32), None, False),
        (ONE, ONE * (1 + 1e-3), None, True),
        (ONE, ONE.T, None, True),
        (ONE, ONE.astype(int), None, True),
        (ONE, ONE.astype(int), 0.0, False),
        (np.array(3), np.array([3]), None, False),
        (ZERO, ZERO + 1e-7, None, True),
        (ZERO, ZERO + 1e-7, 1e-6, False),
        (NAN, NAN.copy(), None, False),
        (NAN, NAN[::-1], 1.0, True),
        (np.ones(10**6), np.ones(10**6) + 1e-3 * (np.arange(10**6) == 5), None, True),
        ("cat", "dog", None, True),
        ("cat", "dog", np.inf, False),
        ("cat", np.array(1.0), 0.0, True),
        (None, np.array(1.0), 0.0, True),
        (np.array(1.0), None, 1e-3, True),
        (np.array(["cat", "dog"]), np.array(["cat", "dog"]), None, False),
        (np.array(["cat", "dog"]), np.array(["cat", "fox"]), None, True),
    ],
)
def test_two_results_differ(expected, actual, allowed, apart):
    assert differs(expected, actual, allowed) is apart


def test_values_that_differ_are_shown_with_their_place():
    assert shown_apart(ONE, ONE * 2) == "5 of 6 values, most at [1, 2]: expected 5, actual 10"
    assert shown_apart(np.array(0.123456789), None) == "expected 0.123456789, actual nothing"


def test_what_is_not_finite_is_counted():
    assert shown_apart(np.array([1.0, 2.0, np.nan]), np.array([1.0, 2.0, 0.0])).startswith("1 of 3 values, most at [2]")
