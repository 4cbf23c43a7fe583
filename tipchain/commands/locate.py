"""``tipchain locate``: which layer of a port is at fault, and how far each is off by itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.errors import OutputError, UsageError
from tipchain.modes import Mode
from tipchain.runs import MODE_VARIABLE, check_writable

SHOWN = 12
"""Layers that are listed at most."""
TIMEOUT_S = 1800.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_source_arguments(parser, TIMEOUT_S)
    for name, what in (
        ("data", "data: data sets, loaders or iterables, or what returns them"),
        ("metrics", "metrics, called with outputs and labels"),
        ("predict", "deployment codes, called with model and raw sample"),
    ):
        parser.add_argument(
            f"--{name}", nargs=2, metavar=("TORCH", "PADDLE"), help=f"module:callable of both {what}"
        )
    parser.add_argument(
        "--samples",
        type=Path,
        metavar="FILE",
        help=".npz of raw samples; --data then names transforms of one, --predict is given them",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as one HTML file")
    add_within(parser)


def add_within(parser: argparse.ArgumentParser) -> None:
    """Declare how long it may be looked for."""
    parser.add_argument(
        "--within",
        type=_seconds,
        metavar="TIME",
        help="begin nothing new after this (60s, 5m): what was found is told",
    )


def _seconds(text: str) -> float:
    from tipchain.nightly.quantities import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def add_source_arguments(parser: argparse.ArgumentParser, timeout_s: float) -> None:
    """Declare where the models come from, how they are run, and where the JSON goes."""
    mode = os.environ.get(MODE_VARIABLE) or Mode.LITE_TRAIN_LITE_INFER.value
    parser.add_argument("case", nargs="?", type=Path, metavar="CASE", help="the case's YAML file, or:")
    parser.add_argument("--reference", metavar="M:C", help="module:callable that returns the torch module")
    parser.add_argument("--port", metavar="M:C", help="module:callable that returns the Paddle layer")
    parser.add_argument(
        "--inputs",
        type=Path,
        metavar="FILE",
        help=".npz of arrays by argument of forward (args_0, ...; labels, labels_0, ... or labels.KEY)",
    )
    for name, what in (
        ("loss", "losses, called with output and labels"),
        ("optimizers", "builders of optimizers"),
        ("schedulers", "builders of schedules (none: that side has none)"),
        ("clip", "loops' clipping of gradients, called with the parameters (none: that side has none)"),
        (
            "step",
            "training steps: (model, optimizer, batch), or (model, optimizer) for one that keeps something",
        ),
    ):
        parser.add_argument(
            f"--{name}", nargs=2, metavar=("TORCH", "PADDLE"), help=f"module:callable of both {what}"
        )
    parser.add_argument(
        "--outputs",
        nargs="+",
        metavar="WHAT",
        help="what of the outputs counts: a name, an index, some with commas, or module:callable; two: torch's, Paddle's",
    )
    parser.add_argument(
        "--names",
        type=Path,
        metavar="FILE",
        help="YAML: the port's path by the reference's, where they differ",
    )
    parser.add_argument("--training", action="store_true", help="in train mode (default: eval mode)")
    parser.add_argument("--iterations", type=int, metavar="N", help="updates that are compared (default 5)")
    parser.add_argument(
        "--mode", default=mode, metavar="MODE", help=f"TIPC mode of the case (default {mode})"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="add N to the case's seeds")
    parser.add_argument(
        "--timeout",
        type=float,
        default=timeout_s,
        metavar="S",
        help=f"seconds in all (default {timeout_s:g})",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON; - is standard output")


def run(args: argparse.Namespace) -> int:
    """Locate and return the exit code."""
    return show(args, causes=False)


def show(args: argparse.Namespace, *, causes: bool) -> int:
    """Align the models in a process of their own, print what was found, and return the exit code."""
    from tipchain.live.launch import launch
    from tipchain.report.terminal import fold, terminal_width

    check_writable({"--json": args.json, "--html": args.html})
    request = read_request(args, causes=causes)
    done = launch(request, timeout_s=args.timeout)
    stream = sys.stderr if args.json == "-" else sys.stdout
    print(fold(done.text, terminal_width()), file=stream)
    if done.document is None:
        return done.exit_code
    if not causes:
        print(fold("\n".join(list_layers(done.document)), terminal_width()), file=stream)
    if args.json:
        write_document(args.json, done.document)
    if args.html:
        _write_page(args.html, done.document)
    return done.exit_code


def _write_page(target: Path, document: Mapping[str, Any]) -> None:
    import json

    from tipchain.live.report import AlignmentReport

    try:
        AlignmentReport.from_json(json.dumps(document)).to_html(target)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written: {error.strerror}") from error


def read_request(args: argparse.Namespace, *, causes: bool) -> dict[str, Any]:
    """Return what the process is asked for.

    Raises:
        UsageError: neither a case nor two models, or both.
        InputError: the file of names cannot be used.
    """
    from tipchain.commands.align import from_root

    models = [args.reference, args.port, args.inputs]
    if (args.case is None) == (None in models) or (args.case is not None and any(models)):
        if args.case is None and any(models):
            raise UsageError("--reference, --port and --inputs belong together")
        raise UsageError("expected a case, or --reference, --port and --inputs")
    if args.iterations is not None and args.iterations < 1:
        raise UsageError(f"--iterations must be at least 1, found {args.iterations}")
    if not args.timeout > 0:
        raise UsageError(f"--timeout must be a number of seconds above 0, found {args.timeout}")
    chosen = {name: getattr(args, name, None) for name in ("iterations", "within")}
    options: dict[str, Any] = {"training": args.training, "causes": causes}
    options |= {name: value for name, value in chosen.items() if value is not None}
    names = None
    if args.names is not None:
        from tipchain.conversion.given_names import read_names

        names = str(
            read_names(args.names).file
        )  # a file that is no map of names needs no model to be refused
    feeding = _read_feeding(args)
    outputs = getattr(args, "outputs", None)
    if outputs is not None and len(outputs) > 2:
        raise UsageError(
            f"--outputs takes one or two, found {len(outputs)}\n  hint: several names go with commas"
        )
    if args.case is not None:
        case = str(from_root(args.case))
        if outputs is not None:
            raise UsageError("--outputs goes with --reference and --port")
        return {"case": case, "mode": args.mode, "reseed": args.seed, "names": names, "options": options}
    given = {name: getattr(args, name) for name in ("loss", "optimizers", "schedulers", "clip", "step")}
    return {
        "reference": args.reference, "port": args.port, "inputs": str(args.inputs), **given, **feeding,
        "outputs": outputs, "names": names, "options": {**options, "seed": args.seed},
    }  # fmt: skip


def _read_feeding(args: argparse.Namespace) -> dict[str, Any]:
    """Return what the command was told of data and metrics; `tipchain certify` is told nothing of them."""
    found = {name: getattr(args, name, None) for name in ("data", "metrics", "predict", "samples")}
    given = [f"--{name}" for name, value in found.items() if value is not None]
    if given and args.case is not None:
        raise UsageError(f"{', '.join(given)}: a case names its own data and metrics")
    if found["samples"] is not None and found["data"] is None and found["predict"] is None:
        raise UsageError("--samples goes with --data: two transforms, or with --predict")
    return {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}


def list_layers(document: Mapping[str, Any]) -> list[str]:
    """Return a table of the layers that are furthest off by themselves: those at fault first."""
    layers = [one for one in document["layers"] if one["own"] is not None]
    if not layers:
        return []
    fault = ("differs", "lower precision")
    layers.sort(key=lambda one: (one["closeness"] not in fault, -_number(one["ratio"] or one["own"])))
    lines = ["", f"{'own error':>9}  {'x torch':>8}  {'inherited':>9}  layer"]
    for one in layers[:SHOWN]:
        ratio = "" if one["ratio"] is None else f"{_number(one['ratio']):8.3g}"
        where = (
            f"{one['port_path'] or '(the model)'} {one['port_type']}, {one['direction']}: {one['closeness']}"
        )
        lines.append(f"{_number(one['own']):9.2e}  {ratio:>8}  {_number(one['inherited']):9.2e}  {where}")
    if len(layers) > SHOWN:
        lines.append(f"{len(layers) - SHOWN} more in the report (--json, --html)")
    return lines


def _number(value: float | str) -> float:
    return float(value)


def write_document(target: str, document: Mapping[str, Any]) -> None:
    """Write a report's JSON to a file, or to standard output for ``-``.

    Raises:
        OutputError: the file cannot be written.
    """
    import json

    from tipchain.runs import atomic_write

    text = json.dumps({name: value for name, value in document.items() if name != "text"}, indent=1)
    if target == "-":
        print(text)
        return
    try:
        atomic_write(Path(target), text + "\n")
    except OSError as error:
        raise OutputError(f"{target}: cannot be written: {error.strerror}") from error
