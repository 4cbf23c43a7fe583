"""From a ChainSpec to commands, in order; nothing is run and no file is looked at."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import PurePosixPath

from tipchain.chain.plan import Command, Options, Plan
from tipchain.chain.slots import SCRIPTS
from tipchain.chain.spec import AMP, ChainSpec, InferModel, Leg, Trainer
from tipchain.chain.words import NOTHING, Words, flag
from tipchain.devices import parse_device
from tipchain.modes import Mode

OUTPUT = PurePosixPath("test_tipc/output")
VISIBLE = "CUDA_VISIBLE_DEVICES"
ALIGNED_IN_WHOLE_INFER = ("01", "02", "03")
SHORT_NAMES = {"infer_batch": "bs"}


def expand(spec: ChainSpec, params: str, options: Options | None = None) -> Plan:
    """Return the commands of ``spec``; alignment first, then each leg's train, eval, export and inference."""
    return _Expander(spec, options or Options()).plan(params)


def slug(text: str) -> str:
    """Return ``text`` as a file name, with nothing in it that a shell would mind."""
    return re.sub(r"[^A-Za-z0-9_.=,+-]+", "-", text).strip("-.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A model to infer with: where it is, what made it, and which devices it may see."""

    label: str
    model: str
    quant: str
    data: Words
    needs: tuple[str, ...]
    visible: str | None
    gpus: str


class _Expander:
    """Expands one spec; collects commands, links and notes."""

    def __init__(self, spec: ChainSpec, options: Options) -> None:
        self.spec, self.options = spec, options
        self.legacy = spec.legacy
        self.python: Words = (options.python,) if options.python else spec.python
        self.out = str(OUTPUT / spec.model / spec.mode.value)
        self.base = f"./{self.out}/runs/{options.run}"
        if self.legacy:
            self.base = spec.suite.out.format(model=spec.model, mode=spec.mode.value)
        self.commands: list[Command] = []
        self.latest: dict[str, str] = {}
        self.taken: set[str] = set()
        self.notes = list(spec.notes)
        # What the norm trainer left: (weights, id of its command).
        self.norm: tuple[str, str] | None = None

    def plan(self, params: str) -> Plan:
        self.align()
        if self.spec.mode.trains:
            for leg, autocast, trainer in product(self.spec.legs, self.spec.autocasts, self.spec.trainers):
                self.leg(leg, autocast, trainer)
        else:
            for index, model in enumerate(self.spec.models):
                self.whole(index, model)
        spec = self.spec
        return Plan(
            params=params,
            mode=spec.mode,
            suite=spec.suite.name,
            model=spec.model,
            status=spec.suite.status,
            out=self.out,
            run=self.base.removeprefix("./"),
            commands=tuple(self.commands),
            latest=tuple(self.latest.items()),
            notes=tuple(dict.fromkeys(self.notes)),
        )

    def add(
        self,
        step: str,
        label: str,
        argv: Words,
        *,
        log: str | None = None,
        visible: str | None = None,
        needs: tuple[str, ...] = (),
        on_gpu: bool = False,
        skip: str = "",
    ) -> str:
        """Append a command and return its id; ``log`` is the name the suite is used to."""
        name = f"{step}[{label}]"
        count = 1 + sum(re.sub(r"#\d+$", "", command.id) == name for command in self.commands)
        name = name if count == 1 else f"{name}#{count}"
        if self.legacy:
            path = str(PurePosixPath(self.base, log)) if log else None
        else:
            file = self.unused(slug(name), ".log")
            path = str(PurePosixPath(self.base, file))
            if log and "/" not in log:
                self.latest[log] = file
        env = {} if visible is None else {VISIBLE: visible}
        self.commands.append(
            Command(
                id=name,
                step=step,
                argv=argv,
                env=env,
                log=path,
                timeout_s=self.options.timeout_s,
                needs=needs,
                on_gpu=on_gpu,
                skip=skip,
            )
        )
        return name

    def unused(self, stem: str, suffix: str = "") -> str:
        """Return a name in the run's folder that nothing else in the plan has."""
        names = (
            f"{stem}{suffix}" if count == 1 else f"{stem}-{count}{suffix}" for count in itertools.count(1)
        )
        name = next(name for name in names if name not in self.taken)
        self.taken.add(name)
        return name

    def align(self) -> None:
        alignment = self.spec.alignment
        if alignment is None or self.legacy:
            return
        device = self.device()
        steps = alignment.steps
        if self.spec.mode is Mode.WHOLE_INFER:
            steps = tuple(step for step in steps if step in ALIGNED_IN_WHOLE_INFER)
        if not steps:
            self.notes.append(f"nothing is aligned: {self.spec.mode.value} has none of the file's steps")
        for step in steps:
            argv = (*self.python, f"test_tipc/{SCRIPTS[step]}", "--case", alignment.case)
            argv += ("--mode", self.spec.mode.value, "--device", device)
            self.add("align", step, argv, on_gpu=device != "cpu")

    def device(self) -> str:
        """Return the alignment's device: the option's, else the first gpu_list entry's."""
        if self.options.device:
            return str(parse_device(self.options.device))
        gpus = self.spec.legs[0].gpus if self.spec.legs else ()
        return f"gpu:{int(gpus[0])}" if gpus else "cpu"

    # Training, evaluation, export

    def leg(self, leg: Leg, autocast: str, trainer: Trainer) -> None:
        spec = self.spec
        name = self.save_name(leg, autocast, trainer)
        folder = name if self.legacy else self.unused(name)
        save = f"{self.base}/{folder}"
        label = self.leg_label(leg, autocast, trainer)
        weights = f"{save}/{spec.slots['train_model_name'].value}"
        usual = name if not spec.suite.save_name.endswith(".log") else name.removesuffix(".log")
        if not self.legacy:
            self.latest[name] = folder
        trained = self.train(leg, autocast, trainer, save, label)
        if trainer.kind == "norm" and leg.nodes == 1:
            self.norm = (weights, trained)
        if spec.eval is not None:
            argv = (*self.python, *spec.eval, *flag(spec.slots["pretrained"], weights))
            argv += tuple(word for role in spec.suite.eval_order for word in self.eval_words(role, leg))
            log = f"{usual}_eval.log" if spec.suite.train_logs else None
            self.add(
                "eval", label, argv, log=log, visible=leg.visible_eval, needs=(trained,), on_gpu=leg.on_gpu
            )
        if trainer.export is None:
            self.notes.append(
                f"{trainer.name} has no export program, so its model is neither exported nor inferred"
            )
            return
        argv = (*self.python, *trainer.export, *flag(spec.slots["export_weight"], weights))
        argv += flag(spec.slots["export_save"], save)
        log = f"{usual}_export.log" if spec.suite.train_logs else None
        exported = self.add(
            "export", label, argv, log=log, visible=leg.visible_eval, needs=(trained,), on_gpu=leg.on_gpu
        )
        source = _Source(
            label=label if self.several_legs() else "",
            model=self.model_folder(save),
            quant=str(trainer.quant),
            data=spec.infer_flags["data_after_training"],
            needs=(exported,),
            visible=leg.visible_infer,
            gpus=leg.text,
        )
        self.infer(source)

    def several_legs(self) -> bool:
        return len(self.spec.legs) * len(self.spec.autocasts) * len(self.spec.trainers) > 1

    def save_name(self, leg: Leg, autocast: str, trainer: Trainer) -> str:
        suite = self.spec.suite
        if suite.amp_trainer:
            autocast = str(trainer.name == suite.amp_trainer)
        hosts = f"_nodes_{leg.nodes}" if leg.nodes > 1 else ""
        return suite.save_name.format(
            trainer=trainer.name, gpus=leg.text, autocast=autocast, nodes=leg.nodes, hosts=hosts
        )

    def leg_label(self, leg: Leg, autocast: str, trainer: Trainer) -> str:
        parts = [trainer.name, f"gpus={leg.text}"]
        parts += [f"hosts={leg.nodes}"] if leg.nodes > 1 else []
        parts += [autocast] if autocast not in NOTHING else []
        return ";".join(parts)

    def train(self, leg: Leg, autocast: str, trainer: Trainer, save: str, label: str) -> str:
        spec = self.spec
        words: dict[str, Words] = {
            **spec.train_flags,
            "use_gpu": leg.use_gpu,
            "save": flag(spec.slots["save"], save),
            "amp": spec.suite.amp_flags if autocast == "amp" else (),
        }
        if "autocast" in spec.slots:
            words["autocast"] = flag(spec.slots["autocast"], autocast)
        needs: tuple[str, ...] = ()
        if trainer.kind in ("pact", "fpgm") and leg.nodes == 1:
            words["pretrained"] = flag(spec.slots["pretrained"], self.norm[0]) if self.norm else ()
            needs = (self.norm[1],) if self.norm else ()
        order = spec.suite.train_order_hosts if leg.nodes > 1 else spec.suite.train_order
        argv = (*self.python, *leg.launch, *trainer.train)
        argv += tuple(word for role in order for word in words.get(role, ()))
        amp = autocast in AMP or trainer.name == spec.suite.amp_trainer
        skip = "" if leg.on_gpu or not amp or self.legacy else "AMP on a CPU: Paddle ignores it there"
        return self.add(
            "train", label, argv, visible=leg.visible_train, needs=needs, on_gpu=leg.on_gpu, skip=skip
        )

    def eval_words(self, role: str, leg: Leg) -> Words:
        return leg.use_gpu if role == "use_gpu" else self.spec.extra_eval

    def model_folder(self, save: str) -> str:
        """Return the folder that inference reads after training: the export's, or inference_dir in it."""
        slot = self.spec.slots.get("inference_dir")
        if slot is None:
            return save
        if self.legacy:
            return save if slot.value == "null" else f"{save}/{slot.value}"
        return save if slot.absent else f"{save}/{slot.value}"

    # Inference

    def whole(self, index: int, model: InferModel) -> None:
        spec = self.spec
        label = f"model={index}" if len(spec.models) > 1 else ""
        folder, needs = model.path, tuple[str, ...]()
        if model.export is not None:
            weight = flag(spec.slots["export_weight"], model.path)
            folder = self.whole_folder(index, model.path)
            argv = (*self.python, *model.export, *weight, *flag(spec.slots["export_save"], folder))
            log = spec.suite.whole_export_log or None
            visible = self.options.gpu_id
            needs = (self.add("export", label or "whole_infer", argv, log=log, visible=visible),)
        source = _Source(
            label=label,
            model=folder,
            quant=model.quant,
            data=spec.infer_flags["data"],
            needs=needs,
            visible=self.options.gpu_id,
            gpus="0",
        )
        self.infer(source)

    def whole_folder(self, index: int, path: str) -> str:
        """Return where whole_infer exports to; the originals write beside the weights or to a fixed folder."""
        if not self.legacy:
            self.latest[f"whole_infer_export_{index}"] = f"whole_infer_export_{index}"
            return f"{self.base}/whole_infer_export_{index}"
        if self.spec.suite.exports_to_save_value:
            return self.spec.slots["export_save"].value
        return (
            str(PurePosixPath(path).parent) if "/" not in path else path.rstrip("/").rpartition("/")[0] or "/"
        )

    def infer(self, source: _Source) -> None:
        if self.spec.inference is None:
            self.notes.append("inference is null, so nothing is inferred")
            return
        names = {"True": "gpu", "gpu": "gpu", "False": "cpu", "cpu": "cpu"}
        axis = self.spec.axes["device"]
        seen: set[Words] = set()
        for value in axis.values:
            if value not in names:
                self.notes.append(f"no inference on the device {value!r}: it is neither a CPU nor a GPU")
                continue
            points = list(self.points(names[value], source.quant))
            if not points:
                self.notes.append(self.why_no_point(names[value], source.quant))
            for point in points:
                argv = self.infer_argv(names[value], {**point, "device": value}, source)
                if argv in seen and not self.legacy:
                    continue
                seen.add(argv)
                self.add_inference(names[value], point, argv, source)

    def points(self, device: str, quant: str) -> Iterator[Mapping[str, str]]:
        """Yield the inference product of a device, without the points that cannot be."""
        roles = self.spec.suite.axes[device]
        for values in product(*(self.axis_values(role) for role in roles)):
            point = dict(zip(roles, values, strict=True))
            if not self.impossible(device, point, quant):
                yield point

    def why_no_point(self, device: str, quant: str) -> str:
        """Return the note on a device that has nothing to infer."""
        axes = [self.spec.axes[role].slot for role in self.spec.suite.axes[device]]
        settings = ", ".join(f"{slot.key}:{slot.value}" for slot in axes if slot.key not in NOTHING)
        return (
            f"nothing is inferred on the {device}: no combination of {settings} can be (quantized: {quant})"
        )

    def axis_values(self, role: str) -> tuple[str, ...]:
        axis = self.spec.axes[role]
        absent = axis.slot.key in NOTHING or axis.slot.value == "null"
        return ("null",) if absent and not self.legacy else axis.values

    def impossible(self, device: str, point: Mapping[str, str], quant: str) -> bool:
        """Return whether quantization, precision and engine exclude each other."""
        precision = point.get("precision", "")
        if device == "cpu":
            plain = point.get("mkldnn") == "False"
            return (plain and (quant == "True" or precision == "fp16")) or (
                quant == "True" and precision != "int8" and "precision" in point
            )
        if "trt" not in point:
            return False
        int8, no_trt = "int8" in precision, point["trt"] == "False"
        if quant == "False" and int8:
            return True
        if (int8 or "fp16" in precision) and no_trt:
            return True
        # The originals exclude int8 here, so that a quantized model never runs on a GPU.
        return quant == "True" and (no_trt or int8 == self.legacy)

    def infer_argv(self, device: str, point: Mapping[str, str], source: _Source) -> Words:
        spec = self.spec
        words: dict[str, Words] = {
            **spec.infer_flags,
            "model": flag(spec.slots["model_dir"], source.model),
            "data": source.data,
        }
        for role, value in point.items():
            raw = self.legacy and role in spec.suite.raw_axes
            words[role] = flag(spec.axes[role].slot, value, raw=raw)
        order = spec.suite.infer_uses[device]
        argv = (*self.python, *(spec.inference or ()))
        return argv + tuple(word for role in order for word in words.get(role, ()))

    def add_inference(self, device: str, point: Mapping[str, str], argv: Words, source: _Source) -> None:
        suite = self.spec.suite
        template = suite.cpu_log if device == "cpu" else suite.gpu_log
        parts = [source.label] if source.label else []
        parts.append(device)
        for role, value in point.items():
            if value not in NOTHING and self.spec.axes[role].slot.key not in NOTHING:
                parts.append(f"{SHORT_NAMES.get(role, role)}={value}")
        self.add(
            "infer",
            ";".join(parts),
            argv,
            log=template.format(**point, gpus=source.gpus),
            visible=source.visible,
            needs=source.needs,
            on_gpu=device == "gpu",
        )
