"""Renders a run's report as text: every check, or the verdict with its explanation."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.chain.plan import Result
from tipchain.core.language import WIDTH, aligned, below, clean, columns, in_rows, many, padded, paint, say
from tipchain.errors import BAD, NO_VERDICT, NOT_THE_SAME, Outcome, worst
from tipchain.explain.findings import PIECES, Diagnosis
from tipchain.modes import LOCATABLE, PREFLIGHT, SOLO, STAGES, Mode
from tipchain.report.model import NIGHT_KIND, RunReport, stage_of

if TYPE_CHECKING:
    from tipchain.numbers.verdicts import Verdict


# All of a report.


COLORS = {Outcome.PASS: "32", Outcome.FAIL: "31", Outcome.ERROR: "35", Outcome.SKIP: "33"}
TAIL_AT_LENGTH = 10
OUTCOME, HEAD = 7, 18
"""Columns of an outcome, and of a command's outcome and seconds with the blanks behind them."""


def render_report(report: RunReport, *, color: bool = False, width: int = WIDTH) -> str:
    """Return every command and every check of ``report``, with the failed ones at length."""
    lines: list[str] = []
    if report.results:
        heads = (padded(say("outcome"), OUTCOME), aligned(say("seconds"), 7))
        lines += ["", "  ".join((*heads, say("command and log in" if report.run else "command and log")))]
        lines += [" " * HEAD + f"{report.run}/"] if report.run else []
        for result in report.results:
            lines += _result_rows(result, color, width)
    if report.verdicts:
        lines += ["", f"{padded(say('outcome'), OUTCOME)}  {say('subject: reason')}"]
        for verdict in report.verdicts:
            reason = f": {say(clean(verdict.reason))}" if verdict.reason else ""
            lines += _hanging(mark(verdict.outcome, color), clean(verdict.subject) + reason, width)
    for result in report.results:
        if result.outcome in BAD:
            lines += ["", *_details(result, report.run, color, width)]
    if report.notes:
        head = padded(say("note:"), OUTCOME)
        lines += ["", *(line for note in report.notes for line in _hanging(head, say(clean(note)), width))]
    return "\n".join(lines)


def mark(outcome: Outcome, color: bool) -> str:
    """Return an outcome as a cell of a table."""
    return paint(f"{outcome.value:<{OUTCOME}}", COLORS[outcome], color)


def counts_text(counts: Mapping[Outcome, int]) -> str:
    """Return ``3 passed, 1 failed``; counts of zero are left out."""
    errors = "error" if counts.get(Outcome.ERROR) == 1 else "errors"
    words = {Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.ERROR: errors, Outcome.SKIP: "skipped"}
    return ", ".join(f"{counts[one]} {word}" for one, word in words.items() if counts.get(one))


def _result_rows(result: Result, color: bool, width: int) -> list[str]:
    seconds = "" if result.outcome is Outcome.SKIP and not result.started else f"{result.seconds:.1f}"
    room = width - HEAD
    name = clean(result.command.id)
    log = clean(result.log)
    if result.reused:
        name += say(" (earlier)")
    if result.outcome is Outcome.SKIP or not log:
        rows = broken(name, room)
    elif len(name) + 2 + len(log) <= room:
        rows = [f"{name}  {log}"]
    else:
        rows = [*broken(name, room), log]
    rows += in_rows(say(clean(result.reason)), room) if result.outcome is Outcome.SKIP else []
    figures = figures_text(result.figures)
    rows += in_rows(figures, room) if figures else []
    return below(f"{mark(result.outcome, color)}  {seconds:>7}  ", rows)


def broken(name: str, width: int) -> list[str]:
    """Return an id in rows of at most ``width`` characters, broken after semicolons where it is too long."""
    rows = [""]
    for part in re.findall(r"[^;]*;|[^;]+$", name) or [""]:
        if rows[-1] and len(rows[-1]) + len(part) > width:
            rows.append("  ")
        rows[-1] += part
    return rows


def figures_text(figures: Mapping[str, float]) -> str:
    """Return figures as ``avg_ips=123 loss=0.5``."""
    return " ".join(f"{clean(name)}={value:.6g}" for name, value in figures.items())


def _hanging(head: str, text: str, width: int) -> list[str]:
    # A reason's own lines (found, expected, hint) stay lines.
    room = max(width - 9, 20)
    rows = [row for line in text.splitlines() for row in in_rows(line.strip(), room, rest="  ")]
    return below(f"{head}  ", rows or [""])


