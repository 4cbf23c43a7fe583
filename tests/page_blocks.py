"""The fenced blocks of a page, and how a page is followed: what it says to write is written, what it says to type is run.

A block ``python title="my/net.py"`` is a file; a line of a ``bash`` block is run by bash, and ends with 0 or what stands behind
it as ``# exit code N``; a ``text`` block below a ``bash`` block is part of what its last line prints, ``…`` standing for anything.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import forking
from programs import completed

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(\S*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, the file that it is, and its text."""

    language: str
    title: str
    text: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.strip()]


def blocks_of(page: Path) -> Iterator[Block]:
    for language, rest, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        title = re.search(r'title="([^"]*)"', rest)
        yield Block(language=language, title=title[1] if title else "", text=text)


def run_line(line: str, folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a line in a folder and return what it printed; its exit code is what the line says."""
    expected = re.search(r"# exit code (\d+)", line)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = completed(
        ["bash", "-c", line],
        cwd=folder,
        env={**forking.environment(ROOT), "PATH": path, **(variables or {})},
        timeout=900,
    )
    assert done.returncode == int(expected[1] if expected else 0), f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def follow(page: Path, folder: Path) -> None:
    """Do in a folder what a page says, from its beginning to its end."""
    printed = ""
    for block in blocks_of(page):
        if block.title:
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            for line in block.lines:
                printed = run_line(line, folder)
        elif block.language == "text":
            for line in block.lines:
                parts = [re.escape(part) for part in line.rstrip("…").split("…")]
                assert re.search(f"^{'.*'.join(parts)}", printed, re.MULTILINE), f"{line!r} is not in\n{printed}"
