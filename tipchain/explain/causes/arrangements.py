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


def by_counted(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield whole numbers without what is added to them."""
    if op.name not in ("add", "subtract") or len(op.args) < 2 or not isinstance(op.args[1], int):
        return
    for number in (0, op.args[1] + 1, op.args[1] - 1):
        act = with_argument(1, number)
        yield Hypothesis(
            code="off-by-one",
            acts={op.number: act},
            message=f"it does `{op.name}` {op.args[1]}{place_of(op, piece)}, the reference {number}",
            fix=f"write {number} for {op.args[1]}{place_of(op, piece)}: `{op.line}`",
        )


def by_rounding(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield casts to whole numbers of what was rounded otherwise before."""
    given = first_tensor(op, piece)
    if op.name != "astype" or given is None:
        return
    paddle, where = paddle_of(piece), place_of(op, piece)
    ways = {"round": paddle.round, "floor": paddle.floor, "ceil": paddle.ceil, "floor(x + 0.5)": _rounded_up}
    for told, function in ways.items():
        yield Hypothesis(
            code="rounding",
            acts={op.number: on_input(function)},
            message=f"it cuts off the fraction by `astype`{where}, the reference has another rounding there: {told}",
            fix=f"apply {told} in front of `astype`{where}: `{op.line}`",
        )


def _rounded_up(tensor: Tensor) -> Tensor:
    return (tensor + 0.5).floor()


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


ATTENTION, MASK = "scaled_dot_product_attention", 3
"""Fused attention, and the place of its mask."""
HIDDEN = -1e30
"""What is added to scores of what may not be seen: float32 holds it, and its exponential is 0 in float64, too."""


def by_masks(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield softmax of masked values: what comes later is hidden, or what a tensor of the model hides."""
    if op.name == ATTENTION:
        yield from _later_hidden(op, piece)
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


def _later_hidden(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield fused attention whose mask hides what comes later, too."""
    paddle, where, mask = paddle_of(piece), place_of(op, piece), _mask_of(op)
    if not is_tensor(piece)(mask):
        return
    sizes = op.args[0].shape[1], op.args[1].shape[1]  # of [batch, length, heads, channels]
    if sizes[0] != sizes[1]:
        return
    seen = paddle.tril(paddle.ones(sizes, dtype="int32")).astype("bool")
    both = (
        paddle.logical_and(seen, mask)
        if "bool" in str(mask.dtype)
        else _hidden(paddle, seen, mask + paddle.zeros(sizes, dtype=mask.dtype))
    )
    yield Hypothesis(
        code="causal-mask",
        acts={op.number: with_argument(MASK, both, "attn_mask")},
        message=f"the mask of `{op.name}`{where} does not hide what comes later, the reference's does",
        fix=f"hide what comes later in the mask of `{op.name}`{where}, too: `{op.line}`",
    )


def _mask_of(op: Op) -> Tensor:
    """Return what fused attention is given as its mask."""
    return op.kwargs.get("attn_mask", op.args[MASK] if len(op.args) > MASK else None)


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


def by_wrong_masks(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield masks that are turned round, or hide altogether."""
    yield from _turned_round(op, piece)
    yield from _harder(op, piece)


def _turned_round(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a choice by the opposite of its condition."""
    place = {"where": 0, "masked_fill": 1}.get(op.name)
    if place is None or len(op.args) <= place or "bool" not in str(getattr(op.args[place], "dtype", "")):
        return
    where = place_of(op, piece)
    yield Hypothesis(
        code="mask-inverted",
        acts={op.number: with_argument(place, paddle_of(piece).logical_not(op.args[place]))},
        message=f"the mask of `{op.name}`{where} hides what the reference shows, and shows what it hides",
        fix=f"pass the opposite of the mask to `{op.name}`{where}: `{op.line}`",
    )


def _harder(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a sum, or attention, with a tensor of two numbers, which is made to hide altogether where it is the smaller."""
    if op.name not in ("add", ATTENTION):
        return
    paddle, where = paddle_of(piece), place_of(op, piece)
    for place, value in enumerate(op.args[:2]) if op.name == "add" else [(MASK, _mask_of(op))]:
        if not is_tensor(piece)(value) or "float" not in str(value.dtype) or is_mask(value, piece):
            continue
        least, most = float(value.min()), float(value.max())
        if least == most or not bool(((value == most) | (value == least)).all()):
            continue
        hard = paddle.where(value == least, paddle.full_like(value, HIDDEN), paddle.zeros_like(value))
        yield Hypothesis(
            code="mask-value",
            acts={op.number: with_argument(place, hard, "" if op.name == "add" else "attn_mask")},
            message=f"the mask that it adds{where} is {least:g} where it should hide altogether",
            fix=f"add a mask of -inf, or -1e9, for {least:g}{where}: `{op.line}`",
        )


# What is taken of a tensor as the cause: another index, another slice, one element for all of an axis.


REDUCED = frozenset({"mean", "sum", "max", "min"})


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


def by_selections(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield one element in place of all along an axis, and all in place of one."""
    given, where, paddle = first_tensor(op, piece), place_of(op, piece), paddle_of(piece)
    if given is None or not given.shape:
        return
    rank = len(given.shape)
    if op.name in REDUCED:
        axis = op.kwargs.get("axis", op.args[1] if len(op.args) > 1 else None)
        axis = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
        if not isinstance(axis, int) or isinstance(axis, bool):
            return
        keep = list(given.shape) if op.kwargs.get("keepdim") else None
        for number in (0, -1):
            yield Hypothesis(
                code="pooling",
                acts={op.number: instead(partial(_one, axis % rank, number, keep))},
                message=f"it takes the {op.name} over axis {axis}{where}, the reference takes index {number} there",
                fix=f"take index {number} of axis {axis} for the {op.name}{where}: `{op.line}`",
            )
    elif op.name == "getitem" and len(op.args) > 1:
        items = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
        whole = all(isinstance(one, int) or one == slice(None) for one in items if not is_tensor(piece)(one))
        places = [place for place, one in enumerate(items) if isinstance(one, int) and not isinstance(one, bool)]
        if not whole or len(places) != 1 or any(is_tensor(piece)(one) for one in items):
            return
        for name in ("mean", "max", "sum"):
            yield Hypothesis(
                code="pooling",
                acts={op.number: instead(partial(_all, getattr(paddle, name), places[0]))},
                message=f"it takes index {items[places[0]]} of axis {places[0]}{where}, the reference the {name} over that axis",
                fix=f"take the {name} over axis {places[0]}{where}: `{op.line}`",
            )


def _one(axis: int, number: int, kept: Sequence[int] | None, tensor: Tensor) -> object:
    taken = tensor[(slice(None),) * axis + (number,)]
    return taken if kept is None else taken.unsqueeze(axis)


def _all(reduce: Callable[..., Tensor], axis: int, tensor: Tensor) -> object:
    return reduce(tensor, axis=axis)


def counted(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield calls of one line that all take the same index, each taking the next one."""
    if op.name != "getitem" or len(op.args) < 2 or not isinstance(op.args[1], int) or not op.place:
        return
    alike = [
        one
        for one in ops
        if one.name == op.name and one.place == op.place and one.args[0] is op.args[0] and one.args[1:] == op.args[1:]
    ]
    if len(alike) < 2 or alike[0] is not op or len(alike) > op.args[0].shape[0]:
        return
    where = place_of(op, piece)
    yield Hypothesis(
        code="wrong-index",
        acts={one.number: with_argument(1, number) for number, one in enumerate(alike)},
        message=f"it takes index {op.args[1]} each of {len(alike)} times{where}, the reference the next one each time",
        fix=f"take the index of the turn{where}: `{op.line}`",
    )
