"""A run's page, JUnit and GitHub's annotations: the cause is told once, and what follows refers to it."""

import re
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from chain_samples import TEMPLATE, edit
from programs import completed
from run_samples import CAUSE, NASTY, aligned, chain, misaligned, verdict

from tipchain.chain.plan import Command, Result
from tipchain.errors import Outcome, UsageError
from tipchain.explain.findings import SourceLine
from tipchain.report.ci import annotate_run, junit_xml, summarize_run
from tipchain.report.model import RunReport
from tipchain.report.page import render_run
from tipchain.report.write import with_page


def text_of(report: RunReport, part: str = "main") -> str:
    """Return what the page says, without markup, in one of its parts."""
    page = render_run(report).replace("<wbr>", "")
    if part != "main":
        page = page[page.index(f'id="{part}"') :].partition("</section>")[0].partition("</header>")[0]
    return " ".join(re.sub("<(script|style).*?</\\1>|<[^>]*>", " ", page, flags=re.DOTALL).split())


def test_the_verdict_is_not_lost_with_a_page_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError, match=r"run\.html"):
        with_page(misaligned(), tmp_path / "file" / "run.html")
    assert capsys.readouterr().err.startswith("NOT the same model: ")


def test_the_page_begins_with_what_ran_why_it_failed_and_the_line_as_it_should_be():
    told = text_of(misaligned(), "verdict")
    order = (
        "FAIL NOT the same model",
        "reference nets.torch_side",
        "port nets.paddle_side",
        "2026-11-01 22:00",
        "commit 1a2b3c4",
        f"Cause: {CAUSE.message.replace('`', '')}",
        "Fix:",
        "port nets/paddle_side.py:34 x = F.avg_pool2d(x, 3, stride=2, padding=1)",
        "as it should be x = F.avg_pool2d(x, 3, stride=2, padding=1, exclusive=False)",
        "reference nets/torch_side.py:31",
        "explains 100 % of the error",
        "tried 12 settings",
        "3 checks failed because of it",
        "Not explained: lr: the live models",
    )
    places = [told.index(one) for one in order]
    assert places == sorted(places)


def test_stages_tell_how_close_they_are_or_what_they_follow_from():
    told = text_of(misaligned(), "stages")
    assert "FAIL forward 1 of 1 check did not pass because of cause 1 check" in told
    assert "FAIL backward 2 of 42 checks did not pass follows from cause 1 check" in told
    assert "FAIL lr 1 of 1 check did not pass lr_3 : NaN in the port" in told
    assert "lr_3 FAIL undefined NaN in the port" in told.replace("  ", " ")
    assert "∞" not in told
    passed = text_of(aligned(), "stages")
    assert "PASS forward 1 check 3 % of the tolerance" in passed
    assert "PASS loss 1 check every number equal" in passed
    assert "Cause" not in text_of(aligned())


def test_a_chains_page_has_its_steps_and_the_end_of_the_log_of_what_failed_is_open():
    page = render_run(chain())
    assert re.findall(r'<details class="step"( open)?>', page) == ["", " open", "", ""]
    told = text_of(chain(), "steps")
    assert "61.3 s, loss=0.31 avg_ips=812.5" in told
    assert "missing: eval.json log: eval.log epoch 0 loss 2.30" in told
    assert "SKIP infer[autocast=null;trainer=norm_train] not run: export did not run" in told


@pytest.mark.parametrize("report", [misaligned(NASTY), chain(NASTY)])
def test_nothing_of_a_users_text_is_markup_or_control(report):
    page = render_run(report, verdict=f"x {NASTY}", command=f"tipchain {NASTY}")
    assert len(re.findall("<script", page)) == 1
    assert "alert(&#34;1&#34;)" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", page)
    assert not re.search(r"https?://|url\(|\bsrc=", page)
    assert render_run(report, verdict=f"x {NASTY}", command=f"tipchain {NASTY}") == page


def test_interrupted_and_unchecked_runs_are_not_green():
    assert "INTERRUPTED" in text_of(replace(aligned(), interrupted=True), "verdict")
    skipped = aligned(verdict("train/acc", Outcome.SKIP, "not here", diff=None, share=None))
    assert "INCONCLUSIVE nothing was compared" in text_of(skipped, "verdict")
    assert 'class="verdict unknown"' in render_run(skipped)


