"""One command of a plan: run it, judge how it ended."""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from tipchain.chain.plan import Command
from tipchain.chain.process import Ending, Stop, call
from tipchain.chain.result import Result
from tipchain.modes import Mode, data_folder
from tipchain.outcome import Outcome
from tipchain.runs import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE

SUMMARY = re.compile(r"\d+ passed, (?P<failed>\d+) failed, (?P<errors>\d+) errors?, \d+ skipped in ")
"""What alignments print last but one."""
LOG_COLUMNS = "76"
"""Width of what commands print: the last lines of a log are shown indented by four, on 80 columns."""
OUT_OF_MEMORY_HINT = " (the kernel does that when memory runs out)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a plan runs.

    Attributes:
        root: the folder that the plan was made in; absolute.
        run: the run's folder; absolute.
        mode: the mode.
        data: a data folder of the user's instead of the mode's; absolute.
    """

    root: Path
    run: Path
    mode: Mode
    data: Path | None = None

    def environment(self, command: Command) -> dict[str, str]:
        """Return what ``command`` gets besides the parent's environment."""
        kind = self.mode.train_data if command.step == "train" else self.mode.eval_data
        return {
            **command.env,
            RUN_VARIABLE: str(self.run),
            MODE_VARIABLE: self.mode.value,
            DATA_VARIABLE: str(self.data or self.root / data_folder(kind)),
        }

    def log(self, command: Command) -> Path:
        """Return the command's log."""
        return self.root / command.log if command.log else self.run / "output.log"


def run_command(
    command: Command, place: Place, watch: Callable[[str], None], *, stop: Stop | None = None
) -> tuple[Result, bool]:
    """Run one command; return its result and whether the user, or ``stop``, interrupted it.

    ``watch`` is called with the last line of output, often.
    """
    given = place.environment(command)
    log = place.log(command)
    started = datetime.now().astimezone().isoformat(timespec="milliseconds")
    path = os.pathsep.join(
        filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    )
    try:
        ending = call(
            command.argv,
            cwd=place.root / command.cwd,
            env={**os.environ, "COLUMNS": LOG_COLUMNS, "PATH": path, **given},
            log=log,
            timeout_s=command.timeout_s,
            watch=watch,
            stop=stop,
        )
    except Exception as error:  # noqa: BLE001 - the one place where an exception becomes a result
        ending = Ending(failure=f"{type(error).__name__}: {error}")
    outcome, reason = judge(command, ending)
    result = Result(
        command=replace(command, env=given),
        outcome=outcome,
        reason=reason,
        exit_code=ending.exit_code,
        signal=_signal_name(ending.signal),
        started=started,
        seconds=round(ending.seconds, 3),
        peak_memory_mb=ending.peak_memory_mb,
        log=os.path.relpath(log, place.run),
        tail=ending.tail,
    )
    return result, ending.interrupted


def judge(command: Command, ending: Ending) -> tuple[Outcome, str]:
    """Return the outcome of an ended command and, unless it passed, the reason."""
    code = ending.exit_code
    if trouble := _trouble(command, ending):
        return Outcome.ERROR, trouble
    if code == 0:
        return Outcome.PASS, ""
    said = f": {textwrap.shorten(_said(command, ending.tail), 200)}" if ending.tail else ""
    unusable = code in (126, 127) or (command.step == "align" and (code != 1 or _only_errors(ending.tail)))
    return (Outcome.ERROR if unusable else Outcome.FAIL), f"exit {code}{said}"


def _only_errors(tail: tuple[str, ...]) -> bool:
    """Tell from an alignment's summary whether it found nothing wrong but could not find out everything."""
    counts = [match for line in tail if (match := SUMMARY.match(line))]
    return bool(counts) and counts[-1]["failed"] == "0" and counts[-1]["errors"] != "0"


def _said(command: Command, tail: tuple[str, ...]) -> str:
    """Return the line of ``tail`` that tells most: an alignment's first failed check, else the last line."""
    if command.step != "align":
        return tail[-1]
    start = next((index for index, line in enumerate(tail) if line.startswith(("FAIL ", "ERROR "))), None)
    if start is None:
        return tail[-1]
    # The reports of alignments are wrapped; what goes on stands under the first words.
    more = takewhile(lambda line: line.startswith(" "), tail[start + 1 :])
    return " ".join([tail[start].partition(" ")[2], *more])


def _trouble(command: Command, ending: Ending) -> str:
    """Return what kept a command from coming to an exit status of its own, "" for nothing."""
    if ending.interrupted:
        return "interrupted"
    if ending.failure:
        return (f"exit {ending.exit_code}: " if ending.exit_code is not None else "") + ending.failure
    if ending.timed_out:
        return f"timed out after {command.timeout_s:g} s"
    name = _signal_name(ending.signal)
    return f"killed by {name}" + (OUT_OF_MEMORY_HINT if name == "SIGKILL" else "") if name else ""


def _signal_name(number: int) -> str:
    if not number:
        return ""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
