"""Judging a stage from files alone; no framework is needed."""

from pathlib import Path

import numpy as np
import pytest
from stage_records import outcomes, reasons, write_dumps

from tipchain.errors import Outcome, RecordError, UsageError
from tipchain.modes import dump_name, tensors_name
from tipchain.numbers.dumps import save_record
from tipchain.parity.align import adopt_dumps, check_dumps
from tipchain.parity.case import KnownDeviation
from tipchain.parity.stages.judging import Rules, judge_stage

PLAIN = Rules(own={})


LOSSES = {"loss_0": np.array([2.3]), "lr_0": np.array([1e-4])}
GOOD = {
    "gradient/a.weight": [0.5, -0.5],
    "gradient/a.bias": [1e-9, 0.0],
    "parameter/a.weight": [1.0, 2.0],
    "update_rms/a.weight": 1e-4,
    "buffer/a.running_mean": [0.1, 0.2],
}


def judge_tensors(folder, torch: dict, paddle: dict, batches=(None, None)):
    """Judge backward of equal losses, and of these tensors and batches."""
    files = [{key: np.asarray(one, np.float32) for key, one in side.items()} for side in (torch, paddle)]
    metas = [{"details": {"first_batches": seen, "batches": str(seen)} if seen else {}} for seen in batches]
    return judge_stage("backward", write_dumps(folder, "backward", LOSSES, LOSSES, metas=metas, tensors=files), PLAIN)


def test_other_inputs_are_an_error_whatever_the_numbers(tmp_path):
    metas = [{"inputs": {"fake": fake, "weights": "w"}} for fake in "ab"]
    folder = write_dumps(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.ones(3)}, metas=metas)
    (verdict,) = judge_stage("forward", folder, PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert "fake" in verdict.reason
    assert "weights" not in verdict.reason


@pytest.mark.parametrize("stage", ["forward", "loss"])
def test_tiny_outputs_prove_nothing(tmp_path, stage):
    key = "logits" if stage == "forward" else "loss"
    folder = write_dumps(tmp_path, stage, {key: np.full(4, 1e-7)}, {key: np.full(4, 9e-7)})
    (verdict,) = judge_stage(stage, folder, PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert "proves nothing" in verdict.reason


def test_metrics_of_zero_are_ordinary(tmp_path):
    folder = write_dumps(tmp_path, "metric", {"acc_top1": np.zeros(1)}, {"acc_top1": np.zeros(1)})
    assert outcomes(judge_stage("metric", folder, PLAIN)) == {"acc_top1": "PASS"}


def test_backward_judges_every_tensor_and_lists_structural_zeros(tmp_path):
    judgement = judge_tensors(tmp_path, GOOD, {**GOOD, "gradient/a.bias": [-3e-7, 2e-7]})
    assert set(outcomes(judgement).values()) == {"PASS"}, "noise in a gradient that is zero by structure is no fault"
    assert len(judgement.verdicts) == 6
    assert judgement.notes[-1] == "zero by structure, 1 gradients: a.bias"


def test_gradients_that_are_all_zero_prove_nothing(tmp_path):
    dead = {**GOOD, "gradient/a.weight": [0.0, 0.0], "gradient/a.bias": [0.0, 0.0], "update_rms/a.weight": 0.0}
    found = outcomes(judge_tensors(tmp_path, dead, dead))
    assert found["gradient"] == "ERROR"
    assert found["parameter"] == "ERROR"


def test_backward_without_tensors_is_an_error(tmp_path):
    write_dumps(tmp_path, "backward", LOSSES, LOSSES)
    assert outcomes(judge_stage("backward", tmp_path, PLAIN))["tensors"] == "ERROR"
    judge_tensors(tmp_path, GOOD, GOOD)
    path = tmp_path / tensors_name("backward", "paddle")
    path.write_bytes(path.read_bytes()[:-3])
    verdict = judge_stage("backward", tmp_path, PLAIN).verdicts[-1]
    assert verdict.outcome is Outcome.ERROR
    assert "no complete safetensors file" in verdict.reason


def test_data_beyond_what_was_kept_is_remarked(tmp_path):
    meta = {"details": {"batches_kept": 100, "batches_in_all": 12500}}
    folder = write_dumps(tmp_path, "data", {"length": np.array([2])}, {"length": np.array([2])}, metas=(meta, meta))
    assert "the first 100 of 12500 batches were compared" in judge_stage("data", folder, PLAIN).notes


def test_known_deviations_skip_and_expire(tmp_path):
    rules = Rules(own={}, deviations=(KnownDeviation(subject="forward/logits", reason="an op differs"),))
    folder = write_dumps(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.full(3, 2.0)})
    (verdict,) = judge_stage("forward", folder, rules).verdicts
    assert verdict.outcome is Outcome.SKIP
    assert "an op differs" in verdict.reason
    write_dumps(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.ones(3)})
    (verdict,) = judge_stage("forward", folder, rules).verdicts
    assert verdict.outcome is Outcome.FAIL


