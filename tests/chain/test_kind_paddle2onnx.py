"""Plans of paddle2onnx chains, and how their outputs are compared."""

import runpy

import numpy as np
import pytest
from chain_samples import kind_sample
from test_kinds import CLAS

from tipchain.chain.kinds.paddle2onnx import COMPARE
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Command, Options, command_json
from tipchain.core.json_text import parse_as
from tipchain.errors import ParamsError

DETECTION = kind_sample("paddle2onnx", "paddledetection").replace("norm|quant", "norm")


def planned(tmp_path, text, **more):
    path = tmp_path / "onnx.txt"
    path.write_text(text)
    options = Options(root="/w", **more.pop("options", {}))
    return load_plan(path, None, options=options, **more)


def words(plan, step):
    return next(list(one.argv) for one in plan.commands if one.step == step)


def test_conversion_must_leave_the_model_and_what_follows_needs_it(tmp_path):
    plan = planned(tmp_path, CLAS)
    convert, infer, compare = plan.commands
    assert [one.step for one in plan.commands] == ["convert", "infer", "compare"]
    assert convert.leaves[0].files == ("./deploy/models/ResNet50_infer/inference.onnx",)
    assert infer.needs == compare.needs == (convert.id,)
    assert infer.cwd == "deploy"
    # What paddle2onnx refuses is not passed, and nothing is installed.
    assert "--enable_dev_version=False" not in words(plan, "convert")
    assert plan.commands[0].env == {"PIP_NO_INDEX": "1"}


def test_a_named_interpreter_brings_its_own_paddle2onnx(tmp_path):
    plan = planned(tmp_path, CLAS, options={"python": "/venv/bin/python"})
    assert words(plan, "convert")[0] == "/venv/bin/paddle2onnx"
    assert words(plan, "compare")[:2] == ["/venv/bin/python", str(COMPARE)]


def test_no_inference_program_is_no_inference(tmp_path):
    plan = planned(tmp_path, CLAS.replace("./python/predict_cls.py", "null"))
    assert [one.step for one in plan.commands] == ["convert", "compare"]


def test_ocr_infers_with_all_that_was_converted_and_compares_each(tmp_path):
    text = kind_sample("paddle2onnx", "paddleocr")
    plan = planned(tmp_path, text, suite="paddleocr")
    ids = [one.id for one in plan.commands]
    assert [one.step for one in plan.commands] == ["convert", "convert", "infer", "infer", "compare", "compare"]
    assert [set(one.needs) for one in plan.commands[2:]] == [set(ids[:2])] * 2 + [{ids[0]}, {ids[1]}]
    assert not [word for one in plan.commands for word in one.argv if "enable_dev_version" in word]
    on_cpu = planned(tmp_path, text, suite="paddleocr", options={"device": "cpu"})
    assert [one.argv[-1] for one in on_cpu.commands if one.step == "infer"] == ["--use_onnx=True"]
    gpu = planned(tmp_path, text.replace("--use_gpu:True|False", "--use_gpu:True|Flase"), suite="paddleocr")
    assert [one.on_gpu for one in gpu.commands if one.step == "infer"] == [True]
    assert [note for note in gpu.notes if "--use_gpu: no inference on the device 'Flase'" in note]
    changed = planned(tmp_path, text.replace("True|False", "True"), suite="paddleocr", options={"device": "cpu"})
    (infer,) = [one for one in changed.commands if one.step == "infer"]
    assert "--use_gpu=False" in infer.argv
    assert not infer.on_gpu
    detector = "\n".join(f"{one.partition(':')[0]}:" if "/words" in one else one for one in text.splitlines())
    alone = planned(tmp_path, detector, suite="paddleocr", options={"device": "cpu"})
    assert [one.step for one in alone.commands] == ["convert", "infer", "compare"]
    nothing = "\n".join(f"{one.partition(':')[0]}:" if "_dir:./models" in one else one for one in text.splitlines())
    with pytest.raises(ParamsError, match="names no model to convert"):
        planned(tmp_path, nothing, suite="paddleocr")


def test_detection_exports_first_and_names_files_by_the_model(tmp_path):
    plan = planned(tmp_path, DETECTION, suite="paddledetection")
    assert [one.step for one in plan.commands] == ["export", "convert", "infer", "compare"]
    assert "weights=https://example.org/models/picodet.pdparams" in words(plan, "export")
    assert "--save_file=./output_inference/picodet/model.onnx" in words(plan, "convert")
    assert words(plan, "infer")[-2:] == [
        "--onnx_file=./output_inference/picodet/model.onnx",
        "--image_file=./demo/1.jpg",
    ]


@pytest.mark.parametrize(("value", "message"), [("nrom", "unknown export 'nrom'"), ("fpgm", "whose export is null")])
def test_detection_refuses_models_that_it_cannot_export(value, message, tmp_path):
    with pytest.raises(ParamsError, match=message):
        planned(tmp_path, DETECTION.replace("infer_mode:norm", f"infer_mode:{value}"), suite="paddledetection")


