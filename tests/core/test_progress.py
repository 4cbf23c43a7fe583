"""What long commands say of themselves: estimates that have a basis, and lines that disturb nothing else."""

import errno
import io
import threading
from dataclasses import dataclass

import pytest
from terminals import Terminal, still

from tipchain.core.progress import Estimate, Progress, Screen, mean_seconds
from tipchain.parity.align import show_recording


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    terminal.clock = still(monkeypatch)
    return terminal


@pytest.mark.parametrize(
    ("seconds", "each"),
    [((), None), ((3,), None), ((3, 4), 3.5), ((1, 3), None), ((3, 1), None), ((1, 1, 2, 2), 1.5), ((0, 9), None)],
)
def test_an_estimate_is_told_once_one_has_come_true(seconds, each):
    assert mean_seconds(seconds) == each


def test_the_time_left():
    estimate = Estimate({"a": 10.0, "b": 20.0})
    assert estimate.left("b", {"a": 4.0}, 2) == 13.0
    assert estimate.left("", {"a": 4.0}, 2) == 6.0, "at least what the longest still takes"
    assert Estimate({}).left("", {"a": 4.0}, 2) is None, "nothing tells how long it takes"
    assert Estimate({}).left("a", {}, 2) is None


def test_what_runs_longer_than_it_should_leaves_no_estimate():
    estimate = Estimate({"a": 10.0, "b": 3.0, "c": 300.0})
    assert estimate.left("", {"a": 99.0}, 2) is None
    assert estimate.left("b", {"a": 16.0}, 1) is None, "6 s late already: what is 3 s among these?"
    assert estimate.left("c", {"a": 16.0}, 1) == 300.0, "it hardly matters here"
    assert estimate.left("", {"a": 10.0}, 1) == 0.0


def test_a_night_without_history_never_says_that_nothing_is_left():
    """The first item took half a second; the others take long."""
    estimate = Estimate({}, alike=True)
    estimate.learn(0.5)
    for seconds in range(16, 98):
        assert estimate.left("", {"b": float(seconds), "c": float(seconds)}, 2) is None


def test_this_run_tells_where_no_other_does():
    estimate = Estimate({})
    assert estimate.left("x", {}) is None
    estimate.learn(1.0)
    assert estimate.left("x", {}) is None
    estimate.learn(1.5)
    assert estimate.left("x", {}) == 1.25
    assert Estimate({"a": 1.0, "b": 3.0}, alike=True).left("x", {}) == 2.0
    assert Estimate({"a": 1.0, "b": 3.0}).left("x", {}) is None


def test_elsewhere_than_on_a_terminal_a_stage_is_a_line():
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress.stage("forward", 1, 3)
        progress.say("torch is at it")
        progress.stage("forward", 1, 3)
        progress.stage("loss", 2, 3)
        progress.stage("forward", 1, 3)  # the other side comes to it only now
        with progress.hidden():
            stream.write("between\n")
    assert stream.getvalue() == "[1/3] forward\n[2/3] loss\nbetween\n"


def test_quiet_is_quiet(terminal):
    for stream in (terminal, io.StringIO()):
        with Progress(stream, quiet=True) as progress:
            progress.stage("forward", 1, 3)
            progress.say("x")
        assert stream.getvalue() == ""


def test_a_terminal_is_told_in_the_readers_language(terminal, monkeypatch):
    monkeypatch.setenv("TIPCHAIN_LANG", "zh")
    with Progress(terminal) as progress:
        progress.stage("preparing inputs and weights")
        progress.bottom.refresh()
        assert terminal.shown.endswith(" 0:00  正在准备输入和权重")


def test_a_terminal_shows_one_line_that_goes_away(terminal):
    clock = terminal.clock
    with Progress(terminal) as progress:
        progress.stage("forward", 1, 3)
        progress.bottom.refresh()
        assert terminal.shown.endswith(" 0:00  [1/3] forward")
        clock.now += 67
        progress.say("torch and Paddle", 30.0)
        progress.bottom.refresh()
        assert terminal.shown.endswith("\r\x1b[2K 1:07  [1/3] forward: torch and Paddle, about 0:30 left")
        clock.now += 31
        progress.bottom.refresh()
        assert terminal.shown.endswith("\r\x1b[2K 1:38  [1/3] forward: torch and Paddle"), "it is over: nobody knows"
        with progress.hidden():
            assert terminal.shown.endswith("\r\x1b[2K\r")
        assert terminal.shown.endswith(" 1:38  [1/3] forward: torch and Paddle")
    assert terminal.shown.endswith("\r\x1b[2K\r")
    assert terminal.getvalue().count("\x1b[?25h") > terminal.getvalue().count("\x1b[?25l")


def test_the_time_goes_on_while_nothing_is_said(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    drawn = threading.Event()

    class Watched(Terminal):
        def write(self, text):
            if "forward" in text and "forward" in self.getvalue():
                drawn.set()
            return super().write(text)

    with Progress(Watched()) as progress:
        progress.stage("forward")
        assert drawn.wait(10), "the thread redraws it"


def test_a_terminal_that_is_gone_stops_nothing(terminal):
    class Gone(Terminal):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    with Progress(Gone()) as progress:
        progress.stage("forward")
        with progress.hidden():
            pass


def test_lines_are_printed_above_those_at_the_bottom(terminal):
    lines = ["one", "x" * 99]
    with Screen(terminal, lambda: lines) as screen:
        screen.print("above")
        shown = f"one\n{'x' * 59}…"
        assert terminal.shown == f"{shown}\r\x1b[2K\x1b[1A\x1b[2Kabove\n{shown}"
        lines[:] = "0123456789"
        screen.bottom.refresh()
        assert terminal.shown.endswith("5\n6\n... and 3 more")
    end = terminal.shown
    screen.print("after")
    assert terminal.shown == f"{end}after\n"


@dataclass
class Recorder:
    side: str
    current: str = ""
    left: tuple[str, ...] = ("train",)


def test_an_alignment_tells_the_stage_of_the_slower_side():
    stream, stages = io.StringIO(), ("forward", "loss", "train")
    torch, paddle = Recorder("torch"), Recorder("paddle")
    progress = Progress(stream)
    for torch.current, paddle.current in (("", ""), ("forward", ""), ("forward", "forward"), ("train", "loss")):
        show_recording(progress, stages, (torch, paddle))
    assert progress._doing == "paddle, torch at train"
    paddle.left = ()
    show_recording(progress, stages, (torch, paddle))
    assert progress._doing == "torch"
    assert stream.getvalue().splitlines() == ["starting torch and paddle", "[1/3] forward", "[2/3] loss", "[3/3] train"]
