"""Which layer that holds parameters is which of the port: by name, by values, then by structure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.conversion.given_names import expand_names
from tipchain.conversion.layouts import LayerTensors, Slot, Target, assemble
from tipchain.conversion.matching import matchable_layers, paddle_leaves, torch_leaves
from tipchain.conversion.structure import match_by_structure
from tipchain.paddle_weights import view_of
from tipchain.torch_weights import array_of

Array = npt.NDArray[Any]
Print = tuple[int, int, int]
BLOCK = 2**14
"""Elements whose bits are mixed at a time: few enough for a cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPair:
    """Two layers that belong together.

    Attributes:
        reference: the path in torch's model.
        port: the path in Paddle's.
        evidence: ``"name"``, ``"values"`` or ``"structure"``.
    """

    reference: str
    port: str
    evidence: str


def pair_layers(reference: Any, port: Any, names: Mapping[str, str] | None = None) -> list[LayerPair]:
    """Pair the layers that hold parameters or buffers, in the reference's order of declaration.

    What agrees by name (or by ``names``, Paddle's by torch's) and type is paired first; then layers whose parameters
    hold the same values, in whatever order (a transposed or permuted weight does); then what shapes and order
    of declaration leave no doubt about; last, layers of one name and type whose tensors are others. What is left
    is not paired: nothing is guessed.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        names: Paddle's path by torch's, of layers or of tensors.
    """
    names = expand_names(names or {}, reference)
    rest = _Rest(*matchable_layers(reference, port, names))
    rest.take(_by_structure(rest, names, named=True), "name")
    state = reference.state_dict()
    rest.take(_by_equal_values(rest, names, state), "values")
    rest.take(_by_values(rest, state), "values")
    rest.take(_by_structure(rest, names, named=False), "structure")
    rest.take(_by_path(rest), "name")
    rest.found += _without_tensors(reference, port, names, rest.found)
    every = reference.named_modules(remove_duplicate=False)
    order = {path: number for number, (path, _) in enumerate(every)}
    return sorted(rest.found, key=lambda pair: order[pair.reference])


def pair_packed(reference: Any, port: Any, known: Sequence[LayerPair]) -> list[LayerPair]:
    """Return the pairs of one side's layer and the other's container of several that hold the same numbers together.

    Torch's ``MultiheadAttention`` is one layer; a port may have a layer of its own with a ``qkv`` and a projection inside.

    Args:
        reference: a ``torch.nn.Module``.
        port: a ``paddle.nn.Layer``.
        known: the layers that are paired one by one.
    """
    taken = {pair.reference for pair in known}, {pair.port for pair in known}
    state = reference.state_dict()
    left: list[dict[str, Print]] = []
    for side, layers in enumerate(matchable_layers(reference, port, {})):
        prints = {}
        for layer in layers:
            slots = _parameters(layer)
            if layer.path not in taken[side] and slots:
                prints[layer.path] = _sum(_slot_print(slot, None if side else state) for slot in slots)
        left.append(prints)
    found: list[LayerPair] = []
    for side in (0, 1):
        held = _held_in_containers(left[1 - side], taken[1 - side])
        for path, print_ in left[side].items():
            fitting = [container for container, whole in held.items() if whole == print_]
            alone = sum(one == print_ for one in left[side].values()) == 1
            if print_[1] and alone and len(fitting) == 1:
                ours, theirs = (path, fitting[0]) if side == 0 else (fitting[0], path)
                found.append(LayerPair(reference=ours, port=theirs, evidence="values"))
    return found


def _held_in_containers(prints: Mapping[str, Print], taken: set[str]) -> dict[str, Print]:
    """Return the prints of all parameters in containers that hold several layers, and none that is paired."""
    inside: dict[str, list[str]] = defaultdict(list)
    for path in (*prints, *taken):
        parts = path.split(".")
        for number in range(1, len(parts)):
            inside[".".join(parts[:number])].append(path)
    return {
        container: _sum(prints[path] for path in paths)
        for container, paths in inside.items()
        if len(paths) > 1 and not taken.intersection(paths)
    }


def _sum(prints: Iterable[Print]) -> Print:
    several = list(prints)
    return sum(one[0] for one in several), sum(one[1] for one in several) % 2**64, sum(one[2] for one in several) % 2**64  # fmt: skip


def _without_tensors(
    reference: Any, port: Any, names: Mapping[str, str], known: Sequence[LayerPair]
) -> list[LayerPair]:
    """Return the pairs of layers without parameters or buffers that ``names`` names."""
    ours, theirs = dict(reference.named_modules()), dict(port.named_sublayers(include_self=True))
    taken = {pair.reference for pair in known}, {pair.port for pair in known}
    return [
        LayerPair(reference=one, port=other, evidence="name")
        for one, other in names.items()
        if one in ours and other in theirs and one not in taken[0] and other not in taken[1]
        and not ours[one].state_dict() and not theirs[other].state_dict()
    ]  # fmt: skip


