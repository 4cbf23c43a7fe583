"""Chains of deployed models: inference with a C++ program, servers with Paddle Serving, Paddle Lite on a phone.

The originals of the first download Paddle's C++ library, build, and infer. tipchain plans the inferences, and runs them
where the program is built already; where not, it says what a build needs. PaddleSeg's files are configurations of its
program, of ``key value`` lines, and no parameter files.

The others are planned and not run, for what they need is not here. Serving, in Python or C++: convert the exported model,
start the server, ask it from a client. It needs Paddle Serving, which Paddle has not released for its versions since 2.3, a
port of its own, and somebody who ends it. Paddle Lite: the program's configuration is pushed to the phone, and it runs there
for each setting; it needs ``adb``, a phone, and Paddle Lite's library.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from tipchain.chain.emitter import SHORT_NAMES
from tipchain.chain.kinds.base import Chain, Layout, Request, choose_layout, read_lines
from tipchain.chain.params import NOTHING, Words, check_folder_name, plain_list, split_words
from tipchain.chain.plan import Command, Plan
from tipchain.chain.slots import ROLES, Slots, legacy_slots

# Inference with a C++ program.


CPP = "inference_cpp"
PADDLE_LIBRARY = "PADDLE_INFER_DIR"
TOOLS = ("cmake", "g++")
_AXES = "device mkldnn threads infer_batch trt precision"
_CLAS = "device:use_gpu mkldnn:enable_mkldnn threads:cpu_threads infer_batch:batch_size trt:use_tensorrt precision:precision"
INFERENCE_LAYOUTS: Sequence[Layout] = (
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
INFERENCE_MEANINGS: Mapping[str, str] = {
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


def plan_inference(request: Request) -> Plan:
    """Return the plan of a file; inferences are skipped where the program is not built.

    Raises:
        ParamsError: the file does not fit its suite's layout, or a value is impossible.
    """
    layout = choose_layout(request, INFERENCE_LAYOUTS)
    if layout.suite == "paddleseg":
        # Plan of one of PaddleSeg's files, whose lines are ``key value`` and read by the program itself.
        slots = read_lines(replace(request, legacy=False), layout)
        values = {role: slot.key.partition(" ")[2].strip() for role, slot in slots.items()}
        name = slots["model_name"]._replace(value=values["model_name"])
        check_folder_name(name, name.value)
        python = name._replace(value="python")
        chain = Chain(request, kind=CPP, suite=layout.suite, slots=slots, model=name, python=python)
        on = [role for role in ("use_gpu", "use_tensorrt", "use_fp16") if values[_SEG_ROLES[role]] not in ("", "0")]
        cpu = ["use_cpu", *(["use_mkldnn"] if values["mkldnn"] not in ("", "0") else [])]
        image = f"test_tipc/cpp/{'humanseg_demo.jpg' if name.value in HUMANS else 'cityscapes_demo.png'}"
        command = Command(
            id="gpu" if "use_gpu" in on else "cpu",
            step="infer",
            argv=(SEG_PROGRAM, request.file.path, image),
            on_gpu="use_gpu" in on,
            skip=missing_program(request.options.root, SEG_PROGRAM),
            leg=CPP,
        )
        chain.add(command, log=f"infer_cpp_{'_'.join(on if 'use_gpu' in on else cpu)}.log")
        return chain.made(results_log="results_infer_cpp.log", status="{model} - {command} - {log} ")
    return _Inference(request, layout, read_lines(request, layout)).plan()


def missing_program(root: str, program: str) -> str:
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
        super().__init__(request, kind=CPP, suite=layout.suite, slots=slots, python=python)

    def plan(self) -> Plan:
        models = (
            [one for one in plain_list(self.slots["infer_model"].value) if one] if "infer_model" in self.slots else [""]
        )
        for mode in plain_list(self.slots["infer_modes"].value) if "infer_modes" in self.slots else ("null",):
            needs: tuple[str, ...] = ()
            if mode != "null":
                slot = self.export_of(mode)
                argv = self.exporting(split_words(slot.value, slot))
                needs = (self.add(Command(id=mode, step="export", argv=argv, leg=mode), log="export.log"),)
            for model in models:
                self.infer(model, mode, needs)
        return self.made(results_log="results_cpp.log", status="{model} - {command} - {log} ")

    def infer(self, model: str, mode: str, needs: tuple[str, ...]) -> None:
        program = split_words(self.slots["program"].value, self.slots["program"])
        skip = missing_program(self.request.options.root, program[0])
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
                leg=CPP,
            )
            self.add(command, log=f"cpp_infer_{kind}_{'_'.join(shown).replace('=', '_')}.log")

    def points(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each device with the settings that count there."""
        slot = self.slots["device"]
        for kind, value in self.devices_of(slot, [one.strip() for one in plain_list(slot.value)]):
            axes = ("mkldnn", "threads", "infer_batch") if kind == "cpu" else ("trt", "precision", "infer_batch")
            for values in product(*(plain_list(self.slots[role].value) or ("null",) for role in axes)):
                yield kind, {"device": value, **dict(zip(axes, values, strict=True))}

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
        skip = missing_program(self.request.options.root, program[0])
        return (self.add(Command(id="", step="configure", argv=argv, skip=skip, leg=CPP)),)

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


