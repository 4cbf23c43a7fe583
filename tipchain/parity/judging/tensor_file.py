"""The large captures of a stage, in a safetensors file beside its dump."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import RecordError
from tipchain.parity.judging.base import Dumps
from tipchain.parity.names import tensors_name
from tipchain.pickle_stream import map_file

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip
"""The format's names of what numpy can read where it lies."""


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
            self._names: dict[str, None] = dict.fromkeys(self._file.keys())  # type: ignore[no-untyped-call]
            self._bytes = map_file(path)
        except (SafetensorError, OSError) as error:
            raise RecordError("is no complete safetensors file", file=path, found=error) from error
        # That every tensor lies within the file, and is as long as its shape says, was just checked.
        self._start = 8 + int.from_bytes(self._bytes[:8], "little")
        self._header: dict[str, Any] = json.loads(self._bytes[8 : self._start])

    def __enter__(self) -> TensorFile:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        del self._file, self._bytes

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        facts = self._header[name]
        if facts["dtype"] not in DTYPES:
            return self._file.get_tensor(name)
        begin, count = self._start + facts["data_offsets"][0], prod(facts["shape"])
        return np.frombuffer(self._bytes, DTYPES[facts["dtype"]], count, begin).reshape(facts["shape"])

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would load the tensor to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def tensor_paths(dumps: Dumps) -> tuple[Path, Path]:
    """Return the safetensors files beside the two dumps, the reference's first; whether they exist is another matter."""
    return (
        dumps.reference_path.with_name(tensors_name(dumps.stage, "torch")),
        dumps.port_path.with_name(tensors_name(dumps.stage, "paddle")),
    )
