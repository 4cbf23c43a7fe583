"""What a parameter file asks for in one mode, with no string left to split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tipchain.chain.fixes import LintFinding
from tipchain.chain.params import Slot, Words
from tipchain.chain.slots import AlignmentParams, Slots
from tipchain.chain.suites import Suite
from tipchain.modes import Mode

AMP = ("amp", "fp16", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One entry of the gpu list.

    Attributes:
        text: the GPUs as they stand in the file, for names.
        gpus: their numbers; empty on the CPU.
        hosts: the addresses of several hosts, else empty.
        nodes: number of hosts.
        launched: whether training has a process for each GPU.
        multi_host: whether training is launched on several hosts.
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

    @property
    def on_gpu(self) -> bool:
        """Whether the leg needs a GPU."""
        return bool(self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """One way of training.

    Attributes:
        name: as the file's list has it.
        kind: ``norm``, ``pact``, ``fpgm``, ``distill``, ``x1``, ``x2`` or ``to_static``.
        quant: whether the trained model is quantized.
        train: the program.
        export: the export program, None where there is nothing to export.
    """

    name: str
    kind: str
    quant: bool
    train: Words
    export: Words | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferModel:
    """A model of the modes without training: a weight file with its export, or a folder that needs none (None)."""

    path: str
    export: Words | None
    quant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of the inference product; ``replaced`` where the original goes through other values, without a key."""

    slot: Slot
    values: tuple[str, ...]
    replaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSpec:
    """A parameter file in one mode.

    Attributes:
        suite: the profile it was read with.
        fixes: the defects of the original that are fixed; none for its own commands.
        mode: the mode.
        model: the model's name.
        python: the interpreter's words.
        legs: the entries of the gpu list.
        autocasts: values of the autocast axis.
        trainers: what to train with.
        by_mode: the mode's value of each list of ``mode=value``, by role; "" for none.
        flags: words of the arguments that do not depend on the run, by role.
        name: the name of the model file that training leaves.
        eval: the evaluation program, None for none.
        models: the models of the modes without training.
        inference: the inference program, None for none.
        axes: the inference axes by role.
        data_after_training: words of the data for inference after training.
        slots: the slots, for arguments whose values arise in the run.
        alignment: the alignment steps, None for none.
        findings: what is to be said about the file.
    """

    suite: Suite
    fixes: frozenset[str]
    mode: Mode
    model: str
    python: Words
    legs: tuple[Leg, ...]
    autocasts: tuple[str, ...]
    trainers: tuple[TrainerSpec, ...]
    by_mode: Mapping[str, str]
    flags: Mapping[str, Words]
    name: str
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
        return self.suite.trains(self.mode, self.fixes)

    @property
    def legacy(self) -> bool:
        """Whether these are the original's own commands."""
        return not self.fixes
