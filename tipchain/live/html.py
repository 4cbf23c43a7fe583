"""A report of two live models as one HTML file: plots, a tree of layers; no network, no other file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf, isfinite
from typing import NamedTuple

from tipchain.core.language import many, template
from tipchain.errors import BAD
from tipchain.explain.findings import SIDE_NAMES
from tipchain.explain.locate.verdicts import ORDER, Closeness, LayerVerdict
from tipchain.live.report import PER_DECADE, AlignmentReport, Histogram
from tipchain.numbers.tolerance import SAME_DOUBLE, UNIT
from tipchain.numbers.verdicts import Verdict
from tipchain.report.charts import Chart, decades, linear
from tipchain.report.model import RunReport
from tipchain.report.page import PageSection, exactly, number, render_run
from tipchain.weights.structure import group_by


class Sign(NamedTuple):
    """How a page shows a `Closeness`: by a sign, not by color alone."""

    name: str
    slug: str
    sign: str
    meaning: str


SIGNS = {
    one: Sign(one.value, one.value.replace(" ", "-"), sign, meaning)
    for one, sign, meaning in (
        (Closeness.BITWISE, "=", "bitwise: the reference's own bits in float32"),
        (Closeness.ROUNDING, "≈", "rounding: as close as float32 allows"),
        (Closeness.LOWER_PRECISION, "!", "lower precision: the same function, computed with fewer bits"),
        (Closeness.DIFFERS, "≠", "differs: another function"),
        (Closeness.NOT_COMPARABLE, "?", "not comparable"),
    )
}
FEW = 24
"""A tree with no more rows than this is open from the start."""
ALIKE = 4
"""Findings that differ in nothing but the layer are told together from this number on."""


def render_cell(report: AlignmentReport) -> str:
    """Return the parts of the page that matter, for the output of a notebook's cell.

    What buttons copy needs the page's script, and a name would be there once for each cell.
    """
    return re.sub(r"<button.*?</button>| id=\"[^\"]*\"", "", render(report, "cell.html"))


def render(report: AlignmentReport, template: str = "run.html") -> str:
    """Return the report as HTML by a template; the same report gives the same text."""
    first = report.first_divergence
    verdict = report.headline.partition(": ")[2]
    if first is None and not report.uncompared:
        bad = [f"{name}: {report.reasons.get(name, '')}" for name, ended in report.stages.items() if ended in BAD]
        verdict = ": ".join(filter(None, (verdict, "; ".join(bad[:2]))))
    origin = report.origin
    causes = sorted(report.diagnoses, key=lambda one: first is None or first.port_path not in one.layers)
    run = RunReport(  # of which the stages are the report's checks; the cause of the first divergence comes first
        started=origin.get("date", ""),
        versions=report.versions,
        where={"commit": origin["commit"]} if origin.get("commit") else {},
        models={name: origin[name] for name in ("reference", "port") if origin.get(name)},
        verdicts=tuple(Verdict(ended, name, report.reasons.get(name, "")) for name, ended in report.stages.items()),
        diagnoses=tuple(causes),
        uncompared=tuple(report.uncompared),
    )
    sections = detail_sections(report)
    return render_run(run, sections, verdict=verdict, command=report.command, first=first, template=template)


def detail_sections(report: AlignmentReport) -> Iterator[PageSection]:
    """Yield the findings beside stages and causes: layer by layer, along depth, in training."""
    if report.notes:
        yield PageSection("notes-live", "Notes", report.notes)
    if report.findings:
        groups = group_by(report.findings, lambda one: (one.harmless, one.code, one.name, one.reference, one.port))
        parts = [
            part for ones in groups.values() for part in ([ones] if len(ones) >= ALIKE else [[one] for one in ones])
        ]
        listed: Mapping[str, object] = {
            "grave": [ones for ones in parts if not ones[0].harmless],
            "harmless": [ones for ones in parts if ones[0].harmless],
            "count": sum(one.harmless for one in report.findings),
        }
        yield PageSection("findings", "Differences of construction", listed)
    if report.layers:
        found = group_by(report.layers, lambda one: one.direction)
        charts = [_depth(direction, found[direction]) for direction in ("forward", "backward") if direction in found]
        yield PageSection("depth", "Error along depth", charts)
        root, present = grow(report.layers), {one.closeness for one in report.layers}
        layers = {(one.port_path, one.reference_path) for one in report.layers}
        faults = {(one.port_path, one.reference_path) for one in report.layers if one.at_fault}
        tree: Mapping[str, object] = {
            "counted": f"{many(len(layers), 'layer')} compared, {len(faults) or 'none'} at fault",
            "legend": [SIGNS[one] for one in reversed(ORDER) if one in present],
            "shown": template("{n} of {n2} layers"),
            "root": root,
            "everything": root.rows() <= FEW,
        }
        yield PageSection("layers", "Layers", tree)
    # A plot for each pair of curves that is known, and one for each other curve but those along depth.
    known = {name for pair in PAIRS for name in (pair.reference, pair.port, pair.allowed)}
    both = [pair for pair in PAIRS if report.curves.get(pair.reference) and report.curves.get(pair.port)]
    curves = [chart for pair in both for chart in _both(pair, report.curves)]
    for name, values in report.curves.items():
        if name not in known and not name.startswith("depth/") and values:
            chart = Chart(name=name, labels=("step", name), x=_ends(len(values)), y=linear(values))
            chart.line(range(len(values)), values, "port")
            curves.append(chart)
    if curves:
        yield PageSection("curves", "Training", curves)
    if report.histograms:
        histograms = [(one.what, _histogram(one)) for one in report.histograms]
        yield PageSection("histograms", "Differences of tensors", histograms)
    if any(report.unmatched.values()):
        yield PageSection("unmatched", "Layers in no pair", report.unmatched)
    if report.numbers:
        rows = []
        for name, value in report.numbers.items():
            of_output = f"{name} of the model, relative RMS difference"
            label = of_output if name.startswith("output ") else name.replace("_", " ")
            rows.append((label, f"{value:g}" if not value or 1e-3 <= abs(value) < inf else number(value)))
        yield PageSection("figures", "Figures", rows)


# The tree of the layers.


@dataclass(slots=True)
class Node:
    """A layer of the port, and those inside it.

    Attributes:
        name: what its row is called: the last part of its path, or several where nothing else is inside.
        path: its path in the port, empty for the model.
        own: the verdicts about its own calls.
        children: the layers inside, in the order in which they came.
    """

    name: str
    path: str
    own: list[LayerVerdict] = field(default_factory=list)
    children: dict[str, Node] = field(default_factory=dict)

    def all(self) -> Iterator[LayerVerdict]:
        """Yield every verdict about this layer and those inside."""
        yield from self.own
        for inner in self.children.values():
            yield from inner.all()

    def rows(self) -> int:
        """Return how many rows the tree below has."""
        return len(self.children) + sum(inner.rows() for inner in self.children.values())

    @property
    def at_fault(self) -> bool:
        """Whether the layer itself is wrong."""
        return any(one.at_fault for one in self.own)

    @property
    def faults_inside(self) -> int:
        """How many layers inside are wrong."""
        return len({one.port_path for inner in self.children.values() for one in inner.all() if one.at_fault})

    @property
    def find(self) -> str:
        """The text that a filter finds it by."""
        words = [self.path, *(one.port_type for one in self.own)]
        words += [word for one in self.own for word in (one.reference_path or "the model", one.reference_type)]
        return " ".join(dict.fromkeys(words)).lower()

    def errors(self, direction: str) -> tuple[LayerVerdict, float] | None:
        """Return the worst verdict of one direction, and the largest inherited error: of its own calls, else of the layers inside."""
        found = [one for one in self.own or self.all() if one.direction == direction]
        if not found:
            return None
        worst = max(found, key=lambda one: (ORDER.index(one.closeness), one.own or 0.0))
        return worst, max(one.inherited for one in found)

    @staticmethod
    def sign(verdict: LayerVerdict) -> Sign:
        """Return how a verdict is shown."""
        return SIGNS[verdict.closeness]


def grow(verdicts: Iterable[LayerVerdict]) -> Node:
    """Return the tree of the port's paths that verdicts name."""
    root = Node("the model", "")
    for verdict in verdicts:
        node = root
        for part in verdict.port_path.split(".") if verdict.port_path else ():
            inner = f"{node.path}.{part}" if node.path else part
            node = node.children.setdefault(part, Node(part, inner))
        node.own.append(verdict)

    def shortened(node: Node) -> Node:
        """Let a layer that is nothing but the way to another one share its row."""
        node.children = {name: shortened(one) for name, one in node.children.items()}
        if len(node.children) == 1 and not node.own and node is not root:
            inner = next(iter(node.children.values()))
            inner.name = f"{node.name}.{inner.name}"
            return inner
        return node

    return shortened(root)


