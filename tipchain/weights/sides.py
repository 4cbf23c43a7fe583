"""The layers and tensors of a torch and of a Paddle model in the terms that they are matched in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tipchain.errors import WeightsError
from tipchain.facts.layers import OWN, storage_of
from tipchain.facts.packed import Packed, cell_tensors, packed_tensors
from tipchain.facts.settings import OWN_KIND, Shape
from tipchain.framework_types import Array, Model, Tensor


def join(path: str, leaf: str) -> str:
    """Return the dotted name of ``leaf`` in the layer at ``path``, "" the root."""
    return f"{path}.{leaf}" if path and leaf else path or leaf


TensorKind = Literal["parameter", "buffer"]
UNSUPPORTED = "not supported: "
"""How the kind of a Paddle layer begins whose type decides about its tensors in a way not known here."""


NOT_IN_TORCH = "("
"""How the left side of a name begins that says that torch has no such layer or tensor: ``(mask): mask``."""
NOT_IN_PORT = "()"
"""The right side of a name that says that the port has no such layer or tensor."""
_TARGET = re.compile(r"\s*(?P<turned>T\()?(?P<names>[^()]*?)(?(turned)\))(?:\s+as\s+\[(?P<shape>[\d\s,]*)\])?\s*")


def only_in_torch(name: str, names: Mapping[str, str]) -> bool:
    """Tell whether names say that the port lacks a tensor, or its layers."""
    parts = name.split(".")
    return any(names.get(".".join(parts[:stop])) == NOT_IN_PORT for stop in range(1, len(parts) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Paddle tensors of a torch tensor and their layout, as ``names`` write them.

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
        """Return the target of a line of ``names``; other text is one name."""
        match = _TARGET.fullmatch(text)
        if match is None:
            return cls(names=(text.strip(),))
        shape = match["shape"]
        return cls(
            names=tuple(one.strip() for one in match["names"].split("+")),
            turned=match["turned"] is not None,
            shape=None if shape is None else tuple(int(one) for one in re.findall(r"\d+", shape)),
        )

    def __str__(self) -> str:
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
        kind: the kind of its stored; `OWN_KIND`, or `UNSUPPORTED` and the type's name, where there is none.
        slots: its tensors.
        inner: of a Paddle layer that torch packs otherwise, whether it can be opened into the layers inside.
    """

    path: str
    torch_path: str
    kind: str
    slots: tuple[TensorSlot, ...]
    inner: bool = False


def is_integer(slot: TensorSlot) -> bool:
    """Tell whether a tensor holds integers or booleans."""
    return slot.dtype.startswith(("int", "uint", "bool"))


def dtype_name(tensor: Tensor) -> str:
    """Return a tensor's dtype without the framework's name: ``"float32"``."""
    return str(tensor.dtype).rpartition(".")[2]


def assemble(arrays: Sequence[Array], slot: TensorSlot) -> Array:
    """Return torch's array, given those of the slot's parts as Paddle keeps them; perhaps a part's own memory."""
    return stack([array.T if part.transpose else array for part, array in zip(slot.parts, arrays, strict=True)], slot)


def stack(pieces: Sequence[Array], slot: TensorSlot) -> Array:
    """Return torch's array of parts in torch's layout, perhaps a part's own memory."""
    whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=slot.axis)
    return whole.reshape(slot.shape)


def divide(array: Array, slot: TensorSlot) -> list[Array]:
    """Return the arrays of the slot's parts in Paddle's layout; undoes `assemble`."""
    if len(slot.parts) == 1:
        pieces = [array.reshape(slot.parts[0].shape)]
    else:
        ends = np.cumsum([part.shape[slot.axis] for part in slot.parts])[:-1]
        pieces = np.split(array, ends, axis=slot.axis)
    return [
        np.asarray(piece.T if part.transpose else piece, order="C")
        for part, piece in zip(slot.parts, pieces, strict=True)
    ]


