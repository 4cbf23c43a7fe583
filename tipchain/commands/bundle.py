"""``tipchain bundle``: record torch's side of a case once, for machines without torch."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.devices import parse_device
from tipchain.errors import UsageError
from tipchain.modes import Mode, parse_mode
from tipchain.outcome import ExitCode
from tipchain.runs import MODE_VARIABLE

if TYPE_CHECKING:
    from tipchain.bundle.manifest import Manifest
    from tipchain.parity.case_types import Case

FOLDER = ("test_tipc", "bundles")
"""Where bundles are by default, below the project's root; a folder for each case and mode."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = actions.add_parser("make", help="record a case's torch side")
    make.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    make.add_argument(
        "--out", type=Path, metavar="DIR", help="the bundle (default test_tipc/bundles/CASE/MODE)"
    )
    make.add_argument(
        "--stages", "--steps", metavar="LIST", help="stage names or script numbers (default: all of the mode)"
    )
    add_making_arguments(make)
    for name, text in (("show", "say what a bundle holds"), ("verify", "check every file of a bundle")):
        action = actions.add_parser(name, help=text)
        action.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle's folder")
        if name == "show":
            action.add_argument("--json", action="store_true", help="print the manifest")


def add_making_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how torch's side is recorded."""
    mode = os.environ.get(MODE_VARIABLE) or Mode.LITE_TRAIN_LITE_INFER.value
    parser.add_argument("--mode", default=mode, metavar="MODE", help=f"TIPC mode (default {mode})")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, gpu or gpu:N (default cpu)")
    parser.add_argument(
        "--data-path", type=Path, metavar="DIR", help="data folder with train/ and val/ class folders"
    )
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds that each recording may take")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of the recording")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="add N to the seeds of the case and its fake inputs"
    )
    parser.add_argument(
        "--no-float64",
        action="store_true",
        help="leave float64 out: quicker, but the bundle then moves only if nothing at all changes",
    )


def check_making_arguments(args: argparse.Namespace) -> None:
    """Refuse values that cannot be.

    Raises:
        UsageError: naming the option.
    """
    if args.seed < 0:
        raise UsageError(f"--seed must be at least 0, found {args.seed}")
    if args.threads < 0:
        raise UsageError(f"--threads must be at least 1, found {args.threads}")
    if args.timeout is not None and not args.timeout > 0:
        raise UsageError(f"--timeout must be a number of seconds above 0, found {args.timeout}")
    if args.data_path is not None and not args.data_path.is_dir():
        raise UsageError(f"--data-path: no such folder: {args.data_path}")


def run(args: argparse.Namespace) -> int:
    """Make, show or verify a bundle."""
    return {"make": _make, "show": _show, "verify": _verify}[args.action](args)


def default_folder(case: Case, mode: Mode) -> Path:
    """Return where a case's bundle of a mode is if nobody says otherwise."""
    return case.root.joinpath(*FOLDER, case.id, mode.value)


def _make(args: argparse.Namespace) -> int:
    from tipchain.bundle.making import Wanted, make_bundle
    from tipchain.commands.align import choose_stages, from_root
    from tipchain.parity.case import load_case
    from tipchain.parity.names import parse_stages

    check_making_arguments(args)
    mode = parse_mode(args.mode)
    case = load_case(from_root(args.case), args.seed)
    stages = choose_stages(case, mode, parse_stages(args.stages) if args.stages else ())
    folder = args.out or default_folder(case, mode)
    wanted = Wanted(
        case=case, mode=mode, stages=stages, folder=folder, device=str(parse_device(args.device)),
        data_path=args.data_path, timeout_s=args.timeout, threads=args.threads, truths=not args.no_float64,
    )  # fmt: skip
    manifest = make_bundle(wanted, say=lambda text: print(f"== {text}", flush=True))
    print("\n".join(describe(folder, manifest)))
    return ExitCode.PASSED


def describe(folder: Path, manifest: Manifest) -> list[str]:
    """Return what a bundle holds, for people."""
    size = sum((folder / name).stat().st_size for name in manifest.files if (folder / name).is_file())
    truths = [stage for stage, reason in manifest.truths.items() if not reason]
    facts = {
        "case": f"{manifest.case.id} ({manifest.case.file}, sha256 {manifest.case.sha256[:12]}…)",
        "mode": manifest.mode + (f", seeds + {manifest.reseed}" if manifest.reseed else ""),
        "stages": ", ".join(manifest.stages),
        "float64": ", ".join(truths) or "none",
        **{f"  no {stage}": reason for stage, reason in manifest.truths.items() if reason},
        "torch": f"{manifest.torch or 'not run'} on {manifest.device or 'no device'}, {manifest.threads} threads",
        "versions": ", ".join(f"{name} {one}" for name, one in manifest.versions.items() if name != "torch"),
        "made": f"{manifest.created} by tipchain {manifest.tipchain}"
        + (f" at {manifest.commit}" if manifest.commit else ""),
        "files": f"{len(manifest.files)}, {size / 1e6:.1f} MB",
        "content": f"sha256 {manifest.content}",
    }
    return [str(folder), *(f"  {name:<9} {value}" for name, value in facts.items())]


def _show(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from tipchain.bundle.manifest import read_manifest
    from tipchain.bundle.moves import moves_of, untold

    manifest = read_manifest(args.bundle)
    if args.json:
        print(json.dumps({**asdict(manifest), "content": manifest.content}, indent=1, sort_keys=True))
        return ExitCode.PASSED
    print("\n".join(describe(args.bundle, manifest)))
    for move in moves_of(args.bundle):
        forced = ", forced" if move.get("forced") else ""
        word = "undone" if move.get("undone") else "moved"
        print(f"  {word:<9} {move.get('when')} by {move.get('who')}{forced}: {move.get('why')}")
    other = untold(args.bundle, manifest)
    if other:
        print(other, file=sys.stderr)
    return ExitCode.PASSED


def _verify(args: argparse.Namespace) -> int:
    from tipchain.bundle.manifest import damages, read_manifest
    from tipchain.bundle.moves import untold

    manifest = read_manifest(args.bundle)
    problems = damages(args.bundle, manifest)
    other = untold(args.bundle, manifest)
    for problem in (*problems, *([other] if other else [])):
        print(problem, file=sys.stderr)
    print(
        f"{args.bundle}: "
        + (f"{len(problems)} damaged" if problems else f"{len(manifest.files)} files as made")
    )
    return ExitCode.FAILED if problems or other else ExitCode.PASSED
