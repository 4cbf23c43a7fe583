"""The latest nights as one HTML file: a grid of items and nights, curves, links to logs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path

from tipchain.core.language import clean, cut, many, say, template
from tipchain.core.quantities import duration
from tipchain.errors import Outcome
from tipchain.nightly.items import Item
from tipchain.nightly.origin import suspects
from tipchain.nightly.timeline import Cell, Column, Timeline, TimelineRow
from tipchain.report.page import Markup, Scale, asset, banner, element, linear, literal, markup, outcome, page, prose

SIGNS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.ERROR: "!", Outcome.SKIP: "–"}  # noqa: RUF001
OUTCOME_CLASSES = {Outcome.PASS: "p", Outcome.FAIL: "f", Outcome.ERROR: "e", Outcome.SKIP: "s"}
"""The ends of the names of cells' classes."""
FIGURES = 3
"""Figures of an item that are plotted, besides its seconds."""
LISTED = 40
"""Items of a kind that stand at the top, and nights of an item that did not pass; the rest is counted."""
REASON = 200
WORDS = {"item": "{n} item", "items": "{n} items", "some": "{n} of {n2} items"}
"""What the script says, in English with open places."""
STATES = (("FAIL", "fail"), ("NOT FINISHED", "unknown"), ("PASS", "pass"))
"""What a night came to, the worst first: the word, and the page's tone."""


def brief(text: str, width: int) -> str:
    """Return a text in the reader's language, cut to so many columns, without control characters."""
    return cut(say(clean(text)), width)


def when(column: Column) -> str:
    """Return when a night began, as people write it."""
    night = column.results.night
    return f"{night.began:%Y-%m-%d %H:%M}" if night.began else night.name


def short_names(items: Iterable[Item]) -> dict[str, str]:
    """Return what items are called for short, by id: what all of them have in common is left out.

    ``alexnet[lite_train_lite_infer;cpu]`` becomes ``alexnet lite/lite cpu``, or ``alexnet`` where all run in that mode on
    that device.
    """
    ones = list(items)
    several = {name: len({getattr(one, name) for one in ones}) > 1 for name in ("kind", "mode", "device")}
    found = {}
    for one in ones:
        words = [one.subject + (":align" if several["kind"] and one.kind == "align" else "")]
        words += [re.sub(r"_infer$", "", one.mode).replace("_train_", "/")] if several["mode"] and one.mode else []
        words += [one.device] if several["device"] else []
        found[one.id] = " ".join(words) + (f" #{one.repeat}" if one.repeat > 1 else "")
    count = Counter(found.values())
    return {name: short if count[short] == 1 else name for name, short in found.items()}


def render(timelines: Sequence[Timeline], problems: Sequence[str] = ()) -> str:
    """Return the page; the same nights give the same text. Without scripts it shows everything, but filters nothing.

    Args:
        timelines: of one or more manifests.
        problems: nights that could not be read, a line each.
    """
    # What items can be told apart by, with the values that they have.
    rows = [row for line in timelines for row in line.rows]
    found: Mapping[str, Sequence[str]] = {
        "outcome": [one.value for one in Outcome],
        "kind": sorted({row.item.chain for row in rows} - {""}),
        "mode": sorted({row.item.mode for row in rows} - {""}),
        "device": sorted({row.item.device for row in rows}),
        "tag": sorted({tag for row in rows for tag in row.item.tags}),
    }
    filters = {name: values for name, values in found.items() if len(values) > 1}
    parts = [_ManifestNights(place, line, filters) for place, line in enumerate(sorted(timelines, key=_state))]
    script, style = (asset(f"page.{kind}") + asset(f"dashboard.{kind}", "tipchain.nightly") for kind in ("js", "css"))
    names = ", ".join(one.line.name for one in parts)
    bad, state = sum(len(one.columns[-1].results.bad) for one in timelines), min(map(_state, timelines))
    head, tone = STATES[state]
    words = json.dumps({name: template(message) for name, message in WORDS.items()}).replace("<", "\\u003c")
    body = [
        banner(tone, head, f"nights of {names}", *(one.latest() for one in parts)),
        element("ul", [element("li", one) for one in problems], class_="problems") if problems else Markup(),
        _controls(filters),
        *(section for one in parts for section in one.sections()),
        element("script", Markup(words), type="application/json", id="data"),
    ]
    word = f"{bad} failed" if bad else ("cut wrongly", "not finished", "passed")[state]
    return page(f"{word}: nights of {names}", body, style=style, script=script)


