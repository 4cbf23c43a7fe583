"""Layers of ``paddle.compat.nn`` take torch's arguments and keep their tensors as torch does."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

from tipchain.errors import Outcome

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not hasattr(paddle, "compat"), reason="this Paddle has no paddle.compat"),
]


def of(side, nn, name, settings):
    def forward(net, *inputs):
        made = net.layer(*inputs)
        return made[0] if isinstance(made, tuple) else made

    return model(side, lambda _: {"layer": getattr(nn, name)(**settings)}, forward)


ATTENTION = {"embed_dim": 8, "num_heads": 2}


def align(name, settings, shapes, **other):
    """Align a layer with the same, but for other settings of the port's."""
    rng = np.random.default_rng(0)
    reference, port = of(torch, torch.nn, name, settings), of(paddle, paddle.compat.nn, name, {**settings, **other})
    return copy_and_align(reference, port, tuple(rng.standard_normal(one).astype(np.float32) for one in shapes))


@pytest.mark.parametrize(
    ("name", "settings", "shapes"),
    [
        ("Linear", {"in_features": 4, "out_features": 4}, [(3, 4)]),
        ("AvgPool2d", {"kernel_size": 3, "padding": 1}, [(2, 3, 8, 8)]),
        ("Softmax", {"dim": -1}, [(2, 3, 4)]),
        ("Unfold", {"kernel_size": 2}, [(2, 3, 4, 4)]),
        ("MultiheadAttention", ATTENTION, [(5, 3, 8)] * 3),
        ("MultiheadAttention", {**ATTENTION, "batch_first": True, "add_bias_kv": True}, [(5, 3, 8)] * 3),
        ("MultiheadAttention", {**ATTENTION, "kdim": 6, "vdim": 4}, [(5, 3, 8), (5, 3, 6), (5, 3, 4)]),
    ],
)
def test_a_layer_is_torchs(name, settings, shapes):
    report = align(name, settings, shapes)
    assert report.passed, report
    assert report.stages["preflight"] is Outcome.PASS


@pytest.mark.parametrize(
    ("name", "settings", "shapes", "other"),
    [
        ("MultiheadAttention", ATTENTION, [(5, 5, 8)] * 3, {"batch_first": True}),
        ("AvgPool2d", {"kernel_size": 3, "padding": 1}, [(2, 3, 8, 8)], {"count_include_pad": False}),
    ],
)
def test_a_setting_that_differs_is_named(name, settings, shapes, other):
    report = align(name, settings, shapes, **other)
    assert report.stages["forward"] is Outcome.FAIL
    assert report.diagnoses[0].port_path == "layer"
