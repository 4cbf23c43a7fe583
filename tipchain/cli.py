"""The command line: one table of commands, each in a module of its own that is loaded when it is called."""

from __future__ import annotations

import atexit
import gc
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tipchain import __version__
from tipchain.core.guard import guarded
from tipchain.core.language import COLOR_VARIABLE, VARIABLE, columns, in_rows, say, table, terminal_width, variable_set
from tipchain.errors import ExitCode, UsageError, suggestion

if TYPE_CHECKING:
    from tipchain.commands.options import Parser

GROUPS: dict[str, dict[str, str]] = {
    "compare": {
        "align": "compare a port with its reference, and say why it differs",
        "diff": "compare two dumps, tensor by tensor",
        "locate": "find the layer at fault in live models, and why it differs",
        "report": "show a finished run again, or judge it by other tolerances",
        "convert-weights": "convert weights for the Paddle port, or back",
    },
    "chains": {
        "run": "run the chain of a parameter file",
        "plan": "show the commands of a parameter file; run nothing",
        "lint": "explain parameter files, and say what is wrong in them",
        "prepare": "prepare the data and weights of a mode",
    },
    "nights": {
        "nightly": "run many chains and cases, here or on a cluster",
        "history": "nights and runs in a database: list, compare, what changed",
    },
    "housekeeping": {
        "init": "write a new alignment case",
        "port": "convert a torch model to Paddle, and prove that it is equal",
        "doctor": "say what is installed and what is missing",
        "case": "train, evaluate, export, infer, certify or pack a case's port",
        "bundle": "record torch's side once, for machines without torch",
    },
}
"""The commands by purpose; in each group the common ones come first."""
FIRST = ("init", "align", "run", "diff", "doctor")
"""The commands that a newcomer needs."""
COMMANDS: dict[str, str] = {name: text for group in GROUPS.values() for name, text in group.items()}
CODES_HEAD = "Exit codes: "
CODES = (
    "0 all passed, 1 a check or command failed, 2 wrong use or unreadable input, 3 a bug of tipchain, "
    "4 nothing was checked, 130 interrupted."
)
LEADING = {"--lang": 1, "--color": 1, "-q": 0, "--quiet": 0, "-v": 0, "--verbose": 0}
"""Options that may stand before the command too, with how many words follow each."""


def load_command(name: str) -> ModuleType:
    """Return the module of the command called ``name``, with its ``add_arguments`` and ``run``."""
    return import_module(f"tipchain.commands.{name.replace('-', '_')}")


def _overview() -> str:
    usage = "usage: tipchain [--version] [--lang en|zh] [--color WHEN] [-q|-v] COMMAND ..."
    question = "Is a PaddlePaddle port the same model as its PyTorch reference, and does its chain run?"
    room = terminal_width()
    head = [say(usage), "", *in_rows(say(question), room), "", *_table({name: say(COMMANDS[name]) for name in FIRST})]
    groups = {group: ", ".join(name for name in commands if name not in FIRST) for group, commands in GROUPS.items()}
    foot = [
        say("tipchain help GROUP says what its commands do."),
        say("tipchain COMMAND --help says more about one of them."),
        *in_rows(say(f"{CODES_HEAD}{CODES}"), room, rest=" " * columns(say(CODES_HEAD))),
    ]
    return "\n".join([*head, "", say("More commands, by group:"), *_table(groups), "", *foot])


def _table(rows: Mapping[str, str]) -> list[str]:
    return [f"  {line}" for line in table(rows.items())]


def _help(names: Sequence[str]) -> int:
    if not names:
        print(_overview())
    for name in names:
        if name in GROUPS:
            print("\n".join([say(f"{name}:"), *_table({one: say(text) for one, text in GROUPS[name].items()})]))
        elif name in COMMANDS:
            parser_of(name).print_help()
        else:
            known = [*GROUPS, *COMMANDS]
            raise UsageError(
                f"tipchain help: unknown group or command {name!r}{suggestion(name, known)}\n"
                f"  expected one of: {', '.join(known)}"
            )
    return ExitCode.PASSED


