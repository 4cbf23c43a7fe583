"""Loss curves against an envelope; no framework is needed."""

import numpy as np
import pytest

from tipchain.parity.envelope import compare_curves

REFERENCE = np.array([2.0, 1.9, 1.8, 1.7])
RUNS = REFERENCE + np.array([[0, 1e-6, -4e-6, 2e-6], [1e-7, -2e-6, 1e-6, 3e-6]])


def test_a_close_port_stays_and_one_that_leaves_is_told_from_its_first_step():
    near = compare_curves(REFERENCE, REFERENCE + np.array([0, 3e-6, -8e-6, 1e-5]), RUNS, 10)
    assert near.outside is None
    assert near.worst == 3
    far = compare_curves(REFERENCE, REFERENCE + np.array([0, 3e-6, 1e-4, 1e-2]), RUNS, 10)
    assert (far.outside, far.worst) == (2, 3)
    assert far.ratios[2] == pytest.approx(25, rel=1e-3)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_loss_that_is_no_number_has_left(odd):
    curve = compare_curves(REFERENCE, np.array([2.0, odd, 1.8, 1.7]), RUNS, 10)
    assert curve.outside == 1
    assert curve.ratios[1] == np.inf


@pytest.mark.parametrize("wide", [1.0, np.nan, np.inf])
def test_where_rounding_alone_reaches_far_nothing_is_told(wide):
    runs = RUNS.copy()
    runs[1, 2] += wide
    curve = compare_curves(REFERENCE, REFERENCE + np.array([0, 0, 0.5, 9.0]), runs, 10)
    assert curve.told == 2
    assert curve.outside is None
    assert compare_curves(REFERENCE, REFERENCE + np.array([0, 1e-3, 0, 0]), runs, 10).outside == 1
