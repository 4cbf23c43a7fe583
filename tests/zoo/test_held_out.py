"""What `tipchain.align` says of the second zoo, whose faults and causes were written down before any was run."""

from __future__ import annotations

import importlib.util

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from zoo.held_out.clean import SECOND_CLEAN  # noqa: E402
from zoo.held_out.families import SECOND  # noqa: E402
from zoo.held_out.faults import SECOND_FAULTS, planted_second  # noqa: E402
from zoo.judged import align, assert_as_promised, right  # noqa: E402

pytestmark = pytest.mark.frameworks
SAMPLE = (
    "vit-net-token-has-no-position",
    "vit-net-mean-of-tokens",
    "swin-1-mask-forgotten",
    "swin-1-not-rolled-back",
    "encdec-self_attn-mild-mask",
    "encdec-net-memory-not-masked",
    "convnext-1-no-gamma",
    "convnext-norm-epsilon",
    "linknet-dec1-odd-crop",
    "detector-head-first-scale",
    "detector-net-bilinear",
    "tsm-0-into-the-past",
    "edsr-net-mean-not-subtracted",
    "crf-crf-transitions-transposed",
    "fm-net-no-offsets",
    "gpt-dropout-mode",
)
CLEAN_SAMPLE = ("second-swin-eval", "second-fm-train", "variant-kernel-attention-causal", "variant-gates-by-formula")


@pytest.mark.parametrize("fault", [one for one in SECOND_FAULTS if one.id in SAMPLE], ids=lambda one: one.id)
def test_a_fault_of_the_second_zoo_is_named(fault):
    assert right(fault, planted_second(fault)) == {"caught": True, "layer": True, "cause": True}


@pytest.mark.parametrize("name", CLEAN_SAMPLE)
def test_an_equal_pair_of_the_second_zoo_passes(name):
    report = align(SECOND_CLEAN[name]())
    assert report.passed, str(report)


def test_the_second_zoo_is_what_it_is_said_to_be():
    assert len({fault.id for fault in SECOND_FAULTS}) == len(SECOND_FAULTS) >= 150
    assert {fault.family for fault in SECOND_FAULTS} <= set(SECOND)
    assert set(SAMPLE) <= {fault.id for fault in SECOND_FAULTS}
    assert len(SECOND_CLEAN) >= 60
    assert all(fault.where and fault.words for fault in SECOND_FAULTS)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_faults_of_the_second_zoo_are_found_as_often_as_is_promised():
    assert_as_promised({fault.id: right(fault, planted_second(fault)) for fault in SECOND_FAULTS})


@pytest.mark.nightly
@pytest.mark.parametrize("name", SECOND_CLEAN)
def test_no_equal_pair_of_the_second_zoo_raises_an_alarm(name):
    report = align(SECOND_CLEAN[name]())
    assert report.passed, str(report)
    assert not [one.port_path for one in report.layers if one.at_fault]
