"""`tipchain align` around what is recorded: interruptions, the time that is told, where causes are kept."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import run_samples
from chain_samples import living
from programs import await_

from tipchain.cli import main
from tipchain.core.json_text import as_json
from tipchain.errors import Outcome
from tipchain.live.worker import Launched
from tipchain.numbers.verdicts import Verdict
from tipchain.parity.stages.judging import Judged

CASE = """\
id: net
sides:
  torch: {model: "net:reference", loss: "net:loss"}
  paddle: {model: "net:port", loss: "net:loss"}
weights: {init: kaiming}
inputs: {image: {shape: [1, 3]}, label: {shape: [1], dtype: int64, high: 2}}
outputs: [logits]
stages: [forward, loss]
"""
CAUSE = as_json(
    replace(
        run_samples.CAUSE,
        place=None,
        reference_place=None,
        message="`bn`: `epsilon` is 0.1",
        fix="write 1e-05",
        explains=(),
    )
)
LIVE = {"stages": {"forward": "FAIL"}, "reasons": {}, "diagnoses": [CAUSE]}
EQUAL = {"stages": {"preflight": "PASS", "forward": "PASS", "backward": "PASS", "loss": "PASS"}, "diagnoses": []}


def judged(stage: str, outcome: Outcome) -> Judged:
    verdict = Verdict(outcome=outcome, subject=f"{stage}/x", reason="because", share=0.5)
    return Judged(stage=stage, verdicts=(verdict,))


@pytest.fixture
def align(tmp_path, monkeypatch, capsys):
    """Run ``tipchain align`` with stages that are judged as they are told to be; return code, text, report and log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.yaml").write_text(CASE)
    (tmp_path / "net.py").write_text("reference = port = loss = print\n")

    def run(*judgements, interrupted=False, live=EQUAL, options=()):
        def stages(_, listener, *__, **___):
            for one in judgements:
                listener(one)
            if interrupted:
                raise KeyboardInterrupt

        class Worker:
            def align(self, *_, **__):
                time.sleep(0.3)
                if isinstance(live, BaseException):
                    raise live
                return Launched(text="FAIL: found", exit_code=int(live is not EQUAL), document=live)

        monkeypatch.setattr("tipchain.parity.align.align", stages)
        monkeypatch.setattr("tipchain.live.judge.start_worker", lambda **_: nullcontext(Worker()))
        code = main(["align", "case.yaml", "--out", "out", "--json", "r.json", *options])
        text, errors = capsys.readouterr()
        assert code in (0, 1, 130), errors
        return code, text, json.loads((tmp_path / "r.json").read_text())

    return run


def test_an_interruption_shows_what_is_known(align, tmp_path):
    code, text, report = align(judged("forward", Outcome.PASS), interrupted=True)
    assert code == 130
    assert text.startswith("interrupted: so far the recorded numbers are within their tolerances: 1 stage")
    assert "SKIP   loss     interrupted before it was judged" in text.splitlines()
    assert report["interrupted"] is True
    (kept,) = tmp_path.glob("out/runs/*/log_reprod/alignment.json")
    assert json.loads(kept.read_text())["verdicts"] == report["verdicts"]


def test_an_interruption_of_the_search_keeps_the_verdict(align):
    code, text, report = align(judged("forward", Outcome.FAIL), judged("loss", Outcome.PASS), live=KeyboardInterrupt())
    assert code == 130
    assert text.startswith("interrupted: so far NOT the same model: forward/x: because")
    assert report["undiagnosed"] == "not looked for: interrupted"


