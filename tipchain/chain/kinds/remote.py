"""Chains that are planned and not run, for what they need is not here: a server with Paddle Serving, or a phone.

Serving, in Python or C++: convert the exported model, start the server, ask it from a client. It needs Paddle Serving, which
Paddle has not released for its versions since 2.3, a port of its own, and somebody who ends it. Paddle Lite: the program's
configuration is pushed to the phone, and it runs there for each setting; it needs ``adb``, a phone, and Paddle Lite's library.
"""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product

from tipchain.chain.kinds.base import EXPORTS, Chain, Layout, Request, choose_layout, read_lines
from tipchain.chain.params import NOTHING, Words, check_folder_name, plain_list, split_words
from tipchain.chain.plan import Command, Plan
from tipchain.chain.slots import legacy_slots

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
MEANINGS: Mapping[str, str] = {
    "model_name": "the model's name, which names the output folder",
    "python": "the interpreter",
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
    "export_weight": "argument for the weights to export",
    "export_norm": "program that exports what normal training left",
    "export_pact": "program that exports what training with quantization left",
    "export_fpgm": "program that exports what training with pruning left",
    "export_distill": "program that exports what training with distillation left",
    "export_kl_quant": "program that quantizes what training left",
    "export_x1": "nothing: the original reads it and uses it nowhere",
    "export_x2": "nothing: the original reads it and uses it nowhere",
    "infer_modes": "which of the exports are served; null serves what was exported before",
    "infer_quant": "nothing: the original reads it and uses it nowhere",
}


def missing() -> str:
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
            modes = [one for one in plain_list(self.slots["infer_modes"].value) if one]
            for mode in modes:
                if mode == "null":
                    self.serve((), ".")
                elif mode in EXPORTS:
                    self.serve((self.export(mode),), ".")
                else:
                    raise self.slots["infer_modes"].error(
                        f"unknown export {mode!r}", expected="|".join(("null", *EXPORTS))
                    )
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
        command = Command(id=label, step=step, argv=argv, cwd=cwd, needs=needs, skip=missing(), leg=self.kind)
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

    def export(self, mode: str) -> str:
        argv = (*self.python, *self.program(EXPORTS[mode]), *self.words("export_weight"))
        argv += (*self.words("filename", self.model), *self.words("export_save"))
        return self.skip("export", mode, argv, ".", "export.log")

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
class RemoteKind:
    """What a kind's module has, of one of several kinds in a module."""

    LAYOUTS: Sequence[Layout]
    MEANINGS: Mapping[str, str]
    plan: Callable[[Request], Plan]


serving_python, serving_cpp = (
    RemoteKind(LAYOUTS=layouts, MEANINGS=MEANINGS, plan=partial(plan_serving, name=name, layouts=layouts))
    for name, layouts in (("serving_python", PYTHON_LAYOUTS), ("serving_cpp", CPP_LAYOUTS))
)
lite = RemoteKind(LAYOUTS=LITE_LAYOUTS, MEANINGS=LITE_MEANINGS, plan=plan_lite)
