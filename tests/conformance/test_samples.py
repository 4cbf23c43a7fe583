"""Legacy plans of parameter files of our own against lists worked out by hand from what the drivers do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_lists import difference, facts, placed
from sample_lists import read_lists

from tipchain.cli import main

SAMPLES = Path(__file__).parent / "samples"
MODES = ("lite_train_lite_infer", "lite_train_whole_infer", "whole_train_whole_infer", "whole_infer")
SUITES = (
    "paddleclas",
    "paddledetection",
    "paddleseg",
    "medicalseg",
    "panopticseg",
    "paddlevideo",
    "paddlerec",
    "paddlegan",
    "tutorial",
    "template",
    "alexnet",
)
FILES = sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*/*.txt"))


def test_every_suite_has_samples_and_every_sample_a_list_for_each_mode():
    assert {name.partition("/")[0] for name in FILES} == set(SUITES)
    for name in FILES:
        assert set(read_lists(SAMPLES / name.replace(".txt", ".yaml"))) == set(MODES), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILES)
def test_the_commands_worked_out_by_hand(name, mode, tmp_path, monkeypatch, capsys):
    expected = read_lists(SAMPLES / name.replace(".txt", ".yaml"))[mode]
    monkeypatch.chdir(tmp_path)
    code = main(["plan", str(SAMPLES / name), mode, "--suite", name.partition("/")[0], "--legacy", "--json"])
    printed = capsys.readouterr()
    assert code == (0 if expected else 4), printed.err
    actual = [facts(command) for command in json.loads(printed.out)["commands"]]
    found = difference(placed(expected, tmp_path), actual)
    assert not found, f"{name}, {mode}: {found}"
