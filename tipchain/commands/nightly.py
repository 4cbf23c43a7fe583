"""``tipchain nightly plan|run|status|resume|gc|…``: many chains and alignment cases in one night."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.history import NightSink, add_night_arguments, check_history
from tipchain.commands.options import add_action, add_json, add_quiet, count, show
from tipchain.core.files import atomic_write, check_writable, sha256_of, writing
from tipchain.core.json_text import JsonObject, as_json
from tipchain.core.language import clean, many, say, terminal_width, use_color
from tipchain.errors import BAD, ExitCode, HistoryError, ManifestError, OutputError, UsageError

if TYPE_CHECKING:
    from tipchain.nightly.executor import Executor
    from tipchain.nightly.items import NightPlan
    from tipchain.nightly.nights import Night, Results
    from tipchain.nightly.timeline import Timeline


LOCAL, RAY = "local", "ray"
ALWAYS, FAILED = "always", "failed"
OPTIONS = ("require_gpu", "keep_dumps", "jobs", "executor", "address")
"""What a night keeps of these arguments for `resume`."""


def add_execution_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what says where items run."""
    parser.add_argument(
        "--executor", choices=(LOCAL, RAY), help="this machine (default), or the nodes of a Ray cluster"
    )
    parser.add_argument(
        "--jobs",
        type=count("slots"),
        metavar="N",
        help="slots of this machine: so many items of one CPU at once (default: the cores)",
    )
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of the Ray cluster's head (default: RAY_ADDRESS, else the cluster that runs on this machine)",
    )
    parser.add_argument(
        "--require-gpu", action="store_true", default=None, help="a GPU that is not there is an ERROR, not a SKIP"
    )
    parser.add_argument(
        "--keep-dumps",
        choices=(ALWAYS, FAILED),
        help="weights, tensors and exported models that items leave: of all (default), or of those only that did not pass",
    )
    add_night_arguments(parser)


