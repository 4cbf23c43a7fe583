"""Ports that cut a model into other layers than the reference: what counts is what the model does."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain

nn, F, PF = torch.nn, torch.nn.functional, paddle.nn.functional
pytestmark = pytest.mark.frameworks
IMAGES = np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32)
ROWS = np.random.default_rng(1).standard_normal((5, 6)).astype(np.float32)


def outside():
    """Return a model that applies the last activation behind its container."""
    return model(
        torch,
        lambda nn: {"net": nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))},
        lambda net, x: (torch.sigmoid(net.net(x)), x.square().sum(1)),
    )


def inside(scale=1.0):
    """Return a port that has the activation in its container."""
    return model(
        paddle,
        lambda nn: {"scale": scale, "net": nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4), nn.Sigmoid())},
        lambda self, x: (self.net(x), self.scale * x.square().sum(1)),
    )


def test_a_container_that_ends_at_another_call_is_right():
    assert copy_and_align(outside(), inside(), ROWS).passed


def test_a_container_that_ends_at_another_call_takes_no_blame_for_other_code():
    report = copy_and_align(outside(), inside(scale=2.0), ROWS)
    assert not report.passed
    cause = report.diagnoses[0]
    assert cause.port_path == "", str(report)
    assert "self.scale" in cause.place.code


class Standardized(nn.Module):
    """A convolution whose layer is never called: its weight is standardized, by statistics without a gradient."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        weight = self.conv.weight
        with torch.no_grad():
            scale = weight.square().mean().sqrt()
        return F.conv2d(x, weight / scale, self.conv.bias)


class StandardizedConv2D(paddle.nn.Conv2D):
    cut = True

    def forward(self, x):
        scale = self.weight.square().mean().sqrt()
        scale = scale.detach() if self.cut else scale
        return PF.conv2d(x, self.weight / scale, self.bias)


class WithGradient(StandardizedConv2D):
    cut = False


def detectors(block, port_block):
    return (
        model(
            torch,
            lambda nn: {"block": block, "head": nn.Linear(4, 2)},
            lambda net, x: net.head(net.block(x).relu().mean([2, 3])),
        ),
        model(
            paddle,
            lambda nn: {"block": port_block, "head": nn.Linear(4, 2)},
            lambda net, x: net.head(PF.relu(net.block(x)).mean([2, 3])),
        ),
    )


@pytest.mark.parametrize(("kind", "right"), [(StandardizedConv2D, True), (WithGradient, False)])
def test_parameters_that_no_pair_of_layers_has_are_compared(kind, right):
    report = copy_and_align(*detectors(Standardized(), kind(3, 4, 3)), IMAGES)
    assert report.passed is right, str(report)
    assert right or "detach the result of `square`" in str(report)


class Moving(Standardized):
    """One whose statistics move with each call in train mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("held", torch.ones(()))

    def forward(self, x):
        with torch.no_grad():
            scale = 0.5 * self.held + 0.5 * self.conv.weight.square().mean().sqrt()
            self.held.copy_(scale)
        return F.conv2d(x, self.conv.weight / scale, self.conv.bias)


class MovingConv2D(paddle.nn.Conv2D):
    cut = True

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("kept", paddle.ones([1]))

    def forward(self, x):
        scale = 0.5 * self.kept + 0.5 * self.weight.square().mean().sqrt()
        scale = scale.detach() if self.cut else scale
        self.kept.set_value(scale)
        return PF.conv2d(x, self.weight / scale, self.bias)


class MovingWithGradient(MovingConv2D):
    cut = False


@pytest.mark.parametrize(("kind", "right"), [(MovingConv2D, True), (MovingWithGradient, False)])
def test_a_layer_with_a_state_is_run_by_itself_as_it_was(kind, right):
    report = copy_and_align(*(one.train() or one for one in detectors(Moving(), kind(3, 4, 3))), IMAGES, training=True)
    assert report.passed is right, str(report)
    if not right:
        cause = report.diagnoses[0]
        assert (cause.code, cause.port_path, cause.reference_path) == ("cut-gradient", "block", "block"), str(report)
        assert "scale" in cause.place.code


class Norm(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = paddle.nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x)


class CoarseNorm(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = paddle.nn.LayerNorm(6, epsilon=1e-2)

    def forward(self, x):
        return self.norm(x)


class Norms(paddle.nn.Layer):
    def __init__(self, kind):
        super().__init__()
        self.first = kind()
        self.second = kind()

    def forward(self, x):
        return self.second(self.first(x))


@pytest.mark.parametrize(
    ("kind", "line"), [(Norm, "self.second = kind()"), (CoarseNorm, "self.norm = paddle.nn.LayerNorm(6, epsilon=1e-2)")]
)
def test_of_a_class_that_others_use_rightly_the_caller_is_told(kind, line):
    reference = model(
        torch,
        lambda nn: {"first": nn.LayerNorm(6), "second": nn.LayerNorm(6, eps=1e-3)},
        lambda net, x: net.second(net.first(x)),
    )
    report = copy_and_align(reference, Norms(kind), ROWS)
    cause = report.diagnoses[0]
    assert cause.name == "epsilon", str(report)
    assert cause.place.code == line, str(report)
    assert kind is CoarseNorm or not cause.corrected, "other layers of the class would break"


class Joined(nn.Module):
    """One matrix for a row and a one behind it."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(7, 4))

    def forward(self, x):
        return (torch.cat([x, torch.ones_like(x[:, :1])], 1) @ self.matrix).tanh()


class Apart(paddle.nn.Layer):
    """Its rows and its last row by themselves."""

    def __init__(self, matrix, factor=1.0):
        super().__init__()
        self.rows = self.create_parameter([6, 4])
        self.last = self.create_parameter([4])
        self.rows.set_value(factor * matrix[:-1])
        self.last.set_value(matrix[-1])

    def forward(self, x):
        return PF.tanh(x @ self.rows + self.last)


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (2.0, False)])
def test_numbers_that_parameters_hold_otherwise_are_compared_by_what_they_do(factor, right):
    reference = Joined().eval()
    port = Apart(reference.matrix.detach().numpy(), factor)
    report = tipchain.align(reference, port, ROWS)
    assert report.passed is right, str(report)