def _state(line: Timeline) -> int:
    """Return the place of the latest night in `STATES`; one whose shares are not of one plan failed."""
    results = line.columns[-1].results
    return 0 if results.bad or results.wrong else 1 if not results.finished else 2


def _controls(filters: Mapping[str, Sequence[str]]) -> Markup:
    choices = [
        element(
            "label",
            f"{name.capitalize()} ",
            element(
                "select",
                element("option", "all", value=""),
                [element("option", one, value=one) for one in values],
                id=name,
            ),
        )
        for name, values in filters.items()
    ]
    return element(
        "form",
        element("label", "Find ", element("input", type="search", id="find", autocomplete="off")),
        choices,
        element("label", element("input", type="checkbox", id="changed"), " only what changed"),
        element("button", "Show all", type="reset"),
        element("output", id="shown", aria_live="polite"),
        class_="controls filters",
        id="filters",
        hidden=True,
        aria_label="filters",
    )


def _list(rows: Iterable[Markup]) -> Markup | None:
    found = list(rows)
    return element("ul", found, class_="changes") if found else None


def _table(name: str, heads: Sequence[Markup], rows: Iterable[Markup], class_: str) -> Markup:
    """Return a table that scrolls; ``name`` says what it shows."""
    table = element("table", element("thead", element("tr", heads)), element("tbody", rows), class_=class_)
    return element("div", table, class_="wide", tabindex="0", role="group", aria_label=f"{name}, scrollable")