_ORIGINALS = {"original0": "g", "original1": "v", "original": "orig", "0._u": "u", "0._v": "v"}
"""Older names of weight and spectral norm, which Paddle has: ``weight_g`` for ``parametrizations.weight.original0``.

Sources: ``torch/nn/utils/parametrizations.py`` and ``weight_norm.py``, ``paddle/nn/utils/weight_norm_hook.py``.
"""
_PARAMETRIZED = re.compile(rf"^parametrizations\.(\w+)\.({'|'.join(map(re.escape, _ORIGINALS))})\Z")


def torch_layers(module: Model, path: str = "") -> list[LayerTensors]:
    """Return a torch model's layers that hold tensors which Paddle has too, in order of declaration."""
    stored = storage_of(module, "torch") or OWN
    tensors = dict(_own_tensors(module))
    from torch.nn.parameter import Parameter, is_lazy

    for leaf in (leaf for leaf, (_, tensor) in tensors.items() if is_lazy(tensor)):
        hint = "let the model's builder run it once on an input"
        raise WeightsError("has no shape yet", key=join(path, leaf), found="a lazy layer", hint=hint)
    inside = dict(module._modules)  # noqa: SLF001
    if stored.kind == "MultiheadAttention":  # its out_proj is one of its tensors
        tensors.update({f"out_proj.{leaf}": found for leaf, found in _own_tensors(inside.pop("out_proj"))})
    if hasattr(module, "parametrizations"):
        for leaf, tensor in inside.pop("parametrizations").state_dict(keep_vars=True).items():
            tensors[f"parametrizations.{leaf}"] = "parameter" if isinstance(tensor, Parameter) else "buffer", tensor
    slots = tuple(
        TensorSlot(
            name=join(path, leaf),
            leaf=_PARAMETRIZED.sub(lambda match: f"{match[1]}_{_ORIGINALS[match[2]]}", leaf),
            shape=tuple(tensor.shape),
            dtype=dtype_name(tensor),
            kind=kind,
        )
        for leaf, (kind, tensor) in tensors.items()
        if leaf not in stored.dropped
    )
    layers = [LayerTensors(path=path, torch_path=path, kind=stored.kind, slots=slots)] if slots else []
    for name, child in inside.items():
        if child is not None:
            layers += torch_layers(child, join(path, name))
    return layers


def _own_tensors(layer: Model) -> Iterator[tuple[str, tuple[TensorKind, Tensor]]]:
    """Yield the parameters and persistent buffers that a layer of either framework itself holds."""
    hidden = ("_non_persistent_buffers_set", "_non_persistable_buffer_names_set")  # torch's, Paddle's
    passing = {leaf for name in hidden for leaf in getattr(layer, name, ())}
    for leaf, tensor in layer._parameters.items():  # noqa: SLF001
        if tensor is not None:
            yield leaf, ("parameter", tensor)
    for leaf, tensor in layer._buffers.items():  # noqa: SLF001
        if tensor is not None and leaf not in passing:
            yield leaf, ("buffer", tensor)


def paddle_layers(
    model: object, names: Mapping[str, str] | None = None, open_: frozenset[str] = frozenset()
) -> list[LayerTensors]:
    """Return a Paddle model's layers that hold tensors, in torch's terms and order.

    Args:
        model: a ``paddle.nn.Layer``.
        names: Paddle's name by torch's, of tensors or of layers (a prefix; the longest wins), where they differ.
            ``"a + b"`` names several tensors that torch keeps as one, ``"T(a)"`` the transpose, see `Target`. Naming
            what is inside a layer that torch packs otherwise (``attn.q_proj``) opens that layer.
        open_: paths of further layers to open.
    """
    targets = {torch: Target.parse(paddle) for torch, paddle in (names or {}).items()}
    inverse = {target.names[0]: torch for torch, target in targets.items() if len(target.names) == 1}
    walk = _PaddleWalk(model, inverse, {one for target in targets.values() for one in target.names}, open_)
    layers = [layer for layer in walk.layers(model, "", inverse.get("", "")) if layer.slots]
    layers = _join_slots(layers, {torch: target for torch, target in targets.items() if len(target.names) > 1})
    return [
        replace(
            layer, slots=tuple(targets[slot.name].apply(slot) if slot.name in targets else slot for slot in layer.slots)
        )
        for layer in layers
    ]


