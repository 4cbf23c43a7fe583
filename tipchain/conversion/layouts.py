"""A model's tensors as torch divides, names and lays them out, and where a Paddle model keeps each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TensorKind = Literal["parameter", "buffer"]
Shape = tuple[int, ...]
UNSUPPORTED = "not supported: "
"""How the kind of a Paddle layer begins whose type decides about its tensors in a way not known here."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A tensor of a Paddle model.

    Attributes:
        names: its names in the state dict; a tensor that is shared has several.
        tensor: the live tensor; its gradient is ``tensor.grad``.
        transpose: whether torch keeps it the other way round.
    """

    names: tuple[str, ...]
    tensor: Any
    transpose: bool = False

    @property
    def shape(self) -> Shape:
        """Its shape in torch's layout."""
        shape = tuple(self.tensor.shape)
        return shape[::-1] if self.transpose else shape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Slot:
    """One tensor in torch's terms.

    Attributes:
        name: torch's name; of a Paddle model, under the names that `paddle_layers` was given.
        leaf: torch's name of it within its layer.
        shape: torch's shape.
        dtype: such as ``"float32"``.
        kind: ``"parameter"`` or ``"buffer"``.
        parts: where a Paddle model keeps it, one below the other; empty for a torch model.
        fixed: a constant zero that torch does not have.
        again: a tensor of a Paddle model that an earlier slot has under another name.
    """

    name: str
    leaf: str
    shape: Shape
    dtype: str
    kind: TensorKind
    parts: tuple[Part, ...] = ()
    fixed: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTensors:
    """The tensors of one layer.

    Attributes:
        path: where the layer stands in its model.
        torch_path: where torch has it, as far as names tell.
        kind: the kind of its rule; `OWN_KIND`, or `UNSUPPORTED` and the type's name, where there is none.
        slots: its tensors.
        inner: of a Paddle layer that torch packs otherwise, whether it can be opened into the layers inside.
    """

    path: str
    torch_path: str
    kind: str
    slots: tuple[Slot, ...]
    inner: bool = False


def dtype_name(tensor: Any) -> str:
    """Return a tensor's dtype without the framework's name: ``"float32"``."""
    return str(tensor.dtype).rpartition(".")[2]


def assemble(arrays: Sequence[Array], slot: Slot) -> Array:
    """Return torch's array, given those of the slot's parts as Paddle keeps them."""
    pieces = [array.T if part.transpose else array for part, array in zip(slot.parts, arrays, strict=True)]
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return np.asarray(whole, order="C").reshape(slot.shape)


def divide(array: Array, slot: Slot) -> list[Array]:
    """Return the arrays of the slot's parts as Paddle keeps them, given torch's: the inverse of `assemble`."""
    if len(slot.parts) == 1:
        pieces = [array.reshape(slot.parts[0].shape)]
    else:
        ends = np.cumsum([part.shape[0] for part in slot.parts])[:-1]
        pieces = np.split(array, ends)
    return [
        np.asarray(piece.T if part.transpose else piece, order="C")
        for part, piece in zip(slot.parts, pieces, strict=True)
    ]
