"""Items on a cluster's node, and their folders' way back; without a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from chain_samples import living
from stub_nights import begin, command, tipchain, work_of, write_manifest

from tipchain import __version__
from tipchain.errors import UsageError
from tipchain.nightly.cluster import node
from tipchain.nightly.cluster.executor import cluster_address, cluster_settings
from tipchain.nightly.cluster.node import (
    PREFIX,
    AttemptPiece,
    Begun,
    ClusterSettings,
    NodeJob,
    OutputLine,
    mover,
    pieces,
    put,
    run_item,
)
from tipchain.nightly.executor import Ended


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def job_of(tmp_path, one, *, shipped=False, made=True, **more):
    night, lock = begin(tmp_path, one)
    lock.release()
    work = work_of(night, one)
    if made:
        work.make_folder()
    settings = ClusterSettings(address="here", root=tmp_path, shipped=shipped, **more)
    return NodeJob(work=work, settings=settings)


def run(job, gpus=()):
    return list(run_item(job, gpus, "10.0.0.7"))


def test_an_item_says_that_it_begins_what_it_prints_and_how_it_ends(tmp_path):
    job = job_of(tmp_path, command("a", "echo first; sleep 1.5; echo last; exit 3"))
    first, *lines, last = run(job)
    assert first == Begun(id="a[cpu]", machine=socket.gethostname(), address="10.0.0.7")
    assert [line.text for line in lines] == ["first", "last"]
    assert all(isinstance(line, OutputLine) for line in lines)
    assert isinstance(last, Ended)
    assert (last.exit_code, last.artifacts, last.machine) == (3, {}, socket.gethostname())
    assert job.work.log.read_text() == "first\nlast\n"
    assert list((tmp_path / "tmp").glob(f"{PREFIX}*")) == []


def test_what_an_item_leaves_comes_back_when_the_project_was_shipped(tmp_path, monkeypatch):
    there = tmp_path / "node"
    there.mkdir()
    monkeypatch.chdir(there)
    script = 'pwd; echo "$1" "$DATA"; mkdir "$0/work"; echo dump > "$0/work/a"; echo away > $TMPDIR/b; touch here'
    one = command("a", env={"DATA": f"{tmp_path}/data"})
    one = replace(one, argv=("/bin/sh", "-c", script, "{folder}", f"--data={tmp_path}/data"))
    job = job_of(tmp_path, one, shipped=True, made=False)
    found = run(job)
    sent = {one.name: one.data for one in found if isinstance(one, AttemptPiece)}
    assert sent == {
        "output.log": f"{there}\n--data={there}/data {there}/data\n".encode(),
        "work/": b"",
        "work/a": b"dump\n",
    }
    assert found[-1].exit_code == 0
    assert (there / "here").exists()
    assert list((tmp_path / "tmp").glob(f"{PREFIX}*")) == []


def test_a_night_that_is_not_seen_on_a_node_is_said(tmp_path):
    (said,) = run(job_of(tmp_path, command("a"), made=False))
    assert said == (
        f"the night's folder is not to be seen on {socket.gethostname()}, a node of the Ray cluster; "
        "with --ship the project is sent there"
    )


def test_another_version_on_a_node_is_said():
    driver = pytest.importorskip("tipchain.nightly.cluster.driver", reason="Ray is not installed")
    (said,) = driver._on_node("0.0.1", b"what another version would not understand")
    assert said.endswith(f"is installed on {socket.gethostname()}, the coordinator has 0.0.1")


@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        ("tipchain", "tipchain is not installed on "),
        ("tipchain.chain.warden", "tipchain cannot be loaded (No module named 'tipchain.chain.warden')"),
    ],
)
def test_a_node_without_tipchain_says_so(tmp_path, hidden, said):
    """The task is sent as Ray does, to an interpreter that lacks something."""
    driver = pytest.importorskip("tipchain.nightly.cluster.driver", reason="Ray is not installed")
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(driver)  # as of a program's own module, which the driver is
    try:
        (tmp_path / "task").write_bytes(cloudpickle.dumps(driver._on_node))
    finally:
        cloudpickle.unregister_pickle_by_value(driver)
    script = f"""\
