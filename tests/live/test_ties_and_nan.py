"""Gradients at ties and at infinite slopes, and NaN on both sides, are told as what they are; recurrent layers drop alike."""

import numpy as np
import pytest
from both_frameworks import paddle, torch
from live_nets import CROSS_ENTROPY, SGD, copy_and_align, model

import tipchain

GIVEN = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
LABELS = np.arange(6) % 3


def joining(side, joined):
    def make(nn):
        return {"first": nn.Linear(4, 5), "second": nn.Linear(4, 5), "head": nn.Linear(5, 3)}

    return model(side, make, lambda net, x: net.head(joined(net.first(x), net.second(x))))


def report_of(ours, theirs, inputs=GIVEN, **options):
    reference, port = joining(torch, ours), joining(paddle, theirs)
    reference.second.load_state_dict(reference.first.state_dict())
    return copy_and_align(reference, port, inputs, **options)


def largest(one, other):
    """Return the larger of each two values; of equal ones the first gets the gradient."""
    return torch.stack([one, other]).max(0)[0]


def test_which_of_equal_values_gets_the_gradient_is_no_fault():
    report = report_of(
        largest, paddle.maximum, {"args": GIVEN, "labels": LABELS}, training=True, loss=CROSS_ENTROPY, optimizers=SGD
    )
    assert report.passed, str(report)
    assert "each framework gives the gradient of their maximum to another of them" in report.reasons["backward"]
    assert report.stages["train"].value == "SKIP"
    assert "equal values" in report.reasons["train"]


def test_code_that_changes_gradients_is_found_beside_a_tie():
    report = report_of(largest, lambda one, other: paddle.maximum(one, other * 0.5 + (other * 0.5).detach()))
    assert not report.passed
    assert report.stages["backward"].value == "FAIL", str(report)


@pytest.mark.parametrize("cut", [False, True])
def test_a_block_that_uses_what_it_returns_too_is_no_tie(cut):
    """Torch's block returns the very gates that it multiplies by, Paddle's a copy of them."""

    def gated(side, returned):
        def forward(net, x):
            gates = side.nn.functional.softmax(net.gate(x), -1)
            return net.value(x) * gates, returned(gates)

        block = model(side, lambda nn: {"gate": nn.Linear(4, 4), "value": nn.Linear(4, 4)}, forward)
        return model(
            side, lambda nn: {"block": block, "head": nn.Linear(4, 3)}, lambda net, x: both(net, *net.block(x))
        )

    def both(net, made, gates):
        return net.head(made), gates

    reference = gated(torch, lambda gates: gates)
    port = gated(paddle, lambda gates: gates.detach() * 1 if cut else gates * 1)
    report = copy_and_align(reference, port, GIVEN)
    assert report.passed is not cut, str(report)
    assert "equal values" not in str(report)


def test_a_small_difference_of_gradients_is_not_excused_as_a_tie():
    report = report_of(torch.add, lambda one, other: one + other * 0.9999 + (other * 0.0001).detach())
    assert report.stages["backward"].value == "FAIL", str(report)


def test_a_gradient_that_is_not_finite_is_told_as_that():
    report = report_of(
        lambda one, _: torch.sqrt(torch.relu(one)), lambda one, _: paddle.sqrt(paddle.nn.functional.relu(one))
    )
    assert not report.passed, "Paddle makes NaN of 0 times infinity where torch makes 0"
    assert "hands first a gradient with NaN or infinity at" in report.reasons["backward"]
    assert "a slope is infinite there" in report.reasons["backward"]
    assert "relative nan" not in str(report)


@pytest.mark.parametrize(("kind", "theirs", "passes"), [("LSTM", 0.5, True), ("GRU", 0.2, False), ("LSTM", 0.0, False)])
def test_dropout_between_the_layers_of_a_recurrent_one_has_equal_masks(kind, theirs, passes):
    reference = getattr(torch.nn, kind)(4, 6, num_layers=3, dropout=0.5, batch_first=True, bidirectional=True)
    port = getattr(paddle.nn, kind)(4, 6, num_layers=3, dropout=theirs, direction="bidirect")
    report = copy_and_align(reference, port, GIVEN[None], training=True)
    assert report.passed is passes, str(report)
    assert (report.stages["forward"].value == "PASS") is passes
    if not passes:
        assert f"dropout={theirs}" in report.reasons["preflight"]
        evaluated = tipchain.align(reference, port, GIVEN[None])
        assert evaluated.stages["forward"].value == "PASS"
        assert "a run in train mode would show it" in evaluated.reasons["preflight"]


