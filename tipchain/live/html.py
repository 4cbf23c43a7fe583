"""A report of two live models as one HTML file: plots, a tree of layers; no network, no other file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import NamedTuple

from tipchain.core.language import many, template
from tipchain.errors import BAD, Outcome
from tipchain.explain.findings import Finding
from tipchain.explain.locate.verdicts import ORDER, Closeness, LayerVerdict
from tipchain.live.report import PER_DECADE, AlignmentReport, Histogram
from tipchain.numbers.tolerance import SAME_DOUBLE, UNIT
from tipchain.report.page import (
    Chart,
    Markup,
    Section,
    asset,
    banner,
    causes,
    decades,
    element,
    exactly,
    facts_line,
    figure,
    fix,
    lanes,
    linear,
    markup,
    notes,
    number,
    origin,
    outcome,
    page,
    path,
    prose,
    sections,
    short_cause,
    table,
)

SLUGS = {one: one.value.replace(" ", "-") for one in Closeness}
SIGNS = {
    Closeness.BITWISE: "=",
    Closeness.ROUNDING: "≈",
    Closeness.NOT_COMPARABLE: "?",
    Closeness.LOWER_PRECISION: "!",
    Closeness.DIFFERS: "≠",
}
MEANINGS = {
    Closeness.BITWISE: "bitwise: the reference's own bits in float32",
    Closeness.ROUNDING: "rounding: as close as float32 allows",
    Closeness.LOWER_PRECISION: "lower precision: the same function, computed with fewer bits",
    Closeness.DIFFERS: "differs: another function",
    Closeness.NOT_COMPARABLE: "not comparable",
}
DIRECTIONS = ("forward", "backward")
FEW = 24
"""A tree with no more rows than this is open from the start."""


@dataclass(slots=True)
class Node:
    """A layer of the port, and those inside it.

    Attributes:
        name: what its row is called: the last part of its path, or several where nothing else is inside.
        path: its path in the port, empty for the model.
        verdicts: about its own calls.
        children: the layers inside, in the order in which they came.
    """

    name: str
    path: str
    verdicts: list[LayerVerdict] = field(default_factory=list)
    children: dict[str, Node] = field(default_factory=dict)

    def all(self) -> Iterator[LayerVerdict]:
        """Yield every verdict about this layer and those inside."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield from node.verdicts
            waiting += node.children.values()

    def rows(self) -> int:
        """Return how many rows the tree below has."""
        return len(self.children) + sum(one.rows() for one in self.children.values())


def grow(verdicts: Iterable[LayerVerdict]) -> Node:
    """Return the tree of the port's paths that verdicts name."""
    root = Node("the model", "")
    for verdict in verdicts:
        node = root
        for part in verdict.port_path.split(".") if verdict.port_path else ():
            inner = f"{node.path}.{part}" if node.path else part
            node = node.children.setdefault(part, Node(part, inner))
        node.verdicts.append(verdict)
    root.children = {name: _shortened(one) for name, one in root.children.items()}
    return root


def _shortened(node: Node) -> Node:
    """Let a layer that is nothing but the way to another one share its row."""
    node.children = {name: _shortened(one) for name, one in node.children.items()}
    if len(node.children) == 1 and not node.verdicts:
        inner = next(iter(node.children.values()))
        inner.name = f"{node.name}.{inner.name}"
        return inner
    return node


def layer_tree(verdicts: Sequence[LayerVerdict]) -> Markup:
    """Return the tree of the layers, with what narrows it down."""
    root = grow(verdicts)
    present = {one.closeness for one in verdicts}
    legend = [element("li", _sign(one), " ", MEANINGS[one]) for one in reversed(ORDER) if one in present]
    heads = element(
        "div",
        element("span", "layer of the port"),
        element("span", "reference", class_="ref"),
        [
            element("span", element("b", one), element("span", "own"), element("span", "inherited"), class_="errors")
            for one in DIRECTIONS
        ],
        class_="heads",
        aria_hidden="true",
    )
    return markup(
        element("ul", legend, class_="legend"),
        _controls(),
        element("div", heads, _row(root, 0, everything=root.rows() <= FEW), class_="tree", id="tree"),
    )


