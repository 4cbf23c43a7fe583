"""The latest nights as one HTML file: a grid of items and nights, curves, and links to logs and reports.

Without scripts it shows all of that; with them it is filtered, the grid is walked with the arrow keys, and each cell
tells its reason beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tipchain.live.html_markup import Markup, element, markup
from tipchain.live.html_page import asset, page
from tipchain.nightly.dashboard_head import headline, is_well, title
from tipchain.nightly.dashboard_items import SIGNS, cut, item_part, latest_first, part_id, when
from tipchain.nightly.quantities import duration
from tipchain.nightly.timeline import Cell, Column, Row, Timeline
from tipchain.outcome import Outcome

LARGEST = 5_000_000
"""Bytes; above that fewer figures are plotted."""
FIGURES = (6, 2, 0)
"""How many figures of an item are plotted, in the first page, and in one that would be too large."""
KINDS = {Outcome.PASS: "p", Outcome.FAIL: "f", Outcome.ERROR: "e", Outcome.SKIP: "s"}


def render(timelines: Sequence[Timeline], problems: Sequence[str] = ()) -> str:
    """Return the page; the same nights give the same text.

    Args:
        timelines: of one or more manifests.
        problems: nights that could not be read, a line each.
    """
    text = ""
    for most in FIGURES:
        text = _render(timelines, problems, most)
        if len(text.encode()) <= LARGEST:
            break
    return text


def _render(timelines: Sequence[Timeline], problems: Sequence[str], most: int) -> str:
    script = asset("tipchain.nightly", "dashboard.js")
    style = asset("tipchain.live", "report.css") + asset("tipchain.nightly", "dashboard.css")
    numbers = _Numbers()
    body = [
        headline(timelines),
        _problems(problems),
        _controls(timelines),
        *(part for place, line in enumerate(timelines) for part in _manifest(place, line, most, numbers)),
        element("script", numbers.json(timelines), type="application/json", id="data"),
    ]
    return page(title(timelines), [one for one in body if one], style=style, script=script)


def _problems(problems: Sequence[str]) -> Markup | None:
    rows = [element("li", one) for one in problems]
    return element("ul", rows, class_="problems") if rows else None


def _controls(timelines: Sequence[Timeline]) -> Markup:
    rows = [row for line in timelines for row in line.rows]
    choices: Mapping[str, Sequence[str]] = {
        "outcome": [one.value for one in Outcome],
        "mode": sorted({row.item.mode for row in rows} - {""}),
        "device": sorted({row.item.device for row in rows}),
        "tag": sorted({tag for row in rows for tag in row.item.tags}),
    }
    return element(
        "form",
        element("label", "Find ", element("input", type="search", id="find", autocomplete="off")),
        [
            element("label", f"{name.capitalize()} ", element(
                "select", element("option", "all", value=""), [element("option", one) for one in values], id=name,
            ))
            for name, values in choices.items() if len(values) > 1
        ],
        element("label", element("input", type="checkbox", id="changed"), " only what changed"),
        element("button", "Show all", type="reset"),
        element("output", id="shown", aria_live="polite"),
        class_="controls filters", id="filters", hidden=True, aria_label="filters",
    )  # fmt: skip


def _manifest(place: int, line: Timeline, most: int, numbers: _Numbers) -> Iterator[Markup]:
    turns = [number for number, column in enumerate(line.columns) if column.environment]
    legend = [
        element("li", element("span", SIGNS[one], class_=f"sign cell-{KINDS[one]}", aria_hidden="true"), f" {one.value}")
        for one in Outcome
    ]  # fmt: skip
    legend.append(element("li", "empty: not planned, or not run yet"))
    legend.append(element("li", element("b", "Δ"), " another environment than the night before"))
    yield element(
        "section", element("h2", line.name), element("ul", legend, class_="legend"), _grid(place, line, turns, numbers),
        id=f"grid-{place}", class_="nights", aria_label=f"items and nights of {line.name}",
    )  # fmt: skip
    yield element("section", element("h2", f"Nights of {line.name}"), _nights(place, line))
    yield element(
        "section", element("h2", f"Items of {line.name}"),
        (item_part(row, line.columns, turns, most, part_id(place, row)) for row in line.rows), class_="items",
    )  # fmt: skip


def _grid(place: int, line: Timeline, turns: Sequence[int], numbers: _Numbers) -> Markup:
    heads = [
        element(
            "th",
            element("a", f"{one.when:%b}" if one.when else "?", element("br"), f"{one.when:%d}" if one.when else "?",
                    element("b", "Δ") if number in turns else None, href=f"#night-{place}-{number}"),
            scope="col", title=_title_of(one),
        )
        for number, one in latest_first(line.columns)
    ]  # fmt: skip
    rows = sorted(line.rows, key=is_well)
    body = (_row(place, number, row, line.columns, numbers) for number, row in enumerate(rows))
    table = element(
        "table", element("thead", element("tr", element("th", "item", scope="col"), heads)), element("tbody", body),
        class_="matrix", data_manifest=place,
    )  # fmt: skip
    return element(
        "div", table, class_="wide", tabindex="0", role="group", aria_label=f"{line.name}, scrollable"
    )


def _title_of(column: Column) -> str:
    commit = column.results.facts.get("commit", "")
    lines = [when(column), f"commit {commit}" if commit else "", *column.environment]
    return "\n".join(filter(None, lines))


def _row(place: int, number: int, row: Row, columns: Sequence[Column], numbers: _Numbers) -> Markup:
    item, latest = row.item, row.latest
    numbers.add(place, row)
    cells = [
        _cell(row.cells[at], f"{column.href}/items/{row.slug}/", latest=at == len(columns) - 1)
        for at, column in latest_first(columns)
    ]
    return element(
        "tr", element("th", element("a", item.id, href=f"#{part_id(place, row)}"), scope="row"), cells,
        data_item=number, data_outcome=latest.record.outcome.value if latest else None, data_mode=item.mode or None,
        data_device=item.device, data_tag=" ".join(item.tags) or None, data_changed=row.changed or None,
    )  # fmt: skip


def _cell(cell: Cell | None, base: str, *, latest: bool) -> Markup:
    """Return a cell; what did not pass, and the latest night, lead to the log or report without a script too."""
    if cell is None:
        return element("td")
    outcome = cell.record.outcome
    target = cell.report if cell.report.endswith(".html") else cell.log or cell.report
    sign: str | Markup = SIGNS[outcome]
    if outcome is not Outcome.PASS:
        words = f"{outcome.value}: {cut(cell.record.reason, 120)}"
        if outcome is Outcome.SKIP or not target:
            return element("td", sign, class_=f"cell-{KINDS[outcome]}", title=words)
        return element(
            "td", element("a", sign, href=base + target, title=words), class_=f"cell-{KINDS[outcome]}"
        )
    if latest and target:
        sign = element("a", sign, href=base + target)
    return element("td", sign, class_="cell-p")


def _nights(place: int, line: Timeline) -> Markup:
    heads = ("night", "commit", *(one.value for one in Outcome), "items took", "another environment")
    rows = []
    for number, column in latest_first(line.columns):
        results = column.results
        name = element("a", when(column), href=f"{column.href}/")
        left = " not finished" if not results.finished else ""
        said = [element("div", text, class_="note") for text in (*column.wrong, *column.notes)]
        counts = [str(column.counts.get(one, 0) or "") for one in Outcome]
        facts = [element("div", text) for text in column.environment]
        cells = [results.facts.get("commit", ""), *counts, duration(results.seconds), markup(facts)]
        rows.append(
            element("tr", element("th", name, left, said, scope="row"), [element("td", one) for one in cells],
                    id=f"night-{place}-{number}")
        )  # fmt: skip
    head = element("tr", [element("th", one, scope="col") for one in heads])
    inside = element("table", element("thead", head), element("tbody", rows), class_="list")
    return element(
        "div",
        inside,
        class_="wide",
        tabindex="0",
        role="group",
        aria_label=f"nights of {line.name}, scrollable",
    )


class _Numbers:
    """What the script knows of each cell, in the grid's order: 0 where nothing ran; texts by their number."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._items: list[list[Any]] = []

    def add(self, place: int, row: Row) -> None:
        """Take a row; rows come in the order of the page."""
        while len(self._items) <= place:
            self._items.append([])
        self._items[place].append([row.slug, *self._cells(row.cells[::-1])])

    def _cells(self, cells: Iterable[Cell | None]) -> Iterator[Any]:
        for cell in cells:
            if cell is None:
                yield 0
                continue
            record = cell.record
            texts = [self._number(cut(one, 500)) for one in (record.reason, cell.log, cell.report)]
            yield [list(Outcome).index(record.outcome), round(record.seconds, 1), *texts]

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def json(self, timelines: Sequence[Timeline]) -> Markup:
        """Return everything as JSON that cannot end the element it stands in."""
        nights = [
            [{"when": when(one), "href": one.href} for _, one in latest_first(line.columns)]
            for line in timelines
        ]
        document = {"texts": list(self._texts), "items": self._items, "nights": nights}
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
        return Markup(text.replace("<", "\\u003c"))
