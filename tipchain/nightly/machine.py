"""What this machine has and has free: memory, GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tipchain.chain.hardware import HIDDEN, Gpus, find_gpus

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
VISIBLE = "CUDA_VISIBLE_DEVICES"


def memory_mb() -> tuple[float, float]:
    """Return the memory in MiB, all of it and what is available; a container's limit counts. (0, 0): not known."""
    found = {}
    with suppress(OSError):
        for name, kib in re.findall(
            r"^(MemTotal|MemAvailable):\s+(\d+) kB", MEMINFO.read_text(), re.MULTILINE
        ):
            found[name] = int(kib) / 1024
    total, free = found.get("MemTotal", 0.0), found.get("MemAvailable", 0.0)
    with suppress(OSError, ValueError):  # version 2, and a limit that is no number (``max``) is none
        limit = int((CGROUP / "memory.max").read_text()) / 2**20
        used = int((CGROUP / "memory.current").read_text()) / 2**20
        total, free = min(total, limit), min(free, max(limit - used, 0.0))
    return total, free


def resident_mb(leaders: Collection[int]) -> dict[int, float]:
    """Return the memory in MiB of processes with all their descendants, without what is shared."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of processes
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError), Path("/proc", name, "stat").open("rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found = dict.fromkeys(leaders, 0.0)
    for pid in parents:
        leader: int | None = pid
        while leader is not None and leader not in found:
            leader = parents.get(leader)
        if leader is not None:
            found[leader] += _own_mb(pid)
    return found


def _own_mb(pid: int) -> float:
    with suppress(OSError, ValueError, IndexError):
        _, resident, shared, *_ = map(int, Path("/proc", str(pid), "statm").read_text().split())
        return (resident - shared) * PAGE_MB
    return 0.0


def usable_gpus() -> Gpus:
    """Return the GPUs that may be used: this machine's, and of those the ones that an outer setting allows.

    ``CUDA_VISIBLE_DEVICES`` ends at the first entry that names no device, as CUDA reads it.
    """
    gpus = find_gpus()
    visible = os.environ.get(VISIBLE)
    if gpus.trouble or visible is None or visible.strip() in HIDDEN:
        return gpus
    allowed: list[str] = []
    for entry in (one.strip() for one in visible.split(",")):
        known = (
            entry in gpus.numbers or any(name.startswith(entry) for name in gpus.names) if entry else False
        )
        if not known:
            break
        allowed.append(entry)
    if not allowed:
        return Gpus(trouble=f"no usable GPU here ({VISIBLE} is {visible})")
    return Gpus(numbers=tuple(dict.fromkeys(allowed)), names=gpus.names)
