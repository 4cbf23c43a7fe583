"""A report of two live models as one HTML file: no network, no other file, no script that what matters needs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files

from tipchain.live import html_sections as sections
from tipchain.live.html_markup import Markup, element, markup
from tipchain.live.html_plots import curve_plots, depth_plots, histogram_plots
from tipchain.live.html_tree import count_layers, layer_tree
from tipchain.live.report import AlignmentReport

Section = tuple[str, str, Markup]


def render(report: AlignmentReport) -> str:
    """Return the report as HTML; the same report gives the same text.

    The page forbids itself, by its Content-Security-Policy (https://www.w3.org/TR/CSP3/), to load anything or to run
    any script but its own.
    """
    script, style = (_file(name) for name in ("report.js", "report.css"))
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
    head = element(
        "head", element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", f"{word}: {words}"), element("style", Markup(style)),
    )  # fmt: skip
    body = element(
        "body", element("main", sections.verdict(report), links, main), element("script", Markup(script))
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


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


def _file(name: str) -> str:
    return (files("tipchain.live") / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    digest = b64encode(sha256(script.encode()).digest()).decode()
    rules = (
        "default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'",
        "base-uri 'none'", "form-action 'none'",
    )  # fmt: skip
    return "; ".join(rules)
