"""The view of a run that goes on.

On a terminal each running command has a line at the bottom (its number, the time it takes, its id, the last line
of its output) that is redrawn in place; what has ended scrolls above. Elsewhere there are plain lines only.
"""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from tipchain.chain.plan import Command
from tipchain.chain.result import Result
from tipchain.report.terminal import clean, mark, terminal_size, use_color

REDRAW_S = 0.2
UP_AND_CLEAR = "\x1b[1A\x1b[2K"
CLEAR = "\r\x1b[2K"


@dataclass(slots=True)
class _Row:
    """A command that runs, or waits."""

    head: str
    name: str
    begin: float
    line: str = ""


class LiveView:
    """Shows a run while it goes on.

    Args:
        stream: where to.
        clock: seconds that only go forward.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.color = use_color(stream)
        self._rows: dict[str, _Row] = {}
        self._drawn = 0
        self._due = 0.0

    def started(self, command: Command, number: int, total: int) -> None:
        """Announce a command."""
        row = _Row(f"[{number}/{total}]", clean(command.id), self.clock())
        self._rows[command.id] = row
        if self.live:
            self._redraw()
        else:
            self._write(f"{row.head} {row.name} ...\n")

    def waiting(self, command: Command, number: int, total: int, reason: str) -> None:
        """Say what a command waits for, once for each reason."""
        row = self._rows.get(command.id)
        if row is None:
            row = _Row(f"[{number}/{total}]", clean(command.id), self.clock())
            self._rows[command.id] = row
        text = f"waiting for {clean(reason)}"
        if row.line != text:
            row.line = text
            self._redraw() if self.live else self._write(f"{row.head} {row.name}: {text}\n")

    def output(self, command: Command, line: str) -> None:
        """Keep a running command's last line of output; called by the thread that reads it."""
        row = self._rows.get(command.id)
        if row is not None:
            row.line = line

    def ended(self, result: Result) -> None:
        """Show the outcome, above what still runs."""
        self._rows.pop(result.command.id, None)
        reason = f": {clean(result.reason)}" if result.reason else ""
        reason += " (earlier)" if result.reused else ""
        head = f"{mark(result.outcome, self.color)}  {result.seconds:7.1f}"
        text = f"{head}  {clean(result.command.id)}{reason}\n"
        self._write(self._erasure() + text + self._block())

    def tick(self) -> None:
        """Redraw the lines of what runs when it is time."""
        if self.live and self._rows and self.clock() >= self._due:
            self._redraw()

    def _redraw(self) -> None:
        self._write(self._erasure() + self._block())

    def _erasure(self) -> str:
        """Return what clears the lines drawn last and leaves the cursor at the first one's start."""
        return CLEAR + UP_AND_CLEAR * (self._drawn - 1) if self._drawn else ""

    def _block(self) -> str:
        """Return the lines of what runs, as many as fit; the cursor stays at the last one's end."""
        if not self.live:
            return ""
        self._due = self.clock() + REDRAW_S
        size = terminal_size(self.stream)
        room = max(size.lines - 2, 1)
        rows = list(self._rows.values())
        lines = [self._line(row, size.columns - 1) for row in rows[:room]]
        if len(rows) > room:
            lines[-1] = f"... and {len(rows) - room + 1} more"
        self._drawn = len(lines)
        return "\n".join(lines)

    def _line(self, row: _Row, width: int) -> str:
        line = " ".join(clean(row.line).split())
        text = f"{row.head} {elapsed(self.clock() - row.begin):>5}  {row.name}" + (
            f"  {line}" if line else ""
        )
        return cut(text, width)

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def elapsed(seconds: float) -> str:
    """Return a time as ``0:07`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def cut(text: str, width: int) -> str:
    """Return as much of ``text`` as stands in ``width`` columns of a terminal, on one line."""
    columns = 0
    for index, letter in enumerate(text):
        wide = unicodedata.east_asian_width(letter) in "WF"
        columns += 0 if unicodedata.combining(letter) else 2 if wide else 1
        if columns > width:
            return text[:index]
    return text
