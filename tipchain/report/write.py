"""Write a report to where the user wants it: as text, a page, JSON, JUnit XML, on GitHub."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.core.files import atomic_write, writing
from tipchain.core.language import fold, say, terminal_width, use_color
from tipchain.errors import ExitCode, UsageError
from tipchain.report.ci import SUMMARY_VARIABLE, annotate_run, junit_xml, summarize_run, write_summary
from tipchain.report.model import RunReport, dump_report
from tipchain.report.terminal import render_ending, render_report, verdict_line

if TYPE_CHECKING:
    from tipchain.report.page import PageSection
else:
    PageSection = object  # its module needs jinja2, and most runs write no page


def with_page(
    report: RunReport, html_to: Path | None, default: Path | None = None, details: Iterable[PageSection] = ()
) -> RunReport:
    """Write a run's page, and return the report that names it; where it cannot be written, print the verdict.

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
    from tipchain.report.page import render_run

    text = render_run(report, details if failed else ())
    try:
        with writing(html_to, UsageError) if html_to else nullcontext():
            atomic_write(target, text)
    except (UsageError, OSError):
        print(say(verdict_line(report)), file=sys.stderr)  # hours of work are not lost with a page
        raise
    return replace(report, page=os.path.relpath(target))


def write_report(report: RunReport, args: argparse.Namespace, *, root: Path = Path()) -> int:
    """Write ``report`` as text, and to wherever else it is wanted; return its exit code.

    The text is the verdict with what explains it. It goes to standard output; where JSON or XML goes there (``-``), to
    standard error.

    Args:
        report: of the run.
        args: the command line: where it goes (``json``, ``junit``, ``github``), how much is shown (``quiet``, ``verbose``).
        root: the project's folder, that files of causes are relative to.

    Raises:
        UsageError: a file cannot be written.
    """
    stream = sys.stderr if "-" in (args.json, args.junit) else sys.stdout
    color, width = use_color(stream), terminal_width()
    if args.quiet:
        verdict = say(verdict_line(report))
        stream.write(f"{fold(verdict, width) if stream.isatty() else verdict}\n")
    else:
        whole = f"{render_report(report, color=color, width=width)}\n\n" if args.verbose else ""
        stream.write(f"{whole}{render_ending(report, color=color, width=width)}\n")
    if args.github:
        for line in annotate_run(report, root):
            print(line, file=stream)
        with writing(os.environ.get(SUMMARY_VARIABLE), UsageError):
            write_summary(summarize_run(report, verdict_line(report)))
    for target, render in ((args.json, dump_report), (args.junit, junit_xml)):
        if target == "-":
            # Write a document to standard output, in UTF-8 as both formats demand, whatever the terminal's encoding is.
            text = render(report)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
            sys.stdout.write(text)
        elif target:
            with writing(target, UsageError):
                atomic_write(Path(target), render(report))
    return int(report.exit_code)
