"""Where in the user's code a cause stands."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tipchain.explain.causes.lines import (
    Code,
    Frame,
    at_line,
    called_name,
    calls_of,
    functions_in,
    node_of,
    only_unlike,
    opposite,
    reads_alike,
    reads_otherwise,
)
from tipchain.explain.findings import PIECES, Diagnosis, SourceLine, source_of
from tipchain.explain.source_edits import correct
from tipchain.framework_types import Model
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.weights.sides import join

CONSTRUCTED = re.compile(r"\b_?[A-Z]\w*\(")
LIBRARIES = ("torch.", "paddle.", "tipchain.")
"""Modules whose lines nobody changes."""
REGISTER = ("add_sublayer", "add_module", "register_module", "register_buffer", "__setattr__", "setattr")
"""Calls that give a layer a child or a buffer by name."""
WRITERS = ("set_value", "assign")
"""Calls that write to a tensor, besides those whose name ends in an underscore."""


def place_layers(
    diagnoses: Sequence[Diagnosis], sides: Sides, models: tuple[object, object], compared: Collection[str]
) -> list[Diagnosis]:
    """Return causes with the lines that make the layers they are about, where no line is known yet; ``compared`` are the port's layers that ran."""
    reference, port = (_Finder(side, model) for side, model in zip(sides, models, strict=True))
    right = {*compared} - {path for one in diagnoses for path in one.layers}
    return [_place(one, reference, port, right) for one in diagnoses]


def _place(cause: Diagnosis, reference: _Finder, port: _Finder, right: Collection[str]) -> Diagnosis:
    if cause.port_path in PIECES:
        return cause
    place, ours, edit = cause.place, cause.reference_place, cause.edit
    # What a container lacks or has too much of is told beside one of its layers.
    inner = join(cause.port_path, edit.call) if edit is not None and edit.call else cause.port_path
    path = inner if inner in port.layers else cause.port_path
    set_here = cause.name if cause.code == "buffer" else edit.call if edit is not None and edit.kind == "set" else ""
    known = place is not None and cause.code == "buffer"
    if set_here and not known and (assigned := port.assigned(cause.port_path, set_here)):  # by the constructor
        place = assigned
        ours = (reference.assigned(cause.reference_path, set_here) if cause.code == "buffer" else None) or ours
    if ours is None and place:
        ours = reference.forward(cause.reference_path, cause.name if edit is None else edit.call)
    if place is None and cause.code == "missing-call" and ours and (frame := at_line(ours.file, ours.line)):
        # A call too few is told where the other's stands opposite.
        against = opposite(frame, [code for file in port.files for code in functions_in(file)])
        place = against[0].source if against else None
    if place is None:
        place, ours = port.constructed(path), ours or reference.constructed(cause.reference_path)
        frame = at_line(place.file, place.line) if place else None
        # An argument that is not given has another default, which is told where it would be given.
        if frame is None or cause.code != "argument" or cause.name.replace("-", "_") in frame.reading:
            place, ours = _built_otherwise(port, reference, path, frame) or (place, ours)
        around, port_around = (one.rpartition(".")[0] for one in (cause.reference_path, path))
        if cause.code == "argument" and port.has_right_siblings(path, right):
            # Who makes the layer around it gives it another one.
            place, ours = port.constructed(port_around) or place, reference.constructed(around) or ours
            cause = replace(cause, edit=None)
    return replace(cause, place=place, reference_place=ours or reference.constructed(cause.reference_path))


def _built_otherwise(
    port: _Finder, reference: _Finder, path: str, frame: Frame | None
) -> tuple[SourceLine | None, SourceLine | None] | None:
    """Return the statement that reads otherwise than the reference's, of those that make a layer and the layers around it.

    Else the only one in the code that builds layers. None where ``frame``, which makes the layer, reads otherwise.
    """
    codes, others = port.builders(), reference.builders()
    if frame and not reads_alike(frame, others):
        return None
    while path:
        path, _, name = path.rpartition(".")
        made = port.made(path, name)
        frame = at_line(made[0].file, made[0].line) if made else None
        if frame and (against := reads_otherwise(frame, others)):
            return frame.source, against.source
    apart = only_unlike(codes, others)
    return (apart[0].source, apart[1].source) if apart else None


