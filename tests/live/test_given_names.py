"""Names that the user gives settle which layers belong together; those that lead nowhere are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from both_frameworks import paddle, torch

import tipchain
from tipchain.cli import main
from tipchain.errors import InputError, UsageError, WeightsError
from tipchain.live.sources import open_case
from tipchain.weights.given_names import read_names

ROOT = Path(__file__).resolve().parents[2]
MODE = "lite_train_lite_infer"
SIDES = """
import numpy as np
import paddle
import torch

class Twins(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.left(x) + 2 * self.right(x).tanh()

class Port(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.second, self.first = paddle.nn.Linear(4, 4), paddle.nn.Linear(4, 4)

    def forward(self, x):
        return self.first(x) + 2 * self.second(x).tanh()

def reference():
    torch.manual_seed(0)
    return Twins()

def port():
    made, weights = Port(), reference()
    for ours, theirs in ((weights.left, made.first), (weights.right, made.second)):
        theirs.weight.set_value(ours.weight.detach().numpy().T + 0.25)
        theirs.bias.set_value(ours.bias.detach().numpy())
    return made
"""
"""Every weight of the port is off, so that values cannot tell which layer is which, and order would tell wrongly."""


@pytest.fixture
def here(tmp_path, monkeypatch, forked):
    (tmp_path / "twins.py").write_text(SIDES)
    np.savez(tmp_path / "inputs.npz", args=np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def locate(names, *more):
    words = "locate --reference twins:reference --port twins:port --inputs inputs.npz --names"
    return main([*words.split(), names, *more])


def test_a_map_says_which_layer_is_which(here, capsys):
    (here / "names.yaml").write_text("left: first\nright: second\n")
    assert locate("names.yaml", "--json", "report.json") == 1
    report = json.loads((here / "report.json").read_text())
    paths = {(one["reference_path"], one["port_path"]) for one in report["layers"] if one["port_path"]}
    assert paths == {("left", "first"), ("right", "second")}
    assert "--names names.yaml" in report["command"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "message"),
    [("left: first\nleft: second\n", "names.yaml:2: left: stands twice"), (None, "names.yaml: cannot be read")],
)
def test_a_file_that_is_no_map_is_refused_before_any_model_is_built(here, text, message, capsys):
    (here / "twins.py").write_text("raise SystemExit('nothing may be imported')")
    if text is not None:
        (here / "names.yaml").write_text(text)
    assert locate("names.yaml") == 2
    assert message in capsys.readouterr().err


def test_unknown_paths_are_told_with_file_line_and_key(here, capsys):
    (here / "names.yaml").write_text("left: first\nright: secnod\n")
    assert locate("names.yaml") == 2
    said = capsys.readouterr().err
    assert "names.yaml:2: right: the Paddle model has no 'secnod', did you mean 'second'?" in said
    assert "expected: a tensor of the Paddle model, or a layer" in said


def test_names_are_added_to_those_of_a_case(tmp_path, forked):
    case = ROOT / "tests/cases/tiny/tiny.yaml"
    file = tmp_path / "names.yaml"
    file.write_text("square: square\nhead.weight: head.weight\n")
    assert open_case(case, MODE, names=read_names(file))["names"].items() >= read_names(file).names.items()
    file.write_text("square: square\n\nhaed: head\n")
    with pytest.raises(InputError, match=r"names.yaml:3: haed: the torch model has no 'haed', did you mean 'head'"):
        open_case(case, MODE, names=read_names(file))
    file.write_text("square: head\nhead: square\n")
    with pytest.raises(WeightsError):  # the weights are converted by the same names
        open_case(case, MODE, names=read_names(file))


def test_align_refuses_names_that_lead_nowhere():
    models = (
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()),
        paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.ReLU()),
    )
    with pytest.raises(UsageError, match=r"'0': '1' of the Paddle model holds no tensors"):
        tipchain.align(*models, np.ones((1, 3), np.float32), names={"0": "1"})
