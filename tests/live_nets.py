"""Models of either framework, pairs of them, and what they are trained with."""

import importlib.util
import sys

import numpy as np
from both_frameworks import paddle, torch

import tipchain

CROSS_ENTROPY = torch.nn.CrossEntropyLoss(), paddle.nn.CrossEntropyLoss()
SGD = (lambda ps, rate=0.1: torch.optim.SGD(ps, rate), lambda ps, rate=0.1: paddle.optimizer.SGD(rate, ps))


def random(*shape):
    """Return the same normal numbers every time."""
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def loaded(file, text):
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model(side, make, forward):
    """Return a model in eval mode.

    Args:
        side: the module ``torch`` or ``paddle``.
        make: returns the layers, parameters, settings and, as arrays, buffers by name, given ``side.nn``.
        forward: takes the model and its arguments.
    """

    class Net(side.nn.Layer if hasattr(side.nn, "Layer") else side.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in make(side.nn).items():
                if isinstance(value, np.ndarray):
                    self.register_buffer(name, torch.tensor(value) if side is torch else paddle.to_tensor(value))
                else:
                    setattr(self, name, value)

        def forward(self, *args, **kwargs):
            return forward(self, *args, **kwargs)

    made = Net()
    made.eval()
    return made


def copy_and_align(reference, port, inputs, **options):
    """Return the report of two models with equal weights."""
    tipchain.copy_weights(reference, port)
    return tipchain.align(reference, port, inputs, **options)