import sys, ray, pathlib
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
from ray import cloudpickle
print(*cloudpickle.loads(pathlib.Path("task").read_bytes())({__version__!r}, b""), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(said), done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_an_item_has_the_variables_of_its_node_without_those_of_ray(tmp_path, monkeypatch):
    for name, value in (
        ("RAY_JOB_ID", "1"),
        ("OMP_NUM_THREADS", "64"),
        ("NODES_OWN", "kept"),
        ("ASCEND_VISIBLE_DEVICES", ""),
        ("TPU_VISIBLE_CHIPS", "1"),
        ("PYTHONPATH", f"{tmp_path}{os.pathsep}/lib/more"),
    ):
        monkeypatch.setenv(name, value)
    job = job_of(tmp_path, command("a", "env"), environment={"OMP_NUM_THREADS": None, "MKL": "3"})
    run(job)
    env = dict(line.split("=", 1) for line in job.work.log.read_text().splitlines() if "=" in line)
    assert "RAY_JOB_ID" not in env
    assert "OMP_NUM_THREADS" not in env
    assert "ASCEND_VISIBLE_DEVICES" not in env, "what Ray sets for nothing"
    assert env["TPU_VISIBLE_CHIPS"] == "1", "what Ray gave it"
    assert (env["NODES_OWN"], env["MKL"], env["PYTHONPATH"]) == ("kept", "3", "/lib/more")


def test_an_item_gets_the_gpus_that_ray_gave_it(tmp_path):
    job = job_of(tmp_path, command("a", 'echo "$CUDA_VISIBLE_DEVICES"'))
    run(job, gpus=("2", "5"))
    assert job.work.log.read_text() == "2,5\n"


def test_programs_are_looked_for_where_the_coordinator_does(tmp_path):
    job = job_of(tmp_path, command("a", 'echo "$PATH"'))
    run(job)
    assert job.work.log.read_text().strip().endswith(str(Path(sys.executable).parent))
    again = tmp_path / "again"
    again.mkdir()
    job = job_of(again, command("a", 'echo "$PATH"'), own_python=True)
    run(job)
    assert job.work.log.read_text().startswith(str(Path(sys.executable).parent))


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("/data/suite", "/node"),
        ("/data/suite/a b", "/node/a b"),
        ("--data=/data/suite", "--data=/node"),
        ("/lib:/data/suite:/data/suite/lib", "/lib:/node:/node/lib"),
        ("-I/data/suite/include", "-I/node/include"),
        ("cd '/data/suite' && ls /data/suite/*", "cd '/node' && ls /node/*"),
        ("file:///data/suite/a", "file:///node/a"),
        ('{"a": "/data/suite"}', '{"a": "/node"}'),
        ("/data/suite2/a", "/data/suite2/a"),
        ("/data/suite.old", "/data/suite.old"),
        ("/mnt/data/suite/a", "/mnt/data/suite/a"),
        ("s3://data/suite/a", "s3://data/suite/a"),
    ],
)
def test_paths_of_the_project_become_those_on_the_node(text, moved):
    assert mover(Path("/data/suite"), Path("/node"))(text) == moved


def test_loud_items_take_no_memory_of_the_node(tmp_path):
    """Of ten thousand lines in a second one is kept."""
    job = job_of(tmp_path, command("a", "yes 'a line of output' | head -c 50000000"))
    tracemalloc.start()
    *_, last = run(job)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (last.exit_code, job.work.log.stat().st_size) == (0, 50_000_000)
    assert peak < 2_000_000


def test_an_interrupted_task_ends_its_item(tmp_path):
    job = job_of(tmp_path, command("a", "echo $$; sleep 300 & echo $! > child; wait"))
    stream = run_item(job, (), "")
    next(stream)
    assert isinstance(next(stream), OutputLine)
    stream.close()
    assert not living(tmp_path / "child")


def test_a_node_without_ports_is_said(tmp_path, monkeypatch):
    def take(self, holder):
        raise OSError(98, "all ports are taken")

    monkeypatch.setattr("tipchain.nightly.executor.Ports.take", take)
    *_, ended = run(job_of(tmp_path, command("a")))
    assert ended.failure == f"{socket.gethostname()}: [Errno 98] all ports are taken"


def test_what_killed_tasks_left_on_a_node_is_swept(tmp_path):
    above = tmp_path / "tmp"
    for name in ("dead", "fresh"):
        (above / f"{PREFIX}{name}").mkdir()
    (above / f"{PREFIX}dead/lock").touch()
    (above / f"{PREFIX}dead/big").touch()
    stream = run_item(job_of(tmp_path, command("a", "echo on; sleep 3")), (), "")
    next(stream)
    next(stream)
    alive = [path.name for path in above.iterdir()]
    assert f"{PREFIX}dead" not in alive
    assert f"{PREFIX}fresh" in alive, "another task is making it"
    run(job_of(tmp_path, command("b")))
    assert {*alive} <= {path.name for path in above.iterdir()}, "one that is held stays"
    stream.close()


