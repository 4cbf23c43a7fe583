"""``tipchain port``: convert a torch model's modules, build the port, and prove that it is equal, or show where it is not."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tipchain.commands import align
from tipchain.commands.init import SHAPE, add_reference, check_free, read_input, short_case, shown, try_sides
from tipchain.commands.options import Parser, add_options, add_report_arguments, check_targets, text_stream
from tipchain.core.files import atomic_write, root_of_callables, writing
from tipchain.core.language import fold, say, table, terminal_width
from tipchain.core.progress import Progress
from tipchain.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from tipchain.port.convert import ConvertedModule
    from tipchain.report.model import RunReport

STAGE = "forward"
"""The stage whose models are compared, forward and backward; what else a case has comes later."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_reference(parser, required=True)
    add_options(parser, out="package to write, in the folder where imports start (default NAME_paddle)")
    parser.add_argument(
        "--compat",
        action="store_true",
        help="write no port: compare the model with its own source under Paddle, which stands in for torch (paddle.enable_compat)",
    )
    align.add_fix(parser, force="replace an earlier port and its case")
    add_options(parser, "root")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the port and its case, align them as ``tipchain align`` does, and return the exit code.

    Raises:
        UsageError: paconvert is not there or does not fit, the builder cannot be found or built, or a file exists.
    """
    from tipchain.port.convert import ConvertedModule, check_paconvert, convert
    from tipchain.port.sources import Sources, folder_of
    from tipchain.report.write import write_report

    check_targets(args)
    align.check_fix(args)
    if args.compat and (args.out or args.fix):
        raise UsageError("--compat writes no port: --out and --fix cannot stand beside it")
    root = root_of_callables()
    module, _, builder = args.torch.partition(":")
    name = module.rpartition(".")[2]
    case = root / f"{name}.yaml"
    out = Path(args.out or root / f"{module.partition('.')[0]}_paddle").resolve()
    if not args.compat:
        check_paconvert()
        if out.parent != root or not out.name.isidentifier():
            raise UsageError(
                f"--out: {out} is no package in {root}, where imports start\n  expected: such as my_paddle"
            )
        if out.name == module.partition(".")[0]:
            raise UsageError(f"--out: {out} is the reference's own package")
        check_free(out, force=args.force)
    check_free(case, force=args.force)
    inputs, outputs, missing = try_sides({"torch": args.torch}, root, args.input or [read_input(SHAPE)])
    if missing:
        raise UsageError("torch is not installed: the reference cannot be built")
    port, converted = args.torch, dict[str, ConvertedModule]()
    if not args.compat:
        with Progress() as progress:
            progress.stage("converting the model's modules")
            sources = Sources.of(args.torch, folder_of(module, root))
            converted = convert(sources.written(out.name))
        port = f"{sources.renamed(module, out.name)}:{builder}"
    text = short_case(name, case, root, (args.torch, port), inputs, outputs, compat=args.compat)
    for path, one in converted.items():
        file = out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(f"{file.name}.orig").unlink(missing_ok=True)  # of an earlier port
        with writing(file, UsageError):
            atomic_write(file, one.source)
    with writing(case, UsageError):
        atomic_write(case, text)
    wrote = shown(case) if args.compat else f"{shown(out)} and {shown(case)}"
    print(say(f"wrote {wrote}"), file=text_stream(args))
    parser = Parser(prog="tipchain align")
    align.add_arguments(parser)
    given = {name: value for name, value in vars(args).items() if name != "out"}
    wanted = argparse.Namespace(**{**vars(parser.parse_args([str(case), "--only", STAGE])), **given})
    report = align.aligned(wanted, (STAGE,), fix=args.fix)[0]
    if converted:
        print("\n".join(_table(converted, out, report)), file=text_stream(args))
    return write_report(report, args, root=root)


def _table(converted: Mapping[str, ConvertedModule], out: Path, report: RunReport) -> list[str]:
    """Return a row for each module of the port, the edit of the first difference, and the lines that paconvert left open."""
    modules = {shown(out / path): one for path, one in converted.items() if one.uses}
    rows = [("FILE", "CONVERTED", "OPEN", "VERDICT")]
    rows += [
        (file, f"{one.converted}/{one.uses}", str(len(one.left_open)), say(_verdict(Path(file).resolve(), report)))
        for file, one in modules.items()
    ]
    lines = [f"{file}:{number}: {text}" for file, one in modules.items() for number, text in one.left_open]
    cause, rest = report.cause, list[str]()
    if cause is not None and cause.place is not None and cause.fix:
        edit = f"edit of the first difference: {cause.place.file}:{cause.place.line}: {cause.fix}"
        rest = [fold(say(edit), terminal_width())]
    return [*table(rows), *rest, *([say("left open by paconvert:"), *lines] if lines else []), ""]


def _verdict(file: Path, report: RunReport) -> str:
    from tipchain.port.mending import error_of
    from tipchain.port.rewrites import RAISED

    if report.exit_code == ExitCode.PASSED:
        return "equal"
    place, raised = report.cause.place if report.cause is not None else None, RAISED.search(error_of(report))
    if raised is not None and raised["file"] == str(file):
        return f"raises at line {raised['line']}"
    return f"differs at line {place.line}" if place is not None and file.match(place.file) else ""
