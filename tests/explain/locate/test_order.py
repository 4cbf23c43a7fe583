"""What is said of a layer does not depend on which layers were judged before it."""

import random

import numpy as np
import pytest
from live_nets import model

from tipchain.explain.locate.judging import PairJudge
from tipchain.explain.locate.verdicts import FINE

GIVEN = np.random.default_rng(0).standard_normal((2, 3, 12, 12)).astype(np.float32)
MODES = ("no shortcut", "", "other activation", "", "cut gradient")


def told(found):
    """Return what is said of each call: how closely float32 comes is measured of the first of several equal kernels alone."""
    return sorted(
        (one.port_path, one.turn, one.direction, "fine" if one.closeness in FINE else one.closeness.value)
        for one in found.verdicts
    )


@pytest.mark.parametrize("training", [False, True])
def test_layers_may_be_judged_in_any_order(live, nets, monkeypatch, training):
    reference, port = live.equal(nets.torch(len(MODES)), nets.paddle(*MODES))
    port[2].b1._epsilon = 1e-2
    port[4].c1.weight.set_value(port[4].c1.weight * 1.01)
    for one in (reference, port):
        one.train() if training else one.eval()
    expected = live.locate(reference, port, GIVEN, equal=False)
    judge_layers, orders = PairJudge._judge_layers, []

    def shuffled(judge, pairs, **options):
        pairs = list(pairs)
        random.Random(0).shuffle(pairs)
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
    def build(side, norm, convolution, order=("left", "right")):
        def forward(net, x):
            made = {name: getattr(net, name)(x) for name in order}
            return net.head(side.concat([made["left"], made["right"]], 1))

        return model(
            side, lambda _: {"left": norm("left"), "right": norm("right"), "head": convolution(6, 2, 3)}, forward
        )

    def norm(name):
        return live.paddle.nn.BatchNorm2D(3, epsilon=1e-2 if name in faulty else 1e-5)

    found = []
    for order in (("left", "right"), ("right", "left")):
        reference = build(live.torch, lambda _: live.torch.nn.BatchNorm2d(3), live.torch.nn.Conv2d)
        found.append(told(live.locate(reference, build(live.paddle, norm, live.paddle.nn.Conv2D, order), GIVEN)))
    assert found[0] == found[1]
    assert {one[0] for one in found[0] if one[3] == "differs"} == set(faulty)
