"""Pickle streams of arrays, interpreted without importing or calling anything that the stream names.

The opcodes and names are those that a dict of arrays needs: NumPy's dumps, Paddle's weight files, torch's with
a few names more (`tipchain.weights.files`). Pickle protocols 2 to 5, arrays as NumPy 1 and 2 write them. Source of the
opcodes: the comments in Python's ``pickletools``; of the array layout: ``numpy.ndarray.__reduce__`` and
``numpy.dtype.__reduce__``.

A stream decides neither what is called nor how much is allocated: whatever is made from it is bounded by its length.
"""

# ruff: noqa: SLF001 - the table of opcodes, at the end, belongs to the class

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from reprlib import repr as brief
from stat import S_ISREG
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tipchain.framework_types import Array, Model

_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_DTYPE = re.compile(r"[<>=|]?[biufcUSO][0-9]{0,10}")
_KINDS = "biufcUS"  # numbers and text
Bytes: TypeAlias = "bytearray | mmap.mmap"
"""The bytes of a file."""
Streamed: TypeAlias = Any
"""An object that a stream describes, unchecked."""
Span: TypeAlias = slice
"""Bytes of the file, by offset."""
SHARED = 64
"""A stream's arrays together may take its length so often: nets that repeat a layer share an array under dozens of names.
Views cost nothing, but whoever compares or converts them makes an array for each name."""
_MARK = object()
_LENGTH = re.compile(rb"K.|M..|J.{4}", re.DOTALL)
"""BININT1, BININT2 or BININT."""
_USUAL_ARRAY = re.compile(
    rb"h(.)(?:K\x00\x85\x94h(?P<code>.)\x87\x94R\x94|R)"  # what `_reconstruct` takes, in parts (NumPy) or whole
    rb"\(K\x01(?:\)|(\()?((?:K.|M..|J.{4})+)([t\x85\x86\x87])(?(code)\x94))"  # the version, the shape
    rb"(?:h(.)|j(.{4}))([\x88\x89])",  # the dtype, whether the order is Fortran's
    re.DOTALL,
)
_BYTES = {ord("C"): 1, ord("B"): 4, 0x8E: 8}
"""The opcodes of bytes, with the width of their length."""

DAMAGED = (
    LookupError,
    TypeError,
    ValueError,
    SyntaxError,
    OverflowError,
    AttributeError,
    struct.error,
    RecursionError,
    MemoryError,
)
"""Exceptions that following a damaged stream may raise, besides `Refused`."""


class Refused(Exception):  # noqa: N818  (readers of files turn it into an error that names the file)
    """A part of the stream that no dict of arrays needs."""


@dataclass(slots=True, eq=False)
class Global:
    """A name that the stream mentions; never imported."""

    name: str


@dataclass(slots=True, eq=False)
class _Dtype:
    """A dtype whose byte order may still follow."""

    value: np.dtype[np.generic]


@dataclass(slots=True, eq=False)
class StreamedArray:
    """An array whose contents may still follow; a list for a 0-d object array."""

    value: Streamed = None


def map_file(path: Path) -> Bytes:
    """Return a file's bytes: a private mapping, or a bytearray where the file is small.

    Raises:
        Refused: it is no regular file.
        OSError: it cannot be read.
    """
    # A pipe or a device is never opened: opening one may wait for ever.
    status = path.stat()
    if not S_ISREG(status.st_mode):
        raise Refused("a folder" if path.is_dir() else "no regular file")
    with path.open("rb") as file:
        if status.st_size < 1 << 20:  # a mapping costs more
            return bytearray(file.read())
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def dtype_of(code: object) -> np.dtype[np.generic]:
    """Return the dtype of a code such as ``<f4``; refuse structured and unsized ones."""
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        raise Refused(f"an array of dtype {brief(code)}" if isinstance(code, str) else "a structured dtype")
    return np.dtype(code)