def test_a_folder_comes_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "PIECE", 1000)
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "work/deep").mkdir(parents=True)
    (one / "work/empty").touch()
    (one / "work/deep/large").write_bytes(bytes(range(250)) * 11)
    (one / "work/even").write_bytes(bytes(2000))
    (one / "work/same").hardlink_to(one / "work/deep/large")
    (one / "work/latest").symlink_to("deep")
    (one / "work/away").symlink_to("/etc/passwd")
    (one / "work/up").symlink_to("../../../x")
    (one / "work/circle").symlink_to("circle")
    (one / "tmp").mkdir()
    (one / "tmp/left").touch()
    os.mkfifo(one / "work/pipe")
    other.mkdir()
    for piece in pieces(one):
        put(other, piece)
    found = {path.relative_to(other).as_posix() for path in other.rglob("*")}
    assert found == {"work", "work/deep", "work/empty", "work/deep/large", "work/even", "work/latest", "work/same"}
    assert (other / "work/deep/large").read_bytes() == bytes(range(250)) * 11
    assert (other / "work/even").read_bytes() == bytes(2000)
    assert (other / "work/same").samefile(other / "work/deep/large"), "one file of two names stays one"
    assert (other / "work/latest").readlink() == Path("deep")


def test_what_cannot_be_read_is_named_and_the_rest_comes_back(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    (one / "work").mkdir(parents=True)
    for name in ("a", "secret", "z"):
        (one / "work" / name).write_text(name)
    other.mkdir()
    real = Path.open

    def refused(self, *words, **more):
        if self.name == "secret":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *words, **more)

    monkeypatch.setattr(Path, "open", refused)
    for piece in pieces(one):
        put(other, piece)
    assert {path.name for path in other.rglob("*")} == {"work", "a", "z", "not-sent.txt"}
    assert (other / "not-sent.txt").read_text() == "work/secret: Permission denied\n"


@pytest.mark.parametrize(
    "piece",
    [
        AttemptPiece(name="../out", data=b"x"),
        AttemptPiece(name="/etc/out", data=b"x"),
        AttemptPiece(name="a/../../out", data=b"x"),
        AttemptPiece(name="link/out", data=b"x"),
        AttemptPiece(name="file", data=b"x", first=False),
        AttemptPiece(name="up", link="../out"),
        AttemptPiece(name="up", link="/etc"),
        AttemptPiece(name="up", same_as="../before"),
        AttemptPiece(name="up", same_as="/etc/hostname"),
    ],
)
def test_nothing_is_written_outside_an_attempts_folder(tmp_path, piece):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    (folder / "file").symlink_to(tmp_path / "out")
    with pytest.raises(ValueError, match=r"leads out of the attempt's folder|goes on in a link"):
        put(folder, piece)
    assert not (tmp_path / "out").exists()
    assert not (folder / "up").is_symlink()


def test_a_file_is_never_written_over(tmp_path):
    (tmp_path / "a").write_text("before")
    with pytest.raises(FileExistsError):
        put(tmp_path, AttemptPiece(name="a", data=b"x"))


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "is no address of a Ray cluster"),
        ("host:99999999", "no Ray cluster is there"),
        ("ray://host:10001", "is a Ray Client's address"),
        ("http://host:8265", "is a dashboard's address"),
        ("", "no Ray cluster runs on this machine"),
    ],
)
def test_addresses_that_are_none(tmp_path, monkeypatch, address, said):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(UsageError, match=said):
        cluster_settings(address, tmp_path, shipped=False, nights=tmp_path, own_python=False)


def test_what_named_an_address_is_said(tmp_path, monkeypatch):
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UsageError, match=f"^RAY_ADDRESS={address}: no Ray cluster is there"):
        cluster_address(None)
    monkeypatch.delenv("RAY_ADDRESS")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    stale = tmp_path / "ray/ray_current_cluster"
    stale.parent.mkdir()
    stale.write_text(f"{address}\n")
    for given in (None, "auto"):
        with pytest.raises(UsageError, match=f"^{address}, which {stale} names: no Ray cluster is there"):
            cluster_address(given)
    with socket.create_server(("127.0.0.1", 0)) as one:
        stale.write_text(f"127.0.0.1:{one.getsockname()[1]}")
        assert cluster_address(None) == stale.read_text()


def test_where_nothing_listens_a_night_does_not_begin(tmp_path):
    write_manifest(tmp_path, commands=[{"id": "a", "argv": ["true"]}])
    address = f"127.0.0.1:{free_port()}"
    begun = time.monotonic()
    done = tipchain("run", "suite.yaml", "--executor", "ray", "--address", address, cwd=tmp_path)
    assert done.returncode == 2
    assert f"--address {address}: no Ray cluster is there" in done.stderr
    assert time.monotonic() - begun < 60, "Ray itself would try for minutes"
    assert not (tmp_path / "tipchain-nights").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--address", "a:1"), "--address is for --executor ray, not for local"),
        (("--ship",), "--ship is for --executor ray, not for local"),
        (("--executor", "ray", "--jobs", "2"), "--jobs is for --executor local, not for ray"),
    ],
)
def test_words_that_do_not_fit_together(tmp_path, words, said):
    write_manifest(tmp_path, commands=[{"id": "a", "argv": ["true"]}])
    done = tipchain("run", "suite.yaml", *words, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True)
    assert not (tmp_path / "tipchain-nights").exists()
