"""What a suite's script tells of itself: its failures, its downloads, and that it goes on."""

from __future__ import annotations

import signal
import sys
import time
from datetime import datetime

import pytest

from tipchain.core.progress import CLEAR
from tipchain.prepare import suite
from tipchain.prepare.suite import TICK_S, Download, find_troubles, unfinished_downloads


@pytest.mark.parametrize(
    "line",
    [
        "2024-01-01 10:00:00 ERROR 404: Not Found.",
        "wget: unable to resolve host address 'paddle.example'",
        "curl: (6) Could not resolve host: paddle.example",
        "fatal: unable to access 'https://git.example/x/': Could not resolve host: git.example",
        "tar: data.tar: Cannot open: No such file or directory",
        "tar: Unexpected EOF in archive",
        "gzip: stdin: unexpected end of file",
        "unzip:  cannot find or open data.zip, data.zip.zip or data.zip.ZIP.",
        "rm: cannot remove 'data': No such file or directory",
        "ln: failed to create symbolic link '/x': Permission denied",
        "test_tipc/prepare.sh: line 3: wget: command not found",
        "python: can't open file '/x/tools/make.py': [Errno 2] No such file or directory",
        "ModuleNotFoundError: No module named 'paddle'",
        "urllib.error.HTTPError: HTTP Error 403: Forbidden",
        "ERROR: Could not find a version that satisfies the requirement nothing==1.0",
        "write error: No space left on device",
        "data.tar: FAILED",
        " 10%[==>    ] 1,024  --.-K/s\r 20%[===>   ] tar: x: Cannot open",
    ],
)
def test_failures_are_seen_with_their_line(line):
    (found,) = find_troubles(f"first\n{line}\nlast\n")
    assert found.line == 2
    assert found.text in line


@pytest.mark.parametrize(
    "line",
    [
        "",
        "File 'data.tar' already there; not retrieving.",
        "tar: Removing leading `/' from member names",
        "tar: Ignoring unknown extended header keyword 'SCHILY.fflags'",
        "mkdir: cannot create directory 'data': File exists",
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed.",
        "WARNING: Retrying after connection broken by 'NewConnectionError('<pip>: Failed to establish')': /simple/x/",
        "bash: warning: setlocale: LC_ALL: cannot change locale (xx): No such file or directory",
        "[: =: unary operator expected",
    ],
)
def test_what_is_harmless_is_no_failure(line):
    assert find_troubles(f"first\n{line}\nlast\n") == ()


BEGIN = "--2024-01-01 10:00:00--  https://paddle.example/data.tar"
RETRY = "--2024-01-01 10:00:09--  (try: 2)  https://paddle.example/data.tar"
REFUSED = "Connecting to paddle.example|2001:db8::1|:443... failed: Network is unreachable."
CONNECTED = "Connecting to paddle.example|192.0.2.1|:443... connected."


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        ([BEGIN, REFUSED, CONNECTED], []),
        ([BEGIN, REFUSED, RETRY, CONNECTED], []),
        ([BEGIN, REFUSED, BEGIN, CONNECTED], [2]),
        ([BEGIN, REFUSED, REFUSED], [2, 3]),
    ],
)
def test_an_address_that_does_not_answer_counts_unless_another_does(lines, numbers):
    assert [trouble.line for trouble in find_troubles("\n".join(lines))] == numbers


def test_lines_may_end_as_on_windows():
    (found,) = find_troubles("one\r\nsh: 1: tar: not found\r\n")
    assert (found.line, found.text) == (2, "sh: 1: tar: not found")


SAVING = "Saving to: \u2018data/data.tar\u2019"
SAVED = "2024-01-01 10:00:02 (1.2 MB/s) - \u2018data/data.tar\u2019 saved [5/5]"


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ([BEGIN, SAVING, SAVED], []),
        ([BEGIN, SAVING, "     0K .......... .......... 1%"], ["data/data.tar"]),
        ([BEGIN, SAVING, "Read error; Retrying.", RETRY, SAVING, SAVED], []),
        ([BEGIN, SAVING, SAVED, BEGIN, SAVING], ["data/data.tar"]),
        ([BEGIN, SAVING.replace("\u2018", "'").replace("\u2019", "'")], ["data/data.tar"]),
        (["File \u2018data.tar\u2019 already there; not retrieving."], []),
    ],
)
def test_a_download_that_did_not_get_to_its_end_is_found(lines, names):
    found = unfinished_downloads("\n".join(lines))
    assert [one.name for one in found] == names
    began = datetime(2024, 1, 1, 10, 0, 9 if RETRY in lines else 0).astimezone().timestamp()
    assert [one.began for one in found] == [began] * len(names)


@pytest.mark.parametrize(("behind", "aside"), [(0.5, True), (-0.5, True), (100, False)])
def test_a_file_begun_at_the_start_of_a_second_bears_the_tick_before(behind, aside, tmp_path, monkeypatch):
    log, half = tmp_path / "log", tmp_path / "w.pdparams"
    log.touch()
    half.write_text("half")
    made = half.stat().st_ctime
    download = Download(name=half.name, began=made + behind * TICK_S)
    monkeypatch.setattr(suite, "unfinished_downloads", lambda _: (download,))
    assert len([*suite._set_half_made_aside(tmp_path, log, made)]) == aside
    assert half.exists() is not aside


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
