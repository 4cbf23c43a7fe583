"""Losses that hold constants in float32, in runs in float64."""

from functools import partial

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY, SGD, copy_and_align

import tipchain
from tipchain.errors import Outcome
from tipchain.explain.causes.losses import check_loss
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide

pytestmark = pytest.mark.frameworks
WEIGHTS = np.array([0.1, 0.7, 0.3], np.float32)
OURS, THEIRS = torch.tensor(WEIGHTS), paddle.to_tensor(WEIGHTS)
TORCH, PADDLE = torch.nn.functional.cross_entropy, paddle.nn.functional.cross_entropy


class Weighted:
    def __init__(self, function, weight):
        self.function, self.held = function, {"weight": [weight]}

    def __call__(self, output, labels):
        return self.function(output, labels, weight=self.held["weight"][0])


def closed(function, weight):
    inner = torch.nn.CrossEntropyLoss(weight=weight) if function is TORCH else paddle.nn.CrossEntropyLoss(weight=weight)
    return lambda output, labels: 2 * inner(output, labels)


def by_name(function, weight):
    del function, weight
    return lambda output, labels: (
        TORCH(output, labels, weight=OURS)
        if isinstance(output, torch.Tensor)
        else PADDLE(output, labels, weight=THEIRS)
    )


def made_inside(function, weight):
    kind, make = (torch.float32, torch.tensor) if function is TORCH else ("float32", paddle.to_tensor)
    del weight
    return lambda output, labels: function(output, labels, weight=make(WEIGHTS.tolist(), dtype=kind))


LOSSES = {
    "layer": lambda function, weight: (torch.nn if function is TORCH else paddle.nn).CrossEntropyLoss(weight=weight),
    "closure": closed,
    "global": by_name,
    "partial": lambda function, weight: partial(function, weight=weight),
    "object": Weighted,
    "method": lambda function, weight: Weighted(function, weight).__call__,
    "made inside": made_inside,
}


def align(losses, scale=1.0):
    torch.manual_seed(0)
    ours, theirs = torch.nn.Linear(4, 3), paddle.nn.Linear(4, 3)
    with torch.no_grad():
        ours.weight.mul_(scale)
    tipchain.copy_weights(ours, theirs)
    given = np.random.default_rng(0)
    inputs = {"args": given.standard_normal((6, 4), dtype=np.float32), "labels": np.array([0, 1, 2, 2, 1, 0])}
    return tipchain.align(ours, theirs, inputs, loss=losses, iterations=3, optimizers=SGD)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_with_float32_constants_trains_both_in_float64(name):
    losses = LOSSES[name](TORCH, OURS), LOSSES[name](PADDLE, THEIRS)
    report = align(losses)
    assert report.passed, str(report)
    assert report.stages["train"] is Outcome.PASS
    assert {one.method for one in report.layers} == {"float64"}
    assert ("float32" in report.reasons["loss"]) is (name == "made inside")
    assert OURS.dtype == torch.float32
    assert THEIRS.dtype == paddle.float32


def test_what_the_stage_of_the_loss_excuses_does_not_fail_the_training():
    """Paddle's softmax takes what is more than 64 below the largest output for 64 below."""
    report = align(CROSS_ENTROPY, scale=300.0)
    assert "64 below" in report.reasons["loss"]
    assert report.stages["train"] is not Outcome.FAIL, report.reasons["train"]
    assert report.passed, str(report)


def test_outputs_that_the_port_has_beside_are_given_to_its_loss_as_they_are():
    given, cache = np.ones((2, 3), np.float32), np.ones((2, 5), np.float32)
    losses = tuple(lambda output, _labels: (output[0] ** 2).mean() + (output[-1] ** 2).mean() for _ in (0, 1))
    found = check_loss(
        Sides(TorchSide(), PaddleSide()), losses, (given, 2 * given), port_outputs=(given, cache, 2 * given)
    )
    assert found.outcome is Outcome.PASS, found.reason
    other = check_loss(Sides(TorchSide(), PaddleSide()), losses, (given, 2 * given), port_outputs=(given, cache))
    assert other.outcome is Outcome.ERROR


@pytest.mark.parametrize(("used", "outcome"), [(False, Outcome.PASS), (True, Outcome.ERROR)])
def test_outputs_of_other_shapes_count_where_a_loss_uses_them(used, outcome):
    given, pooled, wider = np.full((2, 3), 2, np.float32), np.ones((2, 5), np.float32), np.ones((2, 7), np.float32)

    def loss(output, _labels):
        return (output[0] ** 2).mean() + (output[-1] ** 2).mean() + (output[1].sum() if used else 0)

    sides = TorchSide(), PaddleSide()
    found = check_loss(sides, (loss, loss), (given, pooled, 2 * given), port_outputs=(given, wider, 2 * given))
    assert found.outcome is outcome, found.reason
    assert ("other shapes: expected [[2, 3], [2, 5], [2, 3]], actual" in found.reason) is used


@pytest.mark.parametrize(("used", "outcome"), [(False, Outcome.PASS), (True, Outcome.FAIL)])
def test_outputs_that_the_reference_has_beside_count_where_its_loss_uses_them(used, outcome):
    given, other = np.full((2, 3), 2, np.float32), np.ones((2, 5), np.float32)
    losses = (
        lambda output, _labels: (output[0] ** 2).mean() + (output[1].mean() if used else 0),
        lambda output, _labels: (output[0] ** 2).mean(),
    )
    found = check_loss(Sides(TorchSide(), PaddleSide()), losses, (given, other), port_outputs=(given,))
    assert found.outcome is outcome, found.reason


def test_a_training_of_what_does_not_run_in_float64_is_no_error():
    class Single(paddle.nn.Linear):
        def forward(self, x):
            if x.dtype != paddle.float32:
                raise ValueError("only float32")
            return super().forward(x)

    ours, theirs = torch.nn.Sequential(torch.nn.Linear(4, 3)), paddle.nn.Sequential(Single(4, 3))
    report = copy_and_align(
        ours,
        theirs,
        {"args": np.ones((2, 4), np.float32), "labels": np.array([0, 1])},
        loss=CROSS_ENTROPY,
        optimizers=SGD,
    )
    assert report.stages["train"] is Outcome.SKIP
    assert "the port does not run in float64" in report.reasons["train"]
