"""``tipchain completion SHELL``: a script with which a shell completes commands, options, their values and files.

shtab makes it from the commands' own parsers; it calls nothing when it completes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tipchain.errors import ExitCode
from tipchain.modes import STAGES, Mode

EPILOG = """\
bash: tipchain completion bash > ~/.tipchain.bash
      echo ". ~/.tipchain.bash" >> ~/.bashrc
zsh:  tipchain completion zsh > "${fpath[1]}/_tipchain"
fish: tipchain completion fish > ~/.config/fish/completions/tipchain.fish
A new shell has it then."""
SHELLS = ("bash", "zsh", "fish")
FOLDERS = ("DIR", "NIGHTS", "BUNDLE", "FOLDER")
WORDS = {"MODE": tuple(mode.value for mode in Mode), "DEVICE": ("cpu", "gpu"), "LIST": tuple(STAGES)}
"""What values that have no choices are, by what the help calls them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, help="which shell it is for")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from tipchain.cli import COMMANDS, parser_of
    from tipchain.commands.options import leaves

    parser = argparse.ArgumentParser(prog="tipchain", allow_abbrev=False)
    parser.add_argument("--version", action="store_true")
    commands = parser.add_subparsers()
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text)
        commands.choices[name] = parser_of(name)
    for leaf in leaves(parser):
        for action in leaf._actions:  # noqa: SLF001  (argparse shows them in no other way)
            _tell_values(action)
    print(shtab.complete(parser, shell=args.shell))
    return ExitCode.PASSED


def _tell_values(action: argparse.Action) -> None:
    """Say what follows an option that has no choices, by its type and what the help calls it."""
    import shtab

    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in WORDS:
        action.choices = action.choices or WORDS[metavar]
    elif metavar in FOLDERS:
        action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    elif action.type is Path or metavar.startswith(("FILE", "PATH")) or metavar in ("REF", "PORT"):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