def _details(result: Result, run: str, color: bool, width: int) -> list[str]:
    lines = [f"{mark(result.outcome, color).rstrip()} {clean(result.command.id)}"]
    reason, missing = _below(run, result.reason), [_below(run, text) for text in result.missing]
    for text in (reason, *(f"missing: {one}" for one in missing if one not in reason)):
        lines += in_rows(say(clean(text)), width, "  ", "  ")
    lines.append(f"  $ {clean(shlex.join(result.command.argv))}")
    if result.log:
        lines.append(say(f"  log: {clean(result.log)}" + (", its last lines:" if result.tail else "")))
    return lines + [
        row for line in result.tail[-TAIL_AT_LENGTH:] for row in in_rows(clean(line), width, "  | ", "  |   ")
    ]


def _below(run: str, text: str) -> str:
    """Return ``text`` with paths below the run's folder, which heads the table, relative to it."""
    # Not within an absolute path, of which the rest alone would name another file.
    return re.sub(rf"(?<![\w./-])(?:\./)?{re.escape(run)}/", "", text) if run else text


# Its ending.


MOST_ROWS = 14
"""Rows of stages or commands: one for each stage that there is, and one for the run's own files."""
NOTES, TAIL_LINES = 5, 6
LABEL = 6
"""Columns of the words that lines begin with: ``fix``, ``log``, ``next``."""
NOUNS: Mapping[str, str] = {
    "lr": "learning rates",
    "scheduler": "learning rates",
    "train_data": "training data",
    "init": "initialization",
    "backward": "gradients",
    "train": "training",
    "step": "training",
    "predict": "predictions",
    "inference": "model once it is exported",
    "distributed": "training on several cards",
    "forward": "model",
}
"""The noun that differs where a stage fails, or a piece is the cause; the others are called as the stage is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One stage, or one command, of the table.

    Attributes:
        outcome: the worst of its checks.
        name: of the stage or the command.
        text: what is said of it.
    """

    outcome: Outcome
    name: str
    text: str


def verdict_line(report: RunReport) -> str:
    """Return the verdict as one sentence on one line, with the line to change."""
    cause = report.cause
    sentence = _headline(report)[1]
    place = clean(str(cause.place)) if cause is not None and cause.place is not None else ""
    return f"{sentence} ({place})" if place and NOT_THE_SAME in sentence else sentence


def render_ending(report: RunReport, *, color: bool = False, width: int = WIDTH) -> str:
    """Return the verdict with its explanation, a row for each stage or command, and how to go on."""
    outcome, text = _headline(report)
    head = in_rows(say(text), width)
    told = counts_text(Counter(report.outcomes)) or "no checks"
    foot = [say(f"{told} in {report.seconds:.1f} s, exit code {int(report.exit_code)}"), *_foot(report, width)]
    details = [*_causes(report, width), *_failed_command(report, width)]
    table = _table(_rows(report), color, width)
    notes = [row for note in report.notes[:NOTES] for row in in_rows(say(_flat(note)), width, _label("note"))]
    left = len(report.notes[NOTES:])
    notes += [f"{_label('note')}{say(f'{left} more with -v')}"] if left else []
    blocks = [[paint(head[0], COLORS[outcome], color), *head[1:], *details], table, [*notes, *foot]]
    return "\n\n".join("\n".join(block) for block in blocks if block)


# The verdict.


def _headline(report: RunReport) -> tuple[Outcome, str]:
    read = _of_night if report.chain == NIGHT_KIND else _of_chain if report.results else _of_alignment
    outcome, text = read(report)
    if not report.interrupted:
        return outcome, text
    if outcome is Outcome.SKIP and report.results:
        passed = sum(one.outcome is Outcome.PASS for one in report.verdicts)
        checks = f"; {many(passed, 'check')} passed" if passed else ""
        return outcome, f"interrupted before a command ended{checks}"
    if outcome is Outcome.SKIP:
        return outcome, "interrupted before anything was compared"
    return (outcome if outcome in BAD else Outcome.SKIP), f"interrupted: so far {text}"


