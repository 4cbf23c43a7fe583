import pytest

from tipchain.errors import UsageError
from tipchain.modes import STAGES
from tipchain.numbers.tolerance import DEFAULTS, Tolerance, is_looser, tolerance_for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs either"),
        ({"threshold": 1e-6, "rtol": 1e-5, "atol": 1e-6}, "not both"),
        ({"rtol": 1e-5}, "together"),
        ({"threshold": -1.0}, "threshold must be a number >= 0"),
        ({"threshold": float("nan")}, "found nan"),
        ({"threshold": 1.0, "method": "median"}, "unknown method 'median', expected one of: mean, min, max, all"),
    ],
)
def test_a_bad_tolerance_is_refused_with_its_reason(arguments, message):
    with pytest.raises(UsageError, match=message):
        Tolerance(**arguments)


def test_a_tolerance_says_what_it_allows():
    assert str(Tolerance(threshold=1e-6)) == "mean <= 1e-06"
    assert str(Tolerance(rtol=1e-5, atol=1e-8, equal_nan=True)) == "rtol 1e-05, atol 1e-08, NaN equals NaN"


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
