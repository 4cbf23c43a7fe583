"""A layer's own tensors, and what it is given, as the cause: a term, a factor or an argument that its code leaves out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tipchain.parity.diagnose.acts import argument, on_input, then, then_first
from tipchain.parity.diagnose.asking import is_mask, is_tensor, paddle_of
from tipchain.parity.diagnose.functions import called, place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import LAYER, Act, Op, floats_of, tensors_of

FEW, FEWER = 8, 3
"""Tensors of a layer's own that are tried at most: those that nothing uses, and others."""
UNARY = {
    "log": "log", "log1p": "log1p", "log2": "log2", "log10": "log10", "exp": "exp", "expm1": "expm1", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "abs": "abs", "absolute": "abs", "square": "square", "reciprocal": "reciprocal", "sin": "sin",
    "cos": "cos", "tan": "tan", "erf": "erf", "sign": "sign", "floor": "floor", "ceil": "ceil", "round": "round",
}  # fmt: skip
"""Functions of single numbers: Paddle's name by torch's."""
WAYS = (("multiply", "multiplies by"), ("add", "adds"), ("subtract", "subtracts"))


def own_tensors(piece: Piece) -> list[tuple[str, Any]]:
    """Return the parameters and buffers of numbers that the piece's own code holds, by name."""
    found: list[tuple[str, Any]] = []
    for path, layer in piece.sides[1].layers(piece.port):
        if path not in piece.atomic:
            own = {"include_sublayers": False}
            held = [*layer.named_parameters(**own), *layer.named_buffers(**own)]
            start = f"{path}." if path else ""
            found += [(f"{start}{name}", one) for name, one in held if "bool" not in str(one.dtype)]
    return found


