"""Models as a whole: what they do alike however they are built, and what no layer by itself does otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align

import tipchain
from tipchain.errors import Outcome

INPUT = {"args": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}


class Reference(torch.nn.Module):
    """Two linear layers, the second one's weight used once more by a function if ``tied``."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.one, self.two = torch.nn.Linear(6, 8), torch.nn.Linear(8, 6)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)
        self.tied = tied

    def forward(self, x):
        y = self.two(torch.tanh(self.one(x)))
        return torch.nn.functional.linear(y, self.two.weight.t()) if self.tied else y


def values(reference, name):
    return reference.get_parameter(name).detach().numpy()


def tensor(layer, array):
    made = layer.create_parameter(list(array.shape))
    made.set_value(np.ascontiguousarray(array))
    return made


class Turned(paddle.nn.Layer):
    """A linear layer of one's own, whose weight is kept as torch keeps it."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = tensor(self, weight), tensor(self, bias)

    def forward(self, x):
        return paddle.nn.functional.linear(x, self.weight.t(), self.bias)


class OwnLayers(paddle.nn.Layer):
    def __init__(self, reference):
        super().__init__()
        self.one = Turned(values(reference, "one.weight"), values(reference, "one.bias"))
        self.two = Turned(values(reference, "two.weight"), values(reference, "two.bias"))

    def forward(self, x):
        return self.two(paddle.tanh(self.one(x)))


class Permuted(paddle.nn.Layer):
    """The hidden numbers in another order, which the code puts right."""

    def __init__(self, reference):
        super().__init__()
        self.order = [3, 1, 0, 2, 7, 6, 5, 4]
        self.one, self.two = paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 6)
        self.one.weight.set_value(np.ascontiguousarray(values(reference, "one.weight").T[:, self.order]))
        self.one.bias.set_value(values(reference, "one.bias")[self.order])
        self.two.weight.set_value(np.ascontiguousarray(values(reference, "two.weight").T))
        self.two.bias.set_value(values(reference, "two.bias"))

    def forward(self, x):
        y = paddle.tanh(self.one(x))
        return self.two(paddle.index_select(y, paddle.to_tensor(np.argsort(self.order)), axis=1))


class NoLayers(paddle.nn.Layer):
    """Parameters of its own and functions; ``factor`` other than 1 is a fault."""

    def __init__(self, reference, factor=1.0):
        super().__init__()
        self.w1, self.b1, self.w2, self.b2 = (
            tensor(self, values(reference, name)) for name in ("one.weight", "one.bias", "two.weight", "two.bias")
        )
        self.factor = factor

    def forward(self, x):
        y = paddle.tanh(paddle.matmul(x, self.w1, transpose_y=True) + self.b1)
        return (paddle.matmul(y, self.w2, transpose_y=True) + self.b2) * self.factor


class Port(paddle.nn.Layer):
    """``cut``: the function that uses a layer's weight once more gets no gradient."""

    def __init__(self, *, cut: bool = False, tied: bool = False) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(6, 8), paddle.nn.Linear(8, 6)
        self.cut, self.tied = cut, tied

    def forward(self, x):
        y = self.two(paddle.tanh(self.one(x)))
        if not self.tied:
            return y
        weight = self.two.weight.detach() if self.cut else self.two.weight
        return paddle.matmul(y, weight.t())


@pytest.mark.parametrize("port", [OwnLayers, Permuted, NoLayers])
def test_a_port_that_arranges_its_parameters_otherwise_passes(port):
    reference = Reference()
    report = tipchain.align(reference, port(reference), INPUT)
    assert report.passed, str(report)
    assert set(report.stages.values()) == {Outcome.PASS}
    assert report.diagnoses == []


def test_a_port_without_layers_that_does_something_else_does_not_pass():
    reference = Reference()
    report = tipchain.align(reference, NoLayers(reference, 1.001), INPUT)
    assert not report.passed
    assert report.stages["forward"] is not Outcome.PASS


@pytest.mark.parametrize("cut", [False, True])
def test_a_weight_that_code_uses_without_its_gradient_is_found(cut):
    reference, port = Reference(tied=True), Port(tied=True, cut=cut)
    report = copy_and_align(reference, port, INPUT)
    assert report.passed is not cut
    if cut:
        assert report.stages == {"preflight": Outcome.PASS, "forward": Outcome.PASS, "backward": Outcome.FAIL}
        assert report.first_divergence.port_path == ""
        assert "gives two.weight another gradient" in report.first_divergence.reason
