"""The comparison itself: every kind of difference is seen, and what is written is read back."""

from __future__ import annotations

import pytest
from command_lists import ROOT, difference, placed, read_recorded
from record_original import render

ONE = {"step": "train", "cwd": ".", "cuda_visible_devices": "0", "log": "a.log", "argv": ["python", "a b"]}
TWO = ONE | {"step": "eval", "argv": ["python", "eval.py"]}


def test_equal_lists_do_not_differ():
    assert difference([ONE, TWO], [dict(ONE), dict(TWO)]) == ""
    assert difference([], []) == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "infer"),
        ("cwd", "deploy"),
        ("cuda_visible_devices", None),
        ("log", None),
        ("argv", ["python", "a", "b"]),
    ],
)
def test_each_fact_of_a_command_counts(field, value):
    found = difference([TWO, ONE], [TWO, ONE | {field: value}])
    assert found.startswith(f"command 2 of 2, {field}:")


def test_order_and_number_count():
    assert difference([ONE, TWO], [TWO, ONE]).startswith("command 1 of 2, step, argv:")
    assert "command 2: 2 expected, 1 planned; not got" in difference([ONE, TWO], [ONE])
    assert "command 2: 1 expected, 2 planned; not expected" in difference([ONE], [ONE, TWO])


LISTS = {
    "lite_train_lite_infer": [ONE | {"argv": ["python", "--epochs=1", "a b"]}, TWO | {"cwd": "deploy"}],
    "whole_train_whole_infer": [ONE | {"argv": ["python", "a b"]}, TWO | {"cwd": "deploy"}, TWO | {"log": None}],
    "whole_infer": [],
}


def test_what_is_written_is_read_back(tmp_path):
    (tmp_path / "a.jsonl").write_text(render("suite@1", LISTS))
    assert read_recorded(tmp_path / "a.jsonl") == LISTS
    assert list(read_recorded(tmp_path / "a.jsonl")) == list(LISTS)


def test_what_modes_have_in_common_is_written_once():
    own = {mode: [ONE | {"log": f"out/{mode}/a.log"}, TWO] for mode in ("whole_infer", "lite_train_lite_infer")}
    lines = render("suite@1", own).splitlines()
    assert len(lines) == 4
    assert "out/{MODE}/a.log" in lines[2]


def test_the_root_is_put_in_last(tmp_path):
    command = ONE | {"argv": ["python", f"--out={ROOT}/x"]}
    assert placed([command], tmp_path)[0]["argv"] == ["python", f"--out={tmp_path}/x"]
