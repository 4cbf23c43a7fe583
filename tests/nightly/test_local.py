"""Items as processes of this machine: slots that all nights share, memory, GPUs, isolation, endings."""

import os
import subprocess
import sys
import time
from datetime import datetime, timedelta

import pytest
from night_samples import item
from stub_nights import begin, command, local, work_of, write_manifest

from tipchain.chain import gpus as machine_gpus
from tipchain.chain.gpus import Gpus, Leases
from tipchain.errors import Outcome
from tipchain.nightly import origin
from tipchain.nightly.executor import Ports, environment
from tipchain.nightly.items import Needs


def drain(executor, count=1, seconds=20.0):
    """Return what ends, by id."""
    found, end = {}, time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found.update({one.id: one for one in executor.wait(0.2)})
    return found


def hold(name, **needs):
    return command(name, "while [ ! -e go ]; do sleep 0.02; done", needs=Needs(**needs))


def starts(tmp_path, executor, *items):
    """Return what each item waits for; those that start run until the file ``go`` is there."""
    night, _ = begin(tmp_path, *items)
    said = [executor.start(work_of(night, one)) for one in items]
    (tmp_path / "go").touch()
    assert len(drain(executor, said.count(""))) == said.count("")
    executor.close()
    return said


def test_slots(tmp_path):
    items = [hold("a", cpus=2), hold("b", cpus=2), hold("c"), hold("d")]
    said = starts(tmp_path, local(tmp_path, 3), *items)
    assert said == ["", "2 of 3 CPU slots", "", "1 of 3 CPU slots"]


def test_memory_that_was_promised_is_not_promised_again(tmp_path):
    items = [hold(name, memory_mb=600) for name in "abc"]
    said = starts(tmp_path, local(tmp_path, 3, memory=lambda: (2000.0, 1500.0)), *items)
    assert said[:2] == ["", ""]
    assert said[2].startswith("600 MiB of memory, 3")


def test_an_item_that_no_memory_is_enough_for_runs_when_nothing_else_does(tmp_path):
    items = [hold("a", memory_mb=9000), hold("b", memory_mb=1)]
    said = starts(tmp_path, local(tmp_path, 2, memory=lambda: (2000.0, 1000.0)), *items)
    assert said == ["", "1 MiB of memory, 0 are free"]


def test_what_an_item_took_already_is_not_kept_for_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tipchain.nightly.executor.resident_mb", lambda pids: dict.fromkeys(pids, 900.0))
    items = [command("a", "echo up; sleep 30", needs=Needs(memory_mb=1000)), hold("b", memory_mb=300)]
    night, _ = begin(tmp_path, *items)
    executor = local(tmp_path, 2, memory=lambda: (2000.0, 500.0))
    assert executor.start(work_of(night, items[0])) == ""
    while [one.line for one in executor.running()] != ["up"]:
        time.sleep(0.01)
    assert executor.start(work_of(night, items[1])) == ""
    executor.close()


def test_memory_of_a_process_with_its_children_is_measured():
    assert origin.resident_mb([os.getpid()])[os.getpid()] > 5
    total, free = origin.memory_mb()
    assert total >= free > 0


def test_a_containers_limit_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(f"{100 << 20}\n")
    (tmp_path / "memory.current").write_text(f"{40 << 20}\n")
    monkeypatch.setattr(origin, "CGROUP", tmp_path)
    assert origin.memory_mb() == (100.0, 60.0)
    (tmp_path / "memory.max").write_text("max\n")
    assert origin.memory_mb()[0] > 100


def test_gpus_are_leased_and_seen_by_their_item_alone(tmp_path):
    leases = Leases(tmp_path / "gpus")
    others = Leases(tmp_path / "gpus")
    assert others.take(("1",), "another night") == ""
    script = "echo gpus=$CUDA_VISIBLE_DEVICES=$TIPCHAIN_GPUS; while [ ! -e go ]; do sleep 0.02; done"
    items = [command(name, script, needs=Needs(gpus=count)) for name, count in (("a", 2), ("b", 1), ("c", 1), ("d", 0))]
    executor = local(tmp_path, 4, gpus=Gpus(numbers=("0", "1", "2")), leases=leases)
    night, _ = begin(tmp_path, *items)
    works = [work_of(night, one) for one in items]
    said = [executor.start(work) for work in works]
    assert said[0] == ""
    assert "GPU" in said[1]
    assert "held by" in said[1]
    assert said[2] == said[1]
    assert said[3] == ""
    assert not works[1].folder.exists(), "what waits has begun no attempt"
    (tmp_path / "go").touch()
    drain(executor, 2)
    assert executor.start(works[1]) == ""
    assert drain(executor).keys() == {"b[cpu]"}
    executor.close()
    assert [works[number].log.read_text() for number in (0, 1, 3)] == ["gpus=0,2=0,2\n", "gpus=0=0\n", "gpus==\n"]
    others.give_back(("1",))
    assert Leases(tmp_path / "gpus").take(("0", "1", "2"), "x") == "", "all are given back"


def test_gpus_never_leave_an_outer_setting(monkeypatch):
    gpus = Gpus(numbers=("0", "1", "2", "3"), names={"GPU-aa": "0", "GPU-bb": "3"})
    monkeypatch.setattr(origin, "find_gpus", lambda: gpus)
    for visible, allowed in {"2,1": ("2", "1"), "GPU-b": ("GPU-b",), "1,7,2": ("1",), "9": ()}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = origin.usable_gpus()
        assert found.numbers == allowed
        assert bool(found.trouble) == (not allowed)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert origin.usable_gpus() is gpus