def given_options(args: argparse.Namespace, before: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return what the command line says of these arguments, and for the rest what a night kept of them.

    Raises:
        UsageError: some do not fit together.
    """
    before = before or {}
    chosen = args.executor or before.get("executor") or LOCAL
    own, other = ("jobs", "address") if chosen == LOCAL else ("address", "jobs")
    if getattr(args, other):
        wanted = RAY if chosen == LOCAL else LOCAL
        raise UsageError(f"--{other} is for --executor {wanted}, not for {chosen}")
    found = {name: getattr(args, name) or before.get(name) for name in (own, "require_gpu", "keep_dumps")}
    found["executor"] = chosen if chosen != LOCAL else None
    return {name: found[name] for name in OPTIONS if found.get(name)}


def open_executor(options: JsonObject) -> Executor:
    """Return what runs items.

    Args:
        options: as `given_options` returns them.

    Raises:
        UsageError: the cluster cannot be reached.
        MissingFrameworkError: Ray is not installed.
    """
    if options.get("executor") == RAY:
        from tipchain.nightly.cluster import RayExecutor

        return RayExecutor(options.get("address"))
    from tipchain.nightly.executor import LocalExecutor

    return LocalExecutor(options.get("jobs"))


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where a night's reports go."""
    parser.add_argument("--junit", metavar="FILE", help="write the night as JUnit XML")
    parser.add_argument(
        "--github",
        action="store_true",
        help="print GitHub's annotations of what failed, and write the summary of the step (GITHUB_STEP_SUMMARY)",
    )


def check_targets(args: argparse.Namespace) -> None:
    """Refuse, before anything runs, reports that cannot be written.

    Raises:
        UsageError: one cannot, or would stand between what is told on standard output.
    """
    if args.junit == "-":
        raise UsageError("--junit needs a file: standard output has how the night goes on")
    from tipchain.report.ci import SUMMARY_VARIABLE

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
    from tipchain.nightly.night_report import night_as_report
    from tipchain.nightly.nights import read_results
    from tipchain.report.ci import annotate_run, junit_xml, summarize_run, write_summary
    from tipchain.report.terminal import verdict_line

    results = read_results(folder)
    try:
        changed = changed_lines(results, getattr(args, "database", None)) if args.github else ()
        report = night_as_report(results, changed=changed)
        if args.junit:
            atomic_write(Path(args.junit), junit_xml(report))
        if args.github:
            for line in annotate_run(report, Path(results.plan.root)):
                print(line)
            write_summary(summarize_run(report, verdict_line(report)))
    except (OSError, HistoryError) as error:
        file, reason = getattr(error, "filename", None) or "a report", getattr(error, "strerror", None) or error
        raise OutputError(f"{file}: cannot be written: {reason}") from error


def changed_lines(results: Results, database: str | None = None) -> Sequence[str]:
    """Return what changed since the last comparable night; nothing where the history does not have the night."""
    from tipchain.history.changes import changes, last_comparable
    from tipchain.history.entries import find_entry
    from tipchain.history.render import changes_text, first_text
    from tipchain.history.store import History, place_of

    place = place_of(Path(results.plan.root), database)
    if place.file is not None and not place.file.is_file():
        return ()
    history = History(place)
    if not history.has(results.night.token):
        return ()
    with history.reading() as session:
        entry = find_entry(session, results.night.name, title=results.plan.name)
        before = last_comparable(session, entry)
        if before is None:
            return first_text(entry).splitlines()
        return changes_text(changes(session, before, entry, root=Path(results.plan.root))).splitlines()


def add_dashboard(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``tipchain nightly dashboard``."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="NIGHTS",
        help="folder of nights, of one manifest or of all, or a manifest (default tipchain-nights)",
    )
    parser.add_argument("--html", required=True, metavar="FILE", help="the page; - is standard output")
    parser.add_argument(
        "--nights", type=count("nights"), default=30, metavar="N", help="the latest N of each manifest (default 30)"
    )
    parser.set_defaults(act=run_dashboard)


def run_dashboard(args: argparse.Namespace) -> int:
    """Write the page; the exit code is 1 if a latest night's shares leave items out or are not of one plan.

    Raises:
        ManifestError: a manifest cannot be read.
        UsageError: there are no nights, or the page cannot be written.
    """
    from tipchain.nightly.dashboard import render
    from tipchain.nightly.manifest import load_manifest
    from tipchain.nightly.nights import NIGHTS, find_nights
    from tipchain.nightly.timeline import read_timelines

    check_writable({"--html": args.html})
    folder = args.folder or Path(NIGHTS)
    folder = load_manifest(folder).nights if folder.is_file() else folder
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
    with writing(args.html, UsageError):
        atomic_write(Path(args.html), text)
    nights = sum(len(one.columns) for one in timelines)
    items = sum(len(one.rows) for one in timelines)
    print(say(f"{args.html}: {many(items, 'item')}, {many(nights, 'night')}"))
    return _say_of_shares(timelines)


def _say_of_shares(timelines: Sequence[Timeline]) -> int:
    """Tell what is to be known of the shares of the latest nights; return the exit code."""
    wrong = False
    for line in timelines:
        results = line.columns[-1].results
        name = f"{line.name}, {results.night.name}"
        for text in results.notes:
            print(say(f"note: {name}: {text}"), file=sys.stderr)
        for text in results.wrong:
            print(say(f"error: {name}: {text}"), file=sys.stderr)
        wrong |= bool(results.wrong)
    return ExitCode.FAILED if wrong else ExitCode.PASSED


EPILOG = "tipchain nightly ACTION --help says more about one of them. docs/how-to/nightly.md explains the manifest."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = EPILOG
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    plan = add_action(actions, "plan", "show what would run, and run nothing")
    _add_manifest(plan)
    _add_choice(plan)
    add_json(plan, "the plan")
    plan.set_defaults(act=_plan)
    run = add_action(actions, "run", "begin a night")
    _add_manifest(run)
    _add_choice(run)
    add_execution_arguments(run)
    add_quiet(run)
    add_report_arguments(run)
    run.add_argument("--dry-run", action="store_true", help="show what would run, as `plan` does")
    run.set_defaults(act=_run)
    status = add_action(actions, "status", "say how far a night is, while it runs too")
    _add_manifest(status)
    _add_night(status)
    add_json(status, "how far it is, and how each item ended,")
    add_report_arguments(status)
    status.set_defaults(act=_status)
    resume = add_action(actions, "resume", "run what has not ended of a night")
    _add_manifest(resume)
    _add_night(resume)
    add_execution_arguments(resume)
    add_quiet(resume)
    add_report_arguments(resume)
    resume.set_defaults(act=_resume)
    add_dashboard(add_action(actions, "dashboard", "write the latest nights as one page"))
    gc = add_action(actions, "gc", "delete old nights that have ended")
    gc.add_argument(
        "folders", nargs="*", type=Path, metavar="NIGHTS", help="folders of nights (default tipchain-nights)"
    )
    gc.add_argument(
        "--keep", required=True, type=count("nights"), metavar="N", help="keep the latest N finished of each manifest"
    )
    gc.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    gc.set_defaults(act=_gc)


def _add_manifest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", type=Path, metavar="MANIFEST", help="YAML file that names what runs")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the nights (default: tipchain-nights/NAME of the root)"
    )


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        dest="select",
        metavar="PATTERN",
        nargs="+",
        action="extend",
        default=[],
        help="run these only: ids with * and ?, tag:lite, mode:whole_*, device:gpu, kind:align; !PATTERN leaves out",
    )
    parser.add_argument("--last-failed", action="store_true", help="run only what failed or errored when it last ran")
    parser.add_argument("--shard", metavar="I/N", help="run share I of N, which take about as long as each other")
    parser.add_argument(
        "--require-data", action="store_true", help="full data that are not here are an ERROR, not a SKIP"
    )


