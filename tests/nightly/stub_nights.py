"""Nights of stub commands, run in this process or by the command line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import forking
import yaml
from night_samples import item
from programs import completed

from tipchain.chain.gpus import Leases
from tipchain.nightly.coordinator import Coordinator
from tipchain.nightly.executor import LocalExecutor, Ports, Work
from tipchain.nightly.items import NightPlan
from tipchain.nightly.nights import begin_night, item_folder


class Quiet:
    """A view that keeps what it is told."""

    def __init__(self):
        self.lines, self.starts, self.ends, self.states = [], [], [], []

    def started(self, item, attempt):
        self.starts.append((item.id, attempt))

    def ended(self, record):
        self.ends.append(record.id)

    def said(self, text):
        self.lines.append(text)

    def tick(self, state):
        self.states.append(state())


def command(name: str, script: str = "true", **more: Any):
    values = {"kind": "command", "argv": ("/bin/sh", "-c", script), "id": f"{name}[cpu]", "mode": "", "source": ""}
    return item(name, **{**values, "timeout_s": 30.0, **more})


def plan_of(folder: Path, *items):
    return NightPlan(name="suite", root=str(folder), manifest="suite.yaml", sha256="", items=items)


def begin(folder: Path, *items):
    """Return a night that is held by this process, and its lock."""
    return begin_night(plan_of(folder, *items), folder / "nights", options={}, environment={})


def local(folder: Path, jobs: int | None = 2, **more: Any) -> LocalExecutor:
    own = {"cpus": Leases(folder / "leases/cpus"), "ports": Ports(folder / "leases")}
    return LocalExecutor(jobs, **{**own, "grace_s": (0.3, 0.3, 5.0), **more})


def run_night(folder: Path, *items, executor=None, night=None, **more: Any):
    """Run items; return the night, who ran it, and the view."""
    night = night or begin(folder, *items)[0]
    view = Quiet()
    coordinator = Coordinator(night, executor or local(folder), view, **more)
    coordinator.run()
    return night, coordinator, view


def work_of(night, one) -> Work:
    folder = item_folder(night.folder, one.id) / "attempt-1"
    return Work(item=one, attempt=1, folder=folder, root=Path(night.plan.root))


def write_manifest(folder: Path, **keys: Any) -> Path:
    (folder / "test_tipc").mkdir(exist_ok=True)
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


def start(folder: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    """Start ``tipchain nightly`` in a folder; what it says is read from its standard output."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **more}
    return subprocess.Popen([sys.executable, "-m", "tipchain", "nightly", *words], cwd=folder, **given)


def tipchain(*words: object, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "tipchain", "nightly", *map(str, words)]
    more = {"env": forking.environment(), **more}
    return completed(argv, cwd=cwd, timeout=120, **more)
