"""What the words of a shell script stand for at a place that it has come to, and whether its tests hold."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

FIELD = re.compile(r"""func_parser_(value|key)\w*\s+"?\$\{lines\[(\d+)\]\}"?""")
"""How the suites' scripts ask for a line of the parameter file."""
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
TEST_WORD = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|\$\([^)]*\)|\S)+""")
"""A word of ``[[ ... ]]``."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what a word stands for; in a quoted one no character has a meaning of its own."""

    text: str
    quoted: bool


@dataclass(slots=True, kw_only=True)
class State:
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

    def copy(self) -> State:
        """Return a state that goes its own way from here."""
        return replace(self, values=dict(self.values), stack=list(self.stack))

    def become(self, others: Iterable[State]) -> None:
        """Take over what ``others``, the ways that the script may have come, have in common."""
        all_ways = list(others)
        ways = [way for way in all_ways if not way.ended] or all_ways
        first = ways[0]
        self.ended = first.ended
        self.cwd = first.cwd if all(way.cwd == first.cwd for way in ways) else None
        self.old = first.old if all(way.old == first.old for way in ways) else None
        self.stack = list(first.stack) if all(way.stack == first.stack for way in ways) else []
        self.values = {
            name: value
            for name, value in first.values.items()
            if all(way.values.get(name) == value for way in ways)
        }

    def arguments(self) -> dict[str, str]:
        """Return the values of ``$1``, ``$2`` and so on."""
        return {name: value for name, value in self.values.items() if name.isdigit()}

    def called_with(self, words: Iterable[str | None]) -> State:
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

    def pieces(self, word: str, *, quoted: bool = False) -> list[Piece] | None:
        """Return the parts of what a word stands for, None if that cannot be told."""
        found: list[Piece] = []
        while word:
            pieces, word = self.first(word, quoted=quoted)
            if pieces is None:
                return None
            found += pieces
        return found

    def first(self, word: str, *, quoted: bool) -> tuple[list[Piece] | None, str]:
        """Return what the beginning of a word stands for, and its rest."""
        pieces: list[Piece] | None
        if word.startswith("\\"):
            pieces, rest = [Piece(word[1:2].strip("\n"), quoted=True)], word[2:]
        elif word.startswith("'") and not quoted:
            text, _, rest = word[1:].partition("'")
            pieces = [Piece(text, quoted=True)]
        elif word.startswith('"') and not quoted:
            end = _quote_end(word)
            pieces, rest = self.pieces(word[1:end], quoted=True), word[end + 1 :]
        elif match := VARIABLE.match(word):
            pieces = self._piece(self._value(match.group(1) or match.group(2)), quoted=quoted)
            rest = word[match.end() :]
        elif word.startswith("$(") and (end := _parenthesis_end(word)):
            pieces, rest = self._piece(self._output(word[2:end].strip()), quoted=quoted), word[end + 1 :]
        elif word[0] in "$`" or (word[0] == "{" and not quoted) or word.startswith(("<(", ">(")):
            pieces, rest = None, ""
        else:
            pieces, rest = [Piece(word[0], quoted=quoted)], word[1:]
        return pieces, rest

    @staticmethod
    def _piece(value: str | None, *, quoted: bool) -> list[Piece] | None:
        return None if value is None else [Piece(value, quoted=quoted)]

    def _value(self, name: str) -> str | None:
        return self.cwd if name == "PWD" else self.values.get(name)

    def _output(self, command: str) -> str | None:
        """Return what a command in ``$(...)`` prints: the working folder or a line of the parameter file."""
        if command == "pwd":
            return self.cwd
        if match := FIELD.fullmatch(command):
            number = int(match.group(2))
            key, _, value = (self.lines[number] if number < len(self.lines) else "").partition(":")
            return key if match.group(1) == "key" else value
        return None


def _quote_end(word: str) -> int:
    """Return where the quotation that ``word`` begins with ends."""
    at = 1
    while at < len(word) and word[at] != '"':
        at += 2 if word[at] == "\\" else 1
    return at


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
