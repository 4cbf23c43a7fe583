"""The large captures of a stage, in a safetensors file beside its dump, read where they lie."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.core.files import replacing_path
from tipchain.core.json_text import Json
from tipchain.errors import RecordError
from tipchain.framework_types import Array, Tensor
from tipchain.numbers.pickle_stream import map_file
from tipchain.weights.files import SAFE_DTYPES

DTYPES = {**SAFE_DTYPES, "U64": "u8", "U32": "u4", "U16": "u2"}
del DTYPES["BF16"]
"""The format's names of types that numpy can read where they lie."""


class TensorFile(Mapping[str, Any]):
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

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would load the tensor to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        facts = self._header[name]
        if facts["dtype"] not in DTYPES:
            return self._file.get_tensor(name)
        begin, count = self._start + facts["data_offsets"][0], prod(facts["shape"])
        return np.frombuffer(self._bytes, DTYPES[facts["dtype"]], count, begin).reshape(facts["shape"])


ROWS = 32
"""Rows of a transposed matrix that are written at once: their source then fits into a core's cache."""


def as_recorded(array: Array) -> Array:
    """Return a copy; floats of eight bytes become those of four, which hold far more than any tolerance asks for, but for single numbers."""
    wide = bool(array.ndim) and array.dtype == np.float64
    return np.array(array, np.float32 if wide else array.dtype)


def save_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write a safetensors file beside ``path`` and rename it, every tensor as it is.

    The library's own writer takes four times the processor seconds for large tensors.

    Raises:
        OSError: a tensor is of a dtype that such a file cannot hold.
    """
    header, end = {}, 0
    # By the size of their elements, so that each lies at a multiple of its own.
    for name, array in sorted(tensors.items(), key=lambda one: (-one[1].itemsize, one[0])):
        kind = next((known for known, one in DTYPES.items() if np.dtype(one) == array.dtype), None)
        if kind is None:
            raise OSError(f"{path} cannot be written: {name} is of dtype {array.dtype}")
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing_path(path) as beside, beside.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in map(tensors.__getitem__, header):
            whole = array.flags.c_contiguous
            for part in [array] if whole else (array[row : row + ROWS] for row in range(0, len(array), ROWS)):
                file.write(np.ascontiguousarray(part).reshape(-1).data)
