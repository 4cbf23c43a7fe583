"""What a night came to, with its figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from tipchain.errors import UsageError
from tipchain.explain.findings import Diagnosis, read_diagnosis
from tipchain.json_text import read_json
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.nights import NIGHTS, Night, read_night
from tipchain.nightly.records import NIGHT, ItemRecord
from tipchain.outcome import Outcome

# What an item's JSON report tells beside how it ended: numbers that are worth a curve over nights, and why it failed.

LARGEST = 32 * 2**20
"""Bytes of a report that is read; a larger one would take longer than its curves are worth."""
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
_LOSSES = ("loss",)
_SPEEDS = ("avg_ips", "ips", "qps")
_NEVER = ("batch_size", "data_num", "lr", "gpu_util")
_COSTS = ("_ms", "_s", "_mb")
_STEPS = ("eval", "train", "infer")


def read_figures(report: Path) -> dict[str, float]:
    """Return the numbers of a report by what they are called, the most telling first; none if it cannot be read.

    Of a chain: metrics, then losses, speeds and costs, of evaluation, training and inference in this order. Of an
    alignment: for each stage the largest mean difference of a tensor.
    """
    try:
        data = _read(report)
        found = [*_of_results(data.get("results", ())), *_of_verdicts(data.get("verdicts", ()))]
    except UNREADABLE:
        return {}
    return {name: value for _, name, value in sorted(found, key=lambda one: one[0]) if isfinite(value)}


def read_causes(report: Path) -> tuple[Diagnosis, ...]:
    """Return why an item failed, the cause that checks fail because of first; () if its report cannot be read."""
    try:
        return causes_in(_read(report))
    except UNREADABLE:
        return ()


def causes_in(document: Mapping[str, Any]) -> tuple[Diagnosis, ...]:
    """Return the causes of a report's JSON, the one that checks fail because of first; () where they cannot be read."""
    try:
        found = [read_diagnosis(one) for one in document.get("diagnoses", ())]
    except UNREADABLE:
        return ()
    return tuple(sorted(found, key=lambda one: not one.explains))


def _read(report: Path) -> Mapping[str, Any]:
    if report.stat().st_size > LARGEST:
        raise ValueError("too large")
    found: Mapping[str, Any] = read_json(report)
    return found


def _of_results(results: Any) -> Iterator[tuple[tuple[int, int], str, float]]:
    for result in results:
        command = result["command"]
        step = _STEPS.index(command["step"]) if command["step"] in _STEPS else len(_STEPS)
        for name, value in result.get("figures", {}).items():
            rank = _rank(name)
            if rank is not None:
                yield (rank, step), f"{name} of {command['id']}", float(value)


def _rank(name: str) -> int | None:
    name = name.partition("[")[0]  # a unit stands in brackets
    if name in _NEVER:
        return None
    for rank, names in enumerate((_LOSSES, _SPEEDS), 1):
        if name in names:
            return rank
    return 3 if name.endswith(_COSTS) else 0


def _of_verdicts(verdicts: Any) -> Iterator[tuple[tuple[int, int], str, float]]:
    largest: dict[str, float] = {}
    for verdict in verdicts:
        diff: Mapping[str, Any] | None = verdict["diff"]
        with suppress(ValueError):
            value = float(diff["mean_abs"]) if diff else float("nan")
            if isfinite(value):
                stage = str(verdict["subject"]).partition("/")[0]
                largest[stage] = max(value, largest.get(stage, value))
    for stage, value in largest.items():
        yield (0, 0), f"largest mean difference in {stage}", value


# What came of a night: its plan with the records of all that ended, read once for reports of any kind.

MISSING = "has no record: the night ended before it did"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A night's results.

    Attributes:
        night: the night.
        records: of the items that ended, by id, in the plan's order.
        finished: whether the night ran to its end.
    """

    night: Night
    records: Mapping[str, ItemRecord]
    finished: bool

    @property
    def plan(self) -> NightPlan:
        """What was to run."""
        return self.night.plan

    @property
    def folder(self) -> Path:
        """The night's folder."""
        return self.night.folder

    def of(self, item: Item) -> ItemRecord:
        """Return how an item ended; an ERROR that says so if it has no record."""
        return self.records.get(item.id) or ItemRecord(
            id=item.id, token=self.night.token, attempt=0, outcome=Outcome.ERROR, reason=MISSING
        )

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How all items ended, in the plan's order."""
        return tuple(self.of(item).outcome for item in self.plan.items)

    @property
    def seconds(self) -> float:
        """Seconds that the items took, added up."""
        return sum(record.seconds for record in self.records.values())

    @property
    def facts(self) -> dict[str, str]:
        """The environment, its parts named with dots: ``versions.torch``."""
        return dict(_flat(self.night.environment))


def read_results(folder: Path) -> Results:
    """Return what the folder of a night holds, of one that goes on or was killed too.

    Raises:
        RecordError: no night is there, or it cannot be read.
    """
    night = read_night(folder)
    finished = night.finished  # asked first: what is written in between belongs to a night that goes on
    return Results(night=night, records={one.id: one for one in night.records()}, finished=finished)


def cause_of(results: Results, record: ItemRecord) -> Diagnosis | None:
    """Return the first cause that the report of a failed item tells; None where it tells none."""
    if record.outcome not in (Outcome.FAIL, Outcome.ERROR) or not record.report:
        return None
    return next(iter(read_causes(results.folder / record.report)), None)


def find_nights(folder: Path) -> list[Path]:
    """Return the folders of nights: ``folder`` itself, those in it, and those in its folders; by name.

    Raises:
        UsageError: ``folder`` is no folder.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder of nights\n  expected: a folder such as {NIGHTS}")
    return sorted(set(_nights_in(folder, depth=2)), key=lambda path: (path.name, str(path)))


def _nights_in(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / NIGHT).is_file():
        yield folder
    elif depth:
        for one in folder.iterdir():
            if one.is_dir() and not one.is_symlink() and not one.name.startswith("."):
                yield from _nights_in(one, depth - 1)


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield (f"{above}{key}", ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value))
