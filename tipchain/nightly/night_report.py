"""A night as people read it: on the terminal while it goes on and after, on GitHub, and as JUnit XML."""

from __future__ import annotations

import os
import shlex
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TextIO

from tipchain.core.language import aligned, clean, columns, cut, in_rows, many, say, use_color
from tipchain.core.progress import Screen, elapsed, with_output
from tipchain.core.quantities import duration
from tipchain.errors import BAD, ExitCode, Outcome
from tipchain.nightly.coordinator import NightResult, NightState
from tipchain.nightly.executor import Work
from tipchain.nightly.items import Item, NightPlan
from tipchain.nightly.judge import log_tail
from tipchain.nightly.nights import ItemRecord, Night, Results, cause_of, item_folder
from tipchain.report.ci import (
    SIGNS,
    JunitCase,
    annotate_cause,
    junit_document,
    markdown,
    place_in_checkout,
    workflow_command,
)
from tipchain.report.terminal import MEANINGS, broken, counts_text, mark

# Plans, states and summaries of nights as text for 80 columns.

INDENT = 9
SLOWEST = 5
SHOWN = 50
"""How many failures a summary tells, or annotations do; the rest is counted. GitHub itself shows ten errors for a step."""


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
    # What a plan comes to, in one line.
    kinds = Counter[str](item.kind for item in plan.items)
    words = {"chain": "chain", "align": "alignment", "command": "command"}
    parts = [many(kinds[kind], word) for kind, word in words.items() if kinds[kind]]
    settled = Counter(item.settled for item in plan.items if item.reason)
    text = many(len(plan.items), "item") + (f": {', '.join(parts)}" if parts else "")
    if settled:
        text += f"; {sum(settled.values())} of them do not run here ({counts_text(settled)})"
    known = [seconds[item.id] for item in plan.items if item.id in seconds and not item.reason]
    yield say(text + (f"; {len(known)} of them took {duration(sum(known))} lately" if known else ""))


def state_lines(night: Night, state: NightState, holder: str, width: int = 80) -> Iterator[str]:
    """Yield how far a night is and what runs."""
    finished = "finished" if night.finished else f"run by {holder}" if holder else "not finished, and nobody runs it"
    yield cut(say(f"night {night.name} of {clean(night.plan.name)}: {finished}"), width)
    yield cut(say(state.line()), width)
    if state.waiting:
        yield cut(say(f"the next item waits for {clean(state.waiting)}"), width)
    for one in state.running:
        yield cut(with_output(f"  {elapsed(one.seconds):>7}  {clean(one.id)}", one.line), width)
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
    bad = [record for record in told if record.outcome in BAD]
    if bad:
        yield ""
    for record in bad[:SHOWN]:
        rows = broken(clean(record.id), width - INDENT)
        yield f"{mark(record.outcome, color)}  {rows[0]}"
        yield from (" " * INDENT + row for row in rows[1:])
        yield from _indented(record.reason, width)
        if record.log:
            yield f"{' ' * INDENT}{os.path.relpath(night.folder / record.log)}"
    if len(bad) > SHOWN:
        yield say(f"... and {len(bad) - SHOWN} more: tipchain nightly status --json has them all")
    # The reasons of what was left out, each once, with how many items have it.
    reasons: dict[str, list[str]] = defaultdict(list)
    for record in told:
        if record.outcome is Outcome.SKIP:
            reasons[record.reason].append(record.id)
    if reasons:
        yield ""
    for reason, ids in list(reasons.items())[:SHOWN]:
        more = say(f" and {len(ids) - 1} more") if len(ids) > 1 else ""
        yield f"{mark(Outcome.SKIP, color)}  {cut(clean(ids[0]), width - INDENT - columns(more))}{more}"
        yield from _indented(reason, width)
    ran = sorted((one for one in told if one.attempt), key=lambda one: (-one.seconds, one.id))[:SLOWEST]
    if len(ran) > 1:
        yield ""
        yield say("slowest:")
        for one in ran:
            yield cut(f"{duration(one.seconds):>9}  {clean(one.id)}", width)
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


