"""The view of a run that goes on, and the suite's log of status lines."""

import io
import re

import pytest
from chain_samples import a_plan
from terminals import Terminal, still

from tipchain.chain.execute import Place
from tipchain.chain.plan import Command, Result
from tipchain.commands.run import ResultsLog, as_comment, status_record
from tipchain.errors import Outcome
from tipchain.report.running import LiveView


def command(name):
    return Command(id=name, step="train", argv=("x",))


def ended(name, outcome=Outcome.PASS, reason="", **more):
    return Result(command=command(name), outcome=outcome, reason=reason, seconds=1.25, **more)


class Screen(Terminal):
    """What a terminal shows of the few escapes that the view uses."""

    def lines(self):
        rows, row = [""], 0
        shown = re.sub(r"\r(?!\x1b)", "", self.shown)
        for part in re.split(r"(\r\x1b\[2K|\x1b\[1A\x1b\[2K|\n)", shown):
            if part == "\n":
                row += 1
                rows += [""] if row == len(rows) else []
            elif part.startswith(("\r", "\x1b")):
                row -= part.startswith("\x1b")
                assert row >= 0, "above the screen"
                rows[row] = ""
            else:
                rows[row] += part
        return rows


@pytest.fixture
def screen(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    monkeypatch.delenv("TERM", raising=False)
    terminal = Screen()
    terminal.clock = still(monkeypatch)
    return terminal


def test_a_pipe_gets_plain_lines():
    stream = io.StringIO()
    view = LiveView(stream)
    view.started(command("eval[x]"), 1, 2)
    view.output(command("eval[x]"), "hidden")
    for _ in range(2):
        view.waiting(command("train[y]"), 2, 2, "GPU 0, held by process 12")
    view.ended(ended("eval[x]", Outcome.FAIL, "exit 3: \x1b[31mboom"))
    assert stream.getvalue().splitlines() == [
        "[1/2] eval[x] ...",
        "[2/2] train[y]: waiting for GPU 0, held by process 12",
        "FAIL         1.2  eval[x]: exit 3: boom",
    ]


def test_an_alignments_progress_is_in_the_readers_language_and_another_programs_is_not(screen, monkeypatch):
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    view = LiveView(screen)
    align = command("align[01]")._replace(step="align")
    with view.screen:
        for one, line in ((align, "starting torch and paddle"), (command("train[a]"), "loss: 0.5")):
            view.started(one, 1, 2)
            view.output(one, line)
        view.screen.bottom.refresh()
        view.ended(ended("train[a]", Outcome.FAIL, "exit code 2"))
    shown = screen.getvalue()
    assert "align[01]  正在启动 torch 和 paddle" in shown
    assert "train[a]  loss: 0.5" in shown
    assert "train[a]：退出码 2" in shown


def test_a_terminal_shows_each_running_command_with_its_time_and_last_line(screen):
    view = LiveView(screen)
    with view.screen:
        view.started(command("train[a]"), 1, 3)
        view.started(command("train[b]"), 2, 3)
        view.waiting(command("train[c]"), 3, 3, "GPU 0, held by train[a]")
        view.output(command("train[a]"), "epoch\t3 \x1b[31mred")
        screen.clock.now += 67
        view.screen.bottom.refresh()
        assert screen.lines() == [
            "[1/3]  1:07  train[a]  epoch 3 red",
            "[2/3]  1:07  train[b]",
            "[3/3]  1:07  train[c]  waiting for GPU 0, held by train[a]",
        ]
        view.ended(ended("train[b]", reused=True))
        view.screen.bottom.refresh()
        assert screen.lines()[:3] == [
            "PASS         1.2  train[b] (earlier)",
            "[1/3]  1:07  train[a]  epoch 3 red",
            "[3/3]  1:07  train[c]  waiting for GPU 0, held by train[a]",
        ]
        for name in "ac":
            view.ended(ended(f"train[{name}]"))
    assert [line.split()[-1] for line in screen.lines() if line] == [*("(earlier)", "train[a]", "train[c]")]


def test_a_dumb_terminal_gets_plain_lines(screen, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    LiveView(screen).started(command("a"), 1, 1)
    assert screen.getvalue() == "[1/1] a ...\n"


def test_the_time_left_is_told_where_the_latest_run_tells_it(screen):
    usual = {"a": 10.0, "b": 100.0}
    view = LiveView(screen, plan="ab", usual=usual)
    with view.screen:
        view.started(command("a"), 1, 2)
        view.screen.bottom.refresh()
        assert screen.lines()[0] == "about 1:50 left"
        screen.clock.now += 12
        view.screen.bottom.refresh()
        assert screen.lines() == ["about 1:40 left", "[1/2]  0:12  a"]
        view.ended(ended("a"))
        view.started(command("b"), 2, 2)
        screen.clock.now += 160
        view.screen.bottom.refresh()
        assert screen.lines()[1:2] == ["[2/2]  2:40  b"], "it is late: nobody knows"


SCRAPERS = re.compile(r"run\s+(successfully|failed)", re.IGNORECASE)
COMMAND = Command(id="train[x]", step="train", argv=("python", "a b.py"), log="out/runs/R/train.log")
FACTS = {"model": "net", "out": "out", "run": "out/runs/R", "commands": (COMMAND,)}
PLAN = a_plan(status="{model} - {command} - {log} ! ", **FACTS)


def result(outcome=Outcome.PASS, **more):
    return Result(command=COMMAND, outcome=outcome, log="train.log", **more)


def test_the_line_is_the_suites_own():
    status, comment = status_record(result(exit_code=0), PLAN, "R").split("\n")
    assert status == "\x1b[33m Run successfully with command - net - python 'a b.py' - out/runs/R/train.log !  \x1b[0m"
    assert comment == "# R train[x] PASS 0.0s exit=0 log=train.log"


def test_the_redirection_stands_where_the_suite_shows_it():
    shows = PLAN._replace(redirected=frozenset({"train"}))
    status, _ = status_record(result(Outcome.FAIL, exit_code=1), shows, "R").split("\n")
    assert "Run failed with command - net - python 'a b.py' > out/runs/R/train.log 2>&1  - out/" in status
    other = PLAN._replace(redirected=frozenset({"eval"}))
    assert "2>&1" not in status_record(result(), other, "R")


@pytest.mark.parametrize(
    "one",
    [result(Outcome.SKIP, reason="not run: Run successfully failed"), result(Outcome.PASS, reused=True)],
    ids=["not run", "not repeated"],
)
def test_what_did_not_run_has_a_comment_only(one):
    text = status_record(one, PLAN, "R")
    assert text.startswith("# ")
    assert "\n" not in text
    assert not SCRAPERS.search(text)


@pytest.mark.parametrize(
    "text",
    ["Run successfully", "run  failed", "x Run\tfailed with", "Run successfully Run failed", "MyRun successfully"],
)
def test_no_comment_can_be_taken_for_a_status(text):
    assert not SCRAPERS.search(as_comment(text))
    assert as_comment(text).startswith("# ")


def test_a_failed_commands_own_words_claim_nothing():
    command = COMMAND._replace(argv=("python", "--name=Run successfully with command"))
    one = result(Outcome.FAIL, exit_code=1)._replace(command=command)
    text = status_record(one, PLAN, "R")
    assert text.startswith("\x1b[33m Run failed with command - net - python '--name=Run_successfully with ")
    assert len(SCRAPERS.findall(text)) == 1


def test_a_failed_artifact_check_gives_its_reason_and_a_program_never():
    left = result(Outcome.FAIL, exit_code=0, reason="left no checkpoint")
    assert status_record(left, PLAN, "R").endswith("reason=left no checkpoint")
    said = result(Outcome.FAIL, exit_code=3, reason="exit 3: Run successfully")
    assert status_record(said, PLAN, "R").endswith("exit=3 log=train.log")


def test_a_run_starts_with_a_header_and_the_suites_own(tmp_path):
    plan = PLAN._replace(params="Run failed.txt", results_log="results.log", results_head="---- whole_infer ----")
    place = Place(root=tmp_path, run=tmp_path / "out/runs/R", mode=plan.mode)
    log = ResultsLog(plan, place, {"tipchain": "1", "paddle": "2.6"})
    first, second, third = (tmp_path / "out/results.log").read_text().splitlines()
    assert first == "# ==== run R ===="
    assert second.startswith("# time=")
    assert "params=Run_failed.txt" in second
    assert third == "---- whole_infer ----"
    assert log.problem == ""
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == ["results.log"]