def test_the_time_that_is_told_holds_the_search_and_the_cause_is_kept(align, tmp_path):
    code, text, report = align(judged("loss", Outcome.FAIL), judged("forward", Outcome.FAIL), live=LIVE)
    assert code == 1
    assert report["seconds"] >= 0.3
    assert f" in {report['seconds']:.1f} s, exit code 1" in text
    assert text.startswith("NOT the same model: `bn`: `epsilon` is 0.1\n  fix   write 1e-05\n")
    assert [one["subject"] for one in report["verdicts"]] == ["forward/layers", "forward/x", "loss/x"], (
        "in the order of the stages"
    )
    assert report["diagnoses"][0]["explains"] == ["forward/layers", "forward/x", "loss/x"]
    (kept,) = tmp_path.glob("out/runs/*/log_reprod/alignment.json")
    assert json.loads(kept.read_text())["diagnoses"] == report["diagnoses"]
    assert "both models in one process\nFAIL: found\n" in (tmp_path / "out/alignment.log").read_text()


FOUND = {"stages": {"forward": "FAIL"}, "reasons": {"forward": "bn differs"}, "diagnoses": []}


@pytest.mark.parametrize(
    ("options", "live", "told"),
    [(("--no-locate",), FOUND, "not looked for: --no-locate"), ((), None, "could not be looked for: FAIL: found")],
)
def test_that_nothing_was_looked_for_is_told(align, options, live, told):
    code, _, report = align(judged("forward", Outcome.FAIL), live=live, options=options)
    assert code == 1
    assert report["undiagnosed"] == told


def test_models_that_cannot_be_compared_are_no_pass(align):
    code, text, _ = align(judged("forward", Outcome.PASS), judged("loss", Outcome.PASS), live=None)
    assert code == 1
    assert text.startswith("no verdict: preflight/models: both models in one process: FAIL: found")


def test_the_verdict_can_be_had_alone_and_every_check_too(align):
    _, text, _ = align(judged("forward", Outcome.PASS), judged("loss", Outcome.PASS), options=("-q",))
    assert text == "the port equals its reference: 2 stages, tightest check: forward, 50 % of the tolerance\n"
    _, text, _ = align(judged("forward", Outcome.PASS), judged("loss", Outcome.PASS), options=("-v",))
    assert "PASS     loss/x: because" in text.splitlines()
    assert "\nthe port equals its reference" in text


@pytest.mark.parametrize(
    ("error", "told"), [(OSError(errno.ENOSPC, "No space left on device", "x.npy"), "x.npy: No space left on device")]
)
def test_a_full_disk_is_told_with_the_file_where_that_is_known(tmp_path, monkeypatch, capsys, error, told):
    def fill(*_, **__):
        raise error

    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.yaml").write_text(CASE)
    (tmp_path / "net.py").write_text("reference = port = loss = print\n")
    monkeypatch.setattr("tipchain.parity.align.run_case", fill)
    assert main(["align", "case.yaml", "--out", "out"]) == 1
    assert f"the run cannot be written: {told}\n" in capsys.readouterr().err


STUCK = """\
import os, pathlib, time

def reference():
    pathlib.Path("pid.part").write_text(str(os.getpid()))
    pathlib.Path("pid.part").rename("pid")
    time.sleep(120)

port = loss = print
"""


@pytest.mark.frameworks
@pytest.mark.parametrize(("stage", "number"), [("init", signal.SIGHUP), ("forward", signal.SIGKILL)])
def test_what_records_or_makes_weights_ends_with_the_command_however_that_is_ended(tmp_path, stage, number):
    case = CASE.replace("{init: kaiming}", "{init: kaiming, calibrate: inputs}")
    (tmp_path / "case.yaml").write_text(case.replace("[forward, loss]", "[init, forward, loss]"))
    (tmp_path / "net.py").write_text(STUCK)
    argv = [sys.executable, "-m", "tipchain", "align", "case.yaml", "--only", stage, "--record", "torch"]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        argv, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        pid = tmp_path / "pid"
        await_(pid.exists)
        assert living(pid)
        process.send_signal(number)
        text = process.communicate(timeout=60)[0].decode()
    await_(lambda: not living(pid))
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert text.startswith("interrupted before anything was compared")
