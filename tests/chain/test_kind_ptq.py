"""Plans of post-training quantization, its tolerance, and how a quantized model's outputs are compared."""

import sys
from pathlib import Path

import numpy as np
import pytest
from chain_samples import kind_sample
from programs import completed

from tipchain.chain.kinds.ptq_infer_python import COMPARE, LIMITS, RECORD
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options
from tipchain.errors import ParamsError
from tipchain.paddle_tools.compare_outputs import IncomparableError, compare, judge

SEG = kind_sample("ptq_infer_python", "paddleseg")
DETECTION = kind_sample("ptq_infer_python", "paddledetection")
OCR = """===========================kl_quant_params===========================
model_name:det_KL
python:python3.7
Global.pretrained_model:null
Global.save_inference_dir:null
infer_model:./inference/det_infer|./inference/rec_infer
infer_export:quant_kl.py -c det.yml -o|null
infer_quant:True
inference:tools/infer/predict_det.py
--use_gpu:False
--enable_mkldnn:False
--cpu_threads:6
--rec_batch_num:1
--use_tensorrt:False
--precision:int8|fp32
--det_model_dir:
--image_dir:./images/
null:null
--benchmark:True
null:null
null:null
"""


def planned(tmp_path, text, suite=None, name="train_ptq_infer_python.txt", **more):
    path = tmp_path / name
    path.write_text(text)
    options = Options(**{"root": "/w", **more.pop("options", {})})
    return load_plan(path, None, suite=suite, options=options, **more)


def steps(plan):
    return [one.step for one in plan.commands]


def words(plan, step, number=0):
    return [list(one.argv) for one in plan.commands if one.step == step][number]


def test_quantized_and_unquantized_model_are_inferred_with_on_the_same_data_and_compared(tmp_path):
    plan = planned(tmp_path, SEG, "paddleseg")
    assert steps(plan) == ["quantize", "infer", "infer", "infer", "infer", "record", "record", "compare"]
    unquantized, quantized = (words(plan, "record", number) for number in (0, 1))
    assert unquantized[1] == quantized[1] == RECORD
    assert "--config=models/hrnet/deploy.yaml" in unquantized
    assert "--config=quant_model/deploy.yaml" in quantized
    assert unquantized[4:5] + unquantized[6:] == quantized[4:5] + quantized[6:]
    assert all(one.needs == ("quantize",) for one in plan.commands if one.step == "record"), "what was quantized"
    compare = plan.commands[-1]
    assert compare.argv[1] == COMPARE
    assert set(compare.needs) == {one.id for one in plan.commands if one.step == "record"}


def test_what_the_quantization_must_leave(tmp_path):
    plan = planned(tmp_path, DETECTION, "paddledetection")
    program, weights = plan.commands[0].leaves
    assert "./output_inference/picodet/**/*.pdmodel" in program.files
    assert "./output_inference/picodet/**/*.pdiparams" in weights.files
    assert all(one.needs for one in plan.commands if one.step == "infer")


def test_a_suite_that_quantizes_what_it_trained_exports_the_unquantized_model_too(tmp_path):
    plan = planned(tmp_path, DETECTION, "paddledetection", options={"device": "cpu"})
    export = words(plan, "export")
    assert export[1] == "tools/export_model.py"
    assert "ptq.yml" not in export
    assert export[-2:] == ["use_gpu=False", f"--output_dir={plan.run}/unquantized"]
    assert words(plan, "quantize")[-2:] == ["--output_dir=./output_inference", "use_gpu=False"]
    assert {one.on_gpu for one in plan.commands} == {False}
    exported = next(one for one in plan.commands if one.step == "export")
    assert exported.needs == ("quantize",)


def test_only_what_a_quantized_model_is_inferred_with(tmp_path):
    plan = planned(tmp_path, DETECTION, "paddledetection", legacy=True)
    modes = [word for one in plan.commands for word in one.argv if word.startswith("--run_mode")]
    assert modes == ["--run_mode=paddle", "--run_mode=trt_int8"]
    inferred = [one for one in planned(tmp_path, OCR, "paddleocr").commands if one.step == "infer"]
    assert len(inferred) == 2
    assert all("--precision=int8" in one.argv for one in inferred)


