"""Large parameters are updated by some of their elements: what is found out is the same."""

import numpy as np
import pytest
from live_nets import model

from tests.explain.training.test_updates_alike import clipped
from tipchain.errors import Outcome
from tipchain.explain.causes.optimizer_builders import MOST, open_both
from tipchain.weights.convert import to_paddle


@pytest.fixture(scope="module")
def large(pieces):
    """Return two models with a large convolution, a matrix that Paddle transposes, and one that it keeps in parts."""

    def layers(nn, convolution, attention):
        linear = {"fc": nn.Linear(150, 110), "small": nn.Linear(5, 4)}
        return {"conv": convolution(30, 50, 3), **linear, "attention": attention(48, 4)}

    models = (
        model(pieces.torch, lambda nn: layers(nn, nn.Conv2d, nn.MultiheadAttention), None),
        model(pieces.paddle, lambda nn: layers(nn, nn.Conv2D, nn.MultiHeadAttention), None),
    )
    models[1].set_state_dict(dict(to_paddle(models[0], models[0].state_dict(), models[1]).state))
    return models


def opened(pieces, kits, models, **options):
    builders = (
        lambda p: kits.ours.Adagrad(p, lr=0.1, initial_accumulator_value=0.1),
        lambda parameters: kits.theirs.Adagrad(0.1, parameters=parameters, initial_accumulator_value=0.1),
    )
    return open_both(pieces.trained(builders, models=models), **options)


def test_both_sides_keep_the_same_elements_of_large_parameters_only(pieces, kits, large):
    whole, cut = (opened(pieces, kits, large, whole=one) for one in (True, False))
    assert whole.whole
    assert not cut.whole
    assert whole.elements == sum(one.numel() for one in large[0].parameters())
    for name in cut.names:
        full, kept = (one.sides[0].value(name) for one in (whole, cut))
        assert np.array_equal(kept, cut.sides[1].value(name)), name
        assert min(MOST // 8, full.size) <= kept.size <= MOST, name
        assert np.isin(kept, full).all(), name
        assert kept.ndim == full.ndim
        if full.size <= MOST:
            assert np.array_equal(kept, full), name
    state = cut.sides[0].optimizer.state[cut.sides[0].tensor("conv.weight")]
    assert state["sum"].shape == cut.sides[0].tensor("conv.weight").shape, "Adagrad keeps one from the start"
    assert large[0].conv.weight.shape == (50, 30, 3, 3)
    assert large[1].fc.weight.shape == [150, 110]


EQUAL = {
    "adamw": (
        lambda p, k: k.ours.AdamW(p, lr=1e-3, weight_decay=0.1),
        lambda p, k: k.theirs.AdamW(1e-3, parameters=p, weight_decay=0.1),
    ),
    "adagrad": (lambda p, k: k.ours.Adagrad(p, lr=1e-2, eps=1e-6), lambda p, k: k.theirs.Adagrad(1e-2, parameters=p)),
    "by shape": (
        lambda p, k: k.ours.SGD([{"params": [one], "lr": 1 / one.shape[-1]} for one in p], lr=0.1),
        lambda p, k: k.theirs.SGD(
            1.0, parameters=[{"params": [one], "learning_rate": 1 / one.shape[0 if one.ndim == 2 else -1]} for one in p]
        ),
    ),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_optimizers_agree_on_large_parameters(pieces, kits, large, name):
    ours, theirs = EQUAL[name]
    models = large if name != "by shape" else (large[0].fc, large[1].fc)
    found = pieces.optimizers(lambda p: ours(p, kits), lambda p: theirs(p, kits), models=models)
    assert found.outcome is Outcome.PASS, found.reason
    assert found.numbers["updates"] == 8


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (
            lambda p, k: k.ours.SGD(p, lr=0.1, weight_decay=1e-3),
            lambda p, k: k.theirs.SGD(
                0.1, parameters=[{"params": p[1:], "weight_decay": 1e-3}, {"params": p[:1], "weight_decay": 0.0}]
            ),
            "`weight_decay`",
        ),
        (
            lambda p, k: clipped(k, p),
            lambda p, k: k.theirs.SGD(0.1, parameters=p, grad_clip=k.paddle.nn.ClipGradByGlobalNorm(1.001)),
            "the port's gradients are clipped by",
        ),
    ],
)
def test_what_differs_is_caught_and_named(pieces, kits, large, ours, theirs, words):
    found = pieces.optimizers(lambda p: ours(p, kits), lambda p: theirs(p, kits), models=large)
    assert found.outcome is Outcome.FAIL
    (cause,) = found.diagnoses
    assert cause.code == "setting"
    assert cause.message.startswith(words)
    assert cause.explained >= 0.99


def test_an_optimizer_that_keeps_tensors_of_all_sizes_is_given_whole_ones(pieces, kits, large):
    class Own(kits.theirs.Optimizer):
        def __init__(self, parameters):
            super().__init__(0.1, list(parameters))
            self.buffers = [kits.paddle.zeros_like(one) for one in self._parameter_list]

        @kits.paddle.no_grad()
        def step(self):
            for one, buffer in zip(self._parameter_list, self.buffers, strict=True):
                buffer.set_value(0.9 * buffer + one.grad)
                one.set_value(one - self.get_lr() * buffer)

    found = pieces.optimizers(lambda p: kits.ours.SGD(p, lr=0.1, momentum=0.9), Own, models=large)
    assert found.outcome is Outcome.PASS, found.reason
