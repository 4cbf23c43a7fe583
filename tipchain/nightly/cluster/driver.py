"""Ray's driver, a process of its own: ``python -m tipchain.nightly.cluster.driver HANDLE``, HANDLE an open socket.

A driver of Ray prints to its terminal what its cluster has to say, takes SIGTERM for itself, and is ended by Ray when
the cluster's head is gone for a minute. None of that may happen to the coordinator. When the coordinator is gone, the
socket says so, and everything that runs is ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import ray
from ray import exceptions

from tipchain import __version__
from tipchain.errors import class_and_line, first_line
from tipchain.nightly.cluster.folders import put
from tipchain.nightly.cluster.messages import (
    Begun,
    Cancel,
    FromDriver,
    FromNode,
    Job,
    Node,
    Nodes,
    Piece,
    Refused,
    Settings,
    Start,
    ToDriver,
)
from tipchain.nightly.cluster.node import run_item
from tipchain.nightly.executor import Ended, Work

LOOK_S = 0.05
NODES_S = 2.0
"""How often the cluster is asked for its nodes."""
AHEAD = 8
"""Pieces that a node may be ahead of what was written here."""
END_S = 20.0
"""How long items may take to end when the coordinator is gone."""
MIB = 1 << 20
OWN = ("CPU", "GPU", "memory", "object_store_memory")
GONE = (
    exceptions.NodeDiedError,
    exceptions.WorkerCrashedError,
    exceptions.LocalRayletDiedError,
    exceptions.OutOfMemoryError,
    exceptions.ObjectLostError,
)
"""What Ray raises where not the item is at fault, but what it ran on."""


class _Task:
    """An item that was handed to Ray."""

    def __init__(self, work: Work, stream: Any) -> None:
        self.work, self.stream = work, stream
        self.begun: Begun | None = None
        self.cancelled = False

    @property
    def where(self) -> str:
        """Where it runs, for messages."""
        if self.begun is None:
            return "its node"
        return f"{self.begun.machine} ({self.begun.address})" if self.begun.address else self.begun.machine


class Driver:
    """Hands items to Ray and tells the coordinator how they go.

    Args:
        connection: to the coordinator.
        settings: of the cluster; Ray has been connected to it.
    """

    def __init__(self, connection: Connection, settings: Settings) -> None:
        self.connection, self.settings = connection, settings
        self._tasks: dict[str, _Task] = {}
        self._nodes: tuple[Node, ...] = ()
        self._asked = 0.0
        self._remote: Any = ray.remote(_on_node)

    def run(self) -> None:
        """Serve the coordinator until it is gone."""
        try:
            while True:
                self._ask_nodes()
                self._hear()
                self._look()
        except (EOFError, ConnectionError):
            self._end_all()

    def _say(self, message: FromDriver) -> None:
        self.connection.send(message)

    def _ask_nodes(self) -> None:
        if self._nodes and time.monotonic() - self._asked < NODES_S:
            return
        self._asked = time.monotonic()
        nodes = living_nodes()
        if nodes != self._nodes:
            self._nodes = nodes
            self._say(Nodes(nodes=nodes))

    def _hear(self) -> None:
        """Take what the coordinator says; wait for it a moment where nothing else is waited for."""
        while self.connection.poll(0 if self._tasks else LOOK_S):
            message: ToDriver = self.connection.recv()
            if isinstance(message, Start):
                self._start(message)
            else:
                self._cancel(message)

    def _start(self, message: Start) -> None:
        work, needs = message.work, message.work.item.needs
        job = Job(work=work, settings=self.settings, version=__version__)
        stream = self._remote.options(
            # One that is run again is another attempt, with a folder of its own: the coordinator sees to it.
            max_retries=0,
            num_returns="streaming",
            _generator_backpressure_num_objects=AHEAD,
            name=work.item.id,
            num_cpus=message.cpus,
            num_gpus=needs.gpus,
            memory=message.memory_mb * MIB or None,
            resources=dict(needs.resources) or None,
        ).remote(job)
        self._tasks[work.item.id] = _Task(work, stream)

    def _cancel(self, message: Cancel) -> None:
        for name in message.ids:
            task = self._tasks.get(name)
            if task is not None and (message.firmly or not task.cancelled):
                task.cancelled = True
                ray.cancel(task.stream, force=message.firmly)

    def _look(self) -> None:
        """Take what nodes have sent."""
        if not self._tasks:
            return
        streams = {task.stream: task for task in self._tasks.values()}
        waiting = list(streams)
        ready, _ = ray.wait(waiting, num_returns=1, timeout=LOOK_S)
        if ready:
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for stream in ready:
            self._take(streams[stream])

    def _take(self, task: _Task) -> None:
        """Take the next that a node has sent of an item, or how it was lost."""
        try:
            message: FromNode = ray.get(next(task.stream))
            if isinstance(message, Piece):
                put(task.work.folder, message)
                return
        except StopIteration:
            message = self._ended(task, failure=f"{task.where} did not say how it ended")
        except exceptions.TaskCancelledError:
            message = self._ended(task, interrupted=True)
        except GONE as error:
            message = self._lost(task, error)
        except (OSError, ValueError) as error:
            task.cancelled = True
            ray.cancel(task.stream, force=True)
            message = self._ended(task, failure=f"what it left cannot be written: {class_and_line(error)}")
        except exceptions.RayError as error:
            message = self._ended(task, failure=f"on {task.where}: {_cause(error)}")
        if isinstance(message, Begun):
            task.begun = message
        elif isinstance(message, Ended):
            del self._tasks[message.id]
        self._say(message)

    def _lost(self, task: _Task, error: Exception) -> Ended:
        if task.cancelled:  # its worker was ended, as was asked
            return self._ended(task, interrupted=True)
        if isinstance(error, exceptions.OutOfMemoryError):
            return self._ended(task, lost=f"Ray ended it on {task.where}, which ran out of memory")
        if isinstance(error, exceptions.WorkerCrashedError):
            return self._ended(task, lost=f"Ray's worker on {task.where} ended unexpectedly")
        return self._ended(task, lost=f"{task.where} is gone")

    def _ended(self, task: _Task, *, failure: str = "", lost: str = "", interrupted: bool = False) -> Ended:
        return Ended(
            id=task.work.item.id,
            attempt=task.work.attempt,
            failure=failure,
            lost=lost,
            interrupted=interrupted,
            machine=task.begun.machine if task.begun else "",
        )

    def _end_all(self) -> None:
        """End everything, and wait for it a while; what is left then ends with Ray's job."""
        for task in self._tasks.values():
            ray.cancel(task.stream)
        deadline = time.monotonic() + END_S
        for task in self._tasks.values():
            # A stream says nothing more when it was cancelled, but its task has a last word.
            with suppress(exceptions.RayError, StopIteration):
                while time.monotonic() < deadline:
                    ready, _ = ray.wait([task.stream], timeout=max(deadline - time.monotonic(), 0))
                    if ready:
                        ray.get(next(task.stream))


