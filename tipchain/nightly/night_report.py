"""A night as people read it: its plan, how it goes on, and its report."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from tipchain.chain.plan import Command, Result
from tipchain.core.language import WIDTH, aligned, below, clean, cut, in_rows, many, say, use_color
from tipchain.core.progress import Screen, elapsed, with_output
from tipchain.core.quantities import duration
from tipchain.errors import BAD
from tipchain.nightly.coordinator import NightState
from tipchain.nightly.executor import Work
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.nights import ItemRecord, Night, Results, item_folder, report_of
from tipchain.report.model import NIGHT_KIND, RunReport
from tipchain.report.terminal import broken, counts_text, mark

STEPS: Mapping[str, str] = {"chain": "chain", "align": "alignment", "command": "command"}
"""The names and groups of items that are of no kind of chain."""

# Plans and states of nights as text for 80 columns.


def plan_lines(plan: NightPlan, seconds: Mapping[str, float], width: int = WIDTH) -> Iterator[str]:
    """Yield a row for each item with its needs and its latest time, and the sums of the plan."""
    heads = zip(("timeout", "lately", "cpus", "gpus", "memory"), (8, 8, 4, 4, 8), strict=True)
    yield f"{' '.join(aligned(say(name), wide) for name, wide in heads)}  {say('item')}"
    for item in plan.items:
        needs = item.needs
        if item.reason:
            head = f"{item.settled.value:<36}  "
        else:
            lately = duration(seconds[item.id]) if item.id in seconds else ""
            memory = f"{needs.memory_mb / 1024:.4g}GiB" if needs.memory_mb else ""
            head = f"{duration(item.timeout_s):>8} {lately:>8} {needs.cpus:>4} {needs.gpus or '':>4} {memory:>8}  "
        yield from below(head, broken(clean(item.id), max(width - len(head), 20)))
        if item.reason:
            yield from in_rows(say(clean(item.reason)), width, " " * 10)
    yield ""
    # What a plan comes to, in one line.
    kinds = Counter[str](item.kind for item in plan.items)
    parts = [many(kinds[kind], word) for kind, word in STEPS.items() if kinds[kind]]
    settled = Counter(item.settled for item in plan.items if item.reason)
    text = many(len(plan.items), "item") + (f": {', '.join(parts)}" if parts else "")
    if settled:
        text += f"; {sum(settled.values())} of them do not run here ({counts_text(settled)})"
    known = [seconds[item.id] for item in plan.items if item.id in seconds and not item.reason]
    yield say(text + (f"; {len(known)} of them took {duration(sum(known))} lately" if known else ""))


def state_lines(night: Night, state: NightState, holder: str, width: int = WIDTH) -> Iterator[str]:
    """Yield how far a night is and its running items."""
    finished = "finished" if night.finished else f"run by {holder}" if holder else "not finished, and nobody runs it"
    for line in (f"night {night.name} of {clean(night.plan.name)}: {finished}", *state.lines()):
        yield from in_rows(say(line), width, rest="  ")
    for one in state.running:
        yield cut(with_output(f"  {elapsed(one.seconds):>7}  {clean(one.id)}", one.line), width)
    if not night.finished and not holder:
        yield say(f"tipchain nightly resume --night {night.name} goes on")


# The view of a night that goes on.
#
# On a terminal a line of counts and a line for each running item (its time, its id, the last line of its output) stand at
# the bottom and are redrawn in place; what has ended scrolls above. Elsewhere there are plain lines only: one for each
# item that ended, one when nothing runs because the next item has to wait, and now and then how far the night is.

SAY_S = 300.0
"""How often plain lines say how far the night is."""


class NightView:
    """Shows a night while it goes on.

    Args:
        stream: where to.
        total: how many items the night has.
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        self.screen, self.total, self.number = Screen(stream, lambda: self._lines), total, 0
        self.color = use_color(stream)
        self._due = time.monotonic() + SAY_S
        self._idle, self._lines = False, list[str]()

    def started(self, item: Item, attempt: int) -> None:
        """Say that an item runs once more; the first time the line of running items tells."""
        if attempt > 1:
            self.said(f"{item.id} runs again, attempt {attempt}")

    def ended(self, record: ItemRecord) -> None:
        """Show how an item ended, above the running ones."""
        self.number += 1
        took = f"{record.seconds:7.1f}" if record.attempt else " " * 7
        reason = f": {say(clean(record.reason))}" if record.reason else ""
        count = f"[{self.number:>{len(str(self.total))}}/{self.total}]"
        self.screen.print(f"{count} {mark(record.outcome, self.color)} {took}  {clean(record.id)}{reason}")

    def said(self, text: str) -> None:
        """Show a line."""
        self.screen.print(say(clean(text)))

    def tick(self, state: Callable[[], NightState]) -> None:
        """Take note of the running items, or say how far the night is when it is time."""
        now = state()
        if self.screen.live:
            running = (with_output(f"{elapsed(one.seconds):>8}  {clean(one.id)}", one.line) for one in now.running)
            self._lines = [*map(say, now.lines()), *running]
        else:
            # A plain line when nothing begins to run, and when it is time.
            idle = bool(now.waiting) and not now.running
            if (idle and not self._idle) or time.monotonic() >= self._due:
                self._due = time.monotonic() + SAY_S
                first, *rest = map(say, now.lines())
                for line in (f"... {first}", *rest):
                    self.screen.print(line)
            self._idle = idle


# A night as a run's report, of which every item is a command: what is shown in the end, on GitHub, as JUnit XML.


def night_as_report(
    results: Results, *, seconds: float | None = None, interrupted: bool = False, changed: Sequence[str] = ()
) -> RunReport:
    """Return a night as a report, with the causes that the reports of its items tell.

    Args:
        results: of the night. An item that has no record is an ERROR, unless the night was interrupted.
        seconds: that the night took; those of its items added up if None.
        interrupted: whether it is to be resumed: what has not ended is then left out.
        changed: lines on what changed since the last comparable night.
    """
    plan, night, ran, causes = results.plan, results.night, [], []
    for item in plan.items:
        record = results.of(item)
        if interrupted and item.id not in results.records:
            continue
        folder = Path(os.path.relpath(item_folder(results.night.folder, item.id))) / f"attempt-{record.attempt}"
        work = Work(item=item, attempt=record.attempt, folder=folder, root=Path(plan.root))
        tail = work.tail() if record.log and record.outcome in BAD else ()
        step = item.chain or STEPS[item.kind]
        result = Result(Command(item.id, step, work.argv(python="python")), record.outcome, record.reason)
        shown = os.path.relpath(results.night.folder / record.log) if record.log else ""
        ran.append(result._replace(started=record.started, seconds=record.seconds, log=shown, tail=tuple(tail)))
        report = report_of(results, record) if record.outcome in BAD else None
        if report and report.cause:
            causes.append(replace(report.cause, explains=(item.id,)))
    left = len(plan.items) - len(results.records)
    ended = f"{left} of {len(plan.items)} items have not ended: the night did not come to its end"
    facts = {"night": night.name, "manifest": plan.manifest, "folder": str(night.folder), **results.facts}
    return RunReport(
        title=plan.name,
        chain=NIGHT_KIND,
        started=night.started,
        seconds=results.seconds if seconds is None else seconds,
        versions=facts,
        where={"commit": results.facts.get("commit", "")},
        results=tuple(ran),
        diagnoses=tuple(causes),
        interrupted=interrupted,
        notes=(*([ended] if left else []), *changed),
    )
