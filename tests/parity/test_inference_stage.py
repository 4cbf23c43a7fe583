"""Inference: the exported program in two engines, and what is said when one of them gives something else."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stage_records import judge_arrays, open_paddle, outcomes, reasons, tiny_bench

from tipchain.errors import Outcome
from tipchain.parity.case import load_case
from tipchain.parity.settings import InferenceSettings
from tipchain.parity.stages import record
from tipchain.parity.stages.judging import Judged, Rules

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("forked")]
TINY = Path(__file__).resolve().parents[1] / "cases/tiny/tiny.yaml"
HAS_ONNX = all(importlib.util.find_spec(name) for name in ("paddle2onnx", "onnxruntime"))
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs paddle2onnx and onnxruntime")
FAULTS = """
import paddle
from paddle import nn

from tests.cases.tiny.tiny_paddle import Tiny


class FunctionalDropout(Tiny):
    '''Drops in eval mode too: the function's default.'''

    def forward(self, image):
        return self.head(nn.functional.dropout(paddle.flatten(self.features(image), 1), 0.5))


class FourSamples(Tiny):
    '''Is exported for four samples.'''

    def forward(self, image):
        hidden = paddle.flatten(self.features(image), 1)
        if not paddle.in_dynamic_mode():
            hidden = hidden.reshape([4, 128])
        return self.head(hidden)


class FourScales(Tiny):
    '''Is exported with what was right for four samples.'''

    def forward(self, image):
        samples = image.shape[0] if paddle.in_dynamic_mode() else 4
        return super().forward(image) / samples


class Named(Tiny):
    '''Puts out a dict that is not in the order of its keys.'''

    def forward(self, image):
        logits = super().forward(image)
        return {"scores": nn.functional.softmax(logits), "logits": logits, "pair": [logits * 2, logits * 3]}


class Faint(Tiny):
    def forward(self, image):
        return super().forward(image) * 1e-8


class Spectrum(Tiny):
    '''Has an operator that paddle2onnx does not know.'''

    def forward(self, image):
        return super().forward(image) + paddle.fft.rfft(image).real().mean()


class Large(Tiny):
    '''Puts out numbers whose rounding alone exceeds the default tolerance.'''

    def forward(self, image):
        return super().forward(image) * 1e4


class LargeAndWrong(Tiny):
    '''And is a small share of them off, in the exported program alone.'''

    def forward(self, image):
        return super().forward(image) * (1e4 if paddle.in_dynamic_mode() else 1.0002e4)

