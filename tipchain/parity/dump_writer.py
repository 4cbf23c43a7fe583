"""Write a dict of arrays as ``numpy.save`` does, without copying the arrays.

The stream is pickle protocol 4, so that every NumPy and reprod_log reads it. ``pickle`` itself would hold a copy of
every array until the end; here each array's bytes go straight to the file.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from tipchain.errors import RecordError

# This spelling is the one that NumPy 1 and 2 both read without a warning. The function and its arguments
# are kept in the memo as 0 and 1.
_FUNCTION = b"\x8c\x15numpy.core.multiarray\x8c\x0c_reconstruct\x93q\x00"
_ARGUMENTS = b"\x8c\x05numpy\x8c\x07ndarray\x93K\x00\x85C\x01b\x87q\x01"
_RECONSTRUCT = b"h\x00h\x01R"
_ALIGNMENT = 64
"""Bytes that numpy aligns data to (``numpy/lib/format.py``)."""


def write_tree(file: IO[bytes], tree: Mapping[Any, Any]) -> None:
    """Write ``tree`` (keys to arrays, NumPy or Python numbers, or further trees) to ``file``.

    Arrays are aligned in the file, so that a mapped view of them is as fast as memory.

    Raises:
        RecordError: a key or value that no dump holds; the message names it.
        OSError: the disk is full.
    """
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": ()})
    writer = _Writer(file)
    file.write(header.getvalue() + b"\x80\x04" + _FUNCTION + _ARGUMENTS + b"R")
    file.write(b"(K\x01)" + writer.dtype(np.dtype(object)) + b"\x89]")
    writer.tree(tree, "")
    file.write(b"atb.")


class _Writer:
    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.dtypes: dict[str, int] = {}

    def tree(self, tree: Mapping[Any, Any], path: str) -> None:
        self.file.write(b"}(")
        for key, value in tree.items():
            where = f"{path}{key}"
            self.file.write(_key(key, where))
            if isinstance(value, Mapping):
                self.tree(value, f"{where}/")
            else:
                self.array(as_array(value, where))
        self.file.write(b"u")

    def dtype(self, dtype: np.dtype[Any]) -> bytes:
        """Return the opcodes that put ``dtype`` on the stack; its second mention is a look into the memo."""
        if dtype.str in self.dtypes:
            return b"h" + bytes([self.dtypes[dtype.str]])
        self.dtypes[dtype.str] = slot = 2 + len(self.dtypes)
        return _dtype(dtype) + b"q" + bytes([slot])

    def array(self, array: np.ndarray[Any, Any]) -> None:
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        flat = np.ascontiguousarray(array.T if fortran else array).reshape(-1).view(np.uint8)
        shape = b"(" + b"".join(_length(n) for n in array.shape) + b"t"
        start = _RECONSTRUCT + b"(K\x01" + shape + self.dtype(array.dtype) + (b"\x88" if fortran else b"\x89")
        # A throw-away string of bytes (SHORT_BINBYTES, then POP) fills up to the alignment.
        padding = -(self.file.tell() + len(start) + 3 + 9) % _ALIGNMENT
        self.file.write(start + b"C" + bytes([padding]) + bytes(padding) + b"0")
        self.file.write(b"\x8e" + struct.pack("<Q", flat.nbytes))
        self.file.write(flat.data)
        self.file.write(b"tb")


def as_array(value: Any, where: str) -> np.ndarray[Any, Any]:
    """Return ``value`` as a plain array of numbers or text; a scalar becomes a 0-d array.

    Raises:
        RecordError: ``value`` is neither an array nor a number.
    """
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
        array = np.asarray(value)
        if array.dtype.kind in "biufcUS" and array.dtype.isbuiltin != 2:  # 2: registered by some library
            return array
        kind: object = f"an array of dtype {array.dtype}"
    else:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise RecordError("cannot be stored", key=where, found=kind, expected="an array of numbers")


def _key(key: Any, where: str) -> bytes:
    if isinstance(key, str):
        text = key.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(text)) + text
    if isinstance(key, int) and -(2**31) <= key < 2**31:
        return b"J" + struct.pack("<i", key)
    raise RecordError(
        "cannot be stored", key=where, found=f"a key of type {type(key).__name__}", expected="text"
    )


def _dtype(dtype: np.dtype[Any]) -> bytes:
    code, order = dtype.str[1:].encode(), dtype.str[:1].encode()
    width, align, flags = b"J\xff\xff\xff\xff", b"J\xff\xff\xff\xff", 0
    if dtype.kind == "O":
        code, order, flags = b"O8", b"|", 63
    if dtype.kind in "US":
        width, align = _length(dtype.itemsize), _length(dtype.alignment)
    return (
        b"\x8c\x05numpy\x8c\x05dtype\x93\x8c" + bytes([len(code)]) + code + b"\x89\x88\x87R"
        b"(K\x03\x8c\x01" + order + b"NNN" + width + align + b"K" + bytes([flags]) + b"tb"
    )


def _length(n: int) -> bytes:
    return b"J" + struct.pack("<i", n) if n < 2**31 else b"\x8a\x08" + struct.pack("<q", n)
