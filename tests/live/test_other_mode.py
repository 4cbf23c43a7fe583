"""Models that agree in one mode and not in the other: `tipchain.align` runs them there too."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain
from tipchain.errors import Outcome

pytestmark = pytest.mark.frameworks
WIDE, RATE = 8, 0.25


def net(side, act, **layers):
    size = WIDE
    if "wide" in layers:
        size = layers["wide"].out_features if side is torch else layers["wide"].weight.shape[1]
    return model(
        side,
        lambda nn: {"first": nn.Linear(WIDE, WIDE), "last": nn.Linear(size, WIDE), **layers},
        lambda net, x: net.last(act(net, side.nn.functional.relu(net.first(x)))),
    )


def path(net, x):
    """Drop the whole of a sample."""
    return x / (1 - RATE) * x.new_empty((len(x), 1, 1)).bernoulli_(1 - RATE) if net.training else x


def ported_path(net, x):
    return x / (1 - RATE) * paddle.floor(1 - RATE + paddle.rand((len(x), 1, 1))) if net.training else x


def aligned(ours, theirs, **more):
    torch.manual_seed(0)
    shape = 4, 5, WIDE
    reference, port = net(torch, **ours), net(paddle, **theirs)
    tipchain.copy_weights(reference, port)
    before = {name: value.clone() for name, value in reference.state_dict().items()}
    report = tipchain.align(reference, port, np.random.default_rng(0).standard_normal(shape, dtype=np.float32), **more)
    assert not reference.training
    assert not port.training
    assert all(torch.equal(value, before[name]) for name, value in reference.state_dict().items())
    return report


def torch_layer(net, x):
    return net.drop(x)


def nothing(_net, x):
    return x


def by_function(rate=RATE, **more):
    def act(net, x):
        return paddle.nn.functional.dropout(x, rate, **{"training": net.training, **more})

    return act


def attend(_net, x):
    rate = RATE if _net.training else 0.0
    return torch.nn.functional.scaled_dot_product_attention(*3 * [x.unsqueeze(1)], dropout_p=rate).squeeze(1)


def ported_attend(rate):
    def act(net, x):
        given = 3 * [x.unsqueeze(2)]
        function = paddle.nn.functional.scaled_dot_product_attention
        return function(*given, dropout_p=rate, training=net.training).squeeze(2)

    return act


def torch_path(net, x):
    return x + net.path(x)


def dropped():
    return {"act": torch_layer, "drop": torch.nn.Dropout(RATE)}


def ported(act=torch_layer, **layers):
    return {"act": act, "drop": paddle.nn.Dropout(RATE), **layers}


FAULTS = {
    "always-off": (dropped, lambda: ported(by_function(training=False)), "missing-call"),
    "twice": (dropped, lambda: ported(lambda net, x: net.drop(net.drop(x))), "extra-call"),
    "elements-for-channels": (
        lambda: {"act": lambda net, x: torch.nn.functional.dropout1d(x, RATE, net.training)},
        lambda: {"act": by_function()},
        "function",
    ),
    "another-place": (
        lambda: {
            "act": lambda net, x: net.wide(net.drop(x)),
            "drop": torch.nn.Dropout(RATE),
            "wide": torch.nn.Linear(WIDE, 2),
        },
        lambda: {
            "act": lambda net, x: net.drop(net.wide(x)),
            "drop": paddle.nn.Dropout(RATE),
            "wide": paddle.nn.Linear(WIDE, 2),
        },
        "call-order",
    ),
    "another-branch": (
        lambda: {"act": lambda net, x: x * 2 if net.training else x},
        lambda: {"act": lambda net, x: x * 3 if net.training else x},
        None,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_train_mode_alone_shows_fails_in_eval_mode(name):
    reference, port, code = FAULTS[name]
    report = aligned(reference(), port())
    assert report.stages["forward"] is Outcome.FAIL, str(report)
    assert report.stages["preflight"] is report.stages["backward"] is Outcome.PASS
    if code is not None:
        assert report.diagnoses[0].code == code, str(report.diagnoses)
        assert "train mode" in report.diagnoses[0].message
    assert report.first_divergence is not None


@pytest.mark.parametrize("training", [False, True])
def test_a_dropout_that_eval_mode_does_not_switch_off_is_named_in_either_mode(training):
    report = aligned(dropped(), ported(by_function(training=True)), training=training)
    assert report.stages["forward"] is Outcome.FAIL
    assert (report.diagnoses[0].code, report.diagnoses[0].name) == ("setting", "mode")
    assert report.diagnoses[0].place.code.startswith("return paddle.nn.functional.dropout(")


@pytest.mark.parametrize("training", [True, False])
def test_a_dropout_that_the_references_eval_mode_does_not_switch_off_is_told(training):
    """`functional.dropout(x)` drops in eval mode: relational networks' published reference does so, and it had no cause."""
    reference = net(torch, lambda _, x: torch.nn.functional.dropout(x, RATE)).train(training)
    port = net(paddle, by_function())
    (port.train if training else port.eval)()
    (cause,) = copy_and_align(reference, port, np.ones((4, 5, WIDE), np.float32)).diagnoses
    assert cause.code == "missing-call"
    assert "training=True" in cause.fix


