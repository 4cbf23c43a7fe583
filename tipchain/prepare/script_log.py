"""What a shell script's output says went wrong, for scripts that end with 0 whatever happens.

The suites' ``prepare.sh`` neither stop at an error nor check a download, so their exit status tells nothing about the
steps before the last. The programs that they call do say so, in words that hardly change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

TROUBLE = re.compile(
    r"""
    \bERROR\ \d{3}\b                                # wget: a status of HTTP
  | unable\ to\ (?:resolve|establish|access|connect)|could\ not\ resolve|\bGiving\ up\.
  | ^curl:\ \(\d+\)|^(?:wget|fatal|unzip):[ ]
  | ^tar:\ .*(?:cannot|error|not\ look\ like|unexpected|not\ found|no\ such|exiting\ with)
  | ^(?:gzip|gunzip|zcat|bzip2|bunzip2|xz|unxz):\ (?!.*trailing\ garbage)
  | \bnot\ (?:a|in)\ gzip\b|unexpected\ end\ of|end-of-central-directory|(?:invalid|bad|corrupt)\ zip|zipfile\ corrupt
  | \b(?:cannot|can't)\ (?:find\ or\ )?open\b
  | ^(?:rm|mv|cp|ln|ls|cd|cat|sed|mkdir|touch|chmod|find|grep):\ .*(?:cannot|can't|failed|omitting|invalid|missing)
  | no\ such\ file\ or\ directory|not\ a\ directory\b|is\ a\ directory\b
  | command\ not\ found|:\ \d+:\ .*:\ not\ found$    # bash, dash
  | permission\ denied|no\ space\ left\ on\ device|read-only\ file\ system|disk\ quota\ exceeded
  | syntax\ error
  | ^(?:[\w.]+\.)?\w+(?:Error|Exception):\           # the last line of a Python traceback
  | ^ERROR:\ (?!pip's\ dependency\ resolver)         # pip; that one is a remark, the installation is done
  | \bline\ \d+:\s+\d+\ (?:killed|aborted|bus\ error|segmentation\ fault)\b|^killed$
  | :\ FAILED(?:\ open\ or\ read)?$                  # md5sum -c
    """,
    re.VERBOSE | re.IGNORECASE,
)
HARMLESS = re.compile(r"^(?:mkdir|ln): .*: File exists$|: setlocale: ", re.IGNORECASE)
"""What is there already was made by an earlier call; a locale that is not installed changes messages only."""
UNCONNECTED = re.compile(r"\bfailed: (?:Connection|Operation|Network|No route|Host)\b", re.IGNORECASE)
CONNECTED = re.compile(r"\bconnected\.$", re.IGNORECASE)
REQUEST = re.compile(r"--\d{4}-\d\d-\d\d \d\d:\d\d:\d\d--  (?!\(try)")
"""How wget begins a new download; not a further try of the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A line of a log that tells of a failure.

    Attributes:
        line: its number, from 1.
        text: what it says.
    """

    line: int
    text: str


def find_troubles(log: str) -> tuple[Trouble, ...]:
    """Return the lines of a script's output that tell of a failure."""
    # A progress bar returns to the line's start; what it wrote over is not what the line says.
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in log.split("\n")]
    return tuple(
        Trouble(line=index + 1, text=line.strip())
        for index, line in enumerate(lines)
        if (TROUBLE.search(line) and not HARMLESS.search(line))
        or (UNCONNECTED.search(line) and not _connects_later(lines[index + 1 :]))
    )


def _connects_later(lines: Sequence[str]) -> bool:
    """Return whether wget reached another address of the host, or this one on another try."""
    for line in lines:
        if REQUEST.match(line):
            return False
        if CONNECTED.search(line):
            return True
    return False
