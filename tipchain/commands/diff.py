"""``tipchain diff``: compare two dumps."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands.options import STDOUT, add_json, add_tolerance, chosen_tolerance, write_document
from tipchain.core.files import check_writable, writing
from tipchain.core.language import WIDTH, columns, escaped, in_rows, language, padded, say
from tipchain.errors import Outcome, UsageError, exit_code, tally
from tipchain.framework_types import Array

if TYPE_CHECKING:
    from tipchain.numbers.tolerance import Tolerance
    from tipchain.numbers.verdicts import Verdict

SHARE = 1 << 26
"""Bytes of a side from which on a core of its own compares them: that takes ten times the work of its process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("reference", metavar="REF", help="dump of the reference (torch)")
    parser.add_argument("port", metavar="PORT", help="dump of the port (Paddle)")
    add_tolerance(parser, threshold="its largest accepted value (default 1e-6)")
    parser.add_argument("--equal-nan", action="store_true", help="NaN at the same positions is accepted")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write reprod_log's lines to FILE")
    add_json(parser, "the verdicts")


def run(args: argparse.Namespace) -> int:
    """Compare, print, write the requested files; 0 all passed, 1 not, 4 nothing compared."""
    if "numpy" not in sys.modules:
        # Nothing is multiplied here, and a process with threads of its own cannot be doubled.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from tipchain.numbers.dumps import load_record
    from tipchain.numbers.verdicts import render_verdicts, vacuous, write_diff_log

    if args.threshold is args.rtol is args.atol is None:
        args.threshold = 1e-6
    tolerance = chosen_tolerance(args, equal_nan=args.equal_nan)
    assert tolerance is not None
    check_writable({"--json": args.json, "--log": args.log})
    reference, port = load_record(args.reference), load_record(args.port)
    verdicts = compare_on_cores(reference.arrays, port.arrays, tolerance)
    warnings = {}
    for verdict in verdicts:
        proof = vacuous(verdict.diff, tolerance) if verdict.diff and verdict.outcome is Outcome.PASS else None
        if proof:
            warnings[verdict.subject] = proof
    code = 4 if not reference.arrays and not port.arrays else exit_code(v.outcome for v in verdicts)
    if args.json != STDOUT:
        lines: list[str] = []
        spoken = str if language() == "en" else say  # asked once for thousands of lines
        width = min(max(columns(one.subject) for one in verdicts), WIDTH - 30)
        for one in verdicts:
            parts = one.reason.split(" · ")
            # The last line says what was allowed.
            if one.outcome is Outcome.PASS:
                parts = [part for part in parts if not part.startswith("allowed")]
            # A name comes from the file: it must not steer the terminal.
            head = f"{one.outcome.value:<5}  {padded(escaped(one.subject), width)}  {spoken(parts[0])}"
            lines += in_rows(head, WIDTH, rest=" " * 9)
            if one.subject in warnings:
                parts.append(f"warning: {warnings[one.subject]}")
            for note in parts[1:]:
                lines += in_rows(spoken(note), WIDTH, " " * 7, " " * 9)
        print("\n".join(lines))
        summary = say(f"{len(verdicts)} compared: {tally(one.outcome for one in verdicts)}")
        print(f"\n{summary}  ({tolerance})")
    if args.json is not None:
        document = {
            "reference": args.reference,
            "port": args.port,
            "tolerance": str(tolerance),
            "exit_code": int(code),
            "verdicts": render_verdicts(verdicts),
            "warnings": warnings,
        }
        write_document(args.json, document)
    if args.log is not None:
        with writing(args.log, UsageError):
            write_diff_log(args.log, verdicts, tolerance)
    return int(code)


def compare_on_cores(
    reference: Mapping[str, Array], port: Mapping[str, Array], tolerance: Tolerance, share: int = SHARE
) -> list[Verdict]:
    """Return the verdicts of `tipchain.compare`, found on all cores where the arrays are large.

    Processes do what threads did not: NumPy lets go of Python's lock for microseconds at a time, and threads spent more
    on waiting for it than they gained. Each takes whole arrays, so that no fact depends on the number of cores.
    """
    from tipchain.numbers.verdicts import compare

    common = reference.keys() & port.keys()
    if sum(reference[name].nbytes for name in common) < 2 * share:
        return compare(reference, port, tolerance)
    from tipchain.core.machine import core_count, on_cores

    def compare_some(names: Collection[str]) -> list[Verdict]:
        mine, theirs = ({name: side[name] for name in side if name in names} for side in (reference, port))
        return compare(mine, theirs, tolerance)

    large = sorted(common, key=lambda name: (-reference[name].nbytes, name))
    parts = min(core_count(), sum(reference[name].nbytes for name in large) // share, len(large))
    if parts < 2:
        return compare(reference, port, tolerance)
    shares: list[list[str]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for name in large:
        least = sizes.index(min(sizes))
        shares[least].append(name)
        sizes[least] += reference[name].nbytes
    shares[0] += reference.keys() ^ port.keys()
    found = [verdict for some in on_cores([partial(compare_some, set(names)) for names in shares]) for verdict in some]
    verdicts = {verdict.subject: verdict for verdict in found}
    return [verdicts[name] for name in dict.fromkeys([*reference, *port])]
