import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY

import tipchain
from tipchain.errors import Outcome

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
INPUTS = {"args": 4 * RANDOM.standard_normal((6, 5)).astype(np.float32), "labels": RANDOM.integers(0, 4, 6)}
NORM = paddle.nn.ClipGradByGlobalNorm(0.05)


def align(clip, grad_clip):
    reference, port = torch.nn.Linear(5, 4), paddle.nn.Linear(5, 4)
    tipchain.copy_weights(reference, port)
    optimizers = (
        lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
        lambda parameters: paddle.optimizer.Momentum(0.1, 0.9, parameters, grad_clip=grad_clip),
    )
    return tipchain.align(reference, port, INPUTS, loss=CROSS_ENTROPY, optimizers=optimizers, clip=clip)


def by_norm(parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 0.05)


def test_the_references_loop_clips_as_the_ports_optimizer_does():
    report = align(by_norm, NORM)
    assert report.passed, str(report)
    report = align(None, NORM)
    assert report.stages["optimizer"] is report.stages["train"] is Outcome.FAIL, "the loop's clipping was not told"
    assert "clip=" in report.diagnoses[0].fix


def test_clipping_that_the_port_lacks_is_named_with_what_to_pass():
    report = align(lambda model: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05), None)
    assert report.stages["optimizer"] is Outcome.FAIL
    assert report.diagnoses[0].code == "setting"
    assert "clipped by nothing, the reference's by `" in report.diagnoses[0].message
    assert "test_clip.py:38" in report.diagnoses[0].message
    assert "`grad_clip=`" in report.diagnoses[0].fix


def test_both_loops_may_clip():
    both = by_norm, lambda parameters: paddle.nn.utils.clip_grad_norm_(parameters, 0.05)
    assert align(both, None).passed
    other = by_norm, lambda parameters: paddle.nn.utils.clip_grad_value_(parameters, 0.05)
    report = align(other, None)
    assert "clipped by `" in report.diagnoses[0].message
    assert report.diagnoses[0].explained >= 0.99
