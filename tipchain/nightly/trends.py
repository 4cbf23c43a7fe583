"""Small plots of an item's times and metrics over nights, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from tipchain.live.html_chart import Scale, linear
from tipchain.live.html_markup import Markup, element, markup
from tipchain.nightly.timeline import BAD, Row

WIDTH, HEIGHT = 300, 76
LEFT, RIGHT, TOP, BOTTOM = 4, 52, 8, 8
DOT = 2
"""Points up to which each is a dot of its own, so that it is seen."""


def trend_plots(row: Row, turns: Sequence[int], most: int) -> Markup:
    """Return plots of the seconds, the memory and the figures of an item.

    Args:
        row: the item.
        turns: columns whose environment is another than the one's before.
        most: figures that are plotted; the rest is counted.
    """
    bad = [place for place, cell in enumerate(row.cells) if cell and cell.record.outcome in BAD]
    names = _names(row)
    plots = [
        _plot(title, values, turns, bad)
        for title, values in _series(row, names[:most])
        if any(map(isfinite, values))
    ]
    left = len(names) - most
    more = element("p", f"{left} more figures are in the reports.", class_="note") if left > 0 else None
    return markup(element("div", plots, class_="trends") if plots else None, more)


def _names(row: Row) -> list[str]:
    """Return the names of the figures, those of the latest night first."""
    return list(dict.fromkeys(name for cell in reversed(row.cells) if cell for name in cell.figures))


def _series(row: Row, names: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    ran = [cell if cell and cell.record.attempt else None for cell in row.cells]
    yield "seconds", [cell.record.seconds if cell else float("nan") for cell in ran]
    memory = [cell.record.peak_memory_mb if cell else 0.0 for cell in ran]
    yield "memory in MiB", [value or float("nan") for value in memory]
    for name in names:
        yield name, [cell.figures.get(name, float("nan")) if cell else float("nan") for cell in ran]


def _plot(title: str, values: Sequence[float], turns: Sequence[int], bad: Sequence[int]) -> Markup:
    finite = [value for value in values if isfinite(value)]
    low, high, last = min(finite), max(finite), finite[-1]
    x = Scale(0, max(len(values) - 1, 1), LEFT, WIDTH - RIGHT)
    y = Scale(*linear(values), HEIGHT - BOTTOM, TOP)
    lines = "".join(f"M{x(place - 0.5):.0f} 0V{HEIGHT}" for place in turns)
    points = [(place, value) for place, value in enumerate(values) if isfinite(value)]
    told = f"{title}: {_short(low)} to {_short(high)} in {len(finite)} nights, latest {_short(last)}"
    parts: list[Markup | None] = [
        element("path", d=lines, class_="turn") if lines else None,
        element("path", d=_line(points, x, y), class_="line"),
        _dots([one for one in points if one[0] not in bad] if len(points) <= DOT else points[-1:], x, y, ""),
        _dots([one for one in points if one[0] in bad], x, y, " differs"),
        *_labels(low, high, last, y),
    ]
    svg = element("svg", markup(*parts), viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=told)
    return element("figure", element("figcaption", title), svg)


def _line(points: Sequence[tuple[int, float]], x: Scale, y: Scale) -> str:
    """Return a path through points, broken where a night has none."""
    steps, before = [], -2
    for place, value in points:
        steps.append(f"{'L' if place == before + 1 else 'M'}{x(place):.0f} {y(value):.1f}")
        before = place
    return "".join(steps)


def _dots(points: Sequence[tuple[int, float]], x: Scale, y: Scale, kind: str) -> Markup | None:
    path = "".join(f"M{x(place):.0f} {y(value):.1f}h0" for place, value in points)
    return element("path", d=path, class_=f"dots{kind}") if path else None


def _labels(low: float, high: float, last: float, y: Scale) -> Iterator[Markup]:
    """Yield the largest, the least and the latest value at their places, where there is room for them."""
    taken: list[float] = []
    for value in dict.fromkeys((last, high, low)):
        place = y(value) + 4
        if all(abs(place - one) >= 11 for one in taken):
            taken.append(place)
            kind = "last" if value == last else None
            yield element("text", _short(value), x=WIDTH - RIGHT + 6, y=f"{place:.0f}", class_=kind)


def _short(value: float) -> str:
    return f"{value:.4g}"
