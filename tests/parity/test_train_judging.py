"""Judging the training stage from files alone; no framework is needed."""

import sys

import numpy as np
import pytest
from stage_records import write_dumps

from tipchain.errors import Outcome
from tipchain.parity.case import KnownDeviation
from tipchain.parity.stages.judging import Rules, judge_stage, leaves_unknown

ACCURACY = {"acc_top1": np.array([80.0], np.float32)}
LOSSES = np.array([2.0, 1.9, 1.8])
RUNS = LOSSES + np.array([[0, 1e-6, 2e-6], [0, -1e-6, 1e-6]])
RULES = Rules(own={})


def write(folder, torch=None, paddle=None, *, samples=5000, made_here=True):
    meta = {"stage": "train", "details": {"samples": samples}, **({"tipchain": "1"} if made_here else {})}
    metas = [{"side": side, **meta} for side in ("torch", "paddle")]
    return write_dumps(folder, "train", ACCURACY, ACCURACY, metas=metas, tensors=(torch, paddle))


def reference(**more):
    return {"loss": LOSSES, "envelope": RUNS, **more}


def port(*differences, **more):
    return {"loss": LOSSES + (differences or 0.0), **more}


def judged(folder, rules=RULES):
    judgement = judge_stage("train", folder, rules)
    return {verdict.subject: verdict for verdict in judgement.verdicts}, judgement.notes


def test_a_close_curve_passes_with_the_numbers_behind_it(tmp_path):
    found, notes = judged(write(tmp_path, reference(), port(0, 1e-6, -4e-6)))
    assert found["train/loss_curve"].outcome is Outcome.PASS
    assert found["train/loss_curve"].reason == (
        "3 losses within 2 times the envelope of 2 runs, allowed 10; furthest at step 2: |difference| 4e-06, envelope 2e-06"
    )
    assert notes == ()


@pytest.mark.parametrize(("apart", "unknown"), [(1e-6, False), (1e-3, True)])
def test_without_runs_of_the_reference_losses_are_held_to_the_least_envelope(tmp_path, apart, unknown):
    folder = write(tmp_path, reference(envelope=np.empty((0, 3))), port(0, apart, apart))
    found, _ = judged(folder)
    assert found["train/loss_curve"].outcome is (Outcome.FAIL if unknown else Outcome.PASS)
    assert "the least envelope, 8 units in the last place" in found["train/loss_curve"].reason
    assert leaves_unknown(judge_stage("train", folder, RULES)) is unknown, "then the reference's own is recorded"


def test_a_curve_that_leaves_is_told_with_both_values(tmp_path):
    found, _ = judged(write(tmp_path, reference(), port(0, 0, 1e-3)))
    verdict = found["train/loss_curve"]
    assert verdict.outcome is Outcome.FAIL
    for words in (
        "at step 2: expected 1.8, actual 1.801",
        "500 times the envelope 2e-06, allowed 10",
        "close until step 1",
    ):
        assert words in verdict.reason
    found, _ = judged(write(tmp_path, reference(), port(0, 1e-3, 5e-3)))
    assert "at step 1: expected 1.9, actual 1.901" in found["train/loss_curve"].reason, "its first step, not its worst"


def test_the_cases_factor_counts_when_judged_again(tmp_path):
    folder = write(tmp_path, reference(), port(0, 0, 3e-5))
    assert judged(folder)[0]["train/loss_curve"].outcome is Outcome.FAIL
    assert judged(folder, Rules(own={}, factor=20))[0]["train/loss_curve"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("torch", "paddle", "outcome", "words"),
    [
        (None, port(), Outcome.ERROR, "no complete safetensors file"),
        ({"loss": LOSSES}, port(), Outcome.ERROR, "'envelope'"),
        (reference(), {"loss": LOSSES[:2]}, Outcome.FAIL, "losses expected: (3,), actual: (2,)"),
        (reference(), port(0, np.nan, 0), Outcome.FAIL, "at step 1: expected 1.9, actual nan"),
        (reference() | {"loss": np.array([2, np.nan, 2])}, port(), Outcome.ERROR, "nan at step 1: nothing to hold to"),
        (reference() | {"envelope": RUNS + np.array([[0, 1, 0], [0, 0, 0]])}, port(), Outcome.ERROR, "proves nothing"),
        (reference(), port(1e-3), Outcome.FAIL, "the first losses differ already"),
    ],
)
def test_what_cannot_pass(tmp_path, torch, paddle, outcome, words):
    found, _ = judged(write(tmp_path, torch, paddle))
    assert found["train/loss_curve"].outcome is outcome
    assert words in found["train/loss_curve"].reason


