"""The calls that a side's code makes, and reruns of Paddle's with some of them changed."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import numpy as np

from tipchain.explain.causes.lines import Frames, callers, innermost
from tipchain.explain.locate.differences import Sketch
from tipchain.explain.locate.trace import take_out
from tipchain.facts.functions import ALIASES, BESIDE, CREATORS, INPLACE, OF_TORCH, SPECIAL, UNWATCHED
from tipchain.framework_types import Array, Function, Model, Nested, Options, Tensor
from tipchain.frameworks.base import map_nested

Act = Callable[[Function, tuple[Nested, ...], Options], Nested]
"""Replacement of a call: it is given the function and its arguments."""
LAYER = "layer"
LAYOUT = frozenset(
    """
    reshape transpose flatten unflatten squeeze unsqueeze swapaxes moveaxis t expand broadcast_to expand_as
    contiguous clone detach astype
""".split()
)
"""Functions that change no number."""


def signature_of(function: Nested) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function, empty where they cannot be told."""
    with suppress(TypeError, ValueError):
        return inspect.signature(function).parameters
    return {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op:
    """One call that a program made.

    Attributes:
        number: its number, from 0.
        name: the function's name as Paddle has it, without a trailing underscore; `LAYER` where a layer was called.
        said: its framework's name of the function; the layer's path.
        frames: the statements of the user's code that led to the call, innermost first.
        given: the numbers of the tensors that it was given.
        made: the numbers of those that it returned, or wrote.
        args: its arguments, a layer's too; of a call of the reference's none are kept.
        kwargs: those given by name; of a call of the reference's all that are no tensors, by number where torch tells no names.
        result: what it returned.
        layer: the layer that was called.
        path: its path within the piece.
        holder: the path within the piece of the layer whose own code made the call.
        function: what was called.
        written: the tensor that the call wrote to; its first argument is then a copy of what that was.
        named: the names of the tensors that it was given by name, where torch tells such.
    """

    number: int
    name: str
    said: str
    frames: Frames
    given: tuple[int, ...]
    made: tuple[int, ...]
    args: tuple[Nested, ...] = ()
    kwargs: Options
    result: Nested = None
    layer: Model = None
    path: str = ""
    holder: str = ""
    function: Nested = None
    written: Tensor = None
    named: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """``file:line`` of the innermost statement."""
        return innermost(self.frames).place

    @property
    def line(self) -> str:
        """The innermost statement's line."""
        return innermost(self.frames).line

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of the called function, empty where they cannot be told."""
        return signature_of(self.function)


class Program(list[Op]):
    """The calls that one side's code made, in their order.

    Attributes:
        values: the tensors that they were given and returned, by number: the port's themselves, or as they were before a call wrote
            to them; the reference's as arrays, None where there was no room.
        watching: whether gradients are kept.
        gradients: those of tensors that they returned, by number, once backward was run; none of one that had none.
        watched: the numbers of the tensors whose gradients are kept.
        ends: the numbers of the program's outputs.
        entered: the paths of the layers whose own code ran, in turn, with the statements that called them.
    """

    def __init__(self, is_tensor: Callable[[object], bool]) -> None:
        super().__init__()
        self.is_tensor = is_tensor
        self.values: list[Tensor] = []
        self.numbers: dict[int, int] = {}
        self.watching = False
        self.gradients: dict[int, Array] = {}
        self.watched: set[int] = set()
        self.ends: set[int] = set()
        self.entered: list[tuple[str, Frames]] = []
        self._hooks: list[Any] = []

    def watch_gradient(self, number: int, tensor: Tensor, read: Callable[[Tensor], Array]) -> None:
        """Keep the gradient of a tensor, once backward is run."""
        gradients = self.gradients  # a hook that held the program would keep it alive for good

        def keep(gradient: Tensor) -> None:
            if gradient is not None:
                gradients[number] = read(gradient)

        self.watched.add(number)
        self._hooks.append(tensor.register_hook(keep))

    def unwatch(self) -> None:
        """Keep no more gradients."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def tensors(self, value: Nested) -> list[Tensor]:
        """Return the tensors in a nested value."""
        return take_out(value, self.is_tensor)[1]

    def number(self, tensor: Tensor, *, new: bool = False) -> int:
        """Return the number of a tensor; a ``new`` one where a call wrote to it."""
        if new or id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.values)
            self.values.append(None)
        return self.numbers[id(tensor)]

    def end_with(self, tensors: Iterable[Tensor]) -> None:
        """Note the program's outputs."""
        self.ends = {self.numbers[id(one)] for one in tensors if id(one) in self.numbers}

    def array(self, number: int) -> Array | None:
        """Return a tensor's values as they were."""
        value = self.values[number]
        return value if value is None or isinstance(value, np.ndarray) else numpy_of(value)

    def arrays(self, numbers: Iterable[int]) -> list[Array]:
        """Return the values of those tensors that are kept."""
        return [array for one in numbers if (array := self.array(one)) is not None]

    def selects(self, call: Op) -> bool:
        """Tell whether all that a call makes stands in what it is given: it picks, joins or moves, and computes nothing."""
        given, made = (self.arrays(numbers) for numbers in (call.given, call.made))
        if not 0 < sum(one.size for one in given) <= MOST_ELEMENTS:
            return False
        values = np.concatenate([one.reshape(-1) for one in given])
        return all(np.isin(one, values).all() for one in made)

    @cached_property
    def makers(self) -> dict[int, Op]:
        """The first call that returned each tensor."""
        return {number: op for op in reversed(self) for number in op.made}

    @cached_property
    def consumers(self) -> dict[int, list[Op]]:
        """The calls that were given each tensor."""
        found: dict[int, list[Op]] = {}
        for op in self:
            for number in dict.fromkeys(op.given):
                found.setdefault(number, []).append(op)
        return found

    def with_makers(self, calls: Sequence[Op], leads: Callable[[int, Op], bool]) -> list[Op]:
        """Return calls with the makers of what they are given, and so on, in order, as far as these ``lead`` there."""
        found, left = {one.number: one for one in calls}, list(calls)
        while left:
            for number in left.pop().given:
                maker = self.makers.get(number)
                if maker is not None and maker.number not in found and leads(number, maker):
                    found[maker.number] = maker
                    left.append(maker)
        return [found[number] for number in sorted(found)]

    def with_layout(self, calls: Sequence[Op]) -> list[Op]:
        """Return calls with those that only arranged their arguments."""
        return self.with_makers(calls, lambda _, maker: maker.name in LAYOUT)


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Hands each outermost call of a run to its replacement, and remembers it if asked.

    Attributes:
        acts: what stands in place of calls, by number.
        ops: what was remembered.
        keep: whether calls are remembered.
        known: what the first calls return, which are not run again.
        count: how many calls there were.
        depth: how deep inside of a call the run is.
        writes: whether a function wrote to its argument.
        inside: the paths of the layers whose own code is running, the innermost last.
        own_backward: whether a function with a backward of its own was called: what follows is remembered without its graph, since
            Paddle ends the process where such a backward runs again (3.3.1).
        held: tensors by their id, with what is remembered of them.
    """

    acts: Mapping[int, Act]
    ops: Program
    keep: bool
    known: Sequence[Tensor] = ()
    count: int = 0
    depth: int = 0
    writes: bool = False
    inside: list[str] = field(default_factory=list)
    own_backward: bool = False
    held: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def _hold(self, value: Nested, *, made: bool = False) -> Nested:
        """Return tensors as they are remembered, of a result that was just ``made``, or of arguments."""

        def hold(one: Nested) -> Nested:
            if not self.ops.is_tensor(one):
                return one
            node = getattr(one, "grad_fn", None)
            if (made or (node is not None and "PyLayer" in node.name())) and id(one) not in self.held:
                self.depth += 1
                self.held[id(one)] = one, one.detach()
                self.depth -= 1
            return self.held.get(id(one), (one, one))[1]

        return map_nested(hold, value) if self.own_backward else value

    def _has_tensor(self, values: Iterable[Nested]) -> bool:
        """Tell whether there is a tensor among some values, or in a list or tuple of them."""
        return any(
            self._has_tensor(one) if isinstance(one, list | tuple) else self.ops.is_tensor(one) for one in values
        )

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
        written = args[0] if writes and self.keep and args and self.ops.is_tensor(args[0]) else None
        try:
            given = [self.ops.number(one) for one in self.ops.tensors((args, kwargs))] if self.keep else []
            before = args if written is None else (written.clone(), *args[1:])
            act = self.acts.get(number)
            result = original(*args, **kwargs) if act is None else act(original, args, kwargs)
            made = result if written is None else written.clone()
        finally:
            self.depth -= 1
        if self.keep:
            returned = self.ops.tensors(made) if written is None else [written]
            numbers = [self.ops.number(one, new=written is not None) for one in returned]
            args, kwargs, made = self._hold(before), self._hold(kwargs), self._hold(made, made=True)
            for at, one in zip(numbers, returned, strict=True):
                if self.ops.watching and not one.stop_gradient and not self.own_backward and "float" in str(one.dtype):
                    self.ops.watch_gradient(at, one, lambda gradient: np.array(gradient.numpy()))
            for at, one in zip([*given, *numbers], self.ops.tensors((args, kwargs, made)), strict=True):
                if self.ops.values[at] is None or (written is not None and at == given[0]):
                    self.ops.values[at] = one
            self.ops.append(
                Op(
                    number=number,
                    name=name,
                    said=path if name == LAYER else name,
                    frames=callers(),
                    given=tuple(given),
                    made=tuple(numbers),
                    named=tuple(key for key, one in kwargs.items() if self.ops.is_tensor(one)),
                    args=args,
                    kwargs=kwargs,
                    result=made,
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
        self._undo = ExitStack()
        self._wrapped: dict[int, object] = {}

    @contextmanager
    def open(self, layers: Mapping[str, Model], atomic: Callable[[str], bool]) -> Iterator[Tap]:
        """Watch Paddle's functions, its tensors' methods, and the calls of the layers that are ``atomic``."""
        tensor = type(self.paddle.to_tensor(0.0))
        functional = self.paddle.nn.functional
        names = {one.rstrip("_") for one in dir(functional) if one[0] != "_"}
        names |= {*self.paddle.__all__, *self.paddle.tensor.tensor_method_func, *BESIDE}
        with self._undo:
            for holder in (functional, self.paddle, tensor, self.paddle.signal):
                for name in sorted({*names, *(f"{one}_" for one in names)} - UNWATCHED):
                    self._wrap(holder, name, name)
            for holder in (self.paddle.fft, self.paddle.linalg, self.paddle.geometric, self.paddle.vision.ops):
                for name in holder.__all__:
                    self._wrap(holder, name, name)
            for name, told in SPECIAL.items():
                self._wrap(tensor, name, f"{told}_" if name in INPLACE else told)
            self._wrap_own_backward()
            self._wrap_held(layers.values())
            for path, layer in layers.items():
                self._wrap_layer(layer, path, whole=atomic(path))
            yield self

    def _wrap(self, holder: object, name: str, told: str) -> None:
        original = getattr(holder, name, None)
        if original is None or not callable(original) or isinstance(original, type):
            return
        if id(original) not in self._wrapped:
            self._wrapped[id(original)] = self._wrapper(original, told)
        self._undo.callback(setattr, holder, name, original)
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
        self._undo.callback(delattr, base, "apply")
        for kind in _below(base):
            held = vars(kind).get("forward")
            if held is not None:
                self._undo.callback(setattr, kind, "forward", held)
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
                    self._undo.callback(setattr, holder, name, value)
                    setattr(holder, name, self._wrapped[id(value)])
                elif isinstance(value, dict) and name != "__builtins__":  # a table that user code looks them up in
                    for key, one in list(value.items()):
                        if callable(one) and id(one) in self._wrapped:
                            self._undo.callback(value.__setitem__, key, one)
                            value[key] = self._wrapped[id(one)]

    def _wrap_layer(self, layer: Model, path: str, *, whole: bool) -> None:
        """Record a layer as one call, or note while its own code runs, so that calls can be told by where they stand."""
        original = layer.forward

        def forward(*args: object, **kwargs: object) -> Nested:
            recorder = self.recorder
            if recorder is None or recorder.depth:
                return original(*args, **kwargs)
            if whole:
                return recorder.call(LAYER, original, args, kwargs, layer, path)
            if recorder.keep:
                recorder.ops.entered.append((path, callers()))
            recorder.inside.append(path)
            try:
                return original(*args, **kwargs)
            finally:
                recorder.inside.pop()

        vars(forward)["__wrapped__"] = original  # what inspect.signature follows
        object.__setattr__(layer, "forward", forward)
        self._undo.callback(delattr, layer, "forward")


ROOMS = re.compile("^(fft|linalg|special)_")
"""Torch's prefixes of functions that Paddle has in a module of that name."""
FIRST = re.compile(r"self|input|\d+")
"""The names of a call's first argument, which say nothing."""
MOST_ELEMENTS = 1 << 22
"""Elements of a tensor of the reference's beyond which it is not looked at."""
KEPT = 1 << 23
"""Elements of all tensors of the reference's that are kept: 64 MiB of float64."""


