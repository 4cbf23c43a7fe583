"""The origin of results: the machine, its free resources, versions, the commit; and the commits between two runs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path

from tipchain import __version__
from tipchain.chain.gpus import HIDDEN, Gpus, find_gpus
from tipchain.core.files import commit, git
from tipchain.core.json_text import Json
from tipchain.core.machine import CGROUP, CPUINFO, THREAD_VARIABLES, core_count, installed_versions, needed_packages

DIRTY = "-dirty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The commits between two runs.

    Attributes:
        span: ``4b72afe..2a83178``; "" where both ran on the same commit, or neither is known.
        count: how many; None where the repository does not have them.
        subjects: the latest first: short hash and first line.
        backwards: whether the later run is on an ancestor of the earlier's commit.
    """

    span: str = ""
    count: int | None = None
    subjects: tuple[str, ...] = ()
    backwards: bool = False


def commits_between(root: Path, before: str, after: str) -> Commits:
    """Return the commits between two runs, with at most five first lines.

    Args:
        root: a folder of the repository.
        before: the earlier run's commit, as ``git describe --always --dirty`` writes it.
        after: the later run's.
    """
    if before == after or not (before or after):
        return Commits()
    span = f"{before or 'unknown'}..{after or 'unknown'}"
    first, last = _hash(before), _hash(after)
    if not first or not last:
        return Commits(span=span)
    counts = git(root, "rev-list", "--left-right", "--count", f"{first}...{last}").split()
    if not counts:
        return Commits(span=span)
    behind, ahead = map(int, counts)
    backwards = not ahead and bool(behind)
    commits = f"{last}..{first}" if backwards else f"{first}..{last}"
    lines = git(root, "log", "--max-count=5", "--format=%h %s", commits).splitlines()
    return Commits(span=span, count=behind if backwards else ahead, subjects=tuple(lines), backwards=backwards)


def suspects(root: Path, before: str, after: str, file: str) -> tuple[str, ...]:
    """Return possible reasons of a file's failing line: the commits between two runs that changed it, and local changes.

    Args:
        root: a folder of the repository, that ``file`` is relative to.
        before: the earlier run's commit, as ``git describe --always --dirty`` writes it; "" if there is none.
        after: the later run's.
        file: the file's path; "" if it is not known.

    Returns:
        Of at most three commits, the latest first, short hash and first line; then words for what was not committed.
    """
    first, last = _hash(before), _hash(after)
    known = first and last and first != last and file
    found = git(root, "log", "--max-count=3", "--format=%h %s", f"{first}..{last}", "--", file) if known else ""
    return (*found.splitlines(), *(["changes that are not committed"] if after.endswith(DIRTY) else []))


def _hash(described: str) -> str:
    """Return the commit that git describe names, which git reads as it wrote it; "" for an option's look-alike."""
    text = described.removesuffix(DIRTY)
    return text if re.fullmatch(r"\w[\w./-]*", text) else ""


VISIBLE = "CUDA_VISIBLE_DEVICES"


def memory_mb() -> tuple[float, float]:
    """Return the memory in MiB, all of it and the available part; a container's limit counts."""
    import psutil

    memory = psutil.virtual_memory()
    total, free = memory.total / 2**20, memory.available / 2**20
    with suppress(OSError, ValueError):  # version 2, and a limit that is no number (``max``) is none
        limit = int((CGROUP / "memory.max").read_text()) / 2**20
        used = int((CGROUP / "memory.current").read_text()) / 2**20
        total, free = min(total, limit), min(free, max(limit - used, 0.0))
    return total, free


def resident_mb(leaders: Collection[int]) -> dict[int, float]:
    """Return the memory in MiB of processes with all their descendants, without shared memory."""
    import psutil

    processes = {one.pid: one.info for one in psutil.process_iter(["ppid", "memory_info"])}
    found = dict.fromkeys(leaders, 0.0)
    for pid, facts in processes.items():
        leader: int | None = pid
        while leader is not None and leader not in found:
            leader = processes[leader]["ppid"] if leader in processes else None
        if leader is not None and facts["memory_info"] is not None:
            found[leader] += (facts["memory_info"].rss - facts["memory_info"].shared) / 2**20
    return found


def usable_gpus() -> Gpus:
    """Return the GPUs that may be used: this machine's, and of those the ones that an outer setting allows.

    ``CUDA_VISIBLE_DEVICES`` ends at the first entry that names no device, as CUDA reads it.
    """
    gpus = find_gpus()
    visible = os.environ.get(VISIBLE)
    if gpus.trouble or visible is None or visible.strip() in HIDDEN:
        return gpus
    allowed: list[str] = []
    for entry in map(str.strip, visible.split(",")):
        if not entry or not (entry in gpus.numbers or any(name.startswith(entry) for name in gpus.names)):
            break
        allowed.append(entry)
    if not allowed:
        return Gpus(trouble=f"no usable GPU here ({VISIBLE} is {visible})")
    return Gpus(numbers=tuple(dict.fromkeys(allowed)), names=gpus.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something of the environment that is another now; "" where one side does not say."""

    name: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.name} {self.before or 'none'} -> {self.after or 'none'}"


def changed_facts(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Fact, ...]:
    """Return the differences between two environments, the commit left out."""
    return tuple(
        Fact(name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in {**after, **before}
        if name != "commit" and before.get(name, "") != after.get(name, "")
    )


VARIABLES = ("PYTHONPATH", "PYTHONHASHSEED", "LD_LIBRARY_PATH", "LD_PRELOAD", "TIPCHAIN_PYTHON", "NVIDIA_TF32_OVERRIDE")
PREFIXES = ("FLAGS_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH_", "OMP_", "KMP_", "MKL_", "PYTORCH_")
"""Variables by which frameworks and their libraries are told to compute otherwise."""


def fingerprint(root: Path) -> dict[str, object]:
    """Return the known facts of this machine, its software, and the project in ``root``, as JSON values."""
    found = (islice(metadata.distributions(name=name), 1) for name in sorted(needed_packages()) if name != "numpy")
    packages = {one.metadata["Name"]: one.version for some in found for one in some}
    return {
        **origin(root),
        "memory_mb": round(memory_mb()[0]),
        "python": platform.python_version(),
        "versions": {"tipchain": __version__, **installed_versions(), **packages},
        # Those that change what frameworks compute.
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name in (*VARIABLES, *THREAD_VARIABLES) or name.startswith(PREFIXES)
        },
    }


def origin(root: Path) -> dict[str, Json]:
    """Return where something is run: this machine, and the commit of the project in ``root``, as JSON values."""
    processor = None
    with suppress(OSError):
        processor = re.search(r"^model name\s*:\s*(.+?)\s*$", CPUINFO.read_text(errors="replace"), re.MULTILINE)
    # The GPUs that nvidia-smi lists, and the version of their driver.
    rows = []
    if program := shutil.which("nvidia-smi"):
        argv = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        with suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
            rows = [line.rpartition(",") for line in done.stdout.splitlines() if "," in line]
    return {
        "commit": commit(root),
        "machine": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor[1] if processor else platform.machine(),
        "cores": core_count(),
        "gpus": [name.strip() for name, _, _ in rows],
        "driver": rows[0][2].strip() if rows else "",
    }
