"""Weight files of torch and Paddle, read without running code in them, and written."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import prod
from pathlib import Path
from reprlib import repr as brief
from types import MappingProxyType
from typing import Literal
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from tipchain.core.files import replacing_path
from tipchain.core.json_text import Json
from tipchain.errors import WeightsError, first_line, suggestion
from tipchain.framework_types import Array, Model, Nested, Tensor
from tipchain.numbers.pickle_stream import (
    DAMAGED,
    SHARED,
    Bytes,
    Global,
    Refused,
    Streamed,
    StreamReader,
    count_of,
    map_file,
)
from tipchain.weights.sides import dtype_name

SAFETENSORS = ".safetensors"


def refuse_other_layout(path: Path, layout: str) -> None:
    """Refuse a ``.safetensors`` file that says it holds the other framework's layout (``"pt"`` or ``"pd"``).

    Raises:
        WeightsError: it does.
    """
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        stated = (file.metadata() or {}).get("format")
    if stated in ("pt", "pd") and stated != layout:
        names = {"pt": "torch's", "pd": "Paddle's"}
        raise WeightsError(
            "holds the other framework's weights",
            file=path,
            found=f"{names[stated]} (format: {stated})",
            expected=names[layout],
            hint="tipchain convert-weights makes one from the other",
        )


@contextmanager
def _reading(path: Path, whose: str, expected: str) -> Iterator[None]:
    """Turn what may go wrong when a weight file is read into one error that names the file.

    Raises:
        WeightsError: missing, unreadable, or no complete weight file.
    """
    from safetensors import SafetensorError

    if not path.is_file():
        library = whose.lower()
        hint = f"`tipchain align CASE --prepare` makes a case's weights; `{library}.save(model.state_dict(), FILE)` writes a model's"
        raise WeightsError("no such weight file", file=path, hint=hint)
    try:
        yield
    except OSError as error:
        raise WeightsError("cannot be read", file=path, found=error.strerror or error) from error
    except (Refused, SafetensorError, BadZipFile, NotImplementedError, *DAMAGED) as error:
        raise WeightsError(
            f"is no complete {whose} weight file", file=path, found=first_line(error), expected=expected
        ) from error


def read_torch_state(path: Path) -> dict[str, Tensor]:
    """Return the state dict of a torch or ``.safetensors`` file, on the CPU.

    Tensors are views of the mapped file; writing to one changes nothing but this process's memory.

    Raises:
        WeightsError: missing, truncated, foreign, or holding more than tensors; nothing in it is run.
    """
    import torch

    with _reading(path, "torch", "tensors by name, written by torch.save(model.state_dict(), ...)"):
        if path.suffix == SAFETENSORS:
            from safetensors.torch import load_file

            refuse_other_layout(path, "pt")
            state: Json = load_file(path)
        else:
            state = _read_archive(path)
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(torch.is_tensor(value) for value in state.values()):
        raise WeightsError("holds no state dict", file=path, found=type(state).__name__, expected="tensors by name")
    return dict(state)


def load_torch_weights(model: Model, path: Path) -> dict[str, Tensor]:
    """Load a torch or ``.safetensors`` file into a model, and return its state dict.

    Raises:
        WeightsError: it cannot be read, or not every key fits.
    """
    state, own = read_torch_state(path), model.state_dict()
    if fits := state.keys() == own.keys():
        own.update(state)  # it has the versions of layers, without which some refuse to load
    try:
        model.load_state_dict(own if fits else state, strict=True)
    except RuntimeError as error:
        raise WeightsError("does not fit the torch model", file=path, found=str(error)) from error
    return state


_NAMES = "Double Float Half BFloat16 Long Int Short Char Byte Bool ComplexFloat ComplexDouble".split()
_TYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()
_STORAGES = MappingProxyType({f"{name}Storage": dtype for name, dtype in zip(_NAMES, _TYPES, strict=True)})
"""Source: ``torch.storage._storage_type_to_dtype_map``, without the dtypes that Paddle lacks."""
_BITS = MappingProxyType({**{name: name for name in _STORAGES.values()}, "bfloat16": "int16"})
"""torch's dtypes to numpy's of the same width that torch.from_numpy takes."""
_LOCAL_HEADER = struct.Struct("<26xHH")
"""Lengths of the name and of the field after it, at the end of a zip entry's header."""


