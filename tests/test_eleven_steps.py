"""A fault of each of the guide's eleven steps, planted in the tiny port: the first stage that fails is that step's.

Every run aligns all stages in one go, as users do. A fault of an early step shows again in later ones that rest on it;
which may inherit it is said beside each, and no other may fail.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from tiny_project import TinyProject, make_tiny_project

from tipchain.modes import STAGES

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly, pytest.mark.timeout(1200)]
STEPS = STAGES[:11]


@dataclass(frozen=True)
class Fault:
    """What is replaced in the port, the stage that must fail, those that rest on it, and words of the message."""

    stage: str
    old: str
    new: str
    inherits: tuple[str, ...] = ()
    words: str = ""


FLATTENED = "hidden = paddle.flatten(self.features(image), 1)"
WARMED_UP = f"""self.steps = getattr(self, "steps", 0) + self.training
        {FLATTENED} * (1.05 if self.steps > 8 else 1)"""
"""What grows after some steps of training: no stage before it takes as many."""
FAULTS = (
    Fault("forward", "nn.functional.relu(self.square(hidden))", "self.square(hidden)",
          ("metric", "loss", "backward", "train"), "worst at ("),
    Fault("data", "np.float32(255) - np.float32(0.5)", "np.float32(255) - np.float32(0.45)",
          ("metric", "train_data", "train"), "sample 0"),
    Fault("metric", "min(5, output.shape[1])", "min(4, output.shape[1])", ("train",), "acc_top5"),
    Fault("loss", "nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(label_smoothing=0.1)", ("backward", "train"),
          "the losses of equal outputs differ"),
    Fault("optimizer", "momentum=momentum", "momentum=0.8", ("backward", "regularization", "train"), "update 2"),
    Fault("lr", "gamma=gamma", "gamma=0.9", ("backward", "train"), "first differs at step 2"),
    Fault("regularization", "weight_decay=weight_decay", "weight_decay=None", ("backward", "train"),
          "decayed in the reference only"),
    Fault("backward", "nn.BatchNorm2D(8)", "nn.BatchNorm2D(8, momentum=0.5)", ("preflight", "train"), "running_"),
    Fault("train_data", "shuffle=True, drop_last=True", "shuffle=True, drop_last=False", (), "batches"),
    Fault("init", "return like_torch(Tiny(num_classes, dropout))", "return Tiny(num_classes, dropout)", (), "std"),
    Fault("train", FLATTENED, WARMED_UP, (), "envelope"),
)  # fmt: skip


@pytest.fixture(scope="module")
def clean(tmp_path_factory) -> TinyProject:
    """The tiny project with all eleven steps, train mode among them and equal masks of dropout."""
    project = make_tiny_project(tmp_path_factory.mktemp("steps"))
    project.edit(
        "case.yaml",
        "stages: [forward, data, metric, loss, backward, train_data, init, train, inference, distributed]",
        f"stages: [{', '.join(STEPS)}]",
    )
    project.edit("case.yaml", "learning_rate: 1.0e-4}", "learning_rate: 1.0e-4, mode: train}")
    project.edit("case.yaml", "learning_rate: 1.0e-3}", "learning_rate: 1.0e-3, dropout: equal}")
    return project


def failures(project: TinyProject) -> dict[str, list[str]]:
    """Align all steps and return what failed, by stage."""
    done = project.align("--json", project.root / "report.json", timeout=900)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for verdict in json.loads((project.root / "report.json").read_text())["verdicts"]:
        if verdict["outcome"] in ("FAIL", "ERROR"):
            text = f"{verdict['subject']} {verdict['reason']}"
            found.setdefault(verdict["subject"].partition("/")[0], []).append(text)
    assert (done.returncode == 1) is bool(found)
    return found


def test_every_step_has_its_fault():
    assert tuple(fault.stage for fault in FAULTS) == STEPS


def test_without_a_fault_no_step_fails(clean):
    assert failures(clean) == {}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.stage)
def test_a_fault_of_a_step_fails_that_step_first(clean, fault):
    clean.edit("tiny_paddle.py", fault.old, fault.new)
    try:
        found = failures(clean)
    finally:
        clean.edit("tiny_paddle.py", fault.new, fault.old)
    assert fault.stage in found
    assert set(found) <= {fault.stage, *fault.inherits}, found
    assert any(fault.words in text for text in found[fault.stage]), found[fault.stage]