class ReferenceProgram(Program):
    """The calls that torch code makes; recorded within `over`.

    Attributes:
        names: the functions that were called, torch's names, those inside of layers too.
        detached: of the tensors whose gradient the code's own calls stop.
    """

    def __init__(self) -> None:
        import torch

        super().__init__(torch.is_tensor)
        self.names: list[str] = []
        self.detached: list[Sketch] = []
        self._alive: list[object] = []
        self._room = KEPT
        self._depth = 0
        self._live = True

    @contextmanager
    def over(self, inner: Mapping[str, Model]) -> Iterator[None]:
        """Watch everything that torch is called for while the context is open.

        Args:
            inner: modules by path that are one call each: their own calls are none.
        """
        from torch.overrides import TorchFunctionMode

        note_given, note_call = self.note_given, self.note_call

        class CallWatch(TorchFunctionMode):  # type: ignore[misc]
            """Hands each call on, and tells the program about it."""

            def __torch_function__(
                self, func: Function, types: object, args: tuple[Nested, ...] = (), kwargs: Options | None = None
            ) -> Nested:
                del types
                name, kwargs = _name_of(func), kwargs or {}
                if name in ("get", "set"):
                    return func(*args, **kwargs)
                note_given(args, kwargs)
                result = func(*args, **kwargs)
                note_call(func, name, args, kwargs, result)
                return result

        with ExitStack() as stack:
            for path, module in inner.items():
                stack.callback(module.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                leave = partial(self._leave, path)
                stack.callback(module.register_forward_hook(leave, with_kwargs=True, always_call=True).remove)
            stack.enter_context(CallWatch())
            yield
        self._alive.clear()
        self.numbers.clear()

    def _enter(self, _: Model, args: tuple[Nested, ...], kwargs: Options) -> None:
        self.note_given(args, kwargs)
        self._depth += 1

    def _leave(self, path: str, _: Model, args: tuple[Nested, ...], kwargs: Options, output: Nested) -> None:
        self._depth -= 1
        if self._live and not self._depth:
            self._note(LAYER, path, kwargs, (args, kwargs), self.tensors(output))

    def note_given(self, args: tuple[Nested, ...], kwargs: Options) -> None:
        """Keep a call's new arguments before the call may write to them."""
        if self._live and not self._depth:
            self._live = False  # what is done here is not the model's
            for tensor in self.tensors((args, kwargs)):
                self.number(tensor)
            self._live = True

    def note_call(
        self, function: Function, name: str, args: tuple[Nested, ...], kwargs: Options, result: Nested
    ) -> None:
        """Note a call and its result."""
        if not self._live or result is NotImplemented:
            return
        self.names.append(name)
        tensors = self.tensors(args[0] if name == "setitem" else result)
        number = self.numbers.get(id(args[0])) if name == "detach" and args else None
        if number is not None:  # the same tensor
            self.detached.append(Sketch(self.values[number]))
            self._alive.append(result)
            self.numbers[id(result)] = number
        elif tensors and not self._depth:
            told = OF_TORCH.get(name) or OF_TORCH.get(bare := ROOMS.sub("", name), bare)
            self._note(told, name, _bound(function, args, kwargs), (args, kwargs), tensors)

    def _note(
        self, name: str, said: str, arguments: Options, given: tuple[Nested, Nested], tensors: Sequence[Tensor]
    ) -> None:
        self._live = False
        known = [self.numbers.get(id(one)) for one in self.tensors(given)]
        made = [self.number(one, new=True) for one in tensors]
        for at, one in zip(made, tensors, strict=True):
            if self.watching and at >= 0 and one.requires_grad and self.values[at] is not None:
                self.watch_gradient(at, one, _read_gradient)
        self._live = True
        self.append(
            Op(
                number=len(self),
                name=name,
                said=said,
                frames=callers("torch"),
                given=tuple(one for one in known if one is not None),
                made=tuple(one for one in made if one >= 0),
                kwargs={key: one for key, one in arguments.items() if is_plain(one)},
                named=tuple(key for key, one in arguments.items() if self.is_tensor(one) and not FIRST.fullmatch(key)),
            )
        )

    def number(self, tensor: Tensor, *, new: bool = False) -> int:
        """Keep a tensor as it is now; return its number, -1 where it is empty or too large."""
        if not new and id(tensor) in self.numbers:
            return self.numbers[id(tensor)]
        if not 0 < tensor.numel() <= MOST_ELEMENTS:
            return -1
        array = np.array(tensor.detach().resolve_conj().resolve_neg().numpy())
        self._room -= array.size
        self.values.append(array if self._room > 0 else None)
        if self._room > 0:
            self._alive.append(tensor)
            self.numbers[id(tensor)] = len(self.values) - 1
        return len(self.values) - 1


def _read_gradient(gradient: Tensor) -> Array:
    """Return a gradient of torch's, whatever watches torch's functions."""
    import torch

    with torch._C.DisableTorchFunction():  # noqa: SLF001
        dense = gradient.detach().to_dense() if gradient.layout != torch.strided else gradient.detach()
        dense = dense.float() if dense.dtype == torch.bfloat16 else dense
        return np.array(dense.resolve_conj().resolve_neg().numpy())


def _bound(function: Function, args: tuple[Nested, ...], kwargs: Options) -> Options:
    """Return the arguments by name, those left out too where torch tells its defaults, else by number."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    except (TypeError, ValueError):  # functions written in C++ tell no names
        return {**{str(number): one for number, one in enumerate(args)}, **kwargs}


def is_plain(value: object) -> bool:
    """Tell whether a value is a number, a text, None, or a list of such."""
    if isinstance(value, list | tuple):
        return all(is_plain(one) for one in value)
    return value is None or isinstance(value, int | float | str | slice) or value is Ellipsis


def _name_of(function: object) -> str:
    """Return a function's name without underscores; of a property that gives a tensor the property's."""
    name = getattr(function, "__name__", "").strip("_")
    held = getattr(getattr(function, "__self__", None), "__name__", "")
    return held if name == "get" and held in ("T", "mT", "H", "mH") else name


def has_own_backward(op: Op) -> bool:
    """Tell whether a call is of a `PyLayer`."""
    return any(one.__name__ == "PyLayer" for one in getattr(getattr(op.function, "__self__", None), "__mro__", ()))


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


def argument(number: int) -> Act:
    """Return an act that gives back one of the arguments."""
    return lambda _original, args, _kwargs: args[number]


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


def called_as(function: Callable[..., Nested], *, most: int | None = None) -> Act:
    """Return another function called with the same arguments, at most the first ``most``."""
    return lambda _original, args, kwargs: function(*args[:most], **kwargs)


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
