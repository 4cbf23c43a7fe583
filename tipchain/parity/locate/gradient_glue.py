"""Code between the layers that changes a gradient without changing a tensor: detaching, hooks, scaled gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tipchain.parity.locate.comparing import Link
from tipchain.parity.locate.differences import relative, rms
from tipchain.parity.locate.matching import CallPair
from tipchain.parity.locate.pair_replays import Models, run_again
from tipchain.parity.locate.runs import as_float
from tipchain.parity.locate.store import NotHeld, Store
from tipchain.parity.locate.structures import put_back, take_out
from tipchain.parity.locate.trace import Call, Trace, Value
from tipchain.parity.rounding import SAME_SINGLE

Array = npt.NDArray[Any]
Apart = Callable[[Value, Value], float]
"""Returns how far the gradients of two values are apart, relative; inf where one alone has a gradient."""


SHIFT = SAME_SINGLE
"""How far values are moved, beside their RMS, so that no two are equal: as far as results may be apart that are the same."""


class Changed(NamedTuple):
    """Where gradients part: the calls whose own code does it, the pair whose output's gradient is off, how far, and the output."""

    calls: tuple[Call, Call]
    pair: CallPair
    apart: float
    value: Value


def first_changed(
    traces: tuple[Trace, Trace],
    outputs: Iterable[tuple[CallPair, Value, Value]],
    ends: Sequence[tuple[Value, Value]],
    apart: Apart,
    tolerance: float,
) -> Changed | None:
    """Return where gradients part first on their way back, though every layer hands them on as the reference's does.

    Nothing is returned where they differ from the start: then the loss is another.

    Args:
        traces: torch's and Paddle's, after backward; forward they agree.
        outputs: tensors of pairs that agree, in the opposite order of the port's calls.
        ends: the models' outputs.
        apart: compares the gradients of two values.
        tolerance: up to which they agree.
    """
    agreed = False
    for pair, ours, theirs in outputs:
        found = apart(ours, theirs)
        if found <= tolerance:
            agreed = True
        elif agreed or _agree_at_end(ends, apart, tolerance):
            calls = _outside(traces[0], pair.reference, ours), _outside(traces[1], pair.port, theirs)
            return Changed(calls, pair, found, theirs)
        else:
            return None
    return None


def _agree_at_end(ends: Sequence[tuple[Value, Value]], apart: Apart, tolerance: float) -> bool:
    """Tell whether the gradients of the models' outputs agree."""
    found = [apart(ours, theirs) for ours, theirs in ends if ours.gradient is not None]
    return bool(found) and max(found) <= tolerance


def _outside(trace: Trace, call: Call, value: Value) -> Call:
    """Return the innermost call around ``call`` that does not itself give the value back."""
    while call.parent is not None:
        call = trace.calls[call.parent]
        if value not in call.outputs:
            break
    return call


class Steered:
    """What the port's layers and the code between them make of the reference's gradients, where they are given its tensors.

    In the models' runs a layer's little error in float64 (a constant that a kernel keeps in float32) reaches all that comes later:
    where it takes an element across a kink, or to a norm of few samples, gradients part that no code changes. Here the port
    runs once more, in float64. What its layers give, and the gradients of that, are replaced by the reference's.

    Args:
        models: the port's copies.
        root: the port's call of the whole model.
        given: pairs whose outputs agree, with the link of each.
        ends: the reference's outputs, each with its link.
        store: where tensors are.
        seed: of random numbers.
    """

    def __init__(
        self, models: Models, root: Call, given: Iterable[tuple[CallPair, Link]], ends: Sequence[tuple[Value, Link]],
        store: Store, seed: int,
    ) -> None:  # fmt: skip
        self._models, self._side, self._root, self._ends = models, models.side, root, ends
        self._store, self._seed = store, seed
        self._given: dict[tuple[str, int], list[tuple[CallPair, Link]]] = {}
        for pair, link in given:
            self._given.setdefault((pair.port.path, pair.port.turn), []).append((pair, link))
        self._found: dict[int, float] = {}

    def apart(self, value: Value) -> float | None:
        """Return how far the gradient of a layer's output is off by what takes it alone; None where that is not known."""
        return self._errors.get(id(value))

    @property
    def ran(self) -> bool:
        """Whether the port ran so; then its parameters have the gradients of that run."""
        return bool(self._errors)

    @cached_property
    def _errors(self) -> Mapping[int, float]:
        def after(_: Any, path: str, turn: int, result: Any) -> Any:
            return self._steered(self._given.get((path, turn), ()), result)

        def starts(made: Sequence[Any]) -> list[tuple[Any, Any]]:
            return [
                (made[link.theirs], self._tensor(link.layout.apply_gradient(self._store.get(one.gradient))))
                for one, link in self._ends
                if one.gradient is not None and self._side.takes_gradient(made[link.theirs])
            ]

        try:
            run_again(self._models, self._root, self._store, self._seed, after, starts)
        except NotHeld:
            raise
        except Exception:  # noqa: BLE001  (a model may refuse what hooks hand it; then the models' runs must do)
            self._found.clear()
        return self._found

    def _steered(self, given: Iterable[tuple[CallPair, Link]], result: Any) -> Any:
        """Return a layer's result with the reference's values in it; None to leave it as it is."""
        structure, made, _ = take_out(result, self._side.is_tensor)
        plain = self._side.is_tensor(result) or isinstance(result, tuple | list)
        if not given or not plain:
            return None
        for pair, link in given:
            ours, theirs, one = (
                pair.reference.outputs[link.ours],
                pair.port.outputs[link.theirs],
                made[link.theirs],
            )
            wanted = link.layout.apply(self._store.get(ours.stored))
            one = one + self._tensor(wanted - self._side.view(one))
            if self._side.takes_gradient(one) and ours.gradient is not None:
                one.register_hook(partial(self._take, ours, theirs, link))
            made[link.theirs] = one
        return put_back(structure, made)

    def _take(self, ours: Value, theirs: Value, link: Link, gradient: Any) -> Any:
        """Note how far a gradient is off, and hand on the reference's in its place."""
        assert ours.gradient is not None
        expected = self._store.get(ours.gradient)
        actual = link.layout.back_shared(self._side.view(gradient))
        self._found[id(theirs)] = relative(link.layout.shared(expected), actual)
        return self._tensor(link.layout.apply_gradient(expected))

    def _tensor(self, array: Any) -> Any:
        return self._side.tensor(as_float(array, double=self._models.double is not None), gradient=False)


