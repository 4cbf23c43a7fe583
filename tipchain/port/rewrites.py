"""Edits of a port's source: what the table of facts, or a cause, says to write in place of a statement.

None of them is taken on trust: whoever applies one aligns again, and keeps it only if that mended something.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource, signature
from pathlib import Path

from tipchain.explain.causes.lines import own_name as _last
from tipchain.explain.findings import CodeEdit, Diagnosis
from tipchain.explain.source_edits import OPERATORS, PortFile, Rewrite, arguments_given, edits_at
from tipchain.explain.source_edits import name_made as _made
from tipchain.facts.functions import ALIASES, NAMES
from tipchain.facts.layers import KINDS
from tipchain.facts.settings import LayerKind, Trait

RAISED = re.compile(r"(?P<file>[^:\s][^:\n]*\.py):(?P<line>\d+): (?P<error>\w+): (?P<message>[^\n]*)")
"""An error of a user's code, as a verdict gives its reason: where, its class, its message."""
CALLER = re.compile(r"([^:,\s]+\.py):(\d+)")
KEYWORD = re.compile(r"(?:(\w+)\.)?(\w+)\(\) (?:got an|received) unexpected keyword arguments? '(\w+)'")
PROMOTION = re.compile(r"Type promotion only support.* data type x: (\w+), y: (\w+)")
ATTRIBUTE = re.compile(r"'(\w+)' object has no attribute '(\w+)'")
MODULE = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
NO_TENSOR = re.compile(r"(\w+)\(\): argument '\w+' \(position (\d)\) must be Tensor, but got (?:float|int)")
PLACES = (
    "paddle.compat.nn.functional",
    "paddle.nn.functional",
    "paddle.compat",
    "paddle",
    "paddle.compat.nn",
    "paddle.nn",
)
"""Modules of Paddle's; those with torch's meaning of a name come first."""
EVERYWHERE = frozenset({"device", "dtype", "inplace"})
"""Arguments that torch's layers take whatever they compute."""
ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
"""Expressions that need no parentheses anywhere."""
SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)
"""Statements that hold no others."""


def _row(name: str) -> LayerKind | None:
    return next((one for one in KINDS for side in one.classes if name.lower() in map(str.lower, side)), None)


def _row_of(name: str, source: PortFile) -> LayerKind | None:
    """Return the row of a class, or of what a class of the file is derived from."""
    classes = {one.name: one for one in ast.walk(source.tree) if isinstance(one, ast.ClassDef)}
    seen = set[str]()
    while name in classes and name not in seen and classes[name].bases:
        seen.add(name)
        name = _last(classes[name].bases[0])
    return _row(name)


def _trait(row: LayerKind | None, name: str) -> Trait | None:
    return next((one for one in row.properties if one.torch == name), None) if row is not None else None


# A port that raises: torch's names of arguments, attributes and classes, as Paddle has them.


def of_error(reason: str) -> Iterator[Rewrite]:
    """Yield edits of a port that raised.

    Args:
        reason: a verdict's: ``file:line: Error: message``, then the lines that called it.
    """
    found = RAISED.search(reason)
    source = PortFile.of(Path(found["file"])) if found else None
    if found is None or source is None:
        return
    line, message = int(found["line"]), found["message"]
    told = KEYWORD.search(message) if found["error"] == "TypeError" else None
    if told is not None:
        lines: dict[str, list[int]] = {}
        for file, at in [(found["file"], line), *CALLER.findall(reason[found.end() :])]:
            lines.setdefault(file, []).append(int(at))
        sources = {one: at for file, at in lines.items() if (one := PortFile.of(Path(file))) is not None}
        made = told[2] == "__init__" or told[2][:1].isupper()
        raised_by = (told[1] or "") if told[2] == "__init__" else told[2]
        yield from _as_torch([*sources], raised_by if made else told[1] or "")
        yield from _keywords(sources if made else {source: [line]}, raised_by, told[3], made=made)
    elif found["error"] == "AttributeError" and (told := ATTRIBUTE.search(message)):
        if told[1] in ("float", "int"):
            yield from _tensors(source, line)
        yield from _attributes(source, line, told[1], told[2])
    elif "'NoneType' object is not callable" in message or MODULE.search(message):
        yield from _lacking(source, line)
        if module := MODULE.search(message):
            name = f"{module[1]}.{module[2]}"
            with suppress(ImportError):
                if find_spec(name) is not None:
                    yield source.replaced(imports={name})
    elif no_tensor := NO_TENSOR.search(message):
        yield from _as_tensor(source, line, no_tensor[1].removeprefix("elementwise_"), int(no_tensor[2]))
    elif "cast to ParamAttr" in message:
        for call in source.nodes(line, ast.Call):
            yield from _as_torch([source], _made(call))
    elif promotion := PROMOTION.search(message):
        # Paddle promotes no integers to floats.
        for node in source.nodes(line, ast.BinOp):
            whole, dtype = (node.right, promotion[1]) if "float" in promotion[1] else (node.left, promotion[2])
            cast = ast.Attribute(value=whole, attr="astype", ctx=ast.Load())
            yield source.replaced((whole, ast.Call(func=cast, args=[ast.Constant(dtype)], keywords=[])))
    elif "matmul" in message:
        yield from _not_turned(source, line)
    elif found["error"] == "NameError" and "'torch'" in message:
        edit = named(source)
        yield from [edit] if edit is not None else []


