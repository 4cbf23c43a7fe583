import os
import signal
from pathlib import Path

import pytest
from chain_samples import a_plan, living, stub

from tipchain.chain import run as run_module
from tipchain.chain.execute import Place, judge
from tipchain.chain.gpus import Gpus, Leases
from tipchain.chain.plan import Command, Result
from tipchain.chain.process import Ending
from tipchain.chain.run import Policy, link_latest, run_plan
from tipchain.errors import Outcome
from tipchain.modes import Mode


class Silent:
    def __init__(self):
        self.events = []

    def started(self, command, number, total):
        self.events.append(("started", command.id, number, total))

    def waiting(self, command, number, total, reason):
        self.events.append(("waiting", command.id, reason))

    def output(self, command, line):
        pass

    def ended(self, result):
        self.events.append(("ended", result.command.id, result.outcome))


def command(name, script="true", *, step="train", needs=(), **more):
    more = {"argv": ("bash", "-c", script), "log": f"run/{name}.log", **more}
    return Command(id=name, step=step, needs=needs, **more)


def go(tmp_path, *commands, observer=None, mode=Mode.LITE_TRAIN_WHOLE_INFER, record=None, data=None, **policy):
    (tmp_path / "run").mkdir(exist_ok=True)
    plan = a_plan(
        params="p.txt",
        mode=mode,
        suite="template",
        model="net",
        status="{command}!  ",
        out="out",
        run="run",
        commands=commands,
    )
    where = Place(root=tmp_path, run=tmp_path / "run", mode=mode, data=data)
    leases = Leases(tmp_path / "leases")
    results, interrupted = run_plan(
        plan, where, observer or Silent(), policy=Policy(**policy), record=record, leases=leases
    )
    return {result.command.id: result for result in results}, interrupted


def test_each_command_is_judged_by_its_own_status(tmp_path):
    results, interrupted = go(
        tmp_path,
        command("good", "echo fine"),
        command("bad", "echo Run successfully; exit 3"),
        command("segv", "kill -SEGV $$"),
        command("align-fail", "echo logits differ; exit 1", step="align"),
        command("align-error", "echo no weights; exit 2", step="align"),
    )
    outcomes = {name: (result.outcome.value, result.reason) for name, result in results.items()}
    assert outcomes == {
        "good": ("PASS", ""),
        "bad": ("FAIL", "exit 3: Run successfully"),
        "segv": ("ERROR", "killed by SIGSEGV"),
        "align-fail": ("FAIL", "exit 1: logits differ"),
        "align-error": ("ERROR", "exit 2: no weights"),
    }
    assert not interrupted
    assert results["good"].log == "good.log"
    assert results["good"].started
    assert results["segv"].signal == "SIGSEGV"


def test_an_alignments_reason_is_its_verdict_not_its_last_line(tmp_path):
    end = (
        "NOT the same model: `bn`: `epsilon` is\n0.1\n  fix   write it\n\nFAIL  forward  1 of 1\n\nnext  tipchain align"
    )
    results, _ = go(
        tmp_path, command("align", f"printf '{end}'; exit 1", step="align"), command("train", f"printf '{end}'; exit 1")
    )
    assert results["align"].reason == "exit 1: NOT the same model: `bn`: `epsilon` is 0.1"
    assert results["train"].reason == "exit 1: next tipchain align"


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("no verdict: forward/paddle: net.py:3: KeyError: 'x'", "ERROR"),
        ("NOT the same model: forward/logits: not close", "FAIL"),
        ("the program said nothing of the kind", "FAIL"),
    ],
)
def test_an_alignment_that_could_not_find_out_is_an_error(verdict, outcome):
    command = Command(id="align[01]", step="align", argv=("x",), env={}, cwd=".", log="", timeout_s=None, needs=())
    found, _ = judge(command, Ending(exit_code=1, tail=(verdict, "", "1 error in 2.0 s, exit code 1")))
    assert found.value == outcome