"""


@needs_onnx
def test_rounding_of_large_outputs_is_no_other_model_and_a_small_share_of_them_is(side, tmp_path):
    judged = judge(side, tmp_path, "Large", onnx=True)
    rounded = [one for one in judged.verdicts if "units in the last place apart move it by" in one.reason]
    assert rounded
    assert set(outcomes(judged).values()) == {"PASS"}, reasons(judged)
    assert all(one.share < 1 for one in rounded)
    assert set(outcomes(judge(side, tmp_path, "LargeAndWrong")).values()) == {"FAIL"}


@pytest.fixture(scope="module")
def side(tmp_path_factory):
    """Paddle, weights of the tiny case, and models that go wrong when exported."""

    def unlike_each_other(model):
        for number, layer in enumerate((model.features[1]._mean, model.features[1]._variance)):
            layer.set_value(np.linspace(0.5, 1.5, 8, dtype=np.float32) + number)

    framework, folder = open_paddle(tmp_path_factory.mktemp("side"), unlike_each_other)
    (folder / "export_faults.py").write_text(FAULTS)
    return framework, folder


def judge(side, tmp_path, model: str | None = None, **settings) -> Judged:
    """Record and judge the stage with the model called ``model``, on batches of 1 and 4 unless told otherwise."""
    case = load_case(TINY)
    if model:
        sides = {**case.sides, "paddle": replace(case.sides["paddle"], model=f"export_faults:{model}")}
        case = replace(case, root=side[1], sides=sides, model_args={"num_classes": 10, "dropout": 0.5})
    case = replace(case, inference=InferenceSettings(**{"onnx": False, **settings}))
    made = record("inference", tiny_bench(side, case, tmp_path))
    return judge_sides(made.reference, made.arrays, made.details, Rules.of(case), tmp_path)


def judge_sides(reference, port, details, rules=None, folder=Path()) -> Judged:
    sides = ("training", "paddle")
    return judge_arrays("inference", reference, port, rules, details=(details, details), sides=sides, folder=folder)


@needs_onnx
def test_one_program_serves_every_batch_size_in_both_engines(side, tmp_path):
    judged = judge(side, tmp_path, onnx=True)
    keys = [f"{engine}/logits@batch={size}" for engine in ("paddle_inference", "onnx") for size in (1, 4)]
    assert outcomes(judged) == dict.fromkeys(keys, "PASS")
    assert "onnxruntime" in judged.notes[1]
    assert [path.name for path in tmp_path.iterdir()] == ["inference_onnx.log"], "the program itself is gone"


def test_every_named_output_is_compared_whatever_the_order_of_the_program(side, tmp_path):
    outputs = ("logits", "pair/0", "pair/1", "scores")
    keys = [f"paddle_inference/{name}@batch={size}" for size in (1, 2) for name in outputs]
    assert outcomes(judge(side, tmp_path, "Named", batch_sizes=(1, 2))) == dict.fromkeys(keys, "PASS")


def test_a_model_that_is_random_in_eval_mode_is_told(side, tmp_path):
    found = reasons(judge(side, tmp_path, "FunctionalDropout"))
    assert "a layer is random in eval mode" in found["paddle_inference/logits@batch=1"]


def test_a_frozen_batch_size_that_stops_the_engine_is_an_error_beside_the_batch_that_runs(side, tmp_path):
    judged = judge(side, tmp_path, "FourSamples")
    assert outcomes(judged) == {"paddle_inference/logits@batch=4": "PASS", "paddle_inference@batch=1": "ERROR"}
    reason = reasons(judged)["paddle_inference@batch=1"]
    assert reason.endswith("; it runs at batch=4: the program is not of any batch size")
    assert "InvalidArgumentError: The 'shape' in ReshapeOp is invalid" in reason


def test_a_frozen_batch_size_that_changes_the_numbers_is_told(side, tmp_path):
    judged = judge(side, tmp_path, "FourScales")
    assert outcomes(judged) == {"paddle_inference/logits@batch=1": "FAIL", "paddle_inference/logits@batch=4": "PASS"}
    reason = reasons(judged)["paddle_inference/logits@batch=1"]
    assert "equal at batch=4: what the program computes depends on the batch size" in reason


def test_outputs_too_small_for_the_tolerance_prove_nothing(side, tmp_path):
    assert set(outcomes(judge(side, tmp_path, "Faint")).values()) == {"ERROR"}


@needs_onnx
def test_an_operator_without_a_converter_is_an_error_of_the_onnx_half_alone(side, tmp_path):
    """paddle2onnx aborts its process."""
    judged = judge(side, tmp_path, "Spectrum", onnx=True)
    found = outcomes(judged)
    assert found.pop("onnx") == "ERROR"
    assert set(found.values()) == {"PASS"}
    reason = reasons(judged)["onnx"]
    assert "; `inference: {onnx: false}` in the case leaves ONNX out; " in reason
    assert "SIGABRT while converting it" in reason
    assert "; paddle2onnx does not list: real; " in reason


def test_missing_packages_are_a_skip_with_the_way_to_get_them(side, tmp_path, monkeypatch):
    from tipchain.parity.stages import inference

    monkeypatch.setattr(inference, "PACKAGES", ("paddle2onnx_that_is_not_there",))
    judged = judge(side, tmp_path, onnx=True)
    assert outcomes(judged)["onnx"] == "SKIP"
    assert "paddle2onnx_that_is_not_there not installed: pip install 'tipchain[onnx]'" in reasons(judged)["onnx"]


def recorded(arrays: dict, facts: dict, reference: dict | None = None) -> Judged:
    return judge_sides(arrays if reference is None else reference, arrays, {"engines": facts, "repeats": True})


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (2.0, r".*paddle_inference gives the same as onnx: the export differs from the model"),
        # First, as a terminal's verdict has room for it, and how to go on: paddle2onnx 2.1 makes a right GELU another one.
        (
            1.0,
            r"paddle2onnx converts an operator to another one, for .*; `inference: {onnx: false}` in the case leaves ONNX out; not close",
        ),
    ],
    ids=["the export", "the conversion"],
)
def test_what_both_engines_or_onnx_alone_give_otherwise_accuses(own, words):
    given = {"paddle_inference/logits@batch=1": own, "onnx/logits@batch=1": 2.0}
    arrays = {key: np.full((1, 10), value) for key, value in given.items()}
    judged = recorded(arrays, {"paddle_inference": {}, "onnx": {}}, dict.fromkeys(given, np.ones((1, 10))))
    assert re.match(words, reasons(judged)["onnx/logits@batch=1"])


def test_an_engine_that_gave_nothing_is_no_pass():
    judged = recorded({"paddle_inference/logits@batch=1": np.ones((1, 10))}, {"paddle_inference": {}, "onnx": {}})
    assert outcomes(judged)["onnx"] == "ERROR"
    assert [verdict.outcome for verdict in recorded({}, {}).verdicts] == [Outcome.ERROR]
    assert set(outcomes(recorded({}, {"onnx": {"skipped": "not installed"}})).values()) == {"SKIP"}
