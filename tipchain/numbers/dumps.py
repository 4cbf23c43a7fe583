"""Dumps: named arrays in reprod_log's file format, with the facts about their making beside them."""

from __future__ import annotations

import ast
import io
import json
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from reprlib import repr as brief
from stat import S_ISREG
from typing import IO, Any, TypeAlias
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy

from tipchain.core.files import atomic_write, replacing_path
from tipchain.core.json_text import parse_json
from tipchain.core.machine import collector_resting
from tipchain.errors import RecordError, UsageError
from tipchain.framework_types import Array
from tipchain.numbers.pickle_stream import (
    DAMAGED,
    Bytes,
    Refused,
    Span,
    StreamedArray,
    StreamReader,
    checked,
    dtype_of,
    map_file,
    view,
)

# Read what ``numpy.save`` writes for a dict of arrays, without unpickling.
#
# Such a file is a short header and a pickle stream. The stream is interpreted (``pickle_stream``) with only the
# opcodes that a dict of plain arrays needs (pickle protocols 2 to 5, NumPy 1 and 2). Nothing is imported or called on the
# stream's behalf, so reading a dump cannot run code; whatever else stands in it is refused by name. Every
# array's bytes lie contiguously in the stream: arrays are views of the mapped file.


Tree: TypeAlias = "dict[Any, Any]"
"""Keys (usually strings) to arrays, NumPy or Python numbers, or further trees."""

EXPECTED = "a dict of arrays, as ReprodLogger.save or numpy.save writes it"


