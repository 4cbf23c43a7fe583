"""``tipchain bundle``: record torch's side of a case once, for machines without torch; move what was recorded, for a reason."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.bundle.manifest import (
    BundleManifest,
    Move,
    StoredBundle,
    damages,
    open_bundle,
    read_manifest,
    who,
    write_manifest,
)
from tipchain.commands.options import (
    STDOUT,
    add_action,
    add_json,
    add_mode,
    add_options,
    add_timeout,
    check_data_path,
    write_document,
)
from tipchain.core.files import check_writable, find_root, local_time
from tipchain.core.json_text import as_json
from tipchain.core.language import escaped, escaped_lines, many, padded, say
from tipchain.errors import ExitCode, OutputError, UsageError
from tipchain.modes import Mode, parse_device, parse_mode, parse_stages

if TYPE_CHECKING:
    from tipchain.bundle.moving import StageChange
    from tipchain.parity.case import Case

FOLDER = ("test_tipc", "bundles")
"""Where bundles are by default, below the project's root; a folder for each case and mode."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = add_action(actions, "make", "record a case's torch side")
    make.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    add_options(
        make,
        out="the bundle (default test_tipc/bundles/CASE/MODE)",
        only="these stages alone: names or script numbers (default: all of the mode)",
    )
    add_making_arguments(make)
    add_options(make, "root")
    for name, text in (("show", "say what a bundle holds"), ("verify", "check every file of a bundle")):
        action = add_action(actions, name, text)
        action.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle's folder")
        if name == "show":
            add_json(action, "the manifest")
    move = add_action(actions, "rebaseline", "move a stored reference, for a reason")
    move.add_argument(
        "item", type=Path, metavar="ITEM", help="a bundle, or a case file whose bundle is at its usual place"
    )
    move.add_argument("--why", metavar="TEXT", help="why it moves; it is recorded (default: you are asked)")
    move.add_argument(
        "--with",
        dest="new",
        type=Path,
        metavar="BUNDLE",
        help="the new reference (default: it is made now, which takes torch)",
    )
    move.add_argument(
        "--case", type=Path, metavar="CASE", help="the case file (default: the one that the bundle names)"
    )
    add_json(move, "what changed")
    add_making_arguments(move)
    add_options(move, "root")


def add_making_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how torch's side is recorded."""
    add_mode(parser)
    add_options(parser, "device", "data_path")
    add_timeout(parser, "what each recording may take")
    add_options(parser, threads="threads of the recording", seed="add N to the seeds of the case and its fake inputs")


def run(args: argparse.Namespace) -> int:
    """Make, show, verify or move a bundle."""
    return {"make": _make, "show": _show, "verify": _verify, "rebaseline": _rebaseline}[args.action](args)


def default_folder(case: Case, mode: Mode) -> Path:
    """Return where a case's bundle of a mode is if nobody says otherwise."""
    return case.root.joinpath(*FOLDER, case.id, mode.value)


def _make(args: argparse.Namespace) -> int:
    from tipchain.bundle.making import make_bundle
    from tipchain.commands.align import from_root
    from tipchain.parity.align import AlignRequest, choose_stages
    from tipchain.parity.case import load_case

    check_data_path(args)
    mode = parse_mode(args.mode)
    case = load_case(from_root(args.case), args.seed)
    stages = choose_stages(case, mode, parse_stages(args.stages) if args.stages else ())
    folder = args.out or default_folder(case, mode)
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
    """Return what a bundle holds, for people."""
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
    return [str(folder), *(f"  {padded(say(name), 9)} {say(escaped(value))}" for name, value in facts.items())]


def _show(args: argparse.Namespace) -> int:
    manifest = read_manifest(args.bundle)
    if args.json:
        document = {**asdict(manifest), "content": manifest.content}
        write_document(args.json, dict(sorted(document.items())))
        if args.json == STDOUT:
            return ExitCode.PASSED
    print("\n".join(describe(args.bundle, manifest)))
    for move in manifest.moves:
        print(f"  {padded(say('moved'), 9)} {say(escaped(f'{move.when} by {move.who}: {move.why}'))}")
    return ExitCode.PASSED


def _verify(args: argparse.Namespace) -> int:
    manifest = read_manifest(args.bundle)
    problems = damages(args.bundle, manifest)
    for problem in problems:
        print(escaped_lines(problem), file=sys.stderr)
    print(
        say(f"{args.bundle}: " + (f"{len(problems)} damaged" if problems else f"{len(manifest.files)} files as made"))
    )
    return ExitCode.FAILED if problems else ExitCode.PASSED


