"""How a run ends on a terminal: golden texts at 80 columns, whole."""

import re
from dataclasses import replace
from itertools import product

import pytest

from tipchain.chain.plan import Command, Result
from tipchain.errors import ExitCode, Outcome
from tipchain.explain.findings import Diagnosis, SourceLine
from tipchain.modes import STAGES
from tipchain.numbers.verdicts import Verdict
from tipchain.report.model import RunReport
from tipchain.report.terminal import render_ending, verdict_line

MODE = "lite_train_lite_infer"


def check(subject: str, outcome: Outcome = Outcome.PASS, reason: str = "mean 1e-7", share: float | None = 0.03):
    return Verdict(outcome=outcome, subject=subject, reason=reason, share=share)


def fail(subject: str, reason: str = "not close · mean 5.3 · worst at (1, 9): expected 17.4, actual 0.43"):
    return check(subject, Outcome.FAIL, reason, 530.0)


def aligned(*verdicts: Verdict, **more: object) -> RunReport:
    given = {"title": "configs/net.yaml", "mode": MODE, "run": "out/runs/1", "started": "", "seconds": 326.04}
    return RunReport(**{**given, "verdicts": verdicts, **more})  # type: ignore[arg-type]


LAYER = Diagnosis(
    code="epsilon",
    port_path="layer2.0.bn1",
    message="`layer2.0.bn1`: `epsilon` is 0.001, the reference's is 1e-05",
    evidence="relative error 0.0031 before, 2.1e-16 with this changed; 14 runs in float64",
    explained=0.9999,
    fix="pass `epsilon=1e-05` to `BatchNorm2D`",
    stage="forward",
    reference_path="layer2.0.bn1",
    place=SourceLine(file="net/port.py", line=34, code="self.bn1 = nn.BatchNorm2D(64, epsilon=1e-3)"),
    corrected="self.bn1 = nn.BatchNorm2D(64, epsilon=1e-05)",
    reference_place=SourceLine(file="net/reference.py", line=30, code="self.bn1 = nn.BatchNorm2d(64)"),
    explains=("forward/logits", "metric/acc", "backward/grad.a", "backward/grad.b"),
)
LIVE = check("preflight/construction", share=None), check("backward/gradients", share=None)
LONG = "data: the first 4 of 100 batches were compared, which hold the samples that every run of this case compares"
GOLDEN: dict[str, tuple[RunReport, str]] = {
    "an equal port": (
        aligned(
            check("data/length", share=0.0), check("forward/logits"), check("forward/logits@1"),
            check("init/a", share=None), *LIVE, stages=("forward", "data", "init"), notes=(LONG, "init: fewer than 100 values"),
        ),
        """\
the port equals its reference: 3 stages, tightest check: forward, 3 % of the
tolerance

PASS   preflight  1 check
PASS   forward    2 checks, 3 % of the tolerance
PASS   data       1 check, equal
PASS   backward   1 check
PASS   init       1 check

note  data: the first 4 of 100 batches were compared, which hold the samples
      that every run of this case compares
note  init: fewer than 100 values
6 passed in 326.0 s, exit code 0""",
    ),
    "a part of a port": (
        aligned(check("loss/loss"), check("data/length"), *LIVE, stages=STAGES),
        """\
equal to its reference: data, loss, gradients (3 of 13 stages compared, tightest
check: loss, 3 % of the tolerance)

PASS   preflight  1 check
PASS   data       1 check, 3 % of the tolerance
PASS   loss       1 check, 3 % of the tolerance
PASS   backward   1 check

4 passed in 326.0 s, exit code 0""",
    ),
    "a difference that the user accepts": (
        aligned(replace(check("forward/layers", share=None), accepted="`norm`: 1e-5 for 1e-6 (your tolerance)"), *LIVE,
                stages=("forward",)),
        """\
accepted: `norm`: 1e-5 for 1e-6 (your tolerance); the rest agrees: 1 stage

PASS   preflight  1 check
PASS   forward    1 check, accepted: `norm`: 1e-5 for 1e-6 (your tolerance)
PASS   backward   1 check

3 passed in 326.0 s, exit code 0""",
    ),
    "something that cannot be compared": (
        aligned(check("forward/layers", share=None), *LIVE, stages=("forward",), uncompared=("in train mode it is random",)),
        """\
equal where compared; not compared: in train mode it is random

PASS   preflight  1 check
PASS   forward    1 check
PASS   backward   1 check

3 passed in 326.0 s, exit code 4""",
    ),
    "numbers without models": (
        aligned(check("forward/logits"), stages=("forward",)),
        """\
the recorded numbers are within their tolerances: 1 stage, tightest check:
forward, 3 % of the tolerance; the models were not compared

PASS   forward  1 check, 3 % of the tolerance

1 passed in 326.0 s, exit code 0""",
    ),
    "one fault": (
        aligned(
            fail("backward/grad.a"), fail("backward/grad.b"), check("backward/loss_0"), fail("forward/logits"),
            check("data/length", share=0.0), fail("metric/acc"), diagnoses=(LAYER,), notes=("a", "b"),
        ),
        """\
NOT the same model: `layer2.0.bn1`: `epsilon` is 0.001, the reference's is 1e-05
  at    net/port.py:34: self.bn1 = nn.BatchNorm2D(64, epsilon=1e-3)
  ref   net/reference.py:30: self.bn1 = nn.BatchNorm2d(64)
  fix   pass `epsilon=1e-05` to `BatchNorm2D`
        self.bn1 = nn.BatchNorm2D(64, epsilon=1e-05)
  why   explains 100% of the difference; relative error 0.0031 before, 2.1e-16
        with this changed; 14 runs in float64
  then  3 failed checks follow from it, in `metric`, `backward`

FAIL   forward   1 of 1 check failed because of `layer2.0.bn1`
PASS   data      1 check, equal
FAIL   metric    1 of 1 check failed, following from `layer2.0.bn1`
FAIL   backward  2 of 3 checks failed, following from `layer2.0.bn1`

note  a
note  b
2 passed, 4 failed in 326.0 s, exit code 1
next  tipchain align configs/net.yaml --only forward""",
    ),
    "stages in which the port is held against itself alone": (
        aligned(check("inference/onnx/logits@batch=1"), check("distributed/loss")),
        """\
the port agrees with itself: 2 stages, tightest check: inference, 3 % of the
tolerance; it was not compared with its reference

PASS   inference    1 check of the exported program, 3 % of the tolerance
PASS   distributed  1 check of several processes, 3 % of the tolerance

2 passed in 326.0 s, exit code 0""",
    ),
    "an interruption": (
        aligned(
            check("forward/logits"), check("data/run", Outcome.SKIP, "interrupted before it was judged", None),
            interrupted=True, mode="whole_infer",
        ),
        """\
interrupted: so far the recorded numbers are within their tolerances: 1 stage,
tightest check: forward, 3 % of the tolerance; the models were not compared

PASS   forward  1 check, 3 % of the tolerance
SKIP   data     interrupted before it was judged

1 passed, 1 skipped in 326.0 s, exit code 130
next  tipchain align configs/net.yaml --mode whole_infer""",
    ),
    "one side alone": (
        aligned(check("forward/paddle", Outcome.SKIP, "only paddle was recorded", None)),
        """\
nothing was compared: only paddle was recorded

SKIP   forward  only paddle was recorded

1 skipped in 326.0 s, exit code 4""",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_the_end_of_an_alignment(name):
    report, expected = GOLDEN[name]
    assert render_ending(report) == expected


def command(id_: str, step: str, outcome: Outcome = Outcome.PASS, reason: str = "", needs=(), **more) -> Result:
    made = Command(id=id_, step=step, argv=("python", "x.py"), env={}, log=f"r/{id_}.log", needs=needs)
    seconds = 0.0 if outcome is Outcome.SKIP else 2.34
    started = "" if outcome is Outcome.SKIP else "2026-11-22T19:00:00"
    return Result(
        command=made, outcome=outcome, reason=reason, log=f"{id_}.log", seconds=seconds, started=started, **more
    )


CHAIN = (
    command("align[01]", "align"),
    command("train[a]", "train", Outcome.FAIL, "exit 1", tail=("Traceback", "KeyError: 'x'")),
    command("eval[a]", "eval", Outcome.SKIP, "not run: needs train[a]", needs=("train[a]",)),
    command("export[a]", "export", Outcome.SKIP, "not run: needs eval[a]", needs=("eval[a]",)),
    command("train[b]", "train", figures={"avg_ips": 12.5}),
)


def chained(*results: Result, **more: object) -> RunReport:
    return aligned(title="params.txt", results=results, **more)


def test_a_chain_ends_with_what_failed_first_and_what_that_cost():
    assert (
        render_ending(chained(*CHAIN))
        == """\
the chain FAILED at train[a]: exit 1
  then  2 commands were skipped: they need its output
  log   out/runs/1/train[a].log
  | Traceback
  | KeyError: 'x'

PASS   align[01]  2.3 s
FAIL   train[a]   2.3 s, exit 1
SKIP   eval[a]    not run: needs train[a]
SKIP   export[a]  not run: needs eval[a]
PASS   train[b]   2.3 s, avg_ips=12.5

2 passed, 1 failed, 2 skipped in 326.0 s, exit code 1
next  tipchain run params.txt lite_train_lite_infer --resume"""
    )


def test_of_an_alignment_without_a_cause_the_log_is_shown_from_its_verdict_on():
    tail = ("starting", "no verdict: forward/needs: weights", "found: unknown: a.weight", *["page", "log"] * 4)
    failed = command("align[01]", "align", Outcome.ERROR, "exit 1", tail=tail)
    shown = [line for line in render_ending(chained(failed)).splitlines() if line.startswith("  | ")]
    assert shown[:2] == ["  | no verdict: forward/needs: weights", "  | found: unknown: a.weight"]
    assert len(shown) == 6


def test_a_chain_that_is_interrupted_in_its_first_command_tells_what_was_checked():
    stopped = chained(command("align[01]", "align", Outcome.ERROR, "interrupted"), interrupted=True)
    assert render_ending(stopped).splitlines()[0] == "interrupted before a command ended"
    checked = replace(stopped, verdicts=(check("forward/logits"), check("loss/loss")))
    assert render_ending(checked).splitlines()[0] == "interrupted before a command ended; 2 checks passed"


def test_a_chain_whose_alignment_failed_has_its_cause():
    failed = command("align[01]", "align", Outcome.FAIL, "exit 1")
    lines = render_ending(chained(failed, diagnoses=(LAYER,))).splitlines()
    assert " ".join(lines[:2]) == (
        "the chain FAILED at align[01]: NOT the same model: `layer2.0.bn1`: `epsilon` is 0.001, the reference's is 1e-05"
    )
    assert "  fix   pass `epsilon=1e-05` to `BatchNorm2D`" in lines


def test_a_long_chain_has_a_row_for_each_step_and_names_what_failed():
    many = [command(f"infer[{number}]", "infer") for number in range(200)]
    many[150] = command("infer[150]", "infer", Outcome.ERROR, "killed by SIGSEGV")
    text = render_ending(chained(CHAIN[0], *many))
    assert "ERROR  infer  1 of 200 commands: infer[150]: killed by SIGSEGV" in text
    assert len(text.splitlines()) < 15


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ERROR])
def test_a_stage_with_a_single_failure_is_never_green(outcome):
    passes = [check(f"backward/p{number}") for number in range(169)]
    text = render_ending(aligned(*passes, check("backward/q", outcome, "not close", None)), color=True)
    row = next(line for line in text.splitlines() if "backward" in line and "of 170" in line)
    assert "\x1b[32m" not in row
    assert "\x1b[32m" not in text