@dataclass(slots=True, eq=False)
class _Storage:
    """Bytes that tensors share; their place is known once the file was read."""

    key: str
    dtype: str
    start: int


@dataclass(slots=True, eq=False)
class _Tensor:
    """A tensor's place in its storage, in elements."""

    storage: Streamed
    offset: Streamed
    shape: Streamed
    strides: Streamed


def _rebuilt(
    _: StreamReader, storage: Streamed, offset: Streamed, shape: Streamed, strides: Streamed, *more: Streamed
) -> _Tensor:
    if any(more[2:]):  # behind whether it takes gradients, and its hooks
        raise Refused("a tensor that is still to be conjugated or negated")
    return _Tensor(storage, offset, shape, strides)


class _TorchStream(StreamReader):
    """The names of a dump, and those of torch's tensors. Source: ``torch._weights_only_unpickler``."""

    names = MappingProxyType(
        {
            **StreamReader.names,
            **{
                f"torch._utils {name}": name
                for name in ("_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_parameter_with_state")
            },
            **{f"{module} {name}": name for module in ("torch", "torch.storage") for name in _STORAGES},
            **{f"torch {name}": name for name in _BITS},
            "torch.serialization _get_layout": "_get_layout",
            "torch Size": "tuple",
            "torch device": "device",
            "collections Counter": "tuple",
            **{f"{module} set": "tuple" for module in ("builtins", "__builtin__")},
        }
    )
    calls = MappingProxyType(
        {
            **StreamReader.calls,
            "_rebuild_tensor_v2": _rebuilt,
            "_rebuild_parameter": lambda _, tensor, *_more: tensor,
            "_rebuild_parameter_with_state": lambda _, tensor, *_more: tensor,
            "device": lambda _, *parts: ":".join(str(part) for part in parts if isinstance(part, (str, int))),
        }
    )

    def __init__(self, data: Bytes, start: int = 0) -> None:
        super().__init__(data, start)
        self.storages: dict[str, tuple[int, int]] = {}
        self.mentioned: dict[str, str] = {}

    def persistent(self, key: Streamed) -> _Storage:
        """Return the storage of ``key``: kind, type, key, device, elements, in old files a view."""
        if not isinstance(key, tuple) or len(key) not in (5, 6) or key[0] != "storage":
            raise Refused(f"something outside the stream, {brief(key)}")
        kind, name, part = key[1], key[2], key[5] if len(key) == 6 else None
        if not isinstance(kind, Global) or kind.name not in _STORAGES or not isinstance(name, str):
            raise Refused(f"a storage of type {brief(getattr(kind, 'name', kind))}")
        start = part[1] if isinstance(part, tuple) else 0
        if not isinstance(start, int) or not 0 <= start < 2**62:
            raise Refused("a view of a storage that begins nowhere")
        dtype = _STORAGES[kind.name]
        if self.mentioned.setdefault(name, dtype) != dtype:
            raise Refused(f"a storage of {dtype} and {self.mentioned[name]}")
        return _Storage(name, dtype, start)

    def value(self, value: Streamed, path: str) -> Streamed:
        """Return a tensor, and the name of a dtype as text."""
        if not isinstance(value, _Tensor):
            return value.name if isinstance(value, Global) else super().value(value, path)
        import torch

        storage, shape, strides = value.storage, value.shape, value.strides
        numbers = (value.offset, *strides) if isinstance(strides, tuple) else (None,)
        if not isinstance(storage, _Storage) or not all(isinstance(n, int) and 0 <= n < 2**62 for n in numbers):
            raise Refused("a tensor without storage")
        if len(strides) != len(shape):
            raise Refused(f"a tensor of shape {brief(shape)} and strides {brief(strides)}")
        count = count_of(shape)
        if storage.key not in self.storages:
            raise Refused(f"a tensor whose storage {brief(storage.key)} is not in the file")
        start, stop = self.storages[storage.key]
        bits = np.dtype(_BITS[storage.dtype])
        size = bits.itemsize
        first = start + (storage.start + value.offset) * size
        if not count:
            array = np.zeros(shape, bits)
        else:
            reach = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
            if first + (reach + 1) * size > stop:
                raise Refused(f"a tensor of shape {brief(shape)} beyond its storage's {stop - start} bytes")
            if count * size > SHARED * len(self.data):
                raise Refused(f"a tensor of shape {brief(shape)} in a file of {len(self.data)} bytes")
            array = np.ndarray(shape, bits, self.data, first, tuple(step * size for step in strides))
        return torch.from_numpy(array).view(getattr(torch, storage.dtype))


