"""The executor of a cluster with drivers that are not Ray's: ones that are stopped, killed, loud, or short of nodes."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time

import pytest
from stub_nights import begin, command, run_night, work_of

from tipchain.errors import MissingFrameworkError, Outcome, UsageError
from tipchain.nightly.cluster.executor import RayExecutor
from tipchain.nightly.cluster.node import ClusterSettings
from tipchain.nightly.items import Needs

HEAD = """\
import os, pathlib, signal, sys, time
from dataclasses import replace
from multiprocessing.connection import Connection
from tipchain.nightly.cluster.node import *
from tipchain.nightly.executor import Ended

hear = Connection(int(sys.argv[1]))
settings = hear.recv()

def node(cpus=1.0, **more):
    return ClusterNode(**{"gpus": 0.0, "memory_mb": 1000.0, "cpus": cpus, **more})

def say(*messages):
    for message in messages:
        hear.send(message)

def end(start, **more):
    work = start.work
    say(Ended(**{"id": work.item.id, "attempt": work.attempt, "exit_code": 0, "machine": "stub", **more}))

"""
WAITS = "try:\n    while True:\n        message = hear.recv()\nexcept EOFError:\n    pass\n"


@pytest.fixture
def executor(tmp_path):
    """Return what makes an executor from the lines of its driver; all are closed."""
    made = []

    def make(script, **more):
        path = tmp_path / f"driver{len(made)}.py"
        path.write_text(f"{HEAD}{textwrap.dedent(script)}\n{WAITS}")
        settings = ClusterSettings(address="here:1", root=tmp_path)
        made.append(RayExecutor(settings, program=(sys.executable, str(path)), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pid_of(executor):
    return executor._link._driver.pid


def collect(executor, count, seconds=20.0):
    found, end = [], time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count}"
        found += executor.wait(0.1)
    return found


def test_both_ends_may_say_much_at_once(tmp_path, executor):
    """Neither reads before it has said all: more than their socket holds."""
    made = executor(
        """
        say(Nodes(nodes=(node(1000.0),)))
        first = hear.recv()
        say(*(OutputLine(id=first.work.item.id, text="x" * 1000) for _ in range(1000)))
        pathlib.Path(settings.root, "said").touch()
        for start in (first, *(hear.recv() for _ in range(999))):
            end(start)
        """
    )
    works = [command(f"i{number}", env={"LONG": "y" * 300}) for number in range(1000)]
    night, _ = begin(tmp_path, *works)
    assert [made.start(work_of(night, one)) for one in works] == [""] * 1000
    assert not (tmp_path / "said").exists(), "what it says has no room until it is heard"
    ended = collect(made, 1000)
    assert {one.id for one in ended} == {one.id for one in works}
    assert len(ended) == 1000


def test_a_stopped_driver_holds_nothing_up_for_ever(tmp_path, executor):
    made = executor("say(Nodes(nodes=(node(),)))", stop_s=(60.0, 0.5))
    one = command("a")
    night, _ = begin(tmp_path, one)
    assert made.start(work_of(night, one)) == ""
    os.kill(pid_of(made), signal.SIGSTOP)
    assert made.wait(0.1) == []
    made.stop()
    assert made.wait(0.3) == [], "it has its time"
    made.stop()
    (ended,) = collect(made, 1, 5.0)
    assert ended.interrupted
    assert made.trouble == "", "that is how it was asked to end"


def test_a_driver_that_is_killed_in_the_middle_of_a_word(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=(node(),)))
        hear.recv()
        os.write(hear.fileno(), (1000).to_bytes(4, "big") + b"half")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    night, result, view = run_night(tmp_path, command("a"), executor=made)
    assert result.problem == "here:1: Ray's driver was killed by SIGKILL"
    assert (result.left, list(night.records())) == (1, [])
    assert view.lines == ["nothing more is started: here:1: Ray's driver was killed by SIGKILL"]
    made.close()  # once more than the coordinator did


def test_a_driver_that_fails_says_why(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=(node(),)))
        hear.recv()
        raise RuntimeError("the head is gone")
        """
    )
    _, result, _ = run_night(tmp_path, command("a"), executor=made)
    assert result.problem == "here:1: the Ray cluster is gone: RuntimeError: the head is gone"