CLEAN = {
    "function": (dropped, lambda: ported(by_function())),
    "attention": (lambda: {"act": attend}, lambda: {"act": ported_attend(RATE)}),
    "path": (
        lambda: {"act": torch_path, "path": model(torch, lambda _: {}, path)},
        lambda: {"act": torch_path, "path": model(paddle, lambda _: {}, ported_path)},
    ),
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_agrees_in_train_mode_passes(name):
    reference, port = CLEAN[name]
    report = aligned(reference(), port())
    assert report.passed, str(report)
    assert "train mode" not in str(report)


@pytest.mark.parametrize("doubles", [False, True])
def test_a_model_is_run_in_the_other_mode_whatever_its_code_says(doubles):
    def act(net, x):
        return net.norm(x) * (2 if doubles and vars(net)["train" + "ing"] else 1)

    norms = {"norm": torch.nn.BatchNorm1d(5)}, {"norm": paddle.nn.BatchNorm1D(5), "act": act}
    report = aligned({"act": lambda net, x: net.norm(x), **norms[0]}, norms[1])
    assert report.passed is not doubles
    assert doubles is report.reasons["forward"].startswith("in train mode: ")


def test_a_model_that_refuses_train_mode_is_said_not_to_be_compared_there():
    def refuse(net, x):
        if net.training:
            raise ValueError("targets are missing")
        return x

    report = aligned({"act": refuse}, {"act": nothing})
    assert report.passed
    assert "train mode was not compared: the reference does not run in it: " in report.reasons["forward"]
    assert "ValueError: targets are missing" in report.reasons["forward"]
    other = aligned({"act": lambda net, x: x * (1 if net.training else 1.0)}, {"act": refuse})
    assert "train mode was not compared: the port does not run in it: " in other.reasons["forward"]


def test_an_output_that_only_the_reference_has_in_train_mode_is_told():
    def auxiliary(net, x):
        made = net.last(torch.relu(net.first(x)))
        return (made, net.first(x)) if net.training else made

    torch.manual_seed(0)
    layers = ("first", "last")
    reference = model(torch, lambda nn: {name: nn.Linear(WIDE, WIDE) for name in layers}, auxiliary)
    port = net(paddle, nothing)
    report = copy_and_align(reference, port, np.random.default_rng(0).standard_normal((4, 5, WIDE), dtype=np.float32))
    assert report.passed
    assert "in train mode: only the reference returns 1" in report.reasons["forward"]


def raises_in_train_mode(net, x):
    return net.drop(x + x[:, :3] if net.training else x)


def test_a_port_that_raises_in_train_mode_alone_fails():
    report = aligned(dropped(), ported(raises_in_train_mode))
    assert report.stages["forward"] is Outcome.FAIL
    told = "the model (Net): in train mode the port raises, the reference does not: "
    assert report.reasons["forward"].startswith(told), report.reasons["forward"]
    assert "test_other_mode.py:" in report.reasons["forward"]


class Frozen(torch.nn.Module):
    """Its class keeps the norm's statistics in train mode, too."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.norm(self.conv(x))


class Thawed(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = paddle.nn.Conv2D(3, 4, 3), paddle.nn.BatchNorm2D(4)

    def forward(self, x):
        return self.norm(self.conv(x))


class PortFrozen(Thawed):
    def train(self, mode=True):
        super().train()
        self.norm.eval()
        return self


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("port", [Thawed, PortFrozen])
def test_a_class_that_switches_its_mode_in_its_own_way_is_switched_so(port, training):
    models = Frozen(), port()
    tipchain.copy_weights(*models)
    images = np.random.default_rng(0).standard_normal((4, 3, 6, 6)).astype(np.float32)
    assert tipchain.align(*models, images, training=training).passed is (port is PortFrozen)
