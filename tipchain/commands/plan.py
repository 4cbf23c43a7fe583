"""``tipchain plan``: the commands of a parameter file, in order, without running anything."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from tipchain.chain.load import load_plan, nothing_planned
from tipchain.chain.plan import PLACEHOLDER, Options, Plan, plan_json, select
from tipchain.commands.options import add_chain_mode, add_json, add_out, add_timeout, chain_mode, renamed, show
from tipchain.errors import ParamsError, UsageError
from tipchain.language import say
from tipchain.modes import DataFolders, Mode
from tipchain.outcome import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_chain_arguments(parser)
    parser.add_argument("--legacy", action="store_true", help="the original driver's commands, defects included")
    shape = parser.add_mutually_exclusive_group()
    add_json(shape, "the plan", once_alone=True)
    shape.add_argument("--shell", action="store_true", help="as a script that can be pasted into a shell")


def add_chain_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``plan`` and ``run`` share."""
    parser.add_argument("params", type=Path, metavar="PARAMS", help="parameter file, train_infer_python.txt")
    add_chain_mode(parser)
    parser.add_argument(
        "gpu",
        nargs="?",
        metavar="GPU_ID",
        help="the third argument of the drivers: CUDA_VISIBLE_DEVICES in the modes without training; "
        "in benchmark_train one item of the file, as dynamic_bs8_fp32_DP_N1C1",
    )
    parser.add_argument("--suite", help="whose layout the file has; told from the file if left out")
    parser.add_argument("--lenient", action="store_true", help="let unknown trainers and typos pass with a note")
    parser.add_argument("--gpu-id", metavar="ID", help="the same as GPU_ID")
    parser.add_argument("--python", metavar="PATH", help="interpreter instead of the file's")
    add_timeout(
        parser, "limit for each command (1h on lite data and none in the whole modes if left out)", endless=True
    )
    parser.add_argument(
        "--warm-up",
        metavar="N",
        type=_lines,
        help="in benchmark_train: lines of speed that are left out at the start of a log (default: as many as the "
        "suite's driver leaves out, 2 to 100)",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="run everything on this device instead of gpu_list's: cpu, gpu:N, or gpu for the file's own GPUs",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="change a line of the file; SECTION:KEY=VALUE or LINE:KEY=VALUE where several have the key; repeatable",
    )
    renamed(parser, "--workdir", add_out(parser, "output folder (default test_tipc/output)"))
    for option, text in (
        ("--only", "run these commands and what they need: a step, or an id with * and ?; repeatable"),
        ("--skip", "leave these commands out: a step, or an id with * and ?; repeatable"),
    ):
        parser.add_argument(option, metavar="PATTERN", action="append", default=[], help=text)


def _lines(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines; expected 0 or more")
    return int(text)


def options(args: argparse.Namespace, run: str | None = None) -> Options:
    """Return the options of a command line."""
    mode = chain_mode(args)
    third = None if mode is Mode.BENCHMARK_TRAIN else args.gpu
    if third and args.gpu_id and third != args.gpu_id:
        raise UsageError(f"GPU_ID is {third}, but --gpu-id {args.gpu_id}: give one of them")
    return Options(
        python=args.python,
        timeout_s=args.timeout,
        gpu_id=args.gpu_id or third or None,
        argument=args.gpu if third is None else None,
        warm_up=args.warm_up,
        device=args.device,
        settings=tuple(args.settings),
        root=str(Path.cwd()),
        workdir=str(args.out or ""),
        data=_data_folders(args.params, mode),
        run=PLACEHOLDER if run is None else run,
    )


def _data_folders(params: Path, mode: Mode) -> DataFolders | None:
    """Return the data folders of the case that the file names; None where it names none, or is no parameter file."""
    from tipchain.commands.prepare import alignment_case
    from tipchain.parity.case_data import case_folders

    try:
        case = alignment_case(params)
    except ParamsError:  # the plan says what is wrong with the file
        return None
    return case_folders(case, mode) if case else None


def run(args: argparse.Namespace) -> int:
    """Print the plan; exit code 4 if there is nothing in it."""
    plan = load_plan(
        args.params,
        chain_mode(args),
        chain=args.chain,
        suite=args.suite,
        legacy=args.legacy,
        lenient=args.lenient,
        options=options(args),
    )
    plan = select(plan, args.only, args.skip)
    show(args.json, partial(plan_json, plan), partial(_shown, plan, args.shell))
    if not plan.commands:
        print(say(f"error: {nothing_planned(plan)}"), file=sys.stderr)
        return ExitCode.NOTHING_CHECKED
    for note in plan.notes:
        print(say(f"note: {note}"), file=sys.stderr)
    return ExitCode.PASSED


def _shown(plan: Plan, shell: bool) -> str:
    from tipchain.report.plan import render_script, render_tree
    from tipchain.report.terminal import terminal_width

    return render_script(plan) if shell else render_tree(plan, width=terminal_width())
