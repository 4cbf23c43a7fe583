"""The executor of nights on a Ray cluster, as the coordinator has it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tipchain.chain.process import last_lines
from tipchain.errors import MissingFrameworkError, UsageError
from tipchain.nightly.cluster.messages import (
    Begun,
    Cancel,
    FromDriver,
    Line,
    Node,
    Nodes,
    Refused,
    Settings,
    Start,
)
from tipchain.nightly.executor import Ended, Work
from tipchain.nightly.items import Item, kind_of_room

CONNECT_S = 180.0
"""How long Ray may take to connect, and to send the project's folder."""
PATIENCE_S = 60.0
"""How long a node is waited for that the cluster had and has no more."""
CLOSE_S = 30.0
LOG_BYTES = 8192
LEAST_AHEAD = 4
SET_BY_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED", "SPT_NOENV")
"""Variables that Ray sets for its tasks, besides its own."""


@dataclass(slots=True)
class _Sent:
    """An item that was handed to the driver.

    Attributes:
        work: what was handed on.
        begin: when its process began, by a monotonic clock; None while it waits for a node.
        line: its last line of output.
        unfit: since when no node could run it; None while one can.
    """

    work: Work
    begin: float | None = None
    line: str = ""
    unfit: float | None = None


class RayExecutor:
    """Runs items on the nodes of a running Ray cluster.

    Args:
        settings: which cluster, and how the project comes there.
        patience_s: how long a node is waited for that the cluster had and has no more.

    Raises:
        MissingFrameworkError: Ray is not installed.
        UsageError: the cluster cannot be reached, or does not take the project's folder.
    """

    name = "ray"

    def __init__(self, settings: Settings, *, patience_s: float = PATIENCE_S) -> None:
        self.settings, self.patience_s = settings, patience_s
        self.trouble = ""
        self._sent: dict[str, _Sent] = {}
        self._nodes: tuple[Node, ...] = ()
        self._known: set[Node] = set()
        self._nodeless: float | None = None
        self._stops = self._stops_sent = 0
        self._log = tempfile.TemporaryFile(prefix="tipchain-ray-")  # noqa: SIM115 - closed by close()
        own, childs = socket.socketpair()
        self._connection = Connection(own.detach())
        with childs:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tipchain.nightly.cluster.driver", str(childs.fileno())],
                pass_fds=(childs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is the coordinator's
            )
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        """Wait until the driver has reached the cluster.

        Raises:
            UsageError: it has not.
        """
        address = self.settings.address
        try:
            self._connection.send(self.settings)
            if not self._connection.poll(CONNECT_S):
                raise UsageError(f"--address {address}: the Ray cluster does not answer in {CONNECT_S:.0f} s")
            message = self._connection.recv()
        except (EOFError, ConnectionError):
            said = self._last_words()
            if "No module named 'ray'" in said:
                raise MissingFrameworkError(
                    "--executor ray needs Ray, which is not installed here\n  pip install 'tipchain[ray]'"
                ) from None
            raise UsageError(f"--address {address}: Ray's driver ended: {said}") from None
        if isinstance(message, Refused):
            raise UsageError(f"--address {address}: {message.reason}")
        self._hear(message)

    @property
    def slots(self) -> int:
        """How many items of one CPU the cluster can run at once."""
        return max(int(sum(node.cpus for node in self._nodes)), 1)

    def impossible(self, item: Item) -> str:
        """Return why no node that the cluster ever had can run an item; "" if one can."""
        if any(node.fits(item.needs) for node in self._known):
            return ""
        return _lack(item, self._known)

    def start(self, work: Work) -> str:
        """Hand an item to Ray if not enough wait there; return "" or what has to be waited for."""
        if self.trouble:
            return self.trouble
        kind = kind_of_room(work.item.needs)
        waiting = sum(
            one.begin is None and kind_of_room(one.work.item.needs) == kind for one in self._sent.values()
        )
        if waiting >= max(self.slots, LEAST_AHEAD):
            return "room in the cluster"
        work.make_folder()
        needs, nodes = work.item.needs, [node for node in self._known if node.fits(work.item.needs)]
        cpus = min(needs.cpus, max((int(node.cpus) for node in nodes), default=1))
        memory = min(needs.memory_mb, max((int(node.memory_mb) for node in nodes), default=0))
        self._sent[work.item.id] = _Sent(work)
        self._say(Start(work=work, cpus=cpus, memory_mb=memory))
        return ""

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return what has ended, each once; wait up to ``timeout_s`` for the first."""
        self._send_stop()
        found: list[Ended] = []
        deadline = time.monotonic() + timeout_s
        try:
            while self._connection.poll(0 if found else max(deadline - time.monotonic(), 0)):
                found += self._hear(self._connection.recv())
        except (EOFError, ConnectionError):
            found += self._gone()
        return [*found, *self._unfit()]

    def _hear(self, message: FromDriver) -> Iterator[Ended]:
        """Take what the driver says; return the item that ended, if one did."""
        if isinstance(message, Nodes):
            self._nodes = message.nodes
            self._known.update(message.nodes)
        elif isinstance(message, Begun) and message.id in self._sent:
            self._sent[message.id].begin = time.monotonic()
        elif isinstance(message, Line) and message.id in self._sent:
            self._sent[message.id].line = message.text
        elif isinstance(message, Ended):
            sent = self._sent.get(message.id)
            if sent is not None and sent.work.attempt == message.attempt:
                del self._sent[message.id]
                return iter((message,))
        return iter(())

    def _unfit(self) -> Iterator[Ended]:
        """Give up what waits for a node that the cluster had, and has had no more for a while."""
        now = time.monotonic()
        self._nodeless = None if self._nodes else self._nodeless or now
        if self._nodeless is not None and now - self._nodeless > self.patience_s and not self.trouble:
            self.trouble = f"{self.settings.address}: the Ray cluster has no node left that runs anything"
            self._stops = max(self._stops, 1)
        for name, one in list(self._sent.items()):
            if (
                one.begin is not None
                or not self._nodes
                or any(node.fits(one.work.item.needs) for node in self._nodes)
            ):
                one.unfit = None
                continue
            one.unfit = one.unfit or now
            if now - one.unfit > self.patience_s:
                self._say(Cancel(ids=(name,)))
                del self._sent[name]
                reason = f"{_lack(one.work.item, self._nodes)} any more"
                yield Ended(id=name, attempt=one.work.attempt, failure=reason)

    def _gone(self) -> list[Ended]:
        """Take note that the driver has ended: nothing that ran has ended well, and nothing can run any more."""
        if not self.trouble:
            self.trouble = f"{self.settings.address}: the Ray cluster is gone: {self._last_words()}"
        found = [
            Ended(id=name, attempt=one.work.attempt, interrupted=True) for name, one in self._sent.items()
        ]
        self._sent.clear()
        return found

    def running(self) -> Mapping[str, tuple[float, str]]:
        """Return seconds so far and the last line of output of each item that runs, by id."""
        now = time.monotonic()
        return {
            name: (now - one.begin, one.line) for name, one in self._sent.items() if one.begin is not None
        }

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; asked again, at once."""
        self._stops += (
            1  # sent by `wait`: a signal's handler may have come while something else was being sent
        )

    def _send_stop(self) -> None:
        if self._stops > self._stops_sent:
            self._stops_sent = self._stops
            self._say(Cancel(ids=tuple(self._sent), firmly=self._stops > 1))

    def _say(self, message: Start | Cancel) -> None:
        with suppress(ConnectionError):  # `wait` finds out
            self._connection.send(message)

    def close(self) -> None:
        """End what still runs, and the driver."""
        deadline = time.monotonic() + CLOSE_S
        if self._sent:
            self.stop()
            while self._sent and time.monotonic() < deadline:
                self.wait(0.2)
        self._connection.close()
        try:
            self._driver.wait(max(deadline - time.monotonic(), 5.0))
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        self._log.close()

    def _last_words(self) -> str:
        """Return the last line that the driver wrote."""
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(5.0)
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - LOG_BYTES, 0))
        lines = [line for line in last_lines(self._log.read()) if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self._driver.returncode}"


