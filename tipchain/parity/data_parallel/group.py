"""The processes that train together, as their parent sees them: start, deadline, end, reports."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tipchain.errors import TipchainError
from tipchain.parity.data_parallel.worker import WorkerJob, report_path

LOOPBACK = "127.0.0.1"
PORTS = (20000, 30000)
"""Ports that are tried: below those that systems hand out by themselves."""
PATIENCE_S = 5.0
"""Seconds that a process may take to end by itself."""


class GroupError(TipchainError):
    """Processes that should train together could not: one raised, died, or they took too long."""

    exit_code = 1


class WorkerGroup:
    """Processes started by ``paddle.distributed.launch`` on this machine; they work while others do.

    Args:
        job: what they do.
        processes: how many.
        timeout_s: after how long they are ended.
        logs: folder that gets what they print, as ``distributed_rank<n>.log``.
    """

    def __init__(self, job: WorkerJob, *, processes: int, timeout_s: float, logs: Path) -> None:
        self.folder, self.processes, self.timeout_s, self.logs = Path(job.folder), processes, timeout_s, logs
        spec = self.folder / "job.json"
        spec.write_text(job.to_json())
        with (logs / "distributed_launch.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "tipchain.parity.data_parallel.lifeline",
                    "--ips", LOOPBACK, "--start_port", str(free_port(processes)),
                    *_devices(job.device, processes), "--log_dir", str(self.folder / "log"),
                    sys.executable, "-m", "tipchain.parity.data_parallel.worker", str(spec),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=_environment(job),
            )  # fmt: skip

    def __enter__(self) -> WorkerGroup:  # noqa: PYI034  (typing.Self is not in Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for rank in range(self.processes):
            with suppress(OSError):
                shutil.copyfile(self._worker_log(rank), self._kept_log(rank))

    def reports(self) -> list[Mapping[str, Any]]:
        """Wait for the processes, and return what each reports, by rank.

        Raises:
            GroupError: a process raised or died, or they took longer than their time.
        """
        try:
            code = self.process.wait(timeout=self.timeout_s)
        except subprocess.TimeoutExpired:
            self.stop()
            raise GroupError(
                f"the {self.processes} processes took longer than {self.timeout_s:g} s and were ended"
                f"{self._waiting()}"
            ) from None
        found = {rank: self._report(rank) for rank in range(self.processes)}
        for rank, report in found.items():
            if report is not None and "error" in report:
                raise GroupError(f"rank {rank} of {self.processes}: {report['error']}")
        missing = [rank for rank, report in found.items() if report is None]
        if missing or code:
            raise GroupError(
                f"paddle.distributed.launch ended with exit code {code}"
                + (f", and rank {missing[0]} without a report" if missing else "")
                + "".join(
                    f"\n  rank {rank} said: {line}" for rank in missing if (line := self._complaint(rank))
                )
                + f"\n  log: {self._kept_log(missing[0] if missing else 0)}"
            )
        return [report for report in found.values() if report is not None]

    def stop(self) -> None:
        """End the launcher, and with it all that it started."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(sign)
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(timeout=PATIENCE_S)

    def _report(self, rank: int) -> Mapping[str, Any] | None:
        path = report_path(self.folder, rank)
        report: Mapping[str, Any] | None = json.loads(path.read_text()) if path.is_file() else None
        return report

    def _waiting(self) -> str:
        """Say which ranks had done their work when the time was over."""
        done = [rank for rank in range(self.processes) if self._report(rank) is not None]
        errors = [f"; rank {rank}: {report['error']}" for rank in done
                  if (report := self._report(rank)) is not None and "error" in report]  # fmt: skip
        waiting = [str(rank) for rank in range(self.processes) if rank not in done]
        return f"; unfinished: rank {', '.join(waiting)}{''.join(errors)}\n  log: {self._kept_log(0)}"

    def _complaint(self, rank: int) -> str:
        """Return the first line of a process's log that speaks of an error, such as gloo's after 30 s of waiting."""
        try:
            lines = self._worker_log(rank).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        words = ("Exception", "Error:", "error:")
        return next((line.strip() for line in lines if any(word in line for word in words)), "")

    def _worker_log(self, rank: int) -> Path:
        return self.folder / "log" / f"workerlog.{rank}"

    def _kept_log(self, rank: int) -> Path:
        return self.logs / f"distributed_rank{rank}.log"


def free_port(count: int) -> int:
    """Return the first of ``count`` neighbouring ports of the loopback that nobody listens on.

    Raises:
        GroupError: there are none.
    """
    for _ in range(100):
        first = PORTS[0] + secrets.randbelow(
            PORTS[1] - PORTS[0]
        )  # the seeded generators are alike in every run
        if _all_free(range(first, first + count)):
            return first
    raise GroupError(f"no {count} neighbouring free ports between {PORTS[0]} and {PORTS[1]}")


def _all_free(ports: Iterable[int]) -> bool:
    with ExitStack() as stack:
        for port in ports:
            one = stack.enter_context(socket.socket())
            try:
                one.bind((LOOPBACK, port))
            except OSError:
                return False
    return True


def _devices(device: str, processes: int) -> list[str]:
    if device.startswith("gpu"):
        return ["--gpus", ",".join(map(str, range(processes)))]
    return ["--nproc_per_node", str(processes)]


def _environment(job: WorkerJob) -> dict[str, str]:
    """Return the launcher's environment: nothing of another launch, the threads shared, gloo on the loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDLE_")}
    if not kept.get("CUDA_VISIBLE_DEVICES", "-"):
        del kept["CUDA_VISIBLE_DEVICES"]  # the launcher takes an empty one for a device without a name
    gloo = {} if job.device.startswith("gpu") else {"PADDLE_DISTRI_BACKEND": "gloo"}
    threads = str(job.threads)
    return {
        **kept,
        **gloo,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TIPCHAIN_PARENT": str(os.getpid()),
    }
