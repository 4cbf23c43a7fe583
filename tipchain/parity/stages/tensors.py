"""The large captures of a stage, in a safetensors file beside its dump: read where they lie, written one by one."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tipchain.core.files import replacing_path
from tipchain.core.json_text import Json, JsonObject
from tipchain.errors import RecordError
from tipchain.framework_types import Array, Tensor
from tipchain.numbers.compare import PIECE
from tipchain.numbers.pickle_stream import map_file

T = TypeVar("T")
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
    "C64": "<c8",
}
"""The format's names of types that numpy can read where they lie."""


class NamedTensors(Mapping[str, T]):
    """Tensors that are loaded when they are asked for, by the names in ``_names``."""

    _names: dict[str, None]

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would load the tensor to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class TensorFile(NamedTensors[Any]):
    """The tensors of a safetensors file: views of the mapped file, as far as numpy has their dtype.

    Raises:
        RecordError: the file is missing or no complete safetensors file.
    """

    def __init__(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            self._file: Any = safe_open(path, framework="numpy")
            self._names = dict.fromkeys(self._file.keys())  # type: ignore[no-untyped-call]
            self._bytes = map_file(path)
        except (SafetensorError, OSError) as error:
            raise RecordError("is no complete safetensors file", file=path, found=error) from error
        # That every tensor lies within the file, and is as long as its shape says, was just checked.
        self._start = 8 + int.from_bytes(self._bytes[:8], "little")
        self._header: dict[str, Json] = json.loads(self._bytes[8 : self._start])

    def __enter__(self) -> TensorFile:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        del self._file, self._bytes

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        facts = self._header[name]
        if facts["dtype"] not in DTYPES:
            return self._file.get_tensor(name)
        begin, count = self._start + facts["data_offsets"][0], prod(facts["shape"])
        return np.frombuffer(self._bytes, DTYPES[facts["dtype"]], count, begin).reshape(facts["shape"])


# Writing: what is large goes to the file at once, so that nobody keeps a copy of it.


ROWS = 32
"""Rows of a transposed matrix that are copied at once: their source then fits into a core's cache."""


class TensorWriter(NamedTensors[Any]):
    """Writes a safetensors file tensor by tensor; each can be read once it is written.

    Floats of eight bytes become those of four, which hold far more than any tolerance asks for; single numbers stay. The
    file takes the place of ``path`` when it is finished; one that never is goes with this object.

    Args:
        path: the file.
        room: what the header and all elements of eight bytes may take, in front of the rest: the sum of `room_for`.
    """

    def __init__(self, path: Path, room: int) -> None:
        self._path, self._names = path, dict[str, None]()
        self._written: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._waiting: dict[str, Array] = {}
        self._room = 16 + room + -room % 8
        self._stack = ExitStack()
        beside = self._stack.enter_context(replacing_path(path))
        self._file = self._stack.enter_context(beside.open("w+b"))
        self._file.seek(self._room)
        weakref.finalize(self, _abandon, self._stack)

    def __setitem__(self, name: str, array: Array) -> None:
        if name in self._names:
            raise AssertionError(f"{name} is written already")
        self._names[name] = None
        if not is_streamed(array):
            self._waiting[name] = array
            return
        self._written[name] = self._file.tell(), array.shape
        # In float32, in pieces that fit into a core's cache.
        if array.ndim == 2 and array.T.flags.c_contiguous:  # a matrix that lies transposed
            for start in range(0, len(array), ROWS):
                rows = array[start : start + ROWS].T.astype("<f4", order="C")  # read as they lie
                self._file.write(np.ascontiguousarray(rows.T).reshape(-1).data)
            return
        flat = np.ascontiguousarray(array).reshape(-1)
        for start in range(0, flat.size, PIECE):
            self._file.write(flat[start : start + PIECE].astype("<f4", copy=False).data)

    def __getitem__(self, name: str) -> Array:
        if name in self._waiting:
            return self._waiting[name]
        start, shape = self._written[name]
        self._file.flush()
        return np.memmap(self._file, "<f4", "r", start, shape) if prod(shape) else np.zeros(shape, "<f4")

    def finish(self) -> None:
        """Write the waiting tensors, and let the file take its place.

        Raises:
            OSError: the disk is full, or a tensor is of a dtype that such a file cannot hold; ``path`` is then untouched.
        """
        with self._stack:
            front, back = (
                {name: one for name, one in self._waiting.items() if (one.itemsize > 4) is wide}
                for wide in (True, False)
            )
            first = self._room - sum(one.nbytes for one in front.values())
            header, end = {}, 0
            for name, one in _largest_first(front):
                header[name], end = _entry(self._path, name, one.dtype, one.shape, end)
            for name, (start, shape) in self._written.items():
                header[name], end = _entry(self._path, name, np.dtype("<f4"), shape, start - first)
            for name, one in _largest_first(back):
                header[name], end = _entry(self._path, name, one.dtype, one.shape, end)
                self._file.write(np.ascontiguousarray(one).reshape(-1).data)
            text = json.dumps(header).encode()
            assert len(text) <= first - 8  # or `room_for` counts too little
            self._file.seek(0)
            self._file.write((first - 8).to_bytes(8, "little") + text.ljust(first - 8))
            for _, one in _largest_first(front):
                self._file.write(np.ascontiguousarray(one).reshape(-1).data)


def _abandon(stack: ExitStack) -> None:
    """Leave a stack's contexts as after an exception; nothing happens where that was left already."""
    with suppress(GeneratorExit), stack:
        raise GeneratorExit


def is_streamed(array: Array) -> bool:
    """Tell whether a `TensorWriter` writes an array at once."""
    return bool(array.ndim) and array.dtype in (np.float32, np.float64)


def room_for(name: str, array: Array) -> int:
    """Return the room of a tensor in front of the others of a `TensorWriter`'s file."""
    entry = len(json.dumps(name)) + 100 + 22 * array.ndim
    return entry + (0 if is_streamed(array) else array.nbytes + 8)


def _entry(path: Path, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], begin: int) -> tuple[JsonObject, int]:
    """Return a tensor's entry of the header, and where that ends."""
    kind = next((known for known, one in DTYPES.items() if np.dtype(one) == dtype), None)
    if kind is None:
        raise OSError(f"{path} cannot be written: {name} is of dtype {dtype}")
    end = begin + prod(shape) * dtype.itemsize
    return {"dtype": kind, "shape": shape, "data_offsets": (begin, end)}, end


def _largest_first(arrays: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """Return arrays by the size of their elements, so that each lies at a multiple of its own."""
    return sorted(arrays.items(), key=lambda one: (-one[1].itemsize, one[0]))


def save_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write a safetensors file beside ``path`` and rename it, every tensor as it is.

    The library's own writer takes four times the processor seconds for large tensors.

    Raises:
        OSError: a tensor is of a dtype that such a file cannot hold.
    """
    arrays = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in tensors.items()}
    header, end = {}, 0
    for name, array in _largest_first(arrays):
        header[name], end = _entry(path, name, array.dtype, array.shape, end)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing_path(path) as beside, beside.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            file.write(arrays[name].reshape(-1).data)
