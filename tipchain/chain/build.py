"""From slots to a ChainSpec.

This is where the default behaviour and the original drivers' differ in how values are read; each difference
has a name in ``fixes`` and leaves a finding where it matters.
"""

from __future__ import annotations

from tipchain.chain.fixes import ALL, NONE
from tipchain.chain.layout import read_slots
from tipchain.chain.params import ParamFile
from tipchain.chain.reading_inference import InferenceReader
from tipchain.chain.reading_training import TrainingReader
from tipchain.chain.slots import Alignment, Slots, alignment_params, cut_slots, legacy_slots
from tipchain.chain.spec import ChainSpec
from tipchain.chain.suites import Suite
from tipchain.chain.words import Slot, Words, plain_list, split_words
from tipchain.errors import ParamsError
from tipchain.modes import Mode

# Slots whose values become a part of a word, of a path mostly.
AS_THEY_STAND = frozenset(
    ("train_model_name", "inference_dir", "infer_model", "model_dir", "extra_infer", "config", "export_save")
)


def _is_plain(value: str, slot: Slot) -> bool:
    """Return whether ``value`` is the same word to a shell."""
    try:
        return split_words(value, slot) in ((value,), ())
    except ParamsError:
        return False


def _has_blanks(other: Slot, cut: Slot, *, program: bool) -> bool:
    """Return whether blanks around the original's value ``other``, ours ``cut``, make a difference to it."""
    if cut.absent:
        return other.value != cut.value
    if program:  # a shell splits these; to it no other blank is one
        return other.value.strip(" \t") != cut.value.strip(" \t")
    return plain_list(other.value) != cut.values


def build_spec(
    file: ParamFile, suite: Suite, mode: Mode, *, lenient: bool = False, text: str | None = None,
    fixes: frozenset[str] = ALL,
) -> ChainSpec:  # fmt: skip
    """Return what ``file`` asks for in ``mode``.

    Args:
        file: the parsed file.
        suite: the profile to read it with.
        mode: the mode.
        lenient: turn unknown trainers and mistyped booleans into notes.
        text: the file's text, for findings on where the original reads other lines or values.
        fixes: the fixes in force.

    Raises:
        ParamsError: the file does not fit the suite's layout, or a value is impossible.
    """
    if "sections" in fixes or text is None:
        slots = read_slots(file, suite)
    else:
        slots = legacy_slots(text, file.path, suite, whole=True)
    if "whole-value" not in fixes:
        slots = cut_slots(slots, suite)
    reader = SpecReader(slots, suite, mode, fixes=fixes, lenient=lenient)
    if text is not None:
        reader.compare(legacy_slots(text, file.path, suite))
    return reader.spec(alignment_params(file))


def legacy_spec(text: str, path: str, suite: Suite, mode: Mode) -> ChainSpec:
    """Return what the original driver reads out of ``text``, defects included."""
    slots = legacy_slots(text, path, suite)
    return SpecReader(slots, suite, mode, fixes=NONE, lenient=True).spec(None)


class SpecReader(TrainingReader, InferenceReader):
    """Reads a file's slots into a ChainSpec."""

    def spec(self, alignment: Alignment | None) -> ChainSpec:
        """Return the ChainSpec.

        Raises:
            ParamsError: a value is impossible.
        """
        trains = self.suite.trains(self.mode, self.fixes)
        self.quants()
        if not self.slots["inference"].line:
            message = "the file ends after the evaluation's section, so nothing is exported or inferred"
            self.tell("default", self.slots["inference"], message)
        by_mode = (
            {role: self.by_mode(role) for role in self.slots if role in self.suite.mode_lists}
            if trains
            else self.whole_config()
        )
        return ChainSpec(
            suite=self.suite,
            fixes=self.fixes,
            mode=self.mode,
            model=self.model_name(),
            python=self.python(),
            legs=self.legs(),
            autocasts=self.autocasts(),
            trainers=self.trainers() if trains else (),
            by_mode=by_mode,
            flags={role: self.mode_flag(role, value) for role, value in by_mode.items()},
            name=by_mode.get("train_model_name", self.slots["train_model_name"].value),
            eval=self.program("eval"),
            models=() if trains else self.models(),
            inference=self.program("inference"),
            axes=self.axes(),
            data_after_training=self.data_after_training(),
            slots=self.slots,
            alignment=alignment,
            findings=tuple(self.findings),
        )

    def compare(self, original: Slots) -> None:
        """Tell where the original driver would read another line or value."""
        axes, programs = self.suite.named_axes, self.suite.programs
        for role, cut in cut_slots(self.slots, self.suite).items():
            slot, other = self.slots[role], original.get(role)
            self._compare_words(slot, axes)
            if other is None or role in self.suite.unread or (not other.line and not slot.line):
                continue
            if other.line != slot.line:
                message = f"the original reads line {other.line} here: it counts lines"
                self.tell("sections", slot, message, "info")
            elif other.key != cut.key or _has_blanks(other, cut, program=role in programs):
                self.tell("sections", slot, "the original takes blanks for part of a name", "info")
            if cut.key != slot.key:
                self.tell("whole-value", slot, f"the original's echo eats the key {slot.key!r}", "info")
            elif cut.value.strip() != slot.value:
                message = f"the original cuts the value to {cut.value.strip()!r}"
                self.tell("whole-value", slot, message, "info")
        trainers = {rule.key for rule in self.suite.trainers}
        for role, other in original.items():
            used = other.key in self.slots["trainer"].values if role in trainers else not other.absent
            if role not in self.slots and used and role not in self.suite.unread:
                self.tell("sections", other, "is no line of the layout; the original reads it as one", "info")

    def _compare_words(self, slot: Slot, axes: frozenset[str]) -> None:
        """Tell where the original's shell would make other words of a value."""
        if not slot.key:
            self.tell("null", slot, "has no key and is left out; the original passes '=' and a value", "info")
        lists = ("config", "train_model_name") if slot.role in self.suite.mode_lists else ()
        lists = lists if self.suite.whole.style == "quantize" else (*lists, "infer_model")
        values = slot.values if slot.role in (*lists, *axes) else (slot.value,)
        named = slot.role in AS_THEY_STAND or slot.role in axes
        if named and not all(_is_plain(value, slot) for value in values):
            self.tell("no-shell", slot, "is taken as it stands; the original hands it to a shell", "info")

    def model_name(self) -> str:
        """Return the model's name, which becomes a folder's."""
        slot = self.slots["model_name"]
        self.folder_name(slot, slot.value)
        return slot.value

    def python(self) -> Words:
        """Return the interpreter's words."""
        words = self.split(self.slots["python"])
        if self.on("null") and (not words or words == ("null",)):
            raise self.slots["python"].error("names no interpreter", expected="python:python")
        return words
