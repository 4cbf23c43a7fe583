"""How an item came out, by its exit code and its report; the end of its log."""

from __future__ import annotations

import os
import textwrap
from contextlib import suppress
from pathlib import Path

from tipchain.chain.execute import killed
from tipchain.core.json_text import taken
from tipchain.core.quantities import duration
from tipchain.errors import ExitCode, Outcome, RecordError
from tipchain.nightly.executor import Ended, Work
from tipchain.nightly.nights import ItemRecord
from tipchain.report.model import RunReport, load_report

# What is large of what items leave: weights, tensors, exported models; all but texts.

TEXTS = frozenset({".csv", ".html", ".json", ".jsonl", ".lock", ".log", ".md", ".txt", ".xml", ".yaml", ".yml"})
"""Ends of the names of files that are kept: logs, reports, settings."""


def drop_dumps(folder: Path) -> None:
    """Delete all files of an attempt but texts; links are deleted, not followed, and undeletable files stay."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place) / name
            if path.is_symlink() or path.suffix not in TEXTS:
                with suppress(OSError):
                    path.unlink()


REASON_LETTERS = 300


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
    said = "".join(f": {line}" for line in work.tail(1))
    if trouble := _trouble(work, ended, report, problem, said):
        return Outcome.ERROR, trouble
    if code == ExitCode.PASSED:
        return Outcome.PASS, ""
    if code == ExitCode.NOTHING_CHECKED:
        return Outcome.SKIP, (report and _first(report, Outcome.SKIP)) or f"nothing was checked{said}"
    if code == ExitCode.FAILED and report:
        outcome = Outcome.FAIL if Outcome.FAIL in report.outcomes or not report.outcomes else Outcome.ERROR
        told = report.cause.summary if report.cause else _first(report, outcome)
        return outcome, told or f"exit {code}{said}"
    unusable = code in (ExitCode.USAGE, ExitCode.BUG, ExitCode.INTERRUPTED, 126, 127)
    return (Outcome.ERROR if unusable else Outcome.FAIL), f"exit {code}{said}"


def _trouble(work: Work, ended: Ended, report: RunReport | None, problem: str, said: str) -> str:
    """Return why an item has no exit code of its own, or how its report contradicts that; "" for neither."""
    code = ended.exit_code
    if ended.failure:
        return ended.failure
    if ended.timed_out:
        return f"timed out after {duration(work.item.timeout_s)}{said}"
    if text := killed(code, ended.signal):
        return text if ended.signal else f"{text}{said}"
    if code is None:
        return "ended without an exit code"
    if problem and code in (ExitCode.PASSED, ExitCode.FAILED, ExitCode.NOTHING_CHECKED):
        return f"exit {code}, but {problem}{said}"
    return f"exit {code}, but its report says {report.stated}" if report and report.stated != code else ""


def _first(report: RunReport, outcome: Outcome) -> str:
    """Return the reason of the first part of a report with an outcome; of several lines the first, which names the fault."""
    return next(
        (f"{name}: {reason.partition(chr(10))[0]}" for name, found, reason in report.parts if found is outcome), ""
    )
