"""Casts to float32 do nothing to a model in float32, and nothing in its float64 run; coarser ones do."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402
from tipchain.errors import Outcome  # noqa: E402
from tipchain.explain.locate.verdicts import Closeness, classify, measure  # noqa: E402

TABLE = np.linspace(0.5, 1.5, 16, dtype=np.float32)


class Norm(torch.nn.Module):
    """An RMSNorm that computes in float32, as language models' do."""

    def __init__(self, size, epsilon):
        super().__init__()
        self.weight, self.epsilon = torch.nn.Parameter(torch.ones(size)), epsilon

    def forward(self, x):
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype)


class PortNorm(paddle.nn.Layer):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = self.create_parameter([size], default_initializer=paddle.nn.initializer.Constant(1.0))
        self.epsilon = epsilon

    def forward(self, x):
        wide = x.astype("float32")
        return self.weight * (wide * paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).astype(x.dtype)


class Reference(torch.nn.Module):
    def __init__(self, single=True):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.norm, self.b = torch.nn.Linear(16, 16), Norm(16, 1e-3), torch.nn.Linear(16, 16)
        self.single = single

    def forward(self, x):
        scores = self.a(self.norm(x))
        steps = torch.arange(16, dtype=torch.float32) / 16
        weights = torch.softmax(scores, -1, dtype=torch.float32 if self.single else None).to(x.dtype) * steps
        return self.b(weights)


class Port(paddle.nn.Layer):
    def __init__(self, coarse=False):
        super().__init__()
        self.a, self.norm, self.b = paddle.nn.Linear(16, 16), PortNorm(16, 1e-3), paddle.nn.Linear(16, 16)
        self.coarse = coarse

    def forward(self, x):
        scores = self.a(self.norm(x))
        if self.coarse:
            scores = scores.astype("float16").astype(x.dtype)
        steps = paddle.arange(16, dtype="float32") / 16
        weights = paddle.nn.functional.softmax(scores, dtype="float32").astype(x.dtype) * steps
        return self.b(weights)


def aligned(reference, port, training=False):
    tipchain.copy_weights(reference, port)
    given = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    reference.train(training)
    port.train() if training else port.eval()
    return tipchain.align(reference, port, {"args": given}, training=training, causes=False)


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_casts_to_float32_leave_nothing_to_tell_apart(single, training):
    report = aligned(Reference(single), Port(), training)
    assert report.passed, str(report)
    assert max(report.numbers.values()) < 1e-12


def test_a_cast_to_less_than_float32_is_no_rounding():
    assert aligned(Reference(), Port(coarse=True)).stages["forward"] is Outcome.FAIL


@pytest.mark.parametrize("own", [(True, False), (False, True)])
def test_a_constant_in_float32_does_not_keep_a_model_from_its_float64_run(own):
    """Such a product runs in float32 alone once the casts are undone; as it is written it runs in float64, too."""

    class Cast(Reference):
        def forward(self, x):
            hidden = self.norm(x)
            product = (
                hidden.to(torch.float32) @ torch.diag(torch.from_numpy(TABLE))
                if own[0]
                else hidden * torch.from_numpy(TABLE)
            )
            return self.b(product.to(x.dtype))

    class CastPort(Port):
        def forward(self, x):
            hidden = self.norm(x)
            table = paddle.to_tensor(TABLE)
            product = paddle.matmul(hidden.astype("float32"), paddle.diag(table)) if own[1] else hidden * table
            return self.b(product.astype(x.dtype))

    report = aligned(Cast(), CastPort())
    assert report.passed, str(report)
    assert all("float64" in one.method for one in report.layers)


def test_a_sum_that_is_zero_but_for_rounding_is_no_coarse_arithmetic():
    """The bias stands before a norm: its gradient is zero, and Paddle's kernel adds up its terms one after the other."""
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(8, 8, 7, padding=3, groups=8), torch.nn.BatchNorm2d(8)
    ours = torch.nn.Sequential(conv, norm, torch.nn.ReLU6())
    conv, norm = paddle.nn.Conv2D(8, 8, 7, padding=3, groups=8), paddle.nn.BatchNorm2D(8)
    theirs = paddle.nn.Sequential(conv, norm, paddle.nn.ReLU6())
    tipchain.copy_weights(ours, theirs)
    given = 1e-2 * np.random.default_rng(0).standard_normal((2, 8, 64, 64)).astype(np.float32)
    report = tipchain.align(ours.train(), theirs, {"args": given}, training=True, causes=False)
    assert report.passed, str(report)


def test_single_elements_that_float32_puts_on_the_other_side_are_no_coarse_arithmetic():
    """float16 is off everywhere; a kink is off where it is crossed."""
    generator = np.random.default_rng(0)
    truth = generator.standard_normal((16, 8))
    rounded = truth.astype(np.float32)
    crossed = rounded.copy()
    crossed[3] *= 0.9
    coarse = truth.astype(np.float16).astype(np.float32)
    for port, expected in ((crossed, Closeness.ROUNDING), (coarse, Closeness.LOWER_PRECISION)):
        found = measure("it", truth, rounded, port, 1e-15)
        assert classify([found])[0] is expected
