"""What training two models holds: one port, and of the reference no optimizer longer than it trains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402
from tipchain.errors import Outcome  # noqa: E402
from tipchain.live import align as aligning  # noqa: E402
from tipchain.live import training  # noqa: E402
from tipchain.live.training import _held, train_both  # noqa: E402
from tipchain.live.training import _train as train  # noqa: E402

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)


class Shifted(paddle.nn.Layer):
    def __init__(self, shift):
        super().__init__()
        self.inner, self.shift = paddle.nn.Linear(5, 4), shift

    def forward(self, x):
        return self.inner(x) * (1 + self.shift)


INPUTS = {"args": RANDOM.standard_normal((6, 5)).astype(np.float32), "labels": RANDOM.integers(0, 4, 6)}


def test_the_port_is_copied_once(monkeypatch):
    made = []

    def counted(recipe, **how):
        def copied(number):
            made.append(number)
            return recipe.copied(number)

        return train_both(replace(recipe, copied=copied), **how)

    monkeypatch.setattr(aligning, "train_both", counted)
    reference, port = torch.nn.Linear(5, 4), paddle.nn.Linear(5, 4)
    tipchain.copy_weights(reference, port)
    report = tipchain.align(
        reference,
        port,
        INPUTS,
        loss=(torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss()),
        optimizers=(
            lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
            lambda parameters: paddle.optimizer.Momentum(0.1, 0.9, parameters),
        ),
    )
    assert report.stages["train"] is Outcome.PASS, str(report)
    assert made.count(1) == 1
    assert "losses and 2 tensors" in report.reasons["train"]


@pytest.mark.parametrize("value", [1 / 3, 1e300, np.nan])
def test_values_before_training_are_held_whole(value):
    wide = np.array([0.5, value])
    assert np.array_equal(_held(wide), wide, equal_nan=True)
    assert _held(np.array([0.5, 2.0])).dtype == np.float32
    counts = np.array([3])
    assert _held(counts) is not counts


@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_models_whose_losses_part_at_once_are_not_trained(monkeypatch, shift):
    trained = []
    monkeypatch.setattr(training, "_train", lambda *given, **how: trained.append(given[1]) or train(*given, **how))
    reference, port = torch.nn.Linear(5, 4), Shifted(shift)
    tipchain.copy_weights(reference, port.inner)
    report = tipchain.align(
        reference,
        port,
        INPUTS,
        loss=(torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss()),
        names={"": "inner"},
        optimizers=(
            lambda parameters: torch.optim.SGD(parameters, 0.1),
            lambda parameters: paddle.optimizer.SGD(0.1, parameters),
        ),
    )
    assert trained == ([] if shift else [0, 1])
    assert ("the losses part at step 0" in report.reasons["train"]) == bool(shift)
