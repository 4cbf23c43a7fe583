"""Running a plan and judging its commands."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from chain_samples import stub

from tipchain.chain import run as run_module
from tipchain.chain.execute import Place, judge
from tipchain.chain.hardware import Gpus
from tipchain.chain.plan import Command, Plan
from tipchain.chain.process import Ending
from tipchain.chain.result import Result
from tipchain.chain.run import link_latest, run_plan
from tipchain.chain.schedule import unaccounted
from tipchain.modes import Mode
from tipchain.outcome import Outcome


class Silent:
    def __init__(self):
        self.events = []

    def started(self, command, number, total):
        self.events.append(("started", command.id, number, total))

    def waiting(self, command, number, total, reason):
        self.events.append(("waiting", command.id, reason))

    def output(self, command, line):
        pass

    def tick(self):
        pass

    def ended(self, result):
        self.events.append(("ended", result.command.id, result.outcome))


def command(name, script="true", *, step="train", needs=(), **more):
    more = {"argv": ("bash", "-c", script), "log": f"run/{name}.log", **more}
    return Command(id=name, step=step, needs=needs, **more)


def go(tmp_path, *commands, observer=None, mode=Mode.LITE_TRAIN_WHOLE_INFER, **place):
    (tmp_path / "run").mkdir(exist_ok=True)
    plan = Plan(
        params="p.txt", mode=mode, suite="template", model="net", status="{command}!  ", out="out", run="run",
        commands=commands, latest=(), notes=(),
    )  # fmt: skip
    where = Place(root=tmp_path, run=tmp_path / "run", mode=mode, **place)
    results, interrupted = run_plan(plan, where, observer or Silent())
    return {result.command.id: result for result in results}, interrupted


def test_each_command_is_judged_by_its_own_status(tmp_path):
    results, interrupted = go(
        tmp_path,
        command("good", "echo fine"),
        command("bad", "echo Run successfully; exit 3"),
        command("absent", argv=("no-such-python", "x.py")),
        command("notfound", "exit 127"),
        command("segv", "kill -SEGV $$"),
        command("align-fail", "echo logits differ; exit 1", step="align"),
        command("align-error", "echo no weights; exit 2", step="align"),
    )
    outcomes = {name: (result.outcome.value, result.reason) for name, result in results.items()}
    assert outcomes == {
        "good": ("PASS", ""),
        "bad": ("FAIL", "exit 3: Run successfully"),
        "absent": (
            "ERROR",
            "exit 127: interpreter 'no-such-python' not found; name one with --python PATH or TIPCHAIN_PYTHON",
        ),
        "notfound": ("ERROR", "exit 127"),
        "segv": ("ERROR", "killed by SIGSEGV"),
        "align-fail": ("FAIL", "exit 1: logits differ"),
        "align-error": ("ERROR", "exit 2: no weights"),
    }
    assert not interrupted
    assert results["good"].log == "good.log"
    assert results["good"].started
    assert results["segv"].signal == "SIGSEGV"


def test_an_alignments_reason_is_its_first_failed_check_not_its_summary(tmp_path):
    report = "PASS  a/b: fine\nFAIL     forward/logits: not close\n         mean 0.09\n\n0 passed\nexit code 1: failed"
    results, _ = go(
        tmp_path,
        command("align", f"printf '{report}'; exit 1", step="align"),
        command("train", f"printf '{report}'; exit 1"),
    )
    assert results["align"].reason == "exit 1: forward/logits: not close mean 0.09"
    assert results["train"].reason == "exit 1: exit code 1: failed"


@pytest.mark.parametrize(
    ("summary", "outcome"),
    [
        ("3 passed, 0 failed, 1 error, 0 skipped in 2.0 s", "ERROR"),
        ("3 passed, 1 failed, 2 errors, 0 skipped in 2.0 s", "FAIL"),
        ("3 passed, 1 failed, 0 errors, 0 skipped in 2.0 s", "FAIL"),
        ("no summary at all", "FAIL"),
    ],
)
def test_an_alignment_that_could_not_find_out_is_an_error(summary, outcome):
    command = Command(
        id="align[01]", step="align", argv=("x",), env={}, cwd=".", log="", timeout_s=None, needs=()
    )
    found, _ = judge(command, Ending(exit_code=1, tail=(summary, "exit code 1: a check failed")))
    assert found.value == outcome


def test_a_timeout_is_an_error(tmp_path):
    results, _ = go(tmp_path, command("hang", "sleep 60", timeout_s=0.2))
    assert (results["hang"].outcome, results["hang"].reason) == (Outcome.ERROR, "timed out after 0.2 s")


def test_what_needs_a_failed_command_is_not_run(tmp_path):
    results, _ = go(
        tmp_path,
        command("a", "exit 1"),
        command("b", "touch b-ran", needs=("a",)),
        command("c", "touch c-ran", needs=("b",)),
        command("d"),
    )
    assert [result.outcome for result in results.values()] == [
        *(Outcome.FAIL, Outcome.SKIP, Outcome.SKIP, Outcome.PASS)
    ]
    assert results["b"].reason == "not run: a failed"
    assert results["c"].reason == "not run: b was not run"
    assert not list(tmp_path.glob("*-ran"))


def test_known_skips_and_missing_gpus_are_skips_with_their_reasons(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "find_gpus", lambda: Gpus(trouble="no usable GPU on this machine"))
    results, _ = go(
        tmp_path, command("amp", skip="AMP on a CPU"), command("gpu", on_gpu=True), command("cpu")
    )
    assert results["amp"].reason == "not run: AMP on a CPU"
    assert results["gpu"].reason == "not run: no usable GPU on this machine"
    assert results["cpu"].outcome is Outcome.PASS
    monkeypatch.setattr(run_module, "find_gpus", lambda: Gpus(numbers=("0",)))
    assert go(tmp_path, command("gpu", on_gpu=True))[0]["gpu"].outcome is Outcome.PASS


def test_the_environment_of_a_command(tmp_path):
    show = "echo $TIPCHAIN_RUN $TIPCHAIN_MODE $TIPCHAIN_DATA $X ${PATH%%:*} $HOME"
    results, _ = go(tmp_path, command("train", show, env={"X": "1"}), command("eval", show, step="eval"))
    head = f"{tmp_path}/run lite_train_whole_infer {tmp_path}/test_tipc/data"
    rest = f"{Path(sys.executable).parent} {os.environ['HOME']}"
    assert results["train"].tail == (f"{head}/lite_data 1 {rest}",)
    assert results["eval"].tail == (f"{head}/whole_data {rest}",)
    assert results["train"].command.env["TIPCHAIN_MODE"] == "lite_train_whole_infer"
    own, _ = go(tmp_path, command("train", "echo $TIPCHAIN_DATA"), data=Path("/images"))
    assert own["train"].tail == ("/images",)


def test_argv_is_never_a_shell_string(tmp_path):
    echo = stub(tmp_path / "echo", 'printf "%s\\n" "$@"')
    results, _ = go(tmp_path, command("x", argv=(str(echo), "$(touch pwned)", "a;b", "*")))
    assert results["x"].tail == ("$(touch pwned)", "a;b", "*")
    assert not (tmp_path / "pwned").exists()


def test_observers_hear_of_everything(tmp_path):
    observer = Silent()
    go(tmp_path, command("a", "exit 1"), command("b", needs=("a",)), observer=observer)
    assert observer.events == [
        ("started", "a", 1, 2),
        ("ended", "a", Outcome.FAIL),
        ("ended", "b", Outcome.SKIP),
    ]


def test_an_interrupt_keeps_the_results_so_far(tmp_path):
    class Impatient(Silent):
        def output(self, command, line):
            raise KeyboardInterrupt

    results, interrupted = go(
        tmp_path,
        command("a"),
        command("b", "echo $$ > pid; echo x; sleep 60"),
        command("c"),
        observer=Impatient(),
    )
    assert interrupted
    assert [results[name].outcome for name in "abc"] == [Outcome.PASS, Outcome.ERROR, Outcome.SKIP]
    assert results["b"].reason == "interrupted"
    assert results["c"].reason == "not run: interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_hangup_ends_a_run_but_not_under_nohup(tmp_path):
    hangup = command("a", f"kill -HUP {os.getpid()}; sleep 0.3")
    assert go(tmp_path, hangup)[1]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        results, interrupted = go(tmp_path, hangup)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (results["a"].outcome, interrupted) == (Outcome.PASS, False)


def test_executed_must_equal_planned():
    a, b = command("a"), command("b")
    done = {"a": Result(command=a, outcome=Outcome.PASS)}
    assert unaccounted([a], done) == ()
    assert [(r.command.id, r.outcome) for r in unaccounted([a, b], done)] == [("b", Outcome.ERROR)]
    assert [r.command.id for r in unaccounted([a, a], done)] == ["a"]


def test_a_bug_in_the_runner_is_an_error_of_the_command(tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("broken")

    monkeypatch.setattr("tipchain.chain.execute.call", broken)
    results, _ = go(tmp_path, command("a"))
    assert (results["a"].outcome, results["a"].reason) == (Outcome.ERROR, "RuntimeError: broken")


def test_no_ending_without_a_good_status_passes():
    assert judge(command("a"), Ending())[0] is not Outcome.PASS
    assert judge(command("a"), Ending(exit_code=0, failure="disk full"))[0] is Outcome.ERROR
    assert judge(command("a", timeout_s=1.0), Ending(exit_code=0, timed_out=True))[0] is Outcome.ERROR
    assert judge(command("a"), Ending(exit_code=0, interrupted=True))[0] is Outcome.ERROR


def test_latest_links_are_replaced_and_files_of_others_kept(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "real.log").write_text("mine")

    def link(run):
        folder = out / "runs" / run
        folder.mkdir(parents=True)
        (folder / "a.log").write_text(run)
        plan = Plan(
            params="", mode=Mode.WHOLE_INFER, suite="", model="", status="", out="", run="", commands=(), notes=(),
            latest=(("usual.log", "a.log"), ("real.log", "a.log"), ("none.log", "absent")),
        )  # fmt: skip
        return link_latest(plan, Place(root=tmp_path, run=folder, mode=Mode.WHOLE_INFER), out)

    (problem,) = link("one")
    link("two")
    assert (out / "usual.log").read_text() == "two"
    assert (out / "runs/one/a.log").read_text() == "one"
    assert (out / "real.log").read_text() == "mine"
    assert "it is no link" in problem
    assert not (out / "none.log").exists()
