"""A night on the terminal: its tables, and the view of one that goes on."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TextIO

from tipchain.foreign_text import clean
from tipchain.language import aligned, columns, in_rows, say
from tipchain.nightly.coordinator import NightResult
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.nights import Night
from tipchain.nightly.progress import NightState, counts_text
from tipchain.nightly.records import ItemRecord
from tipchain.outcome import ExitCode, Outcome
from tipchain.progress import Screen, cut, elapsed
from tipchain.quantities import duration
from tipchain.report.terminal import MEANINGS, broken, mark, use_color

# Plans, states and summaries of nights as text for 80 columns.

INDENT = 9
SLOWEST = 5
SHOWN = 50
"""How many failures a summary tells; the rest is counted."""


def plan_lines(plan: NightPlan, seconds: Mapping[str, float], width: int = 80) -> Iterator[str]:
    """Yield a row for each item with its needs and what it took lately, and what the plan comes to."""
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
        first, *rest = broken(clean(item.id), max(width - len(head), 20))
        yield head + first
        yield from (" " * len(head) + row for row in rest)
        if item.reason:
            yield from in_rows(say(clean(item.reason)), width, " " * 10, " " * 10)
    yield ""
    yield say(plan_summary(plan, seconds))


def plan_summary(plan: NightPlan, seconds: Mapping[str, float]) -> str:
    """Return what a plan comes to, in one line."""
    kinds = Counter[str](item.kind for item in plan.items)
    words = {"chain": "chain", "align": "alignment", "command": "command"}
    parts = [counted(kinds[kind], word) for kind, word in words.items() if kinds[kind]]
    settled = Counter(item.settled for item in plan.items if item.reason)
    text = counted(len(plan.items), "item") + (f": {', '.join(parts)}" if parts else "")
    if settled:
        text += f"; {sum(settled.values())} of them do not run here ({counts_text(settled)})"
    known = [seconds[item.id] for item in plan.items if item.id in seconds and not item.reason]
    return text + (f"; {len(known)} of them took {duration(sum(known))} lately" if known else "")


def counted(count: int, word: str) -> str:
    """Return a number with a word behind it, in the plural where it is one."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def state_lines(night: Night, state: NightState, holder: str, width: int = 80) -> Iterator[str]:
    """Yield how far a night is and what runs."""
    finished = "finished" if night.finished else f"run by {holder}" if holder else "not finished, and nobody runs it"
    yield cut(say(f"night {night.name} of {clean(night.plan.name)}: {finished}"), width)
    yield cut(say(state.line()), width)
    if state.waiting:
        yield cut(say(f"the next item waits for {clean(state.waiting)}"), width)
    for one in state.running:
        line = " ".join(clean(one.line).split())
        yield cut(f"  {elapsed(one.seconds):>7}  {clean(one.id)}" + (f"  {line}" if line else ""), width)
    if not night.finished and not holder:
        yield say(f"tipchain nightly resume --night {night.name} goes on")


def summary_lines(
    night: Night,
    result: NightResult,
    records: Iterable[ItemRecord],
    seconds: float,
    code: ExitCode,
    *,
    color: bool,
    width: int = 80,
) -> Iterator[str]:
    """Yield what came of a night: what failed and why, what was slow, what was left out, the counts, the exit ``code``."""
    told = list(records)
    bad = [record for record in told if record.outcome in (Outcome.FAIL, Outcome.ERROR)]
    if bad:
        yield ""
    for record in bad[:SHOWN]:
        yield from _failure(night, record, color=color, width=width)
    if len(bad) > SHOWN:
        yield say(f"... and {len(bad) - SHOWN} more: tipchain nightly status --json has them all")
    yield from _skipped(told, color=color, width=width)
    yield from _slowest(told, width)
    yield ""
    yield say(f"night {night.name} of {clean(night.plan.name)}")
    total = len(night.plan.items)
    left = f", {result.left} not ended" if result.left else ""
    yield say(f"{counts_text(result.counts) or 'nothing ended'}{left} of {total} in {duration(seconds)}")
    meaning = MEANINGS.get(code, code.name.lower())
    if code is not result.exit_code:
        meaning = f"{MEANINGS.get(result.exit_code)}, but the history does not have the night, which --require-history asks for"
    elif code is ExitCode.PASSED and result.counts.get(Outcome.SKIP):
        meaning = "all that ran passed"
    yield say(f"exit code {int(code)}: {meaning}")


