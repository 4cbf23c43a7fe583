"""A report of two live models as one HTML file: no network, no other file, no script that what matters needs."""

from __future__ import annotations

from collections.abc import Iterator

from tipchain.live import html_sections as sections
from tipchain.live.html_markup import Markup, element, markup
from tipchain.live.html_page import asset, page
from tipchain.live.html_plots import curve_plots, depth_plots, histogram_plots
from tipchain.live.html_tree import count_layers, layer_tree
from tipchain.live.report import AlignmentReport

Section = tuple[str, str, Markup]


def render(report: AlignmentReport) -> str:
    """Return the report as HTML; the same report gives the same text."""
    script, style = (asset("tipchain.live", name) for name in ("report.js", "report.css"))
    word, words = sections.headline(report)
    found = list(_sections(report))
    links = element(
        "nav", element("ul", [element("li", element("a", title, href=f"#{name}")) for name, title, _ in found]),
        aria_label="sections",
    )  # fmt: skip
    main = [
        element("section", element("h2", title, id=f"{name}-title"), inside, id=name, aria_labelledby=f"{name}-title")
        for name, title, inside in found
    ]  # fmt: skip
    return page(f"{word}: {words}", [sections.verdict(report), links, *main], style=style, script=script)


def _sections(report: AlignmentReport) -> Iterator[Section]:
    """Yield the parts that have something to tell: a name, a title, what is inside."""
    yield "stages", "Stages", sections.stages(report)
    if report.diagnoses:
        yield "causes", "Causes", sections.causes(report.diagnoses)
    if report.findings:
        yield "findings", "Differences of construction", sections.findings(report.findings)
    if report.layers:
        yield "depth", "Error along depth", depth_plots(report.layers)
        told = element("p", count_layers(report.layers), class_="note")
        yield "layers", "Layers", markup(told, layer_tree(report.layers))
    curves = curve_plots(report.curves)
    if curves:
        yield "curves", "Training", curves
    if report.histograms:
        yield "histograms", "Differences of tensors", histogram_plots(report.histograms)
    if any(report.unmatched.values()):
        yield "unmatched", "Layers in no pair", sections.unmatched(report.unmatched.items())
    if report.numbers:
        yield "figures", "Figures", sections.figures(report)
    yield "origin", "To see it again", sections.origin(report)
