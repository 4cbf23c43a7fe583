import io
import re
from math import nan

import numpy as np

from tipchain.errors import Outcome
from tipchain.numbers.tolerance import Tolerance
from tipchain.numbers.verdicts import Verdict, compare, write_diff_log

PREFIX = re.compile(r"^\[\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\] root INFO: ")


def logged(reference, port, tolerance, **options):
    stream = io.StringIO()
    passed = write_diff_log(None, compare(reference, port, tolerance), tolerance, stream=stream, **options)
    lines = stream.getvalue().splitlines()
    assert all(PREFIX.match(line) for line in lines)
    return passed, [PREFIX.sub("", line) for line in lines]


def test_reprod_logs_lines_in_full_precision():
    expected, actual = np.array([1, 2], np.float32), np.array([1, 2.0000002], np.float32)
    passed, lines = logged({"logits": expected}, {"logits": actual}, Tolerance(threshold=1e-6))
    assert passed
    assert lines == ["logits: ", "\tmean diff: check passed: True, value: 1.1920928955078125e-07", "diff check passed"]


def test_all_methods_and_the_stage_taken_off(tmp_path):
    verdicts = [
        Verdict(outcome=v.outcome, subject=f"forward/{v.subject}", reason=v.reason, diff=v.diff)
        for v in compare({"a": np.zeros(2)}, {"a": np.ones(2)}, Tolerance(method="all", threshold=0.5))
    ]
    tolerances = {"forward/a": Tolerance(method="all", threshold=0.5)}
    path, stream = tmp_path / "deep" / "x.log", io.StringIO()
    assert not write_diff_log(path, verdicts, tolerances, stage="forward", stream=stream)
    assert path.read_text() == stream.getvalue()
    assert [PREFIX.sub("", line) for line in path.read_text().splitlines()] == [
        "a: ",
        "\tmin diff: check passed: False, value: 1.0",
        "\tmax diff: check passed: False, value: 1.0",
        "\tmean diff: check passed: False, value: 1.0",
        "diff check failed",
    ]


def test_what_has_no_value_is_said_in_words():
    passed, lines = logged(
        {"gone": np.ones(2), "shape": np.zeros((2, 1)), "kind": np.zeros(2), "empty": np.zeros(0)},
        {"shape": np.zeros((1, 2)), "kind": np.zeros(2, int), "empty": np.zeros(0), "more": np.ones(1)},
        Tolerance(threshold=1e-6),
    )
    assert not passed
    assert lines == [
        "gone: ",
        "\tFAIL: missing in the port",
        "shape: ",
        "\tFAIL: shapes differ: expected (2, 1), actual (1, 2)",
        "kind: ",
        "\tmean diff: check passed: True, value: 0.0",
        "\tFAIL: dtype kinds differ: expected float64, actual int64",
        "empty: ",
        "\tERROR: nothing was compared: the tensor is empty, shape (0,)",
        "more: ",
        "\tFAIL: not in the reference",
        "diff check failed",
    ]


def test_nan_never_passes():
    passed, lines = logged({"a": np.array([nan])}, {"a": np.array([nan])}, Tolerance(threshold=1e-6))
    assert not passed
    assert lines[1:] == ["\tmean diff: check passed: False, value: nan", "diff check failed"]


def test_no_verdict_and_only_skips_do_not_pass():
    skip = Verdict(outcome=Outcome.SKIP, subject="a", reason="known deviation")
    for verdicts, end in (([], "diff check failed"), ([skip, skip], "INFO: nothing was compared")):
        stream = io.StringIO()
        assert not write_diff_log(None, verdicts, Tolerance(threshold=1.0), stream=stream)
        assert stream.getvalue().endswith(f"{end}\n")
