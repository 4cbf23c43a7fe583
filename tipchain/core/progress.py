"""The progress of a long command: the stage, a count, and the time left where there is a basis for it.

On a terminal lines stand at the bottom and are redrawn in place; elsewhere each stage gets one plain line. An estimate
is told only once one like it has come true: what the first half of the pieces foretold of the second.
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO, TypeVar

from tipchain.core.language import clean, say

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.text import Text

_Screen = TypeVar("_Screen", bound="Screen")
LATE = "not compared: out of time"

interrupted = threading.Event()
"""Set when the user wants this process to end with its results so far: nothing new is begun then."""


class OutOfTime(Exception):  # noqa: N818  (it is no error: the user set the limit)
    """The time is up before anything could be told of the layers.

    Attributes:
        apart: how far the models' outputs are apart, relative; None where that is not known.
    """

    def __init__(self, apart: float | None) -> None:
        super().__init__("out of time")
        self.apart = apart


# The time left.


def mean_seconds(pieces: Sequence[float]) -> float | None:
    """Return the mean of the seconds that pieces took, None until half of them foretold the rest but for a factor of 2."""
    half = len(pieces) // 2
    if not half:
        return None
    first, rest = statistics.fmean(pieces[:half]), statistics.fmean(pieces[half:])
    return None if max(first, rest) > 2 * min(first, rest) else statistics.fmean(pieces)


class Estimate:
    """The seconds of pieces of work by id, as earlier runs tell them.

    Args:
        usual: seconds by id, of earlier runs.
        alike: whether a piece that no earlier run had takes as long as the others.
    """

    def __init__(self, usual: Mapping[str, float], *, alike: bool = False) -> None:
        self._usual = usual
        self._ended: list[float] = []
        self._median = statistics.median(usual.values()) if usual and alike else None

    def learn(self, seconds: float) -> None:
        """Note the seconds of a piece."""
        self._ended.append(seconds)

    def left(self, pending: Iterable[str], running: Mapping[str, float], slots: int = 1) -> float | None:
        """Return the seconds until all has ended, None if nothing tells.

        What runs longer than it should may go on for as long again; unless more than that is left anyway, nobody knows.

        Args:
            pending: the ids of what has not begun.
            running: for how long what runs has, by id.
            slots: how many run at once.
        """
        each = mean_seconds(self._ended)
        other = self._median if each is None else each
        waiting, whole = ([self._usual.get(name, other) for name in names] for names in (pending, running))
        if None in waiting or None in whole:
            return None
        rests = [(seconds or 0.0) - ran for seconds, ran in zip(whole, running.values(), strict=True)]
        positive = [max(rest, 0.0) for rest in rests]
        remaining = max([(sum(filter(None, waiting)) + sum(positive)) / max(slots, 1), *positive])
        overdue = -min([*rests, 0.0])
        return None if overdue and overdue >= remaining else remaining


# What an alignment of live models says.


@dataclass(slots=True)
class Pace:
    """The time that an alignment has, counted from when this is made.

    Attributes:
        within: seconds in all; None: as long as it takes.
        progress: is given one line of what is being done and how long that takes yet.
        searched: seconds that searches for causes took which have a time of their own.
    """

    within: float | None = None
    progress: Callable[[str], None] | Progress | None = None
    searched: float = 0.0
    _start: float = field(init=False)
    _late: bool = False
    _step: str = ""
    _since: float = 0.0
    _pieces: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start = time.monotonic()

    @property
    def over(self) -> bool:
        """Whether nothing new may begin: out of time (said once), or interrupted."""
        if interrupted.is_set():
            return True
        late = self.within is not None and time.monotonic() - self._start >= self.within
        if late and not self._late:
            self._late = True
            self.tell("out of time: nothing new is begun")
        return late

    def tell(self, step: str, done: int = 0, of: int = 0) -> None:
        """Say the current work, and how long its step still takes."""
        if self.progress is None:
            return
        now = time.monotonic()
        if step != self._step:
            self._step, self._since, self._pieces = step, now, []
        while len(self._pieces) < done:
            self._pieces.append(now - self._since)
            self._since = now
        seconds = (mean_seconds(self._pieces) or 0.0) * (of - done)
        if isinstance(self.progress, Progress):
            self.progress.stage(step)
            self.progress.say(f"{done + 1} of {of}" if of else "", seconds or None)
            return
        counted = f" {done + 1} of {of}" if of else ""
        yet = f", about {seconds:.0f} s yet" if seconds >= 1 else ""
        self.progress(say(f"{now - self._start:.0f} s: {step}{counted}{yet}"))


# Where it is shown.


class Screen:
    """Lines at a terminal's bottom that rich redraws below the printed ones, as a context; elsewhere nothing but these.

    Args:
        stream: where to.
        lines: returns the lines of this moment; asked by a thread, too. They are cut to fit.
    """

    def __init__(self, stream: TextIO, lines: Callable[[], Sequence[str]]) -> None:
        self.stream, self.lines = stream, lines
        self.live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self.bottom: Live | None = None

    def __enter__(self: _Screen) -> _Screen:  # noqa: PYI019  (Self came with Python 3.11)
        if self.live:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream, force_terminal=True, color_system="standard", no_color=False)
            self.bottom = Live(
                self,
                console=console,
                refresh_per_second=5,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            with suppress(OSError, ValueError):  # the terminal is gone: the work goes on
                self.bottom.start(refresh=True)
                console.show_cursor()  # a process that is killed could not show it again
        return self

    def __exit__(self, *_: object) -> None:
        if self.bottom is not None:
            from rich.console import Group

            with suppress(OSError, ValueError):
                self.bottom.update(Group())
                self.bottom.stop()
            self.bottom = None

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the lines away while something else is printed."""
        self.__exit__()
        yield
        self.__enter__()

    def print(self, line: str) -> None:
        """Write a line above the lines at the bottom, which stay."""
        if self.bottom is None:
            self.stream.write(f"{line}\n")
            self.stream.flush()
        else:
            from rich.text import Text

            self.bottom.console.print(Text.from_ansi(line), soft_wrap=True)

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        lines, room = [*self.lines()], max(console.height - 2, 1)
        if len(lines) > room:
            lines[room - 1 :] = [say(f"... and {len(lines) - room + 1} more")]
        for line in lines:
            yield Text(line, no_wrap=True, overflow="ellipsis")


