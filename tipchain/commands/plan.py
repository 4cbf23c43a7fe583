"""``tipchain plan``: the commands of a chain, as a tree whose lines can be pasted into a shell."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path

from tipchain.chain.load import load_plan
from tipchain.chain.plan import PLACEHOLDER, Command, Options, Plan, plan_json, select
from tipchain.commands.options import add_chain_mode, add_json, add_options, add_timeout, chain_mode, show, whole
from tipchain.core.language import WIDTH, clean, many, say, terminal_width
from tipchain.errors import ExitCode, InputError, ParamsError, UsageError
from tipchain.modes import DATA_SETS, DIGITS, DataFolders, Mode, data_folders

# A tree for people. Nothing in a plan is a shell's text; every word is quoted here, on the way to the screen.


STEP_INDENT = 2


def render_tree(plan: Plan, *, width: int = WIDTH) -> str:
    """Return the plan as a tree: legs, below them each command under its needs."""
    count = many(len(plan.commands), "command")
    lines = [clean(plan.params) + say(f", mode {plan.mode.value}, suite {plan.suite}: {count}")]
    if plan.commands:
        lines.append(say(f"logs in {plan.run}"))
    depths: dict[str, int] = {}
    legs = {command.id: command.leg for command in plan.commands}
    for command in plan.commands:
        needs = [need for need in command.needs if legs.get(need) == command.leg]
        depths[command.id] = 1 + max((depths[need] for need in needs), default=0)
    for leg, commands in groupby(plan.commands, key=lambda one: one.leg):
        lines += ["", clean(leg) if leg else say("commands")]
        parent: tuple[str, ...] = ()
        for command in commands:
            lines += _command_rows(command, plan, depths[command.id], parent, width)
            parent = (*command.needs, command.id)
    return "\n".join(lines)


def _command_rows(command: Command, plan: Plan, depth: int, above: Sequence[str], width: int) -> Iterator[str]:
    margin = " " * (STEP_INDENT * depth)
    devices = f"(GPU {','.join(command.gpus)})" if command.gpus else say("(any GPU)")
    yield f"{margin}{clean(command.id)}" + (f"  {devices}" if command.on_gpu else "")
    body = f"{margin}{' ' * STEP_INDENT}"
    env = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
    words = [*env, *map(shlex.quote, (*command.wrapper, *command.argv))]
    # Command in lines that together can be pasted: all but the last end with a backslash.
    first = f"{body}$ "
    rest = f"{body}    "
    row, blank = first, ""
    chunks: list[str] = []
    for word in map(clean, words):  # an option together with its value where that is a word of its own
        if chunks and re.fullmatch(r"-[^= ]*", chunks[-1]) and not word.startswith("-"):
            chunks[-1] += f" {word}"
        else:
            chunks.append(word)
    for index, chunk in enumerate(chunks):
        tail = 0 if index == len(chunks) - 1 else 2
        if blank and len(row) + 1 + len(chunk) + tail > width:
            yield f"{row} \\"
            row, blank = rest, ""
        row, blank = row + blank + chunk, " "
    yield row
    if command.cwd != ".":
        yield body + say(f"in:  {clean(command.cwd)}")
    if command.log:
        yield body + say(f"log: {_below(command.log, plan.run)}")
    for find in command.finds:
        files = ", ".join(_below(one, plan.run) for one in find.files)
        yield body + say(f"weights: {'the first of these that exists: ' if len(find.files) > 1 else ''}{files}")
    if others := [need for need in command.needs if need not in above]:
        yield body + say("needs: ") + ", ".join(map(clean, others))
    if command.skip:
        yield body + say(f"skipped: {command.skip}")


def _below(path: str, run: str) -> str:
    return clean(path).rpartition(f"{run}/")[2]


# ``tipchain plan``: the commands of a parameter file, in order, without running anything.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_chain_arguments(parser)
    parser.add_argument("--legacy", action="store_true", help="the original driver's commands, defects included")
    add_json(parser, "the plan")


def add_chain_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments common to ``plan`` and ``run``."""
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
        type=whole,
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
    add_options(parser, out="output folder (default test_tipc/output)")
    for option, text in (
        ("--only", "run these commands and what they need: a step, or an id with * and ?; repeatable"),
        ("--skip", "leave these commands out: a step, or an id with * and ?; repeatable"),
    ):
        parser.add_argument(option, metavar="PATTERN", action="append", default=[], help=text)


def planned(args: argparse.Namespace, run: str | None = None, *, legacy: bool = False) -> Plan:
    """Return the plan that a command line asks for, with the commands that it selects."""
    plan = load_plan(
        args.params,
        chain_mode(args),
        chain=args.chain,
        suite=args.suite,
        legacy=legacy,
        lenient=args.lenient,
        options=options(args, run),
    )
    return select(plan, args.only, args.skip)


def is_empty(plan: Plan) -> bool:
    """Tell whether nothing is planned, and say why."""
    if not plan.commands:
        reasons = "".join(f"\n  {note}" for note in plan.notes)
        print(say(f"error: {plan.params}: nothing to run in mode {plan.mode.value}{reasons}"), file=sys.stderr)
    return not plan.commands


def print_notes(plan: Plan) -> None:
    """Print the commands left out of a plan."""
    for note in plan.notes:
        print(say(f"note: {note}"), file=sys.stderr)


def options(args: argparse.Namespace, run: str | None = None) -> Options:
    """Return the options of a command line."""
    from tipchain.commands.prepare import alignment_case

    mode = chain_mode(args)
    third = None if mode is Mode.BENCHMARK_TRAIN else args.gpu
    if third and args.gpu_id and third != args.gpu_id:
        raise UsageError(f"GPU_ID is {third}, but --gpu-id {args.gpu_id}: give one of them")
    data = None
    with suppress(ParamsError):  # the plan says what is wrong with the file
        case = alignment_case(args.params)
        data = case_folders(case, mode) if case else None
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
        data=data,
        run=PLACEHOLDER if run is None else run,
    )


def case_folders(case: Path, mode: Mode) -> DataFolders:
    """Return the data folders of the case in ``case`` in ``mode``, relative to the project's root.

    What is wrong with the file is not said here: its alignment says it, and the chain runs all the same, on the digits.
    """
    from tipchain.core.yaml_reader import load_yaml

    try:
        reader = load_yaml(case)
        data_set = reader.mapping("data", optional=True).choice("set", tuple(DATA_SETS), default=DIGITS)
        own = reader.mapping("modes", optional=True).mapping(mode.value, optional=True)
        return data_folders(mode, data_set, own.choice("data", ("lite", "whole"), default=None))
    except InputError:
        return data_folders(mode)


def run(args: argparse.Namespace) -> int:
    """Print the plan; exit code 4 if there is nothing in it."""
    plan = planned(args, legacy=args.legacy)
    show(args.json, partial(plan_json, plan), partial(render_tree, plan, width=terminal_width()))
    if is_empty(plan):
        return ExitCode.NOTHING_CHECKED
    print_notes(plan)
    return ExitCode.PASSED
