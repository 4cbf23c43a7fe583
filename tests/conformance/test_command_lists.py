"""The comparison itself: every kind of difference is seen, and lists that cannot be read are refused."""

from __future__ import annotations

import pytest
from command_lists import difference, placed
from sample_lists import read_commands

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


def test_a_list_is_read_as_it_says():
    text = "train CVD=0 log=a.log\n  python\n  'a {WORD}'\neval CVD=0 cwd=. log=a.log\n  python {MORE}\n"
    assert read_commands(text, {"WORD": "b", "MORE": "eval.{END}", "END": "py"}, "here") == [ONE, TWO]


def test_the_root_is_put_in_last(tmp_path):
    (command,) = read_commands("train\n  python --out={ROOT}/x\n", {"ROOT": "{ROOT}"}, "here")
    assert placed([command], tmp_path)[0]["argv"] == ["python", f"--out={tmp_path}/x"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("train\n  {NOBODY}\n", "nothing is called NOBODY"),
        ("  python a.py\n", "words without a command"),
        ("train lgo=a.log\n  python\n", "'lgo=a.log' in"),
        ("train\n  {A}\n", "names that name each other"),
    ],
)
def test_a_list_with_a_slip_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        read_commands(text, {"A": "{B}", "B": "{A}"}, "here")
