"""Ray's driver, a process of its own: ``python -m tipchain.nightly.cluster.driver HANDLE``."""

from __future__ import annotations

import errno
import os
import pickle
import socket
import stat
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

import ray
from pathspec import GitIgnoreSpec
from ray import exceptions

from tipchain import __version__
from tipchain.core.language import say
from tipchain.errors import UsageError, class_and_line
from tipchain.nightly.cluster.node import (
    AttemptPiece,
    Begun,
    ClusterNode,
    ClusterSettings,
    ClusterTrouble,
    FromDriver,
    FromNode,
    NodeJob,
    Nodes,
    SubmitItem,
    ToDriver,
    put,
)
from tipchain.nightly.executor import Ended, Work
from tipchain.nightly.items import CLUSTERS_OWN

# What of a project's folder Ray sends to its nodes, looked through before Ray does.
#
# Ray follows links, to data sets elsewhere, to pipes, and in circles; it reads everything and writes it into an archive
# before it finds that it is too much.


MIB = 1 << 20
LIMIT = int(os.environ.get("RAY_max_grpc_message_size", 512 * MIB))  # noqa: SIM112 - Ray's
"""Bytes that Ray takes, at most; it does not compress them."""
IGNORED_NO_MORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"
"""Set to 1, Ray sends what a ``.gitignore`` names."""
LARGEST = 3
_Rule = Callable[[str], bool]


@dataclass(slots=True)
class Shipment:
    """What is sent.

    Attributes:
        left_out: what cannot be sent, as patterns of a ``.gitignore``.
        sizes: bytes below each entry of the root.
    """

    left_out: list[str] = field(default_factory=list)
    sizes: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Refuse what Ray would not take.

        Raises:
            UsageError: it is too much.
        """
        if (total := sum(self.sizes.values())) >= LIMIT:
            largest = ", ".join(f"{name} {size / MIB:,.0f}" for name, size in self.sizes.most_common(LARGEST))
            raise UsageError(
                f"--ship: the project has {total / MIB:,.0f} MiB, Ray sends {LIMIT / MIB:,.0f} MiB at most\n"
                f"  largest, in MiB: {largest}\n  hint: what a .rayignore or .gitignore names is not sent"
            )


def survey(root: Path, left_out: Sequence[str]) -> Shipment:
    """Look through a project's folder.

    Args:
        root: the folder.
        left_out: patterns, as of a ``.gitignore`` at the root, of what is not sent.

    Raises:
        OSError: a folder cannot be read.
    """
    found = Shipment()
    _look(root, (root.resolve(),), root, [_rule(root, left_out)], found)
    return found


def _look(root: Path, above: tuple[Path, ...], folder: Path, rules: list[_Rule], found: Shipment) -> None:
    """Look through a folder that is sent; ``above`` are it and all above it, without links."""
    rules = [*rules, *_own_rules(folder)]
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if any(rule(str(path)) for rule in rules):
                continue
            below, kind = path.relative_to(root), _kind(path)
            if stat.S_ISREG(kind):
                found.sizes[below.parts[0]] += path.stat().st_size
                continue
            place = path.resolve() if entry.is_symlink() else above[-1] / entry.name
            if stat.S_ISDIR(kind) and place.is_relative_to(above[0]) and place not in above:
                _look(root, (*above, place), path, rules, found)
            elif kind:
                found.left_out.append(
                    "/" + "".join(f"\\{one}" if one in "\\*?[]! " else one for one in below.as_posix())
                )


def _kind(path: Path) -> int:
    """Return what a path leads to; 0: nowhere, which Ray leaves out by itself."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _own_rules(folder: Path) -> Iterator[_Rule]:
    names = (".rayignore",) if os.environ.get(IGNORED_NO_MORE) == "1" else (".gitignore", ".rayignore")
    for name in names:
        path = folder / name
        if path.is_file():
            yield _rule(folder, path.read_text(encoding="utf-8", errors="surrogateescape").splitlines())


def _rule(folder: Path, patterns: Sequence[str]) -> _Rule:
    """Return what tells whether a path below a folder is named by patterns, as Ray reads them."""
    spec, start = GitIgnoreSpec.from_lines(patterns), len(f"{folder}/".replace("//", "/"))
    return lambda path: spec.match_file(path[start:])


NODES_S = 2.0
"""How often the cluster is asked for its nodes."""
WIDTH = 78


def connect(settings: ClusterSettings) -> None:
    """Connect this process to the cluster, and send it the project's folder if it is to be shipped.

    Raises:
        UsageError: the folder is too large.
    """
    environment = None
    if settings.shipped:
        shipment = survey(settings.root, settings.left_out)
        shipment.check()
        left_out = [*settings.left_out, *shipment.left_out]
        # `ray job submit --working-dir` has sent a folder of its own: items run in the night's.
        os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
        environment = {"working_dir": str(settings.root), "excludes": left_out}
    ray.init(
        address=settings.address,
        runtime_env=environment,
        log_to_driver=False,
        logging_level="ERROR",
        namespace="tipchain",
    )


