"""The latest nights as one HTML file: a grid of items and nights, curves, links to logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, nan
from pathlib import Path
from typing import NamedTuple

from tipchain.core.language import clean, cut, many, say, template
from tipchain.core.quantities import duration
from tipchain.errors import Outcome
from tipchain.nightly.origin import suspects
from tipchain.nightly.timeline import Cell, Column, Timeline, TimelineRow
from tipchain.report.charts import Scale, linear
from tipchain.report.page import PageSection, fill

FIGURES = 3
"""Figures of an item that are plotted, besides its seconds."""
LISTED = 40
"""Items of a kind that stand at the top, and nights of an item that did not pass; the rest is counted."""
REASON = 200
STATES = (("FAIL", "fail"), ("NOT FINISHED", "unknown"), ("PASS", "pass"))
"""The results of a night, the worst first: the word, and the page's tone."""


class Trend(NamedTuple):
    """A figure over the nights: its values in words, its path, and the width of that."""

    told: str
    path: str
    width: int


def brief(text: str, width: int) -> str:
    """Return a text in the reader's language, cut to so many columns, without control characters."""
    return cut(say(clean(text)), width)


def when(column: Column) -> str:
    """Return when a night began, as people write it."""
    night = column.results.night
    return f"{night.began:%Y-%m-%d %H:%M}" if night.began else night.name


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
    parts = [ManifestNights(at, line, filters) for at, line in enumerate(sorted(timelines, key=_state))]
    bad, state = sum(len(one.columns[-1].results.bad) for one in timelines), min(map(_state, timelines))
    return fill(
        "dashboard.html",
        word=STATES[state][0],
        tone=STATES[state][1],
        counted=f"{bad} failed" if bad else ("cut wrongly", "not finished", "passed")[state],
        names=", ".join(one.line.name for one in parts),
        problems=problems,
        manifests=parts,
        filters=filters,
        words={name: template(f"{{n}} {name}") for name in ("item", "items")} | {"some": template("{n} of {n2} items")},
        sections=[section for one in parts for section in one.sections()],
        outcomes=list(Outcome),
        listed=LISTED,
        brief=brief,
        duration=duration,
        trends=trends,
        when=when,
    )


def _state(line: Timeline) -> int:
    """Return the place of the latest night in `STATES`; one whose shares are not of one plan failed."""
    results = line.columns[-1].results
    return 0 if results.bad or results.wrong else 1 if not results.finished else 2


