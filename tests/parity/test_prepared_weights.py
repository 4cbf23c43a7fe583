"""When the weights that both sides start from are made anew, and when they are taken as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_project import TinyProject, make_tiny_project

pytestmark = pytest.mark.frameworks


def test_weights_are_made_anew_when_a_module_behind_the_builders_changes(tmp_path):
    project = make_tiny_project(tmp_path)
    for side in ("torch", "paddle"):
        (tmp_path / f"tiny_{side}.py").rename(tmp_path / f"net_{side}.py")
        (tmp_path / f"tiny_{side}.py").write_text(f"from net_{side} import *\n")
    assert project.align("--stages", "forward").returncode == 0
    weights = tmp_path / "test_tipc/data/weights/tiny/lite/torch.pth"
    kept = weights.stat().st_mtime_ns
    assert project.align("--stages", "forward").returncode == 0
    assert weights.stat().st_mtime_ns == kept
    for side in ("torch", "paddle"):
        project.edit(f"net_{side}.py", "nn.Linear(128, 128)", "nn.Linear(128, 64)")
        project.edit(f"net_{side}.py", "nn.Linear(128, num", "nn.Linear(64, num")
    done = project.align("--stages", "forward")
    assert done.returncode == 0, done.stdout


def test_ones_own_weight_file_serves_on_a_machine_without_torch(tmp_path):
    port = make_tiny_project(tmp_path / "here")
    assert port.align("--stages", "forward").returncode == 0
    shutil.copy(port.root / "test_tipc/data/weights/tiny/lite/torch.pth", port.root / "own.pth")
    port.edit("case.yaml", "weights: {init: kaiming, seed: 0, fit_head: true}", "weights: {torch: own.pth}")
    assert port.align("--stages", "forward").returncode == 0
    other = tmp_path / "elsewhere"
    shutil.copytree(port.root, other)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "torch.py").write_text("raise ImportError('no torch on this machine')")
    env = {"PYTHONPATH": f"{tmp_path / 'none'}:{Path(__file__).resolve().parents[2]}"}
    done = TinyProject(other).align(
        "--stages", "forward", "--torch-dump", port.latest(), env=env, out="elsewhere"
    )
    assert done.returncode == 0, done.stdout + done.stderr
