"""Which numbers count as moved: literals for each rule."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import pytest

from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.history import compare
from tipchain.history.compare import BLOCK, is_news, motion, rule_of, spread

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
    found = motion(STEADY, 115.0, SECONDS)
    assert found is not None
    assert (found.how, found.before, found.after, found.nights) == ("step", 100.0, 115.0, 10)


def test_a_time_within_its_noise_is_none():
    assert motion(NOISY, 140.0, SECONDS) is None
    assert motion(STEADY, 140.0, SECONDS) is not None


def test_a_time_must_move_by_a_tenth_however_steady_it_is():
    assert motion(STEADY, 108.0, SECONDS) is None
    assert motion([1.0] * 12, 1.9, SECONDS) is None  # and by a second


def test_what_was_told_the_night_before_is_not_told_again():
    assert motion([*STEADY, 115.0], 115.5, SECONDS) is None
    again = motion([*STEADY, 115.0], 140.0, SECONDS)
    assert again is not None
    assert again.after == 140.0
    back = motion([*STEADY, 115.0], 85.0, SECONDS)
    assert back is not None


def test_coming_back_from_one_slow_night_is_none():
    assert motion([*STEADY, 200.0], 100.0, SECONDS) is None


def test_a_metric_that_never_moved_may_not_move():
    assert motion([0.9] * 10, 0.9, METRIC) is None
    found = motion([0.9] * 10, 0.8995, METRIC)
    assert found is not None
    assert (found.how, found.spread) == ("step", 0.0)


def test_a_slow_drift_is_told_though_no_night_stands_out():
    wobble = (0.4, -0.3, 0.1, -0.4, 0.2)
    values = [100.0 + night + wobble[night % 5] for night in range(25)]
    assert all(abs(b - a) < 2.0 for a, b in pairwise(values))
    found = motion(values[:-1], values[-1], SECONDS)
    assert found is not None
    assert found.how == "drift"
    assert found.before == pytest.approx(100.0, abs=0.5)
    assert found.after == pytest.approx(124.0, abs=0.5)


def test_a_step_long_ago_is_no_drift():
    assert motion([*STEADY, *(value + 20 for value in STEADY)], 120.2, SECONDS) is None


def test_a_drift_lost_in_the_noise_is_none():
    assert motion([value + night * 0.5 for night, value in enumerate(NOISY)], 118.0, SECONDS) is None


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
    found = motion(earlier, value, SECONDS)
    assert (found is not None) is moved
    assert found is None or found.how == "plain"


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
        assert (motion([before] * count, after, METRIC) is not None) is moved


def drifting(nights: int) -> list[float]:
    """Return values that are steady, rise for as many nights, and stay there."""
    wobble = (0.4, -0.3, 0.1, -0.4, 0.2)
    rise = [*(0.0 for _ in range(20)), *(float(night) for night in range(nights)), *(float(nights) for _ in range(20))]
    return [100.0 + up + wobble[night % 5] for night, up in enumerate(rise)]


def told_at(values, told=is_news):
    """Return the nights in which a drift is found, and told."""
    found = []
    for at in range(1, len(values)):
        moved = motion(values[max(at - 30, 0) : at], values[at], SECONDS)
        if moved is not None and moved.how == "drift" and told(values[: at + 1], SECONDS):
            found.append(at)
    return found


def test_a_drift_is_told_once_and_again_when_it_grew_by_as_much_again():
    values = drifting(40)
    assert len(told_at(values, lambda *_: True)) > 30
    first, second, *more = told_at(values)
    assert 25 < first < 40
    assert second >= first + 8
    assert values[second] - values[first] >= 0.7 * (values[first] - 100.0)
    assert len(more) <= 1


def test_what_was_told_does_not_depend_on_the_nights_that_came_after():
    values = drifting(30)
    first = told_at(values)[0]
    assert [is_news(values[: at + 1], SECONDS) for at in (first, first + 1, first + 2)] == [True, False, False]


def test_a_drift_the_other_way_is_another():
    up = drifting(25)
    down = [*up, *(up[-1] - night for night in range(1, 26))]
    found = told_at(down)
    assert any(at > len(up) for at in found)


def test_a_drift_that_lasts_longer_than_the_memory_is_not_told_every_night(monkeypatch):
    known = cache(motion)  # each night's answer looks at those before it anew
    monkeypatch.setattr(compare, "motion", lambda earlier, *value: known(tuple(earlier), *value))
    rising = [100.0 + 0.8 * night + (night % 3) * 0.3 for night in range(2 * BLOCK + 30)]
    assert 1 <= len(told_at(rising)) <= 12
