"""Judging a stage from files alone; no framework is needed."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tipchain.errors import Outcome
from tipchain.modes import dump_name, tensors_name
from tipchain.numbers.dumps import save_record
from tipchain.numbers.tolerance import Tolerance
from tipchain.parity.case import KnownDeviation
from tipchain.parity.stages.judging import Rules, judge_stage

PLAIN = Rules(own={})


def dump(folder: Path, stage: str, torch: dict, paddle: dict, meta=None) -> Path:
    for side, arrays in (("torch", torch), ("paddle", paddle)):
        save_record(folder / dump_name(stage, side), arrays, meta=(meta or {}).get(side))
    return folder


def tensors(folder: Path, torch: dict, paddle: dict) -> None:
    for side, arrays in (("torch", torch), ("paddle", paddle)):
        save_file(
            {k: np.asarray(v, dtype=np.float32) for k, v in arrays.items()}, folder / tensors_name("backward", side)
        )


def outcomes(judgement) -> dict[str, str]:
    return {verdict.subject: verdict.outcome.value for verdict in judgement.verdicts}


LOSSES = {"loss_0": np.array([2.3]), "lr_0": np.array([1e-4])}
GOOD = {
    "gradient/a.weight": [0.5, -0.5],
    "gradient/a.bias": [1e-9, 0.0],
    "parameter/a.weight": [1.0, 2.0],
    "update_rms/a.weight": 1e-4,
    "buffer/a.running_mean": [0.1, 0.2],
}


def test_other_inputs_are_an_error_whatever_the_numbers(tmp_path):
    meta = {"torch": {"inputs": {"fake": "a", "weights": "w"}}, "paddle": {"inputs": {"fake": "b", "weights": "w"}}}
    folder = dump(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.ones(3)}, meta)
    (verdict,) = judge_stage("forward", folder, PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert "fake" in verdict.reason
    assert "weights" not in verdict.reason


def test_a_missing_dump_is_an_error(tmp_path):
    save_record(tmp_path / dump_name("loss", "torch"), {"loss": np.ones(1)})
    (verdict,) = judge_stage("loss", tmp_path, PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert "loss_paddle.npy" in verdict.reason


@pytest.mark.parametrize("stage", ["forward", "loss"])
def test_tiny_outputs_prove_nothing(tmp_path, stage):
    key = "logits" if stage == "forward" else "loss"
    folder = dump(tmp_path, stage, {key: np.full(4, 1e-7)}, {key: np.full(4, 9e-7)})
    (verdict,) = judge_stage(stage, folder, PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert "proves nothing" in verdict.reason


def test_metrics_of_zero_are_ordinary(tmp_path):
    folder = dump(tmp_path, "metric", {"acc_top1": np.zeros(1)}, {"acc_top1": np.zeros(1)})
    assert outcomes(judge_stage("metric", folder, PLAIN)) == {"metric/acc_top1": "PASS"}


def test_backward_judges_every_tensor_and_lists_structural_zeros(tmp_path):
    tensors(dump(tmp_path, "backward", LOSSES, LOSSES), GOOD, {**GOOD, "gradient/a.bias": [-3e-7, 2e-7]})
    judgement = judge_stage("backward", tmp_path, PLAIN)
    assert set(outcomes(judgement).values()) == {"PASS"}, "noise in a gradient that is zero by structure is no fault"
    assert len(judgement.verdicts) == 6
    assert judgement.notes[-1] == "zero by structure, 1 gradients: a.bias"


def test_gradients_that_are_all_zero_prove_nothing(tmp_path):
    dead = {**GOOD, "gradient/a.weight": [0.0, 0.0], "gradient/a.bias": [0.0, 0.0], "update_rms/a.weight": 0.0}
    tensors(dump(tmp_path, "backward", LOSSES, LOSSES), dead, dead)
    found = outcomes(judge_stage("backward", tmp_path, PLAIN))
    assert found["backward/gradient"] == "ERROR"
    assert found["backward/parameter"] == "ERROR"


def test_backward_without_tensors_is_an_error(tmp_path):
    dump(tmp_path, "backward", LOSSES, LOSSES)
    assert outcomes(judge_stage("backward", tmp_path, PLAIN))["backward/tensors"] == "ERROR"
    tensors(tmp_path, GOOD, GOOD)
    path = tmp_path / tensors_name("backward", "paddle")
    path.write_bytes(path.read_bytes()[:-3])
    verdict = judge_stage("backward", tmp_path, PLAIN).verdicts[-1]
    assert verdict.outcome is Outcome.ERROR
    assert "no complete safetensors file" in verdict.reason


def test_data_beyond_what_was_kept_is_remarked(tmp_path):
    meta = {side: {"details": {"batches_kept": 100, "batches_in_all": 12500}} for side in ("torch", "paddle")}
    folder = dump(tmp_path, "data", {"length": np.array([2])}, {"length": np.array([2])}, meta)
    assert "the first 100 of 12500 batches were compared" in judge_stage("data", folder, PLAIN).notes


def test_known_deviations_skip_and_expire(tmp_path):
    rules = Rules(own={}, deviations=(KnownDeviation(subject="forward/logits", reason="an op differs"),))
    folder = dump(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.full(3, 2.0)})
    (verdict,) = judge_stage("forward", folder, rules).verdicts
    assert verdict.outcome is Outcome.SKIP
    assert "an op differs" in verdict.reason
    dump(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.ones(3)})
    (verdict,) = judge_stage("forward", folder, rules).verdicts
    assert verdict.outcome is Outcome.FAIL


def test_an_override_rules_every_tensor_of_the_dumps(tmp_path):
    folder = dump(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.ones(3) + 1e-3})
    loose = Rules(own={}, override=Tolerance(threshold=0.1))
    assert outcomes(judge_stage("forward", folder, PLAIN)) == {"forward/logits": "FAIL"}
    assert outcomes(judge_stage("forward", folder, loose)) == {"forward/logits": "PASS"}


def dump_with_meta(folder: Path, stage: str, torch: dict, paddle: dict) -> Path:
    """Dump one array each, with the given facts beside them."""
    arrays = {"acc_top1": np.array([80.0], np.float32)}
    return dump(folder, stage, arrays, arrays, meta={"torch": torch, "paddle": paddle})


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        ({"side": "paddle", "stage": "metric"}, "metric_torch.npy holds the paddle side's metric dump"),
        ({"side": "torch", "stage": "train"}, "metric_torch.npy holds the torch side's train dump"),
    ],
)
def test_a_dump_of_another_side_or_stage_is_an_error_though_its_numbers_agree(tmp_path, torch, words):
    folder = dump_with_meta(tmp_path, "metric", torch, {"side": "paddle", "stage": "metric"})
    (verdict,) = judge_stage("metric", folder, PLAIN).verdicts
    assert verdict.outcome is Outcome.ERROR
    assert words in verdict.reason


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
    assert found == {f"{stage}/acc_top1": "PASS", f"{stage}/{fails}": "FAIL"}


def test_metrics_without_a_published_number_are_skipped(tmp_path):
    port = {"acc_top1": np.array([56.5], np.float32), "acc_top5": np.array([79.0], np.float32)}
    dump(tmp_path, "train", {"acc_top1": np.array([56.5], np.float32)}, port, meta={"torch": {"side": "benchmark"}})
    judgement = judge_stage("train", tmp_path, PLAIN)
    assert outcomes(judgement) == {"train/acc_top1": "PASS", "train/acc_top5": "SKIP"}
    assert [note for note in judgement.notes if "benchmark" in note] == []


@pytest.mark.parametrize("names", [["a", "b"], ["b"]])
def test_nan_gradients_on_both_sides_fail(tmp_path, names):
    dump(tmp_path, "backward", LOSSES, LOSSES)
    both = {f"gradient/{name}": [np.nan, 0.0] for name in names} | {"gradient/z": [0.5, 0.5]}
    both |= {"parameter/a": [np.nan, 1.0], "update_rms/a": np.nan, "buffer/a": [np.nan, 1.0]}
    tensors(tmp_path, both, both)
    found = outcomes(judge_stage("backward", tmp_path, PLAIN))
    wrong = {f"backward/gradient/{name}" for name in names} | {"backward/parameter/a", "backward/buffer/a"}
    assert {found[name] for name in wrong} == {"FAIL"}
    assert found["backward/gradient/z"] == "PASS"


def test_a_masks_infinity_does_not_excuse_its_other_values(tmp_path):
    dump(tmp_path, "backward", LOSSES, LOSSES)
    tensors(tmp_path, GOOD | {"buffer/mask": [-np.inf, 1.0]}, GOOD | {"buffer/mask": [-np.inf, 500.0]})
    assert outcomes(judge_stage("backward", tmp_path, PLAIN))["backward/buffer/mask"] == "FAIL"


def test_no_known_deviation_covers_nan_or_a_name_that_is_not_there(tmp_path):
    dump(tmp_path, "forward", {"logits": np.ones(3)}, {"logits": np.array([1.0, np.nan, 1.0])})
    deviations = tuple(
        KnownDeviation(subject=subject, reason="measured") for subject in ("forward/logits", "forward/logit", "loss/x")
    )
    judgement = judge_stage("forward", tmp_path, Rules(own={}, deviations=deviations))
    assert outcomes(judgement) == {"forward/logits": "FAIL", "forward/logit": "ERROR"}
    assert "did you mean 'forward/logits'?" in judgement.verdicts[1].reason


def test_whole_numbers_must_be_equal_unless_the_case_says_otherwise(tmp_path):
    mask = np.zeros((4, 512, 512), np.int64)
    wrong = mask.copy()
    wrong[0, 7, 7] = 1
    dump(tmp_path, "forward", {"mask": mask}, {"mask": wrong})
    assert outcomes(judge_stage("forward", tmp_path, PLAIN)) == {"forward/mask": "FAIL"}
    own = Rules(own={"forward": {"m*": Tolerance(threshold=1e-5, reason="ties")}})
    assert outcomes(judge_stage("forward", tmp_path, own)) == {"forward/mask": "PASS"}


def test_the_last_digit_of_a_gradient_far_above_the_others_is_no_difference(tmp_path):
    spike = np.zeros(2**21, np.float32)
    spike[7] = 1.0
    recorded = GOOD | {"gradient/a.weight": spike, "gradient_noise/a.weight": 0.0}
    for far, outcome in ((1, "PASS"), (64, "FAIL")):
        other = spike.copy()
        other[7] += far * np.spacing(spike[7])
        tensors(dump(tmp_path, "backward", LOSSES, LOSSES), recorded, {**GOOD, "gradient/a.weight": other})
        assert outcomes(judge_stage("backward", tmp_path, PLAIN))["backward/gradient/a.weight"] == outcome
