"""Executors of items, the resources of each item, and the course of one attempt: as processes of this machine."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from tipchain.chain import gpus as machine_gpus
from tipchain.chain.execute import LOG_COLUMNS, search_path
from tipchain.chain.gpus import VARIABLE as LEASED
from tipchain.chain.gpus import Gpus, Leases, lease_folder
from tipchain.chain.process import GRACE_S, Ending, Stop, call, last_lines, log_end
from tipchain.core import language
from tipchain.core.files import DATA_VARIABLE, MODE_VARIABLE, RUN_VARIABLE, local_time
from tipchain.core.json_text import taken
from tipchain.core.language import clean, many
from tipchain.core.machine import usable_cores
from tipchain.nightly.items import FOLDER, LOG, PYTHON, REPORT, Item, filled
from tipchain.nightly.nights import AttemptRecord
from tipchain.nightly.origin import VISIBLE, memory_mb, resident_mb, usable_gpus

# What an item has for itself: ports, devices, environment.
#
# An item inherits the environment, without what tipchain tells the commands of a run that the night itself may be part
# of, and its own variables on top. ``HOME`` and caches of byte code stay as they are: Python replaces such a file whole,
# and a cache of its own would let every item compile its frameworks anew. Leases of GPUs that a chain takes stand in its
# ``TMPDIR``, so they hold within the item; between items the night's leases hold.


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
            with suppress(OSError), socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind(("", first))
                self._held[first] = name
                return first
            self._leases.give_back((name,))
        raise OSError(98, "all ports are taken", f"{FIRST_PORT} to {FIRST_PORT + BLOCKS * PORTS - 1}")

    def give_back(self, first: int) -> None:
        """Give a block back."""
        self._leases.give_back((self._held.pop(first),))


TAIL_LINES, TAIL_BYTES = 20, 16 * 1024
"""How much of a log's end goes where the log does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An item about to run.

    Attributes:
        item: the item.
        attempt: from 1.
        folder: the attempt's folder, absolute; `Work.make_folder` makes it, once.
        root: the project's folder.
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

    def tail(self, count: int = TAIL_LINES) -> list[str]:
        """Return the last lines of its output without control characters; none if it cannot be read."""
        with suppress(OSError):
            return [clean(line) for line in last_lines(log_end(self.log, TAIL_BYTES), count)]
        return []

    def make_folder(self) -> None:
        """Make the attempt's folder, when there is room for the item and not before.

        Raises:
            FileExistsError: an attempt of that number was made before: nothing of it is taken for this one's.
            OSError: the disk is full or the folder above cannot be written.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir()

    def argv(self, python: str = sys.executable) -> tuple[str, ...]:
        """Return the words of the call, with the interpreter that runs tipchain in it."""
        paths = {REPORT: str(self.report), LOG: str(self.log), FOLDER: str(self.folder), PYTHON: python}
        return filled(self.item.argv, paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(AttemptRecord):
    """How an item's process ended. The report and the log are in the attempt's folder by then.

    Attributes:
        timed_out: whether it was ended for its time, with its whole process group.
        interrupted: whether it was ended because the night was.
        failure: why it could not be started; "" otherwise.
    """

    timed_out: bool = False
    interrupted: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningItem:
    """An item that runs: seconds so far, and the last line of its output."""

    id: str
    seconds: float
    line: str = ""


# One attempt at an item, on the machine it runs on: its process from the start to what it left.

NOT_STARTED = (126, 127)


def run_attempt(
    work: Work,
    environment: Callable[[Path], Mapping[str, str]],
    *,
    watch: Callable[[str], None],
    stop: Stop,
    begun: Callable[[int], None] | None = None,
    grace_s: Sequence[float] = GRACE_S,
) -> Ended:
    """Run an item's process to its end; nothing that it started is left, and nothing is raised.

    Args:
        work: what runs, with paths of this machine; its folder is made.
        environment: returns the process's whole environment, given its folder of temporary files: one with a short name,
            for sockets in it may have 107 characters (unix(7)).
        watch: called with the last line of output, often.
        stop: ends it when asked.
        begun: called with the process's number once it has started.
        grace_s: seconds that it is left after each of the three signals that end it.
    """
    started = local_time("milliseconds")
    try:
        with tempfile.TemporaryDirectory(prefix="tc-", ignore_cleanup_errors=True) as tmp:
            ending = call(
                work.argv(),
                cwd=work.root / work.item.cwd,
                env=environment(Path(tmp)),
                log=work.log,
                timeout_s=work.item.timeout_s,
                watch=watch,
                grace_s=grace_s,
                stop=stop,
                begun=begun,
            )
    except Exception as error:  # noqa: BLE001 - what goes wrong with one item ends no night
        ending = Ending(failure=f"{type(error).__name__}: {error}")
    failure = ending.failure
    if ending.exit_code in NOT_STARTED and failure:  # without what is said to the users of chains
        failure = failure.partition(";")[0].replace("interpreter", "program", 1)
    return taken(
        Ended,
        ending,
        id=work.item.id,
        attempt=work.attempt,
        seconds=round(ending.seconds, 3),
        started=started,
        failure=failure,
        machine=socket.gethostname(),
    )


@dataclass(slots=True)
class _Running:
    work: Work
    begin: float
    held: ExitStack
    line: str = ""
    pid: int = 0


class LocalExecutor:
    """Runs items as processes of this machine.

    A slot is a lease, as a GPU is: one for each core that may be used here. The system gives it back however its holder
    ends. An item gets all its slots or none, so nights never wait for one another in a ring.

    Args:
        jobs: slots of the night; the cores if None. More than the cores are shared by the nights that ask for as many.
        cpus: leases of slots, shared with other nights; this user's if None.
        leases: of GPUs; this user's on the machine if None.
        ports: where ports come from.
        gpus: which GPUs there are; looked up when first needed if None.
        memory: returns the MiB of all memory and of what is free.
        grace_s: seconds that an item is left after each of the three signals that end it.
    """

    name = "local"

    def __init__(
        self,
        jobs: int | None = None,
        *,
        cpus: Leases | None = None,
        leases: Leases | None = None,
        ports: Ports | None = None,
        gpus: Gpus | None = None,
        memory: Callable[[], tuple[float, float]] = memory_mb,
        grace_s: Sequence[float] = GRACE_S,
    ) -> None:
        cores = usable_cores()
        self.slots, self.trouble = jobs or len(cores), ""
        self._slot_names = [f"core-{number}" for number in cores]
        self._slot_names += [f"beyond-{number}" for number in range(self.slots - len(cores))]
        self.cpus = cpus or Leases(lease_folder() / "cpus")
        self.leases, self.ports = leases or Leases(), ports or Ports()
        self.memory, self.grace_s = memory, grace_s
        self._gpus = gpus
        self._running: dict[str, _Running] = {}
        self._stop = Stop()
        # A SimpleQueue may be filled by a signal's handler while the same thread takes from it.
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="item")

    @property
    def gpus(self) -> Gpus:
        """The GPUs that items may have."""
        self._gpus = self._gpus or usable_gpus()
        return self._gpus

    def impossible(self, item: Item) -> str:
        """Return why an item can never run here; "" if it can."""
        if not item.needs.gpus:
            return ""
        if self.gpus.trouble:
            return self.gpus.trouble
        count = len(self.gpus.numbers)
        return f"needs {item.needs.gpus} GPUs, {count} may be used here" if item.needs.gpus > count else ""

    def start(self, work: Work) -> str:
        """Start an item if there is room for it now; return "" or the reason to wait."""
        needs, name = work.item.needs, work.item.id
        cpus, taken = min(needs.cpus, self.slots), sum(one.work.item.needs.cpus for one in self._running.values())
        if taken + cpus > self.slots and self._running:
            return f"{cpus} of {self.slots} CPU slots"
        if needs.memory_mb and self._running:
            # What runs will still take what it was promised.
            _, free = self.memory()
            promised = [(one.pid, float(one.work.item.needs.memory_mb)) for one in self._running.values()]
            if needs.memory_mb > free - sum(mb for _, mb in promised):
                taken_mb = resident_mb([pid for pid, _ in promised if pid])
                free -= sum(max(mb - taken_mb.get(pid, 0.0), 0.0) for pid, mb in promised)
                if needs.memory_mb > free:
                    return f"{needs.memory_mb} MiB of memory, {max(free, 0):.0f} are free"
        with ExitStack() as held:
            leased = []
            for leases, names, count, noun in (
                (self.leases, self.gpus.numbers if needs.gpus else (), needs.gpus, "GPU"),
                (self.cpus, self._slot_names, min(needs.cpus, len(self._slot_names)), "CPU slot"),
            ):
                had, others = leases.take_some(names, count, name)
                if len(had) < count:
                    return f"{many(count, noun)}, held by {', '.join(dict.fromkeys(others.values()))}"
                held.callback(leases.give_back, had)
                leased.append(had)
            port = self.ports.take(name)
            held.callback(self.ports.give_back, port)
            work.make_folder()
            one = _Running(work, time.monotonic(), held.pop_all())
        self._running[name] = one

        def run() -> None:
            ended = run_attempt(
                work,
                lambda tmp: environment(work.item, search_path(work.root), tmp=tmp, port=port, gpus=leased[0]),
                watch=lambda line: setattr(one, "line", line),
                begun=lambda pid: setattr(one, "pid", pid),
                grace_s=self.grace_s,
                stop=self._stop,
            )
            self._ended.put(ended)

        self._pool.submit(run)
        return ""

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return the ended items, each once; wait up to ``timeout_s`` for the first."""
        found: list[Ended] = []
        with suppress(Empty):
            found.append(self._ended.get(timeout=timeout_s) if timeout_s > 0 else self._ended.get_nowait())
            while True:
                found.append(self._ended.get_nowait())
        for ended in found:
            self._running.pop(ended.id).held.close()
        return found

    def running(self) -> Iterator[RunningItem]:
        """Yield the running items."""
        now = time.monotonic()
        for name, one in self._running.items():
            yield RunningItem(id=name, seconds=now - one.begin, line=one.line)

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; asked again, more firmly."""
        self._stop.ask()

    def close(self) -> None:
        """End all running items and give everything back."""
        if self._running:
            self._stop.ask()
        self._pool.shutdown(wait=True)
        self.wait(0)
