"""The third zoo: that its faults change something and its equal pairs do not, and what `tipchain.align` says of it.

What a fault changes is measured in plain numpy (`zoo.third.plain`), so that the list does not lean on the tool it is for.
"""

from __future__ import annotations

import importlib.util

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)

from zoo.judged import assert_as_promised  # noqa: E402
from zoo.third.clean import THIRD_CLEAN  # noqa: E402
from zoo.third.faults import PARTS, THIRD_FAULTS, planted  # noqa: E402
from zoo.third.plain import clean_gaps, fault_gaps, first_changed  # noqa: E402
from zoo.third.planting import FAMILIES, EditError, edited, pair  # noqa: E402
from zoo.third.run import judge_clean, judge_fault  # noqa: E402

pytestmark = pytest.mark.frameworks
SAMPLE = THIRD_FAULTS[::13]
CLEAN_SAMPLE = THIRD_CLEAN[::9]


def test_the_third_zoo_is_what_it_is_said_to_be():
    assert len({one.id for one in (*THIRD_FAULTS, *THIRD_CLEAN)}) == len(THIRD_FAULTS) + len(THIRD_CLEAN)
    assert len(THIRD_FAULTS) >= 250
    assert len(THIRD_CLEAN) >= 90
    assert {fault.family for fault in THIRD_FAULTS} == set(FAMILIES) == {one.family for one in THIRD_CLEAN}
    assert {fault.part for fault in THIRD_FAULTS} == set(PARTS)
    assert all(fault.where and fault.edits and all(fault.words) for fault in THIRD_FAULTS)
    assert all(word == word.lower() for fault in THIRD_FAULTS for word in fault.words)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_places_of_faults_are_layers_of_the_port(family):
    paths = {"", *(name for name, _ in pair(family).port.named_sublayers())}
    assert {
        one for fault in THIRD_FAULTS if fault.family == family and fault.part == "layer" for one in fault.where
    } <= paths


def test_a_line_that_is_not_there_once_is_an_error():
    with pytest.raises(EditError, match="0 places"):
        edited("a = 1\n", [("b", "c")])
    with pytest.raises(EditError, match="2 places"):
        edited("a = a\n", [("a", "c")])


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda one: one.id)
def test_a_fault_of_the_third_zoo_changes_something(fault):
    assert bool(fault_gaps(fault)) is not fault.built


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda one: one.id)
def test_a_fault_of_the_third_zoo_is_where_it_is_said_to_be(fault):
    assert first_changed(fault) in {None, *fault.where}


@pytest.mark.parametrize("clean", CLEAN_SAMPLE, ids=lambda one: one.id)
def test_an_equal_pair_of_the_third_zoo_is_equal(clean):
    assert clean_gaps(clean) == {}


def test_what_is_built_with_more_parameters_has_them():
    for fault in THIRD_FAULTS:
        if fault.built:
            plain, faulty = pair(fault.family).port.state_dict(), planted(fault).port.state_dict()
            assert set(plain) < set(faulty)


@pytest.mark.parametrize("name", ["video-net-states-exchanged", "conformer-front-no-gradient"])
def test_a_fault_of_which_half_shows_nowhere_is_told_as_what_it_is(name):
    judged = judge_fault(next(one for one in THIRD_FAULTS if one.id == name))
    assert judged["layer"], judged
    assert judged["cause"], judged


@pytest.mark.nightly
@pytest.mark.parametrize("fault", THIRD_FAULTS, ids=lambda one: one.id)
def test_every_fault_of_the_third_zoo_changes_something(fault):
    assert bool(fault_gaps(fault)) is not fault.built


@pytest.mark.nightly
@pytest.mark.parametrize("fault", THIRD_FAULTS, ids=lambda one: one.id)
def test_every_fault_of_the_third_zoo_is_where_it_is_said_to_be(fault):
    assert first_changed(fault) in {None, *fault.where}


@pytest.mark.nightly
@pytest.mark.parametrize("clean", THIRD_CLEAN, ids=lambda one: one.id)
def test_every_equal_pair_of_the_third_zoo_is_equal(clean):
    assert clean_gaps(clean) == {}


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_faults_of_the_third_zoo_are_found_as_often_as_is_promised():
    assert_as_promised({fault.id: judge_fault(fault) for fault in THIRD_FAULTS})


@pytest.mark.nightly
@pytest.mark.parametrize("clean", THIRD_CLEAN, ids=lambda one: one.id)
def test_no_equal_pair_of_the_third_zoo_raises_an_alarm(clean):
    said = judge_clean(clean)
    assert said["passed"], said
