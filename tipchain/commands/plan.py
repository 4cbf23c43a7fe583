"""``tipchain plan``: what a chain would run, as a tree to read and a script to paste into a shell."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from posixpath import dirname, normpath

from tipchain.chain.load import load_plan
from tipchain.chain.plan import PLACEHOLDER, SUFFIXES, Command, Find, Options, Plan, plan_json, select
from tipchain.commands.options import add_chain_mode, add_json, add_options, add_timeout, chain_mode, show, whole
from tipchain.core.files import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE
from tipchain.core.language import clean, many, say, terminal_width
from tipchain.errors import CaseError, ExitCode, ParamsError, UsageError
from tipchain.modes import DATA_SETS, DIGITS, DataFolders, Mode, data_folders

# Plans for people: a tree to read, and a script to paste into a shell.
#
# Nothing in a plan is a shell's text; every word is quoted here, on the way to the screen.


STEP_INDENT = 2
# Functions of the script; they live in its subshell only.
SCRIPT_HEAD = """\
failed=0
fail() { echo "failed or not started: $1" >&2; failed=1; }"""
# The first pattern with a match gives its newest one, as in `tipchain run`.
NEWEST = """\
newest() { local IFS= one; for one; do ls -td -- $one 2>/dev/null | head -n 1 | grep . && return; done; }"""


def render_tree(plan: Plan, *, width: int = 80) -> str:
    """Return the plan as a tree: legs, below them each command under what it needs."""
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
    yield f"{margin}{clean(command.id)}{_devices(command)}"
    body = f"{margin}{' ' * STEP_INDENT}"
    env = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
    words = [*env, *map(shlex.quote, command.argv)]
    # Command in lines that together can be pasted: all but the last end with a backslash.
    first = f"{body}$ "
    rest = f"{body}    "
    row, blank = first, ""
    chunks = list(_chunks([clean(word) for word in words]))
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


def _devices(command: Command) -> str:
    if not command.on_gpu:
        return ""
    if not command.gpus:
        return say("  (any GPU)")
    return f"  (GPU {','.join(command.gpus)})"


def _chunks(words: Sequence[str]) -> Iterator[str]:
    """Yield words, an option together with its value where that is a word of its own."""
    option = ""
    for word in words:
        if option and not word.startswith("-"):
            yield f"{option} {word}"
            option = ""
            continue
        if option:
            yield option
        option = word if word.startswith("-") and "=" not in word else ""
        if not option:
            yield word
    if option:
        yield option


def render_script(plan: Plan) -> str:
    """Return the plan as a script that can be pasted: one subshell, nothing of which stays behind.

    A plan of the original runs one command after the other; else a command waits for those that it needs, and the
    subshell's status is 1 if one failed.
    """
    if plan.run == plan.out:
        return "\n".join(_original_lines(plan))
    skipped: dict[str, str] = {}
    for command in plan.commands:
        lacking = next((need for need in command.needs if need in skipped), "")
        if command.skip or lacking:
            skipped[command.id] = command.skip or f"needs {lacking}"
    needed = {need for command in plan.commands for need in command.needs}
    numbers = {command.id: number for number, command in enumerate(plan.commands, 1) if command.id in needed}
    head = [f"# {clean(plan.params)}, mode {plan.mode.value}, suite {plan.suite}", "(", SCRIPT_HEAD]
    if any(command.finds for command in plan.commands):
        head.append(NEWEST)
    head.append(f"mkdir -p {shlex.quote(plan.run)}")
    data = _here(_folders(plan).other)
    run = shlex.quote(plan.run) if plan.run.startswith("/") else _here(plan.run)
    head.append(f"export {RUN_VARIABLE}={run} {MODE_VARIABLE}={plan.mode.value} {DATA_VARIABLE}={data}")
    body = []
    for command in plan.commands:
        reason = skipped.get(command.id, "")
        body.append(f"# {clean(command.id)}" + (f": skipped: {reason}" if reason else ""))
        if not reason:
            body += _guarded(command, plan, numbers)
    return "\n".join([*head, *body, 'exit "$failed"', ")"])


def _folders(plan: Plan) -> DataFolders:
    return plan.data or data_folders(plan.mode)


def _here(path: str) -> str:
    return f'"$PWD"/{shlex.quote(path)}'


def _guarded(command: Command, plan: Plan, numbers: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of a command that waits for what it needs."""
    for name, target in command.links:
        there, link = shlex.quote(normpath(target)), shlex.quote(normpath(name))
        yield f'[ ! -e {there} ] || [ -e {link} ] || ln -s "$PWD"/{there} {link}'
    parts = [f'[ "$ok{numbers[need]}" ]' for need in command.needs if need in numbers]
    late = {find.text: f"late{number}" for number, find in enumerate(command.finds, 1)}
    for find in command.finds:
        parts += _late(find, late[find.text])
    words = [_late_word(word, late) for word in command.argv]
    env = dict(command.env)
    prefix = " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())
    folders = _folders(plan)
    if command.step == "train" and folders.train != folders.other:
        prefix = f"{DATA_VARIABLE}={_here(folders.train)} {prefix}".strip()
    parts.append(_call(command, f"{prefix} {' '.join(words)}".strip()))
    if command.id in numbers:
        yield f"ok{numbers[command.id]}="
        parts.append(f"ok{numbers[command.id]}=1")
    yield f"{' && '.join(parts)} || fail {_quoted(command.id)}"


