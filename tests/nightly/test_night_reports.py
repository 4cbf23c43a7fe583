"""A night as JUnit XML and on GitHub."""

import html
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from dashboard_samples import case_report
from night_samples import NightSample, ended_night, item
from run_samples import CAUSE

from tipchain.core.json_text import as_json
from tipchain.errors import Outcome, UsageError
from tipchain.explain.findings import SourceLine
from tipchain.nightly.dashboard import render
from tipchain.nightly.executor import TAIL_LINES, Work
from tipchain.nightly.night_report import night_as_report
from tipchain.nightly.nights import MISSING, NIGHT, find_nights, read_results
from tipchain.nightly.timeline import read_timelines
from tipchain.report.ci import LISTED, SUMMARY_LIMIT, annotate_run, junit_xml, markdown, summarize_run, write_summary
from tipchain.report.terminal import render_ending, verdict_line

GOOD, BAD, LOST = item("alexnet"), item("mvf", device="gpu"), item("resnet")
CASE = item("vgg", kind="align", source="configs/vgg.yaml")
KIND = item("hrnet", chain="ptq_infer_python")
SMOKE = item("smoke", kind="command", mode="", source="")
REASON = "train[x] failed: exit 3 | `a` <b>"


@pytest.fixture
def night(tmp_path):
    sample = NightSample(tmp_path / "suite", 0, [GOOD, BAD, LOST, CASE, SMOKE], root=tmp_path)
    sample.end(GOOD, seconds=2.0)
    sample.end(BAD, Outcome.FAIL, REASON, log="one\n\x1b[31mtwo\x1b[0m\n\nthree </pre>\n")
    sample.end(CASE, Outcome.SKIP, "no data at /data/imagenet", log=None)
    sample.end(SMOKE, Outcome.ERROR, "ended by SIGSEGV")
    return sample


def junit_of(night):
    return junit_xml(night_as_report(read_results(night.folder)))


def annotations_of(night, environ):
    return annotate_run(
        night_as_report(read_results(night.folder)), Path(read_results(night.folder).plan.root), environ
    )


def summary_of(night, changed=()):
    report = night_as_report(read_results(night.folder), changed=changed)
    return summarize_run(report, verdict_line(report))


def test_nights_are_found_below_a_folder_of_manifests_of_nights_and_as_such(tmp_path):
    one = NightSample(tmp_path / "all" / "a", 1, [GOOD]).folder
    two = NightSample(tmp_path / "all" / "b", 0, [GOOD]).folder
    (tmp_path / "all" / "a" / ".trash").mkdir()
    (tmp_path / "all" / "a" / ".trash" / NIGHT).touch()
    (tmp_path / "all" / "a" / "20261101-220000-fffff").mkdir()  # killed before it was written down
    assert find_nights(tmp_path / "all") == [two, one]
    assert find_nights(tmp_path / "all" / "a") == find_nights(one) == [one]
    with pytest.raises(UsageError, match="is no folder of nights"):
        find_nights(tmp_path / "none")


def test_junit_calls_a_chain_by_its_kind(tmp_path):
    (case,) = ET.fromstring(junit_of(ended_night(tmp_path / "suite", 0, [KIND]))).iter("testcase")
    assert case.get("classname") == "ptq_infer_python"


def test_junit(night):
    root = ET.fromstring(junit_of(night))
    assert root.attrib == {
        "name": "suite",
        "tests": "5",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
        "time": "5.000",
    }
    (suite,) = root.findall("testsuite")
    facts = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert facts["versions.paddle"] == "3.3.1"
    assert facts["night"] == night.folder.name
    assert facts["verdict"] == f"3 of 5 items did not pass: mvf[whole_infer;gpu]: {REASON}"
    cases = {one.get("name"): one for one in root.iter("testcase")}
    assert list(cases) == [one.id for one in (GOOD, BAD, LOST, CASE, SMOKE)]
    assert len(cases[GOOD.id]) == 0
    assert (cases[GOOD.id].get("time"), cases[GOOD.id].get("classname")) == ("2.000", "chain")
    failure = cases[BAD.id].find("failure")
    assert failure.get("message") == REASON
    lines = failure.text.splitlines()
    assert lines[1].startswith("$ python -m tipchain run mvf whole_infer --json ")
    assert lines[1].endswith("/attempt-1/report.json")
    assert lines[-3:] == ["one", "two", "three </pre>"]
    assert f"items/{night.ended_file(BAD).parent.name}/attempt-1/output.log" in failure.text
    assert cases[LOST.id].find("error").get("message") == MISSING
    assert cases[CASE.id].find("skipped").get("message") == "no data at /data/imagenet"


def test_failed_items_are_annotated_at_their_source_in_the_checkout(night, tmp_path):
    (tmp_path / "mvf").touch()  # the third word of its call
    lines = annotations_of(night, {"GITHUB_WORKSPACE": str(tmp_path)})
    assert lines == [
        "::error file=mvf,title=suite%3A mvf[whole_infer;gpu]::train[x] failed: exit 3 | `a` <b>",
        f"::error title=suite%3A resnet[whole_infer;cpu]::{MISSING}",
        "::error title=suite%3A smoke[;cpu]::ended by SIGSEGV",
    ]
    # The project lies in a folder of the checkout.
    lines = annotations_of(night, {"GITHUB_WORKSPACE": str(tmp_path.parent)})
    assert f"file={tmp_path.name}/mvf," in lines[0]


