"""The last lines of an item's log, for reports that go where the log does not."""

from __future__ import annotations

import os
from pathlib import Path

from tipchain.report.terminal import clean

LINES, BYTES = 20, 16 * 1024


def log_tail(log: Path, lines: int = LINES) -> list[str]:
    """Return the last lines of ``log`` without control characters; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    found = [clean(line).rstrip() for line in text.splitlines()]
    if size > BYTES and len(found) > 1:
        del found[0]  # cut in the middle
    while found and not found[-1]:
        del found[-1]
    return found[-lines:]
