"""From slots to a ChainSpec.

This is where the default behaviour and the original drivers' differ in how values are read; each difference
has a name, as in ``test_tipc/README.md``: whole-value, mode-fallback, device-per-leg, null, typos, hosts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tipchain.chain.params import ParamFile
from tipchain.chain.slots import Alignment, Slots, alignment_params, checked_slots, legacy_slots
from tipchain.chain.spec import AMP, Axis, ChainSpec, InferModel, Leg, Trainer
from tipchain.chain.suites import Suite
from tipchain.chain.words import NOTHING, Slot, Words, flag, split_words
from tipchain.errors import did_you_mean
from tipchain.modes import Mode

TRAINERS = ("pact", "fpgm", "distill", "x1", "x2", "norm")
BOOLEANS = ("True", "False")
AUTOCASTS = (*AMP, "fp32", "null")
# Modes of other drivers, which may have an entry in a mode list.
OTHER_MODES = ("benchmark_train", "klquant_whole_infer", "whole_train_lite_infer", "lite_infer")
MODE_NAMES = (*(mode.value for mode in Mode), *OTHER_MODES)


def read_spec(
    text: str, file: ParamFile | None, path: str, suite: Suite, mode: Mode, *, lenient: bool
) -> ChainSpec:
    """Return the ChainSpec of a file: checked if ``file`` is given, the original's reading of ``text`` if not."""
    if file is None:
        return _Builder(legacy_slots(text, path, suite), suite, mode, legacy=True, lenient=True).build(None)
    builder = _Builder(checked_slots(file, suite), suite, mode, legacy=False, lenient=lenient)
    return builder.build(alignment_params(file))


def build_spec(file: ParamFile, suite: Suite, mode: Mode, *, lenient: bool = False) -> ChainSpec:
    """Return what ``file`` asks for in ``mode``.

    Args:
        file: the parsed file.
        suite: the profile to read it with.
        mode: the mode.
        lenient: turn unknown trainers and mistyped booleans into notes.

    Raises:
        ParamsError: the file does not fit the suite's layout, or a value is impossible.
    """
    return read_spec("", file, file.path, suite, mode, lenient=lenient)


def legacy_spec(text: str, path: str, suite: Suite, mode: Mode) -> ChainSpec:
    """Return what the original driver reads out of ``text``, defects included."""
    return read_spec(text, None, path, suite, mode, lenient=True)


