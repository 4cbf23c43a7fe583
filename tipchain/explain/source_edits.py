"""Edits of a source: a file with nodes of its tree replaced, and a cause's change of a call as it is written there."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from types import UnionType
from typing import TypeVar

from tipchain.explain.causes.lines import own_name
from tipchain.explain.causes.program import signature_of
from tipchain.explain.findings import CodeEdit, Diagnosis
from tipchain.framework_types import Setting

OPERATORS: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "subtract": ast.Sub,
    "multiply": ast.Mult,
    "divide": ast.Div,
    "floor_divide": ast.FloorDiv,
    "pow": ast.Pow,
    "matmul": ast.MatMult,
}
"""Functions that code writes as operators."""
HOLDERS = frozenset({"Sequential", "LayerList", "LayerDict"})
"""Layers that only hold others: no setting is theirs."""
MODULES = re.compile(r"(F|nn|paddle|pd|functional)(\.\w+)*")
"""Names of modules: what stands behind another name's dot is a method."""

Node = TypeVar("Node", bound=ast.AST)
Statement = TypeVar("Statement", bound=ast.stmt)
Span = tuple[int, int, str]
"""Where a text begins and ends, in bytes, and what is written there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """An edit of one file of the port's.

    Attributes:
        file: the file.
        before: its text.
        after: its text with the edit.
    """

    file: Path
    before: str
    after: str


@dataclass(eq=False)
class PortFile:
    """A file of the port's, parsed."""

    file: Path
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, file: Path) -> PortFile | None:
        """Return a file, or what a notebook ran; None where it cannot be read or parsed."""
        try:
            text = file.read_bytes().decode() if file.is_file() else "".join(linecache.getlines(str(file)))
            return cls(file=file, text=text, tree=ast.parse(text)) if text else None
        except (OSError, SyntaxError, UnicodeDecodeError):
            return None

    def _around(self, line: int, kind: type[Statement]) -> list[Statement]:
        every = (one for one in ast.walk(self.tree) if isinstance(one, kind))
        return [one for one in every if one.lineno <= line <= (one.end_lineno or one.lineno)]

    def statement(self, line: int) -> ast.stmt | None:
        """Return the innermost statement on a line; of one with a body its head."""
        found = self._around(line, ast.stmt)
        return min(found, key=lambda one: (one.end_lineno or one.lineno) - one.lineno, default=None)

    def nodes(self, line: int, kind: type[Node] | UnionType) -> list[Node]:
        """Return the nodes of a kind in a statement, the innermost last."""
        statement = self.statement(line)
        return [one for one in ast.walk(statement) if isinstance(one, kind)] if statement is not None else []

    def scope(self, line: int, kind: type[ast.ClassDef | ast.FunctionDef]) -> ast.AST:
        """Return the innermost class or function around a line; the file where there is none."""
        return max(self._around(line, kind), key=lambda one: one.lineno, default=self.tree)

    @property
    def _starts(self) -> list[int]:
        return [0, *accumulate(map(len, self.text.encode().splitlines(keepends=True)))]

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        starts, last = self._starts, (node.end_lineno or node.lineno) - 1
        return starts[node.lineno - 1] + node.col_offset, starts[last] + (node.end_col_offset or 0)

    def source(self, node: ast.expr | ast.stmt) -> str:
        """Return what stands where a node does."""
        start, end = self.span(node)
        return self.text.encode()[start:end].decode()

    def replaced(self, *changes: tuple[ast.AST, ast.AST | str], imports: AbstractSet[str] = frozenset()) -> Rewrite:
        """Return the file with nodes replaced, which do not overlap; it imports Paddle if what is written reads it."""
        spans = [
            (*self.span(node), new if isinstance(new, str) else ast.unparse(new))  # type: ignore[arg-type]  # it has a place
            for node, new in changes
        ]
        if any(re.search(r"\bpaddle\b", written) for *_, written in spans):
            imports = {*imports, "paddle"}
        body, own = self.tree.body, [one for one in self.tree.body if isinstance(one, ast.Import)]
        imports -= {each.name for one in own for each in one.names if each.asname is None}
        rest = (one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)))
        first = next(one for one in rest if not (isinstance(one, ast.ImportFrom) and one.module == "__future__"))
        at = self._starts[min(one.lineno for one in (first, *getattr(first, "decorator_list", ()))) - 1]
        return self.written([*spans, *((at, at, f"import {name}\n") for name in imports)])

    def written(self, spans: Iterable[Span]) -> Rewrite:
        """Return the file with texts replaced; insertions at one place keep their order."""
        data, parts, at = self.text.encode(), list[bytes](), 0
        for start, end, text in sorted(spans, key=itemgetter(0)):
            parts += [data[at:start], text.encode()]
            at = end
        return Rewrite(file=self.file, before=self.text, after=b"".join([*parts, data[at:]]).decode())


def name_made(call: ast.Call) -> str:
    """Return the name of what a call calls, or, as a ``partial``, will call."""
    partial = own_name(call.func) == "partial" and call.args
    return own_name(call.args[0] if partial else call.func)


def correct(cause: Diagnosis) -> str:
    """Return the line of a cause as it should be; empty where the cause does not say it, or several calls could be meant."""
    source = PortFile.of(Path(cause.place.file)) if cause.place is not None and cause.edit is not None else None
    if source is None or cause.place is None or cause.edit is None:
        return ""
    edits = list(edits_at(source, cause.place.line, cause.edit))
    before, after = (text.splitlines() for text in (source.text, edits[0].after if len(edits) == 1 else source.text))
    at = [number for number, both in enumerate(zip(before, after, strict=False)) if both[0] != both[1]]
    return after[at[0]].strip() if len(before) == len(after) and at == [cause.place.line - 1] else ""


