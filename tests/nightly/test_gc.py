"""Storage stays bounded, and what is needed stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from night_samples import FIRST, NightSample, item

from tipchain.cli import main
from tipchain.nightly import cleanup as collecting
from tipchain.nightly.cleanup import (
    PIN,
    TRASH,
    UNWRITTEN_S,
    RetentionRules,
    choose,
    days,
    disk_usage,
    find_stored,
    size_text,
)
from tipchain.nightly.nights import find_nights, hold, nights_below

ITEM = item("alexnet")
NOW = FIRST.timestamp() + 10 * 86400
MIB = 2**20


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch) -> Path:
    """Return a folder of temporary files of the test's own: in the machine's, others' items may have left something."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def nights(tmp_path, monkeypatch) -> Path:
    """Return a manifest's folder with ten nights of 1 MiB, all finished, the latest one day old."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: NOW)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "tipchain-nights" / "suite"
    for day in range(10):
        night = NightSample(folder, day, [ITEM], root=tmp_path)
        night.end(ITEM, log="x" * MIB)
        night.finish()
    return folder


def left(nights: Path) -> list[int]:
    """Return the numbers of the nights that are there."""
    return [int(one.name[-5:], 16) for one in find_nights(nights)]


def night(nights: Path, day: int) -> Path:
    (found,) = nights.glob(f"*-{day:05x}")
    return found


def test_by_age(nights, capsys):
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [5, 6, 7, 8, 9]
    out = capsys.readouterr().out
    assert out.startswith("to be deleted: 5 nights, ")
    assert "10 days" in out
    assert "older than 5 days" in out
    assert night(nights, 5).name not in out
    assert not (nights / TRASH).exists()


def test_by_size_the_oldest_go_first(nights, capsys):
    assert main(["nightly", "gc", "tipchain-nights", "--max-size", "4MiB", "--yes"]) == 0
    assert left(nights) == [7, 8, 9]  # a night is a bit more than 1 MiB
    assert disk_usage(nights) <= 4 * MIB
    assert "the oldest, of more than 4 MiB" in capsys.readouterr().out


def test_by_number(nights):
    NightSample(nights.parent / "other", 0, [ITEM], root=nights).finish()
    assert main(["nightly", "gc", "--keep", "3", "--yes"]) == 0
    assert left(nights) == [7, 8, 9]
    assert left(nights.parent / "other") == [0]


def test_the_latest_stay_whatever_age_and_size_say(nights, capsys):
    assert main(["nightly", "gc", "--older-than", "1d", "--max-size", "1MiB", "--keep", "4", "--yes"]) == 1
    assert left(nights) == [6, 7, 8, 9]
    told = capsys.readouterr()
    assert "one of the latest 4" in told.out
    assert "must stay, more than --max-size" in told.err
    assert main(["nightly", "gc", "--keep", "100", "--yes"]) == 0
    assert left(nights) == [6, 7, 8, 9]


def test_a_dry_run_and_a_no_delete_nothing(nights, monkeypatch, capsys):
    assert main(["nightly", "gc", "--older-than", "5d", "--dry-run"]) == 0
    assert "would delete: 5 nights" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", None)
    assert main(["nightly", "gc", "--older-than", "5d"]) == 2
    assert "nobody is there to be asked" in capsys.readouterr().err
    for answer, there in (("", 10), ("n", 10), ("y", 5)):
        monkeypatch.setattr("sys.stdin", Terminal())
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert main(["nightly", "gc", "--older-than", "5d"]) == 0
        assert len(left(nights)) == there


class Terminal:
    def isatty(self) -> bool:
        return True


def test_what_the_table_says_comes_before_anything_is_deleted(nights, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", Terminal())

    def asked(_: str) -> str:
        assert "to be deleted: 5 nights" in capsys.readouterr().out
        assert len(left(nights)) == 10
        return "yes"

    monkeypatch.setattr("builtins.input", asked)
    assert main(["nightly", "gc", "--older-than", "5d"]) == 0
    assert len(left(nights)) == 5


def test_a_pinned_night_stays(nights, capsys):
    pin = night(nights, 2) / PIN
    pin.write_text("the paper's figures\n")
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [2, 5, 6, 7, 8, 9]
    out = capsys.readouterr().out
    assert "stays, whatever the rules say" in out
    assert "pinned: the paper's figures" in out
    pin.unlink()
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [5, 6, 7, 8, 9]


def test_wrong_calls(nights, capsys):
    for words, said in (
        ((), "no rule was given"),
        (("--older-than", "old"), "'old' is not a time"),
        (("--max-size", "4"), "'4' is not a size"),
        (("--keep", "0"), "'0' is not a number of nights"),
        (("nowhere", "--keep", "1"), "nowhere: is no folder"),
    ):
        assert main(["nightly", "gc", *words]) == 2, words
        assert said in capsys.readouterr().err, words
    shutil.rmtree(nights.parent)
    assert main(["nightly", "gc", "--keep", "1"]) == 2


def test_a_night_that_is_being_run_stays(nights, capsys):
    lock = hold(night(nights, 0))
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [0, 5, 6, 7, 8, 9]
    assert f"it is being run, by process {os.getpid()}" in capsys.readouterr().out
    os.close(lock)
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [5, 6, 7, 8, 9]


def test_a_night_that_is_resumed_or_pinned_after_the_question_stays(nights, monkeypatch, capsys):
    locks = []

    def meanwhile(_: str) -> str:
        locks.append(hold(night(nights, 0)))
        (night(nights, 1) / PIN).write_text("wait")
        shutil.rmtree(night(nights, 2))
        return "y"

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", meanwhile)
    assert main(["nightly", "gc", "--older-than", "5d"]) == 1
    assert left(nights) == [0, 1, 5, 6, 7, 8, 9]
    err = capsys.readouterr().err
    assert "this night is still being run" in err
    assert "pinned: wait" in err
    os.close(locks[0])


def test_what_may_be_resumed_and_the_latest_finished_stay(nights):
    for day in (8, 9):
        (night(nights, day) / "finished.json").unlink()
    (night(nights, 1) / "finished.json").unlink()
    assert main(["nightly", "gc", "--older-than", "1s", "--yes"]) == 0
    assert left(nights) == [7, 8, 9]


def test_a_reference_in_a_night_stays(nights, capsys):
    file = night(nights, 4) / "items" / "bundle" / "manifest.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('{"kind": "tipchain reference bundle"}')
    other = night(nights, 3) / "items" / "manifest.json"
    other.write_text("{}")
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [4, 5, 6, 7, 8, 9]
    assert "it holds a reference: items/bundle" in capsys.readouterr().out


def test_a_night_that_cannot_be_understood_stays(nights, capsys):
    (night(nights, 0) / "night.json").write_text('{"format": 99}')
    (nights / "notes").mkdir()
    (nights / "notes" / "a.txt").touch()
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 0
    assert left(nights) == [0, 5, 6, 7, 8, 9]
    assert (nights / "notes" / "a.txt").exists()
    assert "its plan cannot be read" in capsys.readouterr().out


def test_clocks_that_jumped(nights, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: NOW - 1000 * 86400)
    assert main(["nightly", "gc", "--older-than", "1s", "--yes"]) == 0
    assert len(left(nights)) == 10


def test_what_a_killed_process_left_goes_with_the_next_call(nights, capsys):
    (nights / TRASH / "20261101-220000-00000-abc" / "items").mkdir(parents=True)
    unwritten, new = nights / "20261020-220000-abcde", nights / "20261020-220000-abcdf"
    for one in (unwritten, new):
        one.mkdir()
        (one / "lock").touch()
    os.utime(unwritten, (NOW - UNWRITTEN_S - 5,) * 2)
    os.utime(new, (NOW - UNWRITTEN_S + 5,) * 2)
    assert main(["nightly", "gc", "--older-than", "100d", "--yes"]) == 0
    assert "2 remainders" in capsys.readouterr().out
    assert not (nights / TRASH).exists()
    assert not unwritten.exists()
    assert new.exists()
    assert len(left(nights)) == 10


KILLED = """
import os, shutil, sys
from tipchain.cli import main
# Each step in a process of its own that is ended as a kill does, without the time that starting one takes.
for steps in range(200):
    shutil.copytree("whole", str(steps))
    pid = os.fork()
    if not pid:
        os.chdir(str(steps))
        left = steps
        for name in ("unlink", "rmdir", "rename", "mkdir"):
            def act(*args, _act=getattr(os, name), **kw):
                global left
                left -= 1
                if left < 0:
                    os._exit(9)
                return _act(*args, **kw)
            setattr(os, name, act)
        os._exit(main(["nightly", "gc", "--keep", "1", "--yes"]))
    if os.waitpid(pid, 0)[1] == 0:
        break
