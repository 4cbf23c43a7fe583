"""Read what ``numpy.save`` writes for a dict of arrays, without unpickling.

Such a file is a short header and a pickle stream. The stream is interpreted (``pickle_stream``) with only the
opcodes that a dict of plain arrays needs (pickle protocols 2 to 5, NumPy 1 and 2). Nothing is imported or called on the
stream's behalf, so reading a dump cannot run code; whatever else stands in it is refused by name. Every
array's bytes lie contiguously in the stream: arrays are views of the mapped file.
"""

from __future__ import annotations

import ast
import mmap
import struct
from os import PathLike, fstat
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeAlias

import numpy as np

from tipchain.errors import RecordError
from tipchain.parity.pickle_stream import Array, Refused, Span, checked, read_stream, view

Tree: TypeAlias = "dict[Any, Any]"
"""Keys (usually strings) to arrays, NumPy or Python numbers, or further trees."""

EXPECTED = "a dict of arrays, as ReprodLogger.save or numpy.save writes it"
_MAGIC = b"\x93NUMPY"
_SMALL = 1 << 20  # smaller files are read at once: cheaper than a mapping
_DEPTH = 100


def load_tree(path: str | PathLike[str]) -> Tree | np.ndarray[Any, Any]:
    """Return the dict that a dump holds, nested as it was saved, or the array of a plain ``.npy`` file.

    Arrays are views of the file, mapped privately: writing to one changes neither the file nor other readers.

    Raises:
        RecordError: missing, unreadable, damaged, or something else than a dict of arrays.
    """
    file = Path(path)
    data = _contents(file)
    try:
        return _parse(data)
    except Refused as refused:
        raise RecordError("is not a dump", file=file, found=refused, expected=EXPECTED) from None
    except (IndexError, KeyError, TypeError, ValueError, SyntaxError, OverflowError, struct.error, RecursionError) as error:  # fmt: skip
        raise RecordError(
            "is not a dump: damaged or truncated",
            file=file,
            found=f"{len(data)} bytes that cannot be followed to their end ({error})",
            expected=EXPECTED,
        ) from None


def _parse(data: Any) -> Tree | np.ndarray[Any, Any]:
    header, start = _header(data)
    if header["descr"] not in ("|O", "O"):
        return _plain(data, header, start)
    if header["shape"] != ():
        raise Refused(f"an object array of shape {header['shape']}")
    return _Resolver(len(data)).tree(read_stream(data, start), "")[0]


def _contents(path: Path) -> Any:
    """Return the file's bytes: a private mapping, or a bytearray where the file is small."""
    try:
        with path.open("rb") as file:
            status = fstat(file.fileno())
            if not S_ISREG(status.st_mode):
                raise RecordError("is not a dump", file=path, found="no regular file", expected=EXPECTED)
            if status.st_size < _SMALL:
                return bytearray(file.read())
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except FileNotFoundError:
        raise RecordError("no such file", file=path, expected=EXPECTED) from None
    except IsADirectoryError:
        raise RecordError("is not a dump", file=path, found="a folder", expected=EXPECTED) from None
    except OSError as error:
        raise RecordError("cannot be read", file=path, found=error.strerror, expected=EXPECTED) from None


def _header(data: Any) -> tuple[dict[str, Any], int]:
    """Return the ``.npy`` header and the offset behind it. Source: ``numpy.lib.format``."""
    if not len(data):
        raise Refused("an empty file")
    if bytes(data[:6]) != _MAGIC:
        raise Refused(f"a file that starts with {bytes(data[:6])!r}, not with {_MAGIC!r}")
    if len(data) < 12 or data[6] not in (1, 2, 3):
        raise Refused("a .npy file of an unknown version, or cut off in its header")
    width = 2 if data[6] == 1 else 4
    start = 8 + width
    stop = start + int.from_bytes(data[8:start], "little")
    if stop > len(data) or stop > 65536:
        raise Refused("a .npy file cut off in its header")
    header = ast.literal_eval(bytes(data[start:stop]).decode("utf-8" if data[6] == 3 else "latin-1").strip())
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise Refused("a .npy file with a damaged header")
    return header, stop


def _plain(data: Any, header: dict[str, Any], start: int) -> np.ndarray[Any, Any]:
    """Return the array of a ``.npy`` file without a pickle stream."""
    if not isinstance(header["descr"], str):
        raise Refused(f"an array of {header['descr']!r}")
    dtype = checked(np.dtype(header["descr"]))
    return view(data, Span(start, len(data)), dtype, header["shape"], fortran=header["fortran_order"])


class _Resolver:
    """Puts finished arrays in place of ours, and sees to it that nothing else is in the tree.

    A few bytes can describe a tree that grows without end when it is walked (a dict that holds one dict
    ten times, which holds another ten times); an honest file holds more bytes than names.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.done: dict[int, tuple[Tree, int]] = {}
        self.open: set[int] = set()

    def tree(self, source: Tree, path: str) -> tuple[Tree, int]:
        """Return the finished dict and the number of names in it and below."""
        if id(source) in self.done:
            return self.done[id(source)]
        if id(source) in self.open or len(self.open) > _DEPTH:
            raise Refused(f"a dict that holds itself, or dicts in dicts without end, at {path!r}")
        self.open.add(id(source))
        result, size = {}, len(source)
        for name, value in source.items():
            where = f"{path}/{name}" if path else str(name)
            if isinstance(value, dict):
                result[name], below = self.tree(value, where)
                size += below
            else:
                result[name] = self.leaf(value, where)
        if size > self.limit:
            raise Refused(f"a dict of {size} names in a file of {self.limit} bytes")
        self.open.remove(id(source))
        self.done[id(source)] = result, size
        return result, size

    def leaf(self, value: Any, path: str) -> Any:
        if isinstance(value, Array):
            if not isinstance(value.value, np.ndarray):
                raise Refused(f"an unfinished or object array at {path!r}")
            return value.value
        if isinstance(value, (bool, int, float, np.generic)):
            return value
        kind = "bytes" if isinstance(value, Span) else type(value).__name__.lstrip("_")
        raise Refused(f"a value of type {kind} at {path!r}")
