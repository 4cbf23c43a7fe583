"""``tipchain bundle``: record torch's side of a case once, for machines without torch."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.bundle.manifest import BundleManifest, damages, read_manifest
from tipchain.commands.options import (
    STDOUT,
    add_action,
    add_data_path,
    add_device,
    add_json,
    add_mode,
    add_out,
    add_root,
    add_seed,
    add_stages,
    add_threads,
    add_timeout,
    check_data_path,
    write_document,
)
from tipchain.core.language import escaped, escaped_lines, many, padded, say
from tipchain.errors import ExitCode
from tipchain.modes import Mode, parse_device, parse_mode, parse_stages

if TYPE_CHECKING:
    from tipchain.parity.case import Case

FOLDER = ("test_tipc", "bundles")
"""Where bundles are by default, below the project's root; a folder for each case and mode."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = add_action(actions, "make", "record a case's torch side")
    make.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    add_out(make, "the bundle (default test_tipc/bundles/CASE/MODE)")
    add_stages(make, "these stages alone: names or script numbers (default: all of the mode)")
    add_making_arguments(make)
    add_root(make)
    for name, text in (("show", "say what a bundle holds"), ("verify", "check every file of a bundle")):
        action = add_action(actions, name, text)
        action.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle's folder")
        if name == "show":
            add_json(action, "the manifest", once_alone=True)


def add_making_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare how torch's side is recorded."""
    add_mode(parser)
    add_device(parser)
    add_data_path(parser)
    add_timeout(parser, "what each recording may take")
    add_threads(parser, "threads of the recording")
    add_seed(parser, "add N to the seeds of the case and its fake inputs")


def run(args: argparse.Namespace) -> int:
    """Make, show or verify a bundle."""
    return {"make": _make, "show": _show, "verify": _verify}[args.action](args)


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
