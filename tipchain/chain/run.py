"""Run a plan, and keep in a journal each command's end and dependencies, so that ``--resume`` does not repeat it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import NamedTuple, Protocol

from tipchain.chain.artifacts import Stamp, UnsettledError, settle, snapshot, stamp
from tipchain.chain.execute import Place, is_interpreter, run_command
from tipchain.chain.gpus import Gpus, Leases, find_gpus
from tipchain.chain.params import read_text
from tipchain.chain.plan import Command, Plan, Result, result_json
from tipchain.chain.process import Stop
from tipchain.core.files import DATA_VARIABLE
from tipchain.core.json_text import Json, as_json, parse_as
from tipchain.core.store import LISTED, Listing, StoreEntry, digest, listing, mark
from tipchain.errors import BAD, Outcome, ParamsError

# A command's result depends on its words, its environment, its folder, and the files and folders that they name: as a word, as the part of
# a word after ``=``, or as the stem of a weight file. Files count by their bytes, large ones by size and time of
# change, folders by a listing. What a program imports or reads besides is not known here: resume in an unchanged
# checkout.


_STEM_OF = ".pdparams"


def _holds(folder: Path, path: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


# ``journal.jsonl`` in the run's folder has one JSON object a line:
#
# - ``{"journal": 1, "params", "mode", "suite"}`` for each attempt at the run;
# - ``{"started": id}`` before a command starts, so that an earlier pass of it, and of what needs it, no longer counts;
# - ``{"ended": id, "result": {...}, "entry": {...}}`` after it ended, safely on the disk; only a pass has an entry.
#
# A last line that a killed process left half-written is ignored, and so is any other line that is none of these: the
# worst that comes of it is that a command runs again.


FILE_NAME = "journal.jsonl"
FORMAT = 1


class _Pass(NamedTuple):
    """A passed command: its result, and its files with what they rest on."""

    result: Result
    entry: StoreEntry


class Journal:
    """The journal of one run. Its methods may be called from several threads at once.

    For each command that is run: `before`, then the command, then `record`. ``problem`` says why it could not be written, "" if
    it could; the run goes on without.
    """

    def __init__(self, run: Path) -> None:
        """Read the journals of earlier attempts at the run in the folder ``run``, if there were any."""
        self.path = run / FILE_NAME
        self.problem = ""
        self._lock = threading.Lock()
        self._marks: dict[tuple[str, Stamp], str] = {}  # a file whose state is unchanged is read once
        self._before: dict[str, tuple[str, dict[str, str], dict[str, Listing]]] = {}
        # Commands whose latest attempt passed, by id.
        passes: dict[str, _Pass] = {}
        for line in _lines(self.path):
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                if "started" in line:
                    _forget(passes, line["started"])
                elif "entry" not in line:
                    passes.pop(line["ended"], None)
                else:
                    passes[line["ended"]] = parse_as(_Pass, line, lenient=True)
        self._passed = passes

    def start(self, plan: Plan) -> None:
        """Begin an attempt at ``plan``."""
        self._append({"journal": FORMAT, **_identity(plan)}, whole=True)

    def before(self, command: Command, place: Place) -> None:
        """Take note of the inputs of ``command``, as planned, which is about to start."""
        key, texts = self._call(command, place)
        files: dict[str, str] = {}
        folders: dict[str, Listing] = {}
        for text in sorted(texts):
            name = os.path.join(command.cwd, text)  # noqa: PTH118 - a word may be too long for a path
            path = place.root / name
            if os.path.isdir(path):  # noqa: PTH112
                if not _holds(path, place.run) and not _holds(place.run, path):
                    folders[name] = listing(path, LISTED)
            elif found := next((one for one in (name, name + _STEM_OF) if stamp(place.root / one)), ""):
                files[found] = self._look(str(place.root / found), "content")
        with self._lock:
            self._before[command.id] = key, files, folders
            _forget(self._passed, command.id)
        self._append({"started": command.id})

    def record(self, result: Result, place: Place) -> None:
        """Write down how a command ended; a reused result stands there already."""
        if result.reused:
            return
        line: dict[str, Json] = {"ended": result.command.id, "result": result_json(result)}
        with self._lock:
            before = self._before.pop(result.command.id, None)
        if result.outcome is Outcome.PASS and before is not None:
            key, marks, folders = before
            for path, files in folders.items():
                # What the command has put there (a cache, a log) is no change of what it read.
                later = listing(place.root / path, LISTED)
                marks[path] = f"listing {digest(later if files.items() <= later.items() else files)}"
            leaves = [*snapshot(result.command.leaves, place.root)]
            if any(one.in_log for one in result.command.leaves):
                leaves.append(os.path.relpath(place.run / result.log, place.root))
            artifacts = {path: mark(str(place.root / path), "time") for path in leaves}
            line["entry"] = as_json(StoreEntry(key=key, files=artifacts, rests_on=marks))
        self._append(line, whole=True)

    def finished(self, command: Command, place: Place) -> Result | None:
        """Return the PASS of an earlier attempt, marked as reused, if it still holds.

        It does if the command's words, environment and folder and the files that they name are what they were
        before it started then, and what it left is there, unchanged. The answer stays the same for one attempt.
        """
        with self._lock:
            earlier = self._passed.get(command.id)
        if earlier is None:
            return None
        # What the plan asks for now may be more than what was asked for then; what is new may be the command's own output.
        if not (
            earlier.entry.key == self._call(command, place)[0]
            and earlier.entry.holds(place.root, place.root, self._look)
            and earlier.result.command.leaves == command.leaves
        ):
            with self._lock:
                self._passed.pop(command.id, None)
            return None
        # The plan may name or place the command otherwise by now.
        own = command._replace(argv=earlier.result.command.argv, env=earlier.result.command.env)
        return earlier.result._replace(command=own, reused=True)

    def _call(self, command: Command, place: Place) -> tuple[str, set[str]]:
        """Return the key of a command, planned and not yet settled, and the texts that may be paths."""
        env = place.environment(command)
        words = command.argv
        with suppress(UnsettledError):
            words = settle(command, place.root, place.run).argv
        key = digest([command.argv, words, sorted(env.items()), command.cwd])
        texts = {env[DATA_VARIABLE]}
        for number, word in enumerate(words):
            if number or "/" in word:
                texts |= {word, *(word.split("=", n)[n] for n in range(1, word.count("=") + 1))}
        return key, texts - {""}

    def _look(self, path: str, kind: str) -> str:
        state = stamp(Path(path))
        if state is None:
            return mark(path, kind)
        if (kind, state) not in self._marks:
            self._marks[kind, state] = mark(path, kind)
        return self._marks[kind, state]

    def _append(self, line: Mapping[str, object], *, whole: bool = False) -> None:
        data = json.dumps(line, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        try:
            with self._lock, self.path.open("ab+", buffering=0) as file:
                handle = file.fileno()
                size = os.fstat(handle).st_size
                if not (size == 0 or os.pread(handle, 1, size - 1) == b"\n"):
                    data = b"\n" + data
                file.write(data)
                if whole:
                    os.fsync(file.fileno())
        except OSError as error:
            self.problem = f"cannot be written: {error.strerror}"


def resumable(out: Path, plan: Plan) -> Path | None:
    """Return the latest run below ``out`` that was an attempt at the same file, mode and suite; None if none was.

    The file's text may have changed since: commands that differ are not the same commands.
    """
    wanted = _identity(plan)
    for run in sorted((out / "runs").glob("*/"), reverse=True):
        first = next((line for line in _lines(run / FILE_NAME) if "journal" in line), {})
        if first.get("journal") == FORMAT and all(first.get(key) == value for key, value in wanted.items()):
            return run
    return None


def _identity(plan: Plan) -> dict[str, str]:
    return {"params": os.path.relpath(plan.params), "mode": plan.mode.value, "suite": plan.suite}


def _forget(passes: dict[str, _Pass], name: str) -> None:
    # What rests on it goes, too, which has not seen what it leaves anew: an attempt may be killed before that was repeated,
    # and a folder of the run is no input.
    passes.pop(name, None)
    for other in [key for key, one in passes.items() if name in one.result.command.needs]:
        _forget(passes, other)


def _lines(path: Path) -> Iterator[dict[str, Json]]:
    try:
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    with suppress(ValueError, RecursionError):
                        data = json.loads(line)
                        if isinstance(data, dict):
                            yield data
    except OSError:
        return


# Commands of one leg run one after the other, in the plan's order; a command starts when those that it needs have
# passed. What cannot run gets its result without being started, so that every command ends with one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a plan shall be run: so many legs at once; a GPU that is not there an ERROR, or a SKIP; up to the first failure, or on."""

    jobs: int = 1
    require_gpu: bool = False
    fail_fast: bool = False


