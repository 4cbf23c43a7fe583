"""The lr stage: every schedule's curve is equal in both frameworks, and one that differs is told by its first step."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_project import make_tiny_project
from updates_bench import PAIRS, align, failed, judge_records, outcomes, pairs_case, record_side

from tipchain.errors import InputError, Outcome
from tipchain.parity.stages.bench import Recording

pytestmark = pytest.mark.frameworks

SCHEDULES = {
    "step": {"name": "step", "step_size": 7, "gamma": 0.5},
    "cosine": {"name": "cosine", "total_steps": 60, "end_rate": 1e-3},
    "polynomial in cycles": {"name": "polynomial", "total_steps": 30, "end_rate": 0.01, "cycle": True},
    "onecycle": {"name": "onecycle", "total_steps": 110},
    "onecycle in three phases": {
        "name": "onecycle",
        "total_steps": 110,
        "three_phase": True,
        "pct_start": 0.25,
        "anneal_strategy": "linear",
    },
}
WARMUPS = {"": {}, "from a tenth": {"warmup_steps": 8, "warmup_start": 0.1}}


def with_args(case, **args):
    return replace(case, scheduler_args=args)


@pytest.mark.parametrize("warmup", WARMUPS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_have_equal_curves(case, name, warmup):
    verdicts = align("lr", with_args(case, **SCHEDULES[name], **WARMUPS[warmup]))
    assert outcomes(verdicts) == {Outcome.PASS}
    assert "100 rates, one per epoch" in verdicts["lr"].reason


def test_a_wrong_schedule_is_described(case):
    right, wrong = (with_args(case, name="constant", warmup_steps=steps) for steps in (5, 6))
    reason = failed(align("lr", right, wrong))["lr"]
    for words in ("first differs at step 1: expected 0.02, actual 0.0166666667", "equal from step 6 on"):
        assert words in reason


def curves(expected, actual):
    sides = [Recording(arrays={"lr": np.asarray(curve, dtype=np.float64)}) for curve in (expected, actual)]
    return judge_records("lr", *sides)["lr"]


def test_noise_of_a_rate_that_ends_at_zero_is_no_difference_and_nan_is():
    falling = np.linspace(0.1, 0.0, 50)
    noisy = falling + 1e-17
    assert curves(falling, noisy).outcome is Outcome.PASS
    noisy[-1] = 1e-6
    assert "first differs at step 49" in curves(falling, noisy).reason
    noisy[3] = np.nan
    assert curves(falling, noisy).outcome is Outcome.FAIL
    assert curves(falling, falling[:-1]).outcome is Outcome.FAIL


def test_a_rate_that_never_moves_proves_nothing(case):
    verdicts = align("lr", replace(with_args(case, name="step", step_size=30), lr=replace(case.lr, steps=20)))
    assert verdicts["lr"].outcome is Outcome.ERROR
    assert "at each of 20 steps" in verdicts["lr"].reason


def test_parameters_with_rates_of_their_own_are_compared_too(case):
    multiplied = replace(case, optimizer_args={"name": "sgd", "lr_multipliers": {"bias": 2.0}})
    assert list(align("lr", multiplied)) == [
        "lr",
        *(f"lr/{one}.bias" for one in ("conv", "bn", "norm", "linear", "head")),
    ]
    assert outcomes(align("lr", multiplied)) == {Outcome.PASS}
    reasons = failed(align("lr", multiplied, case))
    assert "lr" not in reasons
    assert "first differs at step 0: expected 0.2, actual 0.1" in reasons["lr/bn.bias"]


def test_an_end_that_the_frameworks_understand_differently_is_refused(case):
    args = {
        "optimizer_args": {"name": "sgd", "lr_multipliers": {"bias": 2.0}},
        "scheduler_args": {"name": "cosine", "total_steps": 60, "end_rate": 1e-3},
    }
    with pytest.raises(InputError, match=r"scheduler\.end_rate: cannot stand beside learning-rate multipliers"):
        record_side(replace(case, **args), "torch", "lr")


def test_a_schedule_that_moves_the_momentum_is_told(case):
    sides = dict(case.sides)
    sides["torch"] = replace(sides["torch"], scheduler="tests.cases.native_optimizers:build_onecycle")
    one = replace(with_args(case, name="onecycle", total_steps=110), sides=sides)
    reasons = failed(align("lr", one))
    assert list(reasons) == ["momentum"]
    assert "cycle_momentum" in reasons["momentum"]


def test_the_rate_is_that_of_training_unless_the_case_says_otherwise(tmp_path):
    case = pairs_case(tmp_path, PAIRS.replace("learning_rate: 0.1", "learning_rate: 0.1, schedule_per: iteration"))
    verdicts = align("lr", case)
    assert record_side(case, "paddle", "lr").arrays["lr"][0] == 0.1
    assert "one per iteration" in verdicts["lr"].reason
    own = "learning_rate: 0.1, schedule_per: {torch: epoch, paddle: iteration}, steps_per_epoch: 10"
    case = pairs_case(tmp_path, PAIRS.replace("learning_rate: 0.1", own))
    assert record_side(case, "torch", "lr").arrays["lr"][-1] == 0.1, "nine epochs"
    assert record_side(case, "paddle", "lr").arrays["lr"][-1] == pytest.approx(1e-4), "99 iterations"
    with pytest.raises(InputError, match=r"train\.steps_per_epoch: is missing"):
        pairs_case(tmp_path, PAIRS.replace("learning_rate: 0.1", own.rpartition(",")[0]))
    case = pairs_case(tmp_path, f"{PAIRS}lr: {{steps: 40, learning_rate: 0.5}}\n")
    assert record_side(case, "torch", "lr").arrays["lr"].tolist() == pytest.approx([0.5] * 30 + [0.05] * 10)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"name": "cosin"}, r"scheduler\.name: is no known schedule"),
        ({"name": "cosine"}, r"scheduler\.total_steps: is missing"),
        ({"name": "step", "step_size": 3, "gama": 0.1}, r"scheduler\.gama: is no argument of step"),
        ({"name": "exponential", "gamma": 1.5}, r"scheduler\.gamma: does not lie between"),
        ({"name": "multistep", "milestones": [5, 3]}, r"scheduler\.milestones: are no growing"),
    ],
)
def test_arguments_that_cannot_be_are_refused(case, args, words):
    for side in ("torch", "paddle"):
        with pytest.raises(InputError, match=words):
            record_side(with_args(case, **args), side, "lr")


def test_the_documents_script_compares_both_curves_and_ends_by_result(tmp_path):
    project = make_tiny_project(tmp_path / "project")
    project.edit("case.yaml", "stages: [", "stages: [lr, ")
    project.edit("tiny_paddle.py", "gamma=gamma", "gamma=0.9")
    script = Path(__file__).resolve().parents[2] / "alignment" / "test_lr.py"
    done = project.run([sys.executable, str(script), "--case", str(project.case), "--threads", "1", "--no-locate"])
    assert done.returncode == 1, done.stdout + done.stderr
    text = " ".join(done.stdout.split())
    for words in ("first differs at step 2: expected 0.0005, actual 0.0009", "step torch paddle", "2 0.0005 0.0009 <-"):
        assert words in text
    assert (project.root / "tipchain-output/tiny/lite_train_lite_infer/log_reprod/lr_diff.log").is_file()
