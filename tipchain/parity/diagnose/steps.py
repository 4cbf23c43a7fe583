"""One step of a layer's code as the cause: a step left out, added, or done to other tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from tipchain.parity.diagnose.acts import (
    argument,
    called_as,
    constant,
    instead,
    of_both,
    then_first,
    with_argument,
    with_tensors,
)
from tipchain.parity.diagnose.acts import exchanged as exchanged_arguments
from tipchain.parity.diagnose.arrangements import (
    MOST_TENSORS,
    by_axes,
    by_counted,
    by_rounding,
    by_scales,
)
from tipchain.parity.diagnose.asking import first_tensor, is_mask, is_tensor, paddle_of
from tipchain.parity.diagnose.functions import called, place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.operations import LIKES
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Act, Op, floats_of, tensors_of
from tipchain.parity.diagnose.selections import by_indices, by_selections
from tipchain.parity.diagnose.several import everywhere

BINARY = frozenset(
    {"add", "subtract", "multiply", "divide", "matmul", "maximum", "minimum", "rsub", "rdiv", "pow"}
)
REDUCTIONS = frozenset({"mean", "sum", "max", "min", "logsumexp"})
TRANSPOSING = frozenset({"t", "transpose", "swapaxes", "moveaxis"})
POOLS = frozenset(
    {f"{kind}_pool{dims}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for dims in (1, 2, 3)}
)


def by_step(op: Op, piece: Piece, available: Sequence[tuple[str, Any]]) -> Iterator[Hypothesis]:
    """Yield what may be wrong with one call and what is done with it.

    Args:
        op: the call.
        piece: the piece it is in.
        available: the tensors that were there before it, and what they are called.
    """
    results = floats_of(op.result, is_tensor(piece))
    if not results:
        yield from by_counted(op, piece)
        yield from by_rounding(op, piece)
        return
    first = results[0]
    yield from _left_out(op, piece, first)
    yield from _other_operation(op, piece)
    yield from by_indices(op, piece)
    yield from by_selections(op, piece)
    yield from _operands(op, piece, available)
    yield from _residual(op, piece, first, available)
    yield from by_axes(op, piece, first)
    yield from by_scales(op, piece, first)


def _left_out(op: Op, piece: Piece, first: Any) -> Iterator[Hypothesis]:
    """Yield the code without this call."""
    given = first_tensor(op, piece)
    where = place_of(op, piece)
    if given is None or list(given.shape) != list(first.shape) or op.name in LIKES:
        return
    telling = is_tensor(piece)
    if op.name not in BINARY:
        skip: Act = lambda _, args, kwargs: floats_of((args, kwargs), telling)[0]  # noqa: E731
        does = (
            f"it transposes by {called(op)}{where}, which"
            if op.name in TRANSPOSING
            else f"its {called(op)}{where}"
        )
        yield Hypothesis(
            code=_extra_code(op), acts={op.number: skip}, message=f"{does} is not in the reference",
            fix=f"remove {called(op)}{where}: `{op.line}`",
        )  # fmt: skip
    else:
        for number, side in enumerate(op.args[:2]):
            if telling(side) and list(side.shape) == list(first.shape):
                keep = argument(number)
                other = op.args[1 - number]
                whole = telling(other) and list(other.shape) == list(first.shape)
                code = {"add": "residual" if whole else "extra-term", "multiply": "scale-factor", "divide": "scale-factor"}.get(op.name, "extra-step")  # fmt: skip
                code = "extra-mask" if is_mask(other, piece) else code
                yield Hypothesis(
                    code=code, acts={op.number: keep},
                    message=f"its `{op.name}`{'' if telling(other) else f' by {other!r}'}{where} is not in the reference", fix=f"remove `{op.name}`{where}: `{op.line}`",
                )  # fmt: skip


def _extra_code(op: Op) -> str:
    """Return the slug of a call that should not be there."""
    kind = op.name if op.layer is None else type(op.layer).__name__.lower()
    for word, code in (("norm", "extra-norm"), ("dropout", "extra-dropout"), ("astype", "lower-precision"), ("scale", "scale-factor"),
                       ("where", "extra-mask"), ("masked_fill", "extra-mask"), ("roll", "order"), ("flip", "order")):  # fmt: skip
        if word in kind:
            return code
    if kind in TRANSPOSING:
        return "axis-order"
    return "extra-step" if op.layer is None else "extra-layer"


def _residual(op: Op, piece: Piece, first: Any, available: Sequence[tuple[str, Any]]) -> Iterator[Hypothesis]:
    """Yield the code with a tensor that was there before added to what the call returns, or multiplied with it."""
    where = place_of(op, piece)
    shape = list(first.shape)
    fitting = [(name, one) for name, one in available if list(one.shape) == shape and one is not first]
    for name, tensor in fitting[:MOST_TENSORS]:
        # A sum is no residual where it already is in this one.
        plus = then_first(tensor.add)
        yield Hypothesis(
            code="missing-residual", acts={op.number: plus},
            message=f"it does not add {name} to the result of {called(op)}{where}",
            fix=f"add {name} to the result of {called(op)}{where}",
        )  # fmt: skip
    for name, tensor in fitting[: MOST_TENSORS // 2]:
        for code, how, apply in (
            ("sign", "subtract", tensor.neg().add), ("missing-gate", "multiply by", tensor.multiply),
        ):  # fmt: skip
            act = then_first(apply)
            yield Hypothesis(
                code=code, acts={op.number: act},
                message=f"the reference behaves as if it would {how} {name} after {called(op)}{where}",
                fix=f"{how} {name} after {called(op)}{where}",
            )  # fmt: skip


def _operands(op: Op, piece: Piece, available: Sequence[tuple[str, Any]]) -> Iterator[Hypothesis]:
    """Yield the call with one of its tensors replaced by another that was there, or with two of them exchanged."""
    telling, where = is_tensor(piece), place_of(op, piece)
    if op.name not in BINARY and op.name not in ("scaled_dot_product_attention", LAYER):
        return
    places = [number for number, one in enumerate(op.args) if telling(one)]
    for i, j in ((i, j) for i in places for j in places if i < j):
        if list(op.args[i].shape) == list(op.args[j].shape) and op.name not in ("add", "multiply", "maximum", "minimum"):  # fmt: skip
            exchange = exchanged_arguments(i, j)
            scores = op.name == "matmul" and len(op.args[i].shape) >= 3
            code = "swapped-qkv" if scores or op.name == "scaled_dot_product_attention" else "swapped-inputs"
            yield Hypothesis(
                code=code, acts={op.number: exchange}, message=f"the arguments {i} and {j} of {called(op)}{where} are exchanged",
                fix=f"exchange arguments {i} and {j} of {called(op)}{where}: `{op.line}`",
            )  # fmt: skip
    for place in places[:3]:
        shape, present = list(op.args[place].shape), op.args[place]
        for name, tensor in [(name, one) for name, one in available if list(one.shape) == shape and one is not present][:MOST_TENSORS]:  # fmt: skip
            other = with_argument(place, tensor)
            code = "residual" if op.name == "add" else "wrong-input"
            yield Hypothesis(
                code=code, acts={op.number: other},
                message=f"argument {place} of {called(op)}{where} is another tensor than the reference's, which is {name}",
                fix=f"give {called(op)}{where} {name} as argument {place}: `{op.line}`",
            )  # fmt: skip


def _other_operation(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield another function of the same arguments: max for mean, a difference for a sum."""
    paddle, where = paddle_of(piece), place_of(op, piece)
    if op.name in ("add", "subtract", "multiply", "divide", "maximum"):
        for name in ("add", "subtract", "multiply", "divide", "maximum"):
            if name != op.name:
                function = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
                            "divide": lambda a, b: a / b, "maximum": paddle.maximum}[name]  # fmt: skip
                act = of_both(function)
                code = "sign" if {name, op.name} == {"add", "subtract"} else "other-operation"
                yield Hypothesis(
                    code=code, acts={op.number: act}, message=f"it does `{op.name}`{where}, the reference `{name}`",
                    fix=f"write `{name}` for `{op.name}`{where}: `{op.line}`",
                )  # fmt: skip
    if op.name in REDUCTIONS:
        for name in ("mean", "sum", "max", "min", "logsumexp"):
            if name != op.name:
                reduce = called_as(getattr(paddle, name))
                code = "reduction" if {name, op.name} == {"sum", "mean"} else "pooling"
                yield Hypothesis(
                    code=code, acts={op.number: reduce}, message=f"it takes the {op.name}{where}, the reference the {name}",
                    fix=f"write `{name}` for `{op.name}`{where}: `{op.line}`",
                )  # fmt: skip
    yield from _other_pool(op, piece)


