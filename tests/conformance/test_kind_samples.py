"""Legacy plans of the other kinds of chains against what their original drivers were seen to start."""

import json
from pathlib import Path

import pytest
from command_lists import difference, facts, placed, read_recorded

from tipchain.chain.kinds import KINDS
from tipchain.cli import main

SAMPLES = Path(__file__).parent / "kind_samples"
FILES = sorted(SAMPLES.glob("*/*.txt"))
RECORDED = ("benchmark_train", "dy2static", "paddle2onnx", "ptq_infer_python")


def test_each_kind_has_recorded_samples_of_at_least_two_suites():
    for kind in RECORDED:
        assert len([path for path in FILES if path.parent.name == kind]) >= 2, kind
    assert {path.parent.name for path in FILES} == set(RECORDED)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_commands_are_those_that_the_driver_starts(path, tmp_path, monkeypatch, capsys):
    kind, lists = KINDS[path.parent.name], read_recorded(path.with_suffix(".jsonl"))
    head = json.loads(path.with_suffix(".jsonl").read_text().splitlines()[0])
    argument = [head["argument"]] if "argument" in head else []
    (root := tmp_path / "checkout").mkdir()  # names of logs begin with the folder's
    monkeypatch.chdir(root)
    assert set(lists) == {mode.value for mode in kind.modes}
    for mode, expected in lists.items():
        words = ["plan", str(path), mode, *argument, "--chain", kind.name, "--suite", path.stem]
        assert main([*words, "--legacy", "--json", "-"]) == 0
        actual = [facts(command) for command in json.loads(capsys.readouterr().out)["commands"]]
        assert len(expected) > 1
        found = difference(placed(expected, root), actual)
        assert not found, found
