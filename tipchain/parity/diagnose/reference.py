"""What the reference's code calls while it runs: functions, their settings, and what they are given and return."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.parity.diagnose.operations import OF_TORCH
from tipchain.parity.diagnose.program import LAYER, caller
from tipchain.parity.locate.differences import Sketch
from tipchain.parity.locate.structures import take_out

Array = npt.NDArray[Any]
MOST_ELEMENTS = 1 << 22
"""Elements of a tensor beyond which it is not looked at."""
KEPT = 1 << 23
"""Elements of all tensors that are kept as they are: 64 MiB of float64; of later ones a sketch remains."""
Plain = int | float | str | bool | list[Any] | tuple[Any, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One call that the reference's own code made.

    Attributes:
        number: its number, from 0.
        name: what the port's calls of this function are named; `LAYER` where a module was called.
        said: what torch calls it; a module's path.
        settings: its arguments that are no tensors, by name, or by number where torch does not tell names.
        given: numbers of the values that it was given.
        named: those of them that have a name, by it.
        made: numbers of the values that it returned.
        place: ``file:line`` of the user's code.
        line: that line.
        scope: the user's function that it stands in.
    """

    number: int
    name: str
    said: str
    settings: Mapping[str, Any]
    given: tuple[int, ...]
    made: tuple[int, ...]
    place: str
    line: str
    scope: str
    named: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Held:
    """A tensor as it was when a call was given it or returned it.

    Attributes:
        sketch: a few numbers about it.
        array: its values; None where there was no room.
    """

    sketch: Sketch
    array: Array | None


class Watch:
    """A record of the calls that torch code makes; made by `over`."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.names: list[str] = []
        self.sketches: list[Sketch] = []
        self.constants: dict[str, tuple[Any, ...]] = defaultdict(tuple)
        self.steps: list[Step] = []
        self.values: list[Held] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._room = KEPT
        self._depth = 0
        self._live = True

    @classmethod
    @contextmanager
    def over(cls, inner: Mapping[str, Any]) -> Iterator[Watch]:
        """Watch everything that torch is called for while the context is open.

        Args:
            inner: modules by path that are one step each: their own calls are none.
        """
        import torch
        from torch.overrides import TorchFunctionMode

        watch = cls(torch)

        class Mode(TorchFunctionMode):  # type: ignore[misc]
            """Hands each call on, and tells the watch about it."""

            def __torch_function__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
            ) -> Any:  # fmt: skip
                del types
                watch.enter(func, args, kwargs or {})
                result = func(*args, **(kwargs or {}))
                watch.take(func, args, kwargs or {}, result)
                return result

        with ExitStack() as stack:
            for path, module in inner.items():
                stack.callback(module.register_forward_pre_hook(watch.deeper, with_kwargs=True).remove)
                back = partial(watch.back, path)
                stack.callback(module.register_forward_hook(back, with_kwargs=True, always_call=True).remove)
            stack.enter_context(Mode())
            yield watch

    def deeper(self, _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note that a module runs that is one step."""
        self._keep_given(args, kwargs)
        self._depth += 1

    def back(self, path: str, _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """Note that such a module has returned."""
        self._depth -= 1
        if self._live and not self._depth:
            self._live = False
            self._note(LAYER, path, kwargs, (args, kwargs), take_out(output, self.torch.is_tensor)[1])
            self._live = True

    def end(self) -> None:
        """Take no further calls."""
        self._live = False
        self._alive.clear()
        self._numbers.clear()

    def enter(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep what a call is given that no call before it has made, before the call may write to it."""
        if _name_of(function) not in ("get", "set"):
            self._keep_given(args, kwargs)

    def _keep_given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._live and not self._depth:
            self._live = False
            for tensor in take_out((args, dict(kwargs)), self.torch.is_tensor)[1]:
                if id(tensor) not in self._numbers:
                    self._hold(tensor)
            self._live = True

    def take(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a call and what it returned."""
        name = _name_of(function)
        if not self._live or name in ("get", "set") or result is NotImplemented:
            return
        self._live = False  # what is done here is not the model's
        try:
            self.names.append(name)
            self.constants[name] += tuple(
                one
                for one in (*args[1:], *kwargs.values())
                if isinstance(one, int | float | str | tuple | list)
            )
            tensors = take_out(args[0] if name == "setitem" else result, self.torch.is_tensor)[1]
            number = self._numbers.get(id(args[0])) if name == "detach" and args else None
            if number is not None:  # the same tensor
                self._alive.append(result)
                self._numbers[id(result)] = number
            elif self._depth:
                self.sketches += [Sketch(_array(one)) for one in tensors if one.is_floating_point() and 0 < one.numel() <= MOST_ELEMENTS]  # fmt: skip
            elif tensors:
                self._note(OF_TORCH.get(name, name), name, _bound(function, args, kwargs), (args, kwargs), tensors)  # fmt: skip
        finally:
            self._live = True

    def _note(
        self, name: str, said: str, arguments: Mapping[str, Any], given: tuple[Any, Any], tensors: Sequence[Any]
    ) -> None:  # fmt: skip
        settings = {key: one for key, one in arguments.items() if is_plain(one)}
        named = {key: self._numbers[id(one)] for key, one in arguments.items() if id(one) in self._numbers}
        place, line, scope = caller("torch")
        known = [self._numbers.get(id(one)) for one in take_out(given, self.torch.is_tensor)[1]]
        made = tuple(self._hold(one) for one in tensors)
        self.sketches += [
            self.values[number].sketch
            for number, one in zip(made, tensors, strict=True)
            if number >= 0 and one.is_floating_point()
        ]
        if place or name == LAYER:
            self.steps.append(
                Step(
                    number=len(self.steps), name=name, said=said, settings=settings, given=tuple(one for one in known if one is not None),
                    made=tuple(one for one in made if one >= 0), place=place, line=line, scope=scope,
                    named=named,
                )
            )  # fmt: skip

    def _hold(self, tensor: Any) -> int:
        """Keep a tensor as it is now; return its number, -1 where it is empty or too large."""
        if not 0 < tensor.numel() <= MOST_ELEMENTS:
            return -1
        array = np.array(_array(tensor))
        self._room -= array.size
        self.values.append(Held(sketch=Sketch(array), array=array if self._room > 0 else None))
        if self._room > 0:
            self._alive.append(tensor)
            self._numbers[id(tensor)] = len(self.values) - 1
        return len(self.values) - 1


def _bound(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments by name, those left out too where torch tells its defaults, else by number."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)
    except (TypeError, ValueError):  # functions written in C++ tell no names
        return {**{str(number): one for number, one in enumerate(args)}, **kwargs}


def is_plain(value: Any) -> bool:
    """Tell whether a value is a number, a text, None, or a list of such."""
    if isinstance(value, list | tuple):
        return all(is_plain(one) for one in value)
    return value is None or isinstance(value, int | float | str | slice) or value is Ellipsis


def _name_of(function: Any) -> str:
    """Return a function's name without underscores; of a property that gives a tensor the property's."""
    name = getattr(function, "__name__", "").strip("_")
    held = getattr(getattr(function, "__self__", None), "__name__", "")
    return held if name == "get" and held in ("T", "mT", "H", "mH") else name


def _array(tensor: Any) -> Array:
    return np.asarray(tensor.detach().resolve_conj().resolve_neg().numpy())
