"""One side keeps in two tensors what the other has in one: that is no fault by itself."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain

GIVEN = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)


def cell(side, layers, gate):
    """Return a cell of ``layers`` and a head; ``gate`` makes its next state of what it is given and of what it keeps."""

    def forward(net, x):
        state = side.zeros([len(x), 3], dtype=x.dtype)
        for one in x.unbind(1):
            state = side.tanh(gate(net, one, state))
        return net.head(state)

    return model(side, lambda nn: {**layers, "head": nn.Linear(3, 2)}, forward)


@pytest.mark.parametrize(
    ("kept", "wrong", "passes"),
    [
        (lambda state: state, 0.0, True),
        (lambda state: state, 0.01, False),
        (lambda state: state * 0.99, 0.0, False),
        (lambda state: state.detach(), 0.0, False),
    ],
    ids=["equal", "another value", "another function", "no gradient"],
)
def test_two_layers_may_hold_the_weight_of_one(kept, wrong, passes):
    joined, parts = {"gates": torch.nn.Linear(6 + 3, 3)}, {"of_input": paddle.nn.Linear(6, 3)}
    parts["of_state"] = paddle.nn.Linear(3, 3, bias_attr=False)
    reference = cell(torch, joined, lambda net, one, state: net.gates(torch.cat([one, state], 1)))
    port = cell(paddle, parts, lambda net, one, state: net.of_input(one) + net.of_state(kept(state)))
    weight = reference.gates.weight.detach().numpy().T
    port.of_input.weight.set_value(weight[:6])
    port.of_state.weight.set_value(weight[6:] + wrong)
    port.of_input.bias.set_value(reference.gates.bias.detach().numpy())
    for name in ("weight", "bias"):
        getattr(port.head, name).set_value(getattr(reference.head, name).detach().numpy().T)
    report = tipchain.align(reference, port, GIVEN, names={"gates": "of_input"})
    assert report.passed is passes, str(report)
