"""A port whose layers have other names, and are packed otherwise, is aligned under torch's names without a name map."""

from __future__ import annotations

import json
import subprocess
import textwrap

import pytest
from stage_records import recording_job

from tipchain.core.json_text import as_json, parse_as
from tipchain.errors import Outcome
from tipchain.modes import Mode
from tipchain.parity.case import load_case
from tipchain.parity.recorder import RecordingJob, run_job
from tipchain.parity.stages.judging import Rules, judge_stage

pytestmark = pytest.mark.frameworks

NET = """
    from NAME import nn
    BASE = nn.Module if "NAME" == "torch" else nn.Layer

    class Net(BASE):
        def __init__(self):
            super().__init__()
            LAYERS

        def forward(self, clip):
            hidden, _ = self.FIRST(clip)
            attended = SECOND
            return self.THIRD(attended[:, -1] + hidden[:, 0])

    def build_model():
        return Net()

    def build_loss():
        return nn.CrossEntropyLoss()
"""
TORCH = {
    "NAME": "torch",
    "FIRST": "rnn",
    "THIRD": "head",
    "SECOND": "self.attn(hidden, hidden, hidden)[0]",
    "LAYERS": "self.rnn = nn.LSTM(6, 4, 2, batch_first=True, bidirectional=True); "
    "self.attn = nn.MultiheadAttention(8, 2, batch_first=True); self.head = nn.Linear(8, 8); "
    "self.pooler = nn.Linear(3, 3)",
}
PADDLE = {
    "NAME": "paddle",
    "FIRST": "lstm",
    "THIRD": "fc",
    "SECOND": "self.mixer(hidden)",
    "LAYERS": "self.lstm = nn.LSTM(6, 4, 2, direction='bidirect'); "
    "self.mixer = nn.MultiHeadAttention(8, 2); self.fc = nn.Linear(8, 8)",
}
STEPS = {
    "torch": "def build_optimizer(parameters, learning_rate):\n"
    "    import torch\n    return torch.optim.SGD(parameters, lr=learning_rate)\n",
    "paddle": "def build_optimizer(parameters, learning_rate):\n"
    "    import paddle\n    return paddle.optimizer.SGD(learning_rate, parameters=parameters)\n",
}
CASE = """
    id: packed
    sides:
      torch: {model: "packed_torch:build_model", loss: "packed_torch:build_loss", optimizer: "packed_torch:build_optimizer"}
      paddle: {model: "packed_paddle:build_model", loss: "packed_paddle:build_loss", optimizer: "packed_paddle:build_optimizer"}
    weights: {torch: own.pth, ignore: [pooler], names: {head: fc}}
    inputs:
      clip: {shape: [4, 5, 6], dtype: float32, seed: 0}
      label: {shape: [4], dtype: int64, high: 8}
    stages: [forward, loss, backward]
    backward: {iterations: 2, learning_rate: 1.0e-4, mode: train}
    seed: 0
"""


@pytest.fixture
def case(both, tmp_path):
    for side, words in (("torch", TORCH), ("paddle", PADDLE)):
        text = textwrap.dedent(NET)
        for old, new in words.items():
            text = text.replace(old, new)
        (tmp_path / f"packed_{side}.py").write_text(text + STEPS[side])
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "case.yaml").write_text(textwrap.dedent(CASE))
    scope: dict = {}
    exec((tmp_path / "packed_torch.py").read_text(), scope)
    both.torch.manual_seed(1)
    both.torch.save(scope["build_model"]().state_dict(), tmp_path / "own.pth")
    return load_case(tmp_path / "case.yaml")


@pytest.fixture
def prepared(case, monkeypatch):
    """Return the stages' needs, with the weights made in this process."""
    from tipchain.parity import weights

    def here(command, **_more):
        return subprocess.CompletedProcess(command, weights.main(command[-2:]), "", "")

    monkeypatch.setattr(weights.subprocess, "run", here)
    mode = Mode("lite_train_lite_infer")
    return weights.prepare(case, mode, case.stages, case.root, ("torch", "paddle"), None)


def test_gradients_of_packed_and_renamed_layers_are_compared_and_what_the_case_ignores_is_not(case, prepared, tmp_path):
    names = json.loads(next(case.root.rglob("paddle.json")).read_text())["facts"]["names"]
    assert {"rnn": "lstm", "attn": "mixer", "head": "fc"}.items() <= names.items()
    (tmp_path / "run").mkdir()
    events = []
    for side in ("torch", "paddle"):
        given = {"reseed": case.reseed, "needs": {one: prepared.needs(one, side) for one in case.stages}}
        data = {"train_data": str(prepared.train_data), "eval_data": str(prepared.eval_data)}
        folder = str(tmp_path / "run")
        job = recording_job(*case.stages, side=side, case=str(case.path), folder=folder, **given, **data)
        run_job(parse_as(RecordingJob, as_json(job)), events.append)
    assert all(event["ok"] for event in events if event["event"] == "end"), events
    for stage in case.stages:
        verdicts = judge_stage(stage, tmp_path / "run", Rules.of(case)).verdicts
        assert verdicts
        assert all(one.outcome is Outcome.PASS for one in verdicts), [str(one) for one in verdicts]
    subjects = {one.subject for one in verdicts}
    assert any("attn.in_proj_weight" in one for one in subjects)
    assert any("rnn.weight_hh_l1_reverse" in one for one in subjects)
    assert not any("pooler" in one for one in subjects)
