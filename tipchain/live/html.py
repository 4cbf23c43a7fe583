"""A report of two live models as one HTML file: no network, no other file, no script that what matters needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from math import inf

from tipchain.live.html_plots import curve_plots, depth_plots, histogram_plots
from tipchain.live.html_tree import SIGNS, SLUGS, count_layers, layer_tree
from tipchain.live.report import AlignmentReport
from tipchain.outcome import Outcome
from tipchain.parity.findings import Finding
from tipchain.report.html.causes import causes, short_cause
from tipchain.report.html.page import Markup, asset, element, many, markup, number, page, path, prose, table
from tipchain.report.html.parts import Section, banner, facts_line, fix, notes, origin, outcome, sections

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
        yield "depth", "Error along depth", depth_plots(report.layers)
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
        yield "figures", "Figures", _figures(report)


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
        failed = [name for name, outcome in report.stages.items() if outcome in (Outcome.FAIL, Outcome.ERROR)]
        told = [
            element("p", element("b", name), ": ", prose(report.reasons.get(name, ""))) for name in failed[:2]
        ]
        return markup(told)
    call = f", call {first.turn}" if first.turn else ""
    return markup(
        element(
            "p", "First divergence: ", element("code", path(first.port_path or "the model itself")),
            f" ({first.port_type}), {first.direction}{call}; reference ",
            element("code", path(first.reference_path or "the model itself")), f" ({first.reference_type})",
        ),
        element(
            "p", element("span", SIGNS[first.closeness], class_=f"sign {SLUGS[first.closeness]}", aria_hidden="true"),
            " ", prose(first.reason),
            None if first.own is None else ["; ", element("span", f"own error {number(first.own)}", class_="error"), ", ", element("span", f"inherited {number(first.inherited)}", class_="error")],
        ),
    )  # fmt: skip


def _why(report: AlignmentReport) -> Markup | None:
    """Return the cause of the first divergence, else the likeliest of all."""
    first = report.first_divergence
    about = [one for one in report.diagnoses if first is not None and first.port_path in one.layers]
    cause = next(iter(about or report.diagnoses), None)
    if cause is None:
        return None
    return short_cause(cause)


def _stages(report: AlignmentReport) -> Markup:
    """Return the stages with outcome and reason."""
    rows = [
        (markup(name), outcome(ended),
         prose(report.reasons.get(name, "")))
        for name, ended in report.stages.items()
    ]  # fmt: skip
    if not rows:
        return element("p", "No stage was run.", class_="note")
    return table(("stage", "outcome", "reason"), rows, class_="stages")


def _findings(found: Sequence[Finding]) -> Markup:
    """Return the differences of construction, those that change nothing apart from the others."""
    grave = [one for one in found if not one.harmless]
    harmless = [one for one in found if one.harmless]
    parts = [_listed(grave)] if grave else []
    if harmless:
        what = many(len(harmless), "difference that changes", "differences that change")
        parts.append(
            element("details", element("summary", f"{what} no result"), _listed(harmless), class_="more")
        )
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
        _values(one), fix(one.fix) if one.fix else None,
    )  # fmt: skip


def _values(one: Finding) -> Markup:
    places = [
        markup(side, " ", element("code", path(where)) if where else None, ": " if where else "", element("code", value))
        for side, where, value in (("reference", one.reference_path, one.reference), ("port", one.port_path, one.port))
    ]  # fmt: skip
    return element("p", places[0], "; ", places[1], class_="evidence")


def _group(group: Sequence[Finding]) -> Markup:
    first = group[0]
    head = element(
        "p", element("code", first.code, class_="slug"), f" {many(len(group), 'place')}: ", prose(first.message),
        f", and {many(len(group) - 1, 'other')}",
    )  # fmt: skip
    rows = [
        (element("code", path(one.port_path)), element("code", path(one.reference_path)), prose(one.fix))
        for one in group
    ]
    listed = table(("port", "reference", "fix"), rows)
    return markup(
        head, _values(first),
        element("details", element("summary", f"all {len(group)} of them"), listed, class_="more"),
    )  # fmt: skip


def _unmatched(sides: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    """Return the layers that are in no pair."""
    return markup(
        markup(
            element("h3", f"of the {side}: {len(names)}"),
            element("ul", [element("li", path(name)) for name in names], class_="names"),
        )
        for side, names in sides if names
    )  # fmt: skip


def _figures(report: AlignmentReport) -> Markup:
    """Return the figures by name."""
    rows = [
        (_called(name), f"{value:g}" if not value or 1e-3 <= abs(value) < inf else number(value))
        for name, value in report.numbers.items()
    ]
    return table(("figure", "value"), rows, class_="numeric")


def _called(name: str) -> str:
    words = name.replace("_", " ")
    return f"{words} of the model, relative RMS difference" if words.startswith("output ") else words