def dump_with_meta(folder: Path, stage: str, torch: dict, paddle: dict) -> Path:
    """Dump one array each, with the given facts beside them."""
    arrays = {"acc_top1": np.array([80.0], np.float32)}
    return write_dumps(folder, stage, arrays, arrays, metas=(torch, paddle))


def test_a_dump_of_another_side_is_an_error_though_its_numbers_agree(tmp_path):
    meta = {"side": "paddle", "stage": "metric"}
    (verdict,) = judge_stage("metric", dump_with_meta(tmp_path, "metric", meta, meta), PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert "metric_torch.npy holds the paddle side's metric dump" in verdict.reason


@pytest.mark.parametrize(
    ("stage", "key", "values", "fails"),
    [
        ("train", "samples", (20, 16), "samples"),
        ("train", "batches", ("aa", "bb"), "batches"),
        ("metric", "nan", (40, 40), "outputs"),
        ("metric", "nan", (0, 40), "outputs"),
    ],
)
def test_numbers_of_other_samples_or_of_nan_outputs_fail_though_they_agree(tmp_path, stage, key, values, fails):
    metas = [
        {"side": side, "stage": stage, "details": {key: value}}
        for side, value in zip(("torch", "paddle"), values, strict=True)
    ]
    found = outcomes(judge_stage(stage, dump_with_meta(tmp_path, stage, *metas), PLAIN))
    assert found == {"acc_top1": "PASS", fails: "FAIL"}


def test_metrics_without_a_published_number_are_skipped(tmp_path):
    port = {"acc_top1": np.array([56.5], np.float32), "acc_top5": np.array([79.0], np.float32)}
    write_dumps(
        tmp_path, "train", {"acc_top1": np.array([56.5], np.float32)}, port, metas=({"side": "benchmark"}, None)
    )
    judgement = judge_stage("train", tmp_path, PLAIN)
    assert outcomes(judgement) == {"acc_top1": "PASS", "acc_top5": "SKIP"}
    assert [note for note in judgement.notes if "benchmark" in note] == []


def test_nan_gradients_on_both_sides_fail(tmp_path):
    both = {"gradient/a": [np.nan, 0.0], "gradient/z": [0.5, 0.5]}
    both |= {"parameter/a": [np.nan, 1.0], "update_rms/a": np.nan, "buffer/a": [np.nan, 1.0]}
    found = outcomes(judge_tensors(tmp_path, both, both))
    assert {found[f"{group}/a"] for group in ("gradient", "parameter", "buffer")} == {"FAIL"}
    assert found["gradient/z"] == "PASS"


def test_a_masks_infinity_does_not_excuse_its_other_values(tmp_path):
    judgement = judge_tensors(tmp_path, *(GOOD | {"buffer/mask": [-np.inf, other]} for other in (1.0, 500.0)))
    assert outcomes(judgement)["buffer/mask"] == "FAIL"


def test_no_known_deviation_covers_nan_or_a_name_that_is_not_there(tmp_path):
    write_dumps(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.array([1.0, np.nan, 1.0])})
    deviations = tuple(
        KnownDeviation(subject=subject, reason="measured") for subject in ("forward/logits", "forward/logit", "loss/x")
    )
    judgement = judge_stage("forward", tmp_path, Rules(own={}, deviations=deviations))
    assert outcomes(judgement) == {"logits": "FAIL", "logit": "ERROR"}
    assert "did you mean 'forward/logits'?" in judgement.verdicts[1].reason


def test_the_last_digit_of_a_gradient_far_above_the_others_is_no_difference(tmp_path):
    spike = np.zeros(2**21, np.float32)
    spike[7] = 1.0
    recorded = GOOD | {"gradient/a.weight": spike, "gradient_noise/a.weight": 0.0}
    for far, outcome in ((1, "PASS"), (64, "FAIL")):
        other = spike.copy()
        other[7] += far * np.spacing(spike[7])
        judgement = judge_tensors(tmp_path, recorded, {**GOOD, "gradient/a.weight": other})
        assert outcomes(judgement)["gradient/a.weight"] == outcome


BATCHES = [{"files": ["a.png", "b.png"], "labels": [0, 1]}, {"files": ["c.png", "d.png"], "labels": [2, 3]}]


def spoiled(number, index, **change):
    batches = [{key: list(values) for key, values in batch.items()} for batch in BATCHES]
    for key, value in change.items():
        batches[number][key][index] = value
    return batches


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (
            spoiled(1, 0, files="x.png"),
            "first at batch 1, sample 0: expected c.png with label 2, actual x.png with label 2",
        ),
        (spoiled(0, 1, labels=7), "first at batch 0, sample 1: expected b.png with label 1, actual b.png with label 7"),
        (
            [{"files": ["a.png", "b.png"], "labels": "5f" * 32}],
            "expected a.png with label 0, actual a.png with label 5f5f5f5f5f5f",
        ),
    ],
)
def test_the_first_sample_that_differs_is_named(tmp_path, batches, words):
    assert words in reasons(judge_tensors(tmp_path, GOOD, GOOD, (BATCHES, batches)), "FAIL")["batches"]


