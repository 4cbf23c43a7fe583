"""What the benchmarks share: programs measured from outside, taking turns, and the machine they ran on."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Measured = TypeVar("Measured")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one program, with all it started and waited for, took: wall seconds and seconds on all cores."""

    wall: float
    cpu: float


def in_turns(measurements: Mapping[str, Callable[[], Measured]], runs: int, warm: int = 1) -> dict[str, list[Measured]]:
    """Measure each in turn, ``runs`` times over, in the opposite order every second time.

    The first ``warm`` rounds only fill caches and are thrown away. Turns spread what else the machine does
    over all that is compared.
    """
    results: dict[str, list[Measured]] = {name: [] for name in measurements}
    for number in range(-warm, runs):
        names = list(measurements)
        for name in names if number % 2 == 0 else reversed(names):
            result = measurements[name]()
            if number >= 0:
                results[name].append(result)
    return results


def run_program(
    argv: Sequence[str], env: Mapping[str, str], log: Path, on_line: Callable[[str], None] | None = None
) -> Usage:
    """Run a program to its end; its output goes to ``log`` and, line by line as it comes, to ``on_line``.

    Raises:
        RuntimeError: it failed; the message has the end of its output.
    """
    start = time.perf_counter()
    with log.open("w") as kept:
        process = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE if on_line else kept, stderr=kept
        )
        for line in process.stdout or ():
            kept.write(line)
            if on_line is not None:
                on_line(line)
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        tail = "".join(log.read_text().splitlines(keepends=True)[-20:])
        raise RuntimeError(f"{' '.join(argv)}: exit code {process.returncode}\n{tail}")
    return Usage(wall=wall, cpu=usage.ru_utime + usage.ru_stime)


def plain_environment() -> dict[str, str]:
    """Return the environment without what would change a framework's number of threads or keep byte code away."""
    dropped = {*THREAD_VARIABLES, "PYTHONDONTWRITEBYTECODE", "TIPCHAIN_RUN", "TIPCHAIN_DATA", "TIPCHAIN_MODE"}
    return {name: value for name, value in os.environ.items() if name not in dropped}


def tipchain_command() -> list[str]:
    """Return the installed command beside this interpreter, or the module where it is not installed."""
    script = Path(sys.executable).parent / "tipchain"
    return [str(script)] if script.exists() else [sys.executable, "-m", "tipchain"]


def middle(values: Iterable[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def describe_machine() -> str:
    """Return cores, Python and the load before the start: what a reader must know of the figures."""
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return f"{cores} cores, Python {platform.python_version()}, load {load:.2f} at the start"
