"""The plots of a report: errors along depth, training, learning rates, histograms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from tipchain.live.histograms import PER_DECADE, Histogram
from tipchain.live.html_tree import DIRECTIONS, SLUGS
from tipchain.parity.locate.verdicts import ORDER, Closeness, LayerVerdict
from tipchain.parity.rounding import SAME_DOUBLE, UNIT
from tipchain.report.html.chart import Chart, decades, figure, lanes, linear
from tipchain.report.html.page import Markup, element, exactly, many, markup, number, prose, table

ROWS = 200
"""Steps that a table of a curve's values has at most; of a longer one every k-th, and the last."""
CROWD = 300
"""Layers from which on dots are small."""
LABEL = 24
"""Characters of a layer's name in a chart: half of a phone's width."""


def depth_plots(verdicts: Sequence[LayerVerdict]) -> Markup:
    """Return the errors of the layers in the order in which they ran, forward and backward."""
    found = [
        _depth(direction, [one for one in verdicts if one.direction == direction]) for direction in DIRECTIONS
    ]
    return markup(one for one in found if one is not None)


def _depth(direction: str, verdicts: Sequence[LayerVerdict]) -> Markup | None:
    if not verdicts:
        return None
    errors = [*(one.own or 0.0 for one in verdicts), *(one.inherited for one in verdicts)]
    chart = Chart(
        f"own and inherited error, {direction}", (-0.5, len(verdicts) - 0.5), decades([*errors, UNIT]),
        (f"layers in the order in which {direction} ran", "relative RMS error"), log=True, lanes=lanes(errors),
    )  # fmt: skip
    chart.level(UNIT, "unit")
    faults = [place for place, one in enumerate(verdicts) if one.at_fault]
    if faults:
        first = verdicts[faults[0]]
        chart.mark(faults[0], _end(first.port_path) or first.port_type, "fault")
    chart.line(range(len(verdicts)), [one.inherited for one in verdicts], "inherited")
    small = " small" if len(verdicts) > CROWD else ""
    keys = [("line inherited", "inherited: what the layer was given")]
    for closeness in ORDER:
        for double in (False, True):
            own = [
                (place, one.own)
                for place, one in enumerate(verdicts)
                if one.closeness is closeness and one.own is not None and _in_double_alone(one) == double
            ]
            if own:
                kind = f"{SLUGS[closeness]}{' faint' if double else ''}"
                chart.dots([place for place, _ in own], [value for _, value in own], f"{kind}{small}")
                keys.append(
                    (f"dot {kind}", f"own: {closeness.value}{', in float64 alone' if double else ''}")
                )
    keys.append(("line unit", "one rounding to float32"))
    return figure(element("b", direction.capitalize()), chart.svg(), keys)


def _in_double_alone(verdict: LayerVerdict) -> bool:
    """Tell whether a layer that is as good as the reference's was not run by itself in float32."""
    return verdict.closeness is Closeness.ROUNDING and verdict.ratio is None and verdict.method == "float64"


