"""Starting programs, keeping their output, ending them with all their children."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from chain_samples import living, stub
from programs import completed

from tipchain.chain.process import STUCK, Stop, call

QUICK = (0.3, 0.3, 2.0)


def start(argv, tmp_path, *, log=None, cwd=None, watch=lambda line: None, grace_s=QUICK, **more):
    more = {"timeout_s": None, **more}
    log = log or tmp_path / "out.log"
    return call(argv, cwd=cwd or tmp_path, env=dict(os.environ), log=log, watch=watch, grace_s=grace_s, **more)


def test_output_status_time_and_memory_are_kept(tmp_path):
    seen = []
    ending = start(["bash", "-c", "echo one; echo two >&2; sleep 0.1; exit 3"], tmp_path, watch=seen.append)
    assert (ending.exit_code, ending.signal, ending.failure) == (3, 0, "")
    assert ending.tail == ("one", "two")
    assert (tmp_path / "out.log").read_text() == "one\ntwo\n"
    assert seen[-1] == "two"
    assert 0.1 <= ending.seconds < 5


def test_peak_memory_is_the_commands_own(tmp_path):
    """In a process of its own: a child starts out with the size of whoever forks it."""
    program = (
        "import os, sys; from pathlib import Path; from tipchain.chain.process import call\n"
        "for n in (1, 200):\n"
        "    argv = (sys.executable, '-c', f'x = bytes(b\"1\") * ({n} << 20)')\n"
        "    log = Path(sys.argv[1]) / f'{n}.log'\n"
        "    print(call(argv, cwd=Path.cwd(), env=dict(os.environ), log=log, timeout_s=60, watch=len).peak_memory_mb)"
    )
    done = completed([sys.executable, "-c", program, str(tmp_path)], check=True)
    small, large = map(float, done.stdout.split())
    assert 1 < small < 150
    assert 150 < large - small < 250


def test_a_timeout_ends_children_that_left_the_session_the_group_and_the_environment(tmp_path):
    body = """
    (trap '' INT TERM; sleep 60) & echo $! > child
    setsid bash -c 'trap "" INT TERM; echo $$ > session; while :; do sleep 60; done' &
    setsid env -i bash -c 'trap "" INT TERM; echo $$ > bare; sleep 60 & echo $! > grandchild; while :; do sleep 1; done' &
    trap '' INT TERM
    while :; do sleep 1; done"""
    ending = start([str(stub(tmp_path / "hangs", body))], tmp_path, timeout_s=1.0)
    assert (ending.timed_out, ending.signal) == (True, 9)
    for name in ("child", "session", "bare", "grandchild"):
        assert (tmp_path / name).exists()
        assert not living(tmp_path / name)


def test_a_program_that_waits_for_a_dead_reader_is_ended_before_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("tipchain.chain.process.SILENT_S", 0.3)
    ending = start(["bash", "-c", "echo 'Exception in thread Thread-1:'; exec sleep 60"], tmp_path, timeout_s=50)
    assert (ending.failure, ending.timed_out) == (STUCK, False)
    assert start(["bash", "-c", "echo 'loading'; sleep 1"], tmp_path).failure == ""


def test_a_program_that_obeys_the_interrupt_is_not_killed(tmp_path):
    body = "trap 'echo saved; exit 0' INT\nwhile :; do sleep 0.05; done"
    ending = start([str(stub(tmp_path / "obeys", body))], tmp_path, timeout_s=0.3, grace_s=(5, 5, 5))
    assert ending.timed_out
    assert (ending.signal, ending.tail) == (0, ("saved",))


def test_endless_output_of_a_process_out_of_reach_does_not_hold_up_the_end(tmp_path):
    program = "env -i setsid yes & while [ ! -s out.log ]; do sleep 0.01; done"
    ending = start(["bash", "-c", program], tmp_path, timeout_s=60)
    assert (ending.exit_code, ending.timed_out) == (0, False)


def test_a_watcher_that_fails_leaves_no_child(tmp_path):
    def watch(line):
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        start(["bash", "-c", "echo $$ > pid; echo x; exec sleep 60"], tmp_path, watch=watch)
    assert not living(tmp_path / "pid")


def test_what_cannot_start_says_why(tmp_path):
    absent = start(["python3.7-absent", "x.py"], tmp_path)
    assert absent.exit_code == 127
    assert absent.failure == "python3.7-absent: command not found (`--python` names another)"
    (tmp_path / "plain").write_text("")
    assert start([str(tmp_path / "plain")], tmp_path).exit_code == 126
    assert "is missing" in start(["true"], tmp_path, cwd=tmp_path / "nowhere").failure


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_ends_the_command_and_says_so(tmp_path):
    ending = start(["bash", "-c", "while :; do echo x; sleep 0.01; done"], tmp_path, log=Path("/dev/full"))
    assert "cannot write its log: No space left on device" in ending.failure


def test_any_bytes_are_kept(tmp_path):
    ending = start(["bash", "-c", r"printf '\xff\xfe caf\xe9\n\0\rdone'"], tmp_path)
    assert ending.exit_code == 0
    assert ending.tail[-1] == "done"
    assert (tmp_path / "out.log").read_bytes() == b"\xff\xfe caf\xe9\n\0\rdone"


def test_much_output_does_not_block(tmp_path):
    ending = start(["bash", "-c", "seq 1 300000"], tmp_path)
    assert ending.exit_code == 0
    assert ending.tail[-1] == "300000"
    assert (tmp_path / "out.log").stat().st_size > 1_900_000


def test_a_second_stop_hurries(tmp_path):
    stop = Stop()
    timers = [threading.Timer(0.1 * count, stop.ask) for count in (2, 4, 6)]
    for timer in timers:
        timer.start()
    body = "trap '' INT TERM\nwhile :; do sleep 0.05; done"
    begin = time.monotonic()
    ending = start([str(stub(tmp_path / "stubborn", body))], tmp_path, stop=stop, grace_s=(30, 30, 30))
    for timer in timers:
        timer.join()
    assert (ending.interrupted, ending.signal) == (True, 9)
    assert time.monotonic() - begin < 25


FOREIGN = """
import sys
from pathlib import Path
from tipchain.chain.process import call
word = "\\u65e5\\xe9"
here = Path(sys.argv[1])
ending = call(
    ("/bin/sh", "-c", 'printf %s "$1$VALUE" > "$1"', "x", word), cwd=here, env={"VALUE": word}, log=here / "log",
    timeout_s=60, watch=len,
)
print(sys.flags.utf8_mode, sys.getfilesystemencoding(), ending.exit_code, ending.failure)
"""


def test_words_that_the_locale_lacks_are_given_as_utf8(tmp_path):
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = completed([sys.executable, "-c", FOREIGN, str(tmp_path)], env=env, check=True)
    assert done.stdout == "0 ascii 0 \n"
    assert (tmp_path / "\u65e5\xe9").read_text(encoding="utf-8") == "\u65e5\xe9" * 2
