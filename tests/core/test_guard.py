"""The edge of every program, in a process of its own as users start it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")


def call(words, tail):
    line = " ".join([sys.executable, "-m", "tipchain", *words])
    return subprocess.run(["bash", "-c", f"{line} {tail}"], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_a_full_disk_under_standard_output_is_one_message_and_exit_1(words):
    done = call(words, f"> {FULL}")
    assert (done.returncode, done.stderr) == (1, "error: the output: No space left on device\n")


def test_a_closed_standard_output_is_no_bug():
    code = "import sys; from tipchain.core.guard import guarded; sys.exit(guarded(lambda: sys.stdout.isatty()))"
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{code}" >&-'], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("ascii", "\\xe9 \\udcff \\ud800"),
        ("utf-8", "\xe9 \\udcff \\ud800"),
        ("utf-8:surrogateescape", "\xe9 \\udcff \\ud800"),
    ],
)
def test_letters_that_the_terminal_lacks_are_escaped(encoding, shown):
    code = "import sys; from tipchain.core.guard import guarded; sys.exit(guarded(lambda: print('\\xe9 \\udcff \\ud800') or 0))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{shown}\n", "")
