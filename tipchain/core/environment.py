"""What this machine offers: Python, packages, frameworks and their devices, threads.

Each framework is probed in a process of its own, so that one that crashes or hangs is a finding like any other.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tipchain.core.json_text import Json
from tipchain.core.machine import core_count
from tipchain.outcome import Outcome

PYTHONS = ((3, 10), (3, 13))
PROBE_TIMEOUT_S = 120.0
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
PACKAGES = {
    "numpy": "tipchain",
    "PyYAML": "tipchain",
    "filelock": "tipchain",
    "safetensors": "tipchain",
    "pillow": "tipchain[cases]",
    "scikit-learn": "tipchain[cases]",
}
"""The packages that the engine (``tipchain``) and the shipped cases need, and what brings each."""
OPTIONAL_PACKAGES = {
    "paddle2onnx": "tipchain[onnx]",
    "onnxruntime": "tipchain[onnx]",
    "SQLAlchemy": "tipchain",
    "alembic": "tipchain",
    "psycopg": "tipchain[postgres]",
    "scipy": "tipchain[stats]",
    "tensorboardX": "tipchain[tensorboard]",
    "visualdl": "tipchain[visualdl]",
    "ray": "tipchain[ray]",
    "pathspec": "tipchain[ray]",
}
"""What single parts need: the ONNX half of the inference stage, the history, metrics over several seeds, curves, a cluster."""
ALIGNING, CASES = "align, locate and run", "the shipped cases"
"""What needs the frameworks, and what needs the packages and data of the shipped cases."""
SET_UP = "bash prepare.sh PARAMS MODE --env-only"
SET_UP_BRINGS = ("tipchain", "tipchain[cases]", "tipchain[onnx]")
"""What the set-up installs besides the frameworks (``tools/environment.sh``)."""

TORCH_PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({
    "version": torch.__version__,
    "build": f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU",
    "devices": ["cpu"] + [f"gpu:{i} {torch.cuda.get_device_name(i)}" for i in range(count)],
    "threads": torch.get_num_threads(),
    "checked": float(torch.nn.Linear(2, 1)(torch.ones(1, 2)).isfinite().all()),
}))
"""
PADDLE_PROBE = """
import json, paddle
cuda = paddle.is_compiled_with_cuda()
count = paddle.device.cuda.device_count() if cuda else 0
print(json.dumps({
    "version": paddle.__version__,
    "build": f"CUDA {paddle.version.cuda()}" if cuda else "CPU",
    "devices": ["cpu"] + [f"gpu:{i} {paddle.device.cuda.get_device_name(i)}" for i in range(count)],
    "threads": None,
    "checked": float(paddle.isfinite(paddle.nn.Linear(2, 1)(paddle.ones([1, 2]))).all()),
}))
"""
PROBES = {"torch": TORCH_PROBE, "paddle": PADDLE_PROBE}
DISTRIBUTIONS = {"torch": "torch", "paddle": "paddlepaddle"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorLine:
    """One line of the doctor's report.

    Attributes:
        subject: what was looked at.
        outcome: PASS: there. FAIL: missing or unusable. SKIP: not there and not needed.
        detail: version, build, devices; or what is wrong.
        remedy: how to get what is missing.
        needed_for: what cannot be done without what is not there; "" where nothing needs it.
    """

    subject: str
    outcome: Outcome
    detail: str
    remedy: str = ""
    needed_for: str = ""


def check_python() -> DoctorLine:
    """Look at the Python that runs this."""
    low, high = PYTHONS
    supported = low <= sys.version_info[:2] <= high
    wanted = f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
    return DoctorLine(
        subject="python",
        outcome=Outcome.PASS if supported else Outcome.FAIL,
        detail=f"{platform.python_version()} {sys.executable}",
        remedy="" if supported else f"tipchain is tested with Python {wanted}; give one with --python",
    )


def check_packages() -> list[DoctorLine]:
    """Look at the packages that the engine and the shipped cases need; none is imported."""
    return [_check_package(name, extra) for name, extra in (PACKAGES | OPTIONAL_PACKAGES).items()]


def check_threads() -> DoctorLine:
    """Say how many threads computations may use: results differ by rounding between counts."""
    allowed = core_count()
    settings = [f"{name}={os.environ.get(name, 'unset')}" for name in THREAD_VARIABLES]
    detail = f"{allowed} of {os.cpu_count()} cores usable, {', '.join(settings)}"
    return DoctorLine(subject="threads", outcome=Outcome.PASS, detail=detail)


def check_framework(name: str, timeout_s: float = PROBE_TIMEOUT_S) -> DoctorLine:
    """Import ``"torch"`` or ``"paddle"`` in another process and run one layer there.

    One that is not installed is no failure: much works without it.
    """
    if find_spec(name) is None:
        return _absent(name, f'pip install {DISTRIBUTIONS[name]} (or "tipchain[cpu]"), or {SET_UP}', ALIGNING)
    try:
        done = subprocess.run(
            (sys.executable, "-c", PROBES[name]),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _unusable(name, f"did not answer within {timeout_s:g} s")
    facts = _last_json(done.stdout)
    if done.returncode or facts is None:
        return _unusable(name, _reason(done))
    threads = f", {facts['threads']} threads" if facts["threads"] else ""
    detail = f"{facts['version']}, {facts['build']} build{threads}, devices: {', '.join(facts['devices'])}"
    if not facts["checked"]:
        return _unusable(name, f"{detail}; a Linear layer does not give finite numbers")
    return DoctorLine(subject=name, outcome=Outcome.PASS, detail=detail)


def check_folder(subject: str, folder: Path, remedy: str) -> DoctorLine:
    """Say whether ``folder``, not essential, holds a manifest."""
    if (folder / "manifest.json").is_file():
        return DoctorLine(subject=subject, outcome=Outcome.PASS, detail=str(folder))
    return DoctorLine(subject=subject, outcome=Outcome.SKIP, detail="not there yet", remedy=remedy)


def _check_package(name: str, extra: str) -> DoctorLine:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        remedy = f'pip install "{extra}"' + (f", or {SET_UP}" if extra in SET_UP_BRINGS else "")
        found = _absent(name, remedy, CASES if extra == "tipchain[cases]" else "")
        broken = extra == "tipchain" and name in PACKAGES
        return replace(found, outcome=Outcome.FAIL) if broken else found
    return DoctorLine(subject=name, outcome=Outcome.PASS, detail=version)


def _absent(name: str, remedy: str, needed_for: str) -> DoctorLine:
    return DoctorLine(subject=name, outcome=Outcome.SKIP, detail="not installed", remedy=remedy, needed_for=needed_for)


def _unusable(name: str, detail: str) -> DoctorLine:
    remedy = f'pip install {DISTRIBUTIONS[name]} (or "tipchain[cpu]"), or {SET_UP}'
    return DoctorLine(subject=name, outcome=Outcome.FAIL, detail=detail, remedy=remedy)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"crashed: {signal.Signals(-done.returncode).name}"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"gave no answer, exit code {done.returncode}"


def _last_json(text: str) -> dict[str, Json] | None:
    # Frameworks print lines of their own now and then; the answer is the last line.
    lines = [line for line in text.splitlines() if line.startswith("{")]
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def installed_versions() -> dict[str, str]:
    """Return the installed versions of the frameworks and numpy, without importing them."""
    distributions = {"torch": ("torch",), "paddle": ("paddlepaddle", "paddlepaddle-gpu"), "numpy": ("numpy",)}
    found = {name: _first_version(names) for name, names in distributions.items()}
    return {name: version for name, version in found.items() if version}


def _first_version(distributions: tuple[str, ...]) -> str:
    for name in distributions:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""
