"""`tipchain completion`: what bash offers; every shell has a script."""

from __future__ import annotations

import subprocess
from contextlib import redirect_stdout

import pytest

from tipchain.cli import COMMANDS, main
from tipchain.commands.completion import SHELLS
from tipchain.modes import STAGES, Mode

MODES = {mode.value for mode in Mode}
PROGRAM = """
source scripts/bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_tipchain tipchain "${@: -1}" "${@: -2:1}"
printf "%s\\n" "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the scripts in ``scripts``, two files and a folder."""
    made = tmp_path_factory.mktemp("completion")
    (made / "scripts").mkdir()
    for name in SHELLS:
        with (made / "scripts" / name).open("w") as stream, redirect_stdout(stream):
            assert main(["completion", name]) == 0
    for name in ("case.yaml", "notes of mine.txt"):
        (made / name).touch()
    return made


def bash(folder, *words):
    """Return what bash offers for the last of ``words``."""
    argv = ["bash", "-c", PROGRAM, "bash", "tipchain", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return {line for line in done.stdout.split("\n") if line}


ASKED = [
    ([""], set(COMMANDS)),
    (["nightly", ""], {"plan", "run", "status", "resume", "diff", "dashboard"}),
    (["align", "--mo"], {"--mode"}),
    (["align", "--mode", ""], MODES),
    (["align", "case.yaml", "--mode", "whole_i"], {"whole_infer"}),
    (["align", "--only", ""], set(STAGES)),
    (["align", "ca"], {"case.yaml"}),
    (["align", "--json", "no"], {"notes of mine.txt"}),
    (["align", "--out", "s"], {"scripts"}),
    (["align", "--out", "no"], set()),
    (["locate", "--loss", ""], set()),
    (["history", "export", "--format", ""], {"csv", "jsonl"}),
    (["run", "params.txt", "whole_t"], {"whole_train_whole_infer"}),
    (["completion", ""], {"bash", "zsh", "fish"}),
    (["nightly", "run", "--exec"], {"--executor"}),
]


@pytest.mark.parametrize(
    ("words", "offered"), ASKED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_what_is_offered(folder, words, offered):
    assert bash(folder, *words) == offered


def test_former_spellings_are_not_offered(folder):
    offered = bash(folder, "align", "--")
    assert {"--only", "--reference", "--quiet", "--help"} <= offered
    assert not {"--stages", "--steps", "--torch-dump"} & offered


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_every_command(folder, shell):
    script = (folder / "scripts" / shell).read_text()
    assert [name for name in COMMANDS if name not in script] == []
