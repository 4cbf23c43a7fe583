"""A run that goes on: its view on the terminal, and the suite's log of status lines."""

from __future__ import annotations

import platform
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from tipchain import __version__
from tipchain.chain.plan import Command, Plan, Result
from tipchain.language import clean, say
from tipchain.outcome import Outcome
from tipchain.progress import Estimate, Screen, elapsed
from tipchain.report.terminal import mark, use_color

if TYPE_CHECKING:
    from tipchain.chain.execute import Place
    from tipchain.chain.run import Observer


# The view of a run that goes on.
#
# On a terminal each running command has a line at the bottom (its number, the time it takes, its id, the last line
# of its output) that is redrawn in place; what has ended scrolls above. Elsewhere there are plain lines only.


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
        plan: the ids of all commands.
        usual: seconds that commands took in the latest run, by id: the basis for the time that is left.
        slots: how many commands run at once.
    """

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
        *,
        plan: Iterable[str] = (),
        usual: Mapping[str, float] | None = None,
        slots: int = 1,
    ) -> None:
        self.screen, self.clock = Screen(stream, clock), clock
        self.color = use_color(stream)
        self._rows: dict[str, _Row] = {}
        self._pending = set(plan)
        self._estimate, self._slots = Estimate(usual or {}), slots

    def started(self, command: Command, number: int, total: int) -> None:
        """Announce a command."""
        row = _Row(f"[{number}/{total}]", clean(command.id), self.clock())
        self._rows[command.id] = row
        self._pending.discard(command.id)
        if self.screen.live:
            self._redraw()
        else:
            self.screen.print(f"{row.head} {row.name} ...")

    def waiting(self, command: Command, number: int, total: int, reason: str) -> None:
        """Say what a command waits for, once for each reason."""
        row = self._rows.get(command.id)
        if row is None:
            row = _Row(f"[{number}/{total}]", clean(command.id), self.clock())
            self._rows[command.id] = row
        text = say(f"waiting for {clean(reason)}")
        if row.line != text:
            row.line = text
            self._redraw() if self.screen.live else self.screen.print(f"{row.head} {row.name}: {text}")

    def output(self, command: Command, line: str) -> None:
        """Keep a running command's last line of output; called by the thread that reads it."""
        row = self._rows.get(command.id)
        if row is not None:
            row.line = line

    def ended(self, result: Result) -> None:
        """Show the outcome, above what still runs."""
        self._rows.pop(result.command.id, None)
        self._pending.discard(result.command.id)
        reason = f": {say(clean(result.reason))}" if result.reason else ""
        reason += say(" (earlier)") if result.reused else ""
        head = f"{mark(result.outcome, self.color)}  {result.seconds:7.1f}"
        self._redraw()
        self.screen.print(f"{head}  {clean(result.command.id)}{reason}")

    def tick(self) -> None:
        """Redraw the lines of what runs when it is time."""
        if self._rows and self.screen.due:
            self._redraw()

    def _line(self, row: _Row) -> str:
        line = " ".join(clean(row.line).split())
        text = f"{row.head} {elapsed(self.clock() - row.begin):>5}  {row.name}"
        return f"{text}  {line}" if line else text

    def _redraw(self) -> None:
        lines = [self._line(row) for row in self._rows.values()]
        left = self._left() if lines else None
        self.screen.draw(lines if left is None or left < 1 else [say(f"about {elapsed(left)} left"), *lines])

    def _left(self) -> float | None:
        """Return the seconds that are left if the latest run tells them of every command."""
        running = [(name, self.clock() - row.begin) for name, row in self._rows.items() if name not in self._pending]
        if not all(name in self._estimate.usual for name in (*self._pending, *(name for name, _ in running))):
            return None
        pending = sum(self._estimate.usual[name] for name in self._pending)
        return self._estimate.left(pending, running, self._slots)


# The suite's log of status lines (``results_python.log``), as scrapers know it, with comments of our own.
#
# A run's header and what the status lines lack are comments (``# ...``) that no scraper's pattern matches.


