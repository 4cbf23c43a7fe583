"""Default tolerances, and which ones need a reason."""

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


BY_MEAN, BY_ELEMENT = Tolerance(threshold=1e-5), Tolerance(rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    ("tolerance", "default", "looser"),
    [
        (Tolerance(threshold=1e-5), BY_MEAN, False),
        (Tolerance(method="max", threshold=1e-5), BY_MEAN, False),
        (Tolerance(threshold=2e-5), BY_MEAN, True),
        (Tolerance(method="min", threshold=1e-9), BY_MEAN, True),
        (Tolerance(threshold=1e-6, equal_nan=True), BY_MEAN, True),
        (Tolerance(rtol=1e-9, atol=1e-9), BY_MEAN, True),
        (Tolerance(rtol=1e-5, atol=0.0), BY_ELEMENT, False),
        (Tolerance(rtol=2e-4, atol=0.0), BY_ELEMENT, True),
        (Tolerance(rtol=0.0, atol=1e-8), BY_ELEMENT, True),
        (Tolerance(threshold=1e-12), BY_ELEMENT, True),
    ],
)
def test_what_needs_a_reason(tolerance, default, looser):
    assert is_looser(tolerance, default) is looser
