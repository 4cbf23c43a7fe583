"""``tipchain locate``: which layer, loss, optimizer or schedule of a port is at fault, and why it differs."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tipchain.commands.options import add_json, add_mode, add_options, add_timeout, add_verbosity, write_document
from tipchain.core.files import check_writable, writing
from tipchain.core.json_text import JsonObject
from tipchain.core.language import fold, say, terminal_width
from tipchain.errors import UsageError
from tipchain.framework_types import Setting

if TYPE_CHECKING:
    from tipchain.live.worker import Launched

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
        parser.add_argument(f"--{name}", nargs=2, metavar=("TORCH", "PADDLE"), help=f"module:callable of both {what}")
    parser.add_argument(
        "--samples",
        type=Path,
        metavar="FILE",
        help=".npz of raw samples; --data then names transforms of one, --predict is given them",
    )
    parser.add_argument(
        "--no-causes",
        action="store_true",
        help="do not look for why it differs; list how far each layer is off by itself",
    )
    add_options(parser, html="write the report as one HTML file")
    add_options(parser, within="begin nothing new after this (60s, 5m): what was found is told")


def add_source_arguments(parser: argparse.ArgumentParser, timeout_s: float) -> None:
    """Declare where the models come from, how they are run, and where the JSON goes."""
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
        ("step", "training steps: (model, optimizer, batch), or (model, optimizer) for one that keeps something"),
    ):
        parser.add_argument(f"--{name}", nargs=2, metavar=("TORCH", "PADDLE"), help=f"module:callable of both {what}")
    parser.add_argument(
        "--outputs",
        nargs="+",
        metavar="WHAT",
        help="what of the outputs counts: a name, an index, some with commas, or module:callable; two: torch's, Paddle's",
    )
    add_options(parser, "names")
    parser.add_argument(
        "--no-copy-weights",
        action="store_true",
        help="leave a freshly initialized port its weights (default: it is given the reference's)",
    )
    parser.add_argument("--training", action="store_true", help="in train mode (default: eval mode)")
    parser.add_argument("--iterations", type=int, metavar="N", help="updates that are compared (default 5)")
    add_mode(parser, "TIPC mode of the case")
    add_options(parser, "root", seed="add N to the case's seeds")
    add_timeout(parser, "end it after this", default=timeout_s)
    add_json(parser, "the report")
    add_verbosity(parser)


def run(args: argparse.Namespace) -> int:
    """Align the models in a process of their own, print the findings, and return the exit code."""
    from tipchain.live.worker import launch

    check_writable({"--json": args.json, "--html": args.html})
    request = read_request(args, causes=not args.no_causes)
    done = launch(request, timeout_s=args.timeout, quiet=args.quiet)
    stream = tell(done, args)
    if done.document and (args.no_causes or args.verbose):
        print(fold("\n".join(list_layers(done.document)), terminal_width()), file=stream)
    if done.document and args.html:
        from tipchain.live.report import AlignmentReport

        with writing(args.html):
            AlignmentReport.from_json(json.dumps(done.document)).to_html(args.html)
    return done.exit_code


def read_request(args: argparse.Namespace, *, causes: bool) -> dict[str, object]:
    """Return the request to the process.

    Raises:
        UsageError: neither a case nor two models, or both.
        InputError: the file of names cannot be used.
    """
    from tipchain.commands.align import check_frameworks, from_root

    check_frameworks(("torch", "paddle"))
    models = [args.reference, args.port, args.inputs]
    if (args.case is None) == (None in models) or (args.case is not None and any(models)):
        if args.case is None and any(models):
            raise UsageError("--reference, --port and --inputs belong together")
        raise UsageError("expected a case, or --reference, --port and --inputs")
    if args.iterations is not None and args.iterations < 1:
        raise UsageError(f"--iterations must be at least 1, found {args.iterations}")
    chosen = {name: getattr(args, name, None) for name in ("iterations", "within")}
    options: dict[str, Setting] = {"training": args.training, "causes": causes}
    options |= {name: value for name, value in chosen.items() if value is not None}
    names = None
    if args.names is not None:
        from tipchain.weights.given_names import read_names

        names = str(read_names(args.names).file)  # a file that is no map of names needs no model to be refused
    feeding = {name: getattr(args, name, None) for name in ("data", "metrics", "predict", "samples")}
    told = [f"--{name}" for name, value in feeding.items() if value is not None]
    if told and args.case is not None:
        raise UsageError(f"{', '.join(told)}: a case names its own data and metrics")
    if feeding["samples"] is not None and feeding["data"] is None and feeding["predict"] is None:
        raise UsageError("--samples goes with --data: two transforms, or with --predict")
    feeding = {name: str(value) if isinstance(value, Path) else value for name, value in feeding.items()}
    outputs = getattr(args, "outputs", None)
    if outputs is not None and len(outputs) > 2:
        raise UsageError(f"--outputs takes one or two, found {len(outputs)}\n  hint: several names go with commas")
    request = {"command": args.typed, "names": names}
    if args.case is not None:
        if outputs is not None:
            raise UsageError("--outputs goes with --reference and --port")
        case = str(from_root(args.case))
        return {**request, "case": case, "mode": args.mode, "reseed": args.seed, "options": options}
    given = ("reference", "port", "loss", "optimizers", "schedulers", "clip", "step")
    request |= {name: getattr(args, name) for name in given} | {"inputs": str(args.inputs), "outputs": outputs}
    options["seed"] = args.seed
    return {**request, **feeding, "copy_weights": not args.no_copy_weights, "options": options}


def list_layers(document: JsonObject) -> list[str]:
    """Return a table of the layers that are furthest off by themselves: those at fault first."""
    layers = [one for one in document["layers"] if one["own"] is not None]
    if not layers:
        return []
    fault = ("differs", "lower precision")
    layers.sort(key=lambda one: (one["closeness"] not in fault, -float(one["ratio"] or one["own"])))
    lines = ["", f"{'own error':>9}  {'x torch':>8}  {'inherited':>9}  layer"]
    for one in layers[:SHOWN]:
        ratio = "" if one["ratio"] is None else f"{float(one['ratio']):8.3g}"
        where = f"{one['port_path'] or '(the model)'} {one['port_type']}, {one['direction']}: {one['closeness']}"
        lines.append(f"{float(one['own']):9.2e}  {ratio:>8}  {float(one['inherited']):9.2e}  {where}")
    if len(layers) > SHOWN:
        lines.append(f"{len(layers) - SHOWN} more in the report (--json, --html)")
    return lines


def tell(done: Launched, args: argparse.Namespace) -> TextIO:
    """Print a process's text, write its document without that, and return the text's stream."""
    stream = sys.stderr if args.json == "-" else sys.stdout
    print(fold(say(done.text), terminal_width()), file=stream, flush=True)
    if done.document is not None and args.json:
        write_document(args.json, {name: value for name, value in done.document.items() if name != "text"})
    return stream