"""


def test_a_kill_at_any_step_leaves_whole_nights_only(tmp_path):
    for day in range(2):
        sample = NightSample(tmp_path / "whole" / "tipchain-nights" / "suite", day, [ITEM], root=tmp_path)
        sample.end(ITEM)
        sample.finish()
    subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    ends = sorted((one for one in tmp_path.iterdir() if one.name != "whole"), key=lambda one: int(one.name))
    assert 5 < len(ends) < 200
    files = files_of(night(tmp_path / "whole" / "tipchain-nights" / "suite", 0))
    counts = []
    for end in ends:
        nights = end / "tipchain-nights" / "suite"
        found = find_nights(nights)
        assert sorted(nights_below(nights)) == found
        assert all(files_of(one) == files for one in found)
        counts.append(len(found))
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (2, 1)


def files_of(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def test_what_cannot_be_deleted_is_told_and_the_rest_goes(nights, monkeypatch, capsys):
    rename = os.rename

    def refused(source, target):
        if source == night(nights, 1):
            raise PermissionError(13, "Permission denied", str(source))
        rename(source, target)

    monkeypatch.setattr(collecting.os, "rename", refused)
    assert main(["nightly", "gc", "--older-than", "5d", "--yes"]) == 1
    assert left(nights) == [1, 5, 6, 7, 8, 9]
    assert "is still there" in capsys.readouterr().err


def test_hard_links_count_once(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * MIB)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert MIB <= disk_usage(tmp_path) < 1.5 * MIB


def test_the_order_of_rules(nights):
    stored = find_stored([nights], NOW)
    assert [one.size >= MIB for one in stored] == [True] * 10
    choice = choose(stored, RetentionRules(older_than_s=8 * 86400, max_bytes=6 * MIB), NOW)
    assert [one.reason.split()[0] for one in choice.doomed] == ["older", "older", "the", "the", "the"]
    assert choice.left == sum(one.size for one in stored[5:]) <= 6 * MIB
    assert choose([], RetentionRules(keep=1), NOW).doomed == ()


def test_words():
    assert [size_text(one) for one in (0, 1023, 1536, 20 * 2**30, 3 * 2**50)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "20 GiB",
        "3072 TiB",
    ]
    assert [days(one) for one in (-5, 43200, 86400, 41.2 * 86400)] == ["0 days", "0.5 days", "1 day", "41.2 days"]


def test_as_a_program(nights):
    done = subprocess.run(
        [sys.executable, "-m", "tipchain", "nightly", "gc", "--keep", "100000", "--dry-run"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing is to be deleted" in done.stdout


def test_what_is_mounted_in_a_night_stays_and_is_told(nights, tmp_path, capsys):
    source, inside = tmp_path / "somebody's", night(nights, 0) / "the data"
    source.mkdir()
    inside.mkdir()
    (source / "precious").touch()
    mounted = subprocess.run(["mount", "--bind", source, inside], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        assert main(["nightly", "gc", "--older-than", "8d", "--yes"]) == 1
        assert "other file systems are mounted in it: the data" in capsys.readouterr().err
        assert (source / "precious").exists()
        assert left(nights) == [0, *range(2, 10)], "it is whole, and the others went"
        (nights / TRASH).mkdir()
        night(nights, 0).rename(nights / TRASH / "left-by-a-kill")
        assert main(["nightly", "gc", "--older-than", "90d", "--yes"]) == 1
        assert (source / "precious").exists()
    finally:
        for place in (inside, nights / TRASH / "left-by-a-kill" / "the data"):
            subprocess.run(["umount", place], capture_output=True, check=False)
    assert main(["nightly", "gc", "--older-than", "90d", "--yes"]) == 0
    assert (source / "precious").exists()
    assert not (nights / TRASH).exists()
