"""What makes a port differ, and where in the user's code a cause stands."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tipchain.core.progress import Pace
from tipchain.explain.causes.hypotheses import below
from tipchain.explain.causes.search import diagnose, said_alike, unsearched
from tipchain.explain.findings import CONSTRUCTED, PIECES, Diagnosis, Finding, SourceLine
from tipchain.explain.locate.locate import Located
from tipchain.explain.locate.trace import Store
from tipchain.explain.locate.verdicts import Closeness, LayerVerdict
from tipchain.explain.preflight.parameters import NOT_COPIED
from tipchain.facts.layers import KINDS
from tipchain.framework_types import Model
from tipchain.frameworks.live_models import LiveSide, Sides
from tipchain.numbers.tolerance import EXPLAINED

QUOTED = re.compile(r"([\w.-]+\.py):(\d+)")
"""A place as messages have it: the file's name alone."""
ARGUMENT = re.compile(r"(\w+)\s*=[^=]")
"""An argument as fixes have it: ``weight_decay=0.0001``."""
NAMED = re.compile(r"`([^`]+)`")
LIBRARIES = ("torch.", "paddle.", "tipchain.")
"""Modules whose lines nobody changes."""
REGISTER = ("add_sublayer", "add_module", "register_module", "__setattr__", "setattr")
"""Calls that give a layer a child by name."""


def place_layers(diagnoses: Iterable[Diagnosis], sides: Sides, models: tuple[object, object]) -> list[Diagnosis]:
    """Return causes with the lines that their words name, else with those that make the layers they are about."""
    finders = [_Finder(side, model) for side, model in zip(sides, models, strict=True)]
    return [_place(one, finders[0], finders[1]) for one in diagnoses]


def _place(cause: Diagnosis, reference: _Finder, port: _Finder) -> Diagnosis:
    quoted = _quoted(cause, port.files)
    if cause.port_path in PIECES:
        return replace(cause, place=cause.place or quoted)
    # What a container lacks or has too much of is told beside one of its layers.
    named = [".".join(filter(None, (cause.port_path, name))) for name in NAMED.findall(cause.fix)]
    path = next((one for one in named if one in port.layers), cause.port_path)
    ours = _quoted_of(cause.message, reference.files, quoted)
    ours = ours or reference.written(NAMED.findall(cause.message)) or reference.written(NAMED.findall(cause.fix)[-1:])
    if ours is None and quoted:
        ours = reference.forward(cause.reference_path, NAMED.findall(cause.fix))
    return replace(
        cause,
        place=quoted or port.constructed(path),
        reference_place=cause.reference_place or ours or reference.constructed(cause.reference_path),
    )


def place_pieces(diagnoses: Iterable[Diagnosis], pieces: Mapping[str, tuple[object, object]]) -> list[Diagnosis]:
    """Return causes with the lines at which the loss, the optimizer and the like begin, where no line is known yet."""
    placed = []
    for one in diagnoses:
        words = ARGUMENT.findall(one.fix)
        ours, theirs = (place_callable(piece, words) for piece in pieces.get(one.port_path, (None, None)))
        place = one.place or theirs
        if place is not None and ours is not None and theirs is not None and place.file == ours.file != theirs.file:
            place, ours = theirs, place  # the words name the reference's line alone
        placed.append(replace(one, place=place, reference_place=one.reference_place or ours))
    return placed


def place_callable(value: object, words: Sequence[str] = ()) -> SourceLine | None:
    """Return where a user's function, class or object's class is written; None where that is no code of the user's.

    If a line of it gives one of the arguments ``words``, that line is meant.
    """
    while isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    if not inspect.isroutine(value) and not inspect.isclass(value):
        value = type(value)
    if str(getattr(value, "__module__", "")).startswith(LIBRARIES):
        return None
    try:
        lines, number = inspect.getsourcelines(value)
        file = inspect.getsourcefile(value)
    except (OSError, TypeError, SyntaxError):
        return None
    if not file:
        return None
    given = [re.compile(rf"\b{re.escape(word)}\s*=[^=]") for word in words]
    inside = range(1, len(lines))
    at = next((one for one in inside if any(word.search(lines[one]) for word in given)), 0)
    return SourceLine(file=str(Path(file).resolve()), line=number + at, code=lines[at].strip())


