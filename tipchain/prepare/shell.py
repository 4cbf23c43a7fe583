"""Read a prepare script as a shell would, and what it removes."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import assert_never

# Reading a shell script, as far as `tipchain.prepare.shell` follows it: its commands, and what its words stand for.
#
# It is the part of bash's grammar that preparations are written in. Words keep their source text, for what they stand
# for depends on where the script has come to.


OPERATORS = ("&&", "||", ";;", ";", "&", "|", "(", ")", "\n")
ENDS = ("\n", ";", "&")
CLOSING = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", ")", ";;"})
REDIRECTION = re.compile(r"\d*(?:&>>?|<<<|<<-?|<>|[<>]&|>>|>\||[<>])(?!\()")
NAME = re.compile(r"[A-Za-z_]\w*")


class NotReadError(Exception):
    """The script has something that is not understood; the message names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A word or an operator.

    Attributes:
        text: as it stands in the source.
        line: where it begins, from 1.
        is_word: whether it is a word.
    """

    text: str
    line: int
    is_word: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Simple:
    """A command: its words, assignments in front included."""

    words: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandList:
    """Commands with ``;``, ``&&``, ``||`` or ``|`` in front of each; the first has ``;``."""

    parts: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IfCommand:
    """``if``: pairs of a condition and what follows; None is the condition of ``else``."""

    branches: tuple[tuple[Node | None, Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCommand:
    """``case``: the word, then pairs of patterns and what follows."""

    word: str
    branches: tuple[tuple[tuple[str, ...], Node], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopCommand:
    """``for`` (with its name and words), ``while`` or ``until``."""

    body: Node
    name: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """A subshell in parentheses."""

    body: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Negated:
    """A command with ``!`` in front."""

    body: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function's definition."""

    name: str
    body: Node


Node = Simple | CommandList | IfCommand | CaseCommand | LoopCommand | Inner | Negated | Function


def parse_shell(text: str) -> CommandList:
    """Return the commands of a script.

    Raises:
        NotReadError: it has something that is not understood.
    """
    parser = _Parser(tokens(text))
    chain = parser.commands()
    if parser.text is not None:
        raise NotReadError(f"line {parser.line}: {parser.text!r} stands alone")
    return chain


