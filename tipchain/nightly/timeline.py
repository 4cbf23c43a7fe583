"""The latest nights of each manifest side by side: who ran when, with what, and how it ended."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from tipchain.errors import RecordError
from tipchain.nightly.figures import read_figures
from tipchain.nightly.items import Item
from tipchain.nightly.records import ITEMS, ItemRecord, slug_of
from tipchain.nightly.results import Results, began, find_nights, read_results
from tipchain.outcome import Outcome

PAGES = ("report.html", "index.html")
"""Names of pages that an item may leave in its folder; the first that is there is its report."""
PARTS = frozenset({"select", "last_failed", "shard"})
"""Options by which a night runs a part of its manifest."""
BAD = (Outcome.FAIL, Outcome.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How an item ended in a night.

    Attributes:
        record: its record.
        log: path of its log below the item's folder in the night's; "" without one.
        report: of its report, likewise.
        figures: of its report, by name.
    """

    record: ItemRecord
    log: str
    report: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A night.

    Attributes:
        results: what came of it; without records, which are in the rows.
        when: when it began; None if that is not known.
        href: URL of its folder, relative to the page.
        counts: how many items ended how.
        environment: what differs from the night before, a line each; () in the first.
    """

    results: Results
    when: datetime | None
    href: str
    counts: Mapping[Outcome, int]
    environment: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An item over the nights.

    Attributes:
        item: as the latest plan that has it says.
        slug: the name of its folder.
        cells: one for each column; None where it was not planned.
        in_part: whether the latest night ran a part of its manifest only, so that what it has not got is not gone.
    """

    item: Item
    slug: str
    cells: tuple[Cell | None, ...]
    in_part: bool = False

    @property
    def latest(self) -> Cell | None:
        """How it ended in the latest night that planned it."""
        return next((one for one in reversed(self.cells) if one), None)

    @property
    def before(self) -> Cell | None:
        """How it ended in the one before that."""
        found = [one for one in self.cells if one]
        return found[-2] if len(found) > 1 else None

    @property
    def changed(self) -> str:
        """What changed in the latest night: ``PASS -> FAIL``, ``new``, ``gone``; "" for nothing."""
        if len(self.cells) < 2:
            return ""
        if self.cells[-1] is None:
            return "gone" if self.cells[-2] and not self.in_part else ""
        latest, before = self.cells[-1], self.before
        if before is None:
            return "new"
        was, now = before.record.outcome, latest.record.outcome
        return "" if was is now else f"{was.value} -> {now.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The nights of a manifest, the oldest first."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def read_timelines(folders: Sequence[Path], nights: int, page: Path) -> tuple[list[Timeline], list[str]]:
    """Return the latest nights of each manifest among folders of nights, and which could not be read.

    Args:
        folders: of nights, the oldest first.
        nights: how many of each manifest.
        page: the folder that the page goes to, from which links lead to nights.
    """
    groups: dict[Path, list[Path]] = defaultdict(list)
    for folder in folders:
        groups[folder.parent].append(folder)
    found: dict[str, list[Results]] = defaultdict(list)
    problems = []
    for group in groups.values():
        for folder in group[-nights:]:
            try:
                results = read_results(folder)
            except RecordError as error:
                problems.append(f"{folder}: {error.message}")
                continue
            found[results.plan.name].append(results)
    lines = [
        _timeline(name, sorted(ones, key=lambda one: one.night.name)[-nights:], page)
        for name, ones in sorted(found.items())
    ]
    return lines, problems


def _timeline(name: str, nights: Sequence[Results], page: Path) -> Timeline:
    items: dict[str, Item] = {}
    for results in nights:
        items.update((one.id, one) for one in results.plan.items)
    in_part = bool(nights[-1].night.options.keys() & PARTS) or not nights[-1].finished
    planned = [{one.id for one in results.plan.items} for results in nights]
    rows = []
    for item in items.values():
        slug = slug_of(item.id)
        cells = [
            _cell(results, item, slug) if item.id in ids else None
            for results, ids in zip(nights, planned, strict=True)
        ]
        rows.append(Row(item=item, slug=slug, cells=tuple(cells), in_part=in_part))
    return Timeline(name=name, columns=tuple(_columns(nights, page)), rows=tuple(rows))


def _cell(results: Results, item: Item, slug: str) -> Cell | None:
    if not results.finished and item.id not in results.records:
        return None  # it goes on, or was left
    record = results.of(item)
    base = f"{ITEMS}/{slug}"
    log, report = (os.path.relpath(path, base) if path else "" for path in (record.log, record.report))
    figures = read_figures(results.folder / record.report) if record.report else {}
    folder = results.folder / base / f"attempt-{record.attempt}"
    page = next((name for name in PAGES if record.attempt and (folder / name).is_file()), None)
    return Cell(
        record=record, log=log, report=f"attempt-{record.attempt}/{page}" if page else report, figures=figures
    )


def _columns(nights: Iterable[Results], page: Path) -> Iterable[Column]:
    before: dict[str, str] | None = None
    for results in nights:
        facts = results.facts
        outcomes = results.outcomes if results.finished else [one.outcome for one in results.records.values()]
        yield Column(
            results=results,
            when=began(results.night.started, results.night.name),
            href=quote(os.path.relpath(results.folder.resolve(), page.resolve())),
            counts=Counter(outcomes),
            environment=() if before is None else tuple(differences(before, facts)),
        )
        before = facts


def changes_since_before(results: Results) -> list[str]:
    """Return what changed since the night before of the same manifest: environment first; none if there is none."""
    folders = [one for one in find_nights(results.folder.parent) if one.name < results.night.name]
    for folder in reversed(folders):
        with suppress(RecordError):
            before = read_results(folder)
            if before.plan.name == results.plan.name and before.finished:
                line = _timeline(results.plan.name, (before, results), results.folder.parent)
                return [
                    f"since {before.night.name}:",
                    *(f"environment: {fact}" for fact in line.columns[-1].environment),
                    *(f"{row.changed}  {row.item.id}" for row in line.rows if row.changed),
                ]
    return []


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return what differs between two environments but the commit, a line each."""
    names = [name for name in {**before, **after} if name != "commit" and before.get(name) != after.get(name)]
    return [f"{name}: {before.get(name) or 'none'} -> {after.get(name) or 'none'}" for name in names]
