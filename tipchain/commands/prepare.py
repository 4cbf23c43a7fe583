"""``tipchain prepare PARAMS MODE``: make the data of a mode.

In tipchain's own project, the data of the mode and then the weights of the file's case. In a suite's checkout, what the
suite's own ``test_tipc/prepare.sh`` fetches, checked.
"""

from __future__ import annotations

import argparse
import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.chain.params import read_params
from tipchain.chain.slots import alignment_params
from tipchain.commands.options import Parser, add_chain_mode, add_options, add_timeout, chain_mode
from tipchain.core.files import find_root
from tipchain.core.language import say
from tipchain.errors import DataError, ExitCode, UsageError, WeightsError
from tipchain.modes import DIGITS, NONE, OWN, Mode, data_folder

if TYPE_CHECKING:
    from tipchain.parity.case import Case

PROJECT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("params", metavar="PARAMS", type=Path, help="TIPC parameter file")
    add_chain_mode(parser)
    add_options(parser, "root")
    parser.add_argument("-q", "--quiet", action="store_true", help="show what came out alone, and no progress")
    parser.add_argument("--dry-run", action="store_true", help="show what would be run and checked")
    own = parser.add_argument_group("in tipchain's own project")
    own.add_argument("--data-only", action="store_true", help="prepare the data, not the weights")
    own.add_argument("--force", action="store_true", help="make again what is there")
    add_options(
        own,
        data_path="use this folder instead of the shipped data; laid out as they are, e.g. train/<class>/, val/<class>/",
    )
    suite = parser.add_argument_group(
        "in a suite's checkout", "The suite's own test_tipc/prepare.sh is run, and what it left is checked."
    )
    suite.add_argument("--suite", help="whose layout the file has; told from the file if left out")
    add_timeout(suite, "limit for the script")
    suite.add_argument(
        "--python",
        metavar="PATH",
        help="interpreter that the script runs with and installs for; the file's if left out",
    )
    suite.add_argument(
        "--keep-data", action="store_true", help="what the script deletes of what is there is put back afterwards"
    )


def run(args: argparse.Namespace) -> int:
    """Prepare and return the exit code."""
    if not args.quiet or args.dry_run:
        return _prepare(args)
    told = io.StringIO()
    try:
        with redirect_stdout(told):
            return _prepare(args)
    finally:  # the last line says what came out
        sys.stdout.writelines(f"{line}\n" for line in told.getvalue().splitlines()[-1:])


def _prepare(args: argparse.Namespace) -> int:
    from tipchain.prepare.suite import foreign_checkout

    mode = chain_mode(args)
    checkout = foreign_checkout(args.params) if alignment_case(args.params) is None else None
    own, suites = ("data_only", "force", "data_path"), ("suite", "timeout", "python", "keep_data")
    why = "is for the checkouts of suites that have a test_tipc/prepare.sh"
    if checkout is not None:
        why = f"is for tipchain's own project; in {checkout} its test_tipc/prepare.sh prepares"
    given = [f"--{name.replace('_', '-')}" for name in (own if checkout else suites) if getattr(args, name)]
    if given:
        raise UsageError(f"{args.params}: {', '.join(given)} {why}")
    return prepare_params(args, mode)


def prepare_params(args: argparse.Namespace, mode: Mode) -> int:
    """Prepare the needs of a parameter file's chain as the command's options say, and return the exit code."""
    from tipchain.parity.case import load_case
    from tipchain.prepare.suite import describe, foreign_checkout, plan_preparation, prepare_suite

    if (case_file := alignment_case(args.params)) is not None:
        case = load_case(case_file)
        if not args.dry_run:
            prepare_case_data(case, mode, args.data_path, force=args.force)
            return ExitCode.PASSED if args.data_only else _prepare_weights(case, mode, args.data_path, force=args.force)
        of = "" if case.data.set == DIGITS else f" of {case.data.set}"
        named = [str(args.data_path)] if args.data_path else [f"{kind} data{of}" for kind in _data_kinds(case, mode)]
        named += [] if args.data_only else [f"the weights of {case_file}"]
        print(say("\n".join(f"would prepare: {name}" for name in named)))
    elif (checkout := foreign_checkout(args.params)) is not None:
        preparation = plan_preparation(
            checkout, args.params, mode, args.suite, chain=args.chain, python=args.python, keep=args.keep_data
        )
        if not args.dry_run:
            return prepare_suite(preparation, args.timeout)
        print(say("\n".join(describe(preparation))))
    else:
        print(say(f"{args.params}: names no alignment case; nothing to prepare"))
    return ExitCode.PASSED


