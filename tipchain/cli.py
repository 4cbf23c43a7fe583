"""The command line: one table of commands, each in a module of its own that is loaded when it is called."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, Protocol

from tipchain import __version__
from tipchain.errors import UsageError, did_you_mean
from tipchain.guard import guarded
from tipchain.outcome import ExitCode

COMMANDS: dict[str, tuple[str, str]] = {
    "diff": ("tipchain.commands.diff", "compare two reprod_log dumps"),
    "align": ("tipchain.commands.align", "run the alignment stages of a case"),
    "locate": ("tipchain.commands.locate", "find the layer at fault in live models"),
    "diagnose": ("tipchain.commands.diagnose", "find the layer at fault, and why it differs"),
    "certify": ("tipchain.commands.certify", "plant faults into the port, say which would be caught"),
    "bundle": ("tipchain.commands.bundle", "record torch's side once, for machines without torch"),
    "rebaseline": ("tipchain.commands.rebaseline", "move a stored reference, with evidence"),
    "judge": ("tipchain.commands.judge", "apply other tolerances to a finished alignment run"),
    "pack": ("tipchain.commands.pack", "put what a reproduction must submit into one archive"),
    "report": ("tipchain.commands.report", "render a finished run again"),
    "convert-weights": ("tipchain.commands.convert_weights", "convert weights for the Paddle port, or back"),
    "lint": ("tipchain.commands.lint", "explain parameter files and say what is wrong in them"),
    "plan": ("tipchain.commands.plan", "show the commands of a parameter file without running them"),
    "prepare": ("tipchain.commands.prepare", "prepare the data and weights of a mode"),
    "run": ("tipchain.commands.run", "run the chain of a parameter file"),
    "nightly": ("tipchain.commands.nightly", "run many chains and cases in a night, locally or on a cluster"),
    "history": ("tipchain.commands.history", "nights and runs in a database: list, compare, what changed"),
    "gc": ("tipchain.commands.gc", "delete old nights and runs, but nothing that is needed"),
    "doctor": ("tipchain.commands.doctor", "say what is installed and what is missing"),
    "init": ("tipchain.commands.init", "write a new, commented alignment case"),
}


class CommandModule(Protocol):
    """What a module in ``tipchain.commands`` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are UsageErrors."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise UsageError(f"{self.prog}: {message}\n  see {self.prog} --help")


def load_command(name: str) -> CommandModule:
    """Return the module of the command called ``name``."""
    module: CommandModule = import_module(COMMANDS[name][0])
    return module


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tipchain [--version] COMMAND ...",
            "",
            "Is a PaddlePaddle port the same model as its PyTorch reference, and does its chain run?",
            "",
            "commands:",
            *lines,
            "",
            "tipchain COMMAND --help says more about one of them.",
            "Exit codes: 0 all passed, 1 a check or command failed, 2 wrong use or unreadable input,",
            "            3 a bug of tipchain, 4 nothing was checked, 130 interrupted.",
        ]
    )


def dispatch(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code; errors are raised."""
    if not argv:
        raise UsageError(_overview())
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help"):
        print(_overview())
        return ExitCode.PASSED
    if name == "--version":
        print(f"tipchain {__version__}")
        return ExitCode.PASSED
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        raise UsageError(
            f"tipchain: unknown command {name!r}"
            + (f", {hint}" if hint else "")
            + f"\n  expected one of: {', '.join(COMMANDS)}"
        )
    module = load_command(name)
    parser = Parser(prog=f"tipchain {name}", description=COMMANDS[name][1], allow_abbrev=False)
    module.add_arguments(parser)
    return module.run(parser.parse_args(_joined(rest)))


def _joined(words: Sequence[str]) -> list[str]:
    """Return ``words`` with what follows ``--set`` joined to it: a parameter file's keys begin with dashes, too."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--set":
            joined[-1] = f"--set={word}"
        else:
            joined.append(word)
    return joined


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of ``tipchain`` and ``python -m tipchain``."""
    return guarded(dispatch, sys.argv[1:] if argv is None else argv)
