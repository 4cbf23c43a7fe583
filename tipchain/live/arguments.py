"""What `tipchain.align` is given, checked before anything runs, and other inputs that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from tipchain.errors import UsageError
from tipchain.explain.locate.locate import samples_of
from tipchain.explain.locate.runs import ARGS, LABELS, ModelInputs
from tipchain.framework_types import Array, Tensor
from tipchain.frameworks.base import map_nested
from tipchain.numbers.dumps import read_npz
from tipchain.weights.files import array_of

FRAMEWORKS = "torch", "paddle"
WHOSE = "the reference's", "the port's"


def check_models(reference: object, port: object) -> None:
    """Refuse models that are swapped, or none.

    Raises:
        UsageError: the reference is no ``torch.nn.Module``, or the port no ``paddle.nn.Layer``.
    """
    import paddle
    import torch

    kinds: tuple[tuple[type, str], ...] = ((torch.nn.Module, "torch.nn.Module"), (paddle.nn.Layer, "paddle.nn.Layer"))
    if isinstance(reference, kinds[1][0]) and isinstance(port, kinds[0][0]):
        raise UsageError(
            "the models are swapped: the reference is a paddle.nn.Layer, the port a torch.nn.Module\n"
            "  expected: the torch module first, then the Paddle layer"
        )
    for where, model, (kind, name) in zip(("the reference", "the port"), (reference, port), kinds, strict=True):
        if not isinstance(model, kind):
            raise UsageError(f"{where} is a {_kind(model)}\n  expected: a {name}")


def as_inputs(inputs: object) -> Mapping[str, object]:
    """Return what both models are called with, by name: arrays, whatever they were given as.

    Args:
        inputs: a mapping (see `tipchain.align`), a tuple or list of forward's arguments, one of them alone, or the path of
            a ``.npz`` file. Tensors of either framework become arrays.
    """
    if isinstance(inputs, str | Path):
        return read_arrays(Path(inputs))
    if isinstance(inputs, Mapping):
        return {str(name): _as_arrays(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return {ARGS: tuple(_as_arrays(one) for one in inputs)}
    if isinstance(inputs, np.ndarray | np.generic) or (framework_of(inputs) and hasattr(inputs, "numpy")):
        return {ARGS: _as_arrays(inputs)}
    raise UsageError(
        f"inputs is a {_kind(inputs)}\n"
        "  expected: an array, a tensor, a tuple or dict of them, or the path of a .npz file"
    )


def _as_arrays(value: object) -> object:
    """Return tensors as arrays, in tuples, lists and mappings too; anything else as it is."""
    return map_nested(_as_array, value)


def _as_array(value: Tensor) -> object:
    if framework_of(value) and hasattr(value, "numpy"):
        return array_of(value) if framework_of(value) == "torch" else np.array(value.numpy())
    return value


def read_arrays(path: Path) -> dict[str, object]:
    """Return inputs from a ``.npz`` file: arrays by the name of forward's argument, several by ``args_0``, ``labels_0``, ….

    Raises:
        RecordError: it cannot be read, or holds anything but arrays.
        UsageError: one thing stands in it in several forms.
    """
    found: dict[str, object] = dict(read_npz(path))
    for name in (ARGS, LABELS):
        # Put ``name_0``, ``name_1`` in place as a tuple, and ``name.key`` as a mapping.
        numbered = {
            int(one.removeprefix(f"{name}_")): one
            for one in found
            if one.startswith(f"{name}_") and one.removeprefix(f"{name}_").isdecimal()
        }
        named = [one for one in found if name == LABELS and one.startswith(f"{name}.")]
        ways = [bool(numbered), bool(named), name in found]
        if sum(ways) > 1:
            raise UsageError(
                f"{path}: holds {name} in several forms\n  expected: {name}, or {name}_0, {name}_1, …"
                + (f", or {name}.KEY" if name == LABELS else "")
            )
        if numbered:
            found[name] = tuple(found.pop(numbered[number]) for number in sorted(numbered))
        elif named:
            found[name] = {one.removeprefix(f"{name}."): found.pop(one) for one in named}
    return found


def check_pair(name: str, given: object, *, lacking: bool = False) -> None:
    """Refuse what is no pair of callables, torch's first.

    Args:
        name: the argument.
        given: what it was given; None is nothing.
        lacking: whether one of the two may be None.

    Raises:
        UsageError: one callable in place of two, something that cannot be called, or a pair that is swapped.
    """
    if given is None:
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        what = f"{len(given)} things" if isinstance(given, tuple | list) else f"one {_kind(given)}"
        raise UsageError(f"{name} is {what}\n  expected: a pair, {name}=(torch's, Paddle's)")
    for number, one in enumerate(given):
        if one is None and lacking and any(other is not None for other in given):
            continue
        if not callable(one):
            raise UsageError(
                f"{name}: {WHOSE[number]} is a {_kind(one)}\n  expected: a callable{' or None' if lacking else ''}"
            )
    found = [framework_of(one) for one in given]
    if found[0] == FRAMEWORKS[1] or found[1] == FRAMEWORKS[0]:
        raise UsageError(
            f"{name}: {WHOSE[found[1] == FRAMEWORKS[0]]} is {found[found[1] == FRAMEWORKS[0]]}'s: is the pair swapped?\n"
            f"  expected: {name}=(torch's, Paddle's)"
        )


def check_outputs(chosen: tuple[object, ...]) -> None:
    """Refuse what chooses no output.

    Raises:
        UsageError: no pair, or something that is no name, index, callable or list of such.
    """
    if len(chosen) != 2:
        raise UsageError(
            f"outputs is a tuple of {len(chosen)}\n  expected: (of the reference, of the port); a list takes several"
        )
    for one in (part for each in chosen for part in (each if isinstance(each, list) else [each])):
        if not (one is None or isinstance(one, str | int) or callable(one)) or isinstance(one, bool):
            raise UsageError(f"outputs: found a {_kind(one)}\n  expected: a name, an index or a callable")


def framework_of(value: object) -> str:
    """Return of which framework an object, a class or a function is, or ""."""
    inner = getattr(value, "func", value)
    kinds = inner.__mro__ if isinstance(inner, type) else type(inner).__mro__
    names = [getattr(inner, "__module__", None), *(one.__module__ for one in kinds)]
    roots = [str(one).partition(".")[0] for one in names]
    return next((one for one in roots if one in FRAMEWORKS), "")


def _kind(value: object) -> str:
    return type(value).__name__


Lengths = Mapping[int, int]
"""New lengths by the old ones."""
EVEN = 32
"""What sizes of images are multiples of where a model halves them up to five times."""


def other_batch(inputs: ModelInputs) -> ModelInputs | None:
    """Return the first sample alone; of a batch of one two samples; None where the inputs have no common batch."""
    count = samples_of(inputs)
    if count is None or any(one.shape[:1] != (count,) for one in inputs.arrays()):
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
    arrays = inputs.arrays()
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
    args, kwargs = map_nested(
        lambda one: change(one) if isinstance(one, np.ndarray) else one, (inputs.args, inputs.kwargs)
    )
    return replace(inputs, args=args, kwargs=kwargs, labels=None)


def told_shapes(inputs: ModelInputs) -> str:
    """Return the shapes of inputs as messages have them."""
    return ", ".join(str(list(one.shape)) for one in inputs.arrays())
