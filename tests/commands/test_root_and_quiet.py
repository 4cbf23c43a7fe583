"""``--root`` of commands that read a case, and ``-q`` of those that have nothing to show but what came out."""

from __future__ import annotations

from pathlib import Path

import yaml

from tipchain.cli import main
from tipchain.core.files import ROOT_VARIABLE, find_root


def test_the_root_is_where_it_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(ROOT_VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    (tmp_path / "case.yaml").write_text("id: x\n")
    assert main(["lint", "case.yaml", "--root", "none"]) == 2
    assert "--root: no such folder: none" in capsys.readouterr().err
    main(["lint", "case.yaml", "--root", "far"])
    assert find_root(tmp_path / "case.yaml") == tmp_path / "far"


def test_a_quiet_preparation_says_what_came_out_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    words = ["prepare", "tests/cases/tiny/train_infer_python.txt", "lite_train_lite_infer"]
    shown = []

    def preparing(*_args, **_more):
        print("much to say\nready")
        return 0

    monkeypatch.setattr("tipchain.commands.prepare.prepare_params", preparing)
    for quiet in ([], ["-q"]):
        assert main([*words, *quiet]) == 0
        shown.append(capsys.readouterr().out)
    assert shown == ["much to say\nready\n", "ready\n"]


def test_a_quiet_night_says_what_came_out_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_tipc").mkdir()
    commands = [{"id": "good", "argv": ["/bin/true"]}, {"id": "bad", "argv": ["/bin/false"]}]
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({"commands": commands}))
    assert main(["nightly", "run", "suite.yaml", "-q"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "1 of 2 items did not pass: bad[cpu]: exit 1"
    assert main(["nightly", "resume", "suite.yaml", "--quiet"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1
