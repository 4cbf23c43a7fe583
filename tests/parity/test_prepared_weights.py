"""When the weights that both sides start from are made anew, and when they are taken as they are."""

import shutil
from pathlib import Path

import pytest
from tiny_project import TinyProject, make_tiny_project

from tipchain.modes import Mode
from tipchain.parity.case import load_case
from tipchain.parity.weights import prepare_weights
from tipchain.weights.files import read_paddle_file, read_torch_state

pytestmark = pytest.mark.frameworks


def test_weights_are_made_anew_when_a_module_behind_the_builders_changes(tmp_path, forked):
    project = make_tiny_project(tmp_path)
    for side in ("torch", "paddle"):
        (tmp_path / f"tiny_{side}.py").rename(tmp_path / f"net_{side}.py")
        (tmp_path / f"tiny_{side}.py").write_text(f"from net_{side} import *\n")
    case, mode = load_case(project.case), Mode.LITE_TRAIN_LITE_INFER
    weights = prepare_weights(case, mode).paths["torch"]
    kept = weights.stat().st_mtime_ns
    assert prepare_weights(case, mode).paths["torch"] == weights
    assert weights.stat().st_mtime_ns == kept
    for side in ("torch", "paddle"):
        project.edit(f"net_{side}.py", "nn.Linear(128, 128)", "nn.Linear(128, 64)")
        project.edit(f"net_{side}.py", "nn.Linear(128, num", "nn.Linear(64, num")
    made = prepare_weights(case, mode).paths
    assert read_torch_state(made["torch"])["head.weight"].shape == (10, 64)
    assert read_paddle_file(made["paddle"])["head.weight"].shape == (64, 10)


def test_a_run_tells_which_layer_is_which_where_names_do_not(tmp_path, forked):
    project = make_tiny_project(tmp_path)
    both = ("torch", ("square", "rest"), "self.square(hidden)"), ("paddle", ("b", "a"), "self.square(hidden)")
    for side, (first, second), call in both:
        used = f"self.{second}(nn.functional.relu(self.{first}(hidden)))"
        used = used if side == "torch" else f"self.{first}(nn.functional.relu(self.{second}(hidden)))"
        layers = f"self.{first} = nn.Linear(128, 128); self.{second} = nn.Linear(128, 128)"
        project.edit(f"tiny_{side}.py", "self.square = nn.Linear(128, 128)", layers)
        project.edit(f"tiny_{side}.py", call, used)
    names = prepare_weights(load_case(project.case), Mode.LITE_TRAIN_LITE_INFER).names
    assert {"square": "a", "rest": "b"}.items() <= names.items()


def test_the_port_may_have_a_weight_file_of_its_own(tmp_path, forked):
    paddle, project = pytest.importorskip("paddle"), make_tiny_project(tmp_path)
    for path in prepare_weights(load_case(project.case), Mode.LITE_TRAIN_LITE_INFER).paths.values():
        shutil.copy(path, project.root / path.name)
    own, files = project.root / "paddle.pdparams", "{torch: torch.pth, paddle: paddle.pdparams}"
    project.edit("case.yaml", "weights: {init: kaiming, seed: 0, fit_head: true}", f"weights: {files}")
    assert project.align("--only", "forward").returncode == 0
    state = {name: paddle.to_tensor(value) for name, value in read_paddle_file(own).items()}
    paddle.save({**state, "head.bias": state["head.bias"] + 0.1}, str(own))
    done = project.align("--only", "forward", locate=True, every=False)
    assert done.returncode == 1
    assert "`head`: its `bias`" in done.stdout, "the tensor that differs is named"
    del state["head.bias"]
    paddle.save(state, str(own))
    done = project.align("--only", "forward")
    assert done.returncode == 1
    assert "paddle.pdparams: does not fit the model" in " ".join(done.stdout.split())
    assert "missing: head.bias [10]" in done.stdout
    own.unlink()
    assert "weights.paddle: cannot be read" in project.align("--only", "forward").stdout


def test_ones_own_weight_file_serves_on_a_machine_without_torch(tmp_path):
    torch = pytest.importorskip("torch")
    from cases.tiny.tiny_torch import build_model

    torch.manual_seed(0)
    port = make_tiny_project(tmp_path / "here")
    torch.save(build_model().state_dict(), port.root / "own.pth")
    port.edit("case.yaml", "weights: {init: kaiming, seed: 0, fit_head: true}", "weights: {torch: own.pth}")
    assert port.align("--only", "forward").returncode == 0
    other = tmp_path / "elsewhere"
    shutil.copytree(port.root, other)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "torch.py").write_text("raise ImportError('no torch on this machine')")
    env = {"PYTHONPATH": f"{tmp_path / 'none'}:{Path(__file__).resolve().parents[2]}"}
    done = TinyProject(other).align("--only", "forward", "--reference", port.latest(), env=env, out="elsewhere")
    assert done.returncode == 0, done.stdout + done.stderr


def test_results_of_hundreds_are_scaled_down_in_the_last_layer(tmp_path, forked):
    """Of logits in the thousands all but one are 64 below the largest for Paddle: a right port differed in `log_softmax`."""
    project = make_tiny_project(tmp_path)
    for side in ("torch", "paddle"):
        project.edit(f"tiny_{side}.py", "return self.head(", "return self.head(1e4 * ")
    project.edit("case.yaml", "fit_head: true", "calibrate: inputs")
    assert project.align("--only", "forward").returncode == 0
    state = read_torch_state(next(tmp_path.rglob("torch.pth")))
    assert 1e-6 < abs(state["head.weight"]).max() < 1e-3
    assert abs(state["features.0.weight"]).max() > 1e-2
