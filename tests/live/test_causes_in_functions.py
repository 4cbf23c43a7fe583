"""The first cause that `tipchain.align` tells of one function of a model's own code that is called otherwise."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain

pytestmark = pytest.mark.frameworks
F, PF = torch.nn.functional, paddle.nn.functional
RANDOM = np.random.default_rng(3)
ORDER = np.array([3, 1, 0, 2])
IMAGES = RANDOM.standard_normal((6, 8, 4, 4)).astype(np.float32)


def net(side, code, layer):
    return model(
        side, lambda nn: {"first": layer, "last": nn.PReLU()}, lambda net, x, *more: net.last(code(net.first(x), *more))
    )


def of_images(ours, theirs):
    return net(torch, ours, torch.nn.Conv2d(8, 8, 1)), net(paddle, theirs, paddle.nn.Conv2D(8, 8, 1)), IMAGES


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "told"),
    [
        (
            lambda x: torch.index_select(x, 2, torch.tensor(ORDER)),
            lambda x: paddle.index_select(x, paddle.to_tensor(ORDER), axis=3),
            "argument axis",
            "is 3; with 2 it makes what the reference makes",
        ),
        (
            lambda x: 0.25 * x + 0.75 * x.abs(),
            lambda x: 0.45 * x + 0.55 * x.abs(),
            "parting multiply",
            "what the reference does at test_causes_in_functions.py:37: `0.25 * x + 0.75 * x.abs()`",
        ),
    ],
)
def test_a_function_that_is_called_otherwise_is_the_first_cause(ours, theirs, kind, told):
    reference, port, inputs = of_images(ours, theirs)
    report = copy_and_align(reference, port, inputs)
    cause = report.diagnoses[0]
    assert f"{cause.code} {cause.name}" == kind, str(report)
    assert told in cause.message + cause.fix
    assert cause.explained == pytest.approx(1)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("layer", [True, False])
def test_a_log_softmax_that_stops_below_the_largest_is_told_as_what_it_is(layer, scale):
    models = (
        torch.nn.Sequential(torch.nn.Conv2d(8, 8, 1), torch.nn.LogSoftmax(1)),
        paddle.nn.Sequential(paddle.nn.Conv2D(8, 8, 1), paddle.nn.LogSoftmax(1)),
    )
    if not layer:
        models = (
            net(torch, lambda x: F.log_softmax(x, 1), models[0][0]),
            net(paddle, lambda x: PF.log_softmax(x, 1), models[1][0]),
        )
    report = copy_and_align(*models, scale * IMAGES)
    assert report.passed is (scale == 1), str(report)
    assert [one.code for one in report.diagnoses] == ["function"] * (scale != 1)
    assert all("x - paddle.logsumexp(x, axis=1, keepdim=True)" in one.fix for one in report.diagnoses)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


class PortSquare(paddle.autograd.PyLayer):
    """Its backward is wrong in a way that nothing tried explains."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensor()
        return (x * x - x.abs()) * gradient


def test_a_function_whose_own_backward_is_wrong_is_named_with_its_line():
    torch.manual_seed(0)
    models = of_images(Square.apply, lambda x: PortSquare.apply(x + 0))[:2]
    tipchain.copy_weights(*models)
    apply = PortSquare.apply
    (cause,) = tipchain.align(*models, IMAGES).diagnoses
    assert (cause.code, cause.is_known) == ("parting", False)
    assert "its results agree, and `PortSquare` at test_causes_in_functions.py:" in cause.evidence
    assert PortSquare.apply == apply, "Paddle's is left as it was"


def scaled(x):
    y = torch.tanh(x) * 0.5
    return x + y


def unscaled(x):
    y = paddle.tanh(x)
    return x + y


def test_a_call_too_few_is_told_at_the_line_that_makes_what_it_belongs_to():
    reference, port, inputs = of_images(scaled, unscaled)
    cause, *_ = copy_and_align(reference, port, inputs).diagnoses
    assert (cause.code, cause.name) == ("missing-call", "multiply")
    assert cause.place.code == "y = paddle.tanh(x)"
    assert cause.reference_place.code == "y = torch.tanh(x) * 0.5"
