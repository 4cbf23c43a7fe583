"""Dumps named on the command line: what cannot serve is refused before anything runs."""

import numpy as np
import pytest

from tipchain.errors import Outcome, RecordError, UsageError
from tipchain.modes import dump_name
from tipchain.numbers.dumps import save_record
from tipchain.parity.align import adopt_dumps, check_dumps
from tipchain.parity.stages.judging import Rules, judge_stage

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
    (verdict,) = judge_stage("inference", tmp_path / "alone", Rules(own={})).verdicts
    assert verdict.outcome is Outcome.ERROR, "never one file as both sides"
    assert dump_name("inference", "torch") in verdict.reason
    (tmp_path / "both").mkdir()
    save_record(tmp_path / dump_name("inference", "torch"), {"acc_top1": np.array([70.0])})
    adopt_dumps({"paddle": own}, ["inference"], tmp_path / "both")
    (verdict,) = judge_stage("inference", tmp_path / "both", Rules(own={})).verdicts
    assert verdict.outcome is Outcome.FAIL
