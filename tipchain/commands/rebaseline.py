"""``tipchain rebaseline``: show a stored reference before and after, ask for a reason, move it."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.bundle.manifest import Move, StoredBundle, open_bundle, read_manifest, who, write_manifest
from tipchain.commands.bundle import add_making_arguments, default_folder
from tipchain.commands.options import STDOUT, add_json, add_root, check_data_path, write_document
from tipchain.core.files import check_writable, find_root, local_time
from tipchain.core.json_text import as_json
from tipchain.core.language import escaped, many, padded, say
from tipchain.errors import ExitCode, OutputError, UsageError
from tipchain.modes import parse_device, parse_mode

if TYPE_CHECKING:
    from tipchain.bundle.moving import StageChange
    from tipchain.parity.case import Case


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "item", type=Path, metavar="ITEM", help="a bundle, or a case file whose bundle is at its usual place"
    )
    parser.add_argument("--why", metavar="TEXT", help="why it moves; it is recorded (default: you are asked)")
    parser.add_argument(
        "--with",
        dest="new",
        type=Path,
        metavar="BUNDLE",
        help="the new reference (default: it is made now, which takes torch)",
    )
    parser.add_argument(
        "--case", type=Path, metavar="CASE", help="the case file (default: the one that the bundle names)"
    )
    add_json(parser, "what changed")
    add_making_arguments(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> int:
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
