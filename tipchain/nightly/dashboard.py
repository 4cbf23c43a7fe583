"""The latest nights as one HTML file: a grid of items and nights, kinds of chains, curves, links to logs."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import isfinite
from pathlib import Path, PurePosixPath

from tipchain.chain.kinds import KINDS, TRAIN_INFER
from tipchain.chain.lint import files_by_kind, is_checkout
from tipchain.core.language import clean, cut, many, say, template
from tipchain.core.quantities import duration
from tipchain.errors import Outcome, tally, worst
from tipchain.nightly.items import Item
from tipchain.nightly.origin import suspects
from tipchain.nightly.timeline import Cell, Column, Timeline, TimelineRow
from tipchain.report.page import Markup, Scale, asset, banner, element, linear, literal, markup, outcome, page, prose

SIGNS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.ERROR: "!", Outcome.SKIP: "–"}  # noqa: RUF001
OUTCOME_CLASSES = {Outcome.PASS: "p", Outcome.FAIL: "f", Outcome.ERROR: "e", Outcome.SKIP: "s"}
"""The ends of the names of cells' classes."""
LISTED_NIGHTS = 10
"""Nights that did not pass, of an item, the latest first."""
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+"
"""A curve's heights, the lowest first: as many as a plot of that size shows."""


def brief(text: str, width: int) -> str:
    """Return a text in the reader's language, cut to so many columns, without control characters."""
    return cut(say(clean(text)), width)


def when(column: Column) -> str:
    """Return when a night began, as people write it."""
    night = column.results.night
    return f"{night.began:%Y-%m-%d %H:%M}" if night.began else night.name


def latest_first(columns: Sequence[Column]) -> list[tuple[int, Column]]:
    """Return the nights with their numbers, the latest first."""
    return list(enumerate(columns))[::-1]


def part_id(place: int, row: TimelineRow) -> str:
    """Return the id of an item's part, of the manifest at ``place``."""
    return f"i{place}-{row.slug}"


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


def unsteady(row: TimelineRow, columns: Sequence[Column]) -> Markup | None:
    """Return a mark of an item that ended otherwise though neither commit nor environment had changed; None of others."""
    if not row.flips:
        return None
    nights = ", ".join(when(columns[place]) for place in reversed(row.flips))
    told = f"ended otherwise than the time before, without a change of commit or environment: {nights}"
    return element("span", "unsteady", class_="badge", title=told)


def item_part(row: TimelineRow, columns: Sequence[Column], most: int, name: str, short: str) -> Markup:
    """Return an item, folded.

    Args:
        row: the item.
        columns: the nights.
        most: figures that are plotted.
        name: its id.
        short: what it is called for short.
    """
    item, latest = row.item, row.latest
    state = outcome(latest.record.outcome) if latest else "has not run"
    mark = unsteady(row, columns)
    head = element(
        "summary",
        state,
        " ",
        element("b", short),
        f" {row.changed}" if row.changed else None,
        " " if mark else None,
        mark,
    )
    facts = [item.id, item.source, item.chain, *item.tags]
    told = element("p", " · ".join(filter(None, facts)), class_="note")
    return element("details", head, told, _runs(row, columns), _trends(row, most), id=name, class_="item")


def _runs(row: TimelineRow, columns: Sequence[Column]) -> Markup:
    """Return the latest run, and the latest that did not pass."""
    there = [(column, cell) for column, cell in zip(columns, row.cells, strict=True) if cell][::-1]
    bad = [one for one in there[1:] if one[1].record.outcome is not Outcome.PASS]
    rows = [_run(row, column, cell) for column, cell in (*there[:1], *_turns(bad)[:LISTED_NIGHTS])]
    left = len(bad) - len(rows) + 1
    more = element("p", f"{left} more nights did not pass.", class_="note") if left > 0 else None
    return markup(element("ul", rows, class_="runs"), more)


def _turns(bad: Sequence[tuple[Column, Cell]]) -> list[tuple[Column, Cell]]:
    """Return the first run of each row of runs with the same outcome and reason."""
    found: list[tuple[Column, Cell]] = []
    for one in bad:
        if not found or (one[1].record.outcome, one[1].record.reason) != (
            found[-1][1].record.outcome,
            found[-1][1].record.reason,
        ):
            found.append(one)
    return found


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


