"""What `tipchain.align` says of buffers that a call changes."""

import re

import numpy as np
import pytest
from both_frameworks import paddle, torch

import tipchain

pytestmark = pytest.mark.frameworks


class Centre(torch.nn.Module):
    """Takes a moving average off that training moves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        shifted = x - self.mean
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0).detach())
        return shifted


class PortedCentre(paddle.nn.Layer):
    """The same in Paddle."""

    def __init__(self, decay=0.9, always=False, name="mean"):
        super().__init__()
        self.decay, self.always, self.kept = decay, always, name
        self.register_buffer(name, paddle.zeros([4]))

    def forward(self, x):
        mean = getattr(self, self.kept)
        shifted = x - mean
        if self.training or self.always:
            mean.set_value(mean * self.decay + (1 - self.decay) * x.mean(0).detach())
        return shifted


def pair(**settings):
    reference = torch.nn.Sequential(torch.nn.Linear(4, 4), Centre())
    port = paddle.nn.Sequential(paddle.nn.Linear(4, 4), PortedCentre(**settings))
    tipchain.copy_weights(reference, port)
    return reference, port, {"args": np.random.default_rng(0).standard_normal((6, 4), dtype=np.float32)}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["mean", "average"])
def test_buffers_that_move_alike_are_right(training, name):
    report = tipchain.align(*pair(name=name), training=training)
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("settings", "training", "told"),
    [
        ({"decay": 0.1, "name": "average"}, True, "after one call its buffer `mean` differs"),
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
    assert re.search("of 0, 0.* the port makes .*, the reference 0", cause.message), cause.message


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

    class Heads(Centre):
        def __init__(self):
            super().__init__()
            self.register_buffer("heads", torch.eye(4).bool().to_sparse(), persistent=False)

    assert tipchain.align(Heads(), PortedCentre(), np.random.default_rng(0).normal(size=(3, 4))).passed
