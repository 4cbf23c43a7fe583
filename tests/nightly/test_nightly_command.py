"""``tipchain nightly`` from the command line."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from chain_samples import TEMPLATE
from programs import await_, completed
from stub_nights import start, tipchain, write_manifest

from tipchain.cli import main
from tipchain.errors import Outcome
from tipchain.nightly.nights import nights_below, read_night

GOOD = {"id": "good", "argv": ["/bin/true"], "tags": ["quick"]}
BAD = {"id": "bad", "argv": ["/bin/sh", "-c", "echo oh no; exit 1"]}
SLOW = {"id": "slow", "argv": ["/bin/sh", "-c", "echo working; while [ ! -e go ]; do sleep 0.02; done"]}


@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def nights(folder):
    return [read_night(one) for one in nights_below(folder / "tipchain-nights/suite")]


def nightly(*words):
    return main(["nightly", *words])


def test_plan_shows_a_table_in_80_columns(inside, capsys):
    for name in ("alexnet", "broken"):
        (inside / f"configs/{name}").mkdir(parents=True)
        (inside / f"configs/{name}/t.txt").write_text(TEMPLATE)
    (inside / "configs/broken/t.txt").write_text("nonsense\n")
    write_manifest(
        inside,
        data={"imagenet": {"path": "/no/such/folder"}},
        chains=[
            {
                "params": "configs/*/t.txt",
                "modes": ["lite_train_lite_infer", "whole_train_whole_infer"],
                "data": {"whole_train_whole_infer": "imagenet"},
                "memory": "2GiB",
                "devices": ["cpu", "gpu"],
                "cpus": 2,
            }
        ],
        commands=[GOOD],
    )
    assert nightly("plan", "suite.yaml") == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "alexnet[lite_train_lite_infer;cpu]" in out
    assert "data 'imagenet': /no/such/folder is not there" in " ".join(out.split())
    assert "9 items: 8 chains, 1 command; 6 of them do not run here (4 errors, 2 skipped)" in " ".join(out.split())
    assert not (inside / "tipchain-nights").exists()
    assert nightly("plan", "suite.yaml", "--require-data", "--only", "alexnet*") == 0
    assert "(2 errors)" in capsys.readouterr().out
    assert not (inside / "tipchain-nights").exists()


def test_plan_as_json_with_a_choice(inside, capsys):
    write_manifest(inside, commands=[GOOD, BAD])
    assert nightly("plan", "suite.yaml", "--json", "-", "--only", "tag:quick") == 0
    plan = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in plan["items"]] == ["good[cpu]"]
    assert nightly("plan", "suite.yaml", "--only", "tag:quikc") == 2
    assert "matches none of the 2 items" in capsys.readouterr().err


def test_wrong_calls(inside, capsys):
    write_manifest(inside, commands=[GOOD])
    for words, said in (
        (("run", "none.yaml"), "cannot be read"),
        (("run", "suite.yaml", "--shard", "3/2"), "is no shard"),
        (("run", "suite.yaml", "--jobs", "0"), "is not a number of slots"),
        (("run", "suite.yaml", "--last-failed"), "no night of this manifest"),
        (("status", "suite.yaml"), "no night is there yet"),
        (("resume", "suite.yaml"), "no night is there yet"),
        (("resume", "suite.yaml", "--night", "x"), "no night is called so"),
        ((), "ACTION"),
    ):
        assert nightly(*words) == 2
        assert said in capsys.readouterr().err


def test_a_night_and_its_summary(inside, capsys):
    gpu = {"id": "far", "argv": ["/bin/true"], "devices": ["gpu"], "gpus": 99}
    write_manifest(inside, commands=[GOOD, BAD, gpu])
    assert nightly("run", "suite.yaml", "--jobs", "1") == 1
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines() if "/" not in line), "but for paths"
    (night,) = nights(inside)
    record = night.record("bad[cpu]")
    assert "1 of 3 items did not pass: bad[cpu]: exit 1: oh no\n" in out
    assert f"  log   tipchain-nights/suite/{night.name}/{record.log}\n" in out
    assert (night.folder / record.log).read_text() == "oh no\n"
    assert re.search(r"^SKIP   far\[gpu\]  .*GPU", out, re.MULTILINE)
    assert re.search(r"1 passed, 1 failed, 1 skipped in [\d.]+ s, exit code 1\n$", out)
    facts = night.environment
    assert {"commit", "machine", "processor", "cores", "memory_mb", "gpus", "driver", "python"} <= facts.keys()
    assert "tipchain" in facts["versions"]
    assert night.options == {"jobs": 1}
    assert nightly("run", "suite.yaml", "--require-gpu", "--only", "far*") == 1
    assert "ERROR" in capsys.readouterr().out


def test_last_failed(inside, capsys):
    write_manifest(inside, commands=[GOOD, BAD])
    assert nightly("run", "suite.yaml") == 1
    assert nightly("run", "suite.yaml", "--last-failed") == 1
    assert [item.id for item in nights(inside)[0].plan.items] == ["bad[cpu]"]
    write_manifest(inside, commands=[GOOD, {**BAD, "argv": ["/bin/true"]}])
    assert nightly("run", "suite.yaml", "--last-failed") == 0
    capsys.readouterr()
    assert nightly("run", "suite.yaml", "--last-failed") == 4
    assert "nothing failed when it last ran" in capsys.readouterr().err


def running(folder):
    found = nights(folder)
    path = found[0].folder / "running.json" if found else None
    return path is not None and path.is_file() and "working" in path.read_text()


def test_status_and_second_coordinators_while_a_night_runs(tmp_path):
    write_manifest(tmp_path, commands=[GOOD, SLOW])
    process = start(tmp_path, "run", "suite.yaml")
    try:
        await_(lambda: running(tmp_path))
        (night,) = nights(tmp_path)
        done = tipchain("status", "suite.yaml", cwd=tmp_path)
        assert done.returncode == 0
        assert f"night {night.name} of suite: run by process {process.pid} on " in done.stdout
        assert "1 of 2 ended, 1 passed, 1 running, " in done.stdout
        assert re.search(r"^ +0:0\d  slow\[cpu\]  working$", done.stdout, re.MULTILINE)
        told = json.loads(tipchain("status", "suite.yaml", "--json", "-", cwd=tmp_path).stdout)
        assert [one["id"] for one in told["running"]] == ["slow[cpu]"]
        one = told["items"]["good[cpu]"]
        assert (one["id"], one["outcome"], one["exit_code"], one["executor"]) == ("good[cpu]", "PASS", 0, "local")
        assert not told["finished"]
        second = tipchain("resume", "suite.yaml", cwd=tmp_path)
        assert second.returncode == 2
        assert f"is still being run, by process {process.pid}" in second.stderr
        (tmp_path / "go").touch()
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    done = tipchain("status", "suite.yaml", cwd=tmp_path)
    assert ": finished\n2 of 2 ended, 2 passed, " in done.stdout
    (night,) = nights(tmp_path)
    assert [record.attempt for record in night.records()] == [1, 1]
    again = tipchain("resume", "suite.yaml", "--night", night.name, cwd=tmp_path)
    assert again.returncode == 0
    assert "nothing is left to do" in again.stderr


def test_ctrl_c_ends_items_and_leaves_a_night_to_resume(tmp_path):
    write_manifest(tmp_path, commands=[GOOD, SLOW])
    process = start(tmp_path, "run", "suite.yaml")
    await_(lambda: running(tmp_path))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "1 of 2 items have not ended" in out
    assert "1 passed in " in out
    assert "exit code 130\nnext  tipchain nightly resume suite.yaml\n" in out
    status = tipchain("status", "suite.yaml", cwd=tmp_path)
    assert "not finished, and nobody runs it" in status.stdout
    (tmp_path / "go").touch()
    write_manifest(tmp_path, commands=[BAD])
    done = tipchain("resume", "suite.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "suite.yaml has changed since" in done.stderr
    assert "1 of 2 items to run" in done.stdout
    (night,) = nights(tmp_path)
    assert [record.attempt for record in night.records()] == [1, 2]


def test_a_folder_that_cannot_be_made(inside, capsys):
    write_manifest(inside, commands=[GOOD])
    (inside / "file").touch()
    assert nightly("run", "suite.yaml", "--out", "file/below") == 2
    assert "cannot make a night's folder below" in capsys.readouterr().err


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tipchain.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(["nightly", *sys.argv[2:]]))
"""


def test_no_room_for_the_plan(tmp_path):
    write_manifest(tmp_path, commands=[GOOD])
    done = completed([sys.executable, "-c", LIMITED, "100", "run", "suite.yaml"], cwd=tmp_path, timeout=60)
    assert done.returncode == 1
    assert "night.json: cannot be written: File too large" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_fills_up(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        fill = {"id": "fill", "argv": ["/bin/sh", "-c", "[ -e go ] || head -c 4M /dev/zero"]}
        write_manifest(tmp_path, commands=[GOOD, fill, {**GOOD, "id": "last"}])
        done = tipchain("run", "suite.yaml", "--jobs", "1", "--out", disk, cwd=tmp_path)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "2 items have not ended; what had ended is kept" in done.stderr
        (folder,) = nights_below(disk)
        assert read_night(folder).record("good[cpu]").outcome is Outcome.PASS
        for log in folder.glob("items/fill*/attempt-1/output.log"):
            log.unlink()
        (tmp_path / "go").touch()
        done = tipchain("resume", "suite.yaml", "--out", disk, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [record.attempt for record in read_night(folder).records()] == [1, 2, 1]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
