"""``tipchain init`` writes a case that loads."""

from __future__ import annotations

import pytest

from tipchain.cli import main
from tipchain.parity.case import load_case


def test_the_written_case_loads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my_net"]) == 0
    case = load_case(tmp_path / "configs" / "my_net.yaml")
    assert case.id == "my_net"
    assert case.sides["paddle"].model == "alignment.my_net.paddle_side:build_model"
    assert "configs/my_net.yaml" in capsys.readouterr().out


def test_an_existing_file_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "case.yaml"
    path.write_text("mine")
    assert main(["init", "my_net", "--path", "case.yaml"]) == 2
    assert path.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "my_net", "--path", "case.yaml", "--force"]) == 0
    assert load_case(path).id == "my_net"


@pytest.mark.parametrize("name", ["my net", "../x", "1st", ""])
def test_a_bad_name_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert main(["init", name]) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ['a"b', "alignment/my_net", "a..b"])
def test_a_bad_package_is_refused(tmp_path, monkeypatch, capsys, package):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my_net", "--package", package]) == 2
    assert "cannot be a Python package" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
