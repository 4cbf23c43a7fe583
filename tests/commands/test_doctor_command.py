import json
import platform
import sys

import pytest

from tipchain.cli import main
from tipchain.commands import doctor
from tipchain.commands.doctor import ALIGNING, DoctorLine, check_framework, check_packages, check_python, check_threads
from tipchain.core.machine import installed_versions, versions_of
from tipchain.errors import Outcome


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with both frameworks; returns their findings to change."""
    found = {name: DoctorLine(subject=name, outcome=Outcome.PASS, detail="9.9") for name in ("torch", "paddle")}
    monkeypatch.setattr(doctor, "check_framework", lambda name: found[name])
    monkeypatch.chdir(tmp_path)
    return found


def need(monkeypatch, name, extra):
    needed = {**doctor.needed_packages(), name: extra}
    monkeypatch.setattr(doctor, "needed_packages", lambda: needed)


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
    need(monkeypatch, "pillow-of-nobody", "tipchain[cases]")
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "ready for diff, report, lint and plan",
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
    need(monkeypatch, "pillow-of-nobody", "tipchain[cases]")
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "ready for align and run of your own cases"


def test_a_package_of_tipchain_itself_must_be_there(machine, capsys, monkeypatch):
    need(monkeypatch, "numpy-of-nobody", "tipchain")
    assert main(["doctor"]) == 1
    assert "\nBROKEN  numpy-of-nobody" in capsys.readouterr().out


def test_a_broken_framework_is_exit_1_with_the_way_out(machine, capsys):
    machine["paddle"] = DoctorLine(
        subject="paddle", outcome=Outcome.FAIL, detail="libx.so: no version", remedy="pip install paddlepaddle"
    )
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if "libx.so: no version" in line)
    assert lines[at].startswith("BROKEN  paddle")
    assert lines[at + 1].strip() == "-> pip install paddlepaddle"
    assert lines[-1].startswith("not ready")


ANSWER = '{"version": "9.9", "build": "CPU", "devices": ["cpu", "gpu:0 X"], "threads": 2, "checked": CHECKED}'


def probe(monkeypatch, code):
    monkeypatch.setitem(doctor.PROBES, "torch", code)
    return check_framework("torch", timeout_s=20)


def test_a_framework_that_answers(monkeypatch):
    found = probe(monkeypatch, f"print('chatter'); print('{ANSWER.replace('CHECKED', '1.0')}')")
    assert (found.outcome, found.remedy) == (Outcome.PASS, "")
    assert found.detail == "9.9, CPU build, 2 threads, devices: cpu, gpu:0 X"


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import no_such_framework", "No module named 'no_such_framework'"),
        ("import os; os.abort()", "crashed: SIGABRT"),
        ("raise SystemExit(7)", "exit code 7"),
        ("print('{')", "gave no answer, exit code 0"),
        ("print('{}'); raise ImportError('libx.so: no version')", "libx.so: no version"),
        (f"print('{ANSWER.replace('CHECKED', '0.0')}')", "does not give finite numbers"),
    ],
)
def test_a_framework_that_does_not_is_a_finding_with_a_way_out(monkeypatch, code, detail):
    found = probe(monkeypatch, code)
    assert found.outcome is Outcome.FAIL
    assert detail in found.detail
    assert "pip install torch" in found.remedy


def test_a_framework_that_is_not_installed_is_no_failure(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    found = check_framework("torch")
    assert (found.outcome, found.detail) == (Outcome.SKIP, "not installed")
    assert found.needed_for == "align, locate and run"
    assert "pip install torch" in found.remedy


def test_a_framework_that_hangs(monkeypatch):
    monkeypatch.setitem(doctor.PROBES, "torch", "import time; time.sleep(60)")
    found = check_framework("torch", timeout_s=0.5)
    assert found.outcome is Outcome.FAIL
    assert "did not answer within 0.5 s" in found.detail


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_the_real_frameworks(name, forked):
    found = check_framework(name)
    assert found.outcome is Outcome.PASS, found.detail
    assert "devices: cpu" in found.detail


def test_a_missing_package(monkeypatch):
    need(monkeypatch, "no-such-package", "tipchain")
    need(monkeypatch, "no-such-picture", "tipchain[cases]")
    need(monkeypatch, "no-such-luxury", "tipchain[onnx]")
    need(monkeypatch, "no-such-engine", "tipchain[ray]")
    found = {finding.subject: finding for finding in check_packages()}
    assert found["numpy"].outcome is Outcome.PASS
    assert found["no-such-package"].outcome is Outcome.FAIL
    assert found["no-such-picture"].outcome is Outcome.SKIP
    assert found["no-such-picture"].needed_for == "the shipped cases"
    assert 'pip install "tipchain[cases]"' in found["no-such-picture"].remedy
    assert found["no-such-luxury"].outcome is Outcome.SKIP
    assert found["no-such-luxury"].remedy.endswith(doctor.SET_UP)
    assert found["no-such-engine"].remedy == 'pip install "tipchain[ray]"', "the set-up does not bring it"


def test_versions_are_read_without_importing(tmp_path):
    for name, version in (("paddlepaddle_gpu", "3.3"), ("numpy", "2.4")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    assert installed_versions([str(tmp_path)]) == {"paddle": "3.3", "numpy": "2.4"}


def test_another_interpreter_tells_its_own_versions(tmp_path):
    assert versions_of(sys.executable) == {"python": platform.python_version(), **installed_versions()}
    assert versions_of(str(tmp_path / "python")) == {}


def test_python_and_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert check_python().outcome is Outcome.PASS
    assert "OMP_NUM_THREADS=7" in check_threads().detail
    monkeypatch.setattr(doctor, "PYTHONS", ((3, 5), (3, 6)))
    assert check_python().outcome is Outcome.FAIL
