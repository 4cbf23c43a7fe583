"""The process of a side as its parent sees it: what is recorded, and what is said where it ends early."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from stage_records import recording_job

from tipchain.parity import recorder
from tipchain.parity.recorder import RecordingJob, RecordingSide, listen

STAGES = ("forward", "data", "loss", "backward")


@pytest.fixture
def side(monkeypatch, tmp_path):
    """Return a function that opens a side whose process is a program of a test's."""
    opened = []

    def open_side(program, timeout_s=None, stages=STAGES, name="paddle"):
        command = ["bash", "-c", program, "bash"]
        real = recorder.subprocess.Popen
        monkeypatch.setattr(recorder.subprocess, "Popen", lambda words, **how: real([*command, words[-1]], **how))
        opened.append(RecordingSide(recording_job(*stages, side=name, folder=str(tmp_path)), STAGES, timeout_s))
        return opened[-1]

    yield open_side
    for one in opened:
        one.stop()


def until_finished(side):
    while side.left:
        listen([side])


def tell(*events):
    lines = []
    for event, stage in events:
        lines.append(f"""printf '{{"event": "{event}", "stage": "{stage}", "ok": true, "marks": null}}\\n' >&$1""")
    return "\n".join(lines)


WHOLE = tell(*((event, stage) for stage in STAGES for event in ("begin", "end")))


def test_a_side_has_ended_when_its_process_has_told_of_every_stage(side):
    paddle = side(WHOLE)
    until_finished(paddle)
    assert paddle.ended == dict.fromkeys(STAGES)
    assert paddle.current == "backward"


def test_what_nobody_is_left_to_record_has_the_reason_why(side):
    paddle = side(tell(("begin", "forward")) + "\nexit 3")
    until_finished(paddle)
    what = "the paddle process ended with exit code 3"
    assert paddle.ended.pop("forward") == f"{what}; log: {paddle.log}"
    assert set(paddle.ended.values()) == {f"{what} during forward; log: {paddle.log}"}
    assert set(paddle.ended) == set(STAGES[1:])


def test_what_a_process_was_writing_when_it_was_ended_goes_with_it(side, tmp_path):
    torch = side("sleep 60", name="torch")
    for name in (".1f.bp_align_torch.safetensors", ".2f.bp_align_paddle.safetensors", "bp_align_torch.safetensors"):
        (tmp_path / name).touch()
    torch.stop()
    left = {path.name for path in tmp_path.glob("*.safetensors")} | {
        path.name for path in tmp_path.glob(".*.safetensors")
    }
    assert left == {".2f.bp_align_paddle.safetensors", "bp_align_torch.safetensors"}


def test_what_was_recorded_before_has_no_part_in_a_stages_random_numbers(monkeypatch, tmp_path):
    class Framework:
        def configure(self, *_):
            return "cpu"

        def versions(self):
            return {}

        def seed(self, seed):
            np.random.seed(seed)  # noqa: NPY002

    case = SimpleNamespace(root=Path(), seed=3, train=RecordingJob)
    monkeypatch.setattr(recorder, "load_case", lambda *_: case)
    monkeypatch.setattr(recorder, "replace", lambda one, **_: one)
    monkeypatch.setattr(recorder, "load_framework", lambda *_, **__: Framework())
    monkeypatch.setattr(recorder, "_record_stage", lambda *_: {"ok": True, "drawn": np.random.random()})  # noqa: NPY002
    events = []
    recorder.run_job(recording_job(*STAGES, folder=str(tmp_path)), events.append)
    assert len({event["drawn"] for event in events if "drawn" in event}) == 1
