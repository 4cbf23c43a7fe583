"""What is shown of a night while it goes on, and how its time left is told."""

import io
from dataclasses import replace

from night_samples import item
from terminals import Terminal, still

from tipchain.errors import Outcome
from tipchain.nightly.coordinator import NightState
from tipchain.nightly.executor import RunningItem
from tipchain.nightly.night_report import SAY_S, NightView
from tipchain.nightly.nights import ItemRecord

STATE = NightState(
    total=9,
    counts={Outcome.PASS: 2, Outcome.ERROR: 1},
    seconds=65,
    left_s=125,
    running=tuple(RunningItem(id=f"i{number}[cpu]", seconds=number, line="x\x1b[2J" * 50) for number in range(30)),
)


def ended(name="a[cpu]", outcome=Outcome.PASS, reason=""):
    return ItemRecord(id=name, attempt=1, outcome=outcome, reason=reason, seconds=1.25)


def test_elsewhere_there_are_plain_lines_and_now_and_then_how_far_it_is(monkeypatch):
    clock, stream = still(monkeypatch), io.StringIO()
    view = NightView(stream, 9)
    view.number = 2
    view.started(item("a"), 1)
    view.started(item("a"), 2)
    view.ended(ended(outcome=Outcome.FAIL, reason="exit 1: oh\x1b[2J no"))
    view.tick(lambda: STATE)
    clock.now += SAY_S + 1
    view.tick(lambda: STATE)
    view.tick(lambda: STATE)
    assert stream.getvalue().splitlines() == [
        "a[whole_infer;cpu] runs again, attempt 2",
        "[3/9] FAIL        1.2  a[cpu]: exit 1: oh no",
        "... 3 of 9 ended, 2 passed, 1 error, 30 running, 1m 05s, about 2m 05s left",
    ]


def test_elsewhere_too_it_is_said_once_when_nothing_runs_because_the_next_item_waits():
    stream = io.StringIO()
    view = NightView(stream, 9)
    waits = replace(STATE, running=(), left_s=None, waiting="1 CPU slot, held by process 7\x1b[2J")
    for state in (waits, waits, STATE, replace(STATE, waiting="room"), waits, replace(waits, waiting="")):
        view.tick(lambda state=state: state)
    said = "... 3 of 9 ended, 2 passed, 1 error, 1m 05s\nthe next item waits for 1 CPU slot, held by process 7\n"
    assert stream.getvalue() == 2 * said


def test_on_a_terminal_lines_fit_and_are_taken_away(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    still(monkeypatch)
    stream = Terminal()
    view = NightView(stream, 9)
    with view.screen:
        view.tick(lambda: STATE)
        view.screen.bottom.refresh()
        drawn = stream.getvalue().rpartition("\x1b[?25h\r\x1b[2K")[2].split("\n")
        assert len(drawn) <= 9
        assert all(len(line) <= 40 for line in drawn)
        assert drawn[-1] == "... and 24 more"
        assert "\x1b[2J" not in stream.getvalue()
        before = len(stream.getvalue())
        view.ended(ended())
        assert stream.getvalue()[before:].count("\x1b[1A\x1b[2K") == len(drawn) - 1
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K\x1b[?25h\r")
