"""Which tensor of torch's model is which of the port's, layer by layer, in torch's layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tipchain.errors import WeightsError
from tipchain.explain.locate.matching import LayerPair, print_of
from tipchain.framework_types import Array, Model, Tensor
from tipchain.layer_types import OWN_KIND
from tipchain.weights.layouts import LayerTensors, TensorSlot, stack
from tipchain.weights.matching import match_models, matchable_layers
from tipchain.weights.paddle_files import view_of
from tipchain.weights.torch_files import array_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPair:
    """A tensor of a matched layer, as torch and as the port keep it; one of them may be missing.

    Attributes:
        layers: the layers' paths and evidence.
        kind: the layers' kind.
        ours: torch's tensor.
        theirs: the port's.
    """

    layers: LayerPair
    kind: str
    ours: TensorSlot | None
    theirs: TensorSlot | None

    @property
    def leaf(self) -> str:
        """The name of it in torch's layer, or the port's own where torch has none."""
        slot = self.ours or self.theirs
        assert slot is not None
        return slot.leaf


class Tensors:
    """The tensors of both models, and which belong together.

    Attributes:
        live: torch's tensors by name.
        pairs: the tensors of matched layers, in the order of the pairs.
        unmatched: layers of torch's model and of the port that are in no pair.
    """

    def __init__(
        self, reference: Model, port: object, pairs: Iterable[LayerPair], names: Mapping[str, str] | None = None
    ) -> None:
        """Read both models.

        Args:
            reference: a ``torch.nn.Module``.
            port: a ``paddle.nn.Layer``.
            pairs: the layers that belong together.
            names: Paddle's path by torch's, as they were matched with.

        Raises:
            WeightsError: a lazy layer of torch's has no shape yet.
        """
        known = list(pairs)
        self.live: dict[str, Tensor] = reference.state_dict(keep_vars=True)
        self.layers = self._read(reference, port, known, names or {})
        by_path = [{layer.path: layer for layer in side} for side in self.layers]
        self.pairs: list[TensorPair] = []
        for pair in known:
            ours, theirs = by_path[0].get(pair.reference), by_path[1].get(pair.port)
            if ours is not None and theirs is not None:
                self.pairs += self._paired(pair, ours, theirs)
        self.unmatched = self._unmatched(known)
        if any(pair.ours is None or pair.theirs is None for pair in self.pairs):
            self._pair_across_layers(reference, port, names)

    def _pair_across_layers(self, reference: object, port: object, names: Mapping[str, str] | None) -> None:
        """Pair what its layer's partner lacks with the tensor of another layer that the weights' match gives to it.

        A matrix that one model keeps itself may be a Linear's in the other. Where the whole models do not match, something
        is missing, and nothing is paired.
        """
        try:
            slots = match_models(reference, port, names).slots
        except WeightsError:
            return
        alone = [pair for pair in self.pairs if pair.ours is None or pair.theirs is None]
        mine = {pair.ours.name: pair.layers.reference for pair in alone if pair.ours is not None}
        its = {_first_tensor(pair.theirs): pair.layers.port for pair in alone if pair.theirs is not None}
        ours = mine | {slot.name: layer.path for layer in self.unmatched[0] for slot in layer.slots}
        theirs = its | {_first_tensor(slot): layer.path for layer in self.unmatched[1] for slot in layer.slots}
        held = {slot.name: slot for layer in self.layers[0] for slot in layer.slots}
        found = {
            name: _first_tensor(slot)
            for name, slot in slots.items()
            if name in ours and _first_tensor(slot) in theirs and (name in mine or _first_tensor(slot) in its)
        }
        taken = set(found.values())
        self.pairs = [
            pair
            for pair in self.pairs
            if not (pair.theirs is None and pair.ours is not None and pair.ours.name in found)
            and not (pair.ours is None and pair.theirs is not None and _first_tensor(pair.theirs) in taken)
        ]
        for name, tensor in found.items():
            layers = LayerPair(reference=ours[name], port=theirs[tensor], evidence="structure")
            self.pairs.append(TensorPair(layers=layers, kind=OWN_KIND, ours=held[name], theirs=slots[name]))
        self.unmatched = (
            _without(self.unmatched[0], lambda slot: slot.name in found),
            _without(self.unmatched[1], lambda slot: _first_tensor(slot) in taken),
        )

    def _unmatched(self, pairs: Sequence[LayerPair]) -> tuple[list[LayerTensors], list[LayerTensors]]:
        """Return the layers in no pair, with those of their tensors that no layer in a pair has too."""
        ours, theirs = {pair.reference for pair in pairs}, {pair.port for pair in pairs}
        shared = {id(self.live[slot.name]) for layer in self.layers[0] if layer.path in ours for slot in layer.slots}
        shared |= {
            id(part.tensor)
            for layer in self.layers[1]
            if layer.path in theirs
            for slot in layer.slots
            for part in slot.parts
        }
        return (
            [
                replace(layer, slots=tuple(slot for slot in layer.slots if id(self.live[slot.name]) not in shared))
                for layer in self.layers[0]
                if layer.path not in ours
            ],
            [
                replace(
                    layer,
                    slots=tuple(
                        slot
                        for slot in layer.slots
                        if not slot.fixed
                        and not slot.again
                        and not all(id(part.tensor) in shared for part in slot.parts)
                    ),
                )
                for layer in self.layers[1]
                if layer.path not in theirs
            ],
        )

    def _read(
        self, reference: object, port: object, pairs: Sequence[LayerPair], names: Mapping[str, str]
    ) -> tuple[list[LayerTensors], list[LayerTensors]]:
        ours, theirs = matchable_layers(reference, port, names)
        inside = {
            layer.path
            for layer in theirs
            if layer.inner and any(pair.port.startswith(f"{layer.path}.") for pair in pairs)
        }
        return matchable_layers(reference, port, names, frozenset(inside)) if inside else (ours, theirs)

    def _paired(self, pair: LayerPair, ours: LayerTensors, theirs: LayerTensors) -> Iterator[TensorPair]:
        kind = ours.kind if ours.kind == theirs.kind else OWN_KIND
        leaves = {slot.leaf for slot in ours.slots}
        left = {slot.leaf: slot for slot in theirs.slots if not (slot.fixed and slot.leaf in leaves)}
        alone: list[TensorSlot] = []
        for slot in ours.slots:
            if slot.leaf in left:
                yield TensorPair(layers=pair, kind=kind, ours=slot, theirs=left.pop(slot.leaf))
            else:
                alone.append(slot)
        for slot in alone:
            other = self._like(slot, left.values()) if kind == OWN_KIND else None
            if other is not None:
                del left[other.leaf]
            yield TensorPair(layers=pair, kind=kind, ours=slot, theirs=other)
        for slot in left.values():
            yield TensorPair(layers=pair, kind=kind, ours=None, theirs=slot)

    def _like(self, slot: TensorSlot, others: Iterable[TensorSlot]) -> TensorSlot | None:
        """Return the one that holds the same numbers, else the only one of as many."""
        size = np.prod(slot.shape)
        candidates = [one for one in others if np.prod(one.shape) == size]
        print_ = print_of(self.array(slot))
        same = [one for one in candidates if any(print_[1:]) and print_of(port_array(one)) == print_]
        chosen = same or candidates
        return chosen[0] if len(chosen) == 1 else None

    def array(self, slot: TensorSlot) -> Array:
        """Return the values of a tensor of torch's."""
        return numbers(array_of(self.live[slot.name].detach()), slot.dtype)

    def trained(self, slot: TensorSlot) -> bool:
        """Tell whether a tensor of torch's takes gradients."""
        return slot.kind == "parameter" and bool(self.live[slot.name].requires_grad)


