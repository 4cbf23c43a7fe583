"""Text out of files and programs, made fit for a terminal and for a line of a log."""

from __future__ import annotations

import re

_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # ECMA-48: CSI, and OSC, DCS, SOS, PM, APC
)
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
# Unicode's bidirectional controls (UAX #9), line and paragraph separators, and tags: they change what is seen, or are not seen.
_UNSEEN = r"\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_REMOVED = re.compile(f"{_SEQUENCES}|[{_CONTROLS}{_UNSEEN}]")
_ESCAPED = re.compile(f"[{_CONTROLS}{_UNSEEN}\n\ud800-\udfff]")  # halves of characters, which no file or terminal takes


def clean(text: str) -> str:
    """Return ``text`` without what could rewrite a terminal or show other words than stand there.

    Escape sequences, control characters and bidirectional controls go; line ends and tabs stay.
    """
    return _REMOVED.sub("", text)


def escaped(text: str) -> str:
    r"""Return ``text`` in one line, with such characters spelled as Python spells them (``\x1b``, ``\u202e``, ``\n``)."""
    return _ESCAPED.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def escaped_lines(text: str) -> str:
    """Return ``text`` as `escaped` does, but keep its lines."""
    return "\n".join(escaped(line) for line in text.split("\n"))
