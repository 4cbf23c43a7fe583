"""Curves and bars: scales, and the places at which the template ``chart.html`` draws them as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, inf, isfinite, log10

SPAN, HEIGHT = 1000, 250
"""Units of the stretched part from side to side, and pixels from top to bottom."""
TOP, BOTTOM = 36, 44
TICKS = 6
LANE = 16
"""Height of the lane below a logarithmic axis, for zeros, and above it, for NaN and infinities."""


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
        """Return the places that have a mark, with their text."""
        if self.log:
            step = max(1, ceil((self.high - self.low) / TICKS))
            return [(self(10.0**power), f"1e{power}") for power in range(ceil(self.low), floor(self.high) + 1, step)]
        apart = max(nice_step((self.high - self.low) / TICKS), 1.0 if self.whole else 0.0)
        marks = range(ceil(self.low / apart - 1e-9), floor(self.high / apart + 1e-9) + 1)
        return [(self(mark * apart), _short(mark * apart, apart)) for mark in marks]


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
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def decades(values: Iterable[float]) -> tuple[float, float]:
    """Return the powers of ten between which all positive finite values are, two at least apart."""
    logs = [log10(value) for value in values if 0 < value < inf]
    if not logs:
        return -8.0, 0.0
    low, high = floor(min(logs) - 0.05), ceil(max(logs) + 0.05)
    return (low, high) if high - low >= 2 else (low - 1, high)


@dataclass(slots=True, kw_only=True)
class Chart:
    """A figure: its caption, its legend, and the places of all that it shows.

    Attributes:
        name: what the caption begins with.
        words: what the caption says behind it.
        title: what the chart is called where it is not seen; its name where that is empty.
        labels: of the horizontal and the vertical axis.
        x: the ends of the horizontal scale, powers of ten where ``log_x``; else whole numbers have marks.
        y: the ends of the vertical one, powers of ten where ``log``.
        shown: what a logarithmic scale must have a lane for where it is zero or not finite.
        counts: the vertical scale has whole numbers only.
        keys: the legend: pairs of a class and its name.
        paths: what is drawn: pairs of a path and its class.
        bars: left side, width, top, height and class of each.
        marks: places of vertical lines with a label.
        table: heads and rows of its values.
    """

    name: str = ""
    words: str = ""
    title: str = ""
    labels: tuple[str, str]
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False
    log_x: bool = False
    shown: Sequence[float] = ()
    counts: bool = False
    keys: list[tuple[str, str]] = field(default_factory=list)
    paths: list[tuple[str, str]] = field(default_factory=list)
    bars: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    table: tuple[Sequence[str], Sequence[Sequence[str]]] | None = None

    @property
    def lanes(self) -> tuple[bool, bool]:
        """Whether zeros are shown, and whether NaN or infinities are."""
        return any(not value for value in self.shown), not all(map(isfinite, self.shown))

    @property
    def across(self) -> Scale:
        """The horizontal scale."""
        return Scale(*self.x, 0, SPAN, log=self.log_x, whole=not self.log_x)

    @property
    def up(self) -> Scale:
        """The vertical scale."""
        below, above = (LANE * lane for lane in self.lanes)
        return Scale(*self.y, HEIGHT - BOTTOM - below, TOP + above, log=self.log, lane=LANE, whole=self.counts)

    @property
    def rows(self) -> list[tuple[float, str]]:
        """The marks of the vertical axis: places, and their text."""
        up = self.up
        lanes = zip((0, inf), ("0", "undefined"), self.lanes, strict=True)
        return [*up.ticks(), *((up(value), words) for value, words, lane in lanes if lane)]

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str, *, stairs: bool = False) -> None:
        """Draw a line; it is broken where a value is not finite, if there is no room for that. One point alone is a dot.

        With ``stairs`` a value holds until the next.
        """
        across, up, undefined = self.across, self.up, self.lanes[1]
        steps: list[str] = []
        pen = "M"
        for x, y in zip(xs, ys, strict=True):
            if not isfinite(y) and not undefined:
                pen = "M"
                continue
            held = stairs and pen == "L"
            steps.append(f"H{across(x):.1f}V{up(y):.1f}" if held else f"{pen}{across(x):.1f} {up(y):.1f}")
            pen = "L"
        if len(steps) == 1:
            self.dots(xs, ys, kind)
        elif steps:
            self.paths.append(("".join(steps), f"line {kind}"))

    def band(self, xs: Sequence[float], low: Sequence[float], high: Sequence[float], kind: str) -> None:
        """Fill the room between two lines."""
        given = [one for one in zip(xs, low, high, strict=True) if all(map(isfinite, one))]
        there = [f"{self.across(x):.1f} {self.up(top):.1f}" for x, _, top in given]
        back = [f"{self.across(x):.1f} {self.up(bottom):.1f}" for x, bottom, _ in reversed(given)]
        if len(given) > 1:
            self.paths.append((f"M{'L'.join([*there, *back])}Z", f"band {kind}"))

    def dots(self, xs: Iterable[float], ys: Iterable[float], kind: str) -> None:
        """Draw dots, all in one path: each is a line of no length with round ends."""
        across, up = self.across, self.up
        path = "".join(f"M{across(x):.1f} {up(y):.1f}h0" for x, y in zip(xs, ys, strict=True))
        if path:
            self.paths.append((path, f"dots {kind}"))

    def columns(self, edges: Sequence[float], heights: Sequence[float], kind: str) -> None:
        """Draw bars from the axis upwards, one between each two edges."""
        across, up = self.across, self.up
        for left, right, height in zip(edges, edges[1:], heights, strict=False):
            if height > 0:
                start, top = across(left), up(height)
                self.bars.append(
                    (start + 0.5, max(across(right) - start - 1, 1), top, max(up.start - top, 1), f"column {kind}")
                )
