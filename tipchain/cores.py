"""The processor cores that this process may use: those of its affinity, no more than its control groups allow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use, ascending; at least one.

    A quota of control groups (``cpu.max``, ``cpu.cfs_quota_us``) of 2.5 cores leaves two of them.
    """
    allowed = sorted(os.sched_getaffinity(0))
    return tuple(allowed[: max(int(min([*_quotas(), float(len(allowed))])), 1)])


def core_count() -> int:
    """Return how many cores this process may use."""
    return len(usable_cores())


def _quotas() -> Iterator[float]:
    """Yield the quotas, in cores, of the control groups that this process is in, directly or not."""
    lines: list[str] = []
    with suppress(OSError):
        lines = OWN_GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount = CGROUP
        elif "cpu" in controllers.split(","):
            mount = CGROUP / controllers if (CGROUP / controllers).is_dir() else CGROUP / "cpu"
        else:
            continue
        # A container sees its own group as the mount's root, whatever the path says.
        for group in (PurePosixPath(path), *PurePosixPath(path).parents):
            yield from _quota(mount / group.relative_to("/"))


def _quota(folder: Path) -> Iterator[float]:
    with suppress(OSError, ValueError):  # "max": no limit
        quota, period = (folder / "cpu.max").read_text().split()
        yield int(quota) / int(period)
    with suppress(OSError, ValueError):
        microseconds = int((folder / "cpu.cfs_quota_us").read_text())
        if microseconds > 0:
            yield microseconds / int((folder / "cpu.cfs_period_us").read_text())
