"""The comparison of two dumps."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tipchain.numbers.diff_log import FAILED, PASSED, log_lines
from tipchain.numbers.dumps import load_tree
from tipchain.reprod_log.compare import check_data, compute_diff
from tipchain.reprod_log.utils import check_print_diff


class ReprodDiffHelper:
    """Loads dumps, compares two of them and reports."""

    diff_dict: dict[Any, Any]

    def load_info(self, path: str | PathLike[str]) -> Any:
        """Return the dict that a dump holds. Nothing in the file is run.

        Raises:
            AssertionError: there is no such file.
            RecordError: the file is not a dump.
        """
        if not Path(path).exists():
            raise AssertionError(f"no such file: {path}")
        info = load_tree(path)
        return info if isinstance(info, dict) else info.tolist()

    def compare_info(self, info1: dict[Any, Any], info2: dict[Any, Any]) -> None:
        """Compare two dicts of arrays; ``report`` tells the result.

        Raises:
            AssertionError: an argument is no dict, or a key stands on one side only; the message names it.
        """
        for name, info in (("info1", info1), ("info2", info2)):
            if not isinstance(info, dict):
                raise AssertionError(f"{name} must be a dict, found {type(info).__name__}")  # noqa: TRY004  (as reprod_log)
        check_data(info1, info2)
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