def _end(path: str) -> str:
    return path if len(path) <= LABEL else f"…{path[1 - LABEL :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two curves that are held against each other.

    Attributes:
        title: of their plot.
        reference: the name of the reference's curve.
        port: the name of the port's.
        allowed: the name of how far apart they may be.
        step: what a point is.
        unit: what is plotted.
        stairs: a value holds until the next.
    """

    title: str
    reference: str
    port: str
    allowed: str = ""
    step: str = "update"
    unit: str = ""
    stairs: bool = False


PAIRS = (
    Pair(title="Loss in training", reference="train/reference", port="train/port", allowed="train/allowed", unit="loss"),
    Pair(title="Learning rate in training", reference="lr/reference", port="lr/port", unit="learning rate", stairs=True),
    Pair(title="Learning rate of the schedules", reference="reference_lr", port="port_lr", step="step", unit="learning rate",
         stairs=True),
    Pair(
        title="Size of the optimizers' updates, both given the same gradients", reference="reference_update",
        port="port_update", unit="RMS of the updates",
    ),
)  # fmt: skip


def curve_plots(curves: Mapping[str, Sequence[float]]) -> Markup:
    """Return a plot for each pair of curves that is known, and one for each other curve but those along depth."""
    known = {name for pair in PAIRS for name in (pair.reference, pair.port, pair.allowed)}
    found = [
        part for pair in PAIRS if curves.get(pair.reference) and curves.get(pair.port) for part in _both(pair, curves)
    ]  # fmt: skip
    found += [
        _alone(name, values)
        for name, values in curves.items()
        if name not in known and not name.startswith("depth/") and values
    ]
    return markup(found)


def _both(pair: Pair, curves: Mapping[str, Sequence[float]]) -> Iterator[Markup]:
    count = min(len(curves[pair.reference]), len(curves[pair.port]))
    ours, theirs = (list(curves[name][:count]) for name in (pair.reference, pair.port))
    allowed = list(curves.get(pair.allowed, ()))[:count] if pair.allowed else []
    steps = range(count)
    chart = Chart(
        pair.title, _ends(count), linear([*ours, *theirs]), (pair.step, pair.unit),
    )  # fmt: skip
    keys = [("line reference", "reference"), ("line port", "port")]
    if len(allowed) == count and allowed:
        low, high = (
            chart.y.low,
            chart.y.high,
        )  # chaos may allow anything: the band must not flatten the curves
        edges = [
            [min(max(one + sign * width, low), high) for one, width in zip(ours, allowed, strict=True)]
            for sign in (-1, 1)
        ]
        chart.band(steps, edges[0], edges[1], "allowed")
        keys.append(("band allowed", "allowed for the port"))
    chart.line(steps, ours, "reference", stairs=pair.stairs)
    chart.line(steps, theirs, "port", stairs=pair.stairs)
    values = _values(pair, ours, theirs, allowed)
    if _alike(ours, theirs) and not allowed:
        yield figure(markup(element("b", pair.title), ": the two curves agree"), chart.svg(), keys, values)
        return
    yield figure(markup(element("b", pair.title), _odd(ours, theirs)), chart.svg(), keys, values)
    if allowed:
        yield _apart(pair, ours, theirs, allowed)


def _apart(pair: Pair, ours: Sequence[float], theirs: Sequence[float], allowed: Sequence[float]) -> Markup:
    """Return how far two curves are apart, beside what is allowed."""
    apart = [abs(one - other) for one, other in zip(ours, theirs, strict=True)]
    chart = Chart(
        f"{pair.title}: difference", _ends(len(apart)), decades([*apart, *allowed]),
        (pair.step, f"difference of the {pair.unit}"), log=True, lanes=lanes([*apart, *allowed]),
    )  # fmt: skip
    steps = range(len(apart))
    chart.line(steps, allowed, "allowed")
    chart.line(steps, apart, "port")
    outside = [step for step in steps if not apart[step] <= allowed[step]]
    chart.dots(outside, [apart[step] for step in outside], "differs")
    keys = [("line port", "difference of port and reference"), ("line allowed", "allowed")]
    if outside:
        keys.append(("dot differs", "outside"))
    words = f": outside at {many(len(outside), pair.step)}, first at {outside[0]}" if outside else ""
    return figure(markup(element("b", f"{pair.title}, difference"), words), chart.svg(), keys)


def _values(pair: Pair, ours: Sequence[float], theirs: Sequence[float], allowed: Sequence[float]) -> Markup:
    every = max(1, -(-len(ours) // ROWS))
    steps = [step for step in range(len(ours)) if step % every == 0 or step == len(ours) - 1]
    heads = [pair.step, "reference", "port", "difference", *(["allowed"] if allowed else [])]
    rows = [
        [str(step), exactly(ours[step]), exactly(theirs[step]), number(theirs[step] - ours[step]),
         *([number(allowed[step]) if isfinite(allowed[step]) else "any"] if allowed else [])]
        for step in steps
    ]  # fmt: skip
    return element(
        "details", element("summary", "values"), table(heads, rows, class_="numeric"), class_="more"
    )


def _alone(name: str, values: Sequence[float]) -> Markup:
    chart = Chart(name, _ends(len(values)), linear(values), ("step", name))
    chart.line(range(len(values)), values, "port")
    return figure(element("b", name), chart.svg(), ())


def _ends(count: int) -> tuple[float, float]:
    return (0, count - 1) if count > 1 else (-0.5, 0.5)


def _alike(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    size = max((abs(one) for one in ours if isfinite(one)), default=0.0)
    return all(abs(one - other) <= SAME_DOUBLE * size for one, other in zip(ours, theirs, strict=True))


def _odd(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return where a curve is not finite, in words."""
    sides = [
        f"the {name}'s is not finite at {next(step for step, one in enumerate(values) if not isfinite(one))}"
        for name, values in (("reference", ours), ("port", theirs))
        if not all(map(isfinite, values))
    ]
    return f": {', '.join(sides)}" if sides else ""


def histogram_plots(histograms: Sequence[Histogram]) -> Markup:
    """Return the histograms, one open and the others to be chosen."""
    return markup(
        element(
            "details", element("summary", prose(one.what)), _histogram(one), open=not place, name="histogram",
            class_="more",
        )
        for place, one in enumerate(histograms)
    )  # fmt: skip


def _histogram(one: Histogram) -> Markup:
    size = one.size or 1
    told = [
        f"{many(one.size, 'element')}" + (f" (every {one.every}th)" if one.every > 1 else ""),
        f"{one.same:,} equal ({one.same / size:.1%})",
        *([f"{one.odd:,} not finite on one side"] if one.odd else []),
        f"RMS of the reference {number(one.scale)}",
    ]
    words = ", ".join(told)
    if not one.counts:
        return element("p", words, class_="note")
    edges = [(one.first + place) / PER_DECADE for place in range(len(one.counts) + 1)]
    room = max(0.0, 3 - (edges[-1] - edges[0])) / 2
    chart = Chart(
        f"differences of {one.what}", (edges[0] - room, edges[-1] + room), (0, max(one.counts) * 1.08),
        ("absolute difference", "elements"), counts=True,
    )  # fmt: skip
    chart.bars(edges, one.counts, "differs" if one.odd else "plain")
    return figure(words, chart.svg(_power), ())


def _power(value: float) -> str:
    return f"1e{value:g}"
