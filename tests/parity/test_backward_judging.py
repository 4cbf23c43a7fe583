"""Judging backward from files alone; no framework is needed."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from tipchain.modes import dump_name, tensors_name
from tipchain.numbers.dumps import save_record
from tipchain.parity.stages.judging import Rules, judge_stage

LOSSES = {f"loss_{n}": np.array([2.0 - 0.1 * n]) for n in range(4)} | {f"lr_{n}": np.array([1e-4]) for n in range(4)}
TENSORS = {
    "gradient/w": np.array([0.5, -0.5]),
    "parameter/w": np.array([1.0, 2.0]),
    "update_rms/w": np.array(1e-4),
    "buffer/bn.running_mean": np.array([0.1, 0.2]),
}


def judge(folder, change=None, *, rules=None, batches=(None, None), noise=None):
    """Judge two equal dumps, in whose port ``change`` replaces values (None: leaves them out)."""
    noises = {} if noise is None else {"gradient_noise/w": np.array(noise)}
    for side, seen in zip(("torch", "paddle"), batches, strict=True):
        changes = change if side == "paddle" and change else {}
        mine = [
            {
                key: value
                for key, value in (values | {k: v for k, v in changes.items() if k in values}).items()
                if value is not None
            }
            for values in (LOSSES, TENSORS)
        ]
        details = {"first_batches": seen, "batches": str(seen)} if seen else {}
        meta = {"side": side, "stage": "backward", "details": details}
        save_record(folder / dump_name("backward", side), mine[0], meta=meta)
        own = noises if side == "torch" else {}
        save_file({k: np.asarray(v) for k, v in (mine[1] | own).items()}, folder / tensors_name("backward", side))
    return judge_stage("backward", folder, rules or Rules(own={}))


def failures(judgement):
    return {one.subject: one.reason for one in judgement.verdicts if one.outcome.value != "PASS"}


def test_every_key_is_judged(tmp_path):
    judgement = judge(tmp_path)
    assert failures(judgement) == {}
    subjects = [verdict.subject for verdict in judgement.verdicts]
    assert len(subjects) == len(set(subjects)) == len(LOSSES) + 3


@pytest.mark.parametrize(
    ("change", "words"),
    [({"buffer/bn.running_mean": np.array([0.1, 0.3])}, "not close"), ({"loss_1": None}, "missing in the port")],
)
def test_what_differs_or_is_missing_fails(tmp_path, change, words):
    (key,) = change
    found = failures(judge(tmp_path, change))
    assert set(found) == {f"backward/{key}"}
    assert words in found[f"backward/{key}"]


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
    assert words in failures(judge(tmp_path, batches=(BATCHES, batches)))["backward/batches"]


@pytest.mark.parametrize(
    ("noise", "change", "outcome", "words"),
    [
        (
            2e-3,
            {"gradient/w": np.array([0.505, -0.5])},
            "PASS",
            "0.01 of the model's largest RMS, allowed 0.0001; the reference's own moves by 0.004",
        ),
        (2e-3, {"gradient/w": np.array([0.507, -0.5])}, "FAIL", "allowed max <= 5.00606e-05"),
        (2e-3, {"gradient/w": np.array([np.nan, -0.5])}, "FAIL", "NaN"),
        (2e-3, {"parameter/w": np.array([1.0, 2.0 + 2e-6])}, "PASS", "0.02 of"),
        (2e-3, {"parameter/w": np.array([1.0, 2.0 + 4e-6])}, "FAIL", "allowed 0.01"),
        (0.1, {"gradient/w": np.array([0.6, -0.5])}, "SKIP", "rounding hides every difference"),
        (np.nan, {"gradient/w": np.array([0.505, -0.5])}, "FAIL", "not close"),
    ],
)
def test_a_gradient_may_move_as_far_as_rounding_moves_torchs_own(tmp_path, noise, change, outcome, words):
    judgement = judge(tmp_path, change, noise=noise)
    (subject,) = (f"backward/{key}" for key in change)
    found = {one.subject: one for one in judgement.verdicts}
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
def test_steps_where_a_gradient_is_rounding_alone_are_not_judged(tmp_path, monkeypatch, parameter, outcome):
    """Adam takes whole steps there: a key's bias in attention failed in float32, however right the port was."""
    monkeypatch.setitem(TENSORS, "gradient/w", np.array([0.5, 1e-8]))
    judgement = judge(tmp_path, {"parameter/w": np.array(parameter)}, noise=1e-7)
    found = next(one for one in judgement.verdicts if one.subject == "backward/parameter/w")
    assert found.outcome.value == outcome
    assert ("rounding hides 1 of 2 elements" in found.reason) is (outcome == "SKIP")
