"""From ``"module:callable"`` to the callable, and to what a builder of a case makes, checked."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial, wraps
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tipchain.blame import UsersError, blame, claim, is_users, place_of, placed, serving
from tipchain.errors import CaseError, did_you_mean
from tipchain.stage_table import INFO
from tipchain.yaml_lines import load_yaml

if TYPE_CHECKING:
    from tipchain.parity.case_types import Case


OPTIONAL = ("scheduler", "transforms", "loader", "augmentation")
"""Builders that no stage must have, and some use."""

CANDIDATES, SHOWN = 3, 8
"""How many names are told that may have been meant, and of those that there are."""
MODELS = {"torch": "torch.nn.Module", "paddle": "paddle.nn.Layer"}
EXPECTED = {
    "loss": "a callable `(output, label) -> scalar`",
    "optimizer": "an optimizer, which has `step()`",
    "scheduler": "a schedule, which has `step()`",
    "dataset": "a data set, which has `__len__` and `__getitem__`",
    "metric": "a callable `(output, label) -> {name: percent}`, or an object with `update` and `compute`",
}
"""What a builder has to return, by its key in the case."""


def imports_start(root: Path) -> str:
    """Return the hint that says where imports start."""
    return f"imports start at {root}; --root, or root: in the case, says another folder"


def check_builders(case: Case, stages: Collection[str], sides: Collection[str]) -> None:
    """Refuse a case of which a builder cannot be there, before anything is prepared; nothing is imported.

    Raises:
        CaseError: a module of the user's does not exist, or has no such name; one error names them all.
    """
    from tipchain.parity.case_types import BUILDERS

    needed = {key for stage in stages for key in INFO[stage].builders} | set(OPTIONAL)
    wrong: dict[str, tuple[str, str, str | None]] = {}
    for side in sides:
        for key in BUILDERS:
            spec = getattr(case.sides[side], key)
            told = _absent(spec, case.root) if spec is not None and key in needed else None
            if told is not None:
                wrong.setdefault(told[0], (side, key, told[1]))
    if not wrong:
        return
    (first, (side, key, hint)), *others = wrong.items()
    raise CaseError(
        first,
        file=case.path,
        key=f"sides.{side}.{key}",
        line=load_yaml(case.path).line(("sides", side, key)),
        found=getattr(case.sides[side], key),
        hint="\n  ".join(filter(None, (hint, *(f"and {other}" for other, _ in others)))),
    )


def _absent(spec: str, root: Path) -> tuple[str, str | None] | None:
    """Return why ``"module:callable"`` cannot be there, and a hint; None where it may be."""
    module, _, name = spec.partition(":")
    parts = module.split(".")
    places: list[str] = [str(root), *sys.path]
    for number, part in enumerate(parts, 1):
        above = ".".join(parts[:number])
        found = PathFinder.find_spec(above if number == 1 else part, places)
        if found is None:
            # Only below the user's own folders is what is not on the disk certainly nowhere.
            if number == 1 and find_spec(part) is not None:
                return None
            own = number == 1 or all(is_users(f"{place}/x.py") for place in places)
            return (f"{above} does not exist", imports_start(root)) if own else None
        if number < len(parts):
            if found.submodule_search_locations is None:
                return f"{above} is no package, so it has no {parts[number]}", imports_start(root)
            places = list(found.submodule_search_locations)
    return _unnamed(found, module, name)


def _unnamed(spec: ModuleSpec | None, module: str, name: str) -> tuple[str, str | None] | None:
    """Return that a module of the user's does not define a name; None where it does, or that cannot be seen."""
    file = "" if spec is None or spec.origin is None else spec.origin
    if not file.endswith(".py") or not is_users(file):
        return None
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None  # importing it says what is wrong
    names = _names(tree.body)
    if name in names or "*" in names or "__getattr__" in names:
        return None
    return f"{module} has no {name!r}", did_you_mean(name, names)