def test_a_difference_is_never_told_as_none_nor_as_all_that_is_allowed():
    for share, told in ((1e-9, "less than 1 %"), (0.999, "99 %"), (1.0, "100 %")):
        assert f"{told} of the tolerance" in " ".join(
            render_ending(aligned(check("forward/logits", share=share))).split()
        )


def test_files_below_the_folder_that_one_is_in_are_told_from_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reason = f"{tmp_path}/net.py:3: KeyError: '/x{tmp_path}/y'"
    line = verdict_line(aligned(check("forward/paddle", Outcome.ERROR, reason, None)))
    assert line == f"no verdict: forward/paddle: net.py:3: KeyError: '/x{tmp_path}/y'"


def test_pages_and_logs_are_named_where_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out/runs/1").mkdir(parents=True)
    report = aligned(check("forward/logits"))
    assert "page" not in render_ending(report)
    (tmp_path / "out/alignment.log").touch()
    assert render_ending(replace(report, page="out/runs/1/report.html")).splitlines()[-2:] == [
        "page  out/runs/1/report.html",
        "log   out/alignment.log",
    ]


@pytest.mark.parametrize(("causes", "notes", "length", "chain"), list(product((0, 9), (0, 30), (60,), (False, True))))
@pytest.mark.parametrize("interrupted", [False, True])
def test_no_end_is_cut_and_every_line_has_room(causes, notes, length, chain, interrupted):
    """Of a report of thousands of failed checks with long paths, messages and many causes."""
    path = ".".join(["blocks"] * length)
    subjects = [f"{stage}/{path}.{number}" for stage in STAGES for number in range(300)]
    long = replace(
        LAYER,
        port_path=path,
        message=f"`{path}`: " + "wrong " * length,
        fix="write " * length + "\n" * length,
        evidence="tried " * length,
        explains=tuple(subjects),
        paths=(path, "b"),
        place=SourceLine(file="/".join(["deep"] * length) + "/port.py", line=1, code="x = " * length),
    )
    results = [
        command(f"train[{path}{number}]", f"step{number}", Outcome.FAIL, "why " * length, tail=("t" * 300,) * 40)
        for number in range(40)
    ]
    report = aligned(
        *(fail(subject, "not close " * length) for subject in subjects),
        fail("odd/x"),
        run="r" * length,
        diagnoses=(long,) * causes,
        notes=("note " * length,) * notes,
        undiagnosed="why " * length,
        results=tuple(results) if chain else (),
        title="t" * length + ".yaml",
        interrupted=interrupted,
    )
    text = render_ending(report)
    lines = text.splitlines()
    assert all(len(line) <= 80 or max(map(len, line.split())) > 30 for line in lines)
    assert not re.search(r"[^\x20-\x7e·]", "".join(lines))
    assert any(line.startswith("FAIL") for line in lines)
    assert report.exit_code is (ExitCode.INTERRUPTED if interrupted else ExitCode.FAILED)


def test_what_does_not_pass_is_never_left_out_of_the_rows():
    results = [command(f"c{number}", f"s{number}") for number in range(30)]
    results[29] = command("c29", "s29", Outcome.ERROR, "killed")
    text = render_ending(chained(*results))
    assert "ERROR  s29     1 of 1 command: c29: killed" in text
    assert "PASS   others  17 more rows" in text


@pytest.mark.parametrize("code", ["nan", "unknown"])
def test_what_no_cause_explains_is_not_told_with_a_share(code):
    from alignment_samples import failing
    from run_samples import CAUSE, aligned, verdict

    from tipchain.live.html import render

    cause = replace(CAUSE, code=code, explained=0.0, evidence="12 causes were tried in 14 runs, 0 could not be run")
    failed = [verdict(one, Outcome.FAIL, "NaN", share=530.0) for one in cause.explains]
    ending = render_ending(aligned(*failed, diagnoses=(cause,)))
    assert "12 causes were tried" in ending
    assert "explains" not in ending
    live = replace(failing(), diagnoses=[cause], findings=[])
    assert f"cause: {code}: " in live.text
    assert "of the error" not in render(live)
    assert "rests on a difference" not in render(live)
