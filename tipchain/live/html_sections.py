"""The parts of a report that are text and tables: verdict, stages, causes, findings, what is in no pair, versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from tipchain.live.html_markup import Markup, element, many, markup, number, path, prose, table
from tipchain.live.html_tree import SIGNS, SLUGS
from tipchain.live.report import AlignmentReport
from tipchain.outcome import Outcome
from tipchain.parity.findings import Diagnosis, Finding

ALIKE = 4
"""Findings that differ in nothing but the layer are told together from this number on."""
UNKNOWN = "unknown"
"""The code of a diagnosis that knows no cause."""
PIECES = ("loss", "metric", "data", "optimizer", "scheduler")
"""What a diagnosis may be about beside a layer."""


def tone(report: AlignmentReport) -> str:
    """Return ``pass``, ``fail``, or ``unknown`` where nothing is known to be wrong, nor to be right."""
    if report.passed:
        return "pass"
    return "fail" if Outcome.FAIL in report.stages.values() else "unknown"


def headline(report: AlignmentReport) -> tuple[str, str]:
    """Return PASS or FAIL, and what goes with it: what the report's text begins with."""
    word, _, words = str(report).partition("\n")[0].partition(": ")
    return word, words


def verdict(report: AlignmentReport) -> Markup:
    """Return what everybody wants to know: whether it passed, else where and why it did not, and what to change."""
    word, words = headline(report)
    return element(
        "header", element("h1", element("strong", word), " ", words), _where(report), _why(report),
        class_=f"verdict {tone(report)}", id="verdict",
    )  # fmt: skip


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
    return markup(
        element("p", element("b", "Cause: "), prose(cause.message)),
        _fix(cause.fix, copied=cause.code != UNKNOWN),
    )


def _fix(text: str, *, copied: bool = True) -> Markup:
    """Return what to change; the code in it, else all of it, can be copied."""
    parts = text.split("`")
    code = parts[1] if len(parts) % 2 and len(parts) > 1 else text
    return element(
        "p", element("b", "Fix: "), element("span", prose(text)), " ",
        element("button", "copy", type="button", data_copy=code, aria_label=f"copy {code}", hidden=True) if copied else None,
        class_="fix",
    )  # fmt: skip


def stages(report: AlignmentReport) -> Markup:
    """Return the stages with outcome and reason."""
    rows = [
        (markup(name), element("span", outcome.value, class_=f"outcome {outcome.value.lower()}"),
         prose(report.reasons.get(name, "")))
        for name, outcome in report.stages.items()
    ]  # fmt: skip
    if not rows:
        return element("p", "No stage was run.", class_="note")
    return table(("stage", "outcome", "reason"), rows, class_="stages")


def causes(diagnoses: Sequence[Diagnosis]) -> Markup:
    """Return the causes, the likeliest first."""
    return element("ol", [element("li", _cause(one)) for one in diagnoses], class_="causes")


def _cause(one: Diagnosis) -> Markup:
    place = one.port_path if one.port_path in PIECES else element("code", path(one.port_path or "the model"))
    others = one.layers[1:]
    beside = f", and {many(len(others), 'other layer')}" if others else None
    head = element("h3", element("code", one.code, class_="slug"), " in ", place, beside)
    listed = element("ul", [element("li", element("code", path(each))) for each in others]) if others else None  # fmt: skip
    return markup(
        head, element("p", prose(one.message)), None if one.code == UNKNOWN else _explained(one.explained),
        element("p", prose(one.evidence), class_="evidence") if one.evidence else None,
        _fix(one.fix, copied=one.code != UNKNOWN) if one.fix else None,
        element("details", element("summary", many(len(others), "other layer")), listed, class_="more") if others else None,
    )  # fmt: skip


def _explained(share: float | None) -> Markup:
    if share is None:
        return element("p", "rests on a difference of construction; nothing was run", class_="note")
    shown = min(max(share, 0.0), 1.0)
    bar = element("span", element("span", style=f"width:{shown:.2%}"), class_="share", aria_hidden="true")
    return element("p", bar, f" explains {_percent(shown)} of the error", class_="explained")


def _percent(share: float) -> str:
    """Return a share, as 100 % only where nothing is left."""
    return "100 %" if share == 1 else "more than 99.99 %" if share > 0.9999 else f"{100 * share:.4g} %"


def findings(found: Sequence[Finding]) -> Markup:
    """Return the differences of construction, those that change nothing apart from the others."""
    grave = [one for one in found if not one.harmless]
    harmless = [one for one in found if one.harmless]
    parts = [_findings(grave)] if grave else []
    if harmless:
        what = many(len(harmless), "difference that changes", "differences that change")
        parts.append(
            element("details", element("summary", f"{what} no result"), _findings(harmless), class_="more")
        )
    return markup(parts)


def _findings(found: Sequence[Finding]) -> Markup:
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
        _values(one), _fix(one.fix) if one.fix else None,
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


def unmatched(sides: Iterable[tuple[str, Sequence[str]]]) -> Markup:
    """Return the layers that are in no pair."""
    return markup(
        markup(
            element("h3", f"of the {side}: {len(names)}"),
            element("ul", [element("li", path(name)) for name in names], class_="names"),
        )
        for side, names in sides if names
    )  # fmt: skip


def figures(report: AlignmentReport) -> Markup:
    """Return the figures by name."""
    rows = [
        (_called(name), f"{value:g}" if not value or 1e-3 <= abs(value) < inf else number(value))
        for name, value in report.numbers.items()
    ]
    return table(("figure", "value"), rows, class_="numeric")


def _called(name: str) -> str:
    words = name.replace("_", " ")
    return f"{words} of the model, relative RMS difference" if words.startswith("output ") else words


def origin(report: AlignmentReport) -> Markup:
    """Return how to see it all again: the call or command, and the versions."""
    call = [
        element("pre", element("code", report.command), tabindex="0"),
        element("p", element("button", "copy", type="button", data_copy=report.command, aria_label="copy the command",
                             hidden=True)),
    ] if report.command else []  # fmt: skip
    versions = [
        element("div", element("dt", name), " ", element("dd", version))
        for name, version in report.versions.items()
    ]
    return markup(call, element("dl", versions, class_="versions") if versions else None)
