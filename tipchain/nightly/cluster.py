"""The executor of nights on a Ray cluster: an item is a task of Ray, and the night's folder is shared."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tipchain import __version__
from tipchain.chain.execute import search_path
from tipchain.chain.process import Stop
from tipchain.core.language import many
from tipchain.errors import MissingFrameworkError, UsageError, class_and_line, first_line
from tipchain.nightly.executor import Ended, Ports, RunningItem, Work, environment, run_attempt
from tipchain.nightly.items import Item, Needs, kind_of_room

# On a node: one item, as a task of Ray.

LOOK_S = 0.5
OF_RAY = ("PYTHONBREAKPOINT", "SPT_NOENV")
"""Variables that Ray sets for its tasks, besides its own."""


def run_item(version: str, work: Work, night: Path) -> Ended:
    """Run an item to its end; its files are in the night's folder.

    Ray runs this again, on another node, where a node or a worker was lost: as the next attempt, in a folder of its own.

    Args:
        version: of the coordinator's tipchain.
        work: what runs, at its first attempt.
        night: the night's folder.

    Raises:
        RuntimeError: this node can run no item of the night.
        OSError: nothing can be written to the night's folder.
    """
    host = socket.gethostname()
    if version != __version__:
        raise RuntimeError(f"tipchain {__version__} is on {host}, {version} on the coordinator's machine")
    if not night.is_dir():
        raise RuntimeError(f"the night's folder is not to be seen on {host}, a node of the Ray cluster")
    while True:
        with suppress(FileExistsError):
            work.make_folder()
            break
        work = replace(work, attempt=work.attempt + 1, folder=work.folder.with_name(f"attempt-{work.attempt + 1}"))
    import ray

    # The node's variables without what Ray has put there: it hides accelerators that were not asked for, of all kinds.
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") and name not in OF_RAY and (value or "_VISIBLE_" not in name)
    }
    path, gpus = search_path(work.root, given=inherited.get("PATH")), [str(one) for one in ray.get_gpu_ids()]
    ports, stop = Ports(), Stop()
    port = ports.take(work.item.id)
    own = partial(environment, work.item, path=path, port=port, gpus=gpus, inherited=inherited)
    found: list[Ended] = []
    # In a thread: an interrupt by Ray, which comes to the main one, then ends the item in order.
    runner = threading.Thread(
        target=lambda: found.append(run_attempt(work, lambda tmp: own(tmp=tmp), watch=lambda _: None, stop=stop))
    )
    runner.start()
    try:
        while runner.is_alive():
            runner.join(LOOK_S)
    finally:
        stop.ask()
        runner.join()
        ports.give_back(port)
    (ended,) = found
    return ended


# On the coordinator's machine: what reaches the cluster, submits tasks, and hears how they end.

MIB = 1 << 20
RETRIES = 3
"""How often Ray runs an item again whose node or worker was lost."""
AHEAD = 4
"""Items of a kind that wait in Ray's queue, besides as many as the cluster has CPUs."""
NODES_S = 1.0
"""How often the cluster is asked for its nodes, and items for their output."""
PATIENCE_S = 60.0
"""How long a node is waited for that the cluster had and has no more."""
STOP_S = (30.0, 10.0)
"""How long items may take to end when asked to, and when told to; then nobody waits for them any more."""


Node = Mapping[str, float]
"""All resources of a living node of the cluster, as Ray names them."""


def fits(needs: Needs, node: Node) -> bool:
    """Tell whether an item can run on a node once nothing else does; of CPUs and memory it takes at most the node's."""
    return all(amount <= node.get(name, 0.0) for name, amount in {"GPU": needs.gpus, **needs.resources}.items())


@dataclass(slots=True)
class _Task:
    """An item that was handed to Ray.

    Attributes:
        work: the item, at its first attempt.
        ref: Ray's name of its result.
        begin: when its process began, by a monotonic clock; None while it waits for a node.
        line: the last line of its output.
        unfit: since when no living node can run it; 0 while one can.
    """

    work: Work
    ref: Any
    begin: float | None = None
    line: str = ""
    unfit: float = 0.0