def _as_torch(sources: list[PortFile], name: str) -> Iterator[Rewrite]:
    """Yield a file with ``paddle.compat``'s layer, which takes what torch's takes, for one of ``paddle.nn``'s."""
    row = _row(name)
    wanted = next((f"paddle.compat.nn.{one}" for one in row.classes[0]), "") if row is not None else ""
    for source in sources if wanted and _value(wanted) is not None else ():
        kept = {inner for node in ast.walk(source.tree) for one in _as_they_are(node) for inner in ast.walk(one)}
        classes = (
            one for one in ast.walk(source.tree) if isinstance(one, ast.Name | ast.Attribute) and _last(one) == name
        )
        changes: list[tuple[ast.AST, ast.AST | str]] = [
            (one, wanted)
            for one in classes
            if one not in kept and isinstance(one.ctx, ast.Load) and ast.unparse(one) != wanted
        ]
        if changes:
            yield source.replaced(*changes)


def _as_they_are(node: ast.AST) -> list[ast.AST]:
    """Return what keeps its class within a node: bases, annotations, tests of a type, calls with arguments of Paddle's own."""
    if isinstance(node, ast.ClassDef):
        return [*node.bases]
    if isinstance(node, ast.arg | ast.AnnAssign):
        return [node.annotation] if node.annotation is not None else []
    if isinstance(node, ast.FunctionDef):
        return [node.returns] if node.returns is not None else []
    if isinstance(node, ast.Call):
        if _last(node.func) in ("isinstance", "issubclass"):
            return [*node.args]
        return [node.func] if any((one.arg or "").endswith("_attr") for one in node.keywords) else []
    return []


def _lacking(source: PortFile, line: int) -> Iterator[Rewrite]:
    """Yield a statement with another place of a function or class, for one where Paddle does not have it."""
    for node in source.nodes(line, ast.Attribute):
        name = ast.unparse(node)
        if name.startswith("paddle.") and _value(name) is None:
            places = (f"{one}.{name.rpartition('.')[2]}" for one in PLACES)
            yield from (source.replaced((node, one)) for one in places if callable(_value(one)))


def _value(name: str) -> object:
    module, *rest = name.split(".")
    value: object = import_module(module)
    for one in rest:
        value = getattr(value, one, None)
    return value


def _tensors(source: PortFile, line: int) -> Iterator[Rewrite]:
    for call in source.nodes(line, ast.Call):
        for argument in call.args:
            yield source.replaced((argument, f"paddle.to_tensor({ast.unparse(argument)})"))


