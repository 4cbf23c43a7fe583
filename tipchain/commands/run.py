"""``tipchain run``: run a chain, with a view of it while it goes on."""

from __future__ import annotations

import argparse
import io
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tipchain import __version__
from tipchain.chain.execute import Place, is_interpreter, search_path
from tipchain.chain.gpus import Leases, find_gpus, leased_gpus, on_gpus
from tipchain.chain.plan import PLACEHOLDER, Plan, Result
from tipchain.chain.run import FILE_NAME as JOURNAL
from tipchain.chain.run import Journal, Policy, check_programs, link_latest, resumable, run_plan
from tipchain.commands.options import (
    add_options,
    add_report_arguments,
    check_data_path,
    check_targets,
    count,
    text_stream,
)
from tipchain.commands.plan import add_chain_arguments, is_empty, planned, print_notes
from tipchain.commands.prepare import prepare_chain_first
from tipchain.core.files import append, atomic_write, commit, hold_run, local_time, new_run, prune, run_header
from tipchain.core.language import clean, say
from tipchain.errors import ExitCode, Outcome, RecordError
from tipchain.modes import LATEST
from tipchain.report.model import FILE_NAME, RunReport, diagnose_chain, dump_report, load_report
from tipchain.report.running import LiveView

# The suite's log of status lines (``results_python.log``), as scrapers know it, with comments of our own.
#
# A run's header and what the status lines lack are comments (``# ...``) that no scraper's pattern matches.


CLAIM = re.compile(r"run(\s+)(?=successfully|failed)", re.IGNORECASE)
"""A scraper's pattern, also at the end of a longer word: ``grep`` knows no words."""


def versions(plan: Plan, root: Path) -> dict[str, str]:
    """Return the versions that a run rests on: those of the environment whose interpreter runs its commands.

    No framework is imported. An interpreter that cannot be asked has none.
    """
    from tipchain.core.machine import installed_versions, versions_of

    words = {command.argv[0] for command in plan.commands if is_interpreter(command.argv[0])}
    own, found = Path(sys.executable), dict[str, str]()
    for python in sorted(filter(None, (shutil.which(word, path=search_path(root)) for word in words))):
        # Links to one interpreter in two folders are two environments.
        if Path(python).parent == own.parent and Path(python).samefile(own):
            found |= {"python": platform.python_version(), **installed_versions()}
        else:
            found |= versions_of(python)
    return {"tipchain": __version__, **found}


def status_record(result: Result, plan: Plan, run: str) -> str:
    """Return a command's lines in the results log.

    The TIPC status line as the suite writes it, then a comment with what it lacks, the run's name first: two
    runs at once write into one file. What did not run, or was not repeated, has no status line.
    """
    command = result.command
    facts = [run, command.id, result.outcome.value, f"{result.seconds:.1f}s"]
    facts += [f"exit={result.exit_code}"] if result.exit_code is not None else []
    facts += [f"signal={result.signal}"] if result.signal else []
    facts += [f"log={result.log}"] if result.log else []
    facts += ["earlier"] if result.reused else []
    # A reason with an exit status that is not 0 quotes the command's own words, which may claim success.
    reason = "" if result.exit_code else result.reason
    comment = as_comment(" ".join(facts) + (f" reason={reason}" if reason else ""))
    if result.outcome is Outcome.SKIP or result.reused:
        return comment
    verb = "successfully" if result.outcome is Outcome.PASS else "failed"
    words = shlex.join(command.argv)
    # With the redirection where the suite shows it.
    redirected = f"{words} > {command.log} 2>&1 " if command.step in plan.redirected and command.log else words
    text = plan.status.format(model=plan.model, command=redirected, log=command.log or "")
    # The command's own words may claim a success, too: a name, a path.
    return f"\x1b[33m Run {verb} with command - {_without_claims(text)} \x1b[0m\n{comment}"


def as_comment(text: str) -> str:
    """Return ``text`` as one comment line in which no pattern for status lines can match."""
    return "# " + _without_claims(clean(text))


def _without_claims(text: str) -> str:
    return CLAIM.sub(lambda match: match[0].rstrip() + "_", " ".join(text.splitlines()))


class ResultsLog:
    """The suite's results log, appended to.

    Attributes:
        path: the log.
        problem: why the log could not be written; "" if it could.
    """

    def __init__(self, plan: Plan, place: Place, versions: Mapping[str, str]) -> None:
        self.plan, self.run = plan, place.run.name
        self.path = place.root / plan.out / plan.results_log
        self.problem = ""
        facts = {"params": plan.params, "mode": plan.mode.value, "suite": plan.suite}
        facts |= {
            "device": ",".join(sorted({"gpu" if command.on_gpu else "cpu" for command in plan.commands})),
            "commit": commit(place.root),
        }
        header = run_header(place.run, {**facts, **versions})
        head = [as_comment(line.removeprefix("# ")) for line in header.splitlines()]
        self._append("\n".join([*head, plan.results_head] if plan.results_head else head))

    def ended(self, result: Result) -> None:
        """Log how a command ended."""
        self._append(status_record(result, self.plan, self.run))

    def _append(self, text: str) -> None:
        try:
            append(self.path, text)
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"


# ``tipchain run``: run the chain of a parameter file and report on it.


