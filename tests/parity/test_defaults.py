"""Default tolerances, and which ones need a reason."""

from __future__ import annotations

import pytest

from tipchain.modes import STAGES
from tipchain.numbers.tolerance import DEFAULTS, Tolerance, is_looser, tolerance_for


def test_every_stage_has_defaults():
    assert set(DEFAULTS) == set(STAGES)


def test_strict_is_the_guides_forward_threshold():
    assert tolerance_for("forward", "logits", {}, strict=True).threshold == pytest.approx(1e-6)
    assert tolerance_for("loss", "loss", {}, strict=True).threshold == pytest.approx(1e-5)


def test_the_cases_own_rule_wins_by_pattern():
    own = {"loss_[34]": Tolerance(threshold=1e-3, reason="measured")}
    assert tolerance_for("backward", "loss_3", own).threshold == pytest.approx(1e-3)
    assert tolerance_for("backward", "loss_0", own).threshold == pytest.approx(1e-5)


def test_a_key_that_no_rule_knows_must_be_equal():
    assert tolerance_for("backward", "surprise", {}).threshold == 0.0


@pytest.mark.parametrize(
    ("tolerance", "looser"),
    [
        (Tolerance(threshold=1e-5), False),
        (Tolerance(threshold=1e-6), False),
        (Tolerance(method="max", threshold=1e-5), False),
        (Tolerance(threshold=2e-5), True),
        (Tolerance(method="min", threshold=1e-9), True),
        (Tolerance(threshold=1e-6, equal_nan=True), True),
        (Tolerance(rtol=1e-9, atol=1e-9), True),
    ],
)
def test_what_needs_a_reason(tolerance, looser):
    assert is_looser(tolerance, Tolerance(threshold=1e-5)) is looser


@pytest.mark.parametrize(
    ("tolerance", "looser"),
    [
        (Tolerance(rtol=1e-4, atol=1e-9), False),
        (Tolerance(rtol=1e-5, atol=0.0), False),
        (Tolerance(rtol=2e-4, atol=0.0), True),
        (Tolerance(rtol=0.0, atol=1e-8), True),
        (Tolerance(rtol=1e-4, atol=1e-9, equal_nan=True), True),
        (Tolerance(threshold=1e-12), True),
    ],
)
def test_what_needs_a_reason_where_elements_are_compared(tolerance, looser):
    assert is_looser(tolerance, Tolerance(rtol=1e-4, atol=1e-9)) is looser