def _of_alignment(report: RunReport) -> tuple[Outcome, str]:
    stages = by_stage(report.verdicts)
    for outcome in BAD:
        first = next((one for ones in stages.values() for one in ones if one.outcome is outcome), None)
        if first is None:
            continue
        said = f"{clean(first.subject)}: {_flat(first.reason)}"
        if outcome is Outcome.ERROR:
            return outcome, f"{NO_VERDICT}{said}"
        cause = report.cause
        return outcome, f"{NOT_THE_SAME}{_noun(stage_of(first))}: {said}" if cause is None else _of_cause(cause)
    passed = [name for name, ones in stages.items() if worst(one.outcome for one in ones) is Outcome.PASS]
    compared = [name for name in passed if name != PREFLIGHT]
    if not compared:
        reasons = (_flat(one.reason) for one in report.verdicts if stage_of(one) != PREFLIGHT)
        return Outcome.SKIP, f"nothing was compared: {next(reasons, 'no stage was judged')}"
    if report.uncompared:
        return Outcome.SKIP, f"equal where compared; not compared: {'; '.join(map(_flat, report.uncompared))}"
    return Outcome.PASS, _claim(report, stages, compared)


def _claim(report: RunReport, stages: Collection[str], compared: Sequence[str]) -> str:
    """Return the claim of a run in which nothing failed: no more than it compared."""
    shares = [one for one in report.verdicts if one.outcome is Outcome.PASS and one.share is not None]
    first = max(shares, key=lambda one: one.share or 0.0, default=None)
    closest = ", every number equal" if first is not None else ""
    if first is not None and first.share:
        closest = f", tightest check: {stage_of(first)}, {percent(first.share)} of the tolerance"
    own = [name for name in compared if name in report.stages] or compared  # gradients are compared in any case
    told = f"{many(len(own), 'stage')}{closest}"
    accepted = dict.fromkeys(_flat(one.accepted) for one in report.verdicts if one.accepted)
    if accepted:
        return f"accepted: {'; '.join(accepted)}; the rest agrees: {told}"
    if set(compared) <= set(SOLO):
        return f"the port agrees with itself: {told}; it was not compared with its reference"
    if PREFLIGHT not in stages:
        return f"the recorded numbers are within their tolerances: {told}; the models were not compared"
    if set(report.stages) <= set(compared) and {"forward", "backward"} <= set(stages):
        return f"the port equals its reference: {told}"
    of = f"{len(compared)} of {many(max(len(report.stages), len(compared)), 'stage')} compared"
    return f"equal to its reference: {', '.join(map(_noun, compared))} ({of}{closest})"


def _of_cause(cause: Diagnosis) -> str:
    noun = _noun(cause.port_path) if cause.port_path in PIECES else "model"
    return f"{NOT_THE_SAME}{noun}: {_flat(cause.message)}"


def _of_night(report: RunReport) -> tuple[Outcome, str]:
    bad = [one for one in report.results if one.outcome in BAD]
    total, passed = len(report.results), sum(one.outcome is Outcome.PASS for one in report.results)
    if bad:
        causes = {subject: one.message for one in report.diagnoses for subject in one.explains}
        reason = causes.get(bad[0].command.id) or bad[0].reason
        return Outcome.FAIL, f"{len(bad)} of {total} items did not pass: {clean(bad[0].command.id)}: {_flat(reason)}"
    return (Outcome.PASS if passed else Outcome.SKIP), f"{passed} of {total} items passed"


def _of_chain(report: RunReport) -> tuple[Outcome, str]:
    # What was running when the user interrupted the run did not fail.
    stopped = [one for one in report.results if report.interrupted and one.reason == "interrupted"]
    bad = [one for one in report.results if one.outcome in BAD and one not in stopped]
    if bad:
        cause = report.cause if bad[0].command.step == "align" else None
        reason = _of_cause(cause) if cause else _flat(bad[0].reason)
        return Outcome.FAIL, f"the chain FAILED at {clean(bad[0].command.id)}: {reason}"
    wrong = next((one for one in report.verdicts if one.outcome in BAD), None)
    if wrong is not None:
        return wrong.outcome, f"the chain ran, but {clean(wrong.subject)}: {_flat(wrong.reason)}"
    passed = sum(one.outcome is Outcome.PASS for one in report.results)
    if not passed:
        reason = next((_flat(one.reason) for one in report.results), "there are no commands")
        return Outcome.SKIP, f"nothing ran: {reason}"
    left = len(report.results) - passed
    if report.interrupted:
        return Outcome.PASS, f"{passed} of {len(report.results)} commands passed"
    number = "1 command" if passed == 1 else f"{passed} commands"
    aligned = {one.outcome for one in report.results if one.command.step == "align"}
    equal = "; the port equals its reference" if aligned == {Outcome.PASS} else ""
    return Outcome.PASS, f"the chain passed: {number}" + (f", {left} not run" if left else "") + equal


