"""The recorder of named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from tipchain.numbers.dumps import save_record

_WAYS = (
    "val must be np.ndarray, a NumPy scalar or a dict of them; convert tensors first:\n"
    "  torch, CPU:  tensor.detach().numpy()\n"
    "  torch, GPU:  tensor.detach().cpu().numpy()\n"
    "  paddle:      tensor.numpy()"
)


class ReprodLogger:
    """Collects named arrays and saves them as one dump."""

    def __init__(self) -> None:
        self._data: dict[Any, Any] = {}

    @property
    def data(self) -> dict[Any, Any]:
        """The arrays by name."""
        return self._data

    def add(self, key: Any, val: Any) -> None:
        """Keep a copy of ``val`` under ``key``.

        Args:
            key: the name.
            val: an array, a NumPy scalar (kept as a 0-d array), or a dict of them, nested at will.

        Raises:
            AssertionError: ``val`` is something else.
        """
        self._data[key] = _copied(key, val)

    def remove(self, key: Any) -> None:
        """Drop ``key``; an unknown key is only printed."""
        if key in self._data:
            del self._data[key]
        else:
            print(f"{key} is not in {self._data.keys()}")

    def clear(self) -> None:
        """Drop all keys."""
        self._data.clear()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the dump; missing folders are made, and ``.npy`` is added where it is missing.

        Raises:
            RecordError: the disk is full or the folder cannot be written; an earlier dump is then untouched.
        """
        save_record(path, self._data)


def _copied(key: Any, val: Any) -> Any:
    if isinstance(val, Mapping):
        return {name: _copied(f"{key}/{name}", item) for name, item in val.items()}
    if not isinstance(val, (np.ndarray, np.generic)) or val.dtype.hasobject:
        kind = f"an array of {val.dtype}" if isinstance(val, np.ndarray) else type(val).__name__
        raise AssertionError(f"{key}: found {kind}\n{_WAYS}")
    return np.array(val)
