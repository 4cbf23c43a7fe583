"""One program call: started in a session of its own, its output kept, ended with all its children.

A program's children may leave its process group (``paddle.distributed.launch`` gives each worker a session of its own), and
outlive their parents. They stay below the call's warden (`tipchain.chain.warden`), which is the
program's parent, and is there when this process is killed, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import selectors
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tipchain.chain.warden import PROGRAM, SWEEP_S, descendants, request

TAIL_BYTES = 8192
TAIL_LINES = 32
"""Lines that are kept of a command's output: an alignment's whole verdict."""
CHUNK = 65536
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
GRACE_S = (5.0, 5.0, 5.0)
STRAGGLER_S = 0.5
STOP_LOOK_S = 0.1
WARDEN_S = 3 * SWEEP_S
DIED = re.compile(
    rb"Exception in thread|reader thread raised an exception|DataLoader worker\S* exited|Process Process-\d+:"
)
SILENT_S = 300.0
"""So long a program whose data process died may write nothing: it waits for data that never come."""
STUCK = "ended: its data process died, and it wrote nothing more"
LOST = "what watches over it was killed, and all that it had started with it"
PYTHON_HINT = "`--python` names another"

Watcher = Callable[[str], None]


class Stop(threading.Event):
    """A word to running programs, heard in whichever thread waits for them, to end.

    Asked once more, they go on to the next signal at once, as a second Ctrl-C does; ``times`` counts.
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
        tail: the last lines of its output, before it was made to end.
        timed_out: whether it was ended for its time.
        failure: the reason why it could not be started or its log not be written; "" otherwise.
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

    Args:
        argv: program and arguments.
        cwd: folder to run in.
        env: the whole environment.
        log: file for its output, written anew.
        timeout_s: limit; then SIGINT, SIGTERM and SIGKILL follow, each with its seconds of ``grace_s``.
        watch: called with the last line of output, often.
        grace_s: seconds to wait after each of the three signals.
        stop: ends it when asked, as an interrupt by the user does.
        begun: called with the process's number once it has started.
    """
    if not cwd.is_dir():
        return Ending(failure=f"the working folder {cwd} is missing")
    begin = time.monotonic()
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = log.open("wb", buffering=0)
    except OSError as error:
        return Ending(failure=f"cannot write the log {log}: {error.strerror}")
    variables = {_bytes(name): _bytes(value) for name, value in env.items()}
    wanted = request([_bytes(one) for one in argv], variables, _bytes(str(cwd)))
    ours, theirs = socket.socketpair()
    with file, ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", PROGRAM],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                bufsize=0,
            )
        running = _Child(process, ours, file, begin, watch, grace_s, stop or Stop())
        if number := running.start(wanted):
            if number == errno.ENOENT:
                return Ending(exit_code=127, failure=f"{argv[0]}: command not found ({PYTHON_HINT})")
            return Ending(exit_code=126, failure=f"{argv[0]}: cannot be run: {os.strerror(number)} ({PYTHON_HINT})")
        if begun is not None:
            begun(running.pid)
        return running.follow(timeout_s)


def _bytes(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


class _Child:
    """A started program, and the warden above it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        log: IO[bytes],
        begin: float,
        watch: Watcher,
        grace_s: Sequence[float],
        stop: Stop,
    ) -> None:
        assert process.stdout is not None
        self.warden, self.channel, self.log, self.begin = process, channel, log, begin
        self.watch, self.grace_s, self.stop = watch, grace_s, stop
        self.pipe = process.stdout
        os.set_blocking(self.pipe.fileno(), False)
        self.pid, self.lower = 0, 0
        self.told = b""
        self.tail = self.before = b""
        self.over, self.alone, self.died, self.heard = False, False, False, begin
        self.status: int | None = None
        self.peak_kb = 0
        self.failure = ""

    def start(self, wanted: bytes) -> int:
        """Let the warden start the program; return the number of the error if it cannot, else 0."""
        try:
            with suppress(BrokenPipeError):
                self.channel.sendall(wanted)
            answer = self._line()
        except BaseException:
            self._dismiss()
            raise
        if answer[:1] == b"P":
            self.pid, self.lower = map(int, answer[1:].split())
            self.channel.setblocking(False)
            return 0
        self._dismiss()
        return int(answer[1:]) if answer else errno.EAGAIN

    def _line(self) -> bytes:
        while b"\n" not in self.told:
            chunk = self.channel.recv(256)
            if not chunk:
                return b""
            self.told += chunk
        line, _, self.told = self.told.partition(b"\n")
        return line

    def _dismiss(self) -> None:
        self.pipe.close()
        with suppress(OSError):  # one that is gone; or the kernel does not let something go: no reason to wait for ever
            self.channel.shutdown(socket.SHUT_WR)
            self.channel.settimeout(WARDEN_S)
            while self.channel.recv(256):
                pass
        self.warden.kill()
        self.warden.wait()

    def follow(self, timeout_s: float | None) -> Ending:
        interrupted, timed_out = False, False
        try:
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
        finally:
            self._dismiss()
        code = os.waitstatus_to_exitcode(self.status) if self.status is not None else None
        return Ending(
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else 0,
            seconds=seconds,
            peak_memory_mb=round(self.peak_kb / 1024, 1),
            tail=last_lines(self.before or self.tail),
            timed_out=timed_out,
            interrupted=interrupted,
            failure=self.failure,
        )

    def wait(self, deadline: float | None) -> bool:
        """Copy output until the program has ended (True), or the deadline, a failure or the stop came (False)."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            selector.register(self.channel, selectors.EVENT_READ)
            while not self.ended():
                left = None if deadline is None else deadline - time.monotonic()
                if self.died and time.monotonic() - self.heard > SILENT_S:
                    self.failure = STUCK
                if self.failure or self.stop.is_set() or (left is not None and left <= 0):
                    return False
                for key, _ in selector.select(STOP_LOOK_S if left is None else min(left, STOP_LOOK_S)):
                    if key.fileobj is self.pipe and not self.copy():
                        selector.unregister(self.pipe)
        return True

    def ended(self) -> bool:
        if not self.over:
            try:
                line = self._line()
            except BlockingIOError:
                return False
            except ConnectionResetError:
                line = b""
            self.over = True
            if line:
                status, peak_kb, alone = map(int, line[1:].split())
                self.status, self.peak_kb, self.alone = status, peak_kb, bool(alone)
            else:
                self.failure = self.failure or LOST
        return self.over

    def copy(self) -> bool:
        try:
            data = os.read(self.pipe.fileno(), CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.tail, self.heard = (self.tail + data)[-TAIL_BYTES:], time.monotonic()
        self.died = self.died or DIED.search(self.tail) is not None
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
        """Copy the bytes that stand in the pipe by now, and no more: the holder of its other end may write for ever."""
        size = fcntl.fcntl(self.pipe, fcntl.F_GETPIPE_SZ)
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            for _ in range(0, size, CHUNK):
                if not selector.select(0) or not self.copy():
                    return

    def end(self) -> bool:
        """End whatever is left of the program, in three steps; return whether the user interrupted again."""
        interrupted = False
        asked = int(self.stop.is_set())  # each time more it is asked for takes the next step at once
        for step, (number, grace) in enumerate(zip(ENDINGS, self.grace_s, strict=True)):
            try:
                if self.ended() and not self.members():
                    break
                if number is signal.SIGTERM:
                    self.drain()
                    self.before = self.tail  # Paddle answers with a report of the signal, longer than any tail
                self.signal(number)
                # Nothing is left, the time is over, or one more stop came.
                deadline, pause, leaderless = time.monotonic() + grace, 0.005, False
                while time.monotonic() < deadline and not (self.ended() and not self.members()):
                    if self.stop.times > asked + step:
                        break
                    if self.ended() and not leaderless:
                        # The program itself has had its time; what it left behind has nothing to save.
                        leaderless, deadline = True, min(deadline, time.monotonic() + STRAGGLER_S)
                    self.drain()
                    time.sleep(pause)
                    pause = min(pause * 2, 0.1)
            except KeyboardInterrupt:
                interrupted = True
        return interrupted

    def signal(self, number: signal.Signals) -> None:
        if not self.ended():
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
        for pid in self.members():
            # Outside the group only; the group has it already.
            with suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != self.pid or self.ended():
                    os.kill(pid, number)

    def members(self) -> list[int]:
        return [] if self.alone else [pid for pid in descendants(self.lower) if pid != self.pid]


def last_lines(data: bytes, count: int = TAIL_LINES) -> tuple[str, ...]:
    """Return the last lines of output that may hold anything: other encodings, progress bars, escapes."""
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in text.split("\n")]
    return tuple(line for line in lines if line)[-count:]


def log_end(log: Path, size: int) -> bytes:
    """Return the last ``size`` bytes of ``log``.

    Who writes it can write in its folder: a pipe in the log's place would be waited for, and a link leads elsewhere.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    handle = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{log}: is no regular file")
        file.seek(max(0, found.st_size - size))
        return file.read(size)
