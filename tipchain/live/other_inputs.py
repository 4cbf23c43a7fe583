"""Inputs of another batch and of other sizes, made of those that were given: code may hold numbers that only these have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from tipchain.explain.locate.locate import samples_of
from tipchain.explain.locate.runs import ModelInputs
from tipchain.framework_types import Array

Lengths = Mapping[int, int]
"""New lengths by the old ones."""
EVEN = 32
"""What sizes of images are multiples of where a model halves them up to five times."""


def other_batch(inputs: ModelInputs) -> ModelInputs | None:
    """Return the first sample alone; of a batch of one two samples; None where the inputs have no common batch."""
    count = samples_of(inputs)
    arrays = [*inputs.args, *inputs.kwargs.values()]
    if count is None or any(one.ndim == 0 or one.shape[0] != count for one in arrays):
        return None
    return _each(inputs, _twice if count == 1 else _first)


def _first(array: Array) -> Array:
    return array[:1]


def _twice(array: Array) -> Array:
    """Return a sample, and one of the same values in another order."""
    return np.concatenate([array, np.roll(array, 1, axis=-1)]) if array.ndim > 1 else np.repeat(array, 2, axis=0)


def other_sizes(inputs: ModelInputs, *, last: bool) -> Iterator[ModelInputs]:
    """Yield inputs of other sizes: odd ones first, then those that can be halved. Ids and masks end in zeros, as padding does.

    Args:
        inputs: what was given.
        last: whether the last of three axes is the one that a model goes along, as one-dimensional convolutions do.
    """
    arrays = [*inputs.args, *inputs.kwargs.values()]
    shape = arrays[0].shape
    places: list[tuple[int, ...]] = []
    if len(shape) >= 4:
        places = [(len(shape) - 2, len(shape) - 1), (1, 2)]
    elif len(shape) == 3:
        places = [(2,)] if last else [(1,)]
    elif len(shape) == 2 and arrays[0].dtype.kind in "iu":
        places = [(1,)]
    for axes in places:
        first, second = axes[0], axes[-1]
        longer = shape[second] * 10 // 8
        even = shape[first] * 6 // 8 // EVEN * EVEN if shape[first] > EVEN else shape[first] // 2
        wanted = [
            {first: shape[first] * 6 // 8 | 1, second: longer | 1 if first == second else longer // 4 * 4 + 1},
            {first: shape[first] * 6 // 8 | 1},
        ]
        for lengths in (*wanted, {first: even}):
            if all(lengths.values()) and any(new != shape[axis] for axis, new in lengths.items()):
                yield _each(inputs, partial(_sized, shape=shape, lengths=lengths))


def _sized(array: Array, shape: tuple[int, ...], lengths: Lengths) -> Array:
    """Cut or repeat an array along the axes that are as long as those of the first input: at the same places, or of a sequence anywhere."""
    if array.ndim == 1 and len(lengths) == 1 and array.dtype.kind in "iu":
        ((axis, new),) = lengths.items()
        whole = array.size > 0 and int(array.max()) == shape[axis]  # lengths of sequences
        return np.maximum(array * new // shape[axis] - 1, 1).astype(array.dtype) if whole else array
    if array.shape == shape or len(lengths) > 1:
        same = array.ndim == len(shape)
        made = {axis: new for axis, new in lengths.items() if same and array.shape[axis] == shape[axis]}
    else:
        olds = {shape[axis]: new for axis, new in lengths.items()}
        made = {axis: olds[size] for axis, size in enumerate(array.shape) if axis and size in olds}
    for axis, new in made.items():
        array = np.take(array, np.arange(new) % array.shape[axis], axis=axis)
    return _padded(array) if made and array.ndim == 2 else array


def _padded(array: Array) -> Array:
    """Return ids, or a mask of ones, with zeros at the end of each row."""
    marks = array.dtype.kind in "iub" and int(array.min()) >= 0
    if not marks and not np.isin(array, (0, 1)).all():
        return array
    array = array.copy()
    array[:, -max(array.shape[1] // 4, 1) :] = 0
    return array


def others(inputs: ModelInputs) -> ModelInputs:
    """Return inputs of the same shapes with their values in another order."""
    return _each(inputs, lambda one: np.roll(one, 1, axis=-1) if one.ndim > 1 else one)


def _each(inputs: ModelInputs, change: Callable[[Array], Array]) -> ModelInputs:
    made = {name: change(one) for name, one in inputs.kwargs.items()}
    return replace(inputs, args=tuple(map(change, inputs.args)), kwargs=made, labels=None)


def told_shapes(inputs: ModelInputs) -> str:
    """Return the shapes of inputs as messages have them."""
    return ", ".join(str(list(one.shape)) for one in (*inputs.args, *inputs.kwargs.values()))
