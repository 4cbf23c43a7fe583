"""A model's tensors as torch divides, names and lays them out, and where a Paddle model keeps them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tipchain.framework_types import Array, Model, Tensor

# A model's tensors as torch divides, names and lays them out, and where a Paddle model keeps each.


TensorKind = Literal["parameter", "buffer"]
Shape = tuple[int, ...]
UNSUPPORTED = "not supported: "
"""How the kind of a Paddle layer begins whose type decides about its tensors in a way not known here."""


NOT_IN_TORCH = "("
"""How the left side of a name begins that says that torch has no such layer or tensor: ``(mask): mask``."""
NOT_IN_PORT = "()"
"""The right side of a name that says that the port has no such layer or tensor."""
_TARGET = re.compile(r"\s*(?P<turned>T\()?(?P<names>[^()]*?)(?(turned)\))(?:\s+as\s+\[(?P<shape>[\d\s,]*)\])?\s*")


def only_in_torch(name: str, names: Mapping[str, str]) -> bool:
    """Tell whether names say that the port has no such tensor, or none of the layers that hold it."""
    parts = name.split(".")
    return any(names.get(".".join(parts[:stop])) == NOT_IN_PORT for stop in range(1, len(parts) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which of Paddle's tensors a torch tensor is, and in which layout: the right side of a line of ``names``.

    Attributes:
        names: Paddle's layer, or its tensors, which torch keeps as one, joined along the first axis of torch's layout.
        turned: the transpose of what they are in torch's layout, which the types of their layers tell: ``T(name)``.
        shape: torch's shape, where it has other axes of 1, or more axes: ``name as [8, 4, 1, 1]``.
    """

    names: tuple[str, ...]
    turned: bool = False
    shape: Shape | None = None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return what a line of ``names`` says; text of another form is one name."""
        found = _TARGET.fullmatch(text)
        if found is None:
            return cls(names=(text.strip(),))
        shape = found["shape"]
        return cls(
            names=tuple(one.strip() for one in found["names"].split("+")),
            turned=found["turned"] is not None,
            shape=None if shape is None else tuple(int(one) for one in re.findall(r"\d+", shape)),
        )

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        joined = " + ".join(self.names)
        return (f"T({joined})" if self.turned else joined) + ("" if self.shape is None else f" as {list(self.shape)}")

    @property
    def plain(self) -> bool:
        """Whether it is a single name, in the layout that types tell."""
        return len(self.names) == 1 and not self.turned and self.shape is None

    def apply(self, slot: TensorSlot) -> TensorSlot:
        """Return a slot of Paddle's in this layout."""
        if self.turned and sum(size != 1 for size in slot.parts[0].shape) == 2:
            parts = tuple(replace(part, transpose=not part.transpose) for part in slot.parts)
            slot = replace(slot, parts=parts, shape=slot.shape[::-1], axis=len(slot.shape) - 1 - slot.axis)
        return slot if self.shape is None else replace(slot, shape=self.shape)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PaddlePart:
    """A tensor of a Paddle model.

    Attributes:
        names: its names in the state dict; a tensor that is shared has several.
        tensor: the live tensor; its gradient is ``tensor.grad``.
        transpose: whether torch keeps it the other way round.
    """

    names: tuple[str, ...]
    tensor: Tensor
    transpose: bool = False

    @property
    def shape(self) -> Shape:
        """Its shape in torch's layout."""
        shape = tuple(self.tensor.shape)
        return shape[::-1] if self.transpose else shape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorSlot:
    """One tensor in torch's terms.

    Attributes:
        name: torch's name; of a Paddle model, under the names that `paddle_layers` was given.
        leaf: torch's name of it within its layer.
        shape: torch's shape.
        dtype: such as ``"float32"``.
        kind: ``"parameter"`` or ``"buffer"``.
        parts: where a Paddle model keeps it, joined along ``axis``; empty for a torch model.
        axis: the axis of torch's layout along which the parts are joined.
        fixed: a constant zero that torch does not have.
        again: a tensor of a Paddle model that an earlier slot has under another name.
    """

    name: str
    leaf: str
    shape: Shape
    dtype: str
    kind: TensorKind
    parts: tuple[PaddlePart, ...] = ()
    axis: int = 0
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
    slots: tuple[TensorSlot, ...]
    inner: bool = False


