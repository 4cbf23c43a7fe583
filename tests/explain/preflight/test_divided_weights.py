"""One side keeps in two tensors what the other has in one: that is no fault by itself."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402

GIVEN = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)


class Reference(torch.nn.Module):
    """A cell that joins what it is given with what it keeps."""

    def __init__(self):
        super().__init__()
        self.gates, self.head = torch.nn.Linear(6 + 3, 3), torch.nn.Linear(3, 2)

    def forward(self, x):
        state = torch.zeros(len(x), 3, dtype=x.dtype)
        for one in x.unbind(1):
            state = torch.tanh(self.gates(torch.cat([one, state], 1)))
        return self.head(state)


class Port(paddle.nn.Layer):
    """The same with a layer for each."""

    def __init__(self, kept):
        super().__init__()
        self.of_input, self.of_state = paddle.nn.Linear(6, 3), paddle.nn.Linear(3, 3, bias_attr=False)
        self.head, self.kept = paddle.nn.Linear(3, 2), kept

    def forward(self, x):
        state = paddle.zeros([len(x), 3], x.dtype)
        for one in x.unbind(1):
            state = paddle.tanh(self.of_input(one) + self.of_state(self.kept(state)))
        return self.head(state)


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
    reference, port = Reference(), Port(kept)
    weight = reference.gates.weight.detach().numpy().T
    port.of_input.weight.set_value(weight[:6])
    port.of_state.weight.set_value(weight[6:] + wrong)
    port.of_input.bias.set_value(reference.gates.bias.detach().numpy())
    for name in ("weight", "bias"):
        getattr(port.head, name).set_value(getattr(reference.head, name).detach().numpy().T)
    report = tipchain.align(reference, port, GIVEN, names={"gates": "of_input"})
    assert report.passed is passes, str(report)
