"""Record and judge the stages optimizer, lr and regularization in this process, each side with a case of its own."""

import warnings
from dataclasses import replace
from pathlib import Path

import torch  # noqa: F401  (before paddle)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # paddle's import warns about ccache
    import paddle  # noqa: F401

from stage_records import judge_recordings

from tipchain.errors import Outcome
from tipchain.frameworks import load_framework
from tipchain.parity.case import load_case
from tipchain.parity.stages import Bench, record
from tipchain.parity.stages.bench import Recording
from tipchain.parity.stages.judging import Rules

PAIRS = """\
id: pairs
sides:
  torch:
    model: "tests.cases.tiny.tiny_torch:build_model"
    optimizer: "tipchain.pairs.torch_optimizers:build_optimizer"
    scheduler: "tipchain.pairs.torch_schedulers:build_scheduler"
  paddle:
    model: "tests.cases.tiny.tiny_paddle:build_model"
    optimizer: "tipchain.pairs.paddle_optimizers:build_optimizer"
    scheduler: "tipchain.pairs.paddle_schedulers:build_scheduler"
stages: [optimizer, lr, regularization]
optimizer: {name: momentum, weight_decay: 1.0e-4}
scheduler: {name: step, step_size: 30}
train: {learning_rate: 0.1}
"""
FRAMEWORKS = {name: load_framework(name) for name in ("torch", "paddle")}


def pairs_case(folder: Path, text: str = PAIRS):
    """Return a case of the builders that tipchain brings along."""
    path = folder / "pairs.yaml"
    path.write_text(text)
    return replace(load_case(path), root=Path(__file__).resolve().parents[1])


def with_args(case, **args):
    return replace(case, optimizer_args=args)


def record_side(case, side: str, stage: str) -> Recording:
    bench = Bench(
        framework=FRAMEWORKS[side],
        case=case.for_stage(stage),
        weights=None,
        inputs={},
        train_data=Path(),
        eval_data=Path(),
        epochs=1,
        folder=Path(),
    )
    return record(stage, bench)


def judge_records(stage: str, reference: Recording, port: Recording, case=None):
    """Return the verdicts on two recordings by subject without the stage."""
    judged = judge_recordings(stage, reference, port, case and Rules.of(case))
    for verdict in judged.verdicts:
        assert verdict.subject.startswith(f"{stage}/")
    return {verdict.subject.removeprefix(f"{stage}/"): verdict for verdict in judged.verdicts}


def align(stage: str, case, port_case=None):
    """Record both sides of one stage, the port's with a case of its own if one is given, and return the verdicts."""
    return judge_records(
        stage, record_side(case, "torch", stage), record_side(port_case or case, "paddle", stage), case
    )


def outcomes(verdicts) -> set[Outcome]:
    return {verdict.outcome for verdict in verdicts.values()}


def failed(verdicts) -> dict[str, str]:
    return {name: one.reason for name, one in verdicts.items() if one.outcome is Outcome.FAIL}
