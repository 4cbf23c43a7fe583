"""The last lines of an item's log, for reports that go where the log does not."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tipchain.foreign_text import clean

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
