"""What is said of planted faults of data and metrics, and of pairs that are equal."""

import both_frameworks  # noqa: F401
import numpy as np
import pytest

from tipchain.errors import Outcome
from tipchain.explain.causes.data import check_data
from tipchain.explain.causes.metrics import check_metrics
from tipchain.frameworks.live_models import PaddleSide, Sides, TorchSide
from zoo import data_faults
from zoo.data_faults import CLEAN_DATA, CLEAN_METRICS, DATA_FAULTS, METRIC_FAULTS, outputs_of

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def sides():
    return Sides(TorchSide(), PaddleSide())


def check(sides, pair):
    if pair.kind:
        return check_metrics(sides, (pair.reference, pair.port), *outputs_of(pair.kind))
    return check_data(sides, (pair.reference, pair.port), samples=pair.samples)


@pytest.mark.parametrize("fault", [*DATA_FAULTS, *METRIC_FAULTS], ids=lambda one: one.id)
def test_a_fault_is_caught_and_its_cause_comes_first(sides, fault):
    found = check(sides, fault)
    assert found.outcome is Outcome.FAIL
    first = found.diagnoses[0]
    assert first.code == fault.code, found.diagnoses
    assert fault.says
    assert [words for words in fault.says if words not in first.message] == [], first.message
    assert first.explained is None or first.explained >= 0.99
    assert first.port_path == ("metric" if fault in METRIC_FAULTS else "data")
    assert first.message
    assert first.fix


def test_a_metric_of_several_outputs_is_called_with_others_that_tell_ways_of_counting_apart(sides):
    """The models' own outputs are all right, so that each way of counting gives 1 for them."""

    def among(most):
        return lambda outputs, labels: float(
            (np.argsort(-outputs[1], 1)[:, :most] == labels["class"][:, None]).any(1).mean()
        )

    logits, _ = outputs_of("classes")
    given = [logits[:, :4], logits], {"class": logits.argmax(1), "share": np.ones(12, np.float32)}
    found = check_metrics(sides, (among(3), among(5)), *given)
    assert found.outcome is Outcome.FAIL
    assert [one.code for one in found.diagnoses] == ["argument"]
    assert ": `most` is 5, the reference's 3; the port reads it in `" in found.diagnoses[0].message
    equal = check_metrics(sides, (among(3), among(3)), *given)
    assert equal.outcome is Outcome.PASS
    assert equal.reason.startswith("equal on 4 sets of outputs")


def test_a_setting_is_told_with_the_line_that_reads_it_and_the_value_to_write(sides):
    fault = next(one for one in METRIC_FAULTS if one.id == "percent")
    (cause,) = check(sides, fault).diagnoses
    assert cause.message.startswith(
        "all 5 sets of outputs, first the models' outputs: expected 0.166666667, actual 16.6666667: `factor` is 100"
    )
    assert cause.fix == "set `factor` to 1.0"
    assert cause.evidence.startswith("the port was run with the reference's: 100.00% of the difference is gone; ")
    assert (cause.place.file, cause.place.code) == (
        data_faults.__file__,
        "return factor * (1 - share if error else share)",
    )


@pytest.mark.parametrize("pair", [*CLEAN_DATA, *CLEAN_METRICS], ids=lambda one: one.id)
def test_an_equal_pair_raises_no_alarm(sides, pair):
    found = check(sides, pair)
    assert found.outcome is Outcome.PASS, found.reason
    assert found.diagnoses == ()


def test_the_lists_are_what_they_are_said_to_be():
    faults = [*DATA_FAULTS, *METRIC_FAULTS]
    assert len({fault.id for fault in faults}) == len(faults) >= 50
    assert len(CLEAN_DATA) + len(CLEAN_METRICS) >= 16


def accuracy(outputs, labels):
    return float((outputs.argmax(1) == labels.reshape(-1)).mean())


@pytest.mark.parametrize(
    ("reference", "port", "outcome"),
    [
        (
            lambda o, t: {"acc": accuracy(o, t), "k": 0.5},
            lambda o, t: {"acc": accuracy(o, t)} | ({"k": 0.5} if len(o) == 20 else {}),
            Outcome.FAIL,
        ),
        (lambda *_: 1 + 2j, lambda *_: 1 + 3j, Outcome.ERROR),
        (lambda *_: {"acc": 0.5, "p": 0.25}, lambda *_: {"acc": 0.5, "q": 0.25}, Outcome.FAIL),
        (lambda *_: {"p": 0.25}, lambda *_: {"q": 0.25}, Outcome.PASS),
    ],
)
def test_a_value_that_one_metric_lacks_is_no_equal_value(sides, reference, port, outcome):
    random = np.random.default_rng(0)
    given = random.standard_normal((20, 5)).astype(np.float32), random.integers(0, 5, 20)
    assert check_metrics(sides, (reference, port), *given).outcome is outcome


def test_a_metric_that_gives_no_number_is_named_with_its_side(sides):
    given = np.zeros((4, 3), np.float32), np.zeros(4, np.int64)
    found = check_metrics(sides, (lambda *_: "good", lambda *_: 0.5), *given)
    assert (found.outcome, found.reason.partition(": ")[0]) == (Outcome.ERROR, "the reference's metric")
