"""Calls of a Paddle layer while it runs, and reruns with some of them changed."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType

import numpy as np

from tipchain.explain.causes.lines import Frames, callers, innermost
from tipchain.facts.functions import ALIASES, CREATORS, INPLACE, PLAIN, SPECIAL
from tipchain.framework_types import Array, Function, Model, Nested, Options, Tensor
from tipchain.frameworks.base import map_nested

Act = Callable[[Function, tuple[Nested, ...], Options], Nested]
"""Replacement of a call: it is given the function and its arguments."""
LAYER = "layer"


def signature_of(function: Nested) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, empty where they cannot be told."""
    with suppress(TypeError, ValueError):
        return inspect.signature(function).parameters
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodeCall:
    """A call that the code of a layer made.

    Attributes:
        number: its number, from 0.
        name: the function's name as Paddle has it, without a trailing underscore; `LAYER` where a layer was called.
        frames: the statements of the user's code that led to the call, innermost first.
    """

    number: int
    name: str
    frames: Frames

    @property
    def place(self) -> str:
        """``file:line`` of the innermost statement."""
        return innermost(self.frames).place

    @property
    def line(self) -> str:
        """The innermost statement's line."""
        return innermost(self.frames).line


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op(CodeCall):
    """One call that the port's code made.

    Attributes:
        args: its arguments, a layer's too.
        kwargs: those given by name.
        result: what it returned.
        layer: the layer that was called.
        path: its path within the piece.
        holder: the path within the piece of the layer whose own code made the call.
        function: what was called.
        written: the tensor that the call wrote to; its first argument is then a copy of what that was.
    """

    args: tuple[Nested, ...]
    kwargs: Options
    result: Nested
    layer: Model = None
    path: str = ""
    holder: str = ""
    function: Nested = None
    written: Tensor = None

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the called function, empty where they cannot be told."""
        return signature_of(self.function)


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Hands each outermost call of a run to its replacement, and remembers it if asked.

    Attributes:
        acts: what stands in place of calls, by number.
        is_tensor: tells tensors.
        keep: whether calls are remembered.
        known: what the first calls return, which are not run again.
        ops: what was remembered.
        count: how many calls there were.
        depth: how deep inside of a call the run is.
        writes: whether a function wrote to its argument.
        inside: the paths of the layers whose own code is running, the innermost last.
        own_backward: whether a function with a backward of its own was called: what follows is remembered without its graph, since
            Paddle ends the process where such a backward runs again (3.3.1).
        held: tensors by their id, with what is remembered of them.
    """

    acts: Mapping[int, Act]
    is_tensor: Callable[[object], bool]
    keep: bool
    known: Sequence[Tensor] = ()
    ops: list[Op] = field(default_factory=list)
    count: int = 0
    depth: int = 0
    writes: bool = False
    inside: list[str] = field(default_factory=list)
    own_backward: bool = False
    held: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def _hold(self, value: Nested, *, made: bool = False) -> Nested:
        """Return tensors as they are remembered, of a result that was just ``made``, or of arguments."""

        def hold(one: Nested) -> Nested:
            if not self.is_tensor(one):
                return one
            if (made or _is_of_own_backward(one)) and id(one) not in self.held:
                self.depth += 1
                self.held[id(one)] = one, one.detach()
                self.depth -= 1
            return self.held.get(id(one), (one, one))[1]

        return map_nested(hold, value) if self.own_backward else value

    def _has_tensor(self, values: Iterable[Nested]) -> bool:
        """Tell whether there is a tensor among some values, or in a list or tuple of them."""
        return any(self._has_tensor(one) if isinstance(one, list | tuple) else self.is_tensor(one) for one in values)

    def call(
        self,
        name: str,
        original: Function,
        args: tuple[Nested, ...],
        kwargs: Options,
        layer: Model = None,
        path: str = "",
        *,
        writes: bool = False,
    ) -> Nested:
        """Run one call, or its replacement; calls inside it are not seen."""
        if name not in CREATORS and not self._has_tensor(args) and not self._has_tensor(kwargs.values()):
            return original(*args, **kwargs)
        number, self.count = self.count, self.count + 1
        if number < len(self.known):
            return self.known[number]
        self.depth += 1
        written = args[0] if writes and self.keep and args and self.is_tensor(args[0]) else None
        try:
            before = args if written is None else (written.clone(), *args[1:])
            act = self.acts.get(number)
            result = original(*args, **kwargs) if act is None else act(original, args, kwargs)
            made = result if written is None else written.clone()
        finally:
            self.depth -= 1
        if self.keep:
            self.ops.append(
                Op(
                    number=number,
                    name=name,
                    args=self._hold(before),
                    kwargs=self._hold(kwargs),
                    result=self._hold(made, made=True),
                    frames=callers(),
                    layer=layer,
                    path=path,
                    holder=self.inside[-1] if self.inside else "",
                    function=original,
                    written=written,
                )
            )
        return result


