"""Two models of which nobody copied the weights: that is said first and alone, and the command line copies them."""

import numpy as np
import pytest
from both_frameworks import paddle, torch

import tipchain
from tipchain.errors import Outcome, TipchainError
from tipchain.live.sources import give_weights, open_callables

pytestmark = pytest.mark.frameworks
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)


def build_reference():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.AvgPool2d(3, 1, 1),
        nn.Flatten(),
        nn.Linear(196, 10),
        nn.Linear(10, 10),
    ).eval()


def build_port(exclusive=False):
    nn = paddle.nn
    pool = nn.AvgPool2D(3, 1, 1, exclusive=exclusive)
    made = nn.Sequential(
        nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), pool, nn.Flatten(), nn.Linear(196, 10), nn.Linear(10, 10)
    )
    made.eval()
    return made


def test_two_initializations_are_said_first_and_alone():
    report = tipchain.align(build_reference(), build_port(exclusive=True), IMAGES)
    assert dict(report.stages) == {"preflight": Outcome.FAIL}
    assert [one.name for one in report.diagnoses] == ["weights-not-copied"]
    assert report.first_divergence is None
    assert [one.name for one in report.findings] == ["weights-not-copied"]
    assert "6 of 6 parameters hold other values: the weights were not copied" in str(report)
    assert "tipchain.copy_weights(reference, port)" in str(report)


def test_fresh_models_are_given_equal_weights_and_their_real_fault_is_found():
    reference, port = build_reference(), build_port(exclusive=True)
    assert give_weights(reference, port, {}, ()).startswith(
        "6 of 6 parameters held other values: the reference's were copied"
    )
    report = tipchain.align(reference, port, IMAGES)
    assert report.first_divergence.port_path == "2"
    assert report.diagnoses[0].name == "exclusive"
    assert give_weights(reference, port, {}, ()) is None, "they are there already"


def test_weights_that_were_copied_badly_stay_as_they_are():
    reference, port = build_reference(), build_port()
    tipchain.copy_weights(reference, port)
    port[5].weight.set_value(port[5].weight.numpy().T.copy())
    port[4].weight.set_value(np.random.default_rng(1).standard_normal((196, 10)).astype(np.float32))
    kept = port[4].weight.numpy()
    assert give_weights(reference, port, {}, ()) is None
    assert np.array_equal(port[4].weight.numpy(), kept)


def test_where_a_layer_has_no_counterpart_the_others_are_given_their_weights():
    reference, port = build_reference(), build_port()
    port[5] = paddle.nn.Linear(10, 7)
    told = give_weights(reference, port, {}, ())
    assert told.endswith("the reference's were copied, but for 2 that have no counterpart")
    assert np.array_equal(port[0].weight.numpy(), reference[0].weight.detach().numpy())
    assert np.array_equal(port[4].weight.numpy(), reference[4].weight.detach().numpy().T)


@pytest.mark.parametrize("copied", [True, False])
def test_the_command_line_copies_unless_told_otherwise(tmp_path, copied):
    np.savez(tmp_path / "inputs.npz", args=IMAGES)
    found = open_callables(
        f"{__name__}:build_reference", f"{__name__}:build_port", tmp_path / "inputs.npz", copy_weights=copied
    )
    equal = np.array_equal(found["port"][0].weight.numpy(), found["reference"][0].weight.detach().numpy())
    assert equal is copied
    assert [one[:6] for one in found.get("notes", [])] == (["6 of 6"] if copied else [])


@pytest.mark.parametrize("form", ["array", "paddle", "list", "dict", "path"])
def test_inputs_may_be_given_in_any_usual_form(tmp_path, form):
    reference, port = build_reference()[:3], build_port()[:3]
    tipchain.copy_weights(reference, port)
    np.savez(tmp_path / "inputs.npz", args=IMAGES)
    given = {
        "array": IMAGES,
        "paddle": paddle.to_tensor(IMAGES),
        "list": [torch.from_numpy(IMAGES)],
        "dict": {"input": torch.from_numpy(IMAGES)},
        "path": tmp_path / "inputs.npz",
    }[form]
    report = tipchain.align(reference, port, given, causes=False)
    assert report.passed, str(report)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "inputs is a int\n  expected: an array, a tensor, a tuple or dict of them, or the path of a .npz file"),
        ("missing.npz", "missing.npz: cannot be read as .npz of arrays"),
        ((), "inputs are empty"),
        ({"labels": np.zeros(2)}, "nothing to call the models with"),
    ],
)
def test_other_kinds_of_inputs_get_one_sentence(given, words):
    with pytest.raises(TipchainError) as raised:
        tipchain.align(build_reference(), build_port(), given)
    assert words in str(raised.value)
