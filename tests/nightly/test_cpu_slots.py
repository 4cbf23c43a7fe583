"""CPU slots that all nights of a user on one machine share: real processes, killed ones too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from programs import await_
from stub_nights import begin, command, local, work_of, write_manifest

from tipchain.nightly.items import Needs

TAKES = 'echo "$(date +%s%N) $0 +" >> ../log; sleep 0.15; echo "$(date +%s%N) $0 -" >> ../log'


@pytest.fixture
def machine(monkeypatch):
    """Make this a machine of two cores."""
    monkeypatch.setattr("tipchain.nightly.executor.usable_cores", lambda: (0, 1))


def started(folder, executor, name, cpus):
    """Start an item that takes so many slots; return what it waits for."""
    one = command(name, "sleep 300", needs=Needs(cpus=cpus))
    return executor.start(work_of(begin(folder, one)[0], one))


def test_what_wants_more_than_there_is_runs_alone_on_the_machine(tmp_path, machine):
    one, other = local(tmp_path, 1), local(tmp_path, 2)
    assert started(tmp_path, one, "alone", 64) == ""
    assert started(tmp_path, one, "next", 1) == "1 of 1 CPU slots"
    assert started(tmp_path, other, "x", 1) == f"1 CPU slot, held by process {os.getpid()}"
    one.close()
    assert started(tmp_path, other, "x", 1) == ""
    other.close()


def test_more_jobs_than_cores_are_shared_by_those_who_ask_for_as_many(tmp_path, machine):
    many, few = local(tmp_path, 4), local(tmp_path, None)
    assert few.slots == 2
    assert started(tmp_path, few, "a", 2) == ""
    assert started(tmp_path, many, "b", 2) == ""
    assert "held by" in started(tmp_path, many, "c", 1)
    few.close()
    many.close()


def test_a_night_with_one_item_at_a_time_leaves_the_rest_to_others(tmp_path, machine):
    one, other = local(tmp_path, 1), local(tmp_path, 2)
    assert started(tmp_path, one, "a", 1) == ""
    assert started(tmp_path, other, "b", 1) == ""
    assert "held by" in started(tmp_path, other, "c", 1)
    one.close()
    other.close()


def night(folder, tmp, **more):
    """Begin a night by the command line on two cores, with leases of its own machine."""
    argv = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))]
    argv += [sys.executable, "-m", "tipchain", "nightly", "run", "suite.yaml"]
    return subprocess.Popen(
        argv,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(tmp)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,
    )


def peak(log):
    """Return the most slots that were taken at once."""
    events = sorted(line.split() for line in log.read_text().splitlines())
    taken, most = 0, 0
    for _, slots, sign in events:
        taken += int(slots) if sign == "+" else -int(slots)
        most = max(most, taken)
    assert taken == 0
    return most


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_three_nights_take_no_more_than_the_cores_and_all_end(tmp_path):
    (tmp_path / "tmp").mkdir()
    nights = []
    for name in "abc":
        (tmp_path / name).mkdir()
        commands = [
            {"id": f"{name}{number}", "cpus": cpus, "argv": ["/bin/sh", "-c", TAKES, str(min(cpus, 2))]}
            for number, cpus in enumerate((1, 1, 2, 1, 64, 1))
        ]
        write_manifest(tmp_path / name, defaults={"timeout": "60s"}, commands=commands)
        nights.append(night(tmp_path / name, tmp_path / "tmp"))
    outputs = [one.communicate(timeout=120)[0] for one in nights]
    assert [one.returncode for one in nights] == [0, 0, 0], outputs
    assert peak(tmp_path / "log") == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_a_night_says_that_it_waits_and_goes_on_when_the_other_is_killed(tmp_path):
    (tmp_path / "tmp").mkdir()
    for name, script in (("a", "touch ../up; sleep 300"), ("b", "echo ran > ../ran")):
        (tmp_path / name).mkdir()
        commands = [{"id": name, "cpus": 2, "argv": ["/bin/sh", "-c", script]}]
        write_manifest(tmp_path / name, defaults={"timeout": "400s"}, commands=commands)
    holder = night(tmp_path / "a", tmp_path / "tmp")
    await_((tmp_path / "up").exists)
    waiting = night(tmp_path / "b", tmp_path / "tmp")
    lines = [waiting.stdout.readline() for _ in range(3)]
    assert f"the next item waits for 2 CPU slots, held by process {holder.pid}" in lines[2]
    assert not (tmp_path / "ran").exists()
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=60)
    rest = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 0, rest
    assert (tmp_path / "ran").exists()
