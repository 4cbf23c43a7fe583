"""What is prepared for a stage does not depend on the stages beside it; what prepared weights are known by."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tipchain.errors import WeightsError
from tipchain.modes import Mode
from tipchain.parity import weights
from tipchain.parity.case import InputSpec, Override, load_case
from tipchain.parity.inputs import make_input

ROOT = Path(__file__).resolve().parents[2]
CASE = """\
id: net
sides:
  torch: {model: "m:build", loss: "m:loss", optimizer: "m:optimizer"}
  paddle: {model: "m:build", loss: "m:loss", optimizer: "m:optimizer"}
inputs:
  image: {shape: [2, 3]}
  label: {shape: [2], dtype: int64, high: 10}
stages: [loss, backward]
"""


def test_another_model_of_one_stage_leaves_the_digests_of_the_others(tmp_path, monkeypatch):
    def refuse(cases, *_, **__):
        return [WeightsError("are not needed here") for _ in cases]

    monkeypatch.setattr(weights, "prepare_variants", refuse)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "net.yaml").write_text(CASE)
    plain = load_case(tmp_path / "net.yaml")
    case = replace(plain, overrides={"loss": Override(model_args={"width": 2})})

    def digests(case, *stages):
        mode = Mode.LITE_TRAIN_LITE_INFER
        prepared = weights.prepare(case, mode, stages, tmp_path, ("torch",), None)
        return {stage: prepared.digests[stage]["settings"] for stage in stages}

    together = digests(case, "loss", "backward")
    assert together["backward"] == digests(case, "backward")["backward"], "it is recorded alone on the other side"
    assert together["backward"] == digests(plain, "backward")["backward"]
    assert together["loss"] == digests(case, "loss")["loss"] != together["backward"]


def test_stages_with_equal_overrides_share_what_is_prepared(tmp_path):
    (tmp_path / "pyproject.toml").touch()
    equal = "{model_args: {width: 2}}"
    overrides = f"overrides: {{forward: {{model_args: {{width: 3}}}}, loss: {equal}, backward: {equal}}}\n"
    (tmp_path / "net.yaml").write_text(CASE.replace("[loss,", "[forward, loss,") + overrides)
    case = load_case(tmp_path / "net.yaml")
    assert case.for_stage("backward") == case.for_stage("loss")
    assert [case.for_stage(stage).variant for stage in ("forward", "loss", "backward", "data")] == [
        "forward",
        "loss",
        "loss",
        "",
    ]


def test_a_change_of_the_conversion_makes_paddles_weights_stale(tmp_path, monkeypatch):
    file = "weights/matching.py"
    case = load_case(ROOT / "tests/cases/tiny/tiny.yaml")
    image = tmp_path / "train" / "0" / "a.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"abc")
    before = weights.keys_of(case, tmp_path)
    real = weights.sha256_of
    monkeypatch.setattr(weights, "sha256_of", lambda path: "other" if path.as_posix().endswith(file) else real(path))
    after = weights.keys_of(case, tmp_path)
    assert after["paddle"] != before["paddle"]
    assert after["torch"] == before["torch"], "the torch file stays"


@pytest.mark.frameworks
def test_digest_of_bfloat16_weights():
    torch = pytest.importorskip("torch")
    one = {"a": torch.tensor([1.0, 2.0], dtype=torch.bfloat16)}
    assert weights.state_digest(one) == weights.state_digest({"a": one["a"].clone()})
    assert weights.state_digest(one) != weights.state_digest({"a": one["a"] * 2})
    assert weights.state_digest(one) != weights.state_digest({"a": one["a"].float()})


@pytest.mark.frameworks
@pytest.mark.parametrize(("samples", "pooled", "used"), [(1, False, 1), (1, True, 4), (3, True, 4), (5, True, 5)])
def test_norms_are_calibrated_on_the_cases_own_batch_where_each_channel_has_values_enough(samples, pooled, used):
    torch = pytest.importorskip("torch")
    spec = InputSpec(name="image", shape=(samples, 2, 3, 3))
    case = SimpleNamespace(inputs={"image": spec}, weights=SimpleNamespace(calibrate="inputs"))
    pooling = [torch.nn.AdaptiveAvgPool2d(1)] if pooled else []
    first, last = torch.nn.BatchNorm2d(2), torch.nn.BatchNorm2d(2)
    model = torch.nn.Sequential(first, *pooling, last)
    weights._calibrate(torch, case, model, [first, last], Path())
    images = make_input(InputSpec(name="image", shape=(used, 2, 3, 3)))
    assert first.running_mean.tolist() == pytest.approx(images.mean(axis=(0, 2, 3)), rel=1e-5)
    assert first.num_batches_tracked == last.num_batches_tracked == 1
    assert (first.momentum, len(first._forward_pre_hooks)) == (0.1, 0)


@pytest.mark.frameworks
def test_what_would_switch_off_a_branch_or_hide_a_mix_up_is_drawn():
    torch = pytest.importorskip("torch")
    begin = {
        "gamma": torch.full((8,), 1e-6),
        "position": torch.zeros(1, 8),
        "scale": torch.ones(8),
        "gate": torch.zeros(1),
        "temperature": torch.full((8,), 0.07),
        "logit_scale": torch.ones(1),
        "drawn": torch.linspace(-1e-4, 1e-4, 8),
        "memory": torch.tensor([0.0, float("nan"), 1e30, 0.0]),  # torch.empty: openai/whisper's positions
    }
    model = torch.nn.Module()
    for name, value in begin.items():
        setattr(model, name, torch.nn.Parameter(value.clone()))
    model.frozen = torch.nn.Parameter(torch.zeros(8), requires_grad=False)
    spec = SimpleNamespace(seed=0, fit_head=False)
    weights.initialize(SimpleNamespace(weights=spec), model, Path())
    changed = {name for name, value in begin.items() if not torch.equal(getattr(model, name), value)}
    assert changed == {"gamma", "position", "scale", "gate", "memory"}
    assert float(model.memory.detach().abs().max()) < 1
    assert not model.frozen.any()
    for name, middle in (("gamma", 0), ("scale", 1)):
        found = getattr(model, name).detach()
        assert 0.01 < float(found.std()) < 0.3
        assert abs(float(found.mean()) - middle) < 0.2