def checked(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """Return ``dtype``, or refuse it if it holds neither numbers nor text."""
    if dtype.kind not in _KINDS or not dtype.itemsize:
        raise Refused(f"an array of dtype {dtype}")
    return dtype


def view(data: Bytes, span: Streamed, dtype: np.dtype[np.generic], shape: Streamed, *, fortran: object) -> Array:
    """Return the array of ``shape`` over ``span`` of ``data``, or over its own bytes."""
    count = count_of(shape)
    length = span.stop - span.start if isinstance(span, Span) else len(span)
    if count * dtype.itemsize != length:
        raise Refused(f"{length} bytes for an array of shape {brief(shape)} and dtype {dtype}")
    if not length:
        return np.zeros(shape, dtype)
    source, start = (data, span.start) if isinstance(span, Span) else (bytearray(span), 0)
    return np.ndarray(shape, dtype, source, start, None, "F" if fortran else "C")


def count_of(shape: object) -> int:
    """Return the number of elements of a shape out of a stream."""
    if not isinstance(shape, tuple) or len(shape) > 64:  # NumPy's own limit
        raise Refused(f"an array of shape {brief(shape)}")
    for length in shape:  # a generator would double the time of small arrays
        if not isinstance(length, int) or not 0 <= length < 2**63:
            raise Refused(f"an array of shape {brief(shape)}")
    return prod(shape)


class StreamReader:
    """Interprets pickle streams. Each opcode is a method; the table is at the end.

    Attributes:
        data: the file's bytes.
        at: where the next stream begins.
        names: the names that a stream may mention, as ``module name``, to ours.
        calls: what is done where a stream calls one of these.
        containers: of ``dict``, ``list`` and ``tuple`` those that may stand in a finished value.
        scalars: what else may stand there, besides arrays.
    """

    names: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **{f"{module} {name}": name for module in _MODULES for name in ("_reconstruct", "scalar", "_frombuffer")},
            "numpy ndarray": "ndarray",
            "numpy dtype": "dtype",
            "_codecs encode": "encode",
            "__builtin__ bytes": "bytes",  # how protocol 2 spells no bytes at all
            "collections OrderedDict": "OrderedDict",
            **{f"{module} tuple": "tuple" for module in ("builtins", "__builtin__")},  # a single tensor of paddle.save
        }
    )
    containers: ClassVar[tuple[type, ...]] = (dict, list, tuple)
    scalars: ClassVar[tuple[type, ...]] = (type(None), bool, int, float, complex, str, bytes, np.generic)

    def __init__(self, data: Bytes, start: int = 0) -> None:
        self.data, self.at = data, start
        self.stack: list[Any] = []
        self.memo: list[Any] = []
        self.shapes: dict[bytes | None, tuple[tuple[int, ...], int]] = {}
        self.budget = len(data)  # of bytes that calls may copy: an honest stream mentions each once
        self.done: dict[int, tuple[Any, int, int]] = {}
        self.open: set[int] = set()

    def read(self) -> Streamed:
        """Return the value of the stream at ``at``, and go behind it.

        Raises:
            Refused: something that no dict of arrays needs.
            Exception: one of `DAMAGED`.
        """
        self.stack, self.memo = [], []
        data, stack, memo, handlers = self.data, self.stack, self.memo, _HANDLERS
        at = self.at
        while True:
            code = data[at]
            at += 1
            # The most frequent opcodes are handled here: a call for each would double the time.
            if code == 0x94:  # MEMOIZE
                memo.append(stack[-1])
            elif code == 0x68:  # BINGET
                value = memo[data[at]]
                at += 1
                behind = self._usual_arrays(at) if type(value) is Global and value.name == "_reconstruct" else 0
                if behind:
                    at = behind
                else:
                    stack.append(value)
            elif code == 0x8C and at + data[at] + 1 < len(data):  # SHORT_BINUNICODE
                stop = at + data[at] + 1
                stack.append(str(data[at + 1 : stop], "utf-8", "surrogatepass"))
                at = stop
            elif code == 0x4B:  # BININT1
                stack.append(data[at])
                at += 1
            elif code == 0x28:  # MARK
                stack.append(_MARK)
            elif code == 0x2E:  # STOP
                break
            else:
                handler = handlers.get(code)
                if handler is None:
                    raise Refused(f"the pickle opcode {bytes([code])!r}, which no dict of arrays needs")
                self.at = at
                handler(self)
                at = self.at
        self.at = at
        (outer,) = stack
        return outer

    def _usual_arrays(self, at: int) -> int:
        """Put NumPy's or tipchain's arrays on the stack; return where they end.

        0 stands for other opcodes. Behind one of NumPy's, those that differ in name and contents alone are read, too.
        """
        data, memo, stack = self.data, self.memo, self.stack
        match = _USUAL_ARRAY.match(data, at)
        if match is None:
            return 0
        given, code, marked, lengths, tuple_of, near, far, order = match.groups()
        begin, at, end = at - 2, match.end(), b"\x94t\x94b" if code else b"tb"
        # Bytes that are dropped are an alignment.
        if not code and data[at] == 0x43 and data[at + 2 + data[at + 1]] == 0x30:
            at += 3 + data[at + 1]
        start = at + 1 + _BYTES.get(data[at], 0)
        stop = start + int.from_bytes(data[at + 1 : start], "little")
        if lengths not in self.shapes:
            lengths_found = _LENGTH.findall(lengths or b"")
            shape = tuple(int.from_bytes(one[1:], "little", signed=one[:1] == b"J") for one in lengths_found)
            self.shapes[lengths] = shape, count_of(shape)
        shape, count = self.shapes[lengths]
        blank = (0,)  # the shape that NumPy rebuilds an array from
        arguments = (memo[given[0]], blank, memo[code[0]]) if code else memo[given[0]]
        dtype = memo[near[0] if near else int.from_bytes(far, "little")]
        # TUPLE1 to TUPLE3 need as many lengths; TUPLE needs a mark.
        whole = tuple_of == b"t" if marked else not lengths or len(shape) == tuple_of[0] - 0x84
        known = type(arguments) is tuple and type(dtype) is _Dtype and dtype.value.kind in _KINDS
        if not (
            whole
            and known
            and data[stop : stop + len(end)] == end
            and start < stop == start + count * dtype.value.itemsize
        ):
            return 0
        self._call_reconstruct(*arguments)
        fortran, named = order == b"\x88", b"\x94" + data[begin:start]
        size, width = stop - start, len(named)
        strides = np.ndarray(shape, dtype.value, data, start, None, "F" if fortran else "C").strides
        while True:
            array = np.ndarray(shape, dtype.value, data, start, strides)
            stack.append(array)
            at = stop + len(end)
            if not code:
                return at
            content = slice(start, stop)
            # NumPy keeps each part in the memo.
            memo += (blank, arguments, array, shape) if lengths else (blank, arguments, array)
            memo += (content, (1, shape, dtype, fortran, content))
            if data[at] != 0x8C:
                return at
            name = at + 2 + data[at + 1]
            start = name + width
            stop = start + size
            if data[name:start] != named or data[stop : stop + 4] != end:
                return at
            key = str(data[at + 2 : name], "utf-8", "surrogatepass")
            memo.append(key)
            stack.append(key)

    def finish(self, root: Streamed) -> Streamed:
        """Return the value that `read` returned with finished arrays in place of ours.

        A few bytes can describe a tree that grows without end when it is walked (a dict that holds one dict ten times,
        which holds another ten times), or one array under thousands of names.

        Raises:
            Refused: it holds itself, more names than the file has bytes, or more than the file can mean.
        """
        return self._finished(root, "")[0]

    def _finished(self, source: Streamed, path: str) -> tuple[Any, int, int]:
        """Return the finished value, the number of its names, and its bytes."""
        length = len(self.data)
        if type(source) not in self.containers:
            single = self.value(source, path)
            return single, 0, getattr(single, "nbytes", 0)
        if id(source) in self.done:
            return self.done[id(source)]
        # Far above dumps' nesting, and far below Python's recursion limit.
        if id(source) in self.open or len(self.open) > 100:
            raise Refused(f"a dict that holds itself, or dicts in dicts without end, at {brief(path)}")
        self.open.add(id(source))
        items: dict[Any, Any] = source if isinstance(source, dict) else dict(enumerate(source))
        made: dict[Any, Any] = {}
        names, size = len(items), 0
        for name, value in items.items():
            if type(value) is np.ndarray:  # a call for each would double the time
                made[name], below, taken = value, 0, value.nbytes
            else:
                made[name], below, taken = self._finished(value, f"{path}/{name}" if path else str(name))
            # Each name below begins with this one, also where it is walked once for many.
            names, size = names + below, size + taken + (below + 1) * (len(str(name)) + 1)
            if names > length:
                raise Refused(f"a dict of {names} names in a file of {length} bytes")
            if size > SHARED * length:
                raise Refused(f"arrays and names of {size} bytes in a file of {length}")
        self.open.remove(id(source))
        result = made if isinstance(source, dict) else list(made.values())
        self.done[id(source)] = (tuple(result) if isinstance(source, tuple) else result), names, size
        return self.done[id(source)]

    def value(self, value: Streamed, path: str) -> Streamed:
        """Return the finished form of a value that is neither a container nor an array; its path is for messages."""
        if isinstance(value, StreamedArray):
            if not isinstance(value.value, np.ndarray):
                raise Refused(f"an unfinished or object array at {brief(path)}")
            return value.value
        if isinstance(value, Span) and bytes in self.scalars:
            self.spend(value.stop - value.start)
            return self._bytes_of(value)
        if isinstance(value, self.scalars):
            return value
        kind = "bytes" if isinstance(value, Span) else type(value).__name__
        raise Refused(f"a value of type {kind.lstrip('_')} at {brief(path)}")

    def as_it_is(self, items: Streamed = ()) -> Streamed:
        """Return the container that a stream makes another kind of container of."""
        if not isinstance(items, (tuple, list, dict)):
            raise Refused(f"a container of {type(items).__name__}")
        return items

    def spend(self, count: int) -> None:
        """Count ``count`` bytes or items that a call copies.

        Raises:
            Refused: calls copy more than the stream holds, as only one does that repeats itself.
        """
        self.budget -= count
        if self.budget < 0:
            raise Refused(f"calls that make more of {len(self.data)} bytes than there are")

    def _number(self, form: struct.Struct) -> Streamed:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def _span(self, length: int) -> Span:
        start = self.at
        self.at += length
        if self.at > len(self.data):
            raise Refused(f"a file that ends {self.at - len(self.data)} bytes before an array's data")
        return Span(start, self.at)

    def _bytes_of(self, value: object) -> bytes:
        if isinstance(value, Span):
            return bytes(self.data[value.start : value.stop])
        if isinstance(value, bytes):
            return value
        raise Refused(f"{type(value).__name__} where bytes should stand")

    def _text(self, length: int, encoding: str = "utf-8") -> None:
        self.stack.append(self._bytes_of(self._span(length)).decode(encoding, "surrogatepass"))

    def _since_mark(self) -> list[Any]:
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:  # runs into an IndexError where there is no mark
            at -= 1
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def _tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise Refused("a stream that takes more than it put")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def _store(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise Refused("keys and values outside a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int, float)):
                raise Refused(f"a key of type {type(key).__name__}")
            if isinstance(key, int) and not -(2**63) <= key < 2**63:  # thousands of them can have one hash
                raise Refused("a key of more than 64 bits")
            target[key] = value

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise Refused("items outside a list")
        self.stack[-1].extend(items)

    def _keep(self, slot: int) -> None:
        if slot > len(self.data):
            raise Refused("a place in the memo beyond the file's length")
        self.memo += [_MARK] * (slot - len(self.memo))  # Python 2 counts from 1
        self.memo[slot : slot + 1] = [self.stack[-1]]

    def _line(self) -> str:
        stop = bytes(self.data[self.at : self.at + 256]).index(b"\n") + self.at
        text = bytes(self.data[self.at : stop]).decode("ascii")
        self.at = stop + 1
        return text

    def _named(self, module: Model, name: object) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("a call of something that has no name")
        known = self.names.get(f"{module} {name}")
        if known is None:
            raise Refused(f"a call of {module[:80]}.{name[:80]}")
        self.stack.append(Global(known))

    def _reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, Global) or not isinstance(args, tuple):
            raise Refused("a call of something that is no known function")
        call = self.calls.get(function.name)
        if call is None:
            raise Refused(f"a call of {function.name}")
        self.stack.append(call(self, *args))

    def _build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Dtype):
            # The byte order, and the width of a string, follow a dtype.
            _version, order, base, names, fields, width, *_ = state
            if (base, names, fields) != (None, None, None) or order not in ("<", ">", "=", "|"):
                raise Refused("a structured dtype")
            if target.value.kind in "US" and width > 0:
                target.value = np.dtype(f"{target.value.kind}{width // (4 if target.value.kind == 'U' else 1)}")
            if order in ("<", ">"):
                target.value = target.value.newbyteorder(order)
        elif isinstance(target, StreamedArray) and target.value is None:
            _version, shape, dtype, fortran, content = state
            target.value = self._array(shape, dtype, fortran, content)
        elif isinstance(target, dict) and isinstance(state, dict):
            pass  # attributes of an OrderedDict, such as torch's versions of layers
        else:
            raise Refused("a state for something that is no array")

    def _array(self, shape: Streamed, dtype: Streamed, fortran: Streamed, content: Streamed) -> Streamed:
        if not isinstance(dtype, _Dtype):
            raise Refused("an array without dtype")
        if dtype.value.kind == "O":
            if shape != () or not isinstance(content, list):
                raise Refused(f"an object array of shape {brief(shape)}")
            return content
        if not isinstance(content, Span):
            if isinstance(content, str):  # of a file that Python 2 wrote
                content = self._call_encode(content, "latin1")
            if not isinstance(content, bytes):
                raise Refused(f"{type(content).__name__} where an array's bytes should stand")
        return view(self.data, content, checked(dtype.value), shape, fortran=fortran)

    def persistent(self, key: Streamed) -> Streamed:
        """Return the object that stands outside the stream; only torch's files have some."""
        raise Refused(f"something outside the stream, {brief(key)}")

    # The few functions that a dict of arrays names. What NumPy would call, these do.

    def _call_reconstruct(self, kind: Streamed, _shape: Streamed, _code: Streamed) -> StreamedArray:
        if not isinstance(kind, Global) or kind.name != "ndarray":
            raise Refused("a subclass of ndarray")
        return StreamedArray()

    def _call_encode(self, text: Streamed, encoding: Streamed) -> bytes:
        # Protocol 2 has no bytes: Python writes them as text that latin-1 turns back.
        if encoding not in ("latin1", "latin-1") or not isinstance(text, str):
            raise Refused(f"text encoded as {brief(encoding)}")
        self.spend(len(text))
        return text.encode("latin-1")

    def _call_ordered_dict(self, items: Streamed = ()) -> dict[Any, Any]:
        self.spend(len(items))
        self.stack.append({})
        self._store([part for key, value in items for part in (key, value)])  # as Python 2 writes it
        made: dict[Any, Any] = self.stack.pop()
        return made

    calls: ClassVar[Mapping[str, Callable[..., Any]]] = MappingProxyType(
        {
            "_reconstruct": _call_reconstruct,
            "scalar": lambda reader, dtype, content: reader._array((), dtype, False, content)[()],
            "_frombuffer": lambda reader, content, dtype, shape, order: reader._array(
                shape, dtype, order == "F", content
            ),
            "dtype": lambda _, code, *_more: _Dtype(dtype_of(code)),
            "encode": _call_encode,
            "bytes": lambda _: b"",
            "OrderedDict": _call_ordered_dict,
            "tuple": as_it_is,
        }
    )


