"""A night as JUnit XML and on GitHub."""

from __future__ import annotations

import html
import os
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from dashboard_samples import case_report
from night_samples import NightSample, item

from tipchain.errors import Outcome, RecordError, UsageError
from tipchain.nightly.dashboard import render
from tipchain.nightly.judge import LINES, log_tail
from tipchain.nightly.night_report import SHOWN, annotate, night_junit, summary
from tipchain.nightly.nights import MISSING, NIGHT, find_nights, read_results
from tipchain.nightly.timeline import read_timelines
from tipchain.report.ci import SUMMARY_LIMIT, markdown, write_summary

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


def test_a_night_is_read_with_what_is_not_there(night):
    results = read_results(night.folder)
    assert results.outcomes == (Outcome.PASS, Outcome.FAIL, Outcome.ERROR, Outcome.SKIP, Outcome.ERROR)
    assert results.of(LOST).reason == MISSING
    assert not results.finished
    assert results.facts["versions.torch"] == "2.13.0"
    night.finish()
    assert read_results(night.folder).finished


def test_records_of_another_night_or_half_written_ones_are_none(night):
    night.ended_file(GOOD).write_text(night.ended_file(GOOD).read_text().replace(night.token, "another"))
    night.ended_file(BAD).write_bytes(night.ended_file(BAD).read_bytes()[:40])
    results = read_results(night.folder)
    assert results.of(GOOD).outcome is results.of(BAD).outcome is Outcome.ERROR
    (night.folder / NIGHT).write_text("{")
    with pytest.raises(RecordError, match="is not a night"):
        read_results(night.folder)


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
    sample = NightSample(tmp_path / "suite", 0, [KIND], root=tmp_path)
    sample.end(KIND)
    (case,) = ET.fromstring(night_junit(read_results(sample.folder))).iter("testcase")
    assert case.get("classname") == "suite.ptq_infer_python.hrnet"


def test_junit(night):
    root = ET.fromstring(night_junit(read_results(night.folder)))
    assert root.attrib | {"time": ""} == {
        "name": "suite",
        "tests": "5",
        "failures": "1",
        "errors": "2",
        "skipped": "1",
        "time": "",
    }
    suites = root.findall("testsuite")
    assert [one.get("name") for one in suites] == ["suite: chains", "suite: alignment cases", "suite: commands"]
    facts = {one.get("name"): one.get("value") for one in suites[0].iter("property")}
    assert facts["versions.paddle"] == "3.3.1"
    assert facts["night"] == night.folder.name
    cases = {one.get("name"): one for one in root.iter("testcase")}
    assert list(cases) == [one.id for one in (GOOD, BAD, LOST, CASE, SMOKE)]
    assert len(cases[GOOD.id]) == 0
    assert cases[GOOD.id].get("time") == "2.000"
    assert cases[GOOD.id].get("file") == GOOD.source
    assert cases[GOOD.id].get("classname") == "suite.chain.alexnet"
    failure = cases[BAD.id].find("failure")
    assert failure.get("message") == REASON
    lines = failure.text.splitlines()
    assert lines[1].startswith("$ python -m tipchain run mvf whole_infer --json ")
    assert lines[1].endswith("/attempt-1/report.json")
    assert lines[-4:] == ["one", "two", "", "three </pre>"]
    assert f"items/{night.ended_file(BAD).parent.name}/attempt-1/output.log" in failure.text
    assert cases[LOST.id].find("error").get("message") == MISSING
    assert cases[CASE.id].find("skipped").get("message") == "no data at /data/imagenet"
    assert "file" not in cases[SMOKE.id].attrib


def test_failed_items_are_annotated_at_their_source_in_the_checkout(night, tmp_path):
    lines = annotate(read_results(night.folder), {"GITHUB_WORKSPACE": str(tmp_path)})
    assert len(lines) == 3
    assert lines[0].startswith(
        f"::error file={BAD.source},line=1,title=mvf[whole_infer;gpu]::FAIL: train[x] failed: exit 3 | `a` <b>%0Alog: "
    )
    assert lines[1].startswith("::error title=smoke[;cpu]::ERROR: ended by SIGSEGV%0A")
    assert lines[2].startswith("::error title=suite::1 of 5 items have not ended: ")
    # The project lies in a folder of the checkout.
    lines = annotate(read_results(night.folder), {"GITHUB_WORKSPACE": str(tmp_path.parent)})
    assert f"file={tmp_path.name}/{BAD.source}," in lines[0]


def test_annotations_are_escaped_and_not_endless(tmp_path):
    items = [item(f"net{one}", source="a,b:c%.txt") for one in range(SHOWN + 3)]
    sample = NightSample(tmp_path / "suite", 0, items, root=tmp_path)
    for one in items:
        sample.end(one, Outcome.FAIL, "100 %\n::error::no")
    lines = annotate(read_results(sample.folder), {"GITHUB_WORKSPACE": str(tmp_path)})
    assert len(lines) == SHOWN + 1
    assert "file=a%2Cb%3Ac%25.txt," in lines[0]
    assert "::FAIL: 100 %25 ::error::no%0Alog: " in lines[0]
    assert all("\n" not in line for line in lines)
    assert "3 more items" in lines[-1]


def cells(row: str) -> list[str]:
    return [html.unescape(one).strip() for one in row.strip("|").split("|")]