def place_pieces(diagnoses: Iterable[Diagnosis], pieces: Mapping[str, tuple[object, object]]) -> list[Diagnosis]:
    """Return causes with the lines at which the loss, the optimizer and the like begin, where no line is known yet."""
    placed = []
    for one in diagnoses:
        words = [one.name, *dict(one.edit.arguments if one.edit is not None else ())]
        ours, theirs = (place_callable(piece, words) for piece in pieces.get(one.port_path, (None, None)))
        known = replace(one, place=one.place or theirs, reference_place=one.reference_place or ours)
        placed.append(replace(known, corrected=correct(known)))
    return placed


def place_callable(value: object, words: Sequence[str] = ()) -> SourceLine | None:
    """Return where a user's function, class or object's class is written; None where that is no code of the user's.

    If a line of it gives one of the arguments ``words``, that line is meant, else the only one of a function that makes an
    object of a class.
    """
    while isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if not inspect.isroutine(value) and not inspect.isclass(value):
        value = type(value)
    if str(getattr(value, "__module__", "")).startswith(LIBRARIES):
        return None
    source = source_of(value)
    if source is None:
        return None
    lines = inspect.getsourcelines(value)[0]
    inside, names = range(1, len(lines)), "|".join(map(re.escape, filter(None, words)))
    given = re.compile(rf"\b(?:{names})\s*=[^=]|[\"'](?:{names})[\"']\s*:")
    found = [one for one in inside if names and given.search(lines[one])][:1]
    found = found or [one for one in inside if inspect.isroutine(value) and CONSTRUCTED.search(lines[one])]
    return SourceLine.at(source.file, source.line + found[0]) if len(found) == 1 else source


class _Finder:
    """Finds the lines of one model."""

    def __init__(self, side: LiveSide, model: Model) -> None:
        self.layers: dict[str, Model] = {"": model, **dict(side.layers(model))}
        modules = dict.fromkeys(cls.__module__ for layer in self.layers.values() for cls in _own_classes(type(layer)))
        files = (getattr(sys.modules.get(one), "__file__", None) for one in modules)
        self.files = list(dict.fromkeys(str(Path(one).resolve()) for one in files if one))

    def forward(self, path: str, name: str) -> SourceLine | None:
        """Return where the forward of a layer's class begins, or its only line that calls a function; None of no user's code."""
        forward = type(self.layers[path]).forward if path in self.layers else None
        begins, code = place_callable(forward), node_of(forward)
        called = [one for one in ast.walk(code[1]) if isinstance(one, ast.Call)] if code is not None else []
        found = {one.lineno for one in called if called_name(one) == name.rpartition(".")[2]}
        return SourceLine.at(begins.file, found.pop()) if begins is not None and len(found) == 1 else begins

    def builders(self) -> list[Code]:
        """Return the functions of the layers' files that build them."""
        every = (one for file in self.files for one in functions_in(file))
        return [one for one in every if not one.name.endswith(".forward")]

    def has_right_siblings(self, path: str, right: Collection[str]) -> bool:
        """Tell whether another layer of the class that makes a layer makes a right one of that name."""
        around, _, name = path.rpartition(".")
        kind = type(self.layers.get(around))
        owners = (one.rpartition(".")[0] for one in right if around and one.rpartition(".")[2] == name)
        return bool(_own_classes(kind)) and any(type(self.layers.get(one)) is kind for one in owners if one)

    def constructed(self, path: str) -> SourceLine | None:
        """Return where a layer is made: the line that gives it to the layer around it; a model's class for itself."""
        if path not in self.layers:
            return None
        if not path:
            return place_callable(type(self.layers[path]))
        around, _, name = path.rpartition(".")
        node = self.made(around, name)
        kind = type(self.layers[path]).__name__
        if node is None or kind not in (called_name(one) for one in ast.walk(node[1])):
            called = [place for file in self.files for place in calls_of(file, kind)]
            if len(called) == 1:  # in a function that builds layers
                return called[0]
        return node[0] if node else self.constructed(around) if around else None

    def assigned(self, around: str, name: str) -> SourceLine | None:
        """Return where a layer's class gives it an attribute."""
        name, owner = name.rpartition(".")[2], self.layers.get(around)
        found = (_child(cls, name, constant=True) for cls in _own_classes(type(owner)))
        return next((one[0] for one in found if one), None)

    def made(self, around: str, name: str) -> _Made | None:
        """Return the line and the expression that make a child of a layer, with the code around them."""
        owner = self.layers.get(around)
        if owner is None:
            return None
        for cls in _own_classes(type(owner)):
            found = _child(cls, name)
            if found:
                return found
        outer, _, own = around.rpartition(".")
        if around and type(owner).__module__.startswith(LIBRARIES):
            holder = self.made(outer, own)
            made = self.layers.get(f"{around}.{name}")
            return _element(holder, own, name, type(made).__name__) if holder else None
        return None