def test_lines_that_the_original_stops_before_are_read(tmp_path):
    legacy, default = (planned(tmp_path, OCR, "paddleocr", legacy=one) for one in (True, False))
    assert "--benchmark=True" not in words(legacy, "infer")
    assert "--benchmark=True" in words(default, "infer")
    assert words(legacy, "quantize")[-2:] == [
        "Global.pretrained_model=./inference/det_infer",
        "Global.save_inference_dir=./inference/det_infer_klquant",
    ]


def test_a_model_that_is_quantized_already_is_inferred_with_and_not_compared(tmp_path):
    plan = planned(tmp_path, OCR.replace("kl_quant_params", "train_params"), "paddleocr")  # so may a file begin
    assert [one.id for one in plan.commands if one.step == "quantize"] == ["quantize[model=0]"]
    assert [one.id for one in plan.commands if one.step == "compare"] == ["compare[model=0]"]


def limits(argv):
    return {name: argv[argv.index(f"--{name}") + 1] for name in ("max-disagreement", "max-error")}


def test_the_tolerance_is_the_files_own_with_its_reason(tmp_path):
    given = limits(words(planned(tmp_path, SEG, "paddleseg"), "compare"))
    assert [float(one) for one in given.values()] == list(LIMITS.values())
    own = SEG + "===quantization_tolerance_params===\nmax_disagreement:0.02\nreason:measured on 500 images\n"
    plan = planned(tmp_path, own, "paddleseg")
    assert limits(words(plan, "compare"))["max-disagreement"] == "0.02"
    assert any("measured on 500 images" in str(one) for one in plan.findings)


def test_only_the_suites_own_program_takes_a_gpu_whatever_it_is_told(tmp_path):
    ours = SEG.replace("PTQ:deploy", "PTQ:on_cpu.py deploy")
    assert [planned(tmp_path, text, "paddleseg").commands[0].on_gpu for text in (SEG, ours)] == [True, False]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("max_disagreement:2\nreason:no\n", "is no share"),
        ("max_error:nan\nreason:no\n", "is no share"),
        ("max_eror:0.1\nreason:no\n", "unknown key"),
        ("max_error:0.1\nmax_error:0.2\nreason:no\n", "stands twice"),
        ("max_error:0.5\n", "needs `reason:`"),
    ],
)
def test_a_tolerance_that_says_nothing_is_refused(tmp_path, lines, said):
    with pytest.raises(ParamsError, match=said) as caught:
        planned(tmp_path, SEG + "===quantization_tolerance_params===\n" + lines, "paddleseg")
    assert caught.value.line


# The outputs


def record(*outputs, inputs=("a", "b")):
    found = {f"output_{number:06d}": np.asarray(one) for number, one in enumerate(outputs)}
    return {"inputs": np.array(inputs), "dropped": np.array(0), **found}


SCORES = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, 0.0], [0.0, 2.0, 5.0], [9.0, 2.0, 5.0]], np.float32)


def test_the_share_of_other_decisions_is_judged():
    other = SCORES.copy()
    other[0] = [2.0, 1.0, 0.0]
    tally = compare(record(SCORES), record(other))
    assert (tally.differ, tally.decisions) == (1, 4)
    assert judge(tally, 0.25, 0.1)[1]
    lines, good = judge(tally, 0.2, 0.1)
    assert not good
    assert "1 of 4 decisions" in lines[-1]


def test_ties_of_the_unquantized_model_decide_nothing():
    even = np.full((3, 4), 0.25, np.float32)
    moved = even + np.float32(1e-6) * np.arange(4, dtype=np.float32)
    with pytest.raises(IncomparableError, match="prefers nothing"):
        compare(record(even), record(moved))
    wide = np.concatenate([SCORES, np.zeros((4, 1), np.float32)], axis=1)
    tally = compare(record(np.concatenate([even, wide])), record(np.concatenate([moved, wide])))
    assert (tally.ties, tally.decisions, tally.differ) == (3, 4, 0)


def test_the_largest_of_maps_and_of_sequences():
    maps = np.zeros((1, 2, 2, 2), np.float32)
    maps[0, 1] = [[1, -1], [1, -1]]
    other = maps.copy()
    other[0, 1, 0, 0] = -1
    tally = compare(record(maps), record(other))
    assert (tally.differ, tally.decisions) == (1, 4)
    sequence = SCORES[None]
    assert compare(record(sequence), record(sequence[..., ::-1])).differ == 3