def _controls() -> Markup:
    """Return what narrows the tree down; a page without JavaScript does not show it."""
    only = element("label", element("input", type="checkbox", id="only-fault"), " only at fault")
    text = element(
        "label",
        element("span", "filter "),
        element(
            "input", type="search", id="filter", placeholder="path or class", autocomplete="off", spellcheck="false"
        ),
    )
    buttons = [
        element("button", words, type="button", id=name)
        for name, words in (("open-all", "open all"), ("close-all", "close all"))
    ]
    told = element("output", id="shown", role="status", data_text=template("{n} of {n2} layers"))
    return element("div", only, text, buttons, told, class_="controls", hidden=True)


def _row(node: Node, depth: int, *, everything: bool) -> Markup:
    """Return the row of a layer with all inside it; layers at fault, and what is around them, are open."""
    below = [one for inner in node.children.values() for one in inner.all()]
    faults = len({one.port_path for one in below if one.at_fault})
    own = [one for one in node.verdicts if one.direction in DIRECTIONS]
    types = list(dict.fromkeys(one.port_type for one in own))
    references = list(dict.fromkeys(one.reference_path or "the model" for one in own))
    name = element(
        "span",
        element("b", path(node.name)),
        element("i", types[0]) if types else None,
        element("em", f"{faults:,} at fault inside") if faults else None,
        class_="name",
    )
    shown = own or below
    summary = element(
        "summary",
        name,
        element("span", [path(one) for one in references[:1]], class_="ref"),
        [_errors(one, shown, rolled=not own) for one in DIRECTIONS],
        style=f"--depth:{depth}",
    )
    body = element("div", [_told(one) for one in own], class_="told", style=f"--depth:{depth}") if own else None
    at_fault = any(one.at_fault for one in own)
    return element(
        "details",
        summary,
        body,
        [_row(one, depth + 1, everything=everything) for one in node.children.values()],
        open=not depth or bool(faults) or (everything and bool(node.children)) or (at_fault and not node.children),
        class_="fault" if at_fault else None,
        data_find=" ".join(
            dict.fromkeys([node.path, *types, *references, *(one.reference_type for one in own)])
        ).lower()
        if own
        else None,
    )


def _errors(direction: str, verdicts: Iterable[LayerVerdict], *, rolled: bool) -> Markup:
    """Return the cells of one direction: the worst of a layer's calls, or of the layers inside it (``rolled``)."""
    found = [one for one in verdicts if one.direction == direction]
    if not found:
        return element("span", class_="errors none")
    worst = max(found, key=lambda one: (ORDER.index(one.closeness), one.own or 0.0))
    inherited = max(one.inherited for one in found)
    return element(
        "span",
        element("b", direction),
        element("span", _sign(worst.closeness), " ", number(worst.own)),
        element("span", number(inherited), class_="inherited"),
        class_=f"errors {SLUGS[worst.closeness]}{' rolled' if rolled else ''}",
    )


def _sign(closeness: Closeness) -> Markup:
    return element("span", SIGNS[closeness], class_=f"sign {SLUGS[closeness]}", role="img", aria_label=closeness.value)


def _told(one: LayerVerdict) -> Markup:
    """Return what one verdict says, in words."""
    call = f"{one.direction}, call {one.turn}" if one.turn else one.direction
    times = "" if one.ratio is None else f" ({one.ratio:.3g} times the reference's own float32 error)"
    method = "" if one.method == "float64" else "; held against float32, for the port does not run in float64"
    return element(
        "p",
        element("b", call),
        ": ",
        _sign(one.closeness),
        " ",
        one.closeness.value,
        ": ",
        one.reason,
        element("span", f"own {number(one.own)}{times}, inherited {number(one.inherited)}{method}", class_="numbers"),
        element(
            "span",
            "port ",
            element("code", path(one.port_path or "the model")),
            f" {one.port_type}, reference ",
            element("code", path(one.reference_path or "the model")),
            f" {one.reference_type}",
            class_="numbers",
        ),
    )


def count_layers(verdicts: Sequence[LayerVerdict]) -> str:
    """Return how many layers were compared, and how many of them are at fault, as text."""
    layers = {(one.port_path, one.reference_path) for one in verdicts}
    faults = {(one.port_path, one.reference_path) for one in verdicts if one.at_fault}
    return f"{many(len(layers), 'layer')} compared, {len(faults) or 'none'} at fault"


# The plots of a report: errors along depth, training, learning rates, histograms.


