"""The order of things as the cause: axes, lists and indices; and masks and factors that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, permutations
from typing import Any

from tipchain.parity.diagnose.acts import in_order as reordered
from tipchain.parity.diagnose.acts import instead, on_input, then, then_first, with_argument
from tipchain.parity.diagnose.asking import first_tensor, is_mask, is_tensor, paddle_of
from tipchain.parity.diagnose.functions import called, place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis, known_numbers
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Act, Op, floats_of

MOST_TENSORS = 14
MOST_ORDERS = 24
CURVED = frozenset({"exp", "softmax", "log_softmax", "sigmoid", "tanh"})
"""Functions of which a factor in front is another one than a factor behind."""


def by_counted(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield whole numbers without what is added to them."""
    if op.name not in ("add", "subtract") or len(op.args) < 2 or not isinstance(op.args[1], int):
        return
    for number in (0, op.args[1] + 1, op.args[1] - 1):
        act = with_argument(1, number)
        yield Hypothesis(
            code="off-by-one", acts={op.number: act}, cost=1.05,
            message=f"it does `{op.name}` {op.args[1]}{place_of(op, piece)}, the reference {number}",
            fix=f"write {number} for {op.args[1]}{place_of(op, piece)}: `{op.line}`",
        )  # fmt: skip


def by_orders(op: Op, piece: Piece, results: Sequence[Any]) -> Iterator[Hypothesis]:
    """Yield lists of tensors in another order."""
    where, telling = place_of(op, piece), is_tensor(piece)
    given = op.args[0] if op.args else op.kwargs.get("x")
    if op.name in ("concat", "stack") and isinstance(given, list | tuple) and len(given) > 1:
        for order in islice(permutations(range(len(given))), 1, MOST_ORDERS):
            act = reordered(order)
            yield Hypothesis(
                code="concat-order", acts={op.number: act}, message=f"`{op.name}`{where} joins tensors in another order than {list(order)}",
                fix=f"give `{op.name}`{where} its tensors in the order {list(order)}: `{op.line}`",
            )  # fmt: skip
    many = isinstance(op.result, list | tuple) and all(telling(one) for one in op.result)
    if op.name in ("split", "chunk", "unbind", "unstack") and many and len(results) > 1:
        for order in islice(permutations(range(len(results))), 1, MOST_ORDERS):
            part = then(partial(_picked, order))
            yield Hypothesis(
                code="swapped-qkv" if len(results) == 3 else "split-order", acts={op.number: part},
                message=f"the parts of `{op.name}`{where} are taken in another order than {list(order)}",
                fix=f"take the parts of `{op.name}`{where} in the order {list(order)}: `{op.line}`",
            )  # fmt: skip


def _picked(order: Sequence[int], results: Any) -> Any:
    return [results[number] for number in order]