def _noun(stage: str) -> str:
    return NOUNS.get(stage, stage)


def percent(share: float) -> str:
    """Return a share of the tolerance: never 0 % of a difference, nor 100 % of one that is just allowed, or just not."""
    if share >= 1:
        return "100 %" if share == 1 else f"{share:,.0f} times" if share >= 10 else f"{share:.3g} times"
    return "less than 1 %" if share < 0.01 else f"{min(int(100 * share), 99)} %"


# Why.


def _causes(report: RunReport, width: int) -> list[str]:
    """Return the known causes: of the first its lines, its fix and how it was found, of others a sentence."""
    if not any(one in BAD for one in report.outcomes):
        return []
    first = report.cause
    lines = _of_first(first, width) if first is not None else []
    # Of a fault that is known, causes that are not are what is left of it.
    others = [one for one in report.diagnoses if one is not first and one.is_known]
    for one in others[:2]:
        place = f" ({one.place})" if one.place else ""
        lines += _labelled("also", f"{_of_cause(one).removeprefix(NOT_THE_SAME)}{place}", width)
    lines += _labelled("", f"and {len(others) - 2} more, with tipchain report -v", width) if len(others) > 2 else []
    if report.undiagnosed:
        lines += _labelled("why" if first is None else "left", report.undiagnosed, width)
    return lines


def _of_first(cause: Diagnosis, width: int) -> list[str]:
    lines: list[str] = []
    for label, place in (("at", cause.place), ("ref", cause.reference_place)):
        if place is not None:
            lines += _code(label, f"{place}: {place.code}".removesuffix(": "), width)
    others = len(cause.layers) - 1
    more = f", and in {many(others, 'more layer')}" if others else ""
    if cause.fix:
        lines += _labelled("fix", f"{cause.bare_fix if cause.corrected else cause.fix}{more}", width)
        lines += _code("", cause.corrected, width) if cause.corrected else []
    explains = cause.explained is not None and cause.is_known
    share = f"explains {cause.explained:.0%} of the difference; " if explains else ""
    lines += _labelled("why", f"{share}{cause.evidence}", width)
    stages = [
        one for one in dict.fromkeys(subject.partition("/")[0] for subject in cause.explains) if one != cause.stage
    ]
    if stages:
        number = sum(subject.partition("/")[0] in stages for subject in cause.explains)
        checks = many(number, "failed check follows", "failed checks follow")
        lines += _labelled("then", f"{checks} from it, in {', '.join(f'`{one}`' for one in stages)}", width)
    return lines


def _code(label: str, text: str, width: int) -> list[str]:
    """Return a line of code whole, in as many lines as it takes."""
    return in_rows(_flat(text), width, f"  {_label(label)}")


def _failed_command(report: RunReport, width: int) -> list[str]:
    """Return of the command that failed first: its log with its last lines, and how many others it has cost."""
    first = next((one for one in report.results if one.outcome in BAD), None)
    if first is None:
        return []
    lines = []
    lost = {first.command.id}
    for one in report.results:
        if one.outcome is Outcome.SKIP and lost & set(one.command.needs):
            lost.add(one.command.id)
    costs = len(lost) - 1
    if costs:
        more = f"{costs} commands were skipped: they need its output"
        lines += _labelled("then", "1 command was skipped: it needs its output" if costs == 1 else more, width)
    if first.log:
        log = clean(f"{report.run}/{first.log}" if report.run and not first.log.startswith("/") else first.log)
        lines.append(f"  {_label('log')}{log}")
    # The cause of an alignment's failure stands above already.
    known = first.command.step == "align" and report.diagnoses
    tail = [] if known else [clean(line) for line in first.tail if line.strip(" ^~")]  # no line of Python's marks alone
    # Of an alignment the verdict tells most; paths and the next command stand below it.
    verdict = next((at for at, line in enumerate(tail) if line.startswith((NOT_THE_SAME, NO_VERDICT))), None)
    shown = tail[-TAIL_LINES:] if verdict is None else tail[verdict : verdict + TAIL_LINES]
    return lines + [row for line in shown for row in in_rows(line, width, "  | ", "  |   ")]


