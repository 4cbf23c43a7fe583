"""What `tipchain.align` says of each equal pair."""

import both_frameworks  # noqa: F401
import pytest

from tipchain.explain.locate.verdicts import Closeness
from zoo.clean import CLEAN
from zoo.judged import align
from zoo.planting import FAMILIES

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("equal", CLEAN, ids=lambda equal: equal.id)
def test_an_equal_pair_raises_no_alarm(equal):
    report = align(equal.build())
    assert report.passed, str(report)
    assert [layer.port_path for layer in report.layers if layer.at_fault] == []
    assert {outcome.value for outcome in report.stages.values()} <= {"PASS", "SKIP"}
    assert any(layer.closeness is not Closeness.NOT_COMPARABLE for layer in report.layers), "something was compared"


def test_the_list_is_well_formed():
    assert len({equal.id for equal in CLEAN}) == len(CLEAN) >= 59
    assert {equal.family for equal in CLEAN} == set(FAMILIES)
