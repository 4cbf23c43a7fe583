"""JSON out of files that somebody else may have written: every way of being wrong is a ValueError."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from itertools import repeat
from pathlib import Path
from stat import S_ISREG
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from tipchain.framework_types import Setting

Json: TypeAlias = Any
"""A value of JSON or of a YAML file: text, number, flag, None, a list or a dict of such."""
JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object."""
_T = TypeVar("_T")
_LARGEST_INTEGER = 2**63 - 1
"""The largest integer that a column of a database holds."""


def parse_json(text: str | bytes) -> Json:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, no UTF-8, nested more deeply than Python follows, or has a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Json:
    """Return the value of a JSON file; a pipe or device makes nobody wait.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: as `parse_json`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        return parse_json(file.read())


def parse_as(kind: type[_T], value: object, where: str = "", *, lenient: bool = False) -> _T:
    """Return a JSON value as an instance of a type, field by field.

    Args:
        kind: the type; of its fields str, int, float, bool, None, Any, Literal, enumerations by name or value, tuples,
            lists, mappings by name, dataclasses, named tuples, and one of these or None; of several, the first that fits.
        value: what was read.
        where: the names above it, for the error.
        lenient: whether NaN and infinities are taken, as numbers or by name, and names that are unknown are passed over.

    Raises:
        ValueError: it is something else; which name is at fault.
    """
    whatever: Setting = kind
    try:
        parsed: _T = _reader(whatever, lenient)(value)
    except _MisfitError as error:
        place = where + "".join(reversed(error.above))
        name = (place if where else place.removeprefix(".")) or "it"
        raise ValueError(str(error).replace(IT, name, 1)) from None
    return parsed


IT = "{it}"
_Reader: TypeAlias = Callable[[Json], Json]


class _MisfitError(ValueError):
    """A value that does not fit (`IT`), and the names above it, innermost first."""

    def __init__(self, text: str, *above: str) -> None:
        super().__init__(text)
        self.above = [*above]


def _misfit(kind: Setting) -> _MisfitError:
    kind = getattr(kind, "__name__", str(kind))
    return _MisfitError(f"{IT} is no {kind}")


@cache
def _reader(kind: Setting, lenient: bool) -> _Reader:
    """Return the reader of a type's values; a type is looked at once."""
    origin: Setting = get_origin(kind)
    inner = get_args(kind)
    if origin is UnionType:
        return _union_reader(inner, lenient)
    if _is_dataclass(kind) or hasattr(kind, "_field_defaults"):
        return _fields_reader(kind, lenient)
    if origin in (tuple, list):
        kinds = [_reader(one, lenient) for one in inner if one is not ...]
        return _list_reader(origin, kinds, any_length=origin is list or ... in inner)
    if origin in (Mapping, dict):
        return _mapping_reader(*(_reader(one, lenient) for one in inner))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member_reader(kind)
    if kind in (str, bool, NoneType):
        return _exact_reader(kind)
    return _number_reader(kind) if lenient and kind in (float, complex) else _fitting_reader(kind)


def _union_reader(inner: Sequence[Setting], lenient: bool) -> _Reader:
    members = [_reader(one, lenient) for one in inner if one is not NoneType]
    # As they are, however many others there are.
    plain = {NoneType, str, bool, *([float] if lenient else [])} & set(inner)

    def read(value: Json) -> Json:
        if type(value) in plain:
            return value
        for member in members[:-1]:
            with suppress(_MisfitError):
                return member(value)
        return members[-1](value)

    return read


