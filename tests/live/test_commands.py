"""`tipchain locate`, `diagnose` and `certify`, and what a failed alignment adds by itself."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from tiny_project import make_tiny_project

from tipchain.cli import main

pytestmark = pytest.mark.frameworks

SIDES = """
import os
import numpy as np

def reference():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())

def port():
    import paddle
    made = paddle.nn.Sequential(paddle.nn.Linear(4, 4), paddle.nn.GELU(approximate=True))
    weights = reference()[0]
    made[0].weight.set_value(weights.weight.detach().numpy().T)
    made[0].bias.set_value(weights.bias.detach().numpy())
    return made

def crash():
    import signal
    os.kill(os.getpid(), signal.SIGSEGV)

def hang():
    import time
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("pair")
    (made / "sides.py").write_text(SIDES)
    np.savez(made / "inputs.npz", args=np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32))
    return made


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def options(port="port"):
    return ["--reference", "sides:reference", "--port", f"sides:{port}", "--inputs", "inputs.npz"]


def test_diagnose_takes_any_pair_of_callables_and_names_the_cause(here, capsys):
    assert main(["diagnose", *options(), "--json", "report.json"]) == 1
    shown = capsys.readouterr().out
    assert "first divergence: 1 (GELU)" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "cause: gelu-form" in shown
    report = json.loads((here / "report.json").read_text())
    assert report["passed"] is False
    assert report["diagnoses"][0]["code"] == "gelu-form"
    assert report["first_divergence"]["port_path"] == "1"


def test_locate_lists_the_layers_that_are_furthest_off(here, capsys):
    assert main(["locate", *options(), "--json", "-"]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["diagnoses"] == [], "causes are for diagnose"
    assert "own error" in shown.err
    assert "1 GELU, forward: differs" in shown.err


def test_a_model_that_crashes_or_hangs_is_a_failed_check(here, capsys):
    assert main(["locate", *options("crash")]) == 1
    assert "killed by SIGSEGV" in capsys.readouterr().out
    assert main(["locate", *options("hang"), "--timeout", "8"]) == 1
    assert "not finished after 8 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected a case, or --reference, --port and --inputs"),
        (["case.yaml", *options()], "expected a case, or --reference, --port and --inputs"),
        (options()[:4], "belong together"),
        ([*options(), "--iterations", "0"], "--iterations must be at least 1, found 0"),
        ([*options(), "--timeout", "0"], "--timeout must be a number of seconds above 0"),
        ([*options()[:5], "missing.npz"], "missing.npz: cannot be read"),
        (["missing.yaml"], "missing.yaml"),
        ([*options("nothing")], "sides has no 'nothing'"),
    ],
)
def test_wrong_use_is_one_message(here, arguments, words, capsys):
    assert main(["locate", *arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_certify_says_what_a_pass_is_worth(here, capsys):
    (here / "same.py").write_text(SIDES.replace("approximate=True", "approximate=False"))
    arguments = [word.replace("sides:", "same:") for word in options()]
    assert main(["certify", *arguments, "--most", "8", "--json", "certificate.json"]) == 0
    assert "7 of 7 planted faults would be caught" in capsys.readouterr().out
    assert json.loads((here / "certificate.json").read_text())["caught"] == 7


def test_a_failed_stage_says_where_and_why(tmp_path):
    project = make_tiny_project(tmp_path)
    project.edit("tiny_paddle.py", "nn.functional.relu(self.square(hidden))", "self.square(hidden)")
    done = project.align("--stages", "forward", locate=True)
    assert done.returncode == 1
    told = done.stdout.partition("== where and why")[2]
    assert "missing-activation" in told
    assert "tiny_paddle.py:29" in told
    assert "missing-activation" in (project.root / "out" / "alignment.log").read_text()
    again = project.run([sys.executable, "-m", "tipchain", "locate", str(project.case)])
    assert again.returncode == 1
    assert "FAIL  forward: the model (Tiny)" in again.stdout
