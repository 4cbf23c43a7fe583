"""A night as it lies on the disk: its plan, where it ran, and the records of what has ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tipchain.errors import RecordError, UsageError
from tipchain.nightly.items import Item, Needs, NightPlan
from tipchain.nightly.records import FINISHED, FORMAT, NIGHT, ItemRecord, read_record
from tipchain.outcome import Outcome

NIGHTS = "tipchain-nights"
"""The folder of a project's nights, below its root: one folder for each manifest, in it one for each night."""
NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")
"""How the folder of a night is called."""
MISSING = "has no record: the night ended before it did"


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A night's folder, read.

    Attributes:
        folder: the folder.
        token: drawn when it began; records without it are no part of it.
        started: ISO 8601 with offset.
        plan: what was to run.
        machine: the coordinator's host.
        user: who started it.
        commit: the project's short git commit; "" outside git.
        environment: facts such as versions, by name.
        records: of the items that ended, by id, in the plan's order.
        finished: whether it ran to its end.
    """

    folder: Path
    token: str
    started: str
    plan: NightPlan
    machine: str
    user: str
    commit: str
    environment: Mapping[str, str]
    records: Mapping[str, ItemRecord]
    finished: bool

    @property
    def name(self) -> str:
        """The folder's name, which sorts as nights began."""
        return self.folder.name

    def record(self, item: Item) -> ItemRecord:
        """Return how an item ended; an ERROR that says so if it has no record."""
        found = self.records.get(item.id)
        return found or ItemRecord(
            id=item.id, token=self.token, attempt=0, outcome=Outcome.ERROR, reason=MISSING
        )

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """How the items ended, in the plan's order."""
        return tuple(self.record(item).outcome for item in self.plan.items)

    @property
    def seconds(self) -> float:
        """Seconds that all items took, added up."""
        return sum(record.seconds for record in self.records.values())


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


def read_night(folder: Path) -> Night:
    """Return what the folder of a night holds, of one that goes on or was killed too.

    Raises:
        RecordError: it has no plan that can be read.
    """
    file = folder / NIGHT
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(
            f"cannot be read: {error.strerror}", file=file, expected="a night's plan"
        ) from error
    except ValueError as error:
        raise RecordError(f"is not JSON: {error}", file=file, expected="a night's plan") from error
    try:
        return _night(folder, document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"is not a night's plan: {type(error).__name__} {error}", file=file) from error


def _night(folder: Path, document: Mapping[str, Any]) -> Night:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}, expected {FORMAT}")
    plan, token = parse_plan(document["plan"]), str(document["token"])
    records = {item.id: read_record(folder, item.id, token) for item in plan.items}
    return Night(
        folder=folder,
        token=token,
        started=str(document["started"]),
        plan=plan,
        machine=str(document.get("machine", "")),
        user=str(document.get("user", "")),
        commit=str(document.get("commit", "")),
        environment={str(key): str(value) for key, value in document.get("environment", {}).items()},
        records={name: record for name, record in records.items() if record is not None},
        finished=(folder / FINISHED).is_file(),
    )


def parse_plan(document: Mapping[str, Any]) -> NightPlan:
    """Return the plan of JSON values, as `dataclasses.asdict` and `json.dumps` leave it.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    return NightPlan(**{**document, "items": tuple(parse_item(one) for one in document["items"])})


def parse_item(document: Mapping[str, Any]) -> Item:
    """Return the item of JSON values.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    settled = document.get("settled", Outcome.PASS.name)
    return Item(
        **{
            **document,
            "tags": tuple(document["tags"]),
            "argv": tuple(document["argv"]),
            "needs": Needs(**document.get("needs", {})),
            "settled": Outcome[settled],
        }
    )


def began(started: str, name: str = "") -> datetime | None:
    """Return when a night began: by what it says, else by its folder's name, in local time; None if neither tells."""
    try:
        return datetime.fromisoformat(started).astimezone()
    except ValueError:
        pass
    try:
        return datetime.strptime(name[:15], "%Y%m%d-%H%M%S").astimezone()
    except ValueError:
        return None