ROWS = 200
"""Steps that a table of a curve's values has at most; of a longer one every k-th, and the last."""
CROWD = 300
"""Layers from which on dots are small."""
LABEL = 24
"""Characters of a layer's name in a chart: half of a phone's width."""


def _depth(direction: str, verdicts: Sequence[LayerVerdict]) -> Markup | None:
    if not verdicts:
        return None
    errors = [*(one.own or 0.0 for one in verdicts), *(one.inherited for one in verdicts)]
    chart = Chart(
        f"own and inherited error, {direction}",
        (-0.5, len(verdicts) - 0.5),
        decades([*errors, UNIT]),
        (f"layers in the order in which {direction} ran", "relative RMS error"),
        log=True,
        lanes=lanes(errors),
    )
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
                keys.append((f"dot {kind}", f"own: {closeness.value}{', in float64 alone' if double else ''}"))
    keys.append(("line unit", "one rounding to float32"))
    return figure(element("b", direction.capitalize()), chart.svg(), keys)


def _in_double_alone(verdict: LayerVerdict) -> bool:
    """Tell whether a layer that is as good as the reference's was not run by itself in float32."""
    return verdict.closeness is Closeness.ROUNDING and verdict.ratio is None and verdict.method == "float64"


def _end(path: str) -> str:
    return path if len(path) <= LABEL else f"…{path[1 - LABEL :]}"


class Pair(NamedTuple):
    """Two curves that are held against each other.

    Attributes:
        title: of their plot.
        reference: the name of the reference's curve.
        port: the name of the port's.
        unit: what is plotted.
        allowed: the name of how far apart they may be.
        step: what a point is.
        stairs: a value holds until the next.
    """

    title: str
    reference: str
    port: str
    unit: str
    allowed: str = ""
    step: str = "update"
    stairs: bool = False


PAIRS = (
    Pair("Loss in training", "train/reference", "train/port", "loss", allowed="train/allowed"),
    Pair("Learning rate in training", "lr/reference", "lr/port", "learning rate", stairs=True),
    Pair("Learning rate of the schedules", "reference_lr", "port_lr", "learning rate", step="step", stairs=True),
    Pair(
        "Size of the optimizers' updates, both given the same gradients",
        "reference_update",
        "port_update",
        "RMS of the updates",
    ),
)


def curve_plots(curves: Mapping[str, Sequence[float]]) -> Markup:
    """Return a plot for each pair of curves that is known, and one for each other curve but those along depth."""
    known = {name for pair in PAIRS for name in (pair.reference, pair.port, pair.allowed)}
    found = [
        part for pair in PAIRS if curves.get(pair.reference) and curves.get(pair.port) for part in _both(pair, curves)
    ]
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
    chart = Chart(pair.title, _ends(count), linear([*ours, *theirs]), (pair.step, pair.unit))
    keys = [("line reference", "reference"), ("line port", "port")]
    if len(allowed) == count and allowed:
        low, high = (chart.y.low, chart.y.high)  # chaos may allow anything: the band must not flatten the curves
        edges = [
            [min(max(one + sign * width, low), high) for one, width in zip(ours, allowed, strict=True)]
            for sign in (-1, 1)
        ]
        chart.band(steps, edges[0], edges[1], "allowed")
        keys.append(("band allowed", "allowed for the port"))
    chart.line(steps, ours, "reference", stairs=pair.stairs)
    chart.line(steps, theirs, "port", stairs=pair.stairs)
    values = _curve_values(pair, ours, theirs, allowed)
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
        f"{pair.title}: difference",
        _ends(len(apart)),
        decades([*apart, *allowed]),
        (pair.step, f"difference of the {pair.unit}"),
        log=True,
        lanes=lanes([*apart, *allowed]),
    )
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


def _curve_values(pair: Pair, ours: Sequence[float], theirs: Sequence[float], allowed: Sequence[float]) -> Markup:
    every = max(1, -(-len(ours) // ROWS))
    steps = [step for step in range(len(ours)) if step % every == 0 or step == len(ours) - 1]
    heads = [pair.step, "reference", "port", "difference", *(["allowed"] if allowed else [])]
    rows = [
        [
            str(step),
            exactly(ours[step]),
            exactly(theirs[step]),
            number(theirs[step] - ours[step]),
            *([number(allowed[step]) if isfinite(allowed[step]) else "any"] if allowed else []),
        ]
        for step in steps
    ]
    return element("details", element("summary", "values"), table(heads, rows, class_="numeric"), class_="more")


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
            "details",
            element("summary", prose(one.what)),
            _histogram(one),
            open=not place,
            name="histogram",
            class_="more",
        )
        for place, one in enumerate(histograms)
    )


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
        f"differences of {one.what}",
        (edges[0] - room, edges[-1] + room),
        (0, max(one.counts) * 1.08),
        ("absolute difference", "elements"),
        counts=True,
    )
    chart.bars(edges, one.counts, "differs" if one.odd else "plain")
    return figure(words, chart.svg(lambda value: f"1e{value:g}"), ())


