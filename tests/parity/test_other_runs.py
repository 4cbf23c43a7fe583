"""What a port does in train mode and with inputs that its case does not name: the forward stage runs that, too."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

from in_process import BothSides, failed  # noqa: E402
from other_inputs import EXCUSED, FAULTS, PF, RAISING, SEQUENCES, TF, WIDE  # noqa: E402
from tiny_project import make_tiny_project  # noqa: E402

from tipchain.errors import ExitCode, Outcome  # noqa: E402
from tipchain.frameworks.paddle_ import PaddleFramework  # noqa: E402
from tipchain.frameworks.torch_ import TorchFramework  # noqa: E402
from tipchain.modes import parse_device  # noqa: E402
from tipchain.parity.case import load_case  # noqa: E402
from tipchain.parity.stages.bench import Bench  # noqa: E402
from tipchain.weights.convert import to_paddle  # noqa: E402

pytestmark = pytest.mark.frameworks
RATE = 0.25
CASE = """
id: planted
sides: {torch: {model: "planted:one"}, paddle: {model: "planted:other"}}
inputs: {x: {shape: [4, 6, 8]}}
outputs: [y]
stages: [forward]
"""


class Net(torch.nn.Module):
    """Layers that a test puts together."""

    act = None

    def __init__(self):
        super().__init__()
        self.conv, self.rows = torch.nn.Conv2d(3, WIDE, 3, 2, 1), torch.nn.Embedding(20, WIDE)
        self.first, self.last = torch.nn.Linear(WIDE, WIDE), torch.nn.Linear(WIDE, WIDE)
        self.wide, self.norm = torch.nn.Linear(WIDE, 2), torch.nn.BatchNorm1d(WIDE)
        self.drop = torch.nn.Dropout(RATE)

    def forward(self, *args):
        return self.act(*args)


class Port(paddle.nn.Layer):
    act = None

    def __init__(self):
        super().__init__()
        self.conv, self.rows = paddle.nn.Conv2D(3, WIDE, 3, 2, 1), paddle.nn.Embedding(20, WIDE)
        self.first, self.last = paddle.nn.Linear(WIDE, WIDE), paddle.nn.Linear(WIDE, WIDE)
        self.wide, self.norm = paddle.nn.Linear(WIDE, 2), paddle.nn.BatchNorm1D(WIDE)
        self.drop = paddle.nn.Dropout(RATE)

    def forward(self, *args):
        return self.act(*args)


def built(kind, *, random):
    model = kind()
    if not random:
        model.drop = None
    return model


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The case, and a weight file of each side."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "case.yaml").write_text(CASE)
    torch.manual_seed(0)
    reference, port = Net(), Port()
    torch.save(reference.state_dict(), folder / "torch.pth")
    paddle.save(dict(to_paddle(reference, reference.state_dict(), port).state), str(folder / "paddle.pdparams"))
    return folder


@pytest.fixture
def judge(weights, tmp_path, monkeypatch):
    """Records and judges two forwards on some inputs."""

    def judged(act, ported, *inputs, forget=False, lose=None, random=True):
        benches = {}
        case = load_case(weights / "case.yaml")
        planted = SimpleNamespace(one=partial(built, Net, random=random), other=partial(built, Port, random=random))
        monkeypatch.setitem(sys.modules, "planted", planted)
        for side, framework, kind, forward in (
            ("torch", TorchFramework(), Net, act),
            ("paddle", PaddleFramework(), Port, ported),
        ):
            framework.configure(parse_device("cpu"), 0, 1)
            monkeypatch.setattr(kind, "act", forward)
            model = built(kind, random=random)
            file = weights / ("torch.pth" if side == "torch" else "paddle.pdparams")
            framework.load_weights(model, file)
            framework.set_training(model, training=False)
            benches[side] = Bench(
                framework=framework,
                case=case,
                weights=file,
                inputs={f"x{number}": array for number, array in enumerate(inputs)},
                train_data=tmp_path,
                eval_data=tmp_path,
                epochs=1,
                folder=tmp_path,
                _kept={"model": model},
            )
        sides = BothSides(**benches)
        reference, port = (sides.record("forward", side) for side in ("torch", "paddle"))
        if forget:  # as an earlier tipchain did
            reference.meta["details"].clear()
        if lose:
            (tmp_path / lose).unlink()
        return sides.judge("forward", reference, port)

    return judged


def dropping(net, x):
    return net.last(net.drop(net.first(x)))


def plain(net, x):
    return net.last(net.first(x))


def by_function(rate=RATE, **more):
    def act(net, x):
        return net.last(PF.dropout(net.first(x), rate, **{"training": net.training, **more}))

    return act


def branches(net, x):
    return net.drop(net.first(x)) + net.drop(net.last(x)) * 2


def other_order(net, x):
    second = net.drop(net.last(x)) * 2
    return net.drop(net.first(x)) + second


IN_TRAIN_MODE = {
    "missing": (dropping, plain),
    "always-off": (dropping, by_function(training=False)),
    "extra": (plain, dropping),
    "twice": (dropping, lambda net, x: net.last(net.drop(net.drop(net.first(x))))),
    "another-rate": (dropping, by_function(0.5)),
    "another-place": (dropping, lambda net, x: net.last(net.first(net.drop(x)))),
    "another-branch": (
        lambda net, x: plain(net, x * 2 if net.training else x),
        lambda net, x: plain(net, x * 3 if net.training else x),
    ),
    "behind-statistics": (
        lambda net, x: net.drop(net.norm(net.first(x).mT).mT),
        lambda net, x: net.norm(net.first(x).transpose([0, 2, 1])).transpose([0, 2, 1]),
    ),
}


@pytest.mark.parametrize("name", IN_TRAIN_MODE)
def test_what_train_mode_alone_shows_fails(judge, name):
    judged = judge(
        *IN_TRAIN_MODE[name], SEQUENCES if name != "behind-statistics" else SEQUENCES[:, :WIDE].repeat(2, 1)[:, :8]
    )
    assert set(failed(judged)) == {"forward/train/y"}, judged
    assert "in train mode" in failed(judged)["forward/train/y"]


def test_both_sides_draws_are_told_with_their_lines(judge):
    told = failed(judge(dropping, plain, SEQUENCES))["forward/train/y"]
    assert "in train mode: the reference draws a mask of shape [2, 6, 8] with p=0.25 at " in told
    assert "test_other_runs.py:" in told
    assert "the port draws nothing" in told


@pytest.mark.parametrize(
    ("act", "ported"),
    [
        (dropping, dropping),
        (dropping, by_function()),
        (
            lambda net, x: plain(net, x * 2 if net.training else x),
            lambda net, x: plain(net, x * 2 if net.training else x),
        ),
    ],
)
def test_equal_models_pass_without_a_word(judge, act, ported):
    judged = judge(act, ported, SEQUENCES)
    assert failed(judged) == {}
    assert judged.notes == ()
    assert "forward/train/y" in [one.subject for one in judged.verdicts]


def test_train_mode_is_not_compared_where_it_does_nothing(judge):
    judged = judge(plain, plain, SEQUENCES, random=False)
    assert failed(judged) == {}
    assert [one.subject for one in judged.verdicts] == ["forward/y", "forward/y@1x7x8"]


def normal(net, x):
    return net.norm(x.reshape((-1, WIDE)))


def slower(net, x):
    net.norm._momentum = 0.99
    return normal(net, x)


def forgetful(net, x):
    held = net.norm._mean.clone(), net.norm._variance.clone()
    made = normal(net, x)
    net.norm._mean.set_value(held[0])
    net.norm._variance.set_value(held[1])
    return made


def test_buffers_that_train_mode_changes_alike_pass(judge):
    judged = judge(normal, normal, SEQUENCES, random=False)
    assert failed(judged) == {}
    assert judged.notes == ()
    (found,) = [one for one in judged.verdicts if one.subject == "forward/train/buffers"]
    assert found.reason == "2 buffers change as the reference's"


@pytest.mark.parametrize(
    ("ported", "words"),
    [
        (slower, "`norm.running_mean` changes by 0.1 times what it does in the reference"),
        (forgetful, "`norm.running_mean` changes in the reference only"),
    ],
)
def test_buffers_that_train_mode_changes_otherwise_fail(judge, ported, words):
    told = failed(judge(normal, ported, SEQUENCES, random=False))
    assert set(told) == {"forward/train/buffers"}
    assert f"in train mode other buffers are left: {words}" in told["forward/train/buffers"]
    assert "`norm.running_var` changes" in told["forward/train/buffers"]
    assert ("BatchNorm's momentum" in told["forward/train/buffers"]) is (ported is slower)


def test_buffers_after_other_random_numbers_are_said_not_to_be_compared(judge):
    judged = judge(lambda net, x: normal(net, net.drop(x)), normal, SEQUENCES)
    assert set(failed(judged)) == {"forward/train/y"}
    assert judged.notes == ("buffers in train mode were not compared: the sides draw other random numbers",)


ELEMENTS = lambda net, x: net.last(TF.dropout1d(net.first(x), RATE, net.training))  # noqa: E731


@pytest.mark.parametrize(("act", "ported"), [(branches, other_order), (ELEMENTS, by_function())])
def test_numbers_that_may_stand_for_one_another_are_no_fault_by_themselves(judge, act, ported):
    judged = judge(act, ported, SEQUENCES)
    (verdict,) = [one for one in judged.verdicts if one.outcome is not Outcome.PASS]
    assert (verdict.subject, verdict.outcome) == ("forward/train", Outcome.SKIP)
    assert "in train mode the results are random" in verdict.reason


def test_a_buffer_whose_shape_changes_in_train_mode_is_said_not_to_be_compared(judge):
    def growing(net, x):
        if net.training:
            net.norm._buffers["running_mean" if isinstance(net, Net) else "_mean"] = x.mean((0, 1))[:2].detach()
        return plain(net, x)

    judged = judge(growing, growing, SEQUENCES)
    assert failed(judged) == {}
    assert "buffers in train mode were not compared: the shape of `norm.running_mean` changes" in judged.notes


def test_a_model_that_refuses_train_mode_is_said_not_to_be_compared_there(judge):
    def refuse(net, x):
        if net.training:
            raise ValueError("targets are missing")
        return plain(net, x)

    judged = judge(refuse, plain, SEQUENCES)
    assert failed(judged) == {}
    (note,) = judged.notes
    assert note.startswith("train mode was not compared: the reference does not run in it: ")
    assert "targets are missing" in note
    (note,) = judge(dropping, refuse, SEQUENCES).notes
    assert note.startswith("train mode was not compared: the port does not run in it: ")


def test_a_port_that_cannot_run_in_train_mode_fails(judge):
    judged = judge(dropping, lambda net, x: plain(net, x + x[:, :4] if net.training else x), SEQUENCES)
    assert set(failed(judged)) == {"forward/train/y"}
    assert failed(judged)["forward/train/y"].startswith("in train mode the port raises, the reference does not: ")


def test_an_output_that_only_the_reference_has_in_train_mode_is_told(judge):
    judged = judge(
        lambda net, x: (plain(net, x), net.drop(net.first(x))) if net.training else plain(net, x), plain, SEQUENCES
    )
    assert failed(judged) == {"forward/train": failed(judged)["forward/train"]}
    assert judged.notes == ("in train mode only the reference returns 1",)


def keeping(net, x):
    if not hasattr(net, "kept"):
        net.kept = {}
    return net.kept.setdefault(tuple(x.shape), plain(net, x))


SECOND_CALL = plain, keeping, (SEQUENCES,)


@pytest.mark.parametrize(("act", "ported", "inputs"), [*FAULTS.values(), SECOND_CALL], ids=[*FAULTS, "second-call"])
def test_what_the_inputs_do_not_show_other_inputs_show(judge, act, ported, inputs):
    judged = judge(act, ported, *inputs)
    ((subject, reason),) = failed(judged).items()
    assert subject.startswith("forward/y@"), judged
    assert reason.startswith("with inputs of shape [")


@pytest.mark.parametrize("name", RAISING)
def test_a_port_that_raises_with_inputs_that_the_reference_takes_fails(judge, name):
    act, ported, inputs = RAISING[name]
    ((subject, reason),) = failed(judge(act, ported, *inputs)).items()
    assert subject.startswith("forward/y@1x")
    assert reason.startswith("the port raises with inputs of shape [1, ")
    assert "the reference does not: " in reason
    assert "other_inputs.py:" in reason


@pytest.mark.parametrize("name", EXCUSED)
def test_what_a_port_says_itself_and_what_is_no_fault_of_its_is_told(judge, name):
    act, ported, inputs = EXCUSED[name]
    judged = judge(act, ported, *inputs)
    assert failed(judged) == {}
    assert judged.notes[0].startswith("the port raises with inputs of shape [")


def test_a_reference_that_takes_no_other_inputs_is_said_not_to_be_compared_with_them(judge):
    def fixed(net, x):
        return plain(net, x.reshape(4, 6, WIDE) if net is not None else x)

    judged = judge(fixed, lambda net, x: plain(net, x.reshape([4, 6, WIDE])), SEQUENCES)
    (note,) = judged.notes
    assert note.startswith("other inputs were not compared: the reference raises with those of shape [1, 7, 8]: ")
    (note,) = judge(
        lambda net, x, _: plain(net, x), lambda net, x, _: plain(net, x), SEQUENCES, np.zeros(3, np.float32)
    ).notes
    assert note == "other inputs were not compared: the inputs have no common first axis"


@pytest.mark.parametrize("mode", [False, True])
def test_what_a_refused_call_leaves_in_a_model_counts_for_nothing(judge, mode):
    """The reference refuses when it has counted the call, the port before."""

    def act(net, x, refuse):
        if refuse:
            raise ValueError("six steps")
        net.calls = getattr(net, "calls", 0) + 1
        return plain(net, x) * net.calls

    def counted(net, x):
        net.calls = getattr(net, "calls", 0) + 1
        if refused(net, x):
            raise ValueError("six steps")
        return plain(net, x) * net.calls

    def refused(net, x):
        return net.training and len(x) == 2 if mode else len(x) == 1 and x.shape[1] != 6

    judged = judge(counted, lambda net, x: act(net, x, refused(net, x)), SEQUENCES)
    assert failed(judged) == {}
    assert ("forward/train/y" if mode else "forward/y@1x6x8") in [one.subject for one in judged.verdicts]


def test_what_other_inputs_leave_in_a_model_counts_for_nothing_in_train_mode(judge):
    """The port refuses the first size, so that the sides take different ones."""

    def counted(net, x):
        net.calls = getattr(net, "calls", 0) + 1
        return plain(net, x) * (net.calls if net.training else 1)

    def refusing(net, x):
        if x.shape[1] == 7:
            raise ValueError("not seven steps")
        return counted(net, x)

    judged = judge(counted, refusing, SEQUENCES)
    assert failed(judged) == {}
    assert judged.notes[0].startswith("the port raises with inputs of shape [1, 7, 8]")
    assert "forward/train/y" in [one.subject for one in judged.verdicts]


def test_a_dump_that_tells_nothing_of_it_is_said_to(judge):
    judged = judge(dropping, plain, SEQUENCES, forget=True)
    assert failed(judged) == {}
    assert judged.notes == ("other inputs and train mode were not compared: a side did not record them",)


@pytest.mark.parametrize(("scale", "noted"), [(1 + 2e-6, True), (1, False)])
def test_a_difference_within_the_tolerance_that_is_no_rounding_is_told(judge, scale, noted):
    judged = judge(plain, lambda net, x: plain(net, x) * scale, SEQUENCES, random=False)
    assert failed(judged) == {}
    assert len(judged.notes) == noted, judged.notes
    assert all(one.startswith("the outputs are within their tolerance, but differ") for one in judged.notes)
    assert all("`y` (relative 2e-06); `tipchain locate` with this case" in one for one in judged.notes)


def test_what_was_recorded_must_be_there(judge):
    judged = judge(dropping, dropping, SEQUENCES, lose="forward_paddle.safetensors")
    assert set(failed(judged)) == {"forward/tensors"}
    assert "is no complete safetensors file" in failed(judged)["forward/tensors"]


# The same through the command: processes of their own, the live models, sides apart.


FORWARD = "self.head(self.dropout(nn.functional.relu(self.square(hidden))))"
TORCH_FORWARD = "self.head(self.dropout(torch.relu(self.square(hidden))))"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    made = make_tiny_project(tmp_path_factory.mktemp("tiny"))
    text = made.case.read_text()
    stages = next(line for line in text.splitlines() if line.startswith("stages:"))
    made.case.write_text(text.replace(stages, "stages: [forward]"))
    return made


@pytest.fixture
def sides(project):
    """Edits both sides' forwards for a while."""
    names = {"tiny_torch.py": TORCH_FORWARD, "tiny_paddle.py": FORWARD}
    before = {name: (project.root / name).read_text() for name in names}

    def edit(ours, theirs):
        for (name, old), new in zip(names.items(), (ours, theirs), strict=True):
            (project.root / name).write_text(before[name].replace(old, new))
            assert new == old or old not in (project.root / name).read_text()

    yield edit
    for name, text in before.items():
        (project.root / name).write_text(text)