def _keywords(
    sources: Mapping[PortFile, Sequence[int]], raised_by: str, keyword: str, *, made: bool
) -> Iterator[Rewrite]:
    """Yield calls with Paddle's name of an argument, its value as Paddle means it; without it where Paddle has none.

    They are the calls on the lines that raised or called what did, which may call the class by another name, those of the
    class or function that raised, and where a layer is ``made`` those that name a class of the table.
    """
    for source, lines in sources.items():
        raising = [call for line in lines for call in source.nodes(line, ast.Call)]
        changes: list[tuple[ast.AST, ast.AST | str]] = []
        of_base = {
            one: node.name
            for node in ast.walk(source.tree)
            if isinstance(node, ast.ClassDef)
            for one in ast.walk(node)
            if isinstance(one, ast.Call) and ast.unparse(one.func) == "super().__init__"
        }
        for call in (one for one in ast.walk(source.tree) if isinstance(one, ast.Call)):
            given = {one.arg or "" for one in call.keywords}
            own = _row_of(of_base.get(call) or _made(call), source) if made else None
            if keyword not in given or (own is None and _made(call) != raised_by and call not in raising):
                continue
            row = own or _row(raised_by)
            refused = {keyword} | ({one for one in given if _differs(row, one)} if made and row is not None else set())
            kept = list[ast.keyword]()
            for one in call.keywords:
                otherwise = NAMES.get(one.arg or "", "") if own is None else ""
                kept += _renamed(one, row, otherwise) if one.arg in refused else [one]
            if kept != call.keywords:
                changes.append((call, ast.Call(func=call.func, args=call.args, keywords=kept)))
        for display in (one for one in ast.walk(source.tree) if made and isinstance(one, ast.Dict)):
            items = list(zip(display.keys, display.values, strict=True))
            rest = [one for one in items if not (isinstance(one[0], ast.Constant) and one[0].value == keyword)]
            if len(rest) < len(items):
                changes.append((display, ast.Dict(keys=[key for key, _ in rest], values=[each for _, each in rest])))
        if changes:
            yield source.replaced(*_outermost(changes))


def _refuses(row: LayerKind, argument: str) -> bool:
    kinds = (_value(f"paddle.nn.{one}") for one in row.classes[1])
    return bool(argument) and all(argument not in signature(one).parameters for one in kinds if isinstance(one, type))


def _differs(row: LayerKind, argument: str) -> bool:
    """Tell whether Paddle's class of a row has no argument that torch's has, or means its values otherwise."""
    trait = _trait(row, argument)
    if trait is None:
        return argument in EVERYWHERE and _refuses(row, argument)
    return _refuses(row, argument) or (trait.respelled and not trait.paddle)


def _renamed(given: ast.keyword, row: LayerKind | None, otherwise: str) -> list[ast.keyword]:
    """Return an argument by Paddle's name, its value as Paddle means it; none where Paddle has none, or means it anyway."""
    trait = _trait(row, given.arg or "")
    names = trait.paddle if trait is not None else otherwise
    if trait is not None and not names and row is not None and not _refuses(row, given.arg or ""):
        names = trait.torch
    value = _written(trait, given.value) if trait is not None else given.value
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return []
    return [ast.keyword(arg=name, value=value) for name in filter(None, names.split(", "))]


def _outermost(changes: list[tuple[ast.AST, ast.AST | str]]) -> list[tuple[ast.AST, ast.AST | str]]:
    inside = {id(inner) for node, _ in changes for inner in ast.walk(node) if inner is not node}
    return [one for one in changes if id(one[0]) not in inside]


def _written(trait: Trait, value: ast.expr) -> ast.expr | None:
    """Return a value as Paddle means it; None of one that is no literal and that Paddle spells otherwise."""
    try:
        return ast.parse(repr(trait.write(ast.literal_eval(value))), mode="eval").body
    except ValueError:
        if not trait.respelled:
            return value
        return ast.parse(trait.formula.format(ast.unparse(value)), mode="eval").body if trait.formula else None


def _attributes(source: PortFile, line: int, owner: str, name: str) -> Iterator[Rewrite]:
    """Yield a file with Paddle's names of a layer's attributes, wherever the function, or the layer's class, reads them."""
    row = _row_of(owner, source)
    layers = {ast.unparse(one.value) for one in source.nodes(line, ast.Attribute) if one.attr == name}
    scope = source.scope(line, ast.ClassDef if layers == {"self"} else ast.FunctionDef)
    attributes = [one for one in ast.walk(scope) if isinstance(one, ast.Attribute) and ast.unparse(one.value) in layers]
    own = {one.attr for one in attributes if isinstance(one.ctx, ast.Store)}
    changes: list[tuple[ast.AST, ast.AST | str]] = []
    for one in (one for one in attributes if one.attr not in own):
        written = _expression(row, one.attr) if row is not None else ""
        written = written or ("{}._" + name if one.attr == name else "")
        changes += [(one, written.format(ast.unparse(one.value)))] if written else []
    if changes:
        yield source.replaced(*_outermost(changes))


