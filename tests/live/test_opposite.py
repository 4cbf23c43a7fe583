"""A port whose code reads like the reference's is told at the one statement that reads otherwise."""

import numpy as np
import pytest
from live_nets import copy_and_align, loaded
from zoo.ports import in_paddle

from tipchain.explain.causes.lines import Code, Frame, at_line, functions_in, only_unlike, opposite, reading

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore")]
SOURCE = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, stride=stride, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        y = self.body(x)
        g = y.mean((2, 3))
        g = self.gate(g)
        g = torch.sigmoid(g)
        y = y * g[:, :, None, None]
        return y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = self.stage(4, 1)
        self.second = self.stage(4, 2)
        self.names = nn.ParameterList([nn.Parameter(torch.full((4,), 0.5)) for _ in range(2)])

    def stage(self, width, stride):
        return nn.Sequential(Block(width, stride), Block(width, 1))

    def forward(self, x):
        y = self.second(self.first(x))
        number = x.shape[2] * x.shape[3] - 1
        y = (
            y.mean((2, 3))
            / number
        )
        return y * self.names[0] + self.names[1]
"""
WRONG = {
    "a name for a call": ("g = self.gate(g)", "g = g"),
    "a product lost": ("y = y * g[:, :, None, None]", "y = y"),
    "a number in plain Python": ("number = x.shape[2] * x.shape[3] - 1", "number = x.shape[2] + x.shape[3] - 1"),
    "an argument that is handed on": ("self.second = self.stage(4, 2)", "self.second = self.stage(4, 1)"),
    "a layer": ("nn.ReLU()", "nn.GELU()"),
    "a gradient that a list of parameters lacks": ("* self.names[0]", "* self.names[0].detach()"),
}


def ported(text):
    own = "paddle.create_parameter([4], 'float32', default_initializer=nn.initializer.Constant(0.5))"
    text = in_paddle(text).replace("F.sigmoid", "paddle.sigmoid").replace("nn.Parameter(paddle.full((4,), 0.5))", own)
    return text.replace("nn.BatchNorm2D(width)", "nn.BatchNorm2D(num_features=width)")


@pytest.mark.parametrize("mistake", WRONG)
def test_the_statement_that_reads_otherwise_is_told(mistake, tmp_path):
    right, wrong = WRONG[mistake]
    port_text = ported(SOURCE).replace(right, wrong)
    reference = loaded(tmp_path / "opposite_torch.py", SOURCE).Net()
    port = loaded(tmp_path / "opposite_paddle.py", port_text).Net()
    report = copy_and_align(reference, port, np.random.default_rng(0).standard_normal((2, 4, 6, 8)).astype("float32"))
    assert not report.passed
    cause, *_ = report.diagnoses
    assert cause.place.line == next(n for n, line in enumerate(port_text.split("\n"), 1) if wrong in line), str(report)
    assert cause.place.file.endswith("opposite_paddle.py")


def test_a_statement_reads_alike_in_both_frameworks():
    for ours, theirs in (
        ("x = torch.cat([a, b], dim=1)  # both", "x = paddle.concat([a, b], axis=1)"),
        ("self.norm = nn.BatchNorm2d(8, eps=1e-3)", "self.norm = paddle.nn.BatchNorm2D(num_features=8, epsilon=0.001)"),
        ("if (x.ndim > 2):", "if x.ndim > 2:"),
        ("y = x.view(2, -1).contiguous()", "y = x.reshape(2, -1)"),
        ("self.act = nn.ReLU(inplace=True)", "self.act = nn.ReLU()"),
    ):
        assert reading(ours) == reading(theirs), ours
    assert reading("x = a + b") != reading("x = a - b")


def test_statements_stand_opposite_in_their_order(tmp_path):
    texts = SOURCE, ported(SOURCE).replace("        g = torch.sigmoid(g)\n".replace("torch", "paddle"), "")
    files = [tmp_path / "ours.py", tmp_path / "theirs.py"]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    ours, theirs = (functions_in(str(file)) for file in files)
    lost = next(n for n, line in enumerate(SOURCE.split("\n"), 1) if "sigmoid" in line)
    before, exact = opposite(at_line(str(files[0]), lost), theirs)
    assert (before.line, exact) == ("g = self.gate(g)", False)
    against, exact = opposite(at_line(str(files[0]), lost + 1), theirs)
    assert (against.line, exact) == ("y = y * g[:, :, None, None]", True)
    here, there = only_unlike(
        [one for one in theirs if one.name == "Block.forward"], [one for one in ours if one.name == "Block.forward"]
    )
    assert (here.line, there.line) == ("g = self.gate(g)", "g = torch.sigmoid(g)")
    assert opposite(Frame(), theirs) is None
    assert only_unlike([], ours) is None, "what differs may stand in a function of another name"
    assert Code(str(files[0]), 1, "none") not in ours
