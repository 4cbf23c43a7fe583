"""Two running commands never share a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

from tipchain.chain.gpus import Leases, lease_folder

HOLD = (
    "import sys; from pathlib import Path; from tipchain.chain.gpus import Leases\n"
    "print(Leases(Path(sys.argv[1])).take(('0', '2'), 'x'), flush=True); sys.stdin.read()"
)


def test_a_gpu_is_had_by_one_command_at_a_time(tmp_path):
    leases = Leases(tmp_path / "leases")
    assert leases.take(("0", "1"), "train[a]") == ""
    assert leases.take(("2",), "train[b]") == ""
    assert leases.take(("3", "1"), "train[c]") == "GPU 1, held by train[a]"
    assert leases.take(("3",), "train[d]") == "", "what could not have all has taken none"
    leases.give_back(("0", "1"))
    assert leases.take(("1",), "train[c]") == ""
    assert leases.trouble == ""


def test_leases_hold_between_processes_and_end_with_their_holder(tmp_path):
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    leases = Leases(tmp_path)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "\n"
        assert leases.take(("1", "2"), "train[a]") == f"GPU 2, held by process {process.pid}"
        assert leases.take(("1",), "train[a]") == "", "what could not have all has taken none"
        process.kill()
        process.wait(60)
    assert leases.take(("2",), "train[b]") == ""


def test_a_started_program_does_not_keep_a_lease(tmp_path):
    leases = Leases(tmp_path)
    leases.take(("0",), "a")
    with subprocess.Popen(["sleep", "60"]) as process:
        leases.give_back(("0",))
        assert Leases(tmp_path).take(("0",), "b") == ""
        process.kill()


def test_a_child_that_has_not_become_its_program_yet_does_not_keep_a_lease(tmp_path):
    leases = Leases(tmp_path)
    leases.take(("0",), "a")
    ((_, handle),) = leases._held.values()
    childs = os.dup(handle)
    leases.give_back(("0",))
    assert Leases(tmp_path).take(("0",), "b") == ""
    os.close(childs)


def test_names_of_gpus_become_file_names(tmp_path):
    leases = Leases(tmp_path)
    assert leases.take(("MIG-a/b/../c",), "a") == ""
    assert [path.name for path in tmp_path.iterdir()] == ["MIG-a-b----c.lock"]


def test_a_folder_that_cannot_be_had_leaves_leases_within_the_run(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path / "file", tmp_path / "link", tmp_path / "file/below"):
        leases = Leases(folder)
        assert leases.take(("0",), "a") == ""
        assert str(folder) in leases.trouble
        assert leases.take(("0",), "b") == "GPU 0, held by a"
        leases.give_back(("0",))
        assert leases.take(("0",), "b") == ""


def test_each_user_has_a_folder(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lease_folder() == tmp_path / f"tipchain-gpus-{os.getuid()}"
    Leases().take(("0",), "a")
    assert lease_folder().stat().st_mode & 0o777 == 0o700
