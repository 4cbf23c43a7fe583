"""What is prepared for a stage does not depend on the stages beside it."""

from dataclasses import replace

from tipchain.errors import WeightsError
from tipchain.modes import Mode
from tipchain.parity import weights
from tipchain.parity.case import Override, load_case

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
