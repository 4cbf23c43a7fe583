"""What shtab makes of the commands' parsers, asked of bash itself."""

from __future__ import annotations

import subprocess

import pytest
import shtab

from tipchain.cli import COMMANDS, whole_parser
from tipchain.modes import STAGES, Mode

FILES = ("case.yaml", "notes.txt")
ASKED = [
    ([""], set(COMMANDS)),
    (["ali"], {"align"}),
    (["nightly", "sta"], {"status"}),
    (["align", "--mode", ""], {mode.value for mode in Mode}),
    (["align", "--only", ""], set(STAGES)),
    (["align", "--color", "al"], {"always"}),
    (["align", "ca"], {"case.yaml"}),
    (["align", "--json", "no"], {"notes.txt"}),
    (["align", "--out", "s"], {"scripts"}),
    (["nightly", "run", "--exec"], {"--executor"}),
    (["plan", "run", "--exec"], set()),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the script in ``scripts``, and two files."""
    made = tmp_path_factory.mktemp("completion")
    (made / "scripts").mkdir()
    (made / "scripts" / "bash").write_text(shtab.complete(whole_parser(), shell="bash"))
    for name in FILES:
        (made / name).touch()
    return made


@pytest.mark.parametrize(("words", "offered"), ASKED, ids=lambda one: " ".join(one) if isinstance(one, list) else "")
def test_what_is_offered(folder, words, offered):
    program = (
        'source scripts/bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_tipchain tipchain "${@: -1}" "${@: -2:1}";'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    argv = ["bash", "-c", program, "bash", "tipchain", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    assert {line.rstrip("/ ") for line in done.stdout.split("\n") if line} == offered