@pytest.mark.parametrize(
    ("noise", "change", "outcome", "words"),
    [
        (
            2e-3,
            {"gradient/a.weight": [0.505, -0.5]},
            "PASS",
            "0.01 of the model's largest RMS, allowed 0.0001; the reference's own moves by 0.004",
        ),
        (2e-3, {"gradient/a.weight": [0.507, -0.5]}, "FAIL", "allowed max <= 5.00606e-05"),
        (2e-3, {"gradient/a.weight": [np.nan, -0.5]}, "FAIL", "NaN"),
        (2e-3, {"parameter/a.weight": [1.0, 2.0 + 2.5e-6]}, "PASS", "0.024 of"),
        (2e-3, {"parameter/a.weight": [1.0, 2.0 + 4e-6]}, "FAIL", "allowed 0.01"),
        (0.1, {"gradient/a.weight": [0.6, -0.5]}, "SKIP", "rounding hides every difference"),
        (np.nan, {"gradient/a.weight": [0.505, -0.5]}, "FAIL", "not close"),
    ],
)
def test_a_gradient_may_move_as_far_as_rounding_moves_torchs_own(tmp_path, noise, change, outcome, words):
    judgement = judge_tensors(tmp_path, GOOD | {"gradient_noise/a.weight": noise}, GOOD | change)
    (subject,) = change
    found = {one.subject.partition("/")[2]: one for one in judgement.verdicts}
    assert found[subject].outcome.value == outcome
    assert words in found[subject].reason
    assert [one for one in found if found[one].outcome.value != "PASS"] == ([] if outcome == "PASS" else [subject])
    assert outcome == "FAIL" or (found[subject].share or 0.0) <= 1.0, "of what passes no more is told than is allowed"
    by_rounding = "the reference's own" in found[subject].reason
    assert any("judged by the reference's own rounding" in note for note in judgement.notes) is by_rounding


@pytest.mark.parametrize(
    ("parameter", "outcome"),
    [
        ([1.0, 2.0 + 5e-5], "SKIP"),  # of the element whose gradient is rounding alone
        ([1.0 + 5e-5, 2.0], "FAIL"),
        ([1.0, 2.0 + 5e-3], "FAIL"),  # no update goes so far
        ([1.0, np.nan], "FAIL"),
        ([1.0, 2.0], "PASS"),
    ],
)
def test_steps_where_a_gradient_is_rounding_alone_are_not_judged(tmp_path, parameter, outcome):
    """Adam takes whole steps there: a key's bias in attention failed in float32, however right the port was."""
    torch = GOOD | {"gradient/a.weight": [0.5, 1e-8], "gradient_noise/a.weight": 1e-7}
    judgement = judge_tensors(tmp_path, torch, torch | {"parameter/a.weight": parameter})
    assert outcomes(judgement)["parameter/a.weight"] == outcome
    assert ("rounding hides 1 of 2 elements" in reasons(judgement)["parameter/a.weight"]) is (outcome == "SKIP")


# Dumps named on the command line: what cannot serve is refused before anything runs.


ARRAYS = {"acc_top1": np.array([80.0])}


def test_a_dump_of_another_side_or_stage_is_refused(tmp_path):
    own = save_record(tmp_path / "own", ARRAYS, meta={"side": "torch", "stage": "metric"})
    check_dumps({"torch": own}, ["metric"])
    with pytest.raises(UsageError, match=r"--port: .* holds the torch side's metric dump"):
        check_dumps({"paddle": own}, ["metric"])
    with pytest.raises(UsageError, match="not the torch side's of train"):
        check_dumps({"torch": own}, ["train"])
    check_dumps({"paddle": save_record(tmp_path / "plain", ARRAYS)}, ["metric"])


def test_what_is_no_dump_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(RecordError, match="is not a dump"):
        check_dumps({"torch": tmp_path / "notes.txt"}, ["metric"])
    with pytest.raises(UsageError, match=r"has no dump\n  expected: metric_torch\.npy, loss_torch\.npy"):
        check_dumps({"torch": tmp_path}, ["metric", "loss"])


def test_a_port_that_was_held_against_itself_brings_its_own_reference(tmp_path):
    own = save_record(tmp_path / "inference_paddle.npy", ARRAYS)
    (tmp_path / "alone").mkdir()
    adopt_dumps({"paddle": own}, ["inference"], tmp_path / "alone")
    (verdict,) = judge_stage("inference", tmp_path / "alone", PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR, "never one file as both sides"
    assert dump_name("inference", "torch") in verdict.reason
    (tmp_path / "both").mkdir()
    save_record(tmp_path / dump_name("inference", "torch"), {"acc_top1": np.array([70.0])})
    adopt_dumps({"paddle": own}, ["inference"], tmp_path / "both")
    (verdict,) = judge_stage("inference", tmp_path / "both", PLAIN).verdicts
    assert verdict.outcome is Outcome.FAIL