class _Builder:
    """Reads slots into a ChainSpec and collects notes on the way."""

    def __init__(self, slots: Slots, suite: Suite, mode: Mode, *, legacy: bool, lenient: bool) -> None:
        self.slots, self.suite, self.mode = slots, suite, mode
        self.legacy, self.lenient = legacy, lenient
        self.notes: list[str] = []

    def build(self, alignment: Alignment | None) -> ChainSpec:
        trains = self.mode.trains
        return ChainSpec(
            suite=self.suite,
            legacy=self.legacy,
            mode=self.mode,
            model=self.model_name(),
            python=self.python(),
            legs=self.legs(),
            autocasts=self.autocasts(),
            trainers=self.trainers() if trains else (),
            train_flags=self.train_flags() if trains else {},
            eval=self.program("eval"),
            extra_eval=self.plain("extra_eval"),
            models=() if trains else self.models(),
            inference=self.program("inference"),
            axes=self.axes(),
            infer_flags=self.infer_flags(),
            slots=self.slots,
            alignment=alignment,
            notes=tuple(self.notes),
        )

    def note(self, slot: Slot, message: str) -> None:
        text = f"{slot.file}:{slot.line}: {slot.key}: {message}"
        if text not in self.notes:
            self.notes.append(text)

    def complain(self, slot: Slot, message: str, *, expected: str, hint: str | None) -> None:
        """Refuse a mistyped value, or note it where the user wants that."""
        if not self.lenient:
            raise slot.error(message, expected=expected, hint=hint)
        if not self.legacy:
            self.note(slot, message)

    def model_name(self) -> str:
        slot = self.slots["model_name"]
        self.folder_name(slot, slot.value)
        return slot.value

    def folder_name(self, slot: Slot, name: str) -> None:
        """Refuse a name that would leave its folder or be taken for an option."""
        if not self.legacy and (
            not re.fullmatch(r"[A-Za-z0-9_+.,=@-]+", name) or name in (".", "..") or name.startswith("-")
        ):
            raise slot.error(
                f"{name!r} cannot be a folder's name", expected="letters, digits and any of _+.,=@-"
            )

    def distinct(self, slot: Slot) -> tuple[str, ...]:
        """Return the slot's values without repeats, which would do the same thing twice."""
        once = tuple(dict.fromkeys(slot.values))
        if self.legacy or len(once) == len(slot.values):
            return slot.values
        self.note(slot, "has an entry twice; it is planned once")
        return once

    def python(self) -> Words:
        words = split_words(self.slots["python"].value, self.slots["python"])
        if not words or (words == ("null",) and not self.legacy):
            raise self.slots["python"].error("names no interpreter", expected="python:python")
        return words

    def plain(self, role: str) -> Words:
        return flag(self.slots[role]) if role in self.slots else ()

    def program(self, role: str) -> Words | None:
        """Return a program's words; None for ``null`` (legacy runs a null inference all the same)."""
        slot = self.slots[role]
        if slot.absent and not (self.legacy and role == "inference"):
            return None
        return split_words(slot.value, slot)

    def by_mode(self, role: str) -> Words:
        """Return the argument of a slot that holds a list of ``mode=value``."""
        slot = self.slots[role]
        if slot.absent or slot.key in NOTHING:
            return ()
        values: dict[str, str] = {}
        for part in slot.values:
            name, _, value = part.partition("=")
            if self.legacy:
                value = value.split("=")[0]
            elif name not in MODE_NAMES:
                hint = did_you_mean(name, MODE_NAMES)
                self.complain(slot, f"unknown mode {name!r}", expected=", ".join(MODE_NAMES), hint=hint)
            elif name in values:
                self.complain(
                    slot, f"has two values for {name}", expected="one value for each mode", hint=None
                )
            values.setdefault(name, value)
        return flag(slot, self._mode_value(slot, values))

    def _mode_value(self, slot: Slot, values: Mapping[str, str]) -> str:
        name, lite = self.mode.value, Mode.LITE_TRAIN_LITE_INFER.value
        if self.legacy or values.get(name):
            return values.get(name, "")
        if self.mode is Mode.LITE_TRAIN_WHOLE_INFER and lite in values:
            self.note(slot, f"has no value for {name}; the one for {lite} is used: {values[lite]}")
            return values[lite]
        self.note(
            slot, f"has no value for {name}; the argument is left out, so the program's own default holds"
        )
        return ""

    def boolean(self, slot: Slot, values: tuple[str, ...], also: tuple[str, ...] = ()) -> None:
        allowed = (*BOOLEANS, *also)
        for value in values:
            if value not in allowed:
                close = next((name for name in allowed if name.lower() == value.lower()), None)
                hint = f"did you mean {close!r}?" if close else did_you_mean(value, allowed)
                self.complain(
                    slot, f"{value!r} is neither True nor False", expected="|".join(allowed), hint=hint
                )

    # Devices

    def legs(self) -> tuple[Leg, ...]:
        slot = self.slots["gpu_list"]
        legs = [self._leg(slot, index, text) for index, text in enumerate(slot.values)]
        if len(self.distinct(slot)) < len(legs):
            legs = [leg for index, leg in enumerate(legs) if slot.values.index(slot.values[index]) == index]
        if not legs:
            self.note(slot, "is an empty list, so nothing is trained")
        return tuple(legs)

    def _leg(self, slot: Slot, index: int, text: str) -> Leg:
        gpus, hosts = (self._legacy_device if self.legacy else self._device)(slot, text)
        shown = text.rpartition(";")[2]
        several = len(shown) > 2 if self.legacy else len(gpus) > 1 or bool(hosts)
        launch: list[str] = []
        if several:
            launch += ["-m", "paddle.distributed.launch"]
            launch += [f"--ips={','.join(hosts)}"] if hosts else []
            launch.append(f"--gpus={shown}")
        first = gpus[0] if gpus else None
        all_gpus = ",".join(gpus) if gpus else None
        # The originals tell hosts by the length of the text, and export nothing for them.
        hostless = None if self.legacy and len(text) > 15 and not self.suite.cvd_before_eval else first
        return Leg(
            text=shown,
            gpus=gpus,
            hosts=hosts,
            use_gpu=self._use_gpu(index),
            launch=tuple(launch),
            visible_train=None if self.legacy else all_gpus,
            visible_eval=hostless if not self.legacy or self.suite.cvd_before_eval else None,
            visible_infer=hostless,
        )

    def _legacy_device(self, slot: Slot, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Recognise hosts by the length of the text, as the original does."""
        del slot
        if text == "-1":
            return (), ()
        addresses, semicolon, gpus = text.rpartition(";")
        hosts = addresses.split(",") if semicolon and len(addresses) >= self.suite.hosts_from else []
        return tuple(gpus.split(",")), tuple(hosts)

    def _device(self, slot: Slot, text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if text == "-1":
            return (), ()
        addresses, semicolon, gpus = text.rpartition(";")
        host = r"[A-Za-z0-9](?:[A-Za-z0-9.:-]*[A-Za-z0-9])?"
        if not re.fullmatch(r"\d+(,\d+)*", gpus) or (
            semicolon and not re.fullmatch(rf"{host}(,{host})*", addresses)
        ):
            raise slot.error(f"{text!r} names no device", expected="-1, 0, 0,1 or host1,host2;0,1")
        return tuple(gpus.split(",")), tuple(addresses.split(",")) if semicolon else ()

    def _use_gpu(self, index: int) -> Words:
        if not self.suite.uses_gpu_flag:
            return ()
        slot = self.slots["use_gpu"]
        values = slot.values
        if index < len(values):
            return flag(slot, values[index])
        if self.legacy or not values or slot.absent or slot.key in NOTHING:
            return ()
        self.note(slot, f"has fewer values than gpu_list; the last one, {values[-1]}, is repeated")
        return flag(slot, values[-1])

    def autocasts(self) -> tuple[str, ...]:
        if "autocast" not in self.slots:
            return ("null",)
        slot = self.slots["autocast"]
        for value in slot.values:
            if value not in AUTOCASTS and slot.key not in NOTHING:
                hint = did_you_mean(value, AUTOCASTS)
                self.complain(slot, f"unknown precision {value!r}", expected="|".join(AUTOCASTS), hint=hint)
        if not slot.values:
            self.note(slot, "is an empty list, so nothing is trained")
        if slot.key in NOTHING and not self.legacy:
            return slot.values and ("null",)
        for value in slot.values:
            self.folder_name(slot, value)
        return self.distinct(slot)

    # Training

    def trainers(self) -> tuple[Trainer, ...]:
        slot = self.slots["trainer"]
        kinds = [kind for kind in TRAINERS if f"train_{kind}" in self.slots]
        found = [self._trainer(slot, name, kinds) for name in self.distinct(slot)]
        trainers = tuple(trainer for trainer in found if trainer is not None)
        if not slot.values:
            self.note(slot, "is an empty list, so nothing is trained")
        self._check_model_name(trainers)
        return trainers

    def _check_model_name(self, trainers: tuple[Trainer, ...]) -> None:
        """Refuse a missing train_model_name where evaluation or export would need the file."""
        slot = self.slots["train_model_name"]
        used = not self.slots["eval"].absent or any(trainer.export for trainer in trainers)
        if slot.absent and trainers and used and not self.legacy:
            raise slot.error(
                "is needed to evaluate and export what was trained",
                expected="the file that training leaves in its output folder",
            )

    def _trainer(self, slot: Slot, name: str, kinds: list[str]) -> Trainer | None:
        known = {self.slots[f"train_{kind}"].key: kind for kind in reversed(kinds)}
        known.pop("null", None)
        if self.suite.amp_trainer:
            known.setdefault(self.suite.amp_trainer, "norm")
        if name not in known:
            hint = did_you_mean(name, known)
            self.complain(slot, f"unknown trainer {name!r}", expected=", ".join(known), hint=hint)
        self.folder_name(slot, name)
        kind = known.get(name, "norm")
        command = self.slots[f"train_{kind}"]
        if command.value.strip() == "null" or (command.absent and not self.legacy):
            self.note(command, f"is null, so the trainer {name} is skipped")
            return None
        return Trainer(
            name=name, kind=kind, train=split_words(command.value, command), export=self._export(kind)
        )

    def _export(self, kind: str) -> Words | None:
        slot = self.slots[f"export_{kind}"]
        return None if slot.absent else split_words(slot.value, slot)

    def train_flags(self) -> Mapping[str, Words]:
        flags = {"epoch": self.by_mode("epoch"), "batch": self.by_mode("batch")}
        return {**flags, "pretrained": self.plain("pretrained"), "extra_train": self.plain("extra_train")}

    # Inference

    def models(self) -> tuple[InferModel, ...]:
        slot, exports = self.slots["infer_model"], self.slots["infer_export"]
        quants = self.slots.get("infer_quant")
        quant_values = quants.values if quants else ()
        if quants and not self.legacy:
            self.boolean(quants, () if quants.absent else quant_values)
        models = []
        for index, path in enumerate(slot.values):
            if path in NOTHING and not self.legacy:
                continue
            if index >= len(exports.values) and not self.legacy:
                self.note(
                    exports, f"has no entry for the model {path}, which is therefore inferred with as it is"
                )
            text = exports.values[index] if index < len(exports.values) else ""
            export = None if text == "null" or (not self.legacy and not text) else split_words(text, exports)
            models.append(
                InferModel(
                    path=path, export=export, quant=quant_values[index] if index < len(quant_values) else ""
                )
            )
        if not models:
            self.note(slot, "names no model, so whole_infer has nothing to infer with")
        return tuple(models)

    def axes(self) -> Mapping[str, Axis]:
        roles = {"device", *(role for axes in self.suite.axes.values() for role in axes)}
        return {role: self._axis(role) for role in sorted(roles)}

    def _axis(self, role: str) -> Axis:
        slot = self.slots[role]
        values = slot.values
        absent = slot.key in NOTHING or slot.absent
        if not self.legacy and role in ("device", "mkldnn", "trt") and not absent:
            self.boolean(slot, values, ("cpu", "gpu") if role == "device" else ())
        if not self.legacy and slot.key not in NOTHING and not values:
            self.note(slot, "is an empty list, so nothing is inferred")
        return Axis(slot=slot, values=values)

    def infer_flags(self) -> Mapping[str, Words]:
        roles = self.suite.data_after_training
        first = next((role for role in roles if not self.slots[role].absent), "")
        if self.legacy:
            first = next(iter(self.suite.legacy_data_after_training), "")
        image = self.slots["infer_data"]
        return {
            "data": flag(image),
            "data_after_training": flag(image, self.slots[first].value) if first else (),
            "benchmark": self.plain("benchmark"),
            "extra_infer": self.plain("extra_infer"),
            "save_log": () if self.legacy else self.plain("save_log"),
        }
