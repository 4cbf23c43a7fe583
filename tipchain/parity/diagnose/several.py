"""Two steps of a layer's code as the cause, and layers that are called elsewhere or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from types import MethodType
from typing import Any

from tipchain.parity.diagnose.acts import argument, instead, then, then_first
from tipchain.parity.diagnose.functions import ACTIVATIONS, LAYER_ACTIVATIONS, called, place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis, name_number
from tipchain.parity.diagnose.piece import INPUT, OUTPUT, Piece
from tipchain.parity.diagnose.program import LAYER, Act, Op, floats_of
from tipchain.parity.locate.differences import relative
from tipchain.parity.rounding import SAME_DOUBLE

MOST_MOVES = 60
"""Changes that are tried together with others: a limit on the search."""
MOMENTS = frozenset({"mean", "var", "std", "norm", "sum"})
EVERYWHERE = frozenset({"head-order", "concat-order", "flatten-order", "axis", "axis-order", "scale-factor", "other-activation", "gelu-form",
                        "negative-slope", "epsilon", "missing-activation", "interpolation-mode", "align-corners", "align-mode",
                        "padding-mode", "pooling", "reduction", "softmax-axis", "causal-mask", "mask-inverted", "extra-activation",
                        "extra-step", "sign", "other-operation", "shift", "split-order", "slope", "alpha", "norm-p"})  # fmt: skip
"""Causes that a helper's code has wherever it is called."""


def by_layer(op: Op, piece: Piece, ops: Sequence[Op], *, called_too: bool) -> Iterator[Hypothesis]:
    """Yield a call followed by a layer of the piece that is not called; or, if ``called_too``, by a norm that is."""
    is_tensor = piece.sides[1].is_tensor
    results = floats_of(op.result, is_tensor)
    if not results:
        return
    used = {one.path for one in ops if one.name == LAYER}
    for path, layer in piece.sides[1].layers(piece.port):
        idle = not any(one == path or one.startswith(f"{path}.") for one in used)
        norm = "Norm" in type(layer).__name__
        nested = not idle or not norm
        if (
            not path
            or idle is called_too
            or not (idle or norm)
            or (nested and any(True for _ in layer.children()) and not idle)
        ):
            continue
        if idle and any(path.startswith(f"{one}.") for one in used):
            continue
        if idle and op.layer is not None and type(op.layer) is type(layer):
            yield Hypothesis(
                code="wrong-layer", acts={op.number: instead(layer)}, message=f"it calls {called(op)}{place_of(op, piece)} in the place of `{path}`, which is never called",
                fix=f"call `{path}` for {called(op)}{place_of(op, piece)}: `{op.line}`",
            )  # fmt: skip
        act = then(layer)
        code = "norm-order" if norm and not idle else "missing-layer"
        yield Hypothesis(
            code=code, acts={op.number: act}, message=f"it does not apply `{path}` after {called(op)}{place_of(op, piece)}",
            fix=f"apply `{path}` after {called(op)}{place_of(op, piece)}: `{op.line}`",
        )  # fmt: skip


def at_input(piece: Piece) -> Iterator[Hypothesis]:
    """Yield the piece with one of its layers applied to its input, and with its inputs exchanged or turned."""
    is_float = [one.dtype.kind == "f" for one in piece.inputs[1]]
    for path, layer in piece.sides[1].layers(piece.port):
        if path and "Norm" in type(layer).__name__ and is_float and is_float[0]:
            yield Hypothesis(
                code="norm-order", edits={INPUT: lambda given, layer=layer: [layer(given[0]), *given[1:]]},  # type: ignore[misc]
                message=f"it does not apply `{path}` to its input", fix=f"apply `{path}` to the input of {piece.shown}",
            )  # fmt: skip
    shapes = [one.shape for one in piece.inputs[1]]
    for i in range(len(shapes)):
        for j in range(i + 1, len(shapes)):
            if shapes[i] == shapes[j]:
                yield Hypothesis(
                    code="swapped-inputs", edits={INPUT: lambda given, i=i, j=j: _exchanged(given, i, j)},  # type: ignore[misc]
                    message=f"its inputs {i} and {j} stand in each other's place", fix=f"exchange inputs {i} and {j} of {piece.shown}",
                )  # fmt: skip
    if shapes and is_float[0]:
        for axis, size in enumerate(shapes[0]):
            code = "channel-order" if size == 3 and axis in (1, len(shapes[0]) - 1) else "flipped-input"
            yield Hypothesis(
                code=code, edits={INPUT: lambda given, axis=axis: [given[0].flip([axis]), *given[1:]]},  # type: ignore[misc]
                message=f"axis {axis} of its input runs the other way", fix=f"flip axis {axis} of the input of {piece.shown}",
            )  # fmt: skip


