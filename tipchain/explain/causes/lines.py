"""The statements of the user's code: which one runs, how both frameworks would write it, which one stands opposite it."""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

import numpy as np

from tipchain.explain.findings import SourceLine, source_of
from tipchain.explain.locate.matching import best_pairs
from tipchain.facts.functions import ALIASES, NAMES, OF_TORCH
from tipchain.facts.layers import KINDS
from tipchain.framework_types import Model, Nested

LONGEST = 120
"""Letters of a statement that a message has at most."""
LITERAL = (ast.Constant, ast.Tuple, ast.List, ast.UnaryOp, ast.USub, ast.Load)
Passed = tuple[Sequence[bool], Mapping[str | None, bool]]
_HERE, _PYTHON = Path(__file__).parents[2], Path(os.__file__).parent
_OWN = Path(__file__).parent, _HERE / "facts"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statement:
    """A statement of a file, or the body of a lambda.

    Attributes:
        line: where it begins.
        text: what stands there, shortened.
        code: all of it, as Python writes it.
        loads: the names that it reads, with the attributes behind them: ``"self.mean"``.
        stores: the names that it sets.
        calls: of the arguments of the functions that it calls, by place and by name, whether they are computed in it.
    """

    line: int
    text: str
    code: str
    loads: Sequence[str] = ()
    stores: Sequence[str] = ()
    calls: Mapping[str, Passed] = field(default_factory=dict)


@cache
def statements_of(file: str) -> tuple[dict[int, Statement], dict[tuple[int | None, int | None], Statement]]:
    """Return a file's statements by line, and the bodies of its lambdas by line and column."""
    by_line: dict[int, Statement] = {}
    lambdas: dict[tuple[int | None, int | None], Statement] = {}
    for node in ast.walk(_parsed(file)):
        if isinstance(node, ast.Lambda):
            lambdas[node.body.lineno, node.body.col_offset] = _statement(node.body, [node.body])
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        if not body:
            by_line |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), _statement(node, [node]))
            continue
        # Of a statement with a body what it evaluates before: a condition, what a loop runs over, a context.
        parts = [getattr(node, name, ()) for name in ("test", "iter", "target", "items", "subject")]
        flat = [each for one in parts for each in (one if isinstance(one, list | tuple) else [one])]
        made = _statement(node, flat, linecache.getline(file, node.lineno))
        by_line |= dict.fromkeys(range(node.lineno, max(body[0].lineno, node.lineno + 1)), made)
    return by_line, lambdas


def _statement(node: ast.stmt | ast.expr, parts: Sequence[ast.AST], text: str = "") -> Statement:
    loads: dict[str, None] = {}
    stores: dict[str, None] = {}
    calls: dict[str, Passed] = {}
    for one in (one for part in parts for one in ast.walk(part)):
        if isinstance(one, ast.Call):
            named = {each.arg: _is_spelt(each.value) for each in one.keywords}
            calls[last_name(ast.unparse(one.func))] = [_is_spelt(each) for each in one.args], named
        if isinstance(one, ast.Name | ast.Attribute):
            dotted, stored = ast.unparse(one), not isinstance(one.ctx, ast.Load)
            if all(part.isidentifier() for part in dotted.split(".")):
                (stores if stored else loads)[dotted] = None
                if stored and isinstance(node, ast.AugAssign):
                    loads[dotted] = None
    code = " ".join((text or ast.unparse(node)).split())
    shown = code if len(code) <= LONGEST else f"{code[: LONGEST - 1]}…"
    return Statement(line=node.lineno, text=shown, code=code, loads=tuple(loads), stores=tuple(stores), calls=calls)


def _is_spelt(node: ast.expr) -> bool:
    """Tell whether an expression computes nothing: a literal or a name."""
    bare = isinstance(node, ast.Name | ast.Attribute | ast.Starred)
    return bare or all(isinstance(one, LITERAL) for one in ast.walk(node))


def statement_of(code: CodeType, line: int) -> Statement | None:
    """Return the statement of a line in some running code; None where no source is."""
    by_line, lambdas = statements_of(code.co_filename)
    if code.co_name == "<lambda>" and hasattr(code, "co_positions"):  # Python 3.11
        for begins, _, column, _ in code.co_positions():
            if (begins, column) in lambdas:
                return lambdas[begins, column]
    return by_line.get(line)