def test_updates_of_a_recurrent_layer_with_dropout_are_compared():
    reference = torch.nn.GRU(4, 3, num_layers=2, dropout=0.5, batch_first=True)
    port = paddle.nn.GRU(4, 3, num_layers=2, dropout=0.5)
    tipchain.copy_weights(reference, port)
    loss = (
        lambda output, labels: torch.nn.functional.cross_entropy(output[0][0], labels),
        lambda output, labels: paddle.nn.functional.cross_entropy(output[0][0], labels),
    )
    report = tipchain.align(
        reference, port, {"args": GIVEN[None], "labels": LABELS}, training=True, loss=loss, optimizers=SGD
    )
    assert report.passed, str(report)
    assert report.stages["train"].value == "PASS"


@pytest.mark.parametrize(
    ("ours", "theirs", "fix"),
    [
        (
            0,
            None,
            "leave `0` with `padding_idx=None`, which in Paddle zeroes the output, and stop the gradient of row 0",
        ),
        (None, 0, "pass `padding_idx=None` to `0`"),
    ],
)
def test_the_fix_of_a_padding_index_does_not_break_the_output(ours, theirs, fix):
    reference = torch.nn.Sequential(torch.nn.Embedding(9, 4, padding_idx=ours), torch.nn.Linear(4, 3))
    torch.nn.init.normal_(reference[0].weight)
    port = paddle.nn.Sequential(paddle.nn.Embedding(9, 4, padding_idx=theirs), paddle.nn.Linear(4, 3))
    report = copy_and_align(reference, port, np.array([[0, 3, 5], [1, 0, 2]]))
    assert not report.passed
    fixes = [one.fix for one in report.diagnoses if one.name == "padding-idx"]
    assert fixes, str(report)
    assert all(fix in one for one in fixes)


LOG = model(torch, lambda _: {}, lambda _, x: torch.log(x))
PADDLE_LOG = model(paddle, lambda _: {}, lambda _, x: paddle.log(x))


def with_logarithms(ours, theirs, inputs=GIVEN, **options):
    """Align a layer, what makes NaN of some of its results or does not, and another layer."""
    torch.manual_seed(0)
    reference = torch.nn.Sequential(torch.nn.Linear(4, 5), ours, torch.nn.Linear(5, 3))
    port = paddle.nn.Sequential(paddle.nn.Linear(4, 5), theirs, paddle.nn.Linear(5, 3))
    return copy_and_align(reference, port, inputs, **options)


def test_nan_on_one_side_is_told_where_it_is_born():
    report = with_logarithms(torch.nn.Identity(), PADDLE_LOG)
    assert not report.passed
    assert report.first_divergence.port_path == "1"
    assert "NaN where the reference has none" in report.reasons["forward"]
    assert report.diagnoses[0].port_path == "1"
    assert "log" in report.diagnoses[0].message, "not a number that is added"


@pytest.mark.parametrize(
    ("ours", "theirs", "inputs", "place"),
    [(LOG, PADDLE_LOG, GIVEN, "1"), (torch.nn.Tanh(), paddle.nn.Tanh(), np.where(GIVEN > 1, np.nan, GIVEN), "")],
    ids=["of a layer", "of the inputs"],
)
def test_nan_on_both_sides_fails_unless_it_may_be_there(ours, theirs, inputs, place):
    report = with_logarithms(ours, theirs, inputs)
    assert report.stages["forward"].value == "FAIL"
    assert report.first_divergence.port_path == place
    assert "unless equal_nan=True" in report.reasons["forward"]
    assert (report.diagnoses[0].code, report.diagnoses[0].port_path) == ("nan", place)
    assert with_logarithms(ours, theirs, inputs, equal_nan=True).passed


