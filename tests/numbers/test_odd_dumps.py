"""Dumps of odd but possible content: NaN, other shapes, whole numbers, nothing at all. No framework is needed."""

import numpy as np
import pytest
from stage_records import write_dumps

from tipchain.numbers.tolerance import Tolerance
from tipchain.parity.stages.judging import Rules, judge_stage

DEFAULT = Rules(own={})
EXACT = Rules(own={}, override=Tolerance(threshold=0.0))
LOOSE = Rules(own={}, override=Tolerance(threshold=1e-3))
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def judge(tmp_path):
    def run(stage, torch, paddle, *, tensors=(None, None), rules=DEFAULT, details=None):
        meta = {"details": details or {}}
        write_dumps(tmp_path, stage, torch, paddle, metas=(meta, meta), tensors=tensors)
        judgement = judge_stage(stage, tmp_path, rules)
        verdicts = {one.subject.partition("/")[2]: (one.outcome.value, one.reason) for one in judgement.verdicts}
        return verdicts, judgement.notes

    return run


def test_what_no_stage_records_is_an_error_of_that_stage_alone(judge, capsys):
    arrays = {"length": [4], "draw/angle": [1.0, 2.0]}
    verdicts, _ = judge("train_data", arrays, arrays)
    outcome, reason = verdicts["dump"]
    assert outcome == "ERROR"
    assert "cannot be judged" in reason
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("expected", "actual", "words"),
    [(0.1, 0.1, "no curve"), ([[1.0, 2.0]], [[1.0, 3.0]], "no curve"), ([2.0, 1.0], [2, 1], "dtype kinds")],
)
def test_rates_that_are_no_curve_fail(judge, expected, actual, words):
    verdicts, _ = judge("lr", {"lr": expected}, {"lr": actual})
    outcome, reason = verdicts["lr"]
    assert outcome == "FAIL"
    assert words in reason


def test_an_optimizer_that_moves_nothing_proves_nothing(judge):
    verdicts, _ = judge("optimizer", {"w_0": [0.0], "w_1": [0.0]}, {"w_0": [0.0], "w_1": [0.0]})
    assert {key: outcome for key, (outcome, _) in verdicts.items()} == {"dump": "ERROR"}
    verdicts, _ = judge("optimizer", {"a_0": [0.0], "b_0": [1.0]}, {"a_0": [0.0], "b_0": [1.0]})
    assert verdicts["a_0"][0] == "SKIP"
    verdicts, _ = judge("optimizer", {"a_0": [0.0]}, {"a_0": [1e-9]}, rules=LOOSE)
    assert verdicts["a_0"][0] == "PASS", "the port does move it"


START = np.array([1.0, -1.0, 2.0])
DECAYED = np.broadcast_to(-0.1 * START, (4, 2, 3))
FREE = np.zeros((4, 2, 3))
FACTS = {"sizes": [0.0, 1e-4, 1e-2, 1.0], "learning_rate": 0.1}


def movements(moved=DECAYED, free=FREE, width=3):
    arrays = {"start/w": START, "gradient/w": np.ones((2, 3)), "moved/w": moved, "free/w": free}
    return {key: array[..., :width] for key, array in arrays.items()}


def spoiled(array, value):
    array = array.copy()
    array[1, 1, 1] = value
    return array


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("kind", ["moved", "free"])
def test_movements_that_are_not_finite_fail(judge, value, kind):
    bad = movements(**{kind: spoiled(DECAYED if kind == "moved" else FREE, value)})
    verdicts, _ = judge("regularization", movements(), bad, details=FACTS)
    outcome, reason = verdicts["w"]
    assert outcome == "FAIL"
    assert "NaN or Inf among the updates of the" in reason
    assert "decayed" not in verdicts, "nothing is known about which parameters decay"


def test_movements_without_elements_or_allowance(judge):
    empty = movements(width=0)
    assert judge("regularization", empty, empty, details=FACTS)[0]["w"][0] == "ERROR"
    assert judge("regularization", movements(), movements(), rules=EXACT, details=FACTS)[0]["w"][0] == "PASS"
    other = movements(moved=DECAYED * 1.001)
    assert judge("regularization", movements(), other, rules=EXACT, details=FACTS)[0]["w"][0] == "FAIL"


