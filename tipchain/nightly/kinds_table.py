"""Chains by kind, for the dashboard: how many of a checkout's parameter files a night covers, and how they ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tipchain.chain.coverage import files_by_kind, is_checkout
from tipchain.chain.kinds import KINDS, TRAIN_INFER
from tipchain.nightly.dashboard_items import OUTCOME_CLASSES, SIGNS, cut, part_id, why
from tipchain.nightly.timeline import Cell, Timeline, TimelineRow
from tipchain.outcome import Outcome, worst
from tipchain.report.html.page import Markup, element, many

REASONS = 3
"""Reasons that a kind's row names; the rest is counted."""
LONGEST = 200
ORDER = tuple(dict.fromkeys((TRAIN_INFER, *KINDS)))
CHAIN = re.compile(r"(.*?)(?:^|_)(?:train|model|linux|inference|infer|serving|benchmark|lite_arm)(?:_|$)")
"""What stands before these words in a file's name is the chain's; where nothing does, its folder's name is."""


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
    """Return the kinds of chains that the latest night, or its checkout, has, in the order of `ORDER`."""
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
    for name in ORDER:
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


def kinds_part(line: Timeline, place: int) -> Markup | None:
    """Return the section of the nights at ``place``, None for nights without chains whose kind is known."""
    rows = kind_rows(line)
    if not any(row.files for row in rows):
        return None
    parts = [_covered(rows), _scrolled(_table(rows), f"kinds of {line.name}"), _skipped(rows)]
    if sum(bool(row.files) for row in rows) > 1:
        parts.append(_scrolled(_matrix(line, place), f"chains and kinds of {line.name}"))
    return element("section", element("h2", f"Kinds of chains of {line.name}"), parts, class_="kinds")


def _scrolled(table: Markup, name: str) -> Markup:
    return element("div", table, class_="wide", tabindex="0", role="group", aria_label=f"{name}, scrollable")


def _covered(rows: Sequence[KindRow]) -> Markup:
    """Return how many of the checkout's files the night covers, and how these ended."""
    files, there = sum(row.files for row in rows), [row.there for row in rows if row.there is not None]
    ended = sum((Counter(row.ended) for row in rows), Counter[Outcome]())
    told = ", ".join(f"{ended[one]} {one.value}" for one in Outcome if ended[one])
    covers = (
        f"{files} of {many(sum(there), 'parameter file')} in the checkout"
        if there
        else many(files, "parameter file")
    )
    return element("p", f"The night covers {covers}: {told}.")


def _table(rows: Sequence[KindRow]) -> Markup:
    heads = ("kind of chain", "files here", "in the night", *(one.value for one in Outcome))
    body = []
    for row in rows:
        counts = [str(row.ended.get(one, 0) or "") for one in Outcome]
        there = "" if row.there is None else str(row.there)
        cells = [there, str(row.files or ""), *counts]
        name = element("th", row.name, scope="row", title=KINDS[row.name].title)
        body.append(element("tr", name, [element("td", one) for one in cells]))
    head = element("tr", [element("th", one, scope="col") for one in heads])
    return element("table", element("thead", head), element("tbody", body), class_="list")


def _skipped(rows: Sequence[KindRow]) -> Markup | None:
    """Return why files were skipped, by kind."""
    told = []
    for row in rows:
        reasons = list(row.reasons.items())
        told += [
            element("li", f"{count} of {row.name}: {cut(text, LONGEST)}") for text, count in reasons[:REASONS]
        ]
        left = len(reasons) - REASONS
        told += [element("li", f"and {many(left, 'more reason')}")] if left > 0 else []
    return element("div", element("p", "Skipped:"), element("ul", told, class_="changes")) if told else None


def chain_name(source: str) -> str:
    """Return what the chain of a parameter file is called: files of other kinds are called so, too."""
    path = PurePosixPath(source)
    found = CHAIN.match(path.stem)
    return (found[1] or path.parent.name) if found else path.stem


def _matrix(line: Timeline, place: int) -> Markup:
    """Return how each chain ended in each kind in the latest night."""
    found: dict[str, dict[str, list[tuple[TimelineRow, Cell]]]] = {}
    for row in line.rows:
        cell = row.cells[-1]
        if row.item.chain and cell is not None:
            kinds = found.setdefault(chain_name(row.item.source), {})
            kinds.setdefault(row.item.chain, []).append((row, cell))
    names = [name for name in ORDER if any(name in kinds for kinds in found.values())]
    body = [
        element(
            "tr",
            element("th", chain, scope="row"),
            [_ended(found[chain].get(name, ()), place) for name in names],
        )
        for chain in sorted(found)
    ]
    heads = [element("th", name.replace("_", " "), scope="col") for name in names]
    head = element("tr", element("th", "chain", scope="col"), heads)
    return element("table", element("thead", head), element("tbody", body), class_="matrix")


def _ended(items: Sequence[tuple[TimelineRow, Cell]], place: int) -> Markup:
    """Return the cell of a chain's items of one kind: how the worst ended, and a link to it."""
    if not items:
        return element("td")
    outcome = worst(cell.record.outcome for _, cell in items)
    row, cell = next(one for one in items if one[1].record.outcome is outcome)
    reason = "" if outcome is Outcome.PASS else f": {cut(why(cell), LONGEST)}"
    sign = element(
        "a", SIGNS[outcome], href=f"#{part_id(place, row)}", title=f"{outcome.value} {row.item.id}{reason}"
    )
    return element("td", sign, class_=f"cell-{OUTCOME_CLASSES[outcome]}")
