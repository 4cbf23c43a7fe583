"""Dumps named on the command line: what cannot serve is refused before anything runs."""

from __future__ import annotations

import numpy as np
import pytest

from tipchain.errors import RecordError, UsageError
from tipchain.parity.align import check_dumps
from tipchain.parity.record import save_record

ARRAYS = {"acc_top1": np.array([80.0])}


def test_a_dump_of_another_side_or_stage_is_refused(tmp_path):
    own = save_record(tmp_path / "own", ARRAYS, meta={"side": "torch", "stage": "metric"})
    check_dumps({"torch": own}, ["metric"])
    with pytest.raises(UsageError, match=r"--paddle-dump: .* holds the torch side's metric dump"):
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