CELL_STYLE = """\
.tipchain-report h1 { font-size: 1.2em; margin: 0 0 .4em; }
.tipchain-report .pass strong, .tipchain-report .outcome.pass { color: #1a7f37; }
.tipchain-report .fail strong, .tipchain-report .outcome.fail, .tipchain-report .outcome.error { color: #cf222e; }
.tipchain-report .note, .tipchain-report .evidence { opacity: .75; }
.tipchain-report del { text-decoration: none; background: #cf222e33; }
.tipchain-report ins { text-decoration: none; background: #1a7f3733; }
.tipchain-report .share { display: none; }
"""
ALIKE = 4
"""Findings that differ in nothing but the layer are told together from this number on."""


def render(report: AlignmentReport) -> str:
    """Return the report as HTML; the same report gives the same text."""
    script = asset("page.js") + asset("layers.js")
    body = [_verdict(report), *sections(_sections(report))]
    return page(report.headline, body, style=asset("page.css"), script=script)


def render_cell(report: AlignmentReport) -> str:
    """Return the parts of the page that matter, for the output of a notebook's cell.

    It has no script, no link and no name of its own, and its style reaches nothing else of the notebook.
    """
    parts = [element("div", _verdict(report)), element("h4", "Stages"), _stages(report)]
    if report.diagnoses:
        parts += [element("h4", "Causes"), causes(report.diagnoses)]
    if report.findings:
        parts += [element("h4", "Differences of construction"), _findings(report.findings)]
    body = element("style", Markup(CELL_STYLE)) + element("div", parts, class_="tipchain-report")
    # What buttons copy needs the page's script, and a name would be there once for each cell.
    return re.sub(r"<button.*?</button>| id=\"[^\"]*\"", "", body)


def _sections(report: AlignmentReport) -> Iterator[Section]:
    """Yield the parts that have something to tell: a name, a title, what is inside."""
    yield "stages", "Stages", _stages(report)
    if report.diagnoses:
        yield "causes", "Causes", causes(report.diagnoses)
    yield from detail_sections(report)
    yield "origin", "To see it again", origin(report.command, {**report.origin, **report.versions})


def detail_sections(report: AlignmentReport) -> Iterator[Section]:
    """Yield what live models showed beside stages and causes: layer by layer, along depth, in training."""
    if report.notes:
        yield "notes", "Notes", notes(report.notes)
    if report.findings:
        yield "findings", "Differences of construction", _findings(report.findings)
    if report.layers:
        found = [
            _depth(direction, [one for one in report.layers if one.direction == direction]) for direction in DIRECTIONS
        ]
        yield "depth", "Error along depth", markup(one for one in found if one is not None)
        told = element("p", count_layers(report.layers), class_="note")
        yield "layers", "Layers", markup(told, layer_tree(report.layers))
    curves = curve_plots(report.curves)
    if curves:
        yield "curves", "Training", curves
    if report.histograms:
        yield "histograms", "Differences of tensors", histogram_plots(report.histograms)
    if any(report.unmatched.values()):
        yield "unmatched", "Layers in no pair", _unmatched(report.unmatched.items())
    if report.numbers:
        rows = [
            (_called(name), f"{value:g}" if not value or 1e-3 <= abs(value) < inf else number(value))
            for name, value in report.numbers.items()
        ]
        yield "figures", "Figures", table(("figure", "value"), rows, class_="numeric")


def _tone(report: AlignmentReport) -> str:
    """Return ``pass``, ``fail``, or ``unknown`` where nothing is known to be wrong, nor to be right."""
    if report.passed:
        return "pass"
    return "fail" if Outcome.FAIL in report.stages.values() else "unknown"