def _read_archive(path: Path) -> Streamed:
    """Return the value that torch.save wrote, as a zip archive or older."""
    data = map_file(path)
    if data[:4] == b"PK":
        with ZipFile(path) as archive:
            entries = {entry.filename: _place(entry, data) for entry in archive.infolist()}
        (pickled,) = [name for name in entries if name.endswith("/data.pkl")] or [""]
        if not pickled or pickled.replace("data.pkl", "constants.pkl") in entries:
            raise Refused("a TorchScript archive" if pickled else "a zip archive without data.pkl")
        top = pickled.removesuffix("data.pkl")
        if bytes(data[slice(*entries.get(f"{top}byteorder", (0, 0)))]) == b"big":
            raise Refused("a file that was written on a big-endian machine")
        start, stop = entries[pickled]
        stream = _TorchStream(data, start)
        root = stream.read()
        if stream.at > stop:
            raise Refused("a pickle stream that goes on behind its entry")
        known = (key for key in stream.mentioned if f"{top}data/{key}" in entries)
        stream.storages = {key: entries[f"{top}data/{key}"] for key in known}
        return stream.finish(root)
    stream = _TorchStream(data)
    if stream.read() != 0x1950A86A20F9469CFC6C:  # torch.serialization.MAGIC_NUMBER, of files before torch 1.6
        raise Refused("a file that torch.save did not write")
    _version, facts = stream.read(), stream.read()
    if not isinstance(facts, dict) or facts.get("little_endian") is not True:
        raise Refused("a file that says nothing of its byte order, or was written on a big-endian machine")
    root, keys = stream.read(), stream.read()
    at = stream.at
    for key in keys if isinstance(keys, list) else ():
        (count,) = struct.unpack_from("<q", data, at)
        start, at = at + 8, at + 8 + count * np.dtype(_BITS[stream.mentioned[key]]).itemsize
        if count < 0 or at > len(data):
            raise Refused(f"a storage that ends {at - len(data)} bytes behind the file")
        stream.storages[key] = start, at
    return stream.finish(root)


def _place(entry: ZipInfo, data: Bytes) -> tuple[int, int]:
    if entry.compress_type != ZIP_STORED:
        raise Refused(f"a compressed entry, {brief(entry.filename)}")
    name, more = _LOCAL_HEADER.unpack_from(data, entry.header_offset)
    start = entry.header_offset + _LOCAL_HEADER.size + name + more
    if start + entry.file_size > len(data):
        raise Refused(f"an entry that ends behind the file, {brief(entry.filename)}")
    return start, start + entry.file_size


def misfits(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], whose: str = "the model") -> list[str]:
    """Say how the arrays of ``state`` differ from ``wanted``, the state dict of a model."""
    differences = [f"missing: {name} {list(one.shape)}" for name, one in wanted.items() if name not in state]
    same = {"uint16": "bfloat16"}  # numpy has none, and Paddle uses its bits
    for name, one in state.items():
        if name not in wanted:
            differences.append(f"unknown: {name}{suggestion(name, wanted)}")
        elif not hasattr(one, "shape"):
            differences.append(f"no array: {name} is a {type(one).__name__}")
        elif list(one.shape) != list(wanted[name].shape):
            differences.append(f"shape: {name} is {list(one.shape)}, {whose} has {list(wanted[name].shape)}")
        else:
            dtype, expected = (same.get(kind, kind) for kind in map(dtype_name, (one, wanted[name])))
            differences += [] if dtype == expected else [f"dtype: {name} is {dtype}, {whose} has {expected}"]
    return differences


def array_of(tensor: Tensor) -> Array:
    """Return a torch tensor's values as an array, bfloat16 as its bits (uint16).

    Raises:
        WeightsError: a dtype that Paddle's files do not have.
    """
    import torch

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
        return bits
    try:
        array: Array = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:  # float8, quantized, sparse
        raise WeightsError("this kind of tensor cannot be converted", found=f"{tensor.dtype}") from error
    return np.asarray(array, order="C")


