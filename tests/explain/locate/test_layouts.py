"""Tensors that both models have in other shapes: repeated, flattened, cut into axes; parameters in another layout."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model, random

import tipchain
from tipchain.errors import Outcome
from tipchain.explain.locate.differences import laid_out, layouts

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


def attention(side, bias, forward):
    """Return attention with a bias of relative places, given how ``bias`` lays it out and what takes it."""

    def placed(net, x):
        steps = side.arange(5)
        return bias(net.table(steps[None] - steps[:, None] + 4), x)

    def layers(nn):
        inner = {"bias": model(side, lambda nn: {"table": nn.Embedding(9, 2)}, placed), "softmax": nn.Softmax(-1)}
        return {"fc": nn.Linear(6, 6), **inner, "out": nn.Linear(6, 3)}

    return model(side, layers, forward)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_bias_for_every_sample_and_heads_among_the_samples_are_no_divergence(factor):
    """The port has heads and samples in one axis."""

    def ours(net, x):
        q = net.fc(x).unflatten(-1, (2, 3)).transpose(1, 2)
        made = net.softmax(q @ q.transpose(-1, -2) + net.bias(x)) @ q
        return net.out(made.transpose(1, 2).flatten(2))

    def theirs(net, x):
        q = net.fc(x).reshape([-1, 5, 2, 3]).transpose([0, 2, 1, 3]).reshape([-1, 5, 3]) * factor
        scores = paddle.bmm(q, q.transpose([0, 2, 1])) + net.bias(x).reshape([-1, 5, 5])
        made = paddle.bmm(net.softmax(scores), q).reshape([-1, 2, 5, 3])
        return net.out(made.transpose([0, 2, 1, 3]).flatten(2))

    def expanded(table, x):
        return table.transpose([2, 0, 1]).unsqueeze(0).expand([x.shape[0], 2, 5, 5])

    torch.manual_seed(0)
    reference = attention(torch, lambda table, _: table.permute(2, 0, 1)[None], ours)
    port = attention(paddle, expanded, theirs)
    report = copy_and_align(reference, port, {"args": random(3, 5, 6)}, causes=False)
    told = {one.port_path: one for one in report.layers if one.direction == "forward"}
    assert told["softmax"].own < 1e-6, "it was compared"
    assert report.passed is (factor == 1)
    if factor != 1:
        assert report.first_divergence.port_path == ""
        assert [one.port_path for one in report.layers if one.at_fault] == [""]


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_pixels_in_a_row_earlier_or_later_are_the_same_and_their_layer_is_judged(factor):
    def build(side, convolution, inside, after):
        embed = model(side, lambda _: {"conv": convolution}, lambda net, x: inside(net.conv(x)))
        return model(
            side, lambda nn: {"embed": embed, "norm": nn.LayerNorm(8)}, lambda net, x: net.norm(after(net.embed(x)))
        )

    reference = build(torch, torch.nn.Conv2d(3, 8, 2, 2), lambda x: x, lambda x: x.flatten(2).transpose(1, 2))
    convolution = paddle.nn.Conv2D(3, 8, 2, 2)
    port = build(paddle, convolution, lambda x: x.flatten(2).transpose([0, 2, 1]) * factor, lambda x: x)
    report = copy_and_align(reference, port, {"args": random(2, 3, 8, 8)}, causes=False)
    assert report.passed is (factor == 1), str(report)
    assert factor == 1 or report.first_divergence.port_path == "embed"


def in_out():
    """Return a linear layer whose own matrix is kept as Paddle keeps it."""
    tensors = {"weight": torch.nn.Parameter(torch.randn(6, 6)), "bias": torch.nn.Parameter(torch.randn(6))}
    return model(torch, lambda _: tensors, lambda net, x: x @ net.weight + net.bias)


def out_in(reference, cut):
    """Return the same, turned; ``cut``: half of the weight's gradient is lost."""

    def forward(net, x):
        weight = net.weight.detach() + (net.weight - net.weight.detach()) * 0.5 if cut else net.weight
        return paddle.matmul(x, weight, transpose_y=True) + net.bias

    tensors = {"weight": paddle.create_parameter([6, 6], "float32"), "bias": paddle.create_parameter([6], "float32")}
    for name, tensor in tensors.items():
        tensor.set_value(getattr(reference, name).detach().numpy().T.copy())
    return model(paddle, lambda _: tensors, forward)


@pytest.mark.parametrize("cut", [False, True])
def test_gradients_of_a_turned_matrix_are_turned_too(cut):
    torch.manual_seed(0)
    reference = torch.nn.Sequential(in_out(), torch.nn.Tanh(), in_out())
    port = paddle.nn.Sequential(out_in(reference[0], False), paddle.nn.Tanh(), out_in(reference[2], cut))
    report = tipchain.align(reference, port, {"args": random(5, 6)}, names={"0": "0", "1": "1", "2": "2"}, causes=False)
    assert report.stages["forward"] is Outcome.PASS
    assert report.stages["backward"] is (Outcome.FAIL if cut else Outcome.PASS), str(report)
    assert not cut or {one.port_path for one in report.layers if one.at_fault} == {"2"}
