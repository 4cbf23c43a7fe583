"""`tipchain.align(..., predict=...)`: deployment code around the models, and where results part."""

import re

import numpy as np
import pytest
from both_frameworks import paddle, torch

import tipchain
from tipchain.errors import Outcome, UsageError

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
RAWS = [RANDOM.integers(0, 256, (12, 12, 3)).astype(np.uint8) for _ in range(4)]
INPUTS = {"args": RANDOM.standard_normal((2, 3, 8, 8)).astype(np.float32)}
NAMES = "cat", "dog", "fox", "owl"


def prepare(raw, scale=255.0, bgr=False):
    image = raw[2:10, 2:10, ::-1] if bgr else raw[2:10, 2:10]
    return ((image / scale - 0.5) / 0.5).transpose(2, 0, 1)[None].astype(np.float32)


def finish(scores, names=NAMES, most=3, softmax=True):
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum() if softmax else scores
    best = np.argsort(-shares)[:most]
    return {"name": names[int(best[0])], "classes": best, "scores": shares[best], "all": shares}


def torch_predict(model, raw):
    with torch.no_grad():
        return finish(model(torch.from_numpy(prepare(raw)))[0].numpy())


def paddle_predict(prepared=None, **after):
    return lambda model, raw: finish(model(paddle.to_tensor(prepare(raw, **(prepared or {}))))[0].numpy(), **after)


def align(port, *, samples=RAWS, off=0.0, ours=torch_predict, inputs=None):
    torch.manual_seed(0)
    reference = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 4)
    )
    other = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 4, 3), paddle.nn.ReLU(), paddle.nn.Flatten(), paddle.nn.Linear(144, 4)
    )
    tipchain.copy_weights(reference, other)
    if off:
        other[3].bias.set_value(other[3].bias + paddle.to_tensor([off, -off, 0.0, off]))
    given = INPUTS if inputs is None else inputs
    return tipchain.align(reference, other, given, predict=(ours, port), samples=samples)


def test_equal_deployment_code_passes():
    report = align(paddle_predict())
    assert report.passed, str(report)
    assert report.stages["predict"] is Outcome.PASS
    assert "4 raw samples give equal results (4 entries each)" in report.reasons["predict"]


def test_what_is_done_before_the_model_is_told_from_what_it_is_given():
    report = align(paddle_predict({"bgr": True}))
    assert report.stages["forward"] is Outcome.PASS
    assert report.stages["predict"] is Outcome.FAIL
    assert "the models get different inputs: the cause is in the code before the model" in report.reasons["predict"]
    assert "after the model" not in report.reasons["predict"]
    assert [(one.port_path, one.code) for one in report.diagnoses] == [("predict", "argument")]
    assert "`bgr` is True, the reference's False; " in report.diagnoses[0].message
    assert "test_predictions.py:" in report.diagnoses[0].message


@pytest.mark.parametrize(
    ("after", "shown", "told"),
    [
        (
            {"softmax": False},
            ", scores: 3 of 3 values, most at [",
            ": `softmax` is False, the reference's True; the port reads it in `shares = ",
        ),
        ({"names": ("dog", "cat", "fox", "owl")}, "(1x4)), name: expected 'dog', actual 'cat'", ""),
    ],
)
def test_what_is_made_of_the_references_outputs_is_shown_with_them(after, shown, told):
    report = align(paddle_predict(None, **after))
    assert report.stages["predict"] is Outcome.FAIL
    assert "the cause is in the code after the model" in report.reasons["predict"]
    assert "before the model" not in report.reasons["predict"]
    assert {one.code for one in report.diagnoses} == {"argument" if told else "parting"}
    assert any(shown in one.message and told in one.message for one in report.diagnoses), report.diagnoses
    assert told or "test_predictions.py:" in report.diagnoses[0].evidence


def test_what_is_in_the_model_is_not_blamed_on_what_is_around_it():
    report = align(paddle_predict(), off=0.3)
    assert report.stages["predict"] is Outcome.FAIL
    assert "the cause is in the model" in report.reasons["predict"]
    assert not [one for one in report.diagnoses if one.port_path == "predict"]


def test_other_entries_an_exception_and_no_samples():
    report = align(lambda model, raw: finish(model(paddle.to_tensor(prepare(raw)))[0].numpy()) | {"more": 1})
    assert "'more' only in the port's" in report.reasons["predict"]
    report = align(lambda model, raw: 1 / 0)
    assert report.stages["predict"] is Outcome.ERROR
    assert re.search(rf"the port's prediction raised {__file__}:\d+: ZeroDivisionError", report.reasons["predict"])
    plain = {"args": INPUTS["args"]}
    for inputs, take in (
        (plain, lambda raw: raw["args"]),
        (plain["args"], lambda raw: raw),
        ((plain["args"],), lambda raw: raw[0]),
    ):
        report = align(
            lambda model, raw, take=take: model(paddle.to_tensor(take(raw))).numpy(),
            samples=None,
            inputs=inputs,
            ours=lambda model, take=take: lambda raw: model(torch.from_numpy(take(raw))).detach().numpy(),
        )
        assert report.passed, str(report)
    with pytest.raises(UsageError, match="predict is one function"):
        tipchain.align(torch.nn.Linear(1, 1), paddle.nn.Linear(1, 1), INPUTS, predict=torch_predict)


@pytest.mark.parametrize("kind", [str, object])
def test_arrays_of_strings_and_objects_are_compared_element_by_element(kind):
    def told(changed):
        def predict(model, raw):
            names = np.array([f"class {number}" for number in range(3000)], dtype=kind)
            names[1500] = "another" if changed else names[1500]
            return {"names": names, "boxes": np.array([1.0, [2.0, 3.0]], dtype=object)}

        return predict

    assert align(told(False), ours=told(False)).passed
    report = align(told(True), ours=told(False))
    assert not report.passed
    assert "names differs" in str(report)