def edits_at(source: PortFile, line: int, edit: CodeEdit) -> Iterator[Rewrite]:
    """Yield a file with a change of each call, index or operator on a line that could be meant."""
    calls = calls_meant(source, line, edit)
    for call in calls:
        spans = SPANS[edit.kind](source, call, edit) if edit.kind in SPANS else None
        if spans is not None:
            yield source.written(spans)
    for node in () if calls or edit.kind != "write" else _on(source.nodes(line, ast.Subscript | ast.BinOp), line):
        if isinstance(node, ast.BinOp):
            if edit.written in OPERATORS and isinstance(node.op, OPERATORS.get(edit.call, ())):
                written = ast.unparse(ast.BinOp(left=node.left, op=OPERATORS[edit.written](), right=node.right))
                sums = isinstance(node.op, ast.Add | ast.Sub) and edit.written in ("add", "subtract")
                yield source.replaced((node, written if sums else f"({written})"))
        elif f"[{ast.unparse(node.slice).strip('()')}]" == edit.call:
            yield source.replaced((node.slice, edit.written[1:-1]))


def _on(nodes: Iterable[Node], line: int) -> list[Node]:
    """Return the nodes that stand on a line, else all."""
    every = list(nodes)
    ends: list[Setting] = [getattr(one, "func", one) for one in every]
    return [one for one, end in zip(every, ends, strict=True) if end.end_lineno == line] or every


def calls_meant(source: PortFile, line: int, edit: CodeEdit) -> list[ast.Call]:
    """Return the calls on a line that an edit may be about: of its function, else those that have, or take, its arguments."""
    calls = _on(source.nodes(line, ast.Call), line)
    meant = [one for one in calls if edit.call and name_made(one) == edit.call.rpartition(".")[2]]
    if edit.kind == "pass":
        meant = meant or [one for one in calls if dict(edit.arguments).keys() <= {each.arg for each in one.keywords}]
        layers = (one for one in calls if name_made(one)[:1].isupper() and name_made(one) not in HOLDERS)
        meant = meant or ([] if edit.call[:1].islower() else list(layers))
    return meant


def arguments_given(source: PortFile, call: ast.Call, edit: CodeEdit) -> list[Span] | None:
    """Return what gives a call arguments, each where it stands now; None where it is given others as one."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    # The names of arguments in their order, as Paddle has them.
    paddle, called = import_module("paddle"), own_name(call.func)
    rooms = (paddle.optimizer.lr, paddle.optimizer, paddle.nn.functional, paddle.nn, paddle)
    names = next((list(signature_of(getattr(one, called))) for one in rooms if hasattr(one, called)), [])
    method = isinstance(call.func, ast.Attribute) and not MODULES.fullmatch(ast.unparse(call.func.value))
    names = names[1:] if method and called.islower() else names
    values = dict(zip(names, call.args, strict=False)) | {str(one.arg): one.value for one in call.keywords}
    spans: list[Span] = []
    end = source.span(call)[1] - 1
    before = source.text.encode()[:end].rstrip()
    for name, value in edit.arguments:
        if name in values:
            spans.append((*source.span(values[name]), value))
            continue
        first = before.endswith(b"(") and not any(start == end for start, *_ in spans)
        comma = "" if first else " " if before.endswith(b",") else ", "
        spans.append((end, end, f"{comma}{name}={value}"))
    return spans


def _instead(source: PortFile, call: ast.Call, edit: CodeEdit) -> list[Span] | None:
    """Return what calls another function, with the arguments that are told."""
    spans = arguments_given(source, call, edit) if edit.arguments else []
    start, end = source.span(call.args[0] if own_name(call.func) == "partial" else call.func)
    start = start if "." in edit.written else end - len(name_made(call).encode())
    return [*spans, (start, end, edit.written)] if spans is not None else None


def _without(source: PortFile, call: ast.Call, _: CodeEdit) -> list[Span] | None:
    """Return what leaves a call's one argument, or the tensor whose method is called, in place of the call."""
    (start, end), kept = source.span(call), call.args[0] if len(call.args) == 1 and not call.keywords else None
    if isinstance(call.func, ast.Attribute):
        base = ast.unparse(call.func.value)
        if not MODULES.fullmatch(base) and base.partition(".")[0] != "self":
            kept = call.func.value
    if kept is None or isinstance(kept, ast.Starred):
        return None
    first, behind = source.span(kept)
    return [(start, first, ""), (behind, end, "")]


def _applied(source: PortFile, call: ast.Call, edit: CodeEdit) -> list[Span] | None:
    """Return what applies a function of one tensor to a call's one argument, or to the call's result."""
    before = edit.kind == "before"
    if before and (len(call.args) != 1 or isinstance(call.args[0], ast.Starred)):
        return None
    start, end = source.span(call.args[0] if before else call)
    settings = "".join(f", {name}={value}" for name, value in edit.arguments)
    return [(start, start, f"F.{edit.written}("), (end, end, f"{settings})")]


def _ordered(source: PortFile, call: ast.Call, edit: CodeEdit) -> list[Span] | None:
    """Return what gives a call's list of tensors in another order, told by their places now."""
    listed = call.args[0] if call.args else None
    if not isinstance(listed, ast.List | ast.Tuple) or len(listed.elts) != len(edit.order):
        return None
    places = zip(listed.elts, edit.order, strict=True)
    return [(*source.span(one), source.source(listed.elts[at])) for one, at in places]


SPANS: dict[str, Callable[[PortFile, ast.Call, CodeEdit], list[Span] | None]] = {
    "pass": arguments_given,
    "write": _instead,
    "remove": _without,
    "before": _applied,
    "after": _applied,
    "order": _ordered,
}
"""What an edit of each kind writes at a call."""
