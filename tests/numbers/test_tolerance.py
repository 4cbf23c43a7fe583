import pytest

from tipchain.errors import UsageError
from tipchain.numbers.tolerance import Tolerance


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


def test_all_stands_for_three_methods_in_reprod_logs_order():
    assert Tolerance(method="all", threshold=1.0).methods == ("min", "max", "mean")
    assert Tolerance(threshold=1.0).methods == ("mean",)
    assert Tolerance(rtol=0.0, atol=0.0).methods == ()


def test_a_tolerance_says_what_it_allows():
    assert str(Tolerance(threshold=1e-6)) == "mean <= 1e-06"
    assert str(Tolerance(rtol=1e-5, atol=1e-8, equal_nan=True)) == "rtol 1e-05, atol 1e-08, NaN equals NaN"
