"""Tensors that both layers of a piece hold, and how the port's are replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.conversion.layouts import Slot, divide, stack
from tipchain.conversion.paddle_side import torch_view
from tipchain.errors import WeightsError
from tipchain.paddle_weights import view_of
from tipchain.parity.diagnose.piece import Piece
from tipchain.parity.locate.differences import equal
from tipchain.parity.rounding import CONSTANT

Array = npt.NDArray[Any]


STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A tensor of both layers.

    Attributes:
        name: torch's name within the layer.
        ours: the reference's values.
        theirs: the port's, in torch's layout.
        slot: where the port keeps it; None of what no checkpoint holds.
        tensor: that tensor itself, where there is no slot.
    """

    name: str
    ours: Array
    theirs: Array
    slot: Slot | None = None
    tensor: Any = None

    @property
    def differs(self) -> bool:
        """Whether a value differs by more than a rounding to float32."""
        if self.ours.shape != self.theirs.shape or equal(self.ours, self.theirs):
            return False
        scale = float(np.abs(self.ours).max(initial=0.0))
        return not np.allclose(self.ours, self.theirs, rtol=0, atol=CONSTANT * scale, equal_nan=True)


def held_by(piece: Piece) -> tuple[list[Held], dict[str, Array], dict[str, Slot]]:
    """Return the tensors that both layers have, those that only the reference has, those that only the port has."""
    slots = {slot.name: slot for slot in _slots(piece)}
    if not slots:
        return [], {}, {}
    state = {
        name: piece.sides[0].view(tensor)
        for name, tensor in piece.reference.state_dict().items()
        if tensor.is_floating_point()
    }
    both = [_held(slots[name], array) for name, array in state.items() if name in slots]
    names = {one.name for one in both}
    return (
        both,
        {name: one.astype(np.float64) for name, one in state.items() if name not in names},
        {name: one for name, one in slots.items() if name not in names},
    )


def _held(slot: Slot, ours: Array) -> Held:
    """Return a tensor of both layers; values that differ in float64, those that do not as they are, not copied."""
    pieces = [view_of(part.tensor) for part in slot.parts]
    theirs = stack(
        [one.T if part.transpose else one for part, one in zip(slot.parts, pieces, strict=True)], slot
    )
    if not equal(ours, theirs):
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    return Held(name=slot.name, ours=ours, theirs=theirs, slot=slot)


@contextmanager
def replaced(held: Sequence[Held], values: Mapping[str, Array] | None = None) -> Iterator[None]:
    """Let the port's layer have the reference's tensors, or other values, for a while."""
    before = [[tensor.numpy() for tensor in _tensors(one)] for one in held]
    try:
        for one in held:
            wanted = one.ours if values is None else values[one.name]
            _set(one, [wanted] if one.slot is None else divide(wanted, one.slot))
        yield
    finally:
        for one, arrays in zip(held, before, strict=True):
            _set(one, arrays)


def _tensors(held: Held) -> list[Any]:
    return [held.tensor] if held.slot is None else [part.tensor for part in held.slot.parts]


def _set(held: Held, arrays: Sequence[Array]) -> None:
    for tensor, array in zip(_tensors(held), arrays, strict=True):
        tensor.set_value(np.ascontiguousarray(array).astype(tensor.numpy().dtype))


def unsaved(piece: Piece) -> list[Held]:
    """Return the tensors that the port's code keeps but no checkpoint holds, each with the reference's of its name and size.

    Buffers that are not saved and plain attributes; where no name fits, the one tensor of its size.
    """
    saved = {id(part.tensor) for slot in _slots(piece) for part in slot.parts}
    ours = [
        (f"{path}.{name}".lstrip("."), one.detach().double().numpy())
        for path, module in piece.sides[0].layers(piece.reference)
        for name, one in (*module.named_buffers(recurse=False), *vars(module).items())
        if piece.sides[0].is_tensor(one)
    ]
    found = []
    for path, layer in piece.sides[1].layers(piece.port):
        own = {**layer._buffers, **vars(layer)}  # noqa: SLF001
        for name, one in own.items():
            if not piece.sides[1].is_tensor(one) or id(one) in saved or path in piece.judged:
                continue
            theirs = np.asarray(piece.sides[1].array(one), np.float64)
            full = f"{path}.{name}".lstrip(".")
            sized = [(known, array) for known, array in ours if array.shape == theirs.shape]
            named = [pair for pair in sized if pair[0] == full] or [
                pair for pair in sized if pair[0].rpartition(".")[2] == name
            ]
            fitting = named or (sized if len(sized) == 1 else [])
            if fitting:
                found.append(Held(name=full, ours=fitting[0][1], theirs=theirs, tensor=one))
    return found


def _slots(piece: Piece) -> list[Slot]:
    try:
        return list(torch_view(piece.port))
    except WeightsError:
        return []
