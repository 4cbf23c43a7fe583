"""How an item came out, by its exit code and its report; the end of its log."""

from __future__ import annotations

import os
import textwrap
from contextlib import suppress
from pathlib import Path

from tipchain.chain.execute import killed
from tipchain.chain.process import last_lines, log_end
from tipchain.core.json_text import taken
from tipchain.core.language import clean
from tipchain.core.quantities import duration
from tipchain.errors import ExitCode, Outcome, RecordError
from tipchain.nightly.executor import Ended, Work
from tipchain.nightly.nights import ItemRecord
from tipchain.report.model import RunReport, load_report

# The last lines of an item's log, for reports that go where the log does not.

LINES, BYTES = 20, 16 * 1024


def log_tail(log: Path) -> list[str]:
    """Return the last lines of ``log`` without control characters; none if it cannot be read."""
    try:
        data = log_end(log, BYTES + 1)
    except OSError:
        return []
    found = [clean(line).rstrip() for line in data[-BYTES:].decode(errors="replace").splitlines()]
    if len(data) > BYTES and len(found) > 1:
        del found[0]  # cut in the middle
    while found and not found[-1]:
        del found[-1]
    return found[-LINES:]


# What is large of what items leave: weights, tensors, exported models; all but texts.

TEXTS = frozenset({".csv", ".html", ".json", ".jsonl", ".lock", ".log", ".md", ".txt", ".xml", ".yaml", ".yml"})
"""Ends of the names of files that are kept: logs, reports, settings."""


def drop_dumps(folder: Path) -> None:
    """Delete all files of an attempt but texts; links are deleted, not followed, and what cannot be deleted stays."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place) / name
            if path.is_symlink() or path.suffix not in TEXTS:
                with suppress(OSError):
                    path.unlink()


REASON_LETTERS = 300
TAIL_BYTES = 8192


def judge(work: Work, ended: Ended, night: Path, executor: str) -> ItemRecord:
    """Return the record of an item that ended.

    Exit code and report must say the same: an exit code of 0 without a whole report, where one was asked for, is an
    ERROR, and never a PASS.

    Args:
        work: what ran.
        ended: how its process ended.
        night: the night's folder.
        executor: the executor's name.
    """
    report, problem = None, ""
    if work.wants_report and (work.report.is_symlink() or not work.report.is_file()):
        problem = "it left no report"
    elif work.wants_report:
        try:
            report = load_report(work.report)
        except RecordError as error:
            problem = f"its report cannot be read: {error.message}"
    outcome, reason = _outcome(work, ended, report, problem)
    return taken(
        ItemRecord,
        ended,
        outcome=outcome,
        reason=textwrap.shorten(" ".join(reason.split()), REASON_LETTERS, placeholder=" ..."),
        seconds=max(ended.seconds, 0.0),
        executor=executor,
        log=_below(work.log, night),
        report=_below(work.report, night),
    )


def _below(path: Path, night: Path) -> str:
    return path.relative_to(night).as_posix() if path.is_file() else ""


def _outcome(work: Work, ended: Ended, report: RunReport | None, problem: str) -> tuple[Outcome, str]:
    code = ended.exit_code
    if trouble := _trouble(work, ended) or _contradiction(work, code, report, problem):
        return Outcome.ERROR, trouble
    if code == ExitCode.PASSED:
        return Outcome.PASS, ""
    if code == ExitCode.NOTHING_CHECKED:
        return Outcome.SKIP, (report and _first(report, Outcome.SKIP)) or f"nothing was checked{_said(work)}"
    if code == ExitCode.FAILED and report:
        outcome = Outcome.FAIL if Outcome.FAIL in report.outcomes or not report.outcomes else Outcome.ERROR
        told = report.cause.summary if report.cause else _first(report, outcome)
        return outcome, told or f"exit {code}{_said(work)}"
    unusable = code in (ExitCode.USAGE, ExitCode.BUG, ExitCode.INTERRUPTED, 126, 127)
    return (Outcome.ERROR if unusable else Outcome.FAIL), f"exit {code}{_said(work)}"


def _contradiction(work: Work, code: int | None, report: RunReport | None, problem: str) -> str:
    """Return how an exit code contradicts the report; "" if it does not."""
    if problem and code in (ExitCode.PASSED, ExitCode.FAILED, ExitCode.NOTHING_CHECKED):
        return f"exit {code}, but {problem}{_said(work)}"
    if report and report.stated != code:
        return f"exit {code}, but its report says {report.stated}"
    return ""


def _trouble(work: Work, ended: Ended) -> str:
    """Return why an item has no exit code of its own; "" if it has one."""
    if ended.failure:
        return ended.failure
    if ended.timed_out:
        return f"timed out after {duration(work.item.timeout_s)}{_said(work)}"
    if text := killed(ended.exit_code, ended.signal):
        return text if ended.signal else f"{text}{_said(work)}"
    return "ended without an exit code" if ended.exit_code is None else ""


def _said(work: Work) -> str:
    """Return the last line of an item's output."""
    try:
        lines = last_lines(log_end(work.log, TAIL_BYTES), 1)
    except OSError:
        return ""
    return f": {lines[0]}" if lines else ""


def _first(report: RunReport, outcome: Outcome) -> str:
    """Return the reason of the first part of a report with an outcome; of several lines the first, which tells what."""
    return next(
        (f"{name}: {reason.partition(chr(10))[0]}" for name, found, reason in report.parts if found is outcome), ""
    )
