"""``tipchain judge``: apply other tolerances to a finished alignment run; nothing is run again."""

from __future__ import annotations

import argparse
import time
from datetime import datetime
from pathlib import Path

from tipchain.commands.options import add_options, add_report_arguments, add_tolerance, check_targets, chosen_tolerance
from tipchain.errors import UsageError
from tipchain.modes import LATEST, STAGES, parse_stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, or a folder of dumps such as log_reprod")
    parser.add_argument(
        "--case", type=Path, metavar="CASE", help="take tolerances from this case (default: the one that was run)"
    )
    add_options(parser, only="judge only these stages")
    add_tolerance(parser, threshold="hold every tensor of the dumps against this")
    add_options(parser, "strict")
    add_report_arguments(parser)
    add_options(parser, "root")


def run(args: argparse.Namespace) -> int:
    """Judge the dumps and return the exit code."""
    check_targets(args)
    from tipchain.core.machine import installed_versions
    from tipchain.parity.align import present_stages
    from tipchain.parity.case import load_case
    from tipchain.parity.stages.judging import Rules, case_of, judge_stage
    from tipchain.report.model import RunReport, rediagnose
    from tipchain.report.write import with_page, write_report

    started, clock = datetime.now().astimezone(), time.perf_counter()
    folder = args.run / LATEST if (args.run / LATEST).is_dir() else args.run
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}\n  expected: a run's folder, or one with dumps")
    stages = parse_stages(args.stages) if args.stages else present_stages(folder, STAGES)
    if not stages:
        raise UsageError(f"{folder} has no dumps\n  expected: forward_torch.npy, forward_paddle.npy and the like")
    override = chosen_tolerance(args, reason="command line")
    path = args.case or case_of(folder)
    if path is None:
        remarks = ["the case that was run is not here: default tolerances, no known deviations; --case names it"]
        rules = Rules(own={}, strict=args.strict, override=override)
    else:
        remarks, rules = [], Rules.of(load_case(path), strict=args.strict, override=override)
    judged = [judge_stage(stage, folder, rules) for stage in stages]
    verdicts = tuple(verdict for judgement in judged for verdict in judgement.verdicts)
    found = rediagnose(folder, verdicts)
    report = RunReport(
        title=f"judged again: {args.run}",
        mode="",
        run=str(folder),
        started=started.isoformat(timespec="seconds"),
        seconds=time.perf_counter() - clock,
        versions=installed_versions(),
        verdicts=verdicts,
        diagnoses=found.diagnoses,
        undiagnosed=found.undiagnosed,
        notes=(*remarks, *(f"{judgement.stage}: {note}" for judgement in judged for note in judgement.notes)),
    )
    return write_report(with_page(report, args.html), args)