def _trends(row: TimelineRow, most: int) -> Markup:
    """Return the curves of the seconds, the memory and, at most so many, the figures of an item; the rest is counted."""
    names = list(dict.fromkeys(name for cell in reversed(row.cells) if cell for name in cell.figures))
    curves = [_curve(title, values) for title, values in _series(row, names[:most]) if any(map(isfinite, values))]
    left = len(names) - most
    more = element("p", f"{left} more figures are in the reports.", class_="note") if left > 0 else None
    return markup(element("ul", curves, class_="trends") if curves else None, more)


def _series(row: TimelineRow, names: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    ran = [cell if cell and cell.record.attempt else None for cell in row.cells]
    yield "seconds", [cell.record.seconds if cell else float("nan") for cell in ran]
    memory = [cell.record.peak_memory_mb if cell else 0.0 for cell in ran]
    yield "memory in MiB", [value or float("nan") for value in memory]
    for name in names:
        yield name, [cell.figures.get(name, float("nan")) if cell else float("nan") for cell in ran]


def _curve(title: str, values: Sequence[float]) -> Markup:
    """Return a curve in words; the script draws it from the least, the largest and the latest value and a letter a night."""
    finite = [value for value in values if isfinite(value)]
    low, high, last = (_short(value) for value in (min(finite), max(finite), finite[-1]))
    level = Scale(*linear(values), 0, len(LEVELS) - 1)
    letters = "".join(LEVELS[round(level(value))] if isfinite(value) else "." for value in values)
    told = f"{title}: {low} to {high} in {len(finite)} nights, latest {last}"
    return element("li", told, data_curve=f"{low} {high} {last} {letters}")


def _short(value: float) -> str:
    text = f"{value:.4g}"
    return text if len(text) <= 7 else f"{value:.2g}"  # as wide as the room beside a curve


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
            skipped.setdefault(key, cell.why)
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
    parts = [_covered(rows), _table(rows, f"kinds of {line.name}"), _skipped(rows)]
    if sum(bool(row.files) for row in rows) > 1:
        parts.append(_matrix(line, place))
    return element("section", element("h2", f"Kinds of chains of {line.name}"), parts, class_="kinds")


def _table_of(name: str, heads: Sequence[Markup], rows: Iterable[Markup], **attributes: object) -> Markup:
    """Return a table that scrolls; ``name`` says what it shows."""
    head = element("thead", element("tr", heads))
    table = element("table", head, element("tbody", rows), **attributes)
    return element("div", table, class_="wide", tabindex="0", role="group", aria_label=f"{name}, scrollable")


def _heads(names: Iterable[str]) -> list[Markup]:
    return [element("th", one, scope="col") for one in names]


def _covered(rows: Sequence[KindRow]) -> Markup:
    """Return how many of the checkout's files the night covers, and how these ended."""
    files, there = sum(row.files for row in rows), [row.there for row in rows if row.there is not None]
    ended = sum((Counter(row.ended) for row in rows), Counter[Outcome]())
    covers = (
        f"{files} of {many(sum(there), 'parameter file')} in the checkout" if there else many(files, "parameter file")
    )
    return element("p", f"The night covers {covers}: {tally(ended)}.")


def _table(rows: Sequence[KindRow], title: str) -> Markup:
    heads = ("kind of chain", "files here", "in the night", *(one.value for one in Outcome))
    body = []
    for row in rows:
        counts = [str(row.ended.get(one, 0) or "") for one in Outcome]
        cells = ["" if row.there is None else str(row.there), str(row.files or ""), *counts]
        name = element("th", row.name, scope="row", title=KINDS[row.name].title)
        body.append(element("tr", name, [element("td", one) for one in cells]))
    return _table_of(title, _heads(heads), body, class_="list")


def _skipped(rows: Sequence[KindRow]) -> Markup | None:
    """Return why files were skipped, by kind."""
    told = []
    for row in rows:
        reasons = list(row.reasons.items())
        told += [element("li", f"{count} of {row.name}: {brief(text, LONGEST)}") for text, count in reasons[:REASONS]]
        left = len(reasons) - REASONS
        told += [element("li", f"and {many(left, 'more reason')}")] if left > 0 else []
    return element("div", element("p", "Skipped:"), element("ul", told, class_="changes")) if told else None


def chain_name(source: str) -> str:
    """Return the name of the chain that a parameter file belongs to, the same for files of all kinds."""
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
            element("th", literal(chain), scope="row"),
            [_ended(found[chain].get(name, ()), place) for name in names],
        )
        for chain in sorted(found)
    ]
    heads = _heads(("chain", *(name.replace("_", " ") for name in names)))
    return _table_of(f"chains and kinds of {line.name}", heads, body, class_="matrix")


