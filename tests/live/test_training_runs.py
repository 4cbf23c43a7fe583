"""Trainings with a loss: what is copied for them, and that what parts in them alone is shown."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY, SGD, copy_and_align

import tipchain
from tipchain.errors import Outcome
from tipchain.live.training import Recipe

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
INPUTS = {"args": RANDOM.standard_normal((6, 5)).astype(np.float32), "labels": RANDOM.integers(0, 4, 6)}


@pytest.mark.parametrize("momentum", [0.9, 0.8])
def test_the_port_is_copied_once_and_the_reference_again_where_both_are_apart(monkeypatch, momentum):
    made = []

    copied = Recipe.copied
    monkeypatch.setattr(Recipe, "copied", lambda recipe, number: made.append(number) or copied(recipe, number))
    reference, port = torch.nn.Linear(5, 4), paddle.nn.Linear(5, 4)
    report = copy_and_align(
        reference,
        port,
        INPUTS,
        loss=CROSS_ENTROPY,
        optimizers=(
            lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
            lambda parameters: paddle.optimizer.Momentum(0.1, momentum, parameters),
        ),
    )
    assert report.stages["train"] is (Outcome.PASS if momentum == 0.9 else Outcome.FAIL), str(report)
    assert made == ([0, 1] if momentum == 0.9 else [0, 1, 0]), "only what is apart is measured"
    assert ("after step 1 " in report.reasons["train"]) is (momentum == 0.8), "the first update is the same"


class Turning(paddle.nn.Layer):
    """Gives something else from its third call on."""

    def __init__(self):
        super().__init__()
        self.inner, self.calls = paddle.nn.Linear(5, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x) * (1.5 if self.calls > 2 else 1)


def test_what_parts_in_training_alone_is_shown():
    reference, port = torch.nn.Linear(5, 4), Turning()
    tipchain.copy_weights(reference, port.inner)
    report = tipchain.align(
        reference, port, INPUTS, loss=CROSS_ENTROPY, names={"": "inner"}, training=True, optimizers=SGD
    )
    assert [name for name, outcome in report.stages.items() if outcome is Outcome.FAIL] == ["train"], str(report)
    assert report.reasons["train"].startswith("after step 2 the loss is ")
    (first,) = report.diagnoses
    assert (first.stage, first.port_path, first.code, first.name) == ("train", "loss", "parting", "loss")
    assert first.message.startswith("at step 2 backward starts from a loss of ")