def report_of(project):
    runs = sorted((project.root / "out" / "runs").iterdir(), key=lambda one: one.stat().st_mtime)
    return json.loads((runs[-1] / "log_reprod" / "alignment_forward.json").read_text())


def test_a_port_without_its_dropout_fails_with_cause_and_both_lines(project, sides):
    sides(TORCH_FORWARD, FORWARD.replace("self.dropout", ""))
    done = project.align(locate=True)
    assert done.returncode == ExitCode.FAILED, done.stdout
    (cause,) = report_of(project)["diagnoses"]
    assert (cause["code"], cause["stage"], cause["explains"]) == (
        "missing-dropout",
        "forward",
        ["forward/train/logits"],
    )
    assert cause["message"].startswith("in train mode: the model itself: `dropout` is never called")
    assert cause["place"]["file"] == "tiny_paddle.py"
    assert cause["reference_place"]["file"] == "tiny_torch.py"
    assert cause["fix"] == "call `dropout` after `square`"
    assert "draws nothing" in (project.latest() / "forward_diff.log").read_text()
    sides(TORCH_FORWARD, FORWARD.replace("self.dropout(", "nn.functional.dropout("))
    assert project.align(locate=True).returncode == ExitCode.FAILED
    (cause,) = report_of(project)["diagnoses"]
    assert (cause["code"], cause["stage"]) == ("dropout-in-eval", "forward")


