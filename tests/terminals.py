"""A terminal that keeps what is written to it, and a clock that a test sets."""

import io
import re


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def still(monkeypatch) -> Clock:
    """Let rich redraw only when a test asks for it, and time go on only as it says; return the clock."""
    clock = Clock()
    monkeypatch.setattr("rich.live._RefreshThread.start", lambda _: None)
    monkeypatch.setattr("time.monotonic", clock)
    return clock


class Terminal(io.StringIO):
    """A stream that says that it is a terminal, without a size of its own."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """What was written, without the marks that hide and show the cursor."""
        return re.sub(r"\x1b\[\?25[hl]", "", self.getvalue())
