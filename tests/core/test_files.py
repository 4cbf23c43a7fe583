"""Run folders, appended logs, files that are whole or not there."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tipchain.cli import main
from tipchain.core.files import append, atomic_write, check_writable, hold_run, prune, replacing_path
from tipchain.errors import UsageError
from tipchain.parity.align import link


def test_a_run_is_held_by_one_process_until_that_ends_and_pruning_leaves_it_alone(tmp_path):
    program = "import sys; from pathlib import Path; from tipchain.core.files import new_run; print(new_run(Path(sys.argv[1])))"
    argv = [sys.executable, "-c", f"{program}; sys.stdout.flush(); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        run = pathlib.Path(process.stdout.readline().strip())
        (run / "w.pdparams").write_bytes(b"x")
        make_run(tmp_path, "99990101-000000-aaaa")
        assert prune(tmp_path, keep=1) == 0
        with pytest.raises(UsageError, match="still goes on"):
            hold_run(run)
        process.stdin.close()
        process.wait(60)
    assert prune(tmp_path, keep=1) == 1
    hold_run(run)
    with pytest.raises(UsageError, match="still goes on"):
        hold_run(run)


def test_records_of_several_processes_do_not_mix(tmp_path):
    log = tmp_path / "log"
    program = (
        "import sys; from pathlib import Path; from tipchain.core.files import append\n"
        "for n in range(50): append(Path(sys.argv[1]), (sys.argv[2] * 2000 + '\\n') * 3)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(log), letter]) for letter in "abc"]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    lines = log.read_text().splitlines()
    assert len(lines) == 450
    for start in range(0, 450, 3):
        assert len(set(lines[start : start + 3])) == 1, "the three lines of a record stand together"


def test_names_that_are_no_text_can_be_written(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    append(tmp_path / "log", name)
    atomic_write(tmp_path / "json", json.dumps(name, ensure_ascii=False))
    assert (tmp_path / "log").read_text() == "caf\\udce9\n"
    assert json.loads((tmp_path / "json").read_text()) == name


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, "old")

    def fail_half_way():
        with replacing_path(path) as beside:
            beside.write_text("ne")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail_half_way()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"], "nothing half-written stays"


def test_devices_pipes_and_links_stay_what_they_are(tmp_path):
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic_write(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    target.write_text("old")
    link.symlink_to(target)
    atomic_write(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    with pytest.raises(OSError, match="no regular file"):
        atomic_write(tmp_path, "a folder")


def test_a_file_put_where_it_already_stands_leaves_no_second_name(tmp_path):
    """A rename over another name of the same file does nothing, so the name beside it stayed for ever."""
    dump, latest = tmp_path / "dump.npy", tmp_path / "latest.npy"
    dump.write_bytes(b"numbers")
    for _ in range(2):
        link(dump, latest)
        with replacing_path(tmp_path / "best.npy") as beside:
            os.link(dump, beside)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["best.npy", "dump.npy", "latest.npy"]


def make_run(out, name):
    run = out / "runs" / name
    run.mkdir(parents=True)
    (run / "w.pdparams").write_bytes(b"x" * 100)
    (run / "train.log").write_text("log")
    return run


def test_pruning_keeps_logs_and_the_latest_runs(tmp_path):
    runs = [make_run(tmp_path, f"2026010{n}-000000-aaaa") for n in range(1, 5)]
    assert prune(tmp_path, keep=2) == 200
    assert [(run / "w.pdparams").exists() for run in runs] == [False, False, True, True]
    assert all((run / "train.log").exists() for run in runs)


def test_a_run_whose_lock_cannot_be_had_is_no_traceback(tmp_path):
    """As in another user's run; root may write everywhere, so a folder stands in for what cannot be opened."""
    run, newer = (tmp_path / "runs" / name for name in "12")
    for folder in (run / ".lock", newer):
        folder.mkdir(parents=True)
    (run / "a.pdparams").write_text("w")
    with pytest.raises(UsageError, match="cannot be continued: Is a directory"):
        hold_run(run)
    assert prune(tmp_path, keep=1) == 0
    assert (run / "a.pdparams").exists()


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("file/report.json", "Not a directory"),
        ("file/deep/er/report.json", "Not a directory"),
        ("folder", "Is a directory"),
        ("link", "Is a directory"),
        ("n" * 300, "File name too long"),
        ("/proc/none.json", ""),
    ],
)
def test_what_could_not_be_written_is_known_before(tmp_path, monkeypatch, target, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=f"--json {target}: cannot be written: {reason}"):
        check_writable({"--junit": "fine.xml", "--json": target})
    assert sorted(tmp_path.rglob("*")) == there, "nothing is left behind"


def test_what_can_be_written_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").write_text("old")
    (tmp_path / "dangling").symlink_to("not/there")
    os.mkfifo(tmp_path / "pipe")
    there = sorted(tmp_path.rglob("*"))
    targets = [None, "-", "new", "deep/er/new", "old", tmp_path / "new", "dangling", "pipe", "/dev/null"]
    check_writable({str(number): target for number, target in enumerate(targets)})
    assert sorted(tmp_path.rglob("*")) == there
    assert (tmp_path / "old").read_text() == "old"


@pytest.mark.parametrize(
    "words",
    [
        ["align", "case.yaml", "--json"],
        ["align", "case.yaml", "--junit"],
        ["locate", "case.yaml", "--json"],
        ["locate", "case.yaml", "--html"],
        ["case", "certify", "case.yaml", "--json"],
        ["run", "p.txt", "lite_train_lite_infer", "--json"],
        ["run", "p.txt", "lite_train_lite_infer", "--junit"],
        ["report", "run", "--junit"],
        ["diff", "a.npy", "b.npy", "--json"],
        ["diff", "a.npy", "b.npy", "--log"],
    ],
)
def test_commands_refuse_reports_that_could_not_be_written_first_of_all(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main([*words, "file/report"]) == 2
    assert f"{words[-1]} file/report: cannot be written" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