def _first_tensor(slot: TensorSlot) -> int:
    """Return the identity of the first of the port's tensors in a slot."""
    return id(slot.parts[0].tensor)


def _without(layers: Iterable[LayerTensors], drop: Callable[[TensorSlot], bool]) -> list[LayerTensors]:
    """Return layers without some of their tensors; those that lose all are left out."""
    rest = [replace(layer, slots=tuple(slot for slot in layer.slots if not drop(slot))) for layer in layers]
    return [layer for layer in rest if layer.slots]


def port_array(slot: TensorSlot) -> Array:
    """Return the values of a tensor of the port's, in torch's layout; those of a single part are not copied."""
    pieces = [view_of(part.tensor).T if part.transpose else view_of(part.tensor) for part in slot.parts]
    return numbers(stack(pieces, slot), slot.dtype)


def port_trained(slot: TensorSlot) -> bool:
    """Tell whether a tensor of the port's takes gradients."""
    return slot.kind == "parameter" and not slot.fixed and any(not part.tensor.stop_gradient for part in slot.parts)


def port_name(slot: TensorSlot) -> str:
    """Return the port's name of a tensor."""
    return " + ".join(part.names[0] if part.names else slot.name for part in slot.parts)


def numbers(array: Array, dtype: str) -> Array:
    """Return an array of numbers, given one that has bfloat16 as its bits."""
    if dtype == "bfloat16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def is_floating(slot: TensorSlot) -> bool:
    """Tell whether a tensor holds floating-point numbers."""
    return slot.dtype in ("float16", "bfloat16", "float32", "float64")