def last_name(name: str) -> str:
    """Return the part of a name after its last dot."""
    return name.rpartition(".")[2]


@cache
def _parsed(file: str) -> ast.Module:
    with suppress(SyntaxError):
        return ast.parse("".join(linecache.getlines(file)))
    return ast.Module(body=[], type_ignores=[])


def node_of(value: object) -> tuple[str, ast.FunctionDef | ast.ClassDef] | None:
    """Return the file of a function or a class, and its code as it stands there; None where it has no source."""
    source = source_of(value)
    every = ast.walk(_parsed(source.file)) if source is not None else ()
    for node in (one for one in every if isinstance(one, ast.FunctionDef | ast.ClassDef)):
        begins = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        if source is not None and source.line in (begins, node.lineno):
            return source.file, node
    return None


def only_return(function: object) -> SourceLine | None:
    """Return the line of a function's one return statement; None where it has several, or no source."""
    code = node_of(function)
    found = [one.lineno for one in ast.walk(code[1]) if isinstance(one, ast.Return)] if code is not None else []
    return SourceLine.at(code[0], found[0]) if code is not None and len(found) == 1 else None


class Code(NamedTuple):
    """A function: its file, its first line, and its name behind that of its class."""

    file: str
    first: int
    name: str


class Frame(NamedTuple):
    """A statement that was running.

    Attributes:
        place: ``file:line``.
        line: what stands there, of a statement of several lines all of it.
        code: the function that it is part of.
        statement: it; None where no source is.
    """

    place: str = ""
    line: str = ""
    code: Code | None = None
    statement: Statement | None = None

    @property
    def reading(self) -> str:
        """The whole statement as both frameworks would write it."""
        return reading(self.line if self.statement is None else self.statement.code)

    @property
    def source(self) -> SourceLine | None:
        """The statement's line, None where no source is."""
        return SourceLine.at(self.code.file, int(self.place.rpartition(":")[2])) if self.code else None


Frames: TypeAlias = "tuple[Frame, ...]"
"""Statements that called one another, innermost first."""


def callers(framework: str = "paddle") -> Frames:
    """Return all running statements that are not the framework's, innermost first."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    found: list[Frame] = []
    while frame is not None:
        file = frame.f_code.co_filename
        library = any(f"{os.sep}{one}{os.sep}" in file for one in (framework, "einops"))
        own = Path(file).parent in _OWN or library or Path(file).parent == _PYTHON
        if not own and Path(file).is_relative_to(_HERE):
            break
        if not own:
            statement = statement_of(frame.f_code, frame.f_lineno)
            found.append(_frame(_code_of(frame.f_code), frame.f_lineno, statement))
        frame = frame.f_back
    return tuple(found)


def _code_of(code: CodeType) -> Code:
    known = _functions(code.co_filename).get(code.co_firstlineno)
    return Code(code.co_filename, code.co_firstlineno, known[0] if known else code.co_name)


@cache
def _frame(code: Code, line: int, statement: Statement | None) -> Frame:
    text = linecache.getline(code.file, line).strip()
    if statement is not None and reading(text) != reading(statement.code):  # one line of several
        text = statement.text
    return Frame(f"{Path(code.file).name}:{line}", text, code, statement)


def innermost(frames: Frames) -> Frame:
    """Return the innermost statement, one without a place where there is none."""
    return frames[0] if frames else Frame()


def codes_of(frames: Iterable[Frame]) -> list[Code]:
    """Return the functions that some statements are of."""
    return [one.code for one in dict.fromkeys(frames) if one.code is not None]


def forwards(layer: Model) -> list[Code]:
    """Return the forward functions of a Paddle layer and those within."""
    functions: Iterator[Nested] = (getattr(type(one), "forward", None) for one in layer.sublayers(include_self=True))
    return list(dict.fromkeys(_code_of(one.__code__) for one in functions if hasattr(one, "__code__")))


def functions_in(file: str) -> list[Code]:
    """Return the functions of a file."""
    return [Code(file, first, name) for first, (name, _) in _functions(file).items()]


SPELLINGS = re.compile(r"\b(?:torch|paddle|nn|F|init|einops)\.(?:[a-z_]+\.)*|\s")
"""Spellings that differ in lines of both frameworks that do the same."""
_CLASSES = {kind.classes[0][0]: kind.classes[1][0] for kind in KINDS if [len(one) for one in kind.classes] == [1, 1]}
_HELD = {"add_module": "add_sublayer", "modules": "sublayers", "ModuleList": "LayerList", "bias_attr": "bias"}
SPOKEN = {**ALIASES, **OF_TORCH, **NAMES, **_CLASSES, **_HELD}
"""One word for things that the frameworks call otherwise."""
BRACKETS = str.maketrans("[]", "()")
FIRST = frozenset(
    """
    name sublayer in_channels out_channels in_features out_features num_features num_channels normalized_shape
    num_embeddings embedding_dim embed_dim num_heads kernel_size x input tensor p sublayers start stop num min max
    axis dim offset output_size num_groups
