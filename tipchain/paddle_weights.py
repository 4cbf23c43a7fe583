"""Weights for Paddle: converted from torch's, written, and read without running what is in a file.

Only `convert_state` and `convert_file` need torch; the rest needs Paddle alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tipchain.errors import WeightsError, did_you_mean
from tipchain.layer_types import OWN, PaddleName, paddle_name, rule_for
from tipchain.runs import replacing_path
from tipchain.torch_weights import WEIGHTS_HINT, first_line, read_torch_state

Array = npt.NDArray[Any]
NAME_TABLE = "StructuredToParameterName@@"
"""Entry that paddle.save adds: the internal names of parameters."""
_HARMLESS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *(
        (f"numpy.{core}.multiarray", name)
        for core in ("core", "_core")
        for name in ("_reconstruct", "scalar")
    ),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
}
"""What a pickled dict of arrays mentions; anything else is refused before it is imported."""


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _HARMLESS:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it mentions {module}.{name}, which no weight file needs")


def read_paddle_file(path: Path) -> dict[str, Any]:
    """Return the dict that ``paddle.save`` wrote to ``path``, arrays as numpy arrays.

    Raises:
        WeightsError: missing, truncated, no dict, or holding anything but arrays, numbers and text;
            nothing in the file is run.
    """
    try:
        with path.open("rb") as file:
            found = _ArraysOnly(file, encoding="latin1").load()
    except FileNotFoundError as error:
        raise WeightsError("no such weight file", file=path, hint=WEIGHTS_HINT) from error
    except OSError as error:
        raise WeightsError("cannot be read", file=path, found=error) from error
    except Exception as error:  # a damaged pickle raises of any kind
        raise WeightsError(
            "is no complete Paddle weight file", file=path, found=first_line(error),
            expected="a file written by paddle.save",
        ) from error  # fmt: skip
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise WeightsError(
            "holds no state dict", file=path, found=type(found).__name__, expected="tensors by name"
        )
    found.pop(NAME_TABLE, None)
    # Older versions save a tensor as (internal name, array).
    return {key: value[1] if _is_named_array(value) else value for key, value in found.items()}


def _is_named_array(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray)


def load_paddle_weights(model: Any, path: Path) -> None:
    """Load the ``.pdparams`` file ``path`` into a ``paddle.nn.Layer``; every key, shape and dtype must fit.

    Raises:
        WeightsError: unreadable, or it does not fit; all misfits are listed.
    """
    _set_state(model, read_paddle_file(path), path)


def _set_state(model: Any, state: Mapping[str, Any], path: Path) -> None:
    wanted = model.state_dict()
    _refuse(_misfits(state, wanted), path)
    for name, tensor in wanted.items():
        tensor.set_value(state[name])


def _misfits(state: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Say how the arrays of ``state`` differ from the tensors of a Paddle model's state dict."""
    found = [f"missing: {name} {list(wanted[name].shape)}" for name in wanted if name not in state]
    for name, array in state.items():
        if name not in wanted:
            hint = did_you_mean(name, wanted)
            found.append(f"unknown: {name}" + (f", {hint}" if hint else ""))
        elif not isinstance(array, np.ndarray):
            found.append(f"no array: {name} is a {type(array).__name__}")
        else:
            shape, dtype = tuple(wanted[name].shape), _paddle_dtype(wanted[name])
            if array.shape != shape:
                found.append(f"shape: {name} is {list(array.shape)}, the model has {list(shape)}")
            if str(array.dtype) != dtype:
                found.append(f"dtype: {name} is {array.dtype}, the model has {dtype}")
    return found


def _paddle_dtype(tensor: Any) -> str:
    name = str(tensor.dtype).rpartition(".")[2]
    return "uint16" if name == "bfloat16" else name  # numpy has no bfloat16; Paddle uses its bits


def _refuse(misfits: list[str], path: Path | None) -> None:
    if misfits:
        raise WeightsError(
            "does not fit the model", file=path, found="".join(f"\n    {one}" for one in misfits)
        )


def save_paddle_file(state: Mapping[str, Any], path: Path) -> None:
    """Write ``state`` with ``paddle.save`` beside ``path`` and rename it.

    Raises:
        WeightsError: the disk is full or the folder cannot be written; ``path`` is then untouched.
    """
    import paddle

    try:
        with replacing_path(path) as beside:
            paddle.save(dict(state), str(beside))
    except OSError as error:
        raise WeightsError("cannot be written", file=path, found=error.strerror or error) from error