class Moved:
    """What a model's layers are handed back where each gives the reference's values, all moved a little.

    Where two values are equal, which of them is the largest is up to the framework, and so is which gets the gradient.

    Args:
        models: the copies of the reference (0) or of the port (1).
        root: its call of the whole model.
        number: which of them it is.
        given: pairs whose outputs agree, with the link of each.
        ends: the reference's outputs, each with its link.
        store: where tensors are.
        seed: of random numbers.
    """

    def __init__(
        self, models: Models, root: Call, number: int, given: Iterable[tuple[CallPair, Link]],
        ends: Sequence[tuple[Value, Link]], store: Store, seed: int,
    ) -> None:  # fmt: skip
        self._models, self._side, self._root, self._number = models, models.side, root, number
        self._store, self._seed, self._ends = store, seed, ends
        self._given: dict[tuple[str, int], list[tuple[Value, Link]]] = {}
        self._numbers: dict[int, int] = {}
        for pair, link in given:
            call = (pair.reference, pair.port)[number]
            self._numbers.setdefault(id(pair.reference.outputs[link.ours]), len(self._numbers))
            self._given.setdefault((call.path, call.turn), []).append(
                (pair.reference.outputs[link.ours], link)
            )

    @cached_property
    def gradients(self) -> Mapping[int, Array]:
        """The gradients of the reference's tensors, by their ids, in its layout; empty where the model does not run so."""
        found: dict[int, Array] = {}

        def after(_: Any, path: str, turn: int, result: Any) -> Any:
            return self._replaced(self._given.get((path, turn), ()), result, found)

        def starts(made: Sequence[Any]) -> list[tuple[Any, Any]]:
            links = [(one, link, made[(link.ours, link.theirs)[self._number]]) for one, link in self._ends]
            return [
                (end, self._tensor(link.layout.apply_gradient(gradient) if self._number else gradient))
                for one, link, end in links
                if one.gradient is not None and self._side.takes_gradient(end)
                for gradient in (self._store.get(one.gradient),)
            ]

        try:
            run_again(self._models, self._root, self._store, self._seed, after, starts)
        except NotHeld:
            raise
        except Exception:  # noqa: BLE001  (a model may refuse what hooks hand it)
            return {}
        return found

    def _replaced(self, given: Iterable[tuple[Value, Link]], result: Any, found: dict[int, Array]) -> Any:
        structure, made, _ = take_out(result, self._side.is_tensor)
        plain = self._side.is_tensor(result) or isinstance(result, tuple | list)
        if not given or not plain:
            return None
        for value, link in given:
            place = (link.ours, link.theirs)[self._number]
            wanted = self._moved(value)
            one = made[place]
            one = one + self._tensor(
                (link.layout.apply(wanted) if self._number else wanted) - self._side.view(one)
            )
            if self._side.takes_gradient(one):
                one.register_hook(partial(self._note, value, link, found))
            made[place] = one
        return put_back(structure, made)

    def _moved(self, value: Value) -> Array:
        """Return a tensor of the reference's, each element moved by a random part of `SHIFT`: the same in both models."""
        array = self._store.get(value.stored)
        generator = np.random.default_rng([self._seed, *array.shape, self._numbers[id(value)]])
        return np.asarray(array + SHIFT * (rms(array) or 1.0) * generator.uniform(-1, 1, array.shape))

    def _note(self, value: Value, link: Link, found: dict[int, Array], gradient: Any) -> None:
        array = self._side.view(gradient)
        found[id(value)] = np.array(
            link.layout.back_shared(array) if self._number else link.layout.shared(array)
        )

    def _tensor(self, array: Any) -> Any:
        return self._side.tensor(as_float(array, double=self._models.double is not None), gradient=False)