def _add_night(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--night",
        metavar="NAME",
        help="its folder, its name, a part of it, or latest~1 for the one before (default: the latest)",
    )


def run(args: argparse.Namespace) -> int:
    """Do what is asked for; return the exit code."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _plan(args: argparse.Namespace) -> int:
    from tipchain.nightly.night_report import plan_lines
    from tipchain.nightly.nights import usual_seconds

    plan, nights = _chosen(args)
    show(
        getattr(args, "json", None),
        lambda: as_json(plan),
        lambda: "\n".join(plan_lines(plan, usual_seconds(nights), terminal_width())),
    )
    return _nothing_chosen(args) if not plan.items else ExitCode.PASSED


def _nothing_chosen(args: argparse.Namespace) -> int:
    why = "nothing failed when it last ran" if args.last_failed else "nothing is left of it"
    print(say(f"error: {args.manifest}: nothing to run: {why}"), file=sys.stderr)
    return ExitCode.NOTHING_CHECKED


def _chosen(args: argparse.Namespace) -> tuple[NightPlan, Path]:
    """Return the plan that the command line asks for, and the folder of the manifest's nights."""
    from tipchain.nightly.expand import DiskProject, expand
    from tipchain.nightly.items import only, parse_shard, select, share
    from tipchain.nightly.manifest import load_manifest
    from tipchain.nightly.nights import last_failed

    shard = parse_shard(args.shard) if args.shard else None
    manifest = load_manifest(args.manifest)
    plan = expand(manifest, DiskProject(manifest), require_data=args.require_data)
    nights = (args.out or manifest.nights).absolute()
    plan = select(plan, args.select)
    if args.last_failed:
        failed = last_failed(nights)
        print(say(f"what failed when it last ran: {many(len(failed), 'item')}"), file=sys.stderr)
        plan = only(plan, failed)
    if shard:
        plan = share(plan, shard)
    return plan, nights


def _run(args: argparse.Namespace) -> int:
    from tipchain.nightly.nights import begin_night
    from tipchain.nightly.origin import fingerprint

    if args.dry_run:
        return _plan(args)
    execution = given_options(args)
    check_history(args)
    check_targets(args)
    plan, nights = _chosen(args)
    if not plan.items:
        return _nothing_chosen(args)
    names = ("select", "last_failed", "shard", "require_data")
    options = {name: getattr(args, name) for name in names if getattr(args, name)} | execution
    executor = open_executor(execution)
    with closing(executor):
        night, lock = begin_night(plan, nights, options=options, environment=fingerprint(Path(plan.root)))
        return _go_on(night, lock, executor, execution, args)


def _resume(args: argparse.Namespace) -> int:
    from tipchain.nightly.nights import DamagedRecord, hold

    check_history(args)
    check_targets(args)
    night = _night(args)
    execution = given_options(args, night.options)
    lock = hold(night.folder)
    sound = sum(not isinstance(record, DamagedRecord) for record in night.records())
    if night.finished and sound == len(night.plan.items):
        print(say(f"nothing is left to do: {night.name} has finished"), file=sys.stderr)
        execution.pop("executor", None)  # no cluster is needed for that
    with closing(open_executor(execution)) as executor:
        return _go_on(night, lock, executor, execution, args)


