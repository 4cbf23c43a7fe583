from __future__ import annotations

import json

import pytest

from tipchain.cli import main
from tipchain.commands import doctor
from tipchain.commands.doctor import ALIGNING, DoctorLine
from tipchain.errors import Outcome


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with both frameworks; returns their findings to change."""
    found = {name: DoctorLine(subject=name, outcome=Outcome.PASS, detail="9.9") for name in ("torch", "paddle")}
    monkeypatch.setattr(doctor, "check_framework", lambda name: found[name])
    monkeypatch.chdir(tmp_path)
    return found


def answer(capsys) -> tuple[bool, dict[str, dict]]:
    report = json.loads(capsys.readouterr().out)
    return report["ready"], {finding["subject"]: finding for finding in report["findings"]}


def test_the_frameworks_and_packages_are_enough(machine, capsys):
    assert main(["doctor", "--json", "-"]) == 0
    ready, found = answer(capsys)
    assert ready
    assert {"python", "numpy", "torch", "paddle", "threads"} <= set(found)


def test_a_plain_installation_is_no_failure_and_the_end_says_what_it_does(machine, capsys, monkeypatch):
    """Neither the frameworks nor the packages of the shipped cases are there."""
    for name in ("torch", "paddle"):
        machine[name] = DoctorLine(
            subject=name, outcome=Outcome.SKIP, detail="not installed", remedy=f"get {name}", needed_for=ALIGNING
        )
    monkeypatch.setitem(doctor.PACKAGES, "pillow-of-nobody", "tipchain[cases]")
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "ready for diff, judge, report, lint and plan",
        "the shipped cases need pillow-of-nobody",
        "align, locate and run need torch, paddle",
    ]
    assert main(["doctor", "--json", "-"]) == 0
    assert not answer(capsys)[0], "not for all there is"
    assert main(["doctor", "--strict"]) == 1


def test_one_framework_is_enough_to_record_its_side(machine, capsys):
    machine["paddle"] = DoctorLine(
        subject="paddle", outcome=Outcome.SKIP, detail="not installed", remedy="get paddle", needed_for=ALIGNING
    )
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "align --record torch records that side, to compare elsewhere",
        "align, locate and run need paddle",
    ]


def test_without_the_packages_of_the_shipped_cases_own_cases_run(machine, capsys, monkeypatch):
    monkeypatch.setitem(doctor.PACKAGES, "pillow-of-nobody", "tipchain[cases]")
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "ready for align and run of your own cases"


def test_a_package_of_tipchain_itself_must_be_there(machine, capsys, monkeypatch):
    monkeypatch.setitem(doctor.PACKAGES, "numpy-of-nobody", "tipchain")
    assert main(["doctor"]) == 1
    assert "\nBROKEN   numpy-of-nobody" in capsys.readouterr().out


def test_a_broken_framework_is_exit_1_with_the_way_out(machine, capsys):
    machine["paddle"] = DoctorLine(
        subject="paddle", outcome=Outcome.FAIL, detail="libx.so: no version", remedy="pip install paddlepaddle"
    )
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if "libx.so: no version" in line)
    assert lines[at].startswith("BROKEN   paddle")
    assert lines[at + 1].strip() == "-> pip install paddlepaddle"
    assert lines[-1].startswith("not ready")
