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


class Reference(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.point, self.kind = torch.nn.Linear(5, 4), torch.nn.Linear(3, 4), torch.nn.Embedding(4, 4)

    def forward(self, images, points, scale=None):
        one, other = images
        made = self.image(one) - self.image(other).tanh() + self.point(points["value"]) * self.kind(points["index"])
        return made if scale is None else made * scale["all"]


class Port(paddle.nn.Layer):
    def __init__(self, *, swapped=False):
        super().__init__()
        self.image, self.point, self.kind = paddle.nn.Linear(5, 4), paddle.nn.Linear(3, 4), paddle.nn.Embedding(4, 4)
        self.swapped = swapped

    def forward(self, pictures, places, factor=None):
        one, other = pictures[::-1] if self.swapped else pictures
        made = self.image(one) - self.image(other).tanh() + self.point(places["value"]) * self.kind(places["index"])
        return made if factor is None else made * factor["all"]


def aligned(port, inputs, **options):
    reference = Reference()
    return copy_and_align(reference, port, inputs, **options)


@pytest.mark.parametrize(
    "inputs",
    [
        {"args": ((BEFORE, AFTER), POINTS), "scale": {"all": np.float32(2)}},
        {"images": [torch.from_numpy(BEFORE), paddle.to_tensor(AFTER)], "points": POINTS},
    ],
)
def test_arguments_may_be_lists_and_mappings_of_arrays(inputs):
    report = aligned(Port(), inputs)
    assert report.passed, str(report)
    assert report.stages["backward"] is Outcome.PASS
    report = aligned(Port(swapped=True), inputs, causes=False)
    assert report.stages["forward"] is Outcome.FAIL


def test_what_is_no_array_is_named_where_it_stands():
    with pytest.raises(UsageError, match=r"args\[1\]\.value is a str, expected a numpy array"):
        aligned(Port(), ([BEFORE, AFTER], {**POINTS, "value": "left"}))


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
