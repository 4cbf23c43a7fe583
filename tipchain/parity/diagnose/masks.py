"""Masks as the cause: missing, hiding the opposite, or too weak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tipchain.parity.diagnose.acts import on_input, with_argument
from tipchain.parity.diagnose.arrangements import MOST_TENSORS
from tipchain.parity.diagnose.asking import is_mask, is_tensor, paddle_of
from tipchain.parity.diagnose.focus import available_before
from tipchain.parity.diagnose.functions import place_of
from tipchain.parity.diagnose.hypotheses import Hypothesis
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.diagnose.program import Op

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


def _later_hidden(op: Op, piece: Piece) -> Iterator[Hypothesis]:
    """Yield fused attention whose mask hides what comes later, too."""
    paddle, where, mask = paddle_of(piece), place_of(op, piece), _mask_of(op)
    if not is_tensor(piece)(mask):
        return
    sizes = op.args[0].shape[1], op.args[1].shape[1]  # of [batch, length, heads, channels]
    if sizes[0] != sizes[1]:
        return
    seen = paddle.tril(paddle.ones(sizes, dtype="int32")).astype("bool")
    both = paddle.logical_and(seen, mask) if "bool" in str(mask.dtype) else _hidden(paddle, seen, mask + paddle.zeros(sizes, dtype=mask.dtype))  # fmt: skip
    yield Hypothesis(
        code="causal-mask", acts={op.number: with_argument(MASK, both, "attn_mask")},
        message=f"the mask of `{op.name}`{where} does not hide what comes later, the reference's does",
        fix=f"hide what comes later in the mask of `{op.name}`{where}, too: `{op.line}`",
    )  # fmt: skip


def _mask_of(op: Op) -> Any:
    """Return what fused attention is given as its mask."""
    return op.kwargs.get("attn_mask", op.args[MASK] if len(op.args) > MASK else None)


def _hidden(paddle: Any, seen: Any, scores: Any) -> Any:
    hidden = paddle.full(scores.shape, HIDDEN, dtype=scores.dtype)
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
        code="mask-inverted", acts={op.number: with_argument(place, paddle_of(piece).logical_not(op.args[place]))},
        message=f"the mask of `{op.name}`{where} hides what the reference shows, and shows what it hides",
        fix=f"pass the opposite of the mask to `{op.name}`{where}: `{op.line}`",
    )  # fmt: skip


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
            code="mask-value", acts={op.number: with_argument(place, hard, "" if op.name == "add" else "attn_mask")},
            message=f"the mask that it adds{where} is {least:g} where it should hide altogether",
            fix=f"add a mask of -inf, or -1e9, for {least:g}{where}: `{op.line}`",
        )  # fmt: skip
