"""Curves and grids as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, log10

from tipchain.report.page import Markup, element

SPAN, HEIGHT = 1000, 250
"""Of what is stretched: units from side to side, and pixels from top to bottom."""
TOP, BOTTOM = 36, 44
TICKS = 6
LANE = 16
"""Height of the lane below a logarithmic axis, for zeros; and above it, for what is not finite."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to places, and says which values have a mark.

    Attributes:
        low: the value at ``start``; its logarithm to base 10 on a logarithmic scale.
        high: that at ``end``.
        start: a place in the SVG's units.
        end: another.
        log: whether the scale is logarithmic.
        lane: how far beyond the ends zeros and what is not finite stand, on a logarithmic scale.
        whole: only whole numbers have a mark.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    lane: float = 0
    whole: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        direction = 1.0 if self.end > self.start else -1
        if not isfinite(value):
            return self.end + direction * self.lane
        if self.log and value <= 0:
            return self.start - direction * self.lane
        given = log10(value) if self.log else value
        share = (given - self.low) / ((self.high - self.low) or 1)
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[tuple[float, str]]:
        """Return the values that have a mark, with their text."""
        if self.log:
            step = max(1, ceil((self.high - self.low) / TICKS))
            return [(10.0**power, f"1e{power}") for power in range(ceil(self.low), floor(self.high) + 1, step)]
        apart = max(nice_step((self.high - self.low) / TICKS), 1.0 if self.whole else 0.0)
        places = range(ceil(self.low / apart - 1e-9), floor(self.high / apart + 1e-9) + 1)
        return [(place * apart, _short(place * apart, apart)) for place in places]