def test_the_end_of_a_night(night):
    report = night_as_report(read_results(night.folder), seconds=7.0)
    told = render_ending(report).splitlines()
    assert " ".join(told[:2]) == f"3 of 5 items did not pass: mvf[whole_infer;gpu]: {REASON}"
    assert "  | two" in told
    assert any(line.startswith(f"SKIP   {CASE.id}") for line in told)
    assert told[-1] == "1 passed, 1 failed, 2 errors, 1 skipped in 7.0 s, exit code 1"
    stopped = night_as_report(read_results(night.folder), interrupted=True)
    assert LOST.id not in [one.command.id for one in stopped.results]
    assert render_ending(stopped).splitlines()[-1].startswith("next  tipchain nightly resume ")


def cells(row: str) -> list[str]:
    return [html.unescape(one).strip() for one in row.strip("|").split("|")]


def test_the_summary_tells_what_failed_what_changed_and_where(night):
    text = summary_of(night, ["torch 2.12.0 -> 2.13.0", "mvf[whole_infer;gpu]: PASS -> FAIL"])
    assert text.startswith("## ❌ 3 of 5 items did not pass&#58; ")
    assert "1 PASS, 1 FAIL, 2 ERROR, 1 SKIP" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [cells(row)[1] for row in rows[1:]] == [BAD.id, LOST.id, SMOKE.id]
    assert cells(rows[1])[2] == REASON
    assert cells(rows[1])[3].endswith("attempt-1/output.log")
    assert (
        "1 of 5 items have not ended: the night did not come to its end\ntorch 2.12.0 -&gt; 2.13.0\nmvf[whole" in text
    )
    assert "<pre>one\ntwo\nthree &lt;/pre&gt;</pre>" in text
    assert "1 of them: no data at /data/imagenet" in text
    assert "versions.torch: 2.13.0" in text


def test_the_summary_is_bounded(tmp_path):
    items = [item(f"net{one}") for one in range(400)]
    sample = NightSample(tmp_path / "suite", 0, items)
    for one in items:
        sample.end(one, Outcome.FAIL, "é" * 500, log="x" * 3000 + "\n" + "y" * 3000)
    text = summary_of(sample)
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert text.count("| ❌ FAIL |") == LISTED
    assert f"{400 - LISTED} more did not pass" in text
    assert "Environment" in text


def test_the_summary_goes_to_the_steps_file_behind_what_is_there(tmp_path):
    assert not write_summary("text", {})
    file = tmp_path / "summary.md"
    file.write_text("before\n")
    assert write_summary("text\n", {"GITHUB_STEP_SUMMARY": str(file)})
    assert file.read_text() == "before\ntext\n"
    write_summary("é" * SUMMARY_LIMIT, {"GITHUB_STEP_SUMMARY": str(file)})
    assert SUMMARY_LIMIT - 1 <= len(file.read_bytes()) <= SUMMARY_LIMIT
    file.read_text()  # no letter is cut in two
    write_summary("more", {"GITHUB_STEP_SUMMARY": str(file)})
    assert len(file.read_bytes()) <= SUMMARY_LIMIT


def test_nothing_of_a_users_text_is_markdown():
    nasty = "a|b `c` *d* _e_ [f](g) <h> #1 \\ ~i~ !j\nk & l\x1b[3m"
    made = markdown(nasty)
    assert not re.search(r"[|`*_\[\]()<>\\~!\n]", made)
    assert html.unescape(made) == "a|b `c` *d* _e_ [f](g) <h> #1 \\ ~i~ !j k & l [3m"


def test_the_end_of_a_log(tmp_path):
    work = Work(item=item("a"), attempt=1, folder=tmp_path, root=tmp_path)
    log = work.log
    assert work.tail() == []
    log.write_bytes(b"".join(b"line %d\n" % one for one in range(10_000)) + b"\xff end\n\n")
    found = work.tail()
    assert len(found) == TAIL_LINES
    assert found[-2:] == ["line 9999", "\ufffd end"]
    log.write_bytes(b"x" * 100_000)
    assert len(work.tail()) == 1


def test_the_cause_that_an_items_report_tells_is_its_reason(tmp_path):
    place, fix = SourceLine(file="nets/port.py", line=7, code="x"), "pass `epsilon=1e-05` to `bn`"
    epsilon = replace(CAUSE, code="epsilon", message="eps is wrong", fix=fix, explains=("forward/logits",), place=place)
    found = as_json(epsilon)
    sample = NightSample(tmp_path / "suite", 0, [CASE, BAD], root=tmp_path)
    causes = [{**found, "code": "rest", "explains": []}, found]
    sample.end(CASE, Outcome.FAIL, "exit code 1", report={**case_report(), "diagnoses": causes})
    sample.end(
        BAD, Outcome.FAIL, "exit code 1", report={**case_report(), "diagnoses": [{}]}
    )  # not one that can be read
    sample.finish()
    told = "eps is wrong (nets/port.py:7); fix: pass `epsilon=1e-05` to `bn`"
    case, other = ET.fromstring(junit_of(sample)).iter("testcase")
    assert [one.find("failure").get("message") for one in (case, other)] == [f"{told} (exit code 1)", "exit code 1"]
    assert (case.get("file"), case.get("line")) == ("nets/port.py", "7")
    lines = annotations_of(sample, {"GITHUB_WORKSPACE": str(tmp_path)})
    assert lines[0].startswith(f"::error file=nets/port.py,line=7,title=suite%3A epsilon::{told}%0A1 check failed")
    assert markdown("eps is wrong") in summary_of(sample)
    timelines, _ = read_timelines(find_nights(tmp_path / "suite"), 5, tmp_path)
    page = re.sub("</?code>", "`", render(timelines))
    assert page.count(told) == 3  # on top, in its cell, in its part
