"""Curves for TensorBoard and VisualDL, read back with those programs' own readers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from history_samples import PASS, judged, night, report, trained

from tipchain.cli import main
from tipchain.core import quantities
from tipchain.core.quantities import Scalar, plain_tag, write_scalars
from tipchain.history.store import History, place_of
from tipchain.numbers.dumps import save_record

VIEWERS = ("tensorboard", "visualdl")


def read(viewer: str, folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves below a folder: steps and values by run and tag."""
    pytest.importorskip("tensorboardX" if viewer == "tensorboard" else "visualdl")
    pattern = "*tfevents*" if viewer == "tensorboard" else "vdlrecords*"
    found: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.rglob(pattern)):
        run = file.parent.relative_to(folder).as_posix()
        for tag, step, value in (_events if viewer == "tensorboard" else _records)(file):
            found.setdefault(f"{run}: {tag}", []).append((step, round(value, 6)))
    return found


def _events(file: Path):
    # TensorBoard's files are TFRecords: a length of 8 bytes, its checksum, the event, its checksum.
    from tensorboardX.proto.event_pb2 import Event

    data, at = file.read_bytes(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        event = Event.FromString(data[at + 12 : at + 12 + size])
        at += 16 + size
        yield from ((one.tag, event.step, one.simple_value) for one in event.summary.value)


def _records(file: Path):
    from visualdl import LogReader

    reader = LogReader(file_path=str(file))
    for tag in reader.get_tags()["scalar"]:
        yield from ((tag, one.id, one.value) for one in reader.get_data("scalar", tag))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a history of three nights, in which b's loss falls."""
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIPCHAIN_DATABASE", raising=False)
    history = History(place_of(tmp_path))
    for number, loss in enumerate((0.5, 0.25, 0.125)):
        history.add(night(number), [judged("a", {"x": PASS}), trained("b", {"loss": loss})])
    return tmp_path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("viewer", VIEWERS)
def test_the_history_becomes_curves_by_night(project, capsys, viewer):
    pytest.importorskip("tensorboardX" if viewer == "tensorboard" else "visualdl")
    assert main(["history", "export", f"--{viewer}", "curves"]) == 0
    assert capsys.readouterr().out == "9 numbers in curves\n"
    found = read(viewer, project / "curves")
    assert found["suite: b/train_norm_/loss"] == [(0, 0.5), (1, 0.25), (2, 0.125)]
    assert [step for step, _ in found["suite: a/seconds"]] == [0, 1, 2]
    assert main(["history", "export", "latest", f"--{viewer}", "last"]) == 0
    assert read(viewer, project / "last")["suite: b/train_norm_/loss"] == [(0, 0.125)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("viewer", VIEWERS)
def test_a_runs_losses_of_both_sides_share_a_chart(tmp_path, capsys, viewer):
    from safetensors.numpy import save_file

    pytest.importorskip("tensorboardX" if viewer == "tensorboard" else "visualdl")
    run = tmp_path / "run"
    dumps = run / "log_reprod"
    dumps.mkdir(parents=True)
    for side, shift in (("torch", 0.0), ("paddle", 0.5)):
        losses = {f"loss_{at}": np.array([at + shift], dtype="float32") for at in range(3)}
        save_record(dumps / f"bp_align_{side}.npy", {**losses, "weight_0": np.ones(3, dtype="float32")})
        save_record(dumps / f"lr_{side}.npy", {"lr": np.array([0.1, 0.01])})
        save_file({"loss": np.array([2.0, 1.0 + shift])}, dumps / f"train_align_{side}.safetensors")
    (run / "report.json").write_text(json.dumps(report()))
    assert main(["report", str(run), f"--{viewer}", str(tmp_path / "curves")]) == 1, "the exit code is the run's"
    found = read(viewer, tmp_path / "curves")
    assert found["torch: backward/loss"] == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert found["paddle: backward/loss"] == [(0, 0.5), (1, 1.5), (2, 2.5)]
    assert found["paddle: lr/lr"] == [(0, 0.1), (1, 0.01)]
    assert found["paddle: train/loss"] == [(0, 2.0), (1, 1.5)]
    assert len([name for name in found if not name.startswith("chain: ")]) == 6
    assert [name for name in found if name.startswith("chain: ")]


def test_a_library_that_is_not_there_is_one_error_with_its_extra(project, capsys, monkeypatch):
    monkeypatch.setitem(quantities.WRITERS, "visualdl", ("no_such_library", "LogWriter"))
    assert main(["history", "export", "--visualdl", "curves"]) == 2
    error = capsys.readouterr().err
    assert "--visualdl needs no_such_library" in error
    assert "pip install 'tipchain[visualdl]'" in error
    assert not (project / "curves").exists()


@pytest.mark.filterwarnings("ignore")
def test_a_folder_that_cannot_be_is_one_error(tmp_path):
    from tipchain.errors import UsageError

    pytest.importorskip("tensorboardX")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        write_scalars([Scalar(tag="a", step=0, value=1.0)], "tensorboard", tmp_path / "file" / "below")


def test_tags_have_the_letters_that_both_viewers_take():
    assert plain_tag("train[norm_train;gpus=-1]/acc 100%") == "train_norm_train_gpus_-1_/acc_100_"
    assert plain_tag("/准确率/top1") == "准确率/top1"