class Schedule:
    """A plan's commands: those to come by leg, ids of those that run, results by id, and why nothing new is started."""

    def __init__(self, commands: Sequence[Command], gpus: Gpus, policy: Policy) -> None:
        self.gpus, self.policy = gpus, policy
        self.results: dict[str, Result] = {}
        self.running: set[str] = set()
        self.halt = ""
        self.legs: dict[str, deque[tuple[int, Command]]] = {}
        for number, command in enumerate(commands, 1):
            self.legs.setdefault(_leg(command), deque()).append((number, command))

    def ready(self) -> Iterator[tuple[int, Command]]:
        """Yield the commands whose turn it is, with their numbers, in the plan's order.

        Each must then be put into ``running`` or settled (`settle`), or is yielded again next time.
        """
        for number, command in sorted((leg[0] for leg in self.legs.values()), key=lambda head: head[0]):
            free = self.halt or all(need in self.results for need in command.needs)
            if free and command.id not in self.running:
                yield number, command

    def settle(self, result: Result) -> None:
        """Take note of how a command ended, or why it is not run; its leg goes on."""
        name = result.command.id
        self.running.discard(name)
        self.results[name] = result
        leg = self.legs[_leg(result.command)]
        leg.popleft()
        if not leg:
            del self.legs[_leg(result.command)]

    def unstarted(self, command: Command) -> Result | None:
        """Return the result of a command whose turn it is and that cannot be run; None if it can."""
        if reason := self.halt or command.skip:
            return _not_run(command, reason)
        if reason := self.gpus.why_not(command):
            return _not_run(command, reason, Outcome.ERROR if self.policy.require_gpu else Outcome.SKIP)
        bad = (need for need in command.needs if self.results[need].outcome is not Outcome.PASS)
        if need := next(bad, ""):
            skipped = self.results[need].outcome is Outcome.SKIP
            return _not_run(command, f"{need} was not run" if skipped else f"{need} failed")
        return None

    def stuck(self) -> Iterator[Result]:
        """Yield an ERROR for the head of every leg that waits for a command which cannot come before it."""
        for leg in list(self.legs.values()):
            command = leg[0][1]
            needs = ", ".join(need for need in command.needs if need not in self.results)
            yield _not_run(command, f"it needs {needs}, which cannot come before it", Outcome.ERROR)


