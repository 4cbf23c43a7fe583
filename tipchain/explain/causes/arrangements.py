"""The order of axes and lists, masks and indices as causes; and which calls are looked at first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice, permutations
from types import ModuleType

import numpy as np

from tipchain.explain.causes.functions import called, place_of
from tipchain.explain.causes.hypotheses import Hypothesis, known_numbers
from tipchain.explain.causes.piece import Piece, first_tensor, is_mask, is_tensor, paddle_of
from tipchain.explain.causes.program import (
    LAYER,
    Act,
    Op,
    floats_of,
    instead,
    numpy_of,
    on_input,
    tensors_of,
    then,
    then_first,
    with_argument,
)
from tipchain.explain.causes.program import in_order as reordered
from tipchain.explain.locate.differences import Sketch
from tipchain.explain.locate.trace import take_out
from tipchain.framework_types import Function, Nested, Options, Tensor
from tipchain.numbers.tolerance import SAME_DOUBLE

# The order of things as the cause: axes and lists; and factors that are missing.


MOST_TENSORS = 14
"""Tensors of a call that are looked at: a limit on the search, three for each of query, key and value with their biases fit in."""
MOST_ORDERS = 24
"""Orders of axes that are tried: 4!, all of a tensor with four."""
HEADS = 4
"""Axes that a tensor of batch, sequence and divided channels has at least."""
CURVED = frozenset({"exp", "softmax", "log_softmax", "sigmoid", "tanh"})
"""Functions of which a factor in front is another one than a factor behind."""


def by_orders(op: Op, piece: Piece, results: Sequence[object]) -> Iterator[Hypothesis]:
    """Yield lists of tensors in another order."""
    where, telling = place_of(op, piece), is_tensor(piece)
    given = op.args[0] if op.args else op.kwargs.get("x")
    if op.name in ("concat", "stack") and isinstance(given, list | tuple) and len(given) > 1:
        for order in islice(permutations(range(len(given))), 1, MOST_ORDERS):
            act = reordered(order)
            yield Hypothesis(
                code="concat-order",
                acts={op.number: act},
                message=f"`{op.name}`{where} joins its tensors in the wrong order: the right one is {list(order)}",
                fix=f"give `{op.name}`{where} its tensors in the order {list(order)}: `{op.line}`",
            )
    many = isinstance(op.result, list | tuple) and all(telling(one) for one in op.result)
    if op.name in ("split", "chunk", "unbind", "unstack") and many and len(results) > 1:
        for order in islice(permutations(range(len(results))), 1, MOST_ORDERS):
            part = then(partial(_picked, order))
            yield Hypothesis(
                code="swapped-qkv" if len(results) == 3 else "split-order",
                acts={op.number: part},
                message=f"the parts of `{op.name}`{where} are taken in the wrong order: the right one is {list(order)}",
                fix=f"take the parts of `{op.name}`{where} in the order {list(order)}: `{op.line}`",
            )


def _picked(order: Sequence[int], results: Sequence[Tensor]) -> object:
    return [results[number] for number in order]


def by_axes(op: Op, piece: Piece, first: Tensor) -> Iterator[Hypothesis]:
    """Yield another order of axes in front of, inside or after a call that changes shapes."""
    where = place_of(op, piece)
    given = first_tensor(op, piece)
    if op.name in ("reshape", "flatten", "unflatten") and given is not None:
        code = layout_code(op, given, first)
        for order in islice(permutations(range(len(given.shape))), 1, MOST_ORDERS):
            before = _transposed_before(order)
            yield Hypothesis(
                code=code,
                acts={op.number: before},
                message=f"the axes are in another order in front of `{op.name}`{where}",
                fix=f"transpose by {list(order)} in front of `{op.name}`{where}: `{op.line}`",
            )
        for order in islice(permutations(range(len(first.shape))), 1, MOST_ORDERS):
            sizes = [first.shape[axis] for axis in order]
            back = sorted(range(len(order)), key=order.__getitem__)
            after = instead(partial(_divided, sizes, back))
            yield Hypothesis(
                code=code,
                acts={op.number: after},
                message=f"`{op.name}`{where} divides an axis in another order",
                fix=f"reshape to {sizes} and transpose by {back} for `{op.name}`{where}: `{op.line}`",
            )
    rank = len(first.shape)
    if 1 < rank <= 4 and op.name != LAYER:
        for order in islice(permutations(range(rank)), 1, MOST_ORDERS):
            if [first.shape[axis] for axis in order] == list(first.shape):
                turn = then_first(partial(_turned, list(order)))
                yield Hypothesis(
                    code="axis-order",
                    acts={op.number: turn},
                    message=f"the result of `{op.name}`{where} has its axes in another order",
                    fix=f"transpose the result of `{op.name}`{where} by {list(order)}: `{op.line}`",
                )


def layout_code(op: Op, given: Tensor, made: Tensor) -> str:
    """Return the slug of a call that arranges numbers otherwise: of heads or windows, of a flattened tensor, of axes."""
    if op.name not in ("reshape", "flatten", "unflatten"):
        return "axis-order"
    heads = op.name == "reshape" and max(len(given.shape), len(made.shape)) >= HEADS
    return "head-order" if heads else "flatten-order"


def _transposed_before(order: Sequence[int]) -> Act:
    """Return a call of its argument transposed, its result in the shape that it would have had."""

    def act(original: Function, args: tuple[Nested, ...], kwargs: Options) -> Nested:
        shape = original(*args, **kwargs).shape
        return original(args[0].transpose(list(order)), *args[1:], **kwargs).reshape(shape)

    return act


def _divided(sizes: list[int], back: list[int], tensor: Tensor) -> object:
    return tensor.reshape(sizes).transpose(back)


def _turned(order: list[int], tensor: Tensor) -> object:
    return tensor.transpose(order)


def _times(factor: float, tensor: Tensor) -> object:
    return tensor * factor


def by_scales(op: Op, piece: Piece, first: Tensor) -> Iterator[Hypothesis]:
    """Yield the result times numbers that models multiply by; of the reference's own code first."""
    where, telling = place_of(op, piece), is_tensor(piece)
    sizes = [int(size) for one in (first, *floats_of((op.args, dict(op.kwargs)), telling)) for size in one.shape]
    told = {
        float(value): f"{value:.6g}"
        for name in ("mul", "rmul", "div", "truediv", "rtruediv", "pow", "add")
        for value in piece.truth.constants.get(name, ())
        if isinstance(value, int | float) and value
    }
    told.update({1 / value: f"1/{value:.6g}" for value in told})
    for value, name in {**told, **{key: one for key, one in known_numbers(sizes).items() if key not in told}}.items():
        if value == 1:
            continue
        code = "sign" if value == -1 else "scale-factor"
        if op.name in CURVED:
            yield Hypothesis(
                code=code,
                acts={op.number: on_input(partial(_times, value))},
                confirmed=value in told,
                message=f"the reference multiplies what goes into {called(op)}{where} by {name}",
                fix=f"multiply what goes into {called(op)}{where} by {name}: `{op.line}`",
            )
        act = then_first(partial(_times, value))
        yield Hypothesis(
            code=code,
            acts={op.number: act},
            confirmed=value in told,
            message=f"the reference multiplies by {name} after {called(op)}{where}",
            fix=f"multiply the result of {called(op)}{where} by {name}: `{op.line}`",
        )


