"""One program call: started in a session of its own, its output kept, ended with all its children.

A program's children may leave its process group (``paddle.distributed.launch`` gives each worker a session of
its own), so the processes to end are found by a mark in their environment, not by the group alone. Of one that is ended
before its time the children are followed too: ``env -i`` takes the mark away.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tipchain.chain.warden import MARK_VARIABLE, WARDEN

TAIL_BYTES = 8192
CHUNK = 65536
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
GRACE_S = (5.0, 5.0, 5.0)
STRAGGLER_S = 0.5
STOP_LOOK_S = 0.1
EXEC_LOOKS, EXEC_LOOK_S = 20, 0.001
_PARENT, _BEGAN = 1, 19
"""Where ``/proc/PID/stat`` has the parent and the start time, counted behind the name: fields 4 and 22 (proc(5))."""
KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the flags of ``/proc/PID/stat`` (proc(5), linux/sched.h)."""
PYTHON_HINT = "name one with --python PATH or TIPCHAIN_PYTHON"

Watcher = Callable[[str], None]


class Stop(threading.Event):
    """A word to running programs, heard in whichever thread waits for them, to end.

    Asked once more, they go on to the next signal at once, as a second Ctrl-C does.

    Attributes:
        times: how often it was asked for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times = 0

    def ask(self) -> None:
        """Ask to end."""
        self.times += 1
        self.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a program ended.

    Attributes:
        exit_code: its exit status; None where a signal ended it or it did not start.
        signal: number of the signal that ended it, 0 for none.
        seconds: wall time.
        peak_memory_mb: largest resident size in MiB.
        tail: the last lines of its output.
        timed_out: whether it was ended for its time.
        interrupted: whether the user interrupted it.
        failure: why it could not be started or its log not be written; "" otherwise.
    """

    exit_code: int | None = None
    signal: int = 0
    seconds: float = 0.0
    peak_memory_mb: float = 0.0
    tail: tuple[str, ...] = ()
    timed_out: bool = False
    interrupted: bool = False
    failure: str = ""


def call(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    timeout_s: float | None,
    watch: Watcher,
    grace_s: Sequence[float] = GRACE_S,
    stop: Stop | None = None,
    begun: Callable[[int], None] | None = None,
) -> Ending:
    """Run ``argv`` to its end and return how it ended; no process that it started is left.

    A program that calls this itself, as ``tipchain run`` in a night, hands its own mark on beside the new one: whoever
    ends it finds what it has started, too.

    Args:
        argv: program and arguments.
        cwd: folder to run in.
        env: the whole environment.
        log: file for its output, written anew.
        timeout_s: limit; then SIGINT, SIGTERM and SIGKILL follow.
        watch: called with the last line of output, often.
        grace_s: seconds to wait after each of the three signals.
        stop: ends it when asked, as an interrupt by the user does.
        begun: called with the process's number once it has started.
    """
    if not cwd.is_dir():
        return Ending(failure=f"the working folder {cwd} is missing")
    mark = secrets.token_hex(8)
    begin = time.monotonic()
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("wb", buffering=0)
    except OSError as error:
        return Ending(failure=f"cannot write the log {log}: {error.strerror}")
    with file, WARDEN.watching(mark):
        try:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, MARK_VARIABLE: ":".join(filter(None, (mark, env.get(MARK_VARIABLE))))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            return _not_started(argv[0], error)
        if begun is not None:
            begun(process.pid)
        return _Running(process, mark, file, begin, watch, grace_s, stop or Stop()).follow(timeout_s)


def _not_started(program: str, error: OSError) -> Ending:
    if error.errno == errno.ENOENT:
        return Ending(
            exit_code=127,
            failure=f"interpreter {program!r} not found; {PYTHON_HINT}",
        )
    return Ending(exit_code=126, failure=f"interpreter {program!r} cannot be run: {error.strerror}")


