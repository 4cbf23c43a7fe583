"""One attempt at an item, on the machine it runs on: its process from the start to what it left."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from tipchain.chain.process import GRACE_S, Ending, Stop, call
from tipchain.nightly.executor import Ended, Work

NOT_STARTED = (126, 127)
CLOCK_JUMP_S = 1.0


def run_attempt(
    work: Work,
    environment: Callable[[], Mapping[str, str]],
    *,
    watch: Callable[[str], None],
    stop: Stop,
    python: str = "",
    begun: Callable[[int], None] | None = None,
    grace_s: Sequence[float] = GRACE_S,
) -> Ended:
    """Run an item's process to its end; nothing that it started is left, and nothing is raised.

    Args:
        work: what runs, with paths of this machine; its folder is made.
        environment: returns the process's whole environment.
        watch: called with the last line of output, often.
        stop: ends it when asked.
        python: the interpreter; this process's if empty.
        begun: called with the process's number once it has started.
        grace_s: seconds that it is left after each of the three signals that end it.
    """
    started = datetime.now().astimezone().isoformat(timespec="milliseconds")
    clock, since = _offset(), time.time()
    try:
        ending = call(
            work.argv(python=python),
            cwd=work.root / work.item.cwd,
            env=environment(),
            log=work.log,
            timeout_s=work.item.timeout_s,
            watch=watch,
            grace_s=grace_s,
            stop=stop,
            begun=begun,
        )
    except Exception as error:  # noqa: BLE001 - what goes wrong with one item ends no night
        ending = Ending(failure=f"{type(error).__name__}: {error}")
    jumped = abs(_offset() - clock) > CLOCK_JUMP_S
    return Ended(
        id=work.item.id,
        attempt=work.attempt,
        exit_code=ending.exit_code,
        signal=ending.signal,
        seconds=round(ending.seconds, 3),
        started=started,
        peak_memory_mb=ending.peak_memory_mb,
        timed_out=ending.timed_out,
        interrupted=ending.interrupted,
        failure=_failure(ending) or ("" if jumped else _stale(work, since)),
        machine=socket.gethostname(),
    )


def _offset() -> float:
    """Return how far the clock on the wall is from the one that only goes forward."""
    return time.time() - time.monotonic()


def _failure(ending: Ending) -> str:
    """Return why a program could not be started, without what is said to the users of chains."""
    if ending.exit_code in NOT_STARTED and ending.failure:
        return ending.failure.partition(";")[0].replace("interpreter", "program", 1)
    return ending.failure


def _stale(work: Work, since: float) -> str:
    """Return what is wrong with a report that is older than its attempt; the folder was new, so it was put there."""
    with suppress(OSError):
        found = work.report.lstat()
        if found.st_mtime < since - CLOCK_JUMP_S:
            written = datetime.fromtimestamp(found.st_mtime).astimezone().isoformat(timespec="seconds")
            return f"its report was written at {written}, before the item began"
    return ""
