"""Run a plan: its commands, one or several at once, each judged by its own exit status.

Commands are run by worker threads, each of which waits for one program at a time. The thread that calls
`run_plan` alone decides what starts, keeps the books and tells the observer; signals only leave it a message.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Protocol

from tipchain.chain.execute import Place, run_command
from tipchain.chain.hardware import Gpus, find_gpus
from tipchain.chain.leases import Leases
from tipchain.chain.plan import Command, Plan
from tipchain.chain.process import Stop
from tipchain.chain.result import Result
from tipchain.chain.schedule import Policy, Schedule, as_reused, unaccounted
from tipchain.outcome import Outcome

LOOK_S = 0.2
"""How often to look whether another process has given a GPU back, and to show how time goes by."""


class Observer(Protocol):
    """Who is told how a run goes on; all but `output` in the thread that runs the plan."""

    def started(self, command: Command, number: int, total: int) -> None:
        """Take note that a command starts."""

    def waiting(self, command: Command, number: int, total: int, reason: str) -> None:
        """Take note, again and again, that a command waits for what ``reason`` says."""

    def output(self, command: Command, line: str) -> None:
        """Take note of the last line that a running command wrote; in the thread that waits for it."""

    def ended(self, result: Result) -> None:
        """Take note of how a command ended, or why it was not run."""

    def tick(self) -> None:
        """Take note that time goes by; several times a second."""


class Record(Protocol):
    """What a run writes down so that it can be resumed (`tipchain.chain.journal.Journal`)."""

    def before(self, command: Command, place: Place) -> None:
        """Take note of the inputs of a command that is about to start."""

    def record(self, result: Result, place: Place) -> None:
        """Write down how a command ended."""

    def finished(self, command: Command, place: Place) -> Result | None:
        """Return the earlier PASS of ``command`` if its inputs are unchanged."""


def run_plan(
    plan: Plan,
    place: Place,
    observer: Observer,
    *,
    policy: Policy | None = None,
    record: Record | None = None,
    leases: Leases | None = None,
) -> tuple[tuple[Result, ...], bool]:
    """Run the plan's commands; return their results, in the plan's order, and whether the user interrupted.

    A command whose needs did not pass is not run; a failed alignment stops nothing.

    Args:
        plan: the plan.
        place: where to run it.
        observer: who is told.
        policy: how to run it; one command at a time if None.
        record: where ended commands are written down, and passed ones of an earlier attempt are found.
        leases: those of GPUs that the run takes part in; this user's if None.
    """
    takes_gpus = any(command.on_gpu for command in plan.commands)
    runner = _Runner(
        plan,
        place,
        observer,
        policy or Policy(),
        find_gpus() if takes_gpus else Gpus(),
        leases or Leases(),
        record,
    )
    with on_signals(runner.interrupt):
        runner.run()
    results = runner.schedule.results
    ordered = {command.id: results[command.id] for command in plan.commands if command.id in results}
    return (*ordered.values(), *unaccounted(plan.commands, results)), runner.interrupted


class _Runner:
    """A run that goes on."""

    def __init__(
        self,
        plan: Plan,
        place: Place,
        observer: Observer,
        policy: Policy,
        gpus: Gpus,
        leases: Leases,
        record: Record | None,
    ) -> None:
        self.place, self.observer, self.policy = place, observer, policy
        self.gpus, self.leases, self.record = gpus, leases, record
        self.total = len(plan.commands)
        self.schedule = Schedule(plan.commands, gpus, policy)
        self.stop = Stop()
        self.interrupted = False
        # A SimpleQueue may be filled by a signal's handler while the same thread takes from it.
        self.inbox: SimpleQueue[tuple[Result, bool] | BaseException | None] = SimpleQueue()

    def interrupt(self) -> None:
        """End what runs and start nothing more; may be called at any moment, by a signal's handler."""
        self.interrupted = True
        self.stop.ask()
        self.inbox.put(None)

    def run(self) -> None:
        """Run everything; nothing that was started is left when this returns or raises."""
        with ThreadPoolExecutor(self.policy.jobs, thread_name_prefix="command") as pool:
            try:
                while not self.schedule.done:
                    self.step(pool)
            except BaseException:  # the observer's own: its terminal is gone
                self.stop.ask()
                raise

    def step(self, pool: ThreadPoolExecutor) -> None:
        """Start what may start, then wait for something to happen."""
        if self.interrupted:
            self.schedule.halt = "interrupted"
        settled, waiting = False, False
        for number, command in self.schedule.ready():
            result = self.earlier(command) or self.schedule.unstarted(command)
            if result:
                self.settle(result)
                settled = True
            elif len(self.schedule.running) < self.policy.jobs:
                waiting = not self.start(pool, number, command) or waiting
        if settled:
            return
        if not self.schedule.running and not waiting:
            for result in list(self.schedule.stuck()):
                self.settle(result)
            return
        self.hear()

    def earlier(self, command: Command) -> Result | None:
        """Return the PASS of an earlier attempt of this run, if it still holds."""
        if self.record is None or self.schedule.halt or self.schedule.must_repeat(command):
            return None
        result = self.record.finished(command, self.place)
        return as_reused(result, command) if result else None

    def start(self, pool: ThreadPoolExecutor, number: int, command: Command) -> bool:
        """Start ``command`` unless a GPU that it takes is taken; return whether it started."""
        reason = self.leases.take(self.gpus.taken_by(command), command.id)
        if reason:
            self.observer.waiting(command, number, self.total, reason)
            return False
        self.schedule.start(command)
        self.observer.started(command, number, self.total)
        pool.submit(self.work, command)
        return True

    def work(self, command: Command) -> None:
        """Run ``command``, in a thread of the pool, and report to the inbox."""
        try:
            watch = partial(self.observer.output, command)
            if self.record is not None:
                self.record.before(command, self.place)
            result, interrupted = run_command(command, self.place, watch, stop=self.stop)
            if self.record is not None:
                self.record.record(result, self.place)
        except BaseException as error:  # noqa: BLE001  (raised again in the thread that runs the plan)
            self.inbox.put(error)
        else:
            self.inbox.put((result, interrupted))

    def hear(self) -> None:
        """Wait a moment for a command to end or for a signal."""
        try:
            news = self.inbox.get(timeout=LOOK_S)
        except Empty:
            self.observer.tick()
            return
        if isinstance(news, BaseException):
            raise news
        if news is not None:
            result, interrupted = news
            self.leases.give_back(self.gpus.taken_by(result.command))
            if interrupted and self.schedule.halt and not self.interrupted:
                result = replace(result, reason=f"ended: {self.schedule.halt}")
            elif interrupted and not self.interrupted:
                self.interrupt()
            self.settle(result)
        self.observer.tick()

    def settle(self, result: Result) -> None:
        """Keep how a command ended and tell of it."""
        self.schedule.settle(result)
        self.observer.ended(result)
        bad = result.outcome in (Outcome.FAIL, Outcome.ERROR)
        if bad and self.policy.fail_fast and not self.schedule.halt:
            self.schedule.halt = f"{result.command.id} failed (--fail-fast)"
            self.stop.ask()


@contextmanager
def on_signals(interrupt: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP call ``interrupt``, so that no child is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        del number, frame
        interrupt()

    # nohup ignores SIGHUP, and means it; so do shells for SIGINT of what they start in the background.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, heard) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def link_latest(plan: Plan, place: Place, out: Path, results: Sequence[Result] = ()) -> tuple[str, ...]:
    """Point the suite's usual names in ``out`` to this run's files; return what could not be linked.

    Each link is replaced in one step. Names whose file this run did not make keep pointing to the last
    run that made it. A command that was run again in the same run has a new log, which ``results`` name.
    """
    logs = {place.log(result.command): result.log for result in results if result.log}
    problems = []
    for name, target in plan.latest:
        path, goal = out / name, place.run / logs.get(place.run / target, target)
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
