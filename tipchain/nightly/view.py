"""The view of a night that goes on.

On a terminal a line of counts and a line for each running item (its time, its id, the last line of its output) stand at
the bottom and are redrawn in place; what has ended scrolls above. Elsewhere there are plain lines only: one for each
item that ended, one when nothing runs because the next item has to wait, and now and then how far the night is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from tipchain.foreign_text import clean
from tipchain.nightly.items import Item
from tipchain.nightly.progress import State
from tipchain.nightly.records import ItemRecord
from tipchain.nightly.tables import item_line
from tipchain.progress import Screen, elapsed
from tipchain.report.terminal import use_color

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
        self.screen, self.total, self.number, self.clock = Screen(stream, clock), total, ended, clock
        self.color = use_color(stream)
        self._due = self.clock() + SAY_S
        self._idle = False

    def started(self, item: Item, attempt: int) -> None:
        """Say that an item runs once more; the first time the line of what runs tells."""
        if attempt > 1:
            self.said(f"{item.id} runs again, attempt {attempt}")

    def ended(self, record: ItemRecord) -> None:
        """Show how an item ended, above what still runs."""
        self.number += 1
        self.screen.print(item_line(self.number, self.total, record, color=self.color))

    def said(self, text: str) -> None:
        """Show a line."""
        self.screen.print(clean(text))

    def tick(self, state: Callable[[], State]) -> None:
        """Redraw what runs, or say how far the night is, when it is time."""
        if self.screen.due:
            self._redraw(state())
        elif not self.screen.live:
            self._say(state())

    def close(self) -> None:
        """Take the lines of what runs away."""
        self.screen.draw([])

    def _say(self, state: State) -> None:
        """Write a plain line when nothing begins to run, and when it is time."""
        idle = bool(state.waiting) and not state.running
        if (idle and not self._idle) or self.clock() >= self._due:
            self._due = self.clock() + SAY_S
            for line in (f"... {state.line()}", *_waiting(state)):
                self.screen.print(line)
        self._idle = idle

    def _redraw(self, state: State) -> None:
        lines = [state.line(), *_waiting(state)]
        for one in state.running:
            last = " ".join(clean(one.line).split())
            lines.append(f"{elapsed(one.seconds):>8}  {clean(one.id)}" + (f"  {last}" if last else ""))
        self.screen.draw(lines)


def _waiting(state: State) -> list[str]:
    return [f"the next item waits for {clean(state.waiting)}"] if state.waiting else []
