"""What `tipchain.align` says of each planted fault."""

import both_frameworks  # noqa: F401
import pytest

from zoo.faults import FAULTS, NEEDS
from zoo.judged import align, place
from zoo.planting import FAMILIES, EditError, edited, pair

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]
ELSEWHERE = {"wavenet-net-first-skip-lost"}
"""Faults for which another layer is named first. This list only gets shorter."""
NOT_NAMED = {"mamba-mixer-gives-before-update", "vqvae-book-shared-buffer", "bert-warm-up-from-zero"}
"""Faults whose first cause does not say what is wrong. This list only gets shorter."""
LOCATED = NOT_NAMED - {"bert-warm-up-from-zero"}
"""Those of them that a layer shows: the search tries all it has before it gives up, so that the gate only locates them."""
NAMED_SHARE = 0.88


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_caught_where_it_is_and_named(fault):
    report = align(fault.build(), causes=fault.id not in LOCATED)
    assert not report.passed
    assert (place(report) in fault.where) is (fault.id not in ELSEWHERE), place(report)
    cause = next(iter(report.diagnoses), None)
    assert fault.is_named(cause) is (fault.id not in NOT_NAMED), cause


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.id in LOCATED], ids=lambda fault: fault.id)
def test_a_fault_that_has_got_its_name_leaves_the_list(fault):
    assert not fault.is_named(next(iter(align(fault.build()).diagnoses), None))


def test_most_faults_are_named():
    assert {*ELSEWHERE, *NOT_NAMED} <= {fault.id for fault in FAULTS}
    assert len(NOT_NAMED) <= (1 - NAMED_SHARE) * len(FAULTS)


def test_the_list_is_well_formed():
    assert len({fault.id for fault in FAULTS}) == len(FAULTS) >= 120
    assert {fault.family for fault in FAULTS} == set(FAMILIES)
    assert {fault.part for fault in FAULTS} == set(NEEDS)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_places_of_faults_are_layers_of_the_port(family):
    paths = {path for path, _ in pair(family).port.named_sublayers(include_self=True)}
    assert {path for fault in FAULTS if fault.family == family for path in fault.where} <= paths | set(NEEDS)


def test_a_line_that_is_not_there_once_is_an_error():
    with pytest.raises(EditError, match="0 places"):
        edited("a = 1\n", [("b", "c")])
    with pytest.raises(EditError, match="2 places"):
        edited("a = a\n", [("a", "c")])
