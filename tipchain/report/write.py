"""Write a report to where the user wants it."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TextIO

from tipchain.errors import UsageError
from tipchain.report.json_ import dump_report
from tipchain.report.junit import junit_xml
from tipchain.report.model import RunReport
from tipchain.report.terminal import render_report, terminal_width, use_color
from tipchain.runs import atomic_write


def write_report(report: RunReport, *, json_to: str | None, junit_to: str | None, stream: TextIO) -> int:
    """Write ``report`` as text to ``stream`` and, if asked for, as JSON and JUnit XML; return its exit code.

    Where JSON or XML goes to standard output (``-``), the text goes to standard error.

    Raises:
        UsageError: a file cannot be written.
    """
    if "-" in (json_to, junit_to):
        stream = sys.stderr
    stream.write(render_report(report, color=use_color(stream), width=terminal_width()) + "\n")
    for target, render in ((json_to, dump_report), (junit_to, junit_xml)):
        if target == "-":
            _write_out(render(report))
        elif target:
            _write(Path(target), render(report))
    return int(report.exit_code)


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
