"""The layers of either model as units that are matched by their structure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tipchain.conversion.layouts import LayerTensors, Slot
from tipchain.conversion.structure import Tensor, Unit
from tipchain.layer_types import OWN_KIND, join


def torch_units(
    layers: Iterable[LayerTensors], names: Mapping[str, str], settled: Mapping[str, str], ties: Mapping[str, str]
) -> list[Unit]:  # fmt: skip
    """Return the units of a torch model.

    Args:
        layers: its layers.
        names: the names that the user gave, torch's first.
        settled: those, and further tensors that their names match.
        ties: by torch's name, the name under which the same tensor comes first.
    """
    found = []
    for layer in layers:
        single, rest = _divide(layer, settled)
        given = _is_given(layer.path, names)
        for slot in single:
            tensor = Tensor("", slot.shape, tell(layer, slot))
            found.append(
                Unit(
                    path=slot.name, torch_path=slot.name, kind=OWN_KIND, tensors=(tensor,),
                    given=given or slot.name in settled, again=ties.get(slot.name, slot.name) != slot.name,
                )
            )  # fmt: skip
        if rest:
            odd = [(slot.name, slot.leaf) for slot in rest if slot.name != join(layer.path, slot.leaf)]
            found.append(
                Unit(
                    path=layer.path, torch_path=layer.path, kind=layer.kind, tensors=_tensors(layer, rest),
                    given=given, again=all(ties.get(slot.name, slot.name) != slot.name for slot in rest),
                    odd=tuple(odd),
                )
            )  # fmt: skip
    return found


def paddle_units(layers: Iterable[LayerTensors], settled: Mapping[str, str]) -> list[Unit]:
    """Return the units of a Paddle model; constant zeros that torch does not have count for nothing."""
    found = []
    for layer in layers:
        single, rest = _divide(layer, settled)
        for slot in single:
            tensor = Tensor("", slot.shape, tell(layer, slot))
            found.append(
                Unit(
                    path=join(layer.path, slot.leaf), torch_path=slot.name, kind=OWN_KIND, tensors=(tensor,),
                    again=slot.again,
                )
            )  # fmt: skip
        if rest:
            again = all(slot.again for slot in rest)
            tensors = _tensors(layer, [slot for slot in rest if not slot.fixed])
            found.append(
                Unit(
                    path=layer.path, torch_path=layer.torch_path, kind=layer.kind, tensors=tensors, again=again
                )
            )  # fmt: skip
    return found


def tell(layer: LayerTensors, slot: Slot) -> str:
    """Return what a message calls a tensor: its name, torch's shape of it, dtype and the kind of its layer."""
    name = " + ".join(part.names[0] for part in slot.parts) or slot.name
    return f"{name} {list(slot.shape)} {slot.dtype} ({kind_text(layer.kind)})"


def kind_text(kind: str) -> str:
    """Return what a message calls a kind of layer."""
    return "a class of its own" if kind == OWN_KIND else kind


def _tensors(layer: LayerTensors, slots: Iterable[Slot]) -> tuple[Tensor, ...]:
    return tuple(Tensor(slot.leaf, slot.shape, tell(layer, slot)) for slot in slots)


def _divide(layer: LayerTensors, settled: Mapping[str, str]) -> tuple[list[Slot], list[Slot]]:
    """Return the tensors that are matched one by one, and those that are matched with their layer."""
    single = [slot for slot in layer.slots if layer.kind == OWN_KIND or slot.name in settled]
    return single, [slot for slot in layer.slots if layer.kind != OWN_KIND and slot.name not in settled]


def _is_given(path: str, names: Mapping[str, str]) -> bool:
    return any(not old or path == old or path.startswith(f"{old}.") for old in names)