def _ended(items: Sequence[tuple[TimelineRow, Cell]], place: int) -> Markup:
    """Return the cell of a chain's items of one kind: how the worst ended, and a link to it."""
    if not items:
        return element("td")
    outcome = worst(cell.record.outcome for _, cell in items)
    row, cell = next(one for one in items if one[1].record.outcome is outcome)
    reason = "" if outcome is Outcome.PASS else f": {brief(cell.why, LONGEST)}"
    sign = element("a", SIGNS[outcome], href=f"#{part_id(place, row)}", title=f"{outcome.value} {row.item.id}{reason}")
    return element("td", sign, class_=f"cell-{OUTCOME_CLASSES[outcome]}")


# Without scripts the page shows everything, curves in words; with them curves are drawn, items are filtered, the grid is
# walked with the arrow keys, and each cell tells its reason beside it.


LARGEST = 5_000_000
"""Bytes; above that fewer figures are plotted."""
FIGURES = (6, 2, 0)
"""How many figures of an item are plotted, in the first page, and in one that would be too large."""
LISTED = 40
"""Items of a kind that stand at the top; the rest is counted."""
REASON = 200
WORDS = {
    "item": "{n} item",
    "items": "{n} items",
    "some": "{n} of {n2} items",
    "seconds": "{n} s",
    "report": "report",
    "log": "log",
    "none": "not planned, or not run yet",
    "keys": "Arrow keys go from cell to cell, Enter to its log or report, Escape back.",
}
"""What the script says, in English with open places."""
STATES = (("FAIL", "fail"), ("NOT FINISHED", "unknown"), ("PASS", "pass"))
"""What a night came to, the worst first: the word, and the page's tone."""
SECONDS = 100
"""From which on a run's seconds are told in whole ones."""