def _go_on(
    night: Night, lock: int, executor: Executor, execution: Mapping[str, object], args: argparse.Namespace
) -> int:
    """Run what has not ended of a night that this process holds; tell what came of it."""
    from tipchain.nightly.coordinator import Coordinator
    from tipchain.nightly.night_report import NightView, night_as_report
    from tipchain.nightly.nights import read_results, usual_seconds
    from tipchain.report.terminal import render_ending, verdict_line

    history = NightSink(args.database)
    number = len(night.plan.items)
    view = NightView(io.StringIO() if args.quiet else sys.stdout, number)
    coordinator = Coordinator(
        night,
        executor,
        view,
        require_gpu=bool(execution.get("require_gpu")),
        keep_dumps=execution.get("keep_dumps") != FAILED,
        usual=usual_seconds(night.folder.parent),
        sink=history,
    )
    view.number = number - coordinator.left
    if not args.quiet:
        place = os.path.relpath(night.folder)
        print(say(f"night {night.name}: {coordinator.left} of {number} items to run, in {place}"), flush=True)
    try:
        result = coordinator.run()
    finally:
        view.close()
        os.close(lock)
    code = result.exit_code
    seconds = coordinator.state().seconds or 0.0
    report = night_as_report(read_results(night.folder), seconds=seconds, interrupted=result.interrupted)
    ending = render_ending(report, color=use_color(sys.stdout), width=terminal_width())
    print(say(verdict_line(report)) if args.quiet else f"\n{ending}")
    if code is ExitCode.PASSED and args.require_history and not history.has_it:
        print(say("error: the history does not have the night, which --require-history asks for"), file=sys.stderr)
        code = ExitCode.FAILED
    try:
        write_reports(night.folder, args)
    except OutputError as error:
        if not result.problem:
            raise
        print(say(f"error: {error}"), file=sys.stderr)
    if result.problem:
        raise OutputError(
            f"{result.problem}\n  {result.left} items have not ended; what had ended is kept\n"
            f"  tipchain nightly resume {args.manifest} --night {night.name} goes on when that is mended"
        )
    return code


def _night(args: argparse.Namespace) -> Night:
    """Return the night that is meant, and say if the manifest is not what it was when that began."""
    from tipchain.nightly.manifest import load_manifest
    from tipchain.nightly.nights import latest_night, named_folder, nights_below, read_night

    try:
        manifest = load_manifest(args.manifest)
        sha256, nights = manifest.sha256, manifest.nights
    except ManifestError:
        if args.out is None or not args.manifest.is_file():
            raise
        sha256, nights = sha256_of(args.manifest), args.out
    nights = (args.out or nights).absolute()
    named = args.night and named_folder(args.night, nights_below(nights))
    night = read_night(named.absolute()) if named else latest_night(nights)
    if sha256 != night.plan.sha256:
        note = f"{args.manifest} has changed since {night.name} began, whose stored plan holds"
        print(say(f"note: {note}"), file=sys.stderr)
    return night


def _gc(args: argparse.Namespace) -> int:
    """Delete old nights; the exit code is 1 if one that should go is still there."""
    from tipchain.nightly.cleanup import delete, old_nights
    from tipchain.nightly.nights import NIGHTS

    places = args.folders or [Path(NIGHTS)]
    for folder in places:
        if not folder.is_dir():
            raise UsageError(
                f"{folder}: is no folder\n  expected: a folder of nights, such as {NIGHTS} in the project's"
            )
    problems = 0
    for folder in old_nights(places, args.keep, time.time()):
        name, trouble = clean(os.path.relpath(folder)), "" if args.dry_run else delete(folder)
        problems += bool(trouble)
        if trouble:
            print(say(f"error: {name} is still there: {clean(trouble)}"), file=sys.stderr)
        else:
            print(say(f"{'would delete' if args.dry_run else 'deleted'} {name}"))
    return ExitCode.FAILED if problems else ExitCode.PASSED


def _status(args: argparse.Namespace) -> int:
    """Say how far a night is: exit code 0 while nothing is wrong in it, 1 once an item failed."""
    from collections import Counter
    from dataclasses import replace

    from tipchain.nightly.coordinator import read_state, state_json
    from tipchain.nightly.night_report import state_lines
    from tipchain.nightly.nights import holder, read_results

    check_targets(args)
    night = _night(args)
    who = holder(night.folder)
    results = read_results(night.folder)
    ended = results.finished and not who
    records = [results.of(item) for item in night.plan.items] if ended else [*results.records.values()]
    state = replace(read_state(night), counts=dict(Counter(record.outcome for record in records)))
    if not who:
        state = replace(state, running=(), left_s=None, waiting="")
    show(
        args.json,
        lambda: {
            "night": night.name,
            "folder": str(night.folder),
            "finished": night.finished,
            "holder": who,
            **state_json(state),
            "items": {one.id: as_json(one) for one in records},
        },
        lambda: "\n".join(state_lines(night, state, who, terminal_width())),
    )
    write_reports(night.folder, args)
    return ExitCode.FAILED if any(state.counts.get(one) for one in BAD) else ExitCode.PASSED
