"""The few pickle opcodes that a dict of arrays needs, interpreted without importing or calling anything.

Pickle protocols 2 to 5, arrays as NumPy 1 and 2 write them. Source of the opcodes: the comments in Python's
``pickletools``; of the array layout: ``numpy.ndarray.__reduce__`` and ``numpy.dtype.__reduce__``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_ALLOWED = {
    **{f"{module} {name}": name for module in _MODULES for name in ("_reconstruct", "scalar", "_frombuffer")},
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
    "__builtin__ bytes": "bytes",  # how protocol 2 spells no bytes at all
    "collections OrderedDict": "OrderedDict",
}
_MARK = object()


class Refused(Exception):  # noqa: N818  (load_tree turns it into a RecordError)
    """What was found in the stream that no dict of arrays needs."""


class _Global:
    """A name that the stream mentions; never imported."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Dtype:
    """A dtype whose byte order may still follow."""

    __slots__ = ("value",)

    def __init__(self, value: np.dtype[Any]) -> None:
        self.value = value


class Array:
    """An array whose contents may still follow; ``value`` is a list for the dump's own 0-d object array."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


class Span:
    """Bytes of the file, by offset."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


def checked(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype``, or refuse it if it holds neither numbers nor text."""
    if dtype.kind not in "biufcUS":
        raise Refused(f"an array of dtype {dtype}")
    return dtype


def view(data: Any, span: Any, dtype: np.dtype[Any], shape: Any, *, fortran: Any) -> np.ndarray[Any, Any]:
    """Return the array of ``shape`` whose bytes are ``span`` of ``data`` (or bytes of their own)."""
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise Refused(f"an array of shape {shape!r}")
    count = prod(shape)
    length = span.stop - span.start if isinstance(span, Span) else len(span)
    if count * dtype.itemsize != length:
        raise Refused(f"{length} bytes for an array of shape {shape} and dtype {dtype}")
    if not length:
        return np.zeros(shape, dtype)
    if isinstance(span, Span):
        flat = np.frombuffer(data, dtype, count, span.start)
    else:
        flat = np.frombuffer(bytearray(span), dtype, count)
    return flat.reshape(shape, order="F" if fortran else "C")


def read_stream(data: Any, start: int) -> dict[Any, Any]:
    """Return the dict in the pickle stream that begins at ``start``; its arrays are ``Array`` still.

    Raises:
        Refused: something that no dict of arrays needs.
        Exception: of the kinds that a damaged stream leads to (``IndexError``, ``struct.error``, ...).
    """
    return _Reader(data, start).read()


class _Reader:
    """Interprets one pickle stream. Each opcode is a method; the table is at the end."""

    def __init__(self, data: Any, start: int) -> None:
        self.data, self.at = data, start
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self) -> dict[Any, Any]:
        """Return the dict inside the dump's 0-d object array."""
        data, stack, memo, handlers = self.data, self.stack, self.memo, _HANDLERS
        at = self.at
        while True:
            code = data[at]
            at += 1
            # The four most frequent opcodes are handled here: a call for each would double the time.
            if code == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif code == 0x68:  # BINGET
                stack.append(memo[data[at]])
                at += 1
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
        (outer,) = self.stack
        if not isinstance(outer, Array) or not isinstance(outer.value, list) or len(outer.value) != 1:
            raise Refused("a pickled object that is no 0-d object array")
        tree = outer.value[0]
        if not isinstance(tree, dict):
            name = "array" if isinstance(tree, Array) else type(tree).__name__.lstrip("_")
            raise Refused(f"a pickled {name}")
        return tree

    def number(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def span(self, length: int) -> Span:
        start = self.at
        self.at += length
        if self.at > len(self.data):
            raise Refused(f"a file that ends {self.at - len(self.data)} bytes before an array's data")
        return Span(start, self.at)

    def bytes_of(self, value: Any) -> bytes:
        if isinstance(value, Span):
            return bytes(self.data[value.start : value.stop])
        if isinstance(value, bytes):
            return value
        raise Refused(f"{type(value).__name__} where bytes should stand")

    def text(self, length: int) -> None:
        self.stack.append(self.bytes_of(self.span(length)).decode("utf-8", "surrogatepass"))

    def since_mark(self) -> list[Any]:
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:  # runs into an IndexError where there is no mark
            at -= 1
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise Refused("a stream that takes more than it put")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def store(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise Refused("keys and values outside a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int, float)):
                raise Refused(f"a key of type {type(key).__name__}")
            target[key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise Refused("items outside a list")
        self.stack[-1].extend(items)

    def line(self) -> str:
        stop = bytes(self.data[self.at : self.at + 256]).index(b"\n") + self.at
        text = bytes(self.data[self.at : stop]).decode("ascii")
        self.at = stop + 1
        return text

    def named(self, module: Any, name: Any) -> None:
        known = _ALLOWED.get(f"{module} {name}")
        if known is None:
            raise Refused(f"a call of {module}.{name}")
        self.stack.append(_Global(known))

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.named(module, name)

    def reduce(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Global) or not isinstance(args, tuple):
            raise Refused("a call of something that is no known function")
        call = _CALLS.get(function.name)
        if call is None:
            raise Refused(f"a call of {function.name}")
        self.stack.append(call(self, *args))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Dtype):
            _finish_dtype(target, state)
        elif isinstance(target, Array) and target.value is None:
            _version, shape, dtype, fortran, content = state
            target.value = self.array(shape, dtype, fortran, content)
        else:
            raise Refused("a state for something that is no array")

    def array(self, shape: Any, dtype: Any, fortran: Any, content: Any) -> Any:
        if not isinstance(dtype, _Dtype):
            raise Refused("an array without dtype")
        if dtype.value.kind == "O":
            if shape != () or not isinstance(content, list):
                raise Refused(f"an object array of shape {shape}")
            return content
        if not isinstance(content, (Span, bytes)):
            raise Refused(f"{type(content).__name__} where an array's bytes should stand")
        return view(self.data, content, checked(dtype.value), shape, fortran=fortran)

    # The few functions that a dict of arrays names. What NumPy would call, these do.

    def call_reconstruct(self, kind: Any, _shape: Any, _code: Any) -> Array:
        if not isinstance(kind, _Global) or kind.name != "ndarray":
            raise Refused("a subclass of ndarray")
        return Array()

    def call_dtype(self, code: Any, *_: Any) -> _Dtype:
        if not isinstance(code, str):
            raise Refused("a structured dtype")
        dtype = np.dtype(code)
        return _Dtype(dtype if dtype.kind == "O" else checked(dtype))

    def call_scalar(self, dtype: Any, content: Any) -> Any:
        return self.array((), dtype, False, content)[()]

    def call_frombuffer(self, content: Any, dtype: Any, shape: Any, order: Any) -> Array:
        result = Array()
        result.value = self.array(shape, dtype, order == "F", content)
        if not isinstance(result.value, np.ndarray):
            raise Refused("an object array")
        return result

    def call_encode(self, text: Any, encoding: Any) -> bytes:
        # Protocol 2 has no bytes: Python writes them as text that latin-1 turns back.
        if encoding not in ("latin1", "latin-1") or not isinstance(text, str):
            raise Refused(f"text encoded as {encoding!r}")
        return text.encode("latin-1")

    def call_bytes(self) -> bytes:
        return b""

    def call_ordered_dict(self) -> dict[Any, Any]:
        return {}


def _finish_dtype(target: _Dtype, state: Any) -> None:
    """Apply the byte order, and the width of a string, that follow a dtype."""
    _version, order, base, names, fields, width, *_ = state
    if (base, names, fields) != (None, None, None) or order not in ("<", ">", "=", "|"):
        raise Refused("a structured dtype")
    if target.value.kind in "US" and width > 0:
        target.value = np.dtype(f"{target.value.kind}{width // (4 if target.value.kind == 'U' else 1)}")
    if order in ("<", ">"):
        target.value = target.value.newbyteorder(order)


_CALLS: dict[str, Callable[..., Any]] = {
    "_reconstruct": _Reader.call_reconstruct,
    "scalar": _Reader.call_scalar,
    "_frombuffer": _Reader.call_frombuffer,
    "dtype": _Reader.call_dtype,
    "encode": _Reader.call_encode,
    "bytes": _Reader.call_bytes,
    "OrderedDict": _Reader.call_ordered_dict,
}

_U1, _U2, _U4, _U8 = (struct.Struct(form) for form in ("<B", "<H", "<I", "<Q"))
_I4, _F8 = struct.Struct("<i"), struct.Struct(">d")


def _skip(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.number(form) and None


def _push(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    return lambda r: r.stack.append(value(r))


def _text(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.text(r.number(form))


def _bytes(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.stack.append(r.span(r.number(form)))


def _put(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.memo.__setitem__(r.number(form), r.stack[-1])


def _get(form: struct.Struct) -> Callable[[_Reader], None]:
    return lambda r: r.stack.append(r.memo[r.number(form)])


def _tuple(count: int) -> Callable[[_Reader], None]:
    return lambda r: r.tuple_of(count)


_HANDLERS: dict[int, Callable[[_Reader], None]] = {
    0x80: _skip(_U1),  # PROTO
    0x95: _skip(_U8),  # FRAME
    ord("0"): lambda r: r.stack.pop() and None,  # POP
    ord("N"): _push(lambda _: None),
    0x88: _push(lambda _: True),
    0x89: _push(lambda _: False),
    ord("M"): _push(lambda r: r.number(_U2)),  # BININT2
    ord("J"): _push(lambda r: r.number(_I4)),  # BININT
    0x8A: _push(lambda r: int.from_bytes(r.bytes_of(r.span(r.number(_U1))), "little", signed=True)),  # LONG1
    ord("G"): _push(lambda r: r.number(_F8)),  # BINFLOAT
    0x8C: _text(_U1),
    ord("X"): _text(_U4),
    0x8D: _text(_U8),
    ord("C"): _bytes(_U1),
    ord("B"): _bytes(_U4),
    0x8E: _bytes(_U8),  # BINBYTES8
    0x96: _bytes(_U8),  # BYTEARRAY8
    ord(")"): _push(lambda _: ()),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("t"): _push(lambda r: tuple(r.since_mark())),
    ord("]"): _push(lambda _: []),
    ord("a"): lambda r: r.extend([r.stack.pop()]),
    ord("e"): lambda r: r.extend(r.since_mark()),
    ord("}"): _push(lambda _: {}),
    ord("s"): lambda r: r.store([r.stack.pop(-2), r.stack.pop()]),
    ord("u"): lambda r: r.store(r.since_mark()),
    ord("c"): lambda r: r.named(r.line(), r.line()),
    0x93: _Reader.stack_global,
    ord("R"): _Reader.reduce,
    ord("b"): _Reader.build,
    ord("q"): _put(_U1),
    ord("r"): _put(_U4),
    ord("j"): _get(_U4),
}