def render(timelines: Sequence[Timeline], problems: Sequence[str] = ()) -> str:
    """Return the page; the same nights give the same text.

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
    text, filters = "", ({name: values for name, values in found.items() if len(values) > 1})
    lines = [_Line(place, line, filters) for place, line in enumerate(sorted(timelines, key=_state))]
    for most in FIGURES:
        text = _render(lines, problems, most)
        if len(text.encode()) <= LARGEST:
            break
    return text


def _state(line: Timeline) -> int:
    """Return the place of the latest night in `STATES`; one whose shares are not of one plan failed."""
    results = line.columns[-1].results
    return 0 if results.bad or results.wrong else 1 if not results.finished else 2


class _Line:
    """The nights of a manifest as the page shows them: what fails comes first.

    Attributes:
        place: of the manifest on the page.
        line: the nights.
        filters: what the page's items are filtered by, with the values that they have.
        rows: its items: what has just begun to fail, what fails for longer, the rest.
        names: what they are called for short, by id.
    """

    def __init__(self, place: int, line: Timeline, filters: Mapping[str, Sequence[str]]) -> None:
        self.place, self.line, self.filters = place, line, filters
        self.rows = sorted(line.rows, key=lambda row: -row.since if row.bad else 1)
        self.names = short_names(row.item for row in line.rows)

    def id(self, row: TimelineRow) -> str:
        return part_id(self.place, row)

    def name(self, row: TimelineRow) -> Markup:
        return literal(self.names[row.item.id])


def _render(lines: Sequence[_Line], problems: Sequence[str], most: int) -> str:
    script, style = (asset(f"page.{kind}") + asset(f"dashboard.{kind}", "tipchain.nightly") for kind in ("js", "css"))
    timelines = [one.line for one in lines]
    names, numbers = ", ".join(line.name for line in timelines), _Numbers()
    bad, state = sum(len(one.columns[-1].results.bad) for one in timelines), min(map(_state, timelines))
    head, tone = STATES[state]
    body = [
        banner(tone, head, f"nights of {names}", *map(_latest, lines)),
        element("ul", [element("li", one) for one in problems], class_="problems") if problems else None,
        _controls(lines[0].filters),
        *(part for one in lines for part in _manifest(one, most, numbers)),
        element("script", numbers.json(timelines), type="application/json", id="data"),
    ]
    word = f"{bad} failed" if bad else ("cut wrongly", "not finished", "passed")[state]
    return page(f"{word}: nights of {names}", [one for one in body if one], style=style, script=script)


def _latest(one: _Line) -> Markup:
    """Return what the latest night came to: what has begun to fail, what still fails, what else changed."""
    line, column = one.line, one.line.columns[-1]
    said = (*column.results.wrong, *column.results.notes)
    parts = [_came_to(line), _list(element("li", text) for text in said)]
    bad = [row for row in one.rows if row.bad and row.cells[-1]]
    fresh = [row for row in bad if row.newly_bad]
    others = [row for row in one.rows if row.changed and not (row.bad and row.cells[-1])]
    swaying = [row for row in one.rows if row.flips and not row.changed and not row.bad]
    environment = [element("li", f"environment: {text}") for text in column.environment]
    for title, entries in (
        ("Newly failing:", [*_entries(one, fresh, suspects=True)]),
        (
            "Still failing:" if len(line.columns) > 1 else "Failing:",
            [*_entries(one, [row for row in bad if not row.newly_bad])],
        ),
        ("Otherwise changed since the night before:", [*environment, *_entries(one, others)]),
        ("Unsteady, without a change of commit or environment:", [*_entries(one, swaying)]),
    ):
        if entries:
            parts += [element("p", title), _list(entries)]
    if not (environment or any(row.changed for row in one.rows)) and len(line.columns) > 1:
        parts.append(element("p", "Nothing changed since the night before."))
    return markup(parts)


def _came_to(line: Timeline) -> Markup:
    column, results = line.columns[-1], line.columns[-1].results
    bad = len(results.bad)
    counts = results.counts
    total = many(sum(counts.values()), "item")
    word = f"{bad} of {total} did not pass" if bad else f"{counts[Outcome.PASS]} of {total} passed"
    head, tone = STATES[_state(line)]
    commit = results.facts.get("commit", "")
    state = "" if results.finished else ", so far: the night is not finished"
    return element(
        "p",
        element("strong", head, class_=f"outcome {'error' if tone == 'unknown' else tone}"),
        f"{line.name}, {when(column)}",
        f", commit {commit}" if commit else "",
        f": {word}{state}.",
    )


def _entries(one: _Line, rows: Sequence[TimelineRow], *, suspects: bool = False) -> Iterator[Markup]:
    """Yield a line for each item: how it ended, what it is called, since when, why, and which commits may have done it."""
    columns = one.line.columns
    for row in rows[:LISTED]:
        latest = row.latest
        word = row.changed or (latest.record.outcome.value if latest else "")
        reason = latest.why if latest and row.changed != "gone" else ""
        begun = row.bad and row.latest is row.cells[-1] and not row.newly_bad and row.since < len(columns) - 1
        since = f" since {when(columns[row.since])}" if begun else ""
        mark = unsteady(row, columns)
        yield element(
            "li",
            f"{word} ",
            element("a", one.name(row), href=f"#{one.id(row)}", title=row.item.id),
            since,
            [" ", mark] if mark else None,
            [": ", prose(brief(reason, REASON))] if reason else None,
            _page_of(row, columns),
            _suspects(row, columns) if suspects else None,
        )
    if len(rows) > LISTED:
        yield element("li", f"and {len(rows) - LISTED} more")


def _suspects(row: TimelineRow, columns: Sequence[Column]) -> Markup | None:
    """Return from which commit to which an item began to fail, and what may have changed the line at fault."""
    ran = [columns[at].results for at, cell in enumerate(row.cells) if cell]
    before, after = (one.facts.get("commit", "") for one in (*ran[:1], *ran[-2:])[-2:])
    if before == after:
        return None
    place = row.latest.cause.place if row.latest and row.latest.cause else None
    found = suspects(Path(ran[-1].plan.root), before, after, place.file if place else "")
    told = [
        f"commits {before or 'unknown'}..{after or 'unknown'}",
        *(f"suspect: {brief(text, REASON)}" for text in found),
    ]
    return markup(element("div", text, class_="note") for text in told)


def _page_of(row: TimelineRow, columns: Sequence[Column]) -> Markup | None:
    """Return a link to the page that an item left when it failed."""
    at = max((place for place, cell in enumerate(row.cells) if cell), default=None)
    cell = None if at is None else row.cells[at]
    if at is None or cell is None or not row.bad or not cell.report.endswith(".html"):
        return None
    return markup(" ", element("a", "page", href=f"{columns[at].href}/items/{row.slug}/{cell.report}"))


def _list(rows: Iterable[Markup]) -> Markup | None:
    found = list(rows)
    return element("ul", found, class_="changes") if found else None


def _controls(filters: Mapping[str, Sequence[str]]) -> Markup:
    return element(
        "form",
        element("label", "Find ", element("input", type="search", id="find", autocomplete="off")),
        [
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
        ],
        element("label", element("input", type="checkbox", id="changed"), " only what changed"),
        element("button", "Show all", type="reset"),
        element("output", id="shown", aria_live="polite"),
        class_="controls filters",
        id="filters",
        hidden=True,
        aria_label="filters",
    )


def _manifest(one: _Line, most: int, numbers: _Numbers) -> Iterator[Markup]:
    place, line = one.place, one.line
    turns = [number for number, column in enumerate(line.columns) if column.environment]
    legend = [
        element(
            "li",
            element("span", SIGNS[ended], class_=f"sign cell-{OUTCOME_CLASSES[ended]}", aria_hidden="true"),
            f" {ended.value}",
        )
        for ended in Outcome
    ]
    legend.append(element("li", "empty: not planned, or not run yet"))
    if turns:
        legend.append(element("li", element("b", "Δ"), " another environment than the night before"))
    days = Counter(began.date() for column in line.columns if (began := column.results.night.began))
    heads = [
        element(
            "th",
            element(
                "a", _day(column, days), element("b", "Δ") if number in turns else None, href=f"#night-{place}-{number}"
            ),
            scope="col",
            title=_title_of(column),
        )
        for number, column in latest_first(line.columns)
    ]
    body = (_row(one, row, numbers) for row in one.rows)
    yield element(
        "section",
        element("h2", literal(line.name)),
        element("ul", legend, class_="legend"),
        _table_of(line.name, [*_heads(["item"]), *heads], body, class_="matrix", data_manifest=place),
        id=f"grid-{place}",
        class_="nights",
        aria_label=f"items and nights of {line.name}",
    )
    if kinds := kinds_part(line, place):
        yield kinds
    yield element("section", element("h2", f"Nights of {line.name}"), _nights(place, line))
    yield element(
        "section",
        element("h2", f"Items of {line.name}"),
        (item_part(row, line.columns, most, one.id(row), one.name(row)) for row in one.rows),
        class_="items",
    )


def _day(column: Column, days: Mapping[date, int]) -> Markup:
    """Return a night's day, with the time where another night began on it, too."""
    began = column.results.night.began
    if began is None:
        return markup("?")
    words = [f"{began:%b}", f"{began:%d}"] + [f"{began:%H:%M}"] * (days[began.date()] > 1)
    return markup(word if not number else [element("br"), word] for number, word in enumerate(words))


