"""Square matrices of users' own classes: which axis is the output is told by what the layer computes."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tipchain.conversion.layouts import LayerTensors, Slot
from tipchain.conversion.structure import joins, squeezed
from tipchain.layer_types import OWN_KIND

Way = Literal["out, in", "in, out"]
Array = npt.NDArray[Any]


class OwnMatrices:
    """What the own layers of two models do with their square matrices.

    Attributes:
        assumed: what could not be told, of matrices that both models keep in classes of their own.
    """

    def __init__(self, torch_model: Any, paddle_model: Any) -> None:
        self.models = torch_model, paddle_model
        self.assumed: list[str] = []

    def turned(self, ours: tuple[LayerTensors, Slot], theirs: tuple[LayerTensors, Slot]) -> bool | None:
        """Tell whether one of two square matrices is the other's transpose in torch's layout; None where it cannot be told.

        What both models keep in classes of their own and do not apply as a layer is taken to be kept alike.
        """
        ways = [self._way(side, *one) for side, one in enumerate((ours, theirs))]
        if None not in ways:
            return ways[0] != ways[1]
        if ours[0].kind == theirs[0].kind == OWN_KIND:
            self.assumed.append(
                f"{ours[1].name} {list(ours[1].shape)} is square, and of a class of its own in both models: taken as it is"
            )
            return False
        return None

    def joined(self, ours: Slot, theirs: Slot) -> bool | None:
        """Tell whether a tensor of which one model joins axes is the other's transpose then; None where joining does not do."""
        flat, other = squeezed(ours.shape), squeezed(theirs.shape)
        ways = [turned for turned in (False, True) if joins(flat, other[::-1] if turned else other)]
        ways = [turned for turned in ways if not turned or len(other) == 2]
        if not ways:
            return None
        how = "transposed, and with its axes joined" if ways[0] else "with its axes joined"
        self.assumed.append(
            f"{ours.name} {list(ours.shape)} is {list(theirs.shape)} in the port: taken as the same {how}"
        )
        return ways[0]

    def _way(self, side: int, layer: LayerTensors, slot: Slot) -> Way | None:
        if layer.kind != OWN_KIND:
            return "out, in"
        name = slot.parts[0].names if slot.parts else (slot.name,)
        found = self._owner(side, layer.path)
        leaf = next((one.rpartition(".")[2] for one in name), "")
        return None if found is None else _applied(found, leaf, side)

    def _owner(self, side: int, path: str) -> Any:
        """Return the layer at a path, if it holds nothing but tensors."""
        model = self.models[side]
        layers = dict(model.named_modules() if side == 0 else model.named_sublayers(include_self=True))
        layer = layers.get(path)
        return None if layer is None or list(layer.children()) else layer


def _applied(layer: Any, leaf: str, side: int) -> Way | None:
    """Return how a copy of a layer with random numbers multiplies by its matrix, None if it does nothing of the kind."""
    rng = np.random.default_rng(0)
    try:
        made = copy.deepcopy(layer)
        held = {
            name: rng.standard_normal(tuple(one.shape)).astype(np.float32)
            for name, one in made.named_parameters()
        }
        _fill(made, held, side)
        matrix = held[leaf]
        biases = [one for name, one in held.items() if one.ndim == 1 and name != leaf]
        if len(held) > 1 + len(biases) or len(biases) > 1:
            return None
        given = rng.standard_normal((3, matrix.shape[0])).astype(np.float32)
        result = _run(made, given, side)
    except Exception:  # noqa: BLE001  (a layer of the user's own may need anything, and may raise anything)
        return None
    bias = biases[0] if biases else np.float32(0)
    ways: dict[Way, Array] = {"out, in": given @ matrix.T + bias, "in, out": given @ matrix + bias}
    fits: list[Way] = [way for way, expected in ways.items() if _is_close(result, expected)]
    return fits[0] if len(fits) == 1 else None


def _fill(layer: Any, values: dict[str, Array], side: int) -> None:
    if side == 0:
        import torch

        with torch.no_grad():
            for name, one in layer.named_parameters():
                one.copy_(torch.from_numpy(values[name]))
    else:
        for name, one in layer.named_parameters():
            one.set_value(values[name].astype(str(one.dtype).rpartition(".")[2]))


def _run(layer: Any, given: Array, side: int) -> Array:
    if side == 0:
        import torch

        with torch.no_grad():
            return np.asarray(layer(torch.from_numpy(given)).numpy())
    import paddle

    with paddle.no_grad():
        return np.asarray(layer(paddle.to_tensor(given)).numpy())


def _is_close(result: Array, expected: Array) -> bool:
    """Tell whether two products are equal but for rounding; another layout of random numbers is off by their size."""
    return result.shape == expected.shape and bool(np.allclose(result, expected, rtol=1e-3, atol=1e-3))
