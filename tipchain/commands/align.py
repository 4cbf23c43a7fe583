"""``tipchain align`` and the numbered scripts: run the alignment stages of a case; say where a failed one differs."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tipchain.commands.options import (
    add_mode,
    add_options,
    add_report_arguments,
    add_timeout,
    check_data_path,
    check_targets,
    text_stream,
)
from tipchain.commands.prepare import prepare_case_data
from tipchain.core.files import DATA_VARIABLE, RUN_VARIABLE, new_run, prune
from tipchain.core.language import say
from tipchain.errors import ExitCode, MissingFrameworkError, OutputError, UsageError
from tipchain.modes import LATEST, parse_device, parse_mode, parse_stages

if TYPE_CHECKING:
    from tipchain.parity.align import AlignRequest
    from tipchain.report.model import RunReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``tipchain align``."""
    parser.add_argument("case", type=Path, metavar="CASE", help="the case's YAML file")
    add_options(parser, only="these stages alone: names or script numbers, e.g. forward,loss or 01,04")
    add_run_arguments(parser)
    add_fix(parser)


def add_fix(
    parser: argparse._ActionsContainer, force: str = "of --fix: edit files with changes that are not committed"
) -> None:
    """Declare ``--fix``, ``--yes`` and ``--force``, which is for what ``force`` says."""
    parser.add_argument(
        "--fix",
        action="store_true",
        help="write edits into the port's source, one at a time, and keep those that mend something; FILE.orig is the file before",
    )
    parser.add_argument("--yes", action="store_true", help="of --fix: do not ask before each edit")
    parser.add_argument("--force", action="store_true", help=force)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments common to ``align`` and the numbered scripts."""
    add_options(parser, "device")
    add_mode(parser)
    add_options(
        parser,
        "root",
        out="output folder (default tipchain-output/CASE/MODE; in a TIPC checkout test_tipc/output/CASE/MODE)",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="PATH",
        help="torch's side is this bundle (tipchain bundle make), or these dumps (a folder or a file); torch is not run",
    )
    parser.add_argument("--port", type=Path, metavar="PATH", help="Paddle's side is these dumps; Paddle is not run")
    parser.add_argument(
        "--record", choices=("torch", "paddle"), help="record this side only, to compare elsewhere; exit code 4"
    )
    add_options(parser, "data_path", "prepare", "strict")
    add_timeout(parser, "total time limit per side")
    add_options(
        parser,
        threads="threads of each side (default: cores shared out)",
        seed="add N to the seeds of the case, its weights and fake inputs",
    )
    parser.add_argument(
        "--no-locate", action="store_true", help="where a stage fails, do not look for the layer at fault and its cause"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="record torch's side even where an earlier run's still holds"
    )
    add_options(parser, within="look for causes no longer than this (60s, 5m): what was found is told")
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the stages and return the exit code."""
    check_fix(args)
    stages = parse_stages(args.stages) if args.stages else ()
    return align_case(args, stages, fix=args.fix)


def check_fix(args: argparse.Namespace) -> None:
    """Refuse to ask where nobody can answer."""
    if args.fix and not args.yes and not sys.stdin.isatty():
        raise UsageError("--fix asks before each edit, which needs a terminal\n  expected: --yes")


def mended(args: argparse.Namespace, stages: Sequence[str], report: RunReport) -> bool:
    """Mend the port of a case, in runs of their own that leave nothing behind but its source; tell whether anything was."""
    from tipchain.commands.init import try_sides
    from tipchain.parity.case import LABEL, load_case
    from tipchain.port.mending import Mending

    stream = text_stream(args)

    def ask(diff: str) -> bool:
        print(diff, file=stream, flush=True)
        return bool(args.yes) or input(say("try it? [y/N] ")).strip().lower() in ("y", "yes")

    with TemporaryDirectory(prefix="tipchain-fix-") as folder:
        aside: dict[str, object] = {"out": Path(folder), "json": None, "junit": None, "html": None, "github": False}
        trial = argparse.Namespace(**{**vars(args), **aside, "quiet": True, "verbose": False})
        case = load_case(from_root(args.case), args.seed)
        inputs = [replace(one, name=name) for name, one in case.inputs.items() if name != LABEL]

        def error() -> str:
            model = case.sides["paddle"].model
            if model is None or case.model_args:
                return ""
            try:
                try_sides({"paddle": model}, case.root, inputs, runs=True)
            except UsageError as raised:
                return str(raised)
            return ""

        mending = Mending(
            root=case.root, align=lambda: aligned(trial, stages)[0], error=error, ask=ask, force=args.force
        )
        mending.mend(report)
    print(say(f"edits that were kept: {len(mending.kept)}"), file=stream)
    return bool(mending.kept)


def align_case(
    args: argparse.Namespace,
    stages: Sequence[str],
    *,
    show: Callable[[Path], Iterable[str]] | None = None,
    fix: bool = False,
) -> int:
    """Align the case that ``args`` names; without ``stages`` all that the case and the mode have.

    What ``show`` makes of the folder of dumps is printed before the verdict, in place of each stage as it is judged.
    With ``fix`` a port that fails is mended, and aligned once more.
    """
    from tipchain.report.write import write_report

    stream = text_stream(args)
    report, request, out = aligned(args, stages, each=show is None, fix=fix)
    for line in show(request.folder) if show and not args.quiet else ():
        print(line, file=stream)
    code = write_report(report, args, root=request.case.root)
    if args.record and code == ExitCode.NOTHING_CHECKED and not args.quiet:
        option, other = ("--reference", "Paddle") if args.record == "torch" else ("--port", "torch")
        print(say(f"{out / LATEST} and the weights go to the machine with {other}; there:"), file=stream)
        print(f"  tipchain align {args.case} --prepare {option} {out / LATEST}", file=stream)
    return code


