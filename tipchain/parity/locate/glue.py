"""Which code between the layers made a tensor, and how far rounding takes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

from tipchain.parity.locate.differences import relative
from tipchain.parity.locate.matching import CallPair, Matching, hands_on
from tipchain.parity.locate.pair_replays import Models
from tipchain.parity.locate.replay import drawn_again
from tipchain.parity.locate.runs import Run, as_float
from tipchain.parity.locate.store import NotHeld, Store
from tipchain.parity.locate.structures import put_back, take_out
from tipchain.parity.locate.trace import Call, Trace, Value

Calls = tuple[Call, Call]
Given = Callable[[CallPair], tuple[int, int] | None]
"""Returns the numbers of the tensors that two calls are given and that differ most; None where they are given the same."""
Agrees = Callable[[CallPair], bool]
"""Tells whether two calls return the same."""


class Glue:
    """Finds the code between the layers of both models, layers of which each is known to do what its pair does.

    Args:
        reference: torch's trace.
        port: Paddle's.
        matching: which call is which.
        given: tells which of the tensors differ that two calls are given.
        agrees: tells whether two calls return the same.
    """

    def __init__(
        self, reference: Trace, port: Trace, matching: Matching, given: Given, agrees: Agrees
    ) -> None:
        self._traces, self._given, self._agrees = (reference, port), given, agrees
        self._holders = (
            {pair.reference.number: pair for pair in matching.containers},
            {pair.port.number: pair for pair in matching.containers},
        )
        self._paired = (
            {pair.reference.number for pair in matching.pairs},
            {pair.port.number for pair in matching.pairs},
        )
        # Calls that hold the same layers are paired from the outside in: the innermost of several is the last.
        self._container = {pair.reference.number: pair.port for pair in matching.containers}

    def giving(self, pair: CallPair, ours: int, theirs: int) -> Calls:
        """Return the calls, the reference's and the port's, whose code gave a pair what differs.

        Args:
            pair: the first pair that is given something else though all layers before agree.
            ours: the number of the tensor among the reference's inputs.
            theirs: the number among the port's.
        """
        found = self._giving(pair, ours, theirs)
        seen = {pair.port.number}
        around = self._holder(found[1])
        while around is not None and around.port.number not in seen:
            differs = self._given(around)
            if differs is None:
                break
            seen.add(around.port.number)  # it is given something else: that is made before it
            found = self._giving(around, *differs)
            around = self._holder(found[1])
        return found

    def _holder(self, call: Call) -> CallPair | None:
        """Return the innermost pair of calls with others inside that holds a call of the port's, or is it."""
        numbers = (one.number for one in (call, *self._around(1, call)))
        return next((self._holders[1][one] for one in numbers if one in self._holders[1]), None)

    def _giving(self, pair: CallPair, ours: int, theirs: int) -> Calls:
        calls = pair.reference, pair.port
        numbers = min(ours, len(pair.reference.inputs) - 1), min(theirs, len(pair.port.inputs) - 1)
        if min(numbers) < 0:
            around = [self._parent(side, call) for side, call in enumerate(calls)]
            return around[0], around[1]
        values = pair.reference.inputs[numbers[0]], pair.port.inputs[numbers[1]]
        return self._culprits(
            values, (self._not_given(0, calls[0], values[0]), self._not_given(1, calls[1], values[1]))
        )

    def at_end(self, values: tuple[Value, Value] | None) -> Calls:
        """Return the calls whose code made an output of the models that differs though all layers agree; None: not known which."""
        roots = self._traces[0].calls[0], self._traces[1].calls[0]
        return roots if values is None else self._culprits(values, roots)

    def _culprits(self, values: tuple[Value, Value], around: Calls) -> Calls:
        """Return who made two values; ``around`` are the calls whose own code handed them on if a layer that agrees did."""
        ours, theirs = (self._maker(side, values[side], around[side]) for side in (0, 1))
        if not ours.children and ours.number not in self._paired[0]:
            handed = self._handed_on(values[1])  # by a layer that stands where the reference's does something
            if handed is not None:
                return ours, handed
        inside = self._counterpart(ours)
        if inside is not None and (values[1] in inside.inputs or self._is_inside(inside, theirs)):
            return ours, inside  # what the reference makes there, the port does not make, but hands on
        return ours, theirs

    def _counterpart(self, call: Call) -> Call | None:
        """Return the port's call that is the innermost one of the reference's around ``call``, or that call itself."""
        calls = (call, *self._around(0, call))
        return next((self._container[one.number] for one in calls if one.number in self._container), None)

    def _maker(self, side: int, value: Value, around: Call) -> Call:
        if value.made_by is None or value.made_by in self._paired[side]:
            return around
        holder = self._holders[side].get(value.made_by)
        if holder is not None and self._agrees(holder):
            return around
        return self._traces[side].calls[value.made_by]

    def _not_given(self, side: int, call: Call, value: Value) -> Call:
        """Return the innermost call around ``call`` that was not given the value itself."""
        found = call
        for found in self._around(side, call):
            if value not in found.inputs:
                break
        return found

    def _around(self, side: int, call: Call) -> Iterator[Call]:
        while call.parent is not None:
            call = self._traces[side].calls[call.parent]
            yield call

    def _parent(self, side: int, call: Call) -> Call:
        return next(self._around(side, call), call)

    def _is_inside(self, call: Call, other: Call) -> bool:
        return any(one is other for one in self._around(1, call))

    def _handed_on(self, value: Value) -> Call | None:
        """Return the port's last call in no pair that gave back the value that it was given."""
        found = [
            call for call in self._traces[1].calls
            if value in call.outputs and hands_on(call) and not call.children
            and call.number not in self._paired[1]
        ]  # fmt: skip
        return found[-1] if found else None


