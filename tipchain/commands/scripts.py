"""The scripts that the user documents name: each is a few lines that call one of these functions.

Source: the documents' ``alignment/step1`` to ``step5``, and the numbered scripts ``test_tipc/01_…`` to ``05_…``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tipchain.commands.align import add_run_arguments, align_case, aligned, from_root
from tipchain.commands.options import Parser, add_options, check_targets, text_stream
from tipchain.core.files import append, local_time
from tipchain.core.language import COLOR_VARIABLE, escaped, say, variable_set
from tipchain.errors import ExitCode, Outcome, RecordError
from tipchain.framework_types import Array
from tipchain.modes import LATEST, SCRIPTS, dump_name, log_name, parse_mode
from tipchain.numbers.tolerance import SAME_DOUBLE

STEP_CASE = Path("configs/mvf.yaml")
MOST_RATES = 12
"""Lines of a table of rates."""
MOST_LINES = 41
"""Lines of a diff log that are printed."""


def run_numbered(number: str, argv: Sequence[str] | None = None) -> int:
    """Run the stages of the numbered script ``number`` (``"01"`` to ``"05"``); return the exit code."""
    _, stages = SCRIPTS[number]
    table = _metrics if number == "03" else None
    told = f"Align the stages of script {number}: {', '.join(stages)}."
    return _script(told, Path("configs/alexnet.yaml"), argv, lambda args: _align(args, stages, table))


def record_side(stage: str, side: str, argv: Sequence[str] | None = None) -> int:
    """Run ``stage`` on one side of ``--case`` and keep its dump in ``log_reprod``; return the exit code."""

    def record(args: argparse.Namespace) -> int:
        args.record = side
        if args.data_path is not None:
            args.data_path = from_root(args.data_path)
        from tipchain.numbers.dumps import load_record

        report, _, out = aligned(args, (stage,), each=False)
        failures = [verdict for verdict in report.verdicts if verdict.outcome is not Outcome.SKIP]
        for verdict in failures:
            print(say(f"{verdict.outcome.value}: {verdict.subject}: {verdict.reason}"), file=sys.stderr)
        if failures:
            return ExitCode.FAILED
        path = out / LATEST / dump_name(stage, side)
        return _tell_written(path, load_record(path).arrays)

    return _script(f"Record the {side} side of the {stage} stage.", STEP_CASE, argv, record)


def check_stage(stage: str, argv: Sequence[str] | None = None) -> int:
    """Compare the two dumps of ``stage`` in ``log_reprod``, write its diff log, and return the exit code."""
    return _script(f"Compare the dumps of the {stage} stage.", STEP_CASE, argv, lambda args: _check(args, stage))


def create_fake_data(argv: Sequence[str] | None = None) -> int:
    """Write the fake inputs of the forward stage of ``--case`` to ``log_reprod``; return the exit code."""

    def create(args: argparse.Namespace) -> int:
        from tipchain.numbers.dumps import save_record
        from tipchain.parity.align import out_folder
        from tipchain.parity.case import load_case
        from tipchain.parity.inputs import make_inputs

        case = load_case(from_root(args.case))
        arrays = make_inputs(case.for_stage("forward"))
        path = out_folder(args.out, case, parse_mode(args.mode)) / LATEST / "fake_inputs.npy"
        save_record(path, arrays)
        return _tell_written(path, arrays)

    return _script("Make the fake inputs that the forward pass of both sides is fed.", STEP_CASE, argv, create)


def align_rates(argv: Sequence[str] | None = None) -> int:
    """Run the lr stage of ``--case`` on both sides, print both curves, and return the exit code."""
    told = "Compare the learning rates of both sides, the schedules really stepped."
    return _script(told, STEP_CASE, argv, lambda args: _align(args, ("lr",), _rate_table))


def _script(description: str, case: Path, argv: Sequence[str] | None, act: Callable[[argparse.Namespace], int]) -> int:
    from tipchain.core.guard import guarded

    def work() -> int:
        parser = Parser(description=description, allow_abbrev=False)
        parser.add_argument("--case", type=Path, metavar="CASE", default=case, help=f"default {case}")
        add_run_arguments(parser)
        for name in ("--dataset_root", "--dataset-root"):  # what the documents' scripts call it
            parser.add_argument(name, type=Path, dest="data_path", help=argparse.SUPPRESS, default=argparse.SUPPRESS)
        add_options(parser, "color")
        args = parser.parse_args(argv)
        with variable_set(COLOR_VARIABLE, args.color):
            return act(args)

    return guarded(work)


def _align(args: argparse.Namespace, stages: Sequence[str], table: Callable[[Path], list[str]] | None = None) -> int:
    """Align ``stages``; print ``table`` and reprod_log's lines before the verdict."""

    def show(folder: Path) -> list[str]:
        return [*(table(folder) if table else ()), *_log_lines(folder, stages, whole=args.verbose)]

    return align_case(args, stages, show=show)


