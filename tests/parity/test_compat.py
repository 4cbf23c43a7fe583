"""torch's own source under Paddle, beside the reference in one process."""

from __future__ import annotations

import inspect
import sys

import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

from tipchain.frameworks import base  # noqa: E402

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


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Builds what a module of both sides names, each time anew."""
    (tmp_path / "compat_net.py").write_text(NET)
    monkeypatch.setattr(base, "_imports", base._OwnImports())
    monkeypatch.setattr(sys, "path", [*sys.path])

    def make(side, name):
        return base.resolve(f"compat_net:{name}", tmp_path, side, compat=side == "paddle")()

    yield make
    for name in [one for one in sys.modules if one.startswith("compat_net")]:
        del sys.modules[name]


@pytest.mark.parametrize("order", [("torch", "paddle"), ("paddle", "torch")])
def test_each_side_keeps_its_framework_however_often_it_is_asked(made, order):
    for name in ("build", "loss", "build"):
        for side in order:
            kind = torch.nn.Module if side == "torch" else paddle.nn.Layer
            assert isinstance(made(side, name), kind), (side, name)
    assert sys.modules["torch"] is torch
    assert sys.modules["inspect"] is inspect, "torch has changed it, but it is Python's"
