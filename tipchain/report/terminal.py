"""RunReports as text for 80 columns."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, TextIO

from tipchain.chain.result import Result
from tipchain.outcome import ExitCode, Outcome
from tipchain.report.model import RunReport

if TYPE_CHECKING:
    from tipchain.parity.judge import Verdict

COLORS = {Outcome.PASS: "32", Outcome.FAIL: "31", Outcome.ERROR: "35", Outcome.SKIP: "33"}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MEANINGS = {
    ExitCode.PASSED: "all passed",
    ExitCode.FAILED: "a check or a command failed or errored",
    ExitCode.NOTHING_CHECKED: "nothing was checked",
    ExitCode.INTERRUPTED: "interrupted",
}
TAIL_LINES = 10
TAIL_ROWS = 4


def use_color(stream: TextIO) -> bool:
    """Return whether ``stream`` is a terminal whose user has not set NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Return the terminal's width, at least 60."""
    return max(shutil.get_terminal_size().columns, 60)


def terminal_size(stream: TextIO) -> os.terminal_size:
    """Return the size of the terminal that ``stream`` is; of one that does not know it (0x0), 80 columns and 24 lines."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # no terminal of the system's, as in tests
        return shutil.get_terminal_size()
    return size if size.columns and size.lines else os.terminal_size((80, 24))


def fold(text: str, width: int) -> str:
    """Return a text whose lines fit into ``width`` columns; what goes on stands two columns further in.

    Words that are longer than a line (paths, code) are not broken.
    """
    rows: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        rows += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(rows)


def render_report(report: RunReport, *, color: bool = False, width: int = 80) -> str:
    """Return ``report`` as text: a table, what did not pass, and the summary."""
    lines: list[str] = []
    if report.results:
        lines += ["", f"{'outcome':<7}  {'seconds':>7}  command and log" + (" in" if report.run else "")]
        lines += [f"{'':<18}{report.run}/"] if report.run else []
        for result in report.results:
            lines += _result_rows(result, color, width)
    if report.verdicts:
        lines += ["", f"{'outcome':<7}  subject: reason"]
        for outcome, text in _verdict_rows(report.verdicts):
            lines += _hanging(mark(outcome, color), text, width)
    for result in report.results:
        if result.outcome in (Outcome.FAIL, Outcome.ERROR):
            lines += ["", *_details(result, report.run, color, width)]
    if report.notes:
        lines += ["", *(line for note in report.notes for line in _hanging("note:  ", clean(note), width))]
    return "\n".join([*lines, "", *summary_lines(report)])


def mark(outcome: Outcome, color: bool) -> str:
    """Return an outcome as a cell of a table."""
    text = f"{outcome.value:<7}"
    return f"\x1b[{COLORS[outcome]}m{text}\x1b[0m" if color else text


def _result_rows(result: Result, color: bool, width: int) -> Iterator[str]:
    seconds = "" if result.outcome is Outcome.SKIP and not result.started else f"{result.seconds:.1f}"
    head = f"{mark(result.outcome, color)}  {seconds:>7}  "
    indent = 18
    name = clean(result.command.id)
    log = clean(result.log)
    if result.reused:
        name += " (earlier)"
    if result.outcome is Outcome.SKIP or not log:
        rows = broken(name, width - indent)
    elif indent + len(name) + 2 + len(log) <= width:
        rows = [f"{name}  {log}"]
    else:
        rows = [*broken(name, width - indent), log]
    rows += textwrap.wrap(clean(result.reason), width - indent) if result.outcome is Outcome.SKIP else []
    rows += textwrap.wrap(figures_text(result.figures), width - indent)
    yield head + rows[0]
    yield from (" " * indent + row for row in rows[1:])


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


def _verdict_rows(verdicts: Sequence[Verdict]) -> Iterator[tuple[Outcome, str]]:
    """Yield a row for each verdict; the passes of one stage share a row."""
    for stage, group in groupby(verdicts, key=lambda verdict: clean(verdict.subject).partition("/")[0]):
        ones = list(group)
        passed = [verdict for verdict in ones if verdict.outcome is Outcome.PASS]
        if len(passed) > 1:
            yield Outcome.PASS, f"{stage}: {len(passed)} of {len(ones)} checks"
        for verdict in ones:
            if verdict.outcome is not Outcome.PASS or len(passed) == 1:
                reason = f": {clean(verdict.reason)}" if verdict.reason else ""
                yield verdict.outcome, clean(verdict.subject) + reason


def _hanging(head: str, text: str, width: int) -> list[str]:
    # A reason's own lines (found, expected, hint) stay lines.
    room = max(width - 9, 20)
    body = [
        row for line in text.splitlines() for row in textwrap.wrap(line, room, subsequent_indent="  ")
    ] or [""]
    return [f"{head}  {body[0]}", *(" " * 9 + line for line in body[1:])]


def _details(result: Result, run: str, color: bool, width: int) -> list[str]:
    lines = [f"{mark(result.outcome, color).rstrip()} {clean(result.command.id)}"]
    reason, missing = _below(run, result.reason), [_below(run, text) for text in result.missing]
    for text in (reason, *(f"missing: {one}" for one in missing if one not in reason)):
        lines += textwrap.wrap(
            clean(text), width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    lines.append(f"  $ {clean(shlex.join(result.command.argv))}")
    if result.log:
        lines.append(
            f"  log: {clean(result.log)}, its last lines:" if result.tail else f"  log: {clean(result.log)}"
        )
    return lines + [
        f"  | {row}" for line in result.tail[-TAIL_LINES:] for row in _wrapped(clean(line), width - 4)
    ]


def _below(run: str, text: str) -> str:
    """Return ``text`` with paths below the run's folder, which heads the table, relative to it."""
    # Not within an absolute path, of which the rest alone would name another file.
    return re.sub(rf"(?<![\w./-])(?:\./)?{re.escape(run)}/", "", text) if run else text


def _wrapped(line: str, width: int) -> list[str]:
    """Return ``line`` in pieces of at most ``width`` characters; a number cut short would be another number."""
    return textwrap.wrap(line, width, subsequent_indent="  ", max_lines=TAIL_ROWS, placeholder=" ...") or [""]


def summary_lines(report: RunReport) -> list[str]:
    """Return the count of outcomes with the time, and the exit code with its meaning."""
    outcomes = report.outcomes
    errors = outcomes.count(Outcome.ERROR)
    counts = [
        f"{outcomes.count(Outcome.PASS)} passed",
        f"{outcomes.count(Outcome.FAIL)} failed",
        f"{errors} error" + ("" if errors == 1 else "s"),
        f"{outcomes.count(Outcome.SKIP)} skipped",
    ]
    code = report.exit_code
    meaning = MEANINGS.get(code, code.name.lower())
    if code is ExitCode.PASSED and Outcome.SKIP in outcomes:
        meaning = "all that ran passed"
    return [
        f"{', '.join(counts)} in {report.seconds:.1f} s",
        f"exit code {int(code)}: {meaning}",
    ]


def clean(text: str) -> str:
    """Return ``text`` without escapes and control characters, which could rewrite the terminal."""
    return CONTROL.sub("", text)