@collector_resting()
def load_tree(path: str | PathLike[str]) -> Tree | Array:
    """Return a dump's nested dict, or the array of a plain ``.npy`` file.

    Arrays are views of the file, mapped privately: writing to one changes neither the file nor other readers.

    Raises:
        RecordError: missing, unreadable, damaged, or something else than a dict of arrays.
    """
    file = Path(path)
    data: Bytes = bytearray()
    try:
        data = map_file(file)
        return _parse(data)
    except FileNotFoundError:
        raise RecordError("no such file", file=file, expected=EXPECTED) from None
    except OSError as error:
        raise RecordError("cannot be read", file=file, found=error.strerror, expected=EXPECTED) from None
    except Refused as refused:
        hint = (
            "tipchain align CASE --reference FOLDER --port FOLDER compares folders of dumps" if file.is_dir() else None
        )
        raise RecordError("is not a dump", file=file, found=refused, expected=EXPECTED, hint=hint) from None
    except DAMAGED as error:
        raise RecordError(
            "is not a dump: damaged or truncated",
            file=file,
            found=f"{len(data)} bytes that cannot be parsed ({error})",
            expected=EXPECTED,
        ) from None


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a ``.npz`` file by name, in its order.

    Raises:
        RecordError: it cannot be read, is none, or holds anything but arrays of numbers and text; or compression makes
            of it what no honest file becomes.
    """
    try:
        return _unpacked(path)
    except (Refused, OSError, BadZipFile, zlib.error, RuntimeError, EOFError, *DAMAGED) as error:
        raise RecordError(
            "cannot be read as .npz of arrays",
            file=path,
            found=getattr(error, "strerror", None) or error,
            expected="arrays, as numpy.savez writes them",
        ) from None


def _unpacked(path: Path) -> dict[str, Array]:
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise Refused("no regular file")
    arrays: dict[str, Array] = {}
    with ZipFile(path) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        # Masks and zeros may inflate to 128 MiB, all else to a hundred times its size; deflate can reach a thousand times.
        size, limit = sum(entry.file_size for entry in entries), 100 * status.st_size + (1 << 27)
        if size > limit:
            raise Refused(f"arrays of {size:,} bytes, more than {limit:,}, in a file of {status.st_size:,}")
        for entry in entries:
            array = _parse(bytearray(archive.read(entry)))
            if not isinstance(array, np.ndarray):
                raise Refused("a pickled dict")
            arrays[entry.filename.removesuffix(".npy")] = array
    return arrays


def _parse(data: Bytes) -> Tree | Array:
    header, start = _header(data)
    if header["descr"] not in ("|O", "O"):
        # Array of a ``.npy`` file without a pickle stream.
        if not isinstance(header["descr"], str):
            raise Refused("an array of a structured dtype")
        dtype = checked(dtype_of(header["descr"]))
        return view(data, Span(start, len(data)), dtype, header["shape"], fortran=header["fortran_order"])
    if header["shape"] != ():
        raise Refused(f"an object array of shape {brief(header['shape'])}")
    stream = _DumpStream(data, start)
    outer = stream.read()
    if not isinstance(outer, StreamedArray) or not isinstance(outer.value, list) or len(outer.value) != 1:
        raise Refused("a pickled object that is no 0-d object array")
    root = outer.value[0]
    if not isinstance(root, dict):
        kind = "bytes" if isinstance(root, Span) else type(root).__name__
        raise Refused(f"a pickled {'array' if isinstance(root, StreamedArray) else kind.lstrip('_')}")
    tree: Tree = stream.finish(root)
    return tree


def _header(data: Bytes) -> tuple[dict[str, object], int]:
    """Return the ``.npy`` header and the offset behind it. Source: ``numpy.lib.format``."""
    if not len(data):
        raise Refused("an empty file")
    if bytes(data[:6]) != npy.MAGIC_PREFIX:
        raise Refused(f"a file that starts with {bytes(data[:6])!r}, not with {npy.MAGIC_PREFIX!r}")
    if len(data) < 12 or data[6] not in (1, 2, 3):
        raise Refused("a .npy file of an unknown version, or cut off in its header")
    width = 2 if data[6] == 1 else 4
    start = 8 + width
    stop = start + int.from_bytes(data[8:start], "little")
    if stop > len(data) or stop > 65536:
        raise Refused("a .npy file cut off in its header")
    # Of a literal nothing is run. Python 2 wrote lengths as 10L.
    text = bytes(data[start:stop]).decode("utf-8" if data[6] == 3 else "latin-1").strip()
    try:
        header = ast.literal_eval(re.sub(r"(\d)L\b", r"\1", text))
    except DAMAGED as error:
        raise Refused("a .npy file with a damaged header") from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise Refused("a .npy file with a damaged header")
    return header, stop


class _DumpStream(StreamReader):
    containers = (dict,)
    scalars = (bool, int, float, np.generic)


# Write a dict of arrays as ``numpy.save`` does, without copying the arrays.
#
# The stream is pickle protocol 4, so that every NumPy and reprod_log reads it. ``pickle`` itself would hold a copy of
# every array until the end; here each array's bytes go straight to the file.


# This spelling is the one that NumPy 1 and 2 both read without a warning. The function and its arguments
# are kept in the memo as 0 and 1.
_FUNCTION = b"\x8c\x15numpy.core.multiarray\x8c\x0c_reconstruct\x93q\x00"
_ARGUMENTS = b"\x8c\x05numpy\x8c\x07ndarray\x93K\x00\x85C\x01b\x87q\x01"


class _Writer:
    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path = file, path
        self.dtypes: dict[str, int] = {}

    def tree(self, tree: Mapping[object, object], path: str) -> None:
        self.file.write(b"}(")
        for key, value in tree.items():
            where = f"{path}{key}"
            if isinstance(key, str):
                text = key.encode("utf-8", "surrogatepass")
                self.file.write(b"X" + struct.pack("<I", len(text)) + text)
            elif isinstance(key, int) and -(2**31) <= key < 2**31:
                self.file.write(b"J" + struct.pack("<i", key))
            else:
                raise self.refusal(where, f"a key of type {type(key).__name__}")
            if isinstance(value, Mapping):
                self.tree(value, f"{where}/")
            else:
                self.array(value, where)
        self.file.write(b"u")

    def dtype(self, dtype: np.dtype[np.generic]) -> bytes:
        """Return the opcodes of ``dtype``; its second mention looks into the memo."""
        if dtype.str in self.dtypes:
            return b"h" + bytes([self.dtypes[dtype.str]])
        self.dtypes[dtype.str] = slot = 2 + len(self.dtypes)
        code, order = dtype.str[1:].encode(), dtype.str[:1].encode()
        width, align, flags = b"J\xff\xff\xff\xff", b"J\xff\xff\xff\xff", 0
        if dtype.kind == "O":
            code, order, flags = b"O8", b"|", 63
        if dtype.kind in "US":
            width, align = _length(dtype.itemsize), _length(dtype.alignment)
        return (
            b"\x8c\x05numpy\x8c\x05dtype\x93\x8c" + bytes([len(code)]) + code + b"\x89\x88\x87R"
            b"(K\x03\x8c\x01" + order + b"NNN" + width + align + b"K" + bytes([flags]) + b"tbq" + bytes([slot])
        )

    def refusal(self, where: str, found: str) -> RecordError:
        return RecordError("cannot be stored", file=self.path, key=where, found=found, expected=EXPECTED)

    def array(self, value: object, where: str) -> None:
        if not isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
            raise self.refusal(where, f"{type(value).__module__}.{type(value).__qualname__}")
        array = np.asarray(value)  # a scalar is 0-d
        if array.dtype.kind not in "biufcUS" or array.dtype.isbuiltin == 2:  # 2: registered by some library
            raise self.refusal(where, f"an array of dtype {array.dtype}")
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        flat = np.ascontiguousarray(array.T if fortran else array).reshape(-1).view(np.uint8)
        shape = b"(" + b"".join(_length(n) for n in array.shape) + b"t"
        start = b"h\x00h\x01R(K\x01" + shape + self.dtype(array.dtype) + (b"\x88" if fortran else b"\x89")
        # A throw-away string of bytes (SHORT_BINBYTES, then POP) fills up to numpy's alignment (``npy.ARRAY_ALIGN``).
        padding = -(self.file.tell() + len(start) + 3 + 9) % npy.ARRAY_ALIGN
        self.file.write(start + b"C" + bytes([padding]) + bytes(padding) + b"0")
        self.file.write(b"\x8e" + struct.pack("<Q", flat.nbytes))
        self.file.write(flat.data)
        self.file.write(b"tb")


def _length(n: int) -> bytes:
    return b"J" + struct.pack("<i", n) if n < 2**31 else b"\x8a\x08" + struct.pack("<q", n)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The arrays that one side left behind.

    Attributes:
        side: ``torch`` or ``paddle`` as ``meta`` tells it; "" where nothing does.
        meta: versions, device, seed, commit and what else ``<dump>.json`` holds; empty without that file.
        arrays: name to array; names of nested dicts are joined with ``/``. Views of the mapped file.
    """

    side: str
    meta: Mapping[str, object]
    arrays: Mapping[str, Array]


