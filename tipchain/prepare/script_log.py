"""What a shell script's output says went wrong, for scripts that end with 0 whatever happens.

The suites' ``prepare.sh`` neither stop at an error nor check a download, so their exit status tells nothing about the
steps before the last. The programs that they call do say so, in words that hardly change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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
BEGAN = re.compile(r"--(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)--  ")
SAVING = re.compile(r"^Saving to: (?P<name>.+)$")
SAVED = re.compile(r" - (?P<name>.+) saved \[\d+")
QUOTES = "\u2018\u2019'`\""


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
    lines = _lines(log)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file that wget began to write.

    Attributes:
        name: as wget tells it, relative to where the script was then.
        began: when, in seconds since the epoch.
    """

    name: str
    began: float


def unfinished_downloads(log: str) -> tuple[Download, ...]:
    """Return the files that wget began to write and, by what it says, did not get to the end of."""
    open_: dict[str, Download] = {}
    began = math.inf
    for line in _lines(log):
        if found := BEGAN.match(line):
            began = datetime.fromisoformat(found.group(1)).astimezone().timestamp()
        elif found := SAVING.match(line):
            name = found["name"].strip(QUOTES)
            open_[name] = Download(name=name, began=began)
        elif found := SAVED.search(line):
            open_.pop(found["name"].strip(QUOTES), None)
    return tuple(open_.values())


def _lines(log: str) -> list[str]:
    """Return what the lines say: a progress bar returns to the line's start and is written over."""
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in log.split("\n")]
