"""GitHub's workflow commands and job summaries: https://docs.github.com/actions, "Workflow commands"."""

from __future__ import annotations

import re
from collections.abc import Mapping

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file that a step's summary, in Markdown, is appended to."""
SUMMARY_LIMIT = 1024 * 1024
"""Bytes; GitHub refuses a step's summary that is larger."""
_ACTIVE = re.compile(r"[\\`*_{}\[\]()<>#+!|~&:@$-]")


def workflow_command(level: str, message: str, properties: Mapping[str, str]) -> str:
    """Return a line that annotates a file: ``::error file=a.txt,line=3,title=typo::not a number``.

    Args:
        level: ``error``, ``warning`` or ``notice``.
        message: may have several lines.
        properties: ``file``, ``line``, ``title`` and others.
    """
    given = ",".join(f"{name}={escaped(value, property_=True)}" for name, value in properties.items())
    return f"::{level} {given}::{escaped(message)}"


def escaped(text: str, *, property_: bool = False) -> str:
    """Return ``text`` as GitHub reads it in a workflow command."""
    text = "".join(one for one in text if one in "\r\n" or one.isprintable())
    for character, escape in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, escape)
    if property_:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return text


def markdown(text: str) -> str:
    """Return ``text`` on one line, so that Markdown shows it as it is, in a table too.

    Whatever Markdown could take for its own becomes a character reference, which it never does
    (https://github.github.com/gfm, "Entity and numeric character references").
    """
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return _ACTIVE.sub(lambda found: f"&#{ord(found[0])};", line)
