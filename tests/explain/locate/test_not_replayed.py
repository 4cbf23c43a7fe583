"""Layers that do not run apart from their model, or not twice alike: the others are judged, and these are not guessed."""

from __future__ import annotations

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain
from tipchain.errors import Outcome
from tipchain.explain.locate.verdicts import Closeness

INPUT = {"args": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}


def reference_model():
    """Return a layer that is added to what its model kept, and one after it."""
    torch.manual_seed(0)
    return model(
        torch,
        lambda nn: {name: nn.Linear(6, 6) for name in ("first", "held", "last")},
        lambda net, x: net.last(torch.tanh(net.held(net.first(x)) + x)),
    )


class Held(paddle.nn.Layer):
    """Needs what its model leaves in ``box`` while it runs; ``factor`` other than 1 is a fault."""

    def __init__(self, box, factor, detach):
        super().__init__()
        self.weight, self.bias = self.create_parameter([6, 6]), self.create_parameter([6])
        self.box, self.factor, self.detach = box, factor, detach

    def forward(self, x):
        if not self.box:
            raise ValueError("the state is gone")
        y = paddle.matmul(x, self.weight) + self.bias
        y = y.detach() + (y - y.detach()) * 0.5 if self.detach else y
        return y * self.factor if self.factor != 1 else y


class Port(paddle.nn.Layer):
    def __init__(self, reference, *, factor=1.0, detach=False, all_held=False):
        super().__init__()
        self.box = []
        for name in ("first", "held", "last"):
            own = name == "held" or all_held
            layer = Held(self.box, factor if name == "held" else 1.0, detach) if own else paddle.nn.Linear(6, 6)
            layer.weight.set_value(reference.get_parameter(f"{name}.weight").detach().numpy().T.copy())
            layer.bias.set_value(reference.get_parameter(f"{name}.bias").detach().numpy())
            setattr(self, name, layer)

    def forward(self, x):
        self.box.append(x)
        for layer in (self.first, self.held, self.last):
            if isinstance(layer, Held):
                layer.box = self.box  # copies of the model have boxes of their own
        y = self.last(paddle.tanh(self.held(self.first(x)) + x))
        self.box.clear()
        return y


NAMES = {"first": "first", "held": "held", "last": "last"}


def aligned(**options):
    reference = reference_model()
    report = tipchain.align(reference, Port(reference, **options), INPUT, names=NAMES, causes=False)
    return report, {(one.direction, one.port_path): one for one in report.layers}


@pytest.mark.parametrize("all_held", [False, True])
def test_a_layer_that_raises_by_itself_is_judged_where_both_runs_agree(all_held):
    report, told = aligned(all_held=all_held)
    assert report.passed, str(report)
    names = ("first", "held", "last")
    assert {told["forward", name].closeness for name in names} <= {Closeness.BITWISE, Closeness.ROUNDING}
    assert "3 layers compared" in str(report)


def test_what_it_does_otherwise_is_still_its_fault():
    report, told = aligned(factor=1.001)
    assert report.stages["forward"] is Outcome.FAIL
    assert report.first_divergence.port_path == "held"
    assert told["forward", "held"].own == pytest.approx(1e-3, rel=1e-3)


def test_a_gradient_that_it_cuts_does_not_pass():
    report, _ = aligned(detach=True)
    assert report.stages["forward"] is Outcome.PASS
    assert report.stages["backward"] is Outcome.FAIL


def test_a_layer_that_keeps_something_from_call_to_call_is_not_accused():
    class Counting(paddle.nn.Linear):
        """Adds how often it was called before: its second call says nothing of the first."""

        def __init__(self):
            super().__init__(6, 6)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) + (self.calls - 1) * 0.01

    def forward(net, x):
        net.held.calls = 0
        return net.last(paddle.tanh(net.held(net.first(x)) + x))

    layers = {"first": paddle.nn.Linear(6, 6), "held": Counting(), "last": paddle.nn.Linear(6, 6)}
    reference, port = reference_model(), model(paddle, lambda _: layers, forward)
    report = copy_and_align(reference, port, INPUT)
    assert report.passed, str(report)
    told = {(one.direction, one.port_path): one.closeness for one in report.layers}
    assert told["forward", "held"] is not Closeness.LOWER_PRECISION
    port.last.weight.set_value(port.last.weight.numpy() * 1.01)
    assert tipchain.align(reference, port, INPUT).first_divergence.port_path == "last"


