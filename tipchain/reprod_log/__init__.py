"""Drop-in for reprod_log 1.0.1: the same calls, files and log lines, without its defects.

Replace ``from reprod_log import ReprodLogger, ReprodDiffHelper`` by ``from tipchain.reprod_log import ...``.
``docs/reference/reprod_log.md`` lists the differences. Importing this package loads neither torch nor paddle.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tipchain.numbers.dumps import load_tree, save_record
from tipchain.numbers.verdicts import FAILED, PASSED, log_lines
from tipchain.reprod_log import compare, utils
from tipchain.reprod_log.compare import compute_diff
from tipchain.reprod_log.utils import check_print_diff

# The recorder of named arrays.


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

    def add(self, key: object, val: object) -> None:
        """Keep a copy of ``val`` under ``key``.

        Args:
            key: the name.
            val: an array, a NumPy scalar (kept as a 0-d array), or a dict of them, nested at will.

        Raises:
            AssertionError: ``val`` is something else.
        """
        self._data[key] = _copied(key, val)

    def remove(self, key: object) -> None:
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


def _copied(key: object, val: object) -> object:
    if isinstance(val, Mapping):
        return {name: _copied(f"{key}/{name}", item) for name, item in val.items()}
    if not isinstance(val, (np.ndarray, np.generic)) or val.dtype.hasobject:
        kind = f"an array of {val.dtype}" if isinstance(val, np.ndarray) else type(val).__name__
        raise AssertionError(f"{key}: found {kind}\n{_WAYS}")
    return np.array(val)


# The comparison of two dumps.


class ReprodDiffHelper:
    """Loads dumps, compares two of them and reports."""

    diff_dict: dict[object, object]

    def load_info(self, path: str | PathLike[str]) -> object:
        """Return the dict that a dump holds. Nothing in the file is run.

        Raises:
            AssertionError: there is no such file.
            RecordError: the file is not a dump.
        """
        if not Path(path).exists():
            raise AssertionError(f"no such file: {path}")
        info = load_tree(path)
        return info if isinstance(info, dict) else info.tolist()

    def compare_info(self, info1: dict[object, object], info2: dict[object, object]) -> None:
        """Compare two dicts of arrays; ``report`` tells the result.

        Raises:
            AssertionError: an argument is no dict, or a key stands on one side only; the message names it.
        """
        for name, info in (("info1", info1), ("info2", info2)):
            if not isinstance(info, dict):
                raise AssertionError(f"{name} must be a dict, found {type(info).__name__}")  # noqa: TRY004  (as reprod_log)
        self.diff_dict = compute_diff(info1, info2)

    def report(
        self,
        diff_method: str | Sequence[str] = "mean",
        diff_threshold: float = 1e-6,
        path: str | PathLike[str] | None = "./diff.txt",
    ) -> bool:
        """Print the differences, write the same lines to ``path`` and return whether all passed.

        Raises:
            AssertionError: an unknown method.
        """
        lines: list[str] = []
        passed = check_print_diff(
            self.diff_dict, diff_method=diff_method, diff_threshold=diff_threshold, print_func=lines.append
        )
        lines.append(PASSED if passed else FAILED)
        log_lines(lines, path, sys.stdout)
        return passed


__all__ = ["ReprodDiffHelper", "ReprodLogger", "compare", "utils"]