STEPS = {"loss_0": [2.3], "lr_0": [1e-4]}
TENSORS = {
    "gradient/a": np.array([0.5, -0.5], np.float32),
    "parameter/a": np.array([1, 2], np.float32),
    "update_rms/a": np.array(1e-4, np.float32),
    "buffer/index": np.array([3, 200_000]),
    "buffer/mean": np.array([0.5, 0.1], np.float32),
}


def test_whole_numbers_in_buffers_must_be_equal(judge):
    verdicts, _ = judge("backward", STEPS, STEPS, tensors=(TENSORS, TENSORS))
    assert {outcome for outcome, _ in verdicts.values()} == {"PASS"}
    right = {**TENSORS, "buffer/index": np.array([3, 200_001])}
    verdicts, _ = judge("backward", STEPS, STEPS, tensors=(TENSORS, right))
    assert [key for key, (outcome, _) in verdicts.items() if outcome == "FAIL"] == ["buffer/index"]


def test_a_rule_that_lets_nan_equal_nan_holds_for_scaled_tensors(judge):
    rule = Tolerance(rtol=1e-4, atol=0.0, equal_nan=True, reason="padding")
    both = {**TENSORS, "buffer/mean": np.array([NAN, 0.1], np.float32)}
    rules = Rules(own={"backward": {"buffer": rule}})
    verdicts, _ = judge("backward", STEPS, STEPS, tensors=(both, both), rules=rules)
    assert verdicts["buffer/mean"][0] == "PASS"


ACCURACY = {"acc_top1": np.array([50.0], np.float32)}
CURVE = np.array([1.0, 0.9, 0.8, 0.7])


def curves(port, wide=0.0, reference=CURVE):
    envelope = np.stack([reference + 1e-7, reference - 1e-7]) + np.array([0, 0, wide, wide])
    return {"loss": reference, "envelope": envelope}, {"loss": np.asarray(port)}


@pytest.mark.parametrize("value", [NAN, INF])
def test_a_port_that_is_lost_behind_the_envelopes_end_fails(judge, value):
    verdicts, _ = judge("train", ACCURACY, ACCURACY, tensors=curves([1.0, 0.9, 0.8, value], wide=0.1))
    outcome, reason = verdicts["loss_curve"]
    assert outcome == "FAIL"
    assert "at step 3: expected 0.7, actual" in reason
    verdicts, _ = judge("train", ACCURACY, ACCURACY, tensors=curves([1.0, 0.9, 0.5, 0.9], wide=0.1))
    assert verdicts["loss_curve"][0] == "PASS", "what is finite is not judged there"
    verdicts, _ = judge("train", ACCURACY, ACCURACY, tensors=curves([1.0, 0.95, 0.8, 0.7], wide=0.1))
    assert verdicts["loss_curve"][0] == "FAIL", "it left before"


@pytest.mark.parametrize("lost", [NAN, INF])
def test_a_port_may_be_lost_where_the_reference_is_in_some_run(judge, lost):
    tensors = curves([1.0, 0.9, 0.8, NAN], wide=0.1)
    tensors[0]["envelope"][0, 3] = lost
    assert judge("train", ACCURACY, ACCURACY, tensors=tensors)[0]["loss_curve"][0] == "PASS"


def test_losses_of_zero_prove_nothing(judge):
    tensors = curves(np.zeros(4), reference=np.zeros(4))
    outcome, reason = judge("train", ACCURACY, ACCURACY, tensors=tensors)[0]["loss_curve"]
    assert outcome == "ERROR"
    assert "proves nothing" in reason


def draws(values):
    return {"length": [4], "draw/scale": np.asarray(values, np.float64)[:, None]}


def test_no_draws_are_an_error(judge):
    verdicts, _ = judge("train_data", draws([]), draws([]))
    assert verdicts["scale"] == ("ERROR", "nothing was compared: no draws")
