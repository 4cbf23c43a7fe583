"""Which numbers count as moved: literals for each rule."""

from __future__ import annotations

import math

import pytest

from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.history.changes import has_moved


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


@pytest.mark.parametrize(
    ("name", "before", "after", "moved"),
    [
        ("seconds", 100.0, 126.0, True),
        ("seconds", 100.0, 124.0, False),
        ("seconds", 1.0, 2.5, False),  # 1.5 s more, not 2
        ("inference_ms", 1.0, 2.5, True),
        ("batch_cost_s", 0.05, 0.08, True),
        ("avg_ips[images/s]", 100.0, 70.0, True),
        ("gpu_util", 10.0, 25.0, False),
        ("cpu_rss_mb", 100.0, 150.0, False),
        ("top1", 0.9, 0.895, False),
        ("top1", 0.9, 0.89, True),
        ("top1", 0.5, math.nan, True),
        ("top1", math.nan, 0.5, True),
        ("top1", math.nan, math.nan, False),
        ("top1", math.inf, math.inf, False),
        ("top1", 1.0, math.inf, True),
    ],
)
def test_a_number_moves_by_more_than_it_may(name, before, after, moved):
    assert has_moved(name, before, after) is moved
