"""Judge what two recordings hold without writing files, and benches made of plain functions."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

from tipchain.modes import dump_name, tensors_name
from tipchain.numbers.dumps import Record, save_record
from tipchain.parity.recorder import RecordingJob
from tipchain.parity.stages import judge_dumps
from tipchain.parity.stages.judging import Dumps, Rules


def recording_job(*stages: str, **more) -> RecordingJob:
    """Return a job of torch's side that is fed nothing, but for ``more``."""
    empty = dict.fromkeys(("case", "folder", "train_data", "eval_data", "commit"), "")
    given = {"side": "torch", "device": "cpu", "threads": 1, "needs": {}, "epochs": 1}
    return RecordingJob(**{**empty, **given, **more}, stages=stages)


def write_dumps(folder: Path, stage: str, *arrays, metas=(None, None), tensors=(None, None)) -> Path:
    """Write both sides' dumps, with what is said beside them and files of tensors; None leaves a side without."""
    for side, mine, meta, more in zip(("torch", "paddle"), arrays, metas, tensors, strict=True):
        save_record(folder / dump_name(stage, side), {key: np.asarray(one) for key, one in mine.items()}, meta=meta)
        if more is not None:
            save_file({key: np.asarray(one) for key, one in more.items()}, folder / tensors_name(stage, side))
    return folder


def judge_arrays(
    stage: str, expected, actual, rules=None, *, details=({}, {}), sides=("torch", "paddle"), folder=Path()
):
    """Return what is judged of two sides' arrays; what is said beside them goes through JSON, as on its way to a file."""
    left, right = (
        Record(
            side=side,
            arrays={name: np.asarray(array) for name, array in arrays.items()},
            meta={"details": json.loads(json.dumps(dict(facts)))},
        )
        for side, arrays, facts in zip(sides, (expected, actual), details, strict=True)
    )
    return judge_dumps(Dumps(stage=stage, reference=left, port=right, folder=folder), rules or Rules(own={}))


def judge_recordings(stage: str, reference, port, rules: Rules | None = None):
    return judge_arrays(stage, reference.arrays, port.arrays, rules, details=(reference.details, port.details))


def outcomes(judged) -> dict[str, str]:
    """Return outcome by subject, without the stage's name."""
    return {verdict.subject.partition("/")[2]: verdict.outcome.value for verdict in judged.verdicts}


def reasons(judged, *wanted: str) -> dict[str, str]:
    """Return the reasons of the verdicts with one of these outcomes, else of all, by subject without the stage's name."""
    return {
        verdict.subject.partition("/")[2]: verdict.reason
        for verdict in judged.verdicts
        if not wanted or verdict.outcome.value in wanted
    }


def make_bench(framework, builders, **case):
    settings = SimpleNamespace(
        seed=0, model_args={}, weights=SimpleNamespace(names={}), train=SimpleNamespace(batch_size=4)
    )
    vars(settings).update(case)
    return SimpleNamespace(
        framework=framework,
        case=settings,
        train_data=Path("data"),
        builder=builders.__getitem__,
        optional_builder=builders.get,
        dataset=lambda split: builders["dataset"]("data", split),
    )


class NumpyFramework:
    """Stands in for a framework where only arrays and seeds are asked for."""

    name = "torch"

    def seed(self, seed):
        np.random.seed(seed)  # noqa: NPY002

    def is_tensor(self, value):
        return False

    def array(self, value):
        return np.asarray(value)

    def batches(self, dataset, indices):
        for batch in indices:
            images, labels, files = zip(*(dataset[index] for index in batch), strict=True)
            yield np.stack(images), np.array(labels), list(files)


def load_both():
    """Return both frameworks, torch first."""
    for name in ("torch", "paddle"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")
    from tipchain.frameworks import load_framework

    return load_framework("torch"), load_framework("paddle")


def open_paddle(folder: Path, change=lambda model: None):
    """Return Paddle and a folder that holds weights of the tiny case's port, which may be changed before."""
    if importlib.util.find_spec("paddle") is None:
        pytest.skip("needs paddle")
    from tests.cases.tiny.tiny_paddle import build_model
    from tipchain.frameworks import load_framework
    from tipchain.modes import parse_device

    framework = load_framework("paddle")
    framework.configure(parse_device("cpu"), 0, 1)
    model = build_model()
    change(model)
    framework.paddle.save(model.state_dict(), str(folder / "weights.pdparams"))
    (folder / "pyproject.toml").touch()
    return framework, folder


def tiny_bench(side, case, folder: Path):
    """Return a bench over what `open_paddle` opened."""
    from tipchain.parity.stages import Bench

    data = dict.fromkeys(("train_data", "eval_data", "folder"), folder)
    return Bench(framework=side[0], case=case, weights=side[1] / "weights.pdparams", inputs={}, epochs=1, **data)