def by_kept(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield a mean over those elements alone that are not zero: what is ignored, or masked, is."""
    where = place_of(op, piece)
    if op.name == "mean":
        yield Hypothesis(
            code="reduction", acts={op.number: called_as(_mean_of_kept)},
            message=f"it takes the mean over all elements{where}, the reference over those that are not zero: those that are ignored or masked do not count",
            fix=f"divide the sum by the number of elements that are not masked{where}: `{op.line}`",
        )  # fmt: skip


def _mean_of_kept(tensor: Any, axis: Any = None, keepdim: bool = False) -> Any:
    count = (tensor != 0).astype(tensor.dtype).sum(axis=axis, keepdim=keepdim)
    return tensor.sum(axis=axis, keepdim=keepdim) / count.clip(min=1)


def _other_pool(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    paddle, where = paddle_of(piece), place_of(op, piece)
    functional = paddle.nn.functional
    layer = op.layer
    kind = type(layer).__name__ if layer is not None else op.name
    name = _pool_name(kind) if layer is not None else kind
    if name not in POOLS:
        return
    wanted = name.replace("max", "\0").replace("avg", "max").replace("\0", "avg")
    function = getattr(functional, wanted)
    wholes = (
        ({"exclusive": True}, {"exclusive": False}) if "adaptive" not in name and "avg" in wanted else ({},)
    )
    for options in wholes:
        if layer is not None:
            size = getattr(layer, "_output_size", getattr(layer, "output_size", None))
            sizes = (size,) if "adaptive" in name else (getattr(layer, "ksize", getattr(layer, "kernel_size", None)), layer.stride, layer.padding)  # fmt: skip
            more = {} if "adaptive" in name else {"ceil_mode": layer.ceil_mode, **options}
            act = instead(partial(_pooled, function, sizes, more))
        else:
            act = called_as(
                function, most=4, without=("exclusive", "return_mask", "divisor_override"), **options
            )

        yield Hypothesis(
            code="pooling", acts={op.number: act},
            message=f"it applies `{kind}`{where}, the reference `{wanted}`", fix=f"write `{wanted}` for `{kind}`{where}",
        )  # fmt: skip


def _pooled(function: Callable[..., Any], sizes: Sequence[Any], more: Mapping[str, Any], tensor: Any) -> Any:
    return function(tensor, *sizes, **more)


def _pool_name(kind: str) -> str:
    """Return the function of a layer: ``adaptive_avg_pool2d`` of ``AdaptiveAvgPool2D``."""
    for name, start in (("AdaptiveMaxPool", "adaptive_max_pool"), ("AdaptiveAvgPool", "adaptive_avg_pool"),
                        ("MaxPool", "max_pool"), ("AvgPool", "avg_pool")):  # fmt: skip
        if kind.startswith(name):
            return start + kind[len(name) :].lower()
    return ""


def arrangements(order: Sequence[Op], ops: Sequence[Op], piece: Piece) -> Iterator[Hypothesis]:
    """Yield other orders of axes of all reshapes: a tensor in another order has the values that the reference has.

    Such a call looks as if it were right by its values.
    """
    seen: set[str] = set()
    for op in order:
        made = floats_of(op.result, is_tensor(piece))
        if op.name in ("reshape", "flatten") and made and op.place not in seen:
            seen.add(op.place)
            yield from everywhere(by_axes(op, piece, made[0]), op, ops)


def exchanged(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield this call's result exchanged with that of another of the same kind, given the same."""
    given = first_tensor(op, piece)
    for other in ops:
        if other.number <= op.number or other.name != op.name:
            continue
        same = op.name in (LAYER, "getitem", "linear", "matmul") and first_tensor(other, piece) is given
        if not same and op.name not in ("concat", "roll", "flip", "pad"):
            continue
        pair = tensors_of(op.result, is_tensor(piece)), tensors_of(other.result, is_tensor(piece))
        if [list(one.shape) for one in pair[0]] != [list(one.shape) for one in pair[1]]:
            continue
        words = f"{op.path} {other.path} {op.line} {other.line}".lower()
        code = (
            "swapped-qkv"
            if any(word in words for word in ("q", "query", "key", "attn"))
            else "swapped-inputs"
        )
        yield Hypothesis(
            code=code, acts={op.number: constant(other.result), other.number: constant(op.result)},
            message=f"the results of {called(op)} and {called(other)} stand in each other's place",
            fix=f"exchange the results of {called(op)}{place_of(op, piece)} and {called(other)}{place_of(other, piece)}",
        )  # fmt: skip


def in_helpers(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield two tensors exchanged in all that one of the user's functions does with them: its arguments stand in the wrong order."""
    calls: dict[tuple[tuple[str, str], ...], list[Op]] = {}
    for op in ops:
        for depth in range(len(op.helpers)):
            calls.setdefault(op.helpers[depth:], []).append(op)
    telling = is_tensor(piece)
    for (helper, *_), inside in calls.items():
        made = {id(one) for op in inside for one in tensors_of(op.result, telling)}
        given: dict[int, Any] = {}
        for op in inside:
            given |= {
                id(one): one for one in floats_of((op.args, dict(op.kwargs)), telling) if id(one) not in made
            }
        tensors = list(given.values())[:MOST_TENSORS]
        for one, other in combinations(tensors, 2):
            if list(one.shape) != list(other.shape):
                continue
            changes = {id(one): other, id(other): one}
            name, place = helper
            yield Hypothesis(
                code="swapped-inputs", acts={op.number: with_tensors(op.args, changes) for op in inside if _takes(op, changes, telling)},
                message=f"two arguments of `{name}`, called at {place}, are exchanged",
                fix=f"exchange the arguments of `{name}` at {place} that are tensors of shape {list(one.shape)}",
            )  # fmt: skip


def _takes(op: Op, changes: Mapping[int, Any], telling: Callable[[Any], bool]) -> bool:
    return any(id(one) in changes for one in tensors_of(op.args, telling))
