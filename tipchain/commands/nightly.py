"""``tipchain nightly plan|run|status|resume|gc|…``: many chains and alignment cases in one night."""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import (
    add_action,
    add_json,
    add_options,
    add_report_arguments,
    check_targets,
    count,
    run_action,
    show,
    text_stream,
)
from tipchain.core.files import atomic_write, check_writable, sha256_of, writing
from tipchain.core.json_text import JsonObject, as_json
from tipchain.core.language import clean, many, say, terminal_width
from tipchain.errors import BAD, ExitCode, HistoryError, InputError, Outcome, OutputError, UsageError

if TYPE_CHECKING:
    from tipchain.nightly.cluster import RayExecutor
    from tipchain.nightly.executor import LocalExecutor
    from tipchain.nightly.items import NightPlan
    from tipchain.nightly.nights import Night, Results


LOCAL, RAY = "local", "ray"
ALWAYS, FAILED = "always", "failed"


def given_options(args: argparse.Namespace, before: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the given ones of these arguments, and for the rest those that a night kept.

    Raises:
        UsageError: some do not fit together.
    """
    before = before or {}
    chosen = args.executor or before.get("executor") or LOCAL
    if args.jobs and chosen == RAY:
        raise UsageError("--jobs is for --executor local, not for ray")
    found = {name: getattr(args, name) or before.get(name) for name in ("jobs", "require_gpu", "keep_dumps")}
    found["executor"] = chosen if chosen != LOCAL else None
    return {name: value for name, value in found.items() if value}


def open_executor(options: JsonObject) -> LocalExecutor | RayExecutor:
    """Return the executor of items.

    Args:
        options: as `given_options` returns them.

    Raises:
        UsageError: the cluster cannot be reached.
        MissingFrameworkError: Ray is not installed.
    """
    if options.get("executor") == RAY:
        from tipchain.nightly.cluster import RayExecutor

        return RayExecutor()
    from tipchain.nightly.executor import LocalExecutor

    return LocalExecutor(options.get("jobs"))


def changed_lines(results: Results, database: str | None = None) -> Sequence[str]:
    """Return the changes since the last comparable night; nothing where the history does not have the night."""
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


def run_dashboard(args: argparse.Namespace) -> int:
    """Write the page; the exit code is 1 if a latest night's shares leave items out or are not of one plan.

    Raises:
        InputError: a manifest cannot be read.
        UsageError: there are no nights, or the page cannot be written.
    """
    from tipchain.nightly.dashboard import render
    from tipchain.nightly.manifest import load_manifest
    from tipchain.nightly.nights import NIGHTS, find_nights
    from tipchain.nightly.timeline import read_timelines

    check_writable({"--html": args.html})
    folder = args.folder or Path(NIGHTS)
    folder = load_manifest(folder).nights if folder.is_file() else folder
    timelines, problems = read_timelines(find_nights(folder), args.nights, args.html.parent)
    for problem in problems:
        print(say(f"note: left out: {problem}"), file=sys.stderr)
    if not timelines:
        raise UsageError(f"{folder}: no night is there that can be read\n  tipchain nightly run begins one")
    with writing(args.html, UsageError):
        atomic_write(args.html, render(timelines, problems))
    nights = sum(len(one.columns) for one in timelines)
    items = sum(len(one.rows) for one in timelines)
    print(say(f"{args.html}: {many(items, 'item')}, {many(nights, 'night')}"))
    latest = [(line.name, line.columns[-1].results) for line in timelines]
    for name, results in latest:
        for text in results.notes:
            print(say(f"note: {name}, {results.night.name}: {text}"), file=sys.stderr)
        for text in results.wrong:
            print(say(f"error: {name}, {results.night.name}: {text}"), file=sys.stderr)
    return ExitCode.FAILED if any(results.wrong for _, results in latest) else ExitCode.PASSED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = (
        "tipchain nightly ACTION --help says more about one of them. docs/how-to/nightly.md explains the manifest."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True, dest="action")
    plan = add_action(actions, "plan", "show what would run, and run nothing", _plan)
    run = add_action(actions, "run", "begin a night", _run)
    status = add_action(actions, "status", "say how far a night is, while it runs too", _status)
    resume = add_action(actions, "resume", "run what has not ended of a night", _resume)
    for one in (plan, run, status, resume):
        one.add_argument("manifest", type=Path, metavar="MANIFEST", help="YAML file that names what runs")
        add_options(one, out="folder of the nights (default: tipchain-nights/NAME of the root)")
    for one in (plan, run):
        one.add_argument(
            "--only",
            dest="select",
            metavar="PATTERN",
            nargs="+",
            action="extend",
            default=[],
            help="run these only: ids with * and ?, tag:lite, mode:whole_*, device:gpu, kind:align; !PATTERN leaves out",
        )
        one.add_argument("--last-failed", action="store_true", help="run only what failed or errored when it last ran")
        one.add_argument("--shard", metavar="I/N", help="run share I of N, which take about as long as each other")
        one.add_argument(
            "--require-data", action="store_true", help="full data that are not here are an ERROR, not a SKIP"
        )
    for one in (status, resume):
        one.add_argument("--night", metavar="NAME", help="its folder, its name, or a part of it (default: the latest)")
    add_json(plan, "the plan")
    add_json(status, "how far it is, and how each item ended,")
    for one in (run, resume):
        one.add_argument(
            "--executor", choices=(LOCAL, RAY), help="this machine (default), or the nodes of a Ray cluster"
        )
        one.add_argument(
            "--jobs",
            type=count("slots"),
            metavar="N",
            help="slots of this machine: so many items of one CPU at once (default: the cores)",
        )
        one.add_argument(
            "--require-gpu", action="store_true", default=None, help="a GPU that is not there is an ERROR, not a SKIP"
        )
        one.add_argument(
            "--keep-dumps",
            choices=(ALWAYS, FAILED),
            help="weights, tensors and exported models that items leave: of all (default), or of those only that did not pass",
        )
        add_options(one, "database")
        add_report_arguments(one)
    dashboard = add_action(actions, "dashboard", "write the latest nights as one page", run_dashboard)
    dashboard.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="NIGHTS",
        help="folder of nights, of one manifest or of all, or a manifest (default tipchain-nights)",
    )
    dashboard.add_argument("--html", required=True, type=Path, metavar="FILE", help="the page")
    dashboard.add_argument(
        "--nights", type=count("nights"), default=30, metavar="N", help="the latest N of each manifest (default 30)"
    )
    gc = add_action(actions, "gc", "delete old nights that have ended", _gc)
    gc.add_argument(
        "folders", nargs="*", type=Path, metavar="NIGHTS", help="folders of nights (default tipchain-nights)"
    )
    gc.add_argument(
        "--keep", required=True, type=count("nights"), metavar="N", help="keep the latest N finished of each manifest"
    )
    gc.add_argument("--dry-run", action="store_true", help="only say what would be deleted")


run = run_action


def _plan(args: argparse.Namespace) -> int:
    from tipchain.nightly.night_report import plan_lines
    from tipchain.nightly.nights import usual_seconds

    plan, nights = _chosen(args)
    show(args.json, lambda: as_json(plan), lambda: "\n".join(plan_lines(plan, usual_seconds(nights), terminal_width())))
    return _nothing_chosen(args) if not plan.items else ExitCode.PASSED


def _nothing_chosen(args: argparse.Namespace) -> int:
    why = "nothing failed when it last ran" if args.last_failed else "nothing is left of it"
    print(say(f"error: {args.manifest}: nothing to run: {why}"), file=sys.stderr)
    return ExitCode.NOTHING_CHECKED


def _chosen(args: argparse.Namespace) -> tuple[NightPlan, Path]:
    """Return the plan that the command line asks for, and the folder of the manifest's nights."""
    from dataclasses import replace

    from tipchain.nightly.expand import expand
    from tipchain.nightly.items import parse_shard, select, share
    from tipchain.nightly.manifest import load_manifest
    from tipchain.nightly.nights import last_failed

    shard = parse_shard(args.shard) if args.shard else None
    manifest = load_manifest(args.manifest)
    plan = expand(manifest, require_data=args.require_data)
    nights = (args.out or manifest.nights).absolute()
    plan = select(plan, args.select)
    if args.last_failed:
        failed = last_failed(nights)
        print(say(f"what failed when it last ran: {many(len(failed), 'item')}"), file=sys.stderr)
        plan = replace(plan, items=tuple(one for one in plan.items if one.id in failed))
    if shard:
        plan = share(plan, *shard)
    return plan, nights


def _run(args: argparse.Namespace) -> int:
    from tipchain.nightly.nights import begin_night
    from tipchain.nightly.origin import fingerprint

    execution = given_options(args)
    _check_places(args)
    plan, nights = _chosen(args)
    if not plan.items:
        return _nothing_chosen(args)
    names = ("select", "last_failed", "shard", "require_data")
    options = {name: getattr(args, name) for name in names if getattr(args, name)} | execution
    with closing(open_executor(execution)) as executor:
        night, lock = begin_night(plan, nights, options=options, environment=fingerprint(Path(plan.root)))
        return _go_on(night, lock, executor, args)


def _check_places(args: argparse.Namespace) -> None:
    """Refuse, before a night begins, reports that cannot be written, and a database that cannot be one."""
    from tipchain.history.store import place_of

    check_targets(args)
    place_of(Path.cwd(), args.database)


def _resume(args: argparse.Namespace) -> int:
    from tipchain.nightly.nights import DamagedRecord, hold

    _check_places(args)
    night = _night(args)
    execution = given_options(args, night.options)
    lock = hold(night.folder)
    sound = sum(not isinstance(record, DamagedRecord) for record in night.records())
    if night.finished and sound == len(night.plan.items):
        print(say(f"nothing is left to do: {night.name} has finished"), file=sys.stderr)
        execution.pop("executor", None)  # no cluster is needed for that
    with closing(open_executor(execution)) as executor:
        return _go_on(night, lock, executor, args)


def _go_on(night: Night, lock: int, executor: LocalExecutor | RayExecutor, args: argparse.Namespace) -> int:
    """Run the unfinished items of a night that this process holds; tell their results."""
    from tipchain.nightly.coordinator import Coordinator
    from tipchain.nightly.night_report import NightView, night_as_report
    from tipchain.nightly.nights import read_results, usual_seconds
    from tipchain.report.write import with_page, write_report

    def keep(folder: Path) -> None:
        from tipchain.history.ingest import keep_night

        for message in keep_night(folder, args.database):
            print(say(message), file=sys.stderr)

    number, stream, execution = len(night.plan.items), text_stream(args), given_options(args, night.options)
    view = NightView(io.StringIO() if args.quiet else stream, number)
    coordinator = Coordinator(
        night,
        executor,
        view,
        require_gpu=bool(execution.get("require_gpu")),
        usual=usual_seconds(night.folder.parent),
        keep_dumps=execution.get("keep_dumps") != FAILED,
        sink=keep,
    )
    view.number = number - coordinator.left
    if not args.quiet:
        place = os.path.relpath(night.folder)
        print(
            say(f"night {night.name}: {coordinator.left} of {number} items to run, in {place}"), file=stream, flush=True
        )
    with os.fdopen(lock), view.screen:
        coordinator.run()
    seconds = coordinator.state().seconds or 0.0
    results = read_results(night.folder)
    try:
        changed = changed_lines(results, args.database) if args.github else ()
        report = night_as_report(results, seconds=seconds, interrupted=coordinator.interrupted, changed=changed)
        if not args.quiet:
            print(file=stream)  # below what the view has left
        report = with_page(report, args.html)
        write_report(report, args, root=Path(night.plan.root))
    except (UsageError, HistoryError) as error:
        if not coordinator.problem:
            raise OutputError(str(error)) from error
        print(say(f"error: {error}"), file=sys.stderr)
    if coordinator.problem:
        raise OutputError(
            f"{coordinator.problem}\n  {coordinator.left} items have not ended; what had ended is kept\n"
            f"  tipchain nightly resume {args.manifest} --night {night.name} goes on when that is mended"
        )
    return coordinator.exit_code


def _night(args: argparse.Namespace) -> Night:
    """Return the named night, and say if its manifest has changed since it began."""
    from tipchain.nightly.manifest import load_manifest
    from tipchain.nightly.nights import named_night

    try:
        manifest = load_manifest(args.manifest)
        sha256, nights = manifest.sha256, manifest.nights
    except InputError:
        if args.out is None or not args.manifest.is_file():
            raise
        sha256, nights = sha256_of(args.manifest), args.out
    night = named_night((args.out or nights).absolute(), args.night)
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

    from tipchain.nightly.coordinator import read_state
    from tipchain.nightly.night_report import state_lines
    from tipchain.nightly.nights import holder, read_results

    night = _night(args)
    who = holder(night.folder)
    results = read_results(night.folder)
    records = [record for _, record in results.ended]
    counts = Counter(record.outcome for record in records)
    state = replace(read_state(night), counts={one: counts[one] for one in Outcome})
    if not who:
        state = replace(state, running=(), left_s=None, waiting="")
    show(
        args.json,
        lambda: {
            "night": night.name,
            "folder": str(night.folder),
            "finished": night.finished,
            "holder": who,
            **as_json(state),
            "ended": state.ended,
            "items": {one.id: as_json(one) for one in records},
        },
        lambda: "\n".join(state_lines(night, state, who, terminal_width())),
    )
    return ExitCode.FAILED if any(counts[one] for one in BAD) else ExitCode.PASSED
