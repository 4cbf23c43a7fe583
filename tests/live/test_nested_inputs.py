"""Models that are called with lists and mappings of tensors, and models that keep tensors of an earlier call."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain
from tipchain.errors import Outcome, UsageError

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
BEFORE, AFTER = (RANDOM.standard_normal((8, 5)).astype(np.float32) for _ in range(2))
POINTS = {"value": RANDOM.standard_normal((8, 3)).astype(np.float32), "index": RANDOM.integers(0, 4, 8)}


def built(side, *, swapped=False):
    def forward(net, images, points, scale=None):
        one, other = images[::-1] if swapped else images
        made = net.image(one) - net.image(other).tanh() + net.point(points["value"]) * net.kind(points["index"])
        return made if scale is None else made * scale["all"]

    return model(
        side, lambda nn: {"image": nn.Linear(5, 4), "point": nn.Linear(3, 4), "kind": nn.Embedding(4, 4)}, forward
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {"args": ((BEFORE, AFTER), POINTS), "scale": {"all": np.float32(2)}},
        {"images": [torch.from_numpy(BEFORE), paddle.to_tensor(AFTER)], "points": POINTS},
    ],
)
def test_arguments_may_be_lists_and_mappings_of_arrays(inputs):
    report = copy_and_align(built(torch), built(paddle), inputs)
    assert report.passed, str(report)
    assert report.stages["backward"] is Outcome.PASS
    report = copy_and_align(built(torch), built(paddle, swapped=True), inputs, causes=False)
    assert report.stages["forward"] is Outcome.FAIL


def test_what_is_no_array_is_named_where_it_stands():
    with pytest.raises(UsageError, match=r"args\[1\]\.value is a str, expected a numpy array"):
        copy_and_align(built(torch), built(paddle), ([BEFORE, AFTER], {**POINTS, "value": "left"}))


def test_a_model_that_keeps_tensors_of_an_earlier_call_is_copied():
    def keeping(net, x):
        net.scale = [net.linear(x).sigmoid()]
        return x[:, :4] * net.scale[0]

    def keeping_in_paddle(net, x):
        net.scale = paddle.nn.functional.sigmoid(net.linear(x))
        return x[:, :4] * net.scale

    reference = model(torch, lambda nn: {"linear": nn.Linear(5, 4)}, keeping)
    port = model(paddle, lambda nn: {"linear": nn.Linear(5, 4)}, keeping_in_paddle)
    tipchain.copy_weights(reference, port)
    reference(torch.from_numpy(BEFORE))
    port(paddle.to_tensor(BEFORE))
    report = tipchain.align(reference, port, BEFORE)
    assert report.passed, str(report)
