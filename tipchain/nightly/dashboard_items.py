"""The items of the dashboard: what one is called for short, its latest runs, what did not pass, and its curves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from tipchain.foreign_text import clean
from tipchain.language import say
from tipchain.nightly.items import Item
from tipchain.nightly.timeline import Cell, Column, TimelineRow
from tipchain.outcome import Outcome
from tipchain.quantities import duration
from tipchain.report.html.chart import Scale, linear
from tipchain.report.html.page import Markup, element, markup, prose
from tipchain.report.html.parts import outcome

SIGNS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.ERROR: "!", Outcome.SKIP: "–"}  # noqa: RUF001
OUTCOME_CLASSES = {Outcome.PASS: "p", Outcome.FAIL: "f", Outcome.ERROR: "e", Outcome.SKIP: "s"}
"""The ends of the names of cells' classes."""
LISTED = 10
"""Nights that did not pass, of an item, the latest first."""
LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+"
"""A curve's heights, the lowest first: as many as a plot of that size shows."""


def cut(text: str, length: int) -> str:
    """Return at most ``length`` characters of a text in the reader's language, without control characters."""
    text = say(clean(text))
    return text if len(text) <= length else f"{text[: length - 1]}…"


def when(column: Column) -> str:
    """Return when a night began, as people write it."""
    return f"{column.when:%Y-%m-%d %H:%M}" if column.when else column.results.night.name


def why(cell: Cell) -> str:
    """Return why an item did not pass: its cause, with what to change, where its report tells one."""
    return cell.causes[0].summary if cell.causes else cell.record.reason


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
        words += [_short_mode(one.mode)] if several["mode"] and one.mode else []
        words += [one.device] if several["device"] else []
        found[one.id] = " ".join(words) + (f" #{one.repeat}" if one.repeat > 1 else "")
    count = Counter(found.values())
    return {name: short if count[short] == 1 else name for name, short in found.items()}


def _short_mode(mode: str) -> str:
    """Return ``lite/whole`` for ``lite_train_whole_infer``, ``whole`` for ``whole_infer``."""
    return re.sub(r"_infer$", "", mode).replace("_train_", "/")


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
        "summary", state, " ", element("b", short), f" {row.changed}" if row.changed else None, " " if mark else None, mark,
    )  # fmt: skip
    facts = [item.id, item.source, item.chain, *item.tags]
    told = element("p", " · ".join(filter(None, facts)), class_="note")
    return element("details", head, told, _runs(row, columns), _trends(row, most), id=name, class_="item")


def _runs(row: TimelineRow, columns: Sequence[Column]) -> Markup:
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


def _run(row: TimelineRow, column: Column, cell: Cell) -> Markup:
    record = cell.record
    links = [
        markup(" ", element("a", name, href=f"{column.href}/items/{row.slug}/{path}"))
        for name, path in (("report", cell.report), ("log", cell.log))
        if path
    ]
    took = f", {duration(record.seconds)}" if record.attempt else ""
    machine = f" on {record.machine}" if record.machine else ""
    reason = [": ", prose(cut(why(cell), 500))] if why(cell) else None
    return element("li", f"{when(column)} ", outcome(record.outcome), f"{took}{machine}", reason, links)


def _trends(row: TimelineRow, most: int) -> Markup:
    """Return the curves of the seconds, the memory and, at most so many, the figures of an item; the rest is counted."""
    names = _names(row)
    curves = [
        _curve(title, values) for title, values in _series(row, names[:most]) if any(map(isfinite, values))
    ]
    left = len(names) - most
    more = element("p", f"{left} more figures are in the reports.", class_="note") if left > 0 else None
    return markup(element("ul", curves, class_="trends") if curves else None, more)


def _names(row: TimelineRow) -> list[str]:
    """Return the names of the figures, those of the latest night first."""
    return list(dict.fromkeys(name for cell in reversed(row.cells) if cell for name in cell.figures))


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
