"""Text of files and programs reaches neither a terminal nor a log with what could steer it."""

import numpy as np

from tipchain.cli import main
from tipchain.core.language import clean, escaped, escaped_lines

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