def _expression(row: LayerKind, name: str) -> str:
    """Return Paddle's expression for torch's attribute of a layer; empty where it has the attribute, or none is known."""
    classes = [kind for one in row.classes[1] if isinstance(kind := _value(f"paddle.nn.{one}"), type)]
    held = set.intersection(*map(_attributes_of, classes)) if classes else set()
    if name in row.attributes:
        return row.attributes[name]
    if name in held:
        return ""
    trait = _trait(row, name)
    names = [f"_{name}", *(trait.attributes[1] if trait is not None else ())]
    names += [row.storage.renamed[name]] if row.storage is not None and name in row.storage.renamed else []
    return next((f"{{}}.{one}" for one in reversed(names) if one in held), "")


def _attributes_of(kind: type) -> set[str]:
    """Return the names that a class of Paddle's, or a base of it, assigns to ``self`` or defines."""
    sources = [getsource(one) for one in kind.__mro__ if one.__module__.startswith("paddle.")]
    return {*dir(kind), *(name for text in sources for name in re.findall(r"self\.(\w+)\b[^=\n]*=[^=]", text))}


def _as_tensor(source: PortFile, line: int, function: str, position: int) -> Iterator[Rewrite]:
    """Yield a statement that gives a function, or an operator, a tensor for a number."""
    for node in source.nodes(line, ast.expr):
        operands: list[ast.expr] = []
        if isinstance(node, ast.Call) and ALIASES.get(_last(node.func), _last(node.func)) == function:
            method = isinstance(node.func, ast.Attribute) and position == len(node.args)
            operands = [node.func, *node.args] if method else node.args
        elif isinstance(node, ast.BinOp) and isinstance(node.op, OPERATORS.get(function, ())):
            operands = [node.left, node.right]
        if position < len(operands):
            yield source.replaced((operands[position], f"paddle.to_tensor({ast.unparse(operands[position])})"))


def _not_turned(source: PortFile, line: int) -> Iterator[Rewrite]:
    """Yield a statement without the transpose of a matrix: that of Paddle's Linear is the transpose of torch's already."""
    for node in source.nodes(line, ast.Attribute):
        if node.attr in ("T", "mT"):
            yield source.replaced(
                (node, node.value if isinstance(node.value, ATOMS) else f"({ast.unparse(node.value)})")
            )


def named(source: PortFile) -> Rewrite | None:
    """Return a file with Paddle's names for torch's, wherever Paddle has them; ``paddle.compat``'s classes come first.

    None where it reads none, or calls something else ``torch``.
    """
    nodes = [*ast.walk(source.tree)]
    if any(_binds_torch(one) for one in nodes):
        return None
    changes: list[tuple[ast.AST, ast.AST | str]] = []
    bases = {one.value for one in nodes if isinstance(one, ast.Attribute)}
    for node in nodes:
        name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if not re.fullmatch(r"torch(\.\w+)*", name) or (isinstance(node, ast.Name) and node in bases):
            continue
        module, _, last = name.partition(".")[2].rpartition(".")
        row = _row(last) if last[:1].isupper() else None
        as_torch = ".".join(filter(None, ("paddle.compat", module, last)))
        plain = ".".join(filter(None, ("paddle", module, row.classes[1][0] if row is not None else last)))
        wanted = as_torch if isinstance(_value(as_torch), type) else plain
        if _value(wanted) is not None:
            changes.append((node, wanted))
    return source.replaced(*_outermost(changes)) if changes else None