# Which calls of a layer's code are looked at first: those near the first whose result the reference does not have.


NEAR = 3
"""How far cleared calls may be from the first doubtful one to be looked at with it."""


class Flow:
    """Which calls rest on which.

    Attributes:
        directs: by call, the calls whose results it is given.
        rests: by call, all calls that it rests on.
    """

    def __init__(self, ops: Sequence[Op], is_tensor: Callable[[object], bool]) -> None:
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
    is_tensor = piece.sides.port.is_tensor
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
    is_tensor = piece.sides.port.is_tensor
    return {
        index
        for index, op in enumerate(ops)
        if index not in taken and any(int(np.prod(one.shape)) in sizes for one in tensors_of(op.result, is_tensor))
    } or set(range(len(ops)))


def _known(tensor: object, piece: Piece) -> bool:
    sketch = Sketch(numpy_of(tensor))
    return any(sketch.close(one, SAME_DOUBLE) for one in piece.truth.sketches)


def available_before(op: Op, ops: Sequence[Op], piece: Piece) -> list[tuple[str, Tensor]]:
    """Return the tensors that there were before a call, the latest first, with names for messages."""
    is_tensor = piece.sides.port.is_tensor
    found: list[tuple[str, Tensor]] = []
    seen: set[int] = set()

    def take(tensors: Sequence[object], name: str) -> None:
        for one in tensors:
            if id(one) not in seen:
                seen.add(id(one))
                found.append((name, one))

    for earlier in reversed([one for one in ops if one.number < op.number]):
        told = f"the result of `{earlier.path}`" if earlier.path else f"the result of `{earlier.line or earlier.name}`"
        take(take_out(earlier.result, is_tensor)[1], told)
        take(
            take_out((earlier.args, dict(earlier.kwargs)), is_tensor)[1],
            f"what goes into `{earlier.path or earlier.line or earlier.name}`",
        )
    take(take_out((op.args, dict(op.kwargs)), is_tensor)[1], "what goes in")
    taken = [(list(one.shape), one) for _, one in found]
    for number, array in enumerate(piece.inputs[1]):
        held = any(shape == list(array.shape) and np.array_equal(one.numpy(), array) for shape, one in taken)
        if not held:
            found.append(
                (f"input {piece.calls[1].input_names[number]}", piece.sides.port.tensor(array, gradient=False))
            )
    return found


# Masks as the cause: missing, hiding the opposite, or too weak.


