"""The options that commands share, and what bash offers: one name for one thing; ``--root`` and ``-q``."""

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
import shtab
import yaml
from programs import completed

from tipchain.cli import COMMANDS, FIRST, GROUPS, main, parser_of, whole_parser
from tipchain.commands import doctor
from tipchain.commands.doctor import _absent
from tipchain.commands.options import leaves
from tipchain.core.files import ROOT_VARIABLE, find_root
from tipchain.modes import Mode

SEVERAL = {
    "--device": "a chain's is its file's own if none is named",
    "--mode": "lint looks at several",
    "--out": "an export is one file",
    "--only": "of stages a list, of commands a pattern",
    "--chain": "init's is the case to write a chain for, elsewhere it is a kind of chain",
    "--junit": "standard output has how a night goes on",
    "--port": "align's are dumps",
    "--reference": "align's may be a bundle",
    "--resume": "a run goes on by itself, a training from the checkpoint that it is given",
    "--timeout": "chains may have none",
}
"""Options that take more than one form, and why."""


def options():
    """Yield the command, parser and option of everything that may be typed."""
    for name in COMMANDS:
        for parser in leaves(parser_of(name)):
            for action in parser._actions:
                if action.option_strings and action.help != argparse.SUPPRESS and action.dest != "help":
                    yield parser.prog, action


def test_one_option_takes_one_form():
    forms = defaultdict(set)
    for _, action in options():
        takes = action.metavar or (action.choices and tuple(action.choices)) or action.nargs
        forms[action.option_strings[-1]].add((takes, action.nargs))
    several = {name: found for name, found in forms.items() if len(found) > 1 and name not in SEVERAL}
    assert not several


def test_every_command_says_when_it_is_colored():
    for name in COMMANDS:
        for parser in leaves(parser_of(name)):
            assert "--color" in parser._option_string_actions, parser.prog


def test_json_to_a_file_leaves_the_text(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "check_framework", lambda name: _absent(name, "", ""))
    monkeypatch.chdir(tmp_path)
    main(["doctor", "--json", "found.json"])
    told = capsys.readouterr()
    assert told.out.startswith("tipchain ")
    assert told.err == ""
    assert "findings" in json.loads(Path("found.json").read_text())


def test_there_are_few_commands():
    assert len(COMMANDS) <= 16


def test_without_a_command_the_help_is_shown_and_nothing_was_checked(capsys):
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("usage: tipchain")
    assert "error" not in told.err.splitlines()[0]
    assert re.findall(r"(?m)^  (\w+)  ", told.err) == [*FIRST, *GROUPS]
    assert max(map(len, told.err.splitlines())) <= 80


def test_help_tells_of_a_group_and_of_a_command(capsys):
    for group, commands in GROUPS.items():
        assert main(["help", group]) == 0
        told = capsys.readouterr().out
        assert re.findall(r"(?m)^  ([\w-]+)  ", told) == [*commands]
        assert max(map(len, told.splitlines())) <= 80
    assert main(["help", "report"]) == 0
    assert capsys.readouterr().out.startswith("usage: tipchain report")
    for name in ("align", "run", "locate"):
        with pytest.raises(SystemExit, match="0"):
            main([name, "-h"])
        assert len(capsys.readouterr().out.splitlines()) < 35
    assert main(["help"]) == main(["--help"]) == 0
    first, second = capsys.readouterr().out.split("usage: ")[1:]
    assert first == second
    assert main(["help", "night"]) == 2
    assert "did you mean 'nights'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["nightly", "history", "bundle", "case"])
def test_an_actions_help_begins_with_what_it_does(name):
    told = re.findall(r"(?m)^    (\w+)\s+(\S.*)$", parser_of(name).format_help())
    assert told
    for action, text in told:
        leaf = next(one for one in leaves(parser_of(name)) if one.prog == f"tipchain {name} {action}")
        assert f"\n\n{text[0].upper()}{text[1:]}.\n\n" in leaf.format_help()


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("align", "x.yaml", "--onyl", "forward"), "'--only'"), (("nightly", "run", "x.yaml", "--jbos=3"), "'--jobs'")],
)
def test_an_option_that_is_close_is_named(words, meant, capsys):
    assert main(words) == 2
    assert f", did you mean {meant}?\n  see tipchain " in capsys.readouterr().err


@pytest.mark.parametrize(("when", "colored"), [("always", True), ("never", False), ("auto", False)])
def test_color_is_as_asked(when, colored, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text("===train_params===\nmodel_name:x\n")
    main(["lint", "p.txt", "--color", when])
    assert ("\x1b[" in capsys.readouterr().out) is colored


MODE_TWICE = "MODE is whole_infer, but --mode lite_train_lite_infer: give one of them"


@pytest.mark.parametrize("command", ["plan", "run", "prepare"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "MODE is missing\n  expected one of: lite_train_lite_infer"),
        (["whole_infer", "--mode", "lite_train_lite_infer"], MODE_TWICE),
        (["--mode", "whole_infre"], "did you mean 'whole_infer'"),
    ],
)
def test_a_chains_mode_is_named_once(command, words, said, tmp_path, capsys):
    (tmp_path / "p.txt").write_text("===train_params===\nmodel_name:x\n")
    assert main([command, str(tmp_path / "p.txt"), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_chains_mode_may_be_an_option(tmp_path, capsys):
    (tmp_path / "p.txt").write_text("===train_params===\nmodel_name:x\n")
    told = []
    for words in (["--mode", "whole_infer"], ["whole_infer"]):
        main(["plan", str(tmp_path / "p.txt"), *words])
        told.append(capsys.readouterr())
    assert told[0] == told[1]


def test_the_root_is_where_it_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(ROOT_VARIABLE, "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    (tmp_path / "case.yaml").write_text("id: x\n")
    assert main(["lint", "case.yaml", "--root", "none"]) == 2
    assert "--root: no such folder: none" in capsys.readouterr().err
    main(["lint", "case.yaml", "--root", "far"])
    assert find_root(tmp_path / "case.yaml") == tmp_path / "far"


def test_a_quiet_preparation_says_what_came_out_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    words = ["prepare", "tests/cases/tiny/train_infer_python.txt", "lite_train_lite_infer"]
    shown = []

    def preparing(*_args, **_more):
        print("much to say\nready")
        return 0

    monkeypatch.setattr("tipchain.commands.prepare.prepare_params", preparing)
    for quiet in ([], ["-q"]):
        assert main([*words, *quiet]) == 0
        shown.append(capsys.readouterr().out)
    assert shown == ["much to say\nready\n", "ready\n"]


def test_a_quiet_night_says_what_came_out_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_tipc").mkdir()
    commands = [{"id": "good", "argv": ["/bin/true"]}, {"id": "bad", "argv": ["/bin/false"]}]
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({"commands": commands}))
    assert main(["nightly", "run", "suite.yaml", "-q"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "1 of 2 items did not pass: bad[cpu]: exit 1"
    assert main(["nightly", "resume", "suite.yaml", "--quiet"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 1


FILES = ("case.yaml", "notes.txt")
ASKED = [
    ([""], set(COMMANDS)),
    (["ali"], {"align"}),
    (["nightly", "sta"], {"status"}),
    (["align", "--mode", ""], {mode.value for mode in Mode}),
    (["align", "ca"], {"case.yaml"}),
    (["align", "--json", "no"], {"notes.txt"}),
    (["align", "--out", "s"], {"scripts"}),
    (["nightly", "run", "--exec"], {"--executor"}),
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
    done = completed(argv, cwd=folder, check=True)
    assert {line.rstrip("/ ") for line in done.stdout.split("\n") if line} == offered