def test_a_layer_that_makes_numbers_of_nan_is_at_fault():
    report = with_logarithms(torch.nn.ReLU(), paddle.nn.ReLU(), np.where(GIVEN > 1, np.nan, GIVEN), equal_nan=True)
    assert report.first_divergence.port_path == "1", "Paddle's ReLU makes 0 of NaN"
    assert "no NaN where the reference has some" in report.reasons["forward"]


def test_gradients_that_are_nan_on_both_sides_fail_unless_they_may_be_there():
    roots = (
        model(torch, lambda _: {}, lambda _, x: torch.sqrt(x * 0) + x),
        model(paddle, lambda _: {}, lambda _, x: paddle.sqrt(x * 0) + x),
    )
    report = with_logarithms(*roots)
    assert report.stages["forward"].value == "PASS"
    assert report.stages["backward"].value == "FAIL"
    assert report.first_divergence.port_path == "1", "of the code of this layer, not of the layers before or after it"
    assert "a gradient with NaN first, on both sides" in report.reasons["backward"]
    assert (report.diagnoses[0].code, report.diagnoses[0].port_path) == ("nan", "1")
    allowed = with_logarithms(*roots, equal_nan=True)
    assert allowed.passed, str(allowed)
    assert "equal values" not in allowed.reasons["backward"], "there is no tie"


@pytest.mark.parametrize("equal_nan", [False, True])
def test_a_loss_whose_gradient_is_nan_on_both_sides_passes_only_if_it_may(equal_nan):
    torch.manual_seed(0)
    reference, port = torch.nn.Linear(4, 5), paddle.nn.Linear(4, 5)
    tipchain.copy_weights(reference, port)
    loss = (
        lambda output, labels: (torch.sqrt(output * 0) + output).mean(),
        lambda output, labels: (paddle.sqrt(output * 0) + output).mean(),
    )
    given = {"args": GIVEN, "labels": LABELS}
    report = tipchain.align(reference, port, given, loss=loss, optimizers=SGD, equal_nan=equal_nan)
    assert report.passed is equal_nan, str(report)
    assert report.stages["loss"].value == ("PASS" if equal_nan else "FAIL")
    assert report.stages["train"].value == ("SKIP" if equal_nan else "FAIL"), "what is NaN proves nothing"
    assert equal_nan or (report.diagnoses[0].code, report.diagnoses[0].port_path) == ("nan", "loss")


@pytest.mark.parametrize("rate", [10.0, 10.1])
def test_a_reference_that_diverges_is_compared_before_that(rate):
    torch.manual_seed(0)
    reference, port = torch.nn.Linear(4, 5), paddle.nn.Linear(4, 5)
    tipchain.copy_weights(reference, port)
    loss = (lambda output, labels: (output**4).mean(), lambda output, labels: (output**4).mean())
    optimizers = (
        lambda parameters: torch.optim.SGD(parameters, 10.0),
        lambda parameters: paddle.optimizer.SGD(rate, parameters),
    )
    report = tipchain.align(
        reference, port, {"args": GIVEN, "labels": LABELS}, loss=loss, optimizers=optimizers, iterations=12
    )
    assert report.stages["train"].value == ("PASS" if rate == 10.0 else "FAIL"), report.reasons["train"]
    said = (
        "the reference itself diverges at this learning rate, at step " if rate == 10.0 else "after step 0 weight of "
    )
    assert report.reasons["train"].startswith(said)


@pytest.mark.parametrize(("ours", "theirs"), [(3, 2), (4, 2)])
def test_nan_is_no_cause_where_the_layer_is_built_otherwise(ours, theirs):
    report = tipchain.align(torch.nn.LPPool2d(ours, 2), paddle.nn.LPPool2D(theirs, 2), GIVEN.reshape(1, 1, 6, 4))
    assert ("NaN where the reference has" in report.reasons["forward"]) is ((ours + theirs) % 2 == 1)
    assert [(one.name, one.fix) for one in report.diagnoses] == [("norm-type", f"pass `norm_type={ours}` to the model")]