def test_the_summary_tells_what_failed_what_changed_and_where(night):
    text = summary(read_results(night.folder), ["torch 2.12.0 -> 2.13.0", "mvf[whole_infer;gpu]: PASS -> FAIL"])
    assert text.startswith("## ❌ suite: 2 of 5 items did not pass\n")
    assert "**1 passed, 1 failed, 1 error, 1 skipped**" in text
    assert "**1 of 5 items have not ended: the night did not come to its end.**" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert [cells(row)[1] for row in rows[1:]] == [BAD.id, SMOKE.id]
    assert cells(rows[1])[2] == REASON
    assert cells(rows[1])[3].endswith("attempt-1/output.log")
    assert "### What changed\n\n<pre>torch 2.12.0 -&gt; 2.13.0\nmvf[whole" in text
    assert "<pre>one\ntwo\n\nthree &lt;/pre&gt;</pre>" in text
    assert "1 of them: no data at /data/imagenet" in text
    assert "versions.torch: 2.13.0" in text
    assert "What changed" not in summary(read_results(night.folder))


def test_the_summary_of_a_night_that_passed(tmp_path):
    sample = NightSample(tmp_path / "suite", 0, [GOOD])
    sample.end(GOOD)
    sample.finish()
    text = summary(read_results(sample.folder))
    assert text.startswith("## ✅ suite: 1 of 1 items passed\n")
    assert "|" not in text


def test_the_summary_is_bounded(tmp_path):
    items = [item(f"net{one}") for one in range(400)]
    sample = NightSample(tmp_path / "suite", 0, items)
    for one in items:
        sample.end(one, Outcome.FAIL, "é" * 5000, log="x" * 3000 + "\n" + "y" * 3000)
    text = summary(read_results(sample.folder))
    assert len(text.encode()) <= SUMMARY_LIMIT
    assert text.count("| ❌ FAIL |") == SHOWN
    assert f"{400 - SHOWN} more did not pass" in text
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
    log = tmp_path / "log"
    assert log_tail(log) == []
    log.write_bytes(b"".join(b"line %d\n" % one for one in range(10_000)) + b"\xff end\n\n")
    found = log_tail(log)
    assert len(found) == LINES
    assert found[-2:] == ["line 9999", "\ufffd end"]
    log.write_bytes(b"x" * 100_000)
    assert len(log_tail(log)) == 1


def test_a_log_that_an_item_replaced_is_neither_waited_for_nor_followed(tmp_path):
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "none"):
        assert log_tail(tmp_path / name) == []
    assert log_tail(tmp_path / "secret") == ["secret"]


def test_what_xml_cannot_hold_is_not_in_it(night):
    results = read_results(night.folder)
    renamed = replace(results, night=replace(results.night, plan=replace(results.plan, name="a\x00b")))
    assert ET.fromstring(night_junit(renamed)).get("name") == "a?b"


def test_the_cause_that_an_items_report_tells_is_its_reason(tmp_path):
    found = {
        "code": "epsilon",
        "port_path": "bn",
        "message": "eps is wrong",
        "evidence": "",
        "explained": 1.0,
        "fix": "pass `epsilon=1e-05` to `bn`",
        "stage": "forward",
        "explains": ["forward/logits"],
        "place": {"file": "nets/port.py", "line": 7, "code": "x"},
    }
    sample = NightSample(tmp_path / "suite", 0, [CASE, BAD], root=tmp_path)
    causes = [{**found, "code": "rest", "explains": []}, found]
    sample.end(CASE, Outcome.FAIL, "exit code 1", report={**case_report(), "diagnoses": causes})
    sample.end(
        BAD, Outcome.FAIL, "exit code 1", report={**case_report(), "diagnoses": [{}]}
    )  # not one that can be read
    results = read_results(sample.finish())
    told = "eps is wrong (nets/port.py:7); fix: pass `epsilon=1e-05` to `bn`"
    case, other = ET.fromstring(night_junit(results)).iter("testcase")
    assert [one.find("failure").get("message") for one in (other, case)] == [told, "exit code 1"]
    assert (other.get("file"), other.get("line")) == ("nets/port.py", "7")
    lines = annotate(results, {"GITHUB_WORKSPACE": str(tmp_path)})
    assert lines[0].startswith(
        f"::error file=nets/port.py,line=7,title=vgg%3Aalign[whole_infer;cpu]::{told}%0AFAIL: exit code 1%0Alog: "
    )
    assert f"file={BAD.source},line=1" in lines[1]
    assert markdown(told) in summary(results)
    timelines, _ = read_timelines(find_nights(tmp_path / "suite"), 5, tmp_path)
    page = re.sub("</?code>", "`", render(timelines))
    assert page.count(told) == 3  # on top, in its cell, in its part


def test_a_summary_and_its_annotations_are_in_the_readers_language(night, monkeypatch):
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    results = read_results(night.folder)
    text = summary(results, ["a", "b"])
    assert "| 结果 | 任务 | 原因 | 日志 |" in text
    assert "### 有何变化" in text
    assert "任务用时合计" in text
    assert not re.search("did not pass|not ended|items took|were skipped|was skipped|of them|Last lines", text)
    assert any("日志：" in line for line in annotate(results))
    junit = night_junit(results)
    monkeypatch.setenv("TIPCHAIN_LANG", "en")
    assert night_junit(results) == junit
    assert "### What changed" in summary(results, ["a"])
