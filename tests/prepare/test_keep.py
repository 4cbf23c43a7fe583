"""An ``rm`` that keeps what is older than its script."""

from __future__ import annotations

import os
import subprocess

import pytest

from tipchain.prepare.keep import left_aside, put_back, start_keeping


@pytest.fixture
def keeping(tmp_path):
    """Run a script among files of the user's; return its exit status and what was put back."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "work/mine/deep").mkdir(parents=True)
    (tmp_path / "work/mine/deep/x").write_text("mine")
    (tmp_path / "work/link").symlink_to("mine")

    def run(text):
        start_keeping(tmp_path / "logs", tmp_path / "bin")
        env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", text], cwd=tmp_path / "work", env=env, check=False)
        kept = [(place.name, beside and beside.name) for place, beside in put_back(tmp_path / "logs")]
        return done.returncode, kept

    run.work = tmp_path / "work"
    return run


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rm -rf mine; test ! -e mine", [("mine", None)]),
        ("rm -rf ./*", [("mine", None), ("link", None)]),
        ("rm -rf link; test -d mine", [("link", None)]),
        ("touch mine/deep; rm -rf mine", [("mine", None)]),
        ("mkdir new; touch new/y; rm -rf new absent; test ! -e new", []),
    ],
)
def test_what_was_there_is_there_again(keeping, text, expected):
    before = contents(keeping.work)
    status, kept = keeping(text)
    assert (status, kept) == (0, expected)
    assert contents(keeping.work) == before


def test_what_the_script_made_in_its_place_is_beside_it(keeping):
    for number, name in enumerate(("mine.from-script", "mine.from-script.2"), 1):
        _, kept = keeping(f"rm -rf mine; mkdir mine; echo {number} >mine/x")
        assert kept == [("mine", name)]
        assert (keeping.work / name / "x").read_text() == f"{number}\n"
    for _ in range(2):
        assert keeping("rm link; ln -s elsewhere link")[1] == [("link", "link.from-script")]
    assert (keeping.work / "mine/deep/x").read_text() == "mine"


def test_what_is_left_aside_is_named_once_and_not_put_back_later(keeping):
    logs = keeping.work.parent / "logs"
    start_keeping(logs, keeping.work.parent / "bin")
    env = {**os.environ, "PATH": f"{keeping.work.parent}/bin:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", "rm -rf mine; mkdir mine"], cwd=keeping.work, env=env, check=True)
    assert list(left_aside(logs)) == [(keeping.work / "mine", keeping.work / ".mine.kept")]
    assert (keeping.work / ".mine.kept/deep/x").read_text() == "mine"
    assert list(left_aside(logs)) == list(put_back(logs)) == []


def test_the_real_rm_has_its_exit_status(keeping):
    assert keeping("rm absent 2>/dev/null")[0] == 1
    assert keeping("rm -f absent; rm -f")[0] == 0


def test_the_folder_of_its_own_list_is_left(keeping, capfd):
    assert keeping("rm -rf ../logs")[0] == 1
    assert "rm: cannot move '../logs' aside" in capfd.readouterr().err
    assert (keeping.work.parent / "logs").is_dir()
