"""``tipchain report``: render a finished run again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tipchain.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, or its report.json")
    add_report_arguments(parser)


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where reports go; shared by all commands that make one."""
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON; - is standard output")
    parser.add_argument("--junit", metavar="FILE", help="write the report as JUnit XML; - is standard output")


def check_targets(args: argparse.Namespace) -> None:
    """Refuse, before anything runs, reports that cannot be written.

    Raises:
        UsageError: both formats want standard output, or a file cannot be written.
    """
    from tipchain.runs import check_writable

    if args.json == args.junit == "-":
        raise UsageError("--json and --junit cannot both go to standard output")
    check_writable({"--json": args.json, "--junit": args.junit})


def run(args: argparse.Namespace) -> int:
    """Render the report; the exit code is the run's."""
    check_targets(args)
    from tipchain.report.json_ import load_report
    from tipchain.report.write import write_report

    return write_report(load_report(args.run), json_to=args.json, junit_to=args.junit, stream=sys.stdout)
