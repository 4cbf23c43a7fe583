"""What `tipchain.align` says of some ports with a fault, and of some that are equal."""

from __future__ import annotations

import importlib.util

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from tipchain.explain.locate.verdicts import Closeness  # noqa: E402
from zoo.clean import CLEAN, VISION  # noqa: E402
from zoo.faults import FAULTS  # noqa: E402
from zoo.judged import align, assert_as_promised, right  # noqa: E402
from zoo.pairs import FAMILIES, planted  # noqa: E402

pytestmark = pytest.mark.frameworks
FAST_FAULTS = (
    "bn-epsilon-slightly", "bn-momentum-train", "linear-transposed-square", "one-weight-last", "pool-exclusive",
    "no-last-activation", "dropout-p-eval", "identity-for-leaky", "no-shortcut-0", "ceil-mode", "align-corners",
    "deep-epsilon-middle", "gelu-tanh", "attention-not-scaled", "norm-before-for-after", "lstm-gate-order",
    "missing-sigmoid", "time-flipped", "loss-sum", "optimizer-momentum", "scheduler-cosine-period",
)  # fmt: skip
FAST_CLEAN = (
    "plain-train",
    "mobile-eval",
    "dropout-train",
    "bilstm-eval",
    "siamese-eval",
    "float32-inside",
    "tiny-inputs",
    "separate-for-fused",
    "linear-for-1x1",
    "bias-before-norm-train",
    "dead-relu",
    "norms-that-activate",
    "learns-by-steps",
)


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.id in FAST_FAULTS], ids=lambda one: one.id)
def test_the_guilty_layer_and_the_cause_come_first(fault):
    assert right(fault, planted(fault)) == {"caught": True, "layer": True, "cause": True}


@pytest.mark.parametrize("name", FAST_CLEAN)
def test_an_equal_pair_raises_no_alarm(name):
    report = align(CLEAN[name]())
    assert report.passed, str(report)
    assert report.first_divergence is None
    assert any(one.closeness is not Closeness.NOT_COMPARABLE for one in report.layers), "something was compared"


def test_the_lists_are_what_they_are_said_to_be():
    assert len({fault.id for fault in FAULTS}) == len(FAULTS) >= 80
    assert len(CLEAN) >= 40
    assert {fault.family for fault in FAULTS} <= set(FAMILIES)
    assert all(fault.where and fault.codes for fault in FAULTS)
    assert {fault.mode for fault in FAULTS} == {"eval", "train"}
    assert {fault.part for fault in FAULTS} == {"layer", "loss", "optimizer", "scheduler"}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_faults_are_caught_and_named_as_often_as_is_promised():
    assert_as_promised({fault.id: right(fault, planted(fault)) for fault in FAULTS})


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_no_equal_pair_raises_an_alarm_over_a_thousand_layers():
    layers, alarms = 0, {}
    for name, make in {**CLEAN, **VISION}.items():
        report = align(make())
        layers += sum(one.closeness is not Closeness.NOT_COMPARABLE for one in report.layers)
        faults = [one.port_path for one in report.layers if one.at_fault]
        if not report.passed or faults:
            alarms[name] = faults or str(report)
    assert alarms == {}
    assert layers >= 1000