COMPARISON = runpy.run_path(str(COMPARE))
compare = COMPARISON["compare"]
EXPECTED = np.linspace(-1, 1, 100, dtype=np.float32)
NEARBY = [EXPECTED + np.float32(1e-6)]


@pytest.mark.parametrize(
    ("actual", "good"),
    [
        (EXPECTED, True),
        (EXPECTED + np.float32(12e-6), False),
        (np.where(np.arange(100) == 7, np.float32(0.5), EXPECTED), False),
        (np.where(np.arange(100) == 7, np.float32("nan"), EXPECTED), False),
        (EXPECTED[:99], False),
        (EXPECTED.reshape(10, 10), False),
    ],
)
def test_an_output_may_differ_by_what_rounding_explains(actual, good):
    assert compare(EXPECTED, actual, NEARBY, -EXPECTED)[1] is good


def test_whole_numbers_are_counted():
    expected = np.arange(100)
    other = np.where(expected < 3, 0, expected)
    assert compare(expected, expected, [expected], expected)[1]
    assert not compare(expected, other, [expected], expected)[1]
    assert compare(expected, other, [np.where(expected < 2, 0, expected)], expected)[1]


def test_an_empty_output_proves_nothing():
    assert not compare(EXPECTED[:0], EXPECTED[:0], [], EXPECTED[:0])[1]


def test_an_output_that_no_input_changes_proves_nothing():
    said, good, _ = compare(EXPECTED, EXPECTED, NEARBY, EXPECTED + np.float32(5e-6))
    assert not good
    assert "another input changes it by no more" in said


def test_rows_of_a_detector_are_compared_in_any_order_and_by_columns():
    rows = np.array([[1, 0.9, 10, 20, 100, 200], [1, 0.9, 11, 20, 90, 210], [3, 0.2, 5, 5, 50, 60]], np.float32)
    nearby, elsewhere = [rows[[1, 0, 2]] + np.float32(1e-7)], rows + 1
    assert compare(rows, rows[[2, 0, 1]], nearby, elsewhere)[1]
    off = rows[[2, 0, 1]].copy()
    off[0, 1] += np.float32(1e-4)  # less than the boxes may be off, more than the scores
    said, good, ratio = compare(rows, off, nearby, elsewhere)
    assert not good
    assert ratio > 1
    assert said.startswith("column 1: ")


@pytest.fixture
def main(monkeypatch, tmp_path):
    """The program that compares, told of a model's three files."""
    files = {"model": "m.json", "params": "m.pdiparams", "onnx": "m.onnx"}
    for name in files.values():
        (tmp_path / name).write_text("")
    monkeypatch.setattr("sys.argv", ["compare_onnx.py", *(f"--{key}={tmp_path}/{one}" for key, one in files.items())])
    return COMPARISON["main"]


def test_whole_numbers_that_no_input_changes_prove_nothing(main, monkeypatch, capsys):
    for constant, code in ((True, 1), (False, 0)):

        def run(inputs, constant=constant):
            return [np.zeros((2, 2), np.int64) if constant else (inputs["x"] > 0).astype(np.int64)]

        monkeypatch.setitem(main.__globals__, "open_paddle", lambda *_, run=run: (["x"], run))
        monkeypatch.setitem(main.__globals__, "open_onnx", lambda _, run=run: ({"x": ([1, 300], "tensor(float)")}, run))
        assert main() == code
        assert ("change no output" in capsys.readouterr().out) is constant


def test_the_last_line_tells_a_difference_from_what_proves_nothing(main, monkeypatch, capsys):
    def paddle(inputs):
        return [inputs["x"], np.full(3, 0.5, np.float32)]

    for factor, said in (
        (1, "of 1 nothing can be said"),
        (2, "1 differ by more than rounding, of 1 nothing can be said"),
    ):
        monkeypatch.setitem(main.__globals__, "open_paddle", lambda *_: (["x"], paddle))
        specs = {"x": ([1, 9], "tensor(float)")}
        onnx = (specs, lambda inputs, factor=factor: [inputs["x"] * factor, np.full(3, 0.5, np.float32)])
        monkeypatch.setitem(main.__globals__, "open_onnx", lambda _, onnx=onnx: onnx)
        assert main() == 1
        assert capsys.readouterr().out.splitlines()[-1] == f"compared 2 outputs: {said}"


def test_the_program_is_the_file_that_is_there(tmp_path):
    plan = planned(tmp_path, DETECTION, suite="paddledetection", options={"device": "cpu"})
    finds = {one.step: one.finds for one in plan.commands}
    files = tuple(f"./output_inference/picodet/model{end}" for end in (".pdmodel", ".json"))
    assert [one.text for one in finds["convert"]] == ["model.pdmodel"]
    assert [one.text for one in finds["compare"]] == ["./output_inference/picodet/model.pdmodel"]
    assert finds["convert"][0].files == finds["compare"][0].files == files
    assert parse_as(Command, command_json(plan.commands[1])) == plan.commands[1]
    assert words(plan, "export")[-2:] == ["use_gpu=False", "--output_dir=./output_inference"]
    assert "use_gpu=False" not in words(planned(tmp_path, DETECTION, suite="paddledetection"), "export")
