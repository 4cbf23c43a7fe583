from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "tools/cuda_notice.py"
NAMES = runpy.run_path(str(PROGRAM))
cuda_packages, notice = NAMES["cuda_packages"], NAMES["notice"]


def report(*requires: str, name: str = "torch") -> dict:
    return {"install": [{"metadata": {"name": name, "version": "2.13.0", "requires_dist": list(requires)}}]}


@pytest.mark.parametrize(
    "need",
    [
        'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
        "cuda-toolkit[cublas,cudart]==13.0.3",
        "triton==3.7.1",
        "triton (==3.7.1)",
    ],
)
def test_cuda_is_seen_in_what_torch_asks_for(need):
    assert len(cuda_packages(report("filelock", need))) == 1
    text = notice(report("filelock", need))
    assert "torch 2.13.0 with CUDA" in text
    for way in ("GB", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "--python PATH"):
        assert way in text


def test_cuda_is_seen_among_what_is_installed():
    assert cuda_packages(report(name="nvidia-cublas")) == ("nvidia-cublas",)


@pytest.mark.parametrize("found", [{"install": []}, report("filelock", "sympy>=1.13", "cudaless; extra == 'x'")])
def test_a_cpu_build_says_nothing(found):
    assert notice(found) == ""


def test_an_optional_requirement_does_not_count():
    assert cuda_packages(report('triton; extra == "compile"')) == ()


def test_the_program(tmp_path):
    command = [sys.executable, str(PROGRAM)]
    done = subprocess.run(command, input=json.dumps(report("triton")), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.startswith("note: ")) == (0, True)
    done = subprocess.run(command, input="{", capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