PAGE = "report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_chain_arguments(parser)
    add_options(parser, data_path="data folder instead of the mode's")
    add_options(parser, "prepare", "root")
    parser.add_argument(
        "--jobs", type=count("commands"), metavar="N", default=1, help="run up to N commands of different legs at once"
    )
    parser.add_argument("--require-gpu", action="store_true", help="a GPU that is not here is an ERROR, not a SKIP")
    parser.add_argument(
        "--fail-fast",
        action="store_true",
        help="end the run at the first failure (default: go on with what does not need it)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the latest run of this file and mode: what passed on unchanged inputs is not repeated",
    )
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, run and report; return the report's exit code."""
    check_targets(args)
    check_data_path(args)
    plan = _plan(args, PLACEHOLDER)
    if is_empty(plan):
        return ExitCode.NOTHING_CHECKED
    check_programs(plan, Path.cwd())
    earlier = resumable(Path.cwd() / plan.out, plan) if args.resume else None
    if args.resume:
        told = (
            f"resuming {os.path.relpath(earlier)}"
            if earlier
            else f"nothing to resume below {plan.out}: a new run starts"
        )
        print(say(told), file=sys.stderr)
    if args.prepare and (code := prepare_chain_first(args, text_stream(args))):
        return code
    if earlier:
        hold_run(earlier)
    folder = earlier or Path.cwd() / new_run(Path(plan.out))
    plan = _plan(args, folder.name)
    print_notes(plan)
    return _run(plan, folder, args)


CALLED = """
chain suite lenient gpu_id python timeout warm_up device settings out only skip data_path root jobs require_gpu fail_fast
""".split()
"""The arguments that decide on commands and their settings; the others are about the output, or of one call."""


def words_behind_mode(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the words behind file and mode with which another call runs the same."""
    words = [args.gpu] if args.gpu else []
    for name in CALLED:
        value, option = getattr(args, name), "--set" if name == "settings" else f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [word for one in value for word in (option, one)]
        elif value == float("inf"):
            words += [option, "none"]
        elif value not in (None, False) and (name, value) != ("jobs", 1):
            words += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return tuple(words)


def _plan(args: argparse.Namespace, name: str) -> Plan:
    return on_gpus(planned(args, name), leased_gpus())


def _usual_seconds(folder: Path) -> dict[str, float]:
    """Return the seconds of commands in the latest run beside ``folder`` that has a report, by id."""
    for earlier in sorted(folder.parent.glob(f"*/{FILE_NAME}"), reverse=True):
        try:
            results = load_report(earlier).results
        except RecordError:
            continue
        return {one.command.id: one.seconds for one in results if one.outcome is Outcome.PASS}
    return {}


def _run(plan: Plan, folder: Path, args: argparse.Namespace) -> int:
    from tipchain.live.judge import located_details
    from tipchain.nightly.origin import origin
    from tipchain.report.write import with_page, write_report

    stream, journal = text_stream(args), Journal(folder)
    data = args.data_path and args.data_path.resolve()
    place = Place(root=Path.cwd(), run=folder, mode=plan.mode, data=data, folders=plan.data)
    policy = Policy(jobs=args.jobs, require_gpu=args.require_gpu, fail_fast=args.fail_fast)
    journal.start(plan)
    on = versions(plan, place.root)
    log, leases = ResultsLog(plan, place, on), Leases()
    view = LiveView(
        io.StringIO() if args.quiet else stream,
        plan=[one.id for one in plan.commands],
        usual=_usual_seconds(folder),
        slots=args.jobs,
        log=log.ended,
    )
    begin, started = time.monotonic(), local_time()
    with view.screen:
        results, interrupted = run_plan(plan, place, view, policy=policy, record=journal, leases=leases)
    notes = [*plan.notes, *link_latest(plan, place, Path.cwd() / plan.out, results)]
    notes += [f"GPUs were not leased from other runs: {leases.trouble}"] if leases.trouble else []
    if reused := sum(result.reused for result in results):
        notes.append(f"{reused} of {len(results)} commands passed in an earlier attempt and were not repeated")
    if all(one.outcome is Outcome.SKIP for one in results) and (why := find_gpus().trouble) and plan.commands[0].on_gpu:
        notes.append(f"--device cpu runs the whole file here; {why}")
    found = diagnose_chain(folder)
    report = RunReport(
        title=plan.params,
        mode=plan.mode.value,
        chain=plan.chain,
        run=plan.run,
        started=started,
        seconds=round(time.monotonic() - begin, 3),
        versions=on,
        where=origin(place.root),
        models={"model": plan.model},
        call=words_behind_mode(args),
        results=results,
        diagnoses=found.diagnoses,
        undiagnosed=found.undiagnosed,
        notes=tuple(notes),
        interrupted=interrupted,
    )
    report = _with_problem(report, plan.results_log, log.problem)
    report = _with_problem(report, JOURNAL, journal.problem)
    try:
        details = located_details(folder / LATEST) if report.diagnoses else []
        report = with_page(report, args.html, folder / PAGE, details)
    except OSError as error:
        report = _with_problem(report, PAGE, f"cannot be written: {error.strerror}")
    try:
        atomic_write(folder / FILE_NAME, dump_report(report))
    except OSError as error:
        report = _with_problem(report, FILE_NAME, f"cannot be written: {error.strerror}")
    prune(Path.cwd() / plan.out)
    if not args.quiet:
        print(file=stream)  # below what the view has left
    return write_report(report, args)


def _with_problem(report: RunReport, file: str, problem: str) -> RunReport:
    if not problem:
        return report
    from tipchain.numbers.verdicts import Verdict

    verdict = Verdict(Outcome.ERROR, f"run/{file}", problem)
    return replace(report, verdicts=(*report.verdicts, verdict))
