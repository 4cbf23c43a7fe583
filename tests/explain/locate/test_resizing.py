"""Kernels of Paddle that compute where they sample in float32, whatever the tensors are in: as far off is no fault."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain
from tipchain.errors import Outcome


def aligned(mode, corners, *, last=False, factor=1.0):
    def build(side, convolution, factor):
        def resized(x):
            return side.nn.functional.interpolate(x * factor, size=[71, 52], mode=mode, align_corners=corners)

        def forward(net, x):
            return resized(net.b(net.a(x))) if last else net.b(resized(net.a(x)))

        return model(side, lambda _: {"a": convolution(3, 4, 3), "b": convolution(4, 2, 3)}, forward)

    torch.manual_seed(0)
    reference, port = build(torch, torch.nn.Conv2d, 1.0), build(paddle, paddle.nn.Conv2D, factor)
    tipchain.copy_weights(reference, port)
    given = np.random.default_rng(0).standard_normal((2, 3, 31, 23)).astype(np.float32)
    return tipchain.align(reference, port, {"args": given}, causes=False)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("mode", "corners"), [("bilinear", True), ("bicubic", False)])
def test_a_resized_image_is_as_close_as_places_in_float32_allow(mode, corners, last):
    report = aligned(mode, corners, last=last)
    assert report.passed, str(report)
    assert max(report.numbers.values()) > 1e-9, "the kernel does compute in float32"


@pytest.mark.parametrize("last", [False, True])
def test_a_little_fault_beside_it_is_found_all_the_same(last):
    report = aligned("bilinear", True, last=last, factor=1 + 2e-5)
    assert report.stages["forward"] is Outcome.FAIL
    assert report.first_divergence.port_path == ""
