"""The items of the dashboard: what one is called for short, its latest runs, what did not pass, and its curves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from tipchain.foreign_text import clean
from tipchain.nightly.items import Item
from tipchain.nightly.timeline import Cell, Column, Row
from tipchain.outcome import BAD, Outcome
from tipchain.quantities import duration
from tipchain.report.html.chart import Scale, linear
from tipchain.report.html.page import Markup, element, markup, prose
from tipchain.report.html.parts import outcome

SIGNS = {Outcome.PASS: "✓", Outcome.FAIL: "✗", Outcome.ERROR: "!", Outcome.SKIP: "–"}  # noqa: RUF001
OUTCOME_CLASSES = {Outcome.PASS: "p", Outcome.FAIL: "f", Outcome.ERROR: "e", Outcome.SKIP: "s"}
"""The ends of the names of cells' classes."""
LISTED = 10
"""Nights that did not pass, of an item, the latest first."""
TREND_WIDTH, TREND_HEIGHT = 300, 76
TREND_LEFT, TREND_RIGHT, TREND_TOP, TREND_BOTTOM = 4, 52, 8, 8
DOT = 2
"""Points up to which each is a dot of its own, so that it is seen."""


def cut(text: str, length: int) -> str:
    """Return at most ``length`` characters of a text, without control characters."""
    text = clean(text)
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


def part_id(place: int, row: Row) -> str:
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


def unsteady(row: Row, columns: Sequence[Column]) -> Markup | None:
    """Return a mark of an item that ended otherwise though neither commit nor environment had changed; None of others."""
    if not row.flips:
        return None
    nights = ", ".join(when(columns[place]) for place in reversed(row.flips))
    told = f"ended otherwise than the time before, without a change of commit or environment: {nights}"
    return element("span", "unsteady", class_="badge", title=told)


def item_part(
    row: Row, columns: Sequence[Column], turns: Sequence[int], most: int, name: str, short: str
) -> Markup:
    """Return an item, folded.

    Args:
        row: the item.
        columns: the nights.
        turns: columns whose environment is another than the one's before.
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
    return element(
        "details", head, told, _runs(row, columns), _trends(row, turns, most), id=name, class_="item"
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
    reason = [": ", prose(cut(why(cell), 500))] if why(cell) else None
    return element("li", f"{when(column)} ", outcome(record.outcome), f"{took}{machine}", reason, links)


def _trends(row: Row, turns: Sequence[int], most: int) -> Markup:
    """Return plots of the seconds, the memory and the figures of an item.

    Args:
        row: the item.
        turns: columns whose environment is another than the one's before.
        most: figures that are plotted; the rest is counted.
    """
    bad = [place for place, cell in enumerate(row.cells) if cell and cell.record.outcome in BAD]
    names = _names(row)
    plots = [
        _plot(title, values, turns, bad)
        for title, values in _series(row, names[:most])
        if any(map(isfinite, values))
    ]
    left = len(names) - most
    more = element("p", f"{left} more figures are in the reports.", class_="note") if left > 0 else None
    return markup(element("div", plots, class_="trends") if plots else None, more)


def _names(row: Row) -> list[str]:
    """Return the names of the figures, those of the latest night first."""
    return list(dict.fromkeys(name for cell in reversed(row.cells) if cell for name in cell.figures))


def _series(row: Row, names: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    ran = [cell if cell and cell.record.attempt else None for cell in row.cells]
    yield "seconds", [cell.record.seconds if cell else float("nan") for cell in ran]
    memory = [cell.record.peak_memory_mb if cell else 0.0 for cell in ran]
    yield "memory in MiB", [value or float("nan") for value in memory]
    for name in names:
        yield name, [cell.figures.get(name, float("nan")) if cell else float("nan") for cell in ran]


def _plot(title: str, values: Sequence[float], turns: Sequence[int], bad: Sequence[int]) -> Markup:
    finite = [value for value in values if isfinite(value)]
    low, high, last = min(finite), max(finite), finite[-1]
    x = Scale(0, max(len(values) - 1, 1), TREND_LEFT, TREND_WIDTH - TREND_RIGHT)
    y = Scale(*linear(values), TREND_HEIGHT - TREND_BOTTOM, TREND_TOP)
    lines = "".join(f"M{x(place - 0.5):.0f} 0V{TREND_HEIGHT}" for place in turns)
    points = [(place, value) for place, value in enumerate(values) if isfinite(value)]
    told = f"{title}: {_short(low)} to {_short(high)} in {len(finite)} nights, latest {_short(last)}"
    parts: list[Markup | None] = [
        element("path", d=lines, class_="turn") if lines else None,
        element("path", d=_curve(points, x, y), class_="line"),
        _dots([one for one in points if one[0] not in bad] if len(points) <= DOT else points[-1:], x, y, ""),
        _dots([one for one in points if one[0] in bad], x, y, " differs"),
        *_labels(low, high, last, y),
    ]
    svg = element(
        "svg", markup(*parts), viewBox=f"0 0 {TREND_WIDTH} {TREND_HEIGHT}", role="img", aria_label=told
    )
    return element("figure", element("figcaption", title), svg)


def _curve(points: Sequence[tuple[int, float]], x: Scale, y: Scale) -> str:
    """Return a path through points, broken where a night has none."""
    steps, before = [], -2
    for place, value in points:
        steps.append(f"{'L' if place == before + 1 else 'M'}{x(place):.0f} {y(value):.1f}")
        before = place
    return "".join(steps)


def _dots(points: Sequence[tuple[int, float]], x: Scale, y: Scale, kind: str) -> Markup | None:
    path = "".join(f"M{x(place):.0f} {y(value):.1f}h0" for place, value in points)
    return element("path", d=path, class_=f"dots{kind}") if path else None


def _labels(low: float, high: float, last: float, y: Scale) -> Iterator[Markup]:
    """Yield the largest, the least and the latest value at their places, where there is room for them."""
    taken: list[float] = []
    for value in dict.fromkeys((last, high, low)):
        place = y(value) + 4
        if all(abs(place - one) >= 11 for one in taken):
            taken.append(place)
            kind = "last" if value == last else None
            yield element(
                "text", _short(value), x=TREND_WIDTH - TREND_RIGHT + 6, y=f"{place:.0f}", class_=kind
            )


def _short(value: float) -> str:
    text = f"{value:.4g}"
    return text if len(text) <= 7 else f"{value:.2g}"  # as wide as the room beside a curve
