"""Copies of models with large parameters, which are made in one step: nothing of them is the model's."""

import numpy as np
import pytest
from live_nets import model

from tipchain.frameworks.live_models import LARGE, has_hooks

WIDE = (4, LARGE // 4)


def tied(side):
    """Return a model that has one large weight twice, once as an attribute, and a layer of integers."""
    first, second = side.nn.Linear(*WIDE), side.nn.Linear(*WIDE)
    second.weight = first.weight
    made = model(side, lambda _: {"first": first, "kept": [first.weight], "second": second}, None)
    made.register_buffer("steps", side.zeros([2], dtype=side.int64))
    return made


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_a_copy_has_the_values_and_ties_and_memory_of_its_own(live, name, double):
    side = live.sides[("torch", "paddle").index(name)]
    given = tied(getattr(live, name))
    before = side.array(given.first.weight).copy()
    made = side.copied(given, double=double)
    assert made.second.weight is made.first.weight is made.kept[0]
    values = side.array(made.first.weight)
    assert values.dtype == (np.float64 if double else np.float32)
    assert np.array_equal(values, before)
    assert side.array(made.steps).dtype == np.int64
    side.assign(made.first.weight, np.zeros(before.shape, values.dtype))
    assert np.array_equal(side.array(given.first.weight), before)
    assert side.takes_gradient(made.first.weight)


def test_a_frozen_weight_stays_frozen_and_keeps_its_learning_rate(live):
    port = live.paddle.nn.Linear(*WIDE)
    port.weight.stop_gradient = True
    port.weight.optimize_attr["learning_rate"] = 0.5
    made = live.sides[1].copied(port, double=True)
    assert made.weight.stop_gradient
    assert made.weight.optimize_attr == {"learning_rate": 0.5}
    assert made.weight.optimize_attr is not port.weight.optimize_attr
    reference = live.torch.nn.Linear(*WIDE).requires_grad_(False)
    assert not live.sides[0].copied(reference, double=True).weight.requires_grad


def test_an_alignment_loads_no_compiler(forked):
    import subprocess
    import sys

    code = (
        "import sys, numpy, torch, paddle, tipchain\n"
        "pair = torch.nn.Linear(3, 2), paddle.nn.Linear(3, 2)\n"
        "tipchain.copy_weights(*pair)\n"
        "assert tipchain.align(*pair, numpy.ones((2, 3), numpy.float32)).passed\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "from tipchain.modes import parse_device\n"
        "from tipchain.frameworks import load_framework\n"
        "load_framework('torch').configure(parse_device('cpu'), 0, 1)\n"
        "parameter = torch.nn.Parameter(torch.ones(1))\n"
        "optimizer = torch.optim.SGD([parameter], lr=0.25)\n"
        "def step():\n"
        "    optimizer.zero_grad()\n"
        "    parameter.sum().backward()\n"
        "    optimizer.step()\n"
        "step()\n"
        "assert 'torch._dynamo.eval_frame' not in sys.modules\n"
        "torch.compile(step, backend='eager')()\n"
        "assert 'torch._dynamo.eval_frame' in sys.modules\n"
        "step()\n"
        "assert parameter.item() == 0.25\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "register", ["register_forward_pre_hook", "register_forward_hook", "register_forward_post_hook"]
)
@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_a_layer_with_hooks_is_known(live, name, register):
    layer = getattr(live, name).nn.Linear(3, 3)
    assert not has_hooks(layer)
    if hasattr(layer, register):
        getattr(layer, register)(lambda *_: None)
        assert has_hooks(layer)


def test_empty_containers_of_a_copy_are_its_own(live):
    for side, layer in zip(live.sides, (live.torch.nn.Linear(3, 3), live.paddle.nn.Linear(3, 3)), strict=True):
        made = side.copied(layer, double=False)
        made.register_buffer("seen", made.weight.detach())
        made.register_forward_pre_hook(lambda layer, given: None)
        assert not layer._buffers, side.name
        assert not layer._forward_pre_hooks, side.name