def prepare_chain_first(args: argparse.Namespace, stream: TextIO) -> int:
    """Prepare the needs of a command line's chain, and say so on ``stream``; return the exit code, 0 if it may run."""
    parser = Parser(prog="tipchain prepare")
    add_arguments(parser)
    wanted = parser.parse_args([str(args.params)])
    for name in ("chain", "suite", "python", "data_path"):
        setattr(wanted, name, getattr(args, name))
    with redirect_stdout(stream):
        code = prepare_params(wanted, chain_mode(args))
    if code in (ExitCode.PASSED, ExitCode.NOTHING_CHECKED):
        return ExitCode.PASSED
    print(say(f"error: {args.params}: could not be prepared; nothing was run"), file=sys.stderr)
    return code


def alignment_case(params: Path) -> Path | None:
    """Return the case file that ``params`` names in its section ``alignment_params``, or None.

    Raises:
        ParamsError: the file cannot be read, or its section is wrong.
    """
    asked = alignment_params(read_params(params))
    if asked is None:
        return None
    path = find_root(params) / asked.case
    # A file outside the project means the project's case, as the runner and the scripts do.
    return path if path.exists() or not (PROJECT / asked.case).exists() else PROJECT / asked.case


def _data_kinds(case: Case, mode: Mode) -> tuple[str, ...]:
    kinds = (case.train_data(mode), case.eval_data(mode), mode.train_data, mode.eval_data)
    return tuple(dict.fromkeys(kinds))


def prepare_case_data(case: Case, mode: Mode, data_path: Path | None, *, force: bool = False) -> None:
    """Prepare a case's data; aligning makes the weights of the sides that it runs itself.

    Raises:
        DataError: the user's own data are not there, or not what the case needs.
    """
    from tipchain.prepare.data import check_own_data, prepare_data

    if data_path is None and case.data.set == NONE:
        print(say(f"{case.path}: its data sets need no folder"))
        return
    if data_path is None and case.data.set == OWN:
        data_path = case.root / data_folder("lite", OWN)
        if not data_path.exists():
            raise DataError(
                "this case brings its own data, and they are not there",
                file=data_path,
                hint="--data-path names their folder; or put it, or a link to it, there",
            )
    if data_path is not None:
        classes = check_own_data(data_path, case.data.set)
        outputs = case.model_args.get("num_classes")
        if isinstance(outputs, int) and len(classes) > outputs:
            raise DataError(
                "has more classes than the model",
                file=data_path,
                found=len(classes),
                expected=f"at most {outputs}: {case.path}, model_args.num_classes",
                hint=f"a copy of the case with num_classes: {len(classes)}, and of the parameter file that names it",
            )
        print(say(f"{data_path}: ready" + (f", {len(classes)} classes" if classes else "")))
    else:
        for kind in _data_kinds(case, mode):
            prepare_data(case.root, kind, case.data.set, force=force, say=print)


def _prepare_weights(case: Case, mode: Mode, data_path: Path | None, *, force: bool) -> ExitCode:
    """Make the weights; a port that they do not fit is a failure of the port, not of the call.

    Those of single stages are made as well; if they cannot be, their stages say why.
    """
    from tipchain.parity.weights import prepare_variants, variants_with_weights

    variants = [case, *(one for one in variants_with_weights(case, case.stages) if one.variant)]
    weights, *_ = prepare_variants(variants, mode, data_path=data_path, force=force)
    if isinstance(weights, WeightsError):
        print(say(f"error: {weights}"), file=sys.stderr)
        return ExitCode.FAILED
    if isinstance(weights, Exception):
        raise weights
    print(say(f"{next(iter(weights.paths.values())).parent}: weights ready"))
    return ExitCode.PASSED