def convert_state(
    torch_model: Any,
    state: Mapping[str, Any],
    paddle_model: Any,
    names: Mapping[str, str] | None = None,
) -> dict[str, Array]:
    """Return torch's ``state`` under Paddle's names and in Paddle's layout.

    The torch layer that owns a key decides how it is stored: Linear weights are transposed,
    ``running_mean`` and ``running_var`` become ``_mean`` and ``_variance``, ``num_batches_tracked`` is dropped.

    Args:
        torch_model: the ``torch.nn.Module`` that ``state`` belongs to.
        state: tensors by name.
        paddle_model: the ``paddle.nn.Layer`` that the result must fit.
        names: Paddle's name by torch's, of tensors or of layers, where they differ.

    Raises:
        WeightsError: a layer of a type that is not supported, or unknown or missing keys, or shapes or
            dtypes that do not fit; all of them are listed.
    """
    names = names or {}
    problems = _unused(names, state) + _torch_misfits(torch_model, state)
    result: dict[str, Array] = {}
    for key, tensor in state.items():
        target = _target(torch_model, key, names)
        if isinstance(target, str):
            problems.append(target)
        elif target.name in result:
            problems.append(f"twice: {key} and another key both become {target.name}")
        elif target.name is not None:
            result[target.name] = _to_array(tensor, transpose=target.transpose)
    if not problems:
        problems = _misfits(result, paddle_model.state_dict())
    _refuse(problems, None)
    return result


def _unused(names: Mapping[str, str], state: Mapping[str, Any]) -> list[str]:
    return [
        f"names: {old} is no tensor or layer of the weight file"
        for old in names
        if old not in state and not any(key.startswith(f"{old}.") for key in state)
    ]


def _torch_misfits(torch_model: Any, state: Mapping[str, Any]) -> list[str]:
    """Say how ``state`` differs from the torch model's own state dict."""
    wanted = torch_model.state_dict()
    found = [f"missing: {key} {list(wanted[key].shape)}" for key in wanted if key not in state]
    for key, tensor in state.items():
        if key not in wanted:
            hint = did_you_mean(key, wanted)
            found.append(f"unknown: {key}" + (f", {hint}" if hint else ""))
        elif tensor.shape != wanted[key].shape:
            found.append(
                f"shape: {key} is {list(tensor.shape)}, the torch model has {list(wanted[key].shape)}"
            )
        elif tensor.dtype != wanted[key].dtype:
            found.append(f"dtype: {key} is {tensor.dtype}, the torch model has {wanted[key].dtype}")
    return found


def _target(torch_model: Any, key: str, names: Mapping[str, str]) -> PaddleName | str:
    """Return where ``key`` goes, or what is wrong with the layer that owns it."""
    try:
        owner = torch_model.get_submodule(key.rpartition(".")[0])
    except AttributeError:
        return paddle_name(key, OWN, names)  # already listed as unknown
    rule = rule_for(owner, "torch")
    if rule is None:
        return f"not supported: {key} belongs to a {type(owner).__name__}, which Paddle packs differently"
    return paddle_name(key, rule, names)


def _to_array(tensor: Any, *, transpose: bool) -> Array:
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        array: Array = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    else:
        array = tensor.numpy()
    return np.ascontiguousarray(array.T if transpose else array)


def convert_file(
    torch_model: Any,
    torch_path: Path,
    paddle_model: Any,
    paddle_path: Path,
    names: Mapping[str, str] | None = None,
) -> None:
    """Convert a torch weight file for the Paddle model, and verify the written file by loading it.

    ``paddle_path`` takes its name only once every tensor in it has been found equal.

    Raises:
        WeightsError: the input is unreadable or does not fit, or the output cannot be written.
    """
    import paddle

    try:
        converted = convert_state(torch_model, read_torch_state(torch_path), paddle_model, names)
    except WeightsError as error:
        if error.file is not None:
            raise
        raise WeightsError(error.message, file=torch_path, found=error.found) from error
    _set_state(paddle_model, converted, torch_path)
    try:
        with replacing_path(paddle_path) as beside:
            paddle.save(paddle_model.state_dict(), str(beside))
            _verify(beside, paddle_model, converted, paddle_path)
    except OSError as error:
        raise WeightsError("cannot be written", file=paddle_path, found=error.strerror or error) from error


def _verify(written: Path, paddle_model: Any, expected: Mapping[str, Array], path: Path) -> None:
    load_paddle_weights(paddle_model, written)
    wrong = [
        name
        for name, tensor in paddle_model.state_dict().items()
        if not np.array_equal(tensor.numpy(), expected[name], equal_nan=expected[name].dtype.kind == "f")
    ]
    if wrong:
        raise WeightsError("differs from what was written", file=path, found=", ".join(wrong))
