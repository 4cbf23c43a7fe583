"""Which calls of a layer's code are looked at first: those near the first whose result the reference does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Op, floats_of, numpy_of, tensors_of
from tipchain.parity.locate.differences import Sketch
from tipchain.parity.locate.structures import take_out
from tipchain.parity.rounding import SAME_DOUBLE

NEAR = 3
"""How far cleared calls may be from the first doubtful one to be looked at with it."""


class Flow:
    """Which calls rest on which.

    Attributes:
        directs: by call, the calls whose results it is given.
        rests: by call, all calls that it rests on.
    """

    def __init__(self, ops: Sequence[Op], is_tensor: Any) -> None:
        self.directs: list[set[int]] = []
        self.rests: list[set[int]] = []
        makers: dict[int, int] = {}
        for index, op in enumerate(ops):
            given = tensors_of((op.args, dict(op.kwargs)), is_tensor)
            given = given if op.written is None else [op.written, *given]
            direct = {makers[id(one)] for one in given if id(one) in makers}
            self.directs.append(direct)
            self.rests.append(direct.union(*(self.rests[one] for one in direct)))
            for one in tensors_of(op.result, is_tensor):
                makers.setdefault(id(one), index)
            if op.written is not None:
                makers[id(op.written)] = index


def in_order(ops: Sequence[Op], piece: Piece) -> list[Op]:
    """Return the calls, those near the first doubtful one first.

    A call is cleared where the reference has a tensor of the same values, in whatever order, and so is all that it
    rests on. What nothing wrong rests on, and what is cleared and far from the first doubtful one, comes last.
    """
    is_tensor = piece.sides[1].is_tensor
    flow = Flow(ops, is_tensor)
    directs, rests = flow.directs, flow.rests
    made = [floats_of(op.result, is_tensor) for op in ops]
    cleared = {index for index, ones in enumerate(made) if ones and all(_known(one, piece) for one in ones)}
    cleared = cleared.union(*(rests[index] for index in cleared))
    last = piece.consumer_call if piece.consumer_call >= 0 else len(ops)
    end = next((index for index, op in enumerate(ops) if op.number == last), len(ops) - 1)
    ends = {end} if piece.consumer_call >= 0 else _ends(ops, directs, piece)
    wanted = ends.union(*(rests[index] for index in ends))
    cleared |= {index for index, op in enumerate(ops) if op.name == LAYER and op.path in piece.judged}
    suspects = [index for index in range(len(ops)) if index not in cleared and index in wanted]
    makes = [index for index in suspects if floats_of(ops[index].result, is_tensor)]
    doubtful = next(iter(makes or suspects), end)
    frontier: set[int] = directs[doubtful] if ops else set()

    def place(index: int) -> tuple[bool, bool, float, int]:
        apart = 1.0 if index in frontier else abs(index - doubtful + 0.25)
        aside = index not in wanted or (index in cleared and apart > NEAR)
        return ops[index].number >= last, aside, apart, index

    return [ops[index] for index in sorted(range(len(ops)), key=place)]


def _ends(ops: Sequence[Op], directs: Sequence[set[int]], piece: Piece) -> set[int]:
    """Return the calls whose results nothing takes and that may be outputs, by their shapes; all if there are none."""
    taken: set[int] = set().union(*directs)
    sizes = {int(np.prod(one.shape)) for one in piece.truth.outputs}
    is_tensor = piece.sides[1].is_tensor
    return {
        index
        for index, op in enumerate(ops)
        if index not in taken
        and any(int(np.prod(one.shape)) in sizes for one in tensors_of(op.result, is_tensor))
    } or set(range(len(ops)))


def _known(tensor: Any, piece: Piece) -> bool:
    sketch = Sketch(numpy_of(tensor))
    return any(sketch.close(one, SAME_DOUBLE) for one in piece.truth.sketches)


def available_before(op: Op, ops: Sequence[Op], piece: Piece) -> list[tuple[str, Any]]:
    """Return the tensors that there were before a call, the latest first, with names for messages."""
    is_tensor = piece.sides[1].is_tensor
    found: list[tuple[str, Any]] = []
    seen: set[int] = set()

    def take(tensors: Sequence[Any], name: str) -> None:
        for one in tensors:
            if id(one) not in seen:
                seen.add(id(one))
                found.append((name, one))

    for earlier in reversed([one for one in ops if one.number < op.number]):
        told = (
            f"the result of `{earlier.path}`"
            if earlier.path
            else f"the result of `{earlier.line or earlier.name}`"
        )
        take(take_out(earlier.result, is_tensor)[1], told)
        take(
            take_out((earlier.args, dict(earlier.kwargs)), is_tensor)[1],
            f"what goes into `{earlier.path or earlier.line or earlier.name}`",
        )
    take(take_out((op.args, dict(op.kwargs)), is_tensor)[1], "what goes in")
    taken = [(list(one.shape), one) for _, one in found]
    for number, array in enumerate(piece.inputs[1]):
        held = any(shape == list(array.shape) and np.array_equal(one.numpy(), array) for shape, one in taken)  # fmt: skip
        if not held:
            found.append(
                (f"input {piece.calls[1].input_names[number]}", piece.sides[1].tensor(array, gradient=False))
            )
    return found
