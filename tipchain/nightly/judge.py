"""How an item came out: from its exit code and, where it was asked for one, its report."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.chain.execute import killed_by, signal_within
from tipchain.chain.process import last_lines
from tipchain.nightly.artifacts import files_left, log_end, read_report
from tipchain.nightly.executor import Ended, Work
from tipchain.nightly.records import ItemRecord
from tipchain.nightly.results import causes_in
from tipchain.outcome import ExitCode, Outcome
from tipchain.quantities import duration

REASON_LETTERS = 300
TAIL_BYTES = 8192
_BAD = (Outcome.ERROR.value, Outcome.FAIL.value)


def judge(work: Work, ended: Ended, night: Path, token: str, executor: str) -> ItemRecord:
    """Return the record of an item that ended.

    Exit code and report must say the same: an exit code of 0 without a whole report, where one was asked for, is an
    ERROR, and never a PASS.

    Args:
        work: what ran.
        ended: how its process ended.
        night: the night's folder.
        token: the night's.
        executor: the executor's name.
    """
    report, problem = read_report(work) if work.wants_report else ({}, "")
    outcome, reason = _outcome(work, ended, report, problem)
    artifacts: Mapping[str, str] = {}
    if outcome is Outcome.PASS:
        artifacts = files_left(report, work) if ended.artifacts is None else ended.artifacts
    return ItemRecord(
        id=ended.id,
        token=token,
        attempt=ended.attempt,
        outcome=outcome,
        reason=textwrap.shorten(" ".join(reason.split()), REASON_LETTERS, placeholder=" ..."),
        exit_code=ended.exit_code,
        signal=ended.signal,
        started=ended.started,
        seconds=max(ended.seconds, 0.0),
        peak_memory_mb=ended.peak_memory_mb,
        machine=ended.machine,
        executor=executor,
        log=_below(work.log, night),
        report=_below(work.report, night),
        artifacts=artifacts,
    )


def _below(path: Path, night: Path) -> str:
    return path.relative_to(night).as_posix() if path.is_file() else ""


def _outcome(work: Work, ended: Ended, report: Mapping[str, Any], problem: str) -> tuple[Outcome, str]:
    code = ended.exit_code
    if trouble := _trouble(work, ended) or _contradiction(work, code, report, problem):
        return Outcome.ERROR, trouble
    if code == ExitCode.PASSED:
        return Outcome.PASS, ""
    if code == ExitCode.NOTHING_CHECKED:
        return Outcome.SKIP, _first(report, (Outcome.SKIP.value,)) or f"nothing was checked{_said(work)}"
    if code == ExitCode.FAILED and report:
        outcomes = {one["outcome"] for one in _parts(report)}
        outcome = Outcome.FAIL if Outcome.FAIL.value in outcomes or not outcomes else Outcome.ERROR
        causes = causes_in(report)
        told = causes[0].summary if causes else _first(report, (outcome.value, *_BAD))
        return outcome, told or f"exit {code}{_said(work)}"
    unusable = code in (ExitCode.USAGE, ExitCode.BUG, ExitCode.INTERRUPTED, 126, 127)
    return (Outcome.ERROR if unusable else Outcome.FAIL), f"exit {code}{_said(work)}"


def _contradiction(work: Work, code: int | None, report: Mapping[str, Any], problem: str) -> str:
    """Return where an exit code and the report do not say the same; "" if they do."""
    if problem and code in (ExitCode.PASSED, ExitCode.FAILED, ExitCode.NOTHING_CHECKED):
        return f"exit {code}, but {problem}{_said(work)}"
    if report and report["exit_code"] != code:
        return f"exit {code}, but its report says {report['exit_code']}"
    return ""


def _trouble(work: Work, ended: Ended) -> str:
    """Return what kept an item from coming to an exit code of its own, "" for nothing."""
    if ended.failure or ended.lost:
        return ended.failure or f"lost: {ended.lost}"
    if ended.timed_out:
        return f"timed out after {duration(work.item.timeout_s)}{_said(work)}"
    if ended.signal:
        return killed_by(ended.signal)
    if within := signal_within(ended.exit_code):
        return f"exit {ended.exit_code}: a process that it started was {killed_by(within)}{_said(work)}"
    return "ended without an exit code" if ended.exit_code is None else ""


def _said(work: Work) -> str:
    """Return the last line of an item's output."""
    try:
        lines = last_lines(log_end(work.log, TAIL_BYTES), 1)
    except OSError:
        return ""
    return f": {lines[0]}" if lines else ""


def _parts(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*report.get("results", ()), *report.get("verdicts", ())]


def _first(report: Mapping[str, Any], outcomes: tuple[str, ...]) -> str:
    """Return what the first part of a report with the first of some outcomes that there is says."""
    for outcome in outcomes:
        for one in _parts(report):
            if one["outcome"] == outcome:
                name = one.get("subject") or one.get("command", {}).get("id", "")
                # Of several lines the first tells what; the others found, expected, a hint.
                reason = re.split(r"\n", str(one.get("reason", "")))[0]
                return f"{name}: {reason}" if name else reason
    return ""
