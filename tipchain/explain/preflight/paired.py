"""Pairs of layers: their comparable settings, and different kinds that compute the same."""

from __future__ import annotations

from typing import NamedTuple

from tipchain.facts.settings import LayerKind, Shape, held, ntuple, space
from tipchain.framework_types import Model


class PairedLayers(NamedTuple):
    """Two layers that belong together."""

    reference_path: str
    reference: Model
    port_path: str
    port: Model
    shapes: tuple[Shape, Shape] | None = None

    @property
    def paths(self) -> tuple[str, str]:
        """Both paths."""
        return self.reference_path, self.port_path


def axes_comparable(pair: PairedLayers, one: object, other: object) -> bool:
    """Tell whether two axes may be compared: the layouts are the same, and both count from the same end."""
    if pair.shapes is not None:
        ours, theirs = pair.shapes
        return ours == theirs
    return len({value < 0 for value in (one, other) if isinstance(value, int)}) < 2


def orders_comparable(pair: PairedLayers) -> bool | None:
    """Tell how two sequence layers are given their batches: alike (True), the other way round (False), unknown (None)."""
    if pair.shapes is None or any(len(shape) != 3 for shape in pair.shapes):
        return None
    ours, theirs = pair.shapes
    if len(set(ours[:2])) == 1:
        return None
    if ours == theirs:
        return True
    return False if ours == (theirs[1], theirs[0], theirs[2]) else None


def never_alike(one: LayerKind, other: LayerKind) -> bool:
    """Tell whether layers of two kinds are no substitutes for each other, whatever they are made with."""
    names = {one.name, other.name}
    if one.family == other.family and (one.family in ("activation", "recurrent") or (one.drops and other.drops)):
        return True
    pools = {name.removeprefix("Adaptive") for name in names}
    if len(pools) == 2 and {name[:3] for name in pools} == {"Max", "Avg"}:
        return len({name[-2:] for name in pools}) == 1
    return "BatchNorm" in names and bool(names & {"LayerNorm", "GroupNorm", "InstanceNorm"})


def computes_the_same(pair: PairedLayers, kinds: tuple[LayerKind, LayerKind]) -> bool:
    """Tell whether two layers of different kinds do nothing, or are pools of the same windows."""
    layers = list(zip((pair.reference, pair.port), kinds, pair.shapes or (None, None), strict=True))
    if all(kind.name == "Identity" or (kind.drops and layer.p == 0) for layer, kind, _ in layers):
        return True
    window, port_window = (_window(layer, kind, shape) for layer, kind, shape in layers)
    return window is not None and window == port_window


def _window(layer: Model, kind: LayerKind, shape: tuple[int, ...] | None) -> object:
    """Return the windows of a pool that divides its input evenly; an adaptive pool has them if its sizes are known."""
    inputs = space(shape, getattr(layer, "data_format", getattr(layer, "_data_format", None)))
    if inputs is None or "Pool" not in kind.name or kind.name[:2] == "LP":
        return None
    what, axes = kind.name.removeprefix("Adaptive")[:3], len(inputs)
    if kind.name.startswith("Adaptive"):
        outputs = ntuple(held(layer, "_output_size", "output_size"), axes)
        wanted = [size if out is None else out for size, out in zip(inputs, outputs, strict=True)]
        if any(size % out for size, out in zip(inputs, wanted, strict=True)):
            return None
        return what, inputs, tuple(size // out for size, out in zip(inputs, wanted, strict=True))
    kernel = ntuple(held(layer, "ksize", "kernel_size"), axes)
    stride = kernel if layer.stride is None else ntuple(layer.stride, axes)
    even = all(size % length == 0 for size, length in zip(inputs, kernel, strict=True))
    single = kernel == tuple(inputs)
    plain_padding = ntuple(layer.padding, axes) == (0,) * axes
    return (what, inputs, kernel) if plain_padding and (single or (even and stride == kernel)) else None
