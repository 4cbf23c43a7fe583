"""Ports that are built otherwise than their references, and are the same functions."""

import pytest
from live_nets import model, random

import tipchain


def faults(found):
    return [(one.direction, one.port_path, one.reason) for one in found.verdicts if one.at_fault]


def two(live, reference, port):
    """Return models of both frameworks made of what ``reference`` and ``port`` say: layers, given ``nn``, then forward."""
    return model(live.torch, *reference), model(live.paddle, *port)


@pytest.fixture
def functions(live):
    return live.torch.nn.functional, live.paddle.nn.functional


def test_gradients_that_are_zero_but_for_rounding_are_held_against_the_largest_of_their_layer(live, functions):
    torch = live.torch.nn
    reference = torch.Sequential(torch.Conv2d(3, 6, 3), torch.BatchNorm2d(6), torch.ReLU(), torch.Conv2d(6, 2, 3))
    port = model(
        live.paddle,
        lambda nn: {"c": nn.Conv2D(3, 6, 3), "n": nn.BatchNorm2D(6), "d": nn.Conv2D(6, 2, 3)},
        lambda net, x: net.d(functions[1].relu(net.n(net.c(x)))),
    )
    live.equal(reference, port)
    reference.train()
    port.train()
    assert faults(live.locate(reference, port, random(4, 3, 8, 8), equal=False)) == []


def test_padding_may_be_a_layer_of_its_own(live):
    torch, paddle = live.torch.nn, live.paddle.nn
    reference = torch.Sequential(torch.ZeroPad2d(1), torch.Conv2d(3, 4, 3), torch.ReLU(), torch.Conv2d(4, 2, 3))
    port = paddle.Sequential(paddle.Conv2D(3, 4, 3, padding=1), paddle.ReLU(), paddle.Conv2D(4, 2, 3))
    assert faults(live.locate(reference, port, random(2, 3, 6, 6))) == []
    port[0].weight.set_value(port[0].weight.numpy() * 1.01)
    assert faults(live.locate(reference, port, random(2, 3, 6, 6), equal=False))


def test_a_tensor_that_is_returned_twice_is_one(live):
    def layers(nn):
        return {"cell": nn.LSTMCell(6, 8), "out": nn.Linear(8, 3)}

    reference, port = two(
        live,
        (layers, lambda net, x: net.out(sum(net.cell(x, net.cell(x))))),
        (layers, lambda net, x: net.out(sum(net.cell(x, net.cell(x)[1])[1]))),
    )
    assert faults(live.locate(reference, port, random(4, 6))) == []


def activated(live):
    """Return torch's norm that activates, as timm's BatchNormAct2d does."""
    nn = live.torch.nn

    class NormAct(nn.BatchNorm2d):
        def __init__(self, channels):
            super().__init__(channels)
            self.act = nn.ReLU()

        def forward(self, x):
            return self.act(super().forward(x))

    return NormAct


@pytest.mark.parametrize("form", ["functions", "functions outside", "layers", "in the norm"])
@pytest.mark.parametrize("guilty", [None, 1])
def test_a_norm_and_its_activation_are_judged_jointly_whatever_they_were_given(live, functions, form, guilty):
    torch, paddle = live.torch.nn, live.paddle.nn
    kind = torch.BatchNorm2d if form == "in the norm" else activated(live)
    acts = [torch.ReLU()] if form == "in the norm" else []
    reference = torch.Sequential(
        *[one for n in range(3) for one in (torch.Conv2d(4 if n else 3, 4, 3), kind(4), *acts)]
    )

    def layers(_):
        made = {}
        for n in range(3):
            options = {"epsilon": 1e-3 if n == guilty else 1e-5}
            made[f"c{n}"] = paddle.Conv2D(4 if n else 3, 4, 3)
            if form == "functions outside":
                made[f"c{n}"] = paddle.Sequential(made[f"c{n}"], paddle.BatchNorm2D(4, **options))
                continue
            made[f"n{n}"] = (
                paddle.BatchNorm(4, act="relu", **options)
                if form == "in the norm"
                else paddle.BatchNorm2D(4, **options)
            )
            made |= {f"a{n}": paddle.ReLU()} if form == "layers" else {}
        return made

    def forward(net, x):
        for n in range(3):
            x = getattr(net, f"c{n}")(x)
            x = x if form == "functions outside" else getattr(net, f"n{n}")(x)
            if form != "in the norm":
                x = getattr(net, f"a{n}")(x) if form == "layers" else functions[1].relu(x)
        return x

    port = model(live.paddle, layers, forward)
    found = live.locate(reference, port, random(2, 3, 10, 10))
    paths = [f"c{n}.1" if form == "functions outside" else f"n{n}" for n in range(3)]
    wrong = {one.port_path for one in found.verdicts if one.at_fault}
    assert wrong == (set() if guilty is None else {paths[guilty]})
    told = {one.port_path: one.closeness.value for one in found.verdicts if one.port_path.startswith(("n", "c"))}
    assert set(told.values()) - {"differs"} <= {"bitwise", "rounding"}, "each was compared"
    assert len(told) == 6


@pytest.mark.parametrize(("start", "fault"), [(1, False), (0, True)])
def test_a_convolution_that_pads_more_and_is_cut_is_the_same(live, start, fault):
    torch, paddle = live.torch, live.paddle

    class Same(torch.nn.Conv2d):
        def forward(self, x):
            return super().forward(torch.nn.functional.pad(x, (0, 1, 0, 1)))

    convolution = paddle.nn.Conv2D(3, 4, 3, stride=2, padding=2)
    reference, port = two(
        live,
        (
            lambda nn: {"conv": Same(3, 4, 3, stride=2), "gate": nn.Hardsigmoid(), "last": nn.Conv2d(4, 2, 3)},
            lambda net, x: net.last(net.conv(net.gate(x) * x)),
        ),
        (
            lambda nn: {"conv": convolution, "gate": nn.Hardsigmoid(), "last": nn.Conv2D(4, 2, 3)},
            lambda net, x: net.last(net.conv(net.gate(x) * x)[:, :, start:, start:][:, :, :8, :8]),
        ),
    )
    found = live.locate(reference, port, random(2, 3, 16, 16))
    assert max(found.outputs) > 1e-9, "the gate's slope is a float32 number"
    assert {one.port_path for one in found.verdicts if one.at_fault} == ({"conv"} if fault else set())
    if not fault:
        (told,) = (one for one in found.verdicts if one.port_path == "conv" and one.direction == "forward")
        assert "the models do the same" in told.reason


def test_dropout_that_drops_nothing_is_no_flattening_layer(live):
    def ours(nn):
        return {
            "conv": nn.Conv2d(3, 4, 3), "pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "head": nn.Linear(4, 2)
        }  # fmt: skip

    def theirs(nn):
        return {
            "conv": nn.Conv2D(3, 4, 3), "pool": nn.AdaptiveAvgPool2D(1), "dropout": nn.Dropout(0.2), "head": nn.Linear(4, 2)
        }  # fmt: skip

    def forward(net, x):
        x = net.flatten(net.pool(net.conv(x)))
        return net.head(live.torch.nn.functional.dropout(x, 0.2, net.training))

    pair = (ours, forward), (theirs, lambda net, x: net.head(net.dropout(net.pool(net.conv(x))).flatten(1)))
    reference, port = live.equal(*two(live, *pair))
    report = tipchain.align(reference, port, {"args": random(2, 3, 8, 8)})
    assert report.passed, str(report)
    assert "flatten (Flatten)" in report.unmatched["reference"]
    assert "dropout (Dropout)" in report.unmatched["port"]
