"""Which cores a process may use: its affinity's, no more than its control groups allow; and processes that it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from chain_samples import living
from programs import await_

from tipchain.core import machine


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Return a folder of control groups, on a machine of eight cores of which one may not be used."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {7, 1, 2, 3, 4, 5, 6})
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_control_groups_the_affinity_counts(groups):
    assert machine.usable_cores() == (1, 2, 3, 4, 5, 6, 7)
    assert machine.core_count() == 7


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "250000 100000\n", "cpu.max": "max 1\n"}, 2),
        ("0::/a/b\n", {"a/b/cpu.max": "300000 100000\n", "a/cpu.max": "max 100000\n"}, 3),
        ("0::/not/seen/from/inside\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 7),
        ("0::/a\n", {"a/cpu.max": "nonsense"}, 7),
        ("3:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2),
        ("3:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 7),
        (
            "3:cpu,cpuacct:/a\n2:memory:/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            3,
        ),
        ("3:cpuset:/a\n", {"cpuset/a/cpu.max": "100000 100000\n"}, 7),
    ],
)
def test_the_least_quota_of_all_groups_above_counts(groups, own, files, count):
    (groups / "own").write_text(own)
    for name, text in files.items():
        write(groups / "cgroup" / name, text)
    assert machine.core_count() == count
    assert machine.usable_cores() == (1, 2, 3, 4, 5, 6, 7)[:count]


APART = """
import os, sys, threading, time
from pathlib import Path
from tipchain.core.machine import start_process
log, threads = Path(sys.argv[1]), sys.argv[2] == "threads"

def tell(word):
    print(word, os.getppid(), "was imported" if "fractions" in sys.modules else "was not", flush=True)
    os.write(2, b"and so are descriptors\\n")
    raise SystemExit(7)

def wait():
    log.with_suffix(".pid").write_text(str(os.getpid()))
    time.sleep(60)

if __name__ == "__main__":
    import fractions
    ended = threading.Event()
    if threads:
        threading.Thread(target=ended.wait).start()
    process = start_process(tell, "printed by a child of", log=log)
    process.join()
    print(os.getpid(), process.exitcode)
    start_process(wait, log=log)
    while not (log.with_suffix(".pid").exists() and log.with_suffix(".pid").read_text()):
        time.sleep(0.01)
    sys.stdout.flush()
    os._exit(0)
"""


@pytest.mark.parametrize(("threads", "imported"), [("none", "was imported"), ("threads", "was not")])
def test_a_process_is_a_copy_of_one_without_threads_and_ends_with_it(tmp_path, threads, imported):
    script, log = tmp_path / "apart.py", tmp_path / "log.txt"
    script.write_text(APART)
    log.write_text("before\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script, log, threads], capture_output=True, text=True, check=True, env=env)
    parent, code = done.stdout.split()
    assert code == "7"
    assert log.read_text() == f"before\nprinted by a child of {parent} {imported}\nand so are descriptors\n"
    await_(lambda: not living(tmp_path / "log.pid"))
