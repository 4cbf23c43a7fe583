"""What `tipchain.align` says of buffers that a call changes."""

import re

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model, random

import tipchain

pytestmark = pytest.mark.frameworks
ZEROS = np.zeros(4, np.float32)


def centre():
    """Return a model that takes a moving average off, which training moves."""

    def forward(net, x):
        shifted = x - net.mean
        if net.training:
            net.mean.mul_(0.9).add_(0.1 * x.mean(0).detach())
        return shifted

    return model(torch, lambda _: {"mean": ZEROS}, forward)


def ported_centre(decay=0.9, always=False, name="mean"):
    def forward(net, x):
        mean = getattr(net, name)
        shifted = x - mean
        if net.training or always:
            mean.set_value(mean * decay + (1 - decay) * x.mean(0).detach())
        return shifted

    return model(paddle, lambda _: {name: ZEROS}, forward)


def pair(train=True, **settings):
    reference = torch.nn.Sequential(torch.nn.Linear(4, 4), centre())
    port = paddle.nn.Sequential(paddle.nn.Linear(4, 4), ported_centre(**settings))
    tipchain.copy_weights(reference, port)
    port.train() if train else port.eval()
    return reference.train(train), port, {"args": random(6, 4)}


@pytest.mark.parametrize(
    ("settings", "training", "told"),
    [
        ({"decay": 0.1, "name": "average"}, True, "after one call its buffer `mean` differs"),
        ({"decay": 0.1, "train": False}, False, "after one call its buffer `mean` differs"),
        ({"always": True}, False, "one call changes its buffer `mean`, the reference's stays"),
    ],
)
def test_a_buffer_that_moves_otherwise_fails_though_the_outputs_agree(settings, training, told):
    report = tipchain.align(*pair(**settings), training=training)
    assert not report.passed
    assert told in report.reasons["forward"]
    assert report.first_divergence.port_path == "1"
    (cause,) = report.diagnoses
    assert cause.code == "buffer"
    assert re.search("of 0, 0.* the port makes .*, the reference -?0", cause.message), cause.message


class Averages(torch.nn.Module):
    """Keeps two averages that start equal."""

    def __init__(self):
        super().__init__()
        self.register_buffer("slow", torch.ones(4))
        self.register_buffer("fast", torch.ones(4))

    def forward(self, x):
        self.slow.mul_(0.9).add_(0.1 * x.mean(0).detach())
        self.fast.mul_(0.5).add_(0.5 * x.mean(0).detach())
        return 2 * x


class PortedAverages(paddle.nn.Layer):
    """The same under other names, declared in another order."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.register_buffer("quick", paddle.ones([4]))
        self.register_buffer("long", paddle.ones([4]))

    def forward(self, x):
        mean = x.mean(0).detach()
        self.quick.set_value(self.quick * self.rate + (1 - self.rate) * mean)
        self.long.set_value(self.long * 0.9 + 0.1 * mean)
        return 2 * x


@pytest.mark.parametrize("rate", [0.5, 0.6])
def test_buffers_under_other_names_are_paired_by_what_they_hold(rate):
    reference = torch.nn.Sequential(torch.nn.Linear(4, 4), Averages())
    port = paddle.nn.Sequential(paddle.nn.Linear(4, 4), PortedAverages(rate))
    tipchain.copy_weights(reference[0], port[0])
    _, _, inputs = pair()
    report = tipchain.align(reference, port, inputs, training=True)
    assert report.passed == (rate == 0.5), str(report)
    if rate != 0.5:
        assert "its buffer `fast` differs" in report.reasons["forward"]
        (cause,) = report.diagnoses
        assert cause.place.code == "self.quick.set_value(self.quick * self.rate + (1 - self.rate) * mean)"
        assert cause.reference_place.code == "self.fast.mul_(0.5).add_(0.5 * x.mean(0).detach())"


def test_a_sparse_buffer_is_compared_as_a_dense_one():
    """openai/whisper keeps the heads of its alignment in one; it was told to be a bug of tipchain."""

    reference = centre()
    reference.register_buffer("heads", torch.eye(4).bool().to_sparse(), persistent=False)
    assert tipchain.align(reference, ported_centre(), random(3, 4)).passed