# The plots of a report: errors along depth, training, learning rates, histograms.


ROWS = 200
"""Steps that a table of a curve's values has at most; of a longer one every k-th, and the last."""
CROWD = 300
"""Layers from which on dots are small."""
LABEL = 24
"""Characters of a layer's name in a chart: half of a phone's width."""


def _depth(direction: str, verdicts: Sequence[LayerVerdict]) -> Chart:
    errors = [*(one.own or 0.0 for one in verdicts), *(one.inherited for one in verdicts)]
    ends = (-0.5, len(verdicts) - 0.5)
    chart = Chart(
        name=direction.capitalize(),
        title=f"own and inherited error, {direction}",
        labels=(f"layers in the order in which {direction} ran", "relative RMS error"),
        x=ends,
        y=decades([*errors, UNIT]),
        log=True,
        shown=errors,
    )
    chart.line(ends, [UNIT, UNIT], "unit")
    fault = next((at for at, one in enumerate(verdicts) if one.at_fault), None)
    if fault is not None:
        name = verdicts[fault].port_path or verdicts[fault].port_type
        chart.marks.append((chart.across(fault), name if len(name) <= LABEL else f"…{name[1 - LABEL :]}"))
    chart.line(range(len(verdicts)), [one.inherited for one in verdicts], "inherited")
    chart.keys.append(("line inherited", "inherited: what the layer was given"))
    small = " small" if len(verdicts) > CROWD else ""

    def in_double(one: LayerVerdict) -> bool:
        return one.closeness is Closeness.ROUNDING and one.ratio is None and one.method == "float64"

    groups = group_by(enumerate(verdicts), lambda two: (two[1].closeness, in_double(two[1])))
    for closeness, double in product(ORDER, (False, True)):
        own = {at: one.own for at, one in groups.get((closeness, double), ()) if one.own is not None}
        if own:
            kind = f"{SIGNS[closeness].slug}{' faint' if double else ''}"
            chart.dots(own, own.values(), f"{kind}{small}")
            chart.keys.append((f"dot {kind}", f"own: {closeness.value}{', in float64 alone' if double else ''}"))
    chart.keys.append(("line unit", "one rounding to float32"))
    return chart


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