def _binds_torch(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((one.asname or one.name.partition(".")[0]) == "torch" for one in node.names)
    name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
    return name == "torch" and not isinstance(getattr(node, "ctx", None), ast.Load)


# A port that differs: what the cause says to write.


def of_cause(cause: Diagnosis, as_paddle: Callable[[Path], ast.Module | None]) -> Iterator[Rewrite]:
    """Yield edits of a port that differs, the likeliest first.

    Args:
        cause: its first cause.
        as_paddle: makes the tree of a file of the reference's as paconvert writes it; None without paconvert.
    """
    place = cause.place
    source = PortFile.of(Path(place.file)) if place is not None else None
    if source is None or place is None:
        return
    edit = cause.edit
    if edit is not None:
        yield from edits_at(source, place.line, edit)
        if edit.kind == "pass":
            yield from _passed(source, place.line, edit)
        elif edit.kind == "make":
            for call in sorted(source.nodes(place.line, ast.Call), key=lambda one: _made(one) != edit.call):
                yield source.replaced((call.func, edit.written))
                yield source.replaced((call, f"{edit.written}({', '.join(map('='.join, edit.arguments))})"))
    if cause.code == "operand-order":
        for node in source.nodes(place.line, ast.BinOp):
            yield source.replaced((node, ast.BinOp(left=node.right, op=node.op, right=node.left)))
    if cause.reference_place is not None:
        file, at = Path(cause.reference_place.file), cause.reference_place.line
        yield from _as_reference(source, place.line, PortFile.of(file), as_paddle(file), at)
    yield from _not_turned(source, place.line)


def _passed(source: PortFile, line: int, edit: CodeEdit) -> Iterator[Rewrite]:
    """Yield calls with other arguments, of those that make layers which take them."""
    everywhere = [one for one in ast.walk(source.tree) if isinstance(one, ast.Call)]
    here, names = source.nodes(line, ast.Call), dict(edit.arguments).keys()
    have = [one for one in everywhere if names <= {each.arg for each in one.keywords}]
    taking = [
        one
        for one in (*here, *everywhere)
        if names <= {each.argument for each in getattr(_row_of(_made(one), source), "properties", ())}
    ]
    calls = [*(one for one in have if one in here or one in taking), *taking]
    for call in dict.fromkeys(calls) if all(_made(one) != edit.call for one in here) else ():
        spans = arguments_given(source, call, edit)
        if spans is not None:
            yield source.written(spans)


def _as_reference(
    source: PortFile, line: int, reference: PortFile | None, tree: ast.Module | None, at: int
) -> Iterator[Rewrite]:
    """Yield the port with the reference's statement, as paconvert writes it: in place of its own, or beside it."""
    own, wanted = source.statement(line), reference.statement(at) if reference is not None else None
    converted = _counterpart(wanted, reference.tree, tree) if wanted and reference and tree else None
    if own is None or converted is None or not isinstance(converted, SIMPLE):
        return
    known = {one.id for one in ast.walk(source.tree) if isinstance(one, ast.Name)}
    known |= {one.arg for one in ast.walk(source.tree) if isinstance(one, ast.arg)}
    if not {one.id for one in ast.walk(converted) if isinstance(one, ast.Name)} <= known:
        return
    if isinstance(own, ast.Pass) or _targets(own) == _targets(converted):
        yield source.replaced((own, converted))
    elif isinstance(own, SIMPLE) and not isinstance(converted, ast.Return):
        indent = " " * own.col_offset
        yield source.replaced((own, f"{ast.unparse(own)}\n{indent}{ast.unparse(converted)}"))
        yield source.replaced((own, f"{ast.unparse(converted)}\n{indent}{ast.unparse(own)}"))


def _targets(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign):
        return " = ".join(map(ast.unparse, statement.targets))
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return ast.unparse(statement.target)
    return type(statement).__name__


def _counterpart(statement: ast.stmt, tree: ast.Module, other: ast.Module) -> ast.stmt | None:
    """Return the statement of a converted module that stands where one of the module stands."""
    here, there = (dict(_functions(one)) for one in (tree, other))
    for name, mine in here.items():
        theirs = there.get(name, [])
        if statement in mine and len(mine) == len(theirs):
            return theirs[mine.index(statement)]
    return None


def _functions(node: ast.AST, around: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield each function's qualified name and its statements in order, those in statements too."""
    for child in ast.iter_child_nodes(node):
        name = f"{around}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else around
        if isinstance(child, ast.FunctionDef):
            yield name, [one for part in child.body for one in ast.walk(part) if isinstance(one, ast.stmt)]
        yield from _functions(child, name)
