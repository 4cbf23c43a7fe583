"""Write a report to where the user wants it, and its curves for viewers."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.errors import UsageError
from tipchain.language import say
from tipchain.outcome import ExitCode
from tipchain.quantities import Scalar
from tipchain.report.ci import SUMMARY_VARIABLE, annotate_run, junit_xml, summarize_run, write_summary
from tipchain.report.html.page import Section
from tipchain.report.html.run import render_run
from tipchain.report.model import LATEST, RunReport, dump_report
from tipchain.report.terminal import render_report, terminal_width, use_color
from tipchain.report.verdict import command_of, render_ending, verdict_line
from tipchain.runs import atomic_write
from tipchain.stage_table import INFO

if TYPE_CHECKING:
    import numpy as np


NUMBERED = re.compile(r"(?P<name>(?:loss|lr))_(?P<step>\d+)")
CURVES = ("loss", "lr")
"""Tensors of one axis that are curves by name."""


def curves_of(report: RunReport, folder: Path) -> Iterator[Scalar]:
    """Yield a run's curves; the two sides of an alignment are runs of the same tags, so that they share charts.

    Args:
        report: of the run, for the figures of commands.
        folder: of the run, or of its dumps.

    Raises:
        RecordError: a dump is damaged.
    """
    for stage, info in INFO.items():
        for side in (info.reference, "paddle"):
            for place in (folder, folder / LATEST):
                yield from _of_dump(place / f"{info.prefix}_{side}.npy", stage)
                yield from _of_tensors(place / f"{info.prefix}_{_tensor_side(stage, side)}.safetensors", stage)
    for step, result in enumerate(report.results):
        for name, value in result.figures.items():
            yield Scalar(run="chain", tag=f"{result.command.id}/{name}", step=step, value=value)


def _tensor_side(stage: str, side: str) -> str:
    return "torch" if side != "paddle" and not INFO[stage].solo else side


def _of_dump(file: Path, stage: str) -> Iterator[Scalar]:
    from tipchain.numbers.dumps import load_record

    if not file.is_file():
        return
    record = load_record(file)
    side = record.side or file.stem.rpartition("_")[2]
    for name, array in record.arrays.items():
        numbered = NUMBERED.fullmatch(name)
        if numbered and array.size == 1:
            step, value = int(numbered["step"]), float(array.reshape(-1)[0])
            yield Scalar(run=side, tag=f"{stage}/{numbered['name']}", step=step, value=value)
        yield from _series(side, stage, name, array)


def _of_tensors(file: Path, stage: str) -> Iterator[Scalar]:
    from safetensors import safe_open

    if not file.is_file():
        return
    side = file.stem.rpartition("_")[2]
    with safe_open(file, framework="numpy") as tensors:
        for name in sorted(set(tensors.keys()) & set(CURVES)):
            yield from _series(side, stage, name, tensors.get_tensor(name))


def _series(side: str, stage: str, name: str, array: np.ndarray) -> Iterator[Scalar]:
    if name in CURVES and array.ndim == 1 and array.size > 1:
        for step, value in enumerate(array.tolist()):
            yield Scalar(run=side, tag=f"{stage}/{name}", step=step, value=float(value))


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
        for line in annotate_run(report, root):
            print(line, file=stream)
        try:
            write_summary(summarize_run(report, verdict_line(report)))
        except OSError as error:
            raise UsageError(f"cannot write {os.environ.get(SUMMARY_VARIABLE)}: {error.strerror}") from error
    for target, render in ((targets.json, dump_report), (targets.junit, junit_xml)):
        if target == "-":
            # Write a document to standard output, in UTF-8 as both formats demand, whatever the terminal's encoding is.
            text = render(report)
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
            sys.stdout.write(text)
        elif target:
            _write(Path(target), render(report))
    return int(report.exit_code)


def _write(path: Path, text: str) -> None:
    try:
        atomic_write(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
