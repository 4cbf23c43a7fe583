"""A running script is seen to go on."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from tipchain.core.progress import CLEAR
from tipchain.prepare import suite


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Tell of a script that writes three lines; return what stands on standard error in the end."""

    def tell(capsys, *, terminal):
        monkeypatch.setattr(suite, "ELSEWHERE_S", 0.05)
        monkeypatch.setattr(suite, "TERMINAL_S", 0.05)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
        monkeypatch.setenv("COLUMNS", "60")
        log = tmp_path / "log"
        log.write_text("x" * 2048)
        with suite._told(log) as one:
            for line in ("a", "b\x1b[1m", "\tc\td " + "c" * 100):
                one(line)
            time.sleep(0.3)
        return capsys.readouterr().err

    return tell


def test_in_a_log_a_line_is_written_now_and_then(told, capsys):
    lines = told(capsys, terminal=False).splitlines()
    assert 2 <= len(lines) <= 6
    assert lines[0].startswith("  0 s, log 2 kB: c d ccc")
    assert max(map(len, lines)) < 60
    assert "\r" not in "".join(lines)


def test_on_a_terminal_it_is_one_line_that_goes_away(told, capsys):
    text = told(capsys, terminal=True)
    assert "\n" not in text
    assert "  0 s, log 2 kB: c d ccc" in text
    assert text.endswith(CLEAR)


@pytest.mark.parametrize("begins", [False, True])
def test_ctrl_c_counts_before_and_after_the_script_too(tmp_path, monkeypatch, begins):
    def look(_):
        if (tmp_path / "began").exists() is begins:
            signal.raise_signal(signal.SIGINT)
        return set()

    monkeypatch.setattr(suite, "_changed_files", look)
    try:
        ending, _ = suite.run_script(
            tmp_path, ("bash", "-c", "touch began"), tmp_path / "log", None, keep=False, limit_s=None
        )
    except KeyboardInterrupt:
        assert not begins
    else:
        assert ending.interrupted
    assert (tmp_path / "began").exists() is begins
