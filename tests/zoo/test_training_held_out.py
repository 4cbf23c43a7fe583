"""Faults of trainings that were written down before anything was run on them: what is caught, and which cause comes first."""

from __future__ import annotations

import importlib.util

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from zoo.training_held_out import EQUAL, HELD_OUT, align  # noqa: E402

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore"),  # of schedules that are stepped without their optimizer
]


FAST = "adamw-by-hand", "clips-each", "plateau", "noam"


MISSED = {
    "optimizer-lamb-decay": "no formula of LAMB is known: the cause is unknown",
    "loss-cosine-margin": "no pair of this batch is within either margin: only training shows it",
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(reason=MISSED[name], strict=True)) if name in MISSED else name
        for name in HELD_OUT
    ],
)
def test_the_cause_comes_first(name):
    fault = HELD_OUT[name]
    report = align(fault)
    assert not report.passed
    told = [(one.port_path, one.code, one.message) for one in report.diagnoses]
    assert told, report.reasons
    assert told[0][0] == fault.part, told
    assert told[0][1] in fault.codes, told
    assert fault.says in told[0][2], told


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.nightly) for one in EQUAL]
)
def test_what_is_equal_passes(name):
    report = align(EQUAL[name])
    assert report.passed, (report.reasons, report.diagnoses)
