"""``tipchain bundle``: record torch's side of a case once, for machines without torch; move a recording, for a reason."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from tipchain.bundle.manifest import BundleManifest, Move, damages, open_bundle, read_manifest, who, write_manifest
from tipchain.commands.options import add_action, add_mode, add_options, add_timeout, check_data_path, run_action
from tipchain.core.files import local_time
from tipchain.core.language import escaped, escaped_lines, many, say, table
from tipchain.errors import ExitCode, OutputError, UsageError
from tipchain.modes import parse_device, parse_mode, parse_stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = add_action(actions, "make", "record a case's torch side", _make)
    make.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    add_options(
        make,
        out="the bundle (default test_tipc/bundles/CASE/MODE)",
        only="these stages alone: names or script numbers (default: all of the mode)",
    )
    add_mode(make)
    add_options(make, "device", "data_path")
    add_timeout(make, "what each recording may take")
    add_options(make, threads="threads of the recording", seed="add N to the seeds of the case and its fake inputs")
    add_options(make, "root")
    show = add_action(actions, "show", "say what a bundle holds, and check every file of it", _show)
    show.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle's folder")
    move = add_action(actions, "rebaseline", "move a stored reference, for a reason", _rebaseline)
    move.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle that is in use")
    move.add_argument("new", type=Path, metavar="NEW", help="the bundle that takes its place")
    move.add_argument("--why", metavar="TEXT", help="why it moves; it is recorded")


run = run_action


def _make(args: argparse.Namespace) -> int:
    from tipchain.bundle.making import make_bundle
    from tipchain.commands.align import from_root
    from tipchain.parity.align import AlignRequest, choose_stages
    from tipchain.parity.case import load_case

    check_data_path(args)
    mode = parse_mode(args.mode)
    case = load_case(from_root(args.case), args.seed)
    stages = choose_stages(case, mode, parse_stages(args.stages) if args.stages else ())
    folder = args.out or case.root / "test_tipc" / "bundles" / case.id / mode.value
    request = AlignRequest(
        case=case,
        mode=mode,
        stages=stages,
        folder=folder,
        device=str(parse_device(args.device)),
        data_path=args.data_path,
        timeout_s=args.timeout,
        threads=args.threads,
    )
    manifest = make_bundle(request, say=lambda text: print(say(f"== {text}"), flush=True))
    print("\n".join(describe(folder, manifest)))
    return ExitCode.PASSED


def describe(folder: Path, manifest: BundleManifest) -> list[str]:
    """Return the contents of a bundle, for people."""
    size = sum((folder / name).stat().st_size for name in manifest.files if (folder / name).is_file())
    facts = {
        "case": f"{manifest.case.id} ({manifest.case.file}, sha256 {manifest.case.sha256[:12]}…)",
        "mode": manifest.mode + (f", seeds + {manifest.reseed}" if manifest.reseed else ""),
        "stages": ", ".join(manifest.stages),
        "torch": f"{manifest.torch or 'not run'} on {manifest.device or 'no device'}, {many(manifest.threads, 'thread')}",
        "versions": ", ".join(f"{name} {one}" for name, one in manifest.versions.items() if name != "torch"),
        "made": f"{manifest.created} by tipchain {manifest.tipchain}"
        + (f" at {manifest.commit}" if manifest.commit else ""),
        "files": f"{len(manifest.files)}, {size / 1e6:.1f} MB",
        "content": f"sha256 {manifest.content}",
    }
    rows = [*facts.items(), *(("moved", f"{move.when} by {move.who}: {move.why}") for move in manifest.moves)]
    return [str(folder), *(f"  {line}" for line in table((say(name), say(escaped(value))) for name, value in rows))]


def _show(args: argparse.Namespace) -> int:
    manifest = read_manifest(args.bundle)
    print("\n".join(describe(args.bundle, manifest)))
    problems = damages(args.bundle, manifest)
    for problem in problems:
        print(escaped_lines(problem), file=sys.stderr)
    checked = f"{len(problems)} damaged" if problems else f"{len(manifest.files)} files as made"
    print(say(f"{args.bundle}: {checked}"))
    return ExitCode.FAILED if problems else ExitCode.PASSED


def _rebaseline(args: argparse.Namespace) -> int:
    from filelock import FileLock, Timeout

    from tipchain.bundle.moving import NEW, changed_facts, changed_stages, replace_bundle, work_folder

    place: Path = args.bundle
    read_manifest(place)  # where there is none, no lock is left beside it
    try:
        with (
            FileLock(place.absolute().parent / f".{place.absolute().name}.lock", timeout=0),
            work_folder(place) as work,
        ):
            was, now = open_bundle(place), open_bundle(args.new)
            for what, found, expected in (
                ("case", now.case.id, was.case.id),
                ("mode", now.mode, was.mode),
                ("seed", now.reseed, was.reseed),
            ):
                if found != expected:
                    raise UsageError(f"{args.new}: is of another {what}\n  found: {found}\n  expected: {expected}")
            if was.content == now.content:
                print(say(f"{place}: is as it would be now; nothing to move"))
                return ExitCode.PASSED
            stages = changed_stages([*was.stages, *now.stages], place, args.new)
            pairs = {
                name: " -> ".join(one or say("none") for one in pair) for name, pair in changed_facts(was, now).items()
            }
            print(say(f"{place}, before -> after:"))
            for line in table((escaped(name), say(escaped(text))) for name, text in (pairs | stages).items()):
                print(f"  {line}")
            why = (args.why or "").strip()
            if not why:
                raise UsageError(f"{place}: not moved, without a reason\n  expected: --why TEXT")
            shutil.copytree(args.new, work / NEW, dirs_exist_ok=True)
            step = Move(when=local_time(), who=who(place.absolute().parent), why=why, before=was.content)
            write_manifest(work / NEW, replace(now, moves=(*was.moves, step)))
            replace_bundle(place, work)
    except Timeout:
        raise UsageError(f"{place}: is being moved by another process") from None
    except OSError as error:
        raise OutputError(f"{place}: cannot be moved: {error}") from error
    print(say(f"{place}: moved; tipchain bundle show tells who and why"))
    return ExitCode.PASSED