def test_known_skips_and_missing_gpus_are_skips_with_their_reasons(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "find_gpus", lambda: Gpus(trouble="no usable GPU on this machine"))
    results, _ = go(tmp_path, command("amp", skip="AMP on a CPU"), command("gpu", on_gpu=True), command("cpu"))
    assert results["amp"].reason == "not run: AMP on a CPU"
    assert results["gpu"].reason == "not run: no usable GPU on this machine"
    assert results["cpu"].outcome is Outcome.PASS
    monkeypatch.setattr(run_module, "find_gpus", lambda: Gpus(numbers=("0",)))
    assert go(tmp_path, command("gpu", on_gpu=True))[0]["gpu"].outcome is Outcome.PASS


def test_the_environment_of_a_command(tmp_path):
    show = "echo $TIPCHAIN_RUN $TIPCHAIN_MODE $TIPCHAIN_DATA $X $HOME"
    results, _ = go(tmp_path, command("train", show, env={"X": "1"}), command("eval", show, step="eval"))
    head = f"{tmp_path}/run lite_train_whole_infer {tmp_path}/test_tipc/data"
    rest = os.environ["HOME"]
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


def test_a_hangup_ends_a_run_but_not_under_nohup(tmp_path):
    hangup = command("a", f"kill -HUP {os.getpid()}; sleep 0.3")
    assert go(tmp_path, hangup)[1]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        results, interrupted = go(tmp_path, hangup)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (results["a"].outcome, interrupted) == (Outcome.PASS, False)


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


MEET = """
touch $0.here
for i in $(seq 200); do [ -e $1.here ] && exit 0; sleep 0.05; done
exit 1"""
"""Ends well if the command that is named second runs at the same time."""


def meeting(name, other, **more):
    return command(name, argv=("bash", "-c", MEET, name, other), **more)


ALONE = "mkdir lock || exit 1; sleep 0.1; rmdir lock"
"""Fails if another one runs at the same time."""


@pytest.mark.parametrize(
    ("jobs", "legs"),
    [(1, ("a", "b", "c")), (3, ("a", "a", "a")), (3, ("", "", ""))],
    ids=["one job", "one leg", "no leg"],
)
def test_what_may_not_run_at_once_does_not(tmp_path, jobs, legs):
    commands = [command(f"{number}", ALONE, leg=leg) for number, leg in enumerate(legs)]
    observer = Silent()
    results, _ = go(tmp_path, *commands, jobs=jobs, observer=observer)
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert [name for event, name, *_ in observer.events if event == "started"] == ["0", "1", "2"]


def test_results_come_in_the_plans_order_whatever_ends_first(tmp_path):
    observer = Silent()
    results, _ = go(
        tmp_path,
        command("slow", "while [ ! -e quick ]; do sleep 0.02; done; sleep 0.5", leg="1"),
        command("quick", "touch quick; exit 3", leg="2"),
        command("after", needs=("quick",), leg="2"),
        jobs=2,
        observer=observer,
    )
    assert list(results) == ["slow", "quick", "after"]
    assert [name for event, name, *_ in observer.events if event == "ended"][-1] == "slow"


def test_an_observer_that_fails_leaves_no_child(tmp_path):
    class Gone(Silent):
        def ended(self, result):
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        go(
            tmp_path,
            command("slow", "echo $$ > pid; exec sleep 60", leg="1"),
            command("quick", "while [ ! -s pid ]; do sleep 0.02; done", leg="2"),
            jobs=2,
            observer=Gone(),
        )
    assert not living(tmp_path / "pid")


def test_fail_fast_ends_the_others_and_starts_nothing(tmp_path):
    results, interrupted = go(
        tmp_path,
        command("slow", "touch slow; exec sleep 60", leg="1"),
        command("bad", "while [ ! -e slow ]; do sleep 0.02; done; exit 3", leg="2"),
        command("after", leg="2"),
        command("later", leg="3"),
        jobs=2,
        fail_fast=True,
    )
    assert not interrupted
    assert [(result.outcome.value, result.reason) for result in results.values()] == [
        ("ERROR", "ended: bad failed (--fail-fast)"),
        ("FAIL", "exit 3"),
        ("SKIP", "not run: bad failed (--fail-fast)"),
        ("SKIP", "not run: bad failed (--fail-fast)"),
    ]


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(run_module, "find_gpus", lambda: Gpus(numbers=("0", "1")))