def test_live_models_settle_what_recordings_leave_open(project, sides):
    two = (
        "self.head(self.dropout(self.square(hidden)) + 3 * torch.nn.functional.dropout(hidden, training=self.training))"
    )
    swapped = "self.head(3 * nn.functional.dropout(hidden, training=self.training) + self.dropout(self.square(hidden)))"
    sides(two, swapped)
    assert "1 skipped" in project.align().stdout, "without looking for causes it stays open"
    assert "SKIP: in train mode the results are random" in (project.latest() / "forward_diff.log").read_text()
    done = project.align(locate=True)
    assert done.returncode == ExitCode.PASSED, done.stdout
    report = report_of(project)
    (settled,) = [one for one in report["verdicts"] if one["subject"] == "forward/train"]
    assert settled["outcome"] == "PASS"
    assert settled["reason"].startswith("both models in one process: ")
    assert not report.get("diagnoses")
    assert "SKIP" not in (project.latest() / "forward_diff.log").read_text()
    of_batch = (
        "self.head(nn.functional.dropout(nn.functional.relu(self.square(hidden)), axis=1, training=self.training))"
    )
    sides(TORCH_FORWARD, of_batch)
    done = project.align(locate=True)
    assert done.returncode == ExitCode.FAILED, done.stdout
    assert "draw a mask of shape [2, 128] at tiny_paddle.py:" in done.stdout
    assert "both models in one process: in train mode: " in (project.latest() / "forward_diff.log").read_text()


