"""How long an alignment may take: what was found is kept, what was not compared never passes, and progress is told."""

import itertools

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import copy_and_align

import tipchain
from tipchain.core import progress as pacing
from tipchain.errors import Outcome
from tipchain.explain.preflight.trials import LayerTrial

INPUT = {"args": np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)}


class Odd(paddle.nn.ReLU):
    def forward(self, x):
        return super().forward(x) + 0.01 * x * x


def pair(last=paddle.nn.ReLU):
    torch.manual_seed(0)
    reference = torch.nn.Sequential(*(torch.nn.Linear(6, 6) for _ in range(3)), torch.nn.ReLU())
    port = paddle.nn.Sequential(*(paddle.nn.Linear(6, 6) for _ in range(3)), last())
    tipchain.copy_weights(reference, port)
    return reference.eval(), port


@pytest.fixture
def ticking(monkeypatch):
    """Let the clock of an alignment go on by a second whenever it is looked at."""
    ticks = itertools.count()
    monkeypatch.setattr(pacing.time, "monotonic", lambda: float(next(ticks)))


def test_layers_for_which_there_was_no_time_never_pass(ticking):
    report = tipchain.align(*pair(), INPUT, within=13)  # both models' five calls look at it too
    assert not report.passed
    assert report.stages["forward"] is Outcome.ERROR
    assert report.stages["backward"] is Outcome.ERROR
    assert "not compared: out of time" in report.reasons["forward"]
    late = [one for one in report.layers if one.reason == pacing.LATE]
    assert 0 < len(late) < 4, "what was compared before is kept"
    assert any(one.own is not None for one in report.layers)


def test_outputs_that_differ_are_a_failure_though_time_was_up_before_their_layer(ticking):
    report = tipchain.align(*pair(Odd), INPUT, within=13)
    assert report.stages["forward"] is Outcome.FAIL
    assert "the outputs differ, relative " in report.reasons["forward"]
    assert "layers were not compared: out of time" in report.reasons["forward"]
    assert report.stages["backward"] is Outcome.ERROR


def test_that_time_is_up_is_said_once(ticking):
    told = []
    tipchain.align(*pair(), INPUT, within=20, progress=told.append)
    assert len([one for one in told if one.endswith("out of time: nothing new is begun")]) == 1


def test_a_fault_whose_cause_was_not_searched_stays_one(monkeypatch):
    from tipchain.live import causes

    spent = []
    monkeypatch.setattr(pacing.Pace, "over", property(lambda _: bool(spent)))
    explain = causes.explain_layers
    monkeypatch.setattr(causes, "explain_layers", lambda *args: (spent.append(1), explain(*args))[1])
    report = tipchain.align(*pair(Odd), INPUT, within=3600)
    assert report.stages["forward"] is Outcome.FAIL
    assert report.first_divergence.port_path == "3"
    assert any("cause not searched: out of time" in one.message for one in report.diagnoses)


def test_a_model_s_run_ends_with_the_layer_that_the_time_is_up_in(monkeypatch):
    called, begun = [], []

    class Slow(torch.nn.Linear):
        def forward(self, x):
            called.append(1)
            return super().forward(x)

    monkeypatch.setattr(pacing.Pace, "over", property(lambda _: bool(called) and not begun.append(1)))
    reference = torch.nn.Sequential(*(Slow(6, 6) for _ in range(3)))
    port = paddle.nn.Sequential(*(paddle.nn.Linear(6, 6) for _ in range(3)))
    tipchain.copy_weights(reference, port)
    report = tipchain.align(reference.eval(), port, INPUT, within=3600)
    assert len(called) == 1, "neither the second layer nor a run in float32 was begun"
    assert begun
    assert report.stages["forward"] is Outcome.ERROR
    assert report.reasons["forward"] == pacing.LATE


@pytest.mark.parametrize("late", [False, True])
def test_no_layer_is_tried_on_other_inputs_after_that(monkeypatch, late):
    weigh = LayerTrial.weigh

    def weighing(*args):
        monkeypatch.setattr(pacing.Pace, "over", property(lambda _: late))
        return weigh(*args)

    monkeypatch.setattr(LayerTrial, "weigh", weighing)
    reference = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.ReLU6()).eval()
    port = paddle.nn.Sequential(paddle.nn.Linear(6, 6), paddle.nn.ReLU())
    report = copy_and_align(reference, port, INPUT, within=3600)
    (finding,) = [one for one in report.findings if one.port_path == "1"]
    assert ("; an input of" in finding.message) is not late
    assert ("not tried on other inputs: out of time" in finding.message) is late
    assert report.stages["preflight"] is Outcome.FAIL, "what was not tried is not taken for harmless"


def test_progress_counts_the_stages_that_were_asked_for():
    told, losses = [], (lambda output, label: output.mean(), lambda output, label: output.mean())
    optimizers = (torch.optim.SGD, lambda parameters, rate: paddle.optimizer.SGD(rate, parameters=parameters))
    tipchain.align(*pair(), INPUT, loss=losses, optimizers=optimizers, progress=told.append)
    stages = [one.partition(": ")[2] for one in told if "stage " in one]
    asked = ["preflight", "loss", "optimizer", "train"]
    assert list(dict.fromkeys(stages)) == [f"stage {n} of 4: {name}" for n, name in enumerate(asked, 1)]


def test_progress_says_how_long_yet_once_an_estimate_has_come_true(monkeypatch):
    now, told = [0.0], []
    monkeypatch.setattr(pacing.time, "monotonic", lambda: now[0])
    pace = pacing.Pace(progress=told.append)
    for done in range(5):
        pace.tell("comparing layers", done, 10)
        now[0] += 2.0
    assert told[1] == "2 s: comparing layers 2 of 10", "one piece is no basis"
    assert told[-1] == "8 s: comparing layers 5 of 10, about 12 s yet"
