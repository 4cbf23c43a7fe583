"""What a parameter file asks for in one mode, with no string left to split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tipchain.chain.slots import Alignment, Slots
from tipchain.chain.suites import Suite
from tipchain.chain.words import Slot, Words
from tipchain.modes import Mode

AMP = ("amp", "fp16", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One entry of the gpu list.

    Attributes:
        text: the GPUs as they stand in the file, for names.
        gpus: their numbers; empty on the CPU.
        hosts: the addresses of several hosts, else empty.
        use_gpu: words that hand the device to training and evaluation.
        launch: words between the interpreter and the training program.
        visible_train: CUDA_VISIBLE_DEVICES for training, None to leave it alone.
        visible_eval: the same for evaluation and export.
        visible_infer: the same for inference.
    """

    text: str
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    use_gpu: Words
    launch: Words
    visible_train: str | None
    visible_eval: str | None
    visible_infer: str | None

    @property
    def nodes(self) -> int:
        """Number of hosts."""
        return max(len(self.hosts), 1)

    @property
    def on_gpu(self) -> bool:
        """Whether the leg needs a GPU."""
        return bool(self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One way of training: ``kind`` is ``norm``, ``pact``, ...; export is None where there is nothing to export."""

    name: str
    kind: str
    train: Words
    export: Words | None

    @property
    def quant(self) -> bool:
        """Whether the trained model is quantized."""
        return self.kind == "pact"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferModel:
    """A model for whole_infer: a weight file with its export, or a folder that needs none (export None)."""

    path: str
    export: Words | None
    quant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of the inference product."""

    slot: Slot
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSpec:
    """A parameter file in one mode.

    Attributes:
        suite: the profile it was read with.
        legacy: whether the original's defects are kept.
        mode: the mode.
        model: the model's name.
        python: the interpreter's words.
        legs: the entries of the gpu list.
        autocasts: values of the autocast axis.
        trainers: what to train with.
        train_flags: words of the training arguments that do not depend on the run, by role.
        eval: the evaluation program, None for none.
        extra_eval: words added to it.
        models: the models of whole_infer.
        inference: the inference program, None for none.
        axes: the inference axes by role.
        infer_flags: words of the other inference arguments, by role.
        slots: the slots, for arguments whose values arise in the run.
        alignment: the alignment steps, None for none.
        notes: what was left out or repeated, one sentence each, with file and line.
    """

    suite: Suite
    legacy: bool
    mode: Mode
    model: str
    python: Words
    legs: tuple[Leg, ...]
    autocasts: tuple[str, ...]
    trainers: tuple[Trainer, ...]
    train_flags: Mapping[str, Words]
    eval: Words | None
    extra_eval: Words
    models: tuple[InferModel, ...]
    inference: Words | None
    axes: Mapping[str, Axis]
    infer_flags: Mapping[str, Words]
    slots: Slots
    alignment: Alignment | None
    notes: tuple[str, ...]
