"""Layers that differ though the models do the same: built otherwise, unless their error is too small to tell."""

import numpy as np
import pytest
from live_nets import model, random

from tipchain.explain.locate.verdicts import FINE, Closeness


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("fault", [False, True])
def test_an_embedding_that_scales_itself_is_the_code_that_scales_it(live, single, fault):
    torch, paddle = live.torch, live.paddle
    eye = paddle.eye(6)

    class Scaled(torch.nn.Embedding):
        def forward(self, tokens):
            return super().forward(tokens) * 3

    def scaled(net, tokens):
        hidden = net.emb(tokens) * 3
        return net.norm(net.fc(paddle.matmul(hidden, eye) if single else hidden))

    reference = model(
        torch,
        lambda nn: {"emb": Scaled(20, 6), "fc": nn.Linear(6, 6), "norm": nn.LayerNorm(6)},
        lambda net, tokens: net.norm(net.fc(net.emb(tokens))),
    )
    norm = paddle.nn.LayerNorm(6, epsilon=1e-3 if fault else 1e-5)
    port = model(paddle, lambda nn: {"emb": nn.Embedding(20, 6), "fc": nn.Linear(6, 6), "norm": norm}, scaled)
    found = live.locate(reference, port, np.random.default_rng(0).integers(0, 20, (3, 5)))
    assert found.exact is not single
    if fault:
        assert "norm" in {one.port_path for one in found.verdicts if one.at_fault}
    else:
        assert found.first is None
        assert [one.port_path for one in found.verdicts if one.refuted and one.direction == "forward"] == ["emb"]


def test_a_fault_whose_layer_hardly_counts_is_not_taken_for_another_way_to_build(live):
    def build(side, norm):
        def forward(net, x):
            y = net.one(x)
            return net.two(y + net.norm(y) * 1e-7)

        return model(side, lambda nn: {"one": nn.Linear(6, 6), "norm": norm, "two": nn.Linear(6, 3)}, forward)

    norms = live.torch.nn.LayerNorm(6), live.paddle.nn.LayerNorm(6, epsilon=1e-3)
    found = live.locate(build(live.torch, norms[0]), build(live.paddle, norms[1]), random(5, 6))
    assert max(found.outputs) < 1e-9
    assert found.first is not None
    assert found.first.port_path == "norm"
    assert found.first.closeness is Closeness.DIFFERS


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_an_output_that_is_made_of_another_one_counts_once_in_gradients(live, factor):
    """The model is judged as a whole, for its activation is a layer on one side and a function on the other."""
    torch, paddle = live.torch, live.paddle

    def ours(net, x):
        text = net.act(net.text(x))
        logits = text @ net.image(x).t() * net.scale.exp()
        return logits.t(), logits, text

    def theirs(net, x):
        text, scale = paddle.tanh(net.text(x)), net.scale.exp()
        scale = scale * factor - scale.detach() * (factor - 1)
        logits = paddle.matmul(text, net.image(x), transpose_y=True) * scale
        return logits.t(), logits, text.clone()

    def layers(nn, **more):
        return {"text": nn.Linear(6, 5), "image": nn.Linear(6, 5), **more}

    scales = torch.nn.Parameter(torch.tensor(1.3)), paddle.create_parameter([1], "float32")
    reference = model(torch, lambda nn: layers(nn, act=nn.Tanh(), scale=scales[0]), ours)
    found = live.locate(reference, model(paddle, lambda nn: layers(nn, scale=scales[1]), theirs), random(4, 6))
    whole = [one for one in found.verdicts if not one.port_path and one.direction == "backward" and not one.tied]
    assert [one.closeness in FINE for one in whole] == [factor == 1.0], whole