def _exchanged(given: list[Any], i: int, j: int) -> list[Any]:
    changed = list(given)
    changed[i], changed[j] = changed[j], changed[i]
    return changed


def output_order(piece: Piece, outputs: Sequence[Any]) -> Iterator[Hypothesis]:
    """Yield the piece with its outputs in the order in which the reference has them."""
    truths = piece.truth.outputs
    if len(outputs) < 2 or len(outputs) != len(truths):
        return
    order = [
        next((at for at, one in enumerate(outputs) if one.shape == truth.shape and relative(truth, one) <= SAME_DOUBLE), -1)
        for truth in truths
    ]  # fmt: skip
    if sorted(order) == list(range(len(order))) != order:
        ends = piece.ends or tuple((number, number) for number in order)
        shown = [port for _, port in sorted((ends[at][0], ends[each][1]) for at, each in enumerate(order))]
        told = "reversed" if shown == sorted(shown, reverse=True) else "in another order"
        yield Hypothesis(
            code="output-order", edits={OUTPUT: lambda given: [given[at] for at in order]}, confirmed=True,
            message=f"its outputs are {told}: the reference's are its numbers {', '.join(map(str, shown))}",
            fix=f"return the outputs of {piece.shown} in the order {shown}",
        )  # fmt: skip


def at_output(piece: Piece, outputs: Sequence[Any]) -> Iterator[Hypothesis]:
    """Yield the piece with one of its outputs times the number that fits best, or plus it."""
    truths = piece.truth.outputs
    for number, (truth, got) in enumerate(zip(truths, outputs, strict=False)):
        if truth.shape != got.shape or truth.dtype.kind != "f" or not (got * got).sum():
            continue
        factor, shift = float((truth * got).sum() / (got * got).sum()), float((truth - got).mean())
        if not isfinite(factor + shift):
            continue
        if factor and abs(factor - 1) > SAME_DOUBLE:
            told = name_number(factor, truth.shape)
            yield Hypothesis(
                code="sign" if abs(factor + 1) < SAME_DOUBLE else "scale-factor",
                edits={OUTPUT: lambda given, number=number, factor=factor: [one * factor if at == number else one for at, one in enumerate(given)]},  # type: ignore[misc]
                message=f"the reference's result is {told} times its", fix=f"multiply the result of {piece.shown} by {told}",
                evidence=f"factor by least squares: {factor:.9g}",
            )  # fmt: skip
        yield Hypothesis(
            code="shift", edits={OUTPUT: lambda given, number=number, shift=shift: [one + shift if at == number else one for at, one in enumerate(given)]},  # type: ignore[misc]
            message=f"the reference's result is its plus {shift:.6g}", fix=f"add {shift:.6g} to the result of {piece.shown}",
        )  # fmt: skip


def by_own_forward(piece: Piece) -> Iterator[Hypothesis]:
    """Yield a layer whose class is derived from Paddle's with the forward of that class."""
    layer = piece.port
    base: Any = next(
        (
            one
            for one in type(layer).__mro__
            if one.__module__.startswith("paddle.nn.") and one.__name__ != "Layer"
        ),
        None,
    )
    if base is None or type(layer).forward is base.forward:
        return
    yield Hypothesis(
        code="extra-step", message=f"the forward of its class `{type(layer).__name__}` does something else than that of `{base.__name__}`",
        fix=f"use `paddle.nn.{base.__name__}` for {piece.shown}", within=partial(_with_forward, layer, base),
    )  # fmt: skip


@contextmanager
def _with_forward(layer: Any, base: Any) -> Iterator[None]:
    held = vars(layer).get("forward")
    object.__setattr__(layer, "forward", MethodType(base.forward, layer))
    try:
        yield
    finally:
        object.__delattr__(layer, "forward") if held is None else object.__setattr__(layer, "forward", held)


