"""What a command must leave: files made by itself, lines in its log."""

import os
import subprocess

import pytest

from tipchain.chain.artifacts import LineCheck, explain, missing_files, snapshot
from tipchain.chain.plan import Artifact


def why(tmp_path, act, *files, what="checkpoint"):
    """Return why the artifact is missing after ``act`` was run in bash, "" if it is there."""
    leaves = (Artifact(what=what, files=files or ("out/best.pdparams",)),)
    before = snapshot(leaves, tmp_path)
    subprocess.run(["bash", "-euc", act], cwd=tmp_path, check=True)
    found = missing_files(leaves, tmp_path, before)
    return explain(found).removeprefix("no ")


@pytest.fixture
def old(tmp_path):
    """A checkpoint of an earlier run, and a copy beside it."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/best.pdparams").write_text("old weights")
    (tmp_path / "kept").write_text("kept weights")
    for name in ("out/best.pdparams", "kept"):
        os.utime(tmp_path / name, (1_600_000_000, 1_600_000_000))
    return tmp_path


@pytest.mark.parametrize(
    "act",
    [
        "echo new > out/best.pdparams",
        "cp -p kept out/best.pdparams",  # the copy's time of modification is the old file's
        "mv kept out/best.pdparams",
        "ln -f kept out/best.pdparams",
        "printf 'old weights' > out/best.pdparams; touch -d @1600000000 out/best.pdparams",
        "touch out/best.pdparams",  # no file system tells this from writing the same bytes
    ],
)
def test_a_file_made_or_changed_counts_however_it_was_done(old, act):
    assert why(old, act) == ""


@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (": > out/best.pdparams", "is empty"),
        ("rm out/best.pdparams; mkdir out/best.pdparams", "is no file"),
        ("rm out/best.pdparams; mkfifo out/best.pdparams", "is no file"),
        ("ln -sf nowhere out/best.pdparams", "is a link to nothing"),
    ],
)
def test_what_is_no_file_does_not_count(old, act, problem):
    assert why(old, act) == f"checkpoint: out/best.pdparams {problem}"


@pytest.mark.parametrize(
    ("act", "held"),
    [
        ("rm out/best.pdparams", "no file"),
        ("cd out; mv best.pdparams a; mkdir b; echo w > b/c; touch -d @9 a", "b/c, a"),
    ],
)
def test_what_is_missing_stands_before_its_folder_and_what_that_holds(old, act, held):
    assert why(old, act) == f"checkpoint: best.pdparams is not in out, which contains {held}"
    two = why(old, "true", "./out/last", "./out/last.pdparams", "./out/last/*.pdparams")
    assert two.startswith("checkpoint: {last,last.pdparams} or last/*.pdparams is not in out, which contains ")


def test_patterns_may_be_absolute_and_names_hold_brackets(tmp_path):
    folder = tmp_path / "run [1] *x*"
    folder.mkdir()
    (tmp_path / "run 1 yxy").mkdir()
    pattern = f"{tmp_path}/run [[]1] [*]x[*]/*.pdiparams"
    assert why(tmp_path, "echo w > 'run 1 yxy/a.pdiparams'", pattern, what="program") == (
        "program: *.pdiparams is not in run [1] *x*, which contains no file"
    )
    assert why(tmp_path, "echo w > 'run [1] *x*/a.pdiparams'", pattern) == ""


def test_every_artifact_is_asked_for(tmp_path):
    leaves = (Artifact(what="program", files=("a.json", "a.pdmodel")), Artifact(what="weights", files=("a.w",)))
    found = missing_files(leaves, tmp_path, {})
    forms = "{a.json,a.pdmodel}"
    assert explain(found) == f"no program: {forms} is not there; no weights: a.w is not there"
    assert [str(one) for one in found] == [f"program: {forms}", "weights: a.w"]


def lines_missing(*lines, pattern="", argv=(), names=(), **more):
    check = LineCheck((Artifact(what="result line", in_log=True, line=pattern, **more),), argv, names)
    for line in lines:
        check.read(line)
    return explain(check.missing("infer.log"))


NOISE = (
    "W1121 12:00:00.123456 4242 gpu_resources.cc:61] Please NOTE: device: 0",
    "I20261121 12:00:00.123456  4242 analysis_predictor.cc:1] saved",
    "--- Running analysis [ir_graph_build_pass]",
    "--- Fused 0 subgraphs into layer_norm op.",
    "/usr/lib/python3.7/site-packages/x.py:12: DeprecationWarning: class 3 is done",
    "  warnings.warn('score 1')",
    "==========================",
    "Traceback (most recent call last):",
    '  File "infer.py", line 12, in predict',
    "    scores = predict(1)",
    "ValueError: 3 classes",
    "loading the model",
)


@pytest.mark.parametrize(
    "line",
    [
        "file: a.png, top-5: [(7, 0.55149)]",
        "Prediction done!",
        "----- Predicted Hamm_min 12",
        "image_name: ('a.png', 'b.png'), result was saved in : out.png",
        "2026-11-28 14:42:01 [INFO] 3",
        "类别：猫",
        "Translation: guten Tag",
        "detected 3 objects in 12.5 ms",
    ],
)
def test_a_result_line_is_told_from_noise(line):
    assert lines_missing(*NOISE, line) == ""


def test_noise_is_no_result():
    told = "no result line in infer.log: no line of the program's own has a digit, or a word such as result, "
    assert lines_missing(*NOISE).startswith(told)
    assert lines_missing().startswith(told)


@pytest.mark.parametrize(
    "line",
    [
        "Python: 3.11.7 (main, Jan 1 2024)",
        "[2021/12/31 04:12:11] root INFO:  CUDA_version: 11.1.105",
        "------------Environment Information-------------",
        "2026-11-28 14:42:01,123 [INFO] loading",
        " 40%|####      | 4/10 [00:01<00:01, 3.2it/s]",
        "batch_size: 1",
        "Inference model(resnet101)...",
        "=> creating model resnet50",
        "----- Load code of database from ./output/code_16.npy",
        "[2021/12/31 04:12:11] root INFO:  cpu_rss(MB): 2227.1, gpu_rss(MB): None, gpu_util: 3.0%",
        "[2021/12/31 04:12:11] root INFO:  preprocess_time(ms): 16.6, inference_time(ms): 387.2",
        "(321, 481, 3)",
        "input shape is [1, 3, 224, 224]",
        "fps= 25 frames= 120",
        "12 test images",
    ],
)
def test_the_environment_a_bar_and_the_commands_own_words_are_no_result(line):
    told = lines_missing(line, argv=("python", "eval.py", "--batch-size=1", "--num_workers", "4"))
    assert told.startswith("no result line in infer.log: no line")


@pytest.mark.parametrize(
    ("line", "bad"),
    [
        ("class_id: 3, prob: nan", True),
        ("[array([nan, 0.5], dtype=float32)]", True),
        ("       nan, nan, nan], dtype=float32)", True),
        ("Normal - score nan", True),
        ("&     nan  &     nan  \\\\", True),
        ("clipped from 0 to inf", False),
        ("top1: nan%", True),
        ('{"label": 3, "score": NaN}', True),
        ("得分：nan", True),
        ("Predicted: Nan Li, 0.9", False),
        ("psnr: inf, class 3", False),
        ("inf time: 3 ms", False),
    ],
)
def test_numbers_that_are_none_are_no_result(line, bad):
    told = f"no finite result in infer.log: {line.strip()}" if bad else ""
    assert lines_missing("class 1", line, reads=True) == told
    assert lines_missing(line, "mean 1") == ""


@pytest.mark.parametrize("line", ["capsule AUC: nan", "F1-score:nan precision:nan", "top1: nan, top5: nan"])
def test_an_evaluation_that_ends_without_a_finite_number_is_none(line):
    told = f"no finite result in infer.log: {line}"
    assert lines_missing("class 1: 0.5", line) == told
    assert lines_missing("class 1: 0.5", line, "cost time: 3.2 s", "loading images 12") == told
    assert lines_missing(f"{line}, mIoU: 0.5") == ""


def test_a_result_of_another_file_than_was_given_is_none():
    given = {"reads": True, "given": "./images/demo.jpg", "names": ["demo.jpg"]}
    assert lines_missing("image_name: other.jpg, class_id: 1", **given) == (
        "no result of demo.jpg in infer.log: it tells of other.jpg"
    )
    assert lines_missing("Predicts of other.jpg:('a', 0.9)", **given).endswith("it tells of other.jpg")
    assert lines_missing("x/other.jpg: class 3", **given).endswith("it tells of x/other.jpg")
    assert lines_missing("other.jpg\tprediction: dog", **given).endswith("it tells of other.jpg")
    assert lines_missing("image_name: ('a.jpg', 'b.jpg'), result saved in x.jpg", **given).endswith("it tells of a.jpg")
    assert lines_missing('{"image": "other.jpg", "class": 3}', **given).endswith("it tells of other.jpg")
    assert lines_missing("Nearest image: gallery/7.jpg, distance 3", **given) == ""
    assert lines_missing("image_name: other.jpg, class_id: 1", "image_name: demo.jpg, class_id: 1", **given) == ""
    assert lines_missing("class_id: 1, output file: out/result.jpg", **given) == ""
    others = ("config file: a.yaml", "label_path: labels.txt", "input: x.shape", "data: val.list")
    assert lines_missing(*others, "class 3", **given) == ""
    folder = {"reads": True, "given": "./images/", "names": ["a.jpg", "b.jpg"]}
    assert lines_missing("b.jpg: class 3", **folder) == ""
    assert lines_missing("c.jpg: class 3", **folder) == "no result of images in infer.log: it tells of c.jpg"


def test_a_line_of_the_suites_own_may_be_asked_for():
    assert lines_missing("x", "The Result: cat", pattern=r"result: \w+") == ""
    told = "nothing matches 'result:'; result_line.txt beside the parameter file names another pattern"
    assert lines_missing("result 12", pattern="result:", reads=True) == f"no result line in infer.log: {told}"
    assert lines_missing("ready", reads=True).endswith(told.partition("; ")[2])
