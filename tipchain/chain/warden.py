"""The parent of a program: whatever the program starts stays below it, and ends with it.

This file is run as a program of its own (``python -I warden.py``), once for each call. psutil knows which processes are
below another; what it cannot do is done here: keep a process that left its session, cleared its environment or lost its
parent below the one that must end it, and end it when tipchain itself is killed. Linux gives orphans to the nearest ancestor
that asked for them (``PR_SET_CHILD_SUBREAPER``, prctl(2), since Linux 3.4). Two wardens stand one above the other: what is
left of a program that kills its own parent is killed by the upper one.

Its standard input is a socket to the caller:

- The caller sends what to run. The warden answers ``E<errno>`` if that cannot be started, else ``P<pid> <its own>``, and
  ``S<status> <peak KiB> <1: nothing is left>`` when the program has ended.
- When the caller closes the socket, or is killed, the warden kills everything below it, and ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

PROGRAM = __file__
SWEEP_S = 5.0
"""Seconds in which the remaining processes are killed again and again; only those that the kernel itself holds survive that."""
_SET_SUBREAPER = 36  # prctl(2)
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LENGTH = 8
_CHANNEL, _OUTPUT = 0, 1


def request(argv: list[bytes], environment: dict[bytes, bytes], cwd: bytes) -> bytes:
    """Return the message of a caller.

    Raises:
        ValueError: a text has a zero byte in it.
    """
    parts = [cwd, b"%d" % len(argv), *argv]
    parts += [one for pair in environment.items() for one in pair]
    if any(b"\0" in part for part in parts):
        raise ValueError("embedded null byte")
    data = b"\0".join(parts)
    return len(data).to_bytes(_LENGTH, "big") + data


def main() -> None:
    """Run the caller's command below two wardens."""
    parts = _read(int.from_bytes(_read(_LENGTH), "big")).split(b"\0")
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    lower = os.fork()
    ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1, 0, 0, 0)  # a fork does not hand it on
    if lower == 0:
        # Start the program, tell how it ended, and kill what is left once the caller lets go.
        cwd, count = parts[0], int(parts[1])
        argv, pairs = parts[2 : 2 + count], parts[2 + count :]
        woken = _wakes()
        pid = _start(argv, dict(zip(pairs[::2], pairs[1::2], strict=True)), cwd)
        _close_output()
        while select.select([_CHANNEL, woken], [], [])[0] == [woken]:
            os.read(woken, 4096)
            for child, status, peak_kb in _reaped():
                if child == pid:
                    _tell(b"S%d %d %d\n" % (status, peak_kb, not _has_children()))
        _sweep()
    else:
        _watch_over(lower)
    os._exit(0)


def _read(length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = os.read(_CHANNEL, length - len(data))
        if not chunk:  # the caller has ended already
            os._exit(0)
        data += chunk
    return data


def _start(argv: list[bytes], environment: dict[bytes, bytes], cwd: bytes) -> int:
    errors, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            for number in (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.chdir(cwd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), _CHANNEL)
            os.dup2(_OUTPUT, 2)
            os.execvpe(argv[0], argv, environment)  # noqa: S606 - the program that the caller names
        except OSError as error:
            os.write(told, b"%d" % (error.errno or 0))
        os._exit(127)
    os.close(told)
    trouble = os.read(errors, 16)
    os.close(errors)
    if trouble:
        _tell(b"E%s\n" % trouble)
        os._exit(0)
    _tell(b"P%d %d\n" % (pid, os.getpid()))
    return pid


def _watch_over(lower: int) -> None:
    """Wait for the lower warden: let it go on where somebody stopped it, kill its remaining processes where it was killed."""
    woken = _wakes()
    _close_output()
    while True:
        ready = select.select([_CHANNEL, woken], [], [])[0]
        pid, status = os.waitpid(lower, os.WNOHANG | os.WUNTRACED)
        if pid and not os.WIFSTOPPED(status):
            break
        if pid:
            os.kill(lower, signal.SIGCONT)
        if woken in ready:
            os.read(woken, 4096)
        else:
            # Give the lower warden its time to end, as the caller has let go.
            end = time.monotonic() + 2 * SWEEP_S
            while time.monotonic() < end and os.waitpid(lower, os.WNOHANG)[0] == 0:
                os.kill(lower, signal.SIGCONT)
                time.sleep(0.001)
            break
    _sweep()


def _wakes() -> int:
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return woken


def _close_output() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, _OUTPUT)
    os.close(nowhere)


def _tell(text: bytes) -> None:
    with suppress(OSError):  # the caller was killed
        os.write(_CHANNEL, text)


def _reaped() -> list[tuple[int, int, int]]:
    found = []
    with suppress(ChildProcessError):
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                break
            found.append((pid, status, usage.ru_maxrss))
    return found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _sweep() -> None:
    end = time.monotonic() + SWEEP_S
    while time.monotonic() < end:
        _reaped()
        if not _has_children():
            return
        for pid in descendants(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def descendants(pid: int) -> list[int]:
    """Return the living processes that ``pid`` has started, and those that they have."""
    import psutil  # few programs leave anything behind

    found = []
    with suppress(psutil.Error):  # it has ended
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child.pid)
    return found


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit("the warden needs Linux")
    main()