# The rows.


def _rows(report: RunReport) -> list[Row]:
    stages = [_stage_row(name, ones, report) for name, ones in by_stage(report.verdicts).items()]
    commands = [_command_row(one) for one in report.results]
    if len(stages) + len(commands) > MOST_ROWS and report.chain != NIGHT_KIND:
        commands = list(_step_rows(report.results))
    rows = [*commands, *stages]
    if len(rows) <= MOST_ROWS:
        return rows
    # What does not pass is never what is left out.
    shown = sorted(range(len(rows)), key=lambda at: (rows[at].outcome not in BAD, at))[: MOST_ROWS - 1]
    left = [row for at, row in enumerate(rows) if at not in shown]
    rest = Row(outcome=worst(one.outcome for one in left), name="others", text=f"{len(left)} more rows")
    return [*(rows[at] for at in sorted(shown)), rest]


def by_stage(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return verdicts by their stage, in the order of the stages."""
    found: dict[str, list[Verdict]] = {}
    for one in verdicts:
        found.setdefault(stage_of(one), []).append(one)
    order = {name: number for number, name in enumerate((PREFLIGHT, *STAGES))}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def _stage_row(name: str, ones: Sequence[Verdict], report: RunReport) -> Row:
    outcome = worst(one.outcome for one in ones)
    bad = [one for one in ones if one.outcome in BAD]
    checks = many(len(ones), "check")
    if bad:
        why = _why(name, bad, report)
        # Of a stage that did not come to its checks there is nothing to count.
        text = (
            why.removeprefix(": ") if len(ones) == 1 and why.startswith(": ") else f"{len(bad)} of {checks} failed{why}"
        )
    elif outcome is Outcome.SKIP:
        text = _flat(ones[0].reason)
    else:
        skipped = sum(one.outcome is Outcome.SKIP for one in ones)
        shares = [one.share for one in ones if one.share is not None]
        close = "" if not any(shares) else f", {percent(max(shares))} of the tolerance"
        of_itself = {"inference": f"{checks} of the exported program", "distributed": f"{checks} of several processes"}
        text = of_itself.get(name, checks) + (", equal" if len(shares) == len(ones) and not max(shares) else close)
        accepted = dict.fromkeys(_flat(one.accepted) for one in ones if one.accepted)
        text += f", accepted: {'; '.join(accepted)}" if accepted else ""
        text += (
            f", {skipped} skipped: {_flat(next(one.reason for one in ones if one.outcome is Outcome.SKIP))}"
            if skipped
            else ""
        )
    return Row(outcome=outcome, name=clean(name), text=text)


def _why(stage: str, bad: Sequence[Verdict], report: RunReport) -> str:
    """Return the cause of a failed stage, or its first failure where that is not known."""
    subjects = {one.subject for one in bad}
    for cause in report.diagnoses:
        if subjects & set(cause.explains):
            path = cause.port_path
            name = f"the {_noun(path)}" if path in PIECES else f"`{clean(path)}`" if path else "the model's own code"
            return f"{' because of' if cause.stage == stage else ', following from'} {name}"
    return f": {clean(bad[0].subject.partition('/')[2])}: {_flat(bad[0].reason)}"


def _command_row(result: Result) -> Row:
    seconds = "" if result.outcome is Outcome.SKIP and not result.started else f"{result.seconds:.1f} s"
    said = _flat(result.reason) if result.outcome is not Outcome.PASS else figures_text(result.figures)
    earlier = "in an earlier attempt" if result.reused else ""
    text = ", ".join(one for one in (seconds, earlier, said) if one)
    return Row(outcome=result.outcome, name=clean(result.command.id), text=text)


def _step_rows(results: Sequence[Result]) -> Iterator[Row]:
    """Yield a row for each step of a chain that has too many commands for a row each."""
    for step in dict.fromkeys(one.command.step for one in results):
        ones = [one for one in results if one.command.step == step]
        bad = [one for one in ones if one.outcome in BAD]
        seconds = f"{sum(one.seconds for one in ones):.1f} s"
        number = many(len(ones), "command")
        skipped = sum(one.outcome is Outcome.SKIP for one in ones)
        text = f"{number}, {seconds}" + (f", {skipped} not run" if skipped else "")
        if bad:
            text = f"{len(bad)} of {number}: {clean(bad[0].command.id)}: {_flat(bad[0].reason)}"
        yield Row(outcome=worst(one.outcome for one in ones), name=clean(step), text=text)


def _table(rows: Sequence[Row], color: bool, width: int) -> list[str]:
    """Return rows of a table; remarks on a long name stand below it."""
    widths = [columns(row.name) for row in rows]
    column = max((taken for taken in widths if taken <= width // 2), default=0)
    lines = []
    for row, taken in zip(rows, widths, strict=True):
        text, head = say(row.text), f"{mark(row.outcome, color)}{padded(row.name, column)}"
        if taken > column and OUTCOME + max(widths) + 2 + columns(text) <= width:
            head = f"{mark(row.outcome, color)}{padded(row.name, max(widths))}"
        elif taken > column:
            lines.append(head)
            head = " " * (OUTCOME + column)
        lines += in_rows(text, width, f"{head}  ")
    return lines


# How to go on.


def _foot(report: RunReport, width: int) -> list[str]:
    """Return the files to read, as far as they are there, and the command to go on with."""
    run = Path(report.run) if report.run else None
    told = {"page": _flat(report.page)}
    if run is not None:
        logs = [one / "alignment.log" for one in (run.parent, run.parent.parent)]
        of_alignment = bool(report.verdicts) and not report.results
        told["log"] = next((_flat(str(one)) for one in logs if of_alignment and one.is_file()), "")
        # Of a command that failed its log is told.
        told["run"] = _flat(str(run)) if report.results and not any(one in BAD for one in report.outcomes) else ""
    told["next"] = next_command(report)
    lines: list[str] = []
    for name, text in told.items():
        # What is long stands on a line of its own, from its first column: whoever copies the line has the path alone.
        fits = len(text) <= width - LABEL
        lines += ([f"{_label(name)}{text}"] if fits else [_label(name).rstrip(), text]) if text else []
    return lines


def command_of(report: RunReport) -> str:
    """Return the command that runs it all again; empty where there is none to tell."""
    title = shlex.quote(clean(report.title))
    if report.chain == NIGHT_KIND:
        manifest = clean(report.versions.get("manifest", report.title))
        return shlex.join(["tipchain", "nightly", "run", os.path.relpath(manifest)])
    if report.results:
        return shlex.join(["tipchain", "run", clean(report.title), report.mode, *map(clean, report.call)])
    mode = "" if report.mode in ("", Mode.LITE_TRAIN_LITE_INFER.value) else f" --mode {report.mode}"
    return f"tipchain align {title}{mode}" if report.title.endswith((".yaml", ".yml")) else ""


def next_command(report: RunReport) -> str:
    """Return the command to go on with; empty where there is none to tell."""
    again = command_of(report)
    bad = [name for name, ones in by_stage(report.verdicts).items() if any(one.outcome in BAD for one in ones)]
    if report.results:
        if report.chain == NIGHT_KIND:
            return again.replace(" run ", " resume ", 1) if report.interrupted else ""
        failed = any(one.outcome in BAD for one in report.results) or report.interrupted
        return f"{again} --resume" if failed else ""
    if not again or not (bad or report.interrupted):
        return ""  # it passed, or dumps alone were compared, of which no case is known
    if LOCATABLE & set(bad) and report.undiagnosed and not report.diagnoses:
        return again.replace(" align ", " locate ", 1)
    only = next((name for name in bad if name in STAGES), "")
    return f"{again} --only {only}" if only else again


# Text.


def _labelled(label: str, text: str, width: int) -> list[str]:
    """Return a text below the verdict, with a word in front of its first line."""
    return in_rows(say(_flat(text)), width, f"  {_label(label)}")


def _label(word: str) -> str:
    return padded(say(word), LABEL)


def _flat(text: str) -> str:
    """Return a text on one line, with paths relative to the folder that one is in, or to that of the packages."""
    line = "; ".join(line.strip() for line in clean(text).splitlines() if line.strip())
    line = re.sub(r"(?<![\w./-])/\S*/(?:site|dist)-packages/", "", line)
    return re.sub(rf"(?<![\w./-]){re.escape(str(Path.cwd()))}/", "", line)