@dataclass(slots=True)
class _PaddleWalk:
    model: Model
    inverse: Mapping[str, str]
    targets: set[str]
    open: frozenset[str]
    names: dict[int, list[str]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name, tensor in self.model.state_dict().items():
            self.names.setdefault(id(tensor), []).append(name)

    def layers(
        self, layer: Model, path: str, torch_path: str, skip: frozenset[int] = frozenset()
    ) -> Iterator[LayerTensors]:
        """Yield the layer at ``path`` and those inside, without the tensors in ``skip``."""
        stored, packed, own_skip = storage_of(layer, "paddle"), packed_tensors(layer), skip
        if packed is not None:
            stored, (kind, tensors) = OWN, packed
            if self._opened(path, [one.tensors for one in tensors]):
                # The layer has names of its own for tensors of the layers inside.
                inside = (tensor for child in layer.children() for tensor in child.state_dict().values())
                own_skip = skip.union(map(id, inside))
            else:
                start = f"{path}." if path else ""
                names = [[name for name in self._names(one.tensors[0]) if name.startswith(start)] for one in tensors]
                both = zip(tensors, names, strict=True)
                slots = [self._slot(torch_path, one, "parameter", given) for one, given in both]
                yield LayerTensors(path=path, torch_path=torch_path, kind=kind, slots=tuple(slots), inner=True)
                own_skip = skip = skip.union(id(tensor) for one in tensors for tensor in one.tensors)
        # What the layer itself holds.
        kind = f"{UNSUPPORTED}{type(layer).__name__}" if stored is None else stored.kind
        stored = stored or OWN
        fixed = {one.leaf for one in cell_tensors(layer) if one.fixed} if kind.endswith("Cell") else set()
        leaves = {paddle: torch for torch, paddle in stored.renamed.items()}
        slots = []
        for own, (tensor_kind, tensor) in _own_tensors(layer):
            if id(tensor) in own_skip:
                continue
            leaf = leaves.get(own, own)
            transpose = leaf in stored.transposed and tensor.ndim == 2
            single = Packed(leaf=leaf, tensors=(tensor,), transpose=transpose, fixed=leaf in fixed)
            slot = self._slot(
                torch_path, single, "buffer" if leaf in stored.buffers else tensor_kind, [join(path, own)]
            )
            slots.append(replace(slot, shape=_torch_shape(layer, stored.kind, leaf, slot)))
        yield LayerTensors(path=path, torch_path=torch_path, kind=kind, slots=tuple(slots))
        torch_names = {paddle: torch for torch, paddle in stored.children.items()}
        for name, child in layer._sub_layers.items():  # noqa: SLF001
            if child is not None:
                here, there = join(path, name), join(torch_path, torch_names.get(name, name))
                yield from self.layers(child, here, self.inverse.get(here, there), skip)

    def _opened(self, path: str, tensors: Sequence[tuple[object, ...]]) -> bool:
        """Tell whether a name goes inside a layer, or to a piece of a tensor."""
        if path in self.open:
            return True
        start = f"{path}." if path else ""
        for name in self.targets:
            if name.startswith(start) and name != path:
                inside = [
                    ids
                    for ids in tensors
                    if any(f"{one}.".startswith(f"{name}.") for tensor in ids for one in self._names(tensor))
                ]
                if inside and (len(inside[0]) > 1 or name not in self._names(inside[0][0])):
                    return True
        return False

    def _names(self, tensor: object) -> list[str]:
        return self.names.get(id(tensor), [])

    def _slot(self, torch_path: str, packed: Packed, kind: TensorKind, own: Sequence[str]) -> TensorSlot:
        again = all(id(tensor) in self.seen for tensor in packed.tensors)
        self.seen.update(map(id, packed.tensors))
        parts = tuple(
            PaddlePart(names=tuple(self._names(tensor)), tensor=tensor, transpose=packed.transpose)
            for tensor in packed.tensors
        )
        given = [self.inverse[name] for name in own if name in self.inverse] if len(parts) == 1 else []
        return TensorSlot(
            name=given[0] if given else join(torch_path, packed.leaf),
            leaf=packed.leaf,
            shape=_stacked([part.shape for part in parts]),
            dtype=dtype_name(parts[0].tensor),
            kind=kind,
            parts=parts,
            fixed=packed.fixed,
            again=again,
        )


def _stacked(shapes: Sequence[Shape]) -> Shape:
    if len(shapes) == 1:
        return shapes[0]
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _torch_shape(layer: Model, kind: str, leaf: str, slot: TensorSlot) -> Shape:
    """Return torch's shape of a tensor that Paddle keeps with other axes."""
    from paddle.nn.utils.weight_norm_hook import WeightNorm

    if kind == "LayerNorm" and leaf in ("weight", "bias"):
        return tuple(layer._normalized_shape)  # noqa: SLF001  (Paddle flattens it)
    if kind == "Bilinear" and leaf == "bias":
        return slot.shape[-1:]  # Paddle's is a row
    for hook in layer._forward_pre_hooks.values():  # noqa: SLF001
        if isinstance(hook, WeightNorm) and leaf == f"{hook.name}_g":
            # torch keeps as many axes of the magnitude as the weight has, Paddle one.
            axes = len(getattr(layer, f"{hook.name}_v").shape)
            kept = axes - 1 - hook.dim if kind == "Linear" else hook.dim
            return () if hook.dim < 0 else tuple(slot.shape[0] if axis == kept else 1 for axis in range(axes))
    return slot.shape


def _join_slots(layers: list[LayerTensors], joined: Mapping[str, Target]) -> list[LayerTensors]:
    slots = {name: slot for layer in layers for slot in layer.slots for name in slot.parts[0].names}
    made, used = list[LayerTensors](), set[TensorSlot]()
    for torch_name, target in joined.items():
        pieces = [slots[name] for name in target.names if name in slots]
        if len(pieces) < len(target.names):
            continue  # said where names are checked
        whole = replace(
            pieces[0],
            name=torch_name,
            leaf=torch_name,
            shape=_stacked([piece.shape for piece in pieces]),
            parts=tuple(part for piece in pieces for part in piece.parts),
        )
        made.append(LayerTensors(path=" + ".join(target.names), torch_path=torch_name, kind=OWN_KIND, slots=(whole,)))
        used.update(pieces)
    return without(layers, used.__contains__) + made


def without(layers: Iterable[LayerTensors], drop: Callable[[TensorSlot], bool]) -> list[LayerTensors]:
    """Return layers without some of their tensors; those that lose all are left out."""
    kept = (replace(layer, slots=tuple(slot for slot in layer.slots if not drop(slot))) for layer in layers)
    return [layer for layer in kept if layer.slots]


def torch_view(model: object, names: Mapping[str, str] | None = None) -> Iterator[TensorSlot]:
    """Yield every parameter and persistent buffer of a Paddle model as torch has it, each once.

    With the names of a match each slot has torch's name and shape; `assemble` and `divide` turn arrays of its parts
    (values, gradients, moments) into torch's array and back. What only Paddle keeps does not come.

    Raises:
        WeightsError: a layer's type decides about its tensors in a way not known here.
    """
    for layer in paddle_layers(model, names):
        for slot in layer.slots:
            if layer.kind.startswith(UNSUPPORTED):
                raise WeightsError(
                    "this layer's type is not supported: how it stores its tensors for torch is not known",
                    key=slot.parts[0].names[0],
                    found=f"paddle.nn.{layer.kind.removeprefix(UNSUPPORTED)}",
                )
            if not slot.fixed and not slot.again and not slot.name.startswith(NOT_IN_TORCH):
                yield slot
