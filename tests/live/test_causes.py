"""Causes of several layers: equal ones are one, others are not hidden behind them, refuted ones are not told."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align, model

import tipchain
from tipchain.explain.findings import Diagnosis, difference
from tipchain.live import causes
from tipchain.live.report import AlignmentReport

COUNT = 8
IMAGES = {"args": np.random.default_rng(0).standard_normal((2, 4, 5, 5)).astype(np.float32)}


def norms(epsilon=1e-5, momentum=0.9):
    """Return convolutions and BatchNorms of both frameworks, with variances at which an epsilon shows."""
    torch.manual_seed(0)
    ours, theirs = [], []
    for _ in range(COUNT):
        ours += [torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4)]
        theirs += [paddle.nn.Conv2D(4, 4, 1), paddle.nn.BatchNorm2D(4, epsilon=epsilon, momentum=momentum)]
    reference, port = torch.nn.Sequential(*ours), paddle.nn.Sequential(*theirs)
    for one in reference:
        if isinstance(one, torch.nn.BatchNorm2d):
            one.running_var.uniform_(0.01, 0.1)
    tipchain.copy_weights(reference, port)
    reference.eval(), port.eval()
    return reference, port


def test_equal_differences_of_construction_are_one_cause_and_hide_no_other(monkeypatch):
    reference, port = norms(epsilon=1e-3)
    port[14].weight.set_value(port[14].weight * 1.5)
    tried = []
    diagnose = causes.diagnose
    monkeypatch.setattr(
        causes, "diagnose", lambda *args, **more: tried.append(args[1].port_path) or diagnose(*args, **more)
    )
    report = tipchain.align(reference, port, IMAGES)
    first, second = report.diagnoses
    assert (first.name, len(first.paths), first.port_path) == ("epsilon", COUNT, "1")
    assert first.explained > 0.99
    assert (second.name, second.port_path) == ("wrong-values", "14")
    assert tried == ["1", "14"], "of equal ones the first alone is run"
    text = str(report)
    assert f"cause: argument ({COUNT} BatchNorm2D), explains 100.0%" in text
    assert "finding:" not in text, "what a cause says is not said again"
    assert AlignmentReport.from_json(report.to_json()).diagnoses == report.diagnoses


def test_a_difference_that_no_number_shows_stands_beside_the_cause_once():
    report = tipchain.align(*norms(epsilon=1e-3, momentum=0.5), IMAGES)
    assert [(one.name, len(one.paths), one.explained is None) for one in report.diagnoses] == [
        ("epsilon", COUNT, False),
        ("momentum", COUNT, True),
    ]


def test_the_same_code_in_several_layers_is_one_cause():
    def layers(nn):
        return {"a": nn.Linear(6, 6), "b": nn.Linear(6, 6)}

    def blocks(side, forward):
        return side.nn.Sequential(*(model(side, layers, forward) for _ in range(COUNT)))

    torch.manual_seed(0)
    reference = blocks(torch, lambda net, x: net.b(torch.nn.functional.silu(net.a(x))))
    port = blocks(paddle, lambda net, x: net.b(paddle.nn.functional.relu(net.a(x))))
    report = copy_and_align(
        reference, port, {"args": np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)}
    )
    faults = {one.port_path for one in report.layers if one.at_fault}
    assert [(one.code, set(one.layers)) for one in report.diagnoses] == [("function", faults)]


def finding(name, path="net.1"):
    effect = "elsewhere" if name == "momentum" else "here"
    return difference(name, ("r", "p"), f"{path} has p", "f", paths=(path, path), effect=effect)


def cause(name, explained=1.0, path="net.1"):
    code = "parting" if name == "parting" else "argument"
    return Diagnosis(code=code, name=name, port_path=path, message="m", evidence="", explained=explained, fix="f")


@pytest.mark.parametrize(
    ("found", "findings", "told"),
    [
        ([cause("wrong-values")], [finding("padding-mode")], ["wrong-values"]),
        ([cause("epsilon")], [finding("momentum")], ["epsilon", "momentum"]),
        ([cause("parting", 0.2)], [finding("padding-mode")], ["padding-mode"]),
        ([cause("parting", 0.2), cause("parting", 0.2, "net.2")], [finding("dropout-p")], ["dropout-p", "parting"]),
    ],
)
def test_what_another_cause_refutes_is_not_told_beside_it(found, findings, told):
    assert [one.name for one in causes.with_construction(found, findings)] == told


def test_no_line_is_quoted_for_layers_that_a_container_calls():
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))
    port = paddle.nn.Sequential(("0", paddle.nn.Linear(4, 6)), ("2", paddle.nn.Linear(6, 3)))
    report = copy_and_align(reference, port, {"args": np.random.default_rng(0).random((5, 4), np.float32)})
    (cause,) = report.diagnoses
    assert "relu" in cause.message
    assert "``" not in cause.message + cause.fix
    assert "self.gen" not in cause.message + cause.fix, "no line of Python's own"
