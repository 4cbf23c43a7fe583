"""Old nights go, whole, and what is needed stays."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from night_samples import FIRST, NightSample, ended_night, item

from tipchain.cli import main
from tipchain.nightly import cleanup as collecting
from tipchain.nightly.cleanup import TRASH, UNWRITTEN_S
from tipchain.nightly.nights import find_nights, hold, nights_below

ITEM = item("alexnet")
NOW = FIRST.timestamp() + 10 * 86400
GC = ("nightly", "gc", "--keep")


@pytest.fixture
def nights(tmp_path, monkeypatch) -> Path:
    """Return a manifest's folder with ten nights, all finished."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: NOW)
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "tipchain-nights" / "suite"
    for day in range(10):
        ended_night(folder, day, [ITEM], root=tmp_path)
    return folder


def left(nights: Path) -> list[int]:
    return [int(one.name[-5:], 16) for one in find_nights(nights)]


def night(nights: Path, day: int) -> Path:
    (found,) = nights.glob(f"*-{day:05x}")
    return found


def test_the_latest_of_each_manifest_stay(nights, capsys):
    NightSample(nights.parent / "other", 0, [ITEM], root=nights).finish()
    assert main([*GC, "3", "--dry-run"]) == 0
    assert f"would delete tipchain-nights/suite/{night(nights, 0).name}" in capsys.readouterr().out
    assert len(left(nights)) == 10
    assert main([*GC, "3"]) == 0
    assert capsys.readouterr().out.count("deleted ") == 7
    assert left(nights) == [7, 8, 9]
    assert left(nights.parent / "other") == [0]
    assert not (nights / TRASH).exists()
    assert main([*GC, "100"]) == 0
    assert left(nights) == [7, 8, 9]


def test_a_night_that_is_being_run_stays(nights):
    lock = hold(night(nights, 0))
    assert main([*GC, "5"]) == 0
    assert left(nights) == [0, 5, 6, 7, 8, 9]
    os.close(lock)
    assert main([*GC, "5"]) == 0
    assert left(nights) == [5, 6, 7, 8, 9]


def test_a_night_that_is_resumed_meanwhile_stays(nights, monkeypatch, capsys):
    monkeypatch.setattr(collecting, "holder", lambda _: "")  # when the choice was made nobody had it
    lock = hold(night(nights, 0))
    shutil.rmtree(night(nights, 2))
    assert main([*GC, "5"]) == 1
    assert left(nights) == [0, 5, 6, 7, 8, 9]
    assert "this night is still being run" in capsys.readouterr().err
    os.close(lock)


def test_what_may_be_resumed_stays(nights):
    for day in (1, 8, 9):
        (night(nights, day) / "finished.json").unlink()
    (nights / "notes").mkdir()
    assert main([*GC, "1"]) == 0
    assert left(nights) == [7, 8, 9]
    assert (nights / "notes").exists()


def test_what_a_killed_process_left_goes_with_the_next_call(nights, capsys):
    (nights / TRASH / "20261101-220000-00000-abc" / "items").mkdir(parents=True)
    unwritten, new = nights / "20261020-220000-abcde", nights / "20261020-220000-abcdf"
    for one in (unwritten, new):
        one.mkdir()
        (one / "lock").touch()
    os.utime(unwritten, (NOW - UNWRITTEN_S - 5,) * 2)
    os.utime(new, (NOW - UNWRITTEN_S + 5,) * 2)
    assert main([*GC, "100"]) == 0
    assert capsys.readouterr().out.count("deleted ") == 2
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
        os._exit(main(["nightly", "gc", "--keep", "1"]))
    if os.waitpid(pid, 0)[1] == 0:
        break
"""


def test_a_kill_at_any_step_leaves_whole_nights_only(tmp_path):
    for day in range(2):
        ended_night(tmp_path / "whole" / "tipchain-nights" / "suite", day, [ITEM], root=tmp_path)
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
    assert main([*GC, "5"]) == 1
    assert left(nights) == [1, 5, 6, 7, 8, 9]
    assert "is still there" in capsys.readouterr().err


def test_what_is_mounted_in_a_night_stays_and_is_told(nights, tmp_path, capsys):
    source, inside = tmp_path / "somebody's", night(nights, 0) / "the data"
    source.mkdir()
    inside.mkdir()
    (source / "precious").touch()
    mounted = subprocess.run(["mount", "--bind", source, inside], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        assert main([*GC, "8"]) == 1
        assert "other file systems are mounted in it: the data" in capsys.readouterr().err
        assert (source / "precious").exists()
        assert left(nights) == [0, *range(2, 10)], "it is whole, and the others went"
        (nights / TRASH).mkdir()
        night(nights, 0).rename(nights / TRASH / "left-by-a-kill")
        assert main([*GC, "90"]) == 1
        assert (source / "precious").exists()
    finally:
        for place in (inside, nights / TRASH / "left-by-a-kill" / "the data"):
            subprocess.run(["umount", place], capture_output=True, check=False)
    assert main([*GC, "90"]) == 0
    assert (source / "precious").exists()
    assert not (nights / TRASH).exists()
