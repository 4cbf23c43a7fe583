"""Models as a whole: what they do alike however they are built, and what no layer by itself does otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain
from tipchain.errors import Outcome

INPUT = {"args": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}


def reference_model():
    generator = torch.Generator().manual_seed(0)
    made = model(
        torch,
        lambda nn: {"one": nn.Linear(6, 8), "two": nn.Linear(8, 6)},
        lambda net, x: net.two(torch.tanh(net.one(x))),
    )
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made


def parameters(**values):
    """Return parameters of a port that hold a reference's."""
    made = {name: paddle.create_parameter(list(value.shape), "float32") for name, value in values.items()}
    for name, value in values.items():
        made[name].set_value(value.detach().numpy())
    return made


def own_layers(reference):
    """Return linear layers of one's own, whose weights are kept as torch keeps them."""

    def linear(layer):
        own = parameters(weight=layer.weight, bias=layer.bias)
        return model(paddle, lambda _: own, lambda net, x: paddle.nn.functional.linear(x, net.weight.t(), net.bias))

    layers = {"one": linear(reference.one), "two": linear(reference.two)}
    return model(paddle, lambda _: layers, lambda net, x: net.two(paddle.tanh(net.one(x))))


def permuted(reference):
    """Return the hidden numbers in another order, which the code puts right."""
    order = [3, 1, 0, 2, 7, 6, 5, 4]

    def forward(net, x):
        y = paddle.tanh(net.one(x))
        return net.two(paddle.index_select(y, paddle.to_tensor(np.argsort(order)), axis=1))

    made = model(paddle, lambda nn: {"one": nn.Linear(6, 8), "two": nn.Linear(8, 6)}, forward)
    tipchain.copy_weights(reference, made)
    made.one.weight.set_value(made.one.weight.numpy()[:, order])
    made.one.bias.set_value(made.one.bias.numpy()[order])
    return made


def no_layers(reference, factor=1.0):
    """Return parameters of a model's own and functions; ``factor`` other than 1 is a fault."""
    one, two = reference.one, reference.two
    own = parameters(w1=one.weight, b1=one.bias, w2=two.weight, b2=two.bias)

    def forward(net, x):
        y = paddle.tanh(paddle.matmul(x, net.w1, transpose_y=True) + net.b1)
        return (paddle.matmul(y, net.w2, transpose_y=True) + net.b2) * factor

    return model(paddle, lambda _: own, forward)


@pytest.mark.parametrize("port", [own_layers, permuted, no_layers])
def test_a_port_that_arranges_its_parameters_otherwise_passes(port):
    reference = reference_model()
    report = tipchain.align(reference, port(reference), INPUT)
    assert report.passed, str(report)
    assert set(report.stages.values()) == {Outcome.PASS}
    assert report.diagnoses == []


def test_a_port_without_layers_that_does_something_else_does_not_pass():
    reference = reference_model()
    report = tipchain.align(reference, no_layers(reference, 1.001), INPUT)
    assert not report.passed
    assert report.stages["forward"] is not Outcome.PASS
