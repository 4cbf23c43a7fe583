"""``tipchain gc``: delete nights and runs by age, size and number, and say first which."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tipchain.bundle.manifest import who
from tipchain.commands.options import count, seconds
from tipchain.core.files import writing
from tipchain.core.language import aligned, clean, many, say
from tipchain.errors import ExitCode, UsageError
from tipchain.nightly.cleanup import (
    PIN,
    RUNS,
    CleanupChoice,
    RetentionRules,
    StoredFolder,
    choose,
    days,
    delete,
    find_stored,
    pin,
    pin_text,
    size_text,
)
from tipchain.nightly.nights import NIGHTS, find_nights, named_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="NIGHTS", help="folders of nights (default tipchain-nights)"
    )
    parser.add_argument("--older-than", type=seconds, metavar="AGE", help="delete what is older, as 30d or 12h")
    parser.add_argument(
        "--max-size", type=_size, metavar="SIZE", help="then delete the oldest until no more is there, as 20GiB"
    )
    parser.add_argument(
        "--keep",
        type=count("nights"),
        metavar="N",
        help="never delete the latest N of each manifest; without other rules, delete all but those",
    )
    parser.add_argument(
        "--runs", action="store_true", help="the runs below test_tipc/output too, N for each model and mode"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    pins = parser.add_mutually_exclusive_group()
    pins.add_argument(
        "--pin",
        metavar="NIGHT",
        help="let no rule delete this night or run: its folder, its name, a part of it, or latest",
    )
    pins.add_argument("--unpin", metavar="NIGHT", help="let rules delete it again")
    parser.add_argument("--why", metavar="TEXT", help="why a night is pinned")


def _size(text: str) -> int:
    from tipchain.core.quantities import MEMORY_EXPECTED, parse_mebibytes

    try:
        return parse_mebibytes(text) * 2**20
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {MEMORY_EXPECTED}") from None


def run(args: argparse.Namespace) -> int:
    """Delete, or pin; the exit code is 1 if something that should go is still there."""
    if args.pin or args.unpin:
        return _pin(args)
    if args.why:
        raise UsageError("--why goes with --pin")
    rules = RetentionRules(older_than_s=args.older_than, max_bytes=args.max_size, keep=args.keep)
    if rules == RetentionRules():
        raise UsageError("tipchain gc: no rule was given\n  expected: --older-than AGE, --max-size SIZE, --keep N")
    now = time.time()
    nights, runs = _places(args)
    stored = find_stored(nights, runs, now)
    if not nights and not runs and not stored:
        raise UsageError(
            f"{NIGHTS}: is not here\n  expected: the project's folder to be the current one, or a folder of nights"
        )
    choice = choose(stored, rules, now)

    if choice.doomed:
        freed = size_text(choice.total - choice.left)
        said = f"{'would delete' if args.dry_run else 'to be deleted'}: {_many(choice.doomed)}, {freed} of {size_text(choice.total)}"
        print(say(said))
        _table(choice.doomed, now)
    else:
        print(say(f"nothing is to be deleted; {size_text(choice.total)} are there"))
    if choice.spared:
        print(say("stays, whatever the rules say:"))
        _table(choice.spared, now)
    if args.dry_run or not choice.doomed:
        return _end(choice, rules, ())
    if not args.yes and not _agreed(choice):
        print(say("nothing was deleted"))
        return ExitCode.PASSED
    troubles = [(one, delete(one)) for one in choice.doomed]
    problems = [f"{_name(one)} is still there: {clean(trouble)}" for one, trouble in troubles if trouble]
    return _end(choice, rules, problems)


def _places(args: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    """Return folders of nights, and of runs."""
    for folder in args.folders:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is no folder")
    nights = [one for one in args.folders or [Path(NIGHTS)] if one.is_dir()]
    runs = sorted(Path.cwd().glob(RUNS)) if args.runs else []
    return nights, runs


def _table(rows: Sequence[StoredFolder], now: float) -> None:
    for one in rows:
        age = aligned(say(days(now - one.began)), 10)
        print(f"  {size_text(one.size):>9}  {age}  {_name(one)}\n{'':26}{say(clean(one.reason))}")


def _name(stored: StoredFolder) -> str:
    name = os.path.relpath(stored.folder)
    return clean(str(stored.folder) if name.startswith("../..") else name)


def _many(doomed: Sequence[StoredFolder]) -> str:
    counts: Counter[str] = Counter(one.kind for one in doomed)
    words = {"night": "night", "run": "run", "rest": "remainder"}
    return ", ".join(many(counts[kind], word) for kind, word in words.items() if counts[kind])


def _agreed(choice: CleanupChoice) -> bool:
    """Ask whether to go on."""
    if not sys.stdin or not sys.stdin.isatty():
        raise UsageError("nothing was deleted: nobody is there to be asked\n  expected: --yes, or --dry-run")
    try:
        answer = input(say(f"delete {_many(choice.doomed)}? [y/N] "))
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")


def _end(choice: CleanupChoice, rules: RetentionRules, problems: Sequence[str]) -> int:
    for problem in problems:
        print(say(f"error: {problem}"), file=sys.stderr)
    too_much = rules.max_bytes is not None and choice.left > rules.max_bytes
    if too_much:
        print(say(f"error: {size_text(choice.left)} must stay, more than --max-size"), file=sys.stderr)
    return ExitCode.FAILED if problems or too_much else ExitCode.PASSED


def _pin(args: argparse.Namespace) -> int:
    if args.pin and not (args.why or "").strip():
        raise UsageError('tipchain gc: --pin needs a reason\n  expected: --why "..."')
    nights, _ = _places(args)
    stored = [*(one for folder in nights for one in find_nights(folder)), *Path.cwd().glob(f"{RUNS}/[0-9]*/")]
    folder = named_folder(args.pin or args.unpin, stored)
    if not args.pin and not (folder / PIN).exists():
        raise UsageError(f"{folder}: is not pinned")
    with writing(folder / PIN, UsageError):
        if args.pin:
            pin(folder, who=who(Path.cwd()), why=args.why.strip())
            print(say(f"{folder}: {clean(pin_text(folder))}"))
        else:
            (folder / PIN).unlink()
            print(say(f"{folder}: is not pinned any more"))
    return ExitCode.PASSED
