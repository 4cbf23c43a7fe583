"""Large weights of which projections of the gradients are held: what they tell, and when the gradients are needed after all."""

import numpy as np
import pytest
from live_nets import model

from tipchain.explain.locate import gradients, locate
from tipchain.explain.locate import runs as runs_module
from tipchain.explain.locate.differences import projections
from tipchain.explain.locate.runs import _factored, run_model

IMAGES = np.random.default_rng(0).standard_normal((3, 4, 5, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """Take weights from 100 elements on for large ones; return the runs that were made."""
    made = []

    def counted(*args, **options):
        made.append(run_model(*args, **options))
        return made[-1]

    monkeypatch.setattr(gradients, "LARGE", 100)
    monkeypatch.setattr(locate, "run_model", counted)
    return made


def nets(live, *, doubled=0.0, tied=False):
    """Return a convolution and two matrices, one of them square; the port's gradients before them are ``1 + doubled`` times as large."""

    def layers(nn):
        conv = nn.Conv2d(4, 6, 3) if nn is live.torch.nn else nn.Conv2D(4, 6, 3)
        wide, square, again = nn.Linear(54, 10), nn.Linear(10, 10), nn.Linear(10, 10)
        if tied:
            again.weight = square.weight
        return {"conv": conv, "flat": nn.Flatten(), "wide": wide, "square": square, "again": again}

    def build(side):
        def forward(net, x):
            x = net.square(side.nn.functional.relu(net.wide(net.flat(net.conv(x)))))
            return net.again((1 + doubled) * x - doubled * x.detach() if side is live.paddle else x)

        return model(side, layers, forward)

    return build(live.torch), build(live.paddle)


def test_gradients_that_agree_are_freed_as_they_are_made(live, runs):
    found = live.locate(*nets(live), IMAGES)
    assert found.first is None
    assert found.alike
    assert [bool(run.projected) for run in runs] == [True, True, False, False], (
        "the last two are of large values, forward"
    )
    for run in runs[:2]:
        assert sorted(run.projected) == ["again", "conv", "square", "wide"]
        root = run.trace.calls[0].layer
        assert [one.grad is None for one in (root.conv.weight, root.wide.weight, root.square.weight)] == [True] * 3


@pytest.mark.parametrize(("code", "count"), [("reshape", 2), ("add", 4)])
def test_large_values_are_tried_where_there_is_code_between_layers(live, runs, code, count):
    """A reshape of what a layer gave does nothing that they could show."""

    def forward(net, x):
        x = net.conv(x).reshape([-1, 54])
        return net.wide(x + 1 if code == "add" else x)

    models = (
        model(side, lambda nn, conv=conv: {"conv": conv(4, 6, 3), "wide": nn.Linear(54, 10)}, forward)
        for side, conv in ((live.torch, live.torch.nn.Conv2d), (live.paddle, live.paddle.nn.Conv2D))
    )
    assert live.locate(*models, IMAGES).first is None
    assert len(runs) == count


def test_projections_are_those_of_the_gradients(live, runs):
    reference, port = live.equal(*nets(live))
    live.locate(reference, port, IMAGES, losses=(mean_square, mean_square))
    wide = reference.double()
    mean_square(wide(live.torch.from_numpy(IMAGES.astype(np.float64))), None).backward()
    assert sorted(runs[0].projected) == ["again", "conv", "square", "wide"]
    for name, found in runs[0].projected.items():
        gradient = getattr(wide, name).weight.grad.numpy()
        np.testing.assert_allclose(found, projections(gradient), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(runs[1].projected[name], found, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("axes", "given"),
    [(2, {"stride": (2, 1), "padding": (0, 1)}), (3, {"padding": 1}), (2, {"groups": 2}), (2, {"padding": "same"})],
)
def test_convolutions_project_what_their_gradients_would_be(live, runs, monkeypatch, axes, given):
    """Those of several groups, or with dilation, make the gradient first: the projections are the same."""
    plain = not given.keys() & {"groups", "dilation", "padding_mode"}
    factored = []
    monkeypatch.setattr(runs_module, "_factored", lambda *args: factored.append(args) or _factored(*args))

    def build(side, letter):
        layer = getattr(side.nn, f"Conv{axes}{letter}")
        layers = {"first": layer(4, 6, 1), "last": layer(6, 8, 3, **given)}
        return model(side, lambda _: layers, lambda net, x: net.last(net.first(x)))

    torch = live.torch
    reference, port = live.equal(build(torch, "d"), build(live.paddle, "D"))
    images = np.random.default_rng(1).standard_normal((2, 4, *(5, 6, 7)[:axes])).astype(np.float32)
    assert live.locate(reference, port, images, losses=(mean_square, mean_square)).first is None
    wide = reference.double()
    mean_square(wide(torch.from_numpy(images.astype(np.float64))), None).backward()
    for run in runs[:2]:
        expected = projections(wide.last.weight.grad.numpy())
        np.testing.assert_allclose(run.projected["last"], expected, rtol=1e-9, atol=1e-12)
    assert len(factored) == (2 if plain else 0)


def mean_square(output, labels):
    return (output * output).mean()


def two(nn):
    return {"first": nn.Linear(12, 12), "last": nn.Linear(12, 12)}


def using_a_weight_twice(live, *, cut):
    """Return nets whose code uses a weight beside its layer; the port's may cut off half of what that gives the weight."""

    def build(side, cut):
        def forward(net, x):
            weight = net.last.weight
            return net.last(net.first(x)), (weight * (weight.detach() if cut else weight)).sum()

        return model(side, two, forward)

    return build(live.torch, False), build(live.paddle, cut)


@pytest.mark.parametrize("cut", [False, True])
def test_what_code_outside_a_layer_does_with_its_weight_counts(live, runs, cut):
    found = live.locate(*using_a_weight_twice(live, cut=cut), IMAGES.reshape(-1, 12))
    assert "last" in runs[0].projected
    assert found.alike is not cut


def penalties(live, *, differentiated):
    """Return losses of the gradients themselves, which the port's may treat as constants."""

    def torch_loss(output, labels):
        return live.torch.autograd.grad(output[0].sum(), output[1], create_graph=True)[0].square().sum()

    def paddle_loss(output, labels):
        made = live.paddle.grad(output[0].sum(), output[1], create_graph=True)[0].square().sum()
        return made if differentiated else made.detach() + 0 * output[0].sum()

    return torch_loss, paddle_loss


def handing_on(live):
    def forward(net, x):
        x = net.first(x)
        return net.last(x), x

    return model(live.torch, two, forward), model(live.paddle, two, forward)


@pytest.mark.parametrize("differentiated", [True, False])
def test_gradients_of_gradients_are_judged_whole(live, runs, differentiated):
    losses = penalties(live, differentiated=differentiated)
    found = live.locate(*handing_on(live), IMAGES.reshape(-1, 12), losses=losses)
    assert not runs[-1].projected
    assert found.alike is differentiated


def test_a_weight_that_a_hook_may_use_is_held(live, runs):
    reference, port = nets(live)
    reference.wide.register_forward_hook(lambda layer, _, output: output * layer.weight.mean())
    live.locate(reference, port, IMAGES)
    assert "wide" not in runs[0].projected


def test_what_differs_is_judged_by_the_gradients(live, runs, monkeypatch):
    found = live.locate(*nets(live, doubled=1e-3), IMAGES)
    assert len(runs) > 2
    assert not runs[-1].projected
    monkeypatch.setattr(gradients, "LARGE", 10**6)
    expected = live.locate(*nets(live, doubled=1e-3), IMAGES)
    assert found.first.direction == "backward"
    assert [(one.port_path, one.closeness, one.reason) for one in found.verdicts] == [
        (one.port_path, one.closeness, one.reason) for one in expected.verdicts
    ]


def test_a_weight_of_two_layers_is_held(live, runs):
    assert live.locate(*nets(live, tied=True), IMAGES).first is None
    assert sorted(runs[0].projected) == ["conv", "wide"]


def test_a_weight_that_one_side_freezes_is_held(live, runs):
    reference, port = nets(live)
    port.wide.weight.stop_gradient = True
    live.locate(reference, port, IMAGES)
    assert "wide" not in runs[0].projected
    assert "wide" not in runs[1].projected
