"""Both sides of a case in this process, for tests that record a stage many times with one thing changed."""

from dataclasses import dataclass
from pathlib import Path

import forking
import pytest
from tiny_project import TinyProject

from tipchain.errors import Outcome
from tipchain.modes import Mode, tensors_name
from tipchain.numbers.dumps import Record, load_record
from tipchain.parity.case import SIDES, load_case
from tipchain.parity.stages import Bench, judge_dumps, record
from tipchain.parity.stages.judging import Dumps, Judged, Rules
from tipchain.parity.stages.tensors import save_tensors
from tipchain.parity.weights import prepare


@dataclass
class BothSides:
    """A bench for each side of one case."""

    torch: Bench
    paddle: Bench

    def record(self, stage: str, side: str) -> Record:
        """Return what a stage records on one side, as it would be loaded from its dump."""
        bench = getattr(self, side)
        recording = record(stage, bench)
        if recording.tensors:
            save_tensors(bench.folder / tensors_name(stage, side), recording.tensors)
        meta = {"side": side, "details": dict(recording.details)}
        return Record(side=side, meta=meta, arrays=recording.arrays)

    def judge(self, stage: str, reference: Record | None = None, port: Record | None = None) -> Judged:
        """Record and judge a stage; ``reference`` spares recording torch's side again, ``port`` Paddle's."""
        dumps = Dumps(
            stage=stage,
            reference=reference or self.record(stage, "torch"),
            port=port or self.record(stage, "paddle"),
            folder=self.paddle.folder,
        )
        return judge_dumps(dumps, Rules.of(self.paddle.case))


def failed(judged: Judged) -> dict[str, str]:
    return {v.subject: v.reason for v in judged.verdicts if v.outcome is not Outcome.PASS}


def open_both_sides(project: TinyProject, stages: tuple[str, ...]) -> BothSides:
    """Prepare and open both sides; torch is imported first."""
    import torch  # noqa: F401

    from tipchain.frameworks import load_framework
    from tipchain.modes import parse_device

    case, mode = load_case(project.case), Mode.LITE_TRAIN_LITE_INFER
    folder = project.root / "in_process"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in forking.variables(forking.HERE.parent).items():
            patch.setenv(name, value)
        prepared = prepare(case, mode, stages, folder, SIDES, None)
    assert not prepared.failures
    benches = {}
    for side in SIDES:
        framework = load_framework(side)
        framework.configure(parse_device("cpu"), case.seed, 1)
        needs = [prepared.needs(stage, side) for stage in stages]
        inputs = next((load_record(Path(one.inputs)).arrays for one in needs if one.inputs), {})
        benches[side] = Bench(
            framework=framework,
            case=case,
            weights=next((Path(one.weights) for one in needs if one.weights), None),
            inputs={name: array for name, array in inputs.items() if not name.startswith("@")},
            other_inputs={name: array for name, array in inputs.items() if name.startswith("@")},
            train_data=prepared.train_data,
            eval_data=prepared.eval_data,
            epochs=1,
            folder=folder,
        )
    return BothSides(**benches)
