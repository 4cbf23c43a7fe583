"""The scripts that the user documents name: each is a few lines that call one of these functions.

Source: the documents' ``alignment/step1`` to ``step5``, and the numbered scripts ``test_tipc/01_…`` to ``05_…``.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tipchain.commands.align import (
    add_run_arguments,
    align_case,
    from_root,
    make_request,
    out_folder,
    run_request,
)
from tipchain.modes import parse_mode
from tipchain.outcome import ExitCode, Outcome

NUMBERED_CASE = Path("configs/alexnet.yaml")
STEP_CASE = Path("configs/mvf.yaml")
MOST_RATES = 24
"""Lines of a table of rates."""


def run_numbered(number: str, argv: Sequence[str] | None = None) -> int:
    """Run the stages of the numbered script ``number`` (``"01"`` to ``"05"``); return the exit code."""

    def work() -> int:
        from tipchain.stage_table import SCRIPTS

        _, stages = SCRIPTS[number]
        parser = _parser(f"Align the stages of script {number}: {', '.join(stages)}.", NUMBERED_CASE)
        add_run_arguments(parser)
        return align_case(parser.parse_args(argv), stages, show_metrics=number == "03")

    return _guarded(work)


def record_side(stage: str, side: str, argv: Sequence[str] | None = None) -> int:
    """Run ``stage`` on one side of ``--case`` and keep its dump in ``log_reprod``; return the exit code."""

    def work() -> int:
        parser = _parser(f"Record the {side} side of the {stage} stage.", STEP_CASE)
        add_run_arguments(parser)
        parser.add_argument(
            "--dataset_root", "--dataset-root", type=Path, metavar="DIR", dest="data_path",
            help="the same as --data-path",
        )  # fmt: skip
        args = parser.parse_args(argv)
        args.record = side
        if args.data_path is not None:
            args.data_path = from_root(args.data_path)
        return _record(args, stage, side)

    return _guarded(work)


def check_stage(stage: str, argv: Sequence[str] | None = None) -> int:
    """Compare the two dumps of ``stage`` in ``log_reprod``, write its diff log, and return the exit code."""

    def work() -> int:
        parser = _parser(f"Compare the dumps of the {stage} stage.", STEP_CASE)
        add_run_arguments(parser)
        return _check(parser.parse_args(argv), stage)

    return _guarded(work)


def create_fake_data(argv: Sequence[str] | None = None) -> int:
    """Write the fake inputs of the forward stage of ``--case`` to ``log_reprod``; return the exit code."""

    def work() -> int:
        parser = _parser("Make the fake inputs that the forward pass of both sides is fed.", STEP_CASE)
        add_run_arguments(parser)
        return _create_fake_data(parser.parse_args(argv))

    return _guarded(work)


def align_rates(argv: Sequence[str] | None = None) -> int:
    """Run the lr stage of ``--case`` on both sides, print both curves, and return the exit code."""

    def work() -> int:
        parser = _parser("Compare the learning rates of both sides, the schedules really stepped.", STEP_CASE)
        add_run_arguments(parser)
        args = parser.parse_args(argv)
        code = align_case(args, ("lr",))
        for line in _rate_table(args):
            # Where the report goes to standard output, it must stand there alone.
            print(line, file=sys.stderr if "-" in (args.json, args.junit) else sys.stdout)
        return code

    return _guarded(work)


def _rate_table(args: argparse.Namespace) -> list[str]:
    """Return both curves as a table of the steps at which a rate changes, each difference marked."""
    import numpy as np

    from tipchain.errors import RecordError
    from tipchain.parity.case import load_case
    from tipchain.parity.judging.lr import ZERO
    from tipchain.parity.names import dump_name
    from tipchain.parity.publish import LATEST
    from tipchain.parity.record import load_record

    folder = out_folder(args, load_case(from_root(args.case)), parse_mode(args.mode)) / LATEST
    try:
        torch, paddle = (
            load_record(folder / dump_name("lr", side)).arrays["lr"] for side in ("torch", "paddle")
        )
    except (RecordError, KeyError):
        return []  # a side did not come so far; the report says so
    changes = [
        step for step in range(min(len(torch), len(paddle)))
        if step == 0 or torch[step] != torch[step - 1] or paddle[step] != paddle[step - 1]
    ]  # fmt: skip
    shown = changes if len(changes) <= MOST_RATES else [*changes[: MOST_RATES - 1], changes[-1]]
    rows = [
        f"{step:>6}  {torch[step]:>12.9g}  {paddle[step]:>12.9g}"
        + ("" if np.isclose(paddle[step], torch[step], rtol=1e-6, atol=ZERO * torch.max()) else "  <-")
        for step in shown
    ]
    left_out = [f"{'…':>6}  {len(changes) - len(shown)} more"] if len(shown) < len(changes) else []
    return ["", f"{'step':>6}  {'torch':>12}  {'paddle':>12}", *rows[:-1], *left_out, *rows[-1:]]


def _parser(description: str, case: Path) -> argparse.ArgumentParser:
    from tipchain.cli import Parser

    parser = Parser(description=description, allow_abbrev=False)
    parser.add_argument("--case", type=Path, default=case, help=f"default {case}")
    return parser


def _guarded(work: Callable[[], int]) -> int:
    from tipchain.guard import guarded

    return guarded(work)


def _record(args: argparse.Namespace, stage: str, side: str) -> int:
    from tipchain.parity.names import dump_name
    from tipchain.parity.publish import LATEST
    from tipchain.parity.record import load_record
    from tipchain.runs import prune

    request, out = make_request(args, (stage,))
    report = run_request(request, out, io.StringIO())
    prune(out)
    failures = [verdict for verdict in report.verdicts if verdict.outcome is not Outcome.SKIP]
    for verdict in failures:
        print(f"{verdict.outcome.value}: {verdict.subject}: {verdict.reason}", file=sys.stderr)
    if failures:
        return ExitCode.FAILED
    path = out / LATEST / dump_name(stage, side)
    for key, array in load_record(path).arrays.items():
        print(f"{key}: {array.dtype} {list(array.shape)}")
    print(f"wrote {path}")
    return ExitCode.PASSED


def _check(args: argparse.Namespace, stage: str) -> int:
    from tipchain.outcome import exit_code
    from tipchain.parity.case import load_case
    from tipchain.parity.difflog import write_diff_log
    from tipchain.parity.names import log_name
    from tipchain.parity.publish import LATEST
    from tipchain.parity.stage_judge import Rules, judge_stage
    from tipchain.runs import append

    case = load_case(from_root(args.case))
    out = out_folder(args, case, parse_mode(args.mode))
    judged = judge_stage(stage, out / LATEST, Rules.of(case, strict=args.strict))
    log = out / LATEST / log_name(stage)
    log.parent.mkdir(parents=True, exist_ok=True)
    write_diff_log(log, judged.verdicts, judged.tolerances, stage=stage, stream=sys.stdout)
    append(out / "alignment.log", f"# {stage}: the dumps in {LATEST} were compared\n{log.read_text()}")
    return exit_code(verdict.outcome for verdict in judged.verdicts)


def _create_fake_data(args: argparse.Namespace) -> int:
    from tipchain.parity.case import load_case
    from tipchain.parity.fake_inputs import make_inputs
    from tipchain.parity.publish import LATEST
    from tipchain.parity.record import save_record

    case = load_case(from_root(args.case))
    arrays = make_inputs(case.for_stage("forward"))
    path = out_folder(args, case, parse_mode(args.mode)) / LATEST / "fake_inputs.npy"
    save_record(path, arrays)
    for key, array in arrays.items():
        print(f"{key}: {array.dtype} {list(array.shape)}")
    print(f"wrote {path}")
    return ExitCode.PASSED
