"""Casts to float32 do nothing to a model in float32, and nothing in its float64 run; coarser ones do."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import model

import tipchain
from tipchain.errors import Outcome
from tipchain.explain.locate.verdicts import Closeness, classify, measure

TABLE = np.linspace(0.5, 1.5, 16, dtype=np.float32)


def single(x):
    return x.to(torch.float32) if isinstance(x, torch.Tensor) else x.astype("float32")


def cast(x, like):
    return x.to(like.dtype) if isinstance(x, torch.Tensor) else x.astype(like.dtype)


def build(side, weight, forward):
    """Return two layers and an RMSNorm that computes in float32, as language models' do."""

    def normed(net, x):
        wide = single(x)
        return net.weight * cast(wide * side.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-3), x)

    def layers(nn):
        norm = model(side, lambda _: {"weight": weight}, normed)
        return {"a": nn.Linear(16, 16), "norm": norm, "b": nn.Linear(16, 16)}

    return model(side, layers, forward)


def reference(forward=None, *, narrow=True):
    def attended(net, x):
        steps = torch.arange(16, dtype=torch.float32) / 16
        return net.b(torch.softmax(net.a(net.norm(x)), -1, dtype=torch.float32 if narrow else None).to(x.dtype) * steps)

    torch.manual_seed(0)
    return build(torch, torch.nn.Parameter(torch.ones(16)), forward or attended)


def port(forward=None, *, coarse=False):
    def attended(net, x):
        scores = net.a(net.norm(x))
        scores = cast(scores.astype("float16"), x) if coarse else scores
        steps = paddle.arange(16, dtype="float32") / 16
        return net.b(paddle.nn.functional.softmax(scores, dtype="float32").astype(x.dtype) * steps)

    weight = paddle.create_parameter([16], "float32", default_initializer=paddle.nn.initializer.Constant(1.0))
    return build(paddle, weight, forward or attended)


def aligned(ours, theirs, training=False):
    tipchain.copy_weights(ours, theirs)
    given = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    ours.train(training)
    theirs.train() if training else theirs.eval()
    return tipchain.align(ours, theirs, {"args": given}, training=training, causes=False)


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_casts_to_float32_leave_nothing_to_tell_apart(narrow, training):
    report = aligned(reference(narrow=narrow), port(), training)
    assert report.passed, str(report)
    assert max(report.numbers.values()) < 1e-12


def test_a_cast_to_less_than_float32_is_no_rounding():
    assert aligned(reference(), port(coarse=True)).stages["forward"] is Outcome.FAIL


@pytest.mark.parametrize("own", [(True, False), (False, True)])
def test_a_constant_in_float32_does_not_keep_a_model_from_its_float64_run(own):
    """Such a product runs in float32 alone once the casts are undone; as it is written it runs in float64, too."""

    def ours(net, x):
        hidden, table = net.norm(x), torch.from_numpy(TABLE)
        return net.b(cast(single(hidden) @ torch.diag(table) if own[0] else hidden * table, x))

    def theirs(net, x):
        hidden, table = net.norm(x), paddle.to_tensor(TABLE)
        return net.b(cast(paddle.matmul(single(hidden), paddle.diag(table)) if own[1] else hidden * table, x))

    report = aligned(reference(ours), port(theirs))
    assert report.passed, str(report)
    assert all("float64" in one.method for one in report.layers)


def test_a_sum_that_is_zero_but_for_rounding_is_no_coarse_arithmetic():
    """The bias stands before a norm: its gradient is zero, and Paddle's kernel adds up its terms one after the other."""
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(8, 8, 7, padding=3, groups=8), torch.nn.BatchNorm2d(8)
    ours = torch.nn.Sequential(conv, norm, torch.nn.ReLU6())
    conv, norm = paddle.nn.Conv2D(8, 8, 7, padding=3, groups=8), paddle.nn.BatchNorm2D(8)
    theirs = paddle.nn.Sequential(conv, norm, paddle.nn.ReLU6())
    tipchain.copy_weights(ours, theirs)
    given = 1e-2 * np.random.default_rng(0).standard_normal((2, 8, 64, 64)).astype(np.float32)
    report = tipchain.align(ours.train(), theirs, {"args": given}, training=True, causes=False)
    assert report.passed, str(report)


def test_single_elements_that_float32_puts_on_the_other_side_are_no_coarse_arithmetic():
    """float16 is off everywhere; a kink is off where it is crossed."""
    generator = np.random.default_rng(0)
    truth = generator.standard_normal((16, 8))
    rounded = truth.astype(np.float32)
    crossed = rounded.copy()
    crossed[3] *= 0.9
    coarse = truth.astype(np.float16).astype(np.float32)
    for port, expected in ((crossed, Closeness.ROUNDING), (coarse, Closeness.LOWER_PRECISION)):
        found = measure("it", truth, rounded, port, 1e-15)
        assert classify([found])[0] is expected


@pytest.mark.parametrize(("far", "expected"), [(3.0, Closeness.ROUNDING), (5.0, Closeness.DIFFERS)])
def test_float64_may_be_as_far_off_as_the_references_own_float32_where_a_kernel_knows_no_other(far, expected):
    """A gradient whose terms cancel, behind an image that Paddle resizes with ratios in float32."""
    truth = np.random.default_rng(0).standard_normal((16, 8))
    both = [(truth * (1 + off)).astype(np.float32) for off in (1e-6, -1e-6)]
    assert classify([measure("it", truth, *both, far * 1e-6)])[0] is expected
