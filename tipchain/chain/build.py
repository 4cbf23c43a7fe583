"""From slots to a ChainSpec: the commands that a parameter file asks for, with no string left to split."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tipchain.chain.params import NOTHING, ParamFile, Slot, Words, check_folder_name, flag, plain_list, split_words
from tipchain.chain.slots import AlignmentParams, Slots, alignment_params, legacy_slots, read_slots, wanted
from tipchain.chain.suites import LintFinding, Suite, TrainerRule
from tipchain.errors import did_you_mean
from tipchain.modes import CHAIN_MODES, Mode

AMP = ("amp", "fp16", "bf16")
AMP_ON_CPU = "AMP on a CPU: Paddle ignores it there"


class Leg(NamedTuple):
    """One entry of the gpu list.

    Attributes:
        text: the GPUs as they stand in the file, for names.
        gpus: their numbers; empty on the CPU.
        hosts: the addresses of several hosts, else empty.
        launched: whether training has a process for each GPU.
        use_gpu: words that hand the device to training and evaluation.
        at_once: what the original exports as CUDA_VISIBLE_DEVICES when the leg begins, None for nothing.
        remembered: what it exports before inference, None for nothing.
    """

    text: str
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    nodes: int
    launched: bool
    multi_host: bool
    use_gpu: Words
    at_once: str | None
    remembered: str | None


class TrainerSpec(NamedTuple):
    """One way of training, called ``name`` in the file's list; ``export`` is None where there is nothing to export."""

    name: str
    kind: str
    quant: bool
    train: Words
    export: Words | None


class InferModel(NamedTuple):
    """A model of the modes without training: a weight file with its export, or a folder that needs none (None)."""

    path: str
    export: Words | None
    quant: str


class Axis(NamedTuple):
    """One axis of the inference product; ``replaced`` where the original goes through other values, without a key."""

    slot: Slot
    values: tuple[str, ...]
    replaced: bool = False


class ChainSpec(NamedTuple):
    """A parameter file in one mode.

    Attributes:
        legacy: whether these are the original's own commands, defects included.
        legs: the entries of the gpu list.
        by_mode: the mode's value of each list of ``mode=value``, by role; "" for none.
        flags: words of the arguments that do not depend on the run, by role.
        name: the name of the model file that training leaves.
        after: the programs between training and evaluation, None for none.
        models: the models of the modes without training.
        slots: the slots, for arguments whose values arise in the run.
    """

    suite: Suite
    legacy: bool
    mode: Mode
    model: str
    python: Words
    legs: tuple[Leg, ...]
    autocasts: tuple[str, ...]
    trainers: tuple[TrainerSpec, ...]
    by_mode: Mapping[str, str]
    flags: Mapping[str, Words]
    name: str
    after: tuple[Words | None, ...]
    eval: Words | None
    models: tuple[InferModel, ...]
    inference: Words | None
    axes: Mapping[str, Axis]
    data_after_training: Words
    slots: Slots
    alignment: AlignmentParams | None
    findings: tuple[LintFinding, ...]

    @property
    def trains(self) -> bool:
        """Whether the mode has training steps."""
        return self.suite.trains(self.mode, legacy=self.legacy)


HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?"
LONGEST_WITHOUT_HOSTS = 15


def parsed_leg(slot: Slot, text: str, original: Leg) -> Leg:
    """Return the leg that an entry means, ``-1``, ``0``, ``0,1`` or ``host1,host2;0,1``; the original makes another of it.

    Raises:
        ParamsError: it means none.
    """
    addresses, semicolon, gpus = text.rpartition(";")
    cpu = text == "-1"
    if not cpu and (
        not re.fullmatch(r"\d+(,\d+)*", gpus) or (semicolon and not re.fullmatch(rf"{HOST}(,{HOST})*", addresses))
    ):
        raise slot.error(f"{text!r} names no device", expected="-1, 0, 0,1 or host1,host2;0,1")
    ids = () if cpu else tuple(gpus.split(","))
    if len({int(one) for one in ids}) < len(ids):
        raise slot.error(f"{text!r} names a GPU twice", expected="each GPU once, as 0,1")
    hosts = tuple(addresses.split(",")) if semicolon else ()
    return original._replace(
        text=gpus,
        gpus=ids,
        hosts=hosts,
        nodes=max(len(hosts), 1),
        launched=len(ids) > 1 or bool(hosts),
        multi_host=bool(hosts),
    )


