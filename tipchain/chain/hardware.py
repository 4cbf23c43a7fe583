"""Whether this machine has a GPU, found out without a framework."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def why_no_gpu() -> str:
    """Return why no GPU can be used here, "" if one can."""
    if not Path("/dev/nvidia0").exists() and not list(Path("/dev").glob("nvidia[0-9]*")):
        return "no usable GPU on this machine (no /dev/nvidia0)"
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no usable GPU on this machine (nvidia-smi: {error})"
    if done.returncode != 0 or "GPU" not in done.stdout:
        return f"no usable GPU on this machine (nvidia-smi exits {done.returncode})"
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "no usable GPU here (CUDA_VISIBLE_DEVICES is empty)"
    return ""
