import json
import re
import shlex
from pathlib import Path

import pytest
from chain_samples import ALIGNMENT, ROOT, TEMPLATE, edit

from tipchain.chain.load import load_plan
from tipchain.cli import main
from tipchain.modes import Mode

OURS = ROOT / "test_tipc/configs/alexnet/train_infer_python.txt"
MODES = ("lite_train_lite_infer", "lite_train_whole_infer", "whole_train_whole_infer", "whole_infer")
# PaddleDetection has one more export and calls the models of whole_infer by kind.
DETECTION = edit(
    TEMPLATE,
    ("gpu_list", "gpu_list:0"),
    ("export2", "export2:null\nkl_quant_export:null"),
    ("infer_model", "infer_mode:norm"),
    ("infer_export", ""),
)


@pytest.fixture
def params(tmp_path):
    file = tmp_path / "p.txt"
    file.write_text(TEMPLATE + ALIGNMENT)
    return file


def plan_text(capsys, *arguments):
    assert main(["plan", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_the_tree_has_legs_and_below_each_command_what_needs_it(params, capsys):
    text = plan_text(capsys, params, "lite_train_lite_infer")
    lines = text.splitlines()
    assert lines[0].endswith("p.txt, mode lite_train_lite_infer, suite tipchain: 12 commands")
    assert lines[1] == "logs in test_tipc/output/net/lite_train_lite_infer/runs/RUN"
    assert "\nnorm_train;gpus=-1\n  train[norm_train;gpus=-1]\n    $ python train.py --case a.yaml" in text
    assert "\n    eval[norm_train;gpus=-1]\n" in text
    assert text.count("\n      infer[cpu;mkldnn=") == 4
    assert "\n    log: train-norm_train-gpus=-1.log\n" in text


def test_a_wrapped_command_can_be_pasted(params, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = plan_text(capsys, params, "lite_train_lite_infer")
    plan = json.loads(plan_text(capsys, params, "lite_train_lite_infer", "--json", "-"))
    shown = re.findall(r"\$ ((?:.*\\\n)*.*)\n", text)
    assert [shlex.split(one.replace("\\\n", " ")) for one in shown] == [command["argv"] for command in plan["commands"]]
    assert any(len(line) <= 80 and line.endswith("\\") for line in text.splitlines())


def test_the_tree_names_devices_folders_and_what_is_told_late(tmp_path, capsys):
    text = edit(
        TEMPLATE, ("gpu_list", "gpu_list:0|0,1"), ("--amp", "--amp:amp"), ("train_model_name", "train_model_name:best*")
    )
    (tmp_path / "p.txt").write_text(text.replace("norm_train:train.py", "norm_train:train.py 'a b'"))
    shown = plan_text(capsys, tmp_path / "p.txt", "lite_train_lite_infer")
    assert "  train[norm_train;gpus=0,1;amp]  (GPU 0,1)\n    $ CUDA_VISIBLE_DEVICES=0,1 python -m paddle" in shown
    assert "weights: norm_train_gpus_0_autocast_amp/best*\n" in shown
    assert "'a b'" in shown
    (tmp_path / "p.txt").write_text(edit(TEMPLATE, ("--amp", "--amp:amp")))
    assert "skipped: AMP on a CPU" in plan_text(capsys, tmp_path / "p.txt", "lite_train_lite_infer")


def test_weights_that_are_found_at_the_start_are_named_from_the_runs_folder(tmp_path, capsys):
    (tmp_path / "clas.txt").write_text((ROOT / "tests/conformance/samples/paddleclas/resnet_amp.txt").read_text())
    text = plan_text(capsys, tmp_path / "clas.txt", "lite_train_lite_infer", "--suite", "paddleclas")
    assert re.search(r"weights: the first of these that exists: \w+_train_gpus_", text)


def test_the_originals_plan_has_its_wrappers(tmp_path, capsys):
    (tmp_path / "det.txt").write_text(DETECTION)
    legacy = ("--legacy", "--suite", "paddledetection")
    text = plan_text(capsys, tmp_path / "det.txt", "lite_train_lite_infer", *legacy)
    assert "CUDA_VISIBLE_DEVICES=0 timeout 5m python train.py --case a.yaml" in text
    plan = load_plan(tmp_path / "det.txt", Mode.LITE_TRAIN_LITE_INFER, suite="paddledetection", legacy=True)
    assert {one.wrapper for one in plan.commands if one.step == "train"} == {("timeout", "5m")}
    assert "timeout" not in plan_text(
        capsys, tmp_path / "det.txt", "lite_train_lite_infer", "--json", "-", *legacy
    ).replace("timeout_s", "")
    assert "timeout 5m" not in plan_text(
        capsys, tmp_path / "det.txt", "lite_train_lite_infer", "--suite", "paddledetection"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.txt", "whole_infer"], 2, "absent.txt: cannot be read"),
        (["p.txt", "whole_infer", "--suite", "paddleclass"], 2, "did you mean 'paddleclas'"),
        (["p.txt", "whole_infer", "--device", "tpu"], 2, "unknown device 'tpu'"),
        (["null.txt", "whole_infer"], 4, "nothing to run in mode whole_infer\n  null.txt:37: infer_model:"),
    ],
)
def test_errors_are_one_message_and_an_exit_code(params, monkeypatch, capsys, arguments, code, message):
    monkeypatch.chdir(params.parent)
    Path("null.txt").write_text(edit(TEMPLATE, ("infer_model", "infer_model:null")))
    assert main(["plan", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("mode", MODES)
def test_the_shipped_file_plans_in_every_mode(mode, capsys):
    assert main(["plan", str(OURS), mode, "--json", "-"]) == 0
    captured = capsys.readouterr()
    commands = json.loads(captured.out)["commands"]
    steps = [command["step"] for command in commands]
    assert captured.err == ""
    assert steps.count("infer") <= 4
    assert steps.count("align") == (4 if mode == "whole_infer" else 6)
    assert steps.count("train") == (mode != "whole_infer")
    epochs = {word for command in commands for word in command["argv"] if word.startswith("--epochs")}
    assert epochs == {"lite": {"--epochs=1"}, "whol": {"--epochs=2"}}[mode[:4]] if "train" in mode else not epochs


def test_the_gpu_id_may_be_the_third_argument_as_for_the_drivers(params, monkeypatch, capsys):
    monkeypatch.chdir(params.parent)
    seen = []
    for arguments in (["3"], ["--gpu-id", "3"], ["3", "--gpu-id", "3"]):
        assert main(["plan", "p.txt", "whole_infer", *arguments, "--json", "-"]) == 0
        commands = json.loads(capsys.readouterr().out)["commands"]
        seen += [command["env"] for command in commands if command["step"] != "align"]
    assert {tuple(env.items()) for env in seen} == {(("CUDA_VISIBLE_DEVICES", "3"),)}
    assert main(["plan", "p.txt", "whole_infer", "3", "--gpu-id", "4"]) == 2
    assert "GPU_ID is 3, but --gpu-id 4" in capsys.readouterr().err