def _quoted_of(message: str, files: Sequence[str], known: SourceLine | None) -> SourceLine | None:
    """Return the last line of some files that a message names, but for one that is known."""
    for name, number in reversed(QUOTED.findall(message)):
        for file in files:
            line = SourceLine(file=file, line=int(number), code=linecache.getline(file, int(number)).strip())
            if Path(file).name == name and (known is None or str(line) != str(known)):
                return line
    return None


def _quoted(cause: Diagnosis, preferred: Sequence[str]) -> SourceLine | None:
    """Return the line that a cause's own words name."""
    for text in (cause.fix, cause.message):
        for name, number in QUOTED.findall(text):
            files = [file for file in dict.fromkeys([*preferred, *_loaded(name)]) if Path(file).name == name]
            found = [
                SourceLine(file=file, line=int(number), code=linecache.getline(file, int(number)).strip())
                for file in files
            ]
            # Files of one name: the line that the words have is the one that is meant.
            found.sort(key=lambda one: not one.code or one.code not in f"{cause.fix} {cause.message}")
            if found:
                return found[0]
    return None


def _loaded(name: str) -> list[str]:
    """Return the files of modules that may be called ``name``; what the thousands of others lead to is not looked up."""
    modules = [module for module_name, module in list(sys.modules.items()) if not module_name.startswith(LIBRARIES)]
    files = (getattr(module, "__file__", None) for module in modules)
    return [
        str(Path(file).resolve())
        for file in files
        if file and file.endswith(".py") and (file.rpartition(os.sep)[2] == name or os.path.islink(file))  # noqa: PTH114
    ]


class _Finder:
    """Finds the lines of one model."""

    def __init__(self, side: LiveSide, model: Model) -> None:
        self.layers: dict[str, Model] = {"": model, **dict(side.layers(model))}
        classes = dict.fromkeys(cls for layer in self.layers.values() for cls in _own_classes(layer))
        self.files = list(dict.fromkeys(file for cls in classes if (file := _file(cls))))

    def forward(self, path: str, names: Sequence[str]) -> SourceLine | None:
        """Return where the forward of a layer's class begins, or its only line that calls the first of some names.

        None where that is no code of the user's.
        """
        if path not in self.layers:
            return None
        forward = type(self.layers[path]).forward
        begins = place_callable(forward)
        if begins is None or not names:
            return begins
        lines, number = inspect.getsourcelines(forward)
        called = re.compile(rf"\b{re.escape(names[0].rpartition('.')[2])}\s*\(")
        found = [at for at, line in enumerate(lines) if called.search(line)]
        if len(found) != 1:
            return begins
        return replace(begins, line=number + found[0], code=lines[found[0]].strip())

    def written(self, codes: Sequence[str]) -> SourceLine | None:
        """Return the only line of the layers' files that is one of ``codes``; None where there is none, or several."""
        found = [
            SourceLine(file=file, line=number, code=line.strip())
            for file in self.files
            for number, line in enumerate(linecache.getlines(file), 1)
            if line.strip() in codes
        ]
        return found[0] if len(found) == 1 else None

    def constructed(self, path: str) -> SourceLine | None:
        """Return where a layer is made: the line that gives it to the layer around it; a model's class for itself."""
        if path not in self.layers:
            return None
        if not path:
            return place_callable(type(self.layers[path]))
        around, _, name = path.rpartition(".")
        node = self._assigned(around, name)
        return node[0] if node else self.constructed(around) if around else None

    def _assigned(self, around: str, name: str) -> _Made | None:
        """Return the line and the expression that make a child of a layer, with the code around them."""
        owner = self.layers.get(around)
        if owner is None:
            return None
        for cls in _own_classes(owner):
            found = _child(cls, name)
            if found:
                return found
        outer, _, own = around.rpartition(".")
        if around and type(owner).__module__.startswith(LIBRARIES):
            holder = self._assigned(outer, own)
            made = self.layers.get(f"{around}.{name}")
            return _element(holder, name, type(made).__name__) if holder else None
        return None


