"""Reading the lines of a log of any size and encoding, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CHUNK = 1 << 18
LONGEST = 4096
"""Bytes of a line that are looked at: what a framework prints in one line is shorter."""
_ENDS = re.compile(rb"[\r\n]+")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def log_lines(path: Path) -> Iterator[str]:
    """Yield the lines of ``path`` that hold anything, without colours; of longer lines only the beginning.

    A progress bar's carriage returns end lines too. Bytes that are no UTF-8 are replaced.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        rest = b""
        while chunk := file.read(CHUNK):
            *lines, rest = _ENDS.split(rest + chunk)
            yield from filter(None, map(_text, lines))
            rest = rest[:LONGEST]
        if last := _text(rest):
            yield last


def _text(line: bytes) -> str:
    text = line[:LONGEST].decode("utf-8", errors="replace")
    if "\0" in text:  # UTF-16, or a hole in the file
        text = text.replace("\0", "")
    return without_escapes(text).rstrip()


def without_escapes(text: str) -> str:
    """Return a line without a terminal's colors."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text
