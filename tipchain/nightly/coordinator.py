"""Runs the items of a night, writes down how each ended and how far it is, and goes on where an earlier one stopped."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.chain.run import on_signals
from tipchain.core.files import atomic_write
from tipchain.core.json_text import as_json, parse_as, read_json
from tipchain.core.language import clean
from tipchain.core.progress import Estimate
from tipchain.core.quantities import duration
from tipchain.errors import ExitCode, Outcome, exit_code
from tipchain.nightly.executor import Ended, LocalExecutor, RunningItem, Work
from tipchain.nightly.items import Item, kind_of_room
from tipchain.nightly.judge import drop_dumps, judge
from tipchain.nightly.nights import (
    FINISHED,
    RUNNING,
    DamagedRecord,
    ItemRecord,
    Night,
    NightSummary,
    item_folder,
    write_document,
    write_record,
)
from tipchain.report.terminal import counts_text

if TYPE_CHECKING:
    from tipchain.nightly.cluster import RayExecutor
    from tipchain.nightly.night_report import NightView


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

    def lines(self) -> list[str]:
        """Return the state in one line, and in another the next item's reason to wait."""
        parts = [f"{self.ended} of {self.total} ended", counts_text(self.counts)]
        parts += [f"{len(self.running)} running"] if self.running else []
        parts += [duration(self.seconds)] if self.seconds is not None else []
        if self.ended < self.total and self.left_s is not None:
            parts.append(f"about {duration(self.left_s)} left")
        waits = [f"the next item waits for {clean(self.waiting)}"] if self.waiting else []
        return [", ".join(filter(None, parts)), *waits]


def read_state(night: Night) -> NightState:
    """Return the state that the latest coordinator of a night wrote last; an empty one without any."""
    total = len(night.plan.items)
    try:
        return replace(parse_as(NightState, read_json(night.folder / RUNNING)), total=total)
    except (OSError, ValueError):
        return NightState(total=total)


# All decisions are made in one thread. An item counts as ended if and only if its record is on the disk; what was
# interrupted, whose record could not be written or was damaged later, has not ended and runs again on ``resume``, as
# another attempt.


LOOK_S = 0.2
TELL_S = 1.0
"""How often `RUNNING` is written anew."""