# Servers and phones.


MODULES = ("paddle_serving_client", "paddle_serving_server")
_HEAD = "model_name:model_name python:python"
_CONVERSION = """
  convert:trans_model model_dir:--dirname model_filename:--model_filename params_filename:--params_filename
  server_dir:--serving_server client_dir:--serving_client serving_dir:serving_dir
"""
_CLIENT = "client:pipline|pipeline|cpp_client"
_EXPORTS = """
  filename ## export_save export_weight export_norm export_pact export_fpgm export_distill export_x1 export_x2
  export_kl_quant ## infer_modes:infer_mode infer_quant:infer_quant
"""
_TWO_MODELS = """
  model_url:*model_url model_url2:*model_url convert:trans_model model_dir:--dirname model_dir2:--dirname
  model_filename:--model_filename params_filename:--params_filename server_dir:--serving_server
  client_dir:--serving_client server_dir2:--serving_server client_dir2:--serving_client serving_dir:serving_dir
"""
PYTHON_LAYOUTS: Sequence[Layout] = (
    Layout(
        suite="paddleclas",
        text=f"=serving_params {_HEAD} model_url:*model_url {_CONVERSION} server:web_service device:--use_gpu {_CLIENT}",
        reads=19,
        unread=frozenset({"model_url"}),
    ),
    Layout(
        suite="paddleclas",
        text=f"=serving_params {_HEAD} {_TWO_MODELS} server:web_service device:--use_gpu {_CLIENT}",
        reads=19,
        unread=frozenset({"model_url", "model_url2"}),
    ),
    Layout(
        suite="paddleseg",
        text=f"=serving_params {_HEAD} {_CONVERSION} server:web_service device:--opt* output_name:--output_name"
        f" {_CLIENT} client_data:--img_path input_name:--input_name",
        reads=18,
    ),
    Layout(
        suite="paddlevideo",
        text=f"=serving_params {_HEAD} {_CONVERSION} server:web_service {_CLIENT} client_data:--input_file",
    ),
    Layout(
        suite="paddledetection",
        text=f"=serving_infer_python_params {_HEAD} {_EXPORTS} server:web_service server_model:--model_dir device:--opt"
        " extra_server client:http_client client_data:--image_file extra_client",
        rest=True,
    ),
)
CPP_LAYOUTS: Sequence[Layout] = (
    *PYTHON_LAYOUTS[:2],
    Layout(
        suite="paddleseg",
        text=f"=serving_params {_HEAD} {_CONVERSION} server_model:--model op:--op port:--port device:--gpu_id"
        f" {_CLIENT} input_name:--input_name output_name:--output_name",
        reads=18,
    ),
    Layout(
        suite="paddlevideo",
        text=f"=serving_params {_HEAD} {_CONVERSION} server_model:--model port:--port {_CLIENT} client_data:--input_file",
    ),
    Layout(
        suite="paddledetection",
        text=f"=serving_infer_cpp_params {_HEAD} {_EXPORTS} server_model:--model op:--op port:--port device:--gpu_ids"
        " extra_server client:http_client client_model:--serving_client client_data:--image_file extra_client",
        rest=True,
    ),
)
SERVING_MEANINGS: Mapping[str, str] = {
    **ROLES,
    "model_url": "address of the exported model",
    "model_url2": "address of the exported detector",
    "convert": "program that converts an exported model for Paddle Serving",
    "model_dir": "folder of the exported model",
    "model_dir2": "folder of the exported detector",
    "model_filename": "its program's file",
    "params_filename": "its weights' file",
    "server_dir": "the server's side of the converted model",
    "client_dir": "the client's side of the converted model",
    "server_dir2": "the server's side of the converted detector",
    "client_dir2": "the client's side of the converted detector",
    "serving_dir": "folder that the server and the client run in",
    "server": "program of the server; null for Paddle Serving's own, in C++",
    "server_model": "argument of the server for the model",
    "device": "devices to serve on, one after the other: a GPU's number, null for the CPU",
    "op": "what the C++ server does with the model",
    "port": "the server's port",
    "client": "program of the client",
    "client_model": "argument of the client for its side of the model",
    "client_data": "data that the client sends",
    "input_name": "the model's input",
    "output_name": "the model's output",
    "extra_server": "one more argument of the server",
    "extra_client": "one more argument of the client",
    "filename": "argument that names the exported model, after model_name",
    "export_save": "argument for the folder that export writes to",
    "export_kl_quant": "program that quantizes what training left",
    "export_x1": "nothing: the original reads it and uses it nowhere",
    "export_x2": "nothing: the original reads it and uses it nowhere",
    "infer_modes": "which of the exports are served; null serves what was exported before",
    "infer_quant": "nothing: the original reads it and uses it nowhere",
}


