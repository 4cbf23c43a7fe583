"""A real Ray cluster on loopback: a head that runs nothing, and nodes, each of them a ``ray start`` of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

CPUS = 1
START_S = 60.0
LEAST_MEMORY = 100 << 20
FAST = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
    "gcs_rpc_server_reconnect_timeout_s": 3,  # a minute otherwise, of the nodes as of the coordinator
}
COMMON = ("--block", "--min-worker-port=0", "--max-worker-port=0", f"--object-store-memory={LEAST_MEMORY}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class RayCluster:
    """A cluster of node processes, ended by `close`.

    Args:
        nodes: how many nodes besides the head.
        resources: what each node has besides its CPU.
    """

    def __init__(self, nodes: int = 2, resources: dict[str, float] | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        self.environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        self.resources = resources or {}
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.here = {**os.environ, "RAY_ADDRESS": self.address}
        own = (f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self.folder.name}")
        self.processes = [self._start("--head", *own, f"--system-config={json.dumps(FAST)}")]
        for _ in range(nodes):
            self.add()

    def add(self, **resources: float) -> None:
        has = json.dumps({**self.resources, **resources})
        self.processes.append(self._start(f"--address={self.address}", f"--num-cpus={CPUS}", f"--resources={has}"))

    def kill(self, number: int) -> None:
        """Kill a node with all its processes; 0 is the head."""
        process = self.processes.pop(number)
        for group in groups_below(process.pid):
            os.killpg(group, signal.SIGKILL)
        process.wait()

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a node, and wait until it has joined."""
        log = Path(self.folder.name, f"start-{time.monotonic_ns()}.log")
        argv = [str(Path(sys.executable).with_name("ray")), "start", *words, *COMMON]
        with log.open("wb") as stream:
            process = subprocess.Popen(
                argv,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        until = time.monotonic() + START_S
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, "the node does not start"
            time.sleep(0.1)
        return process

    def close(self) -> None:
        while self.processes:
            self.kill(-1)
        self.folder.cleanup()


def groups_below(pid: int) -> set[int]:
    """Return the groups of a process and of Ray's own below it, not those that items lead."""
    groups = {os.getpgid(pid)}
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if "ray" in " ".join(one.cmdline()).lower():
                groups.add(os.getpgid(one.pid))
    return groups
