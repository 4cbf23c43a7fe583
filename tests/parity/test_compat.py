"""torch's own source under Paddle, beside the reference in one process."""

import sys

import pytest
from programs import completed

pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.skipif(not hasattr(paddle, "use_compat_guard"), reason="this Paddle has no paddle.enable_compat()"),
]
NET = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def build():
    return Net()


def loss():
    return torch.nn.CrossEntropyLoss()
"""
ASK = """
import inspect, sys
from pathlib import Path
import torch, paddle
from tipchain.frameworks.base import resolve

for name in ("build", "loss", "build"):
    for side in sys.argv[1:]:
        made = resolve(f"net:{name}", Path.cwd(), side, compat=side == "paddle")()
        assert isinstance(made, torch.nn.Module if side == "torch" else paddle.nn.Layer), (side, name)
assert sys.modules["torch"] is torch
assert sys.modules["inspect"] is inspect, "torch has changed it, but it is Python's"
"""


@pytest.mark.parametrize("order", [("torch", "paddle"), ("paddle", "torch")])
def test_each_side_keeps_its_framework_however_often_it_is_asked(tmp_path, order):
    (tmp_path / "net.py").write_text(NET)
    done = completed([sys.executable, "-c", ASK, *order], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
