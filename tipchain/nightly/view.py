"""The view of a night that goes on.

On a terminal a line of counts and a line for each running item (its time, its id, the last line of its output) stand at
the bottom and are redrawn in place; what has ended scrolls above. Elsewhere there are plain lines only: one for each
item that ended, and now and then how far the night is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from tipchain.nightly.items import Item
from tipchain.nightly.progress import State
from tipchain.nightly.records import ItemRecord
from tipchain.nightly.tables import item_line
from tipchain.report.live import CLEAR, REDRAW_S, UP_AND_CLEAR, cut, elapsed
from tipchain.report.terminal import clean, terminal_size, use_color

SAY_S = 300.0
"""How often plain lines say how far the night is."""


class NightView:
    """Shows a night while it goes on.

    Args:
        stream: where to.
        total: how many items the night has.
        ended: how many had ended before.
        clock: seconds that only go forward.
    """

    def __init__(
        self, stream: TextIO, total: int, ended: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream, self.total, self.number, self.clock = stream, total, ended, clock
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.color = use_color(stream)
        self._drawn: list[str] = []
        self._due = self.clock() + (0.0 if self.live else SAY_S)

    def started(self, item: Item, attempt: int) -> None:
        """Say that an item runs once more; the first time the line of what runs tells."""
        if attempt > 1:
            self.said(f"{item.id} runs again, attempt {attempt}")

    def ended(self, record: ItemRecord) -> None:
        """Show how an item ended, above what still runs."""
        self.number += 1
        self._print(item_line(self.number, self.total, record, color=self.color))

    def said(self, text: str) -> None:
        """Show a line."""
        self._print(clean(text))

    def tick(self, state: Callable[[], State]) -> None:
        """Redraw what runs, or say how far the night is, when it is time."""
        now = self.clock()
        if now < self._due:
            return
        self._due = now + (REDRAW_S if self.live else SAY_S)
        if self.live:
            self._redraw(state())
        else:
            self._print(f"... {state().line()}")

    def close(self) -> None:
        """Take the lines of what runs away."""
        self._write(self._erasure())
        self._drawn = []

    def _print(self, line: str) -> None:
        """Write a line above the lines of what runs, which stay."""
        self._write(self._erasure() + line + "\n" + "\n".join(self._drawn))

    def _redraw(self, state: State) -> None:
        erasure = self._erasure()
        size = terminal_size(self.stream)
        width, room = size.columns - 1, max(size.lines - 3, 1)
        lines = [cut(state.line(), width)]
        if state.waiting:
            lines.append(cut(f"the next item waits for {clean(state.waiting)}", width))
        for one in state.running[:room]:
            last = " ".join(clean(one.line).split())
            lines.append(
                cut(f"{elapsed(one.seconds):>8}  {clean(one.id)}" + (f"  {last}" if last else ""), width)
            )
        if len(state.running) > room:
            lines[-1] = f"... and {len(state.running) - room + 1} more"
        self._drawn = lines
        self._write(erasure + "\n".join(lines))

    def _erasure(self) -> str:
        """Return what clears the lines drawn last and leaves the cursor at the first one's start."""
        return CLEAR + UP_AND_CLEAR * (len(self._drawn) - 1) if self._drawn else ""

    def _write(self, text: str) -> None:
        if text:
            self.stream.write(text)
            self.stream.flush()
