"""The executor of nights on a Ray cluster, as the coordinator has it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from tipchain.chain.process import last_lines
from tipchain.errors import MissingFrameworkError, UsageError
from tipchain.nightly.cluster.node import (
    Begun,
    Cancel,
    ClusterNode,
    ClusterSettings,
    ClusterTrouble,
    FromDriver,
    Nodes,
    OutputLine,
    SubmitItem,
    ToDriver,
)
from tipchain.nightly.executor import Ended, Work
from tipchain.nightly.items import Item, kind_of_room


def cluster_address(given: str | None) -> str:
    """Return ``HOST:PORT`` of the cluster that is meant: what the user says, ``RAY_ADDRESS``, or one of this machine.

    Raises:
        UsageError: it is no address of a cluster, or nothing listens there; Ray itself would try for minutes.
    """
    for said, address in (("--address ", given), ("RAY_ADDRESS=", os.environ.get("RAY_ADDRESS"))):
        if address and address != "auto":
            _check(said + address, address)
            return address
    found = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray/ray_current_cluster"
    try:
        address = found.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise UsageError(
            "no Ray cluster runs on this machine\n  expected: --address HOST:PORT of one, or RAY_ADDRESS; "
            "`ray start --head` starts one"
        ) from None
    _check(f"{address}, which {found} names", address)
    return address


def _check(said: str, address: str) -> None:
    if "://" in address:
        whose = "Ray Client's" if address.startswith("ray://") else "dashboard's"
        raise UsageError(
            f"{said}: is a {whose} address\n  expected: HOST:PORT of the cluster's head, on one of its nodes\n"
            "  hint: `ray job submit` runs tipchain there"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageError(f"{said}: is no address of a Ray cluster\n  expected: HOST:PORT, as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"{said}: no Ray cluster is there: {getattr(error, 'strerror', '') or error}") from None


PROGRAM = (sys.executable, "-m", "tipchain.nightly.cluster.driver")
LOG_BYTES = 8192
LAST_WORDS_S = 5.0


class DriverLink:
    """The driver's process, and a socket to it.

    What is sent goes through a thread: whoever sends is never kept waiting by a driver that is busy sending itself, or
    that has been stopped. So neither end waits for ever for the other.

    Args:
        program: the driver's call, without the socket's number.
    """

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._log = tempfile.TemporaryFile(prefix="tipchain-ray-")  # noqa: SIM115 - closed by close()
        self._socket, childs = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        with childs:
            self._driver = subprocess.Popen(
                [*program, str(childs.fileno())],
                pass_fds=(childs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is the coordinator's
            )
        self._outbox: SimpleQueue[ToDriver | ClusterSettings | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._send_all, name="to Ray's driver", daemon=True)
        self._sender.start()

    def send(self, message: ToDriver | ClusterSettings) -> None:
        """Say something; that the driver is gone is found out by `receive`."""
        self._outbox.put(message)

    def _send_all(self) -> None:
        with suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)

    def receive(self, timeout_s: float) -> FromDriver | None:
        """Return the next that the driver says; None if it says nothing in time.

        Raises:
            EOFError: it is gone; in the middle of a word, too.
        """
        try:
            if not self._connection.poll(timeout_s):
                return None
            message: FromDriver = self._connection.recv()
        except OSError as error:
            raise EOFError from error
        return message

    def kill(self) -> None:
        """End the driver at once. Ray then ends what it had started, on all nodes."""
        self._driver.kill()

    def killed_by(self) -> str:
        """Return the name of the signal by which somebody ended the driver; "" if it ended otherwise."""
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(LAST_WORDS_S)
        code = self._driver.returncode
        return signal.Signals(-code).name if code in (-signal.SIGKILL, -signal.SIGTERM) else ""

    def last_words(self) -> str:
        """Return the last line that the driver wrote."""
        with suppress(subprocess.TimeoutExpired):
            self._driver.wait(LAST_WORDS_S)
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - LOG_BYTES, 0))
        lines = [line for line in last_lines(self._log.read()) if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self._driver.returncode}"

    def close(self, timeout_s: float) -> None:
        """Let the driver end in a time, or end it."""
        if self._connection.closed:
            return
        self._outbox.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # the sender waits no more, and the driver hears of it
        self._sender.join()
        self._connection.close()
        self._socket.close()
        try:
            self._driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        self._log.close()


CONNECT_S = 300.0
"""How long Ray may take to connect, and to send the project's folder."""
PATIENCE_S = 60.0
"""How long a node is waited for that the cluster had and has no more."""
QUIT_S = 10.0
"""How long the driver may take to leave its cluster."""
STOP_S = (30.0, 10.0)
"""How long items may take to end when asked to, and when told to; then the driver ends, and all of them with it."""
LEAST_AHEAD = 4
SET_BY_RAY = ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED", "SPT_NOENV")
"""Variables that Ray sets for its tasks, besides its own."""


