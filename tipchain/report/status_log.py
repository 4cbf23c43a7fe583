"""The suite's log of status lines (``results_python.log``), as scrapers know it, with comments of our own.

A run's header and what the status lines lack are comments (``# ...``) that no scraper's pattern matches.
"""

from __future__ import annotations

import platform
import re
import shlex
from typing import TYPE_CHECKING

from tipchain import __version__
from tipchain.chain.plan import Command, Plan, Result
from tipchain.foreign_text import clean
from tipchain.outcome import Outcome

if TYPE_CHECKING:
    from tipchain.chain.execute import Place
    from tipchain.chain.run import Observer

CLAIM = re.compile(r"run(\s+)(?=successfully|failed)", re.IGNORECASE)
"""What a scraper looks for, also at the end of a longer word: ``grep`` knows no words."""


def versions() -> dict[str, str]:
    """Return the versions that a run rests on, as installed beside tipchain; no framework is imported."""
    from tipchain.environment import installed_versions

    return {"tipchain": __version__, "python": platform.python_version(), **installed_versions()}


def device_names(plan: Plan) -> str:
    """Return what the plan's commands run on: ``cpu``, ``gpu`` or ``cpu,gpu``."""
    return ",".join(sorted({"gpu" if command.on_gpu else "cpu" for command in plan.commands}))


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
        facts |= {"device": device_names(self.plan), "commit": commit(self.place.root)}
        found = versions()
        del found["tipchain"]
        return run_header(self.place.run, {**facts, **found})

    def _append(self, text: str) -> None:
        from tipchain.runs import append

        try:
            append(self.path, text)
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"
