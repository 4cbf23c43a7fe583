"""Dumps: named arrays in reprod_log's file format, with the facts about their making beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.errors import RecordError
from tipchain.json_text import parse_json
from tipchain.parity.dump_reader import EXPECTED, load_tree
from tipchain.parity.dump_writer import write_tree
from tipchain.runs import atomic_write, replacing

PLAIN_KEY = "array"
"""The key under which the array of a plain ``.npy`` file stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one side left behind.

    Attributes:
        side: ``torch`` or ``paddle`` as ``meta`` tells it; "" where nothing does.
        meta: versions, device, seed, commit and what else ``<dump>.json`` holds; empty without that file.
        arrays: name to array; names of nested dicts are joined with ``/``. Views of the mapped file.
    """

    side: str
    meta: Mapping[str, object]
    arrays: Mapping[str, np.ndarray[Any, Any]]


def dump_path(path: str | PathLike[str]) -> Path:
    """Return the file that ``numpy.save(path)`` writes: ``.npy`` is added where it is missing."""
    file = Path(path)
    return file if file.name.endswith(".npy") else file.with_name(f"{file.name}.npy")


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
    if isinstance(tree, dict):
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for key, array in flatten(tree):
            if key in arrays:
                raise RecordError("the same name twice", file=file, key=key, expected="unique names")
            arrays[key] = array
    else:
        arrays = {PLAIN_KEY: tree}
    meta = _load_meta(meta_path(file))
    return Record(side=str(meta.get("side", "")), meta=meta, arrays=arrays)


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield every array of a nested dict with its ``/``-joined path; scalars as 0-d arrays.

    An empty dict inside stands as an empty array, so that it cannot go unseen: no comparison passes one.
    """
    for key, value in tree.items():
        if isinstance(value, Mapping) and not value:
            yield f"{prefix}{key}/", np.empty(0)
        elif isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", np.asarray(value)


def _load_meta(path: Path) -> Mapping[str, object]:
    try:
        meta = parse_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RecordError("cannot be read", file=path, found=error, expected="a JSON object") from None
    if not isinstance(meta, dict):
        raise RecordError(
            "is no description of a dump", file=path, found=type(meta).__name__, expected="a JSON object"
        )
    return meta


def save_record(
    path: str | PathLike[str], arrays: Mapping[Any, Any], meta: Mapping[str, object] | None = None
) -> Path:
    """Save a dump that reprod_log can read, and ``meta`` as JSON beside it. Return the path of the dump.

    An existing file is replaced whole or not at all. The arrays are not copied in memory.

    Args:
        path: the file. ``.npy`` is added if it is missing, as ``numpy.save`` does.
        arrays: arrays or numbers by name. A value may be a dict of the same kind.
        meta: the content of ``<dump>.json``. Without it, an older JSON file is removed.

    Raises:
        RecordError: a value is not an array of numbers, or the disk is full or read-only.
    """
    file = dump_path(path)
    try:
        with replacing(file) as stream:
            write_tree(stream, arrays)
        if meta is None:
            meta_path(file).unlink(missing_ok=True)
        else:
            atomic_write(meta_path(file), json.dumps(dict(meta), indent=1) + "\n")
    except OSError as error:
        raise RecordError("cannot be written", file=file, found=error.strerror or error) from error
    except RecordError as error:
        raise RecordError(
            error.message, file=file, key=error.key, found=error.found, expected=EXPECTED
        ) from None
    return file
