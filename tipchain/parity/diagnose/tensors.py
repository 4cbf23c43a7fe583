"""Weights and buffers as causes: the reference's are put into the port's layer, and what was there is described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.conversion.layouts import Slot
from tipchain.parity.diagnose.held import STATISTICS, Held, held_by, replaced, unsaved
from tipchain.parity.diagnose.hypotheses import Hypothesis, common_path
from tipchain.parity.diagnose.piece import OUTPUT, Piece
from tipchain.parity.diagnose.wrong_values import describe, told_by_name

Array = npt.NDArray[Any]


def by_tensors(piece: Piece, state: Mapping[str, Array], ports: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's tensors, each alone and all together.

    Args:
        piece: both layers.
        state: the reference model's whole state, float32, to find tensors of other layers in.
        ports: the port's, as Paddle keeps it.
    """
    both, missing, extra = held_by(piece)
    wrong = [one for one in both if one.differs]
    training = bool(getattr(piece.port, "training", False))
    if training:
        wrong = [one for one in wrong if one.name.rpartition(".")[2] not in STATISTICS]
    told = {one.name: describe(one, wrong, piece, (state, ports)) for one in wrong}
    for one in wrong:
        yield _given(piece, [one], told[one.name])
    if len(wrong) > 1:
        codes = {told[one.name][0] for one in wrong}
        first = told[wrong[0].name]
        names = ", ".join(one.name for one in wrong[:6])
        code = first[0] if len(codes) == 1 else _joint(codes)
        yield _given(
            piece, wrong, (code, f"several tensors are wrong ({names}); {wrong[0].name} {first[1]}", first[2])
        )
    yield from _missing(piece, missing)
    yield from _extra(piece, extra)


def by_unsaved(piece: Piece, states: tuple[Mapping[str, Array], Mapping[str, Array]]) -> Iterator[Hypothesis]:
    """Yield the port's layer with the reference's values in buffers and attributes that no checkpoint holds."""
    wrong = [one for one in unsaved(piece) if one.differs]
    for one in wrong:
        told = told_by_name(one.ours, one.theirs) or describe(one, wrong, piece, states)[:2]
        code = "wrong-buffer" if told[0] in ("wrong-weight", "wrong-bias") else told[0]
        yield Hypothesis(
            code=code, message=f"its buffer `{one.name}`, which no checkpoint holds, {told[1]}",
            fix=f"fill `{one.name}` of {piece.shown} as the reference does", within=partial(replaced, [one]),
            confirmed=True, evidence=f"with the reference's {one.name} the error is gone", place=_place(piece, [one]),
        )  # fmt: skip
    if len(wrong) > 1:
        names = ", ".join(f"`{one.name}`" for one in wrong)
        yield Hypothesis(
            code="wrong-buffer", message=f"its buffers {names}, which no checkpoint holds, are not the reference's",
            fix=f"fill {names} of {piece.shown} as the reference does", within=partial(replaced, wrong),
            confirmed=True, changes=len(wrong), place=_place(piece, wrong),
        )  # fmt: skip


def _joint(codes: set[str]) -> str:
    order = ("swapped-qkv", "swapped-layers", "gate-order", "swapped-statistics", "swapped-affine", "weight-of-another-layer")  # fmt: skip
    return next((one for one in order if one in codes), min(codes))


def _given(piece: Piece, held: Sequence[Held], told: tuple[str, str, str]) -> Hypothesis:
    code, what, fix = told
    message = f"its `{held[0].name}` {what}" if len(held) == 1 else what
    return Hypothesis(
        code=code, message=message, fix=fix.format(path=piece.paths[1] or "the model", name=held[0].name),
        within=partial(replaced, held), confirmed=True, changes=len(held), place=_place(piece, held),
        evidence=f"with the reference's {', '.join(one.name for one in held[:6])} the error is gone",
    )  # fmt: skip


def _place(piece: Piece, held: Sequence[Held]) -> str:
    """Return the path within the piece of the layer that holds some tensors."""
    known = {path for path, _ in piece.sides[1].layers(piece.port)}
    paths = [one.name.rpartition(".")[0] for one in held]
    return common_path(one if one in known else "" for one in paths)


def _along_channels(side: Any, array: Array, rank: int, axis: int) -> Any:
    shape = [1] * rank
    shape[axis] = -1
    return side.tensor(array.reshape(shape), gradient=False)


def _missing(piece: Piece, missing: Mapping[str, Array]) -> Iterator[Hypothesis]:
    """Yield the port's output with a bias, or a weight and a bias, that only the reference has."""
    side, kind = piece.sides[1], piece.calls[0].type
    vectors = {
        name: array
        for name, array in missing.items()
        if "." not in name and array.ndim == 1 and name in ("weight", "bias")
    }
    if not vectors or piece.calls[1].children:
        return
    weight, bias = vectors.get("weight"), vectors.get("bias")
    code = "missing-bias" if weight is None else "missing-affine"
    size = next(iter(vectors.values())).size

    def add(outputs: list[Any]) -> list[Any]:
        first = outputs[0]
        axes = [axis for axis in (1, first.ndim - 1) if first.shape[axis] == size]
        axis = first.ndim - 1 if kind in ("Linear", "LayerNorm") else axes[0]
        first = first if weight is None else first * _along_channels(side, weight, first.ndim, axis)
        first = first if bias is None else first + _along_channels(side, bias, first.ndim, axis)
        return [first, *outputs[1:]]

    names = " and ".join(vectors)
    argument = "bias_attr" if code == "missing-bias" else "weight_attr` and `bias_attr"
    yield Hypothesis(
        code=code, message=f"it has no {names}, the reference has", confirmed=True, edits={OUTPUT: add},
        fix=f"don't pass `{argument}=False` to `{piece.paths[1]}`, and load the reference's {names}",
        evidence=f"with the reference's {names} the error is gone",
    )  # fmt: skip


def _extra(piece: Piece, extra: Mapping[str, Slot]) -> Iterator[Hypothesis]:
    """Yield the port's layer without what only it has: biases of zero, weights of one."""
    held = [
        Held(name=name, ours=np.full(slot.shape, 1.0 if name.endswith("weight") else 0.0), theirs=np.empty(slot.shape), slot=slot)
        for name, slot in extra.items() if len(slot.shape) == 1
    ]  # fmt: skip
    if not held:
        return
    code = "extra-bias" if all("bias" in one.name for one in held) else "extra-affine"
    names = " and ".join(one.name for one in held)
    arguments = " and ".join(f"`{'bias' if 'bias' in one.name else 'weight'}_attr=False`" for one in held)
    yield Hypothesis(
        code=code, message=f"it has a {names}, the reference has none", confirmed=True,
        fix=f"pass {arguments} to `{piece.paths[1]}`", within=partial(replaced, held),
        evidence=f"without its {names} the error is gone",
    )  # fmt: skip