def _lack(item: Item, nodes: Sequence[Node] | set[Node]) -> str:
    """Return what an item needs that no node has."""
    needs = item.needs
    if not nodes:
        return "the Ray cluster has no node"
    if needs.gpus > (most := max(node.gpus for node in nodes)):
        return f"needs {needs.gpus} GPUs, no node of the Ray cluster has more than {most:g}"
    wants = [f"{needs.gpus} GPUs"] if needs.gpus else []
    wants += [f"{name}: {amount:g}" for name, amount in needs.resources]
    return f"needs {', '.join(wants)}, no node of the Ray cluster has that"


def cluster_settings(
    address: str | None, root: Path, *, shipped: bool, nights: Path, own_python: bool
) -> Settings:
    """Return how a cluster is reached.

    Args:
        address: what the user says; ``RAY_ADDRESS`` of the environment, or a cluster that runs here, if None.
        root: the project's folder.
        shipped: whether it is sent to the nodes.
        nights: the folder of nights, which is never sent.
        own_python: whether the project's own environment has the programs that items call.

    Raises:
        UsageError: it is no address of a cluster, or nothing listens there.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    _check(address)
    left_out = [".git", ".venv", ".tipchain", "__pycache__"]
    with suppress(ValueError):
        left_out.append(f"/{nights.relative_to(root).as_posix()}")
    return Settings(
        address=address,
        root=root,
        shipped=shipped,
        left_out=tuple(left_out),
        environment={name: os.environ.get(name) for name in SET_BY_RAY},
        own_python=own_python,
    )


def _check(address: str) -> None:
    """Look whether something listens at an address; Ray itself would try for minutes."""
    if address == "auto":
        found = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray/ray_current_cluster"
        try:
            address = found.read_text().strip()
        except OSError:
            raise UsageError(
                "no Ray cluster runs on this machine\n  expected: --address HOST:PORT of one, or RAY_ADDRESS; "
                "`ray start --head` starts one"
            ) from None
    if address.startswith("ray://"):
        raise UsageError(
            f"--address {address}: is a Ray Client's\n  expected: HOST:PORT of the cluster's head, on one of its "
            "nodes; `ray job submit` runs tipchain there"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(
            f"--address {address}: is no address of a Ray cluster\n  expected: HOST:PORT, as 10.0.0.1:6379"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"--address {address}: no Ray cluster is there: {error}") from None