class Coordinator:
    """Runs the items of a night that have not ended.

    Args:
        night: the night, held by this process.
        executor: what runs items.
        view: who is told.
        require_gpu: whether an item that needs a GPU that is not there is an ERROR; a SKIP otherwise.
        usual: seconds that items take, by id.
        sink: who is given the night's folder when it has finished: a history, say. What it raises is said, and changes
            nothing of the night: its records are on the disk, and can be given to it again.
        keep_dumps: whether what items leave stays, weights and tensors too; of those that passed only texts if not.
    """

    def __init__(
        self,
        night: Night,
        executor: LocalExecutor | RayExecutor,
        view: NightView,
        *,
        require_gpu: bool = False,
        usual: Mapping[str, float] | None = None,
        sink: Callable[[Path], None] | None = None,
        keep_dumps: bool = True,
    ) -> None:
        self.night, self.executor, self.view = night, executor, view
        self.require_gpu, self.sink, self.keep_dumps = require_gpu, sink, keep_dumps
        self.interrupted, self.problem = False, ""
        self.counts: Counter[Outcome] = Counter()
        self.seconds: dict[str, tuple[Outcome, float]] = {}
        self.estimate = Estimate(usual or {}, alike=True)
        self._works: dict[str, Work] = {}
        self._unwritten: list[ItemRecord] = []
        # Items wait for the same kind of room in order: the head is started first.
        self._queues: defaultdict[tuple[str, ...], deque[tuple[int, Item]]] = defaultdict(deque)
        self._waits: dict[tuple[str, ...], str] = {}
        for number, item in enumerate(night.plan.items):
            record = night.record(item.id)
            if record is not None and not isinstance(record, DamagedRecord):
                self._count(record)
            else:
                self._queues[kind_of_room(item.needs)].append((number, item))
        self._begin = self._told = time.monotonic()
        self._end = 0.0
        self._before = read_state(night).seconds or 0.0

    @property
    def left(self) -> int:
        """How many items have not ended."""
        return len(self.night.plan.items) - sum(self.counts.values())

    @property
    def exit_code(self) -> ExitCode:
        """The program's exit code."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.problem or self.left else exit_code(self.counts.elements())

    def run(self) -> None:
        """Run everything; nothing that was started is left when this returns or raises."""
        with on_signals(self.interrupt):
            try:
                while self._works or self._goes_on:
                    self._step()
            except BaseException:  # the view's own: its terminal is gone
                self.executor.stop()
                raise
            finally:
                self.executor.close()
        # Write the records that could not be written when they came; one that still cannot is said.
        late, self._unwritten = self._unwritten, []
        for record in late:
            self._record(record)
        for record in self._unwritten:
            self.view.said(f"{record.id} ended as {record.outcome.value}, which could not be written down")
        self._end = time.monotonic()  # what a sink takes, a database that is down, is not the night's
        self._tell(now=True)
        if not self.left and not self.problem:
            self._finish()

    def interrupt(self) -> None:
        """End all running items and start nothing more; may be called at any moment, by a signal's handler."""
        self.interrupted = True
        self.executor.stop()

    def state(self) -> NightState:
        """Return how far the night is."""
        running = tuple(self.executor.running())
        waiting = [item.id for queue in self._queues.values() for _, item in queue if not item.reason]
        return NightState(
            total=len(self.night.plan.items),
            counts={one: self.counts[one] for one in Outcome},
            running=running,
            left_s=self.estimate.left(waiting, {one.id: one.seconds for one in running}, self.executor.slots),
            seconds=self._before + (self._end or time.monotonic()) - self._begin,
            waiting=next(iter(self._waits.values()), ""),
        )

    @property
    def _goes_on(self) -> bool:
        return not self.interrupted and not self.problem and any(self._queues.values())

    def _step(self) -> None:
        """Start ready items in the plan's order, then wait for something to end.

        An item that has to wait keeps back its own queue alone.
        """
        self._waits.clear()
        while self._goes_on:
            heads = [(queue[0][0], kind) for kind, queue in self._queues.items() if queue and kind not in self._waits]
            if not heads:
                break
            kind = min(heads)[1]
            if reason := self._start(self._queues[kind][0][1]):
                self._waits[kind] = reason
            elif self._goes_on:
                self._queues[kind].popleft()
        if self._works or any(self._queues.values()):
            for ended in self.executor.wait(LOOK_S):
                self._take(ended)
            if self.executor.trouble:
                self._halt(self.executor.trouble)
        self._tell()
        self.view.tick(self.state)

    def _start(self, item: Item) -> str:
        """Start an item, or settle it; return its reason to wait."""
        outcome, why = item.settled, item.reason
        if not why and (why := self.executor.impossible(item)):
            outcome = Outcome.ERROR if self.require_gpu else Outcome.SKIP
        if why:
            self._record(ItemRecord(id=item.id, attempt=0, outcome=outcome, reason=why, executor=self.executor.name))
            return ""
        above = item_folder(self.night.folder, item.id)
        earlier = (path.name.removeprefix("attempt-") for path in above.glob("attempt-*"))
        attempt = max((int(number) for number in earlier if number.isdecimal()), default=0) + 1
        folder = above / f"attempt-{attempt}"
        work = Work(item=item, attempt=attempt, folder=folder, root=Path(self.night.plan.root))
        try:
            reason = self.executor.start(work)
        except OSError as error:
            self._halt(error)
            return ""
        if not reason:
            self._works[item.id] = work
            self.view.started(item, attempt)
        return reason

    def _take(self, ended: Ended) -> None:
        """Judge an item that ended and write it down, unless it shall run again."""
        work = self._works.pop(ended.id)
        self._waits.clear()  # until they are tried again
        if ended.interrupted:
            return
        if ended.attempt != work.attempt:  # the cluster ran it again
            work = replace(work, attempt=ended.attempt, folder=work.folder.with_name(f"attempt-{ended.attempt}"))
        if ended.failure and (trouble := self._unwritable()):
            self._halt(trouble)  # it failed for want of room: it has not ended
            return
        record = judge(work, ended, self.night.folder, self.executor.name)
        self._record(record)
        if record.outcome is Outcome.PASS and not self.keep_dumps:
            drop_dumps(work.folder)

    def _record(self, record: ItemRecord) -> None:
        try:
            item_folder(self.night.folder, record.id).mkdir(parents=True, exist_ok=True)
            write_record(self.night.folder, record, self.night.token)
        except OSError as error:
            self._unwritten.append(record)
            self._halt(error)
            return
        self._count(record)
        self.view.ended(record)

    def _count(self, record: ItemRecord) -> None:
        self.counts[record.outcome] += 1
        self.seconds[record.id] = (record.outcome, record.seconds)
        if record.attempt and record.outcome in (Outcome.PASS, Outcome.FAIL):
            self.estimate.learn(record.seconds)

    def _halt(self, error: OSError | str) -> None:
        """Start nothing more; running items may end, and are written down if that is possible then."""
        if isinstance(error, OSError):
            error = f"{error.filename or self.night.folder}: {error.strerror or error}"
        if not self.problem:
            self.problem = error
            self.view.said(f"nothing more is started: {self.problem}")

    def _unwritable(self) -> OSError | None:
        """Return why nothing can be written to the night's folder, None if it can."""
        probe = self.night.folder / ".probe"
        try:
            probe.write_bytes(bytes(1 << 16))
        except OSError as error:
            return error
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        return None

    def _tell(self, *, now: bool = False) -> None:
        """Write down the running items, about once a second, for ``status`` and the seconds so far; nothing rests on it."""
        if not now and time.monotonic() - self._told < TELL_S:
            return
        self._told = time.monotonic()
        with suppress(OSError):
            atomic_write(
                self.night.folder / RUNNING, json.dumps(as_json(self.state(), lambda value: round(value, 1))) + "\n"
            )

    def _finish(self) -> None:
        """Write down that the night has finished, and give it to the sinks."""
        summary = NightSummary(
            token=self.night.token,
            counts={one: self.counts[one] for one in Outcome},
            exit_code=int(exit_code(self.counts.elements())),
            seconds=round(self.state().seconds or 0.0, 3),
            items=self.seconds,
        )
        try:
            write_document(self.night.folder / FINISHED, as_json(summary))
        except OSError as error:
            self._halt(error)
            return
        try:
            if self.sink is not None:
                self.sink(self.night.folder)
        except Exception as error:  # noqa: BLE001 - the night has ended well, whatever a sink makes of it
            self.view.said(f"the night was not handed on: {type(error).__name__}: {error}")
