"""Nights side by side, those that ran in shards put together."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from urllib.parse import quote

from tipchain.core.language import listed
from tipchain.core.quantities import FigureKind, figure_kind
from tipchain.errors import BAD, RecordError, newly_bad
from tipchain.explain.findings import Diagnosis
from tipchain.nightly.items import Item, disagreement, gather, merge_facts, missing
from tipchain.nightly.nights import ITEMS, ItemRecord, Results, read_results, report_of, slug_of
from tipchain.nightly.origin import Fact, changed_facts
from tipchain.report.model import RunReport, stage_of


def wholes_of(nights: Iterable[Results]) -> list[Results]:
    """Return nights, shares put together, in the order in which they began."""
    ordered = sorted(nights, key=lambda one: one.night.epoch)
    return [_whole(ones, ordered) for ones in gather(ordered, lambda one: one.night.part)]


def _whole(ones: Sequence[Results], nights: Sequence[Results]) -> Results:
    """Return a night's shares, which are among nights, as one night, in the plan's order."""
    first, parts = ones[0], [part for one in ones if (part := one.night.part)]
    if not parts:
        return first
    absent, differ = missing(parts), disagreement(parts)
    notes = [f"shares that are not here: {absent}"] if absent else []
    notes += [
        f"{part}: ran again, so {one.night.name} does not count"
        for one in nights
        if (part := one.night.part) and part.whole == parts[0].whole and all(one is not other for other in ones)
    ]
    commits = dict.fromkeys(part.commit for part in parts)
    notes += [f"shares ran different commits: {', '.join(one or 'none' for one in commits)}"] * (len(commits) > 1)
    counts = Counter(item.id for one in ones for item in one.plan.items)
    whole = dict.fromkeys(name for one in ones if one.plan.cut for name in one.plan.cut.ids)
    lost = [name for name in whole if not counts[name]]
    twice = [name for name, count in counts.items() if count > 1]
    wrong = [differ] if differ else []
    wrong += [f"{len(lost)} items of the plan are in no share: {listed(lost, NAMED)}"] if lost and not absent else []
    wrong += [f"{len(twice)} items are in several shares: {listed(twice, NAMED)}"] if twice else []
    items = {item.id: item for one in ones for item in one.plan.items}
    ids = [name for name in dict.fromkeys([*whole, *items]) if name in items]
    records = {name: record for one in ones for name, record in one.records.items()}
    return Results(
        night=replace(
            first.night,
            started=min(ones, key=lambda one: one.night.epoch).night.started,
            plan=replace(first.plan, items=tuple(items[name] for name in ids)),
            environment=merge_facts(one.facts for one in ones),
        ),
        records={name: records[name] for name in ids if name in records},
        finished=not absent and all(one.finished for one in ones),
        shares=tuple(ones),
        notes=tuple(notes),
        wrong=tuple(wrong),
    )


# The latest nights of each manifest side by side: who ran when, with what, and how it ended.

NAMED = 3
"""Items that a line names; the rest is counted."""
PAGES = ("report.html", "index.html")
"""Names of pages that an item may leave in its folder; the first that is there is its report."""
PARTS = frozenset({"select", "last_failed", "shard"})
"""Options by which a night runs a part of its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """How an item ended in a night.

    Attributes:
        record: its record.
        log: URL of its log, relative to the item's folder in that of the column; "" without one.
        report: of its report, likewise.
        figures: of its report, by name.
        cause: why it failed, as its report says.
    """

    record: ItemRecord
    log: str
    report: str
    figures: Mapping[str, float]
    cause: Diagnosis | None = None

    @property
    def why(self) -> str:
        """Why it did not pass: its cause, with the fix, where its report tells one."""
        return self.cause.summary if self.cause else self.record.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A night.

    Attributes:
        results: what came of it, of all its shares.
        href: URL of its folder, or its first share's, relative to the page.
        environment: what differs from the night before; () in the first.
    """

    results: Results
    href: str
    environment: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineRow:
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
    def changed(self) -> str:
        """The change in the latest night: ``PASS -> FAIL``, ``new``, ``gone``; "" for nothing."""
        if len(self.cells) < 2:
            return ""
        if self.cells[-1] is None:
            return "gone" if self.cells[-2] and not self.in_part else ""
        ran = [one.record.outcome for one in self.cells if one]
        if len(ran) < 2:
            return "new"
        was, now = ran[-2:]
        return "" if was is now else f"{was.value} -> {now.value}"

    @property
    def bad(self) -> bool:
        """Whether it failed or errored in the latest night that planned it."""
        return self.latest is not None and self.latest.record.outcome in BAD

    @property
    def newly_bad(self) -> bool:
        """Whether it fails or errors in the latest night, and did neither the time before."""
        *earlier, last = self.cells
        before = next((cell.record.outcome for cell in reversed(earlier) if cell), None)
        return bool(earlier) and last is not None and newly_bad(before, last.record.outcome)

    @property
    def since(self) -> int:
        """The column since which it has not passed; for a good row, the number of columns."""
        ran = [(place, cell.record.outcome in BAD) for place, cell in enumerate(self.cells) if cell]
        good = max((place for place, bad in ran if not bad), default=-1)
        return next((place for place, _ in ran if place > good), len(self.cells))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The nights of a manifest, the oldest first."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[TimelineRow, ...]


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
    problems: list[str] = []
    for group in groups.values():
        latest: list[Results] = []
        for folder in reversed(group):
            # Of shares two nights more: of the earliest that counts some may begin before those of the one before end.
            sharing = any(one.night.part for one in latest)
            if len(gather(latest, lambda one: one.night.part)) >= nights + 2 * sharing:
                break
            try:
                latest.append(read_results(folder))
            except RecordError as error:
                problems.append(f"{folder}: {error.message}")
        for results in latest:
            found[results.plan.name].append(results)
    lines = [_timeline(name, wholes_of(ones)[-nights:], page) for name, ones in sorted(found.items())]
    return lines, problems


def _timeline(name: str, nights: Sequence[Results], page: Path) -> Timeline:
    items = {one.id: one for whole in nights for one in whole.plan.items}
    latest = nights[-1]
    # Of a night that was run in shares, what no share has is gone once all are there.
    chosen = latest.night.options.keys() & PARTS - ({"shard"} if latest.night.part else set())
    in_part = bool(chosen) or not latest.finished
    planned = [{one.id for one in whole.plan.items} for whole in nights]
    rows = []
    for item in items.values():
        slug = slug_of(item.id)
        cells = [
            _cell(whole, item, slug) if item.id in ids else None for whole, ids in zip(nights, planned, strict=True)
        ]
        rows.append(TimelineRow(item=item, slug=slug, cells=tuple(cells), in_part=in_part))
    columns = [
        Column(
            results=whole,
            href=quote(os.path.relpath(whole.parts[0].night.folder.resolve(), page.resolve())),
            environment=changed_facts(before.facts, whole.facts) if before else (),
        )
        for before, whole in zip((None, *nights[:-1]), nights, strict=True)
    ]
    return Timeline(name=name, columns=tuple(columns), rows=tuple(rows))


def _cell(whole: Results, item: Item, slug: str) -> Cell | None:
    results = whole.part_with(item)
    if not results.finished and item.id not in results.records:
        return None  # it goes on, or was left
    record = results.of(item)

    def url(path: str) -> str:
        away = (
            ""
            if results is whole.parts[0]
            else quote(os.path.relpath(results.night.folder, whole.parts[0].night.folder))
        )
        return os.path.relpath(Path(away, path), f"{ITEMS}/{slug}") if path else ""

    report = report_of(results, record)
    attempt = f"{ITEMS}/{slug}/attempt-{record.attempt}"
    page = next((one for one in PAGES if record.attempt and (results.night.folder / attempt / one).is_file()), None)
    return Cell(
        record=record,
        log=url(record.log),
        report=url(f"{attempt}/{page}" if page else record.report),
        figures=figures_of(report) if report else {},
        cause=report.cause if report and record.outcome in BAD else None,
    )


# Numbers of a report that are worth a curve over nights.

RANKS: Mapping[object, int] = {FigureKind.METRIC: 0, "loss": 1, FigureKind.SPEED: 2}
STEPS: Mapping[str, int] = {"eval": 0, "train": 1, "infer": 2}


def figures_of(report: RunReport) -> dict[str, float]:
    """Return the numbers of a report by their names, the most telling first.

    Of a chain: metrics, then losses, speeds and costs, of evaluation, training and inference in this order. Of an
    alignment: for each stage the largest mean difference of a tensor.
    """
    found: list[tuple[tuple[int, int], str, float]] = []
    for result in report.results:
        step = STEPS.get(result.command.step, len(STEPS))
        for name, value in result.figures.items():
            bare = name.partition("[")[0]  # a unit stands in brackets
            if bare not in ("batch_size", "data_num", "lr", "gpu_util") and isfinite(value):
                rank = RANKS.get(bare if bare == "loss" else figure_kind(name), len(RANKS))
                found.append(((rank, step), f"{name} of {result.command.id}", value))
    largest: dict[str, float] = {}
    for verdict in report.verdicts:
        if verdict.diff and isfinite(value := verdict.diff.mean_abs):
            stage = stage_of(verdict)
            largest[stage] = max(value, largest.get(stage, value))
    found += [((0, 0), f"largest mean difference in {stage}", value) for stage, value in largest.items()]
    return {name: value for _, name, value in sorted(found, key=lambda one: one[0])}
