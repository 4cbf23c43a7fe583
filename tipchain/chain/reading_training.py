"""Read slots: devices, precisions and trainers."""

from __future__ import annotations

from tipchain.chain.gpus import original_leg, parsed_leg
from tipchain.chain.reading import SlotReader
from tipchain.chain.spec import AMP, Leg, Trainer
from tipchain.chain.suites import TrainerRule
from tipchain.chain.words import NOTHING, Slot, Words, flag
from tipchain.errors import did_you_mean

AUTOCASTS = (*AMP, "fp32", "null", "False")


class TrainingReader(SlotReader):
    """Reads what training asks for."""

    def legs(self) -> tuple[Leg, ...]:
        """Return the entries of the gpu list."""
        slot = self.slots["gpu_list"]
        values = self.list_of(slot)
        legs = [self._leg(slot, index, text) for index, text in enumerate(values)]
        if len(self.distinct(slot)) < len(legs):
            legs = [leg for index, leg in enumerate(legs) if values.index(values[index]) == index]
        if not legs and self.mode.trains:
            self.tell("nothing-planned", slot, "is an empty list, so nothing is trained")
        return tuple(legs)

    def _leg(self, slot: Slot, index: int, text: str) -> Leg:
        use_gpu = self._use_gpu(index, text)
        original = original_leg(text, use_gpu, self.suite)
        if not self.on("devices"):
            return original
        leg = parsed_leg(slot, text, use_gpu, self.suite)
        differs = (leg.text, leg.nodes, leg.launched) != (original.text, original.nodes, original.launched)
        if differs and self.mode.trains:
            self.tell(
                "devices", slot,
                f"{text!r} is {len(leg.gpus)} GPUs on {leg.nodes} hosts; the original, which counts characters, takes "
                f"it for {original.nodes}", "info",
            )  # fmt: skip
        return leg

    def _use_gpu(self, index: int, text: str) -> Words:
        kind = self.suite.devices.parameter
        slot = self.slots.get("use_gpu")
        if kind == "none" or slot is None:
            return ()
        values = self.list_of(slot)
        if kind == "value":
            return flag(slot, "False" if text == "-1" else slot.value, fixes=self.fixes)
        if kind == "whole" and (len(values) < 2 or not self.on("device-per-leg")):
            return flag(slot, fixes=self.fixes)
        if kind == "whole" and self.mode.trains:
            message = "gives each entry of gpu_list a value; the original gives all of them to each"
            self.tell("device-per-leg", slot, message, "info")
        if index < len(values):
            return flag(slot, values[index], fixes=self.fixes)
        if not self.on("device-per-leg") or not values or slot.absent or slot.key in NOTHING:
            return ()
        if self.mode.trains:
            self.tell(
                "device-per-leg",
                slot,
                f"has fewer values than gpu_list; the last one, {values[-1]}, is repeated",
                "info",
            )
        return flag(slot, values[-1], fixes=self.fixes)

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
            self.tell("nothing-planned", slot, "is an empty list, so nothing is trained")
        for value in values:
            self.folder_name(slot, value)
        return self.distinct(slot)

    def trainers(self) -> tuple[Trainer, ...]:
        """Return the trainers, without those that are skipped."""
        slot = self.slots["trainer"]
        found = [self._trainer(slot, name) for name in self.distinct(slot)]
        trainers = tuple(trainer for trainer in found if trainer is not None)
        if not slot.values:
            self.tell("nothing-planned", slot, "is an empty list, so nothing is trained")
        self._check_model_name(trainers)
        return trainers

    def _check_model_name(self, trainers: tuple[Trainer, ...]) -> None:
        """Refuse a missing train_model_name where evaluation or export would need the file."""
        slot = self.slots["train_model_name"]
        used = not self.slots["eval"].absent or any(trainer.export for trainer in trainers)
        if not self.on("null"):
            return
        if "{name}" in self.suite.weights and slot.absent and trainers and used:
            raise slot.error(
                "is needed to evaluate and export what was trained",
                expected="the file that training leaves in its output folder",
            )
        if slot.value.startswith(("/", "~")) or ".." in slot.value.split("/"):
            raise slot.error("leaves the training's output folder", expected="a name below that folder")

    def _rule(self, slot: Slot, name: str) -> TrainerRule | None:
        """Return the rule of the trainer called ``name``; None to skip it."""
        for rule in self.suite.trainers:
            own = self.slots.get(rule.key)
            if own is not None and own.key == name and (name not in NOTHING or not self.on("typos")):
                return rule
        norm = next(rule for rule in self.suite.trainers if rule.kind == "norm")
        if name and name == self.suite.amp_trainer:
            return norm
        if self.on("typos") and (alias := next((r for r in self.suite.trainers if r.kind == name), None)):
            self.tell("typos", slot, f"{name!r} is taken for {self.slots[alias.key].key!r}", "info")
            return alias
        known = [self.slots[rule.key].key for rule in self.suite.trainers if rule.key in self.slots]
        known = [key for key in known if key not in NOTHING]
        self.complain(
            slot, f"unknown trainer {name!r}", expected=", ".join(known), hint=did_you_mean(name, known)
        )
        return norm if self.suite.unknown_trainer == "norm" else None

    def _trainer(self, slot: Slot, name: str) -> Trainer | None:
        if name in NOTHING and self.on("null"):
            rules = (rule for rule in self.suite.trainers if rule.key in self.slots)
            rule = next((rule for rule in rules if self.slots[rule.key].key == name), None)
            trains = (
                self.slots[rule.command[0]].value != "null" if rule else self.suite.unknown_trainer == "norm"
            )
            code = "null" if trains else "nothing-planned"  # the original trains nothing either
            self.tell(code, slot, "names no trainer, so nothing is trained")
            return None
        rule = self._rule(slot, name)
        if rule is None:
            self.tell("nothing-planned", slot, f"the trainer {name} is skipped, as the original does")
            return None
        self.folder_name(slot, name)
        command, *more = (self.slots[role] for role in rule.command if role in self.slots)
        if command.value == "null" and (self.on("null") or not more):
            self.tell("nothing-planned", command, f"is null, so the trainer {name} is skipped")
            if more:
                self.tell(
                    "null", command, "is run by the original all the same, as it adds words to it", "info"
                )
            return None
        if command.absent and self.on("null"):
            message = f"is empty, so the trainer {name} is skipped; the original runs python alone"
            self.tell("null", command, message)
            return None
        for part in tuple(more) if self.on("null") else ():
            if part.absent and part.value:
                more.remove(part)
                self.tell(
                    "null", part, "adds nothing to the training; the original hands it this word", "info"
                )
        words = [word for part in (command, *more) for word in self.split(part)]
        quant = "train_pact" in self.slots and self.slots["train_pact"].key == name
        return Trainer(name=name, kind=rule.kind, quant=quant, train=tuple(words), export=self._export(rule))

    def _export(self, rule: TrainerRule) -> Words | None:
        slot = self.slots.get(rule.export)
        return None if slot is None or slot.absent or self._broken_test(slot) else self.split(slot)