def _names(body: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements define, those inside of conditions and the like too."""
    found: set[str] = set()
    for one in body:
        for node in ast.walk(one):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.alias):
                found.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


def resolve(spec: str, root: Path) -> Callable[..., Any]:
    """Import and return the callable that ``"module:callable"`` names, with ``root`` on the import path.

    Raises:
        CaseError: the module cannot be found, has no such name, or the name is not callable.
        UsersError: it raised while it was imported.
    """
    module_name, _, name = spec.partition(":")
    claim(module_name)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    with serving(stage=f"importing {module_name}"):
        module = _import(module_name, spec, root)
    if not hasattr(module, name):
        raise CaseError(f"{module_name} has no {name!r}", key=spec, hint=_instead(module, name))
    builder = getattr(module, name)
    if not callable(builder):
        raise CaseError("is not callable", key=spec, found=type(builder).__name__)
    result: Callable[..., Any] = builder
    return result


def _instead(module: ModuleType, name: str) -> str | None:
    """Return what may have been meant, or what the module makes available; None for an empty one."""
    near = candidates(module, name)
    if near:
        return f"did you mean {' or '.join(near)}?"
    own = [known for known, value in vars(module).items() if known[:1] != "_" and callable(value)]
    more = ", …" if len(own) > SHOWN else ""
    return f"it has {', '.join(own[:SHOWN])}{more}" if own else None


def candidates(module: ModuleType, name: str) -> list[str]:
    """Return what may have been meant by a name that a module lacks, the likeliest first, as ``module:callable``.

    That is what is spelt so in the module but for case and underscores, or longer, and what is called exactly so elsewhere
    in the package; else what is spelt nearly so.
    """
    own = {known: _bare(known) for known, value in vars(module).items() if known[:1] != "_" and callable(value)}
    wanted = _bare(name)
    spelt = sorted((known for known in own if wanted and wanted in own[known]), key=lambda known: (len(known), known))
    package = module.__name__.partition(".")[0]
    elsewhere = sorted(
        (
            path
            for path, other in list(sys.modules.items())
            if path.startswith(f"{package}.") and "._" not in path and callable(vars(other).get(name))
        ),
        key=lambda path: (path.count("."), len(path), path),
    )
    named = [f"{module.__name__}:{known}" for known in spelt]
    found = [*named[:1], *(f"{path}:{name}" for path in elsewhere[:1]), *named[1:]]
    if not found:
        close = difflib.get_close_matches(wanted, own.values(), n=CANDIDATES)
        found = [f"{module.__name__}:{known}" for bare in dict.fromkeys(close) for known in own if own[known] == bare]
    return found[:CANDIDATES]


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def _import(name: str, spec: str, root: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise CaseError(f"{error.name} does not exist", key=spec, hint=imports_start(root)) from error
        raise UsersError(blame(error)) from error
    except (Exception, SystemExit) as error:  # the user's own module may raise anything
        raise UsersError(blame(error)) from error


def open_builder(case: Case, side: str, name: str, *, plain: bool = False) -> Callable[..., Any]:
    """Return the builder ``name`` of a side of the case: what it makes is checked, what it raises is of that side.

    The loss's comes with the case's arguments, and what the loss returns is checked, too.

    Args:
        case: the case.
        side: ``"torch"`` or ``"paddle"``.
        name: a key of the side.
        plain: the loss is wanted as it was written, since its code is looked at.

    Raises:
        CaseError: the case has none, or it cannot be imported.
    """
    spec = getattr(case.sides[side], name)
    if spec is None:
        raise CaseError("is missing", file=case.path, key=f"sides.{side}.{name}", expected="'module:callable'")
    with serving(side=side):
        found = resolve(spec, case.root)
    bound = partial(found, **case.loss.args) if name == "loss" and case.loss.args else found
    build = checking(name, side, bound)
    if name != "loss" or plain:
        return build
    return wraps(build)(lambda *args, **settings: _checked_loss(build(*args, **settings), side, found))


def _checked_loss(loss: Callable[..., Any], side: str, builder: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss whose result is checked: a tensor of one element."""
    name = placed(loss) if ":" in placed(loss) else f"{placed(builder)}'s loss"

    def compute(*given: Any) -> Any:
        with serving(side=side, stage="the loss"):
            found = loss(*given)
            if not sys.modules[side].is_tensor(found):
                raise UsersError(f"{name} returned {_described(found)}\n  expected: a tensor of one number")
            if found.numel() != 1:
                raise UsersError(
                    f"{name} returned a tensor of shape {list(found.shape)}\n  expected: a tensor of one number"
                )
            return found

    return compute


def check_batch(batch: Any, dataset: Any) -> tuple[Any, Any, Any]:
    """Return the three parts of what a loader made of samples: images, labels, file names.

    Raises:
        UsersError: the data set's samples have other parts.
    """
    if isinstance(batch, tuple | list) and len(batch) == 3:
        return batch[0], batch[1], batch[2]
    found = f"{len(batch)} values" if isinstance(batch, tuple | list) else _described(batch)
    place = place_of(getattr(type(dataset), "__getitem__", dataset))
    raise UsersError(
        f"{place + ': ' if place else ''}a sample of {type(dataset).__name__} is {found}\n"
        "  expected: (image, label, file name)"
    )


def checking(name: str, side: str, builder: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``builder`` with its result checked.

    Args:
        name: what it builds, a key of a case's side.
        side: ``"torch"`` or ``"paddle"``.
        builder: the user's.
    """

    @wraps(builder)
    def build_checked(*args: Any, **settings: Any) -> Any:
        with serving(side=side, stage=f"building the {name}"):
            made = builder(*args, **settings)
            if not _is_kind(name, side, made):
                expected = EXPECTED.get(name) or f"a {MODELS[side]}"
                raise UsersError(f"{placed(builder)} returned {_described(made)}\n  expected: {expected}")
            return made

    return build_checked


def _described(made: Any) -> str:
    kind = type(made)
    root = kind.__module__.partition(".")[0]
    return "None" if made is None else f"a {kind.__name__}" + ("" if root == "builtins" else f" of {root}")


def _has_length(made: Any) -> bool:
    try:
        len(made)
    except (TypeError, NotImplementedError):  # Paddle's Dataset has a __len__ that says there is none
        return False
    return True


def _is_kind(name: str, side: str, made: Any) -> bool:
    """Tell whether a builder has made what it is for."""
    match name:
        case "model":
            layers: Any = sys.modules[side].nn
            return isinstance(made, layers.Module if side == "torch" else layers.Layer)
        case "optimizer" | "scheduler":
            return callable(getattr(made, "step", None))
        case "dataset":
            return hasattr(made, "__getitem__") and _has_length(made)
        case "metric":
            return callable(made) or (hasattr(made, "update") and hasattr(made, "compute"))
        case "loss":
            return callable(made)
        case _:
            return True


# How an optimizer's builder is called, and the factor of the rate that each parameter has in Paddle's.


def make_optimizer(builder: Callable[..., Any], model: Any, learning_rate: Any, args: Mapping[str, Any]) -> Any:
    """Return ``builder(model.parameters(), learning_rate, **args)``.

    A builder with a parameter called ``model`` gets the model too: rules for some of the parameters (no decay of biases,
    another rate for the head) need names or layer types.

    Args:
        builder: one side's ``build_optimizer``.
        model: the module or layer.
        learning_rate: a number, or Paddle's schedule.
        args: the case's ``optimizer:`` arguments.
    """
    asks = "model" in inspect.signature(builder).parameters
    return builder(model.parameters(), learning_rate, **args, **({"model": model} if asks else {}))


def rate_factor(optimizer: Any, parameter: Any) -> float:
    """Return the factor of the learning rate that a parameter has in a Paddle optimizer: its own, and AdamW's ``lr_ratio``."""
    own = float((getattr(parameter, "optimize_attr", None) or {}).get("learning_rate", 1.0))
    ratio = getattr(optimizer, "_lr_ratio", None)
    return own if ratio is None else own * float(ratio(parameter))