_Made = tuple[SourceLine, ast.expr, ast.AST]


def _element(holder: _Made, around: str, name: str, kind: str) -> _Made:
    """Return the line of one layer of a container, by number or name where it is written out, else by its type, or where it is appended.

    The container's own line is returned where that finds none, or several.
    """
    line, node, scope = holder
    listed: Sequence[ast.expr] = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
    listed = listed[0].elts if len(listed) == 1 and isinstance(listed[0], ast.List | ast.Tuple) else listed
    found: list[ast.expr] = []
    for number, one in enumerate(() if any(isinstance(one, ast.Starred) for one in listed) else listed):
        match one:
            case ast.Tuple(elts=[ast.Constant(value=str(given)), inner]):  # Paddle's Sequential(("name", layer), ...)
                found += [inner] if given == name else []
            case _:
                found += [one] if str(number) == name else []
    calls = [one for one in ast.walk(scope) if isinstance(one, ast.Call)]
    if len(found) != 1:
        found = [one for one in calls if called_name(one) == kind]
    if len(found) != 1:
        appended = [one.args for one in calls if ast.unparse(one.func).endswith(f".{around}.append")]
        found = [arg for args in appended for arg in args if called_name(arg) == kind]
    return (SourceLine.at(line.file, found[0].lineno), found[0], scope) if len(found) == 1 else holder


def _own_classes(kind: type) -> list[type]:
    return [cls for cls in kind.__mro__ if not str(cls.__module__).startswith((*LIBRARIES, "builtins"))]


def _child(cls: type, name: str, *, constant: bool = False) -> _Made | None:
    """Return the line that makes a class's named child, its maker, and the method around.

    ``constant``: it may be a number, which is no layer.
    """
    file, tree = node_of(cls) or ("", ast.Module(body=[], type_ignores=[]))
    for node in ast.walk(tree):
        made = _made(node, name)
        if made is not None and (constant or not isinstance(made, ast.Constant)):
            functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))  # the outer ones first
            scope = next((one for one in functions if node in ast.walk(one)), tree)
            return SourceLine.at(file, node.lineno), made, scope  # type: ignore[attr-defined]
    return None


def place_written(layer: object, name: str) -> SourceLine | None:
    """Return the last statement by which a layer's class changes an attribute after its construction."""
    for file, tree in filter(None, map(node_of, _own_classes(type(layer)))):
        methods = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name != "__init__"]
        found = [one.lineno for method in methods for one in ast.walk(method) if _writes(one, name)]  # type: ignore[attr-defined]
        if found:
            return SourceLine.at(file, max(found))
    return None


def _writes(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Assign(targets=written):
            pass
        case ast.AugAssign(target=target):
            written = [target]
        case ast.Call() if called_name(node) in WRITERS or called_name(node).endswith("_"):
            written = [node]
        case _:
            return False
    return any(isinstance(inner, ast.Attribute) and inner.attr == name for one in written for inner in ast.walk(one))


def _made(node: ast.AST, name: str) -> ast.expr | None:
    """Return the value that ``self.name = ...`` or ``self.add_sublayer("name", ...)`` gives a child."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                both = target, value
                several = all(isinstance(one, ast.Tuple) for one in both) and len(target.elts) == len(value.elts)  # type: ignore[attr-defined]
                for one, given in zip(target.elts, value.elts, strict=True) if several else (both,):  # type: ignore[attr-defined]
                    if isinstance(one, ast.Attribute) and one.attr == name:
                        return given
        case ast.AnnAssign(target=ast.Attribute(attr=attr), value=ast.expr() as value) if attr == name:
            return value
        case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=given), value, *_]):
            return value if attr in REGISTER and given == name else None
        case _:
            pass
    return None