_U1, _U2, _U4, _U8 = (struct.Struct(form) for form in ("<B", "<H", "<I", "<Q"))
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")


_HANDLERS: dict[int, Callable[[StreamReader], None]] = {
    0x80: lambda r: r._number(_U1) and None,  # PROTO
    0x95: lambda r: r._number(_U8) and None,  # FRAME
    ord("0"): lambda r: r.stack.pop() and None,  # POP
    ord("N"): lambda r: r.stack.append(None),
    0x88: lambda r: r.stack.append(True),
    0x89: lambda r: r.stack.append(False),
    ord("M"): lambda r: r.stack.append(r._number(_U2)),  # BININT2
    ord("J"): lambda r: r.stack.append(r._number(_I4)),  # BININT
    0x8A: lambda r: r.stack.append(
        int.from_bytes(r._bytes_of(r._span(r._number(_U1))), "little", signed=True)
    ),  # LONG1
    ord("G"): lambda r: r.stack.append(r._number(_F8)),  # BINFLOAT
    0x8C: lambda r: r._text(r._number(_U1)),
    ord("X"): lambda r: r._text(r._number(_U4)),
    0x8D: lambda r: r._text(r._number(_U8)),
    ord("U"): lambda r: r._text(r._number(_U1), "latin-1"),  # SHORT_BINSTRING, BINSTRING: Python 2's strings
    ord("T"): lambda r: r._text(r._number(_U4), "latin-1"),
    ord("C"): lambda r: r.stack.append(r._span(r._number(_U1))),
    ord("B"): lambda r: r.stack.append(r._span(r._number(_U4))),
    0x8E: lambda r: r.stack.append(r._span(r._number(_U8))),  # BINBYTES8
    0x96: lambda r: r.stack.append(r._span(r._number(_U8))),  # BYTEARRAY8
    ord(")"): lambda r: r.stack.append(()),
    0x85: lambda r: r._tuple_of(1),
    0x86: lambda r: r._tuple_of(2),
    0x87: lambda r: r._tuple_of(3),
    ord("t"): lambda r: r.stack.append(tuple(r._since_mark())),
    ord("]"): lambda r: r.stack.append([]),
    ord("a"): lambda r: r._extend([r.stack.pop()]),
    ord("e"): lambda r: r._extend(r._since_mark()),
    ord("}"): lambda r: r.stack.append({}),
    ord("s"): lambda r: r._store([r.stack.pop(-2), r.stack.pop()]),
    ord("u"): lambda r: r._store(r._since_mark()),
    ord("c"): lambda r: r._named(r._line(), r._line()),
    0x93: lambda r: r._named(r.stack.pop(-2), r.stack.pop()),  # STACK_GLOBAL
    ord("Q"): lambda r: r.stack.append(r.persistent(r.stack.pop())),  # BINPERSID
    ord("R"): StreamReader._reduce,
    ord("b"): StreamReader._build,
    ord("q"): lambda r: r._keep(r._number(_U1)),
    ord("r"): lambda r: r._keep(r._number(_U4)),
    ord("j"): lambda r: r.stack.append(r.memo[r._number(_U4)]),
}