def on(*gpus):
    return {"gpus": gpus, "on_gpu": True}


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("first", "second"), [(("0",), ("0", "1")), ((), ("1",))], ids=["a shared id", "all"])
def test_running_commands_never_share_a_gpu(tmp_path, first, second):
    observer = Silent()
    results, _ = go(
        tmp_path,
        command("a", ALONE, leg="1", **on(*first)),
        command("b", ALONE, leg="2", **on(*second)),
        jobs=2,
        observer=observer,
    )
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert ("waiting", "b", f"GPU {second[0]}, held by a") in observer.events


@pytest.mark.usefixtures("two_gpus")
def test_commands_on_different_gpus_run_at_once(tmp_path):
    results, _ = go(tmp_path, meeting("a", "b", leg="1", **on("0")), meeting("b", "a", leg="2", **on("1")), jobs=2)
    assert {result.outcome for result in results.values()} == {Outcome.PASS}


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_of_another_run_is_waited_for_while_others_go_on(tmp_path):
    other = Leases(tmp_path / "leases")
    other.take(("0",), "other")

    class Freeing(Silent):
        def ended(self, result):
            super().ended(result)
            if result.command.id == "cpu":
                other.give_back(("0",))

    observer = Freeing()
    results, _ = go(tmp_path, command("gpu", leg="1", **on("0")), command("cpu", leg="2"), observer=observer)
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert observer.events[0] == ("waiting", "gpu", f"GPU 0, held by process {os.getpid()}")
    assert [event[1] for event in observer.events if event[0] == "ended"] == ["cpu", "gpu"]


@pytest.mark.usefixtures("two_gpus")
def test_waiting_for_a_gpu_can_be_interrupted(tmp_path):
    other = Leases(tmp_path / "leases")
    other.take(("0",), "other")

    class Impatient(Silent):
        def waiting(self, command, number, total, reason):
            os.kill(os.getpid(), signal.SIGINT)

    results, interrupted = go(tmp_path, command("gpu", **on("0")), observer=Impatient())
    assert interrupted
    assert results["gpu"].reason == "not run: interrupted"


class Notes:
    """A record that knows of earlier passes."""

    def __init__(self, *passed):
        self.passed, self.noted = passed, set()

    def finished(self, command, place):
        if command.id in self.passed:
            return Result(command=command, outcome=Outcome.PASS, seconds=5.0)
        return None

    def before(self, command, place):
        self.noted = {*self.noted, command.id}

    def record(self, result, place):
        assert result.command.id in self.noted


def test_an_earlier_pass_on_a_gpu_counts_where_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "find_gpus", lambda: Gpus(trouble="no usable GPU"))
    results, _ = go(tmp_path, command("a", **on()), command("b", needs=("a",)), record=Notes("a"))
    assert [result.outcome for result in results.values()] == [Outcome.PASS, Outcome.PASS]


def test_a_record_that_fails_is_no_silence(tmp_path):
    class Broken(Notes):
        def record(self, result, place):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        go(tmp_path, command("a"), record=Broken())


def test_latest_links_are_replaced_and_files_of_others_kept(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "real.log").write_text("mine")

    def link(run):
        folder = out / "runs" / run
        folder.mkdir(parents=True)
        (folder / "a.log").write_text(run)
        plan = a_plan(latest=(("usual.log", "a.log"), ("real.log", "a.log"), ("none.log", "absent")))
        return link_latest(plan, Place(root=tmp_path, run=folder, mode=Mode.WHOLE_INFER), out)

    (problem,) = link("one")
    link("two")
    assert (out / "usual.log").read_text() == "two"
    assert (out / "runs/one/a.log").read_text() == "one"
    assert (out / "real.log").read_text() == "mine"
    assert "it is no link" in problem
    assert not (out / "none.log").exists()


def test_the_latest_link_of_a_repeated_command_names_its_new_log(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/a.log").write_text("first")
    (tmp_path / "run/a.2.log").write_text("second")
    where = Place(root=tmp_path, run=tmp_path / "run", mode=Mode.WHOLE_INFER)
    plan = a_plan(run="run", latest=(("usual.log", "a.log"),))
    again = Result(command=command("a"), outcome=Outcome.PASS, log="a.2.log")
    assert link_latest(plan, where, tmp_path, [again]) == ()
    assert (tmp_path / "usual.log").read_text() == "second"