class ManifestNights:
    """The nights of a manifest on the page.

    Attributes:
        place: of the manifest on the page.
        line: the nights.
        columns: the nights with their numbers, the latest first.
        filters: what the page's items are filtered by, with the values that they have.
        rows: its items: what has just begun to fail, what fails for longer, the rest.
        latest: the latest night.
        state: the word for what that came to, and its tone.
    """

    def __init__(self, place: int, line: Timeline, filters: Mapping[str, Sequence[str]]) -> None:
        self.place, self.line, self.filters = place, line, filters
        self.columns = list(enumerate(line.columns))[::-1]
        self.rows = sorted(line.rows, key=lambda row: -row.since if row.bad else 1)
        self.latest, self.state = line.columns[-1], STATES[_state(line)]

    def sections(self) -> Iterator[PageSection]:
        """Yield the grid, the nights and the items."""
        for name, title in (("grid", ""), ("nights", "nights"), ("items", "items")):
            yield PageSection(f"{name}-{self.place}", title, self, self.line.name)

    def told(self) -> str:
        """Sum up the latest night in a few words."""
        results = self.latest.results
        bad, total = len(results.bad), many(sum(results.counts.values()), "item")
        word = f"{bad} of {total} did not pass" if bad else f"{results.counts[Outcome.PASS]} of {total} passed"
        return word + ("" if results.finished else ", so far: the night is not finished")

    def groups(self) -> Iterator[tuple[str, list[TimelineRow]]]:
        """Yield the items that begin to fail, still fail, or changed otherwise."""
        failing = [row for row in self.rows if row.bad and row.cells[-1]]
        yield "Newly failing:", [row for row in failing if row.newly_bad]
        yield ("Still failing:" if len(self.columns) > 1 else "Failing:", [row for row in failing if not row.newly_bad])
        others = [row for row in self.rows if row.changed and not (row.bad and row.cells[-1])]
        yield "Otherwise changed since the night before:", others

    def reason(self, row: TimelineRow) -> str:
        """Return why an item ended as it did in the latest night that has it."""
        return brief(row.latest.why, REASON) if row.latest and row.changed != "gone" else ""

    def since(self, row: TimelineRow) -> str:
        """Return since when an item fails, where that is for longer than the latest night."""
        columns = self.line.columns
        longer = row.bad and row.cells[-1] and not row.newly_bad and row.since < len(columns) - 1
        return f"since {when(columns[row.since])}" if longer else ""

    def page(self, row: TimelineRow) -> str:
        """Return the address of the page that an item which fails has left; "" for none."""
        if not (row.latest and row.bad and row.latest.report.endswith(".html")):
            return ""
        column = self.line.columns[max(at for at, cell in enumerate(row.cells) if cell)]
        return f"{column.href}/items/{row.slug}/{row.latest.report}"

    def suspects(self, row: TimelineRow) -> list[str]:
        """Name the commits between which an item began to fail, and the suspects among them."""
        if not row.newly_bad:
            return []
        ran = [self.line.columns[at].results for at, cell in enumerate(row.cells) if cell]
        before, after = (one.facts.get("commit", "") for one in (*ran[:1], *ran[-2:])[-2:])
        if before == after:
            return []
        place = row.latest.cause.place if row.latest and row.latest.cause else None
        found = suspects(Path(ran[-1].plan.root), before, after, place.file if place else "")
        told = [f"suspect: {brief(text, REASON)}" for text in found]
        span = f"commits {before or 'unknown'}..{after or 'unknown'}"
        return [span, *told]

    def heads(self) -> Iterator[tuple[int, Column, list[str], str]]:
        """Yield each night with its number, its day (and time, where another began on it), and its facts."""
        began = {number: column.results.night.began for number, column in self.columns}
        days = Counter(one.date() for one in began.values() if one)
        for number, column in self.columns:
            night, commit = began[number], column.results.facts.get("commit", "")
            words = [f"{night:%b}", f"{night:%d}"] if night else ["?"]
            words += [f"{night:%H:%M}"] if night and days[night.date()] > 1 else []
            told = [when(column), *([f"commit {commit}"] if commit else []), *map(str, column.environment)]
            yield number, column, words, "\n".join(told)

    def facts(self, row: TimelineRow) -> dict[str, str]:
        """Return the values that filters compare."""
        item, latest = row.item, row.latest
        facts = {"kind": item.chain, "mode": item.mode, "device": item.device, "tag": " ".join(item.tags)}
        facts["outcome"] = latest.record.outcome.value if latest else ""
        given = {key: value for key, value in facts.items() if key in self.filters}
        return {key: value for key, value in {**given, "changed": row.changed}.items() if value}

    def runs(self, row: TimelineRow) -> tuple[list[tuple[Column, Cell]], int]:
        """Return an item's latest run with the latest of those that did not pass, and how many more did not."""
        there = [(column, cell) for at, column in self.columns if (cell := row.cells[at])]
        bad = [one for one in there[1:] if one[1].record.outcome is not Outcome.PASS]
        return [*there[:1], *bad[:LISTED]], len(bad[LISTED:])


def trends(row: TimelineRow) -> tuple[list[Trend], int]:
    """Return the curves of the seconds and the first figures of an item, and how many more figures it has."""
    ran = [cell if cell and cell.record.attempt else None for cell in row.cells]
    names = list(dict.fromkeys(name for cell in reversed(ran) if cell for name in cell.figures))
    series = {"seconds": [cell.record.seconds if cell else nan for cell in ran]}
    for name in names[:FIGURES]:
        series[name] = [cell.figures.get(name, nan) if cell else nan for cell in ran]
    curves = []
    for title, values in series.items():
        if not (finite := [value for value in values if isfinite(value)]):
            continue
        low, high, last = (f"{value:.4g}" for value in (min(finite), max(finite), finite[-1]))
        told = f"{title}: {low} to {high} in {len(finite)} nights, latest {last}"
        level = Scale(*linear(values), 38, 2)
        path, before = "", None
        for at, value in enumerate(values):
            height = round(level(value)) if isfinite(value) else None
            if height is not None:  # the line ends where nothing ran; h0 makes a point of a single run
                path += f"M{8 * at + 4} {height}h0" if before is None else f"l8 {height - before}"
            before = height
        curves.append(Trend(told, path, 8 * len(values)))
    return curves, len(names[FIGURES:])
