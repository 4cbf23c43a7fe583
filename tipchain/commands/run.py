"""``tipchain run``: run the chain of a parameter file and report on it."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain import __version__
from tipchain.commands.plan import add_chain_arguments, options
from tipchain.commands.report import add_report_arguments, check_targets
from tipchain.errors import DataError, UsageError
from tipchain.modes import parse_mode
from tipchain.outcome import ExitCode, Outcome

if TYPE_CHECKING:
    from tipchain.chain.execute import Place
    from tipchain.chain.plan import Command, Plan
    from tipchain.chain.result import Result
    from tipchain.chain.run import Observer
    from tipchain.report.model import RunReport

LOG_NAME = "results_python.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_chain_arguments(parser)
    parser.add_argument("--data-path", type=Path, metavar="PATH", help="data folder instead of the mode's")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, run and report; return the report's exit code."""
    from tipchain.chain.load import load_plan, nothing_planned
    from tipchain.chain.plan import PLACEHOLDER
    from tipchain.runs import new_run

    mode = parse_mode(args.mode)
    check_targets(args)
    data = _data_folder(args.data_path)
    settings = {"suite": args.suite, "lenient": args.lenient}
    plan = load_plan(args.params, mode, options=options(args, PLACEHOLDER), **settings)
    if not plan.commands:
        print(f"error: {nothing_planned(plan)}", file=sys.stderr)
        return ExitCode.NOTHING_CHECKED
    try:
        folder = new_run(Path.cwd() / plan.out)
    except OSError as error:
        raise UsageError(f"cannot make a folder for the run below {plan.out}: {error.strerror}") from error
    plan = load_plan(args.params, mode, options=options(args, folder.name), **settings)
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    return _run(plan, folder, data, json_to=args.json, junit_to=args.junit)


def _data_folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise DataError(
            "is not a folder", file=path, expected="ImageNet's layout: train/<class>/, val/<class>/"
        )
    return path.resolve() if path is not None else None


def _run(plan: Plan, folder: Path, data: Path | None, *, json_to: str | None, junit_to: str | None) -> int:
    from tipchain.chain.execute import Place
    from tipchain.chain.run import link_latest, run_plan
    from tipchain.report.json_ import FILE_NAME, dump_report
    from tipchain.report.model import RunReport
    from tipchain.report.terminal import LiveView
    from tipchain.report.write import write_report
    from tipchain.runs import atomic_write, prune

    stream = sys.stderr if "-" in (json_to, junit_to) else sys.stdout
    place = Place(root=Path.cwd(), run=folder, mode=plan.mode, data=data)
    log = ResultsLog(plan, place, LiveView(stream))
    begin, started = time.monotonic(), datetime.now().astimezone().isoformat(timespec="seconds")
    results, interrupted = run_plan(plan, place, log)
    notes = (*plan.notes, *link_latest(plan, place, Path.cwd() / plan.out))
    report = RunReport(
        title=plan.params,
        mode=plan.mode.value,
        run=plan.run,
        started=started,
        seconds=round(time.monotonic() - begin, 3),
        versions=versions(),
        results=results,
        notes=notes,
        interrupted=interrupted,
    )
    report = _with_problem(report, LOG_NAME, log.problem)
    try:
        atomic_write(folder / FILE_NAME, dump_report(report))
    except OSError as error:
        report = _with_problem(report, FILE_NAME, f"cannot be written: {error.strerror}")
    prune(Path.cwd() / plan.out)
    return write_report(report, json_to=json_to, junit_to=junit_to, stream=stream)


def _with_problem(report: RunReport, file: str, problem: str) -> RunReport:
    """Return ``report`` with an ERROR about a file of the run that could not be written."""
    if not problem:
        return report
    from tipchain.parity.judge import Verdict

    verdict = Verdict(outcome=Outcome.ERROR, subject=f"run/{file}", reason=problem)
    return replace(report, verdicts=(*report.verdicts, verdict))


def versions() -> dict[str, str]:
    """Return the versions that a run rests on, as installed beside tipchain; no framework is imported."""
    from tipchain.environment import installed_versions

    return {"tipchain": __version__, "python": platform.python_version(), **installed_versions()}


def device_names(plan: Plan) -> str:
    """Return what the plan's commands run on: ``cpu``, ``gpu`` or ``cpu,gpu``."""
    return ",".join(sorted({"gpu" if command.on_gpu else "cpu" for command in plan.commands}))


def status_record(result: Result, plan: Plan, run: str) -> str:
    """Return a command's lines in results_python.log.

    The TIPC status line as the suite writes it, then a comment with what it lacks, the run's name first: two
    runs at once write into one file. What did not run has no status line.
    """
    command = result.command
    facts = [run, command.id, result.outcome.value, f"{result.seconds:.1f}s"]
    facts += [f"exit={result.exit_code}"] if result.exit_code is not None else []
    facts += [f"signal={result.signal}"] if result.signal else []
    facts += [f"log={result.log}"] if result.log else []
    # A reason with an exit status quotes the command's own words, which may claim success.
    reason = _one_line(result.reason) if result.exit_code is None else ""
    comment = "# " + " ".join(facts) + (f" reason={reason}" if reason else "")
    if result.outcome is Outcome.SKIP:
        return comment
    verb = "successfully" if result.outcome is Outcome.PASS else "failed"
    text = plan.status.format(model=plan.model, command=_one_line(shlex.join(command.argv)))
    return f"\x1b[33m Run {verb} with command - {text} \x1b[0m\n{comment}"


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


class ResultsLog:
    """An observer that appends to results_python.log and passes everything on.

    Attributes:
        problem: why the log could not be written; "" if it could.
    """

    def __init__(self, plan: Plan, place: Place, view: Observer) -> None:
        self.plan, self.place, self.view = plan, place, view
        self.path = place.root / plan.out / LOG_NAME
        self.problem = ""
        self._append(self._header())

    def started(self, command: Command, number: int, total: int) -> None:
        """Pass on that a command starts."""
        self.view.started(command, number, total)

    def output(self, command: Command, line: str) -> None:
        """Pass on a line of output."""
        self.view.output(command, line)

    def ended(self, result: Result) -> None:
        """Log how a command ended."""
        self._append(status_record(result, self.plan, self.place.run.name))
        self.view.ended(result)

    def _header(self) -> str:
        from tipchain.runs import commit, run_header

        facts = {"params": self.plan.params, "mode": self.plan.mode.value, "suite": self.plan.suite}
        facts |= {"device": device_names(self.plan), "commit": commit(self.place.root)}
        found = versions()
        del found["tipchain"]
        return run_header(self.place.run, {**facts, **found})

    def _append(self, text: str) -> None:
        from tipchain.runs import append

        try:
            append(self.path, text)
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"