_Made = tuple[SourceLine, ast.expr, ast.AST]


def _element(holder: _Made, name: str, kind: str) -> _Made:
    """Return the line of one layer of a container, by number or name where it is written out, else by its type.

    The container's own line is returned where that finds none, or several.
    """
    line, node, scope = holder
    listed = _listed(node)
    if not any(isinstance(one, ast.Starred) for one in listed):
        found = [inner for number, one in enumerate(listed) for key, inner in _keyed(one, str(number)) if key == name]
    else:
        found = []
    found = found or [
        inner
        for one in ast.walk(scope)
        for key, inner in _put(one, {node.id} if isinstance(node, ast.Name) else _spread(listed))
        if _called(inner) == kind and (key is None or re.fullmatch(key, name))
    ]
    if len(found) != 1:
        return holder
    at = line.line + found[0].lineno - node.lineno
    return SourceLine(file=line.file, line=at, code=linecache.getline(line.file, at).strip()), found[0], scope


def _listed(node: ast.expr) -> Sequence[ast.expr]:
    """Return what a list, or a call of a container, is given."""
    listed: Sequence[ast.expr] = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
    return listed[0].elts if len(listed) == 1 and isinstance(listed[0], ast.List | ast.Tuple) else listed


def _keyed(node: ast.expr, number: str | None) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield an element with its name, as Paddle's ``Sequential(("name", layer), ...)`` has it, else with its number."""
    match node:
        case ast.Tuple(elts=[ast.Constant(value=str(given)), inner]):
            yield given, inner
        case inner:
            yield number, inner


def _spread(listed: Iterable[ast.expr]) -> set[str]:
    """Return the variables that a container is made from: ``Sequential(*layers)``, ``LayerList(layers)``."""
    inner = [one.value if isinstance(one, ast.Starred) else one for one in listed]
    return {one.id for one in inner if isinstance(one, ast.Name)}


def _put(node: ast.AST, variables: Collection[str]) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield what a statement puts into a list or a container in one of some variables, with a pattern of its name."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=attr), args=args) if owner in variables:
            if attr == "append":
                yield from ((None, one) for one in args)
            elif attr == "extend":
                yield from ((None, inner) for one in args for inner in getattr(one, "elts", ()))
            elif attr in REGISTER and len(args) == 2:
                yield _named(args[0]), args[1]
        case (
            ast.Assign(targets=[ast.Name(id=owner)], value=value)
            | ast.AugAssign(target=ast.Name(id=owner), value=value)
        ):
            if owner in variables:
                yield from (inner for one in _listed(value) for inner in _keyed(one, None))
        case _:
            pass


