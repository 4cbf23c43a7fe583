"""Items as processes of this machine: as many at once as there are slots, memory and GPUs for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from tipchain.chain.execute import search_path
from tipchain.chain.gpus import Gpus, Leases, lease_folder
from tipchain.chain.process import GRACE_S, Stop
from tipchain.machine import usable_cores
from tipchain.nightly import executor
from tipchain.nightly.executor import Ended, Work, run_attempt
from tipchain.nightly.items import Item
from tipchain.nightly.origin import memory_mb, resident_mb, usable_gpus

# CPU slots of this machine, which all nights of a user share.
#
# A slot is a lease, as a GPU is: one for each core that may be used here. The system gives it back however its holder
# ends. An item gets all its slots or none, so nights never wait for one another in a ring. Who waits has the turn, a
# lease of its own: no night takes slots before it, so that small items do not keep a large one waiting for ever.


TURN = "turn"


class CpuSlots:
    """The slots that one night takes part in.

    Args:
        jobs: slots of the night; the cores if None. More than the cores are shared by the nights that ask for as many.
        folder: of the leases; this user's if None.

    Attributes:
        count: how many the night may have at once.
    """

    def __init__(self, jobs: int | None = None, folder: Path | None = None) -> None:
        cores = usable_cores()
        self.count = jobs or len(cores)
        beyond = range(max(self.count - len(cores), 0))
        self._names = (*(f"core-{number}" for number in cores), *(f"beyond-{number}" for number in beyond))
        self._leases = Leases(folder or lease_folder() / "cpus")
        self._taken = 0
        self._has_turn = self._waits = False

    def full(self, wanted: int) -> str:
        """Return why the night itself has no room for an item that wants so many slots; "" if it has."""
        own = min(wanted, self.count)
        return f"{own} of {self.count} CPU slots" if self._taken + own > self.count else ""

    def take(self, wanted: int, holder: str) -> tuple[tuple[str, ...], str]:
        """Take so many slots for an item that the night has room for, or none; of one that wants more than all, all.

        Returns:
            Their names, and "" or what has to be waited for.
        """
        count = min(wanted, len(self._names))
        if not self._has_turn and self._leases.take((TURN,), holder):
            process = self._leases.holder(TURN)
            return (), f"{_slots(count)}: an item of another night is before it ({process})"
        self._has_turn = True
        taken: list[str] = []
        others: dict[str, None] = {}
        for name in self._names:
            if len(taken) == count:
                break
            if self._leases.take((name,), holder):
                others[self._leases.holder(name)] = None
            else:
                taken.append(name)
        if len(taken) < count:
            self._leases.give_back(taken)
            self._waits = True
            return (), f"{_slots(count)}, held by {', '.join(others)}"
        self.pass_turn()
        self._taken += min(count, self.count)
        return tuple(taken), ""

    def give_back(self, names: tuple[str, ...]) -> None:
        """Give slots back that were taken."""
        self._leases.give_back(names)
        self._taken -= min(len(names), self.count)

    def rest(self) -> None:
        """Pass the turn on unless an item has asked for slots since the last rest and did not get them."""
        if not self._waits:
            self.pass_turn()
        self._waits = False

    def pass_turn(self) -> None:
        """Let other nights take slots."""
        if self._has_turn:
            self._has_turn = False
            self._leases.give_back((TURN,))


def _slots(count: int) -> str:
    return f"{count} CPU slot{'s' if count > 1 else ''}"


@dataclass(slots=True)
class _Running:
    """An item that runs."""

    work: Work
    begin: float
    cpus: tuple[str, ...]
    gpus: tuple[str, ...]
    port: int
    line: str = ""
    pid: int = 0


class LocalExecutor:
    """Runs items as processes of this machine.

    Args:
        jobs: slots; the cores if None.
        cpus: the machine's slots, shared with other nights; this user's if None.
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
        cpus: CpuSlots | None = None,
        leases: Leases | None = None,
        ports: executor.Ports | None = None,
        gpus: Gpus | None = None,
        memory: Callable[[], tuple[float, float]] = memory_mb,
        grace_s: Sequence[float] = GRACE_S,
    ) -> None:
        self.cpus, self.trouble = cpus or CpuSlots(jobs), ""
        self.leases, self.ports = leases or Leases(), ports or executor.Ports()
        self.memory, self.grace_s = memory, grace_s
        self._gpus = gpus
        self._running: dict[str, _Running] = {}
        self._stop = Stop()
        # A SimpleQueue may be filled by a signal's handler while the same thread takes from it.
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._pool = ThreadPoolExecutor(self.slots, thread_name_prefix="item")

    @property
    def slots(self) -> int:
        """How many items of one CPU can run at once, if no other night runs any."""
        return self.cpus.count

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
        """Start an item if there is room for it now; return "" or what has to be waited for."""
        needs = work.item.needs
        if reason := self.cpus.full(needs.cpus):
            return reason
        if needs.memory_mb and self._running and (reason := self._no_memory(needs.memory_mb)):
            return reason
        gpus, reason = self._take_gpus(needs.gpus, work.item.id)
        if reason:
            return reason
        cpus, reason = self.cpus.take(needs.cpus, work.item.id)
        if reason:
            self.leases.give_back(gpus)
            return reason
        port = 0
        try:
            port = self.ports.take(work.item.id)
            work.make_folder()
            tmp = executor.make_tmp(work.folder)
        except OSError:
            self.cpus.give_back(cpus)
            self.leases.give_back(gpus)
            if port:
                self.ports.give_back(port)
            raise
        one = _Running(work, time.monotonic(), cpus, gpus, port)
        self._running[work.item.id] = one
        self._pool.submit(self._run, one, tmp)
        return ""

    def _no_memory(self, need: float) -> str:
        """Return what an item that needs so many MiB waits for; what runs will still take what it was promised."""
        _, free = self.memory()
        if not free:  # not known
            return ""
        promised = [(one.pid, float(one.work.item.needs.memory_mb)) for one in self._running.values()]
        if need <= free - sum(mb for _, mb in promised):
            return ""
        taken = resident_mb([pid for pid, _ in promised if pid])
        room = free - sum(max(mb - taken.get(pid, 0.0), 0.0) for pid, mb in promised)
        return "" if need <= room else f"{need:.0f} MiB of memory, {max(room, 0):.0f} are free"

    def _take_gpus(self, count: int, holder: str) -> tuple[tuple[str, ...], str]:
        """Lease so many GPUs, or none; return them, and "" or what has to be waited for."""
        taken: list[str] = []
        reason = ""
        for gpu in self.gpus.numbers if count else ():
            if len(taken) == count:
                break
            said = self.leases.take((gpu,), holder)
            if said:
                reason = said
            else:
                taken.append(gpu)
        if len(taken) < count:
            self.leases.give_back(taken)
            return (), reason or f"{count} GPUs"
        return tuple(taken), ""

    def _run(self, one: _Running, tmp: Path) -> None:
        """Run an item to its end, in a thread of the pool."""
        work = one.work
        ended = run_attempt(
            work,
            lambda: executor.environment(work.item, search_path(work.root), tmp=tmp, port=one.port, gpus=one.gpus),
            watch=lambda line: setattr(one, "line", line),
            begun=lambda pid: setattr(one, "pid", pid),
            grace_s=self.grace_s,
            stop=self._stop,
        )
        executor.remove_tmp(work.folder)
        self._ended.put(ended)

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return what has ended, each once; wait up to ``timeout_s`` for the first."""
        self.cpus.rest()
        found: list[Ended] = []
        with suppress(Empty):
            found.append(self._ended.get(timeout=timeout_s) if timeout_s > 0 else self._ended.get_nowait())
            while True:
                found.append(self._ended.get_nowait())
        for ended in found:
            one = self._running.pop(ended.id)
            self.cpus.give_back(one.cpus)
            self.leases.give_back(one.gpus)
            self.ports.give_back(one.port)
        return found

    def running(self) -> Mapping[str, tuple[float, str]]:
        """Return seconds so far and the last line of output of each item that runs, by id."""
        now = time.monotonic()
        return {name: (now - one.begin, one.line) for name, one in self._running.items()}

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; asked again, more firmly."""
        self._stop.ask()

    def close(self) -> None:
        """End what still runs and give everything back."""
        if self._running:
            self._stop.ask()
        self.cpus.pass_turn()
        self._pool.shutdown(wait=True)
        self.wait(0)
