"""Gradients that part where a little noise crosses a kink: no code does otherwise, and code that does is found all the same."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402

GIVEN = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)


class Reference(torch.nn.Module):
    """A gate, whose slope Paddle keeps in float32, before a kink that is no layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.gate = torch.nn.Linear(8, 8), torch.nn.Hardsigmoid()
        self.b, self.c = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)
        with torch.no_grad():
            self.a.weight.mul_(4)

    def before(self, x):
        y = self.a(x)
        return self.b(y * self.gate(y))

    def forward(self, x):
        return self.c(torch.relu(self.before(x)))


class Port(paddle.nn.Layer):
    def __init__(self, factor=1.0):
        super().__init__()
        self.a, self.gate = paddle.nn.Linear(8, 8), paddle.nn.Hardsigmoid()
        self.b, self.c = paddle.nn.Linear(8, 8), paddle.nn.Linear(8, 4)
        self.factor = factor

    def before(self, x):
        y = self.a(x)
        return self.b(y * self.gate(y))

    def forward(self, x):
        z = paddle.nn.functional.relu(self.before(x))
        return self.c(self.factor * z + ((1 - self.factor) * z).detach())


def on_the_kink(factor=1.0):
    """Return both models, with a bias that puts one element at zero, on one side in torch and on the other in Paddle."""
    ours, theirs = Reference(), Port(factor)
    tipchain.copy_weights(ours, theirs)
    wide = ours.double().before(torch.from_numpy(GIVEN).double()).detach().numpy()
    ours.float()
    paddle.set_default_dtype("float64")
    port = Port()
    tipchain.copy_weights(Reference().double(), port)
    narrow = port.before(paddle.to_tensor(GIVEN.astype(np.float64))).numpy()
    paddle.set_default_dtype("float32")
    row, column = np.unravel_index(np.argmax(np.abs(wide - narrow)), wide.shape)
    with torch.no_grad():
        ours.b.bias[column] -= (wide + narrow)[row, column] / 2
    tipchain.copy_weights(ours, theirs)
    return ours.eval(), theirs


def test_an_element_that_noise_takes_across_a_kink_is_no_fault_of_the_code():
    ours, theirs = on_the_kink()
    theirs.eval()
    report = tipchain.align(ours, theirs, {"args": GIVEN}, causes=False)
    assert 1e-9 < max(report.numbers.values()) < 1e-6, "the gate's slope"
    assert report.passed, str(report)


def test_code_that_scales_gradients_is_found_beside_it():
    ours, theirs = on_the_kink(0.5)
    theirs.eval()
    report = tipchain.align(ours, theirs, {"args": GIVEN}, causes=False)
    assert report.first_divergence is not None
    assert report.first_divergence.direction == "backward"
    assert report.first_divergence.own == pytest.approx(0.5, abs=0.01)