def _failure(night: Night, record: ItemRecord, *, color: bool, width: int) -> Iterator[str]:
    rows = broken(clean(record.id), width - INDENT)
    yield f"{mark(record.outcome, color)}  {rows[0]}"
    yield from (" " * INDENT + row for row in rows[1:])
    yield from _indented(record.reason, width)
    if record.log:
        yield f"{' ' * INDENT}{os.path.relpath(night.folder / record.log)}"


def _indented(text: str, width: int) -> list[str]:
    return in_rows(say(clean(text)), width, " " * INDENT, " " * INDENT)


def _skipped(records: Sequence[ItemRecord], *, color: bool, width: int) -> Iterator[str]:
    """Yield the reasons of what was left out, each once, with how many items have it."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if record.outcome is Outcome.SKIP:
            reasons[record.reason].append(record.id)
    if reasons:
        yield ""
    for reason, ids in list(reasons.items())[:SHOWN]:
        more = say(f" and {len(ids) - 1} more") if len(ids) > 1 else ""
        yield f"{mark(Outcome.SKIP, color)}  {cut(clean(ids[0]), width - INDENT - columns(more))}{more}"
        yield from _indented(reason, width)


def _slowest(records: Sequence[ItemRecord], width: int) -> Iterator[str]:
    ran = sorted((one for one in records if one.attempt), key=lambda one: (-one.seconds, one.id))[:SLOWEST]
    if len(ran) > 1:
        yield ""
        yield say("slowest:")
        for one in ran:
            yield cut(f"{duration(one.seconds):>9}  {clean(one.id)}", width)


def item_line(number: int, total: int, record: ItemRecord, *, color: bool) -> str:
    """Return how an item ended, in one line."""
    took = f"{record.seconds:7.1f}" if record.attempt else " " * 7
    reason = f": {say(clean(record.reason))}" if record.reason else ""
    width = len(str(total))
    return f"[{number:>{width}}/{total}] {mark(record.outcome, color)} {took}  {clean(record.id)}{reason}"


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
        ended: how many had ended before.
        clock: seconds that only go forward.
    """

    def __init__(self, stream: TextIO, total: int, ended: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.screen, self.total, self.number, self.clock = Screen(stream, clock), total, ended, clock
        self.color = use_color(stream)
        self._due = self.clock() + SAY_S
        self._idle = False

    def started(self, item: Item, attempt: int) -> None:
        """Say that an item runs once more; the first time the line of what runs tells."""
        if attempt > 1:
            self.said(f"{item.id} runs again, attempt {attempt}")

    def ended(self, record: ItemRecord) -> None:
        """Show how an item ended, above what still runs."""
        self.number += 1
        self.screen.print(item_line(self.number, self.total, record, color=self.color))

    def said(self, text: str) -> None:
        """Show a line."""
        self.screen.print(say(clean(text)))

    def tick(self, state: Callable[[], NightState]) -> None:
        """Redraw what runs, or say how far the night is, when it is time."""
        if self.screen.due:
            self._redraw(state())
        elif not self.screen.live:
            self._say(state())

    def close(self) -> None:
        """Take the lines of what runs away."""
        self.screen.draw([])

    def _say(self, state: NightState) -> None:
        """Write a plain line when nothing begins to run, and when it is time."""
        idle = bool(state.waiting) and not state.running
        if (idle and not self._idle) or self.clock() >= self._due:
            self._due = self.clock() + SAY_S
            for line in (f"... {say(state.line())}", *_waiting(state)):
                self.screen.print(line)
        self._idle = idle

    def _redraw(self, state: NightState) -> None:
        lines = [say(state.line()), *_waiting(state)]
        for one in state.running:
            last = " ".join(clean(one.line).split())
            lines.append(f"{elapsed(one.seconds):>8}  {clean(one.id)}" + (f"  {last}" if last else ""))
        self.screen.draw(lines)


def _waiting(state: NightState) -> list[str]:
    return [say(f"the next item waits for {clean(state.waiting)}")] if state.waiting else []
