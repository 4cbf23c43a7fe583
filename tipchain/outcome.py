"""Outcomes, and the exit code that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum

NOT_THE_SAME, NO_VERDICT = "NOT the same ", "no verdict: "
"""How an alignment's verdict begins where it failed, and where nothing failed but not all could be found out."""


class Outcome(Enum):
    """How one check or command ended."""

    PASS = "PASS"  # noqa: S105  (an outcome, no password)
    """It ran and is right."""
    FAIL = "FAIL"
    """It ran and is wrong."""
    ERROR = "ERROR"
    """Could not find out: a crash, a signal, a timeout, a missing file, nothing compared."""
    SKIP = "SKIP"
    """Not run; needs a reason."""


BAD = (Outcome.FAIL, Outcome.ERROR)
"""What fails a run."""


class ExitCode(IntEnum):
    """The program's exit codes."""

    PASSED = 0
    """All that was checked passed."""
    FAILED = 1
    """A check or a command failed, or it could not be found out."""
    USAGE = 2
    """Wrong use, or input that cannot be read: one message, nothing written."""
    BUG = 3
    """A bug of tipchain, with its traceback."""
    NOTHING_CHECKED = 4
    """Nothing was checked: only skips, one side recorded, or an empty plan."""
    INTERRUPTED = 130
    """Ctrl-C: what is known by then is shown."""


def exit_code(outcomes: Iterable[Outcome]) -> ExitCode:
    """Return FAILED if anything failed or errored, NOTHING_CHECKED if nothing passed, else PASSED."""
    seen = set(outcomes)
    if seen & set(BAD):
        return ExitCode.FAILED
    return ExitCode.PASSED if Outcome.PASS in seen else ExitCode.NOTHING_CHECKED


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome that stands for a group: ERROR over FAIL over PASS over SKIP.

    An empty group is an ERROR: nothing was checked.
    """
    seen = set(outcomes)
    for outcome in (Outcome.ERROR, Outcome.FAIL, Outcome.PASS, Outcome.SKIP):
        if outcome in seen:
            return outcome
    return Outcome.ERROR
