"""Tensors that both layers of a piece hold, and how the port's are replaced for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.conversion.layouts import Slot, assemble, divide
from tipchain.conversion.paddle_side import torch_view
from tipchain.errors import WeightsError
from tipchain.parity.diagnose.piece import Piece

Array = npt.NDArray[Any]


STATISTICS = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A tensor of both layers.

    Attributes:
        name: torch's name within the layer.
        ours: the reference's values.
        theirs: the port's, in torch's layout.
        slot: where the port keeps it.
    """

    name: str
    ours: Array
    theirs: Array
    slot: Slot

    @property
    def differs(self) -> bool:
        """Whether a value differs by more than a rounding to float32."""
        if self.ours.shape != self.theirs.shape:
            return False
        scale = float(np.abs(self.ours).max(initial=0.0))
        return not np.allclose(self.ours, self.theirs, rtol=0, atol=1e-7 * scale, equal_nan=True)


def held_by(piece: Piece) -> tuple[list[Held], dict[str, Array], dict[str, Slot]]:
    """Return the tensors that both layers have, those that only the reference has, those that only the port has."""
    try:
        slots = {slot.name: slot for slot in torch_view(piece.port)}
    except WeightsError:
        return [], {}, {}
    state = {
        name: tensor.detach().double().numpy()
        for name, tensor in piece.reference.state_dict().items()
        if tensor.is_floating_point()
    }
    both = [
        Held(
            name=name, ours=array, slot=slots[name],
            theirs=assemble([np.asarray(part.tensor.numpy(), np.float64) for part in slots[name].parts], slots[name]),
        )
        for name, array in state.items() if name in slots
    ]  # fmt: skip
    names = {one.name for one in both}
    return (
        both,
        {name: one for name, one in state.items() if name not in names},
        {name: one for name, one in slots.items() if name not in names},
    )


@contextmanager
def replaced(held: Sequence[Held], values: Mapping[str, Array] | None = None) -> Iterator[None]:
    """Let the port's layer have the reference's tensors, or other values, for a while."""
    before = [[part.tensor.numpy() for part in one.slot.parts] for one in held]
    try:
        for one in held:
            _set(one.slot, divide(one.ours if values is None else values[one.name], one.slot))
        yield
    finally:
        for one, arrays in zip(held, before, strict=True):
            _set(one.slot, arrays)


def _set(slot: Slot, arrays: Sequence[Array]) -> None:
    for part, array in zip(slot.parts, arrays, strict=True):
        part.tensor.set_value(np.ascontiguousarray(array).astype(part.tensor.numpy().dtype))
