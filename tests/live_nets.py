"""Models of either framework, pairs of them, and what they are trained with."""

import numpy as np
from both_frameworks import paddle, torch

import tipchain

CROSS_ENTROPY = torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss()
SGD = (lambda ps, rate=0.1: torch.optim.SGD(ps, rate), lambda ps, rate=0.1: paddle.optimizer.SGD(rate, ps))


def random(*shape):
    """Return the same normal numbers every time."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def model(side, make, forward):
    """Return a model in eval mode.

    Args:
        side: the module ``torch`` or ``paddle``.
        make: returns the layers, parameters and settings by name, given ``side.nn``.
        forward: takes the model and its arguments.
    """

    class Net(side.nn.Layer if hasattr(side.nn, "Layer") else side.nn.Module):
        def __init__(self):
            super().__init__()
            for name, layer in make(side.nn).items():
                setattr(self, name, layer)

        def forward(self, *args, **kwargs):
            return forward(self, *args, **kwargs)

    made = Net()
    made.eval()
    return made


def copy_and_align(reference, port, inputs, **options):
    """Return the report of two models with equal weights."""
    tipchain.copy_weights(reference, port)
    return tipchain.align(reference, port, inputs, **options)
