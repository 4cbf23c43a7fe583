"""Who runs items, what each has for itself, and how one attempt goes."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tipchain import language
from tipchain.chain import gpus as machine_gpus
from tipchain.chain.execute import LOG_COLUMNS
from tipchain.chain.gpus import VARIABLE as LEASED
from tipchain.chain.gpus import Leases, lease_folder
from tipchain.chain.process import GRACE_S, Ending, Stop, call
from tipchain.nightly.items import FOLDER, LOG, PYTHON, REPORT, Item
from tipchain.nightly.origin import VISIBLE
from tipchain.runs import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE

# What an item has for itself: temporary files, ports, devices, environment.
#
# An item inherits the environment, without what tipchain tells the commands of a run that the night itself may be part
# of, and its own variables on top. ``HOME`` and caches of byte code stay as they are: Python replaces such a file whole,
# and a cache of its own would let every item compile its frameworks anew.
#
# ``TMPDIR`` is a folder in the attempt's own, under a short name: sockets in it may have 107 characters (unix(7)). Leases
# of GPUs that a chain takes stand below it, too, so they hold within the item; between items the night's leases hold.


TMP = "tmp"
LONGEST_TMP = 60
"""Longest path of a folder of temporary files that leaves room for the names of sockets."""
FIRST_PORT, PORTS, BLOCKS = 20000, 32, 380
"""Ports below those that systems give to outgoing connections (32768 by default), in blocks, one for each item."""
DROPPED = (RUN_VARIABLE, MODE_VARIABLE, DATA_VARIABLE, VISIBLE)


def environment(
    item: Item, path: str, *, tmp: Path, port: int, gpus: Sequence[str] = (), inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the whole environment of an item's process.

    Args:
        item: the item.
        path: where programs are looked for, of the project's folder on this machine.
        tmp: its folder of temporary files.
        port: the first of `PORTS` ports.
        gpus: what it may use, as CUDA names them; none hides all.
        inherited: what it has besides; this process's.
    """
    kept = {name: value for name, value in inherited.items() if name not in DROPPED}
    # paddle.distributed.launch takes an empty setting for one device without a name: only what is there is hidden.
    seen = {VISIBLE: ",".join(gpus)} if gpus or any(machine_gpus.DEVICES.glob("nvidia[0-9]*")) else {}
    own = {
        "TMPDIR": str(tmp),
        "MASTER_PORT": str(port),
        "PADDLE_PORT": str(port + 1),
        "PORT_RANGE": f"{port + 2}:{port + PORTS - 1}",  # paddle.distributed.launch takes its ports from there
        "COLUMNS": LOG_COLUMNS,
        language.VARIABLE: "en",  # a night's records are the same whoever reads them
        "PATH": path,
    }
    # A chain's file counts its GPUs from 0: among those of the item.
    return {**kept, **own, **item.env, **seen, LEASED: ",".join(gpus)}


def make_tmp(folder: Path) -> Path:
    """Make an attempt's folder of temporary files; return the name under which it is used, a short one.

    Raises:
        OSError: it cannot be made.
    """
    path = folder / TMP
    path.mkdir()
    if len(str(path)) <= LONGEST_TMP:
        return path
    link = _link(folder)
    with suppress(FileNotFoundError):
        link.unlink()
    link.symlink_to(path)
    return link


def remove_tmp(folder: Path) -> None:
    """Remove an attempt's temporary files, and the short name they had; what cannot be removed stays."""
    with suppress(OSError):
        _link(folder).unlink()
    path = folder / TMP
    try:
        path.rmdir()
    except OSError:
        shutil.rmtree(path, ignore_errors=True)


def _link(folder: Path) -> Path:
    digest = hashlib.sha256(f"{os.getuid()} {folder}".encode()).hexdigest()[:10]
    return Path(tempfile.gettempdir()) / f"tc-{digest}"