def _title_of(column: Column) -> str:
    commit = column.results.facts.get("commit", "")
    lines = [when(column), f"commit {commit}" if commit else "", *map(str, column.environment)]
    return "\n".join(filter(None, lines))


def _row(one: _Line, row: TimelineRow, numbers: _Numbers) -> Markup:
    item, columns = row.item, one.line.columns
    numbers.add(one.place, row)
    cells = [_cell(row.cells[at], f"{column.href}/items/{row.slug}/") for at, column in latest_first(columns)]
    mark = unsteady(row, columns)
    name = element("a", one.name(row), href=f"#{one.id(row)}")
    facts = {"kind": item.chain, "mode": item.mode, "device": item.device, "tag": " ".join(item.tags)}
    given = {f"data_{key}": value for key, value in facts.items() if value and key in one.filters}
    head = element("th", name, [" ", mark] if mark else None, scope="row")
    return element("tr", head, cells, data_changed=row.changed or None, **given)


def _cell(cell: Cell | None, base: str) -> Markup:
    """Return a cell; what did not pass leads to the log or report without a script too.

    Most cells passed: those are as short as HTML lets them be, without the end tag that another cell or row makes needless.
    """
    if cell is None:
        return Markup('<td class="none">')
    outcome = cell.record.outcome
    target = cell.report if cell.report.endswith(".html") else cell.log or cell.report
    sign = SIGNS[outcome]
    if outcome is not Outcome.PASS:
        words = f"{outcome.value}: {brief(cell.why, 120)}"
        if outcome is Outcome.SKIP or not target:
            return element("td", sign, class_=f"cell-{OUTCOME_CLASSES[outcome]}", title=words)
        return element(
            "td", element("a", sign, href=base + target, title=words), class_=f"cell-{OUTCOME_CLASSES[outcome]}"
        )
    return Markup(f"<td>{sign}")