@dataclass(slots=True)
class _Sent:
    """An item that was handed to the driver.

    Attributes:
        start: what was handed on.
        begin: when its process began, by a monotonic clock; None while it waits for a node.
        line: its last line of output.
        unfit: since when no node could run it; None while one can.
    """

    start: SubmitItem
    begin: float | None = None
    line: str = ""
    unfit: float | None = None

    @property
    def attempt(self) -> int:
        return self.start.work.attempt


class RayExecutor:
    """Runs items on the nodes of a running Ray cluster.

    Args:
        settings: which cluster, and how the project comes there.
        patience_s: how long a node is waited for that the cluster had and has no more.
        stop_s: how long items may take to end when asked to, and when told to.
        program: the driver's call, without the number of its socket.

    Raises:
        MissingFrameworkError: Ray is not installed.
        UsageError: the cluster cannot be reached, or does not take the project's folder.
    """

    name = "ray"

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        patience_s: float = PATIENCE_S,
        stop_s: tuple[float, float] = STOP_S,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self.settings, self.patience_s, self.stop_s = settings, patience_s, stop_s
        self.trouble = ""
        self._sent: dict[str, _Sent] = {}
        self._nodes: tuple[ClusterNode, ...] = ()
        self._known: set[ClusterNode] = set()
        self._nodeless: float | None = None
        self._stops = self._stops_sent = 0
        self._stop_until = 0.0
        self._link = DriverLink(program)
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        """Wait until the driver has reached the cluster."""
        self._link.send(self.settings)
        try:
            message = self._link.receive(CONNECT_S)
        except EOFError:
            said = self._link.killed_by() or self._link.last_words()
            if "No module named" in said:
                raise MissingFrameworkError(
                    f"--executor ray needs Ray, which is not installed here: {said}\n  pip install 'tipchain[ray]'"
                ) from None
            raise UsageError(f"the Ray cluster at {self.settings.address}: Ray's driver ended: {said}") from None
        if message is None:
            self._link.kill()
            raise UsageError(f"the Ray cluster at {self.settings.address} does not answer in {CONNECT_S:.0f} s")
        if isinstance(message, ClusterTrouble):
            raise UsageError(message.reason)
        self._hear(message)

    @property
    def slots(self) -> int:
        """How many items of one CPU the cluster can run at once."""
        return max(int(sum(node.cpus for node in self._nodes)), 1)

    def impossible(self, item: Item) -> str:
        """Return why no node that the cluster ever had can run an item; "" if one can, or none was seen yet."""
        if not self._known or any(node.fits(item.needs) for node in self._known):
            return ""
        return _lack(item, self._known)

    def start(self, work: Work) -> str:
        """Hand an item to Ray if not enough wait there; return "" or what has to be waited for."""
        if self.trouble:
            return self.trouble
        kind = kind_of_room(work.item.needs)
        waiting = sum(
            one.begin is None and kind_of_room(one.start.work.item.needs) == kind for one in self._sent.values()
        )
        if waiting >= max(self.slots, LEAST_AHEAD):
            return "room in the cluster"
        work.make_folder()
        # What an item asks Ray for: of CPUs and memory no more than the node has that has most of it.
        needs = work.item.needs
        fit = [node for node in self._nodes if node.fits(needs)]
        fit = fit or [node for node in self._known if node.fits(needs)]
        found = [(min(needs.cpus, int(node.cpus)), min(needs.memory_mb, int(node.memory_mb))) for node in fit]
        cpus, memory = max(found, default=(needs.cpus, needs.memory_mb))
        start = SubmitItem(work=work, cpus=cpus, memory_mb=memory)
        self._sent[work.item.id] = _Sent(start)
        self._link.send(start)
        return ""

    def wait(self, timeout_s: float) -> Sequence[Ended]:
        """Return what has ended, each once; wait up to ``timeout_s`` for the first."""
        if self._stops > self._stops_sent:
            self._stops_sent, firmly = self._stops, self._stops > 1
            self._stop_until = time.monotonic() + self.stop_s[firmly]
            self._cancel(self._sent, firmly=firmly)
        elif self._stops and self._sent and time.monotonic() > self._stop_until:
            self._link.kill()  # it has been stopped, or waits for its cluster
        found: list[Ended] = []
        deadline = time.monotonic() + timeout_s
        left = timeout_s
        try:
            while (message := self._link.receive(0.0 if found else max(left, 0.0))) is not None:
                found += self._hear(message)
                left = deadline - time.monotonic()
                if left <= 0:
                    break
        except EOFError:
            # Nothing that ran has ended well, and nothing can run any more.
            if not self.trouble and not self._stops:  # it was told to end
                killed = self._link.killed_by()
                what = (
                    f"Ray's driver was killed by {killed}"
                    if killed
                    else f"the Ray cluster is gone: {self._link.last_words()}"
                )
                self.trouble = f"{self.settings.address}: {what}"
            found += [Ended(id=name, attempt=one.attempt, interrupted=True) for name, one in self._sent.items()]
            self._sent.clear()
        return [*found, *self._unfit()]

    def _hear(self, message: FromDriver) -> Iterator[Ended]:
        """Take what the driver says; return the item that ended, if one did."""
        if isinstance(message, Nodes):
            self._nodes = message.nodes
            self._known.update(message.nodes)
        elif isinstance(message, Begun) and message.id in self._sent:
            self._sent[message.id].begin = time.monotonic()
        elif isinstance(message, OutputLine) and message.id in self._sent:
            self._sent[message.id].line = message.text
        elif isinstance(message, ClusterTrouble):
            self.trouble = self.trouble or message.reason
            self._cancel(name for name, one in self._sent.items() if one.begin is None)
        elif isinstance(message, Ended):
            sent = self._sent.get(message.id)
            if sent is not None and sent.attempt == message.attempt:
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
            if one.begin is not None or not self._nodes or any(node.takes(one.start) for node in self._nodes):
                one.unfit = None
                continue
            one.unfit = one.unfit or now
            if now - one.unfit > self.patience_s:
                self._cancel([name])
                del self._sent[name]
                yield self._given_up(one)

    def _given_up(self, one: _Sent) -> Ended:
        """Return how an item ended that no node can run any more; where one can that has less, it is run again."""
        work = one.start.work
        if any(node.fits(work.item.needs) for node in self._nodes):
            lost = "no node is left with what it asked for, it takes less"
            return Ended(id=work.item.id, attempt=work.attempt, lost=lost)
        failure = f"{_lack(work.item, self._nodes)} any more"
        return Ended(id=work.item.id, attempt=work.attempt, failure=failure)

    def running(self) -> Mapping[str, tuple[float, str]]:
        """Return seconds so far and the last line of output of each item that runs, by id."""
        now = time.monotonic()
        return {name: (now - one.begin, one.line) for name, one in self._sent.items() if one.begin is not None}

    def stop(self) -> None:
        """Ask everything that runs to end, with all its processes; asked again, at once."""
        self._stops += 1  # sent by `wait`: a signal's handler may have come in the middle of something

    def _cancel(self, names: Iterable[str], *, firmly: bool = False) -> None:
        self._link.send(Cancel(ids=tuple(names), firmly=firmly))

    def close(self) -> None:
        """End what still runs, and the driver."""
        if self._sent:
            self.stop()
        while self._sent:  # `_send_stop` sees to it that this ends
            self.wait(0.2)
        self._link.close(QUIT_S)


def _lack(item: Item, nodes: Sequence[ClusterNode] | set[ClusterNode]) -> str:
    """Return what an item needs that no node has."""
    needs = item.needs
    if not nodes:
        return "the Ray cluster has no node"
    if needs.gpus > (most := max(node.gpus for node in nodes)):
        return f"needs {needs.gpus} GPUs, no node of the Ray cluster has more than {most:g}"
    wants = [f"{needs.gpus} GPUs"] if needs.gpus else []
    wants += [f"{name}: {amount:g}" for name, amount in needs.resources.items()]
    return f"needs {', '.join(wants)}, no node of the Ray cluster has that"


def cluster_settings(
    address: str | None, root: Path, *, shipped: bool, nights: Path, own_python: bool
) -> ClusterSettings:
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
    left_out = [".git", ".venv", "venv", ".tipchain", "__pycache__"]
    with suppress(ValueError):
        left_out.append(f"/{nights.relative_to(root).as_posix()}")
    return ClusterSettings(
        address=cluster_address(address),
        root=root,
        shipped=shipped,
        left_out=tuple(left_out),
        environment={name: os.environ.get(name) for name in SET_BY_RAY},
        own_python=own_python,
    )
