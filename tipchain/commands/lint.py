"""``tipchain lint``: what parameter files mean, what is wrong in them and in cases, where the originals do something else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tipchain.chain.coverage import is_checkout, survey
from tipchain.chain.kinds import KINDS
from tipchain.chain.lint import PATTERN, Disk, Found, Linted, lint_file, named_files
from tipchain.chain.slots import refusal
from tipchain.commands.options import STDOUT, add_json, add_root, add_strict, former, show
from tipchain.errors import CaseError, UsageError
from tipchain.language import say
from tipchain.modes import CHAIN_MODES, Mode, parse_mode
from tipchain.outcome import ExitCode
from tipchain.report.lint import (
    coverage_document,
    document_of,
    render_coverage,
    render_github,
    render_summary,
    render_text,
)
from tipchain.report.terminal import terminal_width, use_color

CASES = (".yaml", ".yml")
"""How the names of alignment cases end."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=f"parameter file, alignment case (.yaml), or a folder for all {PATTERN} below it",
    )
    add_json(parser, "the findings")
    parser.add_argument("--github", action="store_true", help="print GitHub's annotations instead of text")
    parser.add_argument("--format", choices=("text", "json", "github"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--chain", metavar="KIND", help=f"the kind of chain, told from each file if left out: {', '.join(KINDS)}"
    )
    parser.add_argument("--suite", help="whose layout the files have; told from each file if left out")
    parser.add_argument(
        "--mode", action="append", default=[], metavar="MODE", help="look at this mode; repeatable; all if left out"
    )
    add_strict(parser, "warnings count as errors")
    parser.add_argument(
        "--explain",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="say what each line means; by default for a single file",
    )
    parser.add_argument(
        "--summary", action="store_true", help="count the findings by kind instead of listing them (text)"
    )
    add_root(parser)
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="of each folder that holds a test_tipc: its drivers and files by kind of chain, and what can be run here",
    )


def run(args: argparse.Namespace) -> int:
    """Look at the files; 1 for errors, 2 for files that cannot be read, 4 where there are none."""
    if args.format is not None:
        former("--format json is now --json FILE|-, --format github is --github")
        args.json, args.github = STDOUT if args.format == "json" else args.json, args.format == "github"
    if args.coverage:
        return _coverage(args)
    modes = [parse_mode(name, tuple(Mode)) for name in dict.fromkeys(args.mode)] or list(CHAIN_MODES)
    paths = list(dict.fromkeys(named_files(args.files)))
    for empty in (one for one in args.files if not any(named_files([one]))):
        print(say(f"{'note' if paths else 'error'}: no {PATTERN} below {empty}"), file=sys.stderr)
    if not paths:
        return ExitCode.NOTHING_CHECKED
    explained = len(paths) == 1 and not args.summary if args.explain is None else args.explain
    disk = Disk()
    files = [
        _lint_case(path)
        if path.suffix in CASES
        else lint_file(path, chain=args.chain, suite=args.suite, modes=modes, explained=explained, disk=disk)
        for path in paths
    ]
    show(args.json, partial(document_of, files), partial(_rendered, files, args))
    if not all(one.readable for one in files):
        return ExitCode.USAGE
    wrong = any(one.count("error") or (args.strict and one.count("warning")) for one in files)
    return ExitCode.FAILED if wrong else ExitCode.PASSED


def _coverage(args: argparse.Namespace) -> int:
    """Show what of the named checkouts is covered.

    Raises:
        UsageError: a name is no checkout's.
    """
    for path in args.files:
        if not is_checkout(path):
            raise UsageError(f"{path}: --coverage wants a checkout's folder, which holds test_tipc with its drivers")
    found = [survey(path) for path in args.files]
    show(
        args.json,
        partial(coverage_document, found),
        lambda: "\n\n".join(render_coverage(one, width=terminal_width()) for one in found),
    )
    return ExitCode.PASSED if any(one.files for one in found) else ExitCode.NOTHING_CHECKED


def _lint_case(path: Path) -> Linted:
    """Return what is wrong with an alignment case; nothing that it names is imported."""
    from tipchain.parity.case import load_case

    try:
        load_case(path)
    except CaseError as error:
        return Linted(file=str(path), readable=False, found=(Found(finding=refusal(error, "case")),))
    return Linted(file=str(path))


def _rendered(files: Sequence[Linted], args: argparse.Namespace) -> str:
    if args.github:
        return render_github(files)
    width = terminal_width()
    if args.summary:
        text = render_summary(files, width=width, strict=args.strict)
    else:
        text = render_text(files, color=use_color(sys.stdout), width=width, strict=args.strict)
    checkouts = [path for path in args.files if is_checkout(path)]
    return "\n\n".join([text, *(render_coverage(survey(path), width=width) for path in checkouts)])