def test_dumps_made_elsewhere_may_come_with_metrics_alone(tmp_path):
    found, notes = judged(write(tmp_path, made_here=False))
    assert list(found) == ["train/acc_top1"]
    assert any("the metrics alone were compared" in note for note in notes)


@pytest.mark.parametrize(
    ("metrics", "outcome", "words"),
    [
        (([80.0, 80.02, 79.98], [80.01, 80.0, 79.99]), Outcome.PASS, "equivalent: mean of 3 runs 80"),
        (
            ([80.0, 80.02, 79.98], [79.0, 79.02, 78.98]),
            Outcome.FAIL,
            "different: mean of 3 runs 80, of the port's 3 79; difference -1",
        ),
        (([80.0, 80.2, 79.8], [80.1, 79.9, 80.3]), Outcome.SKIP, "more a side needed"),
        (([80.0, np.nan, 79.8], [80.1, 79.9, 80.3]), Outcome.FAIL, "not finite"),
        (([80.0, 80.2], None), Outcome.FAIL, "missing in the port"),
        ((None, [80.0, 80.2]), Outcome.FAIL, "not in the reference"),
    ],
)
def test_seeds_give_one_of_three_answers(tmp_path, metrics, outcome, words):
    more = [{} if runs is None else {"seeds/acc_top1": np.array(runs, np.float32)} for runs in metrics]
    found, _ = judged(write(tmp_path, reference(**more[0]), port(**more[1])))
    verdict = found["train/seeds/acc_top1"]
    assert verdict.outcome is outcome
    assert words in verdict.reason


def test_the_cases_margin_counts(tmp_path):
    runs = {"seeds/acc_top1": np.array([80.0, 80.02, 79.98], np.float32)}
    moved = {"seeds/acc_top1": np.array([79.5, 79.52, 79.48], np.float32)}
    folder = write(tmp_path, reference(**runs), port(**moved))
    assert judged(folder)[0]["train/seeds/acc_top1"].outcome is Outcome.FAIL
    assert judged(folder, Rules(own={}, margin=1.0))[0]["train/seeds/acc_top1"].outcome is Outcome.PASS


def test_without_scipy_the_seeds_are_an_error_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    runs = {"seeds/acc_top1": np.array([80.0, 80.02], np.float32)}
    found, _ = judged(write(tmp_path, reference(**runs), port(**runs)))
    assert found["train/seeds/acc_top1"].outcome is Outcome.ERROR
    assert "pip install 'tipchain[stats]'" in found["train/seeds/acc_top1"].reason
    assert found["train/loss_curve"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("subject", "changes"),
    [
        ("train/loss_curve", {"loss": [2.0, 1.9, np.nan]}),
        ("train/seeds/acc_top1", {"seeds/acc_top1": [80.0, np.inf, 80.0]}),
    ],
)
def test_no_known_deviation_covers_what_is_not_finite(tmp_path, subject, changes):
    both = {"seeds/acc_top1": [80.0, 80.5, 79.5]}
    folder = write(tmp_path, reference(**both), {**port(**both), **changes})
    found, _ = judged(folder, Rules(own={}, deviations=(KnownDeviation(subject=subject, reason="an op differs"),)))
    assert found[subject].outcome is Outcome.FAIL
    assert "no known deviation covers NaN" in found[subject].reason