class RayExecutor:
    """Runs items as tasks of a Ray cluster, which places them, and runs those of lost nodes again.

    Ray ends this process where the cluster's head is gone for a minute: the night can be resumed.

    Args:
        patience_s: how long a node is waited for that the cluster had.

    Raises:
        MissingFrameworkError: Ray is not installed.
        UsageError: it is no address of a cluster, or the cluster cannot be joined.
    """

    name = "ray"

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self.address = cluster_address()
        try:
            import ray
        except ImportError as error:
            raise MissingFrameworkError(
                f"--executor ray needs Ray, which is not installed here: {error}\n  pip install 'tipchain[ray]'"
            ) from None
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR", namespace="tipchain")
        except Exception as error:  # of another version, no node of it, a wrong token: it says so
            raise UsageError(f"the Ray cluster at {self.address}: {first_line(error)}") from error
        self.ray: Any = ray
        self.trouble, self.patience_s = "", patience_s
        self._run: Any = ray.remote(run_item)
        self._tasks: dict[str, _Task] = {}
        self._ended: list[Ended] = []
        self._known: list[Node] = []
        self._nodes: list[Node] = []
        self._due, self._nodeless = 0.0, 0.0
        self._stops = self._stops_sent = 0
        self._stop_until = 0.0
        self._look()

    @property
    def slots(self) -> int:
        """How many items of one CPU the cluster can run at once."""
        return max(int(sum(node["CPU"] for node in self._nodes)), 1)

    def impossible(self, item: Item) -> str:
        """Return why no node that the cluster ever had can run an item; "" if one can, or none was seen yet."""
        if not self._known or any(fits(item.needs, node) for node in self._known):
            return ""
        return lack(item.needs, self._known)

    def start(self, work: Work) -> str:
        """Hand an item to Ray if not enough wait there; return "" or the reason to wait."""
        kind, needs = kind_of_room(work.item.needs), work.item.needs
        if self.trouble:
            return self.trouble
        if sum(kind_of_room(one.work.item.needs) == kind for one in self._tasks.values()) >= self.slots + AHEAD:
            return "room in the cluster"
        # No more CPUs and memory than the node has that has most of them.
        fit = [node for node in self._nodes or self._known if fits(needs, node)]
        room = ((int(node["CPU"]), int(node.get("memory", 0.0) / MIB)) for node in fit)
        cpus, memory = max(room, default=(needs.cpus, needs.memory_mb))
        try:
            ref = self._run.options(
                name=work.item.id,
                max_retries=RETRIES,
                num_cpus=min(needs.cpus, cpus),
                num_gpus=needs.gpus,
                memory=min(needs.memory_mb, memory) * MIB or None,
                resources=dict(needs.resources) or None,
            ).remote(__version__, work, work.folder.parents[2])
        except (ValueError, TypeError) as error:
            failure = f"Ray does not take it: {class_and_line(error)}"
            self._ended.append(Ended(id=work.item.id, attempt=work.attempt, failure=failure))
            return ""
        self._tasks[work.item.id] = _Task(work, ref)
        return ""

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return the ended items, each once; wait up to ``timeout_s`` for the first."""
        self._send_stop()
        found, self._ended = self._ended, []
        refs = {task.ref: name for name, task in self._tasks.items()}
        if refs and not found:
            self.ray.wait(list(refs), num_returns=1, timeout=timeout_s)
        elif not found:
            time.sleep(timeout_s)
        ready = self.ray.wait(list(refs), num_returns=len(refs), timeout=0)[0] if refs else []
        found += [self._result(self._tasks.pop(refs[ref])) for ref in ready]
        if time.monotonic() >= self._due:
            self._look()
            found += self._give_up()
        return found

    def _result(self, task: _Task) -> Ended:
        """Return how a task ended; where its node can run no item, nothing more is started."""
        from ray import exceptions

        work = task.work
        attempt = work.attempt + max(len(_attempts(work)) - 1, 0)
        try:
            ended: Ended = self.ray.get(task.ref)
        except exceptions.TaskCancelledError:
            return Ended(id=work.item.id, attempt=attempt, interrupted=True)
        except (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.OutOfMemoryError,
        ) as error:
            failure = f"lost after {many(attempt, 'attempt')}: {class_and_line(error)}"
            return Ended(id=work.item.id, attempt=attempt, failure=failure)
        except Exception as error:  # noqa: BLE001 - no item raises any: the node is at fault, which spoils no item
            cause = getattr(error, "cause", None) or error
            self.trouble = self.trouble or f"{self.address}: {first_line(cause)}"
            self.stop()
            return Ended(id=work.item.id, attempt=attempt, interrupted=True)
        return ended

    def _look(self) -> None:
        """Ask the cluster for its nodes, and the night's folder for the output of items."""
        self._due = time.monotonic() + NODES_S
        if answers(self.address):  # else Ray would wait for it here
            living = [one["Resources"] for one in self.ray.nodes() if one["Alive"]]
            self._nodes = [node for node in living if node.get("CPU", 0.0) >= 1]  # the others can run nothing
            self._known += [node for node in self._nodes if node not in self._known]
        for task in self._tasks.values():
            folders = _attempts(task.work)
            if folders and task.begin is None:
                task.begin = time.monotonic()
            for folder in folders[-1:]:
                task.line = "".join(replace(task.work, folder=folder).tail(1))

    def _give_up(self) -> list[Ended]:
        """Give up items that wait for a node that the cluster had, and has had no more for a while."""
        now = time.monotonic()
        self._nodeless = 0.0 if self._nodes else self._nodeless or now
        if self._nodeless and now - self._nodeless > self.patience_s and not self.trouble:
            self.trouble = f"{self.address}: the Ray cluster has no node left that runs anything"
            self.stop()
        found = []
        for name, task in list(self._tasks.items()):
            needs = task.work.item.needs
            waits = task.begin is None and bool(self._nodes) and not any(fits(needs, node) for node in self._nodes)
            task.unfit = (task.unfit or now) if waits else 0.0
            if waits and now - task.unfit > self.patience_s:
                self.ray.cancel(self._tasks.pop(name).ref)
                failure = f"{lack(needs, self._nodes)} any more"
                found.append(Ended(id=name, attempt=task.work.attempt, failure=failure))
        return found

    def running(self) -> Iterator[RunningItem]:
        """Yield the running items."""
        now = time.monotonic()
        for name, one in self._tasks.items():
            if one.begin is not None:
                yield RunningItem(id=name, seconds=now - one.begin, line=one.line)

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; asked again, at once."""
        self._stops += 1  # sent by `wait`: a signal's handler may have come in the middle of something

    def _send_stop(self) -> None:
        firmly = self._stops > 1
        if self._stops > self._stops_sent:
            self._stops_sent, self._stop_until = self._stops, time.monotonic() + STOP_S[firmly]
            for task in self._tasks.values():
                self.ray.cancel(task.ref, force=firmly)
        elif self._stops and time.monotonic() > self._stop_until:
            if not firmly:
                self.stop()
                return
            left, self._tasks = self._tasks, {}
            self._ended += [Ended(id=name, attempt=one.work.attempt, interrupted=True) for name, one in left.items()]

    def close(self) -> None:
        """End the running items, and leave the cluster."""
        if self._tasks:
            self.stop()
        while self._tasks:  # `_send_stop` sees to it that this ends
            self.wait(0.2)
        self.ray.shutdown()


def _attempts(work: Work) -> list[Path]:
    """Return the folders of an item's attempts from the given one on, in their order."""
    found: list[Path] = []
    while (folder := work.folder.with_name(f"attempt-{work.attempt + len(found)}")).is_dir():
        found.append(folder)
    return found


