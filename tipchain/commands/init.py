"""``tipchain init``: write a new alignment case that works at once, or the parameter file of a case's chain."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory

from tipchain.commands.options import add_options
from tipchain.core.blame import SIDES as BLAMED
from tipchain.core.blame import serving
from tipchain.core.files import atomic_write, project_above, root_of_callables, writing
from tipchain.core.guard import guarded
from tipchain.core.json_text import JsonObject, as_json, parse_as
from tipchain.core.language import say
from tipchain.core.machine import end_with_parent, how_ended
from tipchain.core.progress import Progress
from tipchain.errors import ExitCode, InputError, MissingFrameworkError, UsageError
from tipchain.framework_types import Model
from tipchain.frameworks import Framework, load_framework
from tipchain.frameworks.base import checking, resolve
from tipchain.parity.case import DTYPES, InputSpec, absent, load_case
from tipchain.parity.inputs import make_input
from tipchain.parity.recorder import model_environment

TRAINS = ("loss", "optimizer", "dataset", "metric")
"""Builders that a training needs besides the model."""
SHAPE = "2,3,224,224"
"""The input that is tried where none is named."""
LAST = 12
"""Lines of a process's output that a message about its end shows."""
LINE = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:(?:,\d+)*|(?:x\d+)*))(?::(?P<dtype>\w+)(?::(?P<high>\d+))?)?"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("id", nargs="?", help="the case's name, such as mobilenet_v3_small (default: torch's module)")
    add_reference(parser)
    parser.add_argument("--paddle", "--port", metavar="M:C", help="module:callable that returns the Paddle layer")
    parser.add_argument(
        "--path", type=Path, help="file to write (default configs/ID.yaml, or ID.yaml without configs/)"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    parser.add_argument(
        "--chain",
        metavar="CASE",
        type=Path,
        help="write the parameter file of a case's chain: train, evaluate, export, infer "
        "(test_tipc/configs/ID/train_infer_python.txt, or --path)",
    )
    add_options(parser, "root")


def add_reference(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Declare the torch module and its inputs."""
    told = "module:callable that returns the torch module"
    parser.add_argument("--torch", "--reference", metavar="M:C", required=required, help=told)
    parser.add_argument(
        "--input",
        action="append",
        type=read_input,
        metavar="[NAME=]SHAPE[:DTYPE[:HIGH]]",
        help=f"an argument of forward, such as 1,3,224,224 or ids=2,16:int64:1000; repeatable (default {SHAPE})",
    )


def read_input(text: str) -> InputSpec:
    """Return an input from ``[NAME=]SHAPE[:DTYPE[:HIGH]]``; without a name it is called ``""``."""
    found = LINE.fullmatch(text)
    if found is None or 0 in (shape := tuple(map(int, re.split("[,x]", found["shape"])))):
        raise argparse.ArgumentTypeError(f"{text!r} is no input, expected such as 1,3,224,224 or ids=2,16:int64:1000")
    dtype = found["dtype"] or "float32"
    if dtype not in DTYPES:
        raise argparse.ArgumentTypeError(f"{dtype!r} is no dtype of an input, expected one of {', '.join(DTYPES)}")
    return InputSpec(name=found["name"] or "", shape=shape, dtype=dtype, high=int(found["high"] or 2))


def input_line(one: InputSpec) -> str:
    """Return the line of the case."""
    more = "" if one.dtype == "float32" else f", dtype: {one.dtype}"
    more += f", high: {one.high}" if one.high != 2 else ""
    return f"  {one.name}: {{shape: {list(one.shape)}{more}}}"


def run(args: argparse.Namespace) -> int:
    """Write the case.

    Raises:
        UsageError: the id cannot be a Python name, the file exists, only one side is named, or a model cannot
            be built.
    """
    if args.chain is not None:
        if any((args.id, args.torch, args.paddle, args.input)):
            raise UsageError("--chain CASE stands alone, or with --path and --force")
        case = load_case(args.chain)
        path = args.path or case.root / "test_tipc" / "configs" / case.id / "train_infer_python.txt"
        check_free(path, force=args.force)
        seen = os.path.relpath(args.chain.resolve(), case.root)
        text = _filled("chain.txt.template", id=case.id, case=seen, steps="|".join(case.stages))
        missing = [name for name in TRAINS if getattr(case.sides["paddle"], name) is None]
        if missing:
            print(say(f"note: to train it, the case needs {', '.join(missing)} among the builders of both sides"))
        return _write(path, text, case.root, f"run {shown(path)} lite_train_lite_infer")
    if args.torch is None or args.paddle is None:
        raise UsageError("which models?\n  expected: --torch M:C and --paddle M:C")
    for flag, spec in (("--torch", args.torch), ("--paddle", args.paddle)):
        if not all(part.strip() for part in spec.partition(":")[::2]):
            raise UsageError(f"{flag}: {spec!r} is no builder\n  expected: module:callable, such as my_net.port:build")
    name = args.id or args.torch.partition(":")[0].rpartition(".")[2]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"the id {name!r} cannot be a Python package's name, expected e.g. mobilenet_v3_small")
    root = root_of_callables()
    path = args.path or (root / "configs" if (root / "configs").is_dir() else root) / f"{name}.yaml"
    check_free(path, force=args.force)
    begun, specs = time.monotonic(), {"torch": args.torch, "paddle": args.paddle}
    inputs, outputs, missing = try_sides(specs, root, args.input or [read_input(SHAPE)])
    if missing:
        names = " and ".join(BLAMED[side] for side in missing)
        print(say(f"note: not built here, as its framework is missing: {names}"), file=sys.stderr)
    else:
        print(say(f"both models were built, and the reference run once, in {time.monotonic() - begun:.1f} s"))
    text = short_case(name, path, root, (args.torch, args.paddle), inputs, outputs)
    return _write(path, text, root, f"align {shown(path)}")


def _write(path: Path, text: str, root: Path, words: str) -> int:
    with writing(path, UsageError):
        atomic_write(path, text)
    print(say(f"wrote {shown(path)}\nproject root: {root}\nnext:  tipchain {words}"))
    return ExitCode.PASSED


def short_case(
    name: str,
    path: Path,
    root: Path,
    specs: tuple[str, str],
    inputs: Sequence[InputSpec],
    outputs: Sequence[str],
    *,
    compat: bool = False,
) -> str:
    """Return a case that works at once: the models, weights that fit the inputs, and the inputs."""
    # A line says where imports start, where the file's place alone would say something else.
    plain = project_above(path.resolve().parent)
    return _filled(
        "case.yaml.template",
        id=name,
        path=shown(path),
        torch=specs[0],
        paddle=specs[1],
        compat=f", compat: {json.dumps(compat)}" if compat else "",
        inputs="\n".join(map(input_line, inputs)),
        root="" if plain == root else f"root: {os.path.relpath(root, path.resolve().parent)}\n",
        batch=inputs[0].shape[0],
        outputs=f"outputs: [{', '.join(outputs)}]\n" if outputs else "",
    )


def _filled(template: str, **values: object) -> str:
    text = (files("tipchain.commands") / "templates" / template).read_text(encoding="utf-8")
    return Template(text).substitute(values)


def try_sides(
    specs: Mapping[str, str], root: Path, inputs: Sequence[InputSpec], *, runs: bool = False
) -> tuple[list[InputSpec], list[str], list[str]]:
    """Build both models, each in a process of its own, and run torch's once.

    Return the inputs under forward's names, the outputs' names where they need some, and the sides without a framework.
    Without torch inputs have names of their own. With ``runs`` Paddle's runs, too, and both in train mode.

    Raises:
        UsageError: a builder is not there, or raises, or returns no model; or the model does not take the inputs.
    """
    looked = {spec: absent(spec, root) for spec in specs.values()}
    wrong = [str(InputError(one[0], key=spec, hint=one[1])) for spec, one in looked.items() if one is not None]
    if wrong:
        raise UsageError("\n".join(wrong))
    told: dict[str, JsonObject] = {}
    with TemporaryDirectory(prefix="tipchain-init-") as folder, Progress() as progress:
        progress.stage("building both models" if len(specs) > 1 else "building the model")
        begun = {}
        for side, spec in specs.items():
            words = [side, spec, str(root), json.dumps(as_json(list(inputs))), f"{folder}/{side}.json", "runs" * runs]
            begun[side] = subprocess.Popen(
                [sys.executable, "-m", "tipchain.commands.init", *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=model_environment(),
            )
        for side, process in begun.items():
            said = process.communicate()[1].strip()
            if process.returncode == 0:
                told[side] = json.loads(Path(folder, f"{side}.json").read_bytes())
                continue
            _, marked, message = f"\n{said}".rpartition("\nerror: ")
            ended = f"the process that built {specs[side]} {how_ended(process.returncode)}"
            wrong.append(message if marked else "\n".join([ended, *said.splitlines()[-LAST:]]))
    if wrong:
        raise UsageError("\n".join(wrong))
    first = told["torch" if "torch" in told else "paddle"]
    named = [parse_as(InputSpec, one) for one in first["inputs"]]
    return named, first["outputs"], [side for side in specs if not told[side]["built"]]


def build_side(side: str, spec: str, root: str, inputs: str, report: str, runs: str = "") -> int:
    """Build the model of a side, run torch's on ``inputs``, and write the case's entries of them to ``report``.

    If ``runs`` is not empty, Paddle's runs, too, and either in train mode.
    """
    end_with_parent()
    given: list[InputSpec] = parse_as(list[InputSpec], json.loads(inputs))
    built, outputs = True, list[str]()
    try:
        framework = load_framework(side)
        with serving(side=side):
            model = checking("model", side, resolve(spec, Path(root), side))()
            if side == "torch" or runs:
                given, outputs = try_inputs(framework, model, given)
        if runs:
            with serving(side=side, stage="running the model in train mode"):
                model.train()
                model(*(framework.tensor(make_input(one)) for one in given))
    except MissingFrameworkError:
        built, given = False, [replace(one, name=one.name or f"input_{number}") for number, one in enumerate(given)]
    document = {"built": built, "inputs": as_json(given), "outputs": outputs}
    atomic_write(Path(report), json.dumps(document))
    return ExitCode.PASSED


def try_inputs(framework: Framework, model: Model, inputs: Sequence[InputSpec]) -> tuple[list[InputSpec], list[str]]:
    """Run the torch model once: return the inputs under forward's names, and the outputs' names where they need some."""
    free = [one.name for one in inspect.signature(model.forward).parameters.values() if one.kind in (0, 1)]
    taken = {one.name for one in inputs}
    names = iter([one for one in free if one not in taken] + [f"input_{number}" for number in range(len(inputs))])
    named = [replace(one, name=one.name or next(names)) for one in inputs]
    shapes = " and ".join(",".join(map(str, one.shape)) for one in inputs)
    tried = f"trying an input of shape {shapes} (--input says another)"
    if all(one.dtype.startswith("float") for one in inputs):
        integers = f"{','.join(map(str, inputs[0].shape))}:int64:1000"
        tried = f"trying an input of shape {shapes} (--input says another or integers such as {integers})"
    with serving(stage=tried), framework.inference():
        output = model.eval()(*(framework.tensor(make_input(one)) for one in named))
    if isinstance(output, Mapping) or not isinstance(output, tuple | list):
        return named, []
    items = [one for one in output if one is not None]
    alone = len(items) == 1 and framework.is_tensor(items[0])
    return named, [] if alone else [f"output_{n}" for n in range(len(items))]


def check_free(path: Path, *, force: bool) -> None:
    """Refuse to replace a file or folder unless it is wanted."""
    if path.exists() and not force:
        raise UsageError(f"{shown(path)} exists; --force replaces it")


def shown(path: Path) -> str:
    """Return a path as seen from here, where it lies below."""
    shown = os.path.relpath(path)
    return str(path) if shown.startswith("..") else shown


if __name__ == "__main__":
    raise SystemExit(guarded(build_side, *sys.argv[1:], said=str))