def _rebaseline(args: argparse.Namespace) -> int:
    """Show what changed, and move the reference for a reason; return the exit code."""
    if args.why is None and not (sys.stdin and sys.stdin.isatty()):
        raise UsageError("nobody is there to be asked why the reference moves\n  expected: --why TEXT")
    if args.why is not None and not args.why.strip():
        raise UsageError("--why is empty\n  expected: why the reference moves, in a sentence")
    if args.seed:
        raise UsageError("--seed: a bundle keeps the seed it was made with\n  tipchain bundle make takes another")
    check_data_path(args)
    check_writable({"--json": args.json})
    from tipchain.parity.case import load_case

    place: Path = args.item
    if not place.is_dir() and place.suffix in (".yaml", ".yml"):
        place = default_folder(load_case(place), parse_mode(args.mode))
    try:
        read_manifest(place)  # where there is none, no lock is left beside it
        with _locked(place):
            old = open_bundle(place)  # whoever had the lock may have moved it
            path = args.case or (args.item if args.item.is_file() else find_root(place.absolute()) / old.case.file)
            if not path.is_file():
                raise UsageError(f"no such case file: {path}\n  --case names it")
            case = load_case(path, old.reseed)
            if case.id != old.case.id:
                raise UsageError(f"{place}: is of another case\n  found: {old.case.id}\n  expected: {case.id}")
            with _new(args, StoredBundle(place, old), case) as work:
                return _move(args, StoredBundle(place, old), work, case)
    except OSError as error:
        raise OutputError(f"{place}: cannot be moved: {error}") from error


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(place.absolute().parent / f".{place.absolute().name}.lock", timeout=0):
            yield
    except Timeout:
        raise UsageError(f"{place}: is being moved by another process") from None


def _stream(args: argparse.Namespace) -> TextIO:
    return sys.stderr if args.json == STDOUT else sys.stdout


@contextmanager
def _new(args: argparse.Namespace, old: StoredBundle, case: Case) -> Iterator[Path]:
    """Yield a folder beside the old bundle with the new one in it."""
    from tipchain.bundle.making import BundleFailedError, make_bundle
    from tipchain.bundle.moving import NEW, work_folder
    from tipchain.parity.align import AlignRequest

    with work_folder(old.folder) as work:
        if args.new is not None:
            open_bundle(args.new)
            shutil.copytree(args.new, work / NEW, dirs_exist_ok=True)
        else:
            request = AlignRequest(
                case=case,
                mode=parse_mode(old.manifest.mode),
                stages=tuple(one for one in old.manifest.stages if one in case.stages),
                folder=work / NEW,
                device=str(parse_device(args.device)),
                data_path=args.data_path,
                timeout_s=args.timeout,
                threads=args.threads or old.manifest.threads,
            )
            try:
                make_bundle(request, say=lambda text: print(say(f"== {text}"), file=_stream(args), flush=True))
            except BundleFailedError as error:
                raise BundleFailedError(f"{old.folder}: not moved: {error}") from error
        yield work


def _move(args: argparse.Namespace, old: StoredBundle, work: Path, case: Case) -> int:
    """Show both bundles side by side, and put the new one in the old one's place if there is a reason to."""
    from tipchain.bundle.moving import NEW, changed_facts, changed_stages, replace_bundle

    place, was, now = old.folder, old.manifest, open_bundle(work / NEW)
    for what, found, expected in (
        ("case", now.case.id, was.case.id),
        ("mode", now.mode, was.mode),
        ("seed", now.reseed, was.reseed),
    ):
        if found != expected:
            raise UsageError(f"{place}: the new bundle is of another {what}\n  found: {found}\n  expected: {expected}")
    stream, moved, why = _stream(args), False, ""
    facts, stages = changed_facts(was, now), changed_stages(old, StoredBundle(work / NEW, now))
    if was.content == now.content:
        print(say(f"{place}: is as it would be now; nothing to move"), file=stream)
    else:
        width = max(map(len, (*facts, *(change.stage for change in stages))))
        print(say(f"{place}, before -> after:"), file=stream)
        for name, pair in facts.items():
            before, after = (escaped(one) or say("none") for one in pair)
            print(f"  {padded(escaped(name), width)}  {before} -> {after}", file=stream)
        for change in stages:
            print(f"  {padded(escaped(change.stage), width)}  {say(escaped(_in_words(change)))}", file=stream)
        why = args.why.strip() if args.why else _ask(stream)
        moved = bool(why)
    if moved:
        step = Move(when=local_time(), who=who(case.root), why=why, before=was.content)
        write_manifest(work / NEW, replace(now, moves=(*was.moves, step)))
        replace_bundle(place, work)
        print(say(f"{place}: moved; tipchain bundle show tells who and why"), file=stream)
    elif was.content != now.content:
        print(say(f"{place}: not moved, without a reason"), file=stream)
    if args.json:
        told = [{"name": name, "before": before, "after": after} for name, (before, after) in facts.items()]
        document = {"moved": moved, "why": why, "before": was.content, "after": now.content}
        write_document(args.json, {**document, "facts": told, "stages": as_json(stages)})
    return ExitCode.PASSED


def _in_words(change: StageChange) -> str:
    """Return how the dumps of a stage changed."""
    counts = {"gone": change.gone, "new": change.new, "of another shape or dtype": change.reshaped}
    parts = [f"{count} {word}" for word, count in counts.items() if count]
    if change.moved:
        largest = f"{change.largest} by up to {change.difference:.3g} of {change.scale:.3g}"
        parts.insert(0, f"{change.moved} of {many(change.arrays, 'array')} moved, {largest}")
    return "; ".join(parts) or f"{many(change.arrays, 'array')} as before"


def _ask(stream: TextIO) -> str:
    print(say("why does the reference move? (nothing: it stays) "), end="", file=stream, flush=True)
    return sys.stdin.readline().strip()
