"""Paddle weight files: written, and read without running what is in them. None of it needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType

import numpy as np

from tipchain.errors import WeightsError, did_you_mean, first_line
from tipchain.framework_types import Array, Model, Nested, Tensor
from tipchain.numbers.pickle_stream import DAMAGED, Refused, StreamReader, map_file
from tipchain.runs import replacing_path
from tipchain.weights.torch_files import SAFETENSORS, WEIGHTS_HINT, refuse_other_layout

NAME_TABLE = "StructuredToParameterName@@"
"""Entry that paddle.save adds: the internal names of parameters."""
FEW = 2**10
"""Elements up to which a copy takes less time than sharing a tensor's memory does."""


class _PaddleStream(StreamReader):
    """The names of a dump, and ``tuple``: how paddle.save writes a tensor that stands outside a state dict."""

    names = MappingProxyType(
        {**StreamReader.names, **{f"{module} tuple": "tuple" for module in ("builtins", "__builtin__")}}
    )
    calls = MappingProxyType({**StreamReader.calls, "tuple": StreamReader.as_it_is})


_SAFE_DTYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "BF16": "u2",
    "I64": "i8",
    "I32": "i4",
    "I16": "i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
    "C64": "c8",
}
"""numpy's dtype of a tensor in a .safetensors file, as far as Paddle has it; bfloat16 as its bits."""


def read_paddle_file(path: Path) -> dict[str, Nested]:
    """Return the dict that ``paddle.save`` wrote to ``path``, arrays as numpy arrays (bfloat16 as its bits, uint16).

    A ``.safetensors`` file with Paddle's layout is read likewise.

    Raises:
        WeightsError: missing, truncated, no dict, or holding anything but arrays, numbers and text;
            nothing in the file is run.
    """
    try:
        if path.suffix == SAFETENSORS:
            return _read_safetensors(path)
        found = _PaddleStream(map_file(path)).read_whole()
    except WeightsError:
        raise
    except FileNotFoundError as error:
        raise WeightsError("no such weight file", file=path, hint=WEIGHTS_HINT) from error
    except OSError as error:
        raise WeightsError("cannot be read", file=path, found=error.strerror or error) from error
    except (Refused, *DAMAGED) as error:
        raise WeightsError(
            "is no complete Paddle weight file",
            file=path,
            found=first_line(error),
            expected="a file written by paddle.save",
        ) from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise WeightsError("holds no state dict", file=path, found=type(found).__name__, expected="tensors by name")
    found.pop(NAME_TABLE, None)
    # Older versions save a tensor as (internal name, array).
    return {key: value[1] if _is_named_array(value) else value for key, value in found.items()}


def _read_safetensors(path: Path) -> dict[str, object]:
    from safetensors import SafetensorError, deserialize

    try:
        tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise Refused(first_line(error)) from error
    refuse_other_layout(path, "pd")
    for name, tensor in tensors.items():
        if tensor["dtype"] not in _SAFE_DTYPES:
            raise WeightsError("holds a dtype that Paddle lacks", file=path, key=name, found=tensor["dtype"])
    return {
        name: np.frombuffer(tensor["data"], _SAFE_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in tensors.items()
    }


def _is_named_array(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray)


def load_paddle_weights(model: object, path: Path) -> None:
    """Load the weight file ``path`` into a ``paddle.nn.Layer``; every key, shape and dtype must fit.

    Raises:
        WeightsError: unreadable, or it does not fit; all misfits are listed.
    """
    _set_state(model, read_paddle_file(path), path)


def _set_state(model: Model, state: Mapping[str, object], path: Path) -> None:
    wanted = model.state_dict()
    problems = misfits(state, wanted)
    if problems:
        raise WeightsError("does not fit the model", file=path, found="".join(f"\n    {one}" for one in problems))
    for name, tensor in wanted.items():
        tensor.set_value(state[name])


def misfits(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """Say how the arrays of ``state`` differ from ``wanted``, a Paddle model's state dict."""
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


def _paddle_dtype(tensor: Tensor) -> str:
    name = str(tensor.dtype).rpartition(".")[2]
    return "uint16" if name == "bfloat16" else name  # numpy has no bfloat16; Paddle uses its bits


def view_of(tensor: Tensor) -> Array:
    """Return a Paddle tensor's values, not copied where they are many and on the CPU; bfloat16 as its bits (uint16)."""
    large = prod(tensor.shape) > FEW and tensor.place.is_cpu_place()
    if large and _paddle_dtype(tensor) in ("float32", "float64", "int64", "int32"):
        shared: Array = np.from_dlpack(tensor.detach())
        return shared
    values: Array = tensor.numpy()
    return values


def save_paddle_file(state: Mapping[str, object], path: Path) -> None:
    """Write ``state`` beside ``path`` and rename it: as ``.safetensors`` if it is called so, else by ``paddle.save``.

    Args:
        state: Paddle tensors by name.
        path: the file.

    Raises:
        WeightsError: the disk is full or the folder cannot be written; ``path`` is then untouched.
    """
    try:
        with replacing_path(path) as beside:
            _save(state, beside)
    except OSError as error:
        raise WeightsError("cannot be written", file=path, found=error.strerror or error) from error


def _save(state: Mapping[str, object], path: Path) -> None:
    if path.suffix == SAFETENSORS:
        from safetensors.paddle import save_file

        save_file(dict(state), str(path), metadata={"format": "pd"})
    else:
        import paddle

        paddle.save(dict(state), str(path))


def write_paddle_file(model: Model, state: Mapping[str, Array], path: Path) -> None:
    """Set the Paddle model's tensors to ``state``, write them, and verify the file by loading it.

    The file is written beside ``path`` and renamed once every tensor in it has been found equal, bit by bit.

    Raises:
        WeightsError: it does not fit, cannot be written, or does not come back as it was; ``path`` is then untouched.
    """
    _set_state(model, state, path)
    try:
        with replacing_path(path) as beside:
            _save(model.state_dict(), beside)
            load_paddle_weights(model, beside)
            wrong = [
                name for name, tensor in model.state_dict().items() if tensor.numpy().tobytes() != state[name].tobytes()
            ]
            if wrong:
                raise WeightsError("differs from what was written", file=path, found=", ".join(wrong))
    except OSError as error:
        raise WeightsError("cannot be written", file=path, found=error.strerror or error) from error
