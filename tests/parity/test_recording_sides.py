"""The processes of a side as their parent sees them: who records what, and what is said where one ends early."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from stage_records import recording_job
from tiny_project import make_tiny_project

from tipchain.errors import Outcome
from tipchain.modes import Mode
from tipchain.parity import align, recorder
from tipchain.parity.align import AlignRequest, _help, _start
from tipchain.parity.case import load_case
from tipchain.parity.recorder import NOISE_ORDER, EarlyStart, RecordingJob, RecordingProcess, RecordingSide, StageNeeds

STAGES = ("forward", "data", "loss", "backward")


class Process(RecordingProcess):
    """A process that does nothing: a test says what it tells, an exit code (an int) that it has ended."""

    def __init__(self, process):
        self.process, self.code = process, None
        self.order, self.stage, self.from_end = "", "", False
        self.began, self.ready = time.monotonic(), 0.0
        self.told, self.stopped, self.discarded = [], False, False

    @classmethod
    def start(cls, job, spec, log):
        assert spec.is_file() or not job.stages
        process = SimpleNamespace()
        return cls(process), cls(process)

    def tell(self, order):
        self.told.append(order)

    def read(self):
        return self.says

    def discard(self):
        self.discarded = True

    def stop(self, patience):
        self.stopped = True


@pytest.fixture
def side(monkeypatch, tmp_path):
    """Return a function that opens a side with these stages to record."""
    monkeypatch.setattr(recorder, "RecordingProcess", Process)

    def open_side(name, stages, second="", **how):
        job = recording_job(*stages, side=name, folder=str(tmp_path))
        found = RecordingSide(job, STAGES, None, **how)
        found.begin(second)
        return found

    return open_side


def hear(side, process, *events, marks=None):
    """Let a process tell that stages begin and end well; or that it ends, with an exit code."""
    ended = isinstance(events[0], int)
    facts = {"ok": True, "marks": marks}
    process.says = None if ended else [{"event": event, "stage": stage, **facts} for event, stage in events]
    process.process.wait = lambda: events[0]
    side.read(process)


def warm(process):
    """Let a process have recorded for longer than it took to start."""
    process.began, process.ready = time.monotonic() - 3, time.monotonic() - 2


def request(**changes):
    return AlignRequest(**{"case": None, "mode": None, "stages": STAGES, "folder": None, **changes})


def started(asked, jobs, stages):
    """Return the sides that an alignment starts, which knows of nothing that torch has recorded before."""
    sides = []
    _start(replace(asked, fresh=True), jobs, stages, 0.0, sides)
    return sides


def test_two_processes_of_a_side_meet_in_the_middle(side):
    paddle = side("paddle", STAGES, "backward")
    first, last = paddle.processes
    assert (first.told, last.told) == (["forward"], ["backward"])
    hear(paddle, last, ("begin", "backward"), ("end", "backward"))
    hear(paddle, first, ("begin", "forward"), ("end", "forward"))
    assert (first.told, last.told) == (["forward", "data"], ["backward", "loss"])
    assert len(side("paddle", STAGES[:1], "forward").processes) == 1


def test_a_copy_that_has_ended_leaves_the_other_alone(side):
    paddle = side("paddle", STAGES, "backward")
    first, last = paddle.processes
    first.says = [{"event": "exit", "code": -11}]
    paddle.read(first)
    first.says = None
    paddle.read(first)
    assert paddle.ended == {"forward": f"the paddle process was killed by SIGSEGV; log: {paddle.log}"}
    assert (first.discarded, first.stopped, last.stopped) == (True, False, False)
    paddle.stop()
    assert last.stopped


@pytest.mark.parametrize(
    ("stages", "cores", "changes", "processes"),
    [
        (("forward", "inference"), 2, {}, 2),
        (("forward", "inference"), 1, {}, 1),
        (("forward", "inference"), 2, {"device": "gpu:0"}, 1),
        (("forward", "inference"), 2, {"sides": ("paddle",)}, 1),
        (("forward", "loss"), 2, {}, 1),
    ],
)
def test_a_second_process_begins_with_the_ports_own_stages(side, monkeypatch, stages, cores, changes, processes):
    monkeypatch.setattr(align, "core_count", lambda: cores)
    (paddle,) = started(request(**changes), [side("paddle", stages).job], stages)
    assert [one.order for one in paddle.processes] == ["forward", "inference"][:processes]


def test_the_port_begins_before_it_is_known_what_torch_has_recorded_before(side, monkeypatch):
    sides, seen = [], []

    def spare(asked, job, stages, since):
        seen.extend((one.side, len(one.processes)) for one in sides)
        return replace(job, stages=("backward",)), None

    monkeypatch.setattr(align, "_spare", spare)
    _start(request(), [side(name, STAGES).job for name in ("torch", "paddle")], STAGES, 0.0, sides)
    assert seen == [("paddle", 1)]
    assert [(one.side, one.processes[0].order) for one in sides] == [("torch", "backward"), ("paddle", "forward")]


def test_no_third_process_holds_a_large_model(side, monkeypatch, tmp_path):
    monkeypatch.setattr(align, "core_count", lambda: 2)
    stages = ("forward", "backward", "train", "inference")
    weights = tmp_path / "weights"
    weights.write_bytes(b"large")
    jobs = [side(name, stages).job for name in ("torch", "paddle")]
    jobs = [replace(job, needs={"forward": StageNeeds(weights=str(weights), digests={})}) for job in jobs]
    monkeypatch.setattr(recorder, "LARGE_WEIGHTS", 6)
    assert len(started(request(), jobs, stages)[1].processes) == 2
    monkeypatch.setattr(recorder, "LARGE_WEIGHTS", 5)
    assert len(started(request(), jobs, stages)[1].processes) == 1


def test_one_of_two_processes_of_a_large_model_begins_with_the_longest_path(side, monkeypatch, tmp_path):
    monkeypatch.setattr(align, "core_count", lambda: 2)
    monkeypatch.setattr(recorder, "LARGE_WEIGHTS", 1)
    stages = ("forward", "backward", "train", "inference")
    (tmp_path / "weights").write_bytes(b"large")
    needs = {"forward": StageNeeds(weights=str(tmp_path / "weights"), digests={})}
    torch, paddle = replace(side("torch", ()).job), replace(side("paddle", stages).job, needs=needs)
    _, paddle = started(request(), [torch, paddle], stages)
    first, second = paddle.processes
    assert (first.told, second.told) == (["forward"], ["backward"])
    hear(paddle, second, ("begin", "backward"), ("end", "backward"))
    assert second.told == ["backward", "inference"]


def test_a_side_takes_the_core_that_the_other_has_no_use_for(side):
    torch, paddle = side("torch", ()), side("paddle", STAGES)
    assert not torch.processes
    assert torch.finished
    (first,) = paddle.processes
    _help(request(), (torch, paddle))
    assert len(paddle.processes) == 1, "it is still starting"
    warm(first)
    for elsewhere in (request(device="gpu:0"), request(sides=("paddle",))):
        _help(elsewhere, (torch, paddle))
        assert len(paddle.processes) == 1
    for _ in range(2):
        _help(request(), (torch, paddle))
    first, second = paddle.processes
    hear(paddle, second, ("begin", "data"), ("end", "data"))
    assert (first.told, second.told) == (["forward"], ["data", "loss"])
    hear(paddle, first, ("begin", "forward"))
    hear(paddle, first, -9)
    assert paddle.ended == {"data": None, "forward": f"the paddle process was killed by SIGKILL; log: {paddle.log}"}
    hear(paddle, second, ("begin", "loss"), ("end", "loss"))
    hear(paddle, second, ("begin", "backward"), ("end", "backward"))
    assert paddle.finished
    assert second.told[-1] == "", "it may end"


def test_both_sides_have_a_process_each_while_both_record(side):
    torch, paddle = side("torch", STAGES), side("paddle", STAGES)
    for one in (torch, paddle):
        warm(one.processes[0])
    _help(request(), (torch, paddle))
    assert [len(one.processes) for one in (torch, paddle)] == [1, 1]


def test_what_nobody_is_left_to_record_has_the_reason_why(side):
    paddle = side("paddle", STAGES)
    (only,) = paddle.processes
    hear(paddle, only, ("begin", "forward"))
    hear(paddle, only, 3)
    what = "the paddle process ended with exit code 3"
    assert paddle.ended.pop("forward") == f"{what}; log: {paddle.log}"
    assert set(paddle.ended.values()) == {f"{what} during forward; log: {paddle.log}"}
    assert set(paddle.ended) == set(STAGES[1:])
    assert paddle.finished


def test_what_a_process_was_writing_when_it_was_ended_goes_with_it(side, tmp_path):
    torch = side("torch", STAGES)
    for name in (".1f.bp_align_torch.safetensors", ".2f.bp_align_paddle.safetensors", "bp_align_torch.safetensors"):
        (tmp_path / name).touch()
    torch.stop()
    left = {path.name for path in tmp_path.glob("*.safetensors")}
    assert left == {".2f.bp_align_paddle.safetensors", "bp_align_torch.safetensors"}


def test_a_process_that_waits_is_asked_and_then_let_go(side):
    torch = side("torch", ("backward",), waits=True)
    (only,) = torch.processes
    hear(torch, only, ("begin", "backward"), ("end", "backward"))
    assert only.told == ["backward"]
    torch.order("backward", NOISE_ORDER)
    torch.release()
    assert not torch.finished
    hear(torch, only, ("begin", "backward"), ("end", "backward"))
    assert only.told == ["backward", f"backward{NOISE_ORDER}", ""]
    assert torch.finished
    torch.stop()
    assert only.stopped


def test_a_stage_rests_on_what_all_read_who_recorded_it_and_one_order_more_cannot_undo_it(side):
    torch = side("torch", ("backward",), waits=True)
    (only,) = torch.processes
    hear(torch, only, ("end", "backward"), marks={"schedule.py": "content 1"})
    torch.order("backward", NOISE_ORDER)
    hear(torch, only, ("end", "backward"), marks={"model.py": "content 2"})
    assert set(torch.marks["backward"]) == {"schedule.py", "model.py"}
    torch.order("backward", NOISE_ORDER)
    hear(torch, only, -9)
    assert torch.ended["backward"] is None
    assert "killed by SIGKILL" in torch.unmet


def test_what_was_recorded_before_has_no_part_in_a_stages_random_numbers(monkeypatch):
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
    recorder.run_job(recording_job(*STAGES), STAGES, events.append)
    assert len({event["drawn"] for event in events if "drawn" in event}) == 1


def test_a_process_that_was_started_early_records_if_it_takes_its_memory_as_the_job_asks(side, tmp_path):
    def early(size):
        weights = tmp_path / f"{size}.pdparams"
        with weights.open("wb") as file:
            file.truncate(size)
        job = replace(side("paddle", STAGES).job, stages=(), needs={"": StageNeeds(weights=str(weights), digests={})})
        return EarlyStart(job)

    small, large = early(1), early(recorder.LARGE_WEIGHTS)
    assert side("paddle", STAGES, early=small).processes == [small.pair[0]]
    assert small.pair[0].told[0] == "forward"
    assert side("paddle", STAGES, early=large).processes[0] not in large.pair
    assert side("paddle", (), early=small).processes == []


@pytest.mark.frameworks
def test_after_an_edit_the_port_is_imported_while_its_weights_are_made(tmp_path, monkeypatch):
    project = make_tiny_project(tmp_path)
    assert project.align("--only", "forward").returncode == 0
    project.edit("tiny_paddle.py", "def build_model(", "# an edit\ndef build_model(")
    case, seen = load_case(project.case), []
    begin, run = RecordingProcess.start.__func__, subprocess.run

    def start(cls, job, *more):
        seen.append(job.side)
        return begin(cls, job, *more)

    def run_program(words, **more):
        if "tipchain.parity.weights" in words:
            seen.append("weights")
        return run(words, **more)

    monkeypatch.setattr(RecordingProcess, "start", classmethod(start))
    monkeypatch.setattr(subprocess, "run", run_program)
    asked = request(case=case, mode=Mode.LITE_TRAIN_LITE_INFER, stages=("forward",), folder=tmp_path / "run")
    (judged,) = align.align(asked, lambda _: None)
    assert {one.outcome for one in judged.verdicts} == {Outcome.PASS}
    assert seen == ["paddle", "weights", "torch"]


@pytest.mark.frameworks
def test_a_process_that_was_started_early_ends_quietly_where_nothing_is_recorded(tmp_path):
    project = make_tiny_project(tmp_path)
    assert project.align("--only", "forward").returncode == 0
    project.edit("tiny_paddle.py", "def build_model(", "raise KeyError('mine')\ndef build_model(")
    done = project.align("--only", "forward")
    assert done.returncode == 1
    assert "mine" in done.stdout
    logs = sorted(tmp_path.rglob("recorder_paddle.log"))
    assert len(logs) == 2
    assert not any("Traceback" in one.read_text() for one in logs)