def _log_lines(folder: Path, stages: Sequence[str], *, whole: bool) -> list[str]:
    """Return reprod_log's lines about each stage; of a long log the first and the last, unless ``whole``."""
    shown = []
    for stage in stages:
        path = folder / log_name(stage)
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if more := 0 if whole else max(len(lines) - MOST_LINES, 0):
            lines[MOST_LINES - 1 : -1] = [say(f"… {more} more lines: {os.path.relpath(path)}")]
        shown += [f"== {stage}", *lines] if len(stages) > 1 else lines
    return shown


def _metrics(folder: Path) -> list[str]:
    """Return the port's and the reference's metrics as two dictionaries on one line, where both were recorded."""
    pair = [_recorded(folder, "metric", side) for side in ("paddle", "torch")]
    if not all(pair):
        return []
    return [" ".join(str({name: value for name, value in one.items() if "/" not in name}) for one in pair)]


def _recorded(folder: Path, stage: str, side: str) -> Mapping[str, Array]:
    """Return the arrays of a dump; empty where a side did not come so far, which the report tells."""
    from tipchain.numbers.dumps import load_record

    try:
        return load_record(folder / dump_name(stage, side)).arrays
    except RecordError:
        return {}


def _rate_table(folder: Path) -> list[str]:
    """Return both curves as a table of the steps at which a rate changes, each difference marked."""
    import numpy as np

    torch, paddle = (_recorded(folder, "lr", side).get("lr") for side in ("torch", "paddle"))
    if torch is None or paddle is None:
        return []
    changes = [
        step
        for step in range(min(len(torch), len(paddle)))
        if step == 0 or torch[step] != torch[step - 1] or paddle[step] != paddle[step - 1]
    ]
    shown = changes if len(changes) <= MOST_RATES else [*changes[: MOST_RATES - 1], changes[-1]]
    rows = [
        f"{step:>6}  {torch[step]:>12.9g}  {paddle[step]:>12.9g}"
        + ("" if np.isclose(paddle[step], torch[step], rtol=1e-6, atol=SAME_DOUBLE * torch.max()) else "  <-")
        for step in shown
    ]
    left_out = [f"{'…':>6}  {len(changes) - len(shown)} more"] if len(shown) < len(changes) else []
    return [f"{'step':>6}  {'torch':>12}  {'paddle':>12}", *rows[:-1], *left_out, *rows[-1:], ""]


def _check(args: argparse.Namespace, stage: str) -> int:
    from tipchain.core.machine import installed_versions
    from tipchain.live.judge import CauseSearch, located_details, start_judge
    from tipchain.numbers.verdicts import write_diff_log
    from tipchain.parity.align import AlignRequest, choose_stages, keep_report, out_folder
    from tipchain.parity.case import load_case
    from tipchain.parity.stages.judging import Rules, judge_stage
    from tipchain.report.model import RunReport
    from tipchain.report.write import with_page, write_report

    check_targets(args)
    started, clock = local_time(), time.perf_counter()
    case, mode = load_case(from_root(args.case)), parse_mode(args.mode)
    out = out_folder(args.out, case, mode)
    rules = Rules.of(case, strict=args.strict)
    judged = judge_stage(stage, out / LATEST, rules)
    log = out / LATEST / log_name(stage)
    log.parent.mkdir(parents=True, exist_ok=True)
    write_diff_log(log, judged.verdicts, judged.tolerances, stage=stage)
    for line in () if args.quiet else _log_lines(log.parent, (stage,), whole=args.verbose):
        print(line, file=text_stream(args))
    append(out / "alignment.log", f"# {stage}: the dumps in {LATEST} were compared\n{log.read_text()}")
    report = RunReport(
        title=str(case.path),
        mode=mode.value,
        run=os.path.relpath(out / LATEST),
        verdicts=tuple(judged.verdicts),
        started=started,
        seconds=time.perf_counter() - clock,
        versions=installed_versions(),
        notes=tuple(judged.notes),
        stages=choose_stages(case, mode, ()),
    )
    request = AlignRequest(
        case=case, mode=mode, stages=(stage,), folder=out / LATEST, data_path=args.data_path, rules=rules
    )
    search = CauseSearch(
        wanted=not args.no_locate, within=args.within, timeout_s=args.timeout, quiet=args.quiet, stream=None
    )
    if any(one.outcome is not Outcome.ERROR for one in judged.verdicts):  # there are dumps to judge
        with start_judge(request, search) as judge:
            report = judge.decide(report, out)
    report = replace(report, seconds=time.perf_counter() - clock)
    keep_report(report, request, out)
    page = out / LATEST / f"alignment_{stage}.html"
    report = with_page(report, args.html, page, located_details(out / LATEST) if report.exit_code else [])
    return write_report(report, args)


def _tell_written(path: Path, arrays: Mapping[str, Array]) -> int:
    for key, array in arrays.items():
        print(f"{escaped(key)}: {array.dtype} {list(array.shape)}")
    print(say(f"wrote {path}"))
    return ExitCode.PASSED
