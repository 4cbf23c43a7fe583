"""paddle2onnx chains: convert an exported model to ONNX, infer with it, and compare both on equal inputs.

The original drivers convert and infer, and report exit codes; PaddleClas's gives the inference the conversion's. What
the converted model computes nobody looks at: here one more command runs the model with Paddle Inference and with
onnxruntime on equal inputs and compares each output (`tipchain.paddle_tools.compare_onnx`).
"""

from __future__ import annotations

import glob
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path

from tipchain.chain.kinds.base import Chain, Layout, Request, choose_layout, read_lines, suite_data
from tipchain.chain.params import Words
from tipchain.chain.plan import Artifact, Command, Find, Plan
from tipchain.chain.slots import Slots

DATA = suite_data("paddle2onnx")
LAYOUTS: Sequence[Layout] = tuple(data["layout"] for data in DATA.values())
EXPORTS: Mapping[str, str] = {
    **{mode: f"export_{mode}" for mode in ("norm", "fpgm", "distill", "kl_quant")},
    "quant": "export_pact",
}
"""PaddleDetection's models, by the slot of their export."""
NO_INSTALLS: Mapping[str, str] = {"PIP_NO_INDEX": "1"}
"""For pip, which paddle2onnx 2 starts through polygraphy: https://pip.pypa.io/en/stable/topics/configuration/"""
ENDINGS = (".pdmodel", ".json")
DEV_VERSION = "--enable_dev_version=False"
OCR_SYSTEMS = ("ch_PP-OCRv2", "ch_PP-OCRv3", "ch_ppocr_mobile_v2_0", "ch_ppocr_server_v2_0")
OCR_TABLES = ("slanet", "en_table_structure")
"""The names by which PaddleOCR's driver tells its models: detector and recognizer, or a table's model as a detector."""
COMPARE = Path(__file__).resolve().parents[2] / "paddle_tools" / "compare_onnx.py"
"""A program of its own: the interpreter of a suite's chain need not have tipchain."""


def plan(request: Request) -> Plan:
    """Return the plan.

    Raises:
        ParamsError: a line is missing, added or out of place, or a value is impossible.
        UsageError: the named suite has no such chains.
    """
    layout = choose_layout(request, LAYOUTS)
    return _OnnxChain(request, layout, read_lines(request, layout)).plan()


