"""JSON out of files that somebody else may have written: every way of being wrong is a ValueError."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from stat import S_ISREG
from types import NoneType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from tipchain.framework_types import Setting

Json: TypeAlias = Any
"""A value of JSON or of a YAML file: text, number, flag, None, a list or a dict of such."""
JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object."""
_T = TypeVar("_T")
_LARGEST_INTEGER = 2**63 - 1
"""What a column of a database holds."""


def parse_json(text: str | bytes) -> Json:
    """Return what a JSON text holds.

    Raises:
        ValueError: it is no JSON, no UTF-8, nested more deeply than Python follows, or has a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Json:
    """Return what a JSON file holds; who put a pipe or a device in its place makes nobody wait.

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
    """Return a value of JSON as what a type says: a dataclass or named tuple, whose fields are looked at likewise, or a part.

    Args:
        kind: the type; of its fields str, int, float, bool, None, Any, Literal, enumerations by name or value, tuples,
            lists, mappings by name, dataclasses, named tuples, and one of these or None.
        value: what was read.
        where: the names above it, for the error.
        lenient: whether NaN and infinities are taken, as numbers or by name, and names that are unknown are passed over.

    Raises:
        ValueError: it is something else; which name is at fault.
    """
    parsed: _T = _parsed(kind, value, where, lenient)
    return parsed


def _parsed(kind: object, value: object, where: str, lenient: bool) -> Json:
    if type(value) is kind and kind in (str, bool):
        return value  # most of them
    origin, inner, has_fields = _shape(kind)
    if origin is UnionType:
        kind = NoneType if value is None and NoneType in inner else inner[0]
        return _parsed(kind, value, where, lenient)
    if has_fields:
        return _of_fields(kind, value, where, lenient)
    if isinstance(kind, type) and issubclass(kind, Enum):
        for member in kind:
            if value in (member.name, member.value):
                return member
    elif origin in (tuple, list) and isinstance(value, list):
        kinds = inner[:1] * len(value) if origin is list or inner[1:] == (...,) else inner
        if len(kinds) == len(value):
            return origin(
                _parsed(one, part, f"{where}[{number}]", lenient)
                for number, (one, part) in enumerate(zip(kinds, value, strict=True))
            )
    elif origin in (Mapping, dict) and isinstance(value, dict):
        return {
            _parsed(inner[0], name, _below(where, name), lenient): _parsed(inner[1], one, _below(where, name), lenient)
            for name, one in value.items()
        }
    elif lenient and kind is float and type(value) in (int, float, str):
        with suppress(ValueError, OverflowError):  # by name: NaN, Infinity
            return float(value)  # type: ignore[arg-type]
    elif _fits(kind, value):
        return value
    raise ValueError(f"{where or 'it'} is no {getattr(kind, '__name__', str(kind))}")


def _fits(kind: object, value: Json) -> bool:
    if _shape(kind)[0] is Literal:
        return isinstance(value, str) and value in _shape(kind)[1]
    if kind is float:
        return type(value) in (int, float) and abs(value) <= sys.float_info.max
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST_INTEGER
    return kind is Any or (kind in (str, bool, NoneType) and type(value) is kind)


def _of_fields(kind: Setting, value: Json, where: str, lenient: bool) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'it'} is no object with names")  # noqa: TRY004 - what a file holds
    kinds, needed = _fields_of(kind)
    absent = [name for name in needed if name not in value]
    unknown = [name for name in value if name not in kinds] if not lenient else []
    if absent or unknown:
        raise ValueError(f"{_below(where, (absent or unknown)[0])} {'is missing' if absent else 'is unknown'}")
    known = ((name, one) for name, one in value.items() if name in kinds)
    return kind(**{name: _parsed(kinds[name], one, _below(where, name), lenient) for name, one in known})


@cache
def _shape(kind: object) -> tuple[Json, tuple[Json, ...], bool]:
    """Return what a type is made of, and whether it is a dataclass or named tuple."""
    return get_origin(kind), get_args(kind), is_dataclass(kind) or hasattr(kind, "_field_defaults")


@cache
def _fields_of(kind: Setting) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the types of the fields of a dataclass or named tuple, and which of them have no default."""
    hints = get_type_hints(kind)
    if not is_dataclass(kind):
        return hints, tuple(name for name in hints if name not in kind._field_defaults)
    needed = (one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING)
    return hints, tuple(needed)


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def as_json(value: object, number: Callable[[float], float | str] = float) -> Json:
    """Return a value as JSON values that `parse_as` reads: dataclasses as objects, enumerations by name, tuples as lists.

    Args:
        value: a dataclass, or whatever may be a field of one.
        number: what a float becomes; itself, NaN and infinities included, if not said otherwise.
    """
    if is_dataclass(value):
        return {one.name: as_json(getattr(value, one.name), number) for one in fields(value)}
    if isinstance(value, Mapping):
        return {as_json(name): as_json(one, number) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(one, number) for one in value]
    if isinstance(value, Enum):
        return value.name
    return number(value) if isinstance(value, float) else value


def number_json(value: float) -> float | str:
    """Return ``value``, or its name if JSON has none for it: ``NaN``, ``Infinity``, ``-Infinity``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def flat_facts(facts: JsonObject, above: str = "") -> dict[str, str]:
    """Return nested facts as texts by name: ``versions.torch``; a list is one text, separated by commas."""
    found: dict[str, str] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping):
            found |= flat_facts(value, f"{above}{key}.")
        else:
            listed = isinstance(value, (list, tuple))
            found[f"{above}{key}"] = ", ".join(map(str, value)) if listed else "" if value is None else str(value)
    return found


def taken(kind: type[_T], source: object, **own: object) -> _T:
    """Return a dataclass with what another value has under its fields' names, and ``own`` for other fields."""
    names = [one.name for one in fields(kind) if one.name not in own and hasattr(source, one.name)]  # type: ignore[arg-type]  # a dataclass
    return kind(**{name: getattr(source, name) for name in names}, **own)