def _quoted(text: str) -> str:
    return shlex.quote(clean(text))


def _late(find: Find, name: str) -> Iterator[str]:
    """Yield what settles a text when the command starts."""
    yield f"{name}=$(newest {' '.join(map(_quoted, find.files))})"
    suffixes = {suffix for suffix in SUFFIXES for file in find.files if file.endswith(suffix)}
    if not find.text.endswith(SUFFIXES):
        yield from (f"{name}=${{{name}%{suffix}}}" for suffix in sorted(suffixes))


def _late_word(word: str, late: Mapping[str, str]) -> str:
    """Return a word, quoted; texts of ``late`` in it are replaced by the shell variables that it names."""
    if not any(text in word for text in late):
        return _quoted(word)
    longest = sorted(late, key=len, reverse=True)
    pieces = re.split(rf"({'|'.join(map(re.escape, longest))})(?![\w-])", word)
    return "".join(f'"${late[one]}"' if one in late else _quoted(one) for one in pieces if one)


def _call(command: Command, text: str) -> str:
    """Return the call in its folder and with its log; the log's name is relative to where the plan was made."""
    inside = text if command.cwd == "." else f"(cd {shlex.quote(command.cwd)} && {text})"
    return inside + (f" > {shlex.quote(command.log)} 2>&1" if command.log else "")


def _original_lines(plan: Plan) -> Iterator[str]:
    """Yield the original driver's commands as it runs them: whatever happens, one after the other."""
    yield f"# {clean(plan.params)}, mode {plan.mode.value}, suite {plan.suite}, as the original driver runs it"
    folders = dict.fromkeys(dirname(one.log) for one in plan.commands if one.log and dirname(one.log))
    for folder in folders:
        yield f"mkdir -p {shlex.quote(folder)}"
    for command in plan.commands:
        yield f"# {clean(command.id)}"
        words = [*command.wrapper, *map(_globbed, command.argv)]
        prefix = [f"{name}={shlex.quote(value)}" for name, value in command.env.items()]
        yield _call(command, " ".join([*prefix, *words]))


def _globbed(word: str) -> str:
    """Return a word quoted but for ``*`` and ``?``, which the original's shell takes for a pattern."""
    pieces = re.split(r"([*?]+)", clean(word))
    if len(pieces) == 1:
        return shlex.quote(pieces[0])
    return "".join(piece if index % 2 else shlex.quote(piece) if piece else "" for index, piece in enumerate(pieces))


# ``tipchain plan``: the commands of a parameter file, in order, without running anything.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_chain_arguments(parser)
    parser.add_argument("--legacy", action="store_true", help="the original driver's commands, defects included")
    shape = parser.add_mutually_exclusive_group()
    add_json(shape, "the plan")
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
    """Print what was left out of a plan."""
    for note in plan.notes:
        print(say(f"note: {note}"), file=sys.stderr)


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

    try:
        case = alignment_case(params)
    except ParamsError:  # the plan says what is wrong with the file
        return None
    return case_folders(case, mode) if case else None


def case_folders(case: Path, mode: Mode) -> DataFolders:
    """Return the data folders of the case in ``case`` in ``mode``, relative to the project's root.

    What is wrong with the file is not said here: its alignment says it, and the chain runs all the same, on the digits.
    """
    from tipchain.core.yaml_reader import load_yaml

    try:
        document = load_yaml(case).data
    except CaseError:
        return data_folders(mode)
    data_set = _mapping(document, "data").get("set", DIGITS)
    kind = _mapping(_mapping(document, "modes"), mode.value).get("data")
    return data_folders(
        mode, data_set if data_set in tuple(DATA_SETS) else DIGITS, kind if kind in ("lite", "whole") else None
    )


def _mapping(document: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def run(args: argparse.Namespace) -> int:
    """Print the plan; exit code 4 if there is nothing in it."""
    plan = planned(args, legacy=args.legacy)
    text = render_script if args.shell else partial(render_tree, width=terminal_width())
    show(args.json, partial(plan_json, plan), partial(text, plan))
    if is_empty(plan):
        return ExitCode.NOTHING_CHECKED
    print_notes(plan)
    return ExitCode.PASSED
