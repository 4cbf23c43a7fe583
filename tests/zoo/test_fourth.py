"""The fourth zoo is in order: its pairs are equal, its faults change numbers, and are where they say. It is run by `zoo.third.run`."""

from __future__ import annotations

import importlib.util
import json
import re
from types import SimpleNamespace

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from zoo.fourth.clean import FOURTH_CLEAN  # noqa: E402
from zoo.fourth.faults import FOURTH_FAULTS, planted, sound  # noqa: E402
from zoo.fourth.plain import clean_gaps, fault_gaps  # noqa: E402
from zoo.fourth.planting import FAMILIES, KINDS, NETS, PARTS, PLACED  # noqa: E402
from zoo.third import run  # noqa: E402
from zoo.third.plain import SEEN, first_apart  # noqa: E402
from zoo.third.planting import edited  # noqa: E402

pytestmark = pytest.mark.frameworks

SHOWN_BY = {"loss": ("loss", "gradient", "input gradient"), "data": ("sample",), "metric": ("metric",)}
"""The numbers that a fault of a part must change; of other parts any."""
SAMPLE = [next(fault for fault in FOURTH_FAULTS if fault.part == part) for part in PARTS]
CLEAN_SAMPLE = [one for one in FOURTH_CLEAN if one.id in ("diffusion-three-projections", "vae-sequential")]


def assert_changes_numbers(fault):
    shown = [name for name in fault_gaps(fault) if name.startswith(SHOWN_BY.get(fault.part, ""))]
    assert shown, f"{fault.id} changes nothing"


def test_the_list_is_well_formed():
    names = [one.id for one in (*FOURTH_FAULTS, *FOURTH_CLEAN)]
    assert len(set(names)) == len(names)
    assert {one.family for one in FOURTH_FAULTS} == {one.family for one in FOURTH_CLEAN} == set(FAMILIES)
    for fault in FOURTH_FAULTS:
        assert fault.part in PARTS, fault.id
        assert fault.kind in KINDS, fault.id
        assert bool(fault.where) == (fault.part in PLACED), fault.id
        assert fault.edits, fault.id
        assert fault.says, fault.id
        for pattern in fault.says:
            re.compile(pattern)


def test_what_each_fault_changes_is_recorded():
    changed = json.loads((NETS.parent / "changed.json").read_text(encoding="utf-8"))
    assert list(changed) == [fault.id for fault in FOURTH_FAULTS]
    for fault in FOURTH_FAULTS:
        name, gap = changed[fault.id]
        assert name.startswith(SHOWN_BY.get(fault.part, "")), fault.id
        assert gap > SEEN, fault.id


def test_every_edit_is_in_its_file():
    for one in (*FOURTH_FAULTS, *FOURTH_CLEAN):
        for side, edits in (
            ("paddle", getattr(one, "port_edits", None) or getattr(one, "edits", ())),
            ("torch", getattr(one, "reference_edits", ())),
        ):
            source = (NETS / f"{one.family}_{side}.py").read_text(encoding="utf-8")
            assert not edits or edited(source, edits) != source, one.id


def test_a_cause_must_say_what_is_wrong():
    fault = next(one for one in FOURTH_FAULTS if one.id == "diffusion-epsilon")

    def said(code, message, fix=""):
        return fault.is_named(SimpleNamespace(code=code, message=message, fix=fix))

    assert said("attribute", "block1.norm1: epsilon is 1e-05, the reference has 1e-06")
    assert not said("attribute", "block1.norm1: num_groups is 4, the reference has 2")
    assert not said("unknown", "block1.norm1 differs, epsilon or something else")
    assert not fault.is_named(None)


def test_the_runner_judges_by_the_list(monkeypatch):
    fault = next(one for one in FOURTH_FAULTS if one.id == "arcface-gem-root")
    monkeypatch.setattr(run, "align_third", lambda pair: report)

    def judged(part, place, message):
        nonlocal report
        cause = SimpleNamespace(code="step", port_path=place, message=message, fix="")
        first = SimpleNamespace(port_path=place) if part == "layer" else None
        report = SimpleNamespace(passed=False, first_divergence=first, diagnoses=[cause], stages={})
        result = run.judge_fault(fault, "fourth")
        return result["caught"], result["layer"], result["cause"]

    report = None
    assert judged("layer", "pool", "pool: the reference takes the root of the mean") == (True, True, True)
    assert judged("layer", "stem", "stem: differs in padding") == (True, False, False)
    fault = next(one for one in FOURTH_FAULTS if one.id == "din-sum")
    assert judged("loss", "", "loss: reduction is sum, the reference has mean") == (True, True, True)
    assert judged("layer", "deep", "deep: differs in sign") == (True, False, False)


def test_the_runner_reads_the_list():
    listed = run.read_list("fourth")
    assert listed.faults is FOURTH_FAULTS
    assert listed.placed == PLACED


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda one: one.id)
def test_a_sample_of_the_faults_changes_numbers(fault):
    assert_changes_numbers(fault)


@pytest.mark.parametrize("clean", CLEAN_SAMPLE, ids=lambda one: one.id)
def test_a_sample_of_the_pairs_is_equal(clean):
    assert not clean_gaps(clean)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FOURTH_FAULTS, ids=lambda one: one.id)
def test_every_fault_changes_numbers(fault):
    assert_changes_numbers(fault)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [one for one in FOURTH_FAULTS if one.part in PLACED], ids=lambda one: one.id)
def test_every_fault_is_where_it_says(fault):
    faulty = planted(fault, double=True)
    paths = {path for path, _ in faulty.port.named_sublayers(include_self=True)}
    assert set(fault.where) <= paths
    place = first_apart(sound(fault), faulty)
    assert place is None or place in fault.where, "a fault that only changes gradients or updates has no such place"


@pytest.mark.nightly
@pytest.mark.parametrize("clean", FOURTH_CLEAN, ids=lambda one: one.id)
def test_every_pair_is_equal(clean):
    assert not clean_gaps(clean)


def test_what_is_made_alike_of_another_tensor_is_told_so():
    found = run.judge_fault(next(one for one in FOURTH_FAULTS if one.id == "tts-decoder-mask"), "fourth")
    assert found["code"] == "wrong-input"
    assert "of another tensor than the reference" in found["message"]
