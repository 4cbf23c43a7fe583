"""What earlier nights of a manifest tell: how long items take, and which failed last."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tipchain.errors import RecordError, UsageError
from tipchain.json_text import parse_as
from tipchain.nightly.nights import nights_below, read_night
from tipchain.nightly.records import FINISHED, read_document
from tipchain.outcome import Outcome

LOOKED_AT = 7
"""How many finished nights tell the seconds of an item."""
FAILED_LOOKED_AT = 30
"""How many nights tell how an item last ended."""
_BAD = frozenset((Outcome.FAIL.name, Outcome.ERROR.name))
_TELLING = frozenset((Outcome.PASS.name, Outcome.FAIL.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How an item ended in an earlier night: its outcome's name and its seconds."""

    outcome: str
    seconds: float


def finished_items(folder: Path) -> Mapping[str, Ran] | None:
    """Return how the items of a finished night ended; None if it has not, or it cannot be read."""
    return _read_finished(folder / FINISHED)


def _read_finished(file: Path) -> Mapping[str, Ran] | None:
    try:
        data = read_document(file)
        return {
            name: Ran(outcome=parse_as(str, outcome), seconds=parse_as(float, seconds))
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


def balance_seconds(path: Path) -> dict[str, float]:
    """Return what items took in one finished night, by id: what shares are balanced by on all machines alike.

    Args:
        path: the night's folder, or a copy of its ``finished.json``.

    Raises:
        UsageError: there is none, or it cannot be read.
    """
    items = _read_finished(path / FINISHED if path.is_dir() else path)
    if items is None:
        raise UsageError(
            f"--balance-by {path}: cannot be read\n  expected: a finished night's folder, or its {FINISHED}"
        )
    return {name: ran.seconds for name, ran in items.items() if ran.outcome in _TELLING and ran.seconds > 0}


def last_failed(nights: Path, limit: int = FAILED_LOOKED_AT) -> frozenset[str]:
    """Return the items that failed or errored when they last ran, in the latest nights below ``nights``.

    A night that goes on counts with what has ended, and one that could not run an item tells nothing of it.

    Args:
        nights: the folder of a manifest's nights.
        limit: how many nights count; for a night that was run in shares, each of them.

    Raises:
        UsageError: there is no night yet, or one cannot be read.
    """
    folders = nights_below(nights)
    if not folders:
        raise UsageError(f"--last-failed: no night of this manifest is below {nights}")
    latest: dict[str, str] = {}
    for folder in folders[:limit]:
        for name, outcome in _outcomes(folder):
            if outcome != Outcome.SKIP.name:
                latest.setdefault(name, outcome)
    return frozenset(name for name, outcome in latest.items() if outcome in _BAD)


def _outcomes(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the items of a night that have ended, with their outcomes' names."""
    items = finished_items(folder)
    if items is not None:
        yield from ((name, ran.outcome) for name, ran in items.items())
        return
    try:
        night = read_night(folder)
    except RecordError as error:
        raise UsageError(f"--last-failed: {error}") from error
    yield from ((record.id, record.outcome.name) for record in night.records())