def _leg(command: Command) -> str:
    # Commands that belong to no leg are a leg of their own for each kind.
    return f"leg:{command.leg}" if command.leg else f"step:{command.step}"


def _not_run(command: Command, reason: str, outcome: Outcome = Outcome.SKIP) -> Result:
    return Result(command=command, outcome=outcome, reason=f"not run: {reason}")


def unaccounted(planned: Sequence[Command], results: Mapping[str, Result]) -> tuple[Result, ...]:
    """Return an ERROR for every planned command without a result: executed must equal planned."""
    first = {command.id: at for at, command in reversed(tuple(enumerate(planned)))}
    lost = (command for at, command in enumerate(planned) if command.id not in results or first[command.id] < at)
    reason = "planned, but there is no result of it"
    return tuple(Result(command=command, outcome=Outcome.ERROR, reason=reason) for command in lost)


# Commands are run by worker threads, each of which waits for one program at a time. The thread that calls
# `run_plan` alone decides what starts, keeps the books and tells the observer; signals only leave it a message.


LOOK_S = 0.2
"""How often to look whether another process has given a GPU back, and to show how time goes by."""


class Observer(Protocol):
    """Who is told how a run goes on; all but `output` in the thread that runs the plan."""

    def started(self, command: Command, number: int, total: int) -> None:
        """Take note that a command starts."""

    def waiting(self, command: Command, number: int, total: int, reason: str) -> None:
        """Take note, again and again, that a command waits, for this ``reason``."""

    def output(self, command: Command, line: str) -> None:
        """Take note of the last line that a running command wrote; in the thread that waits for it."""

    def ended(self, result: Result) -> None:
        """Take note of how a command ended, or why it was not run."""


def run_plan(
    plan: Plan,
    place: Place,
    observer: Observer,
    *,
    policy: Policy | None = None,
    record: Journal | None = None,
    leases: Leases | None = None,
) -> tuple[tuple[Result, ...], bool]:
    """Run the plan's commands; return their results, in the plan's order, and whether the user interrupted.

    A command whose needs did not pass is not run; a failed alignment stops nothing. ``record`` is where ended commands
    are written down, and passed ones of an earlier attempt are found.
    """
    takes_gpus = any(command.on_gpu for command in plan.commands)
    schedule = Schedule(plan.commands, find_gpus() if takes_gpus else Gpus(), policy or Policy())
    runner = _Runner(schedule, place, observer, leases or Leases(), record)
    with on_signals(runner.interrupt):
        runner.run()
    results = schedule.results
    ordered = {command.id: results[command.id] for command in plan.commands if command.id in results}
    return (*ordered.values(), *unaccounted(plan.commands, results)), runner.interrupted