def missing_server() -> str:
    """Return why a server is not run here."""
    absent = [name for name in MODULES if find_spec(name) is None]
    here = f"not installed here: {', '.join(absent)}; " if absent else ""
    return f"{here}tipchain plans servers and starts none"


def plan_serving(request: Request, name: str, layouts: Sequence[Layout]) -> Plan:
    """Return the plan of a serving file; each command is skipped with what is missing.

    Raises:
        ParamsError: the file does not fit its suite's layout, or a value is impossible.
    """
    layout = choose_layout(request, layouts)
    own = [one for one in layouts if one.suite == layout.suite]
    layout = next((one for one in own if one.fits(request)), layout)
    return _Serving(request, name, layout).plan()


class _Serving(Chain):
    def __init__(self, request: Request, name: str, layout: Layout) -> None:
        super().__init__(request, kind=name, suite=layout.suite, slots=read_lines(request, layout))
        self.side = name.removeprefix("serving_")

    def plan(self) -> Plan:
        if "convert" in self.slots:
            converted = self.convert()
            cwd = posixpath.normpath(posixpath.join(self.start, self.slots["serving_dir"].value))
            self.serve(converted, cwd)
        else:
            for mode in [one for one in plain_list(self.slots["infer_modes"].value) if one]:
                needs: tuple[str, ...] = ()
                if mode != "null":
                    argv = self.exporting(self.program(self.export_of(mode).role))
                    needs = (self.skip("export", mode, argv, ".", "export.log"),)
                self.serve(needs, ".")
        return self.made(results_log=f"results_{self.kind}.log", status="{model} - {command} - {log} ")

    @property
    def start(self) -> str:
        """Where the conversion runs: PaddleClas's of two models in ``deploy``."""
        return "deploy" if "model_dir2" in self.slots else "."

    def program(self, role: str) -> Words:
        slot = self.slots[role]
        return () if slot.absent else split_words(slot.value, slot)

    def skip(self, step: str, label: str, argv: Words, cwd: str, log: str, needs: tuple[str, ...] = ()) -> str:
        """Add a command, which is skipped."""
        command = Command(id=label, step=step, argv=argv, cwd=cwd, needs=needs, skip=missing_server(), leg=self.kind)
        return self.add(command, log=log)

    def convert(self) -> tuple[str, ...]:
        ids = []
        for number in ("", "2") if "model_dir2" in self.slots else ("",):
            names = ("model_dir", "model_filename", "params_filename", "server_dir", "client_dir")
            words = [self.words(name + number if name.endswith("dir") else name) for name in names]
            argv = (*self.python, *self.program("convert"), *(word for some in words for word in some))
            part = {"": "", "2": "_det"}[number] if "model_dir2" in self.slots else ""
            part = part or ("_cls" if "model_dir2" in self.slots else "")
            ids.append(self.skip("convert", part.strip("_"), argv, self.start, f"{self.side}_trans_model{part}.log"))
        return tuple(ids)

    def serve(self, needs: tuple[str, ...], cwd: str) -> None:
        """Add a server and its client for each device."""
        values = [one for one in self.slots["device"].value.split("|") if one] if "device" in self.slots else ["null"]
        for value in values:
            word, _, option = value.partition(":")
            on = (word if option else "cpu" if value in NOTHING else "gpu").strip()
            server = self.skip("serve", on, self.server(option or value), cwd, f"{self.side}_server_{on}.log", needs)
            self.skip("ask", on, self.client(), cwd, f"{self.side}_client_{on}.log", (server,))

    def server(self, value: str) -> Words:
        python = self.python
        folder = f"{self.slots['export_save'].value}/{self.model}" if "export_save" in self.slots else ""
        if self.side == "python":
            argv = (*python, *self.program("server"))
            argv += self.words("server_model", folder) if folder else ()
            argv += (*self.words("input_name"), *self.words("output_name"))
            return (
                argv + (self.words("device", value) if self.suite != "paddleclas" else ()) + self.words("extra_server")
            )
        serve = (*python, "-m", "paddle_serving_server.serve")
        if "server_model" not in self.slots:
            model = posixpath.basename(self.slots["server_dir"].value.rstrip("/"))
            gpu = () if value in NOTHING else (f"--gpu_id={value}",)
            return (*serve, "--model", model, "--op", "GeneralClasOp", "--port", "9292", *gpu)
        join = "=" if folder else " "
        argv = (*serve, *self.words("server_model", f"{folder}/serving_server" if folder else None, join=join))
        argv += (*self.words("op", join=join), *self.words("port", join=join), *self.words("device", value, join=join))
        return argv + self.words("extra_server")

    def client(self) -> Words:
        argv = (*self.python, *self.program("client"))
        if "client_model" in self.slots:
            argv += self.words("client_model", f"{self.slots['export_save'].value}/{self.model}/serving_client")
        argv += (*self.words("client_data"), *self.words("input_name"))
        argv += self.words("output_name") if self.side == "cpp" else ()
        return argv + self.words("extra_client")