class CodeRounding:
    """How far float32 takes what the reference's code between its layers makes of their results in float64.

    The reference runs once in float32, each layer that is judged giving what it gave in float64. Some of Paddle's kernels compute
    in float32 whatever they are given, such as the places where a resized image is sampled: that is as far off.

    Args:
        models: the reference's copies.
        run: what it did in float64.
        matching: which calls are judged by themselves.
        store: where its tensors are.
        seed: of random numbers.
    """

    def __init__(self, models: Models, run: Run, matching: Matching, store: Store, seed: int) -> None:
        self._models, self._side, self._run, self._store, self._seed = models, models.side, run, store, seed
        self._judged = {pair.reference.number for pair in matching.pairs if not pair.whole}
        self._found: dict[int, float] = {}

    def of(self, value: Value) -> float:
        """Return how far a tensor of the reference's is off, relative; 0 where that is not known."""
        return self._errors.get(id(value), 0.0)

    @cached_property
    def _errors(self) -> Mapping[int, float]:
        side, root = self._side, self._run.trace.calls[0]
        model = self._models.single[""]
        self._calls = {(call.path, call.turn): call for call in self._run.trace.calls}
        self._paths = {id(layer): path for path, layer in side.layers(model)}
        self._turns, self._begun = Counter[str](), list[Call | None]()
        try:
            with ExitStack() as stack:
                stack.enter_context(side.precision(double=False))
                stack.enter_context(side.randomness(drawn_again(root, self._seed)))
                stack.enter_context(side.recording(gradient=False))
                for _, layer in side.layers(model):
                    stack.callback(side.watch(layer, self._before, self._after))
                side.seed(self._seed)
                args, kwargs = put_back(root.arguments, [self._single(value) for value in root.inputs])
                made = take_out(model(*args, **kwargs), side.is_tensor)[1]
                self._note(root.outputs, made)
        except NotHeld:
            raise
        except Exception:  # noqa: BLE001  (a model may refuse to run so; then nothing is known of its rounding)
            self._found.clear()
        return self._found

    def _before(self, layer: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        path = self._paths[id(layer)]
        call = self._calls.get((path, self._turns[path]))
        self._turns[path] += 1
        self._begun.append(call)
        if call is not None and call.number in self._judged:
            self._note(call.inputs, take_out((args, dict(kwargs)), self._side.is_tensor)[1])

    def _after(self, _: Any, result: Any) -> Any:
        """Return what the layer gave in float64, in place of its result, if that is a tensor or a sequence of tensors."""
        call = self._begun.pop()
        plain = self._side.is_tensor(result) or isinstance(result, tuple | list)
        if call is None or call.number not in self._judged or not plain:
            return None
        structure, made, _ = take_out(result, self._side.is_tensor)
        if len(made) != len(call.outputs):
            return None
        return put_back(structure, [self._single(value) for value in call.outputs])

    def _single(self, value: Value) -> Any:
        return self._side.tensor(as_float(self._store.get(value.stored), double=False), gradient=False)

    def _note(self, values: Sequence[Value], tensors: Sequence[Any]) -> None:
        for value, tensor in zip(values, tensors, strict=False):
            if value.dtype.kind == "f" and value.shape == tuple(tensor.shape):
                apart = relative(self._store.get(value.stored), self._side.view(tensor))
                self._found[id(value)] = max(self._found.get(id(value), 0.0), apart)