def by_terms(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield a call with a tensor of the layer's own added to its result, or multiplied with it: idle tensors first."""
    made = floats_of(op.result, is_tensor(piece))
    if not made:
        return
    used = {
        id(one) for other in ops for one in tensors_of((other.args, dict(other.kwargs)), is_tensor(piece))
    }
    held = own_tensors(piece)
    idle = [(name, one) for name, one in held if id(one) not in used][:FEW]
    busy = [(name, one) for name, one in held if id(one) in used][:FEWER]
    for name, tensor in (*idle, *busy):
        counted = "float" not in str(tensor.dtype)
        if not counted:
            yield from _applied([op], piece, (name, tensor), list(made[0].shape), behind=True)
        given = op.args[0] if op.name == LAYER and op.args and is_tensor(piece)(op.args[0]) else None
        if given is not None and ("float" not in str(given.dtype)) == counted:
            alike = [one for one in ops if one.name == LAYER and one.args and one.args[0] is given]
            yield from _applied(alike, piece, (name, tensor), list(given.shape), behind=False)


def _applied(
    found: Sequence[Op], piece: Piece, held: tuple[str, Any], shape: Sequence[int], *, behind: bool
) -> Iterator[Hypothesis]:
    """Yield a tensor applied to what a call returns, or to what calls are given."""
    (name, tensor), op = held, found[0]
    place = f"{'after' if behind else 'in front of'} {called(op)}{place_of(op, piece)}"
    for shaped in fitted(tensor, shape):
        for way, told in WAYS:
            apply = partial(_done, way, shaped)
            yield Hypothesis(
                code="missing-factor" if way == "multiply" else "missing-term",
                acts={one.number: then_first(apply) if behind else on_input(apply) for one in found},
                message=f"its `{name}` is missing there: the reference {told} it {place}", fix=f"{way} `{name}` {place}: `{op.line}`",
            )  # fmt: skip


def _done(way: str, tensor: Any, value: Any) -> Any:
    return getattr(value, way)(tensor)


def fitted(tensor: Any, shape: Sequence[int]) -> Iterator[Any]:
    """Yield a tensor as it can be broadcast to a shape: as it is, and a vector along the channels."""
    sizes = list(tensor.shape)
    if len(sizes) <= len(shape) and all(
        a in (1, b) for a, b in zip(reversed(sizes), reversed(shape), strict=False)
    ):
        yield tensor
    if len(sizes) == 1 and len(shape) > 2 and sizes[0] == shape[1]:
        yield tensor.reshape([1, sizes[0], *[1] * (len(shape) - 2)])


def placed_otherwise(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield a sum with a slice of the layer's own tensor left out, and the whole tensor added to what is made later."""
    own = {id(one): (name, one) for name, one in own_tensors(piece)}
    telling = is_tensor(piece)
    slices = {
        id(op.result): own[id(op.args[0])]
        for op in ops
        if op.name == "getitem" and op.args and id(op.args[0]) in own and telling(op.result)
    }
    for op in ops:
        places = [number for number, one in enumerate(op.args[:2]) if id(one) in slices]
        if op.name != "add" or len(places) != 1:
            continue
        name, tensor = slices[id(op.args[places[0]])]
        for later in [one for one in ops if op.number < one.number <= op.number + 4]:
            made = floats_of(later.result, telling)
            for shaped in fitted(tensor, list(made[0].shape)) if made else ():
                yield Hypothesis(
                    code="missing-term",
                    acts={op.number: argument(1 - places[0]), later.number: then_first(partial(_done, "add", shaped))},
                    message=f"it adds a slice of its `{name}`{place_of(op, piece)}, the reference the whole after {called(later)}{place_of(later, piece)}",
                    fix=f"add `{name}` to the result of {called(later)}{place_of(later, piece)} instead: `{op.line}`",
                )  # fmt: skip


def rolls(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield the code without rolls that the reference lacks, rolls by the opposite, and rolls undone behind later calls."""
    found = [op for op in ops if op.name == "roll"]
    if len(found) > piece.truth.names.count("roll"):
        for several in [[op] for op in found] + [found] * (len(found) > 1):
            op = several[0]
            yield Hypothesis(
                code="extra-roll", acts={one.number: argument(0) for one in several},
                message=f"it rolls{place_of(op, piece)}, the reference does not", fix=f"leave out the roll{place_of(op, piece)}: `{op.line}`",
            )  # fmt: skip
    for op in found:
        shifts = op.kwargs.get("shifts", op.args[1] if len(op.args) > 1 else None)
        axis = op.kwargs.get("axis", op.args[2] if len(op.args) > 2 else None)
        if not isinstance(shifts, int | list | tuple):
            continue
        back = -shifts if isinstance(shifts, int) else [-one for one in shifts]
        undo = partial(_rolled, back, axis)
        act: Act = lambda _original, args, _kwargs, undo=undo: undo(args[0])  # type: ignore[misc]  # noqa: E731
        yield Hypothesis(
            code="roll-direction", acts={op.number: act}, message=f"`roll`{place_of(op, piece)} shifts by {shifts}, the reference by {back}",
            fix=f"roll by {back}{place_of(op, piece)}: `{op.line}`",
        )  # fmt: skip
        for later in [one for one in ops if one.number > op.number]:
            made = floats_of(later.result, is_tensor(piece))
            if len(made) == 1 and len(made[0].shape) == len(op.result.shape) and later not in found:
                yield Hypothesis(
                    code="missing-roll", acts={later.number: then(undo)},
                    message=f"what it rolls by {shifts}{place_of(op, piece)} is not rolled back after {called(later)}{place_of(later, piece)}",
                    fix=f"roll by {back} after {called(later)}{place_of(later, piece)}: `{later.line}`",
                )  # fmt: skip


def _rolled(shifts: Any, axis: Any, tensor: Any) -> Any:
    return tensor.roll(shifts, axis)


def missing_arguments(piece: Piece) -> Iterator[Hypothesis]:
    """Yield the piece given a tensor that the reference is given and it is not, by the name of a free argument."""
    linked = {ours for ours, _ in piece.links}
    extra = [number for number in range(len(piece.inputs[0])) if number not in linked]
    try:
        names = list(inspect.signature(piece.port.forward).parameters)
    except (TypeError, ValueError):
        return
    positional, keywords = piece.calls[1].arguments
    free = [name for name in names[len(positional) :] if keywords.get(name) is None]
    free += [name for name, one in zip(names, positional, strict=False) if one is None]
    for number in extra:
        told = piece.calls[0].input_names[number]
        tensor = piece.sides[1].tensor(piece.inputs[0][number], gradient=False)
        for name in free:
            code = "missing-mask" if is_mask(tensor, piece) or "mask" in f"{name}{told}" else "missing-input"
            yield Hypothesis(
                code=code, within=partial(_given, piece.port, names, name, tensor),
                message=f"it is not given `{name}`, which the reference is given: a {'mask' if code == 'missing-mask' else 'tensor'} of shape {list(tensor.shape)}",
                fix=f"pass `{name}` to {piece.shown} where it is called",
            )  # fmt: skip


@contextmanager
def _given(layer: Any, names: Sequence[str], name: str, tensor: Any) -> Iterator[None]:
    """Let a layer be called with one more argument for a while."""
    original = layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        place = names.index(name)
        if place < len(args):
            return original(*args[:place], tensor, *args[place + 1 :], **kwargs)
        return original(*args, **{**kwargs, name: tensor})

    held = vars(layer).get("forward")
    object.__setattr__(layer, "forward", forward)
    try:
        yield
    finally:
        object.__delattr__(layer, "forward") if held is None else object.__setattr__(layer, "forward", held)


def by_named_functions(op: Op, piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield a call followed by, or a layer given the result of, a function of numbers that only the reference calls."""
    paddle = paddle_of(piece)
    here = {one.name for one in ops}
    made = floats_of(op.result, is_tensor(piece))
    for name in dict.fromkeys(one for one in piece.truth.names if one in UNARY and UNARY[one] not in here):
        if not made:
            return
        function, told = getattr(paddle, UNARY[name]), f"`paddle.{UNARY[name]}`"
        places = [("after", then_first(function))]
        if (
            op.name == LAYER
            and op.args
            and any(op.args[0] is one for one in floats_of(op.args, is_tensor(piece)))
        ):
            places.append(("in front of", on_input(function)))
        for place, act in places:
            yield Hypothesis(
                code="missing-function", acts={op.number: act}, confirmed=True,
                message=f"it lacks {told} {place} {called(op)}{place_of(op, piece)}",
                fix=f"apply {told} {place} {called(op)}{place_of(op, piece)}: `{op.line}`",
            )  # fmt: skip
