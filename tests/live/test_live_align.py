"""`tipchain.align` on live pairs: what it answers, and what it leaves alone."""

import json

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY, copy_and_align, model

import tipchain
from tipchain.errors import Outcome
from tipchain.explain.findings import Diagnosis
from tipchain.live.report import AlignmentReport

STAGES = ["preflight", "forward", "loss", "backward", "optimizer", "schedule", "train"]


def pair(**port):
    generator = torch.Generator().manual_seed(0)
    reference = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    with torch.no_grad():
        for name, tensor in reference.state_dict().items():
            if tensor.is_floating_point() and tensor.ndim == 1:
                tensor.uniform_(0.5 if "var" in name else -0.5, 1.5, generator=generator)
    other = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 3),
        paddle.nn.BatchNorm2D(8, **port),
        paddle.nn.ReLU(),
        paddle.nn.Flatten(),
        paddle.nn.Linear(288, 10),
    )
    tipchain.copy_weights(reference, other)
    return reference, other


def inputs():
    generator = np.random.default_rng(0)
    images = generator.standard_normal((4, 3, 8, 8)).astype(np.float32)
    return {"args": images, "labels": np.array([1, 2, 3, 4])}


def momentum(parameters, decay=1e-4):
    return paddle.optimizer.Momentum(0.1, 0.9, parameters=parameters, weight_decay=decay)


TRAINING = {
    "loss": CROSS_ENTROPY,
    "optimizers": (lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=1e-4), momentum),
    "schedulers": (
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5),
        lambda: paddle.optimizer.lr.StepDecay(0.1, 2, 0.5),
    ),
}


@pytest.mark.parametrize("training", [False, True])
def test_a_faithful_port_passes_every_stage(training):
    report = tipchain.align(*pair(), inputs(), training=training, **TRAINING)
    assert report.passed
    assert report.stages == dict.fromkeys(STAGES, Outcome.PASS)
    assert report.first_divergence is None
    assert report.diagnoses == []
    assert len(report.curves["train/reference"]) == 5
    assert str(report).splitlines()[0] == "PASS: the port is the reference; 5 layers compared"


def test_a_port_that_raises_is_an_error_and_the_optimizers_are_compared_all_the_same():
    reference, port = pair()
    port.forward = lambda _: 1 / 0
    report = tipchain.align(reference, port, inputs(), loss=CROSS_ENTROPY, optimizers=TRAINING["optimizers"])
    assert report.stages["forward"] is Outcome.ERROR
    assert "ZeroDivisionError" in report.reasons["forward"]
    assert report.stages["optimizer"] is Outcome.PASS
    assert not report.passed
    assert report.exit_code == 1


class Raising(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1 / 0


class Undifferentiable(paddle.nn.ReLU):
    def forward(self, x):
        return Raising.apply(super().forward(x))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-1])
def test_layers_are_compared_forward_where_backward_raises(epsilon):
    reference, port = pair(epsilon=epsilon)
    port[2] = Undifferentiable()
    report = tipchain.align(reference, port, inputs(), **TRAINING)
    assert report.stages["forward"] is (Outcome.PASS if epsilon == 1e-5 else Outcome.FAIL)
    assert report.stages["backward"] is Outcome.ERROR
    assert "in the port (Paddle)" in report.reasons["backward"]
    assert report.stages["train"] in (Outcome.ERROR, Outcome.SKIP)
    assert report.exit_code == 1


def test_a_gradient_that_torch_leaves_undefined_is_none():
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, one, other):
            return one + other

        @staticmethod
        def backward(ctx, gradient):
            return gradient, None

    def layers(nn):
        return {"a": nn.Linear(3, 4), "b": nn.Linear(3, 4)}

    reference = model(torch, layers, lambda net, x: First.apply(net.a(x), net.b(x)))
    port = model(paddle, layers, lambda net, x: net.a(x) + net.b(x).detach())
    assert copy_and_align(reference, port, np.ones((2, 3), np.float32)).passed


def test_outputs_of_zero_prove_nothing():
    reference, port = pair()
    with torch.no_grad():
        reference[4].weight.zero_()
        reference[4].bias.zero_()
    report = copy_and_align(reference, port, inputs())
    assert report.stages["forward"] is Outcome.ERROR
    assert "proves nothing" in report.reasons["forward"]


def test_the_report_is_whole_as_json_and_short_as_text():
    report = tipchain.align(*pair(epsilon=1e-3, momentum=0.5), inputs(), training=True, **TRAINING)
    document = json.loads(report.to_json())
    assert document["passed"] is False
    assert document["first_divergence"]["port_path"] == "1"
    assert {one["direction"] for one in document["layers"]} == {"forward", "backward"}
    assert document["versions"]["torch"]
    assert len(str(report).splitlines()) <= 20
    assert "1e-05" in str(report)


def test_optimizers_leave_the_users_parameters_alone():
    reference, port = pair()
    decay = paddle.regularizer.L2Decay(0.5)

    def grouped(parameters):
        groups = [{"params": parameters, "weight_decay": decay, "learning_rate": 0.5}]
        return paddle.optimizer.SGD(0.1, groups)

    tipchain.align(reference, port, inputs(), loss=CROSS_ENTROPY, optimizers=(TRAINING["optimizers"][0], grouped))
    assert all(one.regularizer is None for one in port.parameters())
    assert all(one.optimize_attr["learning_rate"] == 1.0 for one in port.parameters())


def test_no_line_is_cut():
    """The end of a fix is the reference's line."""
    long = "an argument that is written out; " * 12
    causes = [
        Diagnosis(code="order", port_path=name, message=f"{long}{name}", evidence="", fix=f"{long}fix of {name}")
        for name in ("a", "b")
    ]
    lines = str(
        AlignmentReport(stages={"forward": Outcome.FAIL}, reasons={"forward": long}, diagnoses=causes)
    ).splitlines()
    told = [line for line in lines if line.startswith(("cause", "  fix"))]
    assert [line.split()[-1] for line in told] == ["a", "a", "b", "b"]
    assert not any("…" in line for line in lines)
