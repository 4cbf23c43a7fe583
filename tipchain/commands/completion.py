"""``tipchain completion SHELL``: a script with which a shell completes commands, options, their values and files.

It is made from the commands' own parsers, and calls nothing when it completes.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib.resources import files
from pathlib import Path
from string import Template

from tipchain.errors import ExitCode
from tipchain.modes import STAGES, Mode

EPILOG = """\
bash: tipchain completion bash > ~/.tipchain.bash
      echo ". ~/.tipchain.bash" >> ~/.bashrc
zsh:  tipchain completion zsh > "${fpath[1]}/_tipchain"
fish: tipchain completion fish > ~/.config/fish/completions/tipchain.fish
A new shell has it then."""
FOLDERS = ("DIR", "NIGHTS", "BUNDLE", "FOLDER")
WORDS = {"MODE": tuple(mode.value for mode in Mode), "DEVICE": ("cpu", "gpu"), "LIST": tuple(STAGES)}
"""What values that have no choices are, by what the help calls them."""


class ValueKind(Enum):
    """What a value is."""

    FLAG = "nothing"
    WORDS = "words"
    FILE = "file"
    FOLDER = "folder"
    ANY = "anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What follows an option, or stands by itself."""

    kind: ValueKind
    words: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class CommandNode:
    """A command, or an action of one.

    Attributes:
        path: the words that lead to it.
        summary: what it does.
        options: by every spelling, what follows it and what it is for.
        values: what stands by itself.
        below: its actions.
    """

    path: tuple[str, ...]
    summary: str = ""
    options: dict[str, tuple[Value, str]] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    below: list[CommandNode] = field(default_factory=list)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that may stand by themselves."""
        own = tuple(word for value in self.values for word in value.words)
        return (*(one.path[-1] for one in self.below), *own)

    def takes(self, kind: ValueKind) -> bool:
        """Tell whether something of a kind may stand by itself."""
        return any(value.kind is kind for value in self.values)

    def walk(self) -> Iterator[CommandNode]:
        """Yield this and all below it."""
        yield self
        for one in self.below:
            yield from one.walk()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=tuple(SHELLS), help="which shell it is for")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    print(SHELLS[args.shell](tree()))
    return ExitCode.PASSED


def tree() -> CommandNode:
    """Return all that may be typed after ``tipchain``."""
    from tipchain.cli import COMMANDS, parser_of

    below = [_node(("tipchain", name), parser_of(name), text) for name, text in COMMANDS.items()]
    flags = {name: (Value(kind=ValueKind.FLAG), "") for name in ("--help", "--version")}
    return CommandNode(path=("tipchain",), options=flags, below=below)


def _node(path: tuple[str, ...], parser: argparse.ArgumentParser, summary: str) -> CommandNode:
    node = CommandNode(path=path, summary=summary)
    for action in parser._actions:  # noqa: SLF001  (argparse shows them in no other way)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            told = {one.dest: one.help or "" for one in action._choices_actions}  # noqa: SLF001
            node.below = [_node((*path, name), one, told.get(name, "")) for name, one in action.choices.items()]
        elif action.help != argparse.SUPPRESS:
            value = _value(action)
            for name in action.option_strings:
                node.options[name] = value, (action.help or "").split("; ")[0]
            if not action.option_strings:
                node.values.append(value)
    return node


def _value(action: argparse.Action) -> Value:
    """Return what follows an option, told by its choices, its type and what the help calls it."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.nargs == 0:
        return Value(kind=ValueKind.FLAG)
    words = tuple(map(str, action.choices or WORDS.get(metavar, ())))
    if words:
        return Value(kind=ValueKind.WORDS, words=words)
    if metavar in FOLDERS:
        return Value(kind=ValueKind.FOLDER)
    if action.type is Path or metavar.startswith(("FILE", "PATH")) or metavar in ("REF", "PORT"):
        return Value(kind=ValueKind.FILE)
    return Value(kind=ValueKind.ANY)


# The shells' scripts, whose words of commands and options are filled in. Bash and zsh walk the words alike.


class Script(Template):
    """A script with open places, marked by what shells use least."""

    delimiter = "@"


def _filled(shell: str, **values: str) -> str:
    text = (files("tipchain.commands") / "templates" / f"completion.{shell}.template").read_text(encoding="utf-8")
    return Script(text).substitute(values).rstrip("\n")


def bash(root: CommandNode) -> str:
    """Return bash's script."""
    return _filled("bash", paths=_paths(root, " | "), **_cases(root))


def zsh(root: CommandNode) -> str:
    """Return zsh's script."""
    return _filled("zsh", paths=_paths(root, " | "), **_cases(root))


def _paths(root: CommandNode, between: str) -> str:
    """Return all that is a command or an action."""
    return between.join(f'"{" ".join(node.path)}"' for node in root.walk() if node is not root)


def _cases(root: CommandNode) -> dict[str, str]:
    after, options, alone = [], [], []
    for node in root.walk():
        at = " ".join(node.path)
        by_value: dict[Value, list[str]] = {}
        for name, (value, _) in node.options.items():
            if value.kind is not ValueKind.FLAG:
                by_value.setdefault(value, []).append(name)
        after += [
            f"        {' | '.join(shlex.quote(f'{at} {name}') for name in names)}) {_offer(value)}return ;;"
            for value, names in by_value.items()
        ]
        options.append(f'            "{at}") _tipchain_offer {shlex.quote(" ".join(node.options))} ;;')
        offers = _offer(Value(kind=ValueKind.WORDS, words=node.words)) if node.words else ""
        for kind in (ValueKind.FILE, ValueKind.FOLDER):
            offers += _offer(Value(kind=kind)) if node.takes(kind) else ""
        if offers:
            alone.append(f'        "{at}") {offers}return ;;')
    return {"after": "\n".join(after), "options": "\n".join(options), "alone": "\n".join(alone)}


def _offer(value: Value) -> str:
    match value.kind:
        case ValueKind.WORDS:
            return f"_tipchain_offer {shlex.quote(' '.join(value.words))}; "
        case ValueKind.FILE:
            return "_tipchain_files -f; "
        case ValueKind.FOLDER:
            return "_tipchain_files -d; "
        case _:
            return ""


def fish(root: CommandNode) -> str:
    """Return fish's script."""
    lines: list[str] = []
    for node in root.walk():
        here = f"complete -c tipchain -n '__tipchain_at {' '.join(node.path)}'"
        lines += [f"{here} -a {_fish(one.path[-1])} -d {_fish(one.summary)}" for one in node.below]
        words = [word for value in node.values for word in value.words]
        lines += [f"{here} -a {_fish(' '.join(words))}"] if words else []
        if node.takes(ValueKind.FILE):
            lines.append(f"{here} -F")
        elif node.takes(ValueKind.FOLDER):
            lines.append(f"{here} -a '(__fish_complete_directories)'")
        for name, (value, told) in node.options.items():
            spelling = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            lines.append(f"{here} {spelling}{_fish_value(value)} -d {_fish(told)}")
    return _filled("fish", paths=_paths(root, " "), lines="\n".join(lines))


def _fish(text: str) -> str:
    """Return a text in fish's single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fish_value(value: Value) -> str:
    match value.kind:
        case ValueKind.FLAG:
            return ""
        case ValueKind.WORDS:
            return f" -x -a {_fish(' '.join(value.words))}"
        case ValueKind.FILE:
            return " -r -F"
        case ValueKind.FOLDER:
            return " -x -a '(__fish_complete_directories)'"
        case _:
            return " -x"


SHELLS: Mapping[str, Callable[[CommandNode], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
