"""Kernels of Paddle that compute where they sample in float32, whatever the tensors are in: as far off is no fault."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

import tipchain  # noqa: E402
from tipchain.errors import Outcome  # noqa: E402


class Reference(torch.nn.Module):
    def __init__(self, options, last):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 2, 3)
        self.options, self.last = options, last

    def forward(self, x):
        resize = torch.nn.functional.interpolate
        return resize(self.b(self.a(x)), **self.options) if self.last else self.b(resize(self.a(x), **self.options))


class Port(paddle.nn.Layer):
    def __init__(self, options, last, factor=1.0):
        super().__init__()
        self.a, self.b = paddle.nn.Conv2D(3, 4, 3), paddle.nn.Conv2D(4, 2, 3)
        self.options, self.last, self.factor = options, last, factor

    def forward(self, x):
        resize = paddle.nn.functional.interpolate
        if self.last:
            return resize(self.b(self.a(x)) * self.factor, **self.options)
        return self.b(resize(self.a(x) * self.factor, **self.options))


def aligned(mode, corners, size, *, last=False, factor=1.0):
    options = {"mode": mode, "align_corners": corners, "size": size}
    reference, port = Reference(options, last), Port({**options, "size": list(size)}, last, factor)
    tipchain.copy_weights(reference, port)
    given = np.random.default_rng(0).standard_normal((2, 3, 31, 23)).astype(np.float32)
    return tipchain.align(reference, port, {"args": given}, causes=False)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("mode", "corners"), [("bilinear", True), ("bicubic", False)])
@pytest.mark.parametrize("size", [(71, 52)])
def test_a_resized_image_is_as_close_as_places_in_float32_allow(mode, corners, size, last):
    report = aligned(mode, corners, size, last=last)
    assert report.passed, str(report)
    assert max(report.numbers.values()) > 1e-9, "the kernel does compute in float32"


@pytest.mark.parametrize("last", [False, True])
def test_a_little_fault_beside_it_is_found_all_the_same(last):
    report = aligned("bilinear", True, (71, 52), last=last, factor=1 + 2e-5)
    assert report.stages["forward"] is Outcome.FAIL
    assert report.first_divergence.port_path == ""
