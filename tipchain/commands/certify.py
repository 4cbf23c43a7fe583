"""``tipchain case certify``: which faults would have been caught, had the port had them."""

from __future__ import annotations

import argparse

from tipchain.commands.locate import add_source_arguments, read_request, tell
from tipchain.commands.options import count
from tipchain.core.files import check_writable

MOST = 24
TIMEOUT_S = 7200.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_source_arguments(parser, TIMEOUT_S)
    parser.add_argument(
        "--most",
        type=count("faults"),
        default=MOST,
        metavar="N",
        help=f"faults that are planted at most (default {MOST})",
    )


def run(args: argparse.Namespace) -> int:
    """Plant faults into copies of the port, say which were caught, and return the exit code."""
    from tipchain.live.worker import launch

    check_writable({"--json": args.json})
    request = read_request(args, causes=False)
    done = launch({**request, "certify": args.most}, timeout_s=args.timeout, quiet=args.quiet)
    tell(done, args)
    return done.exit_code