class Tap:
    """Stands between a model's code and Paddle's functions while its context is open."""

    def __init__(self, paddle: ModuleType) -> None:
        self.paddle = paddle
        self.recorder: Recorder | None = None
        self._undo: list[tuple[object, str, object]] = []
        self._wrapped: dict[int, object] = {}

    @contextmanager
    def open(self, layers: Mapping[str, Model], atomic: Callable[[str], bool]) -> Iterator[Tap]:
        """Watch Paddle's functions, its tensors' methods, and the calls of the layers that are ``atomic``."""
        tensor = type(self.paddle.to_tensor(0.0))
        functional = self.paddle.nn.functional
        names = {one.rstrip("_") for one in dir(functional) if one[0] != "_"}
        try:
            for holder in (functional, self.paddle, tensor, self.paddle.signal):
                for name in sorted({*PLAIN, *names, *(f"{one}_" for one in names)}):
                    self._wrap(holder, name, name)
            for holder in (self.paddle.fft, self.paddle.linalg):
                for name in holder.__all__:
                    self._wrap(holder, name, name)
            for name, told in SPECIAL.items():
                self._wrap(tensor, name, f"{told}_" if name in INPLACE else told)
            self._wrap_own_backward()
            self._wrap_held(layers.values())
            for path, layer in layers.items():
                self._wrap_layer(layer, path, whole=atomic(path))
            yield self
        finally:
            for holder, name, original in reversed(self._undo):
                if isinstance(holder, dict):
                    holder[name] = original
                elif original is None:
                    delattr(holder, name)
                else:
                    setattr(holder, name, original)
            self._undo.clear()

    def _wrap(self, holder: object, name: str, told: str) -> None:
        original = getattr(holder, name, None)
        if original is None or not callable(original) or isinstance(original, type):
            return
        if id(original) not in self._wrapped:
            self._wrapped[id(original)] = self._wrapper(original, told)
        self._undo.append((holder, name, original))
        setattr(holder, name, self._wrapped[id(original)])

    def _wrap_own_backward(self) -> None:
        """Take a function with its own backward as one call: changes inside may crash Paddle."""
        base = self.paddle.autograd.PyLayer

        def apply(kind: type, *args: Nested, **kwargs: Nested) -> Nested:
            original, recorder = super(base, kind).apply, self.recorder  # type: ignore[misc]
            if recorder is None or recorder.depth:
                return original(*args, **kwargs)
            recorder.own_backward = True
            return recorder.call(kind.__name__, original, args, kwargs)

        base.apply = classmethod(apply)
        self._undo.append((base, "apply", None))
        for kind in _below(base):
            held = vars(kind).get("forward")
            if held is not None:
                self._undo.append((kind, "forward", held))
                kind.forward = staticmethod(self._unseen(kind.forward))  # type: ignore[attr-defined]

    def _unseen(self, forward: Function) -> Function:
        """Return a forward of which nothing is seen, where its `apply` was bound to a name before, as `f = Square.apply`."""

        def unseen(*args: Nested, **kwargs: Nested) -> Nested:
            recorder = self.recorder
            if recorder is None or recorder.depth:
                return forward(*args, **kwargs)
            recorder.own_backward = True
            recorder.depth += 1
            try:
                return forward(*args, **kwargs)
            finally:
                recorder.depth -= 1

        return unseen

    def _wrapper(self, original: Function, told: str) -> Function:
        bare = told.rstrip("_")
        original = _within_bounds(original) if told == "getitem" else original
        shown = ALIASES.get(bare, bare)
        writes = told.endswith("_") or told == "setitem"

        def wrapper(*args: Nested, **kwargs: Nested) -> Nested:
            recorder = self.recorder
            if recorder is None or recorder.depth:
                return original(*args, **kwargs)
            recorder.writes = recorder.writes or writes
            return recorder.call(shown, original, args, kwargs, writes=writes)

        vars(wrapper)["__wrapped__"] = original  # what inspect.signature follows
        return wrapper

    def _wrap_held(self, layers: Iterable[Model]) -> None:
        """Wrap functions kept by layers (``self.activation = F.relu``) or imported by name in their modules."""
        modules = {type(layer).__module__ for layer in layers}
        users = [sys.modules.get(one) for one in modules if one.partition(".")[0] != "paddle"]
        for holder in (*layers, *(one for one in users if one is not None)):
            for name, value in list(vars(holder).items()):
                if id(value) in self._wrapped and callable(value):
                    self._undo.append((holder, name, value))
                    setattr(holder, name, self._wrapped[id(value)])
                elif isinstance(value, dict) and name != "__builtins__":
                    self._wrap_table(value)

    def _wrap_table(self, table: dict[str, object]) -> None:
        """Wrap the functions of a table that user code looks them up in."""
        for name, value in list(table.items()):
            if callable(value) and id(value) in self._wrapped:
                self._undo.append((table, name, value))
                table[name] = self._wrapped[id(value)]

    def _wrap_layer(self, layer: Model, path: str, *, whole: bool) -> None:
        """Record a layer as one call, or note while its own code runs, so that calls can be told by where they stand."""
        original = layer.forward

        def forward(*args: object, **kwargs: object) -> Nested:
            recorder = self.recorder
            if recorder is None or recorder.depth:
                return original(*args, **kwargs)
            if whole:
                return recorder.call(LAYER, original, args, kwargs, layer, path)
            recorder.inside.append(path)
            try:
                return original(*args, **kwargs)
            finally:
                recorder.inside.pop()

        vars(forward)["__wrapped__"] = original  # what inspect.signature follows
        object.__setattr__(layer, "forward", forward)
        self._undo.append((layer, "forward", None))