def dispatch(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are raised."""
    # Options that stand before the command go behind it, where its parser reads them.
    at = 0
    while at < len(argv) and argv[at].partition("=")[0] in LEADING:
        at += 1 if "=" in argv[at] else 1 + LEADING[argv[at]]
    leading, rest = argv[:at], argv[at:]
    end = list(rest).index("--") if "--" in rest else len(rest)
    argv = [*rest[:end], *leading, *rest[end:]] if rest else []
    if not argv:
        # In a script whose variable is empty nothing was checked, and that must not look like success.
        print(_overview(), file=sys.stderr)
        return ExitCode.USAGE
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help", "help"):
        return _help(rest if name == "help" else ())
    if name == "--version":
        print(f"tipchain {__version__}")
        return ExitCode.PASSED
    if name not in COMMANDS:
        raise UsageError(
            f"tipchain: unknown command {name!r}{suggestion(name, COMMANDS)}\n  expected one of: {', '.join(COMMANDS)}"
        )

    module = load_command(name)
    args = parser_of(name).parse_args(rest)
    args.typed = shlex.join(["tipchain", name, *rest])
    if not gc.isenabled():  # `main` began the process: what it imported stays
        gc.freeze()
        gc.enable()
    with variable_set(COLOR_VARIABLE, args.color):
        code: int = module.run(args)
    return code


def parser_of(name: str) -> Parser:
    """Return the parser of the arguments after ``tipchain NAME``."""
    from tipchain.commands.options import Parser, sentence

    parser = Parser(prog=f"tipchain {name}", description=sentence(COMMANDS[name]), allow_abbrev=False)
    _fill(parser, name)
    return parser


def _fill(parser: Parser, name: str) -> None:
    from tipchain.commands.options import add_options, leaves

    load_command(name).add_arguments(parser)
    for leaf in leaves(parser):
        add_options(leaf, "color", "lang")


def whole_parser() -> Parser:
    """Return one parser of all commands, with the files and words that `shtab` lets a shell complete."""
    import shtab

    from tipchain.commands.options import Parser, leaves
    from tipchain.modes import STAGES, Mode

    words = {"MODE": [mode.value for mode in Mode], "DEVICE": ["cpu", "gpu"], "LIST": list(STAGES)}
    whole = Parser(prog="tipchain", allow_abbrev=False)
    commands = whole.add_subparsers()
    for name, text in COMMANDS.items():
        _fill(commands.add_parser(name, help=text, allow_abbrev=False), name)
    for leaf in leaves(whole):
        for action in leaf._actions:  # noqa: SLF001  (argparse shows them in no other way)
            if action.metavar in words:
                action.choices = words[str(action.metavar)]
            elif action.metavar in ("DIR", "NIGHTS", "BUNDLE", "FOLDER"):
                vars(action)["complete"] = shtab.DIRECTORY
            elif action.type is Path or str(action.metavar).startswith(("FILE", "PATH", "REF", "PORT")):
                vars(action)["complete"] = shtab.FILE
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``tipchain`` and ``python -m tipchain``."""
    words = sys.argv[1:] if argv is None else argv
    if argv is None:
        # Looking through what is imported, again and again and at the end, takes a tenth of a short command.
        gc.disable()
        atexit.register(gc.freeze)
        # Whoever ends it otherwise than by Ctrl-C wants the same: what it started ends, what is known is told.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP, and means it
                signal.signal(number, signal.default_int_handler)
    # Usage errors and help are in the language that the command line asks for, too.
    asked = None
    for word, after in pairwise([*words, ""]):
        if word == "--":
            break
        name, _, value = word.partition("=")
        if name == "--lang":
            asked = value or after
    with variable_set(VARIABLE, asked):
        return guarded(dispatch, words)
