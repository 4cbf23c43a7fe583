"""The edge of every program: what a terminal and a log are told, in a process of its own as users start it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import completed

from tipchain.cli import main
from tipchain.core.language import clean, escaped, escaped_lines

FULL = Path("/dev/full")


def call(words, tail):
    line = " ".join([sys.executable, "-m", "tipchain", *words])
    return completed(["bash", "-c", f"{line} {tail}"], timeout=60)


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_a_full_disk_under_standard_output_is_one_message_and_exit_1(words):
    done = call(words, f"> {FULL}")
    assert (done.returncode, done.stderr) == (1, "error: the output: No space left on device\n")


def test_a_closed_standard_output_is_no_bug():
    code = "import sys; from tipchain.core.guard import guarded; sys.exit(guarded(lambda: sys.stdout.isatty()))"
    done = completed(["bash", "-c", f'"{sys.executable}" -c "{code}" >&-'])
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


FORGED = "a: \n[2026/01/01 00:00:00] root INFO: diff check passed"


def test_sequences_and_unseen_characters_go_and_lines_stay():
    text = "a\x1b[31mred\x1b[0m\x1b]0;title\x07b\x1b[2J\r\x00\u202egnp.exe\u2066\u200b\n\tc \x1b]open\nlast 中文 é 👍"
    assert clean(text) == "aredbgnp.exe\n\tc \nlast 中文 é 👍"


def test_escapes_are_one_line_and_can_be_read():
    assert escaped("a\nb\x1b[2J\u202e中\ud800") == "a\\nb\\x1b[2J\\u202e中\\ud800"
    assert escaped_lines("a\n\x9bb") == "a\n\\x9bb"


def test_a_key_forges_no_line_of_a_log(tmp_path, capsys):
    for side, value in (("r", 0.0), ("p", 1.0)):
        np.save(tmp_path / f"{side}.npy", {FORGED: np.full(3, value)})
    paths = [str(tmp_path / name) for name in ("r.npy", "p.npy", "diff.log")]
    assert main(["diff", paths[0], paths[1], "--log", paths[2]]) == 1
    lines = (tmp_path / "diff.log").read_text().splitlines()
    assert not any(line.endswith("diff check passed") for line in lines)
    assert lines[0].count("root INFO") == 2  # the forged one stands within the key's
    assert lines[-1].endswith("diff check failed")
    assert not any(line.endswith("diff check passed") for line in capsys.readouterr().out.splitlines())


def test_an_error_about_a_file_steers_no_terminal(tmp_path, capsys):
    (tmp_path / "case.yaml").write_text('"a\\e[2J\\u202E": 1\n' * 2)
    assert main(["align", str(tmp_path / "case.yaml")]) == 2
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert "\u202e" not in told
    assert "\\x1b[2J\\u202e" in told
