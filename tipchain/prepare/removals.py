"""What a suite's ``prepare.sh`` may delete, read from the script before it runs.

The script is followed for one parameter file and mode: its variables, folders, branches, functions and the scripts that
it calls. Where a condition cannot be told both ways are followed; commands in front are taken to succeed. So what is
named *may* be deleted; an operand that cannot be told is named as such.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from tipchain.prepare.shell import (
    CaseCommand,
    CommandList,
    Function,
    IfCommand,
    Inner,
    LoopCommand,
    Negated,
    Node,
    NotReadError,
    ShellState,
    Simple,
    all_,
    any_,
    not_,
    parse_shell,
    test_words,
)

DEEPEST = 8
"""So many scripts, functions and ``eval`` inside each other are followed."""
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
DECLARING = frozenset({"local", "export", "readonly", "declare", "typeset"})
PASSING = frozenset({"sudo", "command", "builtin", "exec", "nohup", "time", "env"})
"""Words in front of a command that change nothing here."""
SHELLS = frozenset({"bash", "sh"})
KNOWN = {":": True, "true": True, "false": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """An operand of an ``rm -r``.

    Attributes:
        script: whose line it is.
        line: from 1.
        word: as it stands there.
        pattern: what it stands for, absolute, a pattern of `glob`; None if that cannot be told.
    """

    script: str
    line: int
    word: str
    pattern: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """What a script may delete.

    Attributes:
        paths: what is there now, absolute and sorted.
        untold: operands that cannot be told, and scripts that cannot be read, in words.
    """

    paths: tuple[Path, ...] = ()
    untold: tuple[str, ...] = ()


def find_removals(script: Path, root: Path, arguments: Sequence[str]) -> Removals:
    """Return what ``script`` may delete when it is started in ``root`` with ``arguments``; the first names its file."""
    removals, unread = follow(script, root, arguments)
    there = {Path(found) for one in removals if one.pattern for found in glob.glob(one.pattern)}  # noqa: PTH207
    untold = [f"{one.script}:{one.line}: rm -r {one.word}" for one in removals if one.pattern is None]
    return Removals(paths=tuple(sorted(there)), untold=tuple(dict.fromkeys([*untold, *unread])))


def follow(script: Path, root: Path, arguments: Sequence[str]) -> tuple[list[Removal], list[str]]:
    """Return the operands of every ``rm -r`` that may be reached, and why a script could not be followed."""
    lines = _lines(root / arguments[0]) if arguments else ()
    follower = _Follower(root)
    state = ShellState(cwd=str(root), old=str(root), lines=lines).called_with(arguments)
    follower.script(script, state, 0)
    return follower.removals, follower.unread


def _lines(params: Path) -> tuple[str, ...]:
    """Return the lines as the scripts count them, without the empty ones."""
    try:
        text = params.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line for line in text.split("\n") if line)


class _Follower:
    """Goes through a script; what is found is in ``removals`` and ``unread``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.removals: list[Removal] = []
        self.unread: list[str] = []
        self.functions: dict[str, Node] = {}
        self.name = ""

    def script(self, path: Path, state: ShellState, depth: int) -> None:
        """Follow a script."""
        before, self.name = self.name, os.path.relpath(path, self.root)
        try:
            self.text(path.read_text(encoding="utf-8", errors="replace"), state, depth)
        except FileNotFoundError:
            pass  # downloaded later, or the log will say so
        except OSError as error:
            self.unread.append(f"{self.name}: {error.strerror}")
        self.name = before

    def text(self, text: str, state: ShellState, depth: int) -> None:
        """Follow the commands of a text."""
        try:
            chain = parse_shell(text)
        except NotReadError as error:
            if re.search(r"\brm\b", text):
                self.unread.append(f"{self.name}: {error}")
            return
        self.node(chain, state, depth)

    def node(self, node: Node, state: ShellState, depth: int) -> bool | None:
        """Follow a node; return whether it succeeds, None if that cannot be told."""
        status: bool | None = None
        if state.ended:
            return status
        match node:
            case Simple():
                status = self.simple(node, state, depth)
            case CommandList():
                status = self.chain(node, state, depth)
            case IfCommand():
                self.choice(node, state, depth)
            case CaseCommand():
                self.case(node, state, depth)
            case LoopCommand():
                self.loop(node, state, depth)
            case Inner():
                status = self.node(node.body, state.copy(), depth)
            case Negated():
                status = not_(self.node(node.body, state, depth))
            case Function():
                self.functions[node.name] = node.body
            case _:
                assert_never(node)
        return status

    def chain(self, chain: CommandList, state: ShellState, depth: int) -> bool | None:
        status: bool | None = True
        for joint, part in chain.parts:
            if joint == ";":
                status = self.node(part, state, depth)
            elif joint == "|":
                status = self.node(part, state.copy(), depth)
            elif status is None and joint == "||":
                other = state.copy()
                status = any_([None, self.node(part, other, depth)])
                state.become([state.copy(), other])
            elif status is None:
                status = all_([None, self.node(part, state, depth)])
            elif status == (joint == "&&"):
                status = self.node(part, state, depth)
        return status

    def choice(self, choice: IfCommand, state: ShellState, depth: int) -> None:
        ways: list[ShellState] = []
        for condition, body in choice.branches:
            holds = True if condition is None else self.node(condition, state, depth)
            if self.way(body, state, depth, holds, ways):
                break
        else:
            ways.append(state.copy())
        state.become(ways)

    def case(self, case: CaseCommand, state: ShellState, depth: int) -> None:
        word = state.plain(case.word)
        ways: list[ShellState] = []
        for patterns, body in case.branches:
            holds = any_(state.matches(word, pattern) for pattern in patterns)
            if self.way(body, state, depth, holds, ways):
                break
        else:
            ways.append(state.copy())
        state.become(ways)

    def way(self, body: Node, state: ShellState, depth: int, holds: bool | None, ways: list[ShellState]) -> bool:
        """Follow a branch unless its condition does not hold; return whether it is the last that may be taken."""
        if holds is not False:
            ways.append(state.copy())
            self.node(body, ways[-1], depth)
        return holds is True

    def loop(self, loop: LoopCommand, state: ShellState, depth: int) -> None:
        ways = [state.copy()]
        for word in dict.fromkeys(state.plain(word) for word in loop.words or ("$",)):
            way = state.copy()
            way.values.pop(loop.name, None)
            if word is not None:
                way.values[loop.name] = word
            self.node(loop.body, way, depth)
            way.ended = False
            ways.append(way)
        state.become(ways)

    def simple(self, command: Simple, state: ShellState, depth: int) -> bool | None:
        words = list(command.words)
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            words.pop(0)
            state.assign(*match.groups())
        while words and words[0] in PASSING:
            words.pop(0)
        if words and (test := test_words(words)) is not None:
            return state.holds(test)
        name = state.plain(words[0]) if words else None
        if name is None:
            return None
        if os.path.basename(name) == "rm":  # noqa: PTH119 - a word
            self.remove(words[1:], command.line, state)
        elif name in ("exit", "return"):
            state.ended = True
        elif depth < DEEPEST:
            self.call(name, words[1:], state, depth + 1)
        return KNOWN.get(name)

    def call(self, name: str, words: list[str], state: ShellState, depth: int) -> None:
        """Follow what changes the state, or has commands of its own; other programs do not count here."""
        given = [state.plain(word) for word in words]
        if name in self.functions:
            inner = state.called_with(given)
            self.node(self.functions[name], inner, depth)
            inner.ended, own = False, state.arguments()
            state.become([inner])
            state.values = {key: value for key, value in state.values.items() if key not in inner.arguments()} | own
        elif name in DECLARING:
            for match in filter(None, map(ASSIGNMENT.fullmatch, words)):
                state.assign(*match.groups())
        elif name in ("cd", "pushd", "popd"):
            operands = [word for word in given if word is None or word == "-" or word[:1] != "-"]
            if name == "pushd":
                state.stack.append(state.cwd)
            if name == "popd":
                state.enter(state.stack.pop() if state.stack else None)
            elif not operands:
                state.enter(os.path.expanduser("~"))  # noqa: PTH111 - a word
            else:
                state.enter(state.old if operands[0] == "-" else operands[0])
        elif name == "eval" and None not in given:
            self.text(" ".join(filter(None, given)), state, depth)
        elif name in ("source", ".") and given and (path := state.place(given[0])):
            self.script(Path(path), state, depth)
        elif name in SHELLS:
            while given and (given[0] or "").startswith("-"):
                given.pop(0)
            if given and (path := state.place(given[0])):
                self.script(Path(path), state.called_with(given[1:]), depth)

    def remove(self, words: list[str], line: int, state: ShellState) -> None:
        options = [word for word in words if word.startswith("-")]
        if not any(word == "--recursive" or (word[1:2] != "-" and set("rR") & set(word)) for word in options):
            return
        here = None if state.cwd is None else glob.escape(state.cwd)
        for word in (word for word in words if not word.startswith("-")):
            pattern = ShellState(cwd=here, old=None).place(state.pattern(word))
            self.removals.append(Removal(script=self.name, line=line, word=word, pattern=pattern))
