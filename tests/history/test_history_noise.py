"""Which numbers count as moved: literals for each rule."""

from __future__ import annotations

import math

import pytest

from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.history.changes import moved_from, rule_of, spread

SECONDS, METRIC = rule_of("seconds"), rule_of("top1")
STEADY = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100.0]
NOISY = [100.0, 130.0, 95.0, 122.0, 101.0, 135.0, 98.0, 127.0, 104.0, 118.0, 92.0, 131.0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("seconds", FigureKind.TIME),
        ("total_s", FigureKind.TIME),
        ("batch_cost_s", FigureKind.TIME),
        ("inference_ms", FigureKind.TIME),
        ("avg_ips", FigureKind.SPEED),
        ("qps", FigureKind.SPEED),
        ("gpu_util", FigureKind.SPEED),
        ("cpu_rss_mb", FigureKind.MEMORY),
        ("top1", FigureKind.METRIC),
        ("loss", FigureKind.METRIC),
        ("map50", FigureKind.METRIC),
        ("max_abs", FigureKind.METRIC),
    ],
)
def test_figures_are_of_a_kind(name, kind):
    assert figure_kind(name) is kind


def test_the_spread_is_robust():
    assert spread([1.0, 2.0, 3.0, 4.0, 1000.0]) == pytest.approx(1.4826)
    assert spread([5.0] * 8 + [6.0, 4.0]) == pytest.approx(1.2533 * 0.2)  # the MAD is 0
    assert spread([5.0] * 10) == 0.0


def test_a_time_beyond_its_noise_is_a_step():
    assert moved_from(STEADY, 115.0, SECONDS) == 100.0


def test_a_time_within_its_noise_is_none():
    assert moved_from(NOISY, 140.0, SECONDS) is None
    assert moved_from(STEADY, 140.0, SECONDS) is not None


def test_a_time_must_move_by_a_tenth_however_steady_it_is():
    assert moved_from(STEADY, 108.0, SECONDS) is None
    assert moved_from([1.0] * 12, 1.9, SECONDS) is None  # and by a second


def test_what_was_told_the_night_before_is_not_told_again():
    assert moved_from([*STEADY, 115.0], 115.5, SECONDS) is None
    assert moved_from([*STEADY, 115.0], 140.0, SECONDS) == 100.0
    assert moved_from([*STEADY, 115.0], 85.0, SECONDS) == 100.0


def test_coming_back_from_one_slow_night_is_none():
    assert moved_from([*STEADY, 200.0], 100.0, SECONDS) is None


def test_a_metric_that_never_moved_may_not_move():
    assert moved_from([0.9] * 10, 0.9, METRIC) is None
    assert moved_from([0.9] * 10, 0.8995, METRIC) == 0.9


@pytest.mark.parametrize(
    ("earlier", "value", "moved"),
    [
        ([100.0], 126.0, True),
        ([100.0], 124.0, False),
        ([1.0], 2.5, False),  # 1.5 s more, not 2
        ([50.0] * 8 + [100.0], 126.0, True),  # against the last alone
        ([50.0] * 8 + [100.0], 100.0, False),
        ([], 100.0, False),
    ],
)
def test_with_few_nights_plain_rules_hold(earlier, value, moved):
    assert moved_from(earlier, value, SECONDS) == (earlier[-1] if moved else None)


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (0.5, math.nan, True),
        (math.nan, 0.5, True),
        (math.nan, math.nan, False),
        (math.inf, math.inf, False),
        (1.0, math.inf, True),
    ],
)
def test_becoming_no_number_is_always_told(before, after, moved):
    for count in (1, 12):
        assert (moved_from([before] * count, after, METRIC) is not None) is moved