def _verdict(report: AlignmentReport) -> Markup:
    """Return what everybody wants to know: whether it passed, else where and why it did not, and what to change."""
    word, _, words = report.headline.partition(": ")
    what = facts_line(report.origin) if report.origin else None
    return banner(_tone(report), word, words, what, _where(report), _why(report))


def _where(report: AlignmentReport) -> Markup | None:
    first = report.first_divergence
    if first is None:
        failed = [name for name, outcome in report.stages.items() if outcome in BAD]
        told = [element("p", element("b", name), ": ", prose(report.reasons.get(name, ""))) for name in failed[:2]]
        return markup(told)
    call = f", call {first.turn}" if first.turn else ""
    return markup(
        element(
            "p",
            "First divergence: ",
            element("code", path(first.port_path or "the model itself")),
            f" ({first.port_type}), {first.direction}{call}; reference ",
            element("code", path(first.reference_path or "the model itself")),
            f" ({first.reference_type})",
        ),
        element(
            "p",
            element("span", SIGNS[first.closeness], class_=f"sign {SLUGS[first.closeness]}", aria_hidden="true"),
            " ",
            prose(first.reason),
            None
            if first.own is None
            else [
                "; ",
                element("span", f"own error {number(first.own)}", class_="error"),
                ", ",
                element("span", f"inherited {number(first.inherited)}", class_="error"),
            ],
        ),
    )


def _why(report: AlignmentReport) -> Markup | None:
    """Return the cause of the first divergence, else the likeliest of all."""
    first = report.first_divergence
    about = [one for one in report.diagnoses if first is not None and first.port_path in one.layers]
    cause = next(iter(about or report.diagnoses), None)
    return None if cause is None else short_cause(cause)


def _stages(report: AlignmentReport) -> Markup:
    rows = [
        (markup(name), outcome(ended), prose(report.reasons.get(name, ""))) for name, ended in report.stages.items()
    ]
    if not rows:
        return element("p", "No stage was run.", class_="note")
    return table(("stage", "outcome", "reason"), rows, class_="stages")


def _findings(found: Sequence[Finding]) -> Markup:
    """Return the differences of construction, those that change nothing apart from the others."""
    grave = [one for one in found if not one.harmless]
    harmless = [one for one in found if one.harmless]
    parts = [_listed(grave)] if grave else []
    if harmless:
        what = many(len(harmless), "difference that changes no result", "differences that change no result")
        parts.append(element("details", element("summary", what), _listed(harmless), class_="more"))
    return markup(parts)


def _listed(found: Sequence[Finding]) -> Markup:
    """Return a list of findings; those that differ in nothing but the layer are one entry."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for one in found:
        groups.setdefault((one.kind, one.code, one.reference, one.port), []).append(one)
    items = [
        element("li", part)
        for group in groups.values()
        for part in ([_group(group)] if len(group) >= ALIKE else map(_finding, group))
    ]
    return element("ul", items, class_="findings")


def _finding(one: Finding) -> Markup:
    return markup(
        element("p", element("code", one.code, class_="slug"), " ", prose(one.message)),
        _values(one),
        fix(one.fix) if one.fix else None,
    )


def _values(one: Finding) -> Markup:
    places = [
        markup(
            side, " ", element("code", path(where)) if where else None, ": " if where else "", element("code", value)
        )
        for side, where, value in (("reference", one.reference_path, one.reference), ("port", one.port_path, one.port))
    ]
    return element("p", places[0], "; ", places[1], class_="evidence")


def _group(group: Sequence[Finding]) -> Markup:
    first = group[0]
    head = element(
        "p",
        element("code", first.code, class_="slug"),
        f" {many(len(group), 'place')}: ",
        prose(first.message),
        f", and {many(len(group) - 1, 'other')}",
    )
    rows = [
        (element("code", path(one.port_path)), element("code", path(one.reference_path)), prose(one.fix))
        for one in group
    ]
    listed = table(("port", "reference", "fix"), rows)
    return markup(
        head, _values(first), element("details", element("summary", f"all {len(group)} of them"), listed, class_="more")
    )


def _unmatched(sides: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    return markup(
        markup(
            element("h3", f"of the {side}: {len(names)}"),
            element("ul", [element("li", path(name)) for name in names], class_="names"),
        )
        for side, names in sides
        if names
    )


def _called(name: str) -> str:
    words = name.replace("_", " ")
    return f"{words} of the model, relative RMS difference" if words.startswith("output ") else words