def _named(node: ast.expr) -> str | None:
    """Return a pattern of the names that an expression gives: a text, or an f-string; None where it says nothing."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    if not isinstance(node, ast.JoinedStr | ast.Constant):
        return None
    return "".join(re.escape(str(one.value)) if isinstance(one, ast.Constant) else ".+" for one in parts)


def _called(node: ast.expr) -> str:
    """Return the name of the class or function that an expression calls."""
    func = node.func if isinstance(node, ast.Call) else None
    return str(getattr(func, "attr", getattr(func, "id", "")))


def _own_classes(layer: object) -> list[type]:
    return [cls for cls in type(layer).__mro__ if not str(cls.__module__).startswith((*LIBRARIES, "builtins"))]


def _file(cls: type) -> str | None:
    try:
        file = inspect.getsourcefile(cls)
    except (OSError, TypeError):
        return None
    return str(Path(file).resolve()) if file else None


def _child(cls: type, name: str) -> _Made | None:
    """Return the line of a class's code that makes the child of a name, what it is made by, and the method around."""
    file = _file(cls)
    if file is None:
        return None
    try:
        lines, first = inspect.getsourcelines(cls)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        made = _made(node, name)
        if made is not None and not isinstance(made, ast.Constant):  # `self.down = None` makes no layer
            at = first + node.lineno - 1  # type: ignore[attr-defined]
            scope = next((one for one in _functions(tree) if node in ast.walk(one)), tree)
            return SourceLine(file=file, line=at, code=linecache.getline(file, at).strip()), made, scope
    return None


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield functions, the outer ones first."""
    return (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef))


def _made(node: ast.AST, name: str) -> ast.expr | None:
    """Return what ``self.name = ...`` or ``self.add_sublayer("name", ...)`` gives the child of a name."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == name:
                    return value
        case ast.AnnAssign(target=ast.Attribute(attr=attr), value=ast.expr() as value) if attr == name:
            return value
        case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=given), value, *_]):
            return value if attr in REGISTER and given == name else None
        case _:
            pass
    return None


# What makes a port differ: causes of layers' faults, and differences of construction that explain them or stand alone.


DESCRIBING = frozenset({"scaled", "nan", "parting"})
"""Causes that say what is seen: a difference of the same layer's construction says why, and stands in their place."""
SEARCHED = 5
"""Faults whose causes are searched for without construction, or a layer of the same type, telling them; then one gives up."""
UNTRIED = frozenset({"layer-type", "dropout-p"})
"""Differences of construction that no trial takes away for sure: what a layer of another type does, other draws. They are told for an error unknown."""
STRUCTURES = frozenset({"layer-type", "missing-dropout", "extra-dropout", "tied-weights"})
"""Differences of construction that are layers or tensors too few or too many."""
TRAINING_PIECES = ("optimizer", "scheduler")
"""Kinds of findings that are about a piece of the training, not about a layer."""
LATER = frozenset(one.code for kind in KINDS for one in kind.properties if not one.visible)
"""Arguments that never show in a layer's result, so that no other cause of its error speaks against them."""


def explain_layers(
    located: Located,
    verdicts: Sequence[LayerVerdict],
    findings: Sequence[Finding],
    sides: Sides,
    models: tuple[object, object],
    store: Store,
    seed: int,
    pace: Pace | None = None,
) -> tuple[list[Diagnosis], dict[str, str]]:
    """Return the causes of the faults, one that several layers share once, and where the code stands that is wrong.

    A layer's fault may be that of the code around it, or of one layer inside: the second value has the path of that by
    the path of the layer that was found to be at fault.

    Layers that are built otherwise in the same way are one group: what construction tells is applied to the first, and
    if it explains that one's error it is the cause of all. Other layers are tried with the causes of their type first.
    """
    places: dict[str, str] = {}
    pace = pace or Pace()
    serious, faults = grave(findings), _first_faults(verdicts)
    built = _built_otherwise(serious)
    found: list[Diagnosis] = []
    settled: dict[tuple[object, ...], Diagnosis] = {}
    by_type: dict[tuple[str, str], list[Diagnosis]] = {}
    searched = 0
    for number, (path, verdict) in enumerate(faults.items()):
        if pace.over:
            return [*found, unsearched(verdict)], places
        pace.tell("looking for the causes of layers", number, len(faults))
        group = built.get(path)
        if group in settled:
            settled[group] = _joined(found, settled[group], path)
            continue
        like = by_type.setdefault((verdict.reference_type, verdict.port_type), [])
        if searched == SEARCHED and group is None and not like:
            continue
        shown = located.shown(verdict)
        told = diagnose(
            shown,
            verdict,
            sides,
            store,
            models=models,
            seed=seed,
            findings=serious,
            like=like,
            pace=pace,
            inside=_wrong_inside(path, located, verdicts),
        )
        searched += group is None or not told[0].evidence.startswith(CONSTRUCTED)
        stage = "preflight" if verdict.direction == "construction" else verdict.direction
        for one in told:
            cause = replace(one, stage=stage, reference_path=_counterpart(one.port_path, verdict, shown))
            if cause.is_known:
                places.setdefault(path, cause.port_path)
            same = next((other for other in found if _is_same(other, cause)), None)
            if same is not None:
                _joined(found, same, cause.port_path)
                continue
            found.append(cause)
            if cause.is_known:
                like.append(cause)
            if group is not None and cause.evidence.startswith(CONSTRUCTED):
                settled[group] = cause
    lines = {(one.code, one.name, one.port_path) for one in found if QUOTED.search(one.fix)}
    return [one for one in found if (one.code, one.name, one.port_path) not in lines or QUOTED.search(one.fix)], places


