"""Plans of serving and of C++ inference, which are shown and not run where something is missing."""

from __future__ import annotations

import json

import pytest

from tipchain.chain.load import load_plan
from tipchain.chain.plan import Options
from tipchain.cli import main
from tipchain.errors import ParamsError
from tipchain.modes import Mode

SERVING = """===========================serving_params===========================
model_name:Net
python:python3.7
inference_model_url:https://example.org/Net_infer.tar
trans_model:-m paddle_serving_client.convert
--dirname:./deploy/Net_infer/
--model_filename:inference.pdmodel
--params_filename:inference.pdiparams
--serving_server:./deploy/paddleserving/Net_serving/
--serving_client:./deploy/paddleserving/Net_client/
serving_dir:./deploy/paddleserving
web_service:classification_web_service.py
--use_gpu:0|null
pipline:pipeline_http_client.py
"""
DETECTION = """===========================serving_infer_cpp_params===========================
model_name:picodet
python:python3.7
filename:null
##
--output_dir:./output_inference
weights:https://example.org/picodet.pdparams
norm_export:tools/export_model.py -c picodet.yml --export_serving_model True -o
quant_export:tools/export_model.py -c picodet.yml --slim_config qat.yml --export_serving_model True -o
fpgm_export:null
distill_export:null
export1:null
export2:null
kl_quant_export:null
##
infer_mode:norm|quant
infer_quant:False|True
--model:null
--op:picodet
--port:9997
--gpu_ids:null|0
null:null
http_client:deploy/serving/cpp/serving_client.py
--serving_client:null
--image_file:./demo/1.jpg
null:null
"""
CPP = """===========================cpp_infer_params===========================
model_name:Net
cpp_infer_type:cls
cls_inference_model_dir:./Net_infer/
det_inference_model_dir:
cls_inference_url:https://example.org/Net_infer.tar
det_inference_url:
infer_quant:False
inference_cmd:./deploy/cpp/build/clas_system -c inference_cls.yaml
use_gpu:True|False
enable_mkldnn:False|True
cpu_threads:1
batch_size:1
use_tensorrt:False
precision:fp32
image_dir:./dataset/1.jpeg
benchmark:False
generate_yaml_cmd:python3.7 test_tipc/generate_cpp_yaml.py
"""

LITE = """runtime_device:arm_cpu
lite_arm_work_path:/data/tmp/
lite_arm_so_path:lib/libpaddle_light_api_shared.so
clas_model_file:Net
inference_cmd:clas_system config.txt cat.jpg
--num_threads_list:1|4
--batch_size_list:1
--precision_list:FP32
"""
SEG_CPP = """# model load config
model_name deeplab
use_gpu  0
gpu_id  0
gpu_mem  4000
cpu_math_library_num_threads  10
use_mkldnn 1
use_tensorrt 0
use_fp16 0

model_path  ./models/deeplab/model.pdmodel
params_path ./models/deeplab/model.pdiparams
is_normalize 1
is_resize 0
"""


def planned(tmp_path, text, suite, name="Net_serving_python.txt", **more):
    path = tmp_path / name
    path.write_text(text)
    options = Options(root=str(tmp_path), **more.pop("options", {}))
    return load_plan(path, None, suite=suite, options=options, **more)


def test_conversion_server_and_client_for_each_device(tmp_path):
    plan = planned(tmp_path, SERVING, "paddleclas")
    assert (plan.chain, plan.mode) == ("serving_python", Mode.SERVING_INFER)
    assert [one.id for one in plan.commands] == ["convert", "serve[gpu]", "ask[gpu]", "serve[cpu]", "ask[cpu]"]
    assert plan.commands[0].argv[:4] == (
        "python3.7",
        "-m",
        "paddle_serving_client.convert",
        "--dirname=./deploy/Net_infer/",
    )
    assert {one.cwd for one in plan.commands[1:]} == {"deploy/paddleserving"}
    assert all("paddle_serving_server" in one.skip for one in plan.commands)


def test_the_files_name_tells_a_cpp_server(tmp_path):
    plan = planned(
        tmp_path, SERVING.replace("classification_web_service.py", "null"), "paddleclas", "Net_serving_cpp.txt"
    )
    assert plan.chain == "serving_cpp"
    assert plan.commands[1].argv[1:] == (
        "-m",
        "paddle_serving_server.serve",
        "--model",
        "Net_serving",
        "--op",
        "GeneralClasOp",
        "--port",
        "9292",
        "--gpu_id=0",
    )


def test_each_export_is_served(tmp_path):
    plan = planned(tmp_path, DETECTION, "paddledetection")
    assert [one.step for one in plan.commands] == ["export", *["serve", "ask"] * 2] * 2
    assert "qat.yml" in plan.commands[5].argv
    assert "--model=./output_inference/picodet/serving_server" in plan.commands[1].argv
    assert "--gpu_ids=0" in plan.commands[3].argv
    assert not any("gpu_ids" in word for word in plan.commands[1].argv)


