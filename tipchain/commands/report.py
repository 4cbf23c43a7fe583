"""``tipchain report``: render a finished run again."""

from __future__ import annotations

import argparse
from pathlib import Path

from tipchain.commands.options import add_report_arguments, check_targets
from tipchain.modes import LATEST


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, or its report.json")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Render the report; the exit code is the run's."""
    check_targets(args)
    from tipchain.live.judge import located_details
    from tipchain.report.model import load_report
    from tipchain.report.write import with_page, write_report

    report = load_report(args.run)
    folder = args.run if args.run.is_dir() else args.run.parent
    if args.html:
        report = with_page(report, args.html, details=[*located_details(folder), *located_details(folder / LATEST)])
    return write_report(report, args)
