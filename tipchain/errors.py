"""How checks and programs end: outcomes, exit codes, and errors that mean wrong use or unreadable input.

The errors::

    TipchainError            exit code 2
    ├── UsageError           a wrong call: arguments that do not fit together
    ├── InputError           a file that cannot be used; names file, line, key, found, expected
    │   ├── ParamsError      a TIPC parameter file
    │   ├── RecordError      a dump
    │   ├── WeightsError     a weight file
    │   └── DataError        a data folder
    ├── HistoryError         the history's database cannot be used
    ├── MissingFrameworkError    torch or paddle is absent, or has no usable device
    └── OutputError          exit code 1: what a run leaves cannot be written (a full disk)

A *thing under test* that goes wrong is a value (``Result``, ``Verdict``), never one of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from functools import lru_cache
from os import PathLike

# Outcomes, and the exit code that follows from them.


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
"""Outcomes that fail a run."""


def newly_bad(before: Outcome | None, after: Outcome) -> bool:
    """Tell whether something fails or errors that did neither before, or was not there (None)."""
    return after in BAD and before not in BAD


def tally(outcomes: Iterable[Outcome] | Mapping[Outcome, int]) -> str:
    """Return how many ended how, as ``12 PASS, 1 FAIL``; "" for none."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[one]} {one.value}" for one in Outcome if counts[one])


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
    """Nothing, or not all, could be checked: only skips, one side recorded, an empty plan, results that are random."""
    INTERRUPTED = 130
    """Ctrl-C: the results so far are shown."""


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
    seen, order = set(outcomes), (Outcome.ERROR, Outcome.FAIL, Outcome.PASS, Outcome.SKIP)
    return next((outcome for outcome in order if outcome in seen), Outcome.ERROR)


# Errors that mean wrong use or unreadable input.


class TipchainError(Exception):
    """Base of everything that ends the program with one message and no traceback."""

    exit_code = 2

    def in_language(self, said: Callable[[str], str]) -> str:
        """Return the message for a reader: lines that `said` would not know, for they are wrapped, are said before they are."""
        del said
        return str(self)


class UsageError(TipchainError):
    """The call itself is wrong."""


class InputError(TipchainError):
    """A file or folder that was named cannot be used.

    Args:
        message: the fact, without the place.
        file: the file or folder at fault.
        line: 1-based line in ``file``.
        key: the key in ``file``.
        found: what stands there.
        expected: what should stand there.
        hint: what to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | PathLike[str] | None = None,
        line: int | None = None,
        key: str | None = None,
        found: object = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        self.message, self.file, self.line, self.key = message, file, line, key
        self.found, self.expected, self.hint = found, expected, hint
        place = ""
        if file is not None:
            place = f"{file}:{line}: " if line is not None else f"{file}: "
        told = {"found": found, "expected": expected, "hint": hint}
        rows = [f"  {label}: {value}" for label, value in told.items() if value is not None]
        super().__init__("\n".join([f"{place}{f'{key}: ' if key else ''}{message}", *rows]))


class ParamsError(InputError):
    """A TIPC parameter file that cannot be used."""


class RecordError(InputError):
    """A dump that cannot be read."""


class WeightsError(InputError):
    """A weight file that cannot be used or does not fit the model."""


class DataError(InputError):
    """A data folder that cannot be used."""


class HistoryError(TipchainError):
    """The history's database cannot be reached, read or written, or lacks an entry so far."""


class MissingFrameworkError(TipchainError):
    """torch or paddle cannot be imported, or has no device of the kind asked for."""


class OutputError(TipchainError):
    """An output of a run cannot be written: a full disk, a read-only folder."""

    exit_code = 1


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its class where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def class_and_line(error: BaseException) -> str:
    """Return an error's class and the first line of its message; the class alone where it has none."""
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"


def did_you_mean(word: str, choices: Iterable[str]) -> str | None:
    """Return ``"did you mean 'x'?"`` for the closest choice, or None when nothing is close."""
    close = closest(word, tuple(choices))
    return None if close is None else f"did you mean {close!r}?"


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return the same behind a comma, to end a sentence with; "" when nothing is close."""
    hint = did_you_mean(word, choices)
    return "" if hint is None else f", {hint}"


@lru_cache(maxsize=4096)
def closest(word: str, choices: tuple[str, ...]) -> str | None:
    """Return the closest choice, None when nothing is close; remembered, for many files ask the same and difflib is slow."""
    import difflib

    close = difflib.get_close_matches(word, choices, n=1)
    return close[0] if close else None
