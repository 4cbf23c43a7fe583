"""``tipchain convert-weights``: make a Paddle weight file from a torch one, or a torch one from a Paddle one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from tipchain.commands.options import add_options
from tipchain.core.files import find_root
from tipchain.core.language import escaped, escaped_lines, say
from tipchain.errors import ExitCode, UsageError
from tipchain.framework_types import Function, Model

SUFFIXES = {"torch": (".pth", ".pt", ".bin", ".ckpt", ".tar"), "paddle": (".pdparams",)}
"""The endings of files of either framework; both may also be ``.safetensors``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--torch", type=Path, required=True, metavar="FILE", help="torch weight file (.pth, .pt, .safetensors)"
    )
    parser.add_argument(
        "--paddle", type=Path, required=True, metavar="FILE", help="Paddle weight file (.pdparams, .safetensors)"
    )
    parser.add_argument(
        "--to", choices=("paddle", "torch"), default="paddle", help="which of the two is written (default: paddle)"
    )
    parser.add_argument(
        "--case", type=Path, metavar="CASE", help="case that names both models, such as configs/alexnet.yaml"
    )
    parser.add_argument(
        "--reference", metavar="M:C", help="module:callable that returns the torch model, without a case"
    )
    parser.add_argument("--port", metavar="M:C", help="module:callable that returns the Paddle model")
    parser.add_argument("--model-args", metavar="JSON", help="arguments of both builders, without a case")
    add_options(parser, "names")
    parser.add_argument("-v", "--verbose", action="store_true", help="list all that a refusal counts")
    add_options(parser, "root")


def run(args: argparse.Namespace) -> int:
    """Convert, verify, and name the written file and the layers matched by structure.

    Raises:
        UsageError: arguments that do not fit together.
        WeightsError: a weight file that cannot be used or written, or tensors that could not be matched.
    """
    # Refuse names that say the other framework: most likely the two were exchanged.
    for flag, path, other in (("--torch", args.torch, "paddle"), ("--paddle", args.paddle, "torch")):
        if path.suffix in SUFFIXES[other]:
            own = ", ".join((*SUFFIXES["torch" if other == "paddle" else "paddle"], ".safetensors"))
            raise UsageError(f"{flag} {path}: {path.suffix} is a {other} file\n  expected: {own}")
    torch_model, paddle_model, names, ignore = _models(args)
    if args.names is not None:
        from tipchain.weights.given_names import read_names

        given = read_names(args.names)
        names, ignore = given.names, given.ignore
    from tipchain.weights.convert import convert_file
    from tipchain.weights.matching import UnmatchedError

    try:
        back = args.to == "torch"
        done = convert_file(torch_model, args.torch, paddle_model, args.paddle, names, ignore, back=back)
    except UnmatchedError as error:
        if args.verbose:
            raise error.at(error.file, in_full=True) from error
        raise
    print(say(escaped_lines(str(done.match))), end="\n" if str(done.match) else "")
    kept = "as the torch model has it, for Paddle has none" if back else "left behind, for Paddle has none"
    known = {*done.match.slots, *done.match.tied, *done.match.left}
    constant = [name.rpartition(".")[2] for name in torch_model.state_dict() if name not in known]
    for leaf, count in ((leaf, constant.count(leaf)) for leaf in dict.fromkeys(constant)):
        print(say(f"{escaped(leaf)} ({count} times): {kept}"))
    written = args.torch if back else args.paddle
    print(say(f"wrote {written}: {len(done.match.slots)} torch tensors converted and verified by loading"))
    return ExitCode.PASSED


def _models(args: argparse.Namespace) -> tuple[Model, Model, Mapping[str, str], tuple[str, ...]]:
    """Return the torch model, the Paddle model, the names that differ and the ignored ones."""
    from tipchain.frameworks.base import checking, resolve
    from tipchain.parity.case import load_case, open_builder

    by_hand = {"--reference": args.reference, "--port": args.port, "--model-args": args.model_args}
    if args.case is not None:
        given = [flag for flag, value in by_hand.items() if value is not None]
        if given:
            raise UsageError(f"{', '.join(given)} cannot stand beside --case, which names the models")
        case = load_case(args.case)

        def opened(side: str) -> Function:
            return open_builder(case, side, "model")

        model_args, names, ignore = dict(case.model_args), case.weights.names, case.weights.ignore
    else:
        if args.reference is None or args.port is None:
            raise UsageError("give either --case, or both --reference and --port")
        specs, root = {"torch": args.reference, "paddle": args.port}, find_root(Path.cwd() / "here")
        try:
            found = json.loads(args.model_args or "{}")
        except ValueError as error:
            raise UsageError(f"--model-args is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise UsageError(f"--model-args must be a JSON object, found {args.model_args}")

        def opened(side: str) -> Function:
            return checking("model", side, resolve(specs[side], root, side))

        model_args, names, ignore = found, {}, ()
    from tipchain.frameworks import load_framework

    for name in ("torch", "paddle"):  # torch must come first where both share a process
        load_framework(name)
    torch_model, paddle_model = (opened(side)(**model_args) for side in ("torch", "paddle"))
    return torch_model, paddle_model, names, ignore
