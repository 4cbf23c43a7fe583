"""A chain of every suite, run in a checkout of its shape with programs that leave what that suite's do.

The programs are stubs. What they leave is written down here, apart from the profiles: the file names that each
suite's own programs use.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from chain_samples import edit, lay_params, stub

from tipchain.chain.gpus import Gpus
from tipchain.chain.profiles import get_suite
from tipchain.cli import main

SAMPLES = Path(__file__).parent / "samples"
MODE = "lite_train_lite_infer"
FINISH = "[2026/11/22 11:00:00] INFO: Finish"
PROGRAM = ("inference.pdmodel", "inference.pdiparams")
# Tells the steps apart by what its caller wrote into it: "key of the folder|files" for each program.
STUB = """
for rule in {rules}; do
  IFS='|' read -r program key files <<< "$rule"
  case " $* " in *" $program "*)
    for word in "$@"; do
      case "$word" in "$key"=*) for file in $files; do
        path="${{word#*=}}/$file"; mkdir -p "${{path%/*}}"; echo data > "$path"
      done ;; esac
    done ;;
  esac
done
case " $* " in *" {infer} "*) printf '%b\n' '{prints}'
  for file in {writes}; do mkdir -p "${{file%/*}}"; echo image > "$file"; done ;;
  *) echo '{evaluates}' ;;
