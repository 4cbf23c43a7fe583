"""How far a night has come: counts, and the time that is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tipchain.json_text import parse_as, read_json
from tipchain.nightly.items import Item
from tipchain.nightly.nights import RUNNING, Night
from tipchain.outcome import Outcome
from tipchain.progress import Estimate
from tipchain.quantities import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningItem:
    """An item that runs: seconds so far, and the last line of its output."""

    id: str
    seconds: float
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightState:
    """A night at one moment.

    Attributes:
        total: items in all.
        counts: how many ended how.
        running: what runs.
        left_s: seconds that it will still take, None if nothing is known yet.
        seconds: since this coordinator began, None where no coordinator tells.
        waiting: what the next item waits for; "" for nothing.
    """

    total: int
    counts: Mapping[Outcome, int] = field(default_factory=dict)
    running: tuple[RunningItem, ...] = ()
    left_s: float | None = None
    seconds: float | None = None
    waiting: str = ""

    @property
    def ended(self) -> int:
        """How many items have ended."""
        return sum(self.counts.values())

    def line(self) -> str:
        """Return the state in one line."""
        parts = [f"{self.ended} of {self.total} ended", counts_text(self.counts)]
        parts += [f"{len(self.running)} running"] if self.running else []
        parts += [duration(self.seconds)] if self.seconds is not None else []
        if self.ended < self.total and self.left_s is not None:
            parts.append(f"about {duration(self.left_s)} left")
        return ", ".join(filter(None, parts))


def counts_text(counts: Mapping[Outcome, int]) -> str:
    """Return ``3 passed, 1 failed``; what there is none of is left out."""
    words = {Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.ERROR: "errors", Outcome.SKIP: "skipped"}
    said = [f"{counts[one]} {word}" for one, word in words.items() if counts.get(one)]
    return ", ".join(said).replace("1 errors", "1 error") if counts.get(Outcome.ERROR) == 1 else ", ".join(said)


class Pending:
    """The seconds of all items that have not begun, kept up as they begin: thousands are not added up each time."""

    def __init__(self, estimate: Estimate, items: Sequence[Item]) -> None:
        self._estimate = estimate
        self._known = sum(estimate.usual.get(item.id, 0.0) for item in items if not item.reason)
        self._unknown = Counter(item.id in estimate.usual for item in items if not item.reason)[False]

    def begun(self, item: Item) -> None:
        """Take note that an item has begun."""
        if item.reason:
            return
        if item.id in self._estimate.usual:
            self._known -= self._estimate.usual[item.id]
        else:
            self._unknown -= 1

    def back(self, item: Item) -> None:
        """Take note that an item must begin once more."""
        if item.id in self._estimate.usual:
            self._known += self._estimate.usual[item.id]
        else:
            self._unknown += 1

    def seconds(self) -> float | None:
        """Return the sum, None if nothing tells."""
        if not self._unknown:
            return max(self._known, 0.0)
        each = self._estimate.of("")
        return None if each is None else max(self._known, 0.0) + self._unknown * each


def state_json(state: NightState) -> dict[str, object]:
    """Return a state as JSON values."""
    return {
        "total": state.total,
        "ended": state.ended,
        "counts": {one.name: state.counts.get(one, 0) for one in Outcome},
        "running": [{"id": one.id, "seconds": round(one.seconds, 1), "line": one.line} for one in state.running],
        "left_s": None if state.left_s is None else round(state.left_s, 1),
        "seconds": None if state.seconds is None else round(state.seconds, 1),
        "waiting": state.waiting,
    }


def read_state(night: Night) -> NightState:
    """Return what the latest coordinator of a night wrote down last of what it did; an empty one if there is nothing."""
    try:
        data = read_json(night.folder / RUNNING)
        return NightState(
            total=len(night.plan.items),
            counts={Outcome[name]: parse_as(int, count) for name, count in data["counts"].items()},
            running=tuple(parse_as(RunningItem, one) for one in data["running"]),
            left_s=_seconds(data["left_s"]),
            seconds=_seconds(data["seconds"]),
            waiting=parse_as(str, data["waiting"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return NightState(total=len(night.plan.items))


def _seconds(value: object) -> float | None:
    return None if value is None else parse_as(float, value)
