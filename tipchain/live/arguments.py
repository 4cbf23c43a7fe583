"""The arguments of `tipchain.align`, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tipchain.errors import UsageError
from tipchain.explain.locate.runs import ARGS, LABELS
from tipchain.framework_types import Function, Tensor
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
            raise UsageError(f"{where} is a {type(model).__name__}\n  expected: a {name}")


def as_inputs(inputs: object) -> Mapping[str, object]:
    """Return both models' inputs by name: arrays, whatever they were given as.

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
        f"inputs is a {type(inputs).__name__}\n"
        "  expected: an array, a tensor, a tuple or dict of them, or the path of a .npz file"
    )


def _as_arrays(value: object) -> object:
    """Return tensors as arrays, in tuples, lists and mappings too; anything else as it is."""

    def as_array(one: Tensor) -> object:
        if framework_of(one) and hasattr(one, "numpy"):
            return array_of(one) if framework_of(one) == "torch" else np.array(one.numpy())
        return one

    return map_nested(as_array, value)


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


def check_pair(name: str, given: object, *, lacking: bool = False, called: bool = True) -> None:
    """Refuse all but a pair, torch's first, of callables unless they are not ``called``.

    Args:
        name: the argument.
        given: what it was given; None is nothing.
        lacking: whether one of the two may be None.
        called: whether both are functions.

    Raises:
        UsageError: one thing in place of two, something that cannot be called, or a pair that is swapped.
    """
    if given is None:
        return
    if not isinstance(given, tuple | list) or len(given) != 2:
        what = f"{len(given)} things" if isinstance(given, tuple | list) else f"one {type(given).__name__}"
        raise UsageError(f"{name} is {what}\n  expected: a pair, {name}=(torch's, Paddle's)")
    if not called:
        return
    for whose, one in zip(WHOSE, given, strict=True):
        if one is None and lacking and any(other is not None for other in given):
            continue
        if not callable(one):
            raise UsageError(
                f"{name}: {whose} is a {type(one).__name__}\n  expected: a callable{' or None' if lacking else ''}"
            )
    for whose, one, other in zip(WHOSE, given, reversed(FRAMEWORKS), strict=True):
        if framework_of(one) == other:
            raise UsageError(
                f"{name}: {whose} is {other}'s: is the pair swapped?\n  expected: {name}=(torch's, Paddle's)"
            )


def required(function: Function) -> list[str]:
    """Return the names of a function's positional parameters without a default."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind in plain and one.default is one.empty]


def as_callable(made: object, call: str, given: str) -> Function:
    """Return what a call of the user's function gave, which is called with ``given``.

    Raises:
        UsageError: it cannot be called.
    """
    if not callable(made):
        raise UsageError(f"`{call}` returned a {type(made).__name__}, expected a callable of `{given}`")
    return made


def framework_of(value: object) -> str:
    """Return of which framework an object, a class or a function is, or ""."""
    inner = getattr(value, "func", value)
    kinds = inner.__mro__ if isinstance(inner, type) else type(inner).__mro__
    names = [getattr(inner, "__module__", None), *(one.__module__ for one in kinds)]
    roots = [str(one).partition(".")[0] for one in names]
    return next((one for one in roots if one in FRAMEWORKS), "")
