"""Parameters cut down after their optimizers were built: what updates element by element needs but some elements.

Gradients come from outside, so that both optimizers can as well be given smaller tensors: rules that go element by
element do the same to each, and norms (of a tensor, of all, of a group) are those of what is left, on both sides alike.
Builders have seen the whole tensors, so that what they decide by shape or size is decided as ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.conversion.layouts import Slot

MOST = 4096
"""Elements of a parameter that are kept at most, roughly."""
Picks = list[npt.NDArray[np.int64]]


def shrink(
    parameters: Mapping[str, Any], optimizer: Any, slots: Mapping[str, Slot], paddle: Any
) -> dict[str, Slot]:
    """Cut large parameters of both sides down to the same elements, in place, and what torch's optimizer keeps of them.

    Args:
        parameters: torch's, by name.
        optimizer: torch's, built over them.
        slots: where Paddle's model keeps each; its optimizer keeps nothing before the first step.
        paddle: the module.

    Returns:
        The slots with their new shapes.
    """
    held = Counter(id(part.tensor) for slot in slots.values() for part in slot.parts)
    found = dict(slots)
    for name, slot in slots.items():
        shapes = [part.shape for part in slot.parts]
        whole = (sum(shape[0] for shape in shapes), *shapes[0][1:]) if shapes[0] else ()
        shared = any(held[id(part.tensor)] > 1 for part in slot.parts)
        if int(np.prod(slot.shape)) <= MOST or whole != tuple(slot.shape) or shared:
            continue
        steps = _steps(whole)
        _shrink_torch(parameters[name], optimizer, _joined(shapes, steps))
        for part in slot.parts:
            every = tuple(slice(None, None, step) for step in (steps[::-1] if part.transpose else steps))
            with paddle.no_grad():
                array = part.tensor[every].numpy()
            # A tensor of dygraph has no other way to take another shape.
            part.tensor.get_tensor().set(np.ascontiguousarray(array), _place(part.tensor, paddle))
        kept = (sum(part.shape[0] for part in slot.parts), *slot.parts[0].shape[1:])
        found[name] = replace(slot, shape=kept)
    return found


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return of which elements along each axis one is kept: the longest axes are thinned first."""
    steps, left = [1] * len(shape), list(shape)
    while int(np.prod(left)) > MOST:
        axis = int(np.argmax(left))
        steps[axis] *= 2
        left[axis] = -(-shape[axis] // steps[axis])
    return tuple(steps)


def _picks(shape: tuple[int, ...], steps: tuple[int, ...]) -> Picks:
    return [np.arange(0, size, step) for size, step in zip(shape, steps, strict=True)]


def _joined(shapes: list[tuple[int, ...]], steps: tuple[int, ...]) -> Picks:
    """Return the elements that are kept of parts that stand one below the other."""
    starts = np.cumsum([0, *(shape[0] for shape in shapes[:-1])])
    first = [start + _picks(shape, steps)[0] for start, shape in zip(starts, shapes, strict=True)]
    return [np.concatenate(first), *_picks(shapes[0], steps)[1:]]


def _shrink_torch(parameter: Any, optimizer: Any, picks: Picks) -> None:
    """Cut a parameter and the tensors of its size that an optimizer holds from the start, as Adagrad does."""
    import torch

    whole = parameter.shape
    state = optimizer.state.get(parameter, {})
    states = {key: value for key, value in state.items() if torch.is_tensor(value) and value.shape == whole}

    def cut(tensor: Any) -> Any:
        for axis, pick in enumerate(picks):
            tensor = tensor.index_select(axis, torch.as_tensor(pick, device=tensor.device))
        return tensor.contiguous()

    parameter.data = cut(parameter.data)
    state.update((key, cut(value)) for key, value in states.items())


def _place(tensor: Any, paddle: Any) -> Any:
    place = tensor.place
    return paddle.CUDAPlace(place.gpu_device_id()) if place.is_gpu_place() else paddle.CPUPlace()
