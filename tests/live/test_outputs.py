"""What models return: judged over what both have, whatever form it has, or over what is asked for."""

import json
import sys

import forking
import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model
from programs import completed

import tipchain
from tipchain.errors import Outcome, UsageError

INPUT = {"args": np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)}


def layers(nn):
    return {"body": nn.Linear(6, 6), "head": nn.Linear(6, 3)}


def net(side, give, scale=1.0):
    def forward(net, x):
        hidden = side.tanh(net.body(x))
        return give(net.head(hidden) * scale, hidden)

    return model(side, layers, forward)


def logits(y, h):
    return y


def named(y, h):
    return {"logits": y, "hidden": h}


def pair(give, take, **options):
    torch.manual_seed(0)
    reference, port = net(torch, give), net(paddle, take, **options)
    tipchain.copy_weights(reference, port)
    return reference, port


FORMS = [
    (named, logits, "only the reference returns hidden"),
    (lambda y, h: (y, None), lambda y, h: (y, h, h * 2), "only the port returns 1, 2"),
    (lambda y, h: (y, h), lambda y, h: {"hidden": h, "logits": y}, None),
    (lambda y, h: (y, y + 1, y + 2), lambda y, h: [y + 1], "only the reference returns 0, 2"),
]


@pytest.mark.parametrize(("give", "take", "told"), FORMS)
def test_what_both_return_is_judged_and_the_rest_is_named(give, take, told):
    report = tipchain.align(*pair(give, take), INPUT)
    assert report.stages == {"preflight": Outcome.PASS, "forward": Outcome.PASS, "backward": Outcome.PASS}, str(report)
    assert (told or "only the") in report.reasons["forward"] if told else "only the" not in str(report)
    assert ("outputs" in report.unmatched) == bool(told)
    assert any(name.startswith("output") for name in report.numbers)


@pytest.mark.parametrize(("give", "take", "told"), FORMS)
def test_a_fault_in_what_both_return_is_found_all_the_same(give, take, told):
    report = tipchain.align(*pair(give, take, scale=1.01), INPUT, causes=False)
    assert report.stages["forward"] is Outcome.FAIL
    assert report.first_divergence.port_path == ""


@pytest.mark.parametrize(
    ("give", "take"),
    [(lambda y, h: (y, h), lambda y, h: (h, y)), (logits, lambda y, h: None), (named, lambda y, h: (y, h[:, :5]))],
)
def test_outputs_that_are_exchanged_lacking_or_of_another_shape_fail(give, take):
    report = tipchain.align(*pair(give, take), INPUT, causes=False)
    assert report.stages["forward"] is Outcome.FAIL


def test_outputs_says_what_counts_by_name_index_or_callable():
    models = pair(lambda y, h: {"logits": y, "extra": h}, lambda y, h: (h * 3, y))
    wrong = tipchain.align(*models, INPUT, outputs=("extra", 0), causes=False)
    assert wrong.stages["forward"] is Outcome.FAIL
    for outputs in (("logits", 1), (["logits"], [-1]), (lambda out: out["logits"], lambda out: out[1])):
        report = tipchain.align(*models, INPUT, outputs=outputs)
        assert report.passed, str(report)
        assert "only the" not in report.reasons["forward"]
        assert report.command.count("outputs=outputs") == 1


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("logit", "the reference's output has no 'logit'\n  found: it has logits, hidden"),
        (("logits", 5), "the port's output has no 5"),
    ],
)
def test_what_is_not_there_is_wrong_use(outputs, message):
    with pytest.raises(UsageError, match="outputs") as found:
        tipchain.align(*pair(named, lambda y, h: (y, h)), INPUT, outputs=outputs)
    assert message in str(found.value)


def test_the_command_takes_outputs(tmp_path):
    (tmp_path / "nets.py").write_text(
        "import torch, paddle\n"
        "class R(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = torch.nn.Linear(2, 2)\n"
        "        torch.nn.init.eye_(self.fc.weight)\n        torch.nn.init.zeros_(self.fc.bias)\n"
        "    def forward(self, x):\n        return {'y': self.fc(x), 'z': x}\n"
        "class P(paddle.nn.Layer):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = paddle.nn.Linear(2, 2)\n"
        "        self.fc.weight.set_value(paddle.eye(2))\n        self.fc.bias.set_value(paddle.zeros([2]))\n"
        "    def forward(self, x):\n        return x * 2, self.fc(x)\n"
    )
    np.savez(tmp_path / "inputs.npz", args=np.ones((1, 2), np.float32))
    command = [
        sys.executable, "-m", "tipchain", "locate", "--reference", "nets:R", "--port", "nets:P", "--inputs", "inputs.npz",
        "--outputs", "y", "1", "--json", "report.json",
    ]  # fmt: skip
    done = completed(command, cwd=tmp_path, env=forking.environment(forking.HERE.parent))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert "--outputs y 1" in report["command"]


def test_complex_numbers_are_compared():
    reference, port = (
        model(side, lambda nn: {"fc": nn.Linear(3, 4)}, forward)
        for side, forward in (
            (torch, lambda net, x: torch.fft.fft(net.fc(x))),
            (paddle, lambda net, x: paddle.fft.fft(net.fc(x)).real()),
        )
    )
    report = copy_and_align(reference, port, np.ones((5, 3), np.float32))
    assert report.stages["forward"] is Outcome.FAIL
    assert [one.what for one in report.histograms] == ["output 0 of the model"]


class PortTarget(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.body, self.head = paddle.nn.Linear(6, 6), paddle.nn.Linear(6, 3)

    def forward(self, x):
        y = self.body(x)
        return self.head(y), y


def test_what_is_wrong_with_outputs_is_told_at_the_return_statement():
    reference = model(torch, layers, lambda net, x: (net.head(net.body(x)), net.body(x).detach()))
    (cause,) = copy_and_align(reference, PortTarget(), INPUT).diagnoses
    assert (cause.code, cause.place.code) == ("cut-gradient", "return self.head(y), y")
