"""What the user's own code raises in a live alignment is told with its line and its side, and ends only its stage."""

import sys
from pathlib import Path

import numpy as np
import pytest
from both_frameworks import paddle, torch

import tipchain
from tipchain.core.blame import UsersError, tell
from tipchain.errors import Outcome
from tipchain.live.sources import open_callables

pytestmark = pytest.mark.frameworks
ROWS = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
SIDES = {"torch": "in the reference (torch)", "paddle": "in the port (Paddle)"}


def build_reference():
    return torch.nn.Linear(4, 3)


class Undone(paddle.nn.Linear):
    def forward(self, rows):
        return super().forward(rows).reshape([7, -1])  # no such shape


def fail_here(*_):
    return {}["no such key"]  # plain Python


def loss_of(output, labels):
    return ((output - labels) ** 2).mean()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def undone_sgd(parameters):
    return paddle.optimizer.SGD(rate=0.1, parameters=parameters)


def line_of(words):
    (number,) = [at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith(words)]
    return f"{__file__}:{number}"


def align(port=None, **more):
    reference, port = build_reference(), port or paddle.nn.Linear(4, 3)
    tipchain.copy_weights(reference, port)
    inputs = {"args": ROWS, "labels": np.zeros((2, 3), np.float32)}
    return tipchain.align(reference, port, inputs, causes=False, **more)


def test_the_ports_forward_is_told_with_the_line_that_called_the_kernel():
    report = align(Undone(4, 3))
    assert report.stages["forward"] is Outcome.ERROR
    said = report.reasons["forward"]
    assert said.startswith(f"{line_of('# no such shape')}: ValueError: (InvalidArgument)")
    assert said.endswith(SIDES["paddle"])
    assert "[Hint" not in said


def test_a_loss_that_raises_is_its_sides_though_no_framework_is_in_it():
    report = align(loss=(loss_of, fail_here))
    assert report.stages["loss"] is Outcome.ERROR
    assert f"{line_of('# plain Python')}: KeyError: 'no such key'" in report.reasons["loss"]
    assert SIDES["paddle"] in report.reasons["loss"]
    assert report.stages["forward"] is report.stages["backward"] is Outcome.PASS, "the layers are compared all the same"
    assert report.first_divergence is None


def test_an_optimizers_builder_with_wrong_arguments_is_the_ports():
    report = align(optimizers=(sgd, undone_sgd))
    assert report.stages["optimizer"] is Outcome.ERROR
    said = report.reasons["optimizer"]
    assert f"{__file__}:" in said
    assert "TypeError: SGD.__init__() got an unexpected keyword argument 'rate'" in said
    assert SIDES["paddle"] in said


def build_leaving():
    sys.exit(3)


def build_nothing():
    return None


@pytest.mark.parametrize(
    ("port", "said"),
    [
        ("build_leaving", "test_users_mistakes.py:{}: SystemExit: it ends the program here, with exit code 3"),
        ("build_nothing", "build_nothing returned None\n  expected: a paddle.nn.Layer"),
    ],
)
def test_builders_of_the_command_line_are_told_with_their_side(tmp_path, port, said):
    np.savez(tmp_path / "inputs.npz", args=ROWS)
    with pytest.raises((UsersError, SystemExit)) as raised:
        open_callables(f"{__name__}:build_reference", f"{__name__}:{port}", tmp_path / "inputs.npz")
    told = tell(raised.value)
    assert said.format(line_of("sys.exit(3)").rpartition(":")[2]) in told
    assert told.endswith("in: the port (Paddle), building the model")
