"""Training data and initial values with both frameworks, on the tiny case."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from stage_records import judge_recordings, load_both, make_bench, outcomes, reasons
from tiny_project import make_tiny_project

from tipchain.parity.settings import InitSettings, TrainDataSettings
from tipchain.parity.stages import init, train_data

pytestmark = pytest.mark.frameworks
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Both frameworks, the tiny case's modules, data, and what the torch side recorded."""
    torch, paddle = load_both()
    project = make_tiny_project(tmp_path_factory.mktemp("steps"))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        modules = [importlib.import_module(f"tests.cases.tiny.tiny_{name}") for name in ("torch", "paddle")]
    data = project.root / "test_tipc" / "data" / "lite_data"
    case = {"init": InitSettings(), "training_data": TrainDataSettings(batch_size=3, draws=600)}

    def bench(framework, module, seed=0, **spoiled):
        names = ("model", "loader", "augmentation")
        builders = {name: getattr(module, f"build_{name}") for name in names}
        builders["dataset"] = lambda _, split: module.build_dataset(data, split)
        made = make_bench(framework, builders | spoiled, seed=seed, **case)
        made.train_data = data
        return made

    stages = {"init": init, "train_data": train_data}
    reference = {name: stage.record(bench(torch, modules[0])) for name, stage in stages.items()}

    def judge(stage, **spoiled):
        return judge_recordings(stage, reference[stage], stages[stage].record(bench(paddle, modules[1], **spoiled)))

    def judge_seed(stage, seed):
        sides = zip((torch, paddle), modules, strict=True)
        return judge_recordings(stage, *(stages[stage].record(bench(*side, seed=seed)) for side in sides))

    return SimpleNamespace(paddle=paddle.paddle, port=modules[1], judge=judge, judge_seed=judge_seed)


def failures(judged):
    return reasons(judged, "FAIL", "ERROR", "SKIP")


def test_the_port_starts_as_torch_does(tiny):
    judged = tiny.judge("init")
    assert failures(judged) == {}
    assert {"square.weight", "square.bias", "features.1.weight", "features.1.running_var"} <= set(outcomes(judged))


def test_paddles_own_defaults_fail_by_name(tiny):
    found = failures(tiny.judge("init", model=lambda: tiny.port.Tiny(10, 0.5)))
    assert set(found) == {"features.0.weight", "square.weight", "square.bias", "head.weight", "head.bias"}
    assert "found looks like kaiming_normal of gain sqrt(2) over fan_in 27" in found["features.0.weight"]
    assert "found looks like xavier_uniform of gain 1" in found["head.weight"]
    assert "actual 0 everywhere in every model" in found["square.bias"]


def test_a_slope_without_its_nonlinearity_fails(tiny):
    def model():
        made = tiny.port.build_model()
        tiny.paddle.nn.initializer.KaimingUniform(negative_slope=5**0.5)(made.features[0].weight)
        made.features[1].weight.set_value(tiny.paddle.zeros([8]))
        return made

    found = failures(tiny.judge("init", model=model))
    assert set(found) == {"features.0.weight", "features.1.weight"}
    assert "kaiming_uniform of gain sqrt(2) over fan_in 27" in found["features.0.weight"]
    assert found["features.1.weight"] == "expected 1 everywhere, actual 0 everywhere"


def test_the_ports_data_pass(tiny):
    judged = tiny.judge("train_data")
    assert failures(judged) == {}
    said = reasons(judged, "PASS")
    assert said["batches"] == "6 batches of 3, the last of 3, in 2 epochs"
    assert said["shuffle"] == "both sides give samples shuffled anew in every epoch"
    assert "share" in said


def test_only_the_stage_at_fault_fails_in_a_whole_run(tmp_path, tiny):
    project = make_tiny_project(tmp_path / "project")
    project.edit("tiny_paddle.py", "return like_torch(Tiny(num_classes, dropout))", "return Tiny(num_classes, dropout)")
    done = project.align("--only", "data,train_data,init")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAIL     init/head.bias: expected random values" in done.stdout
    rows = {line.split()[1]: line for line in done.stdout.splitlines() if re.match("PASS   |FAIL   ", line)}
    assert re.match(r"PASS   data +\d+ checks", rows["data"])
    assert re.match(r"PASS   train_data +32 checks", rows["train_data"])
    assert re.match(r"FAIL   init +5 of 9 checks failed: ", rows["init"]), "never green"
    assert (project.latest() / "init_diff.log").read_text().endswith("diff check failed\n")
    assert (project.latest() / "train_data_diff.log").read_text().endswith("diff check passed\n")
