"""Losses in the precision of what they are given: those that hold float32 constants are given them in float64."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from tipchain.parity.locate.sides import LiveSide
from tipchain.parity.locate.structures import put_back, take_out

Loss = Callable[[Any, Any], Any]
LIBRARIES = ("torch", "paddle", "numpy", "builtins", "functools", "math", "tipchain")
"""Packages whose functions and objects hold no constants of a user's."""
DEPTH = 6
"""How deep what a loss holds is looked through."""


class Precise:
    """A loss of outputs in float64: what it holds is cast too; where it does not run so, the outputs are, to float32.

    What it raises is what the loss raises in float64, if it raises in float32 too.

    Attributes:
        single: it has run in float32.
    """

    def __init__(self, side: LiveSide, loss: Loss) -> None:
        self._side, self._loss, self._wide = side, loss, in_double(side, loss)
        self.single = False

    def __call__(self, output: Any, labels: Any) -> Any:
        """Return the loss."""
        try:
            return self._wide(output, labels)
        except Exception as error:  # noqa: BLE001  (a user's loss may raise anything)
            try:
                found = self._loss(_single(self._side, output), _single(self._side, labels))
            except Exception:  # noqa: BLE001  (the same)
                raise error from None
            self.single = True
            return found


def in_double(side: LiveSide, loss: Loss) -> Loss:
    """Return a loss whose tensors are float64: a layer's, a closure's, those of an object; it is itself not changed."""
    widened: Loss = _Widening(side).of(loss, DEPTH)
    return widened


def _single(side: LiveSide, value: Any) -> Any:
    structure, tensors, _ = take_out(value, side.is_tensor)
    return put_back(structure, [_cast(one, "float32") for one in tensors])


def _cast(tensor: Any, kind: str) -> Any:
    """Return a tensor of floats in another precision; gradients flow through."""
    if "float" not in str(tensor.dtype):
        return tensor
    return (
        tensor.astype(kind)
        if hasattr(tensor, "astype")
        else getattr(tensor, {"float32": "float", "float64": "double"}[kind])()
    )


class _Widening:
    """Copies what holds tensors, each once; what holds none stays itself."""

    def __init__(self, side: LiveSide) -> None:
        self._side = side
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any, depth: int) -> Any:
        """Return a value with its tensors of floats in float64."""
        if depth < 0 or isinstance(value, str | bytes | int | float | bool | None | type | types.ModuleType):
            return value
        if id(value) not in self._known:
            self._known[id(value)] = value, value  # what refers to itself is not followed
            self._known[id(value)] = value, self._made(value, depth - 1)
        return self._known[id(value)][1]

    def _made(self, value: Any, depth: int) -> Any:
        if self._side.is_tensor(value):
            return self._tensor(value)
        if hasattr(value, "state_dict") and hasattr(value, "parameters"):
            return self._layer(value, depth)
        makers: dict[type, Callable[[Any, int], Any]] = {
            types.FunctionType: self._function, types.MethodType: self._method, partial: self._partial, list: self._items,
            tuple: self._items, dict: self._mapping,
        }  # fmt: skip
        return makers.get(type(value), self._object)(value, depth)

    def _method(self, value: types.MethodType, depth: int) -> Any:
        holder = self.of(value.__self__, depth)
        return value if holder is value.__self__ else types.MethodType(value.__func__, holder)

    def _partial(self, value: Any, depth: int) -> Any:
        parts = value.func, value.args, value.keywords
        made = [self.of(one, depth) for one in parts]
        return value if _same(parts, made) else partial(made[0], *made[1], **made[2])

    def _items(self, value: Any, depth: int) -> Any:
        items = [self.of(one, depth) for one in value]
        return value if _same(value, items) else type(value)(items)

    def _mapping(self, value: dict[Any, Any], depth: int) -> Any:
        changed = self._changed(value, depth)
        return {**value, **changed} if changed else value

    def _tensor(self, value: Any) -> Any:
        if "float" not in str(value.dtype) or "float64" in str(value.dtype):
            return value
        made = _cast(value.detach(), "float64")
        if self._side.takes_gradient(value):
            made = self._side.tensor(self._side.array(made), gradient=True)
        return made

    def _layer(self, value: Any, depth: int) -> Any:
        """Return a copy of a layer in float64, with the tensors that it keeps as plain attributes."""
        made = self._side.copied(value, double=True)
        for _, layer in self._side.layers(made):
            for name, held in list(vars(layer).items()):
                if not name.startswith(("_parameters", "_buffers", "_modules", "_sub_layers")):
                    other = self.of(held, depth) if self._side.is_tensor(held) or callable(held) else held
                    if other is not held:
                        object.__setattr__(layer, name, other)
        return made

    def _function(self, value: types.FunctionType, depth: int) -> Any:
        if _of_library(value):
            return value
        cells = [one.cell_contents if _filled(one) else None for one in value.__closure__ or ()]
        held = [self.of(one, depth) for one in cells]
        used = {name: value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__}
        world = self._changed(used, depth)
        defaults = self.of(value.__defaults__, depth)
        named = self.of(value.__kwdefaults__, depth)
        if (
            _same(cells, held)
            and not world
            and defaults is value.__defaults__
            and named is value.__kwdefaults__
        ):
            return value
        closure = tuple(
            cell if one is other else types.CellType(other)
            for cell, one, other in zip(value.__closure__ or (), cells, held, strict=True)
        )
        made = types.FunctionType(
            value.__code__, {**value.__globals__, **world}, value.__name__, defaults, closure or None
        )
        made.__kwdefaults__ = named
        return made

    def _object(self, value: Any, depth: int) -> Any:
        """Return a copy of an object of a user's class, if it holds something that is cast."""
        if _of_library(type(value)) or not hasattr(value, "__dict__"):
            return value
        changed = self._changed(vars(value), depth)
        if not changed:
            return value
        made = copy.copy(value)
        vars(made).update(changed)
        return made

    def _changed(self, held: Mapping[str, Any], depth: int) -> dict[str, Any]:
        made = {name: self.of(one, depth) for name, one in held.items()}
        return {name: one for name, one in made.items() if one is not held[name]}


def _of_library(value: Any) -> bool:
    return str(getattr(value, "__module__", "") or "builtins").partition(".")[0] in LIBRARIES


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (reading an empty one raises)
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that code, and functions made in it, may use."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names(one)


def _same(ours: Any, theirs: Any) -> bool:
    return all(one is other for one, other in zip(ours, theirs, strict=True))