def everywhere(hypotheses: Iterator[Hypothesis], op: Op, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield each hypothesis about a call, and the same about all calls of that function that look alike.

    Those are the calls from the same line (a helper that is called for query, key and value), and reductions over
    the same axes (a mean and a variance).
    """
    alike = [one.number for one in ops if one is not op and _alike(one, op)]
    for one in hypotheses:
        yield one
        if alike and list(one.acts) == [op.number] and one.code in EVERYWHERE:
            acts = dict.fromkeys((op.number, *alike), one.acts[op.number])
            heads = one.code == "axis-order" and len(acts) >= 3
            code = "norm-axes" if one.code == "axis" else "head-order" if heads else one.code
            yield replace(one, acts=acts, code=code, message=f"{one.message}, in {len(acts)} calls")


def _alike(one: Op, other: Op) -> bool:
    if LAYER in (one.name, other.name):
        return one.name == other.name and one.layer is other.layer
    if one.name == other.name and one.place == other.place and bool(one.place):
        return True
    if one.name == other.name and one.kwargs and _settings(one) == _settings(other):
        return True
    axes = [op.kwargs.get("axis", op.args[1] if len(op.args) > 1 else None) for op in (one, other)]
    return (
        one.name in MOMENTS
        and other.name in MOMENTS
        and axes[0] is not None
        and type(axes[0]) is type(axes[1])
        and axes[0] == axes[1]
    )


def _settings(op: Op) -> list[tuple[str, str]]:
    """Return what a call is given by name, as text, except tensors."""
    return sorted((name, repr(value)) for name, value in op.kwargs.items() if not hasattr(value, "shape"))


def norms(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield all norms of a block behind its sums, or all in front of its branches."""
    is_tensor = piece.sides[1].is_tensor
    found = [
        one
        for one in ops
        if one.name == LAYER and "Norm" in type(one.layer).__name__ and _keeps_shape(one, is_tensor)
    ]
    sums = [one for one in ops if one.name == "add" and len(floats_of(one.args, is_tensor)) == 2]
    behind: dict[int, Act] = {}
    for norm in found:
        kept = next(
            (
                one
                for one in sums
                if one.number > norm.number and any(norm.args[0] is each for each in one.args)
            ),
            None,
        )
        if kept is not None and _fits(norm, kept, is_tensor):
            behind.update(_moved(norm, kept))
    if behind:
        yield Hypothesis(
            code="norm-order", acts=behind, message="it applies its norms in front of its branches, the reference behind the sums",
            fix=f"apply each norm to the sum in the forward of {piece.shown}: `norm(x + branch(x))`",
        )  # fmt: skip
    front: dict[int, Act] = {}
    for norm in found:
        total = next((one for one in sums if one.result is norm.args[0]), None)
        branch = None if total is None else _branch(total, ops, is_tensor)
        if branch is not None:
            front[norm.number] = argument(0)
            front.update(dict.fromkeys(branch, _normed(norm)))
    if front:
        yield Hypothesis(
            code="norm-order", acts=front, message="it applies its norms behind the sums, the reference in front of its branches",
            fix=f"apply each norm in front of its branch in the forward of {piece.shown}: `x + branch(norm(x))`",
        )  # fmt: skip


def _branch(total: Op, ops: Sequence[Op], is_tensor: Any) -> list[int] | None:
    """Return the layers that are given the tensor that a sum adds to what they make."""
    kept = {id(one) for one in floats_of(total.args, is_tensor)}
    found = [
        one.number for one in ops
        if one.name == LAYER and one.number < total.number and "Norm" not in type(one.layer).__name__
        and any(id(tensor) in kept for tensor in floats_of(one.args[:1], is_tensor))
    ]  # fmt: skip
    last = [number for number in found if number + 1 != total.number]
    return last or None


def _normed(norm: Op) -> Act:
    return lambda original, args, kwargs: original(norm.layer(args[0]), *args[1:], **kwargs)


def moves(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield one step done later or earlier: two neighbours exchanged, a norm moved behind or in front of others."""
    is_tensor = piece.sides[1].is_tensor
    unary = [one for one in ops if _keeps_shape(one, is_tensor)]
    made = 0
    for op in unary:
        norm = op.name == LAYER and "Norm" in type(op.layer).__name__
        for other in ops:
            near = abs(other.number - op.number) == 1
            if other is op or not (near or norm) or made >= MOST_MOVES or not _fits(op, other, is_tensor):
                continue
            made += 1
            of_norms = norm or (other.name == LAYER and "Norm" in type(other.layer).__name__)
            yield Hypothesis(
                code=_order_code(op, other, norms=of_norms), acts=_moved(op, other),
                message=f"it applies {called(op)}{place_of(op, piece)}, the reference after {called(other)}{place_of(other, piece)}",
                fix=f"apply {called(op)} after {called(other)}{place_of(other, piece)}: `{other.line}`",
            )  # fmt: skip


def _order_code(op: Op, other: Op, *, norms: bool) -> str:
    kinds = [one.name if one.layer is None else type(one.layer).__name__ for one in (op, other)]
    active = any(kind in ACTIVATIONS or kind in LAYER_ACTIVATIONS for kind in kinds)
    if active and norms:
        return "activation-order"
    if active and "add" in kinds:
        return "residual-order"
    return "norm-order" if norms else "order"


def _moved(op: Op, other: Op) -> Mapping[int, Act]:
    """Return what leaves out one call, and does it after another instead."""

    def later(original: Any, args: Any, kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        return op.layer(result) if op.layer is not None else _again(op, result)

    return {op.number: argument(0), other.number: later}


def _again(op: Op, tensor: Any) -> Any:
    function = getattr(tensor, op.name, None)
    if function is None:
        import paddle

        function = getattr(paddle.nn.functional, op.name)
        return function(tensor, *op.args[1:], **op.kwargs)
    return function(*op.args[1:], **op.kwargs)


def _keeps_shape(op: Op, is_tensor: Any) -> bool:
    given = floats_of((op.args, dict(op.kwargs)), is_tensor)
    made = floats_of(op.result, is_tensor)
    return (
        len(given) == 1 and len(made) == 1 and list(given[0].shape) == list(made[0].shape) and bool(op.args)
    )


def _fits(op: Op, other: Op, is_tensor: Any) -> bool:
    made = floats_of(other.result, is_tensor)
    return len(made) == 1 and list(made[0].shape) == list(op.args[0].shape)


def _detached(tensor: Any) -> Any:
    return tensor.detach()


def _listed(numbers: Collection[int], ops: Sequence[Op], piece: Piece) -> str:
    """Return where some calls stand, each line once."""
    told = (f"{called(op)}{place_of(op, piece)}" for op in ops if op.number in numbers)
    return ", ".join(list(dict.fromkeys(told))[:3])


def gradients(piece: Piece, ops: Sequence[Op]) -> Iterator[Hypothesis]:
    """Yield backward without what cuts it."""
    side: Any = piece.sides[1]
    cut: dict[int, Act] = {}
    for op in ops:
        given = [
            one for one in floats_of((op.args, dict(op.kwargs)), side.is_tensor) if not one.stop_gradient
        ]
        made = floats_of(op.result, side.is_tensor)
        if given and made and all(one.stop_gradient for one in made):

            def act(original: Any, args: Any, kwargs: Any, name: str = op.name) -> Any:
                if name == "detach":
                    return args[0]
                with side.recording(gradient=True):
                    return original(*args, **kwargs)

            cut[op.number] = act
            yield Hypothesis(
                code="stop-gradient", acts={op.number: act}, message=f"{called(op)}{place_of(op, piece)} stops the gradient",
                fix=f"don't cut the gradient at {op.place}: `{op.line}`",
            )  # fmt: skip
    if {"detach", "stop_gradient", "set_grad_enabled", "no_grad"} & set(piece.truth.names):
        for op in ops:
            if any(not one.stop_gradient for one in floats_of(op.result, side.is_tensor)):
                yield Hypothesis(
                    code="missing-detach", acts={op.number: then_first(_detached)}, message=f"the reference stops the gradient of what {called(op)}{place_of(op, piece)} returns",
                    fix=f"detach the result of {called(op)}{place_of(op, piece)}: `{op.line}`",
                )  # fmt: skip
    if len(cut) > 1:
        yield Hypothesis(
            code="stop-gradient", acts=cut, message=f"{len(cut)} of its calls stop the gradient: {_listed(cut, ops, piece)}",
            fix=f"don't cut the gradient in the forward of {piece.shown}",
        )  # fmt: skip