def tokens(text: str) -> list[Token]:
    """Return the words and operators of a script; comments and redirections are left out."""
    return list(_Scanner(text).scan())


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.here: list[str] = []

    def scan(self) -> list[Token]:
        found: list[Token] = []
        while self.skip_blanks():
            line, begin = self.line, self.at
            if match := REDIRECTION.match(self.text, self.at):
                self.redirect(match)
                continue
            operator = next((one for one in OPERATORS if self.text.startswith(one, self.at)), None)
            if operator is not None and not self.text.startswith("((", self.at):
                self.at += len(operator)
                found.append(Token(text=operator, line=line, is_word=False))
                if operator == "\n":
                    self.end_line()
                continue
            self.read_word()
            found.append(Token(text=self.text[begin : self.at], line=line, is_word=True))
        return found

    def skip_blanks(self) -> bool:
        """Skip blanks and comments; return whether something is left."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == "#":
                end = self.text.find("\n", self.at)
                self.at = end if end >= 0 else len(self.text)
            elif char in " \t\r":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.move(self.at + 2)
            else:
                return True
        return False

    def end_line(self) -> None:
        """Count the line, and skip the texts of its ``<<``."""
        self.line += 1
        for mark in self.here:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = end if end >= 0 else len(self.text)
                content, self.at = self.text[self.at : end], end + 1
                self.line += 1
                if content.strip() == mark:
                    break
        self.here = []

    def redirect(self, match: re.Match[str]) -> None:
        self.at = match.end()
        self.skip_blanks()
        begin = self.at
        self.read_word()
        if re.fullmatch(r"\d*<<-?", match.group()):
            self.here.append(self.text[begin : self.at].strip("'\"\\"))

    def read_word(self) -> None:
        """Go to the word's end; ``[[ ... ]]`` and ``(( ... ))`` are one word each."""
        for opening, end in (("[[ ", " ]]"), ("((", "))")):
            if self.text.startswith(opening, self.at):
                self.move(self.find(end, self.at) + len(end) - 1)
                return
        begin = self.at
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;&|)" or (char in "<>" and self.text[self.at + 1 : self.at + 2] != "("):
                break
            if char == "(":
                # An array's values, or a pattern; alone it is an operator.
                if self.at == begin or self.text[self.at - 1] not in "=<>?*+@!":
                    break
                self.move(self.closing(self.at + 1, ")"))
            else:
                self.move(self.piece(self.at))
        if self.at == begin:
            raise NotReadError(f"line {self.line}: {self.text[self.at : self.at + 1]!r} is not understood")

    def piece(self, at: int) -> int:
        """Return where the character, the quoted text or the expansion at ``at`` ends."""
        char, two = self.text[at], self.text[at : at + 2]
        if char == "\\":
            return at + 2
        if char == "'":
            return self.find("'", at + 1)
        if char in '"`':
            return self.closing(at + 1, char)
        if two in ("$(", "${", "<(", ">("):
            return self.closing(at + 2, ")" if two[1] == "(" else "}")
        return at + 1

    def closing(self, at: int, end: str) -> int:
        """Return where a text that ``end`` closes is over; what is quoted in it does not count."""
        while at < len(self.text):
            if self.text[at] == end:
                return at + 1
            if end == '"' and self.text[at] == "'":
                at += 1
            elif end == ")" and self.text[at] == "(":
                at = self.closing(at + 1, ")")
            else:
                at = self.piece(at)
        raise NotReadError(f"line {self.line}: {end} is missing")

    def find(self, end: str, at: int) -> int:
        found = self.text.find(end, at)
        if found < 0:
            raise NotReadError(f"line {self.line}: {end} is missing")
        return found + 1

    def move(self, at: int) -> None:
        self.line += self.text.count("\n", self.at, at)
        self.at = min(at, len(self.text))


class _Parser:
    def __init__(self, found: Sequence[Token]) -> None:
        self.tokens, self.at = found, 0

    @property
    def text(self) -> str | None:
        """The token that is next; None at the end."""
        return self.tokens[self.at].text if self.at < len(self.tokens) else None

    @property
    def line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 1

    def take(self, *expected: str) -> str:
        """Take the next token, one of ``expected`` if any are named."""
        text = self.text
        if text is None or (expected and text not in expected):
            raise NotReadError(f"line {self.line}: expected {' or '.join(expected) or 'more'}, found {text!r}")
        self.at += 1
        return text

    def skip(self, *texts: str) -> None:
        while self.text in texts:
            self.at += 1

    def commands(self) -> CommandList:
        """Read commands up to a word that closes what they stand in."""
        parts: list[tuple[str, Node]] = []
        joint = ";"
        while True:
            self.skip(*(ENDS if joint == ";" else ("\n",)))
            if self.text is None or self.text in CLOSING:
                return CommandList(parts=tuple(parts))
            parts.append((joint, self.command()))
            joint = self.take() if self.text in ("&&", "||", "|") else ";"

    def command(self) -> Node:  # noqa: PLR0911  (one for each)
        match self.text:
            case "!":
                self.take()
                return Negated(body=self.command())
            case "if":
                return self.choice()
            case "case":
                return self.case()
            case "for" | "select":
                return self.loop_over()
            case "while" | "until":
                self.take()
                condition = self.commands()
                return LoopCommand(body=CommandList(parts=(*condition.parts, *self.block("do", "done").parts)))
            case "{":
                return self.block("{", "}")
            case "(":
                return Inner(body=self.block("(", ")"))
            case "function":
                self.take()
                return self.function(self.take())
        return self.simple()

    def block(self, begin: str, end: str) -> CommandList:
        self.skip(*ENDS)
        self.take(begin)
        body = self.commands()
        self.take(end)
        return body

    def choice(self) -> IfCommand:
        branches: list[tuple[Node | None, Node]] = []
        while self.take("if", "elif", "else", "fi") != "fi":
            condition = None
            if self.tokens[self.at - 1].text != "else":
                condition = self.commands()
                self.take("then")
            branches.append((condition, self.commands()))
        return IfCommand(branches=tuple(branches))

    def case(self) -> CaseCommand:
        self.take("case")
        word = self.take()
        self.skip("\n")
        self.take("in")
        branches: list[tuple[tuple[str, ...], Node]] = []
        while True:
            self.skip("\n", ";;")
            if self.text == "esac":
                self.take()
                return CaseCommand(word=word, branches=tuple(branches))
            self.skip("(")
            patterns = [self.take()]
            while self.take("|", ")") == "|":
                patterns.append(self.take())
            branches.append((tuple(patterns), self.commands()))

    def loop_over(self) -> LoopCommand:
        self.take()
        name = self.take()
        words: list[str] = []
        self.skip("\n")
        if self.text == "in":
            self.take()
            while self.text not in (*ENDS, None):
                words.append(self.take())
        self.skip(*ENDS)
        ends = ("{", "}") if self.text == "{" else ("do", "done")
        return LoopCommand(name=name, words=tuple(words), body=self.block(*ends))

    def function(self, name: str) -> Function:
        if self.text == "(":
            self.take()
            self.take(")")
        self.skip("\n")
        return Function(name=name, body=self.command())

    def simple(self) -> Node:
        line, words = self.line, list[str]()
        while self.at < len(self.tokens) and self.tokens[self.at].is_word:
            words.append(self.take())
        if not words:
            raise NotReadError(f"line {line}: {self.text!r} is not understood")
        if self.text == "(" and len(words) == 1 and NAME.fullmatch(words[0]):
            return self.function(words[0])
        return Simple(words=tuple(words), line=line)


# What words stand for

FIELD = re.compile(r"""func_parser_(value|key)\w*\s+"?\$\{lines\[(\d+)\]\}"?""")
"""How the suites' scripts ask for a line of the parameter file."""
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
TEST_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|\$\([^)]*\)|\S)+""")
"""A word of ``[[ ... ]]``."""


@dataclass(frozen=True, slots=True)
class WordPart:
    """A part of what a word stands for; in a quoted one no character has a meaning of its own."""

    text: str
    quoted: bool


@dataclass(slots=True, kw_only=True)
class ShellState:
    """How far a script has come.

    Attributes:
        cwd: the current folder; None if it cannot be told.
        old: the one before.
        lines: of the parameter file.
        values: variables that can be told.
        stack: folders of ``pushd``.
        ended: whether it has left the script for certain.
    """

    cwd: str | None
    old: str | None
    lines: tuple[str, ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    stack: list[str | None] = field(default_factory=list)
    ended: bool = False

    def copy(self) -> ShellState:
        """Return a state that goes its own way from here."""
        return replace(self, values=dict(self.values), stack=list(self.stack))

    def become(self, others: Iterable[ShellState]) -> None:
        """Take over what ``others``, the ways that the script may have come, have in common."""
        all_ways = list(others)
        ways = [way for way in all_ways if not way.ended] or all_ways
        first = ways[0]
        self.ended = first.ended
        self.cwd = first.cwd if all(way.cwd == first.cwd for way in ways) else None
        self.old = first.old if all(way.old == first.old for way in ways) else None
        self.stack = list(first.stack) if all(way.stack == first.stack for way in ways) else []
        self.values = {
            name: value for name, value in first.values.items() if all(way.values.get(name) == value for way in ways)
        }

    def arguments(self) -> dict[str, str]:
        """Return the values of ``$1``, ``$2`` and so on."""
        return {name: value for name, value in self.values.items() if name.isdigit()}

    def called_with(self, words: Iterable[str | None]) -> ShellState:
        """Return the state that a function or a script begins in."""
        numbers = {str(number): word for number, word in enumerate(words, 1) if word is not None}
        own = {name: value for name, value in self.values.items() if not name.isdigit()}
        return replace(self.copy(), values=own | numbers)

    def place(self, path: str | None) -> str | None:
        """Return a path made absolute, None if it cannot be told."""
        if path is None or (self.cwd is None and not path.startswith("/")):
            return None
        return os.path.normpath(os.path.join(self.cwd or "/", path))  # noqa: PTH118 - may be a pattern

    def enter(self, folder: str | None) -> None:
        """Change the folder."""
        self.cwd, self.old = self.place(folder), self.cwd

    def assign(self, name: str, word: str) -> None:
        """Give a variable what ``word`` stands for."""
        value = self.plain(word)
        self.values.pop(name, None)
        if value is not None:
            self.values[name] = value

    def plain(self, word: str) -> str | None:
        """Return what a word stands for, None if that cannot be told."""
        pieces = self.pieces(word)
        return None if pieces is None else "".join(piece.text for piece in pieces)

    def pattern(self, word: str) -> str | None:
        """Return the pattern of `glob` that a word stands for, None if that cannot be told."""
        pieces = self.pieces(word)
        if pieces is None:
            return None
        return "".join(glob.escape(piece.text) if piece.quoted else piece.text for piece in pieces)

    def matches(self, value: str | None, word: str) -> bool | None:
        """Return whether ``value`` matches the pattern ``word``, None if that cannot be told."""
        pattern = self.pattern(word)
        return None if value is None or pattern is None else fnmatch.fnmatchcase(value, pattern)

    def holds(self, words: list[str]) -> bool | None:
        """Return whether the test of these words holds, None if that cannot be told."""
        for sign, combine in (("||", any_), ("-o", any_), ("&&", all_), ("-a", all_)):
            if sign in words:
                at = words.index(sign)
                return combine([self.holds(words[:at]), self.holds(words[at + 1 :])])
        found: bool | None = None
        match words:
            case ["!", *rest]:
                found = not_(self.holds(rest))
            case ["-z" | "-n" as sign, word]:
                value = self.plain(word)
                found = None if value is None else (value == "") == (sign == "-z")
            case [left, "=" | "==", right]:
                found = self.matches(self.plain(left), right)
            case [left, "!=", right]:
                found = not_(self.matches(self.plain(left), right))
            case [left, "=~", right]:
                found = self.searches(self.plain(left), right)
        return found

    def searches(self, value: str | None, word: str) -> bool | None:
        """Return whether the regular expression ``word`` is found in ``value``, None if that cannot be told."""
        pieces = self.pieces(word)
        if value is None or pieces is None:
            return None
        regex = "".join(re.escape(piece.text) if piece.quoted else piece.text for piece in pieces)
        try:
            return re.search(regex, value) is not None
        except re.error:
            return None

    def pieces(self, word: str, *, quoted: bool = False) -> list[WordPart] | None:
        """Return the parts of what a word stands for, None if that cannot be told."""
        found: list[WordPart] = []
        while word:
            pieces, word = self.first(word, quoted=quoted)
            if pieces is None:
                return None
            found += pieces
        return found

    def first(self, word: str, *, quoted: bool) -> tuple[list[WordPart] | None, str]:
        """Return what the beginning of a word stands for, and its rest."""
        pieces: list[WordPart] | None
        if word.startswith("\\"):
            pieces, rest = [WordPart(word[1:2].strip("\n"), quoted=True)], word[2:]
        elif word.startswith("'") and not quoted:
            text, _, rest = word[1:].partition("'")
            pieces = [WordPart(text, quoted=True)]
        elif word.startswith('"') and not quoted:
            # Where the quotation that ``word`` begins with ends.
            end = 1
            while end < len(word) and word[end] != '"':
                end += 2 if word[end] == "\\" else 1
            pieces, rest = self.pieces(word[1:end], quoted=True), word[end + 1 :]
        elif match := VARIABLE.match(word):
            name = match.group(1) or match.group(2)
            pieces = self._piece(self.cwd if name == "PWD" else self.values.get(name), quoted=quoted)
            rest = word[match.end() :]
        elif word.startswith("$(") and (end := _parenthesis_end(word)):
            pieces, rest = self._piece(self._output(word[2:end].strip()), quoted=quoted), word[end + 1 :]
        elif word[0] in "$`" or (word[0] == "{" and not quoted) or word.startswith(("<(", ">(")):
            pieces, rest = None, ""
        else:
            pieces, rest = [WordPart(word[0], quoted=quoted)], word[1:]
        return pieces, rest

    @staticmethod
    def _piece(value: str | None, *, quoted: bool) -> list[WordPart] | None:
        return None if value is None else [WordPart(value, quoted=quoted)]

    def _output(self, command: str) -> str | None:
        """Return what a command in ``$(...)`` prints: the working folder or a line of the parameter file."""
        if command == "pwd":
            return self.cwd
        if match := FIELD.fullmatch(command):
            number = int(match.group(2))
            key, _, value = (self.lines[number] if number < len(self.lines) else "").partition(":")
            return key if match.group(1) == "key" else value
        return None


def _parenthesis_end(word: str) -> int:
    """Return where the parenthesis of the ``$(`` that ``word`` begins with closes, 0 for nowhere."""
    depth = 0
    for at, char in enumerate(word):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == ")" and depth == 0:
            return at
    return 0


def test_words(words: list[str]) -> list[str] | None:
    """Return the words inside a ``[[ ... ]]``, which is one word, or a ``[ ... ]``; None for other commands."""
    if words[0].startswith("[["):
        return TEST_WORD.findall(words[0][2:-2].replace("\\\n", " "))
    return {"[": words[1:-1], "test": words[1:]}.get(words[0])


def any_(found: Iterable[bool | None]) -> bool | None:
    """Return whether one is true, None if that cannot be told."""
    values = list(found)
    return True if True in values else None if None in values else False


def all_(found: Iterable[bool | None]) -> bool | None:
    """Return whether all are true, None if that cannot be told."""
    values = list(found)
    return False if False in values else None if None in values else True


def not_(found: bool | None) -> bool | None:
    """Return the contrary, None if that cannot be told."""
    return None if found is None else not found


# What a suite's ``prepare.sh`` may delete, read from the script before it runs.
#
# The script is followed for one parameter file and mode: its variables, folders, branches, functions and the scripts that
# it calls. Where a condition cannot be told both ways are followed; commands in front are taken to succeed. So what is
# named *may* be deleted; an operand that cannot be told is named as such.


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