def nice_step(wanted: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the smallest that is no less than ``wanted``."""
    if not wanted > 0:
        return 1.0
    power = 10.0 ** floor(log10(wanted))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted * (1 - 1e-9))


def _short(value: float, step: float) -> str:
    if not value or 1e-4 <= abs(value) < 1e6:
        return f"{value:.{max(0, -floor(log10(step) + 1e-9))}f}" if step < 1 else f"{value:g}"
    return f"{value:.2g}" if step > abs(value) / 50 else f"{value:.4g}"


def linear(values: Iterable[float]) -> tuple[float, float]:
    """Return the ends of a linear scale that shows all finite values, with some room; 0 and 1 without any."""
    finite = [one for one in values if isfinite(one)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def decades(values: Iterable[float]) -> tuple[float, float]:
    """Return the powers of ten between which all positive finite values are, two at least apart."""
    logs = [log10(one) for one in values if 0 < one < inf]
    if not logs:
        return -8.0, 0.0
    low, high = floor(min(logs) - 0.05), ceil(max(logs) + 0.05)
    return (low, high) if high - low >= 2 else (low - 1, high)


class Chart:
    """Collects what a chart shows, and returns it as one SVG.

    Args:
        title: what the chart is called where it is not seen.
        x: the ends of its horizontal scale, on which whole numbers have marks.
        y: the ends of its vertical one, powers of ten where ``log``.
        names: of the two axes.
        log: whether the vertical scale is logarithmic.
        lanes: whether a logarithmic scale has room for zeros, and for what is not finite.
        counts: the vertical scale has whole numbers only.
    """

    def __init__(
        self,
        title: str,
        x: tuple[float, float],
        y: tuple[float, float],
        names: tuple[str, str],
        *,
        log: bool = False,
        lanes: tuple[bool, bool] = (False, False),
        counts: bool = False,
    ) -> None:
        below, above = (LANE * one for one in lanes)
        self.title, self.names = title, names
        self.x = Scale(*x, 0, SPAN, whole=True)
        self.y = Scale(*y, HEIGHT - BOTTOM - below, TOP + above, log=log, lane=LANE, whole=counts)
        self._parts: list[Markup] = []
        self._labels: list[Markup] = []
        self._lanes = lanes

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str, *, stairs: bool = False) -> None:
        """Draw a line; it is broken where a value is not finite, if there is no room for that. One point alone is a dot.

        With ``stairs`` a value holds until the next.
        """
        steps: list[str] = []
        pen = "M"
        for x, y in zip(xs, ys, strict=True):
            if not isfinite(y) and not self._lanes[1]:
                pen = "M"
                continue
            steps.append(
                f"H{self.x(x):.1f}V{self.y(y):.1f}"
                if stairs and pen == "L"
                else f"{pen}{self.x(x):.1f} {self.y(y):.1f}"
            )
            pen = "L"
        if len(steps) == 1:
            self.dots(xs, ys, kind)
        elif steps:
            self._parts.append(element("path", d="".join(steps), class_=f"line {kind}"))

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> None:
        """Fill what is between two lines."""
        given = [one for one in zip(xs, low, high, strict=True) if all(map(isfinite, one))]
        there = [f"{self.x(x):.1f} {self.y(top):.1f}" for x, _, top in given]
        back = [f"{self.x(x):.1f} {self.y(bottom):.1f}" for x, bottom, _ in reversed(given)]
        if len(given) > 1:
            self._parts.append(element("path", d=f"M{'L'.join([*there, *back])}Z", class_=f"band {kind}"))

    def dots(self, xs: Iterable[float], ys: Iterable[float], kind: str) -> None:
        """Draw dots, all in one path."""
        places = [
            f"M{self.x(x):.1f} {self.y(y):.1f}h0" for x, y in zip(xs, ys, strict=True)
        ]  # a line of no length with round ends
        if places:
            self._parts.append(element("path", d="".join(places), class_=f"dots {kind}"))

    def bars(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> None:
        """Draw bars from the axis upwards, one between each two edges."""
        floor_ = self.y.start
        for left, right, height in zip(edges, edges[1:], heights, strict=False):
            if height > 0:
                width, top = self.x(right) - self.x(left), self.y(height)
                self._parts.append(
                    element(
                        "rect",
                        x=f"{self.x(left) + 0.5:.1f}",
                        width=f"{max(width - 1, 1):.1f}",
                        y=f"{top:.1f}",
                        height=f"{max(floor_ - top, 1):.1f}",
                        class_=f"column {kind}",
                    )
                )

    def mark(self, x: float, words: str, kind: str) -> None:
        """Draw a vertical line with a label beside its upper end."""
        place = self.x(x)
        right = place > SPAN / 2
        self._parts.append(element("path", d=f"M{place:.1f} {TOP}V{HEIGHT - BOTTOM}", class_=f"mark {kind}"))
        self._labels.append(
            element(
                "text",
                words,
                x=_percent(place),
                y=TOP - 6,
                dx=-5 if right else 5,
                text_anchor="end" if right else "start",
                class_=kind,
            )
        )

    def level(self, y: float, kind: str) -> None:
        """Draw a horizontal line."""
        self._parts.append(element("path", d=f"M0 {self.y(y):.1f}H{SPAN}", class_=f"line {kind}"))

    def svg(self, tell_x: Callable[[float], str] | None = None) -> Markup:
        """Return the chart; ``tell_x`` gives the text of a horizontal mark."""
        stretched = element(
            "svg",
            *self._lines(),
            *self._parts,
            viewBox=f"0 0 {SPAN} {HEIGHT}",
            preserveAspectRatio="none",
            class_="stretched",
            aria_hidden="true",
        )
        names = [
            element("text", self.names[0], x="50%", y=HEIGHT - 6, text_anchor="middle", class_="title"),
            element("text", self.names[1], x=-58, y=14, class_="title"),
        ]
        picture = element(
            "svg",
            stretched,
            *self._marks(tell_x),
            *self._labels,
            *names,
            height=HEIGHT,
            class_="chart",
            role="img",
            aria_label=self.title,
        )
        return element("div", picture, class_="plot")

    def _rows(self) -> list[tuple[float, str]]:
        """Return the marks of the vertical axis: places, and their text."""
        lanes = zip((0, inf), ("0", "undefined"), self._lanes, strict=True)
        return [
            *((self.y(value), words) for value, words in self.y.ticks()),
            *((self.y(value), words) for value, words, lane in lanes if lane),
        ]

    def _lines(self) -> list[Markup]:
        base = HEIGHT - BOTTOM
        return [
            *(element("path", d=f"M0 {place:.1f}H{SPAN}", class_="grid") for place, _ in self._rows()),
            element("path", d=f"M0 {base}H{SPAN}", class_="axis"),
            *(element("path", d=f"M{self.x(value):.1f} {base}v4", class_="axis") for value, _ in self.x.ticks()),
        ]

    def _marks(self, tell: Callable[[float], str] | None) -> list[Markup]:
        return [
            *(element("text", words, x=-7, y=f"{place + 4:.1f}", text_anchor="end") for place, words in self._rows()),
            *(
                element(
                    "text",
                    tell(value) if tell else words,
                    x=_percent(self.x(value)),
                    y=HEIGHT - BOTTOM + 17,
                    text_anchor="middle",
                )
                for value, words in self.x.ticks()
            ),
        ]


def _percent(place: float) -> str:
    return f"{100 * place / SPAN:.2f}%"


def figure(words: str | Markup, chart: Markup, keys: Iterable[tuple[str, str]], *more: Markup) -> Markup:
    """Return a chart with its caption and its legend: pairs of a kind and its name."""
    legend = [
        element("li", element("span", class_=f"key {kind}", aria_hidden="true"), " ", name) for kind, name in keys
    ]
    caption = element("figcaption", words, element("ul", legend, class_="legend") if legend else None)
    return element("figure", caption, chart, more)


def lanes(values: Iterable[float]) -> tuple[bool, bool]:
    """Return whether there are zeros, and whether there is what is not finite."""
    given = list(values)
    return any(not one for one in given), not all(map(isfinite, given))
