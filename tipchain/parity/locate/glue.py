"""Which code between the layers made a tensor."""

from __future__ import annotations

from collections.abc import Iterator

from tipchain.parity.locate.matching import CallPair, Matching, hands_on
from tipchain.parity.locate.trace import Call, Trace, Value

Calls = tuple[Call, Call]


class Glue:
    """Finds the code between the layers of both models, layers of which each is known to do what its pair does."""

    def __init__(self, reference: Trace, port: Trace, matching: Matching) -> None:
        self._traces = reference, port
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