def test_junit_tells_the_cause_once_and_the_others_refer_to_it():
    root = ET.fromstring(junit_xml(misaligned()))
    cases = {f"{one.get('classname')}/{one.get('name')}": one for one in root.iter("testcase")}
    first, *others = (cases[f"verdict.{one}"] for one in CAUSE.explains)
    assert first.find("failure").get("message") == CAUSE.summary
    assert (first.get("file"), first.get("line")) == ("nets/paddle_side.py", "34")
    assert "tried 12 settings" in first.find("failure").text
    for one in others:
        assert one.find("failure").get("message") == f"follows from forward/logits: {CAUSE.message}"
        assert "mean 0.2 > 1e-05" in one.find("failure").text
    assert cases["verdict.lr/lr_3"].find("failure").get("message") == "NaN in the port"
    assert "file" not in cases["verdict.lr/lr_3"].attrib


def test_junit_of_a_chain_whose_alignment_failed_names_the_cause():
    report = chain()
    failed = report.results[1]
    align = failed._replace(command=failed.command._replace(step="align"))
    root = ET.fromstring(junit_xml(replace(report, results=(align,), diagnoses=(CAUSE,))))
    (case,) = root.iter("testcase")
    assert case.find("failure").get("message").startswith(CAUSE.summary)
    assert case.get("file") == "nets/paddle_side.py"


def test_github_annotates_the_ports_line_and_what_no_cause_explains(tmp_path):
    (tmp_path / "sub").mkdir()
    lines = annotate_run(misaligned(), tmp_path / "sub", {"GITHUB_WORKSPACE": str(tmp_path)})
    assert lines[0].startswith(
        "::error file=sub/nets/paddle_side.py,line=34,title=configs/nets.yaml%3A exclusive::`exclusive` of"
    )
    assert lines[0].endswith("%0A3 checks failed because of it")
    assert [line.partition("title=")[2].partition("::")[0] for line in lines[1:]] == [
        "configs/nets.yaml%3A lr/lr_3",
        "configs/nets.yaml%3A metric/acc",
    ]
    assert annotate_run(aligned(), tmp_path, {}) == []
    assert [line.partition("::")[2].partition("::")[2] for line in annotate_run(chain(), tmp_path, {})] == [
        "exit 1: ValueError: label 12 is out of range"
    ]


def test_github_annotates_the_line_of_a_parameter_file_whose_program_failed(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/p.txt").write_text(
        edit(
            TEMPLATE, ("norm_train", 'norm_train:train.py --size="3,32" -o'), ("infer_export", "infer_export:train.py")
        )
    )

    def annotated(*argv):
        failed = Result(command=Command(id="train[a]", step="train", argv=argv), outcome=Outcome.FAIL, reason="exit 3")
        report = RunReport(title="p.txt", results=(failed,))
        (line,) = annotate_run(report, tmp_path / "sub", {"GITHUB_WORKSPACE": str(tmp_path)})
        return line

    numbers = [line.partition(":")[0] for line in TEMPLATE.splitlines()]
    where = f"file=sub/p.txt,line={numbers.index('norm_train') + 1},title=p.txt%3A train[a]::exit 3"
    assert annotated("python", "train.py", "--size=3,32", "-o", "--epochs=1") == f"::error {where}"
    assert annotated("python", "-m", "paddle.distributed.launch", "train.py", "--size=3,32", "-o") == f"::error {where}"
    changed = "::error file=sub/p.txt,title=p.txt%3A train[a]::exit 3"
    assert annotated("python", "other.py", "--size=3,32", "-o") == changed
    (tmp_path / "sub/p.txt").write_text("no parameter file")
    assert annotated("python", "train.py", "-o") == changed
    (tmp_path / "sub/p.txt").unlink()
    assert annotated("python", "train.py", "-o") == "::error title=p.txt%3A train[a]::exit 3"


def test_githubs_summary_shows_the_line_as_it_should_be_and_nothing_of_it_is_markdown():
    nasty = replace(
        CAUSE,
        message=f"*odd*{NASTY}",
        corrected="",
        place=SourceLine(file="a.py", line=1, code="x = f(x)  # </pre><b>"),
    )
    text = summarize_run(replace(misaligned(), diagnoses=(nasty, CAUSE)), "NOT the `same`")
    assert text.startswith("## ❌ NOT the &#96;same&#96;\n")
    assert (
        "<pre>nets/paddle_side.py:34\n- x = F.avg_pool2d(x, 3, stride=2, padding=1)\n+ x = F.avg_pool2d(x, 3, stride=2, padding=1, exclusive=False)</pre>"
        in text
    )
    assert "<b>" not in text
    assert "*odd*" not in text
    assert "41 PASS, 4 FAIL, 1 ERROR" in text


def test_a_page_needs_neither_numpy_nor_a_framework():
    code = "from tipchain.report.page import render_run; import sys; print(*{'numpy', 'torch', 'paddle'} & set(sys.modules))"
    assert completed([sys.executable, "-c", code], check=True).stdout.strip() == ""
