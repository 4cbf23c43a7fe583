"""Every layer, function, optimizer and schedule of torch has a row, or stands here; rows name what both frameworks have."""

from __future__ import annotations

import inspect

import pytest

from tipchain.facts.functions import OF_TORCH
from tipchain.facts.layers import CONTAINERS, KINDS
from tipchain.facts.optimizers import BY_CLASS
from tipchain.facts.schedules import SCHEDULES

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")
pytestmark = pytest.mark.frameworks

LAYERS = set(
    """
    AdaptiveLogSoftmaxWithLoss CrossMapLRN2d DataParallel LPPool3d LinearCrossEntropyLoss NLLLoss2d Softmin
    Container Module RNNBase RNNCellBase
    """.split()
)
FUNCTIONS = set(
    """
    celu_ conv_tbc embedding_bag grouped_mm linear_cross_entropy lp_pool3d multi_head_attention_forward
    native_channel_shuffle rrelu_ scaled_grouped_mm scaled_mm selu_ softmin threshold_
    """.split()
)
OPTIMIZERS = {"Adafactor", "Muon", "SparseAdam", "Optimizer"}
SCHEDULERS = {"ChainedScheduler", "ConstantLR", "LRScheduler"}
HELPERS = ("has_torch", "handle_torch", "assert_", "boolean_dispatch", "Optional")


def classes(module, base):
    return {
        name for name, one in vars(module).items() if inspect.isclass(one) and issubclass(one, base) and name[0] != "_"
    }


def test_every_layer_of_torch_has_a_row():
    known = {name for one in KINDS for name in one.classes[0]} | CONTAINERS
    found = {name for name in classes(torch.nn, torch.nn.Module) if not name.startswith("Lazy")}
    assert found - known == LAYERS & found


def test_every_function_of_torch_has_a_row():
    found = {
        name
        for name, one in vars(torch.nn.functional).items()
        if callable(one) and not inspect.isclass(one) and not name.startswith(("_", *HELPERS))
    }
    found = {name for name in found if not name.endswith("_with_indices")}
    assert {name for name in found if not hasattr(paddle.nn.functional, OF_TORCH.get(name, name))} == FUNCTIONS & found


def test_every_optimizer_and_schedule_of_torch_has_a_row():
    assert classes(torch.optim, torch.optim.Optimizer) - set(BY_CLASS[0]) <= OPTIMIZERS
    found = classes(torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler)
    assert found - set(SCHEDULES) == SCHEDULERS


UNNAMED = {"output at padding_idx", "class", "act", "align_mode", "mode", "scale", "alpha", "nonlinearity"}
"""What no constructor names: a class tells it, it is passed on, or it cannot be chosen in one of the frameworks."""


def arguments(module, names):
    found = [base for name in names if hasattr(module, name) for base in getattr(module, name).__mro__[:-1]]
    return {name for one in found for name in inspect.signature(one.__init__).parameters}


@pytest.mark.parametrize("row", [one for one in KINDS if one.compared], ids=lambda one: one.name)
def test_a_row_names_classes_and_arguments_that_there_are(row):
    ours, theirs = (arguments(nn, names) for nn, names in zip((torch.nn, paddle.nn), row.classes, strict=True))
    assert ours
    assert theirs
    for trait in row.properties:
        assert trait.torch in ours | UNNAMED, trait.code
        for name in trait.argument.split(", "):
            assert name in theirs | UNNAMED or trait.lacking, trait.code


@pytest.mark.parametrize("side", [0, 1], ids=["torch", "Paddle"])
def test_rows_of_optimizers_and_schedules_name_classes_that_there_are(side):
    optim = (torch.optim, paddle.optimizer)[side]
    lr = (torch.optim.lr_scheduler, paddle.optimizer.lr)[side]
    assert [name for name in BY_CLASS[side] if not hasattr(optim, name)] == []
    assert [one for one in ((name, kind)[side] for name, (kind, _) in SCHEDULES.items()) if not hasattr(lr, one)] == []