class _OnnxChain(Chain):
    def __init__(self, request: Request, layout: Layout, slots: Slots) -> None:
        out = DATA[layout.suite].get("out", f"test_tipc/output/{{model}}/{request.mode.value}")
        super().__init__(request, kind="paddle2onnx", suite=layout.suite, slots=slots, out=out)

    def plan(self) -> Plan:
        slots = self.slots
        if self.suite == "paddledetection":
            folder, modes = f"{slots['export_save'].value}/{self.model}", slots["infer_modes"].values
            for mode in modes:
                label = mode if len(modes) > 1 else ""
                needs = (self.exported(mode, label, folder),) if mode != "null" else ()
                self.one(label, folder, f"{folder}/{slots['save_file'].value}", needs)
        elif self.suite == "paddleocr":
            self.recognition()
        else:
            self.one("", slots["model_dir"].value, slots["save_file"].value, ())
        return self.made(
            results_log="results_paddle2onnx.log", status=DATA[self.suite]["status"], redirected=("convert", "infer")
        )

    def recognition(self) -> None:
        """Add PaddleOCR's conversions, of a detector, a recognizer or both, and the inferences with all that was converted."""
        slots, models = self.slots, ["det", "rec"]
        if self.legacy and self.model not in OCR_SYSTEMS:
            found = "det" if "det" in self.model or self.model in OCR_TABLES else "rec" if "rec" in self.model else ""
            models = [one for one in models if one == found]
        elif not self.legacy:
            models = [one for one in models if not slots[f"{one}_dir"].absent and not slots[f"{one}_file"].absent]
            if not models:
                raise slots["det_dir"].error("names no model to convert, and neither does --rec_model_dir")
        dev_version = f"--enable_dev_version={self.model in OCR_TABLES}"
        converted = []
        for one in models:
            folder, onnx = slots[f"{one}_dir"].value, slots[f"{one}_file"].value
            written = (
                f"--model_dir={folder}",
                *self.files(),
                f"--save_file={onnx}",
                *self.words("opset"),
                *self.words("checker"),
            )
            argv = (*self.beside_python(self.split(slots["convert"])), *written, *self.unless_gone(dev_version))
            converted.append(
                self.conversion(one if len(models) > 1 else "", folder, onnx, argv, (), f"trans_model_{one}.log")
            )
        onnx_words = [word for one in models for word in self.words(f"onnx_{one}", slots[f"{one}_file"].value)]
        for on, device in self.devices_of(slots["infer_device"], slots["infer_device"].checked_values()):
            given = (*self.words("infer_device", device), *self.words("infer_data"), *onnx_words, "--use_onnx=True")
            argv = (*self.interpreter("."), *self.split(slots["inference"]), *given)
            self.inference(on, on, argv, log=f"paddle2onnx_infer_{on}.log", needs=tuple(converted))
        for one in models if not self.legacy else ():
            folder, onnx = slots[f"{one}_dir"].value, slots[f"{one}_file"].value
            self.compare(one if len(models) > 1 else "", folder, onnx, converted[models.index(one)])

    def exported(self, mode: str, label: str, folder: str) -> str:
        """Add the export of one of PaddleDetection's models; return its id."""
        if mode not in EXPORTS:
            raise self.slots["infer_modes"].error(f"unknown export {mode!r}", expected="|".join(("null", *EXPORTS)))
        program = self.slots[EXPORTS[mode]]
        if program.absent and not self.legacy:
            raise program.error(f"infer_mode names {mode}, whose export is null")
        named = (*self.words("export_weight"), *self.words("filename", self.model), *self.words("extra_export"))
        device = ("use_gpu=False",) if self.request.options.device == "cpu" and not self.legacy else ()
        argv = (*self.python, *self.split(program), *named, *device, *self.words("export_save"))
        return self.export(label, argv, folder, log="export.log")

    def one(self, label: str, folder: str, onnx: str, needs: tuple[str, ...]) -> None:
        argv = self.beside_python(self.split(self.slots["convert"]))
        argv += (*self.words("model_dir", folder), *self.files(), *self.words("save_file", onnx), *self.words("opset"))
        checker = self.words("checker")
        argv += self.unless_gone(checker[0]) if checker[:1] == (DEV_VERSION,) else checker
        argv += self.words("extra_convert")
        if self.suite == "paddleclas":
            argv += self.unless_gone(DEV_VERSION)
        converted = self.conversion(label, folder, onnx, argv, needs, "trans_model.log")
        self.infer(label, folder, onnx, converted)
        if not self.legacy:
            self.compare(label, folder, onnx, converted)

    def files(self) -> Words:
        return (*self.words("model_filename"), *self.words("params_filename"))

    def conversion(self, label: str, folder: str, onnx: str, argv: Words, needs: Words, log: str) -> str:
        leaves = (Artifact(what="ONNX model", files=(glob.escape(onnx),)),)
        env = {} if self.legacy else NO_INSTALLS
        finds = self.program(folder)
        command = Command(id=label, step="convert", argv=argv, env=env, needs=needs, leaves=leaves, finds=finds)
        return self.add(command, log=log)

    def program(self, folder: str, *, whole: bool = False) -> tuple[Find, ...]:
        """Return the finds of the program's name or path: Paddle 2 and 3 write it by different endings."""
        slot = self.slots["model_filename"]
        stem, ending = posixpath.splitext(slot.value)
        if ending not in ENDINGS:
            return ()
        files = tuple(glob.escape(posixpath.join(folder, stem)) + one for one in ENDINGS)
        return (Find(text=posixpath.join(folder, slot.value) if whole else slot.value, files=files, anywhere=True),)

    def unless_gone(self, word: str) -> Words:
        return (word,) if self.legacy else ()

    def infer(self, label: str, folder: str, onnx: str, converted: str) -> None:
        program = self.slots["inference"]
        if program.value == "null" if self.suite == "paddleclas" else program.absent and not self.legacy:
            return
        cwd = "deploy" if self.suite == "paddleclas" else "."
        # An option without its setting would take the next word for it.
        settings = [self.words(role) for role in ("infer_model_dir", "use_onnx", "infer_device")]
        given = [word for words in settings if words or self.legacy for word in ("-o", *words)]
        given += self.words("infer_config")
        if self.suite != "paddleclas":
            told = (
                (role, value and value.format(folder=folder, onnx=onnx))
                for role, value in DATA[self.suite]["infer"].items()
            )
            given = [word for role, value in told for word in self.words(role, value)]
        argv = (*self.interpreter(cwd), *self.split(program), *given)
        self.inference(label, "", argv, log="paddle2onnx_infer_cpu.log", cwd=cwd, needs=(converted,))

    def compare(self, label: str, folder: str, onnx: str, converted: str) -> None:
        names = [self.slots[role].value for role in ("model_filename", "params_filename")]
        program, weights = (posixpath.join(folder, name) for name in names)
        argv = (*self.python, str(COMPARE), "--model", program, "--params", weights, "--onnx", onnx)
        leaves = (Artifact(what="comparison", in_log=True, line=r"^compared \d+ outputs"),)
        finds = self.program(folder, whole=True)
        self.add(Command(id=label, step="compare", argv=argv, needs=(converted,), leaves=leaves, finds=finds))

    def beside_python(self, words: Words) -> Words:
        """Return a program's words; with ``--python`` it is the one that stands beside that interpreter."""
        folder = posixpath.dirname(self.request.options.python or "")
        given = folder and words and "/" not in words[0]
        return (f"{folder}/{words[0]}", *words[1:]) if given and not self.legacy else words
