"""Ports that are built otherwise than their references, and are the same functions."""

from __future__ import annotations

import numpy as np
import pytest


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def faults(found):
    return [(one.direction, one.port_path, one.reason) for one in found.verdicts if one.at_fault]


def two(live, reference, port):
    """Return classes of both frameworks made of what ``reference`` and ``port`` say: layers, then forward."""

    def made(base, layers, forward):
        def init(self):
            base.__init__(self)
            for name, layer in layers().items():
                setattr(self, name, layer)

        return type("Net", (base,), {"__init__": init, "forward": forward})()

    return made(live.torch.nn.Module, *reference), made(live.paddle.nn.Layer, *port)


@pytest.fixture
def functions(live):
    return live.torch.nn.functional, live.paddle.nn.functional


def test_a_gate_whose_slope_is_rounded_to_float32_is_no_fault(live, functions):
    """Paddle's hardsigmoid multiplies by 0.1666667."""
    torch, paddle = live.torch.nn, live.paddle.nn
    reference = torch.Sequential(
        torch.Linear(8, 8), torch.Hardsigmoid(), torch.Linear(8, 8), torch.Hardsigmoid()
    )
    port = two(
        live, (dict, None),
        (lambda: {"a": paddle.Linear(8, 8), "b": paddle.Linear(8, 8)},
         lambda net, x: functions[1].hardsigmoid(net.b(functions[1].hardsigmoid(net.a(x))))),
    )[1]  # fmt: skip
    assert faults(live.locate(reference, port, random(5, 8))) == []


def test_gradients_that_are_zero_but_for_rounding_are_held_against_the_largest_of_their_layer(
    live, functions
):
    torch, paddle = live.torch.nn, live.paddle.nn
    reference = torch.Sequential(
        torch.Conv2d(3, 6, 3), torch.BatchNorm2d(6), torch.ReLU(), torch.Conv2d(6, 2, 3)
    )
    port = two(
        live, (dict, None),
        (lambda: {"c": paddle.Conv2D(3, 6, 3), "n": paddle.BatchNorm2D(6), "d": paddle.Conv2D(6, 2, 3)},
         lambda net, x: net.d(functions[1].relu(net.n(net.c(x))))),
    )[1]  # fmt: skip
    live.equal(reference, port)
    reference.train()
    port.train()
    assert faults(live.locate(reference, port, random(4, 3, 8, 8), equal=False)) == []


def test_padding_may_be_a_layer_of_its_own(live):
    torch, paddle = live.torch.nn, live.paddle.nn
    reference = torch.Sequential(
        torch.ZeroPad2d(1), torch.Conv2d(3, 4, 3), torch.ReLU(), torch.Conv2d(4, 2, 3)
    )
    port = paddle.Sequential(paddle.Conv2D(3, 4, 3, padding=1), paddle.ReLU(), paddle.Conv2D(4, 2, 3))
    assert faults(live.locate(reference, port, random(2, 3, 6, 6))) == []
    port[0].weight.set_value(port[0].weight.numpy() * 1.01)
    assert faults(live.locate(reference, port, random(2, 3, 6, 6), equal=False))


@pytest.mark.parametrize(("epsilon", "guilty"), [(1e-5, None), (1e-3, "n1")])
def test_a_norm_that_activates_too_is_two_layers_of_the_reference(live, epsilon, guilty):
    torch, paddle = live.torch.nn, live.paddle.nn
    reference = torch.Sequential(
        torch.Conv2d(3, 6, 3), torch.BatchNorm2d(6), torch.ReLU(), torch.Conv2d(6, 4, 3), torch.BatchNorm2d(4), torch.ReLU(),
    )  # fmt: skip
    layers = {"c1": paddle.Conv2D(3, 6, 3), "n1": paddle.BatchNorm(6, act="relu", epsilon=epsilon),
              "c2": paddle.Conv2D(6, 4, 3), "n2": paddle.BatchNorm(4, act="relu")}  # fmt: skip
    port = two(live, (dict, None), (lambda: layers, lambda net, x: net.n2(net.c2(net.n1(net.c1(x))))))[1]
    found = live.locate(reference, port, random(3, 3, 8, 8))
    assert (None if found.first is None else found.first.port_path) == guilty


@pytest.mark.parametrize(("scale", "fault"), [(0.25, False), (0.3, True)])
def test_one_layer_for_q_k_and_v_may_be_three(live, functions, scale, fault):
    torch, paddle = live.torch, live.paddle

    def fused(net, x):
        q, k, v = net.qkv(x).chunk(3, -1)
        return net.out(torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v)

    def separate(net, x):
        scores = paddle.matmul(net.q(x), net.k(x), transpose_y=True) * scale
        return net.out(paddle.matmul(functions[1].softmax(scores), net.v(x)))

    reference, port = two(
        live, (lambda: {"qkv": torch.nn.Linear(16, 48), "out": torch.nn.Linear(16, 16)}, fused),
        (lambda: {name: paddle.nn.Linear(16, 16) for name in ("q", "k", "v", "out")}, separate),
    )  # fmt: skip
    state = {name: tensor.numpy() for name, tensor in reference.state_dict().items()}
    taken = {f"out.{kind}": state[f"out.{kind}"].T for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        for name, part in zip("qkv", np.split(state[f"qkv.{kind}"], 3), strict=True):
            taken[f"{name}.{kind}"] = part.T
    port.set_state_dict(taken)
    assert bool(faults(live.locate(reference, port, random(2, 5, 16), equal=False))) == fault


def test_a_tensor_that_is_returned_twice_is_one(live):
    torch, paddle = live.torch.nn, live.paddle.nn
    reference, port = two(
        live,
        (lambda: {"cell": torch.LSTMCell(6, 8), "out": torch.Linear(8, 3)},
         lambda net, x: net.out(sum(net.cell(x, net.cell(x))))),
        (lambda: {"cell": paddle.LSTMCell(6, 8), "out": paddle.Linear(8, 3)},
         lambda net, x: net.out(sum(net.cell(x, net.cell(x)[1])[1]))),
    )  # fmt: skip
    assert faults(live.locate(reference, port, random(4, 6))) == []


def test_names_pair_activations_that_nothing_else_tells_apart(live):
    torch, nn = live.torch, live.paddle.nn

    class Reference(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(6, 6)
            self.first, self.second = torch.nn.Tanh(), torch.nn.Tanh()

        def forward(self, x):
            return self.first(self.fc(x)) + self.second(self.fc(x))

    class Port(nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 6)
            self.one, self.two = nn.Tanh(), nn.Tanh()

        def forward(self, x):
            return self.one(self.fc(x)) + self.two(self.fc(x))

    reference, port = live.equal(Reference(), Port())
    crossed = {"first": "two", "second": "one"}
    found = live.locate(reference, port, random(4, 6), equal=False, names=crossed)
    told = {one.reference_path: one.port_path for one in found.verdicts}
    assert (told["first"], told["second"]) == ("two", "one")
    assert found.first is None
    plain = live.locate(reference, port, random(4, 6), equal=False)
    assert {one.reference_path: one.port_path for one in plain.verdicts}["first"] == "one"
