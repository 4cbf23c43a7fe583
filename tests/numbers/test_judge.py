import re
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tipchain.errors import Outcome, UsageError
from tipchain.numbers.compare import diff_arrays
from tipchain.numbers.tolerance import METHODS, Tolerance
from tipchain.numbers.verdicts import compare, judge, vacuous

MEAN = Tolerance(threshold=1e-6)
CLOSE = Tolerance(rtol=1e-5, atol=1e-6)
BY_MAX = Tolerance(method="max", threshold=1e-6)
EVERY = [MEAN, BY_MAX, CLOSE, Tolerance(method="all", threshold=1e-6), Tolerance(method="min", threshold=1e-6)]


def verdict_of(expected, actual, tolerance):
    (verdict,) = compare({"x": np.asarray(expected)}, {"x": np.asarray(actual)}, tolerance)
    return verdict


def outcomes(verdicts):
    return {verdict.subject: verdict.outcome for verdict in verdicts}


@pytest.mark.parametrize("tolerance", EVERY)
@pytest.mark.parametrize(
    ("expected", "actual", "reason"),
    [
        ([1.0, nan], [1.0, 1.0], "NaN at different positions: 1 expected, 0 actual, 1 on one side only"),
        ([1.0, 1.0], [1.0, nan], "NaN at different positions"),
        ([nan, nan], [nan, nan], "NaN on both sides at 2 of 2 positions, accepted only with equal_nan"),
        ([inf, 1.0], [-inf, 1.0], "Inf at different positions or of different sign: 1 of 2"),
        ([inf, 1.0], [1.0, 1.0], "Inf at different positions"),
        (np.zeros((64, 1)), np.zeros((1, 64)), r"shapes differ: expected \(64, 1\), actual \(1, 64\)"),
        (np.zeros(1), np.zeros(()), "shapes differ"),
        (np.zeros(2, np.float32), np.zeros(2, np.int64), "dtype kinds differ: expected float32, actual int64"),
        (np.zeros(2, bool), np.zeros(2, np.uint8), "dtype kinds differ: expected bool, actual uint8"),
        (np.zeros(2, np.complex64), np.zeros(2, np.float32), "dtype kinds differ"),
        (np.array([0, 0], np.uint8), np.array([255, 255], np.uint8), r"expected 0, actual 255"),
    ],
)
def test_what_no_tolerance_of_this_size_accepts(expected, actual, reason, tolerance):
    verdict = verdict_of(expected, actual, tolerance)
    assert verdict.outcome is Outcome.FAIL
    assert re.search(reason, verdict.reason), verdict.reason


@pytest.mark.parametrize("tolerance", EVERY)
def test_an_empty_tensor_and_text_are_errors(tolerance):
    verdict = verdict_of(np.zeros((0, 3)), np.zeros((0, 3)), tolerance)
    assert verdict.outcome is Outcome.ERROR
    assert "nothing was compared: the tensor is empty" in verdict.reason
    verdict = verdict_of(np.array(["a"]), np.array(["a"]), tolerance)
    assert (verdict.outcome, verdict.reason[:10]) == (Outcome.ERROR, "no numbers")


def test_the_mean_hides_one_wrong_element_and_says_so():
    expected = np.zeros(10_000_000, np.float32)
    actual = expected.copy()
    actual[1_234_567] = 9.9
    verdict = verdict_of(expected, actual, MEAN)
    assert verdict.outcome is Outcome.PASS
    assert "single elements differ by up to 9.9, worst at (1234567,): expected 0, actual 9.89999962" in verdict.reason
    for tolerance in (BY_MAX, CLOSE):
        verdict = verdict_of(expected, actual, tolerance)
        assert verdict.outcome is Outcome.FAIL
        assert "1 / 10000000 outside" in verdict.reason
        assert "worst at (1234567,)" in verdict.reason


def test_a_failure_names_place_values_bound_and_way_out():
    expected = np.array([[1, 0.8125], [2, 3]], np.float32)
    verdict = verdict_of(expected, np.array([[1, 0.8156], [2, 3]], np.float32), CLOSE)
    assert verdict.reason == (
        "not close · 1 / 4 outside · max 0.0031 · worst at (0, 1): expected 0.8125, actual 0.815599978"
        " · allowed rtol 1e-05, atol 1e-06 · would pass with atol >= 0.0031"
    )
    assert verdict.diff is not None
    assert verdict.diff.worst_index == (0, 1)


@settings(deadline=None)
@given(st.floats(1e-30, 1e30), st.sampled_from(METHODS))
def test_the_way_out_is_a_way_out(difference, method):
    reason = verdict_of([0.0, 0.0], [difference, difference], Tolerance(method=method, threshold=0.0)).reason
    threshold = float(reason.rpartition(">= ")[2])
    assert (
        verdict_of([0.0, 0.0], [difference, difference], Tolerance(method=method, threshold=threshold)).outcome
        is Outcome.PASS
    )
    reason = verdict_of([1.0], [1 + difference], Tolerance(rtol=0.25, atol=0.0)).reason
    if "would pass" in reason:
        atol = float(reason.rpartition(">= ")[2])
        assert verdict_of([1.0], [1 + difference], Tolerance(rtol=0.25, atol=atol)).outcome is Outcome.PASS