def _wrong_inside(path: str, located: Located, verdicts: Sequence[LayerVerdict]) -> set[str] | None:
    """Return the layers at fault in one whose code is wrong at several places; None where it is not known to be."""
    wrong = [one.port_path for one in verdicts if one.at_fault and one.direction == "forward"]
    within = [one for one in wrong if below(one, path) is not None]
    return {*within} - {path} if path in located.again or (located.later and len(within) > 1) else None


def placed(
    verdict: LayerVerdict | None, places: Mapping[str, str], located: Located, models: tuple[Model, Model]
) -> LayerVerdict | None:
    """Return a verdict where its cause says that the code stands; as it is where no cause says so."""
    path = None if verdict is None else places.get(verdict.port_path)
    if verdict is None or path is None or path == verdict.port_path:
        return verdict
    ours, (reference, port) = _counterpart(path, verdict, located), models
    return replace(
        verdict,
        port_path=path,
        port_type=type(dict(port.named_sublayers(include_self=True)).get(path)).__name__,
        reference_path=ours,
        reference_type=type(dict(reference.named_modules()).get(ours)).__name__,
    )


def _counterpart(path: str, verdict: LayerVerdict, located: Located) -> str:
    """Return the reference's layer that belongs to one of the port's, or that of the verdict where none is known."""
    if path == verdict.port_path:
        return verdict.reference_path
    known = (*located.matching.containers, *located.matching.pairs)
    return next((one.reference.path for one in known if one.port.path == path), verdict.reference_path)


def _first_faults(verdicts: Sequence[LayerVerdict]) -> dict[str, LayerVerdict]:
    found: dict[str, LayerVerdict] = {}
    for verdict in verdicts:
        if verdict.at_fault:
            found.setdefault(verdict.port_path, verdict)
    return found


def _built_otherwise(findings: Sequence[Finding]) -> dict[str, tuple[object, ...]]:
    """Return what is different in the construction of layers, by path: equal for those that differ in the same way."""
    found: dict[str, tuple[object, ...]] = {}
    for one in findings:
        if one.kind == "argument":
            found[one.port_path] = (*found.get(one.port_path, ()), (one.code, one.reference, one.port))
    return found


def _is_same(one: Diagnosis, other: Diagnosis) -> bool:
    """Tell whether two layers have one cause: said in the same words of each, and with the same fix."""
    if not (one.is_known and other.is_known) or (one.code, one.name) != (other.code, other.name):
        return False
    texts = [(said_alike(each.message, each.port_path), said_alike(each.fix, each.port_path)) for each in (one, other)]
    return texts[0] == texts[1]


def _joined(found: list[Diagnosis], cause: Diagnosis, path: str) -> Diagnosis:
    """Add a layer to those of a cause, in the list too; return the cause."""
    more = replace(cause, paths=(*cause.layers, path))
    found[found.index(cause)] = more
    return more


