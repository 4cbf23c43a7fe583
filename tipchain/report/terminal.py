"""RunReports as text for 80 columns."""

from __future__ import annotations

import os
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from tipchain.core.language import aligned, clean, in_rows, padded, say
from tipchain.errors import ExitCode, Outcome

if TYPE_CHECKING:
    from tipchain.chain.plan import Result
    from tipchain.report.model import RunReport

COLORS = {Outcome.PASS: "32", Outcome.FAIL: "31", Outcome.ERROR: "35", Outcome.SKIP: "33"}
MEANINGS = {
    ExitCode.PASSED: "all passed",
    ExitCode.FAILED: "a check or a command failed or errored",
    ExitCode.NOTHING_CHECKED: "nothing was checked",
    ExitCode.INTERRUPTED: "interrupted",
}
COLOR_VARIABLE = "TIPCHAIN_COLOR"
"""``always`` or ``never``: what ``--color`` says, for this process and its children."""
TAIL_LINES = 10
TAIL_ROWS = 4


@contextmanager
def coloring(when: str) -> Iterator[None]:
    """Let text be colored ``always``, ``never``, or (``auto``) as the environment says, in child processes too."""
    before = os.environ.get(COLOR_VARIABLE)
    if when != "auto":
        os.environ[COLOR_VARIABLE] = when
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(COLOR_VARIABLE, None)
        else:
            os.environ[COLOR_VARIABLE] = before


def use_color(stream: TextIO) -> bool:
    """Return whether ``stream`` is a terminal whose user has not set NO_COLOR; `coloring` has the last word."""
    chosen = os.environ.get(COLOR_VARIABLE)
    if chosen in ("always", "never"):
        return chosen == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """Return the terminal's width, at least 60."""
    import shutil

    return max(shutil.get_terminal_size().columns, 60)


def fold(text: str, width: int) -> str:
    """Return a text whose lines fit into ``width`` columns; what goes on stands two columns further in.

    Words that are longer than a line (paths, code) are not broken.
    """
    rows: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        rows += in_rows(line.lstrip(), width, indent, f"{indent}  ")
    return "\n".join(rows)


def render_report(report: RunReport, *, color: bool = False, width: int = 80) -> str:
    """Return every command and every check of ``report``, with what did not pass at length."""
    lines: list[str] = []
    if report.results:
        heads = (padded(say("outcome"), 7), aligned(say("seconds"), 7))
        lines += ["", "  ".join((*heads, say("command and log in" if report.run else "command and log")))]
        lines += [f"{'':<18}{report.run}/"] if report.run else []
        for result in report.results:
            lines += _result_rows(result, color, width)
    if report.verdicts:
        lines += ["", f"{padded(say('outcome'), 7)}  {say('subject: reason')}"]
        for verdict in report.verdicts:
            reason = f": {say(clean(verdict.reason))}" if verdict.reason else ""
            lines += _hanging(mark(verdict.outcome, color), clean(verdict.subject) + reason, width)
    for result in report.results:
        if result.outcome in (Outcome.FAIL, Outcome.ERROR):
            lines += ["", *_details(result, report.run, color, width)]
    if report.notes:
        head = padded(say("note:"), 7)
        lines += ["", *(line for note in report.notes for line in _hanging(head, say(clean(note)), width))]
    return "\n".join(lines)


def mark(outcome: Outcome, color: bool) -> str:
    """Return an outcome as a cell of a table."""
    return paint(f"{outcome.value:<7}", outcome, color)


def paint(text: str, outcome: Outcome, color: bool) -> str:
    """Return a text in the color of an outcome."""
    return f"\x1b[{COLORS[outcome]}m{text}\x1b[0m" if color else text


def _result_rows(result: Result, color: bool, width: int) -> Iterator[str]:
    seconds = "" if result.outcome is Outcome.SKIP and not result.started else f"{result.seconds:.1f}"
    head = f"{mark(result.outcome, color)}  {seconds:>7}  "
    indent = 18
    name = clean(result.command.id)
    log = clean(result.log)
    if result.reused:
        name += say(" (earlier)")
    if result.outcome is Outcome.SKIP or not log:
        rows = broken(name, width - indent)
    elif indent + len(name) + 2 + len(log) <= width:
        rows = [f"{name}  {log}"]
    else:
        rows = [*broken(name, width - indent), log]
    rows += in_rows(say(clean(result.reason)), width - indent) if result.outcome is Outcome.SKIP else []
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


def _hanging(head: str, text: str, width: int) -> list[str]:
    # A reason's own lines (found, expected, hint) stay lines.
    room = max(width - 9, 20)
    body = [row for line in text.splitlines() for row in in_rows(line.strip(), room, rest="  ")] or [""]
    return [f"{head}  {body[0]}", *(" " * 9 + line for line in body[1:])]


def _details(result: Result, run: str, color: bool, width: int) -> list[str]:
    lines = [f"{mark(result.outcome, color).rstrip()} {clean(result.command.id)}"]
    reason, missing = _below(run, result.reason), [_below(run, text) for text in result.missing]
    for text in (reason, *(f"missing: {one}" for one in missing if one not in reason)):
        lines += in_rows(say(clean(text)), width, "  ", "  ")
    lines.append(f"  $ {clean(shlex.join(result.command.argv))}")
    if result.log:
        lines.append(say(f"  log: {clean(result.log)}" + (", its last lines:" if result.tail else "")))
    return lines + [f"  | {row}" for line in result.tail[-TAIL_LINES:] for row in _wrapped(clean(line), width - 4)]


def _below(run: str, text: str) -> str:
    """Return ``text`` with paths below the run's folder, which heads the table, relative to it."""
    # Not within an absolute path, of which the rest alone would name another file.
    return re.sub(rf"(?<![\w./-])(?:\./)?{re.escape(run)}/", "", text) if run else text


def _wrapped(line: str, width: int) -> list[str]:
    """Return ``line`` in pieces of at most ``width`` characters; a number cut short would be another number."""
    return textwrap.wrap(line, width, subsequent_indent="  ", max_lines=TAIL_ROWS, placeholder=" ...") or [""]