""".split()
)
"""Arguments that are given by position as well as by name."""


class _Plain(ast.NodeTransformer):
    """Writes calls' first arguments by position, and leaves out those that change no result."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "contiguous":
            return node.func.value
        node.keywords = [one for one in node.keywords if one.arg != "inplace"]
        while node.keywords and node.keywords[0].arg in FIRST:
            node.args.append(node.keywords.pop(0).value)
        return node


@cache
def reading(line: str) -> str:
    """Return a statement as both frameworks would write it: names of functions and settings, brackets."""
    header = re.fullmatch(r"(?:el)?((?:if|for|while|with)\b.*:)(?:\s*#.*)?", line)
    with suppress(SyntaxError):
        line = ast.unparse(_Plain().visit(ast.parse(f"{header[1]} pass" if header else line)))
    code = SPELLINGS.sub("", re.sub(r"\s#.*", "", line)).replace("'", '"')
    words = re.sub(r"[A-Za-z_]\w*", lambda word: SPOKEN.get(word[0], re.sub(r"(\d)d$", r"\1D", word[0])), code)
    return re.sub(r",\)", ")", words.translate(BRACKETS))


def likeness(one: str, other: str) -> float:
    """Return the share of equal letters of two statements."""
    return 1.0 if one == other else SequenceMatcher(None, one, other, autojunk=False).ratio()


LEAST_ALIKE = 0.4
"""Share of equal letters from which two statements may stand opposite each other."""


def opposite(frame: Frame, codes: Iterable[Code]) -> tuple[Frame, bool] | None:
    """Return the other program's statement opposite one, and whether it is: else it is the one before the place.

    The statements of both functions are aligned in their order, so that all together read most alike. None where the other
    program has no function of the same name.
    """
    code = None if frame.code is None else namesake(frame.code, codes)
    if frame.code is None or code is None or frame.statement is None:
        return None
    mine, others = _body(frame.code), _body(code)
    at = next((number for number, one in enumerate(mine) if one.line == frame.statement.line), None)
    if at is None:
        return None
    aligned = _aligned(*(tuple(reading(one.code) for one in each) for each in (mine, others)))
    before = [number for number in aligned[: at + 1] if number is not None]
    return (_frame(code, others[before[-1]].line, others[before[-1]]), aligned[at] is not None) if before else None


def at_line(file: str, line: int) -> Frame | None:
    """Return the statement of a line outside of a model's run; None where no function is."""
    around = [
        (name, first, node)
        for first, (name, node) in _functions(file).items()
        if first <= line <= (node.end_lineno or 0)
    ]
    name, first, _ = max(around, key=lambda one: one[1], default=("", 0, None))
    return _frame(Code(file, first, name), line, statements_of(file)[0].get(line)) if name else None


def only_unlike(mine: Iterable[Code], others: Iterable[Code]) -> tuple[Frame, Frame] | None:
    """Return the only statement of some functions that reads otherwise than its counterpart, and that one.

    None where there are none, or several, or some of the others' functions have no namesake.
    """
    mine, others = list(mine), list(dict.fromkeys(others))
    if not all(namesake(one, mine) for one in others):  # then what differs may stand there
        return None
    same = [code for one in others if (code := namesake(one, mine))]
    frames, other_frames = (
        [_frame(code, one.line, one) for code in each for one in _body(code)] for each in (same, others)
    )
    found: dict[object, tuple[Frame, Frame]] = {}
    for frame in other_frames:
        if against := reads_otherwise(frame, mine):
            found.setdefault(against.statement, (against, frame))
    for frame in frames:
        if against := reads_otherwise(frame, others):
            found.setdefault(frame.statement, (frame, against))
    return next(iter(found.values())) if len(found) == 1 else None