def _both(pair: Pair, curves: Mapping[str, Sequence[float]]) -> Iterator[Chart]:
    count = min(len(curves[pair.reference]), len(curves[pair.port]))
    names = pair.reference, pair.port, pair.allowed
    reference, port, allowed = (list(curves.get(name, ()))[:count] for name in names)
    steps, every = range(count), max(1, -(-count // ROWS))
    heads = [pair.step, "reference", "port", "difference", *(["allowed"] if allowed else [])]
    rows = []
    for step in (one for one in steps if one % every == 0 or one == count - 1):
        ours, theirs = reference[step], port[step]
        limit = [number(one) if isfinite(one) else "any" for one in allowed[step : step + 1]]
        rows.append([str(step), exactly(ours), exactly(theirs), number(theirs - ours), *limit])
    chart = Chart(
        name=pair.title, labels=(pair.step, pair.unit), x=_ends(count), y=linear([*reference, *port]),
        keys=[("line reference", "reference"), ("line port", "port")],
        table=(heads, rows),
    )  # fmt: skip
    if len(allowed) == count and allowed:
        low, high = chart.y  # chaos may allow anything: the band must not flatten the curves
        both = list(zip(reference, allowed, strict=True))
        edges = [[min(max(one + sign * width, low), high) for one, width in both] for sign in (-1, 1)]
        chart.band(steps, edges[0], edges[1], "allowed")
        chart.keys.append(("band allowed", "allowed for the port"))
    chart.line(steps, reference, "reference", stairs=pair.stairs)
    chart.line(steps, port, "port", stairs=pair.stairs)
    size = SAME_DOUBLE * max((abs(one) for one in reference if isfinite(one)), default=0.0)
    same = all(abs(one - other) <= size for one, other in zip(reference, port, strict=True)) and not allowed
    odd = [
        f"the {name}'s is not finite at {next(step for step, one in enumerate(values) if not isfinite(one))}"
        for name, values in zip(SIDE_NAMES, (reference, port), strict=True)
        if not all(map(isfinite, values))
    ]
    chart.words = ": the two curves agree" if same else f": {', '.join(odd)}" if odd else ""
    yield chart
    if allowed:
        yield _apart(pair, reference, port, allowed)


def _apart(pair: Pair, reference: Sequence[float], port: Sequence[float], allowed: Sequence[float]) -> Chart:
    apart = [abs(one - other) for one, other in zip(reference, port, strict=True)]
    shown = [*apart, *allowed]
    chart = Chart(
        name=f"{pair.title}, difference", labels=(pair.step, f"difference of the {pair.unit}"), x=_ends(len(apart)),
        y=decades(shown), log=True, shown=shown,
        keys=[("line port", "difference of port and reference"), ("line allowed", "allowed")],
    )  # fmt: skip
    steps = range(len(apart))
    chart.line(steps, allowed, "allowed")
    chart.line(steps, apart, "port")
    outside = [step for step in steps if not apart[step] <= allowed[step]]
    chart.dots(outside, [apart[step] for step in outside], "differs")
    if outside:
        chart.keys.append(("dot differs", "outside"))
        chart.words = f": outside at {many(len(outside), pair.step)}, first at {outside[0]}"
    return chart


def _ends(count: int) -> tuple[float, float]:
    return (0, count - 1) if count > 1 else (-0.5, 0.5)


def _histogram(one: Histogram) -> Chart:
    size = one.size or 1
    told = [
        f"{many(one.size, 'element')}" + (f" (every {one.every}th)" if one.every > 1 else ""),
        f"{one.same:,} equal ({one.same / size:.1%})",
        *([f"{one.odd:,} not finite on one side"] if one.odd else []),
        f"RMS of the reference {number(one.scale)}",
    ]
    edges = [(one.first + at) / PER_DECADE for at in range(len(one.counts) + 1)]
    room = max(0.0, 3 - (edges[-1] - edges[0])) / 2
    chart = Chart(
        words=", ".join(told), title=f"differences of {one.what}", labels=("absolute difference", "elements"),
        x=(edges[0] - room, edges[-1] + room), y=(0, max(one.counts, default=0) * 1.08), log_x=True, counts=True,
    )  # fmt: skip
    chart.columns([10.0**edge for edge in edges], one.counts, "differs" if one.odd else "plain")
    return chart
