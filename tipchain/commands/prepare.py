"""``tipchain prepare PARAMS MODE``: the data of a mode, then the weights of the file's case."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.errors import ParamsError, WeightsError
from tipchain.modes import Mode, parse_mode
from tipchain.outcome import ExitCode

if TYPE_CHECKING:
    from tipchain.parity.case import Case

PROJECT = Path(__file__).resolve().parents[2]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("params", metavar="PARAMS", type=Path, help="TIPC parameter file")
    parser.add_argument("mode", metavar="MODE", help="TIPC mode, e.g. lite_train_lite_infer")
    parser.add_argument("--data-only", action="store_true", help="prepare the data, not the weights")
    parser.add_argument("--force", action="store_true", help="make again what is there")
    parser.add_argument(
        "--data-path", type=Path, metavar="PATH",
        help="use this folder (train/<class>/, val/<class>/) instead of the shipped data",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prepare and return the exit code."""
    mode = parse_mode(args.mode)
    from tipchain.parity.case import load_case

    case_file = alignment_case(args.params)
    if case_file is None:
        print(f"{args.params}: names no alignment case; nothing to prepare")
        return ExitCode.PASSED
    case = load_case(case_file)
    _prepare_data(case, mode, args.data_path, force=args.force)
    return (
        ExitCode.PASSED if args.data_only else _prepare_weights(case, mode, args.data_path, force=args.force)
    )


def alignment_case(params: Path) -> Path | None:
    """Return the case file that ``params`` names in its section ``alignment_params``, or None.

    Raises:
        ParamsError: the file cannot be read, or its section has no ``alignment`` line.
    """
    from tipchain.chain.params import read_params
    from tipchain.parity.case import find_root

    file = read_params(params)
    if "alignment_params" not in [name for name, _ in file.headers]:
        return None
    for param in file.section("alignment_params"):
        if param.key == "alignment":
            name = param.value.strip()
            path = find_root(params) / name
            # A file outside the project means the project's case, as the runner and the scripts do.
            path = path if path.exists() or not (PROJECT / name).exists() else PROJECT / name
            return None if name in ("", "null") else path
    raise ParamsError(
        "the section has no 'alignment' line", file=params, key="alignment_params",
        expected="alignment:configs/alexnet.yaml",
    )  # fmt: skip


def _prepare_data(case: Case, mode: Mode, data_path: Path | None, *, force: bool) -> None:
    from tipchain.prepare.data import prepare_data
    from tipchain.prepare.image_folder import check_image_folder

    if data_path is not None:
        classes = check_image_folder(data_path)
        print(f"{data_path}: ready, {len(classes)} classes")
    else:
        kinds = (case.train_data(mode), case.eval_data(mode), mode.train_data, mode.eval_data)
        for kind in dict.fromkeys(kinds):
            prepare_data(case.root, kind, force=force, say=print)


def _prepare_weights(case: Case, mode: Mode, data_path: Path | None, *, force: bool) -> ExitCode:
    """Make the weights; a port that they do not fit is a failure of the port, not of the call."""
    from tipchain.parity.weights import prepare_weights

    try:
        weights = prepare_weights(case, mode, data_path=data_path, force=force)
    except WeightsError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitCode.FAILED
    print(f"{next(iter(weights.paths.values())).parent}: weights ready")
    return ExitCode.PASSED
