"""Both doors say the same of some entries of each list: outcome, failing steps, layer, line and cause, and what is expected."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

for _name in ("torch", "paddle"):
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

import torch  # noqa: E402, F401  (before paddle)
from zoo.doors import KEPT, differences, through_cli, through_python  # noqa: E402
from zoo.entries import entries  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]
EXPECTED = json.loads((Path(__file__).parent / "zoo" / "verdicts.json").read_text(encoding="utf-8"))
"""By list and id: outcome and layer, as they were before there was one judge (``python -m zoo.doors verdicts`` writes it)."""
WRONG = (
    "zoo/deep-epsilon-first",
    "held_out/vit-epsilon-default",  # LayerNorm's 1e-5 for 1e-6
    "third/unet-up-corners",
    "fourth/retina-norm-epsilon",
    "fifth/translate-gates",
    "training_held_out/optimizer-adamw-betas-swapped",
)
RIGHT = (
    "zoo/deep-eval",
    "held_out/second-tied-eval",
    "third/unet-eval",
    "fourth/retina-anchors-anew",
    "fifth/bert-added-mask",
    "training_held_out/noam",
)


@pytest.mark.parametrize("key", [*WRONG, *RIGHT])
def test_both_doors_say_the_same(key, tmp_path):
    entry = entries(key.partition("/")[0])[key]
    python, cli = through_python(entry, tmp_path), through_cli(entry, tmp_path)
    assert [python[name] for name in KEPT] == EXPECTED[key]
    assert differences(python, cli, doors=True) == []


@pytest.mark.nightly
@pytest.mark.parametrize("key", EXPECTED)
def test_every_entry_keeps_its_verdict_and_its_layer(key, tmp_path):
    found = through_python(entries(key.partition("/")[0])[key], tmp_path)
    assert [found[name] for name in KEPT] == EXPECTED[key]


def test_an_entry_that_no_case_can_express_says_why(tmp_path):
    entry = entries("zoo")["zoo/linear-transposed-square"]
    assert through_cli(entry, tmp_path) == {
        "left_out": "weights: a case converts the reference's: fc1.weight of the port is another"
    }


def test_the_expectations_are_those_of_the_lists():
    known = {key for name in {key.partition("/")[0] for key in EXPECTED} for key in entries(name)}
    assert set(EXPECTED) == known
    assert {EXPECTED[key][0] for key in WRONG} == {"failed"}
    assert {EXPECTED[key][0] for key in RIGHT} == {"passed"}
