"""``tipchain rebaseline``: move a stored reference, with evidence that nothing but rounding changed."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.bundle.manifest import (
    BundleManifest,
    StoredBundle,
    identity,
    log_of,
    open_bundle,
    read_manifest,
    untold,
    who,
    write_move,
)
from tipchain.commands.bundle import add_making_arguments, default_folder
from tipchain.commands.options import STDOUT, add_json, add_root, check_data_path, write_document
from tipchain.core.files import check_writable, find_root, local_time
from tipchain.core.json_text import as_json
from tipchain.core.language import say
from tipchain.errors import BundleError, ExitCode, OutputError, UsageError, first_line
from tipchain.modes import Mode, parse_device, parse_mode

if TYPE_CHECKING:
    from tipchain.parity.case import Case


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "item", type=Path, metavar="ITEM", help="a bundle, or a case file whose bundle is at its usual place"
    )
    parser.add_argument("--why", required=True, metavar="TEXT", help="why it moves; it is recorded")
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
    parser.add_argument(
        "--new-weights",
        action="store_true",
        help="make the weights anew, too (default: the old bundle's are kept, so that only torch's doing can differ)",
    )
    parser.add_argument("--force", action="store_true", help="move it without evidence; that is recorded too")
    add_json(parser, "the decision")
    add_making_arguments(parser)
    add_root(parser)


def run(args: argparse.Namespace) -> int:
    """Move the reference or refuse to, and return the exit code."""
    if not args.why.strip():
        raise UsageError("--why is empty\n  expected: why the reference moves, in a sentence")
    if args.seed:
        raise UsageError("--seed: a bundle keeps the seed it was made with\n  tipchain bundle make takes another")
    check_data_path(args)
    check_writable({"--json": args.json})
    from tipchain.parity.case import load_case

    place: Path = args.item
    if not place.is_dir():
        if place.suffix not in (".yaml", ".yml"):
            raise UsageError(
                f"{place}: is no stored reference\n"
                "  expected: a bundle's folder, or a case file whose bundle is at its usual place\n"
                "  envelopes below test_tipc/data are made anew by themselves whenever what they rest on changes"
            )
        place = default_folder(load_case(place), parse_mode(args.mode))
    read_manifest(place)  # where there is none, no lock is left beside it
    try:
        with _locked(place):
            old = open_bundle(place)  # whoever had the lock may have moved it
            path = args.case or (args.item if args.item.is_file() else find_root(place.absolute()) / old.case.file)
            if not path.is_file():
                raise UsageError(f"no such case file: {path}\n  --case names it")
            case = load_case(path, old.reseed)
            if case.id != old.case.id:
                raise UsageError(f"{place}: is of another case\n  found: {old.case.id}\n  expected: {case.id}")
            with _new(args, place, old, case, parse_mode(old.mode)) as folder:
                return _decide(args, StoredBundle(place, old), StoredBundle(folder, open_bundle(folder)), case)
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


@contextmanager
def _new(args: argparse.Namespace, place: Path, old: BundleManifest, case: Case, mode: Mode) -> Iterator[Path]:
    """Yield the new bundle in a folder beside the old one; it is removed, if it is still there."""
    from tipchain.bundle.making import BundleFailedError, kept_weights, make_bundle, work_folder
    from tipchain.parity.align import AlignRequest

    with work_folder(place) as work:
        folder = work / "bundle"
        if args.new is not None:
            open_bundle(args.new)
            shutil.copytree(args.new, folder, dirs_exist_ok=True)
        else:
            request = AlignRequest(
                case=case,
                mode=mode,
                stages=tuple(one for one in old.stages if one in case.stages),
                folder=folder,
                device=str(parse_device(args.device)),
                data_path=args.data_path,
                timeout_s=args.timeout,
                threads=args.threads or old.threads,
                truth=not args.no_float64,
                given=None if args.new_weights else kept_weights(place, old, case),
            )
            stream = sys.stderr if args.json == "-" else sys.stdout
            try:
                make_bundle(request, say=lambda text: print(say(f"== {text}"), file=stream, flush=True))
            except BundleFailedError as error:
                hint = "" if args.new_weights else "\n  hint: where weights do not fit, --new-weights makes them"
                raise BundleFailedError(f"{place}: not moved: {error}{hint}") from error
        yield folder


def _decide(args: argparse.Namespace, old: StoredBundle, new: StoredBundle, case: Case) -> int:
    """Compare, and move where the evidence or ``--force`` lets it."""
    from tipchain.bundle.evidence import compare_bundles, false_statistics
    from tipchain.bundle.making import replace_folder
    from tipchain.parity.stages.judging import Rules

    place, was, now = old.folder, old.manifest, new.manifest
    # Refuse a bundle that could never take the other's place.
    for what, found, expected in (
        ("case", now.case.id, was.case.id),
        ("mode", now.mode, was.mode),
        ("seed", now.reseed, was.reseed),
    ):
        if found != expected:
            raise UsageError(f"{place}: the new bundle is of another {what}\n  found: {found}\n  expected: {expected}")
    if wrong := false_statistics(new.folder):
        raise BundleError("was not made by tipchain bundle make", file=args.new or new.folder, found=wrong)
    if was.content == now.content:
        # It would be the same; where the log tells of another one, it is recorded if forced to.
        other = untold(place, was)
        if other and args.force:
            move = _move(args, case, forced=True, old={}, new=identity(was), evidence=[])
            write_move(place, move)
            return _tell(args, [f"{place}: recorded in {log_of(place)} as it is"], {"moved": False, **move})
        lines = [f"{place}: is as it would be now; nothing to move", *([other] if other else [])]
        code = ExitCode.FAILED if other else ExitCode.PASSED
        return _tell(args, lines, {"moved": False, "evidence": []}, code)
    evidence = compare_bundles(old, new, Rules.of(case))
    accepted = bool(evidence) and all(one.accepted for one in evidence)
    told = [{"accepted": one.accepted, **as_json(one)} for one in evidence]
    move = _move(args, case, forced=not accepted, old=identity(was), new=identity(now), evidence=told)
    width = max((len(one.stage) for one in evidence), default=0)
    lines = [f"{'ok' if one.accepted else 'NO':<3} {one.stage:<{width}}  {one.reason}" for one in evidence]
    if not accepted and not args.force:
        lines.append(f"{place}: not moved; the evidence does not say rounding (--force moves it, and records that)")
        return _tell(args, lines, {"moved": False, **move, "forced": False}, ExitCode.FAILED)
    # First what is told, then the move: a kill between them leaves a line too many, never a move that nobody explains.
    write_move(place, move)
    try:
        replace_folder(place, new.folder)
    except BaseException as error:
        if _content(place) != now.content:
            undone = {key: move[key] for key in ("when", "who", "old", "new")}
            reason = first_line(error)
            write_move(place, {**undone, "why": f"not done after all: {reason}", "undone": True})
        raise
    how = "on this evidence" if accepted else "by force, without evidence"
    lines.append(f"{place}: moved {how}; {log_of(place)} tells who and why")
    return _tell(args, lines, {"moved": True, **move})


def _move(args: argparse.Namespace, case: Case, **facts: object) -> dict[str, object]:
    """Return what the log says of a move."""
    when = local_time()
    return {"when": when, "who": who(case.root), "why": args.why.strip(), **facts}


def _content(place: Path) -> str:
    """Return the content of the bundle that is at a place now; "" where there is none."""
    try:
        return read_manifest(place).content
    except BundleError:
        return ""


def _tell(
    args: argparse.Namespace, lines: Sequence[str], document: dict[str, object], code: ExitCode = ExitCode.PASSED
) -> int:
    print(say("\n".join(lines)), file=sys.stderr if args.json == STDOUT else sys.stdout)
    if args.json:
        write_document(args.json, document)
    return code