def _on_node(job: Job) -> Any:
    """Run an item as a task of Ray."""
    gpus = [str(one) for one in ray.get_gpu_ids()]
    yield from run_item(job, gpus, ray.util.get_node_ip_address())


def living_nodes() -> tuple[Node, ...]:
    """Return the nodes of the cluster that live and can run something."""
    found = []
    for one in ray.nodes():
        has = one["Resources"]
        if one["Alive"] and has.get("CPU", 0.0) >= 1:
            found.append(
                Node(
                    cpus=has["CPU"],
                    gpus=has.get("GPU", 0.0),
                    memory_mb=has.get("memory", 0.0) / MIB,
                    resources=tuple(
                        sorted(
                            (name, amount)
                            for name, amount in has.items()
                            if name not in OWN and not name.startswith("node:__")
                        )
                    ),
                )
            )
    return tuple(sorted(found, key=repr))


def _cause(error: Exception) -> str:
    """Return what went wrong on a node, in one line."""
    cause = getattr(error, "cause", None)
    return class_and_line(cause) if isinstance(cause, Exception) else first_line(error)


def connect(settings: Settings) -> None:
    """Connect this process to the cluster, and send it the project's folder if it is to be shipped."""
    environment = (
        {"working_dir": str(settings.root), "excludes": list(settings.left_out)} if settings.shipped else None
    )
    ray.init(
        address=settings.address,
        runtime_env=environment,
        log_to_driver=False,
        logging_level="ERROR",
        namespace="tipchain",
    )


def main(argv: Sequence[str]) -> int:
    """Serve the coordinator at the other end of the socket that ``argv`` names."""
    connection = Connection(int(argv[0]))
    settings: Settings = connection.recv()
    try:
        connect(settings)
    except Exception as error:  # noqa: BLE001 - whatever Ray has against it, it is the user's to read
        connection.send(Refused(reason=" ".join(str(error).split())))
        return 1
    Driver(connection, settings).run()
    ray.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