class Progress(Screen):
    """One line with stage, count and time left; off a terminal, a line a stage.

    Args:
        stream: where to; standard error if None.
        quiet: say nothing at all.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        super().__init__(io.StringIO() if quiet else stream or sys.stderr, self._lines)
        self.left: Callable[[], float | None] = lambda: None
        """A function that tells the seconds left of the whole."""
        self._begin = time.monotonic()
        self._stage, self._doing = "", ""
        self._said: set[str] = set()
        self._until: float | None = None

    def stage(self, name: str, number: int = 0, of: int = 0) -> None:
        """Say that a stage begins: the ``number``-th of so many."""
        text = f"[{number}/{of}] {name}" if of else name
        if text == self._stage:
            return
        self._stage, self._doing, self._until = text, "", None
        if not self.live and not (of and text in self._said):  # of two sides the slower one may come to it later
            self._said.add(text)
            with suppress(OSError, ValueError):
                self.print(say(text))

    def say(self, doing: str, left_s: float | None = None) -> None:
        """Say a stage's current work, on a terminal only, and the time left."""
        self._doing = doing
        self._until = None if left_s is None else time.monotonic() + left_s

    def _lines(self) -> Sequence[str]:
        if not self._stage:
            return ()
        text = f"{self._stage}: {self._doing}" if self._doing else self._stage
        left = self.left() if self._until is None else self._until - time.monotonic()
        text = say(f"{text}, about {elapsed(left)} left" if left is not None and left >= 1 else text)
        return (clean(f"{elapsed(time.monotonic() - self._begin):>5}  {text}"),)


def with_output(head: str, line: str) -> str:
    """Return a line for running work, with its last line of output."""
    last = " ".join(clean(line).split())
    return f"{head}  {last}" if last else head


def elapsed(seconds: float) -> str:
    """Return a time as ``0:07`` or ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
