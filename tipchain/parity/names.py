"""File names of a stage: the user documents' section 2.2.3."""

from __future__ import annotations

from tipchain.errors import UsageError, did_you_mean
from tipchain.stage_table import INFO, SCRIPTS, STAGES


def prefix(stage: str) -> str:
    """Return the stage's file prefix: ``bp_align`` for backward, ``train_align`` for train."""
    return INFO[stage].prefix


def dump_name(stage: str, side: str) -> str:
    """Return the dump's file name; ``"torch"`` stands for the reference, ``benchmark`` in the training stage."""
    role = INFO[stage].reference if side == "torch" else side
    return f"{prefix(stage)}_{role}.npy"


def tensors_name(stage: str, side: str) -> str:
    """Return the name of the safetensors file beside the dump; ``"torch"`` stands for the reference."""
    role = INFO[stage].reference if side == "torch" and INFO[stage].solo else side
    return f"{prefix(stage)}_{role}.safetensors"


def log_name(stage: str) -> str:
    """Return the diff log's file name."""
    return f"{prefix(stage)}_diff.log"


def parse_stages(text: str) -> tuple[str, ...]:
    """Return the stages that ``text`` names: stage names or script numbers, split on ``,`` or ``|``.

    Raises:
        UsageError: an unknown name or number, or none at all.
    """
    chosen: set[str] = set()
    for word in text.replace("|", ",").split(","):
        name = word.strip()
        if name.isdigit() and f"{int(name):02d}" in SCRIPTS:
            chosen.update(SCRIPTS[f"{int(name):02d}"][1])
        elif name in STAGES:
            chosen.add(name)
        else:
            hint = did_you_mean(name, (*STAGES, *SCRIPTS))
            raise UsageError(
                f"unknown stage {name!r}" + (f", {hint}" if hint else "")
                + f"\n  expected: {', '.join(STAGES)} or a script number 01 to 05"
            )  # fmt: skip
    return tuple(stage for stage in STAGES if stage in chosen)