class _ManifestNights:
    """The nights of a manifest on the page.

    Attributes:
        place: of the manifest on the page.
        line: the nights.
        columns: the nights with their numbers, the latest first.
        filters: what the page's items are filtered by, with the values that they have.
        rows: its items: what has just begun to fail, what fails for longer, the rest.
        names: what they are called for short, by id.
    """

    def __init__(self, place: int, line: Timeline, filters: Mapping[str, Sequence[str]]) -> None:
        self.place, self.line, self.filters = place, line, filters
        self.columns = list(enumerate(line.columns))[::-1]
        self.rows = sorted(line.rows, key=lambda row: -row.since if row.bad else 1)
        self.names = short_names(row.item for row in line.rows)

    def link(self, row: TimelineRow) -> Markup:
        """Return an item's short name, which leads to its part."""
        return element("a", literal(self.names[row.item.id]), href=f"#i{self.place}-{row.slug}", title=row.item.id)

    def latest(self) -> Markup:
        """Return what the latest night came to: what has begun to fail, what still fails, what else changed."""
        column = self.line.columns[-1]
        results, several = column.results, len(self.line.columns) > 1
        head, tone = STATES[_state(self.line)]
        bad, total = len(results.bad), many(sum(results.counts.values()), "item")
        word = f"{bad} of {total} did not pass" if bad else f"{results.counts[Outcome.PASS]} of {total} passed"
        commit = results.facts.get("commit", "")
        state = "" if results.finished else ", so far: the night is not finished"
        parts = [
            element(
                "p",
                element("strong", head, class_=f"outcome {'error' if tone == 'unknown' else tone}"),
                f"{self.line.name}, {when(column)}",
                f", commit {commit}" if commit else "",
                f": {word}{state}.",
            ),
            _list(element("li", text) for text in (*results.wrong, *results.notes)),
        ]
        failing = [row for row in self.rows if row.bad and row.cells[-1]]
        others = [row for row in self.rows if row.changed and not (row.bad and row.cells[-1])]
        environment = [element("li", f"environment: {text}") for text in column.environment]
        for title, entries in (
            ("Newly failing:", list(self._entries([row for row in failing if row.newly_bad]))),
            (
                "Still failing:" if several else "Failing:",
                list(self._entries([row for row in failing if not row.newly_bad])),
            ),
            ("Otherwise changed since the night before:", [*environment, *self._entries(others)]),
        ):
            parts += [element("p", title), _list(entries)] if entries else []
        if several and not (environment or any(row.changed for row in self.rows)):
            parts.append(element("p", "Nothing changed since the night before."))
        return markup(parts)

    def _entries(self, rows: Sequence[TimelineRow]) -> Iterator[Markup]:
        """Yield a line for each item: how it ended, its name, since when, why, and which commits may have done it."""
        columns = self.line.columns
        for row in rows[:LISTED]:
            latest, at = row.latest, max(place for place, cell in enumerate(row.cells) if cell)
            word = row.changed or (latest.record.outcome.value if latest else "")
            reason = latest.why if latest and row.changed != "gone" else ""
            begun = row.bad and row.cells[-1] and not row.newly_bad and row.since < len(columns) - 1
            linked = bool(latest and row.bad and latest.report.endswith(".html"))
            href = f"{columns[at].href}/items/{row.slug}/{latest.report if latest else ''}"
            yield element(
                "li",
                f"{word} ",
                self.link(row),
                f" since {when(columns[row.since])}" if begun else "",
                [": ", prose(brief(reason, REASON))] if reason else None,
                [" ", element("a", "page", href=href)] if linked else None,
                self._suspects(row) if row.newly_bad else None,
            )
        if len(rows) > LISTED:
            yield element("li", f"and {len(rows) - LISTED} more")

    def _suspects(self, row: TimelineRow) -> list[Markup]:
        """Return from which commit to which an item began to fail, and what may have changed the line at fault."""
        ran = [self.line.columns[at].results for at, cell in enumerate(row.cells) if cell]
        before, after = (one.facts.get("commit", "") for one in (*ran[:1], *ran[-2:])[-2:])
        if before == after:
            return []
        place = row.latest.cause.place if row.latest and row.latest.cause else None
        found = suspects(Path(ran[-1].plan.root), before, after, place.file if place else "")
        told = [f"suspect: {brief(text, REASON)}" for text in found]
        span = f"commits {before or 'unknown'}..{after or 'unknown'}"
        return [element("div", text, class_="note") for text in (span, *told)]

    def sections(self) -> Iterator[Markup]:
        """Yield the grid, the nights and the items."""
        name = self.line.name
        legend = [
            element(
                "li",
                element("span", SIGNS[ended], class_=f"sign cell-{OUTCOME_CLASSES[ended]}", aria_hidden="true"),
                f" {ended.value}",
            )
            for ended in Outcome
        ]
        legend.append(element("li", "empty: not planned, or not run yet"))
        if any(column.environment for _, column in self.columns):
            legend.append(element("li", element("b", "Δ"), " another environment than the night before"))
        heads = [element("th", "item", scope="col"), *self._heads()]
        yield element(
            "section",
            element("h2", literal(name)),
            element("ul", legend, class_="legend"),
            _table(name, heads, map(self._row, self.rows), "matrix"),
            class_="nights",
            aria_label=f"items and nights of {name}",
        )
        heads = [
            element("th", one, scope="col")
            for one in ("night", "commit", *(one.value for one in Outcome), "items took", "another environment")
        ]
        nights = _table(f"nights of {name}", heads, (self._night(*one) for one in self.columns), "list")
        yield element("section", element("h2", f"Nights of {name}"), nights)
        yield element("section", element("h2", f"Items of {name}"), map(self._item, self.rows), class_="items")

    def _heads(self) -> Iterator[Markup]:
        """Yield a night's day, with the time where another night began on it, too."""
        began = {number: column.results.night.began for number, column in self.columns}
        days = Counter(one.date() for one in began.values() if one)
        for number, column in self.columns:
            night, commit = began[number], column.results.facts.get("commit", "")
            words = [f"{night:%b}", f"{night:%d}"] if night else ["?"]
            words += [f"{night:%H:%M}"] if night and days[night.date()] > 1 else []
            shown = [word if not place else [element("br"), word] for place, word in enumerate(words)]
            mark = element("b", "Δ") if column.environment else None
            told = [when(column), *([f"commit {commit}"] if commit else []), *map(str, column.environment)]
            link = element("a", markup(shown), mark, href=f"#night-{self.place}-{number}")
            yield element("th", link, scope="col", title="\n".join(told))

    def _row(self, row: TimelineRow) -> Markup:
        item, latest = row.item, row.latest
        cells = [_cell(row.cells[at], f"{column.href}/items/{row.slug}/") for at, column in self.columns]
        facts = {"kind": item.chain, "mode": item.mode, "device": item.device, "tag": " ".join(item.tags)}
        facts["outcome"] = latest.record.outcome.value if latest else ""
        given = {f"data_{key}": value for key, value in facts.items() if value and key in self.filters}
        head = element("th", self.link(row), scope="row")
        return element("tr", head, cells, data_changed=row.changed or None, **given)

    def _night(self, number: int, column: Column) -> Markup:
        results = column.results
        said = [element("div", text, class_="note") for text in (*results.wrong, *results.notes)]
        left = "" if results.finished else " not finished"
        cells = [
            results.facts.get("commit", ""),
            *(str(results.counts[one] or "") for one in Outcome),
            duration(results.seconds),
            markup(element("div", str(fact)) for fact in column.environment),
        ]
        return element(
            "tr",
            element("th", element("a", when(column), href=f"{column.href}/"), left, said, scope="row"),
            [element("td", one) for one in cells],
            id=f"night-{self.place}-{number}",
        )

    def _item(self, row: TimelineRow) -> Markup:
        """Return an item, folded: its latest run, those that did not pass, curves."""
        item, latest = row.item, row.latest
        head = element(
            "summary",
            outcome(latest.record.outcome) if latest else "has not run",
            " ",
            element("b", literal(self.names[item.id])),
            f" {row.changed}" if row.changed else None,
        )
        told = element("p", " · ".join(filter(None, [item.id, item.source, item.chain, *item.tags])), class_="note")
        there = [(column, row.cells[at]) for at, column in self.columns if row.cells[at]]
        bad = [one for one in there[1:] if one[1] and one[1].record.outcome is not Outcome.PASS]
        runs = [_run(row, column, cell) for column, cell in [*there[:1], *bad[:LISTED]] if cell]
        more = element("p", f"{len(bad) - LISTED} more nights did not pass.", class_="note") if bad[LISTED:] else None
        return element(
            "details",
            head,
            told,
            element("ul", runs, class_="runs"),
            more,
            _trends(row),
            id=f"i{self.place}-{row.slug}",
            class_="item",
        )


