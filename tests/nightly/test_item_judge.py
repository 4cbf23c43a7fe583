"""How items come out: exit code and report must say the same."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from run_samples import CAUSE
from stub_nights import begin, command, work_of

from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.explain.findings import SourceLine
from tipchain.nightly.executor import Ended
from tipchain.nightly.judge import judge
from tipchain.report.model import RunReport, report_json

PASS, FAIL, ERROR, SKIP = Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.SKIP


def report(code, *outcomes):
    parts = [
        {"subject": f"forward/{number}", "outcome": outcome, "reason": f"why {number}\n  found: x"}
        for number, outcome in enumerate(outcomes)
    ]
    return json.dumps({**report_json(RunReport()), "exit_code": code, "verdicts": parts})


def judged(tmp_path, text=None, *, wants=True, log="first\nlast\n", **ending):
    one = command("a", argv=("x", "{report}") if wants else ("x",), timeout_s=90.0)
    night, _ = begin(tmp_path, one)
    work = work_of(night, one)
    work.make_folder()
    for made, file in ((log, work.log), (text, work.report)):
        if made is not None:
            made(file) if callable(made) else file.write_text(made)
    return judge(work, Ended(id=one.id, attempt=1, **ending), night.folder, "local")


@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        (0, PASS, ""),
        (1, FAIL, "exit 1: last"),
        (2, ERROR, "exit 2: last"),
        (4, SKIP, "nothing was checked: last"),
        (245, ERROR, "exit 245: a process that it started was killed by SIGSEGV: last"),
        (255, FAIL, "exit 255: last"),
    ],
)
def test_exit_codes_of_items_without_a_report(tmp_path, code, outcome, reason):
    record = judged(tmp_path, wants=False, exit_code=code)
    assert (record.outcome, record.reason) == (outcome, reason)
    assert record.report == ""
    assert record.log.endswith("attempt-1/output.log")


@pytest.mark.parametrize(
    ("code", "text", "outcome", "reason"),
    [
        (0, report(0, "PASS"), PASS, ""),
        (1, report(1, "PASS", "ERROR", "FAIL"), FAIL, "forward/2: why 2"),
        (1, report(1, "PASS", "ERROR"), ERROR, "forward/1: why 1"),
        (4, report(4, "SKIP"), SKIP, "forward/0: why 0"),
        (0, report(1, "FAIL"), ERROR, "exit 0, but its report says 1"),
        (0, None, ERROR, "exit 0, but it left no report: last"),
        (0, report(0, "PASS")[:-5], ERROR, "exit 0, but its report cannot be read: is not JSON"),
        (0, '{"exit_code": 0, "results": []}', ERROR, "exit 0, but its report cannot be read"),
        (2, None, ERROR, "exit 2: last"),
    ],
)
def test_exit_code_and_report(tmp_path, code, text, outcome, reason):
    record = judged(tmp_path, text, exit_code=code)
    assert record.outcome is outcome
    assert record.reason.startswith(reason)


def test_a_cause_is_the_reason_the_one_that_checks_fail_because_of_first(tmp_path):
    place = SourceLine(file="a.py", line=7)
    cause = as_json(replace(CAUSE, message="eps\nis wrong", fix="pass `e=1`", explains=("forward/0",), place=place))
    document = json.loads(report(1, "FAIL"))
    for causes, reason in (
        ([{**cause, "message": "rest", "explains": []}, cause], "eps is wrong (a.py:7); fix: pass `e=1`"),
        ([], "forward/0: why 0"),
        ([{"code": 3}], "exit 1, but its report cannot be read: is not a run's report: ValueError diagnoses[0]"),
    ):
        folder = tmp_path / str(reason[:7])
        folder.mkdir()
        assert judged(folder, json.dumps({**document, "diagnoses": causes}), exit_code=1).reason.startswith(reason)


def link_to_another(path):
    (path.parent / "other.json").write_text(report(0, "PASS"))
    path.symlink_to("other.json")


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.write_text("[" * 100_000), Path.mkdir, link_to_another])
def test_a_report_that_cannot_be_read_is_no_pass(tmp_path, put):
    assert judged(tmp_path, put, exit_code=0).outcome is ERROR


def test_an_exit_code_that_is_no_number_is_none(tmp_path):
    record = judged(tmp_path, report(False), exit_code=0)
    assert (record.outcome, "ValueError exit_code: Expected `int`" in record.reason) == (ERROR, True)


@pytest.mark.parametrize("put", [os.mkfifo, lambda log: log.symlink_to("/etc/passwd"), Path.mkdir])
def test_a_log_that_an_item_replaced_is_neither_waited_for_nor_followed(tmp_path, put):
    record = judged(tmp_path, wants=False, log=put, exit_code=1)
    assert (record.outcome, record.reason) == (FAIL, "exit 1")


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ({"timed_out": True, "signal": 2}, "timed out after 1m 30s: last"),
        ({"signal": 9}, "killed by SIGKILL (the kernel does that when memory runs out)"),
        ({"signal": 99}, "killed by signal 99"),
        ({"failure": "cannot be started", "exit_code": 127}, "cannot be started"),
        ({}, "ended without an exit code"),
    ],
)
def test_endings_without_an_exit_code_of_their_own(tmp_path, ending, reason):
    record = judged(tmp_path, report(0, "PASS"), **ending)
    assert (record.outcome, record.reason) == (ERROR, reason)


def test_negative_times_are_none(tmp_path):
    assert judged(tmp_path, wants=False, exit_code=0, seconds=-3.0).seconds == 0.0


def test_long_reasons_are_cut_and_in_one_line(tmp_path):
    reason = judged(tmp_path, wants=False, exit_code=1, log="word " * 1000 + "\n").reason
    assert len(reason) <= 300
    assert reason.endswith(" ...")
