"""What an item left behind: its report, and the files of a chain's commands by their hashes; asked where it ran."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.chain.artifacts import snapshot
from tipchain.chain.result_json import parse_result
from tipchain.json_text import read_json
from tipchain.nightly.executor import Work

_RUN = re.compile(r"/runs/\d{8}-\d{6}-[0-9a-f]+/")


def read_report(work: Work) -> tuple[dict[str, Any], str]:
    """Return the report of an attempt, and what is wrong with it; "" for nothing."""
    path = work.report
    if path.is_symlink() or not path.is_file():
        return {}, "it left no report"
    try:
        data = read_json(path)
        whole = isinstance(data, dict) and type(data["exit_code"]) is int
        parts = [*data["results"], *data["verdicts"]] if whole else []
        whole = whole and all(isinstance(one["outcome"], str) for one in parts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, f"its report cannot be read: {type(error).__name__} {error}"
    return (data, "") if whole else ({}, "its report is not whole")


def read_files_left(work: Work) -> dict[str, str]:
    """Return `files_left` of the report that an attempt left; nothing without a whole one."""
    return files_left(read_report(work)[0], work)


def files_left(report: Mapping[str, Any], work: Work) -> dict[str, str]:
    """Return the SHA-256 of the files that the commands of a chain left.

    Names are the same in every night: below the attempt's folder, else the root, without the name of the chain's run.
    """
    found: dict[str, str] = {}
    for data in report.get("results", ()):
        try:
            paths = snapshot(parse_result(data).command.leaves, work.root)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        for path in paths:
            whole = work.root / path
            below = whole.relative_to(work.folder) if whole.is_relative_to(work.folder) else Path(path)
            name = _RUN.sub("/runs/", below.as_posix())
            if name not in found and (digest := _sha256(whole)):
                found[name] = digest
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for chunk in iter(lambda: file.read(1 << 20), b""):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()
