"""``tipchain nightly gc``: delete nights by age, size and number, and say first which."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import count, seconds
from tipchain.core.language import aligned, clean, many, say
from tipchain.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from tipchain.nightly.cleanup import StoredNight


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
    parser.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(act=run)


def _size(text: str) -> int:
    from tipchain.core.quantities import MEMORY_EXPECTED, parse_mebibytes

    try:
        return parse_mebibytes(text) * 2**20
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {MEMORY_EXPECTED}") from None


def run(args: argparse.Namespace) -> int:
    """Delete; the exit code is 1 if something that should go is still there."""
    from tipchain.nightly.cleanup import RetentionRules, choose, delete, find_stored, size_text
    from tipchain.nightly.nights import NIGHTS

    rules = RetentionRules(older_than_s=args.older_than, max_bytes=args.max_size, keep=args.keep)
    if rules == RetentionRules():
        raise UsageError("no rule was given\n  expected: --older-than AGE, --max-size SIZE, --keep N")
    places = args.folders or [Path(NIGHTS)]
    for folder in places:
        if not folder.is_dir():
            raise UsageError(
                f"{folder}: is no folder\n  expected: a folder of nights, such as {NIGHTS} in the project's"
            )
    now = time.time()
    choice = choose(find_stored(places, now), rules, now)

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
    problems = []
    if choice.doomed and not args.dry_run:
        if not args.yes and not _agreed(choice.doomed):
            print(say("nothing was deleted"))
            return ExitCode.PASSED
        troubles = [(one, delete(one)) for one in choice.doomed]
        problems = [f"{_name(one)} is still there: {clean(trouble)}" for one, trouble in troubles if trouble]
    if rules.max_bytes is not None and choice.left > rules.max_bytes:
        problems.append(f"{size_text(choice.left)} must stay, more than --max-size")
    for problem in problems:
        print(say(f"error: {problem}"), file=sys.stderr)
    return ExitCode.FAILED if problems else ExitCode.PASSED


def _table(rows: Sequence[StoredNight], now: float) -> None:
    from tipchain.nightly.cleanup import days, size_text

    for one in rows:
        age = aligned(say(days(now - one.began)), 10)
        print(f"  {size_text(one.size):>9}  {age}  {_name(one)}\n{'':26}{say(clean(one.reason))}")


def _name(stored: StoredNight) -> str:
    name = os.path.relpath(stored.folder)
    return clean(str(stored.folder) if name.startswith("../..") else name)


def _many(doomed: Sequence[StoredNight]) -> str:
    rests = sum(one.rest for one in doomed)
    counts = {"night": len(doomed) - rests, "remainder": rests}
    return ", ".join(many(number, word) for word, number in counts.items() if number)


def _agreed(doomed: Sequence[StoredNight]) -> bool:
    """Ask whether to go on."""
    if not sys.stdin or not sys.stdin.isatty():
        raise UsageError("nothing was deleted: nobody is there to be asked\n  expected: --yes, or --dry-run")
    try:
        answer = input(say(f"delete {_many(doomed)}? [y/N] "))
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")
