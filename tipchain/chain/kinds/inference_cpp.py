"""Inference with a C++ program of the suite's, which has to be built first.

The originals download Paddle's C++ library, build, and infer. tipchain plans the inferences, and runs them where the
program is built already; where not, it says what a build needs. PaddleSeg's files are configurations of its program, of
``key value`` lines, and no parameter files.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from tipchain.chain.emitter import DEVICE_KINDS, SHORT_NAMES
from tipchain.chain.kinds.base import EXPORTS, Chain, Layout, Request, choose_layout, read_lines
from tipchain.chain.params import NOTHING, Words, check_folder_name, plain_list, split_words
from tipchain.chain.plan import Command, Plan
from tipchain.chain.slots import ROLES, Slots

NAME = "inference_cpp"
PADDLE_LIBRARY = "PADDLE_INFER_DIR"
TOOLS = ("cmake", "g++")
_AXES = "device mkldnn threads infer_batch trt precision"
_CLAS = "device:use_gpu mkldnn:enable_mkldnn threads:cpu_threads infer_batch:batch_size trt:use_tensorrt precision:precision"
LAYOUTS: Sequence[Layout] = (
    Layout(
        suite="paddleclas",
        text=f"""=cpp_infer_params model_name:model_name type:cpp_infer_type infer_model:*_inference_model_dir
        detector:det_inference_model_dir model_url:*_url detector_url:det_inference_url infer_quant:infer_quant
        program:inference_cmd {_CLAS} infer_data:image_dir|data_dir benchmark:benchmark configure:generate_yaml_cmd
        ?index:transform_index_cmd""",
        unread=frozenset({"model_url", "detector_url"}),
    ),
    Layout(
        suite="paddledetection",
        text=f"""=cpp_infer_params model_name:model_name python:python filename ## export_save export_weight
        export_norm export_pact export_fpgm export_distill export_x1 export_x2 export_kl_quant ##
        opencv:opencv_dir infer_modes:infer_mode infer_quant:infer_quant program:inference {_AXES}
        model_dir infer_data benchmark extra_infer""",
        rest=True,
    ),
    Layout(
        suite="paddlevideo",
        text=f"""=cpp_infer_params model_name:model_name opencv:use_opencv infer_model:infer_model
        infer_quant:infer_quant program:inference {_AXES} model_dir infer_data infer_name benchmark labels segments""",
    ),
    Layout(
        suite="paddleseg",
        text="""=cpp_program_params model_name:model_name* device:use_gpu* gpu:gpu_id* memory:gpu_mem*
        threads:cpu_math_library_num_threads* mkldnn:use_mkldnn* trt:use_tensorrt* precision:use_fp16*
        model_file:model_path* params_file:params_path* normalize:is_normalize* resize:is_resize*
        ?width:resize_width* ?height:resize_height*""",
    ),
)
_SEG_ROLES = {"use_gpu": "device", "use_tensorrt": "trt", "use_fp16": "precision"}
SEG_PROGRAM = "./test_tipc/cpp/build/seg_system"
HUMANS = ("pphumanseg_lite", "deeplabv3p_resnet50", "fcn_hrnetw18_small")
"""PaddleSeg's models of people; their driver infers in another image."""
MEANINGS: Mapping[str, str] = {
    **ROLES,
    "type": "cls for one model, shitu for a detector and a feature extractor",
    "detector": "the detector's folder, of a chain with two models",
    "detector_url": "address of the detector",
    "program": "the C++ program, below the folder that it is built in",
    "configure": "program that writes the C++ program's configuration",
    "index": "program that converts the index to search in",
    "opencv": "OpenCV to build with",
    "infer_modes": "which of the exports are inferred with",
    "filename": "argument that names the exported model, after model_name",
    "infer_name": "the model's name for the C++ program",
    "labels": "file of the classes",
    "segments": "segments of a video",
    "gpu": "the GPU's number",
    "memory": "the GPU's memory for Paddle, in MB",
    "model_file": "program of the exported model",
    "params_file": "weights of the exported model",
    "normalize": "whether images are normalized",
    "resize": "whether images are resized",
    "width": "to which width",
    "height": "to which height",
}


def plan(request: Request) -> Plan:
    """Return the plan of a file; inferences are skipped where the program is not built.

    Raises:
        ParamsError: the file does not fit its suite's layout, or a value is impossible.
    """
    layout = choose_layout(request, LAYOUTS)
    if layout.suite == "paddleseg":
        # Plan of one of PaddleSeg's files, whose lines are ``key value`` and read by the program itself.
        slots = read_lines(replace(request, legacy=False), layout)
        values = {role: slot.key.partition(" ")[2].strip() for role, slot in slots.items()}
        name = slots["model_name"]._replace(value=values["model_name"])
        check_folder_name(name, name.value)
        python = name._replace(value="python")
        chain = Chain(request, kind=NAME, suite=layout.suite, slots=slots, model=name, python=python)
        on = [role for role in ("use_gpu", "use_tensorrt", "use_fp16") if values[_SEG_ROLES[role]] not in ("", "0")]
        cpu = ["use_cpu", *(["use_mkldnn"] if values["mkldnn"] not in ("", "0") else [])]
        image = f"test_tipc/cpp/{'humanseg_demo.jpg' if name.value in HUMANS else 'cityscapes_demo.png'}"
        command = Command(
            id="gpu" if "use_gpu" in on else "cpu",
            step="infer",
            argv=(SEG_PROGRAM, request.file.path, image),
            on_gpu="use_gpu" in on,
            skip=missing(request.options.root, SEG_PROGRAM),
            leg=NAME,
        )
        chain.add(command, log=f"infer_cpp_{'_'.join(on if 'use_gpu' in on else cpu)}.log")
        return chain.made(results_log="results_infer_cpp.log", status="{model} - {command} - {log} ")
    return _Inference(request, layout, read_lines(request, layout)).plan()


