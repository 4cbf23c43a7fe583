"""Equivalent, different, or not enough runs: held against scipy's own tests and against simulation."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tipchain.errors import UsageError
from tipchain.numbers.two_samples import ALPHA, grid_step, judge_runs, runs_needed

stats = pytest.importorskip("scipy.stats")

METRIC = st.floats(min_value=0, max_value=100).map(lambda value: round(value, 3))
RUNS = st.lists(METRIC, min_size=2, max_size=12)


@settings(max_examples=100)
@given(reference=RUNS, port=RUNS, margin=st.floats(min_value=0.05, max_value=40))
@example(reference=[80.0, 80.1, 79.9], port=[80.05, 80.0, 80.1], margin=0.2)
def test_the_answers_are_those_of_two_one_sided_tests(reference, port, margin):
    assume(np.ptp(reference) > 0 and np.ptp(port) > 0)

    def p_value(shift: float, alternative: str) -> float:
        return float(
            stats.ttest_ind(np.array(port) - shift, reference, equal_var=False, alternative=alternative).pvalue
        )

    above, below = p_value(-margin, "greater"), p_value(margin, "less")
    beyond = min(p_value(margin, "greater"), p_value(-margin, "less"))
    assume(all(abs(p - ALPHA) > 1e-6 for p in (above, below, beyond)))
    expected = "equivalent" if max(above, below) < ALPHA else "different" if beyond < ALPHA else "not enough runs"
    assert judge_runs(reference, port, margin).answer == expected


@pytest.mark.parametrize(("deviation", "runs"), [(0.1, 9), (0.2, 32)])
def test_the_runs_needed_at_the_guides_margin(deviation, runs):
    assert runs_needed((deviation**2, deviation**2), 0.0, 0.15) == runs


def test_what_is_still_needed_is_told():
    found = judge_runs([80.0, 80.2, 79.8], [80.1, 79.9, 80.0], 0.15)
    assert found.answer == "not enough runs"
    assert found.more > 5
    hopeless = judge_runs([0.0, 100.0], [100.0, 0.0], 0.001)
    assert hopeless.more is None, "more runs than anybody would start"


def test_equal_counts_over_a_small_set_prove_little():
    same = [80.0] * 5
    assert judge_runs(same, same, 0.15).answer == "equivalent"
    found = judge_runs(same, same, 0.15, step=100 / 20)
    assert found.answer == "not enough runs"
    assert found.more > 1000
    assert judge_runs(same, same, 0.15, step=100 / 5000).answer == "equivalent"


@pytest.mark.parametrize(
    ("values", "samples", "step"),
    [([85.0, 90.0], 20, 5.0), ([85.1], 20, 0.0), ([np.float32(100 / 3)], 3, 100 / 3), ([50.0], 0, 0.0)],
)
def test_metrics_that_count_samples_are_recognised(values, samples, step):
    assert math.isclose(grid_step(values, samples), step)


@pytest.mark.parametrize(("runs", "margin"), [(([1.0], [1.0, 2.0]), 0.1), (([1.0, 2.0], [1.0, 2.0]), 0.0)])
def test_wrong_use_is_refused(runs, margin):
    with pytest.raises(UsageError):
        judge_runs(*runs, margin)
