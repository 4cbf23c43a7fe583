"""What ``tipchain nightly`` writes of a night for others: JUnit XML, GitHub's annotations and summary, the dashboard."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import count
from tipchain.errors import OutputError, TipchainError, UsageError
from tipchain.language import say
from tipchain.outcome import ExitCode

if TYPE_CHECKING:
    from tipchain.nightly.results import Results
    from tipchain.nightly.timeline import Timeline


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where a night's reports go."""
    parser.add_argument("--junit", metavar="FILE", help="write the night as JUnit XML")
    parser.add_argument(
        "--github", action="store_true",
        help="print GitHub's annotations of what failed, and write the summary of the step (GITHUB_STEP_SUMMARY)",
    )  # fmt: skip


def check_targets(args: argparse.Namespace) -> None:
    """Refuse, before anything runs, reports that cannot be written.

    Raises:
        UsageError: one cannot, or would stand between what is told on standard output.
    """
    if args.junit == "-":
        raise UsageError("--junit needs a file: standard output has how the night goes on")
    from tipchain.report.github import SUMMARY_VARIABLE
    from tipchain.runs import check_writable

    summary = os.environ.get(SUMMARY_VARIABLE) if args.github else None
    check_writable({"--junit": args.junit, SUMMARY_VARIABLE: summary})


def write_reports(folder: Path, args: argparse.Namespace) -> None:
    """Write the reports that are asked for of the night in ``folder``.

    Raises:
        OutputError: one cannot be written.
        RecordError: the night cannot be read.
    """
    if not args.junit and not args.github:
        return
    from tipchain.nightly.ci_reports import night_junit
    from tipchain.nightly.results import read_results
    from tipchain.runs import atomic_write

    results = read_results(folder)
    try:
        if args.junit:
            atomic_write(Path(args.junit), night_junit(results))
        if args.github:
            _write_github(results, getattr(args, "database", None))
    except OSError as error:
        raise OutputError(f"{error.filename or 'a report'}: cannot be written: {error.strerror}") from error


def _write_github(results: Results, database: str | None) -> None:
    from tipchain.nightly.ci_reports import annotate, summary
    from tipchain.report.github import write_summary

    for line in annotate(results):
        print(line)
    write_summary(summary(results, changed_lines(results, database)))


def changed_lines(results: Results, database: str | None = None) -> Sequence[str]:
    """Return what changed since the last comparable night: as the history says, else by the nights on the disk."""
    try:
        return _by_history(results, database)
    except (TipchainError, ImportError):  # no history, none that can be reached, or it has not got this night
        from tipchain.nightly.timeline import changes_since_before

        return changes_since_before(results)


def _by_history(results: Results, database: str | None) -> Sequence[str]:
    from tipchain.history.compare import changes
    from tipchain.history.entries import find_entry
    from tipchain.history.places import place_of
    from tipchain.history.store import History
    from tipchain.history.text import changes_text

    root = Path(results.plan.root)
    place = place_of(root, database)
    if place.file is not None and not place.file.is_file():
        raise UsageError(f"{place.file}: is not there")
    with History(place).reading() as connection:
        entry = find_entry(connection, results.night.name, title=results.plan.name)
        return changes_text(changes(connection, entry, root=root)).splitlines()


def add_dashboard(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``tipchain nightly dashboard``."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="NIGHTS",
        help="folder of nights, of one manifest or of all (default tipchain-nights)",
    )  # fmt: skip
    parser.add_argument("--html", required=True, metavar="FILE", help="the page; - is standard output")
    parser.add_argument(
        "--nights",
        type=count("nights"),
        default=30,
        metavar="N",
        help="the latest N of each manifest (default 30)",
    )
    parser.set_defaults(act=run_dashboard)


def run_dashboard(args: argparse.Namespace) -> int:
    """Write the page; the exit code is 1 if a latest night's shares leave items out or are not of one plan.

    Raises:
        UsageError: there are no nights, or the page cannot be written.
    """
    from tipchain.nightly.dashboard import render
    from tipchain.nightly.nights import NIGHTS
    from tipchain.nightly.results import find_nights
    from tipchain.nightly.terminal import counted
    from tipchain.nightly.timeline import read_timelines
    from tipchain.runs import atomic_write, check_writable

    check_writable({"--html": args.html})
    folder = args.folder or Path(NIGHTS)
    page = Path() if args.html == "-" else Path(args.html).parent
    timelines, problems = read_timelines(find_nights(folder), args.nights, page)
    for problem in problems:
        print(say(f"note: left out: {problem}"), file=sys.stderr)
    if not timelines:
        raise UsageError(f"{folder}: no night is there that can be read\n  tipchain nightly run begins one")
    text = render(timelines, problems)
    if args.html == "-":
        sys.stdout.buffer.write(text.encode(errors="backslashreplace"))
        return _say_of_shares(timelines)
    try:
        atomic_write(Path(args.html), text)
    except OSError as error:
        raise UsageError(f"cannot write {args.html}: {error.strerror}") from error
    nights = sum(len(one.columns) for one in timelines)
    items = sum(len(one.rows) for one in timelines)
    print(say(f"{args.html}: {counted(items, 'item')}, {counted(nights, 'night')}"))
    return _say_of_shares(timelines)


def _say_of_shares(timelines: Sequence[Timeline]) -> int:
    """Tell what is to be known of the shares of the latest nights; return the exit code."""
    wrong = False
    for line in timelines:
        column = line.columns[-1]
        name = f"{line.name}, {column.results.night.name}"
        for text in column.notes:
            print(say(f"note: {name}: {text}"), file=sys.stderr)
        for text in column.wrong:
            print(say(f"error: {name}: {text}"), file=sys.stderr)
        wrong |= bool(column.wrong)
    return ExitCode.FAILED if wrong else ExitCode.PASSED
