"""Both doors say the same of some entries of the zoo: outcome, failing steps, layer, line and cause, and what is expected."""

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
"""By list and id: outcome and layer (``python -m zoo.doors`` writes it)."""
WRONG = ("zoo/vitrel-epsilon", "zoo/fcos-nesterov")  # LayerNorm's 1e-5 for 1e-6, and an optimizer's setting
DIES = "zoo/video-one-peephole"
"""Paddle's backward of `grid_sample` ends the process where its input takes no gradient, as in the case's own training."""
RIGHT = ("zoo/unet-up-to-a-size", "zoo/vitrel-smoothed-labels")


@pytest.mark.parametrize("key", [*WRONG, *RIGHT])
def test_both_doors_say_the_same(key, tmp_path):
    python, cli = through_python(key), through_cli(key, tmp_path)
    assert [python[name] for name in KEPT] == EXPECTED[key]
    assert differences(python, cli) == []


@pytest.mark.nightly
@pytest.mark.parametrize("key", EXPECTED)
def test_both_doors_keep_every_verdict_and_layer(key, tmp_path):
    """A case asks for no train mode of the network and has builders of its own: steps and lines may be told otherwise there."""
    python, cli = through_python(key), through_cli(key, tmp_path)
    assert [python[name] for name in KEPT] == EXPECTED[key]
    assert "left_out" in cli or key == DIES or [cli[name] for name in KEPT] == EXPECTED[key]


def test_an_entry_that_no_case_can_express_says_why(tmp_path):
    assert through_cli("zoo/bert-query-as-it-is", tmp_path) == {
        "left_out": "weights: a case converts the reference's: layers.0.attention.query.weight of the port is another"
    }


def test_the_expectations_are_those_of_the_lists():
    assert set(EXPECTED) == set(entries())
    assert {EXPECTED[key][0] for key in WRONG} == {"failed"}
    assert {EXPECTED[key][0] for key in RIGHT} == {"passed"}
