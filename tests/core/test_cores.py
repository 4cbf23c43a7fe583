"""Which cores a process may use: its affinity's, no more than its control groups allow."""

from __future__ import annotations

import pytest

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
