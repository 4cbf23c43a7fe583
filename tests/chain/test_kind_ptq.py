"""Plans of post-training quantization, its tolerance and labels, and how a quantized model's outputs are compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tipchain.chain.kinds.ptq_infer_python import COMPARE, MAX_DISAGREEMENT, MAX_DROP, MAX_ERROR, RECORD
from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options
from tipchain.errors import ParamsError
from tipchain.paddle_tools.compare_outputs import (
    IncomparableError,
    Limits,
    NoMetricError,
    compare,
    judge,
    measure,
    read_labels,
)

SEG = """===========================ptq_params===========================
model_name:hrnet_KL
python:python3.7
##
--model_dir:models/hrnet
##
--config:configs/hrnet.yml
--batch_num:1
--batch_size:2
##
trainer:PTQ
PTQ:deploy/slim/quant/ptq.py
##
===========================infer_params===========================
inference:deploy/python/infer.py
--device:cpu|gpu
--batch_size:1|4
--config:quant_model/deploy.yaml
--image_path:demo.png
--benchmark:True
"""
DETECTION = """===========================ptq_params===========================
model_name:picodet
python:python3.7
filename:
##
--output_dir:./output_inference
weights:https://example.org/picodet.pdparams
kl_quant_export:tools/post_quant.py -c picodet.yml --slim_config ptq.yml -o
export_param1:null
##
inference:./deploy/python/infer.py
--device:gpu|cpu
--enable_mkldnn:False
--cpu_threads:4
--batch_size:1
--run_mode:paddle|trt_fp16|trt_int8
--model_dir:
--image_dir:./images/
--run_benchmark:False
null:null
"""
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


def test_a_file_of_paddleocr_may_begin_as_one_of_training(tmp_path):
    text = OCR.replace("kl_quant_params", "train_params")
    assert steps(planned(tmp_path, text, "paddleocr")) == steps(planned(tmp_path, OCR, "paddleocr"))


def test_a_model_that_is_quantized_already_is_inferred_with_and_not_compared(tmp_path):
    plan = planned(tmp_path, OCR, "paddleocr")
    assert [one.id for one in plan.commands if one.step == "quantize"] == ["quantize[model=0]"]
    assert [one.id for one in plan.commands if one.step == "compare"] == ["compare[model=0]"]


def limits(argv):
    return {name: argv[argv.index(f"--{name}") + 1] for name in ("max-drop", "max-disagreement", "max-error")}


def test_the_tolerance_is_the_files_own_with_its_reason(tmp_path):
    given = limits(words(planned(tmp_path, SEG, "paddleseg"), "compare"))
    assert [float(one) for one in given.values()] == [MAX_DROP, MAX_DISAGREEMENT, MAX_ERROR]
    own = SEG + "===quantization_tolerance_params===\nmax_disagreement:0.02\nreason:measured on 500 images\n"
    plan = planned(tmp_path, own, "paddleseg")
    assert limits(words(plan, "compare"))["max-disagreement"] == "0.02"
    assert any("measured on 500 images" in str(one) for one in plan.findings)


CONFIG = "_base_: base.yml\nval_dataset: {transforms: []}\n"
BASE_CONFIG = "val_dataset: {type: Dataset, dataset_root: data/people, val_path: data/people/val.txt}\n"


def checkout(tmp_path, *, listed=True):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "hrnet.yml").write_text(CONFIG)
    (tmp_path / "configs" / "base.yml").write_text(BASE_CONFIG)
    if listed:
        (tmp_path / "data" / "people").mkdir(parents=True)
        (tmp_path / "data" / "people" / "val.txt").write_text("Images/a.png Annotations/a.png\n")
    return {"root": str(tmp_path)}


def test_labels_are_those_that_the_suites_configuration_evaluates_on(tmp_path):
    plan = planned(tmp_path, SEG, "paddleseg", options=checkout(tmp_path))
    assert words(plan, "compare")[-4:] == ["--labels", "data/people/val.txt", "--root", "data/people"]
    assert all("--image_path=data/people/val.txt" in words(plan, "record", number) for number in (0, 1))
    assert "--image_path=demo.png" in words(plan, "infer")
    assert any("arXiv:1806.08342" in str(one) for one in plan.findings)


def test_labels_without_a_list_of_images_are_inferred_with_by_their_folder(tmp_path):
    (tmp_path / "people").mkdir()
    (tmp_path / "people" / "list.txt").write_text("val/one/a.jpg 3\nval/two/b.jpg 4\n")
    own = "===quantization_tolerance_params===\nlabels:people/list.txt\n"
    plan = planned(tmp_path, DETECTION + own, "paddledetection", options={"root": str(tmp_path)})
    assert words(plan, "compare")[-5:] == ["--labels", "people/list.txt", "--root", "people", "--need-labels"]
    assert "--image_dir=people/val" in words(plan, "record")


@pytest.mark.parametrize("listed", [True, False])
def test_without_labels_the_plan_says_why(tmp_path, listed):
    options = checkout(tmp_path, listed=False)
    text = SEG if listed else SEG.replace("configs/hrnet.yml", "configs/none.yml")
    plan = planned(tmp_path, text, "paddleseg", options=options)
    assert "--labels" not in words(plan, "compare")
    assert "--image_path=demo.png" in words(plan, "record")
    why = "data/people/val.txt cannot be read" if listed else "configs/none.yml cannot be read"
    assert any(why in str(one) for one in plan.findings)
    other = planned(tmp_path, DETECTION, "paddledetection", options=options)
    assert any("paddledetection names no labels" in str(one) for one in other.findings)


def test_nothing_is_recorded_where_nothing_was_quantized(tmp_path):
    plan = planned(tmp_path, SEG, "paddleseg")
    assert all(one.needs == ("quantize",) for one in plan.commands if one.step == "record")
    exported = next(one for one in planned(tmp_path, DETECTION, "paddledetection").commands if one.step == "export")
    assert exported.needs == ("quantize",)


def test_only_the_suites_own_program_takes_a_gpu_whatever_it_is_told(tmp_path):
    ours = SEG.replace("PTQ:deploy", "PTQ:on_cpu.py deploy")
    assert [planned(tmp_path, text, "paddleseg").commands[0].on_gpu for text in (SEG, ours)] == [True, False]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("max_drop:2\nreason:no\n", "is no share"),
        ("max_disagreement:2\nreason:no\n", "is no share"),
        ("max_drop:nan\nreason:no\n", "is no share"),
        ("max_dorp:0.1\nreason:no\n", "unknown key"),
        ("max_drop:0.1\nmax_drop:0.2\nreason:no\n", "stands twice"),
        ("max_drop:0.5\n", "needs `reason:`"),
    ],
)
def test_a_tolerance_that_says_nothing_is_refused(tmp_path, lines, said):
    with pytest.raises(ParamsError, match=said) as caught:
        planned(tmp_path, SEG + "===quantization_tolerance_params===\n" + lines, "paddleseg")
    assert caught.value.line


def test_a_lost_line_is_refused_by_its_place(tmp_path):
    with pytest.raises(ParamsError, match="batch_num"):
        planned(tmp_path, SEG.replace("--batch_num:1\n", ""), "paddleseg")


# The outputs


def record(*outputs, inputs=("a", "b")):
    found = {f"output_{number:06d}": np.asarray(one) for number, one in enumerate(outputs)}
    return {"inputs": np.array(inputs), "dropped": np.array(0), **found}


def limited(share=1.0, error=1.0, drop=0.02):
    return Limits(drop, share, error)


SCORES = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, 0.0], [0.0, 2.0, 5.0], [9.0, 2.0, 5.0]], np.float32)


def test_the_share_of_other_decisions_is_judged():
    other = SCORES.copy()
    other[0] = [2.0, 1.0, 0.0]
    tally = compare(record(SCORES), record(other))
    assert (tally.differ, tally.decisions) == (1, 4)
    assert judge(tally, limited(0.25, 0.1))[1]
    lines, good, _ = judge(tally, limited(0.2, 0.1))
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
    assert judge(tally, limited(0.0, 0.11))[1]
    assert not judge(tally, limited(0.0, 0.09))[1]


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
    assert not judge(compare(record(SCORES), record(other)), limited())[1]


@pytest.mark.parametrize(
    "other", [record(SCORES, inputs=("a", "c")), record(SCORES, SCORES), record(SCORES[:2]), record(inputs=())]
)
def test_records_of_other_inputs_or_outputs_say_nothing(other):
    with pytest.raises(IncomparableError):
        compare(record(SCORES) if len(other["inputs"]) else other, other)


def test_one_decision_everywhere_is_told():
    same = record(SCORES[1:2].repeat(4, 0))
    lines, good, _ = judge(compare(same, same), limited(0.1, 0.1))
    assert good
    assert any("proves little" in line for line in lines)


def test_the_program_says_what_it_found_and_exits_with_it(tmp_path):
    paths = [tmp_path / "left.npz", tmp_path / "right.npz"]
    for path, scores in zip(paths, (SCORES, SCORES[::-1]), strict=True):
        np.savez(path, **record(scores))

    def call(*names):
        allowed = ["--max-drop", "0.1", "--max-disagreement", "0.1", "--max-error", "0.1"]
        argv = [sys.executable, COMPARE, *names, *allowed]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    assert call(paths[0], paths[0]).returncode == 0
    assert call(*paths).returncode == 1
    missing = call(paths[0], tmp_path / "none.npz")
    assert missing.returncode == 2
    assert "nothing can be compared" in missing.stdout


# Labels


def labelled(folder, scores, images=None):
    """Return a record of scores ``[N, C]``, in runs of one image each."""
    images = images or [str(folder / f"{number}.jpg") for number in range(len(scores))]
    return {
        **record(*(one[None] for one in scores)),
        "run_of": np.arange(len(scores)),
        "images": np.array([json.dumps([one]) for one in images]),
    }


def scored(decisions):
    return np.eye(4, dtype=np.float32)[decisions]


def listed(folder, truth):
    lines = [f"{number}.jpg {label}\n" for number, label in enumerate(truth)]
    (folder / "list.txt").write_text("".join(lines))
    return read_labels(folder / "list.txt", folder)


def judged(folder, truth, reference, quantized, limit=0.02):
    left, right = labelled(folder, scored(reference)), labelled(folder, scored(quantized))
    metric = measure(left, right, listed(folder, truth))
    return judge(compare(left, right), limited(share=0.1, drop=limit), metric)


def test_the_drop_of_the_accuracy_is_judged_and_no_longer_the_agreement(tmp_path):
    truth = np.arange(400) % 4
    reference = np.where(np.arange(400) % 10 < 7, truth, (truth + 1) % 4)
    moved = np.where(reference == truth, reference, (truth + 2) % 4)  # other decisions, all of them wrong before, too
    lines, good, decided = judged(tmp_path, truth, reference, moved)
    assert (good, decided) == (True, True)
    assert {"unquantized_top1: 0.7", "top1: 0.7", "metric_drop: 0", "disagreement: 0.3"} <= set(lines)
    worse = np.where(np.arange(400) % 10 < 6, reference, (truth + 2) % 4)
    lines, good, decided = judged(tmp_path, truth, reference, worse)
    assert (good, decided) == (False, True)
    assert "top1 is 60 % instead of 70 %, 10 points less; allowed 2" in lines[-1]
    assert judged(tmp_path, truth, reference, worse, limit=0.2)[1]


def test_few_images_tell_no_small_drop(tmp_path):
    truth = np.arange(8) % 4
    one_less = np.where(np.arange(8) == 5, (truth + 1) % 4, truth)
    lines, good, decided = judged(tmp_path, truth, truth, one_less)
    assert (good, decided) == (False, False)
    assert "1 of 8 decisions" in lines[-1]
    assert "note: so few images cannot tell a drop of 2 points, so agreement is judged" in lines
    assert judged(tmp_path, truth, truth, truth)[1:] == (True, False)
    assert judged(tmp_path, truth, truth, (truth + 1) % 4)[1:] == (False, True)


def test_a_model_that_is_no_better_than_one_class_everywhere_has_no_metric(tmp_path):
    truth = np.arange(40) % 4
    with pytest.raises(NoMetricError, match=r"right on 25 % of 40 images"):
        judged(tmp_path, truth, np.zeros(40, int), np.zeros(40, int))


def test_maps_of_classes_give_the_mean_overlap(tmp_path):
    image = pytest.importorskip("PIL.Image")
    truth = np.zeros((4, 8), np.uint8)
    truth[:, 4:], truth[0] = 1, 255
    image.fromarray(np.kron(truth, np.ones((2, 2), np.uint8))).save(tmp_path / "truth.png")  # twice the output's size
    (tmp_path / "list.txt").write_text("0.jpg truth.png\n")
    labels = read_labels(tmp_path / "list.txt", tmp_path)
    reference = truth % 255
    worse = reference.copy()
    worse[1:, 4] = 0
    left, right = (labelled(tmp_path, one[None].astype(np.int32)) for one in (reference, worse))
    metric = measure(left, right, labels)
    assert metric[1:3] == (1.0, pytest.approx((12 / 15 + 9 / 12) / 2))
    assert [metric.within(limit) for limit in (0.2, 0.23)] == [False, True]
    never = labelled(tmp_path, np.zeros((1, 4, 8), np.int32))
    with pytest.raises(NoMetricError, match="no more than one class everywhere"):
        measure(never, never, labels)


@pytest.mark.parametrize(
    ("lines", "said"),
    [("0.jpg 1 2\n", ":1: not an image and its class"), ("0.jpg none.png\n", "not an image"), ("", "is empty")],
)
def test_a_list_of_something_else_says_nothing(tmp_path, lines, said):
    (tmp_path / "list.txt").write_text(lines)
    with pytest.raises(NoMetricError, match=said):
        read_labels(tmp_path / "list.txt", tmp_path)


def test_rows_that_no_image_is_known_of_say_nothing(tmp_path):
    labels, scores = listed(tmp_path, [0, 1]), scored([0, 1])
    elsewhere = labelled(tmp_path, scores, ["/else/a.jpg", "/else/b.jpg"])
    with pytest.raises(NoMetricError, match="no output is a decision on a labelled image"):
        measure(elsewhere, elsewhere, labels)
    together = {**record(scores), "run_of": np.array([0]), "images": np.array([json.dumps(["/a.jpg"])])}
    with pytest.raises(NoMetricError, match="1 images were read for an output of 2 rows"):
        measure(together, together, labels)


def test_labels_that_a_file_names_must_decide(tmp_path):
    left = tmp_path / "left.npz"
    np.savez(left, **labelled(tmp_path, scored([0, 1])))
    listed(tmp_path, [0, 1])
    argv = [sys.executable, COMPARE, left, left, "--max-drop=0.1", "--max-disagreement=0.1", "--max-error=0.1"]
    argv += ["--labels", tmp_path / "list.txt", "--root", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, "top1: 1\n" in done.stdout) == (0, True)
    done = subprocess.run([*argv, "--need-labels"], capture_output=True, text=True, check=False)
    assert (done.returncode, "the labels decide nothing" in done.stdout) == (2, True)


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
import cv2
from beside import value
from paddle.inference import Predictor, Tensor
cv2.imread("one.JPG")
open("suite/two.png").close()
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
    (tmp_path / "suite" / "two.png").write_text("")
    (tmp_path / "stub" / "cv2.py").write_text("def imread(name): return name")
    out = tmp_path / "new" / "record.npz"
    argv = [sys.executable, RECORD, str(out), "suite/infer.py", "--image", "a b"]
    env = {"PYTHONPATH": str(tmp_path / "stub"), "PATH": ""}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("48.0 ['suite/infer.py', '--image', 'a b']")
    with np.load(out) as found:
        assert len(found["inputs"]) == 1
        assert found["output_000000"].tolist() == [[8.0] * 3] * 2
        images = json.loads(str(found["images"][int(found["run_of"][0])]))
        assert images == [str(tmp_path / "one.JPG"), str(tmp_path / "suite" / "two.png")]
    assert not list(Path(out).parent.glob(".*"))


def test_arguments_of_the_quantization_keep_their_names(tmp_path):
    named = SEG.replace("python:python3.7\n##", "python:python3.7\n--use_gpu:True")
    legacy, default = (planned(tmp_path, named, "paddleseg", legacy=one) for one in (True, False))
    assert "--device=True" in words(legacy, "quantize")
    assert "--use_gpu=True" in words(default, "quantize")