class Ports:
    """Blocks of ports, held by leases as GPUs are: no two items of one user's nights on a machine have the same."""

    def __init__(self, folder: Path | None = None) -> None:
        self._leases = Leases((folder or lease_folder()) / "ports")
        self._next = os.getpid() % BLOCKS
        self._held: dict[int, str] = {}

    def take(self, holder: str) -> int:
        """Return the first port of a block that is free.

        Raises:
            OSError: all are taken.
        """
        for _ in range(BLOCKS):
            number, self._next = self._next, (self._next + 1) % BLOCKS
            first, name = FIRST_PORT + number * PORTS, f"ports-{number}"
            if self._leases.take((name,), holder):
                continue
            if _is_free(first):
                self._held[first] = name
                return first
            self._leases.give_back((name,))
        raise OSError(98, "all ports are taken", f"{FIRST_PORT} to {FIRST_PORT + BLOCKS * PORTS - 1}")

    def give_back(self, first: int) -> None:
        """Give a block back."""
        self._leases.give_back((self._held.pop(first),))


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An item about to run.

    Attributes:
        item: the item.
        attempt: from 1.
        folder: the attempt's folder on the coordinator's machine, absolute; `Work.make_folder` makes it, once.
        root: the project's folder there.
    """

    item: Item
    attempt: int
    folder: Path
    root: Path

    @property
    def report(self) -> Path:
        """Where its JSON report goes."""
        return self.folder / "report.json"

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / "output.log"

    @property
    def wants_report(self) -> bool:
        """Whether its call names a JSON report, which must then be there when it has ended."""
        return any(REPORT in word for word in self.item.argv)

    def make_folder(self) -> None:
        """Make the attempt's folder, when there is room for the item and not before.

        Raises:
            FileExistsError: an attempt of that number was made before: nothing of it is taken for this one's.
            OSError: the disk is full or the folder above cannot be written.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir()

    def argv(self, folder: Path | None = None, python: str = "") -> tuple[str, ...]:
        """Return the words of the call, for an attempt's ``folder`` and ``python`` on the machine that runs it."""
        folder = folder or self.folder
        paths = {
            REPORT: str(folder / self.report.name),
            LOG: str(folder / self.log.name),
            FOLDER: str(folder),
            PYTHON: python or sys.executable,
        }
        return tuple(_filled(word, paths) for word in self.item.argv)


def _filled(word: str, paths: Mapping[str, str]) -> str:
    for name, path in paths.items():
        word = word.replace(name, path)
    return word


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How an item's process ended. The report and the log are in the attempt's folder by then.

    Attributes:
        id: the item's id.
        attempt: which.
        exit_code: None where a signal ended it or it did not start.
        signal: number of the signal that ended it, 0 for none.
        seconds: by a monotonic clock, without waiting.
        started: ISO 8601 with offset.
        peak_memory_mb: MiB, 0 where it is not known.
        timed_out: whether it was ended for its time, with its whole process group.
        interrupted: whether it was ended because the night was.
        lost: the machine it ran on is gone, so that it may be run again; "" or what is known.
        failure: why it could not be started; "" otherwise.
        machine: the host's name.
        artifacts: SHA-256 of what the item left (`tipchain.nightly.judge`), where that is not on this machine; None: it is.
    """

    id: str
    attempt: int
    exit_code: int | None = None
    signal: int = 0
    seconds: float = 0.0
    started: str = ""
    peak_memory_mb: float = 0.0
    timed_out: bool = False
    interrupted: bool = False
    lost: str = ""
    failure: str = ""
    machine: str = ""
    artifacts: Mapping[str, str] | None = None


class Executor(Protocol):
    """Runs work, several at once. All methods are called from one thread, `stop` by a signal's handler in it, too."""

    @property
    def name(self) -> str:
        """What records call it."""

    @property
    def slots(self) -> int:
        """How many items of one CPU can run at once."""

    @property
    def trouble(self) -> str:
        """Why nothing can run any more; "" while something can."""

    def impossible(self, item: Item) -> str:
        """Return why an item can never run here, as one that needs a GPU where there is none; "" if it can."""

    def start(self, work: Work) -> str:
        """Start an item if there is room for it now; return "" or what has to be waited for.

        What is started has its folder made (`Work.make_folder`); an OSError of that is raised.
        """

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return what has ended, each once; wait up to ``timeout_s`` for the first."""

    def running(self) -> Mapping[str, tuple[float, str]]:
        """Return seconds so far and the last line of output of each item that runs, by id."""

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; `wait` still returns how."""

    def close(self) -> None:
        """Give everything back."""


# One attempt at an item, on the machine it runs on: its process from the start to what it left.

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
