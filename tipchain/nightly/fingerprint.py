"""Where a night runs and with what: what explains results that differ from another night's."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from tipchain import __version__
from tipchain.cores import core_count
from tipchain.environment import OPTIONAL_PACKAGES, PACKAGES, THREAD_VARIABLES, installed_versions
from tipchain.nightly.machine import memory_mb
from tipchain.runs import commit

CPUINFO = Path("/proc/cpuinfo")
VARIABLES = (
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "TIPCHAIN_PYTHON",
    "NVIDIA_TF32_OVERRIDE",
)
PREFIXES = ("FLAGS_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH_", "OMP_", "KMP_", "MKL_", "PYTORCH_")
"""Variables by which frameworks and their libraries are told to compute otherwise."""


def fingerprint(root: Path) -> dict[str, Any]:
    """Return what is known of this machine, its software, and the project in ``root``, as JSON values."""
    return {
        **origin(root),
        "memory_mb": round(memory_mb()[0]),
        "python": platform.python_version(),
        "versions": {"tipchain": __version__, **installed_versions(), **_packages()},
        "variables": told_variables(os.environ),
    }


def origin(root: Path) -> dict[str, Any]:
    """Return where something is run: this machine, and the commit of the project in ``root``, as JSON values."""
    names, driver = gpu_names()
    return {
        "commit": commit(root),
        "machine": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor(),
        "cores": core_count(),
        "gpus": names,
        "driver": driver,
    }


def told_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change what frameworks compute."""
    named = (*VARIABLES, *THREAD_VARIABLES)
    return {
        name: value
        for name, value in sorted(environment.items())
        if name in named or name.startswith(PREFIXES)
    }


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    found = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return found or platform.machine()


def gpu_names() -> tuple[list[str], str]:
    """Return the names of the GPUs that nvidia-smi lists, and the version of their driver; ([], "") without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], ""
    argv = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return [], ""
    rows = (
        [line.rpartition(",") for line in done.stdout.splitlines() if "," in line]
        if done.returncode == 0
        else []
    )
    return [name.strip() for name, _, _ in rows], rows[0][2].strip() if rows else ""


def _packages() -> dict[str, str]:
    found = {}
    for name in sorted({*PACKAGES, *OPTIONAL_PACKAGES} - {"numpy"}):
        for distribution in metadata.distributions(name=name):
            found[name] = distribution.version
            break
    return found