def refusal(error: BaseException) -> str:
    """Return what Ray has against it, and what lies at the bottom of that, in lines of a terminal's width."""
    lines, cause = str(error).splitlines(), error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if cause is not error:
        lines += str(cause).strip().splitlines()[-1:]
    said = dict.fromkeys(" ".join(line.split()) for line in lines if line.strip())
    return "\n  ".join(textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in said)


class NodeWatch(threading.Thread):
    """Asks the cluster for its nodes now and then; waits for a head that does not answer, and nobody else does."""

    def __init__(self) -> None:
        super().__init__(name="nodes", daemon=True)
        self.nodes = living_nodes()
        self._over = threading.Event()

    def run(self) -> None:
        """Look until told to end."""
        while not self._over.wait(NODES_S):
            self._look()

    def _look(self) -> None:
        try:
            self.nodes = living_nodes()
        except Exception as error:  # noqa: BLE001 - the head may come back; if not, Ray ends this process
            print(say(f"nodes: {class_and_line(error)}"), file=sys.stderr)

    def end(self) -> None:
        """Look no more: asked for nodes when it is shut down, Ray would begin anew."""
        self._over.set()
        self.join(5.0)


def living_nodes() -> tuple[ClusterNode, ...]:
    """Return the nodes of the cluster that live and can run something."""
    found = []
    for one in ray.nodes():
        has = one["Resources"]
        if one["Alive"] and has.get("CPU", 0.0) >= 1:
            found.append(
                ClusterNode(
                    cpus=has["CPU"],
                    gpus=has.get("GPU", 0.0),
                    memory_mb=has.get("memory", 0.0) / MIB,
                    resources=tuple(
                        sorted(
                            (name, amount)
                            for name, amount in has.items()
                            if name not in CLUSTERS_OWN and not name.startswith("node:__")
                        )
                    ),
                )
            )
    return tuple(sorted(found, key=repr))


# HANDLE is an open socket. A driver of Ray prints to its terminal what its cluster has to say, takes SIGTERM for itself,
# and is ended by Ray when the cluster's head is gone for a minute. None of that may happen to the coordinator. When the
# coordinator is gone, the socket says so, and everything that runs is ended.


LOOK_S = 0.05
AHEAD = 8
"""Pieces that a node may be ahead of what was written here."""
END_S = 20.0
"""How long items may take to end when the coordinator is gone."""
GONE = (exceptions.NodeDiedError, exceptions.ObjectLostError)
"""What Ray raises where a node has gone."""
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM)
"""What nothing can be written for, whatever it is; all other errors of writing are the item's own."""


class _Task:
    """An item that was handed to Ray."""

    def __init__(self, work: Work, stream: BinaryIO) -> None:
        self.work, self.stream = work, stream
        self.begun: Begun | None = None
        self.cancelled = False

    @property
    def where(self) -> str:
        """Where it runs, for messages."""
        if self.begun is None:
            return "its node"
        return f"{self.begun.machine} ({self.begun.address})" if self.begun.address else self.begun.machine