def _nights(place: int, line: Timeline) -> Markup:
    heads = ("night", "commit", *(one.value for one in Outcome), "items took", "another environment")
    rows = []
    for number, column in latest_first(line.columns):
        results = column.results
        name = element("a", when(column), href=f"{column.href}/")
        left = " not finished" if not results.finished else ""
        said = [element("div", text, class_="note") for text in (*results.wrong, *results.notes)]
        ended = results.counts
        facts = [element("div", str(fact)) for fact in column.environment]
        cells = [
            results.facts.get("commit", ""),
            *(str(ended[one] or "") for one in Outcome),
            duration(results.seconds),
            markup(facts),
        ]
        rows.append(
            element(
                "tr",
                element("th", name, left, said, scope="row"),
                [element("td", one) for one in cells],
                id=f"night-{place}-{number}",
            )
        )
    return _table_of(f"nights of {line.name}", _heads(heads), rows, class_="list")


class _Numbers:
    """Collects the cells for the page's script, in the grid's order: null where nothing ran; texts by their number.

    The seconds alone stand for a run that passed and left its log and report where the first run did.
    """

    def __init__(self) -> None:
        self._texts: dict[str, int] = {"": 0}
        self._items: list[list[object]] = []
        self._usual: list[int] | None = None

    def add(self, place: int, row: TimelineRow) -> None:
        """Take a row; rows come in the order of the page."""
        while len(self._items) <= place:
            self._items.append([])
        self._items[place].append([*self._cells(row.cells[::-1])])

    def _cells(self, cells: Iterable[Cell | None]) -> Iterator[object]:
        for cell in cells:
            if cell is None:
                yield None
                continue
            record, reason = cell.record, self._number(brief(cell.why, 500))
            left = [self._number(clean(one)) for one in (cell.log, cell.report)]
            self._usual = self._usual or left
            seconds = round(record.seconds, 1 if record.seconds < SECONDS else None)
            if (record.outcome, reason, left) == (Outcome.PASS, 0, self._usual):
                yield seconds
            else:
                yield [list(Outcome).index(record.outcome), seconds, reason, *left]

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def json(self, timelines: Sequence[Timeline]) -> Markup:
        """Return everything as JSON that cannot end the element it stands in."""
        nights = [
            [{"when": when(one), "href": one.href} for _, one in latest_first(line.columns)] for line in timelines
        ]
        document = {
            "texts": [*self._texts],
            "usual": self._usual,
            "items": self._items,
            "nights": nights,
            "words": {name: template(message) for name, message in WORDS.items()},
        }
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
        return Markup(text.replace("<", "\\u003c"))
