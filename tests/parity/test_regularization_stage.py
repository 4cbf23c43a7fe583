"""The regularization stage: every wrong decay fails, with what it moves and the parameters it touches."""

from dataclasses import replace

import numpy as np
import pytest
from updates_bench import align, failed, judge_records, outcomes, record_side, with_args

from tipchain.errors import Outcome

pytestmark = pytest.mark.frameworks

L2 = {"name": "momentum", "weight_decay": 1e-4}
BIASES = "conv.bias, bn.bias, norm.bias, linear.bias, head.bias"
BN = "bn.weight, bn.bias, norm.weight, norm.bias"
FAULTS = {
    "decay missing": (L2, {"name": "momentum"}, "decayed in the reference only"),
    "decay too much": ({"name": "momentum"}, L2, "decayed in the port only"),
    "one part in a hundred": (L2, {**L2, "weight_decay": 1.01e-4}, "decay moves it by "),
    "L1 for L2": (L2, {**L2, "decay": "l1"}, "decayed otherwise"),
    "coupled for decoupled": ({"name": "adamw", "weight_decay": 1e-2}, {"name": "adam", "weight_decay": 1e-2}, "decayed otherwise"),
    "decay of biases": ({**L2, "no_decay": ["bias"]}, L2, "decayed in the port only"),
    "no decay of norms": (L2, {**L2, "no_decay": ["norm"]}, "decayed in the reference only"),
}  # fmt: skip
TOUCHED = {"decay of biases": f"in the port only: {BIASES}", "no decay of norms": f"in the reference only: {BN}"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_decay_fails_and_is_described(case, fault):
    right, wrong, words = FAULTS[fault]
    reasons = failed(align("regularization", with_args(case, **right), with_args(case, **wrong)))
    assert any(words in reason for reason in reasons.values()), reasons
    if fault in TOUCHED:
        assert reasons.pop("decayed") == TOUCHED[fault]
        assert ", ".join(reasons) == TOUCHED[fault].partition(": ")[2]


@pytest.mark.parametrize(
    "args",
    [
        {**L2, "decay": "l1"},
        {**L2, "name": "adamw"},
        {**L2, "name": "adam", "clip_global_norm": 1.0, "no_decay": ["norm"]},
    ],
)
def test_equal_decay_passes(case, args):
    verdicts = align("regularization", with_args(case, **args))
    assert outcomes(verdicts) == {Outcome.PASS}
    spared = f"all but {BN}" if "no_decay" in args else "every parameter"
    assert verdicts["decayed"].reason == f"{spared}, on both sides"


def test_a_decay_below_what_rounding_hides_is_no_pass_until_the_rate_is_raised(case):
    small = with_args(case, name="sgd", weight_decay=1e-7)
    verdicts = align("regularization", small)
    assert Outcome.ERROR in outcomes(verdicts)
    assert "raise  updates: {decay_learning_rate" in next(iter(verdicts.values())).reason
    raised = replace(small, updates=replace(small.updates, decay_learning_rate=1e5))
    assert outcomes(align("regularization", raised)) == {Outcome.PASS}


@pytest.mark.parametrize("wrong", [{"momentum": 0.5}, {"nesterov": True}])
def test_a_wrong_optimizer_is_left_to_its_own_stage(case, wrong):
    verdicts = align("regularization", case, with_args(case, **L2, **wrong))
    assert not failed(verdicts)
    unknown = [one.reason for one in verdicts.values() if one.outcome is Outcome.ERROR]
    assert unknown, "what could not be found out never lets the stage pass"
    assert all("the optimizer stage says how" in reason for reason in unknown)


def test_decay_before_clipping_is_seen(case):
    """Both orders agree without gradients; beside large ones a decay that is clipped too shrinks."""
    sides = dict(case.sides)
    sides["paddle"] = replace(sides["paddle"], optimizer="tests.cases.native_optimizers:build_clipped_decay")
    args = {"weight_decay": 1e-2, "clip_global_norm": 5.0}
    right = with_args(case, name="sgd", **args)
    reasons = failed(align("regularization", right, replace(right, sides=sides, optimizer_args=args)))
    assert any("decayed otherwise" in reason for reason in reasons.values()), reasons


def test_sides_that_started_from_other_values_are_not_compared(case):
    reference = record_side(case, "torch", "regularization")
    port = record_side(replace(case, updates=replace(case.updates, seed=1)), "paddle", "regularization")
    (verdict,) = judge_records("regularization", reference, port).values()
    assert verdict.outcome is Outcome.ERROR
    assert "did not start equal" in verdict.reason


def test_missing_parameters_and_nan_fail(case):
    reference = record_side(case, "torch", "regularization")
    spoiled = {
        key: np.where(key.endswith("/bn.bias"), np.nan, one) if key.startswith("moved/") else one
        for key, one in reference.arrays.items()
        if not key.endswith("head.bias")
    }
    verdicts = judge_records("regularization", reference, replace(reference, arrays=spoiled))
    assert set(failed(verdicts)) == {"head.bias", "bn.bias"}
    assert verdicts["head.bias"].reason == "missing in the port"
    (nothing,) = judge_records("regularization", replace(reference, arrays={}), reference).values()
    assert nothing.outcome is Outcome.ERROR