def with_construction(diagnoses: Sequence[Diagnosis], findings: Sequence[Finding]) -> list[Diagnosis]:
    """Return the causes with those differences of construction that no number has shown, equal ones together.

    Where a piece differs by a cause unknown, what is known of its construction takes that one's place; so does what says
    why where a cause only describes, and what no trial could show of a layer. What another cause of the same error refutes
    is a finding, and no cause.
    """
    diagnoses = list(diagnoses)
    serious = []
    for one in grave(findings):
        if any(_covers(cause, one) for cause in diagnoses):
            continue
        shown = [each for each in findings if each.effect == "here" and _differs_likewise(each, one)]
        same = next((cause for cause in diagnoses if any(cause.says(each) for each in shown)), None)
        if same is None:
            serious.append(one)
        else:
            _joined(diagnoses, same, one.port_path)
    pieces = {one.kind for one in serious if one.kind in TRAINING_PIECES}
    paths = {one.port_path for one in serious}
    untried = {one.port_path for one in grave(findings) if one.code in UNTRIED and one.effect == "here"}
    kept = [
        one
        for one in diagnoses
        if not (not one.is_known and one.port_path in pieces | untried)
        and not (DESCRIBING & {one.code, one.name} and one.port_path in paths)
    ]
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for one in serious:
        said = said_alike(one.message, one.port_path), said_alike(one.fix, one.port_path)
        groups.setdefault((one.code, one.kind, one.reference, one.port, *said), []).append(one)
    more = [
        replace(of_finding(ones[0]), paths=tuple(one.port_path for one in ones) if len(ones) > 1 else ())
        for ones in groups.values()
    ]
    first = next((one.port_path for one in diagnoses), None)
    ahead = [one for one in more if first in one.layers and first not in [each.port_path for each in kept]]
    return [*ahead, *kept, *(one for one in more if one not in ahead)]


def _differs_likewise(one: Finding, other: Finding) -> bool:
    """Tell whether two layers are built otherwise in the same way."""
    told = [
        (each.code, each.kind, each.reference, each.port, said_alike(each.fix, each.port_path)) for each in (one, other)
    ]
    return one.kind == "argument" and told[0] == told[1]


def _covers(cause: Diagnosis, finding: Finding) -> bool:
    """Tell whether a cause says what a finding says, or explains all that the finding could have been the cause of."""
    if finding.kind in TRAINING_PIECES:
        return cause.port_path == finding.kind and cause.is_known
    if not cause.is_known or finding.port_path not in cause.layers:
        return False
    shows = finding.kind in ("argument", "parameter") and finding.effect == "here" and finding.code not in LATER
    return cause.says(finding) or (
        shows and (cause.explained or 0.0) >= EXPLAINED and not DESCRIBING & {cause.code, cause.name}
    )


def grave(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that fail something."""
    return [one for one in findings if not one.harmless]


def first_constructed(findings: Sequence[Finding], sides: Sides, models: tuple[object, object]) -> LayerVerdict | None:
    """Return the first layer that is built otherwise, as a verdict; None where none is."""
    layers_own = ("argument", "parameter", "flag")
    found = next((one for one in grave(findings) if one.kind in layers_own and one.code != NOT_COPIED), None)
    if found is None:
        return None
    layers, port_layers = (dict(side.layers(model)) for side, model in zip(sides, models, strict=True))
    return LayerVerdict(
        reference_path=found.reference_path,
        port_path=found.port_path,
        reference_type=type(layers.get(found.reference_path)).__name__,
        port_type=type(port_layers.get(found.port_path)).__name__,
        direction="construction",
        closeness=Closeness.DIFFERS,
        reason=found.message,
    )


def kind_of(finding: Finding) -> str:
    """Return the kind of cause that a difference of construction is."""
    if finding.code in STRUCTURES:
        return "structure"
    return finding.kind if finding.kind in ("argument", "parameter") else "setting"


def of_finding(finding: Finding) -> Diagnosis:
    """Return a difference of construction as a cause."""
    piece = finding.kind if finding.kind in TRAINING_PIECES else ""
    return Diagnosis(
        code=kind_of(finding),
        name=finding.code,
        port_path=finding.port_path or piece,
        message=finding.message,
        evidence=f"reference {finding.reference}, port {finding.port}",
        fix=finding.fix,
    )
