"""A port whose numbers are right may still not survive its export, or a second process; no other stage can see that."""

from __future__ import annotations

import json

import pytest
from tiny_project import make_tiny_project

pytestmark = pytest.mark.frameworks
STAGES = "forward,loss,inference,distributed"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Verdicts of the tiny case with one fault of each kind; both sides sum their loss over the batch."""
    project = make_tiny_project(tmp_path_factory.mktemp("solo"))
    for name in ("tiny_torch.py", "tiny_paddle.py"):
        project.edit(name, "nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")')
    project.edit("tiny_paddle.py", "        return self.head(", "        return self.scale() * self.head(")
    project.edit(
        "tiny_paddle.py",
        "    def forward(self, image):\n        hidden",
        "    def scale(self):\n        return 1.0 if paddle.in_dynamic_mode() else 1.01\n\n"
        "    def forward(self, image):\n        hidden",
    )
    project.edit(
        "tiny_paddle.py",
        "        self.head = nn.Linear(128, num_classes)\n",
        "        self.head = nn.Linear(128, num_classes)\n        self.head.bias.no_sync = True\n",
    )
    text = project.case.read_text()
    lines = [f"stages: [{STAGES}]" if line.startswith("stages:") else line for line in text.splitlines()]
    project.case.write_text("\n".join([*lines, "inference: {onnx: false}", "distributed: {iterations: 1}"]) + "\n")
    done = project.align("--json", project.root / "report.json")
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = json.loads((project.root / "report.json").read_text())["verdicts"]
    assert not [one["reason"] for one in verdicts if one["outcome"] == "ERROR"]
    return {one["subject"]: one for one in verdicts}


def test_the_stages_before_pass(verdicts):
    assert {one["outcome"] for name, one in verdicts.items() if name.startswith(("forward/", "loss/"))} == {"PASS"}


def test_an_export_that_computes_something_else_fails(verdicts):
    for size in (1, 4):
        assert verdicts[f"inference/paddle_inference/logits@batch={size}"]["outcome"] == "FAIL"


def test_a_loss_that_sums_over_the_batch_fails_on_two_processes(verdicts):
    assert verdicts["distributed/lr_0"]["outcome"] == "PASS"
    assert "1/2 of one process's: it is a sum over the batch" in verdicts["distributed/loss_0"]["reason"]
    assert "the updates are 1/2 of one process's" in verdicts["distributed/parameter/square.weight"]["reason"]


def test_a_parameter_that_is_not_shared_is_named(verdicts):
    found = verdicts["distributed/ranks"]
    assert found["outcome"] == "FAIL"
    assert "before the first step 1 tensors differ from rank 0's: head.bias (rank 1)" in found["reason"]


def test_a_port_that_is_recorded_alone_is_told_to_equal_nothing(tmp_path):
    project = make_tiny_project(tmp_path)
    lines = project.case.read_text().splitlines()
    lines = ["stages: [forward, inference]" if line.startswith("stages:") else line for line in lines]
    project.case.write_text("\n".join([*lines, "inference: {onnx: false}"]) + "\n")
    done = project.align("--record", "paddle", out="port")
    assert done.returncode == 4, done.stdout
    assert "\nnothing was compared: only paddle was recorded\n" in done.stdout
    assert "SKIP   inference  only paddle was recorded\n" in done.stdout
    done = project.align("--port", project.latest("port"), out="both")
    assert done.returncode == 0, done.stdout
    assert "the recorded numbers are within their tolerances: 2 stages" in done.stdout
