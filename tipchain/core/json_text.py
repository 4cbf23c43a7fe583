"""JSON out of files that somebody else may have written: every way of being wrong is a ValueError."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from stat import S_ISREG
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints

from tipchain.framework_types import Setting

Json: TypeAlias = Any
"""A value of JSON or of a YAML file: text, number, flag, None, a list or a dict of such."""
JsonObject: TypeAlias = Mapping[str, Json]
"""A JSON object."""
if TYPE_CHECKING:
    Number: TypeAlias = complex
else:
    from numbers import Complex as Number  # of which integers and floats are instances
_T = TypeVar("_T")
_hints = cache(get_type_hints)


def parse_json(text: str | bytes, **numbers: Setting) -> Json:
    """Return the value of a JSON text; ``numbers``: how `json.loads` reads them.

    Raises:
        ValueError: it is no JSON, no UTF-8, nested more deeply than Python follows, or has a number of thousands of digits.
    """
    try:
        return json.loads(text, **numbers)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_json(path: Path) -> Json:
    """Return the value of a JSON file; a pipe or device makes nobody wait.

    Raises:
        OSError: it cannot be read, or is no regular file.
        ValueError: as `parse_json`, or a number is not finite or larger than a column of a database holds.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        return parse_json(file.read(), parse_int=_integer, parse_float=_finite, parse_constant=_finite)


def _integer(text: str) -> int:
    if abs(number := int(text)) >= 2**63:
        raise ValueError(f"{text:.40} is too large")
    return number


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is no finite number")
    return number


def parse_as(kind: type[_T], value: object, where: str = "", *, lenient: bool = False) -> _T:
    """Return a JSON value as an instance of a type, such as a dataclass; names that it does not have are passed over.

    Args:
        kind: the type; an enumeration's members are known by their values, named tuples by the names of their fields.
        value: what was read.
        where: the names above it, for the error.
        lenient: whether numbers may stand there as texts, such as ``NaN`` and ``Infinity``.

    Raises:
        ValueError: it is something else; which name is at fault.
    """
    import msgspec  # plans are faster without it

    try:
        return msgspec.convert(_in_order(kind, value), kind, strict=not lenient, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        fact, _, place = str(error).partition(" - at `$")
        name = f"{where}{place.removesuffix('`')}".removeprefix(".")
        raise ValueError(f"{name}: {fact:.200}" if name else f"{fact:.200}") from None


def _decoded(kind: type, value: Json) -> Json:
    if kind is not Number or not isinstance(value, str):
        return value
    with suppress(ValueError):
        return float(value)  # by name: NaN, Infinity
    return complex(value)


def _in_order(kind: Setting, value: Json) -> Json:
    """Return the fields of named tuples in their order, as msgspec reads them."""
    named = _named_tuple(kind)
    if named is None or not isinstance(value, (list, dict)):
        return value
    if isinstance(value, list):
        return [_in_order(named, one) for one in value]
    known = {**named._field_defaults, **value}
    for name in named._fields:
        if name not in known:
            raise ValueError(f"{name} is missing")
    return [_in_order(hint, known[name]) for name, hint in _hints(named).items()]


@cache
def _named_tuple(kind: Setting) -> Setting:
    return next((one for one in (kind, *get_args(kind)) if hasattr(one, "_field_defaults")), None)


_PLAIN = {NoneType, str, int, bool}


@cache
def _names_of(kind: Setting) -> tuple[str, ...]:
    if not hasattr(kind, "__dataclass_fields__"):
        return getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))
    from dataclasses import fields  # plans are faster without it

    return tuple(one.name for one in fields(kind))


def as_json(
    value: object, number: Callable[[float], float | str] = lambda one: one if math.isfinite(one) else json.dumps(one)
) -> Json:
    """Return a value as JSON that `parse_as` reads, dataclasses as objects, enumerations, whose values are their names, as these.

    Args:
        value: a dataclass, a named tuple, or whatever may be a field of one.
        number: what a float becomes; ``NaN``, ``Infinity`` and ``-Infinity`` these names, if not said otherwise.
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