def test_rounding_beyond_the_default_tolerance_is_no_other_model(project, sides):
    """Outputs of thousands, such as a detector's boxes, round by more than 1e-5."""
    ours, theirs = (f"1e5 * {one.replace('self.dropout', '(self.dropout')})" for one in (TORCH_FORWARD, FORWARD))
    sides(ours, theirs)
    assert project.align().returncode == ExitCode.FAILED, "recordings alone do not tell it from a fault"
    done = project.align(locate=True)
    assert done.returncode == ExitCode.PASSED, done.stdout
    (verdict,) = [one for one in report_of(project)["verdicts"] if one["subject"] == "forward/logits"]
    assert verdict["reason"].startswith("both models in one process: ")
    assert "FAIL" not in (project.latest() / "forward_diff.log").read_text()
    assert project.align("--strict", locate=True).returncode == ExitCode.FAILED, "that tolerance was asked for"
    sides(ours, theirs.replace("1e5", "1.000001e5"))
    assert project.align(locate=True).returncode == ExitCode.FAILED, "so small a fault is no rounding in float64"


def test_rounding_of_a_large_loss_is_no_other_loss(project):
    files = [project.case, project.root / "tiny_torch.py", project.root / "tiny_paddle.py"]
    before = {file: file.read_text() for file in files}

    def scale(*factors):
        for file, factor in zip(files[1:], factors, strict=True):
            function = f"lambda given, label: nn.functional.cross_entropy(given, label) * {factor}"
            file.write_text(before[file].replace("nn.CrossEntropyLoss()", function))

    try:
        project.case.write_text(before[project.case].replace("stages: [forward]", "stages: [forward, loss]"))
        scale(1e5, "1e5 + 1e8 - 1e8")
        assert project.align().returncode == ExitCode.FAILED, "recordings alone do not tell it from a fault"
        assert project.align(locate=True).returncode == ExitCode.PASSED
        assert "FAIL" not in (project.latest() / "loss_diff.log").read_text()
        scale(1e5, 1.000001e5)
        assert project.align(locate=True).returncode == ExitCode.FAILED, "so small a fault is no rounding in float64"
    finally:
        for file, text in before.items():
            file.write_text(text)