CLAIM = re.compile(r"run(\s+)(?=successfully|failed)", re.IGNORECASE)
"""What a scraper looks for, also at the end of a longer word: ``grep`` knows no words."""


def versions() -> dict[str, str]:
    """Return the versions that a run rests on, as installed beside tipchain; no framework is imported."""
    from tipchain.environment import installed_versions

    return {"tipchain": __version__, "python": platform.python_version(), **installed_versions()}


def status_record(result: Result, plan: Plan, run: str) -> str:
    """Return a command's lines in the results log.

    The TIPC status line as the suite writes it, then a comment with what it lacks, the run's name first: two
    runs at once write into one file. What did not run, or was not repeated, has no status line.
    """
    command = result.command
    facts = [run, command.id, result.outcome.value, f"{result.seconds:.1f}s"]
    facts += [f"exit={result.exit_code}"] if result.exit_code is not None else []
    facts += [f"signal={result.signal}"] if result.signal else []
    facts += [f"log={result.log}"] if result.log else []
    facts += ["earlier"] if result.reused else []
    # A reason with an exit status that is not 0 quotes the command's own words, which may claim success.
    reason = "" if result.exit_code else result.reason
    comment = as_comment(" ".join(facts) + (f" reason={reason}" if reason else ""))
    if result.outcome is Outcome.SKIP or result.reused:
        return comment
    verb = "successfully" if result.outcome is Outcome.PASS else "failed"
    text = _one_line(plan.status.format(model=plan.model, command=shown(command, plan), log=command.log or ""))
    # The command's own words may claim a success, too: a name, a path.
    return f"\x1b[33m Run {verb} with command - {_without_claims(text)} \x1b[0m\n{comment}"


def shown(command: Command, plan: Plan) -> str:
    """Return a command's words as status lines show them, with the redirection where the suite does so."""
    words = shlex.join(command.argv)
    return f"{words} > {command.log} 2>&1 " if command.step in plan.redirected and command.log else words


def as_comment(text: str) -> str:
    """Return ``text`` as one comment line in which no pattern for status lines can match."""
    return "# " + _without_claims(clean(_one_line(text)))


def _without_claims(text: str) -> str:
    return CLAIM.sub(lambda match: match[0].rstrip() + "_", text)


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


class ResultsLog:
    """An observer that appends to the suite's results log and passes everything on.

    Attributes:
        path: the log.
        problem: why the log could not be written; "" if it could.
    """

    def __init__(self, plan: Plan, place: Place, view: Observer) -> None:
        self.plan, self.place, self.view = plan, place, view
        self.path = place.root / plan.out / plan.results_log
        self.problem = ""
        head = [as_comment(line.removeprefix("# ")) for line in self._header().splitlines()]
        self._append("\n".join([*head, plan.results_head] if plan.results_head else head))

    def started(self, command: Command, number: int, total: int) -> None:
        """Pass on that a command starts."""
        self.view.started(command, number, total)

    def waiting(self, command: Command, number: int, total: int, reason: str) -> None:
        """Pass on what a command waits for."""
        self.view.waiting(command, number, total, reason)

    def output(self, command: Command, line: str) -> None:
        """Pass on a line of output."""
        self.view.output(command, line)

    def ended(self, result: Result) -> None:
        """Log how a command ended."""
        self._append(status_record(result, self.plan, self.place.run.name))
        self.view.ended(result)

    def tick(self) -> None:
        """Pass on that time goes by."""
        self.view.tick()

    def _header(self) -> str:
        from tipchain.runs import commit, run_header

        facts = {"params": self.plan.params, "mode": self.plan.mode.value, "suite": self.plan.suite}
        facts |= {
            "device": ",".join(sorted({"gpu" if command.on_gpu else "cpu" for command in self.plan.commands})),
            "commit": commit(self.place.root),
        }
        found = versions()
        del found["tipchain"]
        return run_header(self.place.run, {**facts, **found})

    def _append(self, text: str) -> None:
        from tipchain.runs import append

        try:
            append(self.path, text)
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"
