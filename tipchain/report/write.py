"""Write a report to where the user wants it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from tipchain.errors import UsageError
from tipchain.language import say
from tipchain.outcome import ExitCode
from tipchain.report.github import SUMMARY_VARIABLE, annotate_run, summarize_run, write_summary
from tipchain.report.html.parts import Section
from tipchain.report.html.run import render_run
from tipchain.report.junit import junit_xml
from tipchain.report.model import RunReport, dump_report
from tipchain.report.terminal import render_report, terminal_width, use_color
from tipchain.report.verdict import command_of, render_ending, verdict_line
from tipchain.runs import atomic_write


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Where a report goes, and how much of it is shown.

    Attributes:
        json: the file for JSON, ``-`` for standard output.
        junit: the file for JUnit XML, likewise.
        github: print GitHub's annotations, and write the step's summary.
        quiet: show the verdict alone.
        verbose: show every check above the verdict.
    """

    json: str | None = None
    junit: str | None = None
    github: bool = False
    quiet: bool = False
    verbose: bool = False


def with_page(
    report: RunReport, html_to: Path | None, default: Path | None = None, details: Iterable[Section] = ()
) -> RunReport:
    """Write a run's page, and return the report that names it.

    Args:
        report: of the run.
        html_to: where the page goes.
        default: where it goes otherwise, if the run did not pass.
        details: what live models showed of where it fails.

    Raises:
        UsageError: ``html_to`` cannot be written.
        OSError: ``default`` cannot.
    """
    failed = report.exit_code in (ExitCode.FAILED, ExitCode.INTERRUPTED)
    target = html_to or (default if failed else None)
    if target is None:
        return report
    text = render_run(report, verdict_line(report), command_of(report), details if failed else ())
    if html_to is None:
        atomic_write(target, text)
    else:
        _write(target, text)
    return replace(report, page=os.path.relpath(target))


def write_report(report: RunReport, targets: Targets, *, stream: TextIO, root: Path = Path()) -> int:
    """Write ``report`` as text to ``stream``, and to wherever else it is wanted; return its exit code.

    The text is the verdict with what explains it. Where JSON or XML goes to standard output (``-``), the text goes to
    standard error.

    Args:
        report: of the run.
        targets: where it goes.
        stream: for the text.
        root: the project's folder, that files of causes are relative to.

    Raises:
        UsageError: a file cannot be written.
    """
    if "-" in (targets.json, targets.junit):
        stream = sys.stderr
    color, width = use_color(stream), terminal_width()
    if targets.quiet:
        stream.write(f"{say(verdict_line(report))}\n")
    else:
        whole = f"{render_report(report, color=color, width=width)}\n\n" if targets.verbose else ""
        stream.write(f"{whole}{render_ending(report, color=color, width=width)}\n")
    if targets.github:
        _write_github(report, root, stream)
    for target, render in ((targets.json, dump_report), (targets.junit, junit_xml)):
        if target == "-":
            _write_out(render(report))
        elif target:
            _write(Path(target), render(report))
    return int(report.exit_code)


def _write_github(report: RunReport, root: Path, stream: TextIO) -> None:
    for line in annotate_run(report, root):
        print(line, file=stream)
    try:
        write_summary(summarize_run(report, verdict_line(report)))
    except OSError as error:
        raise UsageError(f"cannot write {os.environ.get(SUMMARY_VARIABLE)}: {error.strerror}") from error


def _write_out(text: str) -> None:
    """Write a document to standard output, in UTF-8 as both formats demand, whatever the terminal's encoding is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout.write(text)


def _write(path: Path, text: str) -> None:
    try:
        atomic_write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
