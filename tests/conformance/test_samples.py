"""Legacy plans of parameter files of our own against what the original drivers were seen to start for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_lists import difference, facts, placed, read_recorded

from tipchain.cli import main
from tipchain.modes import CHAIN_MODES

SAMPLES = Path(__file__).parent / "samples"
MODES = tuple(mode.value for mode in CHAIN_MODES)
SUITES = (
    "paddleclas",
    "paddledetection",
    "paddleseg",
    "medicalseg",
    "panopticseg",
    "paddlers",
    "paddleocr",
    "paddlenlp",
    "paddlevideo",
    "paddlerec",
    "paddlegan",
    "paddle3d",
    "passl",
    "tutorial",
    "template",
    "alexnet",
    "programs",
    "verbatim",
)
FILES = sorted(path.relative_to(SAMPLES).as_posix() for path in SAMPLES.glob("*/*.txt"))
# In this mode these drivers take the first 17 lines for those of another kind of file, whatever they are.
OTHER_LAYOUT = {(suite, "klquant_whole_infer") for suite in ("template", "alexnet", "paddlenlp")}


def recorded(name: str):
    return read_recorded((SAMPLES / name).with_suffix(".jsonl"))


def test_every_suite_has_samples_and_every_sample_was_recorded_in_every_mode():
    assert {name.partition("/")[0] for name in FILES} == set(SUITES)
    for name in FILES:
        assert tuple(recorded(name)) == MODES, name
        assert any(recorded(name).values()), name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FILES)
def test_the_commands_are_those_that_the_driver_starts(name, mode, tmp_path, monkeypatch, capsys):
    suite = name.partition("/")[0]
    expected = [] if (suite, mode) in OTHER_LAYOUT else recorded(name)[mode]
    monkeypatch.chdir(tmp_path)
    code = main(["plan", str(SAMPLES / name), mode, "--suite", suite, "--legacy", "--json", "-"])
    printed = capsys.readouterr()
    assert code == (0 if expected else 4), printed.err
    actual = [facts(command) for command in json.loads(printed.out)["commands"]]
    found = difference(placed(expected, tmp_path), actual)
    assert not found, f"{name}, {mode}: {found}"
