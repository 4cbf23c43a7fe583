"""CPU slots that all nights of a user on one machine share: real processes, killed ones too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from stub_nights import begin, command, local, work_of, write_manifest

from tipchain.nightly.executor import CpuSlots

HOLD = """
import sys
from pathlib import Path
from tipchain.nightly.executor import CpuSlots
slots = CpuSlots(2, Path(sys.argv[1]))
print(slots.take(int(sys.argv[2]), "x"), flush=True)
sys.stdin.read()
"""
TAKES = 'echo "$(date +%s%N) $0 +" >> ../log; sleep 0.15; echo "$(date +%s%N) $0 -" >> ../log'


@pytest.fixture
def machine(monkeypatch):
    """Return the cores of a machine of two."""
    monkeypatch.setattr("tipchain.nightly.executor.usable_cores", lambda: (0, 1))
    return ("core-0", "core-1")


@contextmanager
def another_night(folder, count):
    """Let another process take slots of the two that it takes part in; yield it and what it was told."""
    argv = [sys.executable, "-c", HOLD, str(folder), str(count)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, process.stdout.readline()
        process.kill()


def test_nights_share_and_a_killed_one_lets_go_at_once(tmp_path, machine):
    slots = CpuSlots(2, tmp_path)
    with another_night(tmp_path, 1) as (process, said):
        assert said.endswith(", '')\n")
        assert slots.take(2, "big") == ((), f"2 CPU slots, held by process {process.pid}")
        one, reason = slots.take(1, "small")
        assert (len(one), reason) == (1, "")
        process.kill()
        process.wait(60)
    slots.give_back(one)
    assert slots.take(2, "big") == (machine, "")
    assert slots.full(1) == "1 of 2 CPU slots"


def test_who_waits_is_the_next_and_small_items_do_not_pass_it(tmp_path, machine):
    slots, other = CpuSlots(2, tmp_path), CpuSlots(2, tmp_path)
    first, _ = other.take(1, "first")
    assert slots.take(2, "large")[1]
    pid = os.getpid()
    assert other.take(1, "small") == ((), f"1 CPU slot: an item of another night is before it (process {pid})")
    slots.rest()  # it has asked since it rested last
    assert other.take(1, "small")[1]
    other.give_back(first)
    assert slots.take(2, "large") == (machine, "")
    assert other.take(1, "small") == ((), f"1 CPU slot, held by process {pid}")


def test_who_no_longer_asks_loses_its_turn(tmp_path, machine):
    slots, other = CpuSlots(2, tmp_path), CpuSlots(2, tmp_path)
    other.take(1, "first")
    assert slots.take(2, "large")[1]
    slots.rest()
    slots.rest()
    assert other.take(1, "small")[1] == ""


def test_a_killed_night_that_waits_keeps_nobody_waiting(tmp_path, machine):
    slots = CpuSlots(2, tmp_path)
    slots.take(1, "first")
    with another_night(tmp_path, 2) as (process, said):
        assert "held by process" in said
        assert "before it" in slots.take(1, "second")[1]
        process.kill()
        process.wait(60)
        assert slots.take(1, "second")[1] == ""


def test_what_wants_more_than_there_is_runs_alone_on_the_machine(tmp_path, machine):
    slots, other = CpuSlots(1, tmp_path), CpuSlots(2, tmp_path)
    assert slots.full(64) == ""
    assert slots.take(64, "alone") == (machine, "")
    assert other.take(1, "x")[1].startswith("1 CPU slot, held by")
    slots.give_back(machine)
    assert slots.full(1) == ""
    assert other.take(1, "x")[1] == ""


def test_more_jobs_than_cores_are_shared_by_those_who_ask_for_as_many(tmp_path, machine):
    many, few = CpuSlots(4, tmp_path), CpuSlots(None, tmp_path)
    assert few.count == 2
    assert few.take(2, "a") == (machine, "")
    assert many.take(2, "b") == (("beyond-0", "beyond-1"), "")
    assert many.take(1, "c")[1]


def test_a_night_with_one_item_at_a_time_leaves_the_rest_to_others(tmp_path, machine):
    items = [command(name, "sleep 300") for name in "abc"]
    night, _ = begin(tmp_path, *items)
    folder = tmp_path / "leases/cpus"
    one, other = local(tmp_path, 1, cpus=CpuSlots(1, folder)), local(tmp_path, 2, cpus=CpuSlots(2, folder))
    assert one.start(work_of(night, items[0])) == ""
    assert one.start(work_of(night, items[1])) == "1 of 1 CPU slots"
    assert other.start(work_of(night, items[1])) == ""
    assert other.start(work_of(night, items[2])) == f"1 CPU slot, held by process {os.getpid()}, b[cpu]"
    other.close()
    third = CpuSlots(2, folder)
    assert third.take(2, "x")[1] == f"2 CPU slots, held by process {os.getpid()}", "the turn has been given back, too"
    one.close()
    assert third.take(2, "x") == (machine, "")


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
    while not (tmp_path / "up").exists():
        time.sleep(0.02)
    waiting = night(tmp_path / "b", tmp_path / "tmp")
    lines = [waiting.stdout.readline() for _ in range(3)]
    assert f"the next item waits for 2 CPU slots, held by process {holder.pid}" in lines[2]
    assert not (tmp_path / "ran").exists()
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=60)
    rest = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 0, rest
    assert (tmp_path / "ran").exists()