@cache
def _fields_of(kind: Setting, lenient: bool) -> tuple[Mapping[str, _Reader], Sequence[str]]:
    """Return a reader for each field, and the fields without a default."""
    from dataclasses import MISSING, fields

    readers = {name: _reader(one, lenient) for name, one in get_type_hints(kind).items()}
    if _is_dataclass(kind):
        own = [one for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
        needed = [one.name for one in own]
    else:
        needed = [name for name in readers if name not in kind._field_defaults]
    return readers, needed


def _fields_reader(kind: Setting, lenient: bool) -> _Reader:
    def read(value: Json) -> Json:
        readers, needed = _fields_of(kind, lenient)  # asked late: a field may be of the same kind
        if not isinstance(value, dict):
            raise _MisfitError(f"{IT} is no object with names")
        for name in needed:
            if name not in value:
                raise _MisfitError(f"{IT} is missing", f".{name}")
        found, name = {}, ""
        if not (lenient or value.keys() <= readers.keys()):
            raise _MisfitError(f"{IT} is unknown", f".{next(one for one in value if one not in readers)}")
        try:
            for name, one in value.items():
                if name in readers:
                    found[name] = readers[name](one)
        except _MisfitError as error:
            error.above.append(f".{name}")
            raise
        return kind(**found)

    return read


def _list_reader(origin: type, kinds: Sequence[_Reader], *, any_length: bool) -> _Reader:
    def read(value: Json) -> Json:
        if not isinstance(value, list) or not (any_length or len(kinds) == len(value)):
            raise _misfit(origin)
        found: list[Json] = []
        try:
            for one, part in zip(repeat(kinds[0]) if any_length else kinds, value):  # noqa: B905 - as long as the value
                found.append(one(part))
        except _MisfitError as error:
            error.above.append(f"[{len(found)}]")
            raise
        return origin(found)

    return read


def _mapping_reader(read_name: _Reader, read_one: _Reader) -> _Reader:
    def read(value: Json) -> Json:
        if not isinstance(value, dict):
            raise _misfit(Mapping)
        found, name = {}, ""
        try:
            for name, one in value.items():
                found[read_name(name)] = read_one(one)
        except _MisfitError as error:
            error.above.append(f".{name}")
            raise
        return found

    return read


def _member_reader(kind: type[Enum]) -> _Reader:
    members = {**{one.value: one for one in kind}, **kind.__members__}

    def read(value: Json) -> Json:
        if not isinstance(value, (str, int)) or value not in members:
            raise _misfit(kind)
        return members[value]

    return read


def _exact_reader(kind: type) -> _Reader:
    def read(value: Json) -> Json:
        if type(value) is not kind:
            raise _misfit(kind)
        return value

    return read


def _number_reader(kind: type[float | complex]) -> _Reader:
    def read(value: Json) -> Json:
        if type(value) is kind:
            return value
        try:
            return kind(value if type(value) in (int, float, str) else "")  # by name: NaN, Infinity
        except (ValueError, OverflowError):
            raise _misfit(kind) from None

    return read


def _fitting_reader(kind: Setting) -> _Reader:
    largest = {int: _LARGEST_INTEGER, float: sys.float_info.max}.get(kind)
    kinds, choices = ((int, float) if kind is float else (int,)), get_args(kind)

    def read(value: Json) -> Json:
        if largest is not None:
            fits = type(value) in kinds and -largest <= value <= largest
        else:
            fits = kind is Any or (isinstance(value, str) and value in choices)
        if not fits:
            raise _misfit(kind)
        return value

    return read


_PLAIN = {NoneType, str, int, bool}


@cache
def _names_of(kind: Setting) -> tuple[str, ...]:
    """Return the field names of a dataclass or named tuple, () of others."""
    if not _is_dataclass(kind):
        return getattr(kind, "_fields", ())
    from dataclasses import fields

    return tuple(one.name for one in fields(kind))


def _is_dataclass(kind: Setting) -> bool:
    """Tell whether a type is a dataclass; importing `dataclasses` would slow every plan."""
    return hasattr(kind, "__dataclass_fields__")


def _number(value: float) -> float | str:
    """Return ``value``, or its name if JSON has none for it: ``NaN``, ``Infinity``, ``-Infinity``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def as_json(value: object, number: Callable[[float], float | str] = _number) -> Json:
    """Return a value as JSON that `parse_as` reads, dataclasses as objects, enumerations as names.

    Args:
        value: a dataclass, a named tuple, or whatever may be a field of one.
        number: what a float becomes; NaN and infinities their names, if not said otherwise.
    """
    kind: Setting = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, float):
        return number(value)
    if names := _names_of(kind):
        return {name: as_json(getattr(value, name), number) for name in names}
    if isinstance(value, (list, tuple)):
        return [as_json(one, number) for one in value]
    if isinstance(value, Mapping):
        return {as_json(name): as_json(one, number) for name, one in value.items()}
    if isinstance(value, Enum):
        return value.name
    return str(value) if isinstance(value, complex) else value


def flat_facts(facts: JsonObject, above: str = "") -> dict[str, str]:
    """Return nested facts as texts by dotted name; a list is one text."""
    texts: dict[str, str] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping):
            texts |= flat_facts(value, f"{above}{key}.")
        else:
            listed = isinstance(value, (list, tuple))
            texts[f"{above}{key}"] = ", ".join(map(str, value)) if listed else "" if value is None else str(value)
    return texts


def taken(kind: type[_T], source: object, **own: object) -> _T:
    """Return a dataclass with another value's fields of the same names, and ``own``."""
    whatever: Setting = kind
    names = [name for name in _names_of(whatever) if name not in own and hasattr(source, name)]
    return kind(**{name: getattr(source, name) for name in names}, **own)