esac
"""


@dataclass(frozen=True)
class Chain:
    """A sample, the edits that make a chain for the CPU of it, and what its programs leave where."""

    suite: str
    sample: str
    changes: tuple[tuple[str, str], ...]
    train: tuple[str, str, str]
    export: tuple[str, str, str]
    infer: str
    folders: tuple[str, ...]
    results: str = "results_python.log"
    prints: str = "class_id: 3, score: 0.97"
    writes: str = ""
    evaluates: str = "top1: 0.97"

    def __str__(self) -> str:
        return f"{self.suite}-{Path(self.train[2].split()[0]).parent.name or 'flat'}"


# PaddleClas until June 2023 and since then.
CHAINS = (
    *(Chain(
        "paddleclas", "resnet_amp", (("-o Global.auto_cast", "-o Global.auto_cast:null"),),
        ("tools/train.py", "Global.output_dir", f"{folder}latest.pdparams {folder}latest.pdopt {folder}latest.pdstates"),
        ("tools/export_model.py", "Global.save_inference_dir", " ".join(PROGRAM)), "python/predict_cls.py",
        ("ppcls", "deploy"), prints=r"1.JPEG:\tclass id(s): [3], score(s): [0.97], label_name(s): [cat]",
    ) for folder in ("ResNet_amp_demo/", "")),
    # PaddleDetection until June 2023 and since then.
    *(Chain(
        "paddledetection", "yolo_slim",
        (("auto_cast", "auto_cast:null"), ("trainer:", "trainer:norm_train"), ("use_gpu", "use_gpu:False")),
        ("tools/train.py", "save_dir", f"{folder}model_final.pdparams {folder}model_final.pdopt"),
        ("tools/export_model.py", "--output_dir", "yolo_slim/model.pdmodel yolo_slim/model.pdiparams"),
        "./deploy/python/infer.py", ("ppdet",), prints=r"save result to: output/1.jpg\nTest iter 0",
    ) for folder in ("yolo_slim/", "")),
    Chain(
        "paddleseg", "liteseg_slim",
        (("--precision", "--precision:null"), ("trainer:", "trainer:norm_train"), ("infer_quant", "infer_quant:False")),
        ("tools/train.py", "--save_dir", "iter_20/model.pdparams"),
        ("tools/export.py", "--out", "model.pdmodel model.pdiparams deploy.yaml"), "deploy/infer.py", ("paddleseg",),
        prints=FINISH,
    ),
    Chain(
        "medicalseg", "vnet_prune", (("trainer:", "trainer:norm_train"), ("--precision", "--precision:fp32")),
        ("train.py", "--save_dir", "best_model/model.pdparams"),
        ("export.py", "--save_dir", "model.pdmodel model.pdiparams deploy.yaml"), "deploy/infer.py", ("medicalseg",),
        prints=FINISH,
    ),
    Chain(
        "panopticseg", "mask2former", (("--device:cpu|gpu|gpu", "--device:cpu"),),
        ("tools/train.py", "--save_dir", "best_model/model.pdparams"),
        ("tools/export.py", "--save_dir", "model.pdmodel model.pdiparams deploy.yaml"), "deploy/infer.py",
        ("paddlepanseg",), prints="[2026/11/22 11:00:00] INFO: Inference finished!",
    ),
    Chain(
        "paddleocr", "lines_pact",
        (
            ("gpu_list", "gpu_list:-1"), ("Global.use_gpu", "Global.use_gpu:False"), ("Global.auto_cast", "Global.auto_cast:fp32"),
            ("trainer:", "trainer:norm_train"), ("--use_gpu", "--use_gpu:False"), ("--enable_mkldnn", "--enable_mkldnn:True"),
            ("--precision", "--precision:fp32"), ("inference_dir", "inference_dir:null"),
        ),
        ("tools/train.py", "Global.save_model_dir", "latest.pdparams latest.pdopt"),
        ("tools/export_model.py", "Global.save_inference_dir", "inference.pdmodel inference.pdiparams"),
        "tools/infer/predict_det.py", ("ppocr",), prints=r"[2026/11/22 11:00:00] ppocr INFO: page.jpg\t[[[1, 2], [3, 4]]]",
    ),
    Chain(
        "paddlers", "change_plain",
        (("--device:cpu|gpu", "--device:cpu"), ("--batch_size:1|2", "--batch_size:1")),
        ("test_tipc/run_task.py", "--save_dir", "best_model/model.pdparams"),
        ("deploy/export/export_model.py", "--save_dir", "model.pdmodel model.pdiparams model.yml"), "test_tipc/infer.py",
        ("paddlers",), prints="[2026/11/22 11:00:00] INFO: data_num: 30",
    ),
    Chain(
        "paddlevideo", "pp_tsm", (),
        ("main.py", "output_dir", "ppTSM_PP-demo_epoch_00001.pdparams ppTSM_PP-demo_epoch_00002.pdparams"),
        ("tools/export_model.py", "output_path", "ppTSM.pdmodel ppTSM.pdiparams"), "tools/predict.py",
        ("paddlevideo",), prints=r"Current video file: ./data/example.avi\n\ttop-1 class: [3]\n\ttop-1 score: [0.97]",
    ),
    Chain(
        "paddlerec", "wide_deep", (("--precision", "--precision:fp32"),),
        ("tools/trainer.py", "runner.model_save_path", "0/rec.pdparams"),
        ("tools/to_static.py", "runner.export_path", "rec.pdmodel rec.pdiparams"), "tools/paddle_infer.py",
        ("models/rank",), "results.log", prints="[array([0.31], dtype=float32)]",
    ),
    Chain(
        "paddlegan", "edvr", (),
        ("tools/main.py", "output_dir", "edvr_demo-2026-01-01-00-00/iter_5_checkpoint.pdparams"),
        ("tools/export_model.py", "--", ""), "tools/inference.py", ("ppgan",),
        prints="ppgan.config INFO: total_iters : 2", writes="test_tipc/output/edvr/0.png",
    ),
    Chain(
        "paddle3d", "conv_cloud", (("--amp", "--amp:null"), ("trainer:", "trainer:norm_train")),
        ("./tools/train.py", "--save_dir", "epoch_1/model.pdparams"),
        ("./tools/export.py", "--", ""), "deploy/cloud/infer.py", ("paddle3d",),
        prints=r"Inference model(cloud)...\n\ttop-1 class: 3\n\ttop-1 score: 0.97",
    ),
    Chain(
        "passl", "contrast_linear", (("-o auto_cast", "-o auto_cast:null"), ("trainer:", "trainer:norm_train")),
        ("tools/train.py", "output_dir", "contrast_linear/latest.pd contrast_clas/latest.pd"),
        ("tools/train.py", "save_inference_dir", " ".join(PROGRAM)), "python/predict.py", ("passl", "deploy"),
        prints=r"1.JPEG:\tclass id(s): [3], score(s): [0.97], label_name(s): [cat]",
    ),
    Chain(
        "template", "amp_pact", (("amp:", "amp:null"), ("trainer:", "trainer:norm_train"), ("--precision", "--precision:fp32")),
        ("tools/train.py", "output_dir", "latest.pdparams"),
        ("tools/export_model.py", "save_dir", " ".join(PROGRAM)), "infer.py", ("tools",),
    ),
    Chain(
        "alexnet", "hosts", (("trainer:", "trainer:norm_train"), ("--use-gpu", "--use-gpu:False")),
        ("train.py", "--output-dir", "latest.pdparams"),
        ("tools/export_model.py", "--save-inference-dir", " ".join(PROGRAM)), "deploy/infer.py", ("tools",),
        prints="image_name: ./images/demo.jpg, class_id: 3, prob: 0.97",
    ),
    Chain(
        "tutorial", "hosts_amp", (("trainer:", "trainer:norm_train"),),
        ("train.py", "--output-dir", "latest.pdparams"),
        ("tools/export_model.py", "--save-inference-dir", " ".join(PROGRAM)), "deploy/infer.py", ("tools",),
        prints="image_name: ./images/demo.jpg, class_id: 3, prob: 0.97",
    ),
)  # fmt: skip


def prepare(chain, root):
    """Make a checkout with the chain's file for one CPU leg and a stub interpreter; return both."""
    for folder in chain.folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    text = (SAMPLES / chain.suite / f"{chain.sample}.txt").read_text()
    params = lay_params(root, edit(text, ("gpu_list", "gpu_list:-1"), *chain.changes))
    rules = " ".join(f"'{'|'.join(rule)}'" for rule in (chain.train, chain.export))
    told = {name: getattr(chain, name) for name in ("infer", "prints", "writes", "evaluates")}
    body = STUB.format(rules=rules, **told)
    if chain.export[1] == "--":  # the export names the folder in a word of its own
        body += f'case " $* " in *" {chain.export[0]} "*) for last; do :; done; echo 1 > "$last/a.pdmodel"'
        body += '; echo 1 > "$last/a.pdiparams" ;; esac\n'
    return params.relative_to(root), stub(root / "py", body)


