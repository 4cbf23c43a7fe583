"""``tipchain port``: convert a torch model's modules, build the port, and prove that it is equal, or show where it is not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tipchain.commands import align
from tipchain.commands.init import SHAPE, check_free, read_input, short_case, shown, try_sides
from tipchain.commands.options import Parser, add_options, add_report_arguments, check_targets, text_stream
from tipchain.core.files import atomic_write, root_of_callables, writing
from tipchain.core.language import padded, say
from tipchain.core.progress import Progress
from tipchain.errors import ExitCode, UsageError

STAGES = ("forward",)
"""The stage whose models are compared, forward and backward; what else a case has comes later."""

if TYPE_CHECKING:
    from tipchain.port.convert import Converted
    from tipchain.report.model import RunReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--torch", metavar="M:C", required=True, help="module:callable that returns the torch module")
    parser.add_argument(
        "--input",
        action="append",
        type=read_input,
        metavar="[NAME=]SHAPE[:DTYPE[:HIGH]]",
        help=f"an argument of forward, such as 1,3,224,224 or ids=2,16:int64:1000; repeatable (default {SHAPE})",
    )
    add_options(parser, out="package to write, in the folder where imports start (default NAME_paddle)")
    align.add_fix(parser)
    add_options(parser, "root")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the port and its case, align them, and return the alignment's exit code.

    Raises:
        UsageError: paconvert is not there or does not fit, the builder cannot be found or built, or a file exists.
    """
    from tipchain.port.convert import check_paconvert, convert
    from tipchain.port.sources import Sources
    from tipchain.report.write import write_report

    check_targets(args)
    align.check_fix(args)
    check_paconvert()
    root = root_of_callables()
    module = args.torch.partition(":")[0]
    out = Path(args.out or root / f"{module.partition('.')[0]}_paddle").resolve()
    if out.parent != root or not out.name.isidentifier():
        raise UsageError(f"--out: {out} is no package in {root}, where imports start\n  expected: such as my_paddle")
    name = module.rpartition(".")[2]
    case = root / f"{name}.yaml"
    if out.name == module.partition(".")[0]:
        raise UsageError(f"--out: {out} is the reference's own package")
    for place in (out, case):
        check_free(place, force=args.force)
    inputs, outputs, missing = try_sides({"torch": args.torch}, root, args.input or [read_input(SHAPE)])
    if missing:
        raise UsageError("torch is not installed: the reference cannot be built")
    with Progress() as progress:
        progress.stage("converting the model's modules")
        sources = Sources.of(args.torch, _folder_of(module, root))
        converted = convert(sources.written(out.name))
    spec = f"{sources.renamed(module, out.name)}:{args.torch.partition(':')[2]}"
    text = short_case(name, case, root, (args.torch, spec), inputs, outputs)
    for path, one in converted.items():
        file = out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f"{file.name}.orig").unlink(missing_ok=True)  # of an earlier port
        with writing(file, UsageError):
            atomic_write(file, one.source)
    with writing(case, UsageError):
        atomic_write(case, text)
    stream = text_stream(args)
    print(say(f"wrote {shown(out)} and {shown(case)}"), file=stream)
    with TemporaryDirectory(prefix="tipchain-port-") as folder:
        report = _align(args, case, Path(folder))
    print("\n".join(_table(converted, out, report)), file=stream)
    return write_report(replace(report, page="", run=""), args, root=root)


def _folder_of(module: str, root: Path) -> Path:
    """Return where imports of a module start: the project's root, or the folder of an installed package."""
    top = module.partition(".")[0]
    if any((root / one).exists() for one in (top, f"{top}.py")):
        return root
    found = find_spec(top)
    if found is None or found.origin is None:
        raise UsageError(f"--torch: no module {top} below {root}, nor installed")
    return Path(found.origin).parents[1 if found.submodule_search_locations else 0]


def _align(args: argparse.Namespace, case: Path, folder: Path) -> RunReport:
    """Align the case, after edits where they are wanted; nothing is left behind."""
    parser = Parser(prog="tipchain align")
    align.add_arguments(parser)
    words = [str(case), "--quiet", "--out", str(folder)]
    wanted = parser.parse_args([*words, *(f"--{one}" for one in ("fix", "yes", "force") if getattr(args, one))])
    return align.mend_case(wanted, STAGES) if args.fix else align.aligned(wanted, STAGES)[0]


def _table(converted: Mapping[str, Converted], out: Path, report: RunReport) -> list[str]:
    """Return a row for each module of the port, and the lines that paconvert left open."""
    from tipchain.port.mending import error_of

    blamed = report.cause.place if report.cause is not None else None
    error = error_of(report)
    rows = [("FILE", "CONVERTED", "OPEN", "VERDICT")]
    lines: list[str] = []
    for path, one in converted.items():
        if not one.uses:
            continue
        file = out / path
        verdict = "equal" if report.exit_code == ExitCode.PASSED else ""
        if blamed is not None and Path(blamed.file).name == file.name:
            verdict = f"differs at line {blamed.line}"
        elif error.startswith(f"{file}:"):
            n = error[len(str(file)) + 1 :].partition(":")[0]
            verdict = f"raises at line {n}"
        open_lines = len(one.left_open)
        rows.append((shown(file), f"{one.converted}/{one.uses}", str(open_lines), verdict))
        lines += [f"{shown(file)}:{number}: {text}" for number, text in one.left_open]
    widths = [max(len(row[at]) for row in rows) for at in range(3)]
    table = [
        "  ".join([*(padded(cell, width) for cell, width in zip(row, widths, strict=False)), say(row[3])]).rstrip()
        for row in rows
    ]
    return [*table, *([say("left open by paconvert:"), *lines] if lines else []), ""]
