"""What training two models holds: one port."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402
from tipchain.errors import Outcome  # noqa: E402
from tipchain.live import pieces  # noqa: E402
from tipchain.live.lockstep import compare  # noqa: E402

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
INPUTS = {"args": RANDOM.standard_normal((6, 5)).astype(np.float32), "labels": RANDOM.integers(0, 4, 6)}


@pytest.mark.parametrize("momentum", [0.9, 0.8])
def test_the_port_is_copied_once(monkeypatch, momentum):
    made = []

    def counted(recipe, **how):
        copy = recipe.copied
        recipe.copied = lambda number: made.append(number) or copy(number)
        return compare(recipe, **how)

    monkeypatch.setattr(pieces, "compare", counted)
    reference, port = torch.nn.Linear(5, 4), paddle.nn.Linear(5, 4)
    tipchain.copy_weights(reference, port)
    report = tipchain.align(
        reference,
        port,
        INPUTS,
        loss=(torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss()),
        optimizers=(
            lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
            lambda parameters: paddle.optimizer.Momentum(0.1, momentum, parameters),
        ),
    )
    assert report.stages["train"] is (Outcome.PASS if momentum == 0.9 else Outcome.FAIL), str(report)
    assert made.count(1) == 1
    assert ("after step 1 " in report.reasons["train"]) is (momentum == 0.8), "the first update is the same"
