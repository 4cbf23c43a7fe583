"""What `tipchain.align` takes and refuses: labels of several arrays, pairs, swapped models, a schedule on one side."""

import sys

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY, SGD

import tipchain
from tipchain.errors import Outcome, UsageError
from tipchain.live.sources import open_callables

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((6, 5)).astype(np.float32)
CLASSES, BOXES = RANDOM.integers(0, 4, 6), RANDOM.standard_normal((6, 4)).astype(np.float32)
TF, PF = torch.nn.functional, paddle.nn.functional


def pair():
    reference, port = torch.nn.Linear(5, 4), paddle.nn.Linear(5, 4)
    tipchain.copy_weights(reference, port)
    return reference, port


def torch_loss(output, labels):
    return TF.cross_entropy(output, labels["class"]) + TF.smooth_l1_loss(output, labels["box"])


def paddle_loss(output, labels):
    return PF.cross_entropy(output, labels["class"]) + PF.smooth_l1_loss(output, labels["box"])


def test_a_mapping_of_labels_is_handed_to_both_losses_and_trained_with():
    labels = {"class": CLASSES, "box": BOXES}
    report = tipchain.align(*pair(), {"args": X, "labels": labels}, loss=(torch_loss, paddle_loss), optimizers=SGD)
    assert report.passed, str(report)
    assert report.stages["loss"] is report.stages["train"] is Outcome.PASS


def test_a_tuple_of_labels_stays_a_tuple_and_a_list_of_numbers_is_an_array():
    seen = []

    def loss(output, labels):
        seen.append(labels)
        return TF.cross_entropy(output, labels[0]) + output.mean() * labels[1]

    other = lambda output, labels: PF.cross_entropy(output, labels[0]) + output.mean() * labels[1]  # noqa: E731
    report = tipchain.align(*pair(), {"args": X, "labels": (CLASSES, np.float32(0.5))}, loss=(loss, other))
    assert report.stages["loss"] is Outcome.PASS, str(report)
    assert isinstance(seen[0], tuple)
    listed = {"args": X, "labels": CLASSES.tolist()}
    report = tipchain.align(*pair(), listed, loss=CROSS_ENTROPY)
    assert report.passed, str(report)


def test_labels_that_are_no_arrays_are_refused():
    with pytest.raises(UsageError, match=r"labels\.box is a str, expected a numpy array"):
        tipchain.align(*pair(), {"args": X, "labels": {"box": "left"}}, loss=(torch_loss, paddle_loss))


def test_the_file_of_inputs_holds_several_labels(tmp_path):
    (tmp_path / "sides_of_labels.py").write_text(
        "import torch, paddle\ndef ours():\n    return torch.nn.Linear(5, 4)\n"
        "def theirs():\n    return paddle.nn.Linear(5, 4)\n"
    )
    sys.path.insert(0, str(tmp_path))
    file = tmp_path / "inputs.npz"
    models = "sides_of_labels:ours", "sides_of_labels:theirs"
    np.savez(file, args=X, **{"labels.class": CLASSES, "labels.box": BOXES})
    read = open_callables(*models, file)["inputs"]["labels"]
    assert sorted(read) == ["box", "class"]
    assert np.array_equal(read["class"], CLASSES)
    np.savez(file, args=X, labels_1=BOXES, labels_0=CLASSES)
    first, second = open_callables(*models, file)["inputs"]["labels"]
    assert np.array_equal(first, CLASSES)
    assert np.array_equal(second, BOXES)
    np.savez(file, args=X, labels_0=CLASSES, labels=CLASSES)
    with pytest.raises(UsageError, match="labels in several forms"):
        open_callables(*models, file)
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loss": torch_loss}, r"loss is one function\n  expected: a pair, loss=\(torch's, Paddle's\)"),
        ({"loss": (paddle.nn.MSELoss(), torch.nn.MSELoss())}, "is the pair swapped"),
        ({"schedulers": (None, None)}, "schedulers: the reference's is a NoneType"),
        ({"schedulers": (torch_loss, None)}, "schedulers was given without optimizers"),
    ],
)
def test_what_is_no_pair_is_refused_in_one_sentence(given, words):
    with pytest.raises(UsageError, match=words):
        tipchain.align(*pair(), {"args": X, "labels": CLASSES}, **given)


def test_swapped_builders_of_optimizers_are_told():
    builders = SGD[0], lambda parameters: paddle.optimizer.SGD(0.1, parameters=parameters)
    report = tipchain.align(*pair(), {"args": X, "labels": BOXES}, optimizers=builders[::-1])
    assert "the reference's builder returned a paddle SGD" in report.reasons["optimizer"]


def test_swapped_models_are_refused():
    reference, port = pair()
    with pytest.raises(UsageError, match="the models are swapped: the reference"):
        tipchain.align(port, reference, {"args": X})
    with pytest.raises(UsageError, match=r"the reference is a function\n  expected: a torch.nn.Module"):
        tipchain.align(torch_loss, port, {"args": X})


def test_a_schedule_may_be_on_one_side_or_inside_of_the_optimizers_builder():
    def step_decay(parameters):
        return paddle.optimizer.SGD(paddle.optimizer.lr.StepDecay(0.1, 2, 0.5), parameters=parameters)

    step_lr = lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)  # noqa: E731
    inputs = {"args": X, "labels": CLASSES}
    report = tipchain.align(
        *pair(), inputs, loss=CROSS_ENTROPY, optimizers=(SGD[0], step_decay), schedulers=(step_lr, None)
    )
    assert report.stages["schedule"] is report.stages["train"] is Outcome.PASS, str(report)
    report = tipchain.align(*pair(), inputs, loss=CROSS_ENTROPY, optimizers=SGD, schedulers=(step_lr, None))
    assert report.stages["schedule"] is Outcome.FAIL
    assert report.stages["train"] is Outcome.FAIL
    assert report.diagnoses[0].port_path == "scheduler"