def _indented(text: str, width: int) -> list[str]:
    return in_rows(say(clean(text)), width, " " * INDENT, " " * INDENT)


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
        took = f"{record.seconds:7.1f}" if record.attempt else " " * 7
        reason = f": {say(clean(record.reason))}" if record.reason else ""
        count = f"[{self.number:>{len(str(self.total))}}/{self.total}]"
        self.screen.print(f"{count} {mark(record.outcome, self.color)} {took}  {clean(record.id)}{reason}")

    def said(self, text: str) -> None:
        """Show a line."""
        self.screen.print(say(clean(text)))

    def tick(self, state: Callable[[], NightState]) -> None:
        """Redraw what runs, or say how far the night is, when it is time."""
        if self.screen.due:
            now = state()
            running = (with_output(f"{elapsed(one.seconds):>8}  {clean(one.id)}", one.line) for one in now.running)
            self.screen.draw([say(now.line()), *_waiting(now), *running])
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


def _waiting(state: NightState) -> list[str]:
    return [say(f"the next item waits for {clean(state.waiting)}")] if state.waiting else []


# A night on GitHub: annotations of the files whose items failed, and the step's summary in Markdown.

TAILS = 20
"""Items of which the last lines of the log stand in the summary."""
REASON = 500
"""Characters of a reason in the summary."""


