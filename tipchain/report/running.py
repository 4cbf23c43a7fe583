"""The view of a run that goes on.

On a terminal each running command has a line at the bottom (its number, the time it takes, its id, the last line
of its output) that is redrawn in place; what has ended scrolls above. Elsewhere there are plain lines only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from tipchain.chain.plan import Command, Result
from tipchain.core.language import clean, in_rows, say, terminal_width, use_color
from tipchain.core.progress import Estimate, Screen, elapsed, with_output
from tipchain.report.terminal import mark


@dataclass(slots=True)
class _Row:
    head: str
    name: str
    begin: float
    line: str = ""


class LiveView:
    """Shows a run while it goes on.

    Args:
        stream: where to.
        plan: the ids of all commands.
        usual: seconds that commands took in the latest run, by id: the basis for the time that is left.
        slots: how many commands run at once.
        log: told first how a command ended.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        plan: Iterable[str] = (),
        usual: Mapping[str, float] | None = None,
        slots: int = 1,
        log: Callable[[Result], None] | None = None,
    ) -> None:
        self.log = log
        self.screen = Screen(stream, self._lines)
        self.color = use_color(stream)
        self._rows: dict[str, _Row] = {}
        self._pending = set(plan)
        self._estimate, self._slots = Estimate(usual or {}), slots

    def started(self, command: Command, number: int, total: int) -> None:
        """Announce a command."""
        row = self._rows[command.id] = _Row(f"[{number}/{total}]", clean(command.id), time.monotonic())
        self._pending.discard(command.id)
        if not self.screen.live:
            self.screen.print(f"{row.head} {row.name} ...")

    def waiting(self, command: Command, number: int, total: int, reason: str) -> None:
        """Say a command's reason to wait, once for each reason."""
        row = self._rows.setdefault(command.id, _Row(f"[{number}/{total}]", clean(command.id), time.monotonic()))
        text = say(f"waiting for {clean(reason)}")
        if row.line != text:
            row.line = text
            if not self.screen.live:
                self.screen.print(f"{row.head} {row.name}: {text}")

    def output(self, command: Command, line: str) -> None:
        """Keep a running command's last line of output; called by the thread that reads it."""
        if row := self._rows.get(command.id):
            row.line = say(line) if command.step == "align" else line  # only the alignment's lines are tipchain's own

    def ended(self, result: Result) -> None:
        """Show the outcome, above the running commands."""
        if self.log is not None:
            self.log(result)
        self._rows.pop(result.command.id, None)
        self._pending.discard(result.command.id)
        reason = say(f": {clean(result.reason)}") if result.reason else ""
        reason += say(" (earlier)") if result.reused else ""
        head = f"{mark(result.outcome, self.color)}  {result.seconds:7.1f}  "
        text = f"{clean(result.command.id)}{reason}"
        self.screen.print("\n".join(in_rows(text, terminal_width(), head)) if self.screen.live else f"{head}{text}")

    def _lines(self) -> list[str]:
        now, rows = time.monotonic(), [*self._rows.items()]
        lines = [with_output(f"{row.head} {elapsed(now - row.begin):>5}  {row.name}", row.line) for _, row in rows]
        pending = {*self._pending}
        running = {name: now - row.begin for name, row in rows if name not in pending}
        left = self._estimate.left(pending, running, self._slots) if lines else None
        return lines if left is None or left < 1 else [say(f"about {elapsed(left)} left"), *lines]
