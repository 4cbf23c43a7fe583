"""``tipchain lint``: what parameter files mean, what is wrong in them, and where the originals do something else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tipchain.chain.lint import PATTERN, Linted, lint_file, named_files
from tipchain.chain.lint_paths import Disk
from tipchain.modes import Mode, parse_mode
from tipchain.outcome import ExitCode
from tipchain.report.lint import render_github, render_json, render_summary, render_text
from tipchain.report.terminal import terminal_width, use_color


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help=f"parameter file, or a folder for all {PATTERN} below it",
    )
    parser.add_argument(
        "--format", choices=("text", "json", "github"), default="text", help="github: workflow commands"
    )
    parser.add_argument("--suite", help="whose layout the files have; told from each file if left out")
    parser.add_argument(
        "--mode",
        action="append",
        default=[],
        metavar="MODE",
        help="look at this mode; repeatable; all if left out",
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument(
        "--explain", action=argparse.BooleanOptionalAction, default=None,
        help="say what each line means; by default for a single file",
    )  # fmt: skip
    parser.add_argument(
        "--summary", action="store_true", help="count the findings by kind instead of listing them (text)"
    )


def run(args: argparse.Namespace) -> int:
    """Look at the files; 1 for errors, 2 for files that cannot be read, 4 where there are none."""
    modes = [parse_mode(name) for name in dict.fromkeys(args.mode)] or list(Mode)
    paths = list(dict.fromkeys(named_files(args.files)))
    for empty in (one for one in args.files if not any(named_files([one]))):
        print(f"{'note' if paths else 'error'}: no {PATTERN} below {empty}", file=sys.stderr)
    if not paths:
        return ExitCode.NOTHING_CHECKED
    explained = len(paths) == 1 and not args.summary if args.explain is None else args.explain
    disk = Disk()
    files = [lint_file(path, suite=args.suite, modes=modes, explained=explained, disk=disk) for path in paths]
    print(_rendered(files, args))
    return _exit_code(files, strict=args.strict)


def _rendered(files: Sequence[Linted], args: argparse.Namespace) -> str:
    if args.format == "json":
        return render_json(files)
    if args.format == "github":
        return render_github(files)
    if args.summary:
        return render_summary(files, width=terminal_width(), strict=args.strict)
    return render_text(files, color=use_color(sys.stdout), width=terminal_width(), strict=args.strict)


def _exit_code(files: Sequence[Linted], *, strict: bool) -> ExitCode:
    if not all(one.readable for one in files):
        return ExitCode.USAGE
    wrong = any(one.count("error") or (strict and one.count("warning")) for one in files)
    return ExitCode.FAILED if wrong else ExitCode.PASSED
