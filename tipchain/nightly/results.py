"""What came of a night: its plan with the records of all that ended, read once for reports of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tipchain.errors import UsageError
from tipchain.nightly.figures import read_causes
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.nights import NIGHTS, Night, read_night
from tipchain.nightly.records import NIGHT, ItemRecord
from tipchain.outcome import Outcome
from tipchain.parity.findings import Diagnosis

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
            yield (
                f"{above}{key}",
                ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value),
            )
