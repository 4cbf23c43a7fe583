"""What earlier nights of a manifest tell: how long items take, and which failed last."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tipchain.errors import RecordError, UsageError
from tipchain.nightly.nights import Night, nights_below, read_night
from tipchain.nightly.records import FINISHED
from tipchain.nightly.shares import gather
from tipchain.outcome import Outcome

LOOKED_AT = 7
"""How many finished nights tell the seconds of an item."""
SHARES_LOOKED_AT = 3
"""How many nights of as many shares are looked at for the shares of the latest."""
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
        data = json.loads(file.read_text(encoding="utf-8"))
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


def last_failed(nights: Path) -> tuple[Path, frozenset[str]]:
    """Return the latest night below ``nights`` and the items that failed or errored in it, so far if it goes on.

    Of a night that was run in shares, all that lie there count.

    Raises:
        UsageError: there is no night yet, or the latest cannot be read.
    """
    folders = nights_below(nights)
    if not folders:
        raise UsageError(f"--last-failed: no night of this manifest is below {nights}")
    try:
        latest = read_night(folders[0])
        names = frozenset(name for night in _with_shares(latest, folders[1:]) for name in _failed(night))
    except RecordError as error:
        raise UsageError(f"--last-failed: {error}") from error
    return latest.folder, names


def _with_shares(latest: Night, earlier: Sequence[Path]) -> Sequence[Night]:
    """Return the shares of the night that the latest one is of, as far as they are there."""
    part = latest.part
    if part is None:
        return (latest,)
    near = [latest]
    for folder in earlier[: SHARES_LOOKED_AT * part.of]:
        with suppress(RecordError):
            near.append(read_night(folder))
    groups = gather(near, lambda night: night.part, lambda night: night.epoch)
    return next(group.ones for group in groups if latest in group.ones)


def _failed(night: Night) -> Iterator[str]:
    items = finished_items(night.folder)
    if items is not None:
        yield from (name for name, ran in items.items() if ran.outcome in _BAD)
    else:
        yield from (record.id for record in night.records() if record.outcome.name in _BAD)