class _Running:
    """A started program."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        log: IO[bytes],
        begin: float,
        watch: Watcher,
        grace_s: Sequence[float],
        stop: Stop,
    ) -> None:
        assert process.stdout is not None
        self.process, self.mark, self.log, self.begin = process, mark, log, begin
        self.watch, self.grace_s, self.stop = watch, grace_s, stop
        self.pipe = process.stdout
        os.set_blocking(self.pipe.fileno(), False)
        self.tail = b""
        self.status: int | None = None
        self.peak_kb = 0
        self.failure = ""
        self.strays: dict[int, bytes] = {}

    def follow(self, timeout_s: float | None) -> Ending:
        """Copy the output until the program ends, the time is over or the user interrupts."""
        interrupted, timed_out = False, False
        with self.pipe:
            try:
                done = self.wait(None if timeout_s is None else self.begin + timeout_s)
                interrupted = not done and self.stop.is_set()
                timed_out = not done and not self.failure and not interrupted
            except KeyboardInterrupt:
                interrupted = True
            except BaseException:  # the watcher's own: its terminal is gone
                self.end()
                raise
            seconds = time.monotonic() - self.begin
            interrupted = self.end() or interrupted
            self.drain()
        code = os.waitstatus_to_exitcode(self.status) if self.status is not None else None
        return Ending(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else 0,
            seconds=seconds,
            peak_memory_mb=round(self.peak_kb / 1024, 1),
            tail=last_lines(self.tail),
            timed_out=timed_out,
            interrupted=interrupted,
            failure=self.failure,
        )

    def wait(self, deadline: float | None) -> bool:
        """Copy output until the program has ended (True), or the deadline, a failure or the stop came (False)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            handle = self._pidfd(selector)
            try:
                while not self.ended():
                    left = None if deadline is None else deadline - time.monotonic()
                    if self.failure or self.stop.is_set() or (left is not None and left <= 0):
                        return False
                    pause = STOP_LOOK_S if handle is not None else STOP_LOOK_S / 2
                    for key, _ in selector.select(pause if left is None else min(left, pause)):
                        if key.fileobj is self.pipe and not self.copy():
                            selector.unregister(self.pipe)
            finally:
                if handle is not None:
                    os.close(handle)
        return True

    def _pidfd(self, selector: selectors.BaseSelector) -> int | None:
        try:
            handle = os.pidfd_open(self.process.pid)
        except OSError:  # a kernel before 5.3, or a sandbox: look now and then instead
            return None
        selector.register(handle, selectors.EVENT_READ)
        return handle

    def ended(self) -> bool:
        """Return whether the program has ended; collects its status and memory."""
        if self.status is None:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.status, self.peak_kb = status, usage.ru_maxrss
                self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def copy(self) -> bool:
        """Copy what the program wrote to the log; False at the end of its output."""
        try:
            data = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        try:
            view = memoryview(data)
            while view and not self.failure:
                view = view[self.log.write(view) or 0 :]
        except OSError as error:
            self.failure = f"cannot write its log: {error.strerror}"
        lines = last_lines(self.tail, 1)
        self.watch(lines[0] if lines else "")
        return True

    def drain(self) -> None:
        """Copy what stands in the pipe by now, and no more: who holds its other end may write for ever."""
        size = fcntl.fcntl(self.pipe, fcntl.F_GETPIPE_SZ)
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            for _ in range(0, size, CHUNK):
                if not selector.select(0) or not self.copy():
                    return

    def end(self) -> bool:
        """End whatever is left of the program, in three steps; return whether the user interrupted again."""
        interrupted = False
        if not self.ended():  # what has ended is nobody's parent any more
            self.strays = _descendants(self.process.pid)
        for number, grace in zip(ENDINGS, self.grace_s, strict=True):
            try:
                if self.ended() and not self.members():
                    break
                self.signal(number)
                self.await_end(time.monotonic() + grace)
            except KeyboardInterrupt:
                interrupted = True
        return interrupted

    def await_end(self, deadline: float) -> None:
        """Wait until nothing is left or the deadline is over, copying output on."""
        pause, leaderless, asked = 0.005, False, self.stop.times
        while time.monotonic() < deadline and not (self.ended() and not self.members()):
            if self.stop.times > asked:
                return
            if self.ended() and not leaderless:
                # The program itself has had its time; what it left behind has nothing to save.
                leaderless, deadline = True, min(deadline, time.monotonic() + STRAGGLER_S)
            self.drain()
            time.sleep(pause)
            pause = min(pause * 2, 0.1)

    def signal(self, number: signal.Signals) -> None:
        if not self.ended():
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        for pid in self.members():
            # Outside the group only; the group has it already.
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != self.process.pid or self.ended():
                    os.kill(pid, number)

    def members(self) -> list[int]:
        """Return the living processes of this command besides its first: its group, who bears its mark, `strays`."""
        needle = self.mark.encode()
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - for each command
        return [pid for pid in pids if pid != self.process.pid and self._is_member(pid, needle)]

    def _is_member(self, pid: int, needle: bytes) -> bool:
        try:
            if os.getpgid(pid) == self.process.pid:
                return _state(pid)[0] != b"Z"
            if pid in self.strays:
                state = _state(pid)
                return state[0] != b"Z" and state[_BEGAN] == self.strays[pid]
            environment = _environment(pid)
        except OSError:  # ended meanwhile, or somebody else's
            return False
        return needle in environment  # random, so that nothing else holds it


def _environment(pid: int) -> bytes:
    """Return the environment that a process began with."""
    found = b""
    for _ in range(EXEC_LOOKS):
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123
            found = file.read()
        if found or _has_none(pid):
            break
        time.sleep(EXEC_LOOK_S)  # it is being replaced by another program, and has none for that moment
    return found


def _descendants(pid: int) -> dict[int, bytes]:
    """Return the processes that ``pid`` has started, and those that they have; of each when it began.

    Numbers of processes are used again; together with when it began one is never another.
    """
    states: dict[int, list[bytes]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError):  # ended meanwhile
                states[int(name)] = _state(int(name))
    found: dict[int, bytes] = {}
    parents = {pid}
    while parents:
        children = {
            one: state for one, state in states.items() if int(state[_PARENT]) in parents and one not in found
        }
        found.update({one: state[_BEGAN] for one, state in children.items()})
        parents = set(children)
    return found


def _state(pid: int) -> list[bytes]:
    """Return what ``/proc/PID/stat`` says after the name: the state, the parent, ..."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()


def _has_none(pid: int) -> bool:
    """Return whether a process has no environment for good: a thread of the kernel, or one that has ended."""
    state = _state(pid)
    return state[0] in (b"Z", b"X") or bool(int(state[6]) & KERNEL_THREAD)


def last_lines(data: bytes, count: int = 20) -> tuple[str, ...]:
    """Return the last lines of output that may hold anything: other encodings, progress bars, escapes."""
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in text.split("\n")]
    return tuple(line for line in lines if line)[-count:]
