"""``tipchain report``: show a finished run again, or judge its dumps again by other tolerances; nothing is run again."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import add_options, add_report_arguments, add_tolerance, check_targets, chosen_tolerance
from tipchain.core.files import local_time
from tipchain.errors import UsageError
from tipchain.modes import LATEST, STAGES, dump_name, parse_stages

if TYPE_CHECKING:
    from tipchain.numbers.tolerance import Tolerance
    from tipchain.report.model import RunReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a run's folder, its report.json, or a folder of dumps such as log_reprod"
    )
    add_report_arguments(parser)
    again = parser.add_argument_group(
        "to judge again",
        "With one of these, or where RUN has dumps and no report, the dumps are judged again. Else the report is shown as it was.",
    )
    again.add_argument(
        "--case", type=Path, metavar="CASE", help="take tolerances from this case (default: the one that was run)"
    )
    add_options(again, only="judge only these stages")
    add_tolerance(again, threshold="hold every tensor of the dumps against this")
    add_options(again, "strict", "root")


def run(args: argparse.Namespace) -> int:
    """Show the report, as it was or of the dumps judged again; return its exit code."""
    check_targets(args)
    from tipchain.live.judge import located_details
    from tipchain.report.model import load_report, report_file
    from tipchain.report.write import with_page, write_report

    folder = args.run.parent if args.run.is_file() else args.run
    tolerance = chosen_tolerance(args, reason="command line")
    asked = args.strict or any(one is not None for one in (args.case, args.stages, args.root, tolerance))
    # A run's folder without a report is of a run that did not end: its dumps alone would say less than was asked.
    if asked or (args.run.is_dir() and any(folder.glob("*.npy")) and report_file(folder) is None):
        report, details = _judge_again(args, folder, tolerance), []
    else:
        report = load_report(args.run)
        details = [*located_details(folder), *located_details(folder / LATEST)] if args.html else []
    return write_report(with_page(report, args.html, details=details), args)


def _judge_again(args: argparse.Namespace, run: Path, tolerance: Tolerance | None) -> RunReport:
    """Return the report of a run's dumps by the case's tolerances, or by ``tolerance`` for every tensor."""
    from tipchain.core.machine import installed_versions
    from tipchain.parity.case import SIDES, load_case
    from tipchain.parity.stages.judging import Rules, case_of, judge_stage
    from tipchain.report.model import RunReport, rediagnose

    started, clock = local_time(), time.perf_counter()
    folder = run / LATEST if (run / LATEST).is_dir() else run
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}\n  expected: a run's folder, or one with dumps")
    stages = parse_stages(args.stages) if args.stages else ()
    stages = stages or tuple(one for one in STAGES if any((folder / dump_name(one, side)).is_file() for side in SIDES))
    if not stages:
        raise UsageError(f"{folder} has no dumps\n  expected: forward_torch.npy, forward_paddle.npy and the like")
    path = args.case or case_of(folder)
    if path is None:
        remarks = ["the case that was run is not here: default tolerances, no known deviations; --case names it"]
        rules = Rules(own={}, strict=args.strict, override=tolerance)
    else:
        remarks, rules = [], Rules.of(load_case(path), strict=args.strict, override=tolerance)
    judged = [judge_stage(stage, folder, rules) for stage in stages]
    verdicts = tuple(verdict for judgement in judged for verdict in judgement.verdicts)
    found = rediagnose(folder, verdicts)
    return RunReport(
        title=f"judged again: {run}",
        mode="",
        run=str(folder),
        started=started,
        seconds=time.perf_counter() - clock,
        versions=installed_versions(),
        verdicts=verdicts,
        diagnoses=found.diagnoses,
        undiagnosed=found.undiagnosed,
        notes=(*remarks, *(f"{judgement.stage}: {note}" for judgement in judged for note in judgement.notes)),
    )