LITE_FOLDER = "deploy/lite"
"""Where the originals keep the program's configuration."""
LITE_LAYOUTS: Sequence[Layout] = (
    Layout(
        suite="paddleclas",
        text="""=lite_params device:runtime_device folder:lite_arm_work_path library:lite_arm_so_path
        model_name:clas_model_file program:inference_cmd threads:--num_threads_list infer_batch:--batch_size_list
        precision:--precision_list""",
    ),
)
LITE_MEANINGS: Mapping[str, str] = {
    "device": "what the phone computes on",
    "folder": "folder on the phone",
    "library": "Paddle Lite's library for the phone",
    "model_name": "the model",
    "program": "program and arguments, on the phone",
    "threads": "numbers of CPU threads",
    "infer_batch": "batch sizes",
    "precision": "precisions",
}


def plan_lite(request: Request) -> Plan:
    """Return the plan of a file; every command is skipped with what is missing.

    Raises:
        ParamsError: the file does not fit the layout, or a value is impossible.
    """
    layout = choose_layout(request, LITE_LAYOUTS)
    if request.legacy:  # such a file begins with its first line
        slots = legacy_slots(f"=\n{request.text}", request.file.path, layout)
    else:
        slots = read_lines(request, layout)
    program = slots["program"]
    check_folder_name(slots["model_name"], slots["model_name"].value)
    chain = Chain(request, kind="lite", suite=layout.suite, slots=slots, python=program._replace(value="adb"))
    folder = slots["folder"].value
    there = " ".join(folder + word for word in split_words(program.value, program)[:3])
    skip = "needs a phone and Paddle Lite's library for it"
    if shutil.which("adb") is None:
        skip = f"adb is not here; {skip}"
    lists = [plain_list(slots[role].value) for role in ("threads", "infer_batch", "precision")]
    for threads, batch, precision in product(*lists):
        label = f"threads={threads};bs={batch};precision={precision}"
        push = Command(
            id=label, step="push", argv=("adb", "push", "config.txt", folder), cwd=LITE_FOLDER, skip=skip, leg="lite"
        )
        infer = Command(
            id=label,
            step="infer",
            argv=("adb", "shell", f"export LD_LIBRARY_PATH={folder}; {there}"),
            cwd=LITE_FOLDER,
            needs=(chain.add(push),),
            skip=skip,
            leg="lite",
        )
        log = f"lite_{chain.model}_runtime_device_{slots['device'].value}_precision_{precision}"
        chain.add(infer, log=f"{log}_batchsize_{batch}_threads_{threads}.log")
    return chain.made(results_log="results.log", status="{model} - {command} - {log} ")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedKind:
    """What a kind's module has, of one of several kinds in a module."""

    LAYOUTS: Sequence[Layout]
    MEANINGS: Mapping[str, str]
    plan: Callable[[Request], Plan]


serving_python, serving_cpp = (
    DeployedKind(LAYOUTS=layouts, MEANINGS=SERVING_MEANINGS, plan=partial(plan_serving, name=name, layouts=layouts))
    for name, layouts in (("serving_python", PYTHON_LAYOUTS), ("serving_cpp", CPP_LAYOUTS))
)
lite = DeployedKind(LAYOUTS=LITE_LAYOUTS, MEANINGS=LITE_MEANINGS, plan=plan_lite)
inference_cpp = DeployedKind(LAYOUTS=INFERENCE_LAYOUTS, MEANINGS=INFERENCE_MEANINGS, plan=plan_inference)
