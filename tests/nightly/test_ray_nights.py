"""Nights on a real Ray cluster of several nodes: the same results as on this machine, whatever is killed meanwhile."""

import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed")

import psutil
from chain_samples import PROGRAM, TEMPLATE, lay_params, lay_programs
from programs import await_
from ray_cluster import RayCluster, free_port
from stub_nights import begin, command, run_night, start, tipchain, write_manifest

from tipchain.errors import Outcome, UsageError
from tipchain.nightly.cluster import RayExecutor, cluster_address, run_item
from tipchain.nightly.items import Needs
from tipchain.nightly.nights import nights_below, read_night
from tipchain.report.model import RunReport, report_json

NODES = 2
"""Besides the head."""
PASSED = {**report_json(RunReport()), "exit_code": 0}
WITH_REPORT = f"import json, sys; json.dump({PASSED}, open(sys.argv[1], 'w'))"
DUMP = "import os, sys; os.makedirs(f'{sys.argv[1]}/work'); open(f'{sys.argv[1]}/work/a.npy', 'wb').write(bytes(range(256)) * 40000)"


@pytest.fixture(scope="module")
def cluster():
    found = RayCluster(NODES, {"slot": 1})
    yield found
    found.close()


@pytest.fixture
def executor(cluster, monkeypatch):
    """An executor in this process, that gives up soon."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    found = RayExecutor(patience_s=1.0)
    yield found
    found.close()


def write_suite(folder: Path) -> None:
    """Write a project with a chain and commands that end in all ways that there are."""
    lay_params(folder, TEMPLATE)
    lay_programs(folder, PROGRAM)
    shell = ["/bin/sh", "-c"]
    commands = [
        {"id": "pass", "argv": [*shell, "pwd; echo fine"], "repeats": 3},
        {"id": "fail", "argv": [*shell, "echo worse; exit 1"]},
        {"id": "skip", "argv": [*shell, "exit 4"]},
        {"id": "killed", "argv": [*shell, "kill -SEGV $$"]},
        {"id": "slow", "argv": [*shell, "sleep 60"], "timeout": "1s"},
        {"id": "absent", "argv": ["no-such-program"]},
        {"id": "report", "argv": ["{python}", "-c", WITH_REPORT, "{report}"]},
        {"id": "without", "argv": ["true", "{report}"]},
        {"id": "dump", "argv": ["{python}", "-c", DUMP, "{folder}"]},
        {"id": "wide", "argv": ["true"], "cpus": 64, "memory": "4TiB"},
        {
            "id": "env",
            "argv": [
                *shell,
                "env | sort | grep -v -e THREADS -e PYTHON -e TMPDIR -e PORT -e TIPCHAIN_COMMAND -e PYTEST -e PS1 -e PWD= -e ^_= > {folder}/env",
            ],
        },
    ]
    chains = [{"params": "test_tipc/configs/*/train_infer_python.txt", "modes": ["lite_train_lite_infer"], "cpus": 2}]
    write_manifest(folder, chains=chains, commands=commands)


def latest(folder: Path):
    return read_night(nights_below(folder / "tipchain-nights/suite")[0])


def recorded(folder: Path):
    return list(latest(folder).records()) if nights_below(folder / "tipchain-nights/suite") else []


def results(folder: Path) -> dict[str, object]:
    """Return what records say, without what may differ from run to run."""
    same = ("outcome", "exit_code", "signal", "reason", "attempt", "log", "report", "machine")
    return {record.id: tuple(getattr(record, name) for name in same) for record in latest(folder).records()}


def dumps(folder: Path) -> dict[str, list[bytes]]:
    """Return the lines of what attempts left in their folders."""
    night = latest(folder).folder
    return {
        path.relative_to(night).as_posix(): path.read_bytes().splitlines()
        for path in night.glob("items/*/attempt-1/**/*")
        if path.is_file() and path.name in ("a.npy", "env")
    }


def processes(word: str) -> list[int]:
    """Return the living processes that have a word in their command line."""
    others = (one for one in psutil.process_iter(["cmdline"]) if one.pid != os.getpid())
    return [one.pid for one in others if word in " ".join(one.info["cmdline"] or ())]


def ran(folder: Path) -> dict[str, int]:
    """Return how often each item of `write_waiting` ran to its end."""
    return {path.stem: path.read_text().count("done") for path in folder.glob("*.ran")}


def write_waiting(folder: Path, count: int, seconds: float, *, held: bool = False) -> None:
    """Write a manifest of items that wait, and write down that they begin and end; those that are held wait for a file ``go``."""
    until = "until [ -e go ]; do sleep 0.1; done; " if held else ""
    script = f'echo begun $$ >> "$0.ran"; {until}sleep {seconds}; echo done >> "$0.ran"'
    commands = [{"id": f"i{n}", "argv": ["/bin/sh", "-c", script, f"i{n}"]} for n in range(count)]
    write_manifest(folder, commands=commands)


def test_a_killed_coordinator_takes_its_items_with_it_and_the_rest_runs_later(tmp_path, cluster):
    write_waiting(tmp_path, 3, 0.5)
    process = start(tmp_path, "run", "suite.yaml", "--executor", "ray", env=cluster.here)
    await_(lambda: sum(ran(tmp_path).values()) >= 1)
    process.kill()
    process.communicate()
    before = {record.id: record for record in latest(tmp_path).records()}
    await_(lambda: not processes(".ran"))
    done = ran(tmp_path)
    resumed = tipchain("resume", "suite.yaml", cwd=tmp_path, env=cluster.here)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    records = {record.id: record for record in latest(tmp_path).records()}
    assert len(records) == 3
    assert {record.executor for record in records.values()} == {"ray"}, "as it began"
    assert before.items() <= records.items()
    for name in before:
        assert ran(tmp_path)[name.removesuffix("[cpu]")] == done[name.removesuffix("[cpu]")]


def test_an_interrupt_ends_items_on_their_nodes(tmp_path, cluster):
    script = "trap 'echo asked > asked; exit' INT; echo > begun; while :; do sleep 0.1; done"
    write_manifest(tmp_path, commands=[{"id": "a", "argv": ["/bin/sh", "-c", script]}])
    process = start(tmp_path, "run", "suite.yaml", "--executor", "ray", env=cluster.here)
    await_((tmp_path / "begun").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.communicate()
    assert (tmp_path / "asked").exists(), "it had time to end well"
    assert not processes("asked > asked")
    assert list(latest(tmp_path).records()) == []


def test_results_are_those_of_this_machine(tmp_path, cluster):
    write_suite(tmp_path)
    # This process may have other variables by now: imports set some.
    nodes = {name: value for name, value in cluster.environment.items() if not name.startswith("RAY_")}
    here = tipchain("run", "suite.yaml", cwd=tmp_path, env=nodes)
    expected, left = results(tmp_path), dumps(tmp_path)
    assert {one[0] for one in expected.values()} == set(Outcome)
    assert expected["net[lite_train_lite_infer;cpu]"][0] is Outcome.PASS
    assert len(left) == 2
    words = ("--executor", "ray")
    there = tipchain("run", "suite.yaml", *words, cwd=tmp_path, env={**nodes, "RAY_ADDRESS": cluster.address})
    assert there.returncode == here.returncode == 1, there.stderr
    assert results(tmp_path) == expected
    assert dumps(tmp_path) == left
    assert {record.executor for record in latest(tmp_path).records()} == {"ray"}
    log = next(latest(tmp_path).folder.glob("items/pass-cpu-*/attempt-1/output.log")).read_text()
    assert log.splitlines() == [str(tmp_path), "fine"]
    assert latest(tmp_path).options == {"executor": "ray"}


def test_every_item_ends_once_when_a_node_is_killed(tmp_path, cluster):
    write_waiting(tmp_path, 4, 0.2, held=True)  # however long a kill takes, what it meets has not ended
    process = start(tmp_path, "run", "suite.yaml", "--executor", "ray", env=cluster.here)
    await_(lambda: len(list(tmp_path.glob("*.ran"))) >= NODES)
    cluster.kill(1)
    (tmp_path / "go").touch()
    out = process.communicate(timeout=90)[0]
    cluster.add()
    assert process.returncode == 0, out
    night = latest(tmp_path)
    assert night.finished
    records = list(night.records())
    assert [(record.id, record.outcome) for record in records] == [(f"i{n}[cpu]", Outcome.PASS) for n in range(4)]
    (again,) = [record for record in records if record.attempt > 1]  # one node, one item at a time
    assert again.log.endswith("/attempt-2/output.log")
    assert "the task will be retried" in out, "Ray says so"
    assert ran(tmp_path) == {f"i{n}": 1 for n in range(4)}, "what its node took down with it did not go on alone"


@pytest.mark.nightly
def test_what_a_cluster_never_had_and_what_it_has_no_more(tmp_path, cluster, executor):
    never = command("never", needs=Needs(resources={"tpu": 1.0}))
    odd = command("odd", needs=Needs(resources={"slot": 0.00001}))
    gone = command("gone", needs=Needs(resources={"precious": 1.0}))
    cluster.add(precious=1.0)
    night, _ = begin(tmp_path, never, odd, gone, command("fine"))
    await_(lambda: not executor.wait(0.2) and executor.impossible(gone) == "")
    cluster.kill(-1)
    await_(lambda: not executor.wait(0.2) and executor.slots == NODES)
    _, result, _ = run_night(tmp_path, executor=executor, night=night)
    found = {record.id: (record.outcome, record.reason) for record in night.records()}
    assert found["never[cpu]"] == (Outcome.SKIP, "needs tpu: 1, no node of the Ray cluster has that")
    assert found["gone[cpu]"] == (Outcome.ERROR, "needs precious: 1, no node of the Ray cluster has that any more")
    outcome, reason = found["odd[cpu]"]
    assert outcome is Outcome.ERROR
    assert reason.startswith("Ray does not take it: ValueError: "), "its least is 0.0001"
    assert found["fine[cpu]"] == (Outcome.PASS, "")
    assert result.left == 0


@pytest.mark.nightly
def test_a_worker_that_is_killed_is_tried_again_a_few_times(tmp_path, executor):
    climb = "p=$PPID; while tr '\\0' ' ' < /proc/$p/cmdline | grep -q warden; do p=$(sed 's/.*) //' /proc/$p/stat | cut -d' ' -f2); done"
    killer = command("killer", f"{climb}; kill -KILL $p; sleep 60", timeout_s=60.0)
    night, result, _ = run_night(tmp_path, killer, executor=executor)
    (record,) = night.records()
    assert record.outcome is Outcome.ERROR
    assert record.attempt == 4
    assert record.reason.startswith("lost after 4 attempts: WorkerCrashedError: ")
    assert result.left == 0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("task", "said"),
    [
        (lambda _, *given: run_item("0.0", *given), "0.0 on the coordinator's machine"),
        (lambda *given: run_item(*given[:-1], Path("/nowhere")), "the night's folder is not to be seen on"),
        (lambda *_: Path("/dev/full").write_text("x"), "No space left on device"),
    ],
)
def test_a_node_that_can_run_nothing_spoils_no_item(tmp_path, executor, task, said):
    executor._run = executor.ray.remote(task)
    night, result, _ = run_night(tmp_path, command("a"), command("b"), executor=executor)
    assert result.left == 2
    assert said in result.problem
    assert list(night.records()) == []


def test_the_end_of_a_cluster_ends_the_night_which_goes_on_elsewhere(tmp_path, cluster):
    """The last test of this cluster: it is gone after it."""
    wait = 'while [ "$0" = i1 -a ! -e go ]; do sleep 0.1; done; echo done >> "$0.ran"'
    commands = [{"id": f"i{n}", "argv": ["/bin/sh", "-c", wait, f"i{n}"]} for n in range(3)]
    write_manifest(tmp_path, commands=commands)
    process = start(tmp_path, "run", "suite.yaml", "--executor", "ray", env=cluster.here)
    await_(lambda: len(recorded(tmp_path)) == 2)
    cluster.kill(0)
    out = process.communicate(timeout=60)[0]
    assert process.returncode == 1, out
    await_(lambda: not processes(".ran"))  # the nodes end about when the coordinator does
    (tmp_path / "go").touch()
    resumed = tipchain("resume", "suite.yaml", "--executor", "local", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert "3 passed in " in resumed.stdout
    assert ran(tmp_path) == {"i0": 1, "i1": 1, "i2": 1}, "what had ended ran again"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "is no address of a Ray cluster"),
        ("host:99999999", "no Ray cluster is there"),
        ("ray://host:10001", "is no address of a Ray cluster"),
        ("", "no Ray cluster runs on this machine"),
    ],
)
def test_addresses_that_are_none(tmp_path, monkeypatch, address, said):
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(UsageError, match=said):
        cluster_address()


def test_what_named_an_address_is_said(tmp_path, monkeypatch):
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=f"^RAY_ADDRESS={address}: no Ray cluster is there"):
        cluster_address()
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    stale = tmp_path / "ray/ray_current_cluster"
    stale.parent.mkdir()
    stale.write_text(f"{address}\n")
    for given in ("", "auto"):
        monkeypatch.setenv("RAY_ADDRESS", given)
        with pytest.raises(UsageError, match=f"^{address}, which {stale} names: no Ray cluster is there"):
            cluster_address()


def test_words_that_do_not_fit_begin_no_night(tmp_path):
    write_manifest(tmp_path, commands=[{"id": "a", "argv": ["true"]}])
    done = tipchain("run", "suite.yaml", "--executor", "ray", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert "--jobs is for --executor local, not for ray" in done.stderr
    assert not (tmp_path / "tipchain-nights").exists()
