"""Layers that differ though the models do the same: built otherwise, unless their error is too small to tell."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.explain.locate.verdicts import FINE, Closeness


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("fault", [False, True])
def test_an_embedding_that_scales_itself_is_the_code_that_scales_it(live, single, fault):
    torch, paddle = live.torch, live.paddle
    eye = paddle.eye(6)

    class Scaled(torch.nn.Embedding):
        def forward(self, tokens):
            return super().forward(tokens) * 3

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.fc, self.norm = Scaled(20, 6), torch.nn.Linear(6, 6), torch.nn.LayerNorm(6)

        def forward(self, tokens):
            return self.norm(self.fc(self.emb(tokens)))

    class Port(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.emb, self.fc = paddle.nn.Embedding(20, 6), paddle.nn.Linear(6, 6)
            self.norm = paddle.nn.LayerNorm(6, epsilon=1e-3 if fault else 1e-5)

        def forward(self, tokens):
            hidden = self.emb(tokens) * 3
            return self.norm(self.fc(paddle.matmul(hidden, eye) if single else hidden))

    found = live.locate(Reference(), Port(), np.random.default_rng(0).integers(0, 20, (3, 5)))
    assert found.exact is not single
    if fault:
        assert "norm" in {one.port_path for one in found.verdicts if one.at_fault}
    else:
        assert found.first is None
        assert [one.port_path for one in found.verdicts if one.refuted and one.direction == "forward"] == ["emb"]


def test_a_fault_whose_layer_hardly_counts_is_not_taken_for_another_way_to_build(live):
    torch, paddle = live.torch, live.paddle

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.norm, self.two = (torch.nn.Linear(6, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 3))

        def forward(self, x):
            y = self.one(x)
            return self.two(y + self.norm(y) * 1e-7)

    class Port(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 3)
            self.norm = paddle.nn.LayerNorm(6, epsilon=1e-3)

        def forward(self, x):
            y = self.one(x)
            return self.two(y + self.norm(y) * 1e-7)

    found = live.locate(Reference(), Port(), random(5, 6))
    assert max(found.outputs) < 1e-9
    assert found.first is not None
    assert found.first.port_path == "norm"
    assert found.first.closeness is Closeness.DIFFERS


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_an_output_that_is_made_of_another_one_counts_once_in_gradients(live, factor):
    """The model is judged as a whole, for its activation is a layer on one side and a function on the other."""
    torch, paddle = live.torch, live.paddle

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.text, self.image, self.act = torch.nn.Linear(6, 5), torch.nn.Linear(6, 5), torch.nn.Tanh()
            self.scale = torch.nn.Parameter(torch.tensor(1.3))

        def forward(self, x):
            text = self.act(self.text(x))
            logits = text @ self.image(x).t() * self.scale.exp()
            return logits.t(), logits, text

    class Port(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.text, self.image = paddle.nn.Linear(6, 5), paddle.nn.Linear(6, 5)
            self.scale = self.create_parameter([1])

        def forward(self, x):
            text = paddle.tanh(self.text(x))
            scale = self.scale.exp()
            scale = scale * factor - scale.detach() * (factor - 1)
            logits = paddle.matmul(text, self.image(x), transpose_y=True) * scale
            return logits.t(), logits, text.clone()

    found = live.locate(Reference(), Port(), random(4, 6))
    whole = [one for one in found.verdicts if not one.port_path and one.direction == "backward" and not one.tied]
    assert [one.closeness in FINE for one in whole] == [factor == 1.0], whole
