"""Read slots: models of the modes without training, and the inference product."""

from __future__ import annotations

from collections.abc import Mapping

from tipchain.chain.reading import SlotReader
from tipchain.chain.spec import Axis, InferModel
from tipchain.chain.words import NOTHING, Words, flag, split_words
from tipchain.errors import did_you_mean
from tipchain.modes import Mode

OTHER_DEVICES = ("npu", "xpu", "mlu", "gcu", "ipu")


class InferenceReader(SlotReader):
    """Reads what inference asks for."""

    def models(self) -> tuple[InferModel, ...]:
        """Return what the modes without training infer with."""
        whole = self.suite.whole
        klquant = self.mode is Mode.KLQUANT_WHOLE_INFER
        slot = self.slots["infer_model"]
        if klquant and self.suite.klquant_trains:
            self.tell(
                "closed-modes", slot, f"the original does not know {self.mode.value} and trains", "info"
            )
        if klquant and not self.suite.klquant:
            self.tell("nothing-planned", slot, f"the suite {self.suite.name} has no {self.mode.value}")
            return ()
        style = {"models": self._listed, "kinds": self._kinds, "quantize": self._quantized}[whole.style]
        before = len(self.findings)
        models = style()
        if not models and all(one.code != "nothing-planned" for one in self.findings[before:]):
            self.tell(
                "nothing-planned", slot, f"names no model, so {self.mode.value} has nothing to infer with"
            )
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
            if path == "null" and self.suite.whole.unset:
                continue  # the one original that looks
            if path in NOTHING and self.on("null"):
                self.tell("null", slot, "null is no model; the original exports it without weights", "info")
                continue
            if index >= len(texts) and self.on("null"):
                self.tell(
                    "default", exports, f"has no entry for the model {path}, which is inferred with as it is"
                )
            text = texts[index] if index < len(texts) else ""
            export = None if text in NOTHING else split_words(text, exports)
            quant = quants[index] if index < len(quants) else ""
            if self.mode is Mode.KLQUANT_WHOLE_INFER and self.on("kl-index"):
                if quant != "True":
                    self.tell(
                        "kl-index",
                        slot,
                        f"{path} is quantized here; the original takes infer_quant's word for it",
                        "info",
                    )
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
                if klquant and not self.on("typos"):
                    continue  # the original looks for what is its own here first
                if not self.on("typos"):
                    break  # the original ends there
                hint = did_you_mean(name, whole.kinds)
                self.complain(slot, f"unknown model {name!r}", expected=", ".join(whole.kinds), hint=hint)
                continue
            if (name in whole.klquant_kinds) != klquant:
                continue
            place = index if self.on("kl-index") else len(models)
            if quants[index : index + 1] != quants[len(models) : len(models) + 1]:
                self.tell(
                    "kl-index", slot, f"{name} gets quant flag {index + 1}, the original's is {len(models) + 1}",
                    "info",
                )  # fmt: skip
            export = self.slots[whole.kinds[name]]
            if export.absent and self.on("null"):
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
                "nothing-planned", command,
                f"is {command.value or 'empty'}; without training {self.suite.title} does nothing else",
            )  # fmt: skip
            return ()
        path = self.slots["infer_model"].value
        return (InferModel(path=path, export=self.split(command), quant="True"),)

    def axes(self) -> Mapping[str, Axis]:
        """Return the inference axes by role."""
        rules = self.suite.infer.rules.values()
        fixed = self.on("inference-flags")
        roles = {role for rule in rules for role in (*rule.axes, *(rule.fixed_axes if fixed else ()))}
        return {role: self._axis(role) for role in sorted({"device", *roles})}

    def _axis(self, role: str) -> Axis:
        slot = self.slots[role]
        values = self.list_of(slot)
        absent = slot.key in NOTHING or slot.absent
        if role in ("device", "mkldnn", "trt") and not absent:
            self.boolean(slot, values, ("cpu", "gpu", *OTHER_DEVICES) if role == "device" else ())
        if slot.key not in NOTHING and not values:
            self.tell("nothing-planned", slot, "is an empty list, so nothing is inferred")
        if self.on("null") and (slot.key in NOTHING or slot.value == "null") and values != ("null",):
            return Axis(slot=slot, values=("null",), replaced=True)
        return Axis(slot=slot, values=values)

    def data_after_training(self) -> Words:
        """Return the argument with the data for inference after training."""
        image, infer = self.slots["infer_data"], self.suite.infer
        chosen = self.slots.get(infer.data)
        if infer.data_else and self.on("inference-flags") and (chosen is None or chosen.absent):
            chosen = self.slots.get(infer.data_else)
        return () if chosen is None else flag(image, chosen.value, fixes=self.fixes)