class RayDriver:
    """Hands items to Ray and tells the coordinator how they go.

    Args:
        connection: to the coordinator.
        settings: of the cluster; Ray has been connected to it.
    """

    def __init__(self, connection: Connection, settings: ClusterSettings) -> None:
        self.connection, self.settings = connection, settings
        self._tasks: dict[str, _Task] = {}
        self._nodes: tuple[ClusterNode, ...] | None = None
        self._watch = NodeWatch()
        self._remote: Any = ray.remote(_on_node)

    def run(self) -> None:
        """Serve the coordinator until it is gone."""
        self._watch.start()
        try:
            while True:
                if self._watch.nodes != self._nodes:
                    self._nodes = self._watch.nodes
                    self._say(Nodes(nodes=self._nodes))
                # Take what the coordinator says; wait for it a moment where nothing else is waited for.
                while self.connection.poll(0 if self._tasks else LOOK_S):
                    message: ToDriver = self.connection.recv()
                    if isinstance(message, SubmitItem):
                        self._start(message)
                    else:
                        for name in message.ids:
                            task = self._tasks.get(name)
                            if task is not None and (message.firmly or not task.cancelled):
                                task.cancelled = True
                                ray.cancel(task.stream, force=message.firmly)
                self._look()
        except (EOFError, ConnectionError):
            # What has not ended after a while ends with Ray's job.
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
        except Exception as error:  # what nobody has thought of is to be read, too
            self._say(ClusterTrouble(reason=f"Ray's driver: {class_and_line(error)}"))
            raise
        finally:
            self._watch.end()

    def _say(self, message: FromDriver) -> None:
        self.connection.send(message)

    def _start(self, message: SubmitItem) -> None:
        work, needs = message.work, message.work.item.needs
        job = pickle.dumps(NodeJob(work=work, settings=self.settings))
        try:
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
            ).remote(__version__, job)
        except (ValueError, TypeError) as error:
            failure = f"Ray does not take it: {class_and_line(error)}"
            self._say(Ended(id=work.item.id, attempt=work.attempt, failure=failure))
            return
        self._tasks[work.item.id] = _Task(work, stream)

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
            message: FromNode | None = ray.get(next(task.stream))
        except (StopIteration, exceptions.RayError) as error:
            message = self._lost(task, error)
        if isinstance(message, AttemptPiece):
            message = self._put(task, message)
        if isinstance(message, str):
            message = self._trouble(task, message)
        if isinstance(message, Begun):
            task.begun = message
        elif isinstance(message, Ended):
            del self._tasks[message.id]
        if message is not None:
            self._say(message)

    def _put(self, task: _Task, piece: AttemptPiece) -> Ended | None:
        """Write what has come back; return how the item ended if that cannot be done."""
        try:
            put(task.work.folder, piece)
        except (OSError, ValueError) as error:
            self._end_now(task)
            if isinstance(error, OSError) and error.errno in DISK:
                # It has not ended: there is no room for what it left.
                return self._trouble(task, f"{error.filename or task.work.folder}: {error.strerror}")
            return self._ended(task, failure=f"what it left cannot be written: {class_and_line(error)}")
        return None

    def _trouble(self, task: _Task, reason: str) -> Ended:
        """Say why nothing more can run; what found that out has not ended."""
        self._say(ClusterTrouble(reason=reason))
        return self._ended(task, interrupted=True)

    def _lost(self, task: _Task, error: Exception) -> Ended:
        """Return how an item ended for which what it ran on is at fault."""
        if task.cancelled or isinstance(error, exceptions.TaskCancelledError):
            return self._ended(task, interrupted=True)
        if isinstance(error, exceptions.LocalRayletDiedError):
            # Nothing is placed any more: run again, all items would be lost as often as they may be, in no time.
            return self._trouble(task, f"the Ray node of {socket.gethostname()}, by which items are placed, is gone")
        self._end_now(task)  # it is run again: whatever Ray thinks of it, it shall not go on
        if isinstance(error, GONE):
            lost = f"{task.where} is gone"
        elif isinstance(error, exceptions.OutOfMemoryError):
            lost = f"Ray ended it on {task.where}, which ran out of memory"
        elif isinstance(error, exceptions.WorkerCrashedError):
            lost = f"Ray's worker on {task.where} ended unexpectedly"
        elif isinstance(error, StopIteration):
            lost = f"{task.where} did not say how it ended"
        else:  # what an item does wrong raises nothing: its node could not run it, or not send what it left
            cause = getattr(error, "cause", None)
            lost = f"on {task.where}: {class_and_line(cause if isinstance(cause, Exception) else error)}"
        return self._ended(task, lost=lost)

    def _end_now(self, task: _Task) -> None:
        task.cancelled = True
        ray.cancel(task.stream, force=True)

    def _ended(self, task: _Task, *, failure: str = "", lost: str = "", interrupted: bool = False) -> Ended:
        return Ended(
            id=task.work.item.id,
            attempt=task.work.attempt,
            failure=failure,
            lost=lost,
            interrupted=interrupted,
            machine=task.begun.machine if task.begun else "",
        )


def _on_node(version: str, packed: bytes) -> Iterator[object]:
    """Run an item as a task of Ray; imports what it needs itself, so that it can say what is not there."""
    import os
    import pickle
    import socket

    import ray

    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:  # what was sent is there no more; Ray unpacks it again for another worker
        os._exit(1)
    host = socket.gethostname()
    try:
        import tipchain

        if tipchain.__version__ != version:
            yield f"tipchain {tipchain.__version__} is installed on {host}, the coordinator has {version}"
            return
        from tipchain.nightly.cluster.node import run_item
    except ImportError as error:
        there = "is not installed" if error.name == "tipchain" else f"cannot be loaded ({error})"
        yield f"tipchain {there} on {host}, a node of the Ray cluster"
        return
    gpus = [str(one) for one in ray.get_gpu_ids()]
    yield from run_item(pickle.loads(packed), gpus, ray.util.get_node_ip_address())  # noqa: S301 - the driver's own


def main(argv: Sequence[str]) -> int:
    """Serve the coordinator at the other end of the socket that ``argv`` names."""
    connection = Connection(int(argv[0]))
    settings: ClusterSettings = connection.recv()
    try:
        connect(settings)
    except UsageError as error:
        connection.send(ClusterTrouble(reason=str(error)))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever Ray has against it, it is the user's to read
        reason = f"the Ray cluster at {settings.address} cannot be used\n  {refusal(error)}"
        connection.send(ClusterTrouble(reason=reason))
        return 1
    RayDriver(connection, settings).run()
    ray.shutdown()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