def go(chain, root, monkeypatch, *options, body=None):
    monkeypatch.chdir(root)
    params, python = prepare(chain, root)
    if body:
        python.write_text(python.read_text().replace("\nfor rule", f"\n{body}\nfor rule", 1))
    suite = () if get_suite(chain.suite).marks.folders else ("--suite", chain.suite)
    return main(["run", str(params), MODE, "--lenient", "--python", str(python), "--json", "r.json", *suite, *options])


def results():
    return json.loads(Path("r.json").read_text())["results"]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
def test_the_chain_of_every_suite_runs(chain, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tipchain.chain.run.find_gpus", lambda: Gpus(trouble="no usable GPU on this machine"))
    code = go(chain, tmp_path, monkeypatch)
    shown = capsys.readouterr()
    assert code == 0, shown.out[-3000:] + shown.err
    steps = {result["command"]["step"]: result["outcome"] for result in results() if result["outcome"] != "SKIP"}
    assert steps["train"] == steps["export"] == steps["infer"] == "PASS"
    (log,) = Path().glob(f"test_tipc/output/**/{MODE}/{chain.results}")
    passed = sum(result["outcome"] == "PASS" for result in results())
    lines = [line for line in log.read_text().splitlines() if not line.startswith("#")]
    assert sum(line.startswith("\x1b[33m Run successfully with command - ") for line in lines) == passed


@pytest.mark.parametrize("chain", CHAINS[::4], ids=str)
def test_a_training_that_leaves_nothing_fails(chain, tmp_path, monkeypatch, capsys):
    program = chain.train[0]
    trains = f'case " $* " in *" {program} "*) case " $* " in *"{chain.train[1]}="*) exit 0 ;; esac ;; esac'
    assert go(chain, tmp_path, monkeypatch, body=trains) == 1
    first, *rest = [result for result in results() if "GPU" not in result["reason"]]
    assert (first["command"]["step"], first["outcome"]) == ("train", "FAIL")
    assert "no checkpoint" in first["reason"]
    assert {result["outcome"] for result in rest} == {"SKIP"}


def test_clas_evaluates_and_exports_what_training_left_in_either_layout(tmp_path, monkeypatch):
    for number, folder in enumerate(("ResNet_amp_demo/", "")):
        root = tmp_path / str(number)
        root.mkdir()
        assert go(CHAINS[number], root, monkeypatch) == 0
        words = {result["command"]["step"]: result["command"]["argv"] for result in results()}
        run = root / f"test_tipc/output/ResNet_amp_demo/{MODE}/runs"
        for step, key in (("eval", "pretrained_model"), ("export", "weights")):
            (word,) = [word for word in words[step] if word.startswith(f"Global.{key}=")]
            assert Path(word.partition("=")[2]).relative_to(run).parts[2:] == (*folder.split("/")[:-1], "latest")


def test_an_evaluation_that_prints_nothing_fails(tmp_path, monkeypatch):
    chain = next(one for one in CHAINS if one.suite == "paddleseg")
    assert go(replace(chain, evaluates=""), tmp_path, monkeypatch) == 1
    reasons = {one["command"]["step"]: one["reason"] for one in results() if one["outcome"] == "FAIL"}
    assert list(reasons) == ["eval"]
    assert "exit 0, but no result line" in reasons["eval"]


NOISE = r"--- Running IR pass [fc_fuse_pass]\n---    enabled FC MKL-DNN for 1 fc ops\noneDNN v3.2.1\nepoch : 3"
PRINTERS = ("paddlevideo", "paddlerec", "paddlegan", "paddle3d", "alexnet", "tutorial")


@pytest.mark.parametrize("chain", [CHAINS[0], *(one for one in CHAINS if one.suite in PRINTERS)], ids=str)
def test_an_inference_of_nothing_fails_whatever_the_framework_prints(chain, tmp_path, monkeypatch):
    assert go(replace(chain, prints=NOISE, writes=""), tmp_path, monkeypatch) == 1
    (found,) = {
        (result["outcome"], result["reason"].partition(":")[0].partition(" in ")[0])
        for result in results()
        if result["command"]["step"] == "infer" and "GPU" not in result["reason"]
    }
    assert found == ("FAIL", f"exit 0, but no result{'' if chain.writes else ' line'}")


def test_an_inference_of_paddleocr_that_logs_its_exception_and_exits_with_0_fails(tmp_path, monkeypatch):
    chain = next(chain for chain in CHAINS if chain.suite == "paddleocr")
    head = "[2026/11/27 02:09:21] ppocr INFO: "
    logged = rf"{head}Traceback (most recent call last):\n  File x, line 1\nValueError: arg 3\n\n{head}arg 3 must not be zero"
    assert go(replace(chain, prints=logged), tmp_path, monkeypatch) == 1
    (infer, *_) = (result for result in results() if result["command"]["step"] == "infer")
    assert infer["outcome"] == "FAIL"
    assert infer["reason"].startswith("exit 0, but its log has: ")
    assert "no result line in " in infer["reason"]
