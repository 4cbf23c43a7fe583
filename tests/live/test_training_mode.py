"""Models in train mode: equal random numbers where they can be imposed, and no verdict where they cannot."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY, SGD, copy_and_align, model

import tipchain
from tipchain.errors import ExitCode, Outcome
from tipchain.explain.locate.verdicts import Closeness

pytestmark = pytest.mark.frameworks
WIDE, HEADS, RATE = 8, 2, 0.3


def net(side, acts):
    """Return attention, a path that is dropped, and a dropout; ``acts`` are what the two sides may write otherwise."""

    def forward(net, x):
        y = net.out(acts["attend"](net, net.q(x), net.k(x), net.v(x)))
        y = acts.get("between", lambda _net, one: one)(net, y)
        return net.head(x + acts["path"](net, y)).mean(1)

    return model(side, lambda nn: {name: nn.Linear(WIDE, WIDE) for name in ("q", "k", "v", "out", "head")}, forward)


def torch_fused(net, *given):
    q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in given)
    rate = RATE if net.training else 0.0
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=rate)
    return y.transpose(1, 2).flatten(2)


def torch_joined(net, *given):
    q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2).flatten(0, 1) for one in given)
    weights = torch.nn.functional.dropout((q @ k.mT / (WIDE // HEADS) ** 0.5).softmax(-1), RATE, net.training)
    return (weights @ v).unflatten(0, (-1, HEADS)).transpose(1, 2).flatten(2)


def paddle_fused(net, *given):
    q, k, v = (one.reshape([*one.shape[:2], HEADS, -1]) for one in given)
    y = paddle.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=RATE, training=net.training)
    return y.flatten(2)


def paddle_heads(net, *given, rate=RATE):
    q, k, v = (one.reshape([*one.shape[:2], HEADS, -1]).transpose([0, 2, 1, 3]) for one in given)
    weights = paddle.nn.functional.softmax(q @ k.transpose([0, 1, 3, 2]) / (WIDE // HEADS) ** 0.5)
    y = paddle.nn.functional.dropout(weights, rate, training=net.training) @ v
    return y.transpose([0, 2, 1, 3]).flatten(2)


def torch_path(mask):
    def path(net, x):
        return x / (1 - RATE) * mask((len(x), 1, 1)).to(x.dtype) if net.training else x

    return path


def paddle_path(mask):
    def path(net, x):
        return x / (1 - RATE) * mask((len(x), 1, 1)).astype(x.dtype) if net.training else x

    return path


BERNOULLI = torch_path(lambda shape: torch.empty(shape).bernoulli_(1 - RATE))
PADDLE_BERNOULLI = paddle_path(lambda shape: paddle.bernoulli(paddle.full(shape, 1 - RATE)))
FLOOR = paddle_path(lambda shape: paddle.floor(1 - RATE + paddle.rand(shape)))
SMALLER = paddle_path(lambda shape: paddle.rand(shape) < 1 - RATE)


def align(reference, port, **more):
    torch.manual_seed(0)
    ours, theirs = net(torch, reference), net(paddle, port)
    tipchain.copy_weights(ours, theirs)
    given = np.random.default_rng(0)
    inputs = {"args": given.standard_normal((4, 5, WIDE), dtype=np.float32), "labels": given.integers(0, WIDE, 4)}
    return tipchain.align(ours, theirs, inputs, loss=CROSS_ENTROPY, training=True, optimizers=SGD, iterations=3, **more)


@pytest.mark.parametrize(
    ("reference", "port"),
    [
        ((torch_fused, BERNOULLI), (paddle_fused, PADDLE_BERNOULLI)),
        ((torch_joined, BERNOULLI), (paddle_heads, FLOOR)),  # [b * heads, q, k] against [b, heads, q, k]
        ((torch_joined, BERNOULLI), (paddle_fused, SMALLER)),  # it keeps where numbers are small
    ],
)
def test_equal_masks_reach_attention_and_paths_however_they_are_written(reference, port):
    names = "attend", "path"
    report = align(*(dict(zip(names, side, strict=True)) for side in (reference, port)))
    assert report.passed, str(report)
    assert set(report.stages.values()) == {Outcome.PASS}


def test_a_mask_in_another_order_that_its_shape_does_not_tell_fails_nothing_and_hides_no_fault():
    def grouped(net, x):  # [b, heads, t, c], b is twice heads
        y = torch.dropout(x.unflatten(-1, (HEADS, -1)).transpose(1, 2), RATE, net.training)
        return y.transpose(1, 2).flatten(2)

    def joined(net, x, factor=1.0):  # [heads, b * t, c]
        y = x.reshape([*x.shape[:2], HEADS, -1]).transpose([2, 0, 1, 3])
        y = paddle.nn.functional.dropout(y.flatten(1, 2), RATE, training=net.training).reshape(y.shape)
        return y.transpose([1, 2, 0, 3]).flatten(2) * factor

    ours, theirs = {"attend": torch_fused, "path": BERNOULLI}, {"attend": paddle_heads, "path": FLOOR}
    report = align(ours | {"between": grouped}, theirs | {"between": joined})
    assert report.passed, str(report)
    assert set(report.stages.values()) == {Outcome.PASS}
    wrong = align(ours | {"between": grouped}, theirs | {"between": lambda net, x: joined(net, x, 1.1)})
    assert wrong.stages["forward"] is Outcome.FAIL


def test_several_other_probabilities_are_told_though_no_layer_has_them():
    """Each alone explains too little, so that the code was told to differ."""

    def ours(net, x):
        return torch.dropout(torch.dropout(x, 0.5, net.training).tanh(), RATE, net.training)

    def theirs(net, x):
        drop = paddle.nn.functional.dropout
        return drop(drop(x, 0.2, training=net.training).tanh(), 0.1, training=net.training)

    names = {"attend": torch_fused, "path": BERNOULLI}, {"attend": paddle_heads, "path": FLOOR}
    (cause,) = align(names[0] | {"between": ours}, names[1] | {"between": theirs}).diagnoses
    assert cause.name == "dropout-p"
    assert "with p=0.2 at test_training_mode.py:" in cause.message
    assert cause.message.endswith("with p=0.5; 1 more of its draws differ so")


def test_numbers_that_cannot_be_made_equal_are_inconclusive():
    """Each side draws by an operator of its own."""

    def noisy(net, x):
        return x * torch.poisson(torch.ones(x.shape[0], 1, 1)).to(x.dtype) if net.training else x

    def noisy_port(net, x):
        return x * paddle.poisson(paddle.ones([x.shape[0], 1, 1])).astype(x.dtype) if net.training else x

    report = align(
        {"attend": torch_fused, "path": BERNOULLI, "between": noisy},
        {"attend": paddle_fused, "path": FLOOR, "between": noisy_port},
    )
    assert not report.passed
    assert report.exit_code is ExitCode.NOTHING_CHECKED, str(report)
    assert "random, not comparable" in report.uncompared[0]
    assert str(report).startswith("INCONCLUSIVE: equal where compared")
    assert report.stages["train"] is Outcome.SKIP
    assert any(one.closeness is Closeness.ROUNDING for one in report.layers), "the other layers are judged"


def test_a_layer_that_stands_at_several_paths_is_trained_once():
    def build(side, shared, inner):
        return model(
            side,
            lambda nn: {"shared": shared, "head": nn.Linear(WIDE, WIDE), "inner": inner},
            lambda net, x: net.head(net.inner(x) + net.shared(x)).mean(1),
        )

    words, ported = torch.nn.Embedding(7, WIDE), paddle.nn.Embedding(7, WIDE)
    alone = model(paddle, lambda _: {"0": ported}, lambda net, x: getattr(net, "0")(x))
    report = copy_and_align(
        build(torch, words, torch.nn.Sequential(words)),
        build(paddle, ported, alone),
        {"args": np.arange(6).reshape(2, 3), "labels": np.array([1, 2])},
        loss=CROSS_ENTROPY,
        training=True,
        iterations=2,
        optimizers=SGD,
    )
    assert report.passed, str(report)
    assert report.stages["train"] is Outcome.PASS