def original_leg(text: str, use_gpu: Words, suite: Suite) -> Leg:
    """Return the leg that the original driver makes of an entry: it tells by the length of the text."""
    hosts, gpus, remembered, at_once = "", text, None, None
    if text != "-1" and len(text) > LONGEST_WITHOUT_HOSTS:
        hosts, _, rest = text.partition(";")
        gpus = rest.partition(";")[0]
        remembered = gpus.partition(",")[0] if suite.devices.hosts_export else None
    elif text != "-1":
        remembered = text if suite.devices.export_all else text.partition(",")[0]
        at_once = text if len(text) <= 1 and suite.devices.at_once else None
    if not suite.devices.exports:
        remembered = at_once = None
    several = len(hosts) >= suite.devices.hosts_from
    launched = len(gpus) > 2
    return Leg(
        text=gpus,
        gpus=() if text == "-1" else tuple(filter(None, gpus.split(","))),
        hosts=tuple(hosts.split(",")) if several else (),
        nodes=len(hosts.split(",")) if several else 1,
        launched=launched,
        multi_host=launched and several,
        use_gpu=use_gpu,
        at_once=at_once,
        remembered=remembered,
    )


BOOLEANS = ("True", "False")
# Modes of other drivers, which may have an entry in a mode list.
OTHER_MODES = ("benchmark_train", "whole_train_lite_infer", "lite_infer")
MODE_NAMES = (*(mode.value for mode in CHAIN_MODES), *OTHER_MODES)
LITE = Mode.LITE_TRAIN_LITE_INFER.value


OTHER_DEVICES = ("npu", "xpu", "mlu", "gcu", "ipu")
AUTOCASTS = (*AMP, "fp32", "null", "False")