def test_what_is_random_in_eval_mode_on_both_sides_is_given_equal_random_numbers(project, sides):
    """`functional.dropout(x)` drops in eval mode in both frameworks: a published reference does, and so does its right port."""
    ours, theirs = (one.replace("self.dropout(", "nn.functional.dropout(") for one in (TORCH_FORWARD, FORWARD))
    ours = ours.replace("nn.functional", "torch.nn.functional")
    sides(ours, theirs)
    done = project.align()
    assert done.returncode == ExitCode.PASSED, done.stdout
    sides(ours, theirs.replace("self.square(hidden))", "self.square(hidden)), p=0.25"))
    done = project.align()
    assert done.returncode == ExitCode.FAILED, done.stdout
    sides(
        ours.replace("torch.relu", "torch.nn.functional.dropout(hidden) + torch.relu"),
        theirs.replace("relu(self.square(hidden))", "relu(self.square(hidden))) + nn.functional.dropout(hidden"),
    )
    done = project.align()
    assert "1 skipped" in done.stdout, done.stdout
    (skipped,) = [one for one in report_of(project)["verdicts"] if one["outcome"] == "SKIP"]
    assert skipped["subject"] == "forward/eval"
    assert "in eval mode, too, the results are random" in skipped["reason"]


def test_sides_recorded_apart_are_compared_in_train_mode_too(project, sides):
    assert project.align("--record", "torch", out="apart").returncode == ExitCode.NOTHING_CHECKED
    given = "--reference", project.latest("apart")
    assert project.align(*given).returncode == ExitCode.PASSED
    sides(TORCH_FORWARD, FORWARD.replace("self.dropout", ""))
    done = project.align(*given, locate=True)
    assert done.returncode == ExitCode.FAILED, done.stdout
    assert "the reference draws a mask of shape [2, 128] with p=0.5 at tiny_torch.py:" in " ".join(done.stdout.split())