def aligned(
    args: argparse.Namespace, stages: Sequence[str], *, each: bool = True, fix: bool = False
) -> tuple[RunReport, AlignRequest, Path]:
    """Align a case; return its report, with the page that was written, what was run, and the output folder.

    Args:
        args: the command line.
        stages: those that run; all that the case and the mode have where none is named.
        each: show each stage as it is judged, where all is shown.
        fix: mend a port that fails, and align it once more.
    """
    from tipchain.live.judge import CauseSearch, located_details, start_judge
    from tipchain.nightly.origin import origin
    from tipchain.parity.align import keep_report, run_case
    from tipchain.parity.case import load_case
    from tipchain.report.write import with_page

    check_targets(args)
    stream = text_stream(args)
    if args.prepare:
        with redirect_stdout(stream):
            prepare_case_data(load_case(from_root(args.case), args.seed), parse_mode(args.mode), args.data_path)
    clock = time.perf_counter()
    request, out = make_request(args, stages)
    if not args.quiet:
        print(say(f"project root: {request.case.root}"), file=sys.stderr, flush=True)
    told = stream if args.verbose else None
    search = CauseSearch(
        wanted=not args.no_locate, within=args.within, timeout_s=args.timeout, quiet=args.quiet, stream=told
    )
    try:
        with start_judge(request, search) as judge:
            lines = told if each else None
            report = run_case(request, out, where=origin(request.case.root), stream=lines, quiet=args.quiet)
            keep_report(report, request, out)  # comparing the models may take long
            report = replace(judge.decide(report, out), seconds=time.perf_counter() - clock)
        page = request.folder / f"{request.report_name}.html"
        report = with_page(report, args.html, page, located_details(request.folder))
        keep_report(report, request, out)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error
        raise OutputError(f"{request.folder.parent}: the run cannot be written: {reason}") from error
    if not os.environ.get(RUN_VARIABLE):
        prune(out)
    if fix and report.exit_code == ExitCode.FAILED and mended(args, stages, report):
        return aligned(args, stages, each=each)
    return report, request, out


def make_request(args: argparse.Namespace, stages: Sequence[str]) -> tuple[AlignRequest, Path]:
    """Return the request in ``args``, and the output folder; a new run is opened in it.

    Raises:
        UsageError: arguments that do not fit together, or the case.
        InputError: the bundle is damaged, or of another case, mode or seed.
    """
    from tipchain.parity.align import DUMPS, AlignRequest, check_dumps, choose_stages, out_folder
    from tipchain.parity.case import SIDES, check_builders, load_case
    from tipchain.parity.stages.judging import Rules
    from tipchain.parity.weights import data_roots

    mode, device = parse_mode(args.mode), parse_device(args.device)
    case = load_case(from_root(args.case), args.seed)
    bundle, reference = args.reference, None
    if bundle and (bundle.is_file() or any(bundle.glob("*.npy"))):  # dumps
        bundle = None
    if bundle:
        from tipchain.bundle.making import open_reference

        if not bundle.exists():
            raise UsageError(f"--reference: no such file or folder: {bundle}\n  expected: a bundle, or dumps")
        if args.record is not None:
            raise UsageError("--reference and --record exclude each other")
        reference = open_reference(bundle, case, mode)
    possible = choose_stages(case, mode, stages)
    chosen = reference.serve(possible, asked=bool(stages)) if reference else possible
    given = {"torch": None if bundle else args.reference, "paddle": args.port}
    dumps: dict[str, Path] = {side: path for side, path in given.items() if path is not None}
    if args.record and args.record in dumps:
        raise UsageError(f"--record {args.record} and {DUMPS[args.record]} exclude each other")
    check_data_path(args)
    sides = (args.record,) if args.record else SIDES
    run_here = [side for side in sides if side not in dumps and not (reference and side == "torch")]
    check_builders(case, chosen, run_here)
    check_frameworks(run_here)
    check_dumps(dumps, chosen)
    if reference:
        dumps["torch"] = reference.dumps
    out = out_folder(args.out, case, mode)
    data_path, given_to_chain = args.data_path, os.environ.get(DATA_VARIABLE)
    if data_path is None and given_to_chain:  # instead of the mode's
        own = [root.resolve() for root in data_roots(case, mode, None)]
        data_path = None if Path(given_to_chain).resolve() in own else Path(given_to_chain)
    request = AlignRequest(
        case=case,
        mode=mode,
        stages=chosen,
        folder=Path(os.environ.get(RUN_VARIABLE) or new_run(out)) / LATEST,
        device=str(device),
        dumps=dumps,
        sides=sides,
        data_path=data_path,
        timeout_s=args.timeout,
        threads=args.threads or (reference.threads if reference else 0),
        rules=Rules.of(case, strict=args.strict),
        given=reference.given if reference else None,
        notes=reference.notes(possible) if reference else (),
        fresh=args.fresh,
    )
    return request, out


def check_frameworks(sides: Sequence[str]) -> None:
    """Refuse to run both sides where neither framework is installed; a single one is missed by its own process."""
    if len(sides) > 1 and not any(find_spec(side) for side in sides):
        raise MissingFrameworkError(
            'neither torch nor paddle is installed\n  install them: pip install "tipchain[cpu]"'
        )


def from_root(path: Path) -> Path:
    """Return ``path`` as seen from here, else from the project's root (the scripts run from anywhere)."""
    here = Path(__file__).resolve().parents[2] / path
    return path if path.exists() or not here.exists() else here
