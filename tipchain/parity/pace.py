"""How long an alignment may take, and what it says of itself while it works."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

LINE_S, SHORT_S = 20.0, 0.5
"""Seconds between two lines of progress where nobody watches, and where a terminal shows one line anew."""
LATE = "not compared: out of time"


class OutOfTime(Exception):  # noqa: N818  (it is no error: the user set the limit)
    """The time is up before anything could be told of the layers.

    Attributes:
        apart: how far the models' outputs are apart, relative; None where that is not known.
    """

    def __init__(self, apart: float | None) -> None:
        super().__init__("out of time")
        self.apart = apart


@dataclass(slots=True)
class Pace:
    """The time that an alignment has, counted from when this is made.

    Attributes:
        within: seconds in all; None: as long as it takes.
        progress: is given one line of what is being done and how long that takes yet.
    """

    within: float | None = None
    progress: Callable[[str], None] | None = None
    _start: float = field(init=False)
    _step: str = ""
    _since: float = 0.0

    def __post_init__(self) -> None:
        self._start = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.within is not None and time.monotonic() - self._start >= self.within

    def tell(self, step: str, done: int = 0, of: int = 0) -> None:
        """Say what is being done, and how long the step takes yet if ``done`` of so many pieces took as long as it has."""
        if self.progress is None:
            return
        now = time.monotonic()
        if step != self._step:
            self._step, self._since = step, now
        counted = f" {done + 1} of {of}" if of else ""
        left = (now - self._since) / done * (of - done) if done else 0.0
        yet = f", about {left:.0f} s yet" if left >= 1 else ""
        self.progress(f"{now - self._start:.0f} s: {step}{counted}{yet}")


def lines_to(stream: TextIO) -> Callable[[str], None]:
    """Return what writes progress to a stream: one line that changes on a terminal, else a line every so often."""
    watched = stream.isatty()
    last = time.monotonic() - (LINE_S if watched else 0.0)

    def write(line: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < (SHORT_S if watched else LINE_S):
            return
        last = now
        stream.write(f"\r\x1b[K{line}" if watched else f"{line}\n")
        stream.flush()

    return write