def missing(root: str, program: str) -> str:
    """Return why a C++ program below ``root`` cannot be run here, "" where it can."""
    path = Path(root, program)
    if os.access(path, os.X_OK) and path.is_file():
        return ""
    absent = [name for name in TOOLS if shutil.which(name) is None]
    absent += [] if os.environ.get(PADDLE_LIBRARY) else [f"Paddle's C++ library ({PADDLE_LIBRARY} is not set)"]
    needs = f"; missing for a build: {', '.join(absent)}" if absent else "; tipchain does not build it"
    return f"{program} is not built here{needs}"


class _Inference(Chain):
    def __init__(self, request: Request, layout: Layout, slots: Slots) -> None:
        python = slots.get("python", slots.get("configure", slots["program"]))
        super().__init__(request, kind=NAME, suite=layout.suite, slots=slots, python=python)

    def plan(self) -> Plan:
        models = (
            [one for one in plain_list(self.slots["infer_model"].value) if one] if "infer_model" in self.slots else [""]
        )
        for mode in plain_list(self.slots["infer_modes"].value) if "infer_modes" in self.slots else ("null",):
            needs = () if mode == "null" else (self.export(mode),)
            for model in models:
                self.infer(model, mode, needs)
        return self.made(results_log="results_cpp.log", status="{model} - {command} - {log} ")

    def export(self, mode: str) -> str:
        """Add the export of a model.

        Raises:
            ParamsError: there is no such export.
        """
        if mode not in EXPORTS:
            raise self.slots["infer_modes"].error(f"unknown export {mode!r}", expected="|".join(EXPORTS))
        slot = self.slots[EXPORTS[mode]]
        argv = (*self.python, *split_words(slot.value, slot), *self.words("export_weight"))
        argv += (*self.words("filename", self.model), *self.words("export_save"))
        return self.add(Command(id=mode, step="export", argv=argv, leg=mode), log="export.log")

    def infer(self, model: str, mode: str, needs: tuple[str, ...]) -> None:
        program = split_words(self.slots["program"].value, self.slots["program"])
        skip = missing(self.request.options.root, program[0])
        for kind, point in self.points():
            on = {role: value for role, value in point.items() if value not in NOTHING}
            shown = [f"{SHORT_NAMES.get(role, role)}={value}" for role, value in on.items() if role != "device"]
            command = Command(
                id=";".join([*([mode] if mode != "null" else []), kind, *shown]),
                step="infer",
                argv=(*program, *self.arguments(model, point)),
                needs=(*needs, *self.configured(model, point, program)),
                on_gpu=kind == "gpu",
                skip=skip,
                leg=NAME,
            )
            self.add(command, log=f"cpp_infer_{kind}_{'_'.join(shown).replace('=', '_')}.log")

    def points(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each device with the settings that count there."""
        for value in plain_list(self.slots["device"].value):
            kind = DEVICE_KINDS.get(value.strip())
            if kind is None:
                continue
            axes = ("mkldnn", "threads", "infer_batch") if kind == "cpu" else ("trt", "precision", "infer_batch")
            for values in product(*(plain_list(self.slots[role].value) or ("null",) for role in axes)):
                yield kind, {"device": value.strip(), **dict(zip(axes, values, strict=True))}

    def configured(self, model: str, point: Mapping[str, str], program: Words) -> tuple[str, ...]:
        """Add what writes the configuration of PaddleClas's program for a point; return its id."""
        slot = self.slots.get("configure")
        if slot is None:
            return ()
        pairs = {
            "--type": self.slots["type"].value,
            "--batch_size": point["infer_batch"],
            "--mkldnn": point.get("mkldnn", "False"),
            "--gpu": point["device"],
            "--cpu_thread": point.get("threads", "1"),
            "--tensorrt": point.get("trt", "False"),
            "--precision": point.get("precision", "fp32"),
            "--data_dir": self.slots["infer_data"].value,
            "--benchmark": "True",
            "--cls_model_dir": model,
        }
        argv = (*split_words(slot.value, slot), *(word for pair in pairs.items() for word in pair))
        skip = missing(self.request.options.root, program[0])
        return (self.add(Command(id="", step="configure", argv=argv, skip=skip, leg=NAME)),)

    def arguments(self, model: str, point: Mapping[str, str]) -> Words:
        """Return the words after the program."""
        if "configure" in self.slots:
            return ()
        folder = model or posixpath.join(self.slots["export_save"].value, self.model)
        found: list[str] = []
        for role, value in point.items():
            found += self.words(role, value)
        found += self.words("model_dir", folder)
        for role in ("infer_data", "infer_name", "benchmark", "labels", "segments", "extra_infer"):
            found += self.words(role)
        return tuple(found)
