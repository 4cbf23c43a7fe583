"""The order of things as the cause: axes and lists; and factors that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, permutations
from typing import Any

from tipchain.parity.diagnose.acts import in_order as reordered
from tipchain.parity.diagnose.acts import instead, on_input, then, then_first, with_argument
from tipchain.parity.diagnose.asking import first_tensor, is_tensor, paddle_of
from tipchain.parity.diagnose.functions import called, place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis, known_numbers
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Act, Op, floats_of

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
            code="off-by-one", acts={op.number: act},
            message=f"it does `{op.name}` {op.args[1]}{place_of(op, piece)}, the reference {number}",
            fix=f"write {number} for {op.args[1]}{place_of(op, piece)}: `{op.line}`",
        )  # fmt: skip


def by_rounding(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield casts to whole numbers of what was rounded otherwise before."""
    given = first_tensor(op, piece)
    if op.name != "astype" or given is None:
        return
    paddle, where = paddle_of(piece), place_of(op, piece)
    ways = {"round": paddle.round, "floor": paddle.floor, "ceil": paddle.ceil, "floor(x + 0.5)": _rounded_up}
    for told, function in ways.items():
        yield Hypothesis(
            code="rounding", acts={op.number: on_input(function)},
            message=f"it cuts off the fraction by `astype`{where}, the reference has another rounding there: {told}",
            fix=f"apply {told} in front of `astype`{where}: `{op.line}`",
        )  # fmt: skip


def _rounded_up(tensor: Any) -> Any:
    return (tensor + 0.5).floor()


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


def by_axes(op: Op, piece: Piece, first: Any) -> Iterator[Hypothesis]:
    """Yield another order of axes in front of, inside or after a call that changes shapes."""
    where = place_of(op, piece)
    given = first_tensor(op, piece)
    if op.name in ("reshape", "flatten", "unflatten") and given is not None:
        code = layout_code(op, given, first)
        for order in islice(permutations(range(len(given.shape))), 1, MOST_ORDERS):
            before = _transposed_before(order)
            yield Hypothesis(
                code=code, acts={op.number: before}, message=f"the axes are in another order in front of `{op.name}`{where}",
                fix=f"transpose by {list(order)} in front of `{op.name}`{where}: `{op.line}`",
            )  # fmt: skip
        for order in islice(permutations(range(len(first.shape))), 1, MOST_ORDERS):
            sizes = [first.shape[axis] for axis in order]
            back = sorted(range(len(order)), key=order.__getitem__)
            after = instead(partial(_divided, sizes, back))
            yield Hypothesis(
                code=code, acts={op.number: after}, message=f"`{op.name}`{where} divides an axis in another order",
                fix=f"reshape to {sizes} and transpose by {back} for `{op.name}`{where}: `{op.line}`",
            )  # fmt: skip
    rank = len(first.shape)
    if 1 < rank <= 4 and op.name != LAYER:
        for order in islice(permutations(range(rank)), 1, MOST_ORDERS):
            if [first.shape[axis] for axis in order] == list(first.shape):
                turn = then_first(partial(_turned, list(order)))
                yield Hypothesis(
                    code="axis-order", acts={op.number: turn}, message=f"the result of `{op.name}`{where} has its axes in another order",
                    fix=f"transpose the result of `{op.name}`{where} by {list(order)}: `{op.line}`",
                )  # fmt: skip


def layout_code(op: Op, given: Any, made: Any) -> str:
    """Return the slug of a call that arranges numbers otherwise: of heads or windows, of a flattened tensor, of axes."""
    if op.name not in ("reshape", "flatten", "unflatten"):
        return "axis-order"
    heads = op.name == "reshape" and max(len(given.shape), len(made.shape)) >= HEADS
    return "head-order" if heads else "flatten-order"


def _transposed_before(order: Sequence[int]) -> Act:
    """Return a call of its argument transposed, its result in the shape that it would have had."""

    def act(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shape = original(*args, **kwargs).shape
        return original(args[0].transpose(list(order)), *args[1:], **kwargs).reshape(shape)

    return act


def _divided(sizes: list[int], back: list[int], tensor: Any) -> Any:
    return tensor.reshape(sizes).transpose(back)


def _turned(order: list[int], tensor: Any) -> Any:
    return tensor.transpose(order)


def _times(factor: float, tensor: Any) -> Any:
    return tensor * factor


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
                code="scale-factor", acts={op.number: on_input(partial(_times, value))}, confirmed=value in told,
                message=f"the reference multiplies what goes into {called(op)}{where} by {name}",
                fix=f"multiply what goes into {called(op)}{where} by {name}: `{op.line}`",
            )  # fmt: skip
        act = then_first(partial(_times, value))
        yield Hypothesis(
            code="sign" if value == -1 else "scale-factor", acts={op.number: act}, confirmed=value in told,
            message=f"the reference multiplies by {name} after {called(op)}{where}",
            fix=f"multiply the result of {called(op)}{where} by {name}: `{op.line}`",
        )  # fmt: skip
