from __future__ import annotations

import json

import pytest

from tipchain.cli import main
from tipchain.commands import doctor
from tipchain.environment import Finding
from tipchain.outcome import Outcome
from tipchain.prepare.data import prepare_data


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with both frameworks; returns their findings to change."""
    found = {name: Finding(subject=name, outcome=Outcome.PASS, detail="9.9") for name in ("torch", "paddle")}
    monkeypatch.setattr(doctor, "check_framework", lambda name: found[name])
    monkeypatch.chdir(tmp_path)
    return found


def answer(capsys) -> tuple[bool, dict[str, dict]]:
    report = json.loads(capsys.readouterr().out)
    return report["ready"], {finding["subject"]: finding for finding in report["findings"]}


def test_outside_a_project_the_frameworks_and_packages_are_enough(machine, capsys):
    assert main(["doctor", "--json"]) == 0
    ready, found = answer(capsys)
    assert ready
    assert {"python", "numpy", "torch", "paddle", "threads", "reprod_log"} <= set(found)
    assert found["project"]["outcome"] == "SKIP"


def test_a_missing_framework_is_exit_1_with_the_way_out(machine, capsys):
    machine["paddle"] = Finding(
        subject="paddle",
        outcome=Outcome.FAIL,
        detail="No module named 'paddle'",
        remedy="pip install paddlepaddle",
    )
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if "No module named 'paddle'" in line)
    assert lines[at].startswith("MISSING  paddle")
    assert lines[at + 1].strip() == "-> pip install paddlepaddle"
    assert lines[-1].startswith("not ready")


def test_a_projects_data_and_weights(machine, capsys, tmp_path):
    (tmp_path / "test_tipc/configs").mkdir(parents=True)
    assert main(["doctor", "--json"]) == 1
    _, found = answer(capsys)
    assert found["lite data"]["outcome"] == "FAIL"
    assert found["lite data"]["remedy"].startswith("bash prepare.sh test_tipc/configs/alexnet")
    assert found["whole data"]["outcome"] == found["weights"]["outcome"] == "SKIP"
    folder = prepare_data(tmp_path, "lite")
    weights = tmp_path / "test_tipc/data/weights/demo/lite"
    weights.mkdir(parents=True)
    (weights / "manifest.json").write_text("{}")
    assert main(["doctor", "--json"]) == 0
    _, found = answer(capsys)
    assert found["weights"]["outcome"] == "PASS"
    next(folder.rglob("*.png")).unlink()
    assert main(["doctor"]) == 1
    assert ".png: is missing" in capsys.readouterr().out


def test_a_damaged_whole_data_counts(machine, capsys, tmp_path):
    (tmp_path / "test_tipc/configs").mkdir(parents=True)
    prepare_data(tmp_path, "lite")
    (tmp_path / "test_tipc/data/whole_data").mkdir()
    assert main(["doctor", "--json"]) == 1
    assert answer(capsys)[1]["whole data"]["outcome"] == "FAIL"


def test_the_text_for_people(machine, capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("tipchain ")
    assert "ready for align and run" in text