class _Rest:
    """What is not paired yet."""

    def __init__(self, ours: Sequence[LayerTensors], theirs: Sequence[LayerTensors]) -> None:
        self.ours = {layer.path: layer for layer in ours}
        self.theirs = {layer.path: layer for layer in theirs}
        self.found: list[LayerPair] = []

    def take(self, pairs: Iterator[tuple[str, str]], evidence: str) -> None:
        """Pair what ``pairs`` names, as far as it is left."""
        for ours, theirs in list(pairs):
            if ours in self.ours and theirs in self.theirs:
                del self.ours[ours], self.theirs[theirs]
                self.found.append(LayerPair(reference=ours, port=theirs, evidence=evidence))


def _by_structure(rest: _Rest, names: Mapping[str, str], *, named: bool) -> Iterator[tuple[str, str]]:
    """Yield what names decide, or else what kinds, shapes and order do."""
    ours = torch_leaves(rest.ours.values(), names)
    theirs = paddle_leaves(rest.theirs.values(), names)
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for pair in match_by_structure(list(ours), list(theirs)).pairs:
        found[ours[pair.expected][0].path][theirs[pair.actual][0].path] = None
    shared = Counter(port for ports in found.values() for port in ports)
    given = {Target.parse(target).names[0]: name for name, target in names.items()}
    for path, ports in found.items():
        port = next(iter(ports))
        alike = (
            rest.ours[path].kind == rest.theirs[port].kind
        )  # others may keep their tensors in another layout
        if (
            alike
            and len(ports) == shared[port] == 1
            and (path in (rest.theirs[port].torch_path, given.get(port))) == named
        ):
            yield path, port


def _by_equal_values(
    rest: _Rest, names: Mapping[str, str], state: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield layers that structure pairs and whose parameters are equal and not all constant."""
    for one, other in _by_structure(rest, names, named=False):
        slots = [_parameters(layers[path]) for layers, path in ((rest.ours, one), (rest.theirs, other))]
        if [slot.leaf for slot in slots[0]] != [slot.leaf for slot in slots[1]]:
            continue
        arrays = [
            (array_of(state[mine.name]), _whole(its))
            for mine, its in zip(*slots, strict=True)
            if len(its.parts) == 1
        ]
        whole = len(arrays) == len(slots[0])
        telling = any(array.size and (array != array.flat[0]).any() for array, _ in arrays)
        if whole and telling and all(np.array_equal(*both) for both in arrays):
            yield one, other


def _parameters(layer: LayerTensors) -> list[Slot]:
    return [slot for slot in layer.slots if slot.kind == "parameter" and not slot.fixed]


def _whole(slot: Slot) -> Array:
    """Return the values of a slot of Paddle's that has one part, in torch's layout."""
    return assemble([view_of(part.tensor) for part in slot.parts], slot)


def _by_values(rest: _Rest, state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield layers of one kind whose parameters hold the same numbers, where no other layer's do."""
    prints: list[dict[Hashable, list[str]]] = []
    for side, layers in enumerate((rest.ours, rest.theirs)):
        found: dict[Hashable, list[str]] = defaultdict(list)
        for path, layer in layers.items():
            slots = _parameters(layer)
            told = {
                (slot.leaf, _slot_print(slot, state) if side == 0 else _slot_print(slot)) for slot in slots
            }
            if any(values[1] for _, values in told):
                found[layer.kind, frozenset(told)].append(path)
        prints.append(found)
    for key, paths in prints[0].items():
        if len(paths) == 1 and len(prints[1].get(key, ())) == 1:
            yield paths[0], prints[1][key][0]


def _slot_print(slot: Slot, state: Mapping[str, Any] | None = None) -> Print:
    arrays = (
        [array_of(state[slot.name])] if state is not None else [view_of(part.tensor) for part in slot.parts]
    )
    return _sum(map(print_of, arrays))


def print_of(array: Array) -> Print:
    """Return a number of elements and two sums over their bits, alike for the same values in whatever order.

    An array whose elements are all equal (a bias of zeros) says nothing: its sums are 0.
    """
    flat = np.ascontiguousarray(array if array.flags.c_contiguous else array.T).reshape(-1)
    if not flat.size or (flat == flat[0]).all():
        return flat.size, 0, 0
    bits, plain, mixed = flat.view(f"u{flat.dtype.itemsize}"), 0, 0
    room, shifted = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    for start in range(0, bits.size, BLOCK):
        some = bits[start : start + BLOCK]
        words, low = room[: some.size], shifted[: some.size]
        np.copyto(words, some)
        plain += int(words.sum())
        words *= np.uint64(0x9E3779B97F4A7C15)
        np.right_shift(words, np.uint64(29), out=low)
        words ^= low
        mixed += int(words.sum())
    return flat.size, plain % 2**64, mixed % 2**64


def _by_path(rest: _Rest) -> Iterator[tuple[str, str]]:
    """Yield layers of one name and kind, whatever their tensors."""
    named = {(layer.torch_path, layer.kind): path for path, layer in rest.theirs.items()}
    for path, layer in rest.ours.items():
        if (path, layer.kind) in named:
            yield path, named[path, layer.kind]
