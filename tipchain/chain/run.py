"""Run a plan: its commands in order, each judged by its own exit status."""

from __future__ import annotations

import os
import re
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Protocol

from tipchain.chain.hardware import why_no_gpu
from tipchain.chain.plan import Command, Plan
from tipchain.chain.process import Ending, call
from tipchain.chain.result import Result
from tipchain.modes import Mode, data_folder
from tipchain.outcome import Outcome
from tipchain.runs import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE

SUMMARY = re.compile(r"\d+ passed, (?P<failed>\d+) failed, (?P<errors>\d+) errors?, \d+ skipped in ")
"""What alignments print last but one."""
LOG_COLUMNS = "76"
"""Width of what commands print: the last lines of a log are shown indented by four, on 80 columns."""
OUT_OF_MEMORY_HINT = " (the kernel does that when memory runs out)"


class Observer(Protocol):
    """Who is told how a run goes on."""

    def started(self, command: Command, number: int, total: int) -> None:
        """Take note that a command starts."""

    def output(self, line: str) -> None:
        """Take note of the last line that the running command wrote."""

    def ended(self, result: Result) -> None:
        """Take note of how a command ended, or why it was not run."""


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


def run_plan(plan: Plan, place: Place, observer: Observer) -> tuple[tuple[Result, ...], bool]:
    """Run the plan's commands; return their results and whether the user interrupted.

    A command whose needs did not pass is not run; a failed alignment stops nothing.
    """
    results: dict[str, Result] = {}
    interrupted = False
    no_gpu = why_no_gpu() if any(command.on_gpu for command in plan.commands) else ""
    with _terminable():
        for number, command in enumerate(plan.commands, 1):
            try:
                reason = "interrupted" if interrupted else _why_not(command, results, no_gpu)
                if reason:
                    result = Result(command=command, outcome=Outcome.SKIP, reason=f"not run: {reason}")
                else:
                    observer.started(command, number, len(plan.commands))
                    result, interrupted = run_command(command, place, observer)
            except KeyboardInterrupt:
                interrupted = True
                result = Result(command=command, outcome=Outcome.ERROR, reason="interrupted")
            results[command.id] = result
            observer.ended(result)
    return (*results.values(), *unaccounted(plan.commands, results)), interrupted


def unaccounted(planned: Sequence[Command], results: Mapping[str, Result]) -> tuple[Result, ...]:
    """Return an ERROR for every planned command without a result: executed must equal planned."""
    seen: set[str] = set()
    missing = []
    for command in planned:
        if command.id not in results or command.id in seen:
            missing.append(
                Result(command=command, outcome=Outcome.ERROR, reason="planned, but there is no result of it")
            )
        seen.add(command.id)
    return tuple(missing)


def _why_not(command: Command, results: Mapping[str, Result], no_gpu: str) -> str:
    if command.skip:
        return command.skip
    if command.on_gpu and no_gpu:
        return no_gpu
    for need in command.needs:
        outcome = results[need].outcome
        if outcome is Outcome.SKIP:
            return f"{need} was not run"
        if outcome is not Outcome.PASS:
            return f"{need} failed"
    return ""


def run_command(command: Command, place: Place, observer: Observer) -> tuple[Result, bool]:
    """Run one command; return its result and whether the user interrupted it."""
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
            watch=observer.output,
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


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does, so that no child is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    # nohup ignores SIGHUP, and means it.
    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def link_latest(plan: Plan, place: Place, out: Path) -> tuple[str, ...]:
    """Point the suite's usual names in ``out`` to this run's files; return what could not be linked.

    Each link is replaced in one step. Names whose file this run did not make keep pointing to the last
    run that made it.
    """
    problems = []
    for name, target in plan.latest:
        path, goal = out / name, place.run / target
        if not goal.exists():
            continue
        try:
            _replace_link(path, Path(os.path.relpath(goal, path.parent)))
        except OSError as error:
            problems.append(f"{path} still names another run's file: {error.strerror}")
    return tuple(problems)


def _replace_link(path: Path, goal: Path) -> None:
    if path.exists() and not path.is_symlink():
        raise FileExistsError(17, "it is no link")
    beside = path.with_name(f".{os.getpid()}.{path.name}")
    beside.unlink(missing_ok=True)
    beside.symlink_to(goal)
    beside.replace(path)
