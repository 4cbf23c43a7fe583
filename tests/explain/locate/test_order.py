"""What is said of a layer does not depend on which layers were judged before it."""

from __future__ import annotations

import random

import numpy as np
import pytest

GIVEN = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)
MODES = ("no shortcut", "", "other activation", "", "cut gradient")


def told(found):
    """Return what is said of each call: how closely float32 comes is measured of the first of several equal kernels alone."""
    from tipchain.explain.locate.verdicts import FINE

    return sorted(
        (one.port_path, one.turn, one.direction, "fine" if one.closeness in FINE else one.closeness.value)
        for one in found.verdicts
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("seed", range(1))
def test_layers_may_be_judged_in_any_order(live, nets, monkeypatch, training, seed):
    from tipchain.explain.locate.judging import PairJudge

    reference, port = live.equal(nets.torch.residual(len(MODES)), nets.paddle.residual(*MODES))
    port[2].b1._epsilon = 1e-2
    port[4].c1.weight.set_value(port[4].c1.weight * 1.01)
    for one in (reference, port):
        one.train() if training else one.eval()
    expected = live.locate(reference, port, GIVEN, equal=False)
    judge_layers, orders = PairJudge._judge_layers, []

    def shuffled(judge, pairs, **options):
        pairs = list(pairs)
        random.Random(seed).shuffle(pairs)
        orders.append([one.port.number for one in pairs])
        return judge_layers(judge, pairs, **options)

    monkeypatch.setattr(PairJudge, "_judge_layers", shuffled)
    found = live.locate(reference, port, GIVEN, equal=False)
    assert orders[0] != sorted(orders[0])
    assert told(found) == told(expected)
    assert found.first.port_path == expected.first.port_path
    assert {one[0] for one in told(found) if one[3] == "differs"} >= {"2.b1", "4.c1"}


@pytest.mark.parametrize("faulty", [(), ("left",)])
def test_branches_may_be_called_in_any_order(live, faulty):
    torch, paddle = live.torch, live.paddle

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
            self.head = torch.nn.Conv2d(6, 2, 3)

        def forward(self, x):
            return self.head(torch.cat([self.left(x), self.right(x)], dim=1))

    class Port(paddle.nn.Layer):
        def __init__(self, first):
            super().__init__()
            self.left, self.right = (
                paddle.nn.BatchNorm2D(3, epsilon=1e-2 if name in faulty else 1e-5) for name in ("left", "right")
            )
            self.head, self.first = paddle.nn.Conv2D(6, 2, 3), first

        def forward(self, x):
            made = {name: getattr(self, name)(x) for name in sorted(("left", "right"), reverse=self.first == "right")}
            return self.head(paddle.concat([made["left"], made["right"]], axis=1))

    found = [told(live.locate(Reference(), Port(first), GIVEN)) for first in ("left", "right")]
    assert found[0] == found[1]
    assert {one[0] for one in found[0] if one[3] == "differs"} == set(faulty)