def has_own_backward(op: Op) -> bool:
    """Tell whether a call is of a `PyLayer`."""
    return any(one.__name__ == "PyLayer" for one in getattr(getattr(op.function, "__self__", None), "__mro__", ()))


def _is_of_own_backward(tensor: Tensor) -> bool:
    node = getattr(tensor, "grad_fn", None)
    return node is not None and "PyLayer" in node.name()


def _below(kind: type[object]) -> Iterator[type[object]]:
    """Yield all classes that are made of one."""
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)


def _within_bounds(getitem: Function) -> Function:
    """Return an indexing that raises out of bounds, where trials may go.

    Paddle reads on there (3.3.1); far away there is nothing, and the process dies.
    """

    def checked(tensor: Tensor, index: Nested) -> Tensor:
        parts = [one for one in (index if isinstance(index, tuple) else (index,)) if one is not None]
        axis = 0
        for number, one in enumerate(parts):
            if one is Ellipsis:
                axis = tensor.ndim - len(parts[number + 1 :])
                continue
            places = (
                one.numpy() if hasattr(one, "inplace_version") else np.asarray(one) if isinstance(one, list) else one
            )
            if isinstance(places, np.ndarray) and places.dtype.kind in "iu" and places.size:
                size = tensor.shape[axis]
                if not -size <= places.min() <= places.max() < size:
                    raise IndexError(f"index out of bounds: {places.min()} to {places.max()}, axis {axis} has {size}")
            axis += places.ndim if isinstance(places, np.ndarray) and places.dtype.kind == "b" else 1
        return getitem(tensor, index)

    return checked


def numpy_of(tensor: Tensor) -> Array:
    """Return a tensor's values in float64, or as they are if they are no floats."""
    array = np.asarray(tensor.detach().numpy())
    return array.astype(np.float64) if array.dtype.kind == "f" else array


# What can stand in the place of a call: another function, the same one and more, its arguments changed.


Unary = Callable[[Tensor], Tensor]


def then(change: Unary) -> Act:
    """Return an act that changes the result of a call."""
    return lambda original, args, kwargs: change(original(*args, **kwargs))


def then_first(change: Unary) -> Act:
    """Return an act that changes the result of a call, or its first result."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        result = original(*args, **kwargs)
        many = isinstance(result, tuple | list)
        return type(result)([change(result[0]), *result[1:]]) if many else change(result)

    return act


def instead(change: Unary) -> Act:
    """Return an act that applies another function to the first argument."""
    return lambda _original, args, _kwargs: change(args[0])


def argument(number: int) -> Act:
    """Return an act that gives back one of the arguments."""
    return lambda _original, args, _kwargs: args[number]


def with_argument(number: int, value: object, name: str = "") -> Act:
    """Return a call with another value for one argument, by its position or else by its name."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        if number < len(args):
            return original(*args[:number], value, *args[number + 1 :], **kwargs)
        return original(*args, **{**kwargs, name: value})

    return act


def with_argument_detached(number: int) -> Act:
    """Return a call through one of whose arguments no gradient goes."""
    return lambda original, args, kwargs: original(*args[:number], args[number].detach(), *args[number + 1 :], **kwargs)


def with_arguments(values: Mapping[int | str, object]) -> Act:
    """Return a call with other values for some arguments, by position or name."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        changed = [values.get(number, one) for number, one in enumerate(args)]
        named = {name: one for name, one in values.items() if isinstance(name, str)}
        return original(*changed, **{**kwargs, **named})

    return act


def called_as(
    function: Callable[..., Nested], *, most: int | None = None, without: Sequence[str] = (), **more: object
) -> Act:
    """Return another function called with the same arguments, at most the first ``most``, and some changed."""

    def act(_original: object, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        kept = {name: value for name, value in kwargs.items() if name not in without}
        return function(*args[:most], **{**kept, **more})

    return act


def constant(result: Nested) -> Act:
    """Return an act that gives back a known result."""
    return lambda _original, _args, _kwargs: result


def with_tensors(args: Sequence[Nested], changes: Mapping[int, Tensor]) -> Act:
    """Return a call with other tensors in the places of some, by the identities of these, also in lists among the arguments."""
    places = [
        (number, None, changes[id(one)]) if id(one) in changes else (number, place, changes[id(each)])
        for number, one in enumerate(args)
        for place, each in enumerate(one if isinstance(one, list | tuple) else [one])
        if id(each) in changes
    ]

    def act(original: Function, given: tuple[Nested, ...], kwargs: Options) -> Nested:
        changed = list(given)
        for number, place, new in places:
            if place is None:
                changed[number] = new
            else:
                changed[number] = [*changed[number][:place], new, *changed[number][place + 1 :]]
        return original(*changed, **kwargs)

    return act