def test_a_packed_sequence_goes_in_and_out():
    def build(side, forward, **options):
        def layers(nn):
            return {"emb": nn.Embedding(20, 8), "rnn": nn.LSTM(8, 6, **options), "fc": nn.Linear(6, 3)}

        return model(side, layers, forward)

    def packed(net, tokens):
        rnn = torch.nn.utils.rnn
        given = rnn.pack_padded_sequence(net.emb(tokens), torch.tensor([5, 3, 2]), batch_first=True)
        return net.fc(rnn.pad_packed_sequence(net.rnn(given)[0], batch_first=True)[0])

    def padded(net, tokens):
        return net.fc(net.rnn(net.emb(tokens), sequence_length=paddle.to_tensor([5, 3, 2]))[0])

    reference, port = build(torch, packed, batch_first=True), build(paddle, padded)
    tipchain.copy_weights(reference, port)
    given = {"args": np.random.default_rng(0).integers(0, 20, (3, 5))}
    report = tipchain.align(reference, port, given)
    assert report.passed, str(report)
    port.fc.bias.set_value(port.fc.bias.numpy() + 0.1)
    assert tipchain.align(reference, port, given).first_divergence.port_path == "fc"


@pytest.mark.parametrize("sparse", [(True, False), (False, True)])
def test_an_embedding_with_sparse_gradients_is_compared(sparse):
    reference = torch.nn.Sequential(torch.nn.Embedding(20, 8, sparse=sparse[0]), torch.nn.Linear(8, 3))
    port = paddle.nn.Sequential(paddle.nn.Embedding(20, 8, sparse=sparse[1]), paddle.nn.Linear(8, 3))
    report = copy_and_align(reference, port, {"args": np.array([[1, 2, 2], [7, 5, 1]])})
    assert [report.stages[name] for name in ("forward", "backward")] == [Outcome.PASS, Outcome.PASS], str(report)
    backward = [one for one in report.layers if one.direction == "backward" and one.port_path == "0"]
    assert [one.closeness for one in backward] in ([Closeness.BITWISE], [Closeness.ROUNDING])


def cached():
    """Return a layer that puts its keys into a list that its model made; what is in it already is used."""

    def forward(net, x, cache):
        cache.append(net.k(x))
        return torch.tanh(cache[0]) * x

    return model(torch, lambda nn: {"k": nn.Linear(6, 6)}, forward)


def cached_port():
    return model(paddle, lambda nn: {"k": nn.Linear(6, 6)}, lambda net, x, cache: paddle.tanh(net.k(x)) * x)


class Cache:
    """What no one looks into."""

    def __init__(self):
        self.held = []

    def append(self, one):
        self.held.append(one)

    def __getitem__(self, number):
        return self.held[number]


def test_gradients_of_a_run_are_not_those_of_a_later_replay():
    scale = paddle.create_parameter([1], "float32")
    scale.set_value(np.array([1.5], np.float32))
    reference = model(
        torch,
        lambda nn: {"one": nn.Linear(6, 6), "inner": cached(), "scale": nn.Parameter(torch.tensor(1.5))},
        lambda net, x: torch.relu(net.inner(net.one(x), Cache())) * net.scale,
    )
    port = model(
        paddle,
        lambda nn: {"one": nn.Linear(6, 6), "inner": cached_port(), "act": nn.ReLU(), "scale": scale},
        lambda net, x: net.act(net.inner(net.one(x), None)) * net.scale,
    )
    for mine, its in ((port.one, reference.one), (port.inner.k, reference.inner.k)):
        mine.weight.set_value(its.weight.detach().numpy().T.copy())
        mine.bias.set_value(its.bias.detach().numpy())
    report = tipchain.align(reference, port, INPUT, causes=False)
    assert [report.stages[name] for name in ("forward", "backward")] == [Outcome.PASS, Outcome.PASS], str(report)