def test_outputs_without_decisions_are_judged_by_their_distance():
    left = np.full((1, 1, 4, 4), 2.0, np.float32)
    tally = compare(record(left), record(left * np.float32(1.1)))
    assert judge(tally, 0.0, 0.11)[1]
    assert not judge(tally, 0.0, 0.09)[1]


def test_boxes_are_matched_and_not_compared_row_by_row():
    boxes = np.array([[0, 0.9, 0, 0, 10, 10], [1, 0.8, 20, 20, 30, 30], [1, 0.1, 0, 0, 5, 5]], np.float32)
    moved = boxes[[1, 0]] + np.array([0, 0, 1, 1, 1, 1], np.float32)
    tally = compare(record(boxes, np.array([3])), record(moved, np.array([2])))
    assert (tally.differ, tally.decisions) == (0, 2)
    tally = compare(record(boxes), record(boxes[:1]))
    assert (tally.differ, tally.decisions) == (1, 2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_fails(bad):
    other = SCORES.copy()
    other[1, 0] = bad
    assert not judge(compare(record(SCORES), record(other)), 1.0, 1.0)[1]


@pytest.mark.parametrize(
    "other", [record(SCORES, inputs=("a", "c")), record(SCORES, SCORES), record(SCORES[:2]), record(inputs=())]
)
def test_records_of_other_inputs_or_outputs_say_nothing(other):
    with pytest.raises(IncomparableError):
        compare(record(SCORES) if len(other["inputs"]) else other, other)


def test_one_decision_everywhere_is_told():
    same = record(SCORES[1:2].repeat(4, 0))
    lines, good = judge(compare(same, same), 0.1, 0.1)
    assert good
    assert any("proves little" in line for line in lines)


def test_the_program_says_what_it_found_and_exits_with_it(tmp_path):
    paths = [tmp_path / "left.npz", tmp_path / "right.npz"]
    for path, scores in zip(paths, (SCORES, SCORES[::-1]), strict=True):
        np.savez(path, **record(scores))

    def call(*names):
        allowed = ["--max-disagreement", "0.1", "--max-error", "0.1"]
        argv = [sys.executable, COMPARE, *names, *allowed]
        return completed(argv)

    assert call(paths[0], paths[0]).returncode == 0
    assert call(*paths).returncode == 1
    missing = call(paths[0], tmp_path / "none.npz")
    assert missing.returncode == 2
    assert "nothing can be compared" in missing.stdout


PADDLE = """
class Tensor:
    def copy_from_cpu(self, data): self.data = data
    def copy_to_cpu(self): return self.data * 2
class Predictor:
    def run(self, *inputs): return True
"""
PROGRAM = """
import sys
import numpy as np
from beside import value
from paddle.inference import Predictor, Tensor
tensor = Tensor()
tensor.copy_from_cpu(np.full((2, 3), value, np.float32))
Predictor().run()
print(tensor.copy_to_cpu().sum(), sys.argv)
sys.exit(3)
"""


def test_a_recorded_program_runs_as_it_would_alone(tmp_path):
    (tmp_path / "stub" / "paddle").mkdir(parents=True)
    (tmp_path / "stub" / "paddle" / "__init__.py").write_text("")
    (tmp_path / "stub" / "paddle" / "inference.py").write_text(PADDLE)
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "infer.py").write_text(PROGRAM)
    (tmp_path / "suite" / "beside.py").write_text("value = 4")
    out = tmp_path / "new" / "record.npz"
    argv = [sys.executable, RECORD, str(out), "suite/infer.py", "--image", "a b"]
    env = {"PYTHONPATH": str(tmp_path / "stub"), "PATH": ""}
    done = completed(argv, cwd=tmp_path, env=env)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("48.0 ['suite/infer.py', '--image', 'a b']")
    with np.load(out) as found:
        assert len(found["inputs"]) == 1
        assert found["output_000000"].tolist() == [[8.0] * 3] * 2
    assert not list(Path(out).parent.glob(".*"))


def test_arguments_of_the_quantization_keep_their_names(tmp_path):
    named = SEG.replace("python:python3.7\n##", "python:python3.7\n--use_gpu:True")
    legacy, default = (planned(tmp_path, named, "paddleseg", legacy=one) for one in (True, False))
    assert "--device=True" in words(legacy, "quantize")
    assert "--use_gpu=True" in words(default, "quantize")