def reads_otherwise(frame: Frame, codes: Iterable[Code]) -> Frame | None:
    """Return a statement's counterpart that reads otherwise, or the statement before; else None."""
    against = opposite(frame, codes)
    return None if against is None or (against[1] and against[0].reading == frame.reading) else against[0]


def reads_alike(frame: Frame, codes: Iterable[Code]) -> bool:
    """Tell whether a statement reads as its counterpart does."""
    against = opposite(frame, codes)
    return against is not None and against[1] and against[0].reading == frame.reading


def calls_of(file: str, name: str) -> list[SourceLine]:
    """Return the lines of a file that call a function or class by a name."""
    return [
        SourceLine.at(file, one.lineno)
        for one in ast.walk(_parsed(file))
        if isinstance(one, ast.Call) and called_name(one) == name
    ]


def called_name(node: ast.AST) -> str:
    """Return the name of the class or function that an expression calls."""
    return own_name(node.func) if isinstance(node, ast.Call) else ""


def own_name(node: ast.expr) -> str:
    """Return the last name of an expression: its attribute's or its own; empty of another expression."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def namesake(code: Code, codes: Iterable[Code]) -> Code | None:
    """Return the one of some functions with the name of another: of its class and its own, else its own alone."""
    alike = [one for one in dict.fromkeys(codes) if last_name(one.name) == last_name(code.name)]
    same = [one for one in alike if one.name == code.name]
    return same[0] if same else alike[0] if len(alike) == 1 else None


@cache
def _functions(file: str) -> dict[int, tuple[str, ast.FunctionDef]]:
    """Return the functions of a file by the line in which they, or their decorators, begin."""
    found, left = dict[int, tuple[str, ast.FunctionDef]](), [("", node) for node in _parsed(file).body]
    for around, node in left:
        name = f"{around}{getattr(node, 'name', '')}"
        if isinstance(node, ast.FunctionDef):
            found[min([node.lineno, *(one.lineno for one in node.decorator_list)])] = name, node
        inner = f"{name}." if isinstance(node, ast.ClassDef | ast.FunctionDef) else around
        left += [(inner, one) for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)]
    return found


def _body(code: Code) -> list[Statement]:
    """Return the statements of a function, in their order."""
    by_line, known = statements_of(code.file)[0], _functions(code.file).get(code.first)
    lines = [one.lineno for inner in (known[1].body if known else ()) for one in _inside(inner)]
    return list(dict.fromkeys(by_line[line] for line in lines if line in by_line))


def _inside(node: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a statement and those in its body, in their order; not those of functions within."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if text or isinstance(node, ast.FunctionDef | ast.ClassDef):
        return
    yield node
    for name in ("body", "orelse", "finalbody"):
        for one in getattr(node, name, ()):
            yield from _inside(one)


@cache
def _aligned(mine: tuple[str, ...], others: tuple[str, ...]) -> list[int | None]:
    """Return which text of the others stands opposite each of one's own, so that all together are most alike."""
    gains = np.zeros((len(mine), len(others)))
    for row, one in enumerate(mine):
        for column, other in enumerate(others):
            gains[row, column] = max(likeness(one, other) - LEAST_ALIKE, 0.0)
    found: list[int | None] = [None] * len(mine)
    for row, column in best_pairs(gains[::-1, ::-1]):  # of equal ones the last
        found[len(mine) - 1 - row] = len(others) - 1 - column
    # Between two that are paired as many on both sides are each other's, however they read.
    ends = [-1, *(at for at, one in enumerate(found) if one is not None), len(mine)]
    for start, end in pairwise(ends):
        first = -1 if start < 0 else found[start]
        last = len(others) if end == len(mine) else found[end]
        if first is not None and last is not None and end - start == last - first:
            found[start + 1 : end] = range(first + 1, last)
    return found
