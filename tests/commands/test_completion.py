"""`tipchain completion`: what the scripts offer, asked of the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time

import pytest

from tipchain.cli import COMMANDS, main
from tipchain.modes import STAGES, Mode

MODES = {mode.value for mode in Mode}
FILES = ("case.yaml", "notes of mine.txt")
SHELLS = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not here"))
    for name in ("bash", "zsh", "fish")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the scripts in ``scripts``, two files and a folder."""
    from contextlib import redirect_stdout

    made = tmp_path_factory.mktemp("completion")
    (made / "scripts").mkdir()
    for name in ("bash", "zsh", "fish"):
        with (made / "scripts" / name).open("w") as stream, redirect_stdout(stream):
            assert main(["completion", name]) == 0
    for name in FILES:
        (made / name).touch()
    return made


def bash(folder, *words):
    """Return what bash offers for the last of ``words``."""
    program = (
        'source scripts/bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tipchain; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", "tipchain", *words], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return {line for line in done.stdout.split("\n") if line}


def fish(folder, *words):
    """Return what fish offers for the last of ``words``."""
    line = " ".join(("tipchain", *words))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source scripts/fish; complete -C '{line}'"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    assert done.stderr == ""
    return {row.partition("\t")[0] for row in done.stdout.split("\n") if row}


ASKED = [
    ([""], set(COMMANDS)),
    (["ali"], {"align"}),
    (["nightly", ""], {"plan", "run", "status", "resume", "diff", "dashboard"}),
    (["align", "--mo"], {"--mode"}),
    (["align", "--mode", ""], MODES),
    (["align", "case.yaml", "--mode", "whole_i"], {"whole_infer"}),
    (["align", "--only", ""], set(STAGES)),
    (["align", "--timeout", ""], set()),
    (["align", "--color", "al"], {"always"}),
    (["align", "--record", "t"], {"torch"}),
    (["align", "ca"], {"case.yaml"}),
    (["align", "--json", "no"], {"notes of mine.txt"}),
    (["align", "--out", "no"], set()),
    (["locate", "--loss", ""], set()),
    (["history", "export", "--format", ""], {"csv", "jsonl"}),
    (["run", "whole_t"], {"whole_train_whole_infer"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["nightly", "run", "--exec"], {"--executor"}),
    (["plan", "run", "--exec"], set()),
]


@pytest.mark.parametrize(
    ("words", "offered"), ASKED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
@pytest.mark.parametrize("shell", [SHELLS[0], SHELLS[2]])
def test_what_is_offered(folder, shell, words, offered):
    ask = {"bash": bash, "fish": fish}[shell]
    assert {one.replace("\\ ", " ") for one in ask(folder, *words)} == offered


def test_folders_are_offered_where_a_folder_is_meant(folder):
    assert bash(folder, "align", "--out", "s") == {"scripts"}


@pytest.mark.parametrize("words", [["align", "--mode", "="], ["align", "--mode", "=", "whole_i"]])
def test_bash_takes_an_equals_sign_for_a_word(folder, words):
    assert bash(folder, *words) == (MODES if words[-1] == "=" else {"whole_infer"})


def test_options_are_offered_by_their_names(folder):
    offered = bash(folder, "align", "--")
    assert {"--only", "--reference", "--quiet", "--help"} <= offered


START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SOURCE = {
    "bash": "source scripts/bash",
    "zsh": "autoload -U compinit; compinit -u -D; source scripts/zsh",
    "fish": "source scripts/fish",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_person_who_presses_tab_gets_the_word(folder, shell):
    """The shell echoes what it completes; the words then go to a function that writes them into a file."""
    told = folder / f"told by {shell}"
    define = {
        "bash": f"tipchain() {{ printf '%s\\n' \"$@\" > '{told}'; }}",
        "zsh": f"tipchain() {{ printf '%s\\n' \"$@\" > '{told}'; }}",
        "fish": f"function tipchain; printf '%s\\n' $argv > '{told}'; end",
    }[shell]
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.environ.update(TERM="dumb" if shell == "bash" else "xterm", HOME=str(folder), PS1="$ ")
        os.execvp(START[shell][0], START[shell])
    try:
        for line in (define, SOURCE[shell], "tipchain ali\tcas\t--mod\twhole_i\t"):
            read(terminal, 0.3)
            os.write(terminal, line.encode() + b"\r")
        deadline = time.monotonic() + 20
        while not told.exists() and time.monotonic() < deadline:
            read(terminal, 0.2)
    finally:
        os.close(terminal)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert told.read_text().split() == ["align", "case.yaml", "--mode", "whole_infer"]


def read(terminal, seconds):
    """Take in what the shell writes for so long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                os.read(terminal, 65536)
            except OSError:
                return