class SpecReader:
    """Reads slots into a ChainSpec and collects findings on the way.

    With ``lenient`` mistyped values are warnings; with ``collect``, for ``lint``, errors become findings.
    """

    def __init__(
        self,
        slots: Slots,
        suite: Suite,
        mode: Mode,
        *,
        legacy: bool = False,
        lenient: bool = False,
        collect: bool = False,
    ) -> None:
        self.slots, self.suite, self.mode, self.legacy = slots, suite, mode, legacy
        self.lenient, self.collect = lenient, collect
        self.findings: list[LintFinding] = []

    def tell(self, code: str, slot: Slot, message: str, severity: str = "warning") -> None:
        """Add a finding, once."""
        finding = LintFinding.at(slot, code, message, severity)
        if not self.legacy and finding not in self.findings:
            self.findings.append(finding)

    def complain(
        self, slot: Slot, message: str, *, expected: str, hint: str | None, code: str = "typos", used: bool = True
    ) -> None:
        """Refuse a mistyped value, or tell of it where the user wants that or where the mode does not read it."""
        if self.legacy:
            return
        ignored = slot.role in self.suite.unread or not used
        if not (self.lenient or self.collect or ignored):
            lenient = "--lenient plans it as the driver reads it"
            raise slot.error(message, expected=expected, hint=f"{hint} Or else {lenient}" if hint else lenient)
        severity = "info" if ignored else "error" if self.collect else "warning"
        unread = f" ({self.suite.title} itself never reads it)" if slot.role in self.suite.unread else ""
        self.tell(code, slot, f"{message}{unread}; {hint or f'expected {expected}'}", severity)

    def numbers(self, slot: Slot, values: Iterable[str], *, used: bool = True) -> None:
        """Refuse words where the program takes a number: of epochs, samples, threads."""
        for value in values:
            if value.isalpha() and value != "null" and slot.key not in NOTHING:
                self.complain(slot, f"{value!r} is no number", expected=f"{slot.key}:1", hint=None, used=used)

    def refuse_empty(self, slot: Slot, message: str) -> None:
        """Refuse a list without entries; ``trainer`` without a colon is one."""
        self.complain(slot, message, expected="an entry behind the colon", hint=None, code="nothing-planned")

    def folder_name(self, slot: Slot, name: str) -> None:
        """Refuse a name that would leave its folder or be taken for an option."""
        if not self.legacy:
            check_folder_name(slot, name)

    def list_of(self, slot: Slot) -> tuple[str, ...]:
        """Return the elements of a slot's list."""
        return plain_list(slot.value) if self.legacy else slot.checked_values()

    def distinct(self, slot: Slot) -> tuple[str, ...]:
        """Return the slot's values without repeats, which would do the same thing twice."""
        values = self.list_of(slot)
        once = tuple(dict.fromkeys(values))
        if self.legacy or len(once) == len(values):
            return values
        self.tell("repeated", slot, "has an entry twice; it is planned once")
        return once

    def split(self, slot: Slot) -> Words:
        """Return a slot's value as words."""
        return split_words(slot.value, slot, pipes=self.suite.pipes and self.legacy)

    def boolean(self, slot: Slot, values: tuple[str, ...], also: tuple[str, ...] = (), *, used: bool = True) -> None:
        """Complain of values that are neither ``True`` nor ``False`` nor one of ``also``."""
        allowed = (*BOOLEANS, *also)
        for value in values:
            if value not in allowed:
                close = next((name for name in allowed if name.lower() == value.lower()), None)
                hint = f"did you mean {close!r}?" if close else did_you_mean(value, allowed)
                self.complain(
                    slot, f"{value!r} is neither True nor False", expected="|".join(allowed), hint=hint, used=used
                )

    def program(self, role: str) -> Words | None:
        """Return a program's words; None for ``null`` (the originals run a null inference all the same)."""
        slot = self.slots[role]
        if role == "inference" and self.legacy:
            return self.split(slot)
        # At a ``|`` the original's unquoted test fails.
        broken = self.legacy and len(plain_list(slot.value)) > 1
        return None if slot.absent or broken else self.split(slot)

    def by_mode(self, role: str) -> str:
        """Return the mode's value in a slot that holds a list of ``mode=value``, "" for none."""
        slot = self.slots[role]
        if role == "epoch" and self.suite.fixed_epoch and self.legacy:
            return self.suite.fixed_epoch
        absent = slot.absent or slot.key == "null"
        usual = self.suite.usual_epoch if role == "epoch" and slot.key != "null" else ""
        value = usual if absent else self._mode_value(slot, self.entries(slot), usual)
        if role in ("epoch", "batch"):
            self.numbers(slot, (value,))
        return value

    def entries(self, slot: Slot) -> Mapping[str, str]:
        """Return the entries of a list of ``mode=value``."""
        values: dict[str, str] = {}
        for part in self.list_of(slot):
            name, _, value = part.partition("=")
            if self.legacy:
                value = value.split("=")[0]
            if "=" not in part and self.suite.modeless == "leave out":
                message = (
                    f"{part!r} is no mode=value, so it is left out, as in the original; write {self.mode.value}={part}"
                )
                self.tell("default", slot, message)
                continue
            if name not in MODE_NAMES:
                hint = did_you_mean(name, MODE_NAMES)
                self.complain(
                    slot,
                    f"unknown mode {name!r}" if "=" in part else f"{part!r} is no mode=value",
                    expected=", ".join(MODE_NAMES),
                    hint=hint,
                    code="closed-modes",
                )
            elif name in values:
                self.complain(slot, f"has two values for {name}", expected="one value for each mode", hint=None)
            values.setdefault(name, value)
        return values

    def _mode_value(self, slot: Slot, values: Mapping[str, str], usual: str = "") -> str:
        name = self.mode.value
        if values.get(name) or self.legacy:
            return values.get(name) or usual
        lite = values.get(LITE) if self.mode is Mode.LITE_TRAIN_WHOLE_INFER else ""
        if lite and lite != usual:
            self.tell("mode-fallback", slot, f"has no value for {name}; the one for {LITE} is used: {lite}")
            return lite
        if usual or not values:  # of a list without a mode that was told
            return usual
        self.tell(
            "default", slot, f"has no value for {name}; the argument is left out, so the program's own default holds"
        )
        return ""

    # What inference asks for.

    def models(self) -> tuple[InferModel, ...]:
        """Return the models of the modes without training."""
        whole = self.suite.whole
        klquant = self.mode is Mode.KLQUANT_WHOLE_INFER
        slot = self.slots["infer_model"]
        if klquant and not self.suite.klquant:
            self.tell("nothing-planned", slot, f"the suite {self.suite.name} has no {self.mode.value}")
            return self._listed() if self.suite.klquant_exports and self.legacy else ()
        style = {"models": self._listed, "kinds": self._kinds, "quantize": self._quantized}[whole.style]
        before = len(self.findings)
        models = style()
        if not models and all(one.code != "nothing-planned" for one in self.findings[before:]):
            self.tell("nothing-planned", slot, f"names no model, so {self.mode.value} has nothing to infer with")
        return models

    def quants(self) -> tuple[str, ...]:
        """Return the quant flags of the models of the modes without training."""
        slot = self.slots.get("infer_quant")
        if slot is None:
            return ()
        values = self.list_of(slot)
        if not slot.absent:
            self.boolean(slot, values, used=not self.mode.trains)
        return values

    def _listed(self) -> tuple[InferModel, ...]:
        slot, exports = self.slots["infer_model"], self.slots["infer_export"]
        quants, texts = self.quants(), self.list_of(exports)
        models = []
        for index, path in enumerate(self.list_of(slot)):
            if path == "null" and self.suite.whole.skips_null:
                continue
            text = texts[index] if index < len(texts) else ""
            if path in NOTHING and not (self.legacy and slot.line):
                continue
            if index >= len(texts):
                self.tell("default", exports, f"has no entry for the model {path}, which is inferred with as it is")
            export, program = None, self.suite.whole.command
            if program and text not in (*NOTHING, "False"):
                export = None if self.slots[program].absent and not self.legacy else self.split(self.slots[program])
            elif text not in NOTHING and not program:
                export = split_words(text, exports)
            quant = quants[index] if index < len(quants) else ""
            if self.mode is Mode.KLQUANT_WHOLE_INFER and not self.legacy:
                quant = "True"
            models.append(InferModel(path=path, export=export, quant=quant))
        return tuple(models)

    def _kinds(self) -> tuple[InferModel, ...]:
        slot, whole, quants = self.slots["infer_model"], self.suite.whole, self.quants()
        klquant = self.mode is Mode.KLQUANT_WHOLE_INFER
        models: list[InferModel] = []
        for index, name in enumerate(self.list_of(slot)):
            if name == "null":
                continue
            if name not in whole.kinds:
                if self.legacy:
                    if klquant:
                        continue  # the original looks for what is its own here first
                    break  # the original ends there
                hint = did_you_mean(name, whole.kinds)
                self.complain(slot, f"unknown model {name!r}", expected=", ".join(whole.kinds), hint=hint)
                continue
            if (name in whole.klquant_kinds) != klquant:
                continue
            place = len(models) if self.legacy else index
            export = self.slots[whole.kinds[name]]
            if export.absent and not self.legacy:
                self.tell("null", export, f"is null, so {name} is not exported", "warning")
                continue
            quant = quants[place] if place < len(quants) else ""
            words = None if export.absent else self.split(export)
            models.append(InferModel(path=name, export=words, quant=quant))
        return tuple(models)

    def _quantized(self) -> tuple[InferModel, ...]:
        command = self.slots[self.suite.whole.command]
        if command.absent or command.value.strip() == "False":
            self.tell(
                "nothing-planned",
                command,
                f"is {command.value or 'empty'}; without training {self.suite.title} does nothing else",
            )
            return ()
        path = self.slots["infer_model"].value
        return (InferModel(path=path, export=self.split(command), quant="True"),)

    def _axis(self, role: str) -> Axis:
        slot = self.slots[role]
        values = self.list_of(slot)
        absent, infers = slot.key in NOTHING or slot.absent, not self.slots["inference"].absent
        if role in ("device", "mkldnn", "trt") and not absent:
            self.boolean(slot, values, ("cpu", "gpu", *OTHER_DEVICES) if role == "device" else (), used=infers)
        if role in ("threads", "infer_batch"):
            self.numbers(slot, values, used=infers)
        if slot.key not in NOTHING and not values and infers:
            self.refuse_empty(slot, "is an empty list, so nothing is inferred")
        replaced = not self.legacy and (slot.key in NOTHING or slot.value == "null") and values != ("null",)
        return Axis(slot=slot, values=("null",) if replaced else values, replaced=replaced)

    def data_after_training(self, by_mode: Mapping[str, str]) -> Words:
        """Return the argument with the data for inference after training; ``by_mode`` has the mode's value of a list."""
        image, infer = self.slots["infer_data"], self.suite.infer
        chosen = self.slots.get(infer.data)
        if infer.data_else and not self.legacy and (chosen is None or chosen.absent):
            chosen = self.slots.get(infer.data_else)
        if chosen is None:
            return ()
        return flag(image, by_mode.get(chosen.role, chosen.value), legacy=self.legacy)

    # What training asks for.

    def legs(self) -> tuple[Leg, ...]:
        """Return the entries of the gpu list."""
        slot = self.slots["gpu_list"]
        values = self.list_of(slot)
        legs = []
        for index, text in enumerate(values):
            use_gpu = self._use_gpu(index, text)
            original = original_leg(text, use_gpu, self.suite)
            legs.append(original if self.legacy else parsed_leg(slot, text, original))
        if len(self.distinct(slot)) < len(legs):
            legs = [leg for index, leg in enumerate(legs) if values.index(values[index]) == index]
        if not legs and self.mode.trains:
            self.refuse_empty(slot, "is an empty list, so nothing is trained")
        return tuple(legs)

    def _use_gpu(self, index: int, text: str) -> Words:
        kind = self.suite.devices.parameter
        slot = self.slots.get("use_gpu")
        if kind == "none" or slot is None:
            return ()
        values = self.list_of(slot)
        if kind == "value":
            if len(values) > 1 and not self.legacy:
                message = f"is a list, and {self.suite.title} hands one value to all entries of gpu_list"
                raise slot.error(message, expected=f"{slot.key}:{values[0]}")
            return flag(slot, "False" if text == "-1" else slot.value, legacy=self.legacy)
        if kind == "whole" and (len(values) < 2 or self.legacy):
            return flag(slot, legacy=self.legacy)
        if index < len(values):
            return flag(slot, values[index], legacy=self.legacy)
        if self.legacy or not values or slot.absent or slot.key in NOTHING:
            return ()
        return flag(slot, values[-1])  # the last one is repeated

    def autocasts(self) -> tuple[str, ...]:
        """Return the precisions to train in."""
        if "autocast" not in self.slots:
            return ("null",)
        slot = self.slots["autocast"]
        values = self.list_of(slot)
        for value in values:
            if value not in AUTOCASTS and slot.key not in NOTHING:
                hint = did_you_mean(value, AUTOCASTS)
                self.complain(slot, f"unknown precision {value!r}", expected="|".join(AUTOCASTS), hint=hint)
        if not values and self.mode.trains:
            self.refuse_empty(slot, "is an empty list, so nothing is trained")
        for value in values:
            self.folder_name(slot, value)
        return self.distinct(slot)

    def trainers(self) -> tuple[TrainerSpec, ...]:
        """Return the trainers, without those that are skipped."""
        slot = self.slots["trainer"]
        found = [self._trainer(slot, name) for name in self.distinct(slot)]
        trainers = tuple(trainer for trainer in found if trainer is not None)
        if not slot.values:
            self.refuse_empty(slot, "is an empty list, so nothing is trained")
        self._check_model_name(trainers)
        return trainers

    def _check_model_name(self, trainers: tuple[TrainerSpec, ...]) -> None:
        slot = self.slots["train_model_name"]
        if self.legacy:
            return
        # Whether an evaluation or an export gets what training left as an argument.
        steps = [] if self.slots["eval"].absent else [self.suite.eval]
        steps += self.suite.export if any(trainer.export for trainer in trainers) else ()
        items = [item for step in steps for item in step.arguments if "{weights}" in f"{item.add}{item.value}"]
        hands = any(not item.flag or self.slots[item.flag].key not in NOTHING for item in items)
        if "{name}" in self.suite.weights and slot.absent and trainers and hands:
            if slot.value or self.suite.weights != "{save}/{name}":
                raise slot.error(
                    "is needed to evaluate and export what was trained",
                    expected="the file that training leaves in its output folder",
                )
            self.tell("default", slot, "is empty, so evaluation and export get the folder that training writes to")
        if slot.value.startswith(("/", "~")) or ".." in slot.value.split("/"):
            raise slot.error("leaves the training's output folder", expected="a name below that folder")

    def _rule(self, slot: Slot, name: str) -> TrainerRule | None:
        for rule in self.suite.trainers:
            own = self.slots.get(rule.key)
            if own is not None and own.key == name and (name not in NOTHING or self.legacy):
                return rule
        norm = next(rule for rule in self.suite.trainers if rule.kind == "norm")
        if name and name == self.suite.amp_trainer:
            return norm
        if not self.legacy and (alias := next((r for r in self.suite.trainers if r.kind == name), None)):
            self.tell("typos", slot, f"{name!r} is taken for {self.slots[alias.key].key!r}", "info")
            return alias
        known = [self.slots[rule.key].key for rule in self.suite.trainers if rule.key in self.slots]
        known = [key for key in known if key not in NOTHING]
        self.complain(slot, f"unknown trainer {name!r}", expected=", ".join(known), hint=did_you_mean(name, known))
        return norm if self.suite.unknown_trainer == "norm" else None

    def _trainer(self, slot: Slot, name: str) -> TrainerSpec | None:
        if name in NOTHING and not self.legacy:
            rules = (rule for rule in self.suite.trainers if rule.key in self.slots)
            rule = next((rule for rule in rules if self.slots[rule.key].key == name), None)
            trains = self.slots[rule.command[0]].value != "null" if rule else self.suite.unknown_trainer == "norm"
            code = "null" if trains else "nothing-planned"  # the original trains nothing either
            self.tell(code, slot, "names no trainer, so nothing is trained")
            return None
        rule = self._rule(slot, name)
        if rule is None:
            self.tell("nothing-planned", slot, f"the trainer {name} is skipped, as the original does")
            return None
        self.folder_name(slot, name)
        command, *more = (self.slots[role] for role in rule.command if role in self.slots)
        if command.value == "null" and not (self.legacy and more):
            self.tell("nothing-planned", command, f"is null, so the trainer {name} is skipped")
            return None
        if command.absent and not self.legacy:
            message = f"is empty, so the trainer {name} is skipped; the original runs python alone"
            self.tell("null", command, message)
            return None
        if not self.legacy:
            more = [part for part in more if not part.absent or not part.value]
        words = [word for part in (command, *more) for word in self.split(part)]
        export = self.program(rule.export) if rule.export in self.slots else None
        return TrainerSpec(name, rule.kind, quant=rule.kind == "pact", train=tuple(words), export=export)

    def spec(self, alignment: AlignmentParams | None) -> ChainSpec:
        """Return the ChainSpec.

        Raises:
            ParamsError: a value is impossible.
        """
        trains = self.suite.trains(self.mode, legacy=self.legacy)
        for rule in () if self.legacy else self.suite.layout:
            slot = self.slots.get(rule.role)
            if slot is not None and slot.line and rule.kind == "slot" and not rule.allows(slot.key):
                self.tell("default", slot, f"stands where {wanted(rule)} is expected; nothing reads it")
            elif slot is not None and slot.key.startswith("--") and " " in slot.key and not slot.value:
                self.tell("default", slot, "has no colon, so it has no value")
        self.quants()
        if not self.slots["inference"].line:
            message = "the file ends after the evaluation's section, so nothing is exported or inferred"
            self.tell("default", self.slots["inference"], message)
        lists = [role for role in self.slots if role in self.suite.mode_lists]
        by_mode = {role: self.by_mode(role) for role in lists} if trains else {}
        if not trains and not self.legacy and "config" in lists and not self.slots["config"].absent:
            # The configuration for an export without training: this mode's, else that of the whole data.
            values = self.entries(self.slots["config"])
            names = (self.mode.value, Mode.WHOLE_TRAIN_WHOLE_INFER.value, *values)
            by_mode["config"] = next((values[name] for name in names if values.get(name)), "")
        name, interpreter = self.slots["model_name"], self.slots["python"]
        # It becomes a folder's; colons in the file part it from the folders above it.
        parts = name.value.split(":") if self.suite.model_name == "folders" else [name.value]
        for part in parts:
            self.folder_name(name, part)
        python = self.split(interpreter)
        if not self.legacy and python in ((), ("null",)):
            raise interpreter.error("names no interpreter", expected="python:python")
        return ChainSpec(
            suite=self.suite,
            legacy=self.legacy,
            mode=self.mode,
            model="/".join(parts),
            python=python,
            legs=self.legs(),
            autocasts=self.autocasts(),
            trainers=self.trainers() if trains else (),
            by_mode=by_mode,
            flags={role: flag(self.slots[role], value, legacy=self.legacy) for role, value in by_mode.items()},
            name=by_mode.get("train_model_name", self.slots["train_model_name"].value),
            after=tuple(self.program(one.program) for one in self.suite.after),
            eval=self.program("eval"),
            models=() if trains else self.models(),
            inference=self.program("inference"),
            axes={role: self._axis(role) for role in sorted({"device", *self.suite.infer.axes})},
            data_after_training=self.data_after_training(by_mode),
            slots=self.slots,
            alignment=alignment,
            findings=tuple(self.findings),
        )


def build_spec(file: ParamFile, suite: Suite, mode: Mode, *, lenient: bool = False) -> ChainSpec:
    """Return the chain that ``file`` asks for in ``mode``; with ``lenient`` mistyped values are notes.

    Raises:
        ParamsError: the file does not fit the suite's layout, or a value is impossible.
    """
    return SpecReader(read_slots(file, suite), suite, mode, lenient=lenient).spec(alignment_params(file))


def legacy_spec(text: str, path: str, suite: Suite, mode: Mode) -> ChainSpec:
    """Return the chain that the original driver reads out of ``text``, defects included."""
    slots = legacy_slots(text, path, suite)
    return SpecReader(slots, suite, mode, legacy=True, lenient=True).spec(None)
