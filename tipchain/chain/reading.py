"""Read slots: what all parts share, from findings to lists of ``mode=value``."""

from __future__ import annotations

from collections.abc import Mapping

from tipchain.chain.fixes import ALL, Finding
from tipchain.chain.slots import Slots
from tipchain.chain.suites import Suite
from tipchain.chain.words import Slot, Words, check_folder_name, flag, plain_list, split_words
from tipchain.errors import did_you_mean
from tipchain.modes import CHAIN_MODES, Mode

BOOLEANS = ("True", "False")
# Modes of other drivers, which may have an entry in a mode list.
OTHER_MODES = ("benchmark_train", "whole_train_lite_infer", "lite_infer")
MODE_NAMES = (*(mode.value for mode in CHAIN_MODES), *OTHER_MODES)
LITE = Mode.LITE_TRAIN_LITE_INFER.value


class SlotReader:
    """Reads slots into a ChainSpec and collects findings on the way.

    Args:
        slots: the file's slots.
        suite: the profile.
        mode: the mode.
        fixes: the fixes in force.
        lenient: take errors that only mistype a value for warnings.
        collect: go on after errors, which become findings (for ``lint``).
    """

    def __init__(
        self, slots: Slots, suite: Suite, mode: Mode, *, fixes: frozenset[str] = ALL, lenient: bool = False,
        collect: bool = False,
    ) -> None:  # fmt: skip
        self.slots, self.suite, self.mode, self.fixes = slots, suite, mode, fixes
        self.lenient, self.collect = lenient, collect
        self.findings: list[Finding] = []

    def on(self, fix: str) -> bool:
        """Return whether ``fix`` is in force."""
        return fix in self.fixes

    def tell(self, code: str, slot: Slot, message: str, severity: str = "warning") -> None:
        """Add a finding, once."""
        finding = Finding(
            code=code, severity=severity, file=slot.file, line=slot.line, key=slot.key, message=message
        )
        if self.fixes and finding not in self.findings:
            self.findings.append(finding)

    def complain(
        self, slot: Slot, message: str, *, expected: str, hint: str | None, code: str = "typos",
        used: bool = True,
    ) -> None:  # fmt: skip
        """Refuse a mistyped value, or tell of it where the user wants that or where the mode does not read it."""
        if not self.on("typos"):
            return
        ignored = slot.role in self.suite.unread or not used
        if not (self.lenient or self.collect or ignored):
            raise slot.error(message, expected=expected, hint=hint)
        severity = "info" if ignored else "error" if self.collect else "warning"
        unread = f" ({self.suite.title} itself never reads it)" if slot.role in self.suite.unread else ""
        advice = f"; {hint}" if hint else f"; expected {expected}"
        self.tell(code, slot, f"{message}{unread}{advice}", severity)

    def folder_name(self, slot: Slot, name: str) -> None:
        """Refuse a name that would leave its folder or be taken for an option."""
        if self.on("no-shell"):
            check_folder_name(slot, name)

    def list_of(self, slot: Slot) -> tuple[str, ...]:
        """Return the elements of a slot's list."""
        return slot.values if self.on("sections") else plain_list(slot.value)

    def distinct(self, slot: Slot) -> tuple[str, ...]:
        """Return the slot's values without repeats, which would do the same thing twice."""
        values = self.list_of(slot)
        once = tuple(dict.fromkeys(values))
        if not self.on("inference-flags") or len(once) == len(values):
            return values
        self.tell("inference-flags", slot, "has an entry twice; it is planned once")
        return once

    def split(self, slot: Slot) -> Words:
        """Return a slot's value as words."""
        return split_words(slot.value, slot, pipes=self.suite.pipes and not self.on("no-shell"))

    def boolean(
        self, slot: Slot, values: tuple[str, ...], also: tuple[str, ...] = (), *, used: bool = True
    ) -> None:
        """Complain of values that are neither ``True`` nor ``False`` nor one of ``also``."""
        allowed = (*BOOLEANS, *also)
        for value in values:
            if value not in allowed:
                close = next((name for name in allowed if name.lower() == value.lower()), None)
                hint = f"did you mean {close!r}?" if close else did_you_mean(value, allowed)
                self.complain(
                    slot,
                    f"{value!r} is neither True nor False",
                    expected="|".join(allowed),
                    hint=hint,
                    used=used,
                )

    def _broken_test(self, slot: Slot) -> bool:
        """Return whether the original skips a program for its ``|``, at which its unquoted test fails."""
        return not self.on("no-shell") and len(plain_list(slot.value)) > 1

    def program(self, role: str) -> Words | None:
        """Return a program's words; None for ``null`` (the originals run a null inference all the same)."""
        slot = self.slots[role]
        if role == "eval" and self._broken_test(slot):
            return None
        if not slot.absent or (role == "inference" and not self.on("null")):
            return self.split(slot)
        if role == "inference":
            self.tell(
                "null", slot, "is null, so nothing is inferred; the original runs `python null`", "info"
            )
        return None

    def by_mode(self, role: str) -> str:
        """Return the mode's value in a slot that holds a list of ``mode=value``, "" for none."""
        slot = self.slots[role]
        if role == "epoch" and self.suite.fixed_epoch and not self.on("clas-epochs"):
            return self.suite.fixed_epoch
        absent, fixed = slot.absent or slot.key == "null", self.suite.fixed_epoch
        value = "" if absent else self._mode_value(slot, self.entries(slot))
        if role == "epoch" and fixed and value != fixed and slot.key != "null":
            found = f"{self.mode.value} trains {value or 'as long as the program itself says'}"
            self.tell("clas-epochs", slot, f"{found}; the original always {fixed}", "info")
        return value

    def whole_config(self) -> Mapping[str, str]:
        """Return the configuration for an export without training: this mode's, else that of the whole data."""
        slot = self.slots.get("config")
        if (
            slot is None
            or slot.absent
            or "config" not in self.suite.mode_lists
            or not self.on("panoptic-vars")
        ):
            return {}
        values = self.entries(slot)
        names = (self.mode.value, Mode.WHOLE_TRAIN_WHOLE_INFER.value, *values)
        return {"config": next((values[name] for name in names if values.get(name)), "")}

    def entries(self, slot: Slot) -> Mapping[str, str]:
        """Return the entries of a list of ``mode=value``."""
        values: dict[str, str] = {}
        for part in self.list_of(slot):
            name, _, value = part.partition("=")
            if not self.on("whole-value"):
                value = value.split("=")[0]
            elif "=" in value:
                self.tell("whole-value", slot, f"the original cuts {value!r} at the '='", "info")
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
                self.complain(
                    slot, f"has two values for {name}", expected="one value for each mode", hint=None
                )
            values.setdefault(name, value)
        return values

    def _mode_value(self, slot: Slot, values: Mapping[str, str]) -> str:
        name = self.mode.value
        if values.get(name) or not self.fixes:
            return values.get(name, "")
        if self.mode is Mode.LITE_TRAIN_WHOLE_INFER and values.get(LITE) and self.on("mode-fallback"):
            self.tell(
                "mode-fallback", slot, f"has no value for {name}; the one for {LITE} is used: {values[LITE]}"
            )
            return values[LITE]
        self.tell(
            "default", slot,
            f"has no value for {name}; the argument is left out, so the program's own default holds",
        )  # fmt: skip
        return ""

    def mode_flag(self, role: str, value: str) -> Words:
        """Return the argument of a slot with the mode's value."""
        return flag(self.slots[role], value, fixes=self.fixes)
