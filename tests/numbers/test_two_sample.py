"""The two-sample tests against scipy's, and how often they are wrong."""

import numpy as np
import pytest

from tipchain.numbers.two_samples import adjust, compare_distribution, compare_mean, compare_share, compare_spread


@pytest.fixture(scope="module")
def stats():
    return pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("size", [1, 37])
def test_equally_many_values_give_the_exact_p_value(stats, size):
    generator = np.random.default_rng(size)
    for shift in (0.0, 0.4):
        left, right = generator.normal(size=size), generator.normal(shift, size=size)
        expected = stats.ks_2samp(left, right, method="exact")
        distance, p = compare_distribution(left, right)
        assert distance == pytest.approx(expected.statistic)
        assert p == pytest.approx(expected.pvalue, rel=1e-9)


@pytest.mark.parametrize("table", [(5, 20, 13, 25), (0, 10, 10, 10), (498, 1000, 401, 1000), (3, 3, 2, 2)])
def test_shares_are_compared_as_fisher_does(stats, table):
    hits, size, other_hits, other_size = table
    expected = stats.fisher_exact([[hits, size - hits], [other_hits, other_size - other_hits]]).pvalue
    assert compare_share(*table) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("law", ["normal", "uniform", "standard_t"])
@pytest.mark.parametrize("compare", [compare_mean, compare_spread])
def test_equal_distributions_are_rarely_called_different(law, compare):
    generator = np.random.default_rng(0)
    draw = getattr(generator, law)
    pairs = draw(3, size=(1500, 2, 30)) if law == "standard_t" else draw(size=(1500, 2, 30))
    p_values = np.array([compare(left, right) for left, right in pairs])
    assert (p_values <= 0.05).mean() <= 0.06
    assert (p_values <= 0.001).mean() <= 0.002
    assert (p_values <= 0.5).mean() >= 0.4, "nor is everything called equal"


def test_what_differs_is_seen():
    generator = np.random.default_rng(0)
    left = generator.normal(size=500)
    assert compare_mean(left, generator.normal(0.5, size=500)) < 1e-6
    assert compare_spread(left, generator.normal(scale=1.4, size=500)) < 1e-6
    uniform = generator.uniform(-(3**0.5), 3**0.5, size=5000)
    assert compare_distribution(generator.normal(size=5000), uniform)[1] < 1e-6


def test_one_outlier_makes_no_difference():
    left, right = np.zeros(50), np.zeros(50)
    left[0] = 1e9
    assert compare_mean(left, right) > 0.1
    assert compare_spread(left, right) > 0.1


def test_holms_correction():
    assert adjust([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjust([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    assert adjust([]) == []
