"""Every layer, function, optimizer and schedule of torch has a row, or stands here; rows name what both frameworks have."""

import inspect

import pytest
from both_frameworks import paddle, torch

from tipchain.facts.functions import OF_TORCH, OTHERWISE
from tipchain.facts.layers import CONTAINERS, KINDS
from tipchain.facts.optimizers import BY_CLASS
from tipchain.facts.packed import spell_out
from tipchain.facts.schedules import SCHEDULES

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
    assert [one for one in ((name, row.paddle)[side] for name, row in SCHEDULES.items()) if not hasattr(lr, one)] == []


X = [[[[3.0, 1.0, -70.0], [2.0, 5.0, 0.0]], [[4.0, 8.0, 6.0], [7.0, 9.0, 10.0]]]]
MEANINGS = {
    "logsoftmax": ("F.log_softmax(x, -1)", "F.log_softmax", {"axis": -1}),
    "median": ("x.median()", "paddle.median", {}),
    "pad": ("F.pad(x, [1, 0, 0, 0, 0, 0, 0, 2])", "F.pad", {"pad": [1, 0, 0, 0, 0, 0, 0, 2]}),
    "smoothl1": ("F.smooth_l1_loss(x, 0 * x, beta=2.0)", "F.smooth_l1_loss", {"label": 0, "delta": 2.0}),
    "svd": ("torch.svd(x)[2]", "paddle.linalg.svd", {}),
    "crossentropy": (
        "F.cross_entropy(x[0, 0], torch.tensor([1, -100]))", "F.cross_entropy", {"input": 0, "label": [1, -100]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_a_function_means_otherwise_is_so(name):
    """Paddle's gives something else than torch's, and the row's formula what torch's gives."""
    ours, theirs, given = MEANINGS[name]
    expected = eval(ours, {"torch": torch, "F": torch.nn.functional, "x": torch.tensor(X)}).numpy()
    x = paddle.to_tensor(X)
    function = eval(theirs, {"paddle": paddle, "F": paddle.nn.functional})
    given = {
        key: paddle.to_tensor(one) if key == "label" and one else x * 0 if key == "label" else one
        for key, one in given.items()
    }
    given = {**given, "input": x[0, 0]} if "input" in given else given
    bound = inspect.signature(function).bind(*([] if "input" in given else [x]), **given)
    bound.apply_defaults()
    result = function(*bound.args, **bound.kwargs)
    made = OTHERWISE[name].compute(paddle, bound.arguments, result)
    result, made = (one[2] if isinstance(one, tuple) else one for one in (result, made))
    assert result.shape != list(expected.shape) or abs(result.numpy() - expected).max() > 1e-3
    assert (
        abs(abs(made.numpy()) - abs(expected)).max() < 1e-5
        if name == "svd"
        else abs(made.numpy() - expected).max() < 1e-5
    )


@pytest.mark.parametrize("cell", ["RNNCell", "GRUCell", "LSTMCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_that_is_spelled_out_computes_what_its_kernel_does(cell, bias):
    layer, x = getattr(torch.nn, cell)(4, 5, bias=bias), torch.randn(3, 4)
    first = layer(x)
    second = layer(x, first)
    spell_out(layer)
    torch.testing.assert_close(layer(x), first)
    torch.testing.assert_close(layer(x, first), second)
