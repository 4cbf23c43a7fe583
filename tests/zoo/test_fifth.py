"""The fifth zoo is in order: its pairs are equal, its faults change numbers, and are where they say. It is run by `zoo.third.run`."""

from __future__ import annotations

import importlib.util
import re

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from zoo.fifth import faults  # noqa: E402
from zoo.fifth.clean import FIFTH_CLEAN  # noqa: E402
from zoo.fifth.faults import FIFTH_FAULTS  # noqa: E402
from zoo.fifth.planting import FAMILIES, NETS, PARTS, PLACED  # noqa: E402
from zoo.fourth.plain import clean_gaps, fault_gaps  # noqa: E402
from zoo.fourth.planting import KINDS  # noqa: E402
from zoo.third import run  # noqa: E402
from zoo.third.plain import first_apart  # noqa: E402
from zoo.third.planting import edited  # noqa: E402

pytestmark = pytest.mark.frameworks

SHOWN_BY = {"loss": "loss", "data": "sample", "metric": "metric", "step": ("trained", "kept")}
"""The numbers that a fault of a part must change; of other parts any."""
SAMPLE = [fault for fault in FIFTH_FAULTS if fault.id in ("dlrm-bucket-edges", "gan-average-first")]


def assert_changes_numbers(fault):
    shown = [name for name in fault_gaps(fault, faults, NETS) if name.startswith(SHOWN_BY.get(fault.part, ""))]
    assert shown, f"{fault.id} changes nothing"


def test_the_list_is_well_formed():
    listed = run.read_list("fifth")
    assert (listed.faults, listed.clean, listed.placed) == (FIFTH_FAULTS, FIFTH_CLEAN, PLACED)
    names = [one.id for one in (*FIFTH_FAULTS, *FIFTH_CLEAN)]
    assert len(set(names)) == len(names)
    assert {one.family for one in FIFTH_FAULTS} == {one.family for one in FIFTH_CLEAN} == set(FAMILIES)
    assert {fault.part for fault in FIFTH_FAULTS} == set(PARTS)
    for fault in FIFTH_FAULTS:
        assert fault.kind in KINDS, fault.id
        assert bool(fault.where) == (fault.part in PLACED), fault.id
        assert fault.edits, fault.id
        for pattern in fault.says:
            re.compile(pattern)


def test_every_edit_is_in_its_file():
    for one in (*FIFTH_FAULTS, *FIFTH_CLEAN):
        edits = getattr(one, "port_edits", None) or getattr(one, "edits", ())
        source = (NETS / f"{one.family}_paddle.py").read_text(encoding="utf-8")
        assert not edits or edited(source, edits) != source, one.id


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda one: one.id)
def test_a_sample_of_the_faults_changes_numbers(fault):
    assert_changes_numbers(fault)


def test_a_pair_written_otherwise_is_equal():
    assert not clean_gaps(next(one for one in FIFTH_CLEAN if one.id == "dlrm-counted-edges"), NETS)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FIFTH_FAULTS, ids=lambda one: one.id)
def test_every_fault_changes_numbers(fault):
    assert_changes_numbers(fault)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [one for one in FIFTH_FAULTS if one.part in PLACED], ids=lambda one: one.id)
def test_every_fault_is_where_it_says(fault):
    place = first_apart(faults.sound(fault), faults.planted(fault, double=True))
    assert place is None or place in fault.where, "a fault that only changes gradients or updates has no such place"


@pytest.mark.nightly
@pytest.mark.parametrize("clean", FIFTH_CLEAN, ids=lambda one: one.id)
def test_every_pair_is_equal(clean):
    assert not clean_gaps(clean, NETS)
