"""Tensors that both models have in other shapes: repeated, flattened, cut into axes; parameters in another layout."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402
from tipchain.errors import Outcome  # noqa: E402
from tipchain.explain.locate.differences import laid_out, layouts  # noqa: E402


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


CHANGES = {
    "same": lambda x: x,
    "channels last": lambda x: x.transpose(0, 2, 3, 1),
    "flattened": lambda x: x.transpose(0, 2, 3, 1).reshape(2, 20, 3),
    "flattened alone": lambda x: x.reshape(2, 3, 20),
    "two batches in one": lambda x: x.reshape(6, 4, 5),
    "an axis of one": lambda x: x[:, None],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("direction", [0, 1])
def test_an_array_is_found_in_another_layout_and_back(change, direction):
    one, other = (random(2, 3, 4, 5), change(random(2, 3, 4, 5)))[:: -1 if direction else 1]
    found = laid_out(one, other)
    assert np.array_equal(found.apply(one), other)
    assert np.array_equal(found.back(other), one)
    assert np.array_equal(found.back_shared(found.apply_gradient(one)), found.shared(one))


def test_a_little_error_does_not_hide_the_layout_but_other_values_are_no_layout():
    one = random(2, 3, 4, 5)
    other = CHANGES["flattened"](one)
    assert laid_out(one, other + 0.1 * random(2, 20, 3)).axes == (0, 2, 3, 1)
    assert laid_out(one, random(2, 20, 3)[::-1]) is None
    assert layouts((2, 3, 4), (2, 3, 5)) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [((1, 3, 4), (2, 3, 4)), ((3, 4), (2, 3, 4)), ((2, 3, 4), (1, 3, 4)), ((2, 1, 4), (2, 3, 4))],
)
def test_what_is_repeated_along_an_axis_of_one_is_the_same_and_its_gradients_add_up(expected, actual):
    one, gradient = random(*expected), random(*expected)
    if expected == (2, 3, 4):
        one[1] = one[0]
    found = laid_out(one, np.zeros(actual, np.float32))
    made = found.apply(one)
    assert made.shape == actual
    assert np.array_equal(found.back(made), one)
    assert np.allclose(found.back_shared(found.apply_gradient(gradient)), found.shared(gradient))


class TorchBias(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(9, 2)

    def forward(self, x):
        steps = torch.arange(5)
        return self.table(steps[None] - steps[:, None] + 4).permute(2, 0, 1)[None]


class PaddleBias(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.table = paddle.nn.Embedding(9, 2)

    def forward(self, x):
        steps = paddle.arange(5)
        made = self.table(steps[None] - steps[:, None] + 4).transpose([2, 0, 1])
        return made.unsqueeze(0).expand([x.shape[0], 2, 5, 5])


class TorchAttention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.bias, self.softmax = torch.nn.Linear(6, 6), TorchBias(), torch.nn.Softmax(-1)
        self.out = torch.nn.Linear(6, 3)

    def forward(self, x):
        q = self.fc(x).unflatten(-1, (2, 3)).transpose(1, 2)
        made = self.softmax(q @ q.transpose(-1, -2) + self.bias(x)) @ q
        return self.out(made.transpose(1, 2).flatten(2))


class PaddleAttention(paddle.nn.Layer):
    """The bias for every sample, heads and samples in one axis; ``factor`` other than 1 is a fault."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.fc, self.bias, self.softmax = paddle.nn.Linear(6, 6), PaddleBias(), paddle.nn.Softmax(-1)
        self.out, self.factor = paddle.nn.Linear(6, 3), factor

    def forward(self, x):
        q = self.fc(x).reshape([-1, 5, 2, 3]).transpose([0, 2, 1, 3]).reshape([-1, 5, 3]) * self.factor
        scores = paddle.bmm(q, q.transpose([0, 2, 1])) + self.bias(x).reshape([-1, 5, 5])
        made = paddle.bmm(self.softmax(scores), q).reshape([-1, 2, 5, 3])
        return self.out(made.transpose([0, 2, 1, 3]).flatten(2))


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_bias_for_every_sample_and_heads_among_the_samples_are_no_divergence(factor):
    reference, port = TorchAttention(), PaddleAttention(factor)
    tipchain.copy_weights(reference, port)
    report = tipchain.align(reference, port, {"args": random(3, 5, 6)}, causes=False)
    told = {one.port_path: one for one in report.layers if one.direction == "forward"}
    assert told["softmax"].own < 1e-6, "it was compared"
    assert report.passed is (factor == 1)
    if factor != 1:
        assert report.first_divergence.port_path == ""
        assert [one.port_path for one in report.layers if one.at_fault] == [""]