class _Runner:
    def __init__(
        self, schedule: Schedule, place: Place, observer: Observer, leases: Leases, record: Journal | None
    ) -> None:
        self.schedule, self.gpus, self.policy = schedule, schedule.gpus, schedule.policy
        self.place, self.observer, self.leases, self.record = place, observer, leases, record
        self.total = sum(map(len, schedule.legs.values()))
        self.stop = Stop()
        self.interrupted = False
        # A SimpleQueue may be filled by a signal's handler while the same thread takes from it.
        self.inbox: SimpleQueue[tuple[Result, bool] | BaseException | None] = SimpleQueue()

    def interrupt(self) -> None:
        """End all running commands and start nothing more; may be called at any moment, by a signal's handler."""
        self.interrupted = True
        self.stop.ask()
        self.inbox.put(None)

    def run(self) -> None:
        with ThreadPoolExecutor(self.policy.jobs, thread_name_prefix="command") as pool:
            try:
                while self.schedule.legs:
                    self.step(pool)
            except BaseException:  # the observer's own: its terminal is gone
                self.stop.ask()
                raise

    def step(self, pool: ThreadPoolExecutor) -> None:
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
        results = self.schedule.results
        anew = not all(need in results and results[need].reused for need in command.needs)
        if self.record is None or self.schedule.halt or anew:
            return None
        return self.record.finished(command, self.place)

    def start(self, pool: ThreadPoolExecutor, number: int, command: Command) -> bool:
        reason = self.leases.take(self.gpus.taken_by(command), command.id)
        if reason:
            self.observer.waiting(command, number, self.total, reason)
            return False
        self.schedule.running.add(command.id)
        self.observer.started(command, number, self.total)
        pool.submit(self.work, command)
        return True

    def work(self, command: Command) -> None:
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
        try:
            news = self.inbox.get(timeout=LOOK_S)
        except Empty:
            news = None
        if isinstance(news, BaseException):
            raise news
        if news is not None:
            result, interrupted = news
            self.leases.give_back(self.gpus.taken_by(result.command))
            if interrupted and self.schedule.halt and not self.interrupted:
                result = result._replace(reason=f"ended: {self.schedule.halt}")
            elif interrupted and not self.interrupted:
                self.interrupt()
            self.settle(result)

    def settle(self, result: Result) -> None:
        self.schedule.settle(result)
        self.observer.ended(result)
        if result.outcome in BAD and self.policy.fail_fast and not self.schedule.halt:
            self.schedule.halt = f"{result.command.id} failed (--fail-fast)"
            self.stop.ask()


def check_programs(plan: Plan, root: Path) -> None:
    """Refuse a plan with a program that is not in the checkout ``root``, before anything starts.

    Of an interpreter that is no Python they may all be somewhere else.

    Raises:
        ParamsError: it is not there; names the line of the parameter file.
    """
    named = [one for one in plan.commands if one.script and one.step != "align"]
    absent = [one for one in named if not (root / one.cwd / one.script).is_file()]
    python = all(is_interpreter(one.argv[0]) for one in named)
    if not absent or (not python and {one.script for one in absent} == {one.script for one in named}):
        return
    command, script = absent[0], absent[0].script
    lines = read_text(Path(plan.params)).splitlines()
    line = next((number for number, text in enumerate(lines, 1) if script in text), None)
    raise ParamsError(f"{script}, which {command.id} runs, is not in {root / command.cwd}", file=plan.params, line=line)


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
    """Point the suite's usual names in ``out`` to this run's files; return the names that could not be linked.

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
            if path.exists() and not path.is_symlink():
                problems.append(f"{path} still names another run's file: it is no link")
                continue
            beside = path.with_name(f".{os.getpid()}.{path.name}")
            beside.unlink(missing_ok=True)
            beside.symlink_to(os.path.relpath(goal, path.parent))
            beside.replace(path)
        except OSError as error:
            problems.append(f"{path} still names another run's file: {error.strerror}")
    return tuple(problems)
