from __future__ import annotations

import platform
import sys
from importlib import metadata

import pytest

from tipchain.commands import doctor
from tipchain.commands.doctor import check_framework, check_packages, check_python, check_threads
from tipchain.core.machine import installed_versions, versions_of
from tipchain.errors import Outcome

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
def test_the_real_frameworks(name):
    found = check_framework(name)
    assert found.outcome is Outcome.PASS, found.detail
    assert "devices: cpu" in found.detail


def test_a_missing_package(monkeypatch):
    monkeypatch.setitem(doctor.PACKAGES, "no-such-package", "tipchain")
    monkeypatch.setitem(doctor.PACKAGES, "no-such-picture", "tipchain[cases]")
    monkeypatch.setitem(doctor.OPTIONAL_PACKAGES, "no-such-luxury", "tipchain[onnx]")
    monkeypatch.setitem(doctor.OPTIONAL_PACKAGES, "no-such-engine", "tipchain[ray]")
    found = {finding.subject: finding for finding in check_packages()}
    assert found["numpy"].outcome is Outcome.PASS
    assert found["no-such-package"].outcome is Outcome.FAIL
    assert found["no-such-picture"].outcome is Outcome.SKIP
    assert found["no-such-picture"].needed_for == "the shipped cases"
    assert 'pip install "tipchain[cases]"' in found["no-such-picture"].remedy
    assert found["no-such-luxury"].outcome is Outcome.SKIP
    assert found["no-such-luxury"].remedy.endswith(doctor.SET_UP)
    assert found["no-such-engine"].remedy == 'pip install "tipchain[ray]"', "the set-up does not bring it"


def test_versions_are_read_without_importing(monkeypatch):
    versions = {"paddlepaddle-gpu": "3.3", "numpy": "2.4"}

    def version(name):
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    assert installed_versions() == {"paddle": "3.3", "numpy": "2.4"}


def test_another_interpreter_tells_its_own_versions(tmp_path):
    assert versions_of(sys.executable) == {"python": platform.python_version(), **installed_versions()}
    assert versions_of(str(tmp_path / "python")) == {}


def test_python_and_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert check_python().outcome is Outcome.PASS
    assert "OMP_NUM_THREADS=7" in check_threads().detail
    monkeypatch.setattr(doctor, "PYTHONS", ((3, 5), (3, 6)))
    assert check_python().outcome is Outcome.FAIL