def _cell(cell: Cell | None, base: str) -> Markup:
    """Return a cell; what did not pass leads to its log or report.

    Most cells passed: those are as short as HTML lets them be, without the end tag that another cell or row makes needless.
    """
    if cell is None:
        return Markup('<td class="none">')
    ended = cell.record.outcome
    if ended is Outcome.PASS:
        return Markup(f"<td>{SIGNS[ended]}")
    class_, words = f"cell-{OUTCOME_CLASSES[ended]}", f"{ended.value}: {brief(cell.why, REASON)}"
    target = cell.report if cell.report.endswith(".html") else cell.log or cell.report
    if ended is Outcome.SKIP or not target:
        return element("td", SIGNS[ended], class_=class_, title=words)
    return element("td", element("a", SIGNS[ended], href=base + target, title=words), class_=class_)


def _run(row: TimelineRow, column: Column, cell: Cell) -> Markup:
    record = cell.record
    links = [
        markup(" ", element("a", name, href=f"{column.href}/items/{row.slug}/{path}"))
        for name, path in (("report", cell.report), ("log", cell.log))
        if path
    ]
    took = f", {duration(record.seconds)}" if record.attempt else ""
    machine = f" on {record.machine}" if record.machine else ""
    reason = [": ", prose(brief(cell.why, 500))] if cell.why else None
    return element("li", f"{when(column)} ", outcome(record.outcome), f"{took}{machine}", reason, links)


def _trends(row: TimelineRow) -> Markup | None:
    """Return the curves of the seconds and the first figures of an item; the rest is counted."""
    ran = [cell if cell and cell.record.attempt else None for cell in row.cells]
    names = list(dict.fromkeys(name for cell in reversed(ran) if cell for name in cell.figures))
    values = {"seconds": [cell.record.seconds if cell else float("nan") for cell in ran]}
    for name in names[:FIGURES]:
        values[name] = [cell.figures.get(name, float("nan")) if cell else float("nan") for cell in ran]
    curves = [_curve(title, ones) for title, ones in values.items() if any(map(isfinite, ones))]
    if names[FIGURES:]:
        curves.append(element("li", f"{len(names) - FIGURES} more figures are in the reports.", class_="note"))
    return element("ul", curves, class_="trends") if curves else None


def _curve(title: str, values: Sequence[float]) -> Markup:
    """Return a curve, and in words its least, largest and latest value."""
    finite = [value for value in values if isfinite(value)]
    low, high, last = (f"{value:.4g}" for value in (min(finite), max(finite), finite[-1]))
    told = f"{title}: {low} to {high} in {len(finite)} nights, latest {last}"
    level = Scale(*linear(values), 38, 2)
    steps, before = [], None
    for at, value in enumerate(values):
        height = round(level(value)) if isfinite(value) else None
        if height is not None:  # the line ends where nothing ran; h0 makes a point of a single run
            steps.append(f"M{8 * at + 4} {height}h0" if before is None else f"l8 {height - before}")
        before = height
    path = element("path", d="".join(steps))
    return element("li", told, element("svg", path, viewBox=f"0 0 {8 * len(values)} 40", aria_hidden="true"))
