"""Post-training quantization: an inference model is quantized without training, and inferred with.

The suites' drivers stop there: a quantized model that answers anything at all passes. The default mode runs one inference
twice more, with the quantized model and with the unquantized one on the same data, and judges how far the two disagree
(`tipchain/paddle_tools/compare_outputs.py`). What is allowed may stand in a section of the file's own, which the
originals do not read; without it `LIMITS` hold::

    ===========================quantization_tolerance_params===========================
    max_disagreement:0.15
    reason:PP-LCNet changes 12 % of its decisions, and loses 2.4 points on 50,000 images
"""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from tipchain.chain.emitter import SHORT_NAMES, VISIBLE, Filler, exported_files, slim_links
from tipchain.chain.kinds.base import Chain, Layout, Request, choose_layout, read_lines, suite_data
from tipchain.chain.load import ON_CPU
from tipchain.chain.params import NOTHING, Slot, Words, flag, plain_list, split_words
from tipchain.chain.plan import Artifact, Command, Find, Plan
from tipchain.chain.profiles import get_suite
from tipchain.chain.slots import Slots, own_section
from tipchain.chain.suites import ArgumentItem, InferRule
from tipchain.core.json_text import Json
from tipchain.errors import ParamsError
from tipchain.modes import parse_device

NAME = "ptq_infer_python"
TOLERANCE_SECTION = "quantization_tolerance_params"
WHY_DISAGREEMENT = (
    "8-bit post-training quantization of a sound model changes a few decisions of a hundred; wrong scales or wrong "
    "calibration data change most of them"
)
DEVICES = ("cpu", "gpu")
TOOLS = Path(__file__).resolve().parents[2] / "paddle_tools"
RECORD, COMPARE = str(TOOLS / "record_outputs.py"), str(TOOLS / "compare_outputs.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class PtqRule:
    """How one suite's driver quantizes and infers.

    Templates may name ``{root} {model} {mode} {number} {infer_model}`` and ``{v[ROLE]}``, a line's value.

    Attributes:
        program: role of the quantization's program.
        arguments: roles of its arguments; ``role:other`` is written with the key of ``other`` by the original.
        literal: values that arguments have instead of their lines'.
        logs: the original's folder of logs.
        log: the quantization's, below it.
        quantized: the folder that the quantization leaves.
        source: the folder of the unquantized model, from the root; "" where it must be exported.
        model: inference's arguments that name the quantized model, by role.
        unquantized: the same for the unquantized model; a name with ``*`` is settled when it is there.
        raw: roles that the original writes even if they are null.
        on_gpu: the quantization's program that takes a GPU whatever it is told.
        cpu_words: words that have the program quantize on the CPU.
        links: whether the quantization's files are linked to the names that inference looks for.
        takes_gpu_id: whether the original's third argument counts.
    """

    layout: Layout
    program: str
    arguments: Sequence[str]
    literal: Mapping[str, str] = field(default_factory=dict)
    logs: str = "./test_tipc/output/{model}/{mode}"
    log: str = "export.log"
    quantized: str
    source: str
    model: Mapping[str, str]
    unquantized: Mapping[str, str]
    cpu: InferRule
    gpu: InferRule
    raw: Sequence[str] = ()
    cwd: str = "."
    results_log: str = "results_python.log"
    on_gpu: str = ""
    cpu_words: str = ""
    links: bool = False
    takes_gpu_id: bool = False


def _rule(data: Json) -> PtqRule:
    rules = {kind: data[kind] | {"arguments": tuple(map(ArgumentItem, data[kind]["arguments"]))} for kind in DEVICES}
    return PtqRule(**{**data, **{kind: InferRule(**own) for kind, own in rules.items()}})


RULES: Mapping[str, PtqRule] = {suite: _rule(data) for suite, data in suite_data(NAME).items()}
LAYOUTS: Sequence[Layout] = tuple(rule.layout for rule in RULES.values())


LIMITS: Mapping[str, float] = {"max_disagreement": 0.1, "max_error": 0.25}
SHARE = re.compile(r"0?\.\d+|[01](\.0*)?|0\.|\d(\.\d+)?e-0*[1-9]\d*")


def tolerance(request: Request) -> tuple[Mapping[str, float], str]:
    """Return the tolerance of a quantized model against the unquantized one, and its reason: the file's own section, or the default.

    Raises:
        ParamsError: a key is unknown or repeated, a value is no number from 0 to 1, or the reason is missing.
    """
    path, found = request.file.path, own_section(request.file, TOLERANCE_SECTION, (*LIMITS, "reason"))
    told = {key: param.value.strip() for key, param in found.items()}
    for key in LIMITS.keys() & told.keys():
        if not SHARE.fullmatch(told[key]):
            expected = "a number from 0 to 1"
            raise ParamsError(
                "is no share", file=path, line=found[key].line, key=key, found=told[key], expected=expected
            )
        if not told.get("reason"):
            message, expected = f"[{TOLERANCE_SECTION}] needs `reason:`", "why so much is allowed, as measured"
            raise ParamsError(message, file=path, line=max(one.line for one in found.values()), expected=expected)
    return {key: float(told.get(key, usual)) for key, usual in LIMITS.items()}, told.get("reason", "")


def plan(request: Request) -> Plan:
    """Return the plan of a file.

    Raises:
        ParamsError: the file does not fit its suite's layout, or a value is impossible.
        UsageError: the named suite has no such chains, or there is no such device.
    """
    layout = choose_layout(request, LAYOUTS)
    return _Quantization(request, RULES[layout.suite], read_lines(request, layout)).plan()


class _Quantization(Chain):
    def __init__(self, request: Request, rule: PtqRule, slots: Slots) -> None:
        suite = get_suite(rule.layout.suite)
        self.filler = Filler(suite=suite, slots=slots, legacy=request.legacy)
        values = self.filler.values
        self.facts: dict[str, object] = {
            "root": request.options.root,
            "model": slots["model_name"].value,
            "mode": request.mode.value,
            "v": values,
            "dirname": {role: posixpath.dirname(value) for role, value in values.items()},
        }
        out = rule.logs.format_map(self.facts).removeprefix(f"{request.options.root}/")
        super().__init__(request, kind=NAME, suite=rule.layout.suite, slots=slots, out=out)
        self.rule, self.result_line = rule, suite.result_line
        self.facts["run"] = self.run
        self.gpu = request.options.gpu_id if rule.takes_gpu_id or not request.legacy else None
        self.settings: dict[str, tuple[InferRule, Mapping[str, str]]] = {}
        chosen, self.devices = request.options.device, self.devices_of(slots["device"], self.list_of("device"))
        self.cpu_only = chosen == "cpu" or (bool(self.devices) and all(kind == "cpu" for kind, _ in self.devices))
        if chosen not in (None, "cpu", "gpu"):
            self.gpu = str(parse_device(chosen).number)
        self.visible = {} if self.gpu is None else {VISIBLE: self.gpu}

    def plan(self) -> Plan:
        allowed, why = tolerance(self.request)
        programs = self.programs()
        if not programs:
            message = "names no program, so nothing is quantized"
            self.tell("nothing-planned", message, self.slots[self.rule.program])
        for number, (source, program) in enumerate(programs):
            self.facts |= {"number": number, "infer_model": source}
            label = f"model={number}" if len(programs) > 1 else ""
            needs = () if program is None else (self.quantize(program, label),)
            first = self.infer(label, needs)
            if first is not None and program is not None and not self.legacy:
                self.compare(program, label, needs, first, allowed, why)
        status = {"paddleclas": "{model} - {command} - {log} !"}.get(
            self.rule.layout.suite, "{model} - {command} - {log} "
        )
        return self.made(results_log=self.rule.results_log, status=status, redirected=("quantize", "infer"))

    def fill(self, template: str) -> str:
        return template.format_map(self.facts)

    def flag(self, slot: Slot, value: str | None = None, *, raw: bool = False) -> Words:
        return flag(slot, value, raw=raw and self.legacy, literal=value is not None, legacy=self.legacy)

    def list_of(self, role: str) -> tuple[str, ...]:
        slot = self.slots.get(role)
        if slot is None:
            return ()
        return plain_list(slot.value) if self.legacy else tuple(dict.fromkeys(slot.checked_values()))

    # What is quantized

    def programs(self) -> Sequence[tuple[str, Words | None]]:
        slot = self.slots[self.rule.program]
        if self.rule.program != "infer_export":
            if slot.absent or slot.value.strip() == "False":
                return ()
            return [(self.slots["infer_model"].value if "infer_model" in self.slots else "", self.split(slot))]
        texts = self.list_of(self.rule.program)
        models = [one for one in self.list_of("infer_model") if self.legacy or one not in NOTHING]
        pairs = zip_longest(models, texts[: len(models)], fillvalue="")
        return [(model, None if text in NOTHING else split_words(text, slot)) for model, text in pairs]

    def split(self, slot: Slot) -> Words:
        return split_words(slot.value, slot, pipes=self.legacy and not self.rule.layout.rest)

    def quantize(self, program: Words, label: str) -> str:
        rule, words = self.rule, list[str]()
        for text in rule.arguments:
            role, _, other = text.partition(":")
            slot = self.slots.get(role)
            if slot is None:
                continue
            key = self.slots[other].key if other else slot.key
            named = slot._replace(key=key) if self.legacy else slot
            literal = rule.literal.get(role)
            value = self.device_value(role) if literal is None else self.fill(literal)
            words += self.flag(named, value)
        if not self.legacy and self.cpu_only:
            words += rule.cpu_words.split()
        command = Command(
            id=label,
            step="quantize",
            argv=(*self.python, *program, *words),
            env=self.visible,
            on_gpu=program[0] == rule.on_gpu or self.device_value("use_gpu") in ("True", "gpu"),
            leg=label or NAME,
            leaves=exported_files(self.fill(rule.quantized)),
        )
        return self.add(command, log=self.fill(rule.log))

    def device_value(self, role: str) -> str | None:
        if role != "use_gpu" or role not in self.slots or self.slots[role].absent:
            return None
        value = self.slots[role].value
        return ON_CPU.get(value, value) if self.cpu_only else value

    # Inference

    def infer(self, label: str, needs: tuple[str, ...]) -> Command | None:
        slot = self.slots["inference"]
        if slot.absent and not self.legacy:
            self.tell("null", "is null, so nothing is inferred", slot)
            return None
        found: list[Command] = []
        nothing = () if self.legacy else ("null",)
        for kind, value in self.devices:
            device = self.rule.cpu if kind == "cpu" else self.rule.gpu
            lists = {role: (self.slots[role], self.list_of(role) or nothing) for role in device.axes}
            points = list(self.filler.points(device, lists, {}))
            if not points:
                settings = ", ".join(f"{self.slots[role].key}:{self.slots[role].value}" for role in device.axes)
                message = f"nothing is inferred on the {kind}: no combination of {settings} can be"
                self.tell("default", message, self.slots["device"])
            found += [self.infer_at(kind, device, {**one, "device": value}, label, needs) for one in points]
        cpu = next((one for one in found if not one.on_gpu), None)
        return cpu or next(iter(found), None)

    def infer_at(
        self, kind: str, device: InferRule, point: Mapping[str, str], label: str, needs: tuple[str, ...]
    ) -> Command:
        shown = [f"{SHORT_NAMES.get(role, role)}={point[role]}" for role in device.axes if point[role] not in NOTHING]
        name = ";".join(filter(None, (label, kind, *shown)))
        self.settings[name] = (device, point)
        cwd = self.rule.cwd
        if cwd != "." and self.legacy:  # it walks there by way of the model, and may be elsewhere
            cwd = posixpath.normpath(f"{self.fill(self.rule.quantized)}/../../{cwd}")
        return self.inference(
            name,
            kind,
            (*self.interpreter(self.rule.cwd), *self.inference_words(device, point, self.rule.model)),
            log=device.log.format_map(point),
            cwd=cwd,
            env=self.visible,
            needs=needs,
            gpus=(self.gpu,) if kind == "gpu" and self.gpu else (),
            leg=label or NAME,
            links=slim_links(posixpath.normpath(self.fill(self.rule.quantized)))
            if self.rule.links and not self.legacy
            else (),
        )

    def inference_words(self, device: InferRule, point: Mapping[str, str], model: Mapping[str, str]) -> Words:
        words = list(self.split(self.slots["inference"]))
        for role in (item.add for item in device.arguments):
            raw = role in self.rule.raw and self.legacy
            slot = self.slots.get(role)
            if slot is None:
                continue
            if role in point:
                words += flag(slot, point[role], raw=raw, legacy=self.legacy)
            else:
                words += self.flag(slot, self.fill(model[role]) if role in model else None)
        return tuple(words)

    # Against the unquantized model

    def compare(
        self, program: Words, label: str, needs: tuple[str, ...], first: Command, allowed: Mapping[str, float], why: str
    ) -> None:
        exported = needs if self.rule.source else self.exported(program, label, first, needs)
        device, point = self.settings[first.id]
        files, ids = [], []
        for which, model, more in (
            ("unquantized", self.rule.unquantized, exported),
            ("quantized", self.rule.model, needs),
        ):
            name = "-".join(filter(None, ("outputs", label.replace("=", "-"), f"{which}.npz")))
            path = f"{self.run}/{name}"
            words = self.inference_words(device, point, model)
            where = posixpath.join(self.request.options.root, path)
            command = first._replace(
                id=";".join(filter(None, (label, which))),
                step="record",
                argv=(*self.interpreter(self.rule.cwd), RECORD, where, *words),
                needs=more,
                leaves=(Artifact(what="record", files=(glob.escape(path),)),),
                finds=tuple(self.finds(model)) if which == "unquantized" else (),
            )
            ids.append(self.add(command))
            files.append(path)
        limits = [word for key, most in allowed.items() for word in (f"--{key.replace('_', '-')}", f"{most:g}")]
        command = Command(
            id=label, step="compare", argv=(*self.python, COMPARE, *files, *limits), needs=tuple(ids), leg=label or NAME
        )
        self.add(command)
        told = f"the quantized model may change {allowed['max_disagreement']:g} of the decisions"
        self.tell("default", f"{told}: {why or WHY_DISAGREEMENT}", None, "info")

    def finds(self, model: Mapping[str, str]) -> Iterator[Find]:
        for template in model.values():
            text = self.fill(template)
            if "*" in template:
                folder, _, name = text.rpartition("/")
                yield Find(text=text, files=(f"{glob.escape(folder)}/{name}",))

    def exported(self, program: Words, label: str, first: Command, needs: tuple[str, ...]) -> tuple[str, ...]:
        """Add the export of the model without quantization, for a suite whose program quantizes its trained model."""
        words = [word.replace("tools/post_quant.py", "tools/export_model.py") for word in program]
        if "--slim_config" in words:
            place = words.index("--slim_config")
            del words[place : place + 2]
        folder = f"{self.run}/unquantized"
        words += self.flag(self.slots["export_weight"])
        words += self.flag(self.slots["filename"], self.model)
        words += self.rule.cpu_words.split() if self.cpu_only else ()
        words += self.flag(self.slots["export_save"], folder)
        label = ";".join(filter(None, (label, "unquantized")))
        argv = (*self.python, *words)
        return (self.export(label, argv, folder, log="", env=self.visible, needs=needs, leg=first.leg),)