def meta_path(path: str | PathLike[str]) -> Path:
    """Return the name of the JSON file beside a dump: ``forward_torch.npy.json``."""
    file = Path(path)
    return file.with_name(f"{file.name}.json")


def load_record(path: str | PathLike[str]) -> Record:
    """Load a dump of reprod_log or of tipchain. No code in it is run.

    A plain ``.npy`` file becomes a record of one array with the name ``array``.

    Raises:
        RecordError: the file is missing or damaged, it is not a dict of arrays, or the JSON file beside it cannot be read.
    """
    file = Path(path)
    tree = load_tree(file)
    try:
        arrays = flatten(tree if isinstance(tree, dict) else {"array": tree})
    except UsageError as error:
        raise RecordError(str(error), file=file) from None
    path = meta_path(file)
    try:
        meta = parse_json(path.read_bytes())
    except FileNotFoundError:
        meta = {}
    except (OSError, ValueError) as error:
        raise RecordError("cannot be read", file=path, found=error, expected="a JSON object") from None
    if not isinstance(meta, dict):
        raise RecordError("is no description of a dump", file=path, found=type(meta).__name__, expected="a JSON object")
    return Record(side=str(meta.get("side", "")), meta=meta, arrays=arrays)


def flatten(tree: Mapping[Any, Any]) -> dict[str, Array]:
    """Return the arrays of a nested dict by their ``/``-joined paths; scalars as 0-d arrays.

    An empty dict inside stands as an empty array, so that it cannot go unseen: no comparison passes one.

    Raises:
        UsageError: two arrays have the same path (``{"a/b": x, "a": {"b": y}}``).
    """
    arrays: dict[str, Array] = {}

    def add(inner: Mapping[Any, Any], prefix: str) -> None:
        for key, value in inner.items():
            path, array = f"{prefix}{key}", value
            if not isinstance(value, np.ndarray) and isinstance(value, Mapping):
                if value:
                    add(value, f"{path}/")
                    continue
                path, array = f"{path}/", np.empty(0)
            if path in arrays:
                raise UsageError(f"two arrays are called {path!r}, so only one of them could be compared")
            arrays[path] = np.asarray(array)

    add(tree, "")
    return arrays


def save_record(path: str | PathLike[str], arrays: Mapping[Any, Any], meta: Mapping[str, object] | None = None) -> Path:
    """Save a dump that reprod_log can read, with ``meta`` as JSON beside; return its path.

    An existing file is replaced whole or not at all. The arrays are not copied in memory.

    Args:
        path: the file. ``.npy`` is added if it is missing, as ``numpy.save`` does.
        arrays: arrays or numbers by name. A value may be a dict of the same kind.
        meta: the content of ``<dump>.json``. Without it, an older JSON file is removed.

    Raises:
        RecordError: a value is not an array of numbers, or the disk is full or read-only.
    """
    file = Path(path)
    if not file.name.endswith(".npy"):
        file = file.with_name(f"{file.name}.npy")
    try:
        with replacing_path(file) as beside, beside.open("wb") as stream:
            # Arrays are aligned in the file, so that a mapped view of them is as fast as memory.
            header = io.BytesIO()
            npy.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": ()})
            writer = _Writer(stream, file)
            stream.write(header.getvalue() + b"\x80\x04" + _FUNCTION + _ARGUMENTS + b"R")
            stream.write(b"(K\x01)" + writer.dtype(np.dtype(object)) + b"\x89]")
            writer.tree(arrays, "")
            stream.write(b"atb.")
        if meta is None:
            meta_path(file).unlink(missing_ok=True)
        else:
            atomic_write(meta_path(file), json.dumps(dict(meta), indent=1) + "\n")
    except OSError as error:
        raise RecordError("cannot be written", file=file, found=error.strerror or error) from error
    return file