class Patches(torch.nn.Module):
    """``order`` says where the pixels become a row: in the embedding, or in what takes it."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 2, 2)

    def forward(self, x):
        return self.conv(x)


class PaddlePatches(paddle.nn.Layer):
    def __init__(self, factor=1.0):
        super().__init__()
        self.conv, self.factor = paddle.nn.Conv2D(3, 8, 2, 2), factor

    def forward(self, x):
        return self.conv(x).flatten(2).transpose([0, 2, 1]) * self.factor


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_pixels_in_a_row_earlier_or_later_are_the_same_and_their_layer_is_judged(factor):
    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = Patches(), torch.nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(self.embed(x).flatten(2).transpose(1, 2))

    class Port(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.embed, self.norm = PaddlePatches(factor), paddle.nn.LayerNorm(8)

        def forward(self, x):
            return self.norm(self.embed(x))

    reference, port = Reference(), Port()
    tipchain.copy_weights(reference, port)
    report = tipchain.align(reference, port, {"args": random(2, 3, 8, 8)}, causes=False)
    assert report.passed is (factor == 1), str(report)
    assert factor == 1 or report.first_divergence.port_path == "embed"


class InOut(torch.nn.Module):
    """A linear layer whose own matrix is kept as Paddle keeps it."""

    def __init__(self, size, out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, out))
        self.bias = torch.nn.Parameter(torch.randn(out))

    def forward(self, x):
        return x @ self.weight + self.bias


class OutIn(paddle.nn.Layer):
    """The same, turned; ``cut``: half of the weight's gradient is lost."""

    def __init__(self, reference, cut):
        super().__init__()
        values = {name: one.detach().numpy() for name, one in reference.named_parameters()}
        self.weight = self.create_parameter(list(values["weight"].T.shape))
        self.bias = self.create_parameter(list(values["bias"].shape))
        self.weight.set_value(values["weight"].T.copy())
        self.bias.set_value(values["bias"])
        self.cut = cut

    def forward(self, x):
        weight = self.weight
        weight = weight.detach() + (weight - weight.detach()) * 0.5 if self.cut else weight
        return paddle.matmul(x, weight, transpose_y=True) + self.bias


@pytest.mark.parametrize("sizes", [(6, 6)])
@pytest.mark.parametrize("cut", [False, True])
def test_gradients_of_a_turned_matrix_are_turned_too(sizes, cut):
    torch.manual_seed(0)
    reference = torch.nn.Sequential(InOut(6, sizes[0]), torch.nn.Tanh(), InOut(sizes[0], sizes[1]))
    port = paddle.nn.Sequential(OutIn(reference[0], False), paddle.nn.Tanh(), OutIn(reference[2], cut))
    report = tipchain.align(reference, port, {"args": random(5, 6)}, names={"0": "0", "1": "1", "2": "2"}, causes=False)
    assert report.stages["forward"] is Outcome.PASS
    assert report.stages["backward"] is (Outcome.FAIL if cut else Outcome.PASS), str(report)
    assert not cut or {one.port_path for one in report.layers if one.at_fault} == {"2"}
