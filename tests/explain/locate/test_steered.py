"""Gradients that part where a little noise crosses a kink: no code does otherwise, and code that does is found all the same."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain

GIVEN = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)


def layers(nn):
    return {"a": nn.Linear(8, 8), "gate": nn.Hardsigmoid(), "b": nn.Linear(8, 8), "c": nn.Linear(8, 4)}


def before(net, x):
    """Return what a gate, whose slope Paddle keeps in float32, makes before a kink that is no layer."""
    y = net.a(x)
    return net.b(y * net.gate(y))


def reference():
    torch.manual_seed(0)
    made = model(torch, layers, lambda net, x: net.c(torch.relu(before(net, x))))
    with torch.no_grad():
        made.a.weight.mul_(4)
    return made


def port(factor=1.0):
    def forward(net, x):
        z = paddle.nn.functional.relu(before(net, x))
        return net.c(factor * z + ((1 - factor) * z).detach())

    return model(paddle, layers, forward)


def on_the_kink(factor=1.0):
    """Return both models, with a bias that puts one element at zero, on one side in torch and on the other in Paddle."""
    ours, theirs = reference(), port(factor)
    tipchain.copy_weights(ours, theirs)
    wide = before(ours.double(), torch.from_numpy(GIVEN).double()).detach().numpy()
    ours.float()
    paddle.set_default_dtype("float64")
    double = port()
    tipchain.copy_weights(reference().double(), double)
    narrow = before(double, paddle.to_tensor(GIVEN.astype(np.float64))).numpy()
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
