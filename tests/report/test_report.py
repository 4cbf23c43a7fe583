"""Reports: JSON round trip, exit codes, text, JUnit, and which is that of a run."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from run_samples import tensor_diff

from tipchain.chain.plan import Command, Result
from tipchain.core.files import atomic_write
from tipchain.errors import ExitCode, Outcome, RecordError
from tipchain.numbers.verdicts import Verdict
from tipchain.report.ci import junit_xml
from tipchain.report.model import RunReport, dump_report, load_report, parse_report, report_json
from tipchain.report.terminal import render_report


def test_no_number_of_a_log_is_cut():
    tail = ("mean diff: check passed: False, " + "x" * 40 + ", value: 151.62576293945312",)
    text = render_report(report(result(outcome=Outcome.FAIL, reason="exit 1", tail=tail)))
    assert text.endswith(("  |   151.62576293945312", "value: 151.62576293945312"))
    assert all(len(line) <= 80 for line in text.splitlines())


def result(name="train[x]", outcome=Outcome.PASS, reason="", **more):
    command = Command(id=name, step="train", argv=("python", "a b.py"), env={"A": "1"}, log="r/x.log", needs=("y",))
    return Result(command=command, outcome=outcome, reason=reason, log="x.log", seconds=1.25, **more)


def report(*results, verdicts=(), **more):
    values = {"title": "p.txt", "mode": "whole_infer", "run": "out/runs/1", "started": "2026-01-01T00:00:00+00:00"}
    return RunReport(**values, seconds=83.2, results=results, verdicts=verdicts, versions={"python": "3"}, **more)


FAILED = result("eval[x]", Outcome.FAIL, "exit 3: \x1b[31mboom\x07", exit_code=3, tail=("one", "boom \x00"))
SKIPPED = result("infer[x]", Outcome.SKIP, "not run: eval[x] failed")
DIFF = tensor_diff(mean_abs=math.inf, max_abs=math.inf, min_abs=-math.inf, actual_nan=1, mismatched_nan=1)
VERDICT = Verdict(outcome=Outcome.FAIL, subject="forward/logits", reason="worst at (1, 2)", diff=DIFF)


def test_json_round_trip():
    whole = report(result(peak_memory_mb=12.5), FAILED, SKIPPED, verdicts=(VERDICT,), notes=("n",), interrupted=True)
    text = dump_report(whole)
    assert parse_report(json.loads(text)) == whole
    assert "NaN" not in text.replace('"NaN"', "")
    assert '"max_abs": "Infinity"' in text


def test_the_kind_of_chain_survives_the_round_trip_and_stands_in_junit():
    own = report(result(), chain="dy2static")
    assert parse_report(json.loads(dump_report(own))).chain == "dy2static"
    suites = [ET.fromstring(junit_xml(one).split("\n", 1)[1]) for one in (own, report(result()))]
    found = [{one.get("name"): one.get("value") for one in suite.iter("property")} for suite in suites]
    passed = {"verdict": "the chain passed: 1 command", "python": "3"}
    assert found == [{"chain": "dy2static", **passed}, passed]
    assert "chain" not in json.loads(dump_report(report()))


def test_exit_codes():
    assert report(result()).exit_code is ExitCode.PASSED
    assert report(result(), FAILED).exit_code is ExitCode.FAILED
    assert report(result(outcome=Outcome.ERROR)).exit_code is ExitCode.FAILED
    assert report(SKIPPED).exit_code is ExitCode.NOTHING_CHECKED
    assert report().exit_code is ExitCode.NOTHING_CHECKED
    assert report(result(), verdicts=(VERDICT,)).exit_code is ExitCode.FAILED
    assert report(result(), interrupted=True).exit_code is ExitCode.INTERRUPTED


def test_a_loaded_report_computes_its_exit_code_anew(tmp_path):
    data = json.loads(dump_report(report(FAILED)))
    (tmp_path / "report.json").write_text(json.dumps({**data, "exit_code": 0}))
    assert load_report(tmp_path).exit_code is ExitCode.FAILED


@pytest.mark.parametrize("change", [{"seconds": "soon"}, {"command": {}}])
def test_a_damaged_result_is_refused_not_rendered(tmp_path, change):
    data = json.loads(dump_report(report(FAILED)))
    data["results"][0].update(change)
    (tmp_path / "report.json").write_text(json.dumps(data))
    with pytest.raises(RecordError, match="is not a run's report"):
        load_report(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', "nonsense", '{"format": 1, "title": "x"}'])
def test_what_is_no_report_is_refused(tmp_path, text):
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(RecordError, match="report"):
        load_report(file)
    with pytest.raises(RecordError, match="cannot be read"):
        load_report(tmp_path / "absent")


def test_text_for_80_columns():
    text = render_report(report(result(), FAILED, SKIPPED, verdicts=(VERDICT,)))
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert "PASS         1.2  train[x]  x.log" in lines
    assert "FAIL         1.2  eval[x]  x.log" in lines
    assert "                  not run: eval[x] failed" in lines
    assert "FAIL     forward/logits: worst at (1, 2)" in lines
    assert "  $ python 'a b.py'" in lines
    assert "  log: x.log, its last lines:" in lines
    assert not set("\x1b\x07\x00") & set(text), "plain without color, and without a program's escapes"
    assert "\x1b[32mPASS" in render_report(report(result()), color=True)


def test_junit():
    text = junit_xml(report(result(), FAILED, SKIPPED, result("e", Outcome.ERROR, "gone"), verdicts=(VERDICT,)))
    root = ET.fromstring(text.split("\n", 1)[1])
    suite = root.find("testsuite")
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "5", "failures": "2", "errors": "1", "skipped": "1"}
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    assert cases["eval[x]"].find("failure").get("message").startswith("exit 3")
    assert cases["infer[x]"].find("skipped").get("message") == "not run: eval[x] failed"
    assert cases["logits"].get("classname") == "verdict.forward"


def test_documents_are_utf_8_in_every_locale(tmp_path):
    atomic_write(tmp_path / "report.json", dump_report(report(FAILED._replace(tail=("caf\xe9 \udcff",)))))
    words = [sys.executable, "-m", "tipchain", "report", str(tmp_path), "--json", "-"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=env, capture_output=True, check=False)
    assert json.loads(done.stdout.decode("utf-8"))["results"][0]["tail"] == ["caf\xe9 \udcff"]


def test_missing_artifacts_stand_in_the_details_once_and_below_the_run():
    missing = ("checkpoint: ./out/runs/1/a/best.pdparams", "program: out/runs/1/a/x.json")
    bad = FAILED._replace(reason=f"exit 0, but no {missing[0]}", missing=missing)
    lines = render_report(report(bad)).splitlines()
    assert "  exit 0, but no checkpoint: a/best.pdparams" in lines
    assert "  missing: program: a/x.json" in lines
    assert "  missing: checkpoint: a/best.pdparams" not in lines


def test_results_are_written_one_by_one_as_if_at_once():
    odd = FAILED._replace(tail=('"results": []', "line\u2028separator", "a\nb"))
    whole = replace(report(odd, FAILED), title='"results": []')
    head = {"format": 1, "outcome": "FAIL", "verdict": "the chain FAILED at eval[x]: exit 3: boom"}
    at_once = json.dumps({**head, **report_json(whole)}, indent=1, ensure_ascii=False, allow_nan=False)
    assert dump_report(whole) == at_once + "\n"


def write(file, title="a run"):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dump_report(RunReport(title=title, mode="", run="", started="", seconds=1.0)))


@pytest.mark.parametrize("name", ["report.json", "log_reprod/alignment.json", "log_reprod/alignment_loss.json"])
def test_a_runs_folder_serves_whatever_ran(tmp_path, name):
    write(tmp_path / "runs" / "one" / name)
    assert load_report(tmp_path / "runs" / "one").title == "a run"
    (tmp_path / "log_reprod").mkdir(exist_ok=True)
    for inside in ("log_reprod", "runs"):
        with pytest.raises(RecordError, match=r"the latest run is .*/runs/one"):
            load_report(tmp_path / inside)
    with pytest.raises(RecordError, match=r"the latest run is .*/runs/one"):
        load_report(tmp_path)


def test_a_chains_report_stands_for_its_alignments_and_several_are_named(tmp_path):
    write(tmp_path / "log_reprod" / "alignment_loss.json")
    write(tmp_path / "log_reprod" / "alignment_data.json")
    with pytest.raises(RecordError, match=r"found: alignment_data\.json, alignment_loss.json"):
        load_report(tmp_path)
    write(tmp_path / "report.json", title="the chain")
    assert load_report(tmp_path).title == "the chain"


@pytest.mark.parametrize("name", report_json(RunReport()))
def test_a_report_that_lacks_what_every_report_has_is_none(tmp_path, name):
    write(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    del document[name]
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(RecordError, match=f"is not a run's report: ValueError {name} is missing"):
        load_report(tmp_path)
