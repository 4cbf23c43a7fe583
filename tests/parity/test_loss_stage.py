"""The loss stage: value and gradient of every variant."""

from dataclasses import replace

import numpy as np
import pytest
from in_process import failed
from stage_records import judge_arrays, outcomes

from tipchain.errors import Outcome
from tipchain.parity import stages
from tipchain.parity.inputs import make_loss_label
from tipchain.parity.settings import LossSettings

STAGE = "loss"


@pytest.mark.frameworks
def test_every_variant_agrees_in_value_and_gradient(sides):
    both, reference = sides
    judged = both.judge("loss", reference)
    assert failed(judged) == {}
    assert [verdict.subject for verdict in judged.verdicts] == [
        "loss/loss",
        *(f"loss/{name}/loss" for name in ("smoothed", "weighted", "ignoring", "soft")),
        "loss/gradient/logits",
        *(f"loss/{name}/gradient/logits" for name in ("smoothed", "weighted", "ignoring", "soft")),
    ]
    losses = {float(array[0]) for key, array in reference.arrays.items() if key.endswith("loss")}
    assert len(losses) == 5, "the variants really differ"
    assert not reference.arrays["ignoring/gradient/logits"][1].any(), "an ignored sample was planted"


def spoil(monkeypatch, change):
    """Put ``change(original builder, **args)`` in place of the port's ``build_loss``."""
    from tipchain.pairs import paddle_losses

    original = paddle_losses.build_loss
    monkeypatch.setattr(paddle_losses, "build_loss", lambda **args: change(original, args))


def twice(build, args):
    import paddle

    return lambda output, label: build(**args)(paddle.nn.functional.softmax(output), label)


def of_class_zero(build, args):
    """Take ignored samples for class 0."""
    import paddle

    if "ignore_index" not in args:
        return build(**args)
    return lambda output, label: build()(output, paddle.where(label == 255, paddle.zeros_like(label), label))


FAULTS = {
    "softmax twice": (twice, {"", "smoothed", "weighted", "ignoring", "soft"}),
    "no weights": (lambda build, args: build(**{**args, "weight": None}), {"weighted"}),
    "wrong ignore_index": (of_class_zero, {"ignoring"}),
}


@pytest.mark.frameworks
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_loss_fails_where_it_matters(sides, monkeypatch, fault):
    both, reference = sides
    change, variants = FAULTS[fault]
    spoil(monkeypatch, change)
    found = failed(both.judge("loss", reference))
    prefixes = {f"loss/{name}/" if name else "loss/" for name in variants}
    assert set(found) == {f"{prefix}{key}" for prefix in prefixes for key in ("loss", "gradient/logits")}


def test_labels_fit_the_variant():
    label, shape = np.arange(5), (5, 7, 2)
    assert make_loss_label(label, {"label_smoothing": 0.1}, shape, 0) is label
    assert make_loss_label(label, {"ignore_index": 255}, shape, 0).tolist() == [0, 255, 2, 3, 255]
    assert label.tolist() == [0, 1, 2, 3, 4], "the case's label stays as it is"
    soft = make_loss_label(label, {"soft_label": True}, shape, 0)
    assert (soft.shape, soft.dtype) == (shape, np.float32)
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-6)
    assert make_loss_label(soft, {"soft_label": True}, shape, 0) is soft


@pytest.mark.frameworks
def test_the_cases_arguments_hold_wherever_its_loss_is_built(sides):
    bench = sides[0].paddle
    settings = LossSettings(args={"reduction": "sum"}, variants={"mean": {"reduction": "mean"}})
    spoken = replace(bench, case=replace(bench.case, loss=settings), _kept={})
    output, label = (bench.framework.tensor(array) for array in (GRADIENT, np.arange(6) % 5))
    plain, summed = (float(one.builder("loss")()(output, label)) for one in (bench, spoken))
    assert summed == pytest.approx(6 * plain, rel=1e-5)
    arrays = stages.record("loss", spoken).arrays
    assert float(arrays["loss"][0]) == pytest.approx(4 * float(arrays["mean/loss"][0]), rel=1e-5)


def judge(expected, actual):
    return judge_arrays("loss", expected, actual)


GRADIENT = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


@pytest.mark.parametrize(("share", "outcome"), [(0.5e-4, "PASS"), (2e-4, "FAIL")])
def test_a_gradient_is_measured_by_its_own_size(share, outcome):
    size = float(np.sqrt(np.mean(GRADIENT**2)))
    for scale in (1e-6, 1.0, 1e6):
        other = GRADIENT.astype(np.float64) * scale
        other[2, 3] += share * size * scale
        pair = [{"loss": [2.0], "gradient/logits": array} for array in (GRADIENT.astype(np.float64) * scale, other)]
        assert outcomes(judge(*pair)) == {"loss": "PASS", "gradient/logits": outcome}


def test_a_variant_is_measured_by_its_own_gradient():
    small = {"loss": [2.0], "gradient/logits": GRADIENT, "soft/loss": [2.0], "soft/gradient/logits": 1e-5 * GRADIENT}
    found = judge(small, {**small, "soft/gradient/logits": 2e-5 * GRADIENT})
    assert failed(found).keys() == {"loss/soft/gradient/logits"}


def test_a_gradient_of_zero_proves_nothing():
    dead = {"loss": [2.0], "gradient/logits": np.zeros((2, 3))}
    (verdict,) = [v for v in judge(dead, dead).verdicts if v.outcome is not Outcome.PASS]
    assert verdict.outcome is Outcome.ERROR
    assert "gradient of zero" in verdict.reason


@pytest.mark.parametrize("change", [{"gradient/logits": np.full((6, 5), np.nan)}, {"gradient/logits": GRADIENT.T}, {}])
def test_a_gradient_that_is_missing_turned_or_nan_fails(change):
    whole = {"loss": [2.0], "gradient/logits": GRADIENT}
    found = judge(whole, {"loss": [2.0], **change})
    assert outcomes(found)["gradient/logits"] == "FAIL"
