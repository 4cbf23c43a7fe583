"""Chains by kind, for the dashboard: how many of a checkout's parameter files a night covers, and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tipchain.chain.coverage import files_by_kind, is_checkout
from tipchain.chain.kinds import KINDS
from tipchain.nightly.dashboard_items import cut, why
from tipchain.nightly.timeline import Timeline
from tipchain.outcome import Outcome, worst
from tipchain.report.html.page import Markup, element, many

REASONS = 3
"""Reasons that a kind's row names; the rest is counted."""
LONGEST = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """One kind of chain in the latest night.

    Attributes:
        name: the kind.
        there: parameter files of it in the checkout, None where that is not here any more.
        files: those that the night has items of.
        ended: how they ended, each as its worst item.
        reasons: why files were skipped, with how many.
    """

    name: str
    there: int | None
    files: int
    ended: Mapping[Outcome, int]
    reasons: Mapping[str, int]


def kind_rows(line: Timeline) -> Sequence[KindRow]:
    """Return the kinds of chains that the latest night, or its checkout, has, in the order of `KINDS`."""
    ended: dict[tuple[str, str], list[Outcome]] = {}
    skipped: dict[tuple[str, str], str] = {}
    for row in line.rows:
        cell = row.cells[-1]
        if not row.item.chain or cell is None:
            continue
        key = row.item.chain, row.item.source
        ended.setdefault(key, []).append(cell.record.outcome)
        if cell.record.outcome is Outcome.SKIP:
            skipped.setdefault(key, why(cell))
    root = Path(line.columns[-1].results.plan.root)
    there = {name: len(files) for name, files in files_by_kind(root).items()} if is_checkout(root) else {}
    found = []
    for name in KINDS:
        files = {key: worst(outcomes) for key, outcomes in ended.items() if key[0] == name}
        if not files and not there.get(name):
            continue
        reasons = Counter(skipped[key] for key, outcome in files.items() if outcome is Outcome.SKIP)
        found.append(
            KindRow(
                name=name,
                there=there.get(name, 0) if there else None,
                files=len(files),
                ended=Counter(files.values()),
                reasons=dict(reasons.most_common()),
            )
        )
    return found


def kinds_part(line: Timeline) -> Markup | None:
    """Return the section, None for nights without chains whose kind is known."""
    rows = kind_rows(line)
    if not any(row.files for row in rows):
        return None
    heads = ("kind of chain", "files here", "in the night", *(one.value for one in Outcome), "why skipped")
    body = []
    for row in rows:
        counts = [str(row.ended.get(one, 0) or "") for one in Outcome]
        there = "" if row.there is None else str(row.there)
        cells = [there, str(row.files or ""), *counts]
        reasons = [
            element("div", f"{count}: {cut(text, LONGEST)}")
            for text, count in list(row.reasons.items())[:REASONS]
        ]
        left = len(row.reasons) - REASONS
        reasons += [element("div", f"and {many(left, 'more reason')}")] if left > 0 else []
        name = element("th", row.name, scope="row", title=KINDS[row.name].title)
        body.append(element("tr", name, [element("td", one) for one in cells], element("td", reasons)))
    head = element("tr", [element("th", one, scope="col") for one in heads])
    table = element("table", element("thead", head), element("tbody", body), class_="list")
    inside = element(
        "div",
        table,
        class_="wide",
        tabindex="0",
        role="group",
        aria_label=f"kinds of {line.name}, scrollable",
    )
    return element("section", element("h2", f"Kinds of chains of {line.name}"), inside)
