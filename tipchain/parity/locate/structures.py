"""Tensors in the nested arguments and results of a layer: taken out, named, put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hole:
    """Where a tensor was: its number in the structure, from 0."""

    number: int


def take_out(structure: Any, is_tensor: Callable[[Any], bool]) -> tuple[Any, list[Any], list[str]]:
    """Return the structure with `Hole` for every tensor, the tensors, and their names (``0``, ``1.hidden``).

    Tuples, lists, named tuples, mappings and dataclasses are looked into; whatever else stays as it is.
    """
    tensors: list[Any] = []
    names: list[str] = []
    return _walk(structure, "", is_tensor, tensors, names), tensors, names


def _walk(
    value: Any, path: str, is_tensor: Callable[[Any], bool], tensors: list[Any], names: list[str]
) -> Any:
    # A function inside the other that calls itself would keep the tensors, and all that they were computed from,
    # until Python next looks for cycles.
    def walk(one: Any, key: object) -> Any:
        return _walk(one, f"{path}.{key}" if path else str(key), is_tensor, tensors, names)

    if is_tensor(value):
        tensors.append(value)
        names.append(path or "0")
        return Hole(len(tensors) - 1)
    if isinstance(value, Mapping):
        return {key: walk(one, key) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return _like(value, [walk(one, key) for key, one in _numbered(value)])
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: walk(getattr(value, one.name), one.name) for one in fields(value)}
    return value


def put_back(structure: Any, tensors: Sequence[Any]) -> Any:
    """Return the structure with the tensors in its holes; the inverse of `take_out` for arguments."""
    if isinstance(structure, Hole):
        return tensors[structure.number]
    if isinstance(structure, Mapping):
        return {key: put_back(one, tensors) for key, one in structure.items()}
    if isinstance(structure, tuple | list):
        return _like(structure, [put_back(one, tensors) for one in structure])
    return structure


def _numbered(values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    names = getattr(values, "_fields", range(len(values)))
    return ((str(name), value) for name, value in zip(names, values, strict=True))


def _like(sequence: Any, values: list[Any]) -> Any:
    kind: Any = type(sequence)
    if hasattr(kind, "_fields"):  # a constructor of its own, as torch's PackedSequence has, takes no holes
        return tuple.__new__(kind, values)
    return tuple(values) if isinstance(sequence, tuple) else values