def dtype_name(tensor: Tensor) -> str:
    """Return a tensor's dtype without the framework's name: ``"float32"``."""
    return str(tensor.dtype).rpartition(".")[2]


def assemble(arrays: Sequence[Array], slot: TensorSlot) -> Array:
    """Return torch's array, given those of the slot's parts as Paddle keeps them."""
    pieces = [array.T if part.transpose else array for part, array in zip(slot.parts, arrays, strict=True)]
    return np.asarray(stack(pieces, slot), order="C")


def stack(pieces: Sequence[Array], slot: TensorSlot) -> Array:
    """Return torch's array, given those of the slot's parts in torch's layout; of a single part perhaps the same memory."""
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=slot.axis)
    return whole.reshape(slot.shape)


def divide(array: Array, slot: TensorSlot) -> list[Array]:
    """Return the arrays of the slot's parts as Paddle keeps them, given torch's: the inverse of `assemble`."""
    if len(slot.parts) == 1:
        pieces = [array.reshape(slot.parts[0].shape)]
    else:
        ends = np.cumsum([part.shape[slot.axis] for part in slot.parts])[:-1]
        pieces = np.split(array, ends, axis=slot.axis)
    return [
        np.asarray(piece.T if part.transpose else piece, order="C")
        for part, piece in zip(slot.parts, pieces, strict=True)
    ]


# Weight and spectral normalization: what the two frameworks call and how they shape the tensors of each.
#
# Sources: ``torch/nn/utils/parametrizations.py`` (names since torch 2.0) and ``weight_norm.py`` (older names, which
# Paddle has too), ``paddle/nn/utils/weight_norm_hook.py``.


_ORIGINALS = {"original0": "g", "original1": "v", "original": "orig", "0._u": "u", "0._v": "v"}
_PARAMETRIZED = re.compile(rf"parametrizations\.(\w+)\.({'|'.join(map(re.escape, _ORIGINALS))})")


def paddle_leaf(torch_leaf: str) -> str:
    """Return the older name, which Paddle has: ``weight_g`` for ``parametrizations.weight.original0``."""
    found = _PARAMETRIZED.fullmatch(torch_leaf)
    return torch_leaf if found is None else f"{found[1]}_{_ORIGINALS[found[2]]}"


def magnitude_dim(shape: Sequence[int], *, transposed: bool) -> int | None:
    """Return the ``dim`` of Paddle's weight_norm whose magnitude has a shape in torch's layout: -1 for one number for all.

    A weight with one row and column has every ``dim``: then it is the first.
    """
    kept = [axis for axis, size in enumerate(shape) if size > 1] or [0]
    if len(kept) > 1:
        return None
    return -1 if not shape else len(shape) - 1 - kept[0] if transposed else kept[0]


def magnitude_shape(layer: Model, leaf: str, size: int, *, transposed: bool) -> tuple[int, ...] | None:
    """Return torch's shape of a weight-normalized layer's magnitude ``weight_g``; None of any other tensor.

    torch keeps as many axes as the weight has, Paddle one, of ``size`` numbers.
    """
    from paddle.nn.utils.weight_norm_hook import WeightNorm

    for hook in layer._forward_pre_hooks.values():  # noqa: SLF001
        if isinstance(hook, WeightNorm) and leaf == f"{hook.name}_g":
            axes = len(getattr(layer, f"{hook.name}_v").shape)
            if hook.dim < 0:
                return ()
            kept = axes - 1 - hook.dim if transposed else hook.dim
            return tuple(size if axis == kept else 1 for axis in range(axes))
    return None
