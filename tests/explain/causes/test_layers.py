"""Faults of a single layer: its tensors, its arguments, its mode."""

import numpy as np
import pytest
from live_nets import model, random


def pair(live, reference, port):
    """Return a layer of both frameworks between two others, so that it has a path; equal weights."""
    nn, other = live.torch.nn, live.paddle.nn
    return live.equal(nn.Sequential(nn.Identity(), reference), other.Sequential(other.Identity(), port))


def change(layer, name, function):
    tensor = dict(layer.state_dict())[name]
    tensor.set_value(np.ascontiguousarray(function(tensor.numpy())))


def one_element(array):
    array.flat[5] += 0.1
    return array


TENSORS = [
    ("Linear", (6, 6), "weight", lambda array: array.T, "transposed-weight", (3, 6)),
    ("Linear", (6, 5), "weight", one_element, "wrong-values", (3, 6)),
    ("Linear", (6, 5), "bias", np.zeros_like, "wrong-values", (3, 6)),
    ("Conv2", (4, 4, 3), "weight", lambda array: array.transpose(1, 0, 2, 3), "permuted-weight", (2, 4, 7, 7)),
    ("Conv2", (3, 4, 3), "weight", lambda array: array[:, :, ::-1, ::-1], "permuted-weight", (2, 3, 7, 7)),
    ("BatchNorm2", (4,), "_variance", lambda array: array * (9 / 8), "wrong-values", (2, 4, 5, 5)),
]


@pytest.mark.parametrize(("kind", "sizes", "name", "function", "code", "shape"), TENSORS)
def test_a_wrong_tensor_is_described(live, kind, sizes, name, function, code, shape):
    dims = kind[-1] == "2"
    reference, port = pair(
        live,
        getattr(live.torch.nn, f"{kind}d" if dims else kind)(*sizes),
        getattr(live.paddle.nn, f"{kind}D" if dims else kind)(*sizes),
    )
    change(port[1], name, function)
    cause = live.cause(reference, port, random(*shape))
    assert (cause.code, cause.name) == ("parameter", code)
    assert cause.port_path == "1"
    assert cause.explained > 0.999


def test_exchanged_statistics(live):
    reference, port = pair(live, live.torch.nn.BatchNorm2d(4), live.paddle.nn.BatchNorm2D(4))
    mean, variance = (getattr(port[1], name).numpy() for name in ("_mean", "_variance"))
    port[1]._mean.set_value(variance)
    port[1]._variance.set_value(np.abs(mean))
    reference[1].running_mean.abs_()
    assert live.cause(reference, port, random(2, 4, 5, 5)).name == "weight-of-another-layer"


def test_gates_in_another_order(live):
    def forward(model, x):
        return model.net(x)[0]

    ours = model(live.torch, lambda nn: {"net": nn.LSTM(5, 6, batch_first=True)}, forward)
    reference, port = live.equal(ours, model(live.paddle, lambda nn: {"net": nn.LSTM(5, 6)}, forward))
    for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
        change(port.net, name, lambda array: np.concatenate([np.split(array, 4)[gate] for gate in (1, 0, 2, 3)]))
    cause = live.cause(reference, port, random(2, 4, 5))
    assert (cause.name, cause.port_path) == ("permuted-weight", "net")


ARGUMENTS = [
    ("BatchNorm2d", "BatchNorm2D", (4,), {}, {"epsilon": 1e-3}, "epsilon", "epsilon=1e-05"),
    ("GroupNorm", "GroupNorm", (2, 4), {}, (4, 4), "num-groups", "num_groups=2"),
    ("Conv2d", "Conv2D", (4, 4, 3), {"padding": 1}, {"padding": 1, "padding_mode": "reflect"}, "padding-mode", "zeros"),
    ("Conv2d", "Conv2D", (4, 4, 3), {"padding": 1}, {"padding": [0, 2, 0, 2]}, "padding", "padding=1"),
    ("Conv2d", "Conv2D", (4, 4, 3), {"padding": "same"}, {}, "padding", "padding=1"),
    ("AvgPool2d", "AvgPool2D", (3, 1, 1), {}, {"exclusive": True}, "exclusive", "exclusive=False"),
    ("Softmax", "Softmax", (), {"dim": 1}, {"axis": -1}, "softmax-axis", "axis=1"),
    ("Hardswish", "Swish", (), {}, {}, "Hardswish", "Hardswish"),
    ("ELU", "Identity", (), {}, {}, "elu", "write `elu(alpha=1.0)` for"),
]


@pytest.mark.parametrize(("ours", "theirs", "sizes", "right", "wrong", "code", "fix"), ARGUMENTS)
def test_a_wrong_argument_is_named_with_the_right_value(live, ours, theirs, sizes, right, wrong, code, fix):
    made = getattr(live.torch.nn, ours)(*sizes, **right)
    given = (wrong, {}) if isinstance(wrong, tuple) else (sizes, wrong)
    reference, port = pair(live, made, getattr(live.paddle.nn, theirs)(*given[0], **given[1]))
    cause = live.cause(reference, port, 3 * random(2, 4, 7, 7))
    assert code in f"{cause.name} {cause.fix}"
    assert fix in cause.fix


@pytest.mark.parametrize(
    ("settings", "ported", "code"),
    [
        ({"padding": 1}, {"padding": [[0, 0], [0, 2], [0, 2], [0, 0]]}, "padding"),
        ({"padding": 1, "padding_mode": "reflect"}, {"padding": 1}, "padding-mode"),
    ],
    ids=str,
)
def test_a_convolution_with_its_channels_last(live, settings, ported, code):
    class Reference(live.torch.nn.Conv2d):
        def forward(self, x):
            return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    last = live.paddle.nn.Conv2D(3, 4, 3, data_format="NHWC", **ported)
    cause = live.cause(*pair(live, Reference(3, 4, 3, **settings), last), random(2, 11, 9, 3))
    assert (cause.code, cause.name, cause.explained > 0.999) == ("argument", code, True)


def test_modes(live):
    reference, port = pair(live, live.torch.nn.BatchNorm2d(4), live.paddle.nn.BatchNorm2D(4))
    port[1].train()
    cause = live.cause(reference, port, random(3, 4, 5, 5))
    assert (cause.code, cause.name) == ("setting", "mode")
    assert "call `eval()` of `1`" in cause.fix
    reference, port = pair(live, live.torch.nn.Dropout(0.3), live.paddle.nn.Dropout(0.3))
    port[1].train()
    assert live.cause(reference, port, random(3, 40)).name == "mode"


def test_no_model_is_changed(live):
    reference, port = pair(live, live.torch.nn.BatchNorm2d(4), live.paddle.nn.BatchNorm2D(4, epsilon=1e-3))
    reference.train()
    port.train()
    before = {name: tensor.numpy() for name, tensor in port.state_dict().items()}
    relu = live.paddle.nn.functional.relu
    add = type(live.paddle.ones([1])).__add__
    live.cause(reference, port, random(3, 4, 5, 5))
    assert port[1]._epsilon == 1e-3
    assert all(np.array_equal(tensor.numpy(), before[name]) for name, tensor in port.state_dict().items())
    assert live.paddle.nn.functional.relu is relu
    assert type(live.paddle.ones([1])).__add__ is add