def by_indices(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield indexing with another number: the last for the first, one further."""
    if op.name != "getitem" or len(op.args) < 2:
        return
    items = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
    where = place_of(op, piece)
    for place, item in enumerate(items):
        if isinstance(item, int):
            changed: list[Any] = [one for one in (0, -1, item + 1, item - 1, 1, 2) if one != item]
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
                code=code, acts={op.number: act}, cost=1.1, message=f"it takes index {_told(item)}{where}, the reference {_told(value)}",
                fix=f"write {_told(value)} for {_told(item)}{where}: `{op.line}`",
            )  # fmt: skip


def _shifted(item: slice, by: int) -> slice:
    return slice((item.start or 0) + by, None if item.stop is None else item.stop + by, item.step)


def _told(item: Any) -> str:
    if isinstance(item, slice):
        return ":".join("" if one is None else str(one) for one in (item.start, item.stop))
    return str(item)


def by_axes(op: Op, piece: Piece, first: Any) -> Iterator[Hypothesis]:
    """Yield another order of axes in front of, inside or after a call that changes shapes."""
    where = place_of(op, piece)
    given = first_tensor(op, piece)
    if op.name in ("reshape", "flatten", "unflatten") and given is not None:
        code = (
            "head-order"
            if op.name == "reshape" and max(len(given.shape), len(first.shape)) >= 4
            else "flatten-order"
        )
        for order in islice(permutations(range(len(given.shape))), 1, MOST_ORDERS):
            before = _transposed_before(order, list(first.shape))
            yield Hypothesis(
                code=code, acts={op.number: before}, message=f"the axes are in another order in front of `{op.name}`{where}",
                fix=f"transpose by {list(order)} in front of `{op.name}`{where}: `{op.line}`", cost=1.1,
            )  # fmt: skip
        for order in islice(permutations(range(len(first.shape))), 1, MOST_ORDERS):
            sizes = [first.shape[axis] for axis in order]
            back = sorted(range(len(order)), key=order.__getitem__)
            after = instead(partial(_divided, sizes, back))
            yield Hypothesis(
                code=code, acts={op.number: after}, message=f"`{op.name}`{where} divides an axis in another order",
                fix=f"reshape to {sizes} and transpose by {back} for `{op.name}`{where}: `{op.line}`", cost=1.1,
            )  # fmt: skip
    rank = len(first.shape)
    if 1 < rank <= 4 and op.name != LAYER:
        for order in islice(permutations(range(rank)), 1, MOST_ORDERS):
            if [first.shape[axis] for axis in order] == list(first.shape):
                turn = then_first(partial(_turned, list(order)))
                yield Hypothesis(
                    code="axis-order", acts={op.number: turn}, cost=1.2, message=f"the result of `{op.name}`{where} has its axes in another order",
                    fix=f"transpose the result of `{op.name}`{where} by {list(order)}: `{op.line}`",
                )  # fmt: skip


def _transposed_before(order: Sequence[int], shape: list[int]) -> Act:
    return lambda original, args, kwargs: original(
        args[0].transpose(list(order)), *args[1:], **kwargs
    ).reshape(shape)


def _divided(sizes: list[int], back: list[int], tensor: Any) -> Any:
    return tensor.reshape(sizes).transpose(back)


def _turned(order: list[int], tensor: Any) -> Any:
    return tensor.transpose(order)


def _times(factor: float, tensor: Any) -> Any:
    return tensor * factor


def by_masks(op: Op, piece: Piece, first: Any, available: Sequence[tuple[str, Any]]) -> Iterator[Hypothesis]:
    """Yield softmax of masked values: what comes later is hidden, or what a tensor of the model hides."""
    if op.name != "softmax" and type(op.layer).__name__ != "Softmax":
        return
    paddle, where, shape = paddle_of(piece), place_of(op, piece), list(first.shape)
    masks: list[tuple[str, str, Any]] = []
    if len(shape) >= 2 and shape[-1] == shape[-2]:
        seen = paddle.tril(paddle.ones(shape[-2:], dtype="int32")).astype("bool")
        masks.append(("causal-mask", "what comes later", seen))
    for name, tensor in available:
        if "float" not in str(tensor.dtype):
            flags = tensor if "bool" in str(tensor.dtype) else tensor != 0
            for fitted in _fitted(flags, shape):
                masks += [("missing-mask", f"where {name} is zero", fitted), ("missing-mask", f"where {name} is not zero", paddle.logical_not(fitted))]  # fmt: skip
    for code, told, seen in masks[:MOST_TENSORS]:
        act = on_input(partial(_hidden, paddle, seen))
        yield Hypothesis(
            code=code, acts={op.number: act}, message=f"it does not mask {told} in front of softmax{where}",
            fix=f"add a mask that hides {told} in front of softmax{where}: `{op.line}`",
        )  # fmt: skip
    for name, tensor in available:
        if is_mask(tensor, piece) and "float" in str(tensor.dtype):
            plus = on_input(tensor.add)
            yield Hypothesis(
                code="missing-mask", acts={op.number: plus}, message=f"it does not add the mask {name} in front of softmax{where}",
                fix=f"add {name} in front of softmax{where}: `{op.line}`",
            )  # fmt: skip


def _hidden(paddle: Any, seen: Any, scores: Any) -> Any:
    hidden = paddle.full(scores.shape, -1e30, dtype=scores.dtype)
    return paddle.where(paddle.broadcast_to(seen, scores.shape), scores, hidden)


def _fitted(flags: Any, shape: Sequence[int]) -> Iterator[Any]:
    """Yield a mask as it fits to scores: by keys where it has one axis for them."""
    sizes = list(flags.shape)
    rank = len(shape)
    if sizes == [shape[0], shape[-1]] and rank > 2:
        yield flags.reshape([shape[0], *[1] * (rank - 2), shape[-1]])
    elif rank >= len(sizes) and all(
        a in (1, b) for a, b in zip(reversed(sizes), reversed(shape), strict=False)
    ):
        yield flags


def by_scales(op: Op, piece: Piece, first: Any) -> Iterator[Hypothesis]:
    """Yield the result times numbers that models multiply by; of the reference's own code first."""
    where, telling = place_of(op, piece), is_tensor(piece)
    sizes = [
        int(size) for one in (first, *floats_of((op.args, dict(op.kwargs)), telling)) for size in one.shape
    ]
    told = {
        float(value): f"{value:.6g}"
        for name in ("mul", "rmul", "div", "truediv", "rtruediv", "pow", "add")
        for value in piece.truth.constants.get(name, ())
        if isinstance(value, int | float) and value
    }
    told.update({1 / value: f"1/{value:.6g}" for value in told})
    for value, name in {
        **told,
        **{key: one for key, one in known_numbers(sizes).items() if key not in told},
    }.items():
        if value == 1:
            continue
        if op.name in CURVED:
            yield Hypothesis(
                code="scale-factor", acts={op.number: on_input(partial(_times, value))}, cost=1.25, confirmed=value in told,
                message=f"the reference multiplies what goes into {called(op)}{where} by {name}",
                fix=f"multiply what goes into {called(op)}{where} by {name}: `{op.line}`",
            )  # fmt: skip
        act = then_first(partial(_times, value))
        yield Hypothesis(
            code="sign" if value == -1 else "scale-factor", acts={op.number: act}, cost=1.25, confirmed=value in told,
            message=f"the reference multiplies by {name} after {called(op)}{where}",
            fix=f"multiply the result of {called(op)}{where} by {name}: `{op.line}`",
        )  # fmt: skip
