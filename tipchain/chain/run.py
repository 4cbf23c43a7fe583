"""Run a plan: its commands in order, each judged by its own exit status."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Protocol

from tipchain.chain.execute import Place, run_command
from tipchain.chain.hardware import why_no_gpu
from tipchain.chain.plan import Command, Plan
from tipchain.chain.result import Result
from tipchain.outcome import Outcome


class Observer(Protocol):
    """Who is told how a run goes on."""

    def started(self, command: Command, number: int, total: int) -> None:
        """Take note that a command starts."""

    def output(self, command: Command, line: str) -> None:
        """Take note of the last line that a running command wrote."""

    def ended(self, result: Result) -> None:
        """Take note of how a command ended, or why it was not run."""


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
                    result, interrupted = run_command(command, place, partial(observer.output, command))
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