def test_what_can_never_run_is_told(tmp_path):
    def said(gpus):
        executor = local(tmp_path, gpus=gpus)
        found = [executor.impossible(item("a", needs=Needs(gpus=count))) for count in (0, 1, 2)]
        executor.close()
        return found

    assert said(Gpus(trouble="no GPU")) == ["", "no GPU", "no GPU"]
    assert said(Gpus(numbers=("0",))) == ["", "", "needs 2 GPUs, 1 may be used here"]


def test_items_have_their_own_environment(tmp_path, monkeypatch):
    for name in ("TIPCHAIN_RUN", "TIPCHAIN_MODE", "TIPCHAIN_DATA"):
        monkeypatch.setenv(name, "outer")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setattr(machine_gpus, "DEVICES", tmp_path)
    (tmp_path / "nvidia0").touch()
    script = "env; echo > $TMPDIR/x; pwd; while [ ! -e ../go ]; do sleep 0.02; done"
    (tmp_path / "sub").mkdir()
    items = [command(name, script, cwd="sub", env={"OWN": name}) for name in "ab"]
    night, _ = begin(tmp_path, *items)
    executor, works = local(tmp_path), [work_of(night, one) for one in items]
    assert [executor.start(work) for work in works] == ["", ""]
    (tmp_path / "go").touch()
    drain(executor, 2)
    executor.close()
    seen = []
    for work in works:
        lines = work.log.read_text().splitlines()
        seen.append(dict(line.split("=", 1) for line in lines if "=" in line))
        assert lines[-1] == str(tmp_path / "sub")
    first, second = seen
    assert [one["OWN"] for one in seen] == ["a", "b"]
    assert first["HOME"] == os.environ["HOME"]
    assert first["CUDA_VISIBLE_DEVICES"] == ""
    assert not {"TIPCHAIN_RUN", "TIPCHAIN_MODE", "TIPCHAIN_DATA"} & first.keys()
    for name in ("TMPDIR", "MASTER_PORT", "PADDLE_PORT", "PORT_RANGE"):
        assert first[name] != second[name], name
    assert all(len(one["TMPDIR"]) <= 60 for one in seen)
    assert not any(os.path.lexists(one["TMPDIR"]) for one in seen), "nothing is left"


def test_gpus_are_hidden_where_there_are_any_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(machine_gpus, "DEVICES", tmp_path)
    found = [environment(item("a"), tmp_path, tmp=tmp_path, port=1)]
    (tmp_path / "nvidia0").touch()
    found.append(environment(item("a"), tmp_path, tmp=tmp_path, port=1))
    found.append(environment(item("a"), tmp_path, tmp=tmp_path, port=1, gpus=("3",)))
    assert [one.get("CUDA_VISIBLE_DEVICES") for one in found] == [None, "", "3"]


def test_ports_are_had_by_one_item_at_a_time(tmp_path):
    one, other = Ports(tmp_path), Ports(tmp_path)
    taken = [ports.take("x") for ports in (one, other, one, other)]
    assert len(set(taken)) == 4
    assert all(20000 <= port < 32768 for port in taken)
    one.give_back(taken[0])
    one.give_back(taken[2])


def test_endings(tmp_path):
    items = [
        command("good", "exit 0"),
        command("bad", "exit 3"),
        command("killed", "kill -SEGV $$"),
        command("none", argv=("/no/such/program",)),
        command("nowhere", cwd="none"),
        command("hang", "sleep 300", timeout_s=0.5),
    ]
    executor = local(tmp_path, 6)
    night, _ = begin(tmp_path, *items)
    assert [executor.start(work_of(night, one)) for one in items] == [""] * 6
    ended = drain(executor, 6)
    executor.close()
    assert [ended[f"{name}[cpu]"].exit_code for name in ("good", "bad", "killed")] == [0, 3, None]
    assert ended["killed[cpu]"].signal == 11
    assert ended["none[cpu]"].failure == "/no/such/program: command not found (`--python` names another)"
    assert ended["nowhere[cpu]"].failure == f"the working folder {tmp_path}/none is missing"
    assert ended["hang[cpu]"].timed_out
    assert ended["hang[cpu]"].seconds >= 0.5
    good = ended["good[cpu]"]
    assert good.machine
    assert good.peak_memory_mb > 0
    assert abs(datetime.fromisoformat(good.started) - datetime.now().astimezone()) < timedelta(minutes=1)


def test_stopping_ends_everything(tmp_path):
    items = [command(f"s{number}", "sleep 300") for number in range(4)]
    executor = local(tmp_path, 4)
    night, _ = begin(tmp_path, *items)
    assert [executor.start(work_of(night, one)) for one in items] == [""] * 4
    executor.stop()
    ended = drain(executor, 4)
    executor.close()
    assert all(one.interrupted for one in ended.values())
    assert len(ended) == 4
    assert not list(executor.running())
    assert Outcome.PASS not in {one.exit_code for one in ended.values()}


TAKES = 'echo "$(date +%s%N) $0 +" >> ../log; sleep 0.15; echo "$(date +%s%N) $0 -" >> ../log'


@pytest.fixture
def machine(monkeypatch):
    """Make this a machine of two cores."""
    monkeypatch.setattr("tipchain.nightly.executor.usable_cores", lambda: (0, 1))


def started(folder, executor, name, cpus):
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
            for number, cpus in enumerate((1, 2, 64, 1))
        ]
        write_manifest(tmp_path / name, defaults={"timeout": "60s"}, commands=commands)
        nights.append(night(tmp_path / name, tmp_path / "tmp"))
    outputs = [one.communicate(timeout=120)[0] for one in nights]
    assert [one.returncode for one in nights] == [0, 0, 0], outputs
    assert peak(tmp_path / "log") == 2