def test_an_unknown_export_is_refused(tmp_path):
    with pytest.raises(ParamsError, match="unknown export 'nrom'"):
        planned(tmp_path, DETECTION.replace("infer_mode:norm|quant", "infer_mode:nrom"), "paddledetection")


def test_a_program_that_is_not_built_is_skipped_with_what_a_build_needs(tmp_path, monkeypatch):
    monkeypatch.delenv("PADDLE_INFER_DIR", raising=False)
    plan = planned(tmp_path, CPP, "paddleclas", "Net_infer_cpp.txt")
    inferred = [one for one in plan.commands if one.step == "infer"]
    assert [one.id for one in inferred] == [
        "infer[gpu;trt=False;precision=fp32;bs=1]",
        "infer[cpu;mkldnn=False;threads=1;bs=1]",
        "infer[cpu;mkldnn=True;threads=1;bs=1]",
    ]
    assert all("clas_system is not built here" in one.skip for one in plan.commands)
    assert all("PADDLE_INFER_DIR is not set" in one.skip for one in plan.commands)


def test_a_program_that_is_built_is_run(tmp_path):
    program = tmp_path / "deploy/cpp/build/clas_system"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    plan = planned(tmp_path, CPP, "paddleclas", "Net_infer_cpp.txt")
    assert not any(one.skip for one in plan.commands)
    configure, infer = plan.commands[2:4]
    assert infer.needs == (configure.id,)
    assert configure.argv[1] == "test_tipc/generate_cpp_yaml.py"
    assert configure.argv[-2:] == ("--cls_model_dir", "./Net_infer/")


def test_a_run_skips_everything_and_nothing_was_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Net_serving_python.txt").write_text(SERVING)
    report = tmp_path / "report.json"
    assert main(["run", "Net_serving_python.txt", "--suite", "paddleclas", "--json", str(report)]) == 4
    found = json.loads(report.read_text())["results"]
    assert {one["outcome"] for one in found} == {"SKIP"}
    assert "tipchain plans servers and starts none" in found[0]["reason"]
    capsys.readouterr()


@pytest.mark.parametrize("text", [SERVING, DETECTION, CPP])
def test_lint_says_what_each_line_is_for(tmp_path, text, capsys):
    path = tmp_path / "Net.txt"
    path.write_text(text)
    suite = "paddledetection" if text is DETECTION else "paddleclas"
    assert main(["lint", str(path), "--suite", suite]) == 0
    assert "a line of the suite's own" not in capsys.readouterr().out


@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_without_headers_is_told_by_its_name(tmp_path, legacy):
    plan = planned(tmp_path, LITE, None, "Net_lite_arm_cpu_cpp.txt", legacy=legacy)
    assert (plan.chain, plan.model) == ("lite", "Net")
    assert [one.step for one in plan.commands] == ["push", "infer", "push", "infer"]
    assert plan.commands[3].argv == (
        "adb",
        "shell",
        "export LD_LIBRARY_PATH=/data/tmp/; /data/tmp/clas_system /data/tmp/config.txt /data/tmp/cat.jpg",
    )
    assert all("needs a phone" in one.skip for one in plan.commands)
    with pytest.raises(ParamsError, match="before the first section header"):
        planned(tmp_path, LITE, None, "Net.txt")


@pytest.mark.parametrize("legacy", [False, True])
def test_a_configuration_of_the_program_itself(tmp_path, legacy):
    (command,) = planned(tmp_path, SEG_CPP, "paddleseg", "deeplab_infer_cpp.txt", legacy=legacy).commands
    assert command.argv[0] == "./test_tipc/cpp/build/seg_system"
    assert command.argv[2] == "test_tipc/cpp/cityscapes_demo.png"
    assert "seg_system is not built here" in command.skip
    assert not command.on_gpu


def test_a_lost_line_of_a_file_without_headers_is_refused(tmp_path):
    with pytest.raises(ParamsError, match="clas_model_file"):
        planned(tmp_path, LITE.replace("clas_model_file:Net\n", ""), None, "Net_lite_arm_cpu_cpp.txt")


def test_a_device_that_is_none_is_told_and_the_cpu_stands_for_the_gpu(tmp_path):
    text = CPP.replace("use_gpu:True|False", "use_gpu:True|Flase")
    plan = planned(tmp_path, text, "paddleclas", "Net_infer_cpp.txt")
    assert [note for note in plan.notes if "use_gpu: no inference on the device 'Flase'" in note]
    assert {one.on_gpu for one in plan.commands if one.step == "infer"} == {True}
    on_cpu = planned(tmp_path, text, "paddleclas", "Net_infer_cpp.txt", options={"device": "cpu"})
    assert {one.on_gpu for one in on_cpu.commands if one.step == "infer"} == {False}
