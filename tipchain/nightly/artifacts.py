"""What an item left: its report, its log, the files of a chain's commands by their hashes, and what is large of it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tipchain.chain.artifacts import snapshot
from tipchain.chain.result_json import parse_result
from tipchain.foreign_text import clean
from tipchain.json_text import read_json
from tipchain.nightly.executor import Work

# What an item left behind: its report, and the files of a chain's commands by their hashes; asked where it ran.

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


# The last lines of an item's log, for reports that go where the log does not.

LINES, BYTES = 20, 16 * 1024


def log_end(log: Path, size: int) -> bytes:
    """Return the last ``size`` bytes of ``log``.

    An item can write in its own folder: a pipe in the log's place would be waited for, and a link leads elsewhere.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{log}: is no regular file")
        file.seek(max(0, found.st_size - size))
        return file.read(size)


def log_tail(log: Path, lines: int = LINES) -> list[str]:
    """Return the last lines of ``log`` without control characters; none if it cannot be read."""
    try:
        data = log_end(log, BYTES + 1)
    except OSError:
        return []
    found = [clean(line).rstrip() for line in data[-BYTES:].decode(errors="replace").splitlines()]
    if len(data) > BYTES and len(found) > 1:
        del found[0]  # cut in the middle
    while found and not found[-1]:
        del found[-1]
    return found[-lines:]


# What is large of what items leave: weights, tensors, exported models; all but texts.

TEXTS = frozenset(
    {".csv", ".html", ".json", ".jsonl", ".lock", ".log", ".md", ".txt", ".xml", ".yaml", ".yml"}
)
"""Ends of the names of files that are kept: logs, reports, settings."""


def drop_dumps(folder: Path) -> None:
    """Delete all files of an attempt but texts; links are deleted, not followed, and what cannot be deleted stays."""
    for place, _, files in os.walk(folder):
        for name in files:
            path = Path(place) / name
            if path.is_symlink() or path.suffix not in TEXTS:
                with suppress(OSError):
                    path.unlink()
