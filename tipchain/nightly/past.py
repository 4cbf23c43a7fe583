"""What earlier nights of a manifest tell: how long items take, and which failed last."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tipchain.errors import RecordError, UsageError
from tipchain.nightly.nights import nights_below, read_night
from tipchain.nightly.records import FINISHED
from tipchain.outcome import Outcome

LOOKED_AT = 7
"""How many finished nights tell the seconds of an item."""
_BAD = frozenset((Outcome.FAIL.name, Outcome.ERROR.name))
_TELLING = frozenset((Outcome.PASS.name, Outcome.FAIL.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How an item ended in an earlier night: its outcome's name and its seconds."""

    outcome: str
    seconds: float


def finished_items(folder: Path) -> Mapping[str, Ran] | None:
    """Return how the items of a finished night ended; None if it has not, or it cannot be read."""
    try:
        data = json.loads((folder / FINISHED).read_text(encoding="utf-8"))
        return {
            name: Ran(outcome=str(outcome), seconds=float(seconds))
            for name, (outcome, seconds) in data["items"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def usual_seconds(nights: Path, limit: int = LOOKED_AT) -> dict[str, float]:
    """Return the median seconds of each item in the latest finished nights below ``nights``, by id.

    What was ended for its time, or could not run, tells nothing.
    """
    found: dict[str, list[float]] = defaultdict(list)
    told = 0
    for folder in nights_below(nights):
        items = finished_items(folder) if told < limit else None
        if items is not None:
            told += 1
            for name, ran in items.items():
                if ran.outcome in _TELLING and ran.seconds > 0:
                    found[name].append(ran.seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def last_failed(nights: Path) -> tuple[Path, frozenset[str]]:
    """Return the latest night below ``nights`` and the items that failed or errored in it, so far if it goes on.

    Raises:
        UsageError: there is no night yet.
    """
    folders = nights_below(nights)
    if not folders:
        raise UsageError(f"--last-failed: no night of this manifest is below {nights}")
    latest = folders[0]
    items = finished_items(latest)
    if items is not None:
        return latest, frozenset(name for name, ran in items.items() if ran.outcome in _BAD)
    try:
        records = list(read_night(latest).records())
    except RecordError as error:
        raise UsageError(f"--last-failed: {error}") from error
    return latest, frozenset(record.id for record in records if record.outcome.name in _BAD)