def annotate(results: Results, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return GitHub's workflow commands for the items that failed, each at the line at fault, else at its parameter file or case."""
    bad = results.bad
    root, lines = Path(results.plan.root), []
    for item, record in bad[:SHOWN]:
        log = f"\n{say('log: ')}{os.path.relpath(results.folder / record.log)}" if record.log else ""
        cause = cause_of(results, record)
        if cause is not None:
            more = "" if record.reason == cause.summary else f": {say(record.reason)}"
            said = f"\n{record.outcome.value}{more}{log}"
            lines.append(annotate_cause(cause, item.id, root, environ, said))
            continue
        place = place_in_checkout(root / item.source, environ) if item.source else ""
        where = {"file": place, "line": "1"} if place else {}
        message = f"{record.outcome.value}: {say(record.reason or 'no reason was given')}{log}"
        lines.append(workflow_command("error", message, {**where, "title": item.id}))
    if len(bad) > SHOWN:
        more = f"{len(bad) - SHOWN} more items of {results.plan.name} did not pass; the summary has them"
        lines.append(workflow_command("error", say(more), {"title": results.plan.name}))
    if missing := _missing(results):
        lines.append(workflow_command("error", say(missing), {"title": results.plan.name}))
    return lines


def _missing(results: Results) -> str:
    """Return how many items have no record, in words; "" for none."""
    count = len(results.plan.items) - len(results.records)
    return (
        f"{count} of {len(results.plan.items)} items have not ended: the night did not come to its end" if count else ""
    )


def summary(results: Results, changed: Sequence[str] = ()) -> str:
    """Return a night as Markdown; ``changed`` are lines on what changed since the last comparable night."""
    counts, total = Counter(one.outcome for one in results.records.values()), len(results.plan.items)
    bad, missing = results.bad, _missing(results)
    headline = f"{len(bad)} of {total} items did not pass" if bad else f"{counts[Outcome.PASS]} of {total} items passed"
    commit = f", commit {markdown(results.facts['commit'])}" if results.facts.get("commit") else ""
    night = f"items took {duration(results.seconds)} together. Night {markdown(results.night.name)}{commit}."
    lines = [
        f"## {SIGNS[Outcome.FAIL if bad or missing else Outcome.PASS]} {markdown(results.plan.name)}: {say(headline)}",
        "",
        f"**{say(counts_text(counts) or 'nothing ended')}**{say('; ')}{say(night)}",
        "",
    ]
    lines += [f"**{say(missing + '.')}**", ""] if missing else []
    lines += [f"| {' | '.join(map(say, ('outcome', 'item', 'reason', 'log')))} |", "|---|---|---|---|"] if bad else []
    for item, record in bad[:SHOWN]:
        log = markdown(os.path.relpath(results.folder / record.log)) if record.log else ""
        cause = cause_of(results, record)
        reason = say(cause.summary if cause else record.reason)[:REASON]
        lines.append(
            f"| {SIGNS[record.outcome]} {record.outcome.value} | {markdown(item.id)} | {markdown(reason)} | {log} |"
        )
    lines += ["", say(f"{len(bad) - SHOWN} more did not pass; there is no room for them here.")] if bad[SHOWN:] else []
    lines += ["", f"### {say('What changed')}", "", *_pre(changed)] if changed else []
    for item, record in bad[:TAILS]:
        if record.log and (tail := log_tail(results.folder / record.log)):
            lines += _folded(say(f"Last lines of the log of {item.id}"), tail)
    reasons = Counter(one.reason for one in results.records.values() if one.outcome is Outcome.SKIP)
    if reasons:
        told = [say(f"{count} of them: {reason[:REASON]}") for reason, count in reasons.most_common(SHOWN)]
        lines += _folded(say(f"{reasons.total()} items were skipped"), told)
    facts = [f"{name}: {value[:200]}" for name, value in list(results.facts.items())[:100]]
    return "\n".join([*lines, *(_folded(say("Environment"), facts) if facts else ())]) + "\n"


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    return ["", f"<details><summary>{escape(title)}</summary>", "", *_pre(lines), "", "</details>"]


def _pre(lines: Iterable[str]) -> list[str]:
    # In one block of HTML, which ends at its end tag and not at an empty line: nothing in it is Markdown.
    return [f"<pre>{escape(chr(10).join(lines))}</pre>"]


# A night as JUnit XML: one suite for each kind of items, one case for each item, called by its kind of chain.

KINDS = {"chain": "chains", "align": "alignment cases", "command": "commands"}


def night_junit(results: Results) -> str:
    """Return a night as a JUnit XML document; its environment is in the properties of each suite.

    An item that has no record, because the night was killed, is an error.
    """
    plan, night = results.plan, results.night
    suites: dict[str, list[JunitCase]] = {f"{plan.name}: {name}": [] for name in KINDS.values()}
    for item in plan.items:
        record = results.of(item)
        cause = cause_of(results, record)
        case = JunitCase(
            group=".".join(filter(None, (plan.name, item.chain or item.kind, item.subject.replace("/", ".")))),
            name=item.id,
            outcome=record.outcome,
            reason=cause.summary if cause else record.reason or record.outcome.value,
            detail=_detail(results, item, record),
            seconds=record.seconds,
            place=cause.place if cause else None,
            file=item.source,
        )
        suites[f"{plan.name}: {KINDS[item.kind]}"].append(case)
    facts = {"night": night.name, "manifest": plan.manifest, "folder": str(night.folder), **results.facts}
    filled = {name: cases for name, cases in suites.items() if cases}
    return junit_document(plan.name, filled, facts, night.started, results.seconds)


def _detail(results: Results, item: Item, record: ItemRecord) -> str:
    if record.outcome not in BAD:
        return ""
    folder = Path(os.path.relpath(item_folder(results.folder, item.id))) / f"attempt-{record.attempt}"
    work = Work(item=item, attempt=record.attempt, folder=folder, root=Path(results.plan.root))
    lines = [record.reason, f"$ {shlex.join(work.argv(python='python'))}"]
    lines += [f"machine: {record.machine}"] if record.machine else []
    for name, path in (("report", record.report), ("log", record.log)):
        lines += [f"{name}: {os.path.relpath(results.folder / path)}"] if path else []
    return "\n".join([*lines, *(log_tail(results.folder / record.log) if record.log else ())])
