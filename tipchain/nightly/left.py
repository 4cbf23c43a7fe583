"""What the commands of a chain left behind, by the hashes of its files; asked where the item ran."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tipchain.chain.artifacts import snapshot
from tipchain.chain.result_json import parse_result
from tipchain.nightly.executor import Work

_RUN = re.compile(r"/runs/\d{8}-\d{6}-[0-9a-f]+/")


def read_files_left(work: Work) -> dict[str, str]:
    """Return `files_left` of the report that an attempt left; nothing without one."""
    if work.report.is_symlink() or not work.report.is_file():  # a pipe would be waited for
        return {}
    try:
        report = json.loads(work.report.read_text(encoding="utf-8"))
        return files_left(report, work) if isinstance(report, dict) else {}
    except (OSError, ValueError, RecursionError, MemoryError):
        return {}


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