def lack(needs: Needs, nodes: Sequence[Node]) -> str:
    """Return an item's need that no node has."""
    if needs.gpus > (most := max(node.get("GPU", 0.0) for node in nodes)):
        return f"needs {needs.gpus} GPUs, no node of the Ray cluster has more than {most:g}"
    wants = [f"{needs.gpus} GPUs"] if needs.gpus else []
    wants += [f"{name}: {amount:g}" for name, amount in needs.resources.items()]
    return f"needs {', '.join(wants)}, no node of the Ray cluster has that"


def cluster_address() -> str:
    """Return ``HOST:PORT`` of the cluster that ``RAY_ADDRESS`` names, else of one that runs on this machine.

    Raises:
        UsageError: it is no address of a cluster, or nothing listens there; Ray itself would try for minutes.
    """
    address = os.environ.get("RAY_ADDRESS", "auto") or "auto"
    said = f"RAY_ADDRESS={address}"
    if address == "auto":
        found = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray/ray_current_cluster"
        try:
            address = found.read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            raise UsageError(
                "no Ray cluster runs on this machine\n  expected: RAY_ADDRESS=HOST:PORT of one; `ray start --head` starts one"
            ) from None
        said = f"{address}, which {found} names"
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UsageError(
            f"{said}: is no address of a Ray cluster\n  expected: HOST:PORT of its head, as 10.0.0.1:6379\n"
            "  hint: from a machine that is no node of it, `ray job submit` runs tipchain there"
        )
    if not answers(address):
        raise UsageError(f"{said}: no Ray cluster is there")
    return address


def answers(address: str) -> bool:
    """Tell whether something listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except (OSError, OverflowError):
        return False
    return True