def test_an_item_asks_for_no_more_than_one_node_has(tmp_path, executor):
    """Of no two nodes together: one has the CPUs, the other the memory."""
    made = executor(
        """
        say(Nodes(nodes=(node(8.0, memory_mb=1000.0), node(2.0, memory_mb=9000.0))))
        start = hear.recv()
        end(start, failure=f"{start.cpus} {start.memory_mb}")
        """
    )
    one = command("a", needs=Needs(cpus=16, memory_mb=5000))
    night, _ = begin(tmp_path, one)
    assert made.start(work_of(night, one)) == ""
    (ended,) = collect(made, 1)
    assert ended.failure == "8 1000"


def test_what_asked_for_a_node_that_is_gone_asks_for_less(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=(node(8.0), node(2.0))))
        start = hear.recv()
        assert start.cpus == 8
        say(Nodes(nodes=(node(2.0),)))
        assert hear.recv() == Cancel(ids=(start.work.item.id,))
        end(start, interrupted=True)
        again = hear.recv()
        end(again, exit_code=again.cpus)
        """,
        patience_s=0.3,
    )
    night, result, view = run_night(tmp_path, command("a", needs=Needs(cpus=8)), executor=made)
    (record,) = night.records()
    assert (record.exit_code, record.attempt) == (2, 2)
    assert view.lines == ["a[cpu] runs again: no node is left with what it asked for, it takes less"]
    assert result.left == 0


def test_a_cluster_whose_first_node_comes_later(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=()))
        start = hear.recv()
        say(Nodes(nodes=(node(),)), Begun(id=start.work.item.id, machine="stub"))
        end(start)
        """
    )
    night, result, _ = run_night(tmp_path, command("a"), executor=made)
    assert [record.outcome for record in night.records()] == [Outcome.PASS]
    assert result.left == 0


def test_a_cluster_that_stays_without_nodes(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=()))
        start, cancel = hear.recv(), hear.recv()
        end(start, interrupted=True)
        """,
        patience_s=0.3,
    )
    night, result, _ = run_night(tmp_path, command("a"), executor=made)
    assert result.problem == "here:1: the Ray cluster has no node left that runs anything"
    assert list(night.records()) == []


def test_in_trouble_what_runs_ends_and_what_waits_does_not_begin(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=(node(),)))
        runs, waits = hear.recv(), hear.recv()
        say(Begun(id=runs.work.item.id, machine="stub"), ClusterTrouble(reason="no room"))
        assert hear.recv() == Cancel(ids=(waits.work.item.id,))
        end(waits, interrupted=True)
        end(runs)
        """
    )
    night, result, _ = run_night(tmp_path, command("a"), command("b"), executor=made)
    assert [(record.id, record.outcome) for record in night.records()] == [("a[cpu]", Outcome.PASS)]
    assert (result.problem, result.left) == ("no room", 1)


def test_what_ended_twice_counts_once(tmp_path, executor):
    made = executor(
        """
        say(Nodes(nodes=(node(),)))
        start = hear.recv()
        end(start, attempt=0)
        end(start)
        end(start, exit_code=1)
        end(start, id="another")
        """
    )
    one = command("a")
    night, _ = begin(tmp_path, one)
    assert made.start(work_of(night, one)) == ""
    (ended,) = collect(made, 1)
    assert ended.exit_code == 0
    assert made.wait(0.3) == []


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("raise SystemExit(3)", UsageError, "the Ray cluster at here:1: Ray's driver ended: exit code 3"),
        ("say(ClusterTrouble(reason='it will not have it'))", UsageError, "it will not have it"),
        ("import no_such_ray", MissingFrameworkError, "--executor ray needs Ray, which is not installed here: "),
    ],
)
def test_a_driver_that_cannot_begin(executor, script, error, said):
    with pytest.raises(error) as caught:
        executor(script)
    assert str(caught.value).startswith(said)
