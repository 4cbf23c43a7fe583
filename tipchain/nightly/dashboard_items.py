"""The part of the dashboard that tells one item: what it is, its latest run, what did not pass, and its curves."""

from __future__ import annotations

from collections.abc import Sequence

from tipchain.live.html_markup import Markup, element, markup
from tipchain.nightly.quantities import duration
from tipchain.nightly.timeline import Cell, Column, Row
from tipchain.nightly.trends import trend_plots
from tipchain.outcome import Outcome
from tipchain.report.terminal import clean

SIGNS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.ERROR: "!", Outcome.SKIP: "–"}  # noqa: RUF001
LISTED = 10
"""Nights that did not pass, of an item, the latest first."""


def cut(text: str, length: int) -> str:
    """Return at most ``length`` characters of a text, without control characters."""
    text = clean(text)
    return text if len(text) <= length else f"{text[: length - 1]}…"


def when(column: Column) -> str:
    """Return when a night began, as people write it."""
    return f"{column.when:%Y-%m-%d %H:%M}" if column.when else column.results.night.name


def latest_first(columns: Sequence[Column]) -> list[tuple[int, Column]]:
    """Return the nights with their numbers, the latest first."""
    return list(enumerate(columns))[::-1]


def part_id(place: int, row: Row) -> str:
    """Return the id of an item's part, of the manifest at ``place``."""
    return f"i{place}-{row.slug}"


def item_part(row: Row, columns: Sequence[Column], turns: Sequence[int], most: int, name: str) -> Markup:
    """Return an item, folded.

    Args:
        row: the item.
        columns: the nights.
        turns: columns whose environment is another than the one's before.
        most: figures that are plotted.
        name: its id.
    """
    item, latest = row.item, row.latest
    word = latest.record.outcome if latest else None
    state = element("span", word.value, class_=f"outcome {word.value.lower()}") if word else "has not run"
    head = element("summary", state, " ", element("b", item.id), f" {row.changed}" if row.changed else None)
    facts = [item.source, item.mode, item.device, *item.tags]
    told = element("p", " · ".join(filter(None, facts)), class_="note")
    return element(
        "details", head, told, _runs(row, columns), trend_plots(row, turns, most), id=name, class_="item"
    )


def _runs(row: Row, columns: Sequence[Column]) -> Markup:
    """Return the latest run, and the latest that did not pass."""
    there = [(column, cell) for column, cell in zip(columns, row.cells, strict=True) if cell][::-1]
    bad = [one for one in there[1:] if one[1].record.outcome is not Outcome.PASS]
    rows = [_run(row, column, cell) for column, cell in (*there[:1], *_turns(bad)[:LISTED])]
    left = len(bad) - len(rows) + 1
    more = element("p", f"{left} more nights did not pass.", class_="note") if left > 0 else None
    return markup(element("ul", rows, class_="runs"), more)


def _turns(bad: Sequence[tuple[Column, Cell]]) -> list[tuple[Column, Cell]]:
    """Return the runs whose reason is another than the next's: the first of each kind says enough of the others."""
    found: list[tuple[Column, Cell]] = []
    for one in bad:
        if not found or (one[1].record.outcome, one[1].record.reason) != (
            found[-1][1].record.outcome, found[-1][1].record.reason,
        ):  # fmt: skip
            found.append(one)
    return found


def _run(row: Row, column: Column, cell: Cell) -> Markup:
    record = cell.record
    links = [
        markup(" ", element("a", name, href=f"{column.href}/items/{row.slug}/{path}"))
        for name, path in (("report", cell.report), ("log", cell.log))
        if path
    ]
    took = f", {duration(record.seconds)}" if record.attempt else ""
    machine = f" on {record.machine}" if record.machine else ""
    reason = f": {cut(record.reason, 500)}" if record.reason else ""
    outcome = element("span", record.outcome.value, class_=f"outcome {record.outcome.value.lower()}")
    return element("li", f"{when(column)} ", outcome, f"{took}{machine}{reason}", links)