def test_missing_extra_and_nested_names():
    reference = {"logits": np.zeros(2), "n": {"a": np.zeros(2), "b": np.zeros(2)}}
    port = {"n": {"a": np.zeros(2)}, "logitz": np.zeros(2)}
    verdicts = compare(reference, port, MEAN)
    assert outcomes(verdicts) == {
        "logits": Outcome.FAIL,
        "n/a": Outcome.PASS,
        "n/b": Outcome.FAIL,
        "logitz": Outcome.FAIL,
    }
    assert verdicts[0].reason == "missing in the port"
    assert verdicts[3].reason == "not in the reference, did you mean 'logits'?"


def test_tolerances_by_name_and_for_the_rest():
    reference, port = {"a": np.zeros(2), "b": np.zeros(2)}, {"a": np.ones(2), "b": np.ones(2)}
    loose = Tolerance(threshold=2.0)
    assert outcomes(compare(reference, port, {"a": loose, "*": MEAN})) == {"a": Outcome.PASS, "b": Outcome.FAIL}
    verdicts = compare(reference, port, {"a": loose})
    assert outcomes(verdicts) == {"a": Outcome.PASS, "b": Outcome.ERROR}
    assert verdicts[1].reason == "no tolerance is given for this tensor"


def test_equal_nan_accepts_nan_at_the_same_positions_only():
    for base in ({"threshold": 1e-6}, {"rtol": 0.0, "atol": 1e-6}):
        tolerance = Tolerance(**base, equal_nan=True)
        assert verdict_of([nan, 1.0], [nan, 1.0], tolerance).outcome is Outcome.PASS
        assert verdict_of([nan, 1.0], [1.0, nan], tolerance).outcome is Outcome.FAIL
        assert verdict_of([nan, 1.0], [nan, 2.0], tolerance).outcome is Outcome.FAIL


def test_an_infinite_threshold_still_refuses_nan_inf_and_shapes():
    anything = Tolerance(method="max", threshold=inf)
    assert verdict_of([1.0], [1e30], anything).outcome is Outcome.PASS
    for pair in ([1.0], [nan]), ([1.0], [inf]), ([1.0], [[1.0]]):
        assert verdict_of(*pair, anything).outcome is Outcome.FAIL


def test_facts_of_another_rtol_are_not_judged():
    facts = diff_arrays("x", np.zeros(2), np.ones(2))
    with pytest.raises(UsageError, match=r"computed with rtol 0\.0, judged with rtol 0\.5"):
        judge(facts, Tolerance(rtol=0.5, atol=0.0), subject="x")


NUMBERS = st.one_of(st.floats(-10, 10, width=32), st.sampled_from([nan, inf, -inf, 0.0, 1e-7]))
BOUNDS = st.one_of(st.floats(0, 20), st.sampled_from([0.0, 1e-6, inf]))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5),
    st.tuples(BOUNDS, BOUNDS),
    st.tuples(BOUNDS, BOUNDS),
    st.sampled_from([*METHODS, None]),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from([np.float32, np.float64]),
)
def test_enlarging_a_tolerance_never_turns_pass_into_fail(pairs, first, second, method, equal_nan, dtype):
    expected, actual = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    small, large = sorted(first), sorted(second)

    def tolerance(at):
        nan_too = sorted(equal_nan)[at]
        if method is None:
            return Tolerance(rtol=small[at], atol=large[at], equal_nan=nan_too)
        return Tolerance(method=method, threshold=small[at], equal_nan=nan_too)

    if verdict_of(expected, actual, tolerance(0)).outcome is Outcome.PASS:
        assert verdict_of(expected, actual, tolerance(1)).outcome is Outcome.PASS


def test_a_check_whose_reference_is_below_the_bound_proves_nothing():
    def proof(expected, tolerance):
        expected = np.asarray(expected)
        return vacuous(diff_arrays("x", expected, expected, rtol=tolerance.rtol or 0.0), tolerance)

    small = np.full(4, 1e-8, np.float32)
    assert "proves nothing" in (proof(small, MEAN) or "")
    assert "proves nothing" in (proof(small, CLOSE) or "")
    assert proof(np.array([1e-8, 1.0], np.float32), MEAN) is None
    assert proof(np.zeros(4), Tolerance(threshold=0.0)) is None  # only zeros pass
    assert proof(np.zeros(4, np.int64), MEAN) is None
    assert proof(small, Tolerance(rtol=1e-3, atol=0.0)) is None


@pytest.mark.parametrize("port", [{"b": np.ones(2)}, {"a": {}, "b": np.ones(2)}])
def test_an_empty_dict_among_arrays_is_no_pass(port):
    verdicts = compare({"a": {}, "b": np.ones(2)}, port, MEAN)
    assert [(verdict.subject, verdict.outcome is Outcome.PASS) for verdict in verdicts] == [("a/", False), ("b", True)]


def test_a_mean_excuses_no_whole_number_unless_a_reason_is_given():
    labels = np.zeros(2_000_000, np.int64)
    wrong = labels.copy()
    wrong[5] = 1
    (verdict,) = compare({"label": labels}, {"label": wrong}, Tolerance(threshold=1e-6))
    assert verdict.outcome is Outcome.FAIL
    assert "worst at (5,)" in verdict.reason
    excused = Tolerance(threshold=1e-6, reason="one tie in two million")
    (verdict,) = compare({"label": labels}, {"label": wrong}, excused)
    assert verdict.outcome is Outcome.PASS