HIDDEN = -1e30
"""What is added to scores of what may not be seen: float32 holds it, and its exponential is 0 in float64, too."""


def by_masks(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield softmax of masked values: what comes later is hidden, or what a tensor of the model hides."""
    if op.name != "softmax" and type(op.layer).__name__ != "Softmax":
        return
    available = available_before(op, ops, piece)
    paddle, where, shape = paddle_of(piece), place_of(op, piece), list(op.result.shape)
    masks: list[tuple[str, str, Tensor]] = []
    if len(shape) >= 2 and shape[-1] == shape[-2]:
        seen = paddle.tril(paddle.ones(shape[-2:], dtype="int32")).astype("bool")
        masks.append(("causal-mask", "what comes later", seen))
    for name, tensor in available:
        if "float" not in str(tensor.dtype):
            flags = tensor if "bool" in str(tensor.dtype) else tensor != 0
            for fitted in _fitted(flags, shape):
                masks += [
                    ("missing-mask", f"where {name} is zero", fitted),
                    ("missing-mask", f"where {name} is not zero", paddle.logical_not(fitted)),
                ]
    for code, told, seen in masks[:MOST_TENSORS]:
        act = on_input(partial(_hidden, paddle, seen))
        yield Hypothesis(
            code=code,
            acts={op.number: act},
            message=f"it does not mask {told} in front of softmax{where}",
            fix=f"add a mask that hides {told} in front of softmax{where}: `{op.line}`",
        )
    for name, tensor in available:
        if is_mask(tensor, piece) and "float" in str(tensor.dtype):
            plus = on_input(tensor.add)
            yield Hypothesis(
                code="missing-mask",
                acts={op.number: plus},
                message=f"it does not add the mask {name} in front of softmax{where}",
                fix=f"add {name} in front of softmax{where}: `{op.line}`",
            )


def _hidden(paddle: ModuleType, seen: Tensor, scores: Tensor) -> Tensor:
    hidden = paddle.full(scores.shape, HIDDEN, dtype=scores.dtype)
    return paddle.where(paddle.broadcast_to(seen, scores.shape), scores, hidden)


def _fitted(flags: Tensor, shape: Sequence[int]) -> Iterator[Tensor]:
    """Yield a mask as it fits to scores: by keys where it has one axis for them."""
    sizes = list(flags.shape)
    rank = len(shape)
    if sizes == [shape[0], shape[-1]] and rank > 2:
        yield flags.reshape([shape[0], *[1] * (rank - 2), shape[-1]])
    elif rank >= len(sizes) and all(a in (1, b) for a, b in zip(reversed(sizes), reversed(shape), strict=False)):
        yield flags


# What is taken of a tensor as the cause: another index, another slice, one element for all of an axis.


def by_indices(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield indexing with another number: the last for the first, one further."""
    if op.name != "getitem" or len(op.args) < 2:
        return
    items = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    where = place_of(op, piece)
    slices = [place for place, item in enumerate(items) if isinstance(item, slice) and item != slice(None)]
    if len(slices) > 1:
        for by in (1, -1):
            moved = tuple(_shifted(item, by) if place in slices else item for place, item in enumerate(items))
            told = [", ".join(map(_told, one)) for one in (items, moved)]
            yield Hypothesis(
                code="off-by-one",
                acts={op.number: with_argument(1, moved)},
                message=f"it takes index [{told[0]}]{where}, which is shifted: the reference [{told[1]}]",
                fix=f"write [{told[1]}] for [{told[0]}]{where}: `{op.line}`",
            )
    for place, item in enumerate(items):
        if isinstance(item, int):
            changed: list[object] = [one for one in (0, -1, item + 1, item - 1, 1, 2) if one != item]
        elif isinstance(item, slice) and (item.start is not None or item.stop is not None):
            changed = [_shifted(item, by) for by in (1, -1)]
        elif isinstance(item, slice) and item.step == -1:
            changed = [slice(None)]
        else:
            continue
        for value in changed:
            new = (*items[:place], value, *items[place + 1 :])
            act = with_argument(1, new)
            code = "wrong-index" if isinstance(item, int) else "off-by-one"
            yield Hypothesis(
                code=code,
                acts={op.number: act},
                message=f"it takes index {_told(item)}{where}, the reference {_told(value)}",
                fix=f"write {_told(value)} for {_told(item)}{where}: `{op.line}`",
            )


def _shifted(item: slice, by: int) -> slice:
    """Return a slice moved by one, of the same length where it ends at the first or the last."""
    if by > 0:
        return slice((item.start or 0) + 1, None if item.stop in (None, -1) else item.stop + 1, item.step)
    start = None if item.start in (None, 0, 1) else item.start - 1
    return slice(start, -1 if item.stop is None else item.stop - 1, item.step)


def _told(item: object) -> str:
    if isinstance(item, slice):
        return ":".join("" if one is None else str(one) for one in (item.start, item.stop))
    return str(item)