def tensor_of(array: Array, dtype: str) -> Tensor:
    """Return the torch tensor of ``array``, the inverse of `array_of`; ``dtype`` is such as ``"bfloat16"``."""
    import torch

    array = np.array(array, order="C")
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


_SAFE = "F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL C64".split()
SAFE_DTYPES = dict(zip(_SAFE, "f8 f4 f2 u2 i8 i4 i2 i1 u1 ? c8".split(), strict=True))
"""numpy's dtype of a tensor in a .safetensors file, as far as Paddle has it; bfloat16 as its bits."""


def read_paddle_file(path: Path) -> dict[str, Nested]:
    """Return the dict of ``paddle.save`` as numpy arrays, bfloat16 as its bits (uint16).

    A ``.safetensors`` file with Paddle's layout is read likewise.

    Raises:
        WeightsError: missing, truncated, no dict, or holding anything but arrays, numbers and text;
            nothing in the file is run.
    """
    with _reading(path, "Paddle", "a file written by paddle.save"):
        if path.suffix == SAFETENSORS:
            from safetensors import deserialize

            tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
            refuse_other_layout(path, "pd")
            for name, tensor in tensors.items():
                if tensor["dtype"] not in SAFE_DTYPES:
                    raise WeightsError("holds a dtype that Paddle lacks", file=path, key=name, found=tensor["dtype"])
            return {
                name: np.frombuffer(tensor["data"], SAFE_DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
                for name, tensor in tensors.items()
            }
        stream = StreamReader(map_file(path))
        state = stream.finish(stream.read())
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise WeightsError("holds no state dict", file=path, found=type(state).__name__, expected="tensors by name")
    state.pop("StructuredToParameterName@@", None)  # paddle.save adds the internal names of parameters
    # Older versions save a tensor as (internal name, array).
    return {
        key: value[1] if (isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray)) else value
        for key, value in state.items()
    }


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


def view_of(tensor: Tensor) -> Array:
    """Return a Paddle tensor's values, many uncopied, bfloat16 as its bits (uint16)."""
    large = prod(tensor.shape) > 2**10 and tensor.place.is_cpu_place()  # fewer are copied faster than shared
    if large and dtype_name(tensor) in ("float32", "float64", "int64", "int32"):
        shared: Array = np.from_dlpack(tensor.detach())
        return shared
    values: Array = tensor.numpy()
    return values


def write_weights(side: Literal["torch", "paddle"], model: Model, state: Mapping[str, Tensor], path: Path) -> None:
    """Write ``state`` for a model (a Paddle model is given it), and verify the file by reading it.

    The file is written beside ``path`` and renamed once every tensor in it has been found equal, bit by bit: a
    ``.safetensors`` file if ``path`` is called so, else what ``torch.save`` or ``paddle.save`` writes.

    Raises:
        WeightsError: it does not fit, cannot be written, or does not come back as it was; ``path`` is then untouched.
    """
    whole = model.state_dict()  # torch's with the versions of the layers, which it keeps beside the tensors
    if side == "torch":
        for name in whole:
            whole[name] = state[name].detach().clone().contiguous()
    else:
        _set_state(model, state, path)
    wanted = {name: array_of(one) for name, one in whole.items()} if side == "torch" else state
    try:
        with replacing_path(path) as beside:
            if path.suffix == SAFETENSORS:
                layout = {"format": "pt" if side == "torch" else "pd"}
                import_module(f"safetensors.{side}").save_file(dict(whole), str(beside), metadata=layout)
            else:
                import_module(side).save(whole if side == "torch" else dict(whole), str(beside))
            read = read_torch_state(beside) if side == "torch" else read_paddle_file(beside)
            written = {name: array_of(one) for name, one in read.items()} if side == "torch" else read
            wrong = [
                name for name, one in written.items() if name in wanted and one.tobytes() != wanted[name].tobytes()
            ]
            if wrong := [*wrong, *misfits(written, wanted)]:
                raise WeightsError("differs from what was written", file=path, found=", ".join(wrong))
    except OSError as error:
        raise WeightsError("cannot be written", file=path, found=error.strerror or error) from error
