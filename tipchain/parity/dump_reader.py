"""Read what ``numpy.save`` writes for a dict of arrays, without unpickling.

Such a file is a short header and a pickle stream. The stream is interpreted (``pickle_stream``) with only the
opcodes that a dict of plain arrays needs (pickle protocols 2 to 5, NumPy 1 and 2). Nothing is imported or called on the
stream's behalf, so reading a dump cannot run code; whatever else stands in it is refused by name. Every
array's bytes lie contiguously in the stream: arrays are views of the mapped file.
"""

from __future__ import annotations

import re
import zlib
from os import PathLike
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeAlias
from zipfile import BadZipFile, ZipFile

import numpy as np

from tipchain.errors import RecordError
from tipchain.pickle_stream import (
    DAMAGED,
    Array,
    Refused,
    Span,
    StreamReader,
    brief,
    checked,
    dtype_of,
    finished,
    map_file,
    view,
)

Tree: TypeAlias = "dict[Any, Any]"
"""Keys (usually strings) to arrays, NumPy or Python numbers, or further trees."""

EXPECTED = "a dict of arrays, as ReprodLogger.save or numpy.save writes it"
_MAGIC = b"\x93NUMPY"
_HEADER_ITEM = re.compile(
    r"""\s*(?:'(?P<name>\w+)'|"(?P<other>\w+)")\s*:\s*
    (?:'(?P<text>[^']*)'|"(?P<quoted>[^"]*)"|(?P<flag>True|False)|\((?P<shape>[0-9L,\s]*)\)|(?P<fields>\[.*\]))
    \s*(?:,|$)""",
    re.VERBOSE,
)


_INFLATED, _SPARED = 100, 1 << 27
"""What a compressed file may become: a hundred times its size, and masks and zeros of 128 MiB besides. Deflate can make
a thousand times as much of bytes that say nothing."""


def load_tree(path: str | PathLike[str]) -> Tree | np.ndarray[Any, Any]:
    """Return the dict that a dump holds, nested as it was saved, or the array of a plain ``.npy`` file.

    Arrays are views of the file, mapped privately: writing to one changes neither the file nor other readers.

    Raises:
        RecordError: missing, unreadable, damaged, or something else than a dict of arrays.
    """
    file = Path(path)
    try:
        data = map_file(file)
    except FileNotFoundError:
        raise RecordError("no such file", file=file, expected=EXPECTED) from None
    except OSError as error:
        raise RecordError("cannot be read", file=file, found=error.strerror, expected=EXPECTED) from None
    except Refused as refused:
        raise RecordError("is not a dump", file=file, found=refused, expected=EXPECTED) from None
    try:
        return _parse(data)
    except Refused as refused:
        raise RecordError("is not a dump", file=file, found=refused, expected=EXPECTED) from None
    except DAMAGED as error:
        raise RecordError(
            "is not a dump: damaged or truncated",
            file=file,
            found=f"{len(data)} bytes that cannot be parsed ({error})",
            expected=EXPECTED,
        ) from None


def read_npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a ``.npz`` file by name, in its order.

    Raises:
        RecordError: it cannot be read, is none, or holds anything but arrays of numbers and text; or compression makes
            of it what no honest file becomes.
    """
    try:
        return _unpacked(path)
    except (Refused, OSError, BadZipFile, zlib.error, RuntimeError, EOFError, *DAMAGED) as error:
        raise RecordError(
            "cannot be read as .npz of arrays", file=path, found=getattr(error, "strerror", None) or error,
            expected="arrays, as numpy.savez writes them",
        ) from None  # fmt: skip


def _unpacked(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise Refused("no regular file")
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    with ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        size, limit = sum(entry.file_size for entry in entries), _INFLATED * status.st_size + _SPARED
        if size > limit:
            raise Refused(f"arrays of {size:,} bytes, more than {limit:,}, in a file of {status.st_size:,}")
        for entry in entries:
            array = _parse(bytearray(archive.read(entry)))
            if not isinstance(array, np.ndarray):
                raise Refused("a pickled dict")
            arrays[entry.filename.removesuffix(".npy")] = array
    return arrays


def _parse(data: Any) -> Tree | np.ndarray[Any, Any]:
    header, start = _header(data)
    if header["descr"] not in ("|O", "O"):
        return _plain(data, header, start)
    if header["shape"] != ():
        raise Refused(f"an object array of shape {brief(header['shape'])}")
    outer = StreamReader(data, start).read()
    if not isinstance(outer, Array) or not isinstance(outer.value, list) or len(outer.value) != 1:
        raise Refused("a pickled object that is no 0-d object array")
    root = outer.value[0]
    if not isinstance(root, dict):
        raise Refused(f"a pickled {'array' if isinstance(root, Array) else _kind(root)}")
    tree: Tree = finished(root, len(data), _leaf)
    return tree


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
    return _header_items(bytes(data[start:stop]).decode("utf-8" if data[6] == 3 else "latin-1").strip()), stop


def _header_items(text: str) -> dict[str, Any]:
    """Return the header's three entries; nothing in it is evaluated."""
    header: dict[str, Any] = {}
    inside = text[1:-1] if text[:1] == "{" and text[-1:] == "}" else ""
    at = 0
    while at < len(inside.rstrip()):
        item = _HEADER_ITEM.match(inside, at)
        if item is None:
            break
        at = item.end()
        value: Any = item["text"] if item["text"] is not None else item["quoted"]
        if item["flag"]:
            value = item["flag"] == "True"
        elif item["shape"] is not None:
            value = tuple(int(n.strip().rstrip("L")) for n in item["shape"].split(",") if n.strip())
        elif item["fields"]:
            value = ["fields"]
        header[item["name"] or item["other"]] = value
    if set(header) != {"descr", "fortran_order", "shape"} or at < len(inside.rstrip()):
        raise Refused("a .npy file with a damaged header")
    return header


def _plain(data: Any, header: dict[str, Any], start: int) -> np.ndarray[Any, Any]:
    """Return the array of a ``.npy`` file without a pickle stream."""
    if not isinstance(header["descr"], str):
        raise Refused("an array of a structured dtype")
    dtype = checked(dtype_of(header["descr"]))
    return view(data, Span(start, len(data)), dtype, header["shape"], fortran=header["fortran_order"])


def _leaf(value: Any, path: str) -> Any:
    """Return an array or a number of a dump; refuse everything else."""
    if isinstance(value, Array):
        if not isinstance(value.value, np.ndarray):
            raise Refused(f"an unfinished or object array at {brief(path)}")
        return value.value
    if isinstance(value, (bool, int, float, np.generic)):
        return value
    raise Refused(f"a value of type {_kind(value)} at {brief(path)}")


def _kind(value: Any) -> str:
    return "bytes" if isinstance(value, Span) else type(value).__name__.lstrip("_")
